"""Stores of one family made of stores of the other: messages, queues, offsets and consumer groups, both ways."""
