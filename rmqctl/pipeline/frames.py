"""Work on executors: tables as DataFrames without the data source, and any work on a list of items.

Planned on the driver, one task a part; rows come as Arrow batches.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqctl.pipeline.cluster import cores_of
from rmqctl.pipeline.data_source import conform, settle, spark_schema
from rmqctl.tables import Share, Table, Tally, taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
AT_ONCE = 32
"""Items of shared work in one job for each core: their results are taken before the next job begins, so that the driver
never holds the results of a whole log."""
_RESULTS = pa.schema([("number", pa.int64()), ("result", pa.binary())])


def frame(spark: SparkSession, source: Table) -> DataFrame:
    """The rows of a table.

    Raises:
        OSError: the store cannot be listed.
    """
    return tasks(spark, source.parts(), source.read, source.schema())


def tasks(spark: SparkSession, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> DataFrame:
    """What ``read`` gives for each part, one task a part; part and function travel to the executors."""
    if not parts:
        return spark.createDataFrame([], spark_schema(schema))

    counted = counters(spark)

    def run(batches: Batches) -> Batches:
        from pyspark.sql.pandas.types import to_arrow_schema

        settle()
        wanted = to_arrow_schema(given, timezone="UTC")
        for batch in batches:
            for number in batch.column(0).to_pylist():
                taken()  # what a task left that was cancelled
                for found in read(parts[number]):
                    yield conform(found, wanted)
                if counted is not None:
                    counted.add(taken())

    given = spark_schema(schema)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, given)


def sharing(spark: SparkSession) -> Share:
    """Has work on a list of items done by executors, one task an item; results come in order, some at a time."""

    def share(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        def do(part: tuple[int, Any]) -> Batches:
            result = pickle.dumps(work(part[1]), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{"number": part[0], "result": result}], schema=_RESULTS)

        some = cores_of(spark) * AT_ONCE
        for begin in range(0, len(items), some):
            rows = tasks(spark, list(enumerate(items[begin : begin + some])), do, _RESULTS).collect()
            for row in sorted(rows, key=lambda row: int(row.number)):
                yield pickle.loads(bytes(row.result))  # noqa: S301 - made by our own tasks

    return share


# --- how much of a log the tasks have gone through ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counters:
    """Accumulators of a session; they only grow, when a task ends."""

    messages: Any
    bytes: Any

    def add(self, tally: Tally) -> None:
        """In a task: what it has read."""
        self.messages.add(tally.messages)
        self.bytes.add(tally.bytes)

    def since(self, before: Tally) -> Tally:
        """On the driver: what has come in since."""
        return Tally(int(self.messages.value) - before.messages, int(self.bytes.value) - before.bytes)


_counters: dict[str, Counters] = {}


def counters(spark: SparkSession) -> Counters | None:
    """The accumulators of a session; None with Spark Connect, which has none."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - each release raises something else
        return None
    if context.applicationId not in _counters:
        _counters[context.applicationId] = Counters(context.accumulator(0), context.accumulator(0))
    return _counters[context.applicationId]
