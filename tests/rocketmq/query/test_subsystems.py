"""`info` of stores with parts in RocksDB: where each part lies, which is read, and the switches that follow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

STORES = golden.DATABASE_STORES
_TOLD = {
    "configManagerVersion",
    "useSingleRocksDBForAllConfigs",
    "rocksdbCQDoubleWriteEnable",
    "useSeparateStorePathForRocksdbCQ",
    "combineCQUseRocksdbForLmq",
    "indexRocksDBEnable",
    "indexFileWriteEnable",
    "indexFileReadEnable",
    "timerRocksDBEnable",
    "transRocksDBEnable",
    "transWriteOriginTransHalfEnable",
    "popConsumerKVServiceInit",
    "popConsumerKVServiceEnable",
    "storeType",
}


def info(rmqctl: Any, name: str, code: int = 0) -> dict[str, Any]:
    result = rmqctl("info", golden.pristine(name), "-o", "json")
    assert result.exit_code == code, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("name", STORES)
def test_switches(name: str, rmqctl: Any) -> None:
    """They are those the broker ran with; what has left no trace is not guessed."""
    pytest.importorskip("rocksdict")
    parts = info(rmqctl, name)["subsystems"]
    found = {switch for part in parts.values() for switch in part["switches"]}
    wanted = {f"{k}={str(v).lower()}" for k, v in golden.manifest(name)["switches"].items() if k in _TOLD}
    assert {f.lower() for f in found} <= {w.lower() for w in wanted}
    traceless = {w for w in wanted if name.endswith("-crash") and "combine" in w}
    assert {w.lower() for w in wanted - traceless} <= {f.lower() for f in found}


def test_places(rmqctl: Any) -> None:
    pytest.importorskip("rocksdict")
    parts = info(rmqctl, "5.5.0-rdbcq-clean")["subsystems"]
    assert (parts["queues"]["lies_in"], parts["queues"]["read"]) == ("both", "files")
    assert parts["light_queues"] == {
        "lies_in": "rocksdb",
        "read": "rocksdb",
        "places": ["consumequeue_rocksdb (RocksDB)"],
        "switches": ["combineCQUseRocksdbForLmq=true"],
    }
    parts = info(rmqctl, "5.5.0-rdbmsg-clean")["subsystems"]
    read = {name: part["read"] for name, part in parts.items()}
    assert (read["index"], read["timers"], read["transactions"], read["pop"]) == ("rocksdb",) * 3 + ("files",)
    assert "subsystems" not in info(rmqctl, "5.5.0-clean")


@pytest.mark.parametrize(("version", "read"), [("v1", "files"), ("v2", "rocksdb")])
def test_a_database_that_the_settings_leave_unread_is_not_read(
    version: str, read: str, rmqctl: Any, tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict")
    root, conf = golden.unpack("5.5.0-clean", tmp_path), tmp_path / "broker.conf"
    golden.copy_tree(golden.pristine("5.5.0-rdbcfgv2-clean") / "config/rdb", root / "config/rdb")
    conf.write_text(f"configManagerVersion={version}\n")
    parts = json.loads(rmqctl("info", root, "--broker-conf", conf, "-o", "json").stdout)["subsystems"]
    for name in ("topics", "groups", "offsets"):
        assert (parts[name]["lies_in"], parts[name]["read"]) == ("both", read)
        assert parts[name]["switches"] == (["configManagerVersion=v2"] if version == "v2" else [])


@pytest.mark.parametrize("name", ["5.5.0-rdbcq-clean", "5.5.0-rdbpop-clean", "5.5.0-rdblite-clean"])
def test_releases(name: str, rmqctl: Any) -> None:
    pytest.importorskip("rocksdict")
    assert info(rmqctl, name)["releases"] == ["5.5.0", "5.5.0"]


@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbpop-clean", "5.5.0-rdbcq-clean"])
def test_info_without_the_extra(name: str, rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    info(rmqctl, name, code=14)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("5.5.0-rdbcfg-clean", ("topics", "")),
        ("5.5.0-rdbcfg-clean", ("lag", "")),
        ("5.5.0-rdbcfgv2-clean", ("lag", "")),
        ("5.5.0-rdbcq-clean", ("topics", "")),
        ("5.5.0-rdbcq-clean", ("verify", "")),
        ("5.5.0-rdbcq-clean", ("query-offset", "", "%LMQ%one/0", "0")),
        ("5.5.0-rdbcq-clean", ("query-time", "", "%LMQ%one", "0")),
        ("5.5.0-rdbcq-clean", ("dump", "consumequeue_rocksdb")),
        ("5.5.0-rdbmsg-clean", ("query-key", "", "MsgOrders", "k41")),
        ("5.5.0-rdbmsg-clean", ("query-key", "", "MsgOrders", "k41", "--explain")),
        ("5.5.0-rdbmsg-clean", ("verify", "")),
        ("5.5.0-rdbmsg-clean", ("dump", "rocksdbstore")),
        ("5.5.0-rdbcfg-clean", ("dump", "config/metadata")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_commands_without_the_extra(
    name: str, args: tuple[str, ...], rmqctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a poorer answer."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    command, inside, *rest = args
    assert rmqctl(command, golden.pristine(name) / inside, *rest).exit_code == 14


def test_lite_topics_name_their_parent(rmqctl: Any) -> None:
    """When they expire by the parent's attribute, and the offsets that the real broker had for their groups."""
    rows = [
        json.loads(line)
        for line in rmqctl("topics", golden.pristine("5.5.0-rdblite-clean"), "-o", "jsonl").stdout.splitlines()
    ]
    lite = {row["topic"]: row for row in rows if "lite_topic" in row}
    assert len(lite) == 7
    assert {row["parent"] for row in lite.values()} == {"LtLite"}
    assert all(row["topic"] == f"%LMQ%$LtLite${row['lite_topic']}" for row in lite.values())
    assert all(row["expires_timestamp"] - row["last_store_timestamp"] == 1440 * 60_000 for row in lite.values())
    broker = golden.oracle("5.5.0-rdblite-clean")["broker"]
    offsets = broker["consumerOffsets"] | {key: {"0": n} for key, n in broker["lmqConsumerOffsets"].items()}
    groups = {f"{topic}@{group}": {"0": n} for topic, row in lite.items() for group, n in row["groups"].items()}
    assert groups == {key: own for key, own in offsets.items() if key.startswith("%LMQ%$")}


@pytest.mark.parametrize("command", ["verify", "recover", "repair"])
@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbpop-clean", "5.5.0-rdbcfgv2-clean"])
def test_checks_without_the_extra_are_no_poorer_answer(
    command: str, name: str, rmqctl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert rmqctl(command, golden.pristine(name)).exit_code == 14
