"""The tables beside ``messages``, without Spark: the rows of the commands that show the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.queues.rocksdb import rocksdb_units
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.tables.columns import table_options
from rmqctl.rocketmq.tables.tables import TABLES, RocketMQTables
from rmqctl.tables import BadOption, tables_of


def rows(name: str, path: Path, **options: str) -> list[dict[str, Any]]:
    source = RocketMQTables(table_options({"path": str(path), **options})).table(name)
    found = [row for part in source.parts() for batch in source.read(part) for row in batch.to_pylist()]
    assert all(list(row) == source.schema().names for row in found)
    return [{key: _plain(value) for key, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    return round(value.replace(tzinfo=UTC).timestamp() * 1000) if isinstance(value, datetime) else value


def lines(rmqctl: Any, *args: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqctl(*args, "-o", "jsonl").stdout.splitlines()]


def present(row: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    return {key: row[key] for key in wanted if row.get(key) is not None}


@pytest.mark.parametrize("size", ["1KiB", "1G"])
@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_queue_units_are_those_of_dump(name: str, size: str, rmqctl: Any) -> None:
    root = golden.pristine(name)
    found = rows("queue_units", root, splitSize=size)
    keys = ["kind", "file", "position", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code"]
    dumped = [row for row in lines(rmqctl, "dump", root / "consumequeue") if row["kind"] in {"queue_unit", "pre_blank"}]
    plain = [row for row in found if row["kind"] != "batch_queue_unit"]
    assert [present(row, keys) for row in plain] == [present(row, keys) for row in dumped]
    if (root / "batchconsumequeue").exists():
        batches = [row for row in found if row["kind"] == "batch_queue_unit"]
        dumped = [row for row in lines(rmqctl, "dump", root / "batchconsumequeue") if "base_offset" in row]
        named = [
            "file",
            "position",
            "topic",
            "queue_id",
            "physical_offset",
            "size",
            "tags_code",
            "store_timestamp",
            "batch_size",
        ]
        assert [present(row, named) for row in batches] == [present(row, named) for row in dumped]
        assert [row["queue_offset"] for row in batches] == [row["base_offset"] for row in dumped]


@pytest.mark.parametrize("name", ["5.5.0-rocksdb-clean"])
def test_units_in_rocksdb(name: str) -> None:
    pytest.importorskip("rocksdict")
    root = golden.pristine(name)
    found = [row for row in rows("queue_units", root) if row["kind"] == "rocksdb_unit"]
    units = list(rocksdb_units(open_store_at(str(root))))
    assert [
        (r["topic"], r["queue_id"], r["queue_offset"], r["physical_offset"], r["store_timestamp"]) for r in found
    ] == [(u.topic, u.queue_id, u.queue_offset, u.physical_offset, u.store_timestamp) for u in units]


@pytest.mark.parametrize("size", ["1KiB", "1G"])
@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_index_entries_are_those_of_dump(name: str, size: str, rmqctl: Any) -> None:
    root = golden.pristine(name)
    dumped = [row for row in lines(rmqctl, "dump", root / "index") if row["kind"] == "index_entry"]
    assert rows("index_entries", root, splitSize=size) == [
        {key: value for key, value in row.items() if key != "kind"} for row in dumped
    ]


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_topics_are_those_of_the_command(name: str, rmqctl: Any) -> None:
    root = golden.pristine(name)
    expected = lines(rmqctl, "topics", root)
    assert rows("topics", root) == expected
    topic = expected[0]["topic"]
    assert rows("topics", root, topic=topic) == [row for row in expected if row["topic"] == topic]


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_consumer_offsets_are_those_of_lag(name: str, rmqctl: Any) -> None:
    """Also of queues in which a group has stored none, and where offsets are in a database."""
    root = golden.pristine(name)
    expected = lines(rmqctl, "lag", root)
    assert rows("consumer_offsets", root) == expected
    assert any(row["lag"] for row in expected)


def test_findings_are_those_of_verify(golden: Any, rmqctl: Any) -> None:
    root = golden("5.3.3-clean")
    file = next((root / "commitlog").iterdir())
    data = bytearray(file.read_bytes())
    data[1000:1100] = b"\xaa" * 100
    file.write_bytes(data)
    expected = [row for row in lines(rmqctl, "verify", root) if row["kind"] == "finding"]
    found = rows("findings", root)
    assert [{k: v for k, v in row.items() if v is not None} for row in found] == [
        {k: v for k, v in row.items() if k != "kind"} for row in expected
    ]
    assert found


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(BadOption, match=", ".join(TABLES)):
        RocketMQTables(table_options({"path": "x"})).table("massages")


def test_topics_of_a_damaged_store_end_where_the_command_says(tmp_path: Path, rmqctl: Any) -> None:
    root = golden.unpack("5.5.0-crash", tmp_path)
    with sorted((root / "commitlog").iterdir())[1].open("r+b") as file:
        file.seek(5)
        file.write(b"\0")
    keys = ("topic", "queue_id", "min_offset", "max_offset", "messages")
    said = {tuple(row[key] for key in keys) for row in lines(rmqctl, "topics", root)}
    assert {tuple(row[key] for key in keys) for row in rows("topics", root)} == said


@pytest.mark.parametrize("format", ["rocketmq", "kafkalog"])
def test_options_have_one_name_in_any_spelling(format: str) -> None:
    expected = tables_of(format, {"path": "x", "splitSize": "1M", "fromOffset": "5", "after": "1795219200000"})
    for split, begin, after in (
        ("split_size", "from_offset", "2026-11-21"),
        ("SPLITSIZE", "fromoffset", "2026-11-21T02:00:00+02:00"),
    ):
        given = {"path": "x", split: "1M", begin: "5", "After": after}
        assert tables_of(format, given).described() == expected.described()
        assert tables_of(format, given) == expected
    with pytest.raises(BadOption, match=r"no option 'split'; did you mean splitSize\? There are after, .*fromOffset.*"):
        tables_of(format, {"path": "x", "split": "1M"})
    with pytest.raises(BadOption, match=r"no option 'starting_offsets'; did you mean startingOffset\?"):
        tables_of(format, {"path": "x", "starting_offsets": "earliest"})
    with pytest.raises(BadOption, match=r"no option 'zzz'; there are after, "):
        tables_of(format, {"path": "x", "zzz": "1"})
    with pytest.raises(BadOption, match=r"option cores of the .* source cannot be 'all'"):
        tables_of(format, {"path": "x", "cores": "all"})
    with pytest.raises(BadOption, match=r"option before of the .* source cannot be 'soon'"):
        tables_of(format, {"path": "x", "before": "soon"})
    with pytest.raises(BadOption, match="no store is given"):
        tables_of(format, {"after": "2026-11-21"})
    assert tables_of(format, {"path": "x", "partition": "3"}) == tables_of(format, {"path": "x", "queue": "3"})
