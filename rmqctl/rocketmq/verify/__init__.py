"""All checks of a RocketMQ store: each file alone, the records of the log, then across files."""

from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions

__all__ = ["Level", "Verification", "VerifyOptions"]
