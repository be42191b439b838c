"""Consumer lag: against the brokers' consumeStats, and what a broker's answer does not tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.rocksdb import TOPIC_DATA, consumer_offset_key
from rmqctl.errors import MissingExtra
from rmqctl.filters import Names
from rmqctl.installation import line_for_extra
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.query.lag import LagRow, lag_rows
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.locate import open_store_at

Golden = Callable[[str], Path]


def rows_of(root: Path, release: str, **wanted: str) -> list[LagRow]:
    with RecoveredStore(open_store_at(str(root)), Release.parse(release)) as started:
        return list(lag_rows(started, **{column: Names.of(name) for column, name in wanted.items()}))


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_consume_stats(name: str) -> None:
    questions = [a for a in golden.oracle(name)["admin"]["answers"] if a.get("q") == "consumeStats"]
    assert len(questions) >= 2
    for question in questions:
        group = question["group"]
        rows = [r for r in rows_of(golden.pristine(name), name[:5], group=group) if r.consumer_offset is not None]
        found = {(r.topic, r.queue_id): (r.max_offset, r.consumer_offset, r.last_consumed_timestamp or 0) for r in rows}
        expected = {
            (q["topic"], q["queueId"]): (q["brokerOffset"], q["consumerOffset"], q["lastTimestamp"])
            for q in question["queues"]
        }
        assert found == expected
        assert sum(r.lag or 0 for r in rows) == question["totalDiff"]


def test_bytes_and_times_are_those_of_the_records() -> None:
    rows = rows_of(golden.pristine("5.5.0-clean"), "5.5.0", group="Lab_grpLag")
    records = [r for r in golden.truth("5.5.0-clean") if r["kind"] == "msg"]
    last = records[-1]["storeTimestamp"]
    behind = [r for r in rows if r.lag]
    assert behind
    for row in behind:
        assert row.consumer_offset is not None
        waiting = [r for r in records if (r["topic"], r["queueId"]) == (row.topic, row.queue_id)][row.consumer_offset :]
        assert (row.lag, row.lag_bytes) == (len(waiting), sum(r["storeSize"] for r in waiting))
        assert (row.next_store_timestamp, row.lag_ms) == (
            waiting[0]["storeTimestamp"],
            last - waiting[0]["storeTimestamp"],
        )


def test_dead_letters() -> None:
    rows = rows_of(golden.pristine("4.9.8-clean"), "4.9.8", topic="%DLQ%Lab_grpRetry")
    assert [(r.group, r.consumer_offset, r.max_offset, r.lag, r.anomaly) for r in rows] == [
        ("Lab_grpRetry", None, 4, None, None)
    ]


def write_offsets(root: Path, offsets: dict[str, dict[int, int]], name: str = "consumerOffset.json") -> None:
    text = json.dumps({"offsetTable": {key: {str(q): o for q, o in queues.items()} for key, queues in offsets.items()}})
    (root / "config" / name).write_text(text, "utf-8")


def test_anomalies(golden: Golden) -> None:
    root = golden("5.5.0-clean")
    write_offsets(root, {"LabOrders@g": {0: 5000, 77: 1}, "Nowhere@g": {0: 3}, "LabLog@h": {0: 0}, "broken": {0: 1}})
    rows = {(r.group, r.topic, r.queue_id): r for r in rows_of(root, "5.5.0")}
    assert rows["g", "LabOrders", 0].anomaly == "beyond-max"
    assert rows["g", "LabOrders", 0].lag == 108 - 5000
    assert rows["g", "LabOrders", 1].consumer_offset == 0
    assert rows["g", "LabOrders", 77].anomaly == "unknown-queue"
    assert rows["g", "Nowhere", 0].anomaly == "unknown-topic"
    assert rows["g", "Nowhere", 0].max_offset is None
    assert rows["h", "LabLog", 0].anomaly is None


def test_offsets_before_the_smallest(golden: Golden) -> None:
    """The first log file has expired: what a group wants of it is gone."""
    root = golden("5.5.0-clean")
    min((root / "commitlog").iterdir()).unlink()
    write_offsets(root, {"LabLog@g": {0: 0}})
    row = next(r for r in rows_of(root, "5.5.0", group="g") if r.queue_id == 0)
    assert row.min_offset
    assert (row.anomaly, row.consumer_offset) == ("before-min", 0)
    assert row.next_store_timestamp is not None


def test_the_backup_counts_where_the_file_is_broken(golden: Golden) -> None:
    root = golden("5.5.0-clean")
    write_offsets(root, {"LabLog@g": {0: 7}}, "consumerOffset.json.bak")
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"LabLog@g":{0:', "utf-8")
    assert [r.consumer_offset for r in rows_of(root, "5.5.0", group="g") if r.queue_id == 0] == [7]


def test_light_message_queues(golden: Golden) -> None:
    root = golden("5.1.4-clean")
    table = {"offsetTable": {}, "lmqOffsetTable": {"%LMQ%one@g": 2}}
    (root / "config" / "lmqConsumerOffset.json").write_text(json.dumps(table), "utf-8")
    rows = rows_of(root, "5.1.4", group="g")
    assert [(r.topic, r.queue_id, r.consumer_offset) for r in rows] == [("%LMQ%one", 0, 2)]
    assert rows[0].max_offset is not None
    assert rows[0].lag == rows[0].max_offset - 2 > 0


def make_database(path: Path, entries: dict[bytes, bytes]) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    path.mkdir(parents=True, exist_ok=True)
    database: Any = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    for key, value in entries.items():
        database[key] = value
    database.close()


def test_offsets_in_databases(golden: Golden) -> None:
    """Version 1 holds JSON by topic@group, version 2 one number a queue; both win over the file beside them."""
    root = golden("5.5.0-clean")
    write_offsets(root, {"LabLog@g": {0: 1}, "LabOrders@h": {0: 4}})
    make_database(root / "config" / "consumerOffsets", {b"LabLog@g": b'{"offsetTable":{0:50,1:51}}'})
    make_database(root / "config" / "rdb", {consumer_offset_key(b"h", b"LabOrders", 0): (44).to_bytes(8, "big")})
    rows = {(r.group, r.topic, r.queue_id): r for r in rows_of(root, "5.5.0")}
    assert (rows["g", "LabLog", 0].consumer_offset, rows["g", "LabLog", 0].file) == (50, "config/consumerOffsets")
    assert rows["g", "LabLog", 1].consumer_offset == 51
    assert (rows["h", "LabOrders", 0].consumer_offset, rows["h", "LabOrders", 0].file) == (44, "config/rdb")


def test_topics_in_databases(golden: Golden, rmqctl: Any) -> None:
    """A topic that nothing was written to is known from the configuration alone."""
    root = golden("5.5.0-propcrc-clean")
    (root / "config").mkdir(exist_ok=True)
    text = b'{"readQueueNums":2,"writeQueueNums":2,"topicName":"Quiet"}'
    make_database(root / "config" / "topics", {b"Quiet": text})
    make_database(root / "config" / "rdb", {TOPIC_DATA + b"\x00\x05Still": b"\x01" + text})
    for topic in ("Quiet", "Still"):
        result = rmqctl("query-time", root, topic, 0, "-o", "jsonl")
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(r["queue_id"], r["queue_offset"]) for r in answers] == [(0, 0), (1, 0)]
        assert result.exit_code == 1
    assert "no queue 2; its queues are 0 to 1" in rmqctl("query-offset", root, "Quiet/2", 0).stderr


def test_databases_without_the_extra(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden("5.5.0-clean")
    make_database(root / "config" / "rdb", {b"x": b"y"})
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(MissingExtra, match=re.escape(line_for_extra("rocksdb"))):
        rows_of(root, "5.5.0")


def test_command(rmqctl: Any) -> None:
    store = golden.pristine("4.9.8-clean")
    result = rmqctl("lag", store, "-o", "jsonl", "--group", "Lab_grpLag", "--topic", "LabLog")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [(r["group"], r["topic"], r["queue_id"]) for r in rows] == [("Lab_grpLag", "LabLog", q) for q in range(3)]
    first = ["group", "topic", "queue_id", "consumer_offset", "max_offset", "lag", "lag_bytes", "lag_ms", "anomaly"]
    assert list(rows[0])[: len(first)] == first
    missed = rmqctl("lag", store, "--group", "Lab_grpLg")
    assert missed.exit_code == 1
    assert "did you mean Lab_grpLag" in missed.stderr
    assert "Lab_grpLag" in rmqctl("lag", store).stdout


def test_a_store_without_offsets(rmqctl: Any) -> None:
    result = rmqctl("lag", golden.pristine("5.5.0-propcrc-clean"))
    assert result.exit_code == 1
    assert "no consumer offset is stored" in result.stderr


def test_a_message_stored_later_than_the_last_record_is_not_late(tmp_path: Path) -> None:
    """The clock was set back: no time is negative."""
    root = tmp_path / "store"
    for start in (1_794_268_800_000, 1_794_096_000_000):
        clock = MadeUpClock(start, 1000)
        with StoreEngine.open(root, StoreConfig.small(release=Release(4, 9, 8), clock=clock)) as engine:
            for _ in range(3):
                engine.put(Message("T", b"b", 0))
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1}}}')
    (row,) = [r for r in rows_of(root, "4.9.8", group="g") if r.topic == "T" and r.queue_id == 0]
    assert (row.lag, row.lag_ms) == (5, 0)
