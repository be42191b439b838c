"""Bringing dispatched units into queues: their files' bytes in order, and the state each queue ends in.

Index files are built from key hashes, many at a time (spec 4.3, 4.4). The chains need no sort: the table of slots is
read and written for a batch of entries at once, and only slots that occur twice in a batch, a few among many, are put
in order. Memory is the table of slots and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.dispatch.dispatched import NO_EXTENSION, Dispatched, IndexColumns, Key, UnitRun
from rmqctl.rocketmq.dispatch.units import Appended, BatchQueueState, ExtState, QueueState
from rmqctl.rocketmq.index import IndexHead
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.queues.files import UNIT
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, QUEUES_EXT, can_have_queues
from rmqctl.rocketmq.store.geometry import ENTRY, IndexGeometry


class QueueSink(Protocol):
    """Takes the bytes of queues."""

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Bytes of the file sequence of one queue below ``kind``; positions never go back."""
        ...


class NoSink:
    """Takes nothing: only the states are wanted."""

    def write(self, kind: str, key: Key, found: Appended) -> None:
        """Forget the bytes."""


@dataclass(frozen=True, slots=True)
class QueueSizes:
    """Bytes of a file of each kind of queue."""

    queue: int
    extension: int


Bitmap = Callable[[Key, int, int, int], bytes]
"""The Bloom filter of an extension unit by queue, queue offset, tags code and store time (ms), b"" without."""
MAX_HOLE = 1 << 20
"""Missing queue offsets that are taken for lost messages; more are taken for damage of a QUEUEOFFSET field."""
MAX_FILLED = 1 << 23
"""Units that take the places of lost messages in one queue at most: damage must not make queues without end."""


