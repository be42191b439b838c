"""The tags code that each record's queue unit must carry, and the delay levels that only data shows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.tags_code import SCHEDULE_TOPIC, delivery_time, parse_delay_levels
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import Pairs
from rmqctl.rocketmq.java_hash import hash_codes, signed


@dataclass(slots=True)
class DelayLevels:
    """Delay of each level in ms.

    Without broker.conf the levels are learned: a level's delay is what the first unit of it shows,
    and later units must show the same (a constant difference is a setting, not damage).

    Attributes:
        known: levels of messageDelayLevel; empty when nobody said.
        learned: what units have shown so far.
    """

    known: dict[int, int] = field(default_factory=dict)
    learned: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None) -> DelayLevels:
        """Levels from broker.conf's ``messageDelayLevel``, None to learn them."""
        return cls(parse_delay_levels(text) if text else {})

    def fits(self, level: int, store_timestamp: int, code: int) -> bool:
        """Whether a unit's code is the delivery time of a message of this level."""
        if self.known:
            return code == delivery_time(store_timestamp, level, self.known)
        return self.learned.setdefault(level, code - store_timestamp) == code - store_timestamp


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


__all__ = ["DelayLevels", "delayed", "tags_codes"]
