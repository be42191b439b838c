"""The one scan of segments, batches and records as columns, indexes and snapshots: what the bytes of a log hold."""
