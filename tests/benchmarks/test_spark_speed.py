"""Speed of the jobs on Spark with two cores, as ratios in one run: `make bench` prints the table.

RMQCTL_BENCH_MIB sets the size of the log (default 1024). Sessions are warm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures import bulk
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.tables.tables import RocketMQTables
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions
from tests.benchmarks.kafka_logs import make_segment
from tests.benchmarks.ratio import ONCE, Result, compare, size, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqctl.rocketmq.tables.columns import TableOptions
    from rmqctl.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SIZE = size("MIB", 1024, 4) << 20
MOST_SECONDS = 15.0
WARM = 0 if ONCE else 8
"""Runs until the virtual machine has compiled what a job needs; it does so beside the work."""
RESULTS: list[Result] = []
SCALING: list[str] = []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bench") / "store"
    bulk.make(root, bulk.Bulk(log_bytes=SIZE, file_size=SIZE // 4))
    return root


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    from rmqctl.pipeline import session

    made = session("local[2]", {"spark.driver.memory": "1g"})
    yield made
    made.stop()


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end."""
    yield
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    lines = [*(result.line() for result in RESULTS), *SCALING, f"load of the machine: {load}"]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def options(store: Path, **more: str) -> TableOptions:
    from rmqctl.rocketmq.tables.columns import table_options

    return table_options({"path": str(store), **more})


def export(spark: SparkSession, store: Path, out: Path, **more: str) -> Callable[[], object]:
    from rmqctl.pipeline.export import Export, ExportChoices, on_spark
    from rmqctl.pipeline.outputs import output_at

    def run() -> None:
        shutil.rmtree(out, ignore_errors=True)
        work = Export(RocketMQTables(options(store, **more)), output_at(str(out)), ExportChoices(split_size=SIZE // 4))
        work.run(work.plan(2), on_spark(spark))

    return run


def test_start_to_first_result(tmp_path: Path) -> None:
    root = tmp_path / "store"
    bulk.make(root, bulk.Bulk(log_bytes=1 << 20, file_size=1 << 20))
    command = [sys.executable, "-m", "rmqctl", "stats", str(root), "--master", "local[2]"]
    seconds = timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))
    RESULTS.append(
        Result("stats of a small store, from start to result / 15 s", seconds, MOST_SECONDS, MOST_SECONDS / seconds, 1)
    )


