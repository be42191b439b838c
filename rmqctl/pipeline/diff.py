"""`diff` with both logs and the queues compared by executors: the same comparison, the same findings.

A task lays one stretch of both logs beside each other. What differs comes here; where records belong
together by queue, those of one queue offset first meet in one task, and only what has no equal comes.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.jobs import sharing, tasks
from rmqctl.rocketmq.diff.logs import Columns, Laid, Log, Seen, join, lay
from rmqctl.rocketmq.diff.queues import QueueDiff, QueueKey, QueuesLaid
from rmqctl.rocketmq.log.commitlog import CommitLog, LogBlock
from rmqctl.rocketmq.log.crc import crc32
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE, splits_of_log, walk_split
from rmqctl.rocketmq.verify.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = tuple(name for name in Columns._fields if name != "topic")
ROW_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("stretch", pa.int64()),
        ("side", pa.int8()),
        ("summary", pa.binary()),
        ("topic", pa.binary()),
        *((name, pa.int64()) for name in _NUMBERS),
    ]
)
"""A record that differs: of A (side 0) or B (1), numbered from the begin of its stretch; or a summary (side -1)."""
_SUMMARY = -1
_QUEUES = pa.schema([("number", pa.int64()), ("result", pa.binary())])
_KEYS_OF_TASK, _TASKS_PER_CORE = 500, 4
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class LogStretch:
    """A range of physical offsets: the parts of both logs in it."""

    a: list[Split] = field(default_factory=list)
    b: list[Split] = field(default_factory=list)


def stretches(a: Log, b: Log, size: int = SPLIT_SIZE) -> list[LogStretch]:
    """Both logs divided at the same physical offsets, in their order.

    Args:
        size: most bytes of either log in one stretch, but for files that overlap.
    """
    logs = [_extents(log, size) for log in (a, b)]
    cuts = sorted({split.context.file.base + at for extents in logs for split, inner in extents for at in inner})
    for extents in logs:
        cuts = _without_overlaps(cuts, [split for split, _ in extents])
    found = [LogStretch() for _ in cuts]
    for extents, side in zip(logs, ("a", "b"), strict=True):
        for split, _ in extents:
            for number, part in _divided(split, cuts):
                getattr(found[number], side).append(part)
    return found


def _extents(log: Log, size: int) -> list[tuple[Split, list[int]]]:
    """Each file as far as it belongs to the log, and where it may be divided, in bytes."""
    found: list[tuple[Split, list[int]]] = []
    for part in splits_of_log(CommitLog(log.files, crashed=log.crashed), size):
        if part.start:
            whole, starts = found.pop()
            found.append((Split(whole.context, 0, part.stop), [*starts, part.start]))
        else:
            found.append((part, [0]))
    return found


def _without_overlaps(cuts: list[int], files: list[Split]) -> list[int]:
    """Return the cuts that no two files of one log lie on both sides of: records there are distinguished by their
    order.
    """
    begin = end = -1
    for split in files:
        file = split.context.file
        if file.base < end:
            end = max(end, file.base + file.size)
            cuts = [cut for cut in cuts if not begin < cut < end]
        else:
            begin, end = file.base, file.base + file.size
    return cuts


def _divided(split: Split, cuts: list[int]) -> Iterator[tuple[int, Split]]:
    """Yield a file by the stretches it lies in."""
    base, size = split.context.file.base, split.context.file.size
    end = base + (size if split.stop is None else split.stop)
    first, last = bisect_right(cuts, base) - 1, bisect_left(cuts, end)
    inner = [base, *cuts[first + 1 : last], max(end, base)]
    for number, (start, stop) in enumerate(pairwise(inner), first):
        is_last = number == max(last, first + 1) - 1
        yield number, Split(split.context, start - base, split.stop if is_last else stop - base)


def _blocks(parts: list[Split]) -> Iterator[LogBlock]:
    return chain.from_iterable(walk_split(part) for part in parts)


@dataclass(frozen=True, slots=True)
class _Work:
    """What all tasks share."""

    numbers: tuple[dict[str, int], dict[str, int]]
    by_place: bool
    buckets: int

    def lay(self, part: tuple[int, LogStretch]) -> Iterator[pa.RecordBatch]:
        """Yield what differs in one stretch, and its summary."""
        number, stretch = part
        laid = lay((_blocks(stretch.a), _blocks(stretch.b)), self.numbers, by_place=self.by_place)
        topics = pa.array(laid.topics, pa.binary())
        for side, rows in enumerate((laid.left_a, laid.left_b)):
            if len(rows.seq):
                yield _batch(rows, topics, _buckets(rows, laid.topics, self.buckets), number, side)
        summary = pickle.dumps((laid.seen_a, laid.seen_b, laid.equal, laid.equal_bytes), pickle.HIGHEST_PROTOCOL)
        row = {"bucket": _SUMMARY, "stretch": number, "side": _SUMMARY, "summary": summary}
        yield pa.RecordBatch.from_pylist([row], schema=ROW_SCHEMA)


def _buckets(rows: Columns, topics: list[bytes], count: int) -> npt.NDArray[np.int32]:
    """Number records: those of one queue offset have one number, of those below ``count``."""
    hashes = np.array([crc32(topic) for topic in topics], np.uint64)[rows.topic]
    for column in (rows.queue_id, rows.queue_offset):
        hashes = (hashes ^ column.astype(np.uint64)) * _MIX
        hashes ^= hashes >> np.uint64(29)
    return (hashes % np.uint64(count)).astype(np.int32)


def _batch(rows: Columns, topics: pa.Array, buckets: npt.NDArray[np.int32], stretch: int, side: int) -> pa.RecordBatch:
    count = len(rows.seq)
    columns = [
        pa.array(buckets),
        pa.repeat(pa.scalar(stretch, pa.int64()), count),
        pa.repeat(pa.scalar(side, pa.int8()), count),
        pa.nulls(count, pa.binary()),
        topics.take(pa.array(rows.topic)),
        *(pa.array(getattr(rows, name)) for name in _NUMBERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def _match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records of some buckets without those that have an equal on the other side; summaries pass.

    A pair that is left out counts as one of several of its queue offset on both sides, so the rest still
    belongs together as before.
    """
    table = pa.Table.from_batches(batches, ROW_SCHEMA)
    if not table.num_rows:
        return
    side = table.column("side").to_numpy()
    keep = np.ones(len(side), np.bool_)
    at = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
    numbers, _ = _topics(table)
    a, b = (_columns(table, numbers, rows) for rows in at)
    joined = join(a, b)
    same = np.ones(len(joined.a), np.bool_)
    for name in ("body", "body_size", "properties"):
        same &= getattr(a, name)[joined.a] == getattr(b, name)[joined.b]
    keep[at[0][joined.a[same]]] = keep[at[1][joined.b[same]]] = False
    yield from table.filter(pa.array(keep)).to_batches()
    row = {"bucket": _SUMMARY, "stretch": _SUMMARY, "side": _SUMMARY, "summary": pickle.dumps(int(same.sum()))}
    yield pa.RecordBatch.from_pylist([row], schema=ROW_SCHEMA)


