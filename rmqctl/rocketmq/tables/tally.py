"""How much of a log the tasks have gone through: counted where they read, added up by accumulators of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SparkSession = Any  # only `rmqctl.pipeline` imports its package


@dataclass(slots=True)
class Tally:
    """Messages, and bytes of log."""

    messages: int = 0
    bytes: int = 0


_here = Tally()  # of this process since the last call of taken()


def note(messages: int, size: int) -> None:
    """A task has read so many messages and bytes of log."""
    _here.messages += messages
    _here.bytes += size


def taken() -> Tally:
    """What was noted in this process since the last call."""
    found = Tally(_here.messages, _here.bytes)
    _here.messages = _here.bytes = 0
    return found


@dataclass(frozen=True, slots=True)
class Counters:
    """Accumulators of a session; they only grow, when a task ends."""

    messages: Any
    bytes: Any

    def add(self, tally: Tally) -> None:
        """In a task: what it has read."""
        self.messages.add(tally.messages)
        self.bytes.add(tally.bytes)

    def since(self, before: Tally) -> Tally:
        """On the driver: what has come in since."""
        return Tally(int(self.messages.value) - before.messages, int(self.bytes.value) - before.bytes)


_counters: dict[str, Counters] = {}


def counters(spark: SparkSession) -> Counters | None:
    """The accumulators of a session; None with Spark Connect, which has none."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - each release raises something else
        return None
    if context.applicationId not in _counters:
        _counters[context.applicationId] = Counters(context.accumulator(0), context.accumulator(0))
    return _counters[context.applicationId]


__all__ = ["Counters", "Tally", "counters", "note", "taken"]
