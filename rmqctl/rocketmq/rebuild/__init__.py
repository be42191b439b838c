"""Queues, index and checkpoint made from the log, compared with what is there, and put in its place."""