def test_scan(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    from pyspark.sql import functions

    from tests.benchmarks.topic_counts import topic_counts

    def counts() -> None:
        assert topic_counts(spark, options(store)).collect()

    def local() -> None:
        checked = Verification(open_store_at(str(store)), VerifyOptions(Level.FULL, cross=False, processes=2))
        assert [f for f in checked.findings() if f.level != "note"] == []

    export(spark, store, tmp_path / "out")()
    files = spark.read.parquet(str(tmp_path / "out"))

    def parquet() -> None:
        files.groupBy("topic").agg(functions.sum(functions.crc32("body"))).collect()

    for _ in range(WARM):
        counts()
    RESULTS.append(compare("scan, CRC, group by topic: Spark / local with 2 processes", counts, local, 1 / 1.6))
    RESULTS.append(compare("scan, CRC, group by topic: Spark / Spark over Parquet", counts, parquet, 1 / 1.5))


def test_export(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    from rmqctl.rocketmq.tables.message_table import MessageTable

    table = MessageTable(options(store))
    batches = [batch for part in table.parts() for batch in table.read(part)]
    data = pa.Table.from_batches(batches)

    def write() -> None:
        pq.write_table(data, tmp_path / "memory.parquet", compression="zstd")

    RESULTS.append(
        compare("export with bodies: Spark / pyarrow from memory", export(spark, store, tmp_path / "out"), write, 1 / 3)
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with one topic of four partitions, batches of 16 records of 1 KiB."""
    root = tmp_path_factory.mktemp("bench") / "logs"
    for number in range(4):
        (root / f"t-{number}").mkdir(parents=True)
        make_segment(root / f"t-{number}" / f"{0:020d}.log", SIZE // 4, 16, 1000)
    return root


def counted(records: Table) -> Table:
    """A table of counts instead of rows."""

    class Counted:  # of a function, so that it travels with its code
        """Records and bytes by partition and CRC, of each part: few rows leave a task."""

        def __init__(self, records: Table) -> None:
            self._records = records

        def schema(self) -> pa.Schema:
            return pa.schema(
                [("partition", pa.int32()), ("crc_ok", pa.bool_()), ("n", pa.int64()), ("bytes", pa.int64())]
            )

        def parts(self) -> Sequence[Any]:
            return self._records.parts()

        def read(self, part: Any) -> Iterator[pa.RecordBatch]:
            found = pa.Table.from_batches(self._records.read(part)).group_by(["partition", "crc_ok"])
            made = found.aggregate([("size", "count"), ("size", "sum")]).rename_columns(self.schema().names)
            yield from made.cast(self.schema()).combine_chunks().to_batches()

    return Counted(records)


def test_kafka(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """Every record with its CRC counted on both engines; and an export beside pyarrow, which has all in memory."""
    from rmqctl.opening import open_store
    from rmqctl.pipeline import export_task
    from rmqctl.pipeline.export import Export, ExportChoices, on_spark
    from rmqctl.pipeline.jobs import frame
    from rmqctl.pipeline.outputs import output_at
    from rmqctl.tables import tables_of

    def counts() -> None:
        asked = tables_of("kafkalog", {"path": str(logs), "columns": "partition,size,crc_ok"}).for_cores(2)
        found = frame(spark, counted(asked.table("records"))).groupBy("partition", "crc_ok").sum("n", "bytes")
        assert len(found.collect()) == 4

    def local() -> None:
        answer = open_store(str(logs)).verify(cross=False, processes=2)
        assert [row for row in answer.rows if row is not None and row["id"].startswith(("batch.", "record."))] == []

    for _ in range(WARM):
        counts()
    RESULTS.append(compare("Kafka: scan, CRC, group: Spark / local with 2 processes", counts, local, 1 / 1.6))
    table = tables_of("kafkalog", {"path": str(logs)}).table("records")
    data = pa.Table.from_batches([batch for part in table.parts() for batch in table.read(part)])

    def run() -> None:
        shutil.rmtree(tmp_path / "records", ignore_errors=True)
        out = output_at(str(tmp_path / "records"))
        work = Export(tables_of("kafkalog", {"path": str(logs)}), out, ExportChoices(split_size=SIZE // 4))
        work.run(work.plan(2), on_spark(spark))

    few = [name for name in data.schema.names if name in export_task._RECURRING]  # the same values recur in this log

    def write() -> None:
        pq.write_table(data, tmp_path / "memory.parquet", compression="zstd", use_dictionary=few)

    RESULTS.append(compare("Kafka: export with values: Spark / pyarrow from memory", run, write, 1 / 3))


@pytest.mark.parametrize("cores", [1, 2])
def test_scaling(store: Path, tmp_path: Path, cores: int) -> None:
    """A quarter, half and all of the log on one core and on two, each in a warm session of its own."""
    from rmqctl.pipeline import session
    from rmqctl.pipeline.stats import collect
    from tests.benchmarks.topic_counts import topic_counts

    spark = session(f"local[{cores}]", {"spark.driver.memory": "1g"})
    try:
        for part in (4, 2, 1):
            some = options(store, toOffset=str(SIZE // part))
            out = tmp_path / f"out-{part}"
            topic_counts(spark, some).collect()
            works: dict[str, Callable[[], object]] = {
                "counts": lambda some=some: topic_counts(spark, some).collect(),  # type: ignore[misc]
                "stats": lambda some=some: collect(spark, RocketMQTables(some)),  # type: ignore[misc]
                "export": export(spark, store, out, toOffset=str(SIZE // part)),
            }
            found = ", ".join(f"{name} {timed(work):.1f} s" for name, work in works.items())
            SCALING.append(f"{cores} {'core ' if cores == 1 else 'cores'} {SIZE // part / (1 << 30):5.2f} GiB: {found}")
    finally:
        spark.stop()
