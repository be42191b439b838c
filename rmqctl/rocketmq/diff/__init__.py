"""Two stores side by side: logs by physical offset, what is left by queue offset, then the queues."""
