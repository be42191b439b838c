"""What a start writes into the databases of a store, against the state of a real broker that started on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden as stores
from formats.rocketmq.rocksdb import OFFSET_FAMILY, parse_unit_key
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.databases import MESSAGES, open_database
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.verify.databases_helpers import edit, found

pytest.importorskip("rocksdict")
Golden = Callable[[str], Path]


def starts(store: StoreFiles) -> dict[str, Any]:
    return {start.family: start for start in recover(store, databases=True).databases}


@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbmsg-crash"])
def test_rows_and_marks_are_those_of_the_broker(name: str) -> None:
    store, broker = open_store_at(str(stores.pristine(name))), stores.oracle(name)["broker"]
    found = starts(store)
    reaches = found["default"].reaches, found["trans"].reaches, found["timer"].reaches
    assert reaches == (broker["indexLastOffsetPy"], broker["transLastOffsetPy"], broker["timerScanOffset"])
    with open_database(store, MESSAGES, "counting") as database:
        there = {family: sum(len(key) > 40 for key, _ in database.rows(family)) for family in ("timer", "trans")}
    assert there["timer"] + found["timer"].rows == len(broker["timerPending"])
    assert there["trans"] + found["trans"].rows == len(broker["halfPending"])
    assert found["default"].rows == {"5.5.0-rdbmsg-clean": 0, "5.5.0-rdbmsg-crash": 518}[name]


def test_queues_are_written_again_from_the_least_of_all() -> None:
    store = open_store_at(str(stores.pristine("5.5.0-rdbcq-crash")))
    found = recover(store, databases=True)
    (queues,) = found.databases
    assert (queues.database, queues.reached, queues.reaches) == ("consumequeue_rocksdb", 125183, found.end)
    assert queues.rows == 194
    (queues,) = recover(open_store_at(str(stores.pristine("5.5.0-rdbincr-crash"))), databases=True).databases
    assert (queues.reached, queues.rows) == (0, 408)


def test_the_index_decides_where_dispatch_begins(golden: Golden) -> None:
    """A clean store whose index lost its newest rows: the start goes back to what the mark says."""
    root = golden("5.5.0-rdbmsg-clean")

    def damage(database: Any) -> None:
        for key in [k for k in list(database.keys()) if k.startswith(b"\0") and k[-8:] >= (40_000).to_bytes(8, "big")]:
            del database[key]
        database[b"lastOffsetPy"] = (39_000).to_bytes(8, "big")

    edit(root / MESSAGES, damage)
    store = open_store_at(str(root))
    found = recover(store, databases=True)
    assert found.start_file == "commitlog/00000000000000000000"
    index = next(start for start in found.databases if start.family == "default")
    assert (index.reached, index.reaches) == (39_000, 103_229)
    assert index.rows > 400
    assert found.is_harmless
    older = recover(store, Release(5, 3, 3), databases=True)
    assert older.databases == []
    assert older.start_file == "commitlog/00000000000000065536"


def test_timers_that_fell_due_are_skipped_without_a_time_of_delivery(golden: Golden) -> None:
    root = golden("5.5.0-rdbmsg-clean")
    assert starts(open_store_at(str(root)))["timer"].skipped == 0
    edit(root / MESSAGES, lambda database: database.get_column_family("timer").__delitem__(b"timeline_checkpoint"))
    assert starts(open_store_at(str(root)))["timer"].skipped >= 3


def test_double_write_without_light_queues_in_rocksdb_is_refused(golden: Golden, tmp_path: Path) -> None:
    root, conf = golden("5.5.0-rdbcqmix-clean"), tmp_path / "broker.conf"
    conf.write_text("rocksdbCQDoubleWriteEnable=true\n")
    store = open_store_at(str(root), broker_conf=str(conf))
    assert "combineCQUseRocksdbForLmq" in (recover(store).error or "")
    assert recover(store, Release(5, 4, 0)).starts
    conf.write_text("rocksdbCQDoubleWriteEnable=true\ncombineCQUseRocksdbForLmq=true\n")
    assert recover(open_store_at(str(root), broker_conf=str(conf))).starts


def test_no_index_files_are_made_where_none_are_written() -> None:
    found = recover(open_store_at(str(stores.pristine("5.5.0-rdbmsg-crash"))), index=True)
    assert (found.index, found.index_keys) == (None, 0)


def test_a_broker_does_without_messages_and_not_without_configuration(golden: Golden) -> None:
    root = golden("5.5.0-rdbmsg-clean")
    manifest = next((root / MESSAGES).glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:20])
    found = recover(open_store_at(str(root)), databases=True)
    assert found.starts
    assert found.databases[0].error
    root = golden("5.5.0-rdbcfgv2-clean")
    next((root / "config" / "rdb").glob("MANIFEST-*")).write_bytes(b"")
    found = recover(open_store_at(str(root)), databases=True)
    assert "config/rdb cannot be opened" in (found.error or "")


@pytest.mark.parametrize("name", ["5.5.0-rdbcq-crash", "5.5.0-rdbincr-crash", "5.5.0-rdbmsg-crash"])
def test_apply_leaves_a_start_nothing_to_do(name: str, golden: Golden, rmqctl: Any) -> None:
    """Databases get the rows that were foreseen, as a broker's start would write them; undo takes them out again."""
    root = golden(name)
    before, foreseen = tree_of(root), starts(open_store_at(str(root)))
    assert rmqctl("recover", root, "--apply", "--yes").exit_code == 0
    after = starts(open_store_at(str(root)))
    assert {family: (start.reaches, start.rows) for family, start in after.items()} == {
        family: (start.reaches, 0) for family, start in foreseen.items()
    }
    assert rmqctl("verify", root).exit_code == 0
    for answer in stores.oracle(name)["answers"]:
        if answer.get("q") == "range" and answer["max"] > 0:
            place = f"{answer['topic']}/{answer['queueId']}"
            rows = rmqctl("query-offset", root, place, answer["max"] - 1, "-n", "1", "-o", "jsonl").stdout.splitlines()
            status = json.loads(rows[0])
            assert (status["min_offset"], status["max_offset"], len(rows)) == (answer["min"], answer["max"], 2), place
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert tree_of(root) == before


