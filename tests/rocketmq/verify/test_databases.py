"""`verify` of RocksDB databases: rows against the log, ends against rows, the database against its twin in files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden as stores
from formats.rocketmq.rocksdb import QueueUnitValue, queue_prefix
from rmqctl.text import number_of
from tests.rocketmq.verify.databases_helpers import edit, found, marks_beyond, twin_rows, without

Golden = Callable[[str], Path]


def steps(rmqctl: Any, root: Path) -> list[tuple[str, str]]:
    return [(s["id"], s["file"]) for s in json.loads(rmqctl("repair", root, "-o", "json").stdout)["steps"]]


def test_after_a_kill_missing_rows_are_notes(rmqctl: Any) -> None:
    for name, finding in (
        ("5.5.0-rdbmsg-crash", ("database.missing-rows", "rocksdbstore")),
        ("5.5.0-rdbcq-crash", ("database.reach", "consumequeue_rocksdb")),
        ("5.5.0-rdbincr-crash", ("database.reach", "consumequeue")),
    ):
        assert found(rmqctl, stores.pristine(name)) == set()
        assert finding in found(rmqctl, stores.pristine(name), notes=True)


def test_what_the_stop_of_the_one_database_leaves(rmqctl: Any) -> None:
    seen = {name: found(rmqctl, stores.pristine(name), notes=True) for name in stores.DATABASE_STORES}
    named = [
        sorted(name for name in seen if (kind, "config/metadata") in seen[name])
        for kind in ("database.last-offsets", "database.unclean-stop")
    ]
    assert named == [["5.5.0-rdbcfg-clean"], ["5.5.0-rdbincr-crash"]]


def test_index_rows(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbmsg-clean")

    def damage(database: Any) -> None:
        rows = [key for key in list(database.keys()) if b"@K@" in key]
        del database[rows[3]]
        database[rows[5][:-8] + (7).to_bytes(8, "big")] = database[rows[5]]

    edit(root / "rocksdbstore", damage)
    assert found(rmqctl, root) == {
        ("database.wrong-row", "rocksdbstore"),
        ("database.missing-rows", "rocksdbstore"),
    }


@pytest.mark.parametrize("family", ["timer", "trans"])
def test_rows_of_timers_and_transactions(family: str, golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbmsg-clean")

    def damage(database: Any) -> None:
        rows = database.get_column_family(family)
        key = next(k for k in list(rows.keys()) if len(k) > 40)
        rows[key] = rows[key][::-1]
        rows[b"\xff" * 5] = b""

    edit(root / "rocksdbstore", damage)
    assert found(rmqctl, root) == {("database.wrong-row", "rocksdbstore")}


def test_verbs_agree_with_the_number() -> None:
    assert [number_of(count, "row", "are") for count in (0, 1, 2000)] == ["0 rows are", "1 row is", "2,000 rows are"]
    assert [number_of(1, "row", verb) for verb in ("have", "were", "fit")] == ["1 row has", "1 row was", "1 row fits"]


@pytest.mark.parametrize("family", ["timer", "trans"])
def test_a_row_that_is_missing(family: str, golden: Golden, rmqctl: Any) -> None:
    """The last timer is pending, and the last half message cannot have been given up before the first one."""
    root = golden("5.5.0-rdbmsg-clean")
    edit(root / "rocksdbstore", lambda database: without(database, family, -1))
    messages = [f["message"] for f in json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]]
    what = {"timer": "1 pending timer has no row", "trans": "1 open half message has no row"}[family]
    assert any(message.startswith(f"family {family}: {what}, the first at ") for message in messages)
    assert found(rmqctl, root) == {("database.missing-rows", "rocksdbstore")}
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert found(rmqctl, root) == set()


def test_a_half_message_that_may_have_been_given_up(golden: Golden, rmqctl: Any) -> None:
    """Nothing says whether the oldest one was: it is named, and repair does not bring it back."""
    root = golden("5.5.0-rdbmsg-clean")
    edit(root / "rocksdbstore", lambda database: without(database, "trans", 0))
    assert ("database.missing-rows", "rocksdbstore") in found(rmqctl, root, notes=True)
    assert found(rmqctl, root) == set()
    assert steps(rmqctl, root) == []


def test_marks_beyond_the_log(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbmsg-clean")
    edit(root / "rocksdbstore", marks_beyond)
    findings = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    assert [f["id"] for f in findings if f["severity"] != "note"] == ["database.reach"] * 3
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert found(rmqctl, root) == set()


def test_a_timer_that_was_taken_back(golden: Golden, rmqctl: Any) -> None:
    """Its row leads to its record, and a broker would deliver it all the same."""
    root = golden("5.5.0-rdbmsg-clean")
    truth = [m for m in stores.truth("5.5.0-rdbmsg-clean") if m.get("topic") == "rmq_sys_wheel_timer"]
    gone = next(m["properties"] for m in truth if "TIMER_DEL_UNIQKEY" in m["properties"])
    unique = gone["TIMER_DEL_UNIQKEY"].partition("+")[2] or gone["TIMER_DEL_UNIQKEY"]
    record = next(m for m in truth if m["properties"].get("UNIQ_KEY") == unique)
    key = int(record["properties"]["TIMER_OUT_MS"]).to_bytes(8, "big") + unique.encode()
    value = record["storeSize"].to_bytes(4, "big") + record["commitLogOffset"].to_bytes(8, "big")
    edit(root / "rocksdbstore", lambda database: database.get_column_family("timer").__setitem__(key, value))
    assert found(rmqctl, root) == {("database.wrong-row", "rocksdbstore")}
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert found(rmqctl, root) == set()


@pytest.mark.parametrize("part", ["front", "queue", "more"])
def test_units_that_one_of_two_twins_has(part: str, golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbcq-clean")
    edit(root / "consumequeue_rocksdb", lambda database: twin_rows(database, part))
    seen = found(rmqctl, root)
    assert ("database.twin", "consumequeue_rocksdb") in seen
    assert {file for _, file in seen} == {"consumequeue_rocksdb"}
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert found(rmqctl, root) == set()


def test_pop_rows(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbpop-clean")
    edit(root / "kvStore", lambda database: database.get_column_family("popState").__setitem__(b"odd", b"odd"))
    assert found(rmqctl, root) == {("database.wrong-row", "kvStore")}


def test_units_unlike_those_of_the_files(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbcq-clean")
    key = queue_prefix(b"CqOrders", 1) + (3).to_bytes(8, "big")
    unit = {"physical_offset": 5, "size": 100, "tags_code": 0, "store_timestamp": 1}
    edit(root / "consumequeue_rocksdb", lambda database: database.__setitem__(key, QueueUnitValue.build(unit)))
    assert found(rmqctl, root) == {("database.twin", "consumequeue_rocksdb")}
    assert steps(rmqctl, root) == [("database.twin", "consumequeue_rocksdb")]


def test_a_light_unit_that_is_missing(golden: Golden, rmqctl: Any) -> None:
    """It is found in the database, and no file is made for it."""
    root = golden("5.5.0-rdbcq-clean")
    key = queue_prefix(b"%LMQ%two", 0) + (4).to_bytes(8, "big")
    edit(root / "consumequeue_rocksdb", lambda database: database.__delitem__(key))
    assert found(rmqctl, root) == {("queue.hole", "consumequeue_rocksdb")}
    assert steps(rmqctl, root) == [("queue.hole", "consumequeue_rocksdb")]


def test_the_end_of_a_queue(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbcfg-clean")

    def damage(database: Any) -> None:
        rows = database.get_column_family("offset")
        key = next(k for k in list(rows.keys()) if b"\x01max\x01" in k and b"CHECKPOINT" not in k)
        rows[key] = bytes(8) + (999).to_bytes(8, "big")

    edit(root / "consumequeue", damage)
    assert found(rmqctl, root) == {("database.reach", "consumequeue")}


def test_two_databases_of_queues(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rdbcq-clean")
    shutil.copyfile(root / "consumequeue_rocksdb" / "CURRENT", root / "consumequeue" / "CURRENT")
    assert ("database.two-places", "consumequeue_rocksdb") in found(rmqctl, root)
    foreseen = rmqctl("recover", root)
    assert "both hold a database of queues" in foreseen.stdout + foreseen.stderr


@pytest.mark.parametrize("garbled", [False, True])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("5.5.0-rdbmsg-clean", "rocksdbstore"),
        ("5.5.0-rdbpop-clean", "kvStore"),
        ("5.5.0-rdbcfg-clean", "config/metadata"),
    ],
)
def test_files_of_a_database_are_gone(name: str, path: str, garbled: bool, golden: Golden, rmqctl: Any) -> None:
    """A finding, never a traceback; the rest of the store is checked all the same."""
    root = golden(name)
    for file in (root / path).glob("*.sst"):
        file.write_bytes(b"\xa5" * file.stat().st_size) if garbled else file.unlink()
    result = rmqctl("verify", root, "-o", "json")
    assert ("database.unreadable", path) in {(f["id"], f["file"]) for f in json.loads(result.stdout)["findings"]}, (
        result.stderr
    )


@pytest.mark.parametrize("away", [1 << 60, 1 << 50])
def test_a_unit_an_age_away_from_the_others(away: int, golden: Golden, rmqctl: Any) -> None:
    """A damaged key may hold any queue offset: the checks end all the same, and a start does not count the unit."""
    root = golden("5.5.0-rdbcfg-clean")

    def damage(database: Any) -> None:
        key = queue_prefix(b"CfgOrders", 1) + (3).to_bytes(8, "big")
        value = database[key]
        del database[key]
        database[key[:-8] + away.to_bytes(8, "big")] = value

    edit(root / "consumequeue", damage)
    (root / "consumequeue" / "rocksdict-config.json").unlink()
    assert ("queue.hole", "consumequeue") in found(rmqctl, root)
    ranges = json.loads(rmqctl("recover", root, "-o", "json").stdout)["queues"]
    assert ranges["CfgOrders/1"]["max_offset"] < 100
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert found(rmqctl, root) == set()
