"""Which messages or records are wanted: what users may ask for, in words that fit every family of stores.

A family decides how it applies them; what has no meaning in it is refused there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqctl.errors import WrongUsage
from rmqctl.text import milliseconds_of

if TYPE_CHECKING:
    from datetime import datetime

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


@dataclass(frozen=True, slots=True)
class Filters:
    """Which records are wanted; None and empty mean no restriction, all given ones must hold.

    Attributes:
        queue: queue id, or number of the partition.
        key: one part of KEYS, or the key of a record.
        properties: names of properties or headers with the value each must have.
        after, before: store time or timestamp in epoch milliseconds; ``after`` is inclusive, ``before`` exclusive.
        from_offset, to_offset: physical offset in bytes (Kafka: record offset); from is inclusive, to exclusive.
        grep: searched in the body or value, decompressed.
        limit: records to show at most.
        damaged: only damage.
    """

    topic: str | None = None
    queue: int | None = None
    key: str | None = None
    tag: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    after: int | None = None
    before: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    grep: re.Pattern[bytes] | None = None
    limit: int | None = None
    damaged: bool = False

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
