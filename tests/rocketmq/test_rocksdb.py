"""RocksDB queues through the extra: info, topics, dump, verify and the queries; and the answer without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.rocksdb import QueueUnitValue, queue_prefix
from rmqctl.installation import line_for_extra
from rmqctl.release import Release
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.queues import DatabaseQueue

rocksdict = pytest.importorskip("rocksdict")
CLEAN, CRASH = "5.5.0-rocksdb-clean", "5.5.0-rocksdb-crash"
INSTALL = line_for_extra("rocksdb")
Golden = Callable[[str], Path]


def lines(rmqctl: Any, *args: object, code: int = 0) -> list[dict[str, Any]]:
    result = rmqctl(*args, "-o", "jsonl")
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def records(name: str) -> list[dict[str, Any]]:
    return [r for r in golden.truth(name) if r["kind"] == "msg"]


def test_info_counts(rmqctl: Any) -> None:
    document = json.loads(rmqctl("info", golden.pristine(CLEAN), "-o", "json").stdout)
    queues = {(r["topic"], r["queueId"]) for r in records(CLEAN)}
    assert (document["topics"], document["queues"]) == (len({t for t, _ in queues}), len(queues))


def test_dump_shows_every_unit(rmqctl: Any) -> None:
    rows = lines(rmqctl, "dump", golden.pristine(CLEAN) / "consumequeue")
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "store_timestamp")
    found = {tuple(row[name] for name in names) for row in rows if row["kind"] == "queue_unit"}
    keys = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "storeTimestamp")
    assert found == {tuple(r[key] for key in keys) for r in records(CLEAN)}
    some = lines(rmqctl, "dump", golden.pristine(CLEAN) / "consumequeue", "--topic", "RocksB", "--queue", "7")
    assert some == [row for row in rows if (row["topic"], row["queue_id"]) == ("RocksB", 7)]


@pytest.mark.parametrize("name", [CLEAN, CRASH])
def test_queries(name: str, rmqctl: Any) -> None:
    """After a crash the database is empty; a broker fills it from the log when it starts, and answers from that."""
    mine = [r for r in records(name) if (r["topic"], r["queueId"]) == ("RocksB", 3)]
    rows = lines(rmqctl, "query-offset", golden.pristine(name), "RocksB/3", 10, "-n", 5)
    assert rows[0]["max_offset"] == len(mine)
    assert [r["physical_offset"] for r in rows[1:]] == [r["commitLogOffset"] for r in mine[10:15]]


@pytest.mark.parametrize("name", [CLEAN, CRASH])
def test_offsets_by_time(name: str) -> None:
    times = [r["storeTimestamp"] for r in records(name) if (r["topic"], r["queueId"]) == ("RocksB", 3)]
    with RecoveredStore(open_store_at(str(golden.pristine(name))), Release(5, 5, 0)) as started:
        view = open_queue(started, "RocksB", 3)
        for time in range(times[0] - 2, times[-1] + 3):
            lower = next((i for i, t in enumerate(times) if t >= time), len(times))
            upper = max((i for i, t in enumerate(times) if t <= time), default=0)
            assert (offset_by_time(view, time), offset_by_time(view, time, Boundary.UPPER)) == (lower, upper), time


def test_the_nearest_message_before_5_3_0() -> None:
    times = [r["storeTimestamp"] for r in records(CLEAN) if (r["topic"], r["queueId"]) == ("RocksB", 3)]
    with RecoveredStore(open_store_at(str(golden.pristine(CLEAN))), Release(5, 2, 0)) as started:
        view = open_queue(started, "RocksB", 3)
        for time in range(times[0] - 2, times[-1] + 3):
            assert abs(times[offset_by_time(view, time)] - time) == min(abs(t - time) for t in times)


def edit(root: Path, change: Callable[[Any], None]) -> None:
    """Change the database of a copy, as a broker would write it."""
    options = rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(str(root / "consumequeue"), options), options)
    database = rocksdict.Rdict(str(root / "consumequeue"), options=options, column_families=families)
    change(database)
    database.close()


def key(topic: bytes, queue: int, offset: int) -> bytes:
    return queue_prefix(topic, queue) + offset.to_bytes(8, "big")


def unit(physical: int, size: int, tags: int = 0) -> bytes:
    value: bytes = QueueUnitValue.build(
        {"physical_offset": physical, "size": size, "tags_code": tags, "store_timestamp": 1}
    )
    return value


def test_verify_compares_units_with_the_log(golden: Golden, rmqctl: Any) -> None:
    root = golden(CLEAN)
    mine = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in records(CLEAN)}

    def damage(database: Any) -> None:
        database[key(b"RocksA", 0, 5)] = unit(mine["RocksA", 0, 5]["commitLogOffset"] + 1, 99)
        del database[key(b"RocksA", 1, 7)]
        database[key(b"RocksB", 2, 50)] = unit(10_000_000, 120)

    edit(root, damage)
    found = [f for f in lines(rmqctl, "verify", root, code=1) if f["kind"] == "finding" and f["severity"] != "note"]
    assert {(f["id"], f["topic"], f["queue_id"], f["queue_offset"]) for f in found} == {
        ("queue.unit-mismatch", "RocksA", 0, 5),
        ("queue.hole", "RocksA", 1, 7),
        ("queue.ahead", "RocksB", 2, 50),
    }
    assert {f["file"] for f in found} == {"consumequeue"}


def test_verify_after_a_crash(rmqctl: Any) -> None:
    """All units were in memory: normal for RocksDB, whose units a start makes again."""
    found = lines(rmqctl, "verify", golden.pristine(CRASH))
    ids = Counter(f["id"] for f in found if f["kind"] == "finding")
    assert ids["queue.undispatched"] == len({(r["topic"], r["queueId"]) for r in records(CRASH)})


def test_a_queue_in_pieces() -> None:
    store = open_store_at(str(golden.pristine(CLEAN)))
    with open_queues(store) as database:
        queue = DatabaseQueue.of(database, "RocksA", 4, store)
        every = queue.read(queue.files[0])
        assert len(every) == 25
        assert queue.read(queue.files[0], 20, 100).tolist() == every[20:].tolist()
        assert queue.read(queue.files[0], 3, 4).tolist() == every[3:7].tolist()
        assert database.last_unit("RocksA", 99) is None
        assert DatabaseQueue.of(database, "RocksC", 0, store).files == []


@pytest.mark.parametrize(
    "args",
    [
        ("info", ""),
        ("topics", ""),
        ("verify", ""),
        ("dump", "consumequeue"),
        ("query-offset", "", "RocksA/0", "0"),
        ("query-time", "", "RocksA", "0"),
    ],
    ids=lambda args: args[0],
)
def test_without_the_extra(args: tuple[str, ...], rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    command, inside, *rest = args
    result = rmqctl(command, golden.pristine(CLEAN) / inside, *rest)
    assert result.exit_code == 14
    assert INSTALL in result.stderr
    if command in {"info", "verify"}:
        assert result.stdout


def test_a_unique_key_is_found_without_its_topic(rmqctl: Any) -> None:
    """The topics that the index is asked for are those of the queues in the database."""
    known = next(t for t in golden.truth(CLEAN) if t["kind"] == "msg" and t.get("uniqKey"))
    result = rmqctl("query-id", golden.pristine(CLEAN), known["uniqKey"], "-o", "jsonl")
    assert known["commitLogOffset"] in {json.loads(line).get("physical_offset") for line in result.stdout.splitlines()}


@pytest.mark.parametrize("topic", ["CURRENT", "MANIFEST-000001"])
def test_a_topic_with_the_name_of_a_database_file_is_a_topic(topic: str, tmp_path: Path, rmqctl: Any) -> None:
    root = tmp_path / "store"
    assert rmqctl("produce", root, "--topic", topic, "--count", "3", "--small").exit_code == 0
    for verb in ("verify", "topics", "recover", "repair", "rebuild"):
        assert rmqctl(verb, root).exit_code == 0
    assert rmqctl("produce", root, "--topic", topic, "--count", "1").exit_code == 0


@pytest.mark.parametrize("command", ["info", "verify", "topics", "dump"])
def test_a_pipe_in_the_place_of_a_table_is_damage(command: str, golden: Golden) -> None:
    """The library would wait for somebody to write into it."""
    root = golden("5.5.0-rdbcq-clean")
    table = min((root / "consumequeue_rocksdb").glob("*.sst"), default=None) or min(root.glob("**/*.sst"))
    table.unlink()
    os.mkfifo(table)
    done = subprocess.run(
        [sys.executable, "-m", "rmqctl", command, str(root)], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode in {0, 1, 10}  # as where the table is damaged otherwise
    if command == "verify":
        assert done.returncode == 1
