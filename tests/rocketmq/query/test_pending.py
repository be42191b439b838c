"""What a broker still has to deliver, from files and from RocksDB: `dump --pending`."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message


def pending(rmqctl: Any, name: str, what: str, *more: str) -> list[dict[str, Any]]:
    result = rmqctl("dump", golden.pristine(name), "--pending", what, "-o", "jsonl", *more)
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(row["missing"] is None for row in rows)
    return rows


def records(name: str) -> dict[int, dict[str, Any]]:
    return {r["commitLogOffset"]: r for r in golden.truth(name) if r["kind"] == "msg"}


@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbmsg-crash"])
def test_timers_in_rocksdb(name: str, rmqctl: Any) -> None:
    """Rows stay after delivery; a start makes the rows again that a kill lost."""
    pytest.importorskip("rocksdict")
    delivered = 1795315545000
    wanted = [t for t in golden.oracle(name)["broker"]["timerPending"] if t["deliverMs"] >= delivered]
    found = pending(rmqctl, name, "timer")
    assert sorted((r["due_timestamp"], r["unique_key"], r["physical_offset"]) for r in found) == sorted(
        (t["deliverMs"], t["uniqKey"], t["phy"]) for t in wanted
    )
    assert {row["topic"] for row in found} == {"MsgDelay"}


@pytest.mark.parametrize("name", ["5.5.0-rdbmsg-clean", "5.5.0-rdbmsg-crash"])
def test_transactions_in_rocksdb(name: str, rmqctl: Any) -> None:
    pytest.importorskip("rocksdict")
    found = {row["physical_offset"]: row["check_count"] for row in pending(rmqctl, name, "transaction")}
    assert found == {half["phy"]: half["checkTimes"] for half in golden.oracle(name)["broker"]["halfPending"]}


def test_pop_messages(rmqctl: Any) -> None:
    pytest.importorskip("rocksdict")
    name = "5.5.0-rdbpop-clean"
    found, log = pending(rmqctl, name, "pop"), records(name)
    assert len(found) == 31
    assert [row["due_timestamp"] for row in found] == sorted(row["due_timestamp"] for row in found)
    for row in found:
        record = log[row["physical_offset"]]
        assert (record["topic"], record["queueId"], record["queueOffset"]) == (
            row["topic"], row["queue_id"], row["queue_offset"],
        )  # fmt: skip
    assert pending(rmqctl, name, "pop", "--topic", "PkPop", "--queue", "0") == [
        row for row in found if (row["topic"], row["queue_id"]) == ("PkPop", 0)
    ]


@pytest.mark.parametrize("name", ["5.5.0-clean", "5.1.4-clean"])
def test_timers_in_the_wheel(name: str, rmqctl: Any) -> None:
    """Those whose time had not come when the broker stopped: the keys say which they are."""
    found, log = pending(rmqctl, name, "timer"), records(name)
    stopped = max(r["storeTimestamp"] for r in log.values())
    timers = [
        r for r in log.values() if r["topic"] == "rmq_sys_wheel_timer" and "TIMER_DEL_UNIQKEY" not in r["properties"]
    ]
    late = {r["uniqKey"] for r in timers if int(r["properties"]["TIMER_OUT_MS"]) > stopped + 60_000}
    assert {row["unique_key"] for row in found} == late != set()


@pytest.mark.parametrize("name", ["4.5.2-clean", "4.9.8-clean", "5.5.0-rdbcq-clean"])
def test_delays(name: str, rmqctl: Any) -> None:
    found, log = pending(rmqctl, name, "delay"), records(name)
    stopped = max(r["storeTimestamp"] for r in log.values())
    for row in found:
        record = log[row["physical_offset"]]
        assert (record["topic"], record["queueId"]) == ("SCHEDULE_TOPIC_XXXX", row["delay_level"] - 1)
        assert row["due_timestamp"] > stopped
    assert found


@pytest.mark.parametrize("name", ["4.5.2-clean", "4.9.8-clean", "5.1.4-clean"])
def test_classic_transactions(name: str, rmqctl: Any) -> None:
    """Half messages from the offset of the checks on that no op message ends; a checked one is there as its copy."""
    found, log = pending(rmqctl, name, "transaction"), records(name)
    assert len(found) == 3
    assert {log[row["physical_offset"]]["tags"] for row in found} == {"TxOpen"}
    assert pending(rmqctl, "5.5.0-clean", "transaction") == []


def test_pop_check_points_in_files(tmp_path: Any, rmqctl: Any) -> None:
    """Three messages were popped, and the second one acknowledged; what the revive service has settled is left out."""
    root = tmp_path / "store"
    point = {"so": 0, "pt": 1_800_000_000_000, "it": 60_000, "bm": 0, "n": 3, "q": 0, "t": "Taken", "c": "workers"}
    point |= {"ro": 0, "d": [0, 1, 2], "bn": "a", "rp": "0", "sp": False}
    names = {"t": "Taken", "q": 0, "so": 0, "pt": point["pt"], "bn": "a", "c": "workers"}
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    bodies = [
        ("ck", {**point, "pt": 1}), ("ck", point), ("ack", {**names, "ao": 1}), ("ck", {"c": "odd"}), ("ck", [1]), ("ck", None),
        ("ck", {**point, "pt": 2, "bm": "x"}), ("ck", {**point, "pt": 3, "d": ["x", 1, 2]}), ("ck", {**point, "n": "3"}), ("ack", {}),
        ("ck", {name: value for name, value in point.items() if name != "c"} | {"cid": "workers"}),
    ]  # fmt: skip
    with StoreEngine.open(root) as engine:
        for n in range(4):
            engine.put(Message("Taken", b"body %d" % n, 0, {"UNIQ_KEY": f"key{n}"}))
        for tags, body in bodies:
            engine.put(Message(topic, json.dumps(body).encode(), 0, {"TAGS": tags}))
    config = root / "config"
    config.mkdir(exist_ok=True)
    offsets = {"offsetTable": {f"{topic}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 1}}}
    (config / "consumerOffset.json").write_text(json.dumps(offsets))
    found = [json.loads(line) for line in rmqctl("dump", root, "--pending", "pop", "-o", "jsonl").stdout.splitlines()]
    assert [(row["queue_offset"], row["unique_key"], row["source"]) for row in found] == [
        (0, "key0", topic),
        (2, "key2", topic),
    ]
    assert {(row["group"], row["due_timestamp"], row["missing"]) for row in found} == {
        ("workers", 1_800_000_060_000, None)
    }


def test_messages_that_cannot_be_read(tmp_path: Any, rmqctl: Any) -> None:
    """A pop row whose message is gone is shown, and is a "no"."""
    pytest.importorskip("rocksdict")
    root = golden.unpack("5.5.0-rdbpop-clean", tmp_path)
    first = pending(rmqctl, "5.5.0-rdbpop-clean", "pop")[0]["physical_offset"]
    file = root / "commitlog" / f"{first // 65536 * 65536:020d}"
    data = bytearray(file.read_bytes())
    data[first % 65536 : first % 65536 + 8] = bytes(8)
    file.write_bytes(data)
    result = rmqctl("dump", root, "--pending", "pop", "-o", "jsonl")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert (len(rows), result.exit_code) == (31, 1)
    assert first not in {row["physical_offset"] for row in rows if row["missing"] is None}


def test_without_the_extra(rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    for what in ("timer", "transaction"):
        assert rmqctl("dump", golden.pristine("5.5.0-rdbmsg-clean"), "--pending", what).exit_code == 14
    assert rmqctl("dump", golden.pristine("5.5.0-rdbpop-clean"), "--pending", "pop").exit_code == 14


def test_other_kinds_refuse(rmqctl: Any) -> None:
    root = golden.pristine("3.9.2-clean")
    assert rmqctl("dump", root, "--pending", "timer").exit_code == 2
    assert rmqctl("dump", golden.pristine("5.5.0-clean"), "--pending", "timer", "--follow").exit_code == 2
