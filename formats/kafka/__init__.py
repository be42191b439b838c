"""Formats of Kafka log directories, one module per file kind."""
