"""One file of the store against the one that was built: what becomes of it, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqctl.files.source import ByteSource
from rmqctl.rocketmq.queue_files import is_pre_blank

CHUNK_UNITS = 1 << 15
_CHUNK = 1 << 20


class Change(StrEnum):
    """What becomes of a file: ``equal`` and ``keep`` leave it alone."""

    EQUAL = "equal"
    KEEP = "keep"
    CREATE = "create"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file of the store.

    Attributes:
        file: relative to the root of the store.
        staged: the built file; None where nothing was built for it.
        why: one sentence.
        first: byte of the first difference; None without one.
        units: units or entries that differ; None where they are not counted.
        undispatched: physical offset of the first record whose unit is not there; -1 without one.
    """

    file: str
    change: Change
    why: str = ""
    staged: Path | None = None
    first: int | None = None
    units: int | None = None
    undispatched: int = -1

    def row(self) -> dict[str, object]:
        """As a JSON object."""
        return {
            "file": self.file,
            "change": str(self.change),
            "differing_units": self.units,
            "first_difference": self.first,
            "why": self.why,
        }


@dataclass(slots=True)
class Differences:
    """What differs in one queue file, in units.

    Attributes:
        missing, wrong, surplus: units that are not there, are others, or stand for no record.
        expired: units that stay as they are.
        first: number of the first unit that differs; None without one.
        undispatched: physical offset of the first record without a right unit; -1 without one.
    """

    missing: int = 0
    wrong: int = 0
    surplus: int = 0
    expired: int = 0
    first: int | None = None
    undispatched: int = -1

    @property
    def count(self) -> int:
        """Units that differ."""
        return self.missing + self.wrong + self.surplus

    def add(self, at: int, rows: npt.NDArray[np.int64], old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> None:
        """Note the rows that differ in pieces of both files that begin with unit ``at``."""
        if not len(rows):
            return
        is_old, is_new = old["size"][rows] != 0, new["size"][rows] != 0
        self.missing += int(np.count_nonzero(~is_old))
        self.surplus += int(np.count_nonzero(~is_new))
        self.wrong += int(np.count_nonzero(is_old & is_new))
        self.first = at + int(rows[0]) if self.first is None else self.first
        if self.undispatched < 0 and is_new.any():
            self.undispatched = int(new["physical_offset"][rows[is_new]][0])

    def why(self) -> str:
        """One sentence."""
        counts = ((self.missing, "missing"), (self.wrong, "wrong"), (self.surplus, "without a record"))
        parts = [f"{count:,} {what}" for count, what in counts if count]
        return f"units: {', '.join(parts)}"


def first_difference(old: ByteSource, new: ByteSource) -> int | None:
    """The first byte where two files differ, or where the shorter ends; None if they are equal.

    Raises:
        OSError: a file cannot be read.
    """
    try:
        if old.size() != new.size():
            return min(old.size(), new.size())
        for at, many in written(old, new, _CHUNK):
            a, b = old.read_at(at, many), new.read_at(at, many)
            if a != b:
                pairs = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
                return at + int(np.argmax(pairs))
        return None
    finally:
        old.close()
        new.close()


def first_record(source: ByteSource, dtype: np.dtype[np.void]) -> int:
    """Physical offset of the first record that a queue file points to; -1 without one."""
    try:
        for at, many in written(source, source, CHUNK_UNITS, dtype.itemsize):
            units = units_at(source, at, many, dtype)
            real = units["physical_offset"][(units["size"] > 0) & ~is_pre_blank(units)]
            if len(real):
                return int(real[0])
        return -1
    finally:
        source.close()


def written(old: ByteSource, new: ByteSource, most: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """Where either of two files of one size holds data, as (first unit, units), at most ``most`` at a time.

    Holes of both are left out: they are zero in both.

    Args:
        unit: bytes of a unit; what remains of the file behind the last whole one is left out.
    """
    end, done = new.size() // unit, 0
    ranges = sorted(r for source in (old, new) for r in source.data_ranges(0, new.size()))
    for start, stop in ranges:
        done, stop = max(done, start // unit), min(-(-stop // unit), end)
        while done < stop:
            many = min(most, stop - done)
            yield done, many
            done += many


def units_at(source: ByteSource, first: int, count: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Units of a file from number ``first`` on, fewer where it ends."""
    data = source.read_at(first * dtype.itemsize, count * dtype.itemsize)
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


def different(old: npt.NDArray[np.void], new: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Rows whose bytes differ."""
    size = old.dtype.itemsize
    a, b = (units.view(np.uint8).reshape(-1, size) for units in (old, new))
    found: npt.NDArray[np.int64] = np.flatnonzero((a != b).any(axis=1)) if (a != b).any() else np.zeros(0, np.int64)
    return found
