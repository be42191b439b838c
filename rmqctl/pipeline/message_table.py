"""The table ``messages``: every record of the log, in log order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqctl.pipeline.log_parts import log_splits, usual_split_size, walk_split
from rmqctl.pipeline.message_batches import MessageBatches, message_schema
from rmqctl.pipeline.options import BadOption, TableOptions
from rmqctl.pipeline.skipping import needed
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.rows.messages import crc_flags
from rmqctl.rocketmq.verify.splits import Split


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """The wanted columns.

        Raises:
            BadOption: there is no such column.
        """
        try:
            return message_schema(self.options.columns, self.options.body)
        except ValueError as error:
            raise BadOption(str(error)) from None

    def parts(self) -> list[Split]:
        """Splits of the log, less those in which nothing wanted can lie.

        Raises:
            OSError: a file cannot be read.
        """
        store, wanted = self.options.store(), self.options.wanted
        splits = log_splits(store, self.options.split_size or usual_split_size(store, self.options.cores))
        return needed(store, splits, wanted) if self.options.skip else splits

    def read(self, part: Split, order: Callable[[Block], Block] | None = None) -> Iterator[pa.RecordBatch]:
        """The wanted messages of one split.

        Args:
            order: gives the records of a block in another order.

        Raises:
            OSError: the file cannot be read.
        """
        batches = MessageBatches(self.schema(), self.options.body)
        for block in self.blocks(part):
            yield from batches.of(block if order is None else order(block))

    def blocks(self, part: Split) -> Iterator[Block]:
        """The wanted messages of one split as blocks.

        Raises:
            OSError: the file cannot be read.
        """
        for found in walk_split(part):
            rows = self.options.wanted.select(found.block)
            block = found.block if rows is None else found.block.take(rows)
            yield block.take(~crc_flags(block)[1]) if self.options.wanted.damaged else block


def first_record(split: Split) -> int | None:
    """Where in its file the first record of a split begins, None where it has none.

    Raises:
        OSError: the file cannot be read.
    """
    for found in walk_split(split):
        if len(found.block):
            return int(found.block.position[0]) - split.context.file.lead
    return None


def limited(options: TableOptions, count: int) -> TableOptions:
    """The same with only the first ``count`` messages in log order. The log is walked here up to the last of them.

    Raises:
        OSError: a file cannot be read.
    """
    table = MessageTable(options)
    for part in table.parts():
        for block in table.blocks(part):
            if len(block) >= count:
                end = int(block.physical[count - 1]) + 1
                return replace(options, wanted=replace(options.wanted, to_offset=end))
            count -= len(block)
    return options
