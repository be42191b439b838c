"""Messages, bytes and wrong CRCs by topic: the smallest job over every body of a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.jobs import frame
from rmqctl.rocketmq.dispatch.continuity import messages_in
from rmqctl.rocketmq.log.columns import TextIds, topic_numbers
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.tables.columns import TableOptions
from rmqctl.rocketmq.tables.message_table import MessageTable
from rmqctl.rocketmq.verify.splits import Split
from rmqctl.text import name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT_SCHEMA = pa.schema([("topic", pa.string()), *((n, pa.int64()) for n in ("messages", "bytes", "bad_crc"))])
"""One row a topic and part of the log."""


class TopicCounts:
    """Counts of each split, made there: few rows travel."""

    def __init__(self, options: TableOptions) -> None:
        self._messages = MessageTable(replace(options, columns=("topic",)))

    def schema(self) -> pa.Schema:
        """The columns, see :data:`COUNT_SCHEMA`."""
        return COUNT_SCHEMA

    def parts(self) -> list[Split]:
        """Splits of the log.

        Raises:
            OSError: a file cannot be read.
        """
        return self._messages.parts()

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """The counts of one split.

        Raises:
            OSError: the file cannot be read.
        """
        ids, sums = TextIds(), np.zeros((3, 0), np.int64)
        for block in self._messages.blocks(part):
            topics, bad = topic_numbers(block, ids), ~crc_flags(block)[1]
            sums = np.pad(sums, ((0, 0), (0, len(ids.texts) - sums.shape[1])))
            for row, weights in enumerate((messages_in(block), block.total_size, bad)):
                sums[row] += np.bincount(topics, weights, len(ids.texts)).astype(np.int64)
        names = pa.array([name_of(text) for text in ids.texts], pa.string())
        yield pa.RecordBatch.from_arrays([names, *(pa.array(row) for row in sums)], schema=COUNT_SCHEMA)


def topic_counts(spark: SparkSession, options: TableOptions) -> DataFrame:
    """Messages, bytes of their records and bodies with a wrong CRC, by topic."""
    parts = frame(spark, TopicCounts(replace(options, cores=cores_of(spark))))
    return parts.groupBy("topic").sum("messages", "bytes", "bad_crc").toDF("topic", "messages", "bytes", "bad_crc")


__all__ = ["COUNT_SCHEMA", "TopicCounts", "topic_counts"]
