"""Consume queues: their files, their databases, where they begin and end."""
