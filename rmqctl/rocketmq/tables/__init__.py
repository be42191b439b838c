"""The tables of a store: messages, units, index entries as Arrow batches, and how a log is divided among tasks."""
