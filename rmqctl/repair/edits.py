"""What a repair may do to a store: six kinds of edit, and what a plan of them comes down to for each file.

Whoever knows what is wrong with a store (recovery replay, rebuild, repair) makes the list of edits; `rmqctl.repair`
alone carries it out. Each edit can be taken back. File names are relative to the root of the store, with `/`.

Steps of a plan may touch a file several times. Carried out one by one they could not be taken up again after a kill,
because nobody knows which was the last. So they are added up first: a file has two sides, before and after, and is
driven to one of them by requests that may be repeated from anywhere between.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Put `after` in the place of `before`, both of one length, at byte `offset`."""

    file: str
    offset: int
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Extend:
    """Make a file longer, from `from_size` to `to_size` bytes, with zeros (sparse where possible)."""

    file: str
    from_size: int
    to_size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Make a file shorter, from `from_size` to `to_size` bytes."""

    file: str
    from_size: int
    to_size: int


@dataclass(frozen=True, slots=True)
class Create:
    """Make a file that is not there, with the bytes of `content` or those of the file `source`.

    `size` is its length; bytes after the content are zeros. A large file is built beside the store first
    and named by `source`.
    """

    file: str
    content: bytes = b""
    source: Path | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Move a file out of the broker's sight, into the quarantine beside the journal. Nothing is deleted."""

    file: str


@dataclass(frozen=True, slots=True)
class SetTimes:
    """Set the modification time of a file, in nanoseconds since the epoch (brokers expire files by it)."""

    file: str
    mtime_ns: int


Edit = Overwrite | Extend | Cut | Create | Quarantine | SetTimes

StepName = tuple[str, str, str]
"""Id, file and `what` of a step: the same each time that the plan is made."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of a plan: what is wrong where, what is done, and what proves that it is right.

    `id` is the finding's id (or the step's own name), `loses` the number of messages given up by it, `gives_up` the
    names of those among them that were whole, as the books of a plan name records. `instead` is what could be done
    in place of it: the `what` of a step that is planned where this one's name is accepted; "" where nothing could.
    `about` is what it is about in words of whoever uses the store; "": its file.
    """

    id: str
    file: str
    what: str
    why: str
    edits: tuple[Edit, ...] = ()
    loses: int = 0
    gives_up: tuple[str, ...] = ()
    instead: str = ""
    about: str = ""

    @property
    def name(self) -> StepName:
        """Which step it is."""
        return self.id, self.file, self.what

    def is_chosen(self, only: Collection[str], skip: Collection[str]) -> bool:
        """Whether the step is wanted by ids of findings, in which ``*`` matches anything; ``only`` empty means all."""
        named = not only or any(fnmatchcase(self.id, pattern) for pattern in only)
        return named and not any(fnmatchcase(self.id, pattern) for pattern in skip)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they are carried out, for the store at `root`."""

    root: Path
    title: str
    steps: tuple[Step, ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Every edit of every step, in order."""
        return tuple(edit for step in self.steps for edit in step.edits)


# --- edits for the bytes that differ ----------------------------------------------------------------


_APART = 16
_PAGE = 4096
PIECE = 1 << 20
"""Bytes of one piece at most."""


def placed(name: str, source: Path) -> list[Create | SetTimes]:
    """Put the bytes at a path into a file, with their time."""
    return [Create(name, source=source), SetTimes(name, source.stat().st_mtime_ns)]


def changes(file: str, offset: int, before: bytes, after: bytes) -> Iterator[Overwrite]:
    """Yield overwrites for the bytes that differ; runs at most 16 bytes apart are one.

    Args:
        offset: of both in the file; they have one length.
    """
    import numpy as np  # not where plans are only carried out

    rows = np.flatnonzero(np.frombuffer(before, np.uint8) != np.frombuffer(after, np.uint8))
    if not len(rows):
        return
    breaks = np.flatnonzero(np.diff(rows) > _APART)
    firsts, lasts = rows[np.r_[0, breaks + 1]].tolist(), rows[np.r_[breaks, len(rows) - 1]].tolist()
    for first, last in zip(firsts, lasts, strict=True):
        for at in range(first, last + 1, PIECE):
            stop = min(at + PIECE, last + 1)
            yield Overwrite(file, offset + at, before[at:stop], after[at:stop])


