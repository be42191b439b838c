"""Finding the place that damage is to be done to, and doing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TypeVar

from rmqctl.errors import IOFailure, Refused
from rmqctl.open import open_store_at
from rmqctl.rocketmq.commitlog import CommitLog
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.geometry import index_geometry
from rmqctl.rocketmq.index_files import index_files
from rmqctl.rocketmq.store import QUEUES

T = TypeVar("T")
_UNIT = 20
_MAX_RECORDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A record: its file, where it lies there and in the log, and its parts, in bytes."""

    file: Path
    position: int
    physical: int
    size: int
    body_at: int
    body_size: int
    topic_width: int
    store_timestamp: int


class Target:
    """A store that is to be damaged.

    Args:
        where: a number, a place such as ``50%``, or "" for one that the seed chooses.
    """

    def __init__(self, root: Path, disk: Disk, where: str, random: Random) -> None:
        self.root, self.random = root, random
        self._disk, self._where = disk, where
        self._store = open_store_at(str(root))

    # --- places -------------------------------------------------------------------------------

    def record(self, *, with_body: bool = False) -> Place:
        """The record that is meant; by choice one inside the log, not at its ends."""
        found = [r for r in self._records if r.body_size] if with_body else self._records
        return self._chosen(found, "record", inner=True)

    def last_record(self) -> Place:
        """The last record of the log."""
        return self._some(self._records, "record")[-1]

    def log_end(self) -> int:
        """Physical offset behind the last record."""
        last = self.last_record()
        return last.physical + last.size

    @cached_property
    def _records(self) -> list[Place]:
        found: list[Place] = []
        for block in (b.block for b in CommitLog(self._store.log_files).walk()):
            file = self.root / block.file
            columns = (
                block.position, block.physical, block.total_size, block.body_at + block.start, block.body_size,
                1 + (block.variant >> 2), block["store_timestamp"],
            )  # fmt: skip
            found += [Place(file, *row) for row in zip(*(c.tolist() for c in columns), strict=True)]
            if len(found) > _MAX_RECORDS:
                break
        return found

    def blank(self) -> tuple[Path, int, int]:
        """A blank record: file, position, size."""
        found = [
            (self.root / b.block.file, blank.position, blank.size)
            for b in CommitLog(self._store.log_files).walk()
            for blank in b.block.blanks
        ]
        return self._chosen(found, "full log file")

    def log_file(self, *, inner: bool = False) -> Path:
        """A file of the log; ``inner``: not the last."""
        found = [self.root / f.name for f in self._store.log_files]
        return self._chosen(found[: -1 if inner else None], "log file in front of another" if inner else "log file")

    def queue_file(self) -> Path:
        """A file of a queue."""
        return self._chosen([p for p, _ in self._queue_files], "queue file")

    def filled_queue_file(self, room: int = 0) -> tuple[Path, int]:
        """A queue file with units, and their number; with room for more."""
        found = [(p, n) for p, n in self._queue_files if n >= 2 and n + room <= p.stat().st_size // _UNIT]
        last = {p.parent: p for p, _ in self._queue_files}
        return self._chosen([f for f in found if not room or last[f[0].parent] == f[0]], "queue file with units")

    @cached_property
    def _queue_files(self) -> list[tuple[Path, int]]:
        found = []
        for path in sorted((self.root / QUEUES).rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                units = (any(data[at + 8 : at + 12]) for at in range(0, len(data) - _UNIT + 1, _UNIT))
                found.append((path, sum(units)))
        return found

    def index_file(self) -> Path:
        """An index file."""
        return self._chosen([self.root / e.path for e in self._store.index_files], "index file")

    def index_entry(self) -> tuple[Path, int, int]:
        """An entry of an index file: file, number, position."""
        geometry, found = index_geometry(self._store), []
        for file in index_files(self._store, geometry):
            if file.count:
                found.append((self.root / file.path, file.count))
            file.close()
        path, count = self._chosen(found, "index file with entries")
        number = 1 + self.random.randrange(count)
        return path, number, geometry.entry_at(number)

    def _chosen(self, found: Sequence[T], what: str, *, inner: bool = False) -> T:
        found = self._some(found, what)
        text, count = self._where, len(found)
        try:
            if text.endswith("%"):
                return found[min(max(int(float(text[:-1]) / 100 * count), 0), count - 1)]
            if text:
                return found[int(text)]
        except (ValueError, IndexError):
            raise Refused(
                f"@{text} names no {what}: there are {count}; give 0 to {count - 1}, -1 for the last, or 50%"
            ) from None
        low, high = (count // 4, max(count * 3 // 4, count // 4 + 1)) if inner else (0, count)
        return found[self.random.randrange(low, high)]

    def _some(self, found: Sequence[T], what: str) -> Sequence[T]:
        if not found:
            raise Refused(f"{self.root} has no {what} to damage; produce more messages first")
        return found

    # --- changes ------------------------------------------------------------------------------

    def write(self, file: Path, at: int, data: bytes) -> str:
        """Overwrite bytes."""
        fd = self._disk.open(file)
        try:
            self._disk.write(fd, data, at)
        finally:
            os.close(fd)
        return f"{self.name(file)}, {len(data)} bytes at {at}"

    def flip(self, file: Path, at: int, *, bits: int = 0) -> str:
        """Change a byte: a bit of it, or those given."""
        with file.open("rb") as source:
            source.seek(at)
            old = source.read(1)[0]
        return self.write(file, at, bytes([old ^ (bits or 1 << self.random.randrange(8))]))

    def cut(self, file: Path) -> str:
        """Make a file shorter, to between a third and two thirds."""
        size = file.stat().st_size
        length = size // 3 + self.random.randrange(max(size // 3, 1))
        try:
            os.truncate(file, length)
        except OSError as error:
            raise IOFailure(f"cannot cut {file}", error) from error
        return f"{self.name(file)} cut from {size} to {length} bytes"

    def remove(self, file: Path) -> str:
        """Delete a file."""
        self._disk.remove(file)
        return f"{self.name(file)} removed"

    def make(self, name: str, data: bytes) -> str:
        """Make a file."""
        self._disk.write_file(self.root / name, data)
        return f"{name} made"

    def size(self, file: Path) -> int:
        """Bytes of a file."""
        return file.stat().st_size

    def name(self, file: Path) -> str:
        """Relative to the store."""
        return str(file.relative_to(self.root))
