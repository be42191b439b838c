"""The queues and the index in the memory of a recovering broker: files, write positions, and what it appends.

The files on disk are only read. What the broker would write lies over them, so that units which a cut leaves in their
places and later units replace come out as they would (spec 3.4, 3.9, 6.6; batch queues 3.6, BatchConsumeQueue). Of
the index the last file goes on, and new files follow (spec 4.3 to 4.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqctl.files.local import WrittenRanges
from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.rules import DispatchRequest
from rmqctl.rocketmq.dispatch.series import Entries, IndexSeries, Slots
from rmqctl.rocketmq.dispatch.units import Appended, BatchQueueState, QueueState
from rmqctl.rocketmq.index import HEADER_SIZE, IndexFile, IndexHead
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.queues.files import (
    BATCH_UNIT,
    RECOVERED_FILES,
    UNIT,
    Units,
    is_pre_blank,
    is_valid,
    is_valid_batch,
)
from rmqctl.rocketmq.queues.ranges import first_live
from rmqctl.rocketmq.recovery.rules import Key
from rmqctl.rocketmq.store.files import StoreFile
from rmqctl.rocketmq.store.geometry import IndexGeometry

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file whose end the broker moves; bytes. What lies after ``to`` stays on disk and no longer counts."""

    file: str
    from_size: int
    to_size: int


