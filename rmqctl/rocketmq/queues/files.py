"""Consume queue files as arrays of units, and which of them count (spec 3.1, 3.4, 3.9, 6.6).

A queue's units lie at ``queue offset * unit size`` of its file sequence. Everything is read in ranges; a queue is
never held as a whole unless it is small.

Units of many queues are looked up at once, by queue and queue offset: they are read in pages into one pool; a lookup
over thousands of rows is then one gather. A log is walked forwards, so pages that a lookup
needs are mostly those of the one before: when the pool is full only they are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.batch_consumequeue import BatchConsumeQueueUnit
from formats.rocketmq.consumequeue import PRE_BLANK_SIZE, ConsumeQueueUnit
from formats.rocketmq.message import decode_record
from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.derived import QUEUE_DIRECTORY
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.columns import run_starts
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.files import OFFSET_DIGITS, QueueFiles, StoreFile

UNIT = plan_of(ConsumeQueueUnit).runs[0].dtype
BATCH_UNIT = plan_of(BatchConsumeQueueUnit).runs[0].dtype
Units = npt.NDArray[np.void]
_CHUNK_UNITS = 1 << 16
RECOVERED_FILES = 3
"""Files at the end of a queue that a start reads (``ConsumeQueue.recover``); those in front it takes for written."""
_FAR = (1 << 63) - 1


def is_pre_blank(units: Units) -> npt.NDArray[np.bool_]:
    """Filler units in front of the first real one."""
    return (units["physical_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE)


def is_valid(units: Units) -> npt.NDArray[np.bool_]:
    """Units a broker takes for written: offset not negative, size positive (fillers included)."""
    return (units["physical_offset"] >= 0) & (units["size"] > 0)


def is_valid_batch(units: Units) -> npt.NDArray[np.bool_]:
    """Batch queue units that a broker takes for written, which also need a base offset and a count."""
    return is_valid(units) & (units["base_offset"] >= 0) & (units["batch_size"] > 0)


@dataclass(slots=True)
class Queue:
    """One queue's files, opened when read.

    Attributes:
        files: ascending by offset; what is not named by an offset is left out.
        dtype: layout of a unit.
    """

    where: QueueFiles
    files: list[StoreFile]
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, where: QueueFiles, dtype: np.dtype[Any] = UNIT) -> Queue:
        """Return the queue in a directory."""
        return cls(where, where.files()[0], dtype)

    @property
    def key(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.where.topic, self.where.queue_id

    def file_name(self, position: int) -> str:
        """Return the name of the file that begins at a byte position of the sequence, whether or not it is there."""
        return f"{self.where.path}/{position:0{OFFSET_DIGITS}d}"

    def read(self, file: StoreFile, first: int = 0, count: int | None = None) -> Units:
        """Units of one file from number ``first`` on; fewer where the file ends. A torn last unit is left out."""
        size = self.dtype.itemsize
        source = file.open()
        try:
            room = source.size() - first * size if count is None else count * size
            data = source.read_at(first * size, max(room, 0))
        finally:
            source.close()
        return np.frombuffer(data, self.dtype, len(data) // size)

    def chunks(self, file: StoreFile) -> Iterator[tuple[int, Units]]:
        """Yield the written parts of one file in pieces, each with the number of its first unit in the file.

        Holes of a sparse file are left out: their units are zero.
        """
        size = self.dtype.itemsize
        source = file.open()
        try:
            done = 0
            for start, stop in source.data_ranges(0, 1 << 62):
                done, end = max(done, start // size), -(-stop // size)
                while done < end:
                    data = source.read_at(done * size, min(_CHUNK_UNITS, end - done) * size)
                    units = np.frombuffer(data, self.dtype, len(data) // size)
                    if not len(units):
                        return
                    yield done, units
                    done += len(units)
        finally:
            source.close()

    def valid(self, units: Units) -> npt.NDArray[np.bool_]:
        """Which units count as written, by the rule of this kind of queue."""
        return is_valid_batch(units) if self.dtype is BATCH_UNIT else is_valid(units)

    def end(self) -> int:
        """Bytes of the sequence that hold units, as a broker finds them when it loads the queue (spec 6.6).

        It looks at the last three files: units count up to the first that is not valid.
        """
        position, size = 0, self.dtype.itemsize
        for file in self.files[-RECOVERED_FILES:]:
            count = self._valid_prefix(file)
            if count < file.size // size:
                return file.base + count * size
            position = file.base + file.size
        return position

    def _valid_prefix(self, file: StoreFile) -> int:
        """Units of a file in front of the first that does not count."""
        expected = 0
        for first, units in self.chunks(file):
            bad = np.flatnonzero(~self.valid(units))
            if first > expected or len(bad):
                return expected if first > expected else first + int(bad[0])
            expected = first + len(units)
        return expected

    def unit_at(self, position: int) -> Units | None:
        """Return the unit at a byte position of the sequence, None when no file holds it."""
        for file in self.files:
            if file.base <= position < file.base + file.size:
                units = self.read(file, (position - file.base) // self.dtype.itemsize, 1)
                return units if len(units) else None
        return None


class Window(NamedTuple):
    """A part of the log that queues and index are held against.

    Attributes:
        begin, end: physical offsets, the first and the one after the last.
        is_last: the log ends in it; whatever leads beyond is of it, too.
    """

    begin: int
    end: int
    is_last: bool

    def __contains__(self, physical: object) -> bool:
        return isinstance(physical, int) and self.begin <= physical and (self.is_last or physical < self.end)


_NO_WINDOW = Window(0, 0, is_last=False)


@dataclass(slots=True)
class QueueWindow(Queue):
    """A queue of which only the units are seen that lead into a part of the log, found by halving: where damaged units
    break their order, some may be left out.

    Attributes:
        high: the highest queue offset of a record of the part: a unit up to it that leads elsewhere is another part's.
    """

    window: Window = _NO_WINDOW
    high: int = -1

    @classmethod
    def of(cls, queue: Queue, window: Window, high: int = -1) -> QueueWindow:
        """Return what is seen of a queue."""
        return cls(queue.where, queue.files, queue.dtype, window, high)

    @property
    def is_empty(self) -> bool:
        """Whether no unit leads there."""
        return not any(units["size"].any() for file in self.files for _, units in self.chunks(file))

    def chunks(self, file: StoreFile) -> Iterator[tuple[int, Units]]:
        begin, end, is_last = self.window
        size, stop = self.dtype.itemsize, self._first(file, _FAR if is_last else end)
        stop = min(stop, self._unwritten(file)) if is_last else stop
        for at in range(self._first(file, begin), stop, _CHUNK_UNITS):
            units = self.read(file, at, min(_CHUNK_UNITS, stop - at)).copy()
            number, leads = file.base // size + at + np.arange(len(units)), units["physical_offset"]
            units[(leads < begin) | ((leads >= end) & (~np.bool_(is_last) | (number <= self.high)))] = 0
            if len(units):
                yield at, units
        if is_last:
            yield from self._after(file, stop)

    def _unwritten(self, file: StoreFile) -> int:
        """Return the number of the first unit of a file that is not written: halving may find a later one."""
        done = 0
        for first, units in Queue.chunks(self, file):
            if first > done:  # a hole
                break
            empty = np.flatnonzero(units["size"] == 0)
            if len(empty):
                return int(first + empty[0])
            done = first + len(units)
        return done

    def _after(self, file: StoreFile, stop: int) -> Iterator[tuple[int, Units]]:
        """Yield what is written after a unit that is not: wherever it leads, it is of the end of the log."""
        for first, units in Queue.chunks(self, file):
            if first + len(units) > stop and (rest := units[max(stop - first, 0) :])["size"].any():
                yield max(first, stop), rest

    def last_physical(self, file: StoreFile) -> int:
        """Return where the last written unit of a file leads, wherever that is; -1 without one."""
        count = self._first(file, _FAR)
        units = self.read(file, max(count - 1, 0), 1)["physical_offset"]
        return int(units[0]) if count and len(units) else -1

    def _first(self, file: StoreFile, wanted: int) -> int:
        """Return the number of the first unit of a file that leads to an offset or beyond, or is not written."""
        size = self.dtype.itemsize
        low, high = 0, file.size // size
        middle = max(high - 1, 0)  # most files lie wholly in front
        source = file.open()
        try:
            while low < high:
                unit = np.frombuffer(source.read_at(middle * size, size).ljust(size, b"\0"), self.dtype)[0]
                if unit["size"] and unit["physical_offset"] < wanted:
                    low = middle + 1
                else:
                    high = middle
                middle = (low + high) // 2
        finally:
            source.close()
        return low


def queues_of(queues: Iterator[QueueFiles], dtype: np.dtype[Any] = UNIT) -> Iterator[Queue]:
    """Queues that have at least one file."""
    for where in queues:
        queue = Queue.open(where, dtype)
        if queue.files:
            yield queue


# --- queue units looked up by -----------------------------------------------------------------------


PAGE, _LEAST_PAGE = 2048, 64
"""Units of one page: as many as a few hundred queues allow, fewer where records of many queues lie side by side."""
_POOL = 384 * PAGE
"""Units of the pool; more only where even the smallest pages of a block find no room in it."""
_RAW = np.dtype(f"V{UNIT.itemsize}")
"""A unit as bytes: copied at a third of the cost of its fields."""
OpenQueue = Callable[[int], Queue | None]
_Key = tuple[int, int]


class UnitPages:
    """A pool of pages of units.

    Args:
        open_queue: the queue of a number; None where it has no files.
    """

    def __init__(self, open_queue: OpenQueue) -> None:
        self._open = open_queue
        self._slots: dict[_Key, int] = {}
        self._units = PAGE
        self._pool = np.empty(_POOL, UNIT)
        self._page = self._shift = np.zeros(0, np.int64)
        """Of each queue the page of its last unit that was looked up, and what to add to a queue offset to get the
        place of its unit in the pool.
        """

    def lookup(self, queue: Ints, offset: Ints) -> Units:
        """Return the unit of each (queue number, queue offset >= 0), zeros where no file holds it; shape (n,), n > 0.

        Rows must be sorted by queue number, else it is slow.
        """
        found: Units = self._raw(queue, offset).view(UNIT)
        return found

    def holds(self, queue: Ints, offset: Ints, units: Units) -> bool:
        """Whether the units of :meth:`lookup` are these."""
        return self._raw(queue, offset).tobytes() == units.tobytes()

    def _raw(self, queue: Ints, offset: Ints) -> npt.NDArray[np.void]:
        """Return copies of the units as bytes; pages that are not there are read."""
        new = int(queue.max()) + 1 - len(self._page)
        if new > 0:
            none = np.full(max(new, len(self._page)), -1, np.int64)
            self._page, self._shift = np.append(self._page, none), np.append(self._shift, none)
        page, shift = offset // self._units, self._shift[queue]
        rows = np.flatnonzero(self._page[queue] != page)
        if len(rows):
            rows = self._load_pages(queue, page, rows)
            if not len(rows):  # pages are smaller from now on
                return self._raw(queue, offset)
            first = run_starts(queue[rows], page[rows])
            keys = zip(queue[rows[first]].tolist(), page[rows[first]].tolist(), strict=True)
            slots = np.array([self._slots[key] for key in keys], np.int64)
            shift[rows] = (np.repeat(slots, np.diff(np.append(first, len(rows)))) - page[rows]) * self._units
            self._page[queue[rows]], self._shift[queue[rows]] = page[rows], shift[rows]
        found: npt.NDArray[np.void] = self._pool.view(_RAW).take(shift + offset)
        return found

    def _load_pages(self, queue: Ints, page: Ints, rows: Ints) -> Ints:
        """Load the pages of some rows into the pool; return the rows whose pages are new there: all, if it was full,
        and none where pages have become smaller.
        """
        wanted = dict.fromkeys(zip(queue[rows].tolist(), page[rows].tolist(), strict=True))
        if len(self._slots) + len(wanted.keys() - self._slots.keys()) > len(self._pool) // self._units:
            rows = np.arange(len(queue))
            wanted = dict.fromkeys(zip(queue.tolist(), page.tolist(), strict=True))
            if 2 * len(wanted) * self._units > _POOL and self._units > _LEAST_PAGE:
                self._units = max(_POOL // (2 * len(wanted)), _LEAST_PAGE)
                self._slots = {}
                self._page.fill(-1)
                return rows[:0]
            self._make_room(wanted)
        for key in wanted:
            if key not in self._slots:
                self._load(key)
        return rows

    def close(self) -> None:
        """Give the memory back; a later lookup reads again."""
        self._slots, self._pool = {}, np.empty(0, UNIT)
        self._page.fill(-1)

    def _make_room(self, wanted: Collection[_Key]) -> None:
        """Keep pages that are wanted, and none else; make a larger pool where hardly any other would find room."""
        kept = [key for key in wanted if key in self._slots]
        size = self._units * UNIT.itemsize
        pages = self._pool.view(np.uint8)[: len(self._pool) // self._units * size].reshape(-1, size)
        old = pages[[self._slots[key] for key in kept]]
        if 4 * len(wanted) > 3 * len(pages):
            self._pool = np.empty(2 * len(wanted) * self._units, UNIT)
            pages = self._pool.view(np.uint8).reshape(-1, size)
        pages[: len(kept)] = old
        self._slots = {key: slot for slot, key in enumerate(kept)}
        self._page.fill(-1)

    def _load(self, key: _Key) -> None:
        number, page = key
        slot = self._slots[key] = len(self._slots)
        room = self._pool[slot * self._units : (slot + 1) * self._units].view(np.uint8)
        queue, size = self._open(number), self._units * UNIT.itemsize
        done, begin, end = 0, page * size, (page + 1) * size
        files = queue.files if queue is not None else []
        for file in files[max(bisect_right(files, begin, key=lambda f: f.base) - 1, 0) :]:
            if file.base >= end or queue is None:
                break
            low, high = max(begin, file.base), min(end, file.base + file.size)
            if low < high:
                units = queue.read(file, (low - file.base) // UNIT.itemsize, -(-(high - low) // UNIT.itemsize))
                at = (low - begin) // UNIT.itemsize * UNIT.itemsize
                data = units.view(np.uint8)[: len(room) - at]
                room[done:at] = 0
                room[at : at + len(data)] = data
                done = at + len(data)
        room[done:] = 0


# --- the queue that a directory belongs to by its units -----------------------------------------------

_SAMPLE = 64
_DISPATCHED = b"INNER_MULTI_DISPATCH"


def queue_home(queue: Queue, log: LogReader) -> tuple[str, int] | None:
    """Return the queue to which the units of a directory belong by the records they lead to; None where they do not
    agree.

    A unit says so where its size and number are those of the record, and the record is of no further queue.
    """
    homes: Counter[tuple[str, int]] = Counter()
    for number, unit in _sample(queue, log.min_offset):
        record = log.record(int(unit["physical_offset"]))
        if record is None:
            continue
        fields, _ = decode_record(record)
        if len(record) == unit["size"] and fields["queue_offset"] == number and _DISPATCHED not in record:
            homes[fields["topic"].decode("utf-8", "surrogateescape"), fields["queue_id"]] += 1
    (home, _), *others = homes.most_common() or [(queue.key, 0)]
    return None if others or home == queue.key else home


def misnamed_queue(queue: Queue, home: tuple[str, int]) -> Finding:
    """Return the finding for a directory of a queue that has the name of another."""
    path = f"{queue.where.kind}/{home[0]}/{home[1]}"
    there = ", which is there, too" if queue.where.tree.entries(path, sizes=False) else ""
    message = f"its units lead to records of {home[0]}, queue {home[1]}: it should be {path}{there}"
    return Finding(QUEUE_DIRECTORY, queue.where.path, 0, 0, message, topic=queue.key[0], queue_id=queue.key[1])


def _sample(queue: Queue, begin: int) -> Iterator[tuple[int, np.void]]:
    """Yield some units of each file of a queue that point into the log, with the queue offsets they stand for."""
    is_batch = queue.dtype is BATCH_UNIT
    for file in queue.files:
        for first, units in queue.chunks(file):
            written = np.flatnonzero(queue.valid(units) & ~is_pre_blank(units) & (units["physical_offset"] >= begin))
            for row in written[:: -(-len(written) // _SAMPLE) or 1].tolist():
                number = file.base // queue.dtype.itemsize + first + row
                yield int(units["base_offset"][row]) if is_batch else number, units[row]
