"""The tags code that each record's queue unit must carry, and the delay levels that only data shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.tags_code import SCHEDULE_TOPIC, delivery_time, parse_delay_levels
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import Pairs
from rmqctl.rocketmq.java_hash import hash_codes, signed

_SECOND = 1000
Shown = Callable[[int], Iterable[int]]
"""Of a queue of the schedule topic: delivery time less store time of some of its messages, ms."""


@dataclass(slots=True)
class DelayLevels:
    """Delay of each level in ms.

    Without broker.conf the levels are learned from the queues: what most units of a queue show is its level's delay
    (a constant difference is a setting, not damage).

    Attributes:
        known: levels of messageDelayLevel; empty when nobody said.
        shown: what units of a queue show.
    """

    known: dict[int, int]
    shown: Shown
    _learned: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None, shown: Shown) -> DelayLevels:
        """Levels from broker.conf's ``messageDelayLevel``, None to learn them."""
        return cls(parse_delay_levels(text) if text else {}, shown)

    def due(self, level: int, queue_id: int, store_timestamp: int) -> int:
        """When a message of a level is due, in ms: the tags code of its unit."""
        if self.known:
            return delivery_time(store_timestamp, level, self.known)
        if queue_id not in self._learned:
            usual = delivery_time(0, queue_id + 1, parse_delay_levels())
            self._learned[queue_id] = likely_delay(self.shown(queue_id), usual)
        return store_timestamp + self._learned[queue_id]


def likely_delay(shown: Iterable[int], usual: int) -> int:
    """The delay of a level, ms: what most units show, of equally many the usual one, or whole seconds.

    Args:
        usual: the delay of this level where nobody configured it.
    """
    counts = Counter(delay for delay in shown if delay > 0 and delay % _SECOND == 0)
    return max(counts, key=lambda delay: (counts[delay], delay == usual), default=usual)


def tags_codes(block: Block, pairs: Pairs) -> Ints:
    """Java hash of each record's TAGS, 0 without; shape (n,)."""
    tags = pairs.named(b"TAGS")
    found = signed(hash_codes(tags.data, tags.value_at, tags.value_size))
    if len(tags) == len(block):
        return found
    codes = np.zeros(len(block), np.int64)
    codes[tags.owner] = found
    return codes


def delayed(pairs: Pairs, topics: Ints, names: list[bytes]) -> dict[int, int]:
    """Rows of the schedule topic with a delay level above 0, each with its level."""
    wanted = [n for n, name in enumerate(names) if name == SCHEDULE_TOPIC.encode()]
    if not wanted or not (topics == wanted[0]).any():
        return {}
    found = {}
    levels = pairs.named(b"DELAY")
    for i in range(len(levels)):
        row, text = int(levels.owner[i]), levels.value(i)
        if topics[row] == wanted[0] and text.isdigit() and int(text) > 0:
            found[row] = int(text)
    return found


__all__ = ["DelayLevels", "delayed", "likely_delay", "tags_codes"]
