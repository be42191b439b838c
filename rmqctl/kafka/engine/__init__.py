"""Writing log directories of Kafka: batches, segments and their indexes, checkpoints, compaction.

What writes raises IOFailure where the system refuses; a docstring names it only where it says what is left then.
"""
