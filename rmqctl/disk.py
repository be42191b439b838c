"""Which files take the room of a store, what retention frees of it and when, and what may go without a loss."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rmqctl.answer import Answer, Row, Section
from rmqctl.text import instant, listed, number_of


class Fate(StrEnum):
    """What may become of a file: ``retention`` messages, which the broker alone deletes, the oldest first; ``rebuilt``
    made again from the log, so that it may go while the broker is stopped; ``safe`` nothing reads it any more;
    ``kept`` never.
    """

    RETENTION = "retention"
    REBUILT = "rebuilt"
    SAFE = "safe"
    KEPT = "kept"


_SAID = {
    Fate.SAFE: "may be deleted without a loss",
    Fate.REBUILT: "made again from the log by `rmqctl rebuild`, while the broker is stopped",
    Fate.RETENTION: "messages: only the broker deletes them, the oldest files first",
    Fate.KEPT: "never to be deleted",
}
_COLUMNS = ("topic", "holds", "files", "bytes_used", "expired_bytes", "expires_timestamp", "fate")
_HEADER = (
    "topic", "{number}", "holds", "files", "bytes", "bytes_used", "expired_bytes", "expires_timestamp",
    "oldest_timestamp", "newest_timestamp", "fate",
)  # fmt: skip
_SECTOR = 512
"""What st_blocks counts in."""


@dataclass(slots=True)
class Use:
    """Files of one kind that belong together.

    Attributes:
        topic, number: whose they are: queue or partition; None where they are the store's.
        holds: what they hold, one word.
        bytes: their lengths; bytes_used: what the file system has given them, which is less where a file has holes.
        expired_bytes: bytes on the disk that retention frees at its next run.
        expires: when more of it expires, epoch ms; None for never, or where all has.
        oldest, newest: last modifications, epoch ms; 0 where unknown.
    """

    holds: str
    fate: Fate
    topic: str | None = None
    number: int | None = None
    files: int = 0
    bytes: int = 0
    bytes_used: int = 0
    expired_bytes: int = 0
    expires: int | None = None
    oldest: int = 0
    newest: int = 0

    def add(self, size: int, bytes_used: int, modified: int, expires: int | None = None, now: int = 0) -> None:
        """Count a file.

        Args:
            expires: when retention lets it go, epoch ms; None for never.
        """
        self.files, self.bytes, self.bytes_used = self.files + 1, self.bytes + size, self.bytes_used + bytes_used
        self.oldest = min(self.oldest or modified, modified)
        self.newest = max(self.newest, modified)
        if expires is not None and expires <= now:
            self.expired_bytes += bytes_used
        elif expires is not None:
            self.expires = min(self.expires or expires, expires)

    def join(self, other: Use) -> None:
        """Add what another one counted."""
        for name in ("files", "bytes", "bytes_used", "expired_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.oldest = min(filter(None, (self.oldest, other.oldest)), default=0)
        self.newest = max(self.newest, other.newest)
        self.expires = min((at for at in (self.expires, other.expires) if at is not None), default=None)

    def row(self, number: str) -> dict[str, Any]:
        """Return it as a row.

        Args:
            number: the key of queue ids or partitions; "" to leave it out.
        """
        return {
            "topic": self.topic,
            **({number: self.number} if number else {}),
            "holds": self.holds,
            "files": self.files,
            "bytes": self.bytes,
            "bytes_used": self.bytes_used,
            "expired_bytes": self.expired_bytes,
            "expires_timestamp": self.expires,
            "oldest_timestamp": self.oldest or None,
            "newest_timestamp": self.newest or None,
            "fate": str(self.fate),
        }


def now_ms() -> int:
    """Return the time, epoch ms."""
    return time.time_ns() // 1_000_000


def used(path: str | None, size: int) -> int:
    """Return the bytes that the file system has given a file; its size where nobody here can tell."""
    if path is None:
        return max(size, 0)
    try:
        return os.stat(path).st_blocks * _SECTOR
    except OSError:
        return max(size, 0)


def show_uses(answer: Answer, uses: Iterable[Use], root: str, *, number: str, by_topic: bool, rule: str) -> None:
    """Make rows of uses, the largest first, with sentences on what they add up to.

    Args:
        root: a directory on the disk that is asked for its free room; not looked at where it is none.
        number: the key of queue ids or partitions.
        by_topic: those of a topic added up.
        rule: what retention goes by, a sentence.
    """
    kept = list(_by_topic(uses) if by_topic else uses)
    kept.sort(key=lambda use: -use.bytes_used)
    key = "" if by_topic else number
    rows = [use.row(key) for use in kept]
    answer.rows, answer.is_no = rows, not rows
    answer.columns = [*_COLUMNS[:1], *([key] if key else []), *_COLUMNS[1:]]
    answer.header = [name.format(number=key) for name in _HEADER if key or name != "{number}"]
    room = shutil.disk_usage(root) if os.path.isdir(root) else None

    def sections() -> Iterator[Section]:
        yield Section(rows=rows, columns=answer.columns)
        yield Section(lines=_sentences(kept, room, rule), folds=True)

    answer.sections = sections
    answer.summary = lambda: _summary(kept, room)


def _by_topic(uses: Iterable[Use]) -> Iterator[Use]:
    found: dict[tuple[str | None, str, Fate], Use] = {}
    for use in uses:
        found.setdefault((use.topic, use.holds, use.fate), Use(use.holds, use.fate, use.topic)).join(use)
    yield from found.values()


def _summary(uses: Sequence[Use], room: Any) -> Row:
    fates = Counter[str]()
    for use in uses:
        fates[str(use.fate)] += use.bytes_used
    return {
        "kind": "summary",
        "files": sum(use.files for use in uses),
        "bytes_used": fates.total(),
        "expired_bytes": sum(use.expired_bytes for use in uses),
        "by_fate": dict(fates),
        "disk_free": None if room is None else room.free,
        "disk_total": None if room is None else room.total,
    }


def _sentences(uses: Sequence[Use], room: Any, rule: str) -> Iterator[str]:
    said = _summary(uses, room)
    free = f"; {room.free:,} of {room.total:,} bytes of the disk are free" if room is not None else ""
    yield f"{number_of(said['bytes_used'], 'byte')} in {number_of(said['files'], 'file')}{free}"
    yield rule
    following = min((use.expires for use in uses if use.expires is not None), default=None)
    then = f"; the next file expires at {instant(following)}" if following is not None else ""
    yield f"retention frees {number_of(said['expired_bytes'], 'byte')} at its next run{then}"
    for fate, text in _SAID.items():
        held = Counter[str]()
        for use in uses:
            if use.fate is fate:
                held[use.holds] += use.bytes_used
        if held:
            yield f"{text}: {listed(held)}"
