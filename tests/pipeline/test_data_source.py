"""The format ``rocketmq`` on a real Spark."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures import golden
from rmqctl import pipeline
from rmqctl.pipeline.settings import find_java
from tests.pipeline import truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def unpacked(tmp_path: Path) -> Any:
    made: dict[str, Path] = {}
    return lambda name: made[name] if name in made else made.setdefault(name, golden.unpack(name, tmp_path))


@pytest.mark.parametrize(
    ("name", "size"), [("4.5.2-crash", "1KiB"), ("5.5.0-clean", "64KiB"), ("5.5.0-multipath-clean", "1G")]
)
def test_messages_equal_truth(spark: SparkSession, name: str, size: str) -> None:
    reader = spark.read.format("rocketmq").options(splitSize=size, body="decompressed")
    found = reader.load(str(golden.pristine(name)))
    rows = [row.asDict(recursive=True) for row in found.sort("physical_offset").collect()]
    assert truths.comparable(rows) == truths.expected(name)


def test_bodies_are_read_where_somebody_asks_for_them(spark: SparkSession) -> None:
    path = str(golden.pristine("5.3.3-clean"))
    reader = spark.read.format("rocketmq")
    bare = reader.load(path)
    assert {"body", "inner", "body_size_decompressed"}.isdisjoint(bare.columns)
    assert len(bare.columns) == 26
    bodies = [row["body"] for row in truths.expected("5.3.3-clean")]
    for asked in (
        spark.read.format("rocketmq").option("columns", "body").load(path),
        spark.read.format("rocketmq").schema("body binary").load(path),
        spark.read.format("rocketmq").option("body", "decompressed").load(path).select("body"),
    ):
        assert asked.columns == ["body"]
        assert sorted(hashlib.sha256(row.body).hexdigest() for row in asked.collect()) == sorted(bodies)


def test_messages_function_gives_the_same(spark: SparkSession) -> None:
    found = pipeline.messages(spark, str(golden.pristine("5.3.3-clean")), split_size="64K")
    rows = [row.asDict(recursive=True) for row in found.sort("physical_offset").collect()]
    assert truths.comparable(rows) == truths.expected("5.3.3-clean")


def test_sql_over_a_view(spark: SparkSession) -> None:
    path = golden.pristine("5.1.4-clean")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW m USING rocketmq OPTIONS (path '{path}', columns 'topic,size')")
    found = {
        row.topic: (row.n, row.bytes)
        for row in spark.sql("SELECT topic, count(*) n, sum(size) bytes FROM m GROUP BY topic").collect()
    }
    true = truths.expected("5.1.4-clean")
    counts = Counter(row["topic"] for row in true)
    assert found == {t: (n, sum(r["size"] for r in true if r["topic"] == t)) for t, n in counts.items()}


@pytest.mark.parametrize(("format", "name"), [("rocketmq", "5.1.4-clean"), ("kafkalog", "4.3.1-clean")])
def test_a_table_of_the_catalog(spark: SparkSession, unpacked: Any, format: str, name: str) -> None:
    """Its options reach the reader in its schema; that it is dropped leaves the store as it is."""
    from pyspark.errors import AnalysisException

    root = unpacked(name).rename(unpacked(name).with_name("a store"))
    topic = "LabOne" if format == "rocketmq" else "z-zstd"
    expected = spark.read.format(format).options(topic=topic, columns="topic").load(str(root)).count()
    options = f"(path '{root}', topic '{topic}', columns 'topic', splitSize '64K')"
    spark.sql(f"CREATE TABLE kept USING {format} OPTIONS {options}")
    try:
        found = spark.sql("SELECT topic, count(*) n FROM kept GROUP BY topic").collect()
        assert [(row.topic, row.n) for row in found] == [(topic, expected)]
        assert spark.table("kept").rdd.getNumPartitions() > 1 or format == "kafkalog"
    finally:
        spark.sql("DROP TABLE kept")
    assert any(root.iterdir())
    with pytest.raises(AnalysisException, match="did you mean splitSize"):
        spark.sql(f"CREATE TABLE wrong USING {format} OPTIONS (path '{root}', split '1')")
    spark.sql(f"CREATE TABLE own (topic string) USING {format} OPTIONS (path '{root}')")
    try:
        with pytest.raises(AnalysisException, match="leave the columns out"):
            spark.sql("SELECT topic FROM own").collect()
    finally:
        spark.sql("DROP TABLE own")


def test_conditions_spare_reading_and_change_nothing(spark: SparkSession) -> None:
    path = golden.pristine("5.3.3-clean")
    true = truths.expected("5.3.3-clean")
    middle = true[len(true) // 2]
    moment = middle["store_timestamp"].strftime("%Y-%m-%d %H:%M:%S.%f")
    assert pipeline.messages(spark, str(path), split_size="32K").rdd.getNumPartitions() > 15
    for condition, keep in (
        (f"store_timestamp >= timestamp '{moment}'", lambda r: r["store_timestamp"] >= middle["store_timestamp"]),
        (f"store_timestamp < '{moment}'", lambda r: r["store_timestamp"] < middle["store_timestamp"]),
        ("topic = 'LabOne' and queue_id = 0", lambda r: (r["topic"], r["queue_id"]) == ("LabOne", 0)),
        (
            "topic in ('LabOne', 'LabLog') and queue_id > 1",
            lambda r: r["topic"] in {"LabOne", "LabLog"} and r["queue_id"] > 1,
        ),
        ("physical_offset between 1000 and 9000", lambda r: 1000 <= r["physical_offset"] <= 9000),
        ("topic = 'LabOne' or queue_id = 0", lambda r: r["topic"] == "LabOne" or r["queue_id"] == 0),
        ("length(body) > 100", lambda r: r["body_size_decompressed"] > 100),
    ):
        found = pipeline.messages(spark, str(path), where=condition, columns="physical_offset", split_size="32K")
        assert found.columns == ["physical_offset"]
        assert sorted(row.physical_offset for row in found.collect()) == [r["physical_offset"] for r in true if keep(r)]
    few = pipeline.messages(spark, str(path), where="physical_offset between 1000 and 9000", split_size="32K")
    assert few.rdd.getNumPartitions() < 10
    # no queue says which parts of the log hold none of its topic: units may be missing
    every = pipeline.messages(spark, str(path), where="topic = 'LabOne' and queue_id = 0", split_size="32K")
    assert every.rdd.getNumPartitions() > 15


def test_a_data_frame_can_be_asked_again_and_again(spark: SparkSession) -> None:
    """Spark keeps what a reader in Python makes of filters with the DataFrame: queries after it counted 477 of 1,096."""
    path, true = str(golden.pristine("5.3.3-clean")), truths.expected("5.3.3-clean")
    by_topic = Counter(row["topic"] for row in true)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for messages in (spark.read.format("rocketmq").load(path), pipeline.messages(spark, path)):
            late = messages.where("topic = 'LabLog'")
            for topic in ("LabOne", "LabLog"):
                assert messages.where(f"topic = '{topic}'").count() == by_topic[topic]
                assert messages.count() == len(true)
            assert late.count() == by_topic["LabLog"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_work_for_every_core(spark: SparkSession) -> None:
    from rmqctl.tables import usual_split_size

    tasks = {cores: (1 << 30) // usual_split_size(1 << 30, cores) for cores in (None, 2, 8, 100)}
    assert tasks == {None: 4, 2: 4, 8: 16, 100: 32}
    assert spark.sparkContext.defaultParallelism == 2
    path = str(golden.pristine("5.5.0-clean"))
    for options, expected in (({"splitSize": "1M"}, 1), ({"splitSize": "64K", "cores": "3"}, 2)):
        assert spark.read.format("rocketmq").options(**options).load(path).rdd.getNumPartitions() >= expected


def test_tasks_without_a_session_of_ours() -> None:
    """A cluster nobody told about gets small splits: 10 GiB were 40 tasks for 512 cores."""
    from rmqctl.pipeline.data_source import _cores
    from rmqctl.tables import usual_split_size

    assert [(10 << 30) // usual_split_size(10 << 30, _cores(o, None)) for o in ({}, {"Cores": "8"})] == [320, 40]
    assert (1 << 40) // usual_split_size(1 << 40, _cores({}, None)) == 4096
    assert _cores({}, 4) == 4


@pytest.mark.slow
def test_a_session_of_its_own_finds_the_format() -> None:
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"print('rows', spark.read.format('rocketmq').load({str(golden.pristine('5.3.3-clean'))!r}).where('queue_id = 1').count())\n"
    )
    environment = {**os.environ, "JAVA_HOME": os.fspath(find_java().home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    expected = [row for row in truths.expected("5.3.3-clean") if row["queue_id"] == 1]
    assert f"rows {len(expected)}" in done.stdout
