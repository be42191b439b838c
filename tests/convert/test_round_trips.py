"""`rmqctl convert` both ways on golden stores: messages, offsets, times and groups are those of the source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.config_json import parse_config
from rmqctl.convert import to_kafka
from rmqctl.text import raw
from tests.conftest import Rmqctl

LEFT_OUT = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
KEPT = ("body", "keys", "tags", "unique_key", "flag", "reconsume_times", "transaction", "born_timestamp", "born_host")
"""What of a message is the same after a round trip; a compressed body is inflated."""


def rows(rmqctl: Rmqctl, *line: object, code: int | None = 0) -> list[dict[str, Any]]:
    done = rmqctl(*line, "-o", "jsonl")
    assert code is None or done.exit_code == code, done.output
    return [json.loads(text) for text in done.stdout.splitlines()]


def convert(rmqctl: Rmqctl, source: Path, into: Path, *options: str, code: int = 0) -> list[dict[str, Any]]:
    return rows(rmqctl, "convert", source, into, "--small", "--offsets-partitions", 3, *options, code=code)


def messages(rmqctl: Rmqctl, root: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Messages by their place, those of inner batches one by one."""
    found = {}
    for row in rows(rmqctl, "dump", root, "--body", code=None):
        if row["kind"] != "message" or row["topic"] in LEFT_OUT or row["transaction"] in {"prepared", "rollback"}:
            continue
        for number, inner in enumerate(row.get("inner", [row])):
            one = row | inner | {"queue_offset": row["queue_offset"] + number}
            found[one["topic"], one["queue_id"], one["queue_offset"]] = {
                **{name: one[name] for name in (*KEPT, "store_timestamp", "store_host")},
                "properties": {n: v for n, v in one["properties"].items() if n not in {"INNER_NUM", "INNER_BASE"}},
            }
    return found


def groups(rmqctl: Rmqctl, root: Path) -> dict[tuple[str, str, int], int]:
    found = {}
    for row in rows(rmqctl, "lag", root, code=None):
        if row["consumer_offset"] is not None and row["topic"] not in LEFT_OUT:
            found[row["group"], row["topic"], row.get("queue_id", row.get("partition"))] = row["consumer_offset"]
    return found


