"""Which messages or records are wanted: what users may ask for, in words that fit every family of stores.

A family decides how it applies them; what has no meaning in it is refused there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rmqctl.errors import WrongUsage
from rmqctl.text import milliseconds_of

if TYPE_CHECKING:
    from datetime import datetime

_NEAREST = 3
DEFAULT_MAX_BODY = 4 << 20
"""Bytes a body may grow to where nobody says more: clients refuse longer ones by default before they compress them."""

TIME_WORDS = ("earliest", "latest", "max-timestamp")
"""What stands for a time where a Kafka broker is asked for one (ListOffsets)."""


def asked_time(option: str, moment: datetime | str | int) -> int:
    """Return a time that is asked for in epoch milliseconds.

    Raises:
        WrongUsage: it is no time (:func:`rmqctl.text.milliseconds_of`).
    """
    try:
        return milliseconds_of(moment)
    except ValueError as error:
        raise WrongUsage(option, f"takes a time: {error}.") from None


def bound(option: str, moment: datetime | str | int | None) -> int | None:
    """Return a bound of time in epoch milliseconds; None where there is none.

    Raises:
        WrongUsage: it is no time.
    """
    return None if moment is None else asked_time(option, moment)


class Glob(str):
    """A pattern of names: ``*`` stands for any text, ``?`` for one character, ``[ab]`` for one of these, ``[*]`` for a
    star.

    A plain ``str`` is a name as it stands, since a store may hold names with these characters.
    """

    __slots__ = ()


Named = str | Sequence[str] | None
"""Names, and patterns where they are a :class:`Glob`; None for all there are."""


@dataclass(frozen=True, slots=True)
class Names:
    """Which names are wanted: one of some, or one that a pattern matches; all without any.

    Attributes:
        exact: names as they stand.
        like: patterns.
    """

    exact: tuple[str, ...] = ()
    like: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Named) -> Names:
        """Return what a user gives."""
        each = () if given is None else (given,) if isinstance(given, str) else given
        exact = tuple(name for name in each if not isinstance(name, Glob))
        return cls(exact, tuple(str(name) for name in each if isinstance(name, Glob)))

    def __bool__(self) -> bool:
        return bool(self.exact or self.like)

    def include(self, name: str | None) -> bool:
        """Whether a name is wanted; where some are, what has none is not."""
        return not self or (name is not None and (name in self.exact or self._matches(name)))

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some names that are wanted, and exact ones that are not among them, too."""
        found = [name for name in names if self._matches(name) and name not in self.exact]
        return (*self.exact, *found)

    def said(self, noun: str) -> str:
        """Return the names after what they are names of: ``topic A or B``."""
        return f"{noun} {' or '.join((*self.exact, *self.like))}" if self else f"any {noun}"

    def unmet(self, found: Collection[str]) -> list[str]:
        """Return the names and patterns that none of those found is or matches."""
        patterns = [Glob(like) for like in self.like if not any(fnmatchcase(name, like) for name in found)]
        return [*(name for name in self.exact if name not in found), *patterns]

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, like) for like in self.like)


ALL = Names()


def nearest(name: str, names: Collection[str]) -> list[str]:
    """Return up to three names that a user may have meant, best first."""
    from difflib import get_close_matches

    same = [n for n in names if n.casefold() == name.casefold() or name.casefold() in n.casefold()]
    return (same + [n for n in get_close_matches(name, names, _NEAREST, 0.6) if n not in same])[:_NEAREST]


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the end of a sentence that says a name is unknown; "" where none is near."""
    found = nearest(name, names)
    return f"; did you mean {' or '.join(found)}?" if found else ""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which records are wanted; None and empty mean no restriction, all given ones must hold.

    Attributes:
        topic: its topic is one of these.
        queue: queue id, or number of the partition.
        key: one part of KEYS, or the key of a record, is one of these.
        properties: names of properties or headers with the value each must have.
        after, before: store time or timestamp in epoch milliseconds; ``after`` is inclusive, ``before`` exclusive.
        from_offset, to_offset: physical offset in bytes (Kafka: record offset); from is inclusive, to exclusive.
        grep: searched in the body or value, decompressed.
        limit: records to show at most.
        damaged: only damage.
    """

    topic: Named = None
    queue: int | None = None
    key: Named = None
    tag: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    after: int | None = None
    before: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    grep: re.Pattern[bytes] | None = None
    limit: int | None = None
    damaged: bool = False

    def __post_init__(self) -> None:
        for name in ("topic", "key"):
            if getattr(self, name) in ((), []):
                object.__setattr__(self, name, None)

    @property
    def topics(self) -> Names:
        """The topics that are wanted."""
        return Names.of(self.topic)

    @property
    def keys(self) -> Names:
        """The keys that are wanted."""
        return Names.of(self.key)

    @property
    def is_empty(self) -> bool:
        """Whether every record is wanted."""
        return self == Filters()


@dataclass(frozen=True, slots=True)
class Rendering:
    """What is shown of a message beside its header, and in which form.

    Attributes:
        body, raw_body: add the body decompressed, or as stored.
        body_limit: show at most so many bytes of it.
        max_body: bytes that a compressed body may grow to.
        redact: bodies, keys and property values become hashes.
        records: Kafka: each batch is followed by its records.
    """

    body: bool = False
    raw_body: bool = False
    body_limit: int | None = None
    redact: bool = False
    records: bool = False
    max_body: int = DEFAULT_MAX_BODY


def within(value: int | None, low: int | None, high: int | None) -> bool:
    """Whether a value lies between two bounds, the upper one excluded; an unknown one only where there is no bound."""
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value < high)
