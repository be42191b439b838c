"""Kafka log directories: what can be done with them when only the files are there."""
