"""Several topics named by one pattern: T{0..2} is T0, T1, T2."""

from __future__ import annotations

import math
import re

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")

MOST_TOPICS = 10_000


def number_of_topics(topics: tuple[str, ...]) -> int:
    """How many topics the patterns name."""
    return sum(
        math.prod(max(int(last) - int(first) + 1, 0) for first, last in _BRACES.findall(topic)) for topic in topics
    )


def expanded(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Topics with number ranges written out: T{0..2} is T0, T1, T2."""
    found: list[str] = []
    for topic in topics:
        match = _BRACES.search(topic)
        if match is None:
            found.append(topic)
        else:
            numbers = range(int(match[1]), int(match[2]) + 1)
            found += expanded(tuple(topic[: match.start()] + str(n) + topic[match.end() :] for n in numbers))
    return tuple(found)
