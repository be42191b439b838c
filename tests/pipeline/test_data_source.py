"""The format ``rocketmq`` on a real Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from fixtures import golden
from rmqctl import pipeline
from tests.pipeline import truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("name", "size"), [("4.5.2-crash", "1KiB"), ("5.5.0-clean", "64KiB"), ("5.5.0-multipath-clean", "1G")]
)
def test_messages_equal_truth(spark: SparkSession, name: str, size: str) -> None:
    found = spark.read.format("rocketmq").option("splitSize", size).load(str(golden.pristine(name)))
    rows = [row.asDict(recursive=True) for row in found.sort("physical_offset").collect()]
    assert truths.comparable(rows) == truths.expected(name)


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
