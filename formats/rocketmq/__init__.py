"""The files of a RocketMQ broker store, one module per file kind."""
