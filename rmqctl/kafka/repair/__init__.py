"""Mending of log directories with the least loss, by plan."""
