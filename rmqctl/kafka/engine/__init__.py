"""Writing log directories of Kafka: batches, segments and their indexes, checkpoints, compaction."""
