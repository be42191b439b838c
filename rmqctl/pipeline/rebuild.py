"""Queues and index built by executors: the log dispatched split by split, then each queue put together by one task.

The units of a split travel in a shuffle to the task that writes their queue; the entries of the
index to the one task that links them. Tasks write into directories of their own; files come to
their places when all are done, so a lost executor leaves nothing that counts.
"""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from rmqctl.parallel import note as note_read
from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.jobs import tasks
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Key
from rmqctl.rocketmq.dispatch.series import Bitmap, QueueSeries, QueueSizes
from rmqctl.rocketmq.rebuild.build import (
    SPLIT_SIZE,
    Builder,
    Built,
    IndexFilesWriter,
    Job,
    QueueFilesWriter,
    dispatch_split,
    missing_files,
    note,
    queue_file_sizes,
)
from rmqctl.rocketmq.rebuild.expired_index import ExpiredIndex
from rmqctl.rocketmq.store.files import QUEUES, QUEUES_EXT, StoreFiles
from rmqctl.rocketmq.store.geometry import Geometry, IndexGeometry
from rmqctl.rocketmq.tables.splits import log_splits
from rmqctl.rocketmq.verify.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECES = pa.schema([("bucket", pa.int32()), ("number", pa.int64()), ("piece", pa.binary())])
_RESULTS = pa.schema([("bucket", pa.int32()), ("result", pa.binary())])
_TOTALS, _INDEX = -2, -1
_BUCKETS_PER_CORE = 4
_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ATTEMPT = ".build-"
Rows = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """What one task made.

    Attributes:
        root: its directory.
        series: the end states of its queues.
        files: queue files, relative to its directory.
        heads: headers of its index files.
        totals: of the splits, in log order.
    """

    root: Path
    series: dict[str, dict[Key, Any]]
    files: set[str]
    heads: list[Any]
    totals: list[Dispatched]


