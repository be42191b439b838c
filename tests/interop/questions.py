"""Random questions to a store: keys, times and offsets that are in it, beside what is in it, and far outside."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Question = tuple[str, tuple[Any, ...]]
"""Command of the judge, its words."""
STRANGE_KEYS = (
    "",
    "none",
    "AaAa",
    "AaBB",
    "BBBB",
    "tbaekxa",
    "polygenelubricants",
    "ключ",
    "键 ",
    "a#b",
    "ünï",
    "\u0000",
    "😀",
)
FAR = 2**62


@dataclass(frozen=True, slots=True)
class Known:
    """A message of the store, as far as questions need it."""

    topic: str
    queue: int
    offset: int
    stored: int
    keys: tuple[str, ...]


def questions(rng: random.Random, known: Sequence[Known], count: int, *, boundaries: bool) -> list[Question]:
    """``count`` questions of each kind; ``boundaries``: the release can be asked for LOWER and UPPER."""
    times = sorted(message.stored for message in known)
    ends = {(m.topic, m.queue): m.offset + 1 for m in known}
    found: list[Question] = []
    for _ in range(count):
        message, other = rng.choice(known), rng.choice(known)
        key = rng.choice((*message.keys, *message.keys, *other.keys, rng.choice(STRANGE_KEYS)))
        topic = rng.choice((message.topic, message.topic, message.topic, other.topic, "Nowhere"))
        found.append(
            ("key", (topic, key, rng.choice((1, 2, 10, 32, 64, 65, 1000)), *_span(rng, message.stored, times)))
        )
        side = rng.choice(("", "LOWER", "UPPER")) if boundaries else ""
        found.append(("time", (message.topic, message.queue, _time(rng, message.stored, times), side)))
        end = ends[message.topic, message.queue]
        offset = rng.choice((message.offset, 0, -1, end - 1, end, end + 1, end + 1000, rng.randrange(end + 1), FAR))
        found.append(("get", (message.topic, message.queue, offset, rng.choice((1, 2, 8, 32, 33)))))
    return found


def _time(rng: random.Random, stored: int, times: Sequence[int]) -> int:
    near = stored + rng.choice((0, 0, 1, -1, 999, -1000))
    return rng.choice(
        (
            near,
            near,
            near,
            times[0] - 1,
            times[0],
            times[-1],
            times[-1] + 1,
            0,
            1,
            FAR,
            rng.randrange(times[0], times[-1] + 1),
        )
    )


def _span(rng: random.Random, stored: int, times: Sequence[int]) -> tuple[int, int]:
    near = stored + rng.choice((0, 0, -1, 1, -500, 500, -1000, 1000))
    return rng.choice((
        (0, FAR), (0, FAR), (times[0], times[-1]), (near, FAR), (0, near), (near, near), (near, near + 1000), (near + 1000, near), (times[-1] + 5000, FAR), (0, 1),
    ))  # fmt: skip
