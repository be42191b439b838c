"""`verify` with its splits checked by executors: the same checks, the same findings."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.data_source import spark_schema
from rmqctl.pipeline.frames import tasks
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.tables.options import TableOptions
from rmqctl.rocketmq.tables.splits import SPLIT_SIZE, check_reachable
from rmqctl.rocketmq.tables.tables import FINDING_SCHEMA, finding_batches
from rmqctl.rocketmq.tables.tally import note
from rmqctl.rocketmq.verify.driver import Level, Progress, SplitResult, Verification, VerifyOptions, check_split
from rmqctl.rocketmq.verify.splits import Job, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLITS_PER_CORE = 32
"""Splits of one job for each core: what they leave is added up before the next job, so that this process never holds
the results of a whole log."""
_RESULTS = pa.schema([("number", pa.int64()), ("result", pa.binary())])


def verification(
    spark: SparkSession, store: RocketMQStore, options: VerifyOptions, progress: Progress | None = None
) -> Verification:
    """A verification whose records are checked by executors; files and what spans splits are checked here.

    Args:
        options: ``processes`` means nothing here; ``split_size`` below the usual is kept.
    """

    def share(job: Job, splits: list[Split]) -> Iterable[SplitResult]:
        return _shared(spark, job, splits)

    size = options.split_size if options.split_size != VerifyOptions().split_size else SPLIT_SIZE
    return Verification(store, replace(options, split_size=size), progress, share)


def _shared(spark: SparkSession, job: Job, splits: list[Split]) -> Iterator[SplitResult]:
    def check(part: tuple[int, Split]) -> Iterator[pa.RecordBatch]:
        check_reachable(part[1].context.file)
        checked, split = check_split(job, part[1]), part[1]
        note(checked.partials.log.messages, (split.stop or split.context.file.size) - split.start)
        result = pickle.dumps(checked, pickle.HIGHEST_PROTOCOL)
        yield pa.RecordBatch.from_pylist([{"number": part[0], "result": result}], schema=_RESULTS)

    at_once = cores_of(spark) * _SPLITS_PER_CORE
    for begin in range(0, len(splits), at_once):
        rows = tasks(spark, list(enumerate(splits[begin : begin + at_once])), check, _RESULTS).collect()
        for row in sorted(rows, key=lambda row: int(row.number)):
            yield pickle.loads(bytes(row.result))  # noqa: S301 - made by our own tasks


def findings(spark: SparkSession, options: TableOptions) -> DataFrame:
    """The table ``findings`` with the records checked by executors; only what was found is held here.

    Raises:
        OSError: the store cannot be listed.
    """
    checked = verification(spark, options.store(), VerifyOptions(Level(options.level)))
    batches = list(finding_batches(finding.row() for finding in checked.findings()))
    found = pa.Table.from_batches(batches, FINDING_SCHEMA)
    return spark.createDataFrame(found, spark_schema(FINDING_SCHEMA))
