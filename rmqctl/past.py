"""A store as it was at a time: what its log proves of it; the rest is unknown, with a reason.

What a log holds is in the order in which it was appended, so a time is a place in it where all stamps before are not
later, and all after are. Where clocks do not settle the place it lies between two, and known is only what is the same
at both. Nothing is estimated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqctl.text import instant, listed_names

Fields = dict[str, Any]
_A_SECOND = 1000
RETENTION, COMPACTION, GONE, DAMAGE = "retention", "compaction", "gone", "damage"
SET_BACK, CLIENTS, NOT_NOTED = "clock-set-back", "clients-clock", "not-noted"
REASONS: Mapping[str, str] = {
    RETENTION: "the messages that would show were deleted since",
    COMPACTION: "later records of the same keys took the place of those that would show",
    GONE: "what the log here was of is not here any more, or is another one since: deleted, made again, or moved",
    DAMAGE: "the bytes that would show are damaged, or missing",
    SET_BACK: "the clock was set back, so that it showed the time more than once",
    CLIENTS: "only the clocks of clients date these messages, and they do not say when a broker got them",
    NOT_NOTED: "no file notes when it changed",
}
"""Why something is unknown, as the rows have it under ``unknown``, and in words."""


@dataclass(slots=True)
class Past:
    """What is asked for, and what was found to be unknown.

    Attributes:
        at: epoch ms; what was written in this millisecond counts.
        lost: by reason the names of what is unknown, in the order met, and the earliest time from which on all of it
            would be known, epoch ms.
    """

    at: int
    lost: dict[str, tuple[dict[str, None], int | None]] = field(default_factory=dict)

    def forget(self, row: Fields, names: Iterable[str], reason: str, begins: int | None = None) -> Fields:
        """Make values of a row unknown.

        Args:
            begins: from when on they would be known, epoch ms; None: nobody knows.
        """
        for name in (name for name in names if name in row):
            row[name] = None
            row["unknown"][name] = reason
            known, time = self.lost.setdefault(reason, ({}, None))
            known[name] = None
            times = [one for one in (time, begins) if one is not None]
            self.lost[reason] = known, max(times, default=None)
        return row

    def agreed(
        self, low: Iterable[Fields], high: Iterable[Fields], keys: tuple[str, ...], reason: Callable[[Fields], str]
    ) -> Iterator[Fields]:
        """Yield the rows of two places of the log between which the time lies, by their keys; what differs is unknown.

        Args:
            reason: says why the place is not settled for a row.
        """
        first, second = ({tuple(row[key] for key in keys): row for row in rows} for rows in (low, high))
        for key in [*second, *(key for key in first if key not in second)]:
            one, other = first.get(key), second.get(key)
            either = one or other
            assert either is not None
            row = {**either, "unknown": {**either.get("unknown", {})}}
            differ = [name for name in either if name not in keys and (one or {}).get(name) != (other or {}).get(name)]
            if one is None or other is None:
                differ = [name for name in either if name not in keys]
            differ = [name for name in differ if name != "unknown" and name not in row["unknown"]]
            yield self.forget(row, differ, reason(row)) if differ else row

    def remarks(self) -> list[str]:
        """Return a sentence for each reason for which something is unknown, and forget it."""
        said = []
        for reason, (names, begins) in self.lost.items():
            since = f"; history begins at {instant(begins)}" if begins is not None else ""
            said.append(f"unknown in part: {listed_names([*names])}: {REASONS[reason]} ({reason}){since}")
        self.lost.clear()
        return said


def is_current(at: int, *, is_running: bool) -> bool:
    """Whether a time is that of a store that nobody writes: the second that passes while a question is asked."""
    return not is_running and at >= time.time_ns() // 1_000_000 - _A_SECOND


def said_time(at: int) -> str:
    """Return what is said first of an answer about a time."""
    return f"as it was at {instant(at)}, as far as the log shows"
