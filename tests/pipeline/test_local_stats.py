"""`stats` without Spark: the figures that Spark makes, and those that the messages have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.pipeline import stats
from rmqctl.tables import tables_of
from tests.pipeline import truths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "5.5.0-clean"


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"splitSize": "32K"}, {"topic": "LabLog"}, {"topic": "nowhere"}], ids=str)
@pytest.mark.parametrize("name", [STORE, "4.5.2-crash", "5.1.4-clean"])
def test_both_engines_give_the_same(name: str, options: dict[str, str], spark: SparkSession) -> None:
    given = tables_of("rocketmq", {"path": str(golden.pristine(name)), **options})
    assert stats.collect_here(given) == stats.collect(spark, given)


def test_nothing_is_started_for_a_small_store(rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.pipeline.cluster.start", lambda *_: pytest.fail("Spark was started"))
    found = json.loads(rmqctl("stats", golden.pristine(STORE), "-o", "json").stdout)
    truth, whole = truths.expected(STORE), found["all"][0]
    assert [whole["records"], whole["messages"]] == [len(truth), sum(map(truths.messages_of, truth))]
    by_queue = {
        (row["topic"], row["queue_id"]): row["messages"] for row in found["queue"] if row["topic"] == "LabBatchCq"
    }
    topics = json.loads(rmqctl("topics", golden.pristine(STORE), "--topic", "LabBatchCq", "-o", "json").stdout)
    assert by_queue == {(row["topic"], row["queue_id"]): row["messages"] for row in topics if row["messages"]}
    assert rmqctl("stats", golden.pristine(STORE), "--topic", "nowhere").exit_code == 1


def test_a_large_store_is_for_spark(rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(Exception):
        pass

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr("rmqctl.pipeline.jobs.start", start)
    monkeypatch.setattr("rmqctl.pipeline.settings.LOCAL_ENGINE", 1000)
    for words in ((), ("--engine", "spark"), ("--master", "local[1]"), ("--spark-conf", "a=b")):
        with pytest.raises(Started):
            rmqctl("stats", golden.pristine(STORE), *words)
    assert rmqctl("stats", golden.pristine(STORE), "--engine", "local").exit_code == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400), st.integers(1, 9)), max_size=60))
def test_percentiles_are_those_of_the_values_one_by_one(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    found = stats._percentiles(*columns, 3)
    for group in range(3):
        values = [value for own, value, count in rows if own == group for _ in range(count)]
        expected = np.percentile(values, stats.PERCENTILES).tolist() if values else None
        assert found[group] == (None if expected is None else pytest.approx(expected))


_KEYED = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([stats.UNIQUE, stats.KEY]), st.text(max_size=20))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(_KEYED, max_size=40), max_size=3), st.integers(1, 7))
def test_keys_in_shares_are_those_of_the_whole(parts: list[list[tuple[str, str, str]]], shares: int) -> None:
    kinds = pa.schema([*((name, pa.string()) for name in ("topic", "kind", "text")), ("n", pa.int64())])
    rows = [[dict(zip(kinds.names, (*row, 1), strict=True)) for row in part] for part in parts]
    tables = [stats.counted([pa.Table.from_pylist(part, schema=kinds)]) for part in rows]
    numbers = [stats._share_of(table.column("text").combine_chunks(), shares) for table in tables]
    found = []
    for share in range(shares):
        of_share = [table.filter(pa.array(own == share)) for table, own in zip(tables, numbers, strict=True)]
        packed = pa.chunked_array([[stats._packed(table) for table in of_share]], pa.binary())
        if of_share:
            twice, most = stats._of_keys(stats.counted(stats._unpacked(packed)))
            found += [{"kind": stats.UNIQUE, **row} for row in twice] + [{"kind": stats.KEY, **row} for row in most]
    whole = stats._of_keys(stats.counted(tables)) if tables else ([], [])
    assert stats._together(found) == whole
