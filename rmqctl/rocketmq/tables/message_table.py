"""The table ``messages``: every record of the log, in log order; and the log bit by bit, as it grows.

Splits in which nothing wanted can lie are left out, by the times of their first records and by the queues' units.
Nothing is skipped on a guess. Times of a log ascend but for steps of the clock, which are allowed for. Units show
where the messages of a topic lie only where its queues are whole and all there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.rocketmq.dump.log import crc_flags
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, is_pre_blank, queues_of
from rmqctl.rocketmq.queues.ranges import last_unit
from rmqctl.rocketmq.state.config import read_config, table
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, RocketMQStore
from rmqctl.rocketmq.tables.columns import BodyOption, TableOptions
from rmqctl.rocketmq.tables.messages import MessageBatches, message_schema
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE, log_of, log_splits, log_tip, walk_split
from rmqctl.rocketmq.verify.splits import Split
from rmqctl.tables import BadOption, Order, Places, usual_split_size

CLOCK_STEP_MS = 600_000
"""How far the broker's clock may have been set back while it wrote the log."""
MOST_UNIT_BYTES = 256 << 20
"""Queues with more are not read to plan a query."""
_SAMPLE = 64

Offsets = npt.NDArray[np.int64]


def needed(store: RocketMQStore, splits: Sequence[Split], wanted: Filter) -> list[Split]:
    """Return the splits, in order, that may hold wanted messages."""
    found = [split for split in splits if _overlaps(split, wanted)]
    found = _in_time(found, wanted)
    places = _places(store, wanted) if wanted.topics and len(found) > 1 else None
    return found if places is None else [split for split in found if places(*_bounds(split))]


def _bounds(split: Split) -> tuple[int, int]:
    """Physical offsets between which the records of a split start."""
    file = split.context.file
    return file.base + split.start, file.base + (file.size if split.stop is None else split.stop)


def _overlaps(split: Split, wanted: Filter) -> bool:
    low, high = _bounds(split)
    below = wanted.to_offset is not None and low >= wanted.to_offset
    above = wanted.from_offset is not None and high <= wanted.from_offset and split.stop is not None
    return not (below or above)


# --- time -----------------------------------------------------------------------------------------


def _in_time(splits: list[Split], wanted: Filter) -> list[Split]:
    """Halving finds the first and the last split in question; a split is judged by the time of the next one."""
    times = _Times(splits)
    low, high = 0, len(splits)
    if wanted.before is not None:
        limit = wanted.before + CLOCK_STEP_MS
        high = bisect_left(range(len(splits)), x=True, key=lambda i: times.first(i, len(splits)) >= limit)
    if wanted.after is not None:
        limit = wanted.after - CLOCK_STEP_MS
        low = bisect_left(range(high), x=True, key=lambda i: times.first(i + 1, len(splits)) >= limit)
    return splits[low:high]


class _Times:
    """The store time of the first record from a split on, read when asked for."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits
        self._known: dict[int, int | None] = {}

    def first(self, number: int, end: int) -> int:
        """In ms; later than any time where no record follows."""
        while number < end:
            if number not in self._known:
                self._known[number] = _first_time(self._splits[number])
            time = self._known[number]
            if time is not None:
                return time
            number += 1
        return 1 << 63


def _first_time(split: Split) -> int | None:
    for found in walk_split(split):
        if len(found.block):
            return int(found.block["store_timestamp"][0])
    return None


# --- queues ---------------------------------------------------------------------------------------


def _places(store: RocketMQStore, wanted: Filter) -> Callable[[int, int], bool] | None:
    """Whether a stretch of the log may hold messages of the topics; None where units do not show it."""
    if store.is_rocksdb:
        return None
    offsets: list[Offsets] = []
    for topic in wanted.topics:
        found = _offsets_of(store, topic, wanted.queue_id)
        if found is None:
            return None
        offsets += found
    places = np.sort(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64)
    dispatched = _dispatched(store)

    def holds(low: int, high: int) -> bool:
        return high > dispatched or int(np.searchsorted(places, low)) < int(np.searchsorted(places, high))

    return holds


def _offsets_of(store: RocketMQStore, topic: str, queue_id: int | None) -> list[Offsets] | None:
    """Physical offsets of the messages of a topic by its units; None where they may not be all there."""
    queues = [
        queue
        for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT))
        for queue in queues_of((q for q in store.queues(kind) if q.topic == topic), dtype)
    ]
    ids = {queue.where.queue_id for queue in queues}
    expected = {queue_id} if queue_id is not None else _queue_ids(store, topic)
    if expected is None or not expected <= ids:
        return None
    if sum(file.size for queue in queues for file in queue.files) > MOST_UNIT_BYTES:
        return None
    found = [_whole(queue) for queue in queues if queue_id in {None, queue.where.queue_id}]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _queue_ids(store: RocketMQStore, topic: str) -> set[int] | None:
    """Return the queues a topic has by its configuration."""
    config = table(table(read_config(store, "topics.json").document, "topicConfigTable"), topic)
    count = config.get("writeQueueNums")
    return set(range(count)) if isinstance(count, int) and count > 0 else None


def _whole(queue: Queue) -> Offsets | None:
    """Physical offsets of a queue's units from its offset 0 on; None where one is missing or wrong."""
    pieces: list[Offsets] = []
    expected, ended = 0, False
    for file in queue.files:
        if file.base != expected:
            return None
        expected += file.size
        at = 0
        for first, units in queue.chunks(file):
            good = queue.valid(units) & ~is_pre_blank(units)
            count = len(units) if good.all() else int(np.argmin(good))
            if not good[:count].all() or good[count:].any() or (count and (ended or first != at)):
                return None
            pieces.append(units["physical_offset"][:count].astype(np.int64))
            ended, at = ended or count < len(units), first + count
        ended = ended or at < file.size // queue.dtype.itemsize
    found = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    return found if (np.diff(found) > 0).all() else None


