"""The files of a RocketMQ store as annotated bytes."""
