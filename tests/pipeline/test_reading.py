"""What was read of a log, and what was left out of it and why: the sums over splits are the log, on every way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden as stores
from rmqctl.parallel import Tally, taken
from rmqctl.pipeline.local_sql import LocalQueries
from rmqctl.pipeline.mounted import Mounted
from rmqctl.tables import tables_of

ROCKETMQ, KAFKA = "5.3.3-clean", "4.3.1-clean"
FORMATS = {ROCKETMQ: "rocketmq", KAFKA: "kafkalog"}
FILTERS: dict[str, list[dict[str, str]]] = {
    ROCKETMQ: [{}, {"topic": "LabOne"}, {"after": "2026-01-01"}, {"queue": "1", "topic": "LabOne,LabLog"}],
    KAFKA: [{}, {"topic": "z-zstd"}, {"after": "2026-01-01"}, {"partition": "0"}, {"readCommitted": "true"}],
}


def gone_through(store: str, root: Path, **options: str) -> tuple[Tally, int]:
    """What all parts of the main table note, with what is noted where it is divided, and how many rows they give."""
    tables = tables_of(FORMATS[store], {"path": str(root), "splitSize": "4K", **options})
    table = tables.table(tables.names[0])
    taken()
    rows = sum(batch.num_rows for part in table.parts() for batch in table.read(part))
    return taken(), rows


def harmed(root: Path, seed: int) -> None:
    """Flip and zero some bytes of the log files."""
    chance = random.Random(seed)
    files = [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and (path.suffix == ".log" or "commitlog" in path.parts)
    ]
    for path in chance.sample(files, min(len(files), 6)):
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))
        if used < 200:
            continue
        for _ in range(3):
            at, size = chance.randrange(used), chance.choice([1, 1, 64, 600])
            data[at : at + size] = chance.choice([bytes(size), bytes(chance.randrange(256) for _ in range(size))])[
                : len(data) - at
            ]
        path.write_bytes(data)


@pytest.mark.parametrize("store", [ROCKETMQ, KAFKA])
@pytest.mark.parametrize("damage", [None, 1, 2, 3])
def test_sums_over_splits_are_the_log(store: str, damage: int | None, golden: Any) -> None:
    root = golden(store)
    if damage is not None:
        harmed(root, damage)
    whole, every = gone_through(store, root, splitSize="1G")
    assert whole.messages == whole.given == every
    assert whole.passed_over == {}
    assert (whole.damaged > 0) == (damage is not None)
    for options in FILTERS[store]:
        found, rows = gone_through(store, root, **options)
        assert found.given == rows, options
        assert found.messages == found.given + sum(found.passed_over.values()), options
        assert found.bytes + sum(found.left_out.values()) == whole.bytes + sum(whole.left_out.values()), options
        if "partition" not in found.left_out:
            assert found.messages == whole.messages, options
            assert found.damaged == whole.damaged, options


@pytest.mark.parametrize("store", [ROCKETMQ, KAFKA])
def test_what_offsets_leave_out(store: str) -> None:
    """Bytes that are left out and records that are read make up the log, wherever the bound lies."""
    root = stores.pristine(store)
    whole, _ = gone_through(store, root)
    place = "fromOffset"
    middle = "40" if store == KAFKA else str(whole.bytes // 3)
    found, rows = gone_through(store, root, **{place: middle})
    assert found.left_out["offset"] > 0
    assert found.bytes + sum(found.left_out.values()) == whole.bytes + sum(whole.left_out.values())
    assert found.given == rows == gone_through(store, root, **{place: middle, "skip": "false"})[1]
    kept, _ = gone_through(store, root, **{place: middle, "skip": "false"})
    assert kept.messages == whole.messages
    assert kept.left_out == whole.left_out


@pytest.mark.parametrize("store", [ROCKETMQ, KAFKA])
def test_the_table_reading(store: str, golden: Any) -> None:
    root = golden(store)
    harmed(root, 2)
    tables = tables_of(
        FORMATS[store], {"path": str(root), "splitSize": "4K", "topic": "LabOne" if store == ROCKETMQ else "z-zstd"}
    )
    table = tables.table("reading")
    rows = [row for part in table.parts() for batch in table.read(part) for row in batch.to_pylist()]
    expected, _ = gone_through(store, root, topic="LabOne" if store == ROCKETMQ else "z-zstd")
    found = Tally()
    for row in rows:
        document = {**row, "passed_over": dict(row["passed_over"]), "left_out": dict(row["left_out"])}
        found = found.plus(Tally.of({key: value for key, value in document.items() if key != "part"}))
    assert found == expected
    assert [row["part"] for row in rows] == [None, *range(len(rows) - 1)]


@pytest.mark.parametrize("store", [ROCKETMQ, KAFKA])
def test_the_manifest_says_what_was_read(store: str, tmp_path: Path) -> None:
    root, out = stores.pristine(store), tmp_path / "out"
    topic = "LabOne" if store == ROCKETMQ else "z-zstd"
    _, every = gone_through(store, root)
    answer = CliRunner().invoke(
        cli, ["export", str(root), str(out), "--engine", "local", "-o", "json", "--topic", topic]
    )
    assert answer.exit_code == 0, answer.stderr
    document = orjson.loads(answer.stdout)
    assert document["read"] == orjson.loads((out / "_manifest.json").read_bytes())["read"]
    assert document["read"]["given"] == document["rows"]
    assert document["read"]["records"] == document["rows"] + sum(document["read"]["passed_over"].values())
    if store == ROCKETMQ:
        assert document["read"]["records"] == every
        assert f"{document['rows']:,} of {every:,} messages that were read are in it" in answer.stderr


def test_a_table_that_a_query_reads_twice_counts_once() -> None:
    queries = LocalQueries([Mounted("", {"path": str(stores.pristine(ROCKETMQ))})])
    whole, every = gone_through(ROCKETMQ, stores.pristine(ROCKETMQ))
    text = "select count(*) n from messages a join messages b using (physical_offset)"
    assert list(queries.rows(text)) == [{"n": every}]
    assert queries.read == whole
    assert queries.read == Tally()


QUERIES = [
    "select count(*) from messages",
    "select topic, count(*) from messages where topic = 'LabOne' group by topic order by topic",
    "select a.physical_offset from messages a join messages b using (physical_offset) order by 1",
    "select sum(records), sum(given) from reading",
]


@pytest.mark.spark
def test_both_engines_count_the_same(spark: Any, golden: Any) -> None:
    from rmqctl.pipeline.queries import SparkQueries, rows
    from rmqctl.pipeline.stats import collect, collect_here

    root = golden(ROCKETMQ)
    harmed(root, 1)
    mounted = [Mounted("", {"path": str(root)})]
    local, on_spark = LocalQueries(mounted), SparkQueries(spark, mounted)
    for text in QUERIES:
        found = list(local.rows(text)), local.read
        assert (list(rows(on_spark.query(text))), on_spark.read) == found, text
    for format, name, options in (
        ("rocketmq", ROCKETMQ, {"topic": "LabOne"}),
        ("kafkalog", KAFKA, {"topic": "z-zstd"}),
    ):
        tables = tables_of(format, {"path": str(stores.pristine(name)), **options})
        assert collect(spark, tables).read == collect_here(tables).read