def zeroed(file: str, offset: int, raw: bytes) -> Iterator[Overwrite]:
    """Zeros over all of ``raw`` that is not zero; page by page, so that holes stay holes."""
    for at in range(0, len(raw), _PAGE):
        piece = raw[at : at + _PAGE].rstrip(b"\0")
        if piece:
            yield Overwrite(file, offset + at, piece, bytes(len(piece)))


# --- what a plan comes down to ---------------------------------------------------------------------


STORE = ""
"""The place of a file that lies in the store, under its own name."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes that lie in a file; `crc` is their CRC-32 where it is known."""

    path: str
    offset: int
    size: int
    crc: int | None = None


Payload = bytes | Region


def load(payload: Payload) -> bytes:
    """Return the bytes of a payload.

    Raises:
        ValueError: they are not those that were written.
    """
    if isinstance(payload, bytes):
        return payload
    with open(payload.path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), payload.size, payload.offset)
    if len(data) != payload.size or (payload.crc is not None and zlib.crc32(data) != payload.crc):
        raise ValueError(f"{payload.path}: the {payload.size:,} bytes at {payload.offset:,} are not those written")
    return data


@dataclass(frozen=True, slots=True)
class Side:
    """How a file is before or after.

    Attributes:
        place: `STORE`, or where it lies in the directory of journals: ``0001/quarantine/commitlog/...``.
        mtime_ns: modification time in nanoseconds since the epoch.
    """

    place: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ChangedBytes:
    """Bytes of a file that differ between the sides; None where a side has zeros or no such bytes."""

    offset: int
    size: int
    before: Payload | None
    after: Payload | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file on both sides.

    Attributes:
        name: relative to the store's root.
        floor: the shortest it was on the way; after it every byte is a piece's or zero.
        pieces: ascending; those after `floor` have one side only.
        content: what a new file holds when it is made, before its pieces; None for a file that was there.
    """

    name: str
    before: Side
    after: Side
    floor: int
    pieces: tuple[ChangedBytes, ...] = ()
    content: Payload | None = None

    @property
    def moves(self) -> bool:
        """Whether it enters or leaves the store."""
        return self.before.place != self.after.place

    @property
    def kept_at(self) -> str:
        """Its place outside the store, "" for a file that stays."""
        return self.before.place or self.after.place

    @property
    def is_edited(self) -> bool:
        """Whether bytes, size or time differ."""
        b, a = self.before, self.after
        return bool(self.pieces) or b.size != a.size or self.floor < b.size or b.mtime_ns != a.mtime_ns

    def side(self, *, after: bool) -> Side:
        return self.after if after else self.before

    def payloads(self, *, after: bool) -> Iterator[tuple[int, int, Payload]]:
        """Offset, size and bytes of the pieces that one side has."""
        for piece in self.pieces:
            payload = piece.after if after else piece.before
            if payload is not None:
                yield piece.offset, piece.size, payload


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """A directory that is there on one side only."""

    name: str
    before: bool
    after: bool
    mode: int
    owner: tuple[int, int]

    def side(self, *, after: bool) -> bool:
        return self.after if after else self.before


@dataclass(frozen=True, slots=True)
class Changes:
    """All that a plan changes.

    Attributes:
        root: the store, an absolute path without links.
        lock: name of the lock file in it.
        steps: rows for people: what each step of the plan is for.
        times: modification times of the directories that lose or gain names, the same on both sides.
    """

    root: str
    lock: str
    title: str
    steps: tuple[dict[str, Any], ...]
    files: tuple[FileChange, ...]
    directories: tuple[DirectoryChange, ...]
    times: tuple[tuple[str, int], ...]

    def path(self, name: str) -> str:
        """Where a file of the store lies."""
        return os.path.join(self.root, name) if name else self.root

    def reversed(self, title: str) -> Changes:
        """Return the changes that take these back."""
        return replace(
            self,
            title=title,
            files=tuple(_turned(f) for f in self.files),
            directories=tuple(replace(d, before=d.after, after=d.before) for d in self.directories),
        )


def _turned(file: FileChange) -> FileChange:
    pieces = tuple(replace(p, before=p.after, after=p.before) for p in file.pieces)
    return replace(file, before=file.after, after=file.before, pieces=pieces, content=None)
