"""RocketMQ broker stores, read side: discovery, geometry, the scan, queues, index, and what they agree on."""