def test_apply_takes_units_of_a_cut_log_out_of_the_database(golden: Golden, rmqctl: Any) -> None:
    """A record is destroyed: the start ends the log there, and the queues in RocksDB with it."""
    root = golden("5.5.0-rdbcfg-clean")
    (root / "abort").write_bytes(b"")
    message = [m for m in stores.truth("5.5.0-rdbcfg-clean") if m["kind"] == "msg"][-40]
    with open(root / "commitlog" / message["file"].rpartition("/")[2], "r+b") as file:
        file.seek(message["pos"])
        file.write(b"\xff" * 8)
    foreseen = json.loads(rmqctl("recover", root, "-o", "json").stdout)
    assert foreseen["lost"]["messages"] == 40
    rmqctl("recover", root, "--apply", "--yes")
    assert json.loads(rmqctl("recover", root, "-o", "json").stdout)["queues"] == foreseen["queues"]
    assert found(rmqctl, root) == {("index.coverage", "index")}  # a start deletes the file that is too new


def rows_of_no_format(database: Any) -> None:
    """After the last unit of each queue, a row that is none."""
    last = {key[:-8]: key for key in list(database.keys()) if parse_unit_key(key) is not None}
    for prefix, key in last.items():
        database[prefix + (int.from_bytes(key[-8:], "big") + 1).to_bytes(8, "big")] = b"short"


def test_rows_of_no_format_do_not_end_a_queue(golden: Golden, rmqctl: Any) -> None:
    root = golden("5.5.0-rocksdb-clean")
    (root / "abort").write_bytes(b"")
    before = ends(root)
    edit(root / "consumequeue", rows_of_no_format)
    result = rmqctl("recover", root, "--apply", "--yes")
    assert result.exit_code in (0, 1), result.stdout + result.stderr
    assert ends(root) == before


def ends(root: Path) -> dict[bytes, bytes]:
    with open_database(open_store_at(str(root)), "consumequeue", "comparing") as database:
        return {key: value for key, value in database.rows(OFFSET_FAMILY) if b"CHECKPOINT" not in key}


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


CURRENT_GONE = [
    ("5.5.0-rdbcfg-clean", "consumequeue", 1),
    ("5.5.0-rdbcfg-clean", "config/metadata", 0),
    ("5.5.0-rdbcfgv2-clean", "config/rdb", 0),
    ("5.5.0-rdbpop-clean", "kvStore", 0),
    ("5.5.0-rdblite-clean", "consumequeue_rocksdb", 0),
    ("5.5.0-rdbcqmix-clean", "consumequeue", 0),
    ("5.5.0-rdbmsg-clean", MESSAGES, 0),
]


@pytest.mark.parametrize(("name", "path", "undispatched"), CURRENT_GONE)
def test_without_current(name: str, path: str, undispatched: int, golden: Golden, rmqctl: Any) -> None:
    """A start fails on the write-ahead log and leaves an empty manifest; the next one deletes the tables."""
    root = golden(name)
    (root / path / "CURRENT").unlink()
    done = rmqctl("recover", root, "-o", "json")
    first = json.loads(done.stdout)
    assert done.exit_code == 1
    if path == MESSAGES:
        assert first["starts"]
        assert "next start" in first["databases"][-1]["error"]
    else:
        assert not first["starts"]
        assert path in first["error"]
        assert "rmqctl repair" in first["error"]
    (root / path / "CURRENT").write_bytes(b"MANIFEST-000001\n")  # as a broker of 5.5.0 leaves it
    (root / path / "MANIFEST-000001").write_bytes(bytes.fromhex("c4c19f5b060001020003020400"))
    second = rmqctl("recover", root, "-o", "json")
    findings = {(f["id"], f["file"]) for f in json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]}
    assert findings & {("database.unreadable", path), ("queue.database", path)}
    for file in (root / path).glob("*.log"):
        file.unlink()
    for file in ("CURRENT", "MANIFEST-000001"):
        (root / path / file).unlink()
    bare = rmqctl("recover", root, "-o", "json")
    for done in (second, bare):
        document = json.loads(done.stdout)
        assert (done.exit_code, document["starts"]) == (1, True)
        assert [(row["database"], bool(row["emptied"])) for row in document["databases"] if row["emptied"]] == [
            (path, True)
        ]
        assert document["undispatched"]["messages"] == undispatched
    text = rmqctl("recover", root).stdout
    assert f"MAKES AN EMPTY DATABASE at {path}" in text
    assert ("light queues, if any, LOSE" in text) == (name in ("5.5.0-rdblite-clean", "5.5.0-rdbcqmix-clean"))
    refused = rmqctl("recover", root, "--apply", "--yes")
    assert "first type: rmqctl repair" in refused.stderr


def test_two_places_go_by_current_alone(golden: Golden) -> None:
    root = golden("5.5.0-rdbcfg-clean")
    other = root / "consumequeue_rocksdb"
    other.mkdir()
    for file in (root / "consumequeue").iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    assert "both hold" in (recover(open_store_at(str(root))).error or "")
    (other / "CURRENT").unlink()
    found = recover(open_store_at(str(root)))
    assert found.is_harmless
