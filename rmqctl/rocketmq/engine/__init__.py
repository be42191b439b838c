"""The store engine: the write side of a RocketMQ store (`StoreEngine`)."""