def ends(rmqctl: Rmqctl, root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    found = rows(rmqctl, "topics", root)
    return {(r["topic"], r["queue_id"]): (r["min_offset"], r["max_offset"]) for r in found if r["max_offset"]}


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_from_rocketmq_to_kafka_and_back(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, logs, back = golden.pristine(name), tmp_path / "logs", tmp_path / "back"
    there = convert(rmqctl, source, logs)
    assert there[-1]["kind"] == "summary"
    assert not there[-1]["left_out"] and not there[-1]["findings"]
    for kind in ("half-messages", "delayed-messages", "retention"):
        assert there[-1]["no_twin"][kind] > 0
    wanted = messages(rmqctl, source)
    records = {
        (r["topic"], r["partition"], r["offset"]): r
        for r in rows(rmqctl, "dump", logs, "--records")
        if r["kind"] == "record" and not r["topic"].startswith("__")
    }
    assert {(t.replace("%", ".25"), q, o) for t, q, o in wanted} == set(records)
    for (topic, queue, offset), message in wanted.items():
        record = records[topic.replace("%", ".25"), queue, offset]
        headers = dict(record["headers"])
        assert raw(record["value"]) == raw(message["body"])
        assert (record["key"] or "").split() == message["keys"]
        assert headers.get("TAGS") == message["tags"]
        assert (record["timestamp"], int(headers["rmq-store-timestamp"])) == (
            message["born_timestamp"],
            message["store_timestamp"],
        )
    of_groups = groups(rmqctl, logs)
    taken = {(row["topic"], row["queue_id"]) for row in there if row["kind"] == "queue"}
    assert {k: v for k, v in of_groups.items() if k[0] != to_kafka.DELAY_GROUP} == {
        (group, topic.replace("%", ".25"), queue): offset
        for (group, topic, queue), offset in groups(rmqctl, source).items()
        if (topic, queue) in taken
    }
    assert rmqctl("verify", logs).exit_code == 0
    assert convert(rmqctl, logs, back, "--as-release", name.partition("-")[0])[-1]["messages"] == len(wanted)
    assert messages(rmqctl, back) == wanted
    assert ends(rmqctl, back) == {k: v for k, v in ends(rmqctl, source).items() if k[0] not in LEFT_OUT}
    assert groups(rmqctl, back).items() <= groups(rmqctl, source).items()
    delays = [parse_config((root / "config/delayOffset.json").read_bytes())["offsetTable"] for root in (source, back)]
    assert delays[1] == {level: o for level, o in delays[0].items() if ("SCHEDULE_TOPIC_XXXX", int(level) - 1) in taken}
    assert rmqctl("verify", back).exit_code == 0


@pytest.mark.parametrize("name", ["3.9.2-clean", "4.3.1-clean"])
def test_from_kafka_to_rocketmq_and_back(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, store, back = golden.pristine(name), tmp_path / "store", tmp_path / "back"

    def committed(root: Path) -> dict[tuple[str, int, int], Any]:
        starts = {(r["topic"], r["partition"]): r["log_start_offset"] for r in rows(rmqctl, "topics", root)}
        return {
            (r["topic"], r["partition"], r["offset"]): (r["key"], r["value"], r["headers"], r["timestamp"])
            for r in rows(rmqctl, "dump", root, "--records", "--read-committed", code=None)
            if r["kind"] == "record"
            and not r["topic"].startswith("__")
            and (r["topic"], r["partition"]) in starts
            and r["offset"] >= starts[r["topic"], r["partition"]]
        }

    def tails(root: Path) -> dict[tuple[str, int], int]:
        found = rows(rmqctl, "topics", root)
        return {(r["topic"], r["partition"]): r["log_end_offset"] for r in found if not r["topic"].startswith("__")}

    there = convert(rmqctl, source, store)
    wanted = committed(source)
    assert there[-1]["messages"] == len(wanted)
    assert there[-1]["no_twin"]["aborted-records"] == there[-1]["aborted"] > 0
    found = messages(rmqctl, store)
    for (topic, number, offset), (key, value, _, timestamp) in wanted.items():
        message = found[topic.replace(".", "%2E"), number, offset]
        assert raw(message["body"]) == raw(value)
        assert message["born_timestamp"] == timestamp
        if isinstance(key, str) and key.isprintable():
            assert message["keys"] == key.split()
    first: dict[tuple[str, int], int] = {}
    for topic, number, offset in found:
        first[topic, number] = min(first.get((topic, number), offset), offset)
    begins = {queue: begin for queue, (begin, _) in ends(rmqctl, store).items()}
    assert max(begins.values()) > 0  # a broker would wait at the fillers before, were the log to begin at 0
    assert begins == first
    assert rmqctl("verify", store).exit_code == 0
    assert convert(rmqctl, store, back, "--codec", "lz4")[-1]["messages"] == len(wanted)
    assert committed(back) == wanted
    assert tails(back) == tails(source)
    shared = {k: v for k, v in groups(rmqctl, source).items() if "share" not in k[0]}
    assert groups(rmqctl, back) == shared
    assert rmqctl("verify", back).exit_code == 0


def test_light_queues_come_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    pytest.importorskip("rocksdict")
    source, logs, back = golden.pristine("5.5.0-rdblite-clean"), tmp_path / "logs", tmp_path / "back"
    assert convert(rmqctl, source, logs)[-1]["no_twin"]["light-queue-offsets"]
    convert(rmqctl, logs, back)
    light = {key: range_ for key, range_ in ends(rmqctl, source).items() if key[0].startswith("%LMQ%")}
    assert light
    assert {key: range_ for key, range_ in ends(rmqctl, back).items() if key[0].startswith("%LMQ%")} == light
    assert rmqctl("verify", back).exit_code == 0


def test_queues_without_placeholders(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """With --renumber every queue counts from 0, and groups go on at the same message."""
    source, kept, dense = golden.pristine("4.3.1-clean"), tmp_path / "kept", tmp_path / "dense"
    convert(rmqctl, source, kept)
    made = convert(rmqctl, source, dense, "--renumber")
    assert made[-1]["gaps"] == 0
    as_they_were = messages(rmqctl, kept)
    found, before, after = messages(rmqctl, dense), groups(rmqctl, kept), groups(rmqctl, dense)
    for key in {place[:2] for place in as_they_were}:
        of_queue = {place[2]: m for place, m in as_they_were.items() if place[:2] == key}
        left = [offset for offset in sorted(of_queue) if "RMQCTL_PLACEHOLDER" not in of_queue[offset]["properties"]]
        mine = sorted(place[2] for place in found if place[:2] == key)
        assert mine == list(range(len(left)))
        for place, offset in enumerate(left):
            assert found[(*key, place)]["body"] == of_queue[offset]["body"]
        for (group, topic, number), offset in before.items():
            if (topic, number) == key:
                assert after[group, topic, number] == sum(one < offset for one in left)
    assert rmqctl("verify", dense).exit_code == 0
    assert rmqctl("convert", dense, tmp_path / "no", "--renumber").exit_code == 2


def test_damage_is_reported_and_passed_over(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = golden.unpack("4.9.8-clean", tmp_path)
    whole = messages(rmqctl, store)
    damaged = next(r for r in rows(rmqctl, "dump", store) if r.get("topic") == "LabLog" and r["queue_offset"] == 7)
    with open(store / damaged["file"], "r+b") as file:
        file.seek(damaged["position"] + damaged["size"] - damaged["body_size"] // 2 - 60)
        file.write(b"\xff\xff\xff")
    made = convert(rmqctl, store, tmp_path / "logs", code=1)
    assert [row["id"].partition(".")[0] for row in made if row["kind"] == "finding"] == ["log"]
    kept = {(r["topic"], r["partition"], r["offset"]) for r in rows(rmqctl, "dump", tmp_path / "logs", "--records")
            if r["kind"] == "record" and not r["topic"].startswith("__")}  # fmt: skip
    lost = {(t.replace("%", ".25"), q, o) for t, q, o in whole} - kept
    assert lost == {("LabLog", damaged["queue_id"], 7)}
    assert rmqctl("verify", tmp_path / "logs").exit_code == 0


def test_damage_of_a_log_directory_is_passed_over(tmp_path: Path, rmqctl: Rmqctl) -> None:
    logs = tmp_path / "damaged"
    logs.mkdir()
    shutil.copytree(golden.pristine("4.3.1-clean") / "plain-none-0", logs / "plain-none-0")
    log = max((logs / "plain-none-0").glob("*.log"), key=lambda path: path.stat().st_size)
    batches = [r for r in rows(rmqctl, "dump", logs) if r["kind"] == "batch" and r["file"].endswith(log.name)]
    hit = batches[len(batches) // 2]
    data = bytearray(log.read_bytes())
    data[hit["position"] + hit["size"] - 3] ^= 0x40
    log.write_bytes(data)
    made = convert(rmqctl, logs, tmp_path / "store", code=1)
    (finding,) = [row for row in made if row["kind"] == "finding"]
    assert (finding["id"], finding["offset"]) == ("batch.crc", hit["position"])
    found = messages(rmqctl, tmp_path / "store")
    places = [place for place, m in found.items() if "RMQCTL_PLACEHOLDER" in m["properties"]]
    assert places == [("plain-none", 0, n) for n in range(hit["base_offset"], hit["last_offset"] + 1)]


def test_the_target_is_new_and_goes_when_it_fails(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, into = golden.pristine("5.3.3-clean"), tmp_path / "logs"
    into.mkdir()
    (into / "mine").write_text("x")
    assert rmqctl("convert", source, into).exit_code == 13
    assert rmqctl("convert", source, source / "inside").exit_code == 13
    assert rmqctl("convert", source / "commitlog" / "00000000000000000000", tmp_path / "x").exit_code in {0, 11, 13}

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(to_kafka, "_write_offsets", fails)
    assert rmqctl("convert", source, tmp_path / "new", "--small").exit_code == 10
    assert not (tmp_path / "new").exists()
    assert [path.name for path in into.iterdir()] == ["mine"]


def test_a_codec_that_the_release_does_not_know_is_refused(tmp_path: Path, rmqctl: Rmqctl) -> None:
    words = ("--as-release", "2.0.0", "--codec", "zstd")
    result = rmqctl("convert", golden.pristine("4.9.8-clean"), tmp_path / "logs", *words)
    assert (result.exit_code, "know no zstd" in result.stderr) == (13, True)
    assert not (tmp_path / "logs").exists()


def test_a_store_without_its_log_is_no_empty_one(tmp_path: Path, rmqctl: Rmqctl) -> None:
    source = golden.unpack("4.9.8-clean", tmp_path)
    shutil.rmtree(source / "commitlog")
    result = rmqctl("convert", source, tmp_path / "logs")
    assert (result.exit_code, "there is no directory commitlog" in result.stderr) == (15, True)
    assert not (tmp_path / "logs").exists()


def test_a_queue_of_placeholders_alone_has_times(tmp_path: Path, rmqctl: Rmqctl) -> None:
    made = ("--format", "kafka", "--topic", "t", "--count", 5, "--transactional", "abort")
    assert rmqctl("produce", tmp_path / "logs", *made).exit_code == 0
    assert convert(rmqctl, tmp_path / "logs", tmp_path / "store")[-1]["messages"] == 0
    assert rmqctl("verify", tmp_path / "store").exit_code == 0
    (row,) = rows(rmqctl, "topics", tmp_path / "store")
    assert (row["min_offset"], row["max_offset"]) == (5, 6)


def test_records_without_a_value_stop_no_old_consumer(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Clients before 5.3.2 fail on a message without a body."""
    logs, store, back = tmp_path / "logs", tmp_path / "store", tmp_path / "back"
    for words in (("--tombstone",), ("--body", ""), ("--body", " ")):
        made = ("--format", "kafka", "--topic", "t", "--count", 2, "--key", "k{n}", *words)
        assert rmqctl("produce", logs, *made).exit_code == 0
    assert convert(rmqctl, logs, store, "--as-release", "4.9.7")[-1]["no_twin"]["empty-values"] == 4
    assert {message["body"] for message in messages(rmqctl, store).values()} == {" "}
    assert rmqctl("verify", store).exit_code == 0
    convert(rmqctl, store, back)
    found = rows(rmqctl, "query-offset", back, "t/0", 0, "-n", 9)
    assert [row["value"] for row in found if row["kind"] == "record"] == [None, None, "", "", " ", " "]
