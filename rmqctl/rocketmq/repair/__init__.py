"""From findings to a repair plan for a RocketMQ store; nothing here writes."""
