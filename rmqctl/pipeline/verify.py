"""`verify` with its splits checked by executors: the same checks, the same findings."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqctl.pipeline.frames import tasks
from rmqctl.pipeline.log_parts import SPLIT_SIZE
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.driver import Progress, SplitResult, Verification, VerifyOptions, check_split
from rmqctl.rocketmq.verify.splits import Job, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        result = pickle.dumps(check_split(job, part[1]), pickle.HIGHEST_PROTOCOL)
        yield pa.RecordBatch.from_pylist([{"number": part[0], "result": result}], schema=_RESULTS)

    rows = tasks(spark, list(enumerate(splits)), check, _RESULTS).collect()
    for row in sorted(rows, key=lambda row: int(row.number)):
        yield pickle.loads(bytes(row.result))  # noqa: S301 - made by our own tasks