@dataclass(slots=True)
class FileImage:
    """One file of a queue.

    Attributes:
        base: byte of the sequence where it starts; size: bytes.
        wrote: bytes of it that count.
        file: on disk; None for one that the broker would create.
        written: bytes written by the replay.
    """

    base: int
    size: int
    wrote: int
    file: StoreFile | None = None
    written: WrittenRanges = field(default_factory=WrittenRanges)

    def units(self, dtype: np.dtype[np.void]) -> Units:
        """Return the units of the file as the broker would read them, shape (n,); at least one, and after them only
        zeros.
        """
        data = bytearray(self.raw())
        data.extend(bytes(max(self.written.end - len(data), 0)))
        self.written.lay_over(0, data)
        count = min(max(-(-len(data) // dtype.itemsize), 1), self.size // dtype.itemsize)
        data.extend(bytes(max(count * dtype.itemsize - len(data), 0)))
        return np.frombuffer(data, dtype, count)

    def raw(self) -> bytes:
        """Return what is on disk, up to the last part that may hold anything."""
        if self.file is None:
            return b""
        source = self.file.open()
        try:
            end = max((end for _, end in source.data_ranges(0, self.size)), default=0)
            return source.read_at(0, end)
        finally:
            source.close()


class Shift(NamedTuple):
    """Where a queue goes on with a unit that does not belong there.

    Attributes:
        stated: the queue offset that its record has; placed: the one that it gets.
        begin, end: physical offsets between which the records lie whose units are missing in front of it.
    """

    stated: int
    placed: int
    begin: int
    end: int


class QueueImage:
    """A simple consume queue.

    Attributes:
        files: in the order of the broker's list.
        max_physical: physical offset after the record of the last unit; -1 without one.
        min_logic: byte of the sequence of the first unit that counts.
        removed: files on disk that the broker deletes.
        appended: units appended by the replay, fillers apart.
        lost: physical offset, size and queue offset of what the units say that a cut takes away.
        refused: physical offset and size of units that the last file has no room for, and no other file is made for.
        blank: the same of units that a start takes for written and that are not: it reads the last three files alone.
        shift: where units begin to get other queue offsets than their records state; None where none does.
        shifted: how many units get such an offset.
    """

    dtype: np.dtype[np.void] = UNIT
    valid: Callable[[Units], npt.NDArray[np.bool_]] = staticmethod(is_valid)

    def __init__(self, key: Key, files: list[StoreFile], file_size: int, *, skips_repeated: bool = True) -> None:
        self.key, self.file_size, self.skips_repeated = key, file_size, skips_repeated
        self.files = [FileImage(f.base, f.size, f.size, f) for f in files]
        self.max_physical, self.min_logic = -1, 0
        self.removed: list[StoreFile] = []
        self.appended = 0
        self.lost: list[tuple[int, int, int]] = []
        self.refused: list[tuple[int, int]] = []
        self.blank: list[tuple[int, int]] = []
        self._unread_end = 0
        self.shift: Shift | None = None
        self.shifted = 0

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return int(self.dtype.itemsize)

    @property
    def end(self) -> int:
        """Byte of the sequence after the last unit that counts; 0 without a file."""
        return self.files[-1].base + self.files[-1].wrote if self.files else 0

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""
        return self.end // self.unit_size

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message."""
        return self.min_logic // self.unit_size

    @property
    def directory(self) -> str:
        """Where its files lie, relative to the store."""
        kind, topic, queue_id = self.key
        return f"{kind}/{topic}/{queue_id}"

    def destroy(self) -> None:
        """Delete all files, as a broker does when the log has none (``destroyLogics``)."""
        for file in self.files:
            self._lose(file, 0)
            self._remove(file)
        self.files, self.max_physical, self.min_logic = [], -1, 0

    def cuts(self) -> Iterator[CutFile]:
        """Files on disk that end earlier than their bytes show."""
        for file in self.files:
            if file.file is not None and file.wrote < file.size:
                left = file.units(self.dtype)[file.wrote // self.unit_size :]
                if any(left.tobytes()):
                    yield CutFile(file.file.name, file.size, file.wrote)

    def recover(self) -> None:
        """Find the end of the queue in its last three files (``ConsumeQueue.recover``)."""
        if not self.files:
            return
        end = 0
        self._unread_end = self.files[-RECOVERED_FILES:][0].base
        for file in self.files[-RECOVERED_FILES:]:
            count = self._note_units(file.units(self.dtype))
            end = file.base + count * self.unit_size
            if count * self.unit_size < file.size:
                break
        self._cut_files(end)

    def _note_units(self, units: Units) -> int:
        """Return the number of valid units in front; remembers the last of them."""
        bad = np.flatnonzero(~self.valid(units))
        count = int(bad[0]) if len(bad) else len(units)
        if count:
            self._note(units[count - 1])
        return count

    def _note(self, unit: np.void) -> None:
        self.max_physical = int(unit["physical_offset"]) + int(unit["size"])

    def _cut_files(self, end: int) -> None:
        """``MappedFileQueue.truncateDirtyFiles``."""
        kept = []
        for file in self.files:
            if file.base + file.size <= end:
                kept.append(file)
            elif file.base <= end:
                file.wrote = end % self.file_size
                kept.append(file)
            else:
                self._remove(file)
        self.files = kept

    def _remove(self, file: FileImage) -> None:
        if file.file is not None:
            self.removed.append(file.file)

    def put_many(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> None:
        """Append the units of records in log order, by the rules of dispatch; shape (n,) each."""
        for first in range(0, len(physical), _CHUNK):
            part = slice(first, first + _CHUNK)
            self._put(physical[part], size[part], tags_code[part], queue_offset[part])

    def _put(self, physical: Ints, size: Ints, tags_code: Ints, queue_offset: Ints) -> None:
        present = physical + size <= self.max_physical if self.skips_repeated else physical < self.max_physical
        place, skipped = queue_offset * self.unit_size, present | self.skips_repeated
        unread = skipped & (queue_offset > 0) & (place < self._unread_end)  # the first of a queue is appended
        self._note_blank(physical[unread], size[unread], place[unread])
        begin = self.files[0].base if self.files else -1
        state = QueueState(self.file_size, begin, self.end, self.max_physical, skips_repeated=self.skips_repeated)
        if present.all():
            return
        new = slice(int(np.argmin(present)), None)
        if not self.files and queue_offset[new][0]:  # a queue without a file begins at the message that makes one
            self.min_logic = int(queue_offset[new][0]) * self.unit_size
        appended = state.put_many(physical[new], size[new], tags_code[new], queue_offset[new])
        if self.files:
            self._note_shift(appended, physical[new], queue_offset[new])
        for found in appended:
            self._write(found)
        self.max_physical = state.max_physical
        made = sum(len(found.data) for found in appended) // self.unit_size
        is_on_grid = self.end % self.unit_size == 0
        if self.blank and is_on_grid and made < len(physical[new]):  # the first may stand in the place of one of these
            given = [np.frombuffer(found.data, self.dtype)["physical_offset"] for found in appended]
            left = ~present & ~unread & ~np.isin(physical, np.concatenate([*given, np.zeros(0)]))
            self._note_blank(physical[left], size[left], place[left], own=True)

    def _note_blank(self, physical: Ints, size: Ints, place: Ints, *, own: bool = False) -> None:
        """Note those of some records, with their places in the sequence, that have no unit there.

        Args:
            own: nor that of another record.
        """
        for file in self.files if len(place) else ():
            here = np.flatnonzero((place >= file.base) & (place < file.base + file.size))
            if len(here):
                units, number = file.units(self.dtype), (place[here] - file.base) // self.unit_size
                is_there = number < len(units)
                found = units[number[is_there]]
                there = self.valid(found)
                if own:
                    there &= found["physical_offset"] == physical[here[is_there]]
                is_there[is_there] = there
                gone = here[~is_there]
                self.blank += zip(physical[gone].tolist(), size[gone].tolist(), strict=True)

    def _note_shift(self, appended: Iterable[Appended], physical: Ints, stated: Ints) -> None:
        """Compare where units go with the queue offsets that records state: a broker appends, and only logs it.

        Units that go off the grid have no queue offset of their own.
        """
        order = np.argsort(physical, kind="stable")
        for found in (one for one in appended if one.position % self.unit_size == 0):
            units = np.frombuffer(found.data, self.dtype)
            rows = order[np.searchsorted(physical[order], units["physical_offset"].astype(np.int64))]
            placed = found.position // self.unit_size + np.arange(len(units))
            wrong = np.flatnonzero((stated[rows] != placed) & (stated[rows] != 0) & ~is_pre_blank(units))
            if len(wrong) and self.shift is None:
                row = int(wrong[0])
                first = int(units["physical_offset"][row])
                self.shift = Shift(int(stated[rows[row]]), int(placed[row]), max(self.max_physical, 0), first)
            self.shifted += len(wrong)

    def _write(self, found: Appended) -> None:
        """Append to the last file and to new ones after it.

        A file whose write position is off the grid of units never becomes full: a broker then makes no new file, waits
        a second for each unit that has no room, and goes on without it (``putMessagePositionInfoWrapper``).
        """
        position, data = found.position, found.data
        while data:
            file = self._file_for(position)
            room = file.size - file.wrote
            part = data[: room - room % self.unit_size]
            units = np.frombuffer(part or data, self.dtype)
            real = units[~is_pre_blank(units)]
            if not part:
                self.refused += zip(real["physical_offset"].tolist(), real["size"].tolist(), strict=True)
                return
            self.appended += len(real)
            file.written.put(file.wrote, part)
            file.wrote += len(part)
            position, data = position + len(part), data[len(part) :]

    def _file_for(self, position: int) -> FileImage:
        """Return the last file, or the one that follows it when it is full."""
        if not self.files:
            self.files.append(FileImage(position - position % self.file_size, self.file_size, 0))
        elif self.files[-1].wrote == self.files[-1].size:
            self.files.append(FileImage(self.files[-1].base + self.file_size, self.file_size, 0))
        return self.files[-1]

    def truncate(self, physical: int) -> None:
        """Cut the queue where units point at or after ``physical`` (``truncateDirtyLogicFiles``).

        The files are read from their start, so units that an earlier cut left count again; the first unit of
        a file is taken whatever it is.
        """
        self.max_physical = physical
        while self.files:
            file = self.files[-1]
            units = file.units(self.dtype)
            if int(units["physical_offset"][0]) >= physical:
                self._lose(file, 0)
                self._remove(self.files.pop())
                continue
            bad = np.flatnonzero(~self.valid(units[1:]) | (units["physical_offset"][1:] >= physical))
            count = 1 + (int(bad[0]) if len(bad) else len(units) - 1)
            file.wrote = count * self.unit_size
            self._note(units[count - 1])
            self._lose(file, count)
            return

    def given_up(self, physical: int) -> tuple[list[tuple[int, int, int]], int]:
        """Return what :meth:`truncate` would take away, as :attr:`lost`, and the byte of the sequence where the queue
        would end, without doing it.
        """
        tried = copy(self)
        tried.files, tried.removed, tried.lost = [copy(file) for file in self.files], [], []
        tried.truncate(physical)
        return tried.lost, tried.end or (self.files[0].base if self.files else 0)

    def _lose(self, file: FileImage, first: int) -> None:
        units = file.units(self.dtype)
        real = first + np.flatnonzero(self.valid(units[first:]) & ~is_pre_blank(units[first:]))
        named = (units[name][real].tolist() for name in ("physical_offset", "size"))
        self.lost += zip(*named, self._offsets(file, units, real).tolist(), strict=True)

    def _offsets(self, file: FileImage, units: Units, numbers: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """Queue offsets of units of a file by their numbers in it."""
        return file.base // self.unit_size + numbers.astype(np.int64)

    def correct_minimum(self, log_begin: int, *, minimum_5: bool) -> None:
        """``ConsumeQueue.correctMinOffset`` of 4.x or 5.x, with the log beginning at ``log_begin``."""
        if not self.files:
            return
        if minimum_5:
            self._correct_5(log_begin)
        else:
            units = self._first_units()
            live = np.flatnonzero(units["physical_offset"] >= log_begin)
            if len(live):
                self.min_logic = self.files[0].base + int(live[0]) * self.unit_size

    def _first_units(self) -> Units:
        return self.files[0].units(self.dtype)[: self.files[0].wrote // self.unit_size]

    def _correct_5(self, log_begin: int) -> None:
        last = self.files[-1]
        if self.min_logic >= self.end:
            return
        if last.wrote >= self.unit_size:
            unit = last.units(self.dtype)[last.wrote // self.unit_size - 1]
            if int(unit["physical_offset"]) < log_begin:
                self.min_logic = self.end
                return
        start = self.min_logic - self.files[0].base
        intact, start = start >= 0, max(start, 0)
        if start > self.files[0].wrote:
            return
        physical = self._first_units()["physical_offset"][start // self.unit_size :]
        if not len(physical) or (intact and int(physical[0]) >= log_begin):
            return
        found = first_live(lambda number: int(physical[number]), len(physical), log_begin)
        if found is not None:
            self.min_logic = self.files[0].base + start + found * self.unit_size


# --- one batch consume queue in the memory of a recovering broker -----------------------------------


class BatchQueueImage(QueueImage):
    """A batch consume queue; ``max_physical`` is the start of the last unit's record, not its end."""

    dtype = BATCH_UNIT
    valid = staticmethod(is_valid_batch)
    _minimum = -1
    _maximum = 0

    @property
    def min_offset(self) -> int:
        return self._minimum

    @property
    def max_offset(self) -> int:
        return self._maximum

    def recover(self) -> None:
        super().recover()
        if self.files:
            self._revise()

    def _note(self, unit: np.void) -> None:
        self.max_physical = int(unit["physical_offset"])

    def _offsets(self, file: FileImage, units: Units, numbers: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        return units["base_offset"][numbers].astype(np.int64)

    def put(self, request: DispatchRequest) -> None:
        """Append the unit of one record."""
        state = BatchQueueState(self.end, self.max_physical, self._maximum)
        found = state.put(request)
        if found is None:
            return
        first = not self.files
        self._write(found)
        self.max_physical, self._maximum = state.last_physical, state.next_offset
        if first and self._minimum == -1:
            self._revise_minimum()

    def truncate(self, physical: int) -> None:
        super().truncate(physical)
        if not self.files:
            self.max_physical = physical - 1
        self._revise()

    def _revise(self) -> None:
        """``reviseMaxAndMinOffsetInQueue``: the ends as the first and the last two files show them."""
        self._revise_minimum()
        last = next((u for f in self.files[:-3:-1] if (u := self._last_unit(f)) is not None), None)
        self._maximum = 0 if last is None else int(last["base_offset"]) + int(last["batch_size"])

    def _revise_minimum(self) -> None:
        self._minimum = -1
        if self.files and self.files[0].wrote >= self.unit_size:
            self._minimum = int(self.files[0].units(self.dtype)["base_offset"][0])

    def _last_unit(self, file: FileImage) -> np.void | None:
        count = file.wrote // self.unit_size
        unit: np.void | None = file.units(self.dtype)[count - 1] if count else None
        return unit

    def correct_minimum(self, log_begin: int, *, minimum_5: bool) -> None:
        self._revise_minimum()
        if not self.files:
            self._maximum = 0
            return
        units = self._first_units()
        old = units["physical_offset"] < log_begin
        count = int(np.argmin(old)) if not old.all() else len(units)
        if count:
            self._minimum = int(units["base_offset"][count - 1]) + int(units["batch_size"][count - 1])


# --- the index in the memory of a recovering broker -------------------------------------------------


@dataclass(slots=True)
class IndexParts:
    """What goes into one file: entries by number, and in the end its header and slots."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    head: bytes = b""
    slots: bytes = b""


class IndexImage:
    """Index files as they are after dispatch. The slots of the newest are read when something is put.

    Args:
        last: the newest file that loading left, None without one.
        counts_slots: `DispatchRules.counts_slots`.
    """

    def __init__(self, last: IndexFile | None, geometry: IndexGeometry, *, counts_slots: bool) -> None:
        self.last, self.geometry, self._counts_slots = last, geometry, counts_slots
        self._written: list[IndexParts] = [IndexParts()]

    @cached_property
    def _series(self) -> IndexSeries:
        last = self.last
        head = IndexHead.parse(read_index(last, 0, HEADER_SIZE)) if last else None
        slots = last.slots(0, self.geometry.slots) if last else None
        return IndexSeries(self.geometry, counts_slots=self._counts_slots, sink=self, head=head, slots=slots)

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log."""
        if len(columns.keys):
            self._series.add(columns)

    def entries(self, first: int, entries: Entries) -> None:
        """Take entries of the current file; the series calls it."""
        self._written[-1].entries.append((self.geometry.entry_at(first), entries.tobytes()))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Complete the current file; the series calls it."""
        self._written[-1].head, self._written[-1].slots = head.pack(), slots.astype(">i4").tobytes()
        self._written.append(IndexParts())

    @property
    def heads(self) -> list[IndexHead]:
        """Headers of the files from the last that was there on."""
        return self._series.heads

    def finish(self) -> list[IndexParts]:
        """Return what goes into each file, first into the one that was there; nothing may be put any more."""
        if "_series" in vars(self):
            self._series.finish()
        return self._written[:-1]


def read_index(file: IndexFile, offset: int, size: int) -> bytes:
    """Return bytes of an index file; zeros after its end."""
    source = file.tree.open(file.path)
    try:
        return source.read_at(offset, size).ljust(size, b"\0")
    finally:
        source.close()
