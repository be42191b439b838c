"""The table ``messages``: every record of the log, in log order; and the log bit by bit, as it grows.

Splits that lie outside of the wanted physical offsets are left out, and no others: every message of the log is seen,
whatever queues and times say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqctl.parallel import leave_out, note, pass_over
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.tables.columns import TableOptions
from rmqctl.rocketmq.tables.messages import MessageBatches, message_schema
from rmqctl.rocketmq.tables.splits import (
    SPLIT_SIZE,
    bytes_of,
    log_of,
    log_splits,
    log_tip,
    mark_in_front,
    walk_split,
)
from rmqctl.rocketmq.verify.splits import Split
from rmqctl.tables import BadOption, Change, Marks, Places, usual_split_size


def needed(splits: Sequence[Split], wanted: Filter) -> list[Split]:
    """Return the splits, in order, that may hold wanted messages.

    Only where a record lies counts. That a queue has no unit in a split, or that the times around it are others, proves
    nothing: units get lost, topics are deleted, clocks are set back.
    """
    found = [split for split in splits if _overlaps(split, wanted)]
    leave_out("offset", sum(map(bytes_of, splits)) - sum(map(bytes_of, found)))
    return found


def _overlaps(split: Split, wanted: Filter) -> bool:
    file = split.context.file
    low, high = file.base + split.start, file.base + (file.size if split.stop is None else split.stop)
    below = wanted.to_offset is not None and low >= wanted.to_offset
    above = wanted.from_offset is not None and high <= wanted.from_offset and split.stop is not None
    return not (below or above)


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
        leave_out("after the end", size - sum(map(bytes_of, splits)))
        return needed(splits, wanted) if self.options.skip else splits

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """Yield the wanted messages of one split."""
        batches = MessageBatches(self.schema(), self.options.body)
        for block in self.blocks(part):
            yield from batches.of(block)

    def blocks(self, part: Split) -> Iterator[Block]:
        """Yield the wanted messages of one split as blocks."""
        for found in walk_split(part):
            rows = self.options.wanted.select(found.block)
            block = found.block if rows is None else found.block.take(rows)
            block = block.take(~crc_flags(block)[1]) if self.options.wanted.damaged else block
            note(0, 0, given=len(block))
            pass_over("filter", len(found.block) - len(block))
            yield block

    through = blocks


def first_record(split: Split) -> int | None:
    """Where in its file the first record of a split begins, None where it has none."""
    for found in walk_split(split):
        if len(found.block):
            return int(found.block.position[0]) - split.context.file.lead
    return None


def limited(options: TableOptions, count: int) -> TableOptions:
    """Return options for only the first ``count`` messages in log order. The log is walked here up to the last of
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
    """Messages by physical offset: places always lie between two whole records. It grows, so it is read as it is."""

    options: TableOptions
    row_place = _PLACE
    row_time = "store_timestamp"
    partitions = ("topic", "queue_id", "tags")

    @property
    def size(self) -> int:
        return sum(f.size for f in self.options.live().log_files)

    @property
    def is_running(self) -> bool:
        return self.options.live().is_running

    def begin(self) -> Places:
        return {_PLACE: log_of(self.options.live()).min_offset}

    def end(self, known: Places | None = None, most_bytes: int | None = None, *, growing: bool = True) -> Places:
        store, low = self.options.live(), None if known is None else known[_PLACE]
        tip = log_tip(store, low, growing=growing)
        if low is not None and most_bytes is not None and tip - low > most_bytes:
            tip = self._boundary(store, low, low + most_bytes, tip)
        return {_PLACE: tip}

    def _boundary(self, store: StoreFiles, known: int, wanted: int, tip: int) -> int:
        """Return the start of the first record at or after an offset; a file's end where none follows in it."""
        for context in log_of(store).contexts():
            file = context.file
            if wanted < file.base + file.size and tip > file.base:
                at = max(wanted, file.base, known + 1) - file.base
                place = first_record(Split(context, at, None))
                return min(file.base + (file.size if place is None else place), tip)
        return tip

    def marks(self, places: Places) -> Marks:
        mark = mark_in_front(self.options.live(), places[_PLACE])
        return {} if mark is None else {_PLACE: mark}

    def changes(self, places: Places, marks: Marks) -> list[Change]:
        store, place = self.options.live(), places[_PLACE]
        tip = log_tip(store, growing=False)
        if tip < place:
            what = f"the log ends at {tip} now, before {place}: it was cut, or this is another store"
            return [Change(_PLACE, place, what, tip)]
        known = marks.get(_PLACE)
        if known is None or place <= log_of(store).min_offset or mark_in_front(store, place) == known:
            return []
        what = f"another record lies in front of {place} now: the log was cut and grew again, or this is another store"
        return [Change(_PLACE, place, what, place)]

    def parts(self, start: Places, end: Places, size: int | None = None) -> list[Split]:
        store, low, high = self.options.live(), start[_PLACE], end[_PLACE]
        found = []
        for split in log_splits(store, size or self.options.split_size or SPLIT_SIZE, high):
            base, length = split.context.file.base, split.context.file.size
            begin, stop = max(split.start, low - base), min(length if split.stop is None else split.stop, high - base)
            if begin < stop:
                found.append(Split(split.context, begin, None if split.stop is None and stop >= length else stop))
        return needed(found, self.options.wanted) if self.options.skip else found

    def name_of(self, part: Split) -> str:
        return f"{part.context.file.base + part.start:020d}"

    def size_of(self, part: Split) -> int:
        return bytes_of(part)

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        return MessageTable(self.options).read(part)