def _topics(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """Return a number for the topic of each row, -1 for none, and the topics by number."""
    coded = table.column("topic").combine_chunks().dictionary_encode()
    numbers = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, coded.dictionary.to_pylist()


def _columns(table: pa.Table, topics: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Columns:
    found = {name: table.column(name).to_numpy()[rows].astype(np.int64) for name in _NUMBERS}
    return Columns(topic=topics[rows], **found)


class SparkSharing:
    """Has logs and queues compared on Spark; for :class:`rmqctl.rocketmq.diff.Diff`."""

    def __init__(self, spark: SparkSession, split_size: int = SPLIT_SIZE) -> None:
        self.spark, self.split_size = spark, split_size

    def __call__(self, work: Callable[[Any], Any], items: Sequence[Any], /) -> Iterable[Any]:
        """Do work on items, one task an item, for a family that compares here what tasks have read."""
        return sharing(self.spark)(work, items)

    def logs(self, a: Log, b: Log, by_place: bool, /) -> Laid:
        """Both logs, stretch by stretch."""
        parts = stretches(a, b, self.split_size)
        work = _Work((a.numbers(), b.numbers()), by_place, max(len(parts), 1))
        rows = tasks(self.spark, list(enumerate(parts)), work.lay, ROW_SCHEMA)
        if not by_place:
            from rmqctl.pipeline.data_source import spark_schema

            rows = rows.repartition(work.buckets, "bucket").mapInArrow(_match, spark_schema(ROW_SCHEMA))
        return _added(rows.toArrow(), len(parts))

    def queues(self, work: QueueDiff, keys: list[QueueKey], /) -> Iterable[QueuesLaid]:
        """Yield the queues, some to a task."""

        def compare(part: tuple[int, list[QueueKey]]) -> Iterator[pa.RecordBatch]:
            result = pickle.dumps(work.compare(part[1]), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{"number": part[0], "result": result}], schema=_QUEUES)

        each = max(min(len(keys) // (cores_of(self.spark) * _TASKS_PER_CORE), _KEYS_OF_TASK), 1)
        parts = [keys[at : at + each] for at in range(0, len(keys), each)]
        rows = tasks(self.spark, list(enumerate(parts)), compare, _QUEUES).collect()
        for row in sorted(rows, key=lambda row: int(row.number)):
            yield pickle.loads(bytes(row.result))  # noqa: S301 - made by our own tasks


def _added(table: pa.Table, count: int) -> Laid:
    """Return what all stretches have shown, as one: records numbered through the whole of each log."""
    side = table.column("side").to_numpy()
    laid, records = Laid(), np.zeros((2, count + 1), np.int64)
    found = table.filter(pa.array(side == _SUMMARY)).select(["stretch", "summary"])
    for number, summary in zip(*(column.to_pylist() for column in found.columns), strict=True):
        content: Any = pickle.loads(summary)  # noqa: S301 - made by our own tasks
        if number == _SUMMARY:
            laid.matched += content
            continue
        *seen, equal, equal_bytes = content
        for which, (whole, part) in enumerate(zip((laid.seen_a, laid.seen_b), seen, strict=True)):
            _add(whole, part)
            records[which, number + 1] = part.records
        laid.equal, laid.equal_bytes = laid.equal + equal, laid.equal_bytes + equal_bytes
    numbers, laid.topics = _topics(table)
    before = records.cumsum(1)
    laid.left_a, laid.left_b = (_left(table, numbers, np.flatnonzero(side == which), before[which]) for which in (0, 1))
    return laid


def _add(whole: Seen, part: Seen) -> None:
    whole.records, whole.bytes, whole.end, whole.gaps = (
        whole.records + part.records,
        whole.bytes + part.bytes,
        max(whole.end, part.end),
        whole.gaps + part.gaps,
    )


def _left(
    table: pa.Table, topics: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
) -> Columns:
    found = _columns(table, topics, rows)
    found = found._replace(seq=found.seq + before[table.column("stretch").to_numpy()[rows]])
    return found.take(np.argsort(found.seq, kind="stable"))


__all__ = ["LogStretch", "SparkSharing", "stretches"]