@dataclass(frozen=True, slots=True)
class _Work:
    """What all tasks share."""

    job: Job
    geometry: Geometry
    root: Path
    buckets: int
    bitmap: Bitmap | None
    expired: ExpiredIndex

    def dispatch(self, part: tuple[int, Split]) -> Iterator[pa.RecordBatch]:
        """Yield the units and entries of one split by the bucket they belong to."""
        number, split = part
        found, _ = dispatch_split(split, Dispatcher(self.job.rules, self.job.wanted))
        note_read(found.records, (split.stop or split.context.file.size) - split.start)
        pieces: dict[int, Dispatched] = {_TOTALS: replace(found, pieces=[], batches=[], index=None)}
        if found.index is not None:
            pieces[_INDEX] = Dispatched(index=found.index)
        for piece in found.pieces:
            pieces.setdefault(self._bucket(piece.key), Dispatched()).pieces.append(piece)
        for request in found.batches:
            pieces.setdefault(self._bucket((request.topic, request.queue_id)), Dispatched()).batches.append(request)
        for bucket, piece_of in pieces.items():
            row = {"bucket": bucket, "number": number, "piece": pickle.dumps(piece_of, pickle.HIGHEST_PROTOCOL)}
            yield pa.RecordBatch.from_pylist([row], schema=_PIECES)

    def _bucket(self, key: Key) -> int:
        return zlib.crc32(b"%s/%d" % key) % self.buckets

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the files of some buckets, whose pieces come in log order."""
        rows = (
            (bucket, piece)
            for batch in batches
            for bucket, piece in zip(batch.column("bucket").to_pylist(), batch.column("piece").to_pylist(), strict=True)
        )
        for bucket, pieces in groupby(rows, key=lambda row: row[0]):
            made = self._written(bucket, (pickle.loads(piece) for _, piece in pieces))  # noqa: S301 - of our own tasks
            row = {"bucket": bucket, "result": pickle.dumps(made, pickle.HIGHEST_PROTOCOL)}
            yield pa.RecordBatch.from_pylist([row], schema=_RESULTS)

    def _written(self, bucket: int, pieces: Iterator[Dispatched]) -> _Bucket:
        root = self.root / f"{_ATTEMPT}{bucket}-{uuid4().hex}"
        root.mkdir(parents=True)
        if bucket == _TOTALS:
            return _Bucket(root, {}, set(), [], list(pieces))
        if bucket == _INDEX:
            return _Bucket(root, {}, set(), self._index(root, pieces), [])
        files = QueueFilesWriter(root, queue_file_sizes(self.geometry))
        series = _series(self.geometry, files, self.bitmap)
        for piece in pieces:
            series.apply(piece)
        series.finish()
        files.flush()
        states = {name: getattr(series, name) for name in _STATES}
        return _Bucket(root, states, files.files, [], [])

    def _index(self, root: Path, pieces: Iterator[Dispatched]) -> list[Any]:
        shape = IndexGeometry(self.geometry.index_slots, self.geometry.index_entries)
        files = IndexFilesWriter(root, shape)
        series = self.expired.series(shape, files, counts_slots=self.job.rules.counts_slots)
        for piece in pieces:
            if piece.index is not None:
                series.add(piece.index)
        series.finish()
        return files.heads


_STATES = ("simple", "batch", "extension", "filled")


def _series(geometry: Geometry, files: QueueFilesWriter, bitmap: Bitmap | None) -> QueueSeries:
    sizes = queue_file_sizes(geometry)
    return QueueSeries(QueueSizes(sizes[QUEUES], sizes[QUEUES_EXT]), files, bitmap=bitmap, fills_holes=True)


def builder(spark: SparkSession) -> Builder:
    """Return a builder for :class:`rmqctl.rocketmq.rebuild.rebuild.Rebuild` that works on Spark."""

    def build(
        store: StoreFiles,
        geometry: Geometry,
        job: Job,
        root: Path,
        *,
        bitmap: Bitmap | None = None,
        expired: ExpiredIndex,
        **_: object,
    ) -> Built:
        """Dispatch the whole log of a store into files below ``root``, which executors must reach by this path.

        Processes and progress are Spark's own business.
        """
        root = root.resolve()
        work = _Work(job, geometry, root, cores_of(spark) * _BUCKETS_PER_CORE, bitmap, expired)
        try:
            return _put_together(store, work, _run(spark, store, work))
        finally:
            for left in root.glob(f"{_ATTEMPT}*"):
                shutil.rmtree(left, ignore_errors=True)

    return build


def _run(spark: SparkSession, store: StoreFiles, work: _Work) -> list[_Bucket]:
    from rmqctl.pipeline.data_source import spark_schema

    parts = list(enumerate(log_splits(store, SPLIT_SIZE)))
    pieces = tasks(spark, parts, work.dispatch, _PIECES).repartition(work.buckets, "bucket")
    results = pieces.sortWithinPartitions("bucket", "number").mapInArrow(work.write, spark_schema(_RESULTS))
    before = spark.conf.get(_ROWS_AT_ONCE)
    spark.conf.set(_ROWS_AT_ONCE, "8")  # rows hold the units of whole splits
    try:
        rows = results.collect()
    finally:
        spark.conf.set(_ROWS_AT_ONCE, before or "10000")
    return [pickle.loads(bytes(row.result)) for row in rows]  # noqa: S301 - of our own tasks


def _put_together(store: StoreFiles, work: _Work, buckets: list[_Bucket]) -> Built:
    """Move the files to their places and add up what is known of them."""
    queues = _series(work.geometry, QueueFilesWriter(work.root, queue_file_sizes(work.geometry)), work.bitmap)
    built = Built(work.root, queues)
    index = IndexFilesWriter(work.root, IndexGeometry(work.geometry.index_slots, work.geometry.index_entries))
    for bucket in buckets:
        for name, states in bucket.series.items():
            getattr(queues, name).update(states)
        staged = IndexFilesWriter(bucket.root, index.geometry)
        for number in range(len(bucket.heads)):
            _move(staged.path(number), index.path(number))
            built.index_paths.append(index.path(number))
        built.index += bucket.heads
        for name in bucket.files:
            _move(bucket.root / name, work.root / name)
        built.queue_files |= bucket.files
        for found in bucket.totals:
            note(built, found)
    built.damage += missing_files(store)
    return built


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
