"""What a plan comes down to: for every file it touches, how it is before and how it is after.

Steps of a plan may touch a file several times. Carried out one by one they could not be taken up again
after a kill, because nobody knows which was the last. So they are added up first: a file has two sides,
before and after, and is driven to one of them by requests that may be repeated from anywhere between.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

STORE = ""
"""The place of a file that lies in the store, under its own name."""
PIECE = 1 << 20
"""Bytes of one piece at most."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes that lie in a file; `crc` is their CRC-32 where it is known."""

    path: str
    offset: int
    size: int
    crc: int | None = None


Payload = bytes | Region


def load(payload: Payload) -> bytes:
    """The bytes of a payload.

    Raises:
        OSError: they cannot be read.
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
class Piece:
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
        floor: the shortest it was on the way; behind it every byte is a piece's or zero.
        pieces: ascending; those behind `floor` have one side only.
        content: what a new file holds when it is made, before its pieces; None for a file that was there.
    """

    name: str
    before: Side
    after: Side
    floor: int
    pieces: tuple[Piece, ...] = ()
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
        """The changes that take these back."""
        return replace(
            self,
            title=title,
            files=tuple(_turned(f) for f in self.files),
            directories=tuple(replace(d, before=d.after, after=d.before) for d in self.directories),
        )


def _turned(file: FileChange) -> FileChange:
    pieces = tuple(replace(p, before=p.after, after=p.before) for p in file.pieces)
    return replace(file, before=file.after, after=file.before, pieces=pieces, content=None)
