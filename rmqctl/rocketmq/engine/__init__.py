"""The store engine: the write side of a RocketMQ store (`StoreEngine`).

What writes raises IOFailure where the system refuses; a docstring names it only where it says what is left then.
"""
