"""Files of fixed-size units as rows: queues with their extension, batch queues, timer files, DLedger index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.batch_consumequeue import COMPACTION_END
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, PRE_BLANK
from formats.rocketmq.dledger import DLedgerIndexUnit
from formats.rocketmq.timer import BLANK_MAGIC, TimerLogBlank, TimerLogUnit, TimerWheelSlot
from formats.text import java_hash
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.rows_dledger_helpers import batch, ext, unit

Row = dict[str, Any]
NAME = "0" * 20


@pytest.fixture
def put(tmp_path: Path) -> Any:
    """Writes files of a store and dumps a path of it."""

    def dump(selection: str, **files: bytes) -> list[Row]:
        for name, data in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (tmp_path / "commitlog").mkdir(exist_ok=True)
        store = open_store(LocalTree(tmp_path), selection=selection)
        return [dict(row) for row in Dump.of_store(store, Request()).rows()]  # as they are when they come

    return dump


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(r["kind"], r.get("id", r.get("queue_offset")), r.get("position", r.get("offset"))) for r in rows]


def test_queue_unit_has_the_keys_of_the_contract(put: Any) -> None:
    (row,) = put("consumequeue", **{f"consumequeue__TopicTest__1__{NAME}": unit(88, 126, -5).ljust(60, b"\0")})
    assert row == {
        "kind": "queue_unit", "file": f"consumequeue/TopicTest/1/{NAME}", "position": 0, "topic": "TopicTest",
        "queue_id": 1, "queue_offset": 0, "physical_offset": 88, "size": 126, "tags_code": -5,
    }  # fmt: skip
    assert list(row) == [
        "kind", "file", "position", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code",
    ]  # fmt: skip


def test_fillers_and_queue_offsets_of_later_files(put: Any) -> None:
    files = {f"consumequeue__T__0__{40:020d}": PRE_BLANK + unit(1), f"consumequeue__T__0__{80:020d}": unit(200)}
    rows = put("consumequeue/T", **files)
    assert brief(rows) == [("pre_blank", 2, 0), ("queue_unit", 3, 20), ("queue_unit", 4, 0)]


def test_hole_stale_tail_bad_unit_and_torn_end(put: Any) -> None:
    zero = bytes(20)
    data = unit(100) + zero + unit(200) + zero * 2 + unit(50) + unit(300, 0) + b"\1\2\3"
    rows = put(f"consumequeue/T/0/{NAME}", **{f"consumequeue__T__0__{NAME}": data})
    assert brief(rows) == [
        ("queue_unit", 0, 0), ("finding", "queue.hole", 20), ("queue_unit", 2, 40),
        ("finding", "queue.stale-tail", 100), ("queue_unit", 5, 100), ("queue_unit", 6, 120),
        ("finding", "queue.unit-mismatch", 120), ("finding", "queue.torn-unit", 140),
    ]  # fmt: skip


def test_extension_addresses_are_resolved(put: Any) -> None:
    tag = java_hash("TagA")
    rows = put(
        "consumequeue",
        **{
            f"consumequeue__T__0__{NAME}": unit(1, tags=EXT_ADDRESS_BASE + 22) + unit(2, tags=EXT_ADDRESS_BASE + 5),
            f"consumequeue_ext__T__0__{NAME}": (ext(1) + ext(tag)).ljust(100, b"\0"),
        },
    )
    assert rows[0]["ext"] == {"position": 22, "size": 22, "tags_code": tag, "store_timestamp": 9, "bitmap": "0102"}
    assert rows[1]["ext"] is None and rows[2]["id"] == "queue.extension"


def test_extension_units(put: Any) -> None:
    data = ext(1) + ext(2, b"") + b"\xff\xff" + bytes(20)
    rows = put("consumequeue_ext", **{f"consumequeue_ext__T__0__{NAME}": data})
    assert [(r["kind"], r["position"], r.get("tags_code")) for r in rows] == [
        ("queue_ext_unit", 0, 1), ("queue_ext_unit", 22, 2), ("queue_ext_end", 42, None),
    ]  # fmt: skip
    assert rows[1]["address"] == EXT_ADDRESS_BASE + 22
    (*_, finding) = put("consumequeue_ext", **{f"consumequeue_ext__T__0__{NAME}": ext(1) + b"\0\7" + bytes(40)})
    assert (finding["id"], finding["offset"]) == ("queue.extension", 22)


def test_batch_units_and_the_end_of_a_compacted_queue(put: Any) -> None:
    (row,) = put("batchconsumequeue", **{f"batchconsumequeue__B__0__{NAME}": batch(4).ljust(92, b"\0")})
    assert (row["kind"], row["topic"], row["base_offset"], row["batch_size"]) == ("batch_queue_unit", "B", 4, 3)
    rows = put("compaction", **{f"compaction__compactionCq__C__2__{NAME}": batch(1) + COMPACTION_END + bytes(46)})
    assert [(r["kind"], r["topic"], r["queue_id"]) for r in rows] == [
        ("batch_queue_unit", "C", 2),
        ("queue_end", "C", 2),
    ]


def test_timer_log_ends_at_its_blank(put: Any) -> None:
    fields = {
        "size": 52, "previous": -1, "magic": 3, "write_time": 1000, "delay": 500, "physical_offset": 9,
        "message_size": 10, "real_topic_hash": 3, "reserved": 0,
    }  # fmt: skip
    one = bytes(TimerLogUnit.build(fields))
    blank = bytes(TimerLogBlank.build({"size": 60, "zero": 0, "magic": BLANK_MAGIC}))
    rows = put("timerlog", **{f"timerlog__{NAME}": one + one + blank.ljust(60, b"\0")})
    assert [(r["kind"], r["position"]) for r in rows] == [
        ("timer_log_unit", 0), ("timer_log_unit", 52), ("timer_log_blank", 104),
    ]  # fmt: skip
    assert (rows[0]["flags"], rows[0]["delivery_timestamp"]) == (["default", "roll"], 1500)
    rows = put("timerlog", **{f"timerlog__{NAME}": one + b"\0\0\0\x33" + one[4:] + bytes(52)})
    assert [(r["kind"], r.get("id")) for r in rows] == [("timer_log_unit", None), ("finding", "timer.log")]


def test_timer_log_blank_that_fills_the_rest_of_the_file(put: Any) -> None:
    blank = bytes(TimerLogBlank.build({"size": 16, "zero": 0, "magic": BLANK_MAGIC}))
    fields = dict.fromkeys(TimerLogUnit.parse(bytes(52)), 0)
    fields.pop("_io", None)
    one = bytes(TimerLogUnit.build({**fields, "size": 52, "magic": 1}))
    rows = put("timerlog", **{f"timerlog__{NAME}": one * 2 + blank})
    assert [(r["kind"], r["position"]) for r in rows][2:] == [("timer_log_blank", 104)]


def test_only_wheel_slots_in_use(put: Any) -> None:
    slot = bytes(TimerWheelSlot.build({"time": 1700000000, "first": 0, "last": 52, "count": 2, "magic": 0}))
    (row,) = put("timerwheel", timerwheel=(bytes(96) + slot).ljust(640, b"\0"))
    assert (row["kind"], row["slot"], row["position"], row["count"]) == ("timer_slot", 3, 96, 2)
    assert row["delivery_timestamp"] == 1700000000000


def test_entry_index_of_dledger(put: Any) -> None:
    fields = {"magic": 1, "position": 5000, "size": 200, "index": 1, "term": 2}
    (row,) = put("dledger-n0/index", **{f"dledger-n0__index__{NAME}": bytes(32) + DLedgerIndexUnit.build(fields)})
    assert row == {
        "kind": "dledger_index_entry", "file": f"dledger-n0/index/{NAME}", "position": 32, "magic": 1,
        "entry_position": 5000, "size": 200, "index": 1, "term": 2,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["4.5.2-clean", "5.1.4-clean", "5.5.0-clean"])
def test_units_of_a_real_store_are_its_messages(name: str) -> None:
    store = open_store(LocalTree(golden.pristine(name)))
    messages = {r["physical_offset"]: r for r in Dump.of_store(store, Request()).rows() if r["kind"] == "message"}
    store.selection = "consumequeue"
    units = list(Dump.of_store(store, Request()).rows())
    assert units and all(r["kind"] == "queue_unit" for r in units)
    for row in units:
        message = messages[row["physical_offset"]]
        if not row["topic"].startswith("%LMQ%"):
            assert (row["topic"], row["queue_id"], row["queue_offset"], row["size"]) == (
                message["topic"], message["queue_id"], message["queue_offset"], message["size"],
            )  # fmt: skip
        if row["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert row["tags_code"] == java_hash(message["tags"] or "")
