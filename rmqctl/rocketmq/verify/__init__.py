"""All checks of a RocketMQ store: each file alone, the records of the log, then across files; see ``driver``."""
