"""The tags code of a queue unit: a hash of the tags, or when a delayed message is due (spec 3.2, 2.13)."""

from __future__ import annotations

import re

from formats.text import java_hash

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY = 1000
"""ms by which a message of an unknown level is delayed."""
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def tags_code(tags: str | None) -> int:
    """Java hash of the whole TAGS text, sign-extended; 0 without tags."""
    return java_hash(tags) if tags else 0


def parse_delay_levels(text: str = DEFAULT_DELAY_LEVELS) -> dict[int, int]:
    """Delay of each level in ms; levels count from 1 (``messageDelayLevel``)."""
    found = {}
    for level, part in enumerate(text.split(), 1):
        match = re.fullmatch(r"(\d+)([smhd])", part)
        if match:
            found[level] = int(match[1]) * _UNITS[match[2]]
    return found


def delivery_time(store_timestamp: int, level: int, delays: dict[int, int]) -> int:
    """When a delayed message is due, epoch ms."""
    return store_timestamp + delays.get(min(level, max(delays, default=0)), UNKNOWN_LEVEL_DELAY)