def _dispatched(store: RocketMQStore) -> int:
    """Return a physical offset up to which every record has been dispatched, as a sample of the queues shows."""
    latest = -1
    for queue in islice(queues_of(store.queues(QUEUES)), _SAMPLE):
        unit = last_unit(queue)
        if unit is not None and len(unit):
            latest = max(latest, int(unit["physical_offset"][0]))
    return latest


# --- the table messages -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """Return the wanted columns.

        Raises:
            BadOption: there is no such column.
        """
        try:
            return message_schema(self.options.columns, self.options.body)
        except ValueError as error:
            raise BadOption(str(error)) from None

    def parts(self) -> list[Split]:
        """Return splits of the log, less those in which nothing wanted can lie."""
        store, wanted = self.options.store(), self.options.wanted
        size = sum(f.size for f in store.log_files)
        splits = log_splits(store, self.options.split_size or usual_split_size(size, self.options.cores))
        return needed(store, splits, wanted) if self.options.skip else splits

    def read(self, part: Split, order: Callable[[Block], Block] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of one split.

        Args:
            order: gives the records of a block in another order.
        """
        batches = MessageBatches(self.schema(), self.options.body)
        for block in self.blocks(part):
            yield from batches.of(block if order is None else order(block))

    def blocks(self, part: Split) -> Iterator[Block]:
        """Yield the wanted messages of one split as blocks."""
        for found in walk_split(part):
            rows = self.options.wanted.select(found.block)
            block = found.block if rows is None else found.block.take(rows)
            yield block.take(~crc_flags(block)[1]) if self.options.wanted.damaged else block


def first_record(split: Split) -> int | None:
    """Where in its file the first record of a split begins, None where it has none."""
    for found in walk_split(split):
        if len(found.block):
            return int(found.block.position[0]) - split.context.file.lead
    return None


def limited(options: TableOptions, count: int) -> TableOptions:
    """Return the same with only the first ``count`` messages in log order. The log is walked here up to the last of
    them.
    """
    table = MessageTable(options)
    for part in table.parts():
        for block in table.blocks(part):
            if len(block) >= count:
                end = int(block.physical[count - 1]) + 1
                return replace(options, wanted=replace(options.wanted, to_offset=end))
            count -= len(block)
    return options


# --- the log bit by bit -----------------------------------------------------------------------------


_PLACE = "physical_offset"


@dataclass(frozen=True, slots=True)
class MessageLog:
    """Messages by physical offset: places always lie between two whole records."""

    options: TableOptions
    row_place = _PLACE
    row_time = "store_timestamp"
    partitions = ("topic", "queue_id", "tags")

    @property
    def size(self) -> int:
        return sum(f.size for f in self.options.store().log_files)

    @property
    def is_running(self) -> bool:
        return self.options.store().is_running

    def begin(self) -> Places:
        return {_PLACE: log_of(self.options.store()).min_offset}

    def end(self, known: Places | None = None, most_bytes: int | None = None, *, growing: bool = True) -> Places:
        store, low = self.options.store(), None if known is None else known[_PLACE]
        tip = log_tip(store, low, growing=growing)
        if low is not None and most_bytes is not None and tip - low > most_bytes:
            tip = self._boundary(store, low, low + most_bytes, tip)
        return {_PLACE: tip}

    def _boundary(self, store: RocketMQStore, known: int, wanted: int, tip: int) -> int:
        """Return the start of the first record at or after an offset; a file's end where none follows in it."""
        for context in log_of(store).contexts():
            file = context.file
            if wanted < file.base + file.size and tip > file.base:
                at = max(wanted, file.base, known + 1) - file.base
                place = first_record(Split(context, at, None))
                return min(file.base + (file.size if place is None else place), tip)
        return tip

    def parts(self, start: Places, end: Places, size: int | None = None) -> list[Split]:
        store, low, high = self.options.store(), start[_PLACE], end[_PLACE]
        found = []
        for split in log_splits(store, size or self.options.split_size or SPLIT_SIZE, high):
            base, length = split.context.file.base, split.context.file.size
            begin, stop = max(split.start, low - base), min(length if split.stop is None else split.stop, high - base)
            if begin < stop:
                found.append(Split(split.context, begin, None if split.stop is None and stop >= length else stop))
        return needed(store, found, self.options.wanted) if self.options.skip else found

    def name_of(self, part: Split) -> str:
        return f"{part.context.file.base + part.start:020d}"

    def size_of(self, part: Split) -> int:
        return (part.context.file.size if part.stop is None else part.stop) - part.start

    def read(self, part: Split, order: Order | None = None) -> Iterator[pa.RecordBatch]:
        return MessageTable(self.options).read(part, None if order is None else _Ordered(order))


class _Ordered:
    """Puts the records of a block in an order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._columns = MessageBatches(message_schema(order.columns, BodyOption.NONE), BodyOption.NONE)

    def __call__(self, block: Block) -> Block:
        for batch in self._columns.of(block):
            codes = self._order.codes(batch)
            return block if (codes == codes[0]).all() else block.take(np.argsort(codes, kind="stable"))
        return block
