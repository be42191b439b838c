"""Figures of one part of a log: messages counted by what they have in common, sizes and latencies in buckets.

Small however many messages there are, so that a job sends little from task to task. A value up to
256 is a bucket of its own; above, a bucket spans less than 0.8 % of its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqctl.pipeline.log_parts import log_of
from rmqctl.pipeline.message_table import MessageTable
from rmqctl.pipeline.options import TableOptions
from rmqctl.pipeline.texts import TIME
from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.log_end import log_end
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.splits import Split

SIZE, LATENCY, MOMENT = "size", "latency", "time"
STEPS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)
_MOMENTS = 200
KEYS = ("topic", "queue_id", "tags", "hour_timestamp", "born_host")
SUMS = ("messages", "bytes", "body_bytes", "body_bytes_decompressed", "bad_crc")
_COLUMNS = (
    "topic", "queue_id", "tags", "born_host", "born_timestamp", "store_timestamp", "size", "body_crc_ok", "body_size",
    "body_size_decompressed",
)  # fmt: skip
_EXACT_BITS = 8
_HOUR_US = 3_600_000_000

PARTIAL_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("tags", pa.string()),
        ("born_host", pa.string()),
        ("hour_timestamp", TIME),
        ("measure", pa.string()),
        ("value", pa.int64()),
        *((name, pa.int64()) for name in SUMS),
    ]
)
"""One row a group and bucket. ``measure`` ``size``: ``value`` is TOTALSIZE in bytes; ``latency``: born to store, ms;
``time``: store time in steps, epoch ms, by topic alone."""


def step_of(store: RocketMQStore, wanted: Filter) -> int:
    """The width of a step of time, ms: the narrowest that divides the time of the wanted messages into few.

    Raises:
        OSError: the log cannot be read.
    """
    first = next((int(f.block["store_timestamp"][0]) for f in log_of(store).walk() if len(f.block)), None)
    last = log_end(store).store_timestamp
    if first is None or last is None:
        return STEPS_MS[0]
    span = min(last, wanted.before or last) - max(first, wanted.after or first)
    return next((step for step in STEPS_MS if span < step * _MOMENTS), STEPS_MS[-1])


def bucket(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lowest value of the bucket of each value; what is below zero counts as zero."""
    values = np.maximum(values, 0)
    bits = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    drop = np.maximum(bits - _EXACT_BITS, 0)
    return values >> drop << drop


class StatsTable:
    """The partial figures of a store, part by part."""

    def __init__(self, options: TableOptions) -> None:
        self.messages = MessageTable(replace(options, columns=_COLUMNS))
        self.step_ms = step_of(options.store(), options.wanted)

    def schema(self) -> pa.Schema:
        """The columns, see :data:`PARTIAL_SCHEMA`."""
        return PARTIAL_SCHEMA

    def parts(self) -> list[Split]:
        """Splits of the log.

        Raises:
            OSError: a file cannot be read.
        """
        return self.messages.parts()

    def read(self, part: Split) -> Iterator[pa.RecordBatch]:
        """The figures of one split.

        Raises:
            OSError: the file cannot be read.
        """
        found = [table for batch in self.messages.read(part) for table in _figures(batch, self.step_ms)]
        if found:
            yield from summed(pa.concat_tables(found)).combine_chunks().to_batches()


def _figures(batch: pa.RecordBatch, step_ms: int) -> list[pa.Table]:
    stored = batch.column("store_timestamp").cast(pa.int64())
    born = batch.column("born_timestamp").cast(pa.int64())
    hour = pc.multiply(pc.divide(stored, _HOUR_US), _HOUR_US).cast(TIME)
    count = batch.num_rows
    base: dict[str, Any] = {name: hour if name == "hour_timestamp" else batch.column(name) for name in KEYS}
    size = batch.column("size").cast(pa.int64())
    body = batch.column("body_size").cast(pa.int64())
    sums = {
        "messages": pa.repeat(1, count),
        "bytes": size,
        "body_bytes": body,
        "body_bytes_decompressed": pc.coalesce(batch.column("body_size_decompressed").cast(pa.int64()), body),
        "bad_crc": pc.invert(batch.column("body_crc_ok")).cast(pa.int64()),
    }
    waited = pc.fill_null(pc.divide(pc.subtract(stored, born), 1000), 0)
    nothing = {name: pa.repeat(0, count) for name in SUMS[1:]}
    steps = pc.multiply(pc.divide(stored, step_ms * 1000), step_ms)
    alone = {name: base[name] if name == "topic" else pa.nulls(count, PARTIAL_SCHEMA.field(name).type) for name in KEYS}
    moments = _table(alone, MOMENT, pc.fill_null(steps, 0), {"messages": sums["messages"], **nothing}, exact=True)
    return [
        summed(moments.filter(pc.is_valid(steps))),
        summed(_table(base, SIZE, size, sums)),
        summed(_table(base, LATENCY, waited, {"messages": sums["messages"], **nothing})),
    ]


def _table(base: dict[str, Any], measure: str, values: Any, sums: dict[str, Any], *, exact: bool = False) -> pa.Table:
    value = values if exact else pa.array(bucket(values.to_numpy(zero_copy_only=False)))
    columns = {**base, "measure": pa.repeat(measure, len(value)), "value": value, **sums}
    return pa.table([columns[name] for name in PARTIAL_SCHEMA.names], schema=PARTIAL_SCHEMA)


def summed(table: pa.Table) -> pa.Table:
    """Figures added up, one row a group and bucket."""
    names = [*KEYS, "measure", "value"]
    found = table.group_by(names, use_threads=False).aggregate([(name, "sum") for name in SUMS])
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).select(PARTIAL_SCHEMA.names)
