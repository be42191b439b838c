"""The tables of log directories: records, batches and the like as Arrow batches; how logs are divided among tasks."""
