"""The next queue offset of every queue (spec 2.16; QueueOffsetOperator)."""

from __future__ import annotations

from collections.abc import Mapping

Key = tuple[str, int]


class QueueOffsets:
    """Counters by topic and queue id; a queue not seen before starts at 0. Callers hold the append lock.

    Attributes:
        counters: the offset that the next message of each queue gets.
    """

    def __init__(self, known: Mapping[Key, int] | None = None) -> None:
        self.counters: dict[Key, int] = dict(known or {})

    def next(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets."""
        return self.counters.get((topic, queue_id), 0)

    def advance(self, topic: str, queue_id: int, count: int) -> None:
        """Count messages as appended."""
        key = topic, queue_id
        self.counters[key] = self.counters.get(key, 0) + count

    def snapshot(self) -> dict[Key, int]:
        """All counters as they are now."""
        return dict(self.counters)