class QueueSeries:
    """All queues that dispatch appends to.

    Attributes:
        simple, batch, extension: the state of each queue seen so far.
        filled: units put in the place of missing ones, by queue.

    Args:
        open_simple, open_batch: the state of a queue before its first unit; default: no file yet.
        bitmap: filters to keep in extension units.
        fills_holes: where records of a queue are missing in the log, put the unit of the next record in the place of
            theirs, so that every message keeps its queue offset. Brokers do not, and all later messages move.
    """

    def __init__(
        self,
        sizes: QueueSizes,
        sink: QueueSink | None = None,
        *,
        open_simple: Callable[[Key], QueueState] | None = None,
        open_batch: Callable[[Key], BatchQueueState] | None = None,
        bitmap: Bitmap | None = None,
        fills_holes: bool = False,
    ) -> None:
        self.sizes, self._sink = sizes, sink or NoSink()
        self._open_simple = open_simple or (lambda _: QueueState(sizes.queue))
        self._open_batch = open_batch or (lambda _: BatchQueueState())
        self._bitmap = bitmap or (lambda _key, _offset, _code, _time: b"")
        self._fills_holes = fills_holes
        self._held: dict[Key, UnitRun] = {}
        self.filled: dict[Key, int] = {}
        self.simple: dict[Key, QueueState] = {}
        self.batch: dict[Key, BatchQueueState] = {}
        self.extension: dict[Key, ExtState] = {}

    def apply(self, found: Dispatched) -> None:
        """Append what a stretch of log dispatches; stretches come in log order.

        Topics that cannot name a directory have no queues.
        """
        for piece in found.pieces:
            if can_have_queues(piece.key[0]):
                self._append(piece)
        for request in (r for r in found.batches if can_have_queues(r.topic)):
            key = request.topic, request.queue_id
            if key not in self.batch:
                self.batch[key] = self._open_batch(key)
            appended = self.batch[key].put(request)
            if appended is not None:
                self._sink.write(BATCH_QUEUES, key, appended)

    def _append(self, piece: UnitRun) -> None:
        if piece.key not in self.simple:
            self.simple[piece.key] = self._open_simple(piece.key)
        state = self.simple[piece.key]
        if piece.times is not None:
            piece = self._extended(piece, piece.times)
        if self._fills_holes:
            self._append_filled(state, piece)
        else:
            self._put(state, piece)

    def _put(self, state: QueueState, piece: UnitRun) -> None:
        units = piece.units
        if piece.offsets is None:
            appended = state.put_run(units, piece.first)
            if appended is not None:
                self._sink.write(QUEUES, piece.key, appended)
                return
        offsets = _offsets(piece)
        physical, size, codes = (units[n].astype(np.int64) for n in ("physical_offset", "size", "tags_code"))
        for appended in state.put_many(physical, size, codes, offsets):
            self._sink.write(QUEUES, piece.key, appended)

    def finish(self) -> None:
        """Append the records that were held back until the next ones of their queue are known; nothing comes after."""
        held, self._held = self._held, {}
        for piece in held.values():
            self._append_filled(self.simple[piece.key], piece, is_end=True)

    def _append_filled(self, state: QueueState, piece: UnitRun, *, is_end: bool = False) -> None:
        """Append a piece without holes in its queue offsets, however the log is divided: records are held back where
        only the next two show whether their queue offsets are right.
        """
        offsets, units = _offsets(piece), piece.units
        held = self._held.pop(piece.key, None)
        if held is not None:
            offsets = np.concatenate([_offsets(held), offsets])
            units = np.concatenate([held.units, units], dtype=UNIT)
        due = state.next_offset if state.begin >= 0 else _begin(offsets[:_LOOKAHEAD].tolist(), is_end=is_end)
        counts = np.zeros(0, np.int64)
        if due is not None:
            room = MAX_FILLED - self.filled.get(piece.key, 0)
            counts = _units_for(offsets, due, room, is_begin=state.begin < 0, is_end=is_end)
        if len(counts) < len(units):
            rest = slice(len(counts), None)
            self._held[piece.key] = UnitRun(piece.key, units[rest].copy(), 0, offsets[rest].copy())
        if missing := int(counts.sum() - np.count_nonzero(counts)):
            self.filled[piece.key] = self.filled.get(piece.key, 0) + missing
        ends, begin = counts.cumsum(), 0
        while begin < len(counts):  # not all at once: one record may stand for a million
            before = int(ends[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(ends, before + MAX_HOLE, "right")), begin + 1)
            part = np.repeat(units[begin:end], counts[begin:end])
            if len(part) and due is not None:
                self._put(state, UnitRun(piece.key, part, due + before))
            begin = end

    def _extended(self, piece: UnitRun, times: Ints) -> UnitRun:
        """Return the piece with addresses of extension units for tags codes; writes these units."""
        state = self.extension.setdefault(piece.key, ExtState(self.sizes.extension))
        units, offsets = piece.units.copy(), _offsets(piece).tolist()
        for row, (code, time) in enumerate(zip(units["tags_code"].tolist(), times.tolist(), strict=True)):
            if time != NO_EXTENSION:
                address, found = state.put(code, time, self._bitmap(piece.key, offsets[row], code, time))
                units["tags_code"][row] = address
                for appended in found:
                    self._sink.write(QUEUES_EXT, piece.key, appended)
        return UnitRun(piece.key, units, piece.first, piece.offsets)


_LOOKAHEAD = 3
_MOST = (1 << 63) // (2 * UNIT.itemsize)
"""No queue offset is larger: brokers count bytes of a queue in a signed number of 64 bits."""


def _begin(first: Sequence[int], *, is_end: bool) -> int | None:
    """Return the queue offset at which a queue begins, None where more of its records decide.

    That of the first record, unless the second does not follow it, and the third follows the second.

    Args:
        first: queue offsets of the first records of the queue, at most three, at least one.
        is_end: there are no more.
    """
    one, *others = first
    is_possible = 0 <= one < _MOST
    if is_possible and others and 0 < others[0] - one <= MAX_HOLE + 1:
        return one
    if len(first) < _LOOKAHEAD and not is_end:
        return None
    if len(first) == _LOOKAHEAD:
        two, three = others
        if is_possible and 0 < three - one < _LOOKAHEAD:
            return one  # the second is the odd one
        if three == two + 1 and 0 < two < _MOST:
            return two - 1
    elif not is_possible and others and 0 < others[0] < _MOST:
        return others[0] - 1
    return one if is_possible else 0


