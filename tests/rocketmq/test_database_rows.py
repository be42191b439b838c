"""Every RocksDB database of a store as rows with field names: `dump` of its directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

rocksdict = pytest.importorskip("rocksdict")
Golden = Callable[[str], Path]


def rows(rmqctl: Any, name: str, path: str, *kinds: str) -> list[dict[str, Any]]:
    result = rmqctl("dump", golden.pristine(name) / path, "-o", "jsonl")
    assert result.exit_code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [row for row in found if not kinds or row["kind"] in kinds]


def records(name: str) -> list[dict[str, Any]]:
    return [r for r in golden.truth(name) if r["kind"] == "msg"]


def edit(directory: Path, change: Callable[[Any], None]) -> None:
    """Change a database of a copy, as a broker would write it."""
    options = rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(str(directory), options), options)
    database = rocksdict.Rdict(str(directory), options=options, column_families=families)
    change(database)
    database.close()


@pytest.mark.parametrize("name", ["5.5.0-rdbcfg-clean", "5.5.0-rdbcfgv2-clean", "5.5.0-rdbcfgv2-crash"])
def test_configuration(name: str, rmqctl: Any) -> None:
    """Topics and groups have the settings that the broker loaded; some of its own it never stores."""
    broker = golden.oracle(name)["broker"]
    for kind, key, loaded in (
        ("topic_config", "topic", broker["topicConfigs"]),
        ("group_config", "group", broker["groupConfigs"]),
    ):
        found = {row[key]: row["settings"] for row in rows(rmqctl, name, "config", kind)}
        assert found
        assert set(found) <= set(loaded)
        for one, settings in found.items():
            assert {k: settings[k] for k in loaded[one]} == loaded[one]
    forbidden = {row["group"]: row["settings"] for row in rows(rmqctl, name, "config", "forbidden")}
    assert forbidden == (broker["forbidden"] if "v2" not in name else {})


def test_rows_of_the_write_ahead_log(rmqctl: Any) -> None:
    """The last commits before the kill are in the write-ahead log alone."""
    name = "5.5.0-rdbcfgv2-crash"
    found = rows(rmqctl, name, "config/rdb", "consumer_offset")
    stored = {f"{r['topic']}@{r['group']}": {} for r in found}
    for row in found:
        stored[f"{row['topic']}@{row['group']}"][str(row["queue_id"])] = row["offset"]
    assert stored == golden.oracle(name)["broker"]["consumerOffsets"]


@pytest.mark.parametrize("path", ["consumequeue_rocksdb", "consumequeue"])
def test_units_of_both_places(path: str, rmqctl: Any) -> None:
    """Both stores of a broker that writes twice have the same units; light queues are in RocksDB alone."""
    units = rows(rmqctl, "5.5.0-rdbcq-clean", path, "queue_unit")
    found = {(u["topic"], u["queue_id"], u["queue_offset"], u["physical_offset"], u["size"]) for u in units}
    keys = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize")
    own = {tuple(r[key] for key in keys) for r in records("5.5.0-rdbcq-clean") if r["sysFlag"] & 0xC in (0, 8)}
    assert {u for u in found if not u[0].startswith("%LMQ%")} == own
    assert len(found) - len(own) == (19 if path == "consumequeue_rocksdb" else 0)


def test_messages(rmqctl: Any) -> None:
    name = "5.5.0-rdbmsg-clean"
    broker = golden.oracle(name)["broker"]
    found = rows(rmqctl, name, "rocksdbstore")
    by_kind = {kind: [row for row in found if row["kind"] == kind] for kind in {row["kind"] for row in found}}
    assert {(r["delivery_timestamp"], r["unique_key"], r["physical_offset"]) for r in by_kind["timer_row"]} == {
        (t["deliverMs"], t["uniqKey"], t["phy"]) for t in broker["timerPending"]
    }
    assert {(r["physical_offset"], r["topic"], r["check_count"], r["size"]) for r in by_kind["half_row"]} == {
        (h["phy"], h["topic"], h["checkTimes"], h["size"]) for h in broker["halfPending"]
    }
    wanted = set()
    for record in records(name):
        place = record["topic"], record["uniqKey"], record["commitLogOffset"]
        if record["uniqKey"] and record["sysFlag"] & 0xC != 0xC:
            wanted |= {("K", part, *place) for part in (record["keys"] or "").split(" ") if part}
            wanted |= {("T", record["tags"], *place)} if record["tags"] else set()
            wanted.add(("U", record["uniqKey"], *place))
    names = ("index_kind", "text", "topic", "unique_key", "physical_offset")
    assert {tuple(row[n] for n in names) for row in by_kind["index_row"]} == wanted
    marks = {row["name"]: row["value"] for row in by_kind["database_mark"] if row["family"] == "default"}
    assert marks == {
        "lastOffsetPy": broker["indexLastOffsetPy"],
        "lastStoreTimeStamp": broker["indexLastStoreTimeStamp"],
    }


def test_pop_rows(rmqctl: Any) -> None:
    found = rows(rmqctl, "5.5.0-rdbpop-clean", "kvStore", "pop_row")
    assert len(found) == 31
    left = golden.oracle("5.5.0-rdbpop-clean")["broker"]["popInFlight"]
    names = ("visibility_timestamp", "group", "topic", "queue_id", "queue_offset")
    there = {tuple(row[n] for n in names) for row in found}
    for row in left:
        record = row if "popTime" in row else row["record"]
        place = record["groupId"], record["topicId"], record["queueId"], record["offset"]
        assert (record["popTime"] + record["invisibleTime"], *place) in there


@pytest.mark.parametrize("path", ["rocksdbstore", "kvStore", "config/metadata", "config/rdb", "consumequeue_rocksdb"])
def test_rows_that_fit_no_format(path: str, golden: Golden, rmqctl: Any) -> None:
    """Random bytes are shown, and are findings."""
    name = {
        "rocksdbstore": "5.5.0-rdbmsg-clean",
        "kvStore": "5.5.0-rdbpop-clean",
        "config/metadata": "5.5.0-rdbcfg-clean",
        "config/rdb": "5.5.0-rdbcfgv2-clean",
        "consumequeue_rocksdb": "5.5.0-rdbcq-clean",
    }[path]
    root = golden(name)
    families = [f for f in rocksdict.Rdict.list_cf(str(root / path)) if path != "kvStore" or f == "popState"]
    odd = [b"\0", b"\xff" * 7, b"@" * 40, b"\1\0\1\2" + b"\xff" * 9, bytes(range(64))]

    def damage(database: Any) -> None:
        for family in families:
            place = database if family == "default" else database.get_column_family(family)
            for key in odd:
                place[key] = key[::-1]

    edit(root / path, damage)
    result = rmqctl("dump", root / path, "-o", "jsonl")
    assert result.exit_code == 1, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert sum(row.get("id") == "database.row" for row in found) >= len(odd)
    assert sum(row["kind"] == "database_row" for row in found) == sum(row.get("id") == "database.row" for row in found)


def test_a_database_that_cannot_be_opened(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbmsg-clean")
    next((root / "rocksdbstore").glob("*.sst")).unlink()
    assert rmqctl("dump", root / "rocksdbstore").exit_code not in (0, 1)
    shutil.rmtree(root / "rocksdbstore")
    assert rmqctl("dump", root / "rocksdbstore").exit_code != 0
