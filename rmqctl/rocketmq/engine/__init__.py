"""The store engine: the write side of a RocketMQ store (`StoreEngine`)."""

from __future__ import annotations

from rmqctl.rocketmq.engine.config import Clock, FlushMode, Host, MadeUpClock, StoreConfig, SystemClock
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutResult, PutStatus

__all__ = [
    "Clock",
    "FlushMode",
    "Host",
    "MadeUpClock",
    "Message",
    "MessageRefused",
    "PutResult",
    "PutStatus",
    "StoreConfig",
    "StoreEngine",
    "SystemClock",
]
