"""`--at`: the state of random moments against a fold over what `dump` shows of the records before them."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters, Rendering
from rmqctl.opening import open_store
from rmqctl.past import REASONS
from rmqctl.questions import Metadata
from tests.conftest import Rmqctl
from tests.kafka import recorded_past_helpers as kafka_past
from tests.rocketmq import recorded_past_helpers as rocketmq_past

Key = tuple[str, int]
ROCKETMQ = ("4.9.8-clean", "5.3.3-crash", "5.5.0-clean", "5.5.0-rocksdb-clean")
KAFKA = "4.3.1-clean"
LATE = 1_795_224_953_600
"""Epoch ms, when nearly all of the Kafka stores was there."""


def moments(times: list[int], count: int) -> list[int]:
    """Times at, just before and just after some stamps."""
    chosen = random.Random(7)
    return [chosen.choice(times) + chosen.choice((-1, 0, 1)) for _ in range(count)]


def rows(name: str, verb: str, at: int) -> list[dict[str, Any]]:
    return [dict(row) for row in getattr(open_store(str(golden.pristine(name))), verb)(at=at)]


# --- RocketMQ -----------------------------------------------------------------------------------------


def messages(name: str) -> list[dict[str, Any]]:
    return [dict(row) for row in open_store(str(golden.pristine(name))).dump() if row["kind"] == "message"]


def ends(found: list[dict[str, Any]], at: int) -> dict[Key, int]:
    """Next offset of each queue, by the messages that had been stored."""
    then = dict[Key, int]()
    for row in found:
        if row["store_timestamp"] <= at and row["transaction"] not in {"prepared", "rollback"}:
            then[row["topic"], row["queue_id"]] = row["queue_offset"] + len(row.get("inner") or [0])
    return then


@pytest.mark.parametrize("name", ROCKETMQ)
def test_queues_are_those_of_the_messages_before(name: str) -> None:
    found = messages(name)
    for at in moments([row["store_timestamp"] for row in found], 3):
        then = ends(found, at)
        shown = {(row["topic"], row["queue_id"]): row for row in rows(name, "topics", at)}
        assert {key: row["max_offset"] for key, row in shown.items() if row["max_offset"]} == then
        stored = [row for row in found if row["store_timestamp"] <= at]
        for key, row in shown.items():
            own = [m for m in stored if (m["topic"], m["queue_id"]) == key and m["transaction"] in {"none", "commit"}]
            if row["messages"] is not None and row["messages"] == len(own):
                assert (row["bytes"], row["last_store_timestamp"]) == (
                    sum(m["size"] for m in own),
                    own[-1]["store_timestamp"] if own else None,
                )


def test_a_clock_that_was_set_back_leaves_two_bounds(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    found = messages("5.3.3-clean")
    late, early = found[200], found[100]
    log = root / late["file"]
    data = bytearray(log.read_bytes())
    at = late["position"] + 56
    assert int.from_bytes(data[at : at + 8], "big") == late["store_timestamp"]
    data[at : at + 8] = (early["store_timestamp"] - 1).to_bytes(8, "big")
    log.write_bytes(data)
    done = rmqctl("topics", root, "--at", early["store_timestamp"], "-o", "jsonl")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    unknown = [row for row in shown if row["max_offset"] is None]
    assert unknown
    assert all(row["unknown"]["max_offset"] == "clock-set-back" for row in unknown)
    assert all(row["end_at_least"] < row["end_at_most"] for row in unknown)
    assert "the clock was set back" in done.stderr


def test_history_begins_where_the_log_does(tmp_path: Path) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    found = messages("5.3.3-clean")
    first = min((root / "commitlog").iterdir())
    kept = [row for row in found if row["file"] != f"commitlog/{first.name}"]
    first.unlink()
    answer = open_store(str(root)).topics(at=kept[0]["store_timestamp"] - 1)
    shown = list(answer)
    assert shown
    assert all(row["max_offset"] is None and row["unknown"]["max_offset"] == "retention" for row in shown)
    assert any("history begins at" in remark for remark in answer.remarks)
    at = kept[len(kept) // 2]["store_timestamp"]
    later = {(row["topic"], row["queue_id"]): row for row in open_store(str(root)).topics(at=at)}
    for key, end in ends(found, at).items():
        if key in later and later[key]["max_offset"] is not None:
            assert later[key]["max_offset"] == end, key
            began = next(m["file"] for m in found if (m["topic"], m["queue_id"]) == key) != f"commitlog/{first.name}"
            assert (later[key]["min_offset"] is not None) == began, key


def test_positions_of_groups_are_not_noted() -> None:
    found = messages("5.3.3-clean")
    shown = rows("5.3.3-clean", "lag", found[300]["store_timestamp"])
    assert shown
    assert all(row["consumer_offset"] is None and row["unknown"]["consumer_offset"] == "not-noted" for row in shown)


# --- Kafka --------------------------------------------------------------------------------------------


def batches(topic: str) -> Iterator[dict[str, Any]]:
    """Batches of all partitions of a topic, with their records."""
    root = golden.pristine(KAFKA)
    for directory in sorted(root.glob(f"{topic}-[0-9]*")):
        for row in open_store(str(directory)).dump():
            if row["kind"] == "batch":
                yield {**row, "partition": int(directory.name.rpartition("-")[2])}


def test_partitions_of_append_time_end_at_the_batches_before() -> None:
    found = list(batches("append_time"))
    for at in moments([row["max_timestamp"] for row in found], 4):
        shown = {row["partition"]: row for row in rows(KAFKA, "topics", at) if row["topic"] == "append_time"}
        for partition, row in shown.items():
            own = [b for b in found if b["partition"] == partition and b["max_timestamp"] <= at]
            assert (row["log_end_offset"], row["clock"]) == (
                max((b["last_offset"] + 1 for b in own), default=0),
                "broker",
            )
            assert (row["records"], row["bytes"]) == (sum(b["count"] for b in own), sum(b["size"] for b in own))


def test_groups_stand_where_their_commits_before_put_them() -> None:
    """Those in transactions apart, which wait for their marker."""
    root, commits = golden.pristine(KAFKA), list[tuple[int, tuple[str, str, int], int | None]]()
    for directory in sorted(root.glob("__consumer_offsets-*")):
        in_transactions = set[int]()
        for row in open_store(str(directory)).dump(Filters(), Rendering(records=True)):
            if row["kind"] == "batch" and row["transactional"]:
                in_transactions.add(row["position"])
            key = (row.get("decoded") or {}).get("key") or {}
            if {"group", "topic", "partition"} <= key.keys() and row["batch_position"] not in in_transactions:
                value = row["decoded"]["value"]
                name = key["group"], key["topic"], key["partition"]
                commits.append((row["timestamp"], name, None if value is None else value["offset"]))
    assert len(commits) > 20
    for at in moments([stamp for stamp, _, _ in commits], 4):
        then = {name: offset for time_of, name, offset in commits if time_of <= at}
        shown = {(row["group"], row["topic"], row["partition"]): row for row in rows(KAFKA, "lag", at)}
        for name, offset in then.items():
            if offset is not None and "consumer_offset" not in shown[name]["unknown"]:
                assert shown[name]["consumer_offset"] == offset, (at, name)


def test_metadata_of_a_time_is_that_of_its_last_offset(rmqctl: Rmqctl) -> None:
    root = golden.pristine(KAFKA)
    log = [row for row in open_store(str(root / "__cluster_metadata-0")).dump() if row["kind"] == "batch"]
    for at in moments([row["max_timestamp"] for row in log], 3):
        offset = max((row["last_offset"] for row in log if row["max_timestamp"] <= at), default=-1)
        by_time = json.loads(rmqctl("metadata", root, "--at", at, "-o", "json").stdout)
        by_offset = json.loads(rmqctl("metadata", root, "--at", f"offset:{offset}", "-o", "json").stdout)
        assert by_time == by_offset
        assert by_time["offset"] == offset


@pytest.mark.parametrize(
    ("given", "offset", "moment"),
    [(26, 26, None), ("26", 26, None), ("offset:1500000000", 1_500_000_000, None), (999_999_999, 999_999_999, None),
     (1_795_224_940_000, None, 1_795_224_940_000), ("2026-11-21T01:35:40Z", None, 1_795_224_940_000)],
)  # fmt: skip
def test_a_time_is_no_offset(given: str | int, offset: int | None, moment: int | None) -> None:
    asked = Metadata(at=given)
    assert (asked.offset, asked.time) == (offset, moment)


def test_a_number_that_can_only_be_seconds_is_refused() -> None:
    with pytest.raises(WrongUsage, match="can only be seconds"):
        _ = Metadata(at=1_795_224_940).time


# --- damaged copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["5.5.0-clean", "4.3.1-clean"])
def test_a_sheet_says_of_which_time_it_is(name: str, rmqctl: Rmqctl) -> None:
    shown = rmqctl("info", golden.pristine(name), "--at", "2026-11-21 01:35:40")
    assert "2026-11-21T01:35:40.000Z" in [line.split()[-1] for line in shown.stdout.splitlines() if line[:3] == "at "]


def test_a_topic_that_came_later_is_not_taken_for_a_slip(rmqctl: Rmqctl) -> None:
    shown = rmqctl("topics", golden.pristine("4.3.1-clean"), "--topic", "deleted-rec", "--at", "2026-11-21 01:20")
    assert shown.stderr.splitlines()[-1] == "rmqctl: no partition of topic deleted-rec was here by then"


@pytest.mark.parametrize(
    ("command", "time", "says"),
    [
        ("transactions", "2026-11-21 01:20", "__transaction_state is here, or nothing was in it by then"),
        ("lag", "2026-11-21 01:20", "__consumer_offsets is here, or nothing was in it by then"),
        ("topics", "2020-01-01", "no partition was here by then"),
        ("metadata", "2020-01-01", "no metadata record yet"),
    ],
)
def test_nothing_was_noted_by_then(command: str, time: str, says: str, rmqctl: Rmqctl) -> None:
    assert says in rmqctl(command, golden.pristine("4.3.1-clean"), "--at", time).output


def test_queues_that_are_lost_end_where_the_log_says(tmp_path: Path) -> None:
    root = golden.unpack("5.3.3-crash", tmp_path)
    found = messages("5.3.3-crash")
    at = found[len(found) // 5]["store_timestamp"]
    shutil.rmtree(root / "consumequeue")
    shown = {(row["topic"], row["queue_id"]): row for row in open_store(str(root)).topics(at=at)}
    then = ends(found, at)
    assert {key: row["max_offset"] for key, row in shown.items() if row["max_offset"]} == then
    assert any("damage" in row["unknown"].values() for row in shown.values())


def test_the_end_of_a_partition_that_is_lost_is_unknown(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    last = max((root / "idem-0").glob("*.log"))
    last.unlink()
    (row,) = (row for row in open_store(str(root)).topics(topic="idem", at=LATE) if row["partition"] == 0)
    assert (row["log_end_offset"], row["unknown"]["log_end_offset"]) == (None, "damage")
    assert (row["end_at_least"], row["end_at_most"]) == (int(last.stem), 132)


def test_positions_of_groups_whose_log_is_lost_are_unknown(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    for log in root.glob("__consumer_offsets-*/*.log"):
        data = log.read_bytes()
        log.write_bytes(data[: len(data) // 2])
    shown = list(open_store(str(root)).lag(at=LATE))
    assert shown
    assert {row["unknown"].get("consumer_offset") for row in shown if row["metadata"] is None} == {"damage"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_what_is_known_of_a_damaged_log_directory_was_so(seed: int, tmp_path: Path) -> None:
    chosen, root, what = random.Random(seed), golden.unpack("4.3.1-crash", tmp_path), list[str]()
    logs = sorted(path for path in root.rglob("*.log") if path.stat().st_size)
    for log in chosen.sample(logs, 2):
        times, data = log.stat().st_mtime_ns, bytearray(log.read_bytes())
        at = chosen.randrange(len(data))
        kind = chosen.choice(["flip", "cut", "zeros", "lost"])
        what.append(f"{kind} {log.relative_to(root)} {at}")
        if kind == "lost":
            log.unlink()
            continue
        data[at : at + 64] = (
            bytes([data[at] ^ 1]) + data[at + 1 : at + 64] if kind == "flip" else bytes(len(data[at : at + 64]))
        )
        log.write_bytes(data[:at] if kind == "cut" else data)
        os.utime(log, ns=(times, times))
    keys = {
        "topics": ("topic", "partition"), "lag": ("group", "topic", "partition"), "transactions": ("transactional_id",),
        "producers": ("topic", "partition", "producer_id"),
    }  # fmt: skip
    for at in (1_795_224_936_600, LATE):
        for verb, names in keys.items():
            sound = {tuple(row[name] for name in names): row for row in rows("4.3.1-crash", verb, at)}
            for row in getattr(open_store(str(root)), verb)(at=at):
                was = sound.get(tuple(row[name] for name in names))
                known = (
                    {}
                    if was is None
                    else {name: was[name] for name in row if name not in {*was["unknown"], *row["unknown"]}}
                )
                for name in known.keys() - {"unknown", "end_at_least", "end_at_most", "clock"}:
                    assert row[name] == known[name], (what, at, verb, name)


# --- what brokers answered ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "differences", "exact"),
    [
        ("kafka-4.3.1", kafka_past.differences, ("log_end_offset", "last_stable_offset", "consumer_offset", "state")),
        ("rocketmq-5.5.0", rocketmq_past.differences, ("max_offset", "min_offset")),
    ],
)
def test_the_state_is_what_the_broker_answered_then(
    name: str, differences: Callable[[Path, Any, Counter[str]], Iterator[str]], exact: tuple[str, ...]
) -> None:
    root, found = golden.recorded_moments(name)
    seen = Counter[str]()
    assert [one for moment in found[::3] for one in differences(root, moment, seen)] == []
    assert all(seen[f"{key} equal"] >= 20 for key in exact), seen


# --- both ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["5.3.3-clean", KAFKA])
def test_now_is_the_plain_answer(name: str) -> None:
    store = open_store(str(golden.pristine(name)))
    now = time.time_ns() // 1_000_000
    verbs = ("topics", "lag", "producers", "transactions") if name == KAFKA else ("topics", "lag")
    for verb in verbs:
        plain = [dict(row) for row in getattr(store, verb)()]
        past = [dict(row) for row in getattr(store, verb)(at=now)]
        assert all(row.pop("unknown") == {} for row in past)
        assert [{key: row[key] for key in plain[0]} for row in past] == plain


@pytest.mark.parametrize("name", ["5.3.3-clean", KAFKA])
@pytest.mark.parametrize("at", ["1975-01-01", "2026-11-21T01:35:36.400Z", "2026-11-21T01:47:31Z"])
def test_what_is_null_has_its_reason(name: str, at: str) -> None:
    for verb in ("topics", "lag", "producers", "transactions") if name == KAFKA else ("topics", "lag"):
        store = open_store(str(golden.pristine(name)))
        plain = {key for row in getattr(store, verb)() for key, value in row.items() if value is None}
        for row in getattr(store, verb)(at=at):
            unknown = row["unknown"]
            assert set(unknown.values()) <= set(REASONS)
            assert all(row[key] is None for key in unknown)
            missing = {key for key, value in row.items() if value is None} - unknown.keys() - plain
            assert missing <= {
                "transactional_id",
                "first_timestamp",
                "last_timestamp",
                "first_store_timestamp",
                "last_store_timestamp",
            }, row
