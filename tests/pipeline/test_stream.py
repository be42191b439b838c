"""Following a growing log: every message once, none torn, whatever the moments at which it is looked at."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.pipeline.data_source import Following
from rmqctl.tables import LostMessages, Places, StreamStart, tables_of
from tests.pipeline import truths
from tests.pipeline.growing import Growing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(stream: Following, start: Places, end: Places) -> list[dict[str, Any]]:
    return [row for part in stream.parts(start, end) for batch in stream.read(part) for row in batch.to_pylist()]


def stream_of(root: Path, start: StreamStart | None = None, **options: str) -> Following:
    found = tables_of("rocketmq", {"path": str(root), "splitSize": "16K", **options})
    return Following(found.path, found.log(), start or StreamStart())


def at(offset: int) -> Places:
    return {"physical_offset": offset}


@pytest.mark.parametrize("name", ["4.5.2-clean", "5.3.3-crash", "5.5.0-clean"])
def test_every_message_comes_once(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    growing = Growing(name, tmp_path)
    stream = stream_of(growing.root)
    offset, found, batches = stream.first(), [], []
    while growing.written < growing.total:
        growing.grow(chance.choice([1, 7, 60, 300, 2000, 20000]))
        if chance.random() < 0.3 or growing.written == growing.total:
            latest = stream.latest(offset, chance.choice([None, None, 2000]))
            found += read(stream, offset, latest)
            batches.append((offset, latest))
            offset = latest
    while (latest := stream.latest(offset)) != offset:
        found += read(stream, offset, latest)
        offset = latest
    assert truths.comparable(found) == truths.expected(name)
    assert len(batches) > 10
    again = [row for low, high in batches for row in read(stream, low, high)]
    assert again == found[: len(again)]


def test_where_a_stream_begins(tmp_path: Path) -> None:
    growing = Growing("5.3.3-clean", tmp_path)
    growing.grow(100_000)
    true = truths.expected("5.3.3-clean")
    start = stream_of(growing.root, StreamStart("latest")).first()
    latest = start["physical_offset"]
    assert latest in {row["physical_offset"] for row in true}
    assert latest <= 100_000
    assert stream_of(growing.root, StreamStart(latest)).first() == start
    assert stream_of(growing.root, StreamStart(at(latest))).first() == start
    growing.grow(growing.total)
    stream = stream_of(growing.root)
    rows = read(stream, start, stream.latest(start))
    assert truths.comparable(rows) == [row for row in true if row["physical_offset"] >= latest]


def test_batches_keep_to_their_size(tmp_path: Path) -> None:
    growing = Growing("5.3.3-clean", tmp_path)
    growing.grow(growing.total)
    stream, offset, sizes = stream_of(growing.root), at(0), []
    while (latest := stream.latest(offset, 5000)) != offset:
        sizes.append(latest["physical_offset"] - offset["physical_offset"])
        offset = latest
    largest = max(row["size"] for row in truths.expected("5.3.3-clean"))
    assert len(sizes) > 30
    assert sorted(sizes)[len(sizes) // 2] < 5000 + largest


def test_files_that_were_deleted_are_missed(tmp_path: Path) -> None:
    growing = Growing("5.3.3-clean", tmp_path)
    growing.grow(growing.total)
    first = min((growing.root / "commitlog").iterdir())
    size = first.stat().st_size
    first.unlink()
    stream = stream_of(growing.root)
    with pytest.raises(LostMessages, match="failOnDataLoss"):
        stream.parts(at(0), stream.latest(at(0)))
    going_on = stream_of(growing.root, StreamStart(fail_on_loss=False))
    rows = read(going_on, at(0), going_on.latest(at(0)))
    assert truths.comparable(rows) == [r for r in truths.expected("5.3.3-clean") if r["physical_offset"] >= size]


def follow(spark: SparkSession, root: Path, checkpoint: Path, seen: dict[int, list[int]], **options: str) -> Any:
    def keep(batch: DataFrame, number: int) -> None:
        seen[number] = [row.physical_offset for row in batch.select("physical_offset").collect()]

    reader = spark.readStream.format("rocketmq").option("splitSize", "64K").options(**options)
    rows = reader.option("columns", "physical_offset,topic").load(str(root))
    return rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()


@pytest.mark.spark
@pytest.mark.parametrize("restarts", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_query_that_is_restarted_sees_every_message_once(spark: SparkSession, tmp_path: Path, restarts: int) -> None:
    chance = random.Random(restarts)
    growing, checkpoint = Growing("5.3.3-clean", tmp_path), tmp_path / "checkpoint"
    seen: dict[int, list[int]] = {}
    for _ in range(restarts):
        query = follow(spark, growing.root, checkpoint, seen, maxBytesPerTrigger="40K")
        until = time.monotonic() + chance.uniform(1, 3)
        while time.monotonic() < until:
            growing.grow(chance.randrange(growing.total // restarts // 8))
            time.sleep(0.1)
        query.stop()
    growing.grow(growing.total)
    query = follow(spark, growing.root, checkpoint, seen)
    query.processAllAvailable()
    query.stop()
    found = [offset for number in sorted(seen) for offset in sorted(seen[number])]
    assert found == [row["physical_offset"] for row in truths.expected("5.3.3-clean")]
