"""Derived files of log directories, made from the logs alone."""
