"""Records whose unit is not there, or wrong, in columns: of lost queues every message of the log is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.queues.files import Units

Key = tuple[str, int]
"""Topic and queue id."""
Flags = npt.NDArray[np.bool_]
_ROW = np.dtype([("queue", "i4"), ("size", "i4"), ("unit", "i4"), ("offset", "i8"), ("physical", "i8")])
_UNIT = np.dtype([("physical", "i8"), ("size", "i8"), ("code", "i8"), ("expected", "i8")])
_NONE = -1


@dataclass(frozen=True, slots=True)
class Missing:
    """A record whose unit is not there, or wrong.

    Attributes:
        offset: its queue offset; physical, end: where the record lies in the log.
        actual: the unit found there (offset, size, tags code), None when it is empty.
        expected: the unit it should be, where ``actual`` is not None.
    """

    key: Key
    offset: int
    physical: int
    end: int
    actual: tuple[int, int, int] | None = None
    expected: tuple[int, int, int] | None = None


class MissingUnits:
    """Many of them, 28 bytes for each without a unit, in log order unless said otherwise; can be pickled."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self._parts: list[npt.NDArray[np.void]] = []
        self._units: list[npt.NDArray[np.void]] = []
        self._found = 0

    def _numbered(self, keys: Sequence[Key]) -> Ints:
        for key in keys:
            if key not in self._numbers:
                self._numbers[key] = len(self._keys)
                self._keys.append(key)
        return np.array([self._numbers[key] for key in keys], np.int64)

    def add(self, keys: Sequence[Key], queue: Ints, offset: Ints, physical: Ints, size: Ints) -> None:
        """Add records without a unit.

        Args:
            queue: which of the keys, for each record, shape (n,) as those that follow.
            offset: queue offsets; physical, size: bytes.
        """
        numbers = self._numbered(keys)
        rows = np.zeros(len(offset), _ROW)
        rows["queue"], rows["offset"], rows["physical"], rows["size"] = numbers[queue], offset, physical, size
        rows["unit"] = _NONE
        self._parts.append(rows)

    def add_wrong(
        self, keys: Sequence[Key], queue: Ints, offset: Ints, physical: Ints, size: Ints, units: Units, codes: Ints
    ) -> None:
        """Add records with a unit that is wrong, or empty; arguments as for :meth:`add`.

        Args:
            units: found in their places; codes: the tags codes that they should have.
        """
        self.add(keys, queue, offset, physical, size)
        wrong = np.flatnonzero(units["size"] != 0)
        found = np.zeros(len(wrong), _UNIT)
        found["physical"], found["size"] = units["physical_offset"][wrong], units["size"][wrong]
        found["code"], found["expected"] = units["tags_code"][wrong], codes[wrong]
        self._parts[-1]["unit"][wrong] = np.arange(self._found, self._found + len(wrong))
        self._units.append(found)
        self._found += len(wrong)

    def join(self, other: MissingUnits) -> None:
        """Add those of the next stretch of the log."""
        if len(other):
            numbers = self._numbered(other._keys)
            rows = other._rows.copy()
            rows["queue"] = numbers[rows["queue"]]
            rows["unit"][rows["unit"] != _NONE] += self._found
            self._parts.append(rows)
            self._units.append(other._wrong)
            self._found += other._found

    @property
    def _rows(self) -> npt.NDArray[np.void]:
        if len(self._parts) != 1:
            self._parts = [np.concatenate([np.zeros(0, _ROW), *self._parts])]
        return self._parts[0]

    @property
    def _wrong(self) -> npt.NDArray[np.void]:
        if len(self._units) != 1:
            self._units = [np.concatenate([np.zeros(0, _UNIT), *self._units])]
        return self._units[0]

    @property
    def offset(self) -> Ints:
        """Queue offsets."""
        return self._rows["offset"]

    @property
    def physical(self) -> Ints:
        """Where the records lie in the log."""
        return self._rows["physical"]

    @property
    def end(self) -> Ints:
        """Physical offsets after them."""
        return self._rows["physical"] + self._rows["size"]

    @property
    def is_wrong(self) -> Flags:
        """Which have a unit, another than they should."""
        return np.asarray(self._rows["unit"] != _NONE)

    @property
    def retagged(self) -> Ints:
        """Physical offsets of those whose unit leads to them, and has another tags code than they have."""
        rows = self._rows[self.is_wrong]
        units = self._wrong[rows["unit"]]
        is_own = (units["physical"] == rows["physical"]) & (units["size"] == rows["size"])
        found: Ints = rows["physical"][is_own & (units["code"] != units["expected"])]
        return found

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def __iter__(self) -> Iterator[Missing]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, row: int) -> Missing:
        queue, size, unit, offset, physical = self._rows[row].tolist()
        key, end = self._keys[queue], physical + size
        if unit == _NONE:
            return Missing(key, offset, physical, end)
        *actual, code = self._wrong[unit].tolist()
        return Missing(key, offset, physical, end, (actual[0], actual[1], actual[2]), (physical, size, code))

    def where(self, chosen: Flags) -> MissingUnits:
        """Return those that flags of shape (n,) choose."""
        return self if chosen.all() else self._of(np.flatnonzero(chosen))

    def of_queues(self, is_wanted: Callable[[Key], bool]) -> MissingUnits:
        """Return those of some queues."""
        wanted = np.array([is_wanted(key) for key in self._keys], bool)
        return self.where(wanted[self._rows["queue"]])

    def by_queue(self) -> dict[Key, MissingUnits]:
        """Return those of each queue that has any."""
        queues = self._rows["queue"]
        order = np.argsort(queues, kind="stable")
        first = np.flatnonzero(np.diff(queues[order], prepend=-1))
        parts = np.split(order, first[1:])
        return {self._keys[int(queues[rows[0]])]: self._of(rows) for rows in parts if len(rows)}

    def by_offset(self) -> MissingUnits:
        """Return them by queue offset."""
        return self._of(np.argsort(self.offset, kind="stable"))

    def _of(self, rows: Ints) -> MissingUnits:
        found = MissingUnits()
        found._keys, found._numbers = self._keys, self._numbers
        found._parts, found._units, found._found = [self._rows[rows]], [self._wrong], self._found
        return found