def _units_for(offsets: Ints, due: int, room: int, *, is_begin: bool, is_end: bool) -> Ints:
    """Return how many units each record of a queue gets so that every one keeps its queue offset.

    One that goes on after a hole gets those of the hole, too, unless the next record does not follow it: then its own
    queue offset is wrong, and it gets the place that is due if neither of the next two has it. One whose place is taken
    gets none, as brokers do.

    Args:
        due: queue offset that is due.
        room: how many units holes may get at most.
        is_begin: the first record begins the queue, whatever its queue offset.
        is_end: no record of the queue follows.

    Returns:
        Shape (m,) with m <= n: the records after them are not decided before others are known.
    """
    if np.array_equal(offsets, due + np.arange(len(offsets))):
        return np.ones(len(offsets), np.int64)
    counts, listed = list[int](), offsets.tolist()
    if is_begin:
        listed[0] = due
    for row, offset in enumerate(listed):
        after = listed[row + 1 : row + _LOOKAHEAD]
        if offset == due:
            counts.append(1)
        elif len(after) < _LOOKAHEAD - 1 and not is_end:
            break
        elif 0 < offset - due <= min(MAX_HOLE, room) and (not after or after[0] > offset):
            counts.append(offset - due + 1)
            room -= offset - due
        else:
            is_free = due not in after
            is_odd = offset <= 0 or offset > due or after[:1] == [due + 1]
            counts.append(int(is_free and is_odd))
        due += counts[-1]
    return np.array(counts, np.int64)


def _offsets(piece: UnitRun) -> Ints:
    return piece.first + np.arange(len(piece.units)) if piece.offsets is None else piece.offsets


# --- index files ---------------------------------------------------------------------------------------


BATCH = 1 << 15
"""Entries put at once: so few that slots hardly repeat in a batch, so many that a call costs little an entry."""
_MAX_SECONDS = (1 << 31) - 1
Slots = npt.NDArray[np.int32]
Entries = npt.NDArray[np.void]


class IndexSink(Protocol):
    """Takes the bytes of index files, one file after the other."""

    def entries(self, first: int, entries: Entries) -> None:
        """Entries of the current file from number ``first`` on; ascending."""
        ...

    def close(self, head: IndexHead, slots: Slots) -> None:
        """End the current file; the next entries go to a new one."""
        ...


