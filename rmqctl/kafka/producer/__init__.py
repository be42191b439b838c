"""Producing into a log directory: what to send, to which partition, in which batches."""
