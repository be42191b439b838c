"""Following a log that grows: offsets are physical ones and always lie between two whole records.

What lies between two offsets never changes, so a batch that is read again gives the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rmqctl.errors import RmqctlError
from rmqctl.pipeline.log_parts import SPLIT_SIZE, log_of, log_splits
from rmqctl.pipeline.log_tip import log_tip
from rmqctl.pipeline.message_table import MessageTable, first_record
from rmqctl.pipeline.options import EARLIEST, LATEST, Start, TableOptions
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.splits import Split


class LostMessages(RmqctlError):
    """The log no longer holds what was to be read next."""


@dataclass(frozen=True, slots=True)
class MessageStream:
    """The messages of a store as they come."""

    options: TableOptions
    start: Start

    def first(self) -> int:
        """The offset to begin at.

        Raises:
            OSError: the store cannot be read.
        """
        store = self.options.store()
        if self.start.offset == LATEST:
            return log_tip(store)
        begin = log_of(store).min_offset
        return begin if self.start.offset == EARLIEST else max(int(self.start.offset), 0)

    def latest(self, known: int, most_bytes: int | None = None) -> int:
        """Behind the last whole record; with ``most_bytes`` behind the last of those that fit, at least one.

        Raises:
            OSError: the store cannot be read.
        """
        store = self.options.store()
        tip = log_tip(store, known)
        if most_bytes is None or tip - known <= most_bytes:
            return tip
        return self._boundary(store, known, known + most_bytes, tip)

    def _boundary(self, store: RocketMQStore, known: int, wanted: int, tip: int) -> int:
        """The start of the first record at or behind an offset; a file's end where none follows in it."""
        for context in log_of(store).contexts():
            file = context.file
            if wanted < file.base + file.size and tip > file.base:
                at = max(wanted, file.base, known + 1) - file.base
                place = first_record(Split(context, at, None))
                return min(file.base + (file.size if place is None else place), tip)
        return tip

    def parts(self, start: int, end: int) -> list[Split]:
        """The splits between two offsets.

        Raises:
            LostMessages: files below ``start`` that were not read are gone.
            OSError: the store cannot be read.
        """
        store = self.options.store()
        begin = log_of(store).min_offset
        if start < begin and start < end and self.start.fail_on_loss:
            raise LostMessages(
                f"the log of {self.options.path} begins at {begin}, but was read up to {start} only: files in between "
                "were deleted; set the option failOnDataLoss to false to go on behind them"
            )
        found = []
        for split in log_splits(store, self.options.split_size or SPLIT_SIZE, end):
            base, size = split.context.file.base, split.context.file.size
            low, high = max(split.start, start - base), min(size if split.stop is None else split.stop, end - base)
            if low < high:
                found.append(Split(split.context, low, None if split.stop is None and high >= size else high))
        return found

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """The wanted messages of one split."""
        return MessageTable(self.options).read(part)