class NoIndexSink:
    """Takes nothing: only the headers are wanted."""

    def entries(self, first: int, entries: Entries) -> None:
        """Forget the entries."""

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Forget the file."""


class IndexSeries:
    """The index files that dispatch fills.

    Attributes:
        heads: headers of all files from the first one put to, in order; the last is still open.

    Args:
        counts_slots: `DispatchRules.counts_slots`.
        head, slots: the last file that is there already, if entries go on in it.
        is_closed: that file is full and stays as it is; the next one begins as one that follows it.
    """

    def __init__(
        self,
        geometry: IndexGeometry,
        *,
        counts_slots: bool,
        sink: IndexSink | None = None,
        head: IndexHead | None = None,
        slots: Slots | None = None,
        is_closed: bool = False,
    ) -> None:
        self._is_closed = is_closed
        self.geometry, self._counts_slots, self._sink = geometry, counts_slots, sink or NoIndexSink()
        self.heads = [head.copy()] if head else []
        self._slots = np.zeros(geometry.slots, np.int32) if slots is None else slots.astype(np.int32)

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log."""
        if not len(columns.keys):
            return
        head = self._last()
        keep = not_yet(columns, head.end_phy_offset)
        keys, hashes = columns.keys, columns.hashes
        if not keep.all():
            hashes = hashes[np.repeat(keep, keys)]
            keys = np.where(keep, keys, 0)
        physical, times = np.repeat(columns.physical, keys), np.repeat(columns.store_timestamp, keys)
        done = 0
        while done < len(hashes):
            head = self._last()
            count = min(BATCH, len(hashes) - done, self.geometry.entries - head.index_count)
            part = slice(done, done + count)
            self._put(head, hashes[part], physical[part], times[part])
            done += count
        if len(hashes) and columns.physical[-1] > physical[-1]:
            self._last()  # a record without keys after the last entry finds the file full, too

    def finish(self) -> None:
        """Close the last file."""
        if self.heads and not self._is_closed:
            self._sink.close(self.heads[-1], self._slots)

    def _last(self) -> IndexHead:
        """Return the file that the next entry goes to: a new one if there is none, or the last is full."""
        if self.heads and not self.heads[-1].is_full(self.geometry):
            return self.heads[-1]
        if self.heads and not self._is_closed:
            self._sink.close(self.heads[-1], self._slots)
            self._slots.fill(0)
        self._is_closed = False
        self.heads.append(self.heads[-1].successor() if self.heads else IndexHead())
        return self.heads[-1]

    def _put(self, head: IndexHead, hashes: npt.NDArray[np.int32], physical: Ints, times: Ints) -> None:
        """Put one batch into a file that has room for it."""
        number, count = head.index_count, len(hashes)
        entries = np.empty(count, ENTRY.dtype)
        entries["key_hash"], entries["physical_offset"] = hashes, physical
        first = head.difference(int(times[0]))
        slots = np.int32(self.geometry.slots)
        previous = chain(self._slots, hashes - hashes // slots * slots, number)
        new = int(np.count_nonzero(previous == 0)) if self._counts_slots else count
        _note(head, count, new, physical, times)
        seconds = np.clip((times - head.begin_timestamp) // 1000, 0, _MAX_SECONDS) if head.begin_timestamp > 0 else 0
        entries["time_difference"], entries["previous"] = seconds, previous
        if number <= 1:
            entries["time_difference"][0] = first  # counted from the time that the file before ended
        self._sink.entries(number, entries)


def _note(head: IndexHead, count: int, new: int, physical: Ints, times: Ints) -> None:
    """Change in a header what `count` puts change."""
    head.put(int(physical[0]), int(times[0]), new_slot=False)
    head.index_count += count - 1
    head.hash_slot_count += new
    head.end_phy_offset, head.end_timestamp = int(physical[-1]), int(times[-1])


def not_yet(columns: IndexColumns, end: int) -> npt.NDArray[np.bool_]:
    """Which records are not left out as indexed already: those before the last one put (`<`, spec 4.3)."""
    physical = columns.physical
    if (physical[1:] >= physical[:-1]).all():
        keep: npt.NDArray[np.bool_] = physical >= end
        return keep
    keep = np.ones(len(physical), bool)
    for row, (place, keys) in enumerate(zip(physical.tolist(), columns.keys.tolist(), strict=True)):
        keep[row] = place >= end
        if place >= end and keys:
            end = place
    return keep


def chain(table: Slots, slots: Slots, number: int) -> Slots:
    """Return the number of the entry before each one in its slot, 0 for none, shape (n,); brings the table up to date.

    Args:
        table: newest entry of each slot, shape (slots,); changed.
        slots: slot of each entry; they have the numbers ``number``, ``number + 1``, ...
    """
    numbers, slots = np.arange(number, number + len(slots), dtype=np.int32), slots.astype(np.intp)
    previous = table[slots]
    previous[(previous < 0) | (previous > numbers)] = 0
    table[slots] = numbers  # of entries with one slot the last is kept
    early = np.flatnonzero(table[slots] != numbers)
    if len(early):
        last = np.unique(table[slots[early]] - np.int32(number))
        rows = np.concatenate([early, last])
        order = rows[np.lexsort((rows, slots[rows]))]
        same = slots[order[1:]] == slots[order[:-1]]
        previous[order[1:][same]] = numbers[order[:-1][same]]
    return previous
