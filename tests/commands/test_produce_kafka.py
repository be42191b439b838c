"""`rmqctl produce --format kafka`: what it writes, what it says, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rmqctl.filters import Filters
from rmqctl.opening import open_store

Rmqctl = Callable[..., Result]
CLOCK = ("--start-time", "1700000000000", "--interval", "5ms")
KAFKA = ("--format", "kafka", *CLOCK)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def findings(path: Path) -> list[str]:
    rows = open_store(str(path)).verify().rows
    return [row["id"] for row in rows if row is not None and row.get("severity") in ("error", "warning")]


def records(path: Path, topic: str, partition: int = 0, **more: Any) -> list[Any]:
    answer = open_store(str(path)).query_offset(topic, partition, 0, Filters(limit=1 << 30), **more)
    return [row for row in answer if row["kind"] == "record"]


@pytest.mark.parametrize(
    "options",
    [
        ("--size", "10-900", "--key", "k{n}", "--header", "trace={n}"),
        ("--body", "order {n}", "--codec", "gzip", "--level", "9"),
        ("--codec", "snappy", "--size", "5K", "--batch-size", "64K"),
        ("--codec", "lz4", "--idempotent", "--batch", "3", "--as-release", "3.9.2"),
        ("--codec", "zstd", "--transactional", "commit", "--key", "k{n}"),
        ("--transactional", "abort", "--partitioner", "round-robin"),
        ("--transactional", "open", "--partitioner", "sticky", "--batch", "2"),
        ("--tombstone", "--key", "k{n}", "--partition", "2"),
        ("--as-release", "2.8.2"),
        ("--log-file-size", "4000", "--flush", "sync", "--batch", "20"),
        ("--crash",),
    ],
)
def test_the_same_words_give_the_same_bytes_and_nothing_is_wrong(
    rmqctl: Rmqctl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for name in ("a", "b"):
        partitions = () if "--partition" in options else ("--partitions", "3")
        result = rmqctl("produce", tmp_path / name, *KAFKA, "--topic", "t", "--count", "90", *partitions, *options)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.startswith("90 messages")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert findings(tmp_path / "a") == []
    total = sum(len(records(tmp_path / "a", "t", n, read_committed=True)) for n in range(3))
    assert total == (0 if {"abort", "open"} & set(options) else 90)


def test_records_are_what_was_asked_for(rmqctl: Rmqctl, tmp_path: Path) -> None:
    words = ("--topic", "t", "--count", "2", "--key", "k{n}", "--body", "v{n}", "--header", "h=x{n}", "--header", "e=")
    assert rmqctl("produce", tmp_path / "d", *KAFKA, *words).exit_code == 0
    found = records(tmp_path / "d", "t")
    assert [(r["key"], r["value"], r["headers"], r["timestamp"]) for r in found] == [
        ("k0", "v0", [["h", "x0"], ["e", ""]], 1700000000000),
        ("k1", "v1", [["h", "x1"], ["e", ""]], 1700000000005),
    ]


def test_keys_go_where_the_java_client_puts_them(rmqctl: Rmqctl, tmp_path: Path) -> None:
    words = ("--topic", "t", "--count", "60", "--key", "k{n}", "--partitions", "3")
    assert rmqctl("produce", tmp_path / "d", *KAFKA, *words).exit_code == 0
    from rmqctl.kafka.query.key import partition_of_key

    for number in range(3):
        keys = [r["key"] for r in records(tmp_path / "d", "t", number)]
        assert keys
        assert {partition_of_key(key.encode(), 3) for key in keys} == {number}


def test_a_directory_goes_on(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path, *KAFKA, "--topic", "t", "--count", "5", "--small", "--partitions", "2")
    result = rmqctl("produce", tmp_path, "--topic", "t", "--count", "7", "--partition", "1", "-o", "jsonl")
    assert [json.loads(line)["base_offset"] for line in result.stdout.splitlines()] == [0]
    assert rmqctl("produce", tmp_path, "--topic", "t", "--partitions", "4").exit_code == 0
    rows = {row["partition"]: row["log_end_offset"] for row in open_store(str(tmp_path)).topics()}
    assert sum(rows.values()) == 13
    assert sorted(rows) == [0, 1, 2, 3]
    assert findings(tmp_path) == []


def test_a_crash_is_recovered_and_said(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path / "d", *KAFKA, "--topic", "t", "--count", "50", "--crash")
    assert open_store(str(tmp_path / "d")).state == "crashed"
    result = rmqctl("produce", tmp_path / "d", "--topic", "t")
    assert "had crashed; recovered as its broker would" in result.stderr
    assert len(records(tmp_path / "d", "t")) == 51


def test_dumped_records_can_be_produced_again(rmqctl: Rmqctl, tmp_path: Path) -> None:
    lines = [
        {"kind": "batch", "topic": "t"},
        {"kind": "record", "topic": "t", "partition": 1, "timestamp": 5, "key": None, "value": {"base64": "/wA="},
         "headers": [["a", "b"], ["n", None]], "control_type": None},
        {"kind": "record", "topic": "t", "partition": 0, "timestamp": 6, "key": "k", "value": None, "headers": []},
        {"kind": "record", "topic": "t", "partition": 0, "timestamp": 7, "key": "k", "value": "", "control_type": "COMMIT"},
    ]  # fmt: skip
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = rmqctl("produce", tmp_path / "a", *KAFKA, "--jsonl", tmp_path / "in")
    assert result.exit_code == 0, result.stderr
    dumped = rmqctl("dump", tmp_path / "a", "--records", "-o", "jsonl", "--topic", "t").stdout
    (tmp_path / "again").write_text(dumped)
    assert rmqctl("produce", tmp_path / "b", *KAFKA, "--jsonl", tmp_path / "again").exit_code == 0
    assert rmqctl("dump", tmp_path / "b", "--records", "-o", "jsonl", "--topic", "t").stdout == dumped
    assert [r["headers"] for r in records(tmp_path / "b", "t", 1)] == [[["a", "b"], ["n", None]]]


def test_lines_become_records(rmqctl: Rmqctl, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\r\ntwo\n\n")
    assert rmqctl("produce", tmp_path / "d", *KAFKA, "--topic", "t", "--lines", tmp_path / "in").exit_code == 0
    assert [r["value"] for r in records(tmp_path / "d", "t")] == ["one", "two", ""]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--topic", "t", "--header", "novalue"), 2, "NAME=VALUE"),
        (("--topic", "t", "--header", "=x"), 2, "NAME=VALUE"),
        (("--topic", "t", "--tag", "A"), 2, "means nothing for a log directory"),
        (("--topic", "t", "--codec", "zlib"), 2, "Kafka has no zlib"),
        (("--topic", "t", "--codec", "zstd", "--as-release", "2.0.1"), 13, "know no zstd"),
        (("--topic", "t", "--codec", "gzip", "--level", "10"), 13, "no level 10"),
        (("--topic", "t", "--codec", "gzip", "--as-release", "0.10.2"), 13, "no record batches"),
        (("--topic", "t", "--level", "3"), 2, "needs --codec"),
        (("--topic", "a b"), 13, "no topic of Kafka"),
        (("--topic", "t", "--key", "a", "--key", "b"), 2, "one key"),
        (("--topic", "t", "--tombstone"), 2, "needs --key"),
        (("--topic", "t", "--compact"), 2, "needs --key"),
        (("--topic", "t", "--damage", "body-flip"), 2, "no damage"),
        ((), 2, "--topic"),
    ],
)
def test_bad_words_are_refused_before_anything_is_made(
    rmqctl: Rmqctl, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    result = rmqctl("produce", tmp_path / "d", "--format", "kafka", *words)
    assert result.exit_code == code, result.stderr
    assert said in result.stderr
    assert not (tmp_path / "d").exists()


def test_partitions_that_would_get_fewer_are_refused(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path, *KAFKA, "--topic", "t", "--partitions", "3")
    before = tree(tmp_path / "t-0")
    result = rmqctl("produce", tmp_path, "--topic", "t", "--partitions", "2")
    assert (result.exit_code, "never loses any" in result.stderr) == (13, True)
    assert tree(tmp_path / "t-0") == before


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", '{"kind":"message"}', '{"kind":"record","topic":"t","key":null}',
     '{"kind":"record","topic":"t","key":1,"value":null}', '{"kind":"record","key":null,"value":null}',
     '{"kind":"record","topic":"t","key":null,"value":null,"headers":{"a":"b"}}',
     '{"kind":"record","topic":"t","key":null,"value":null,"headers":[[null,"b"]]}',
     '{"kind":"record","topic":"t","key":null,"value":null,"partition":-1}',
     '{"kind":"record","topic":"t","key":null,"value":{"base64":"?"}}',
     '{"kind":"record","topic":"t","key":null,"value":null,"colour":"red"}',
     '{"kind":"record","topic":"t","key":null,"value":null,"timestamp":"now"}'],
)  # fmt: skip
def test_bad_objects_are_refused_by_their_line(rmqctl: Rmqctl, tmp_path: Path, line: str) -> None:
    (tmp_path / "in").write_text('{"kind":"batch"}\n' + line + "\n")
    result = rmqctl("produce", tmp_path / "d", "--format", "kafka", "--jsonl", tmp_path / "in")
    assert result.exit_code == 13
    assert "in, line 2" in result.stderr


def test_options_of_kafka_mean_nothing_for_rocketmq(rmqctl: Rmqctl, tmp_path: Path) -> None:
    for words in (("--partitioner", "sticky"), ("--idempotent",), ("--codec", "snappy")):
        result = rmqctl("produce", tmp_path / "d", "--topic", "t", *words)
        assert result.exit_code == 2, words
        assert not (tmp_path / "d").exists()


def test_every_damage_is_found(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rows = [json.loads(x) for x in rmqctl("produce", *KAFKA, "--damage", "list", "-o", "jsonl").stdout.splitlines()]
    assert len(rows) > 20
    words = ("--topic", "t", "--count", "400", "--size", "100", "--log-file-size", "16000", "--batch", "8")
    for row in rows:
        path = tmp_path / row["kind"]
        ending = "abort" if row["kind"] == "txn-index-lost" else "commit"
        result = rmqctl("produce", path, *KAFKA, *words, "--transactional", ending, "--damage", row["kind"])
        assert result.exit_code == 0, (row, result.stderr)
        assert f"damaged on purpose: {row['kind']}: " in result.stderr
        found = [r for r in open_store(str(path)).verify().rows if r is not None and r["kind"] == "finding"]
        assert found or row["kind"] == "marker-lost", row


def test_compacted_topics_keep_the_last_record_of_each_key(rmqctl: Rmqctl, tmp_path: Path) -> None:
    words = ("--topic", "t", "--count", "90", "--compact", "--small")
    for key in ("same", "k{n}"):
        assert rmqctl("produce", tmp_path, *KAFKA, *words, "--key", key).exit_code == 0
    found = records(tmp_path, "t")
    assert [(r["key"], r["offset"]) for r in found[:2]] == [("same", 89), ("k0", 90)]
    assert len(found) == 91
    assert findings(tmp_path) == []
    result = rmqctl("produce", tmp_path, "--topic", "t")
    assert (result.exit_code, "is compacted" in result.stderr) == (13, True)


@pytest.mark.parametrize(
    "options",
    [
        ("--size", "100"),
        ("--size", "100", "--partitions", "3", "--acks-like-batch-size", "1000"),
        ("--body", "order {n} of {n}", "--key", "k{n}", "--header", "h{n}=v{n}", "--small"),
        ("--key", "ключ", "--tombstone", "--batch", "7", "--partitions", "2", "--partitioner", "sticky"),
        ("--partition", "1", "--batch", "1"),
    ],
)
def test_many_at_once_are_the_same_bytes_as_one_batch_after_the_other(
    rmqctl: Rmqctl, tmp_path: Path, options: tuple[str, ...]
) -> None:
    words = (*KAFKA, "--topic", "t", "--count", "2345", *options)
    assert rmqctl("produce", tmp_path / "a", *words).exit_code == 0
    assert rmqctl("produce", tmp_path / "b", *words, "-o", "jsonl").exit_code == 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert findings(tmp_path / "a") == []


def test_places_that_are_no_log_directory_are_left_alone(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path / "logs", *KAFKA, "--topic", "t")
    rmqctl("produce", tmp_path / "store", "--topic", "t", "--small")
    for path in (tmp_path / "logs" / "t-0", tmp_path / "store"):
        before = tree(path)
        result = rmqctl("produce", path, "--format", "kafka", "--topic", "t")
        assert (result.exit_code, "is not a log directory" in result.stderr) == (11, True)
        assert tree(path) == before
    assert rmqctl("produce", tmp_path / "logs" / "t-0", "--topic", "t").exit_code == 11


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_topics_of_brokers_take_no_records(rmqctl: Rmqctl, tmp_path: Path, topic: str) -> None:
    result = rmqctl("produce", tmp_path / "d", *KAFKA, "--topic", topic, "--count", "1", "--key", "k")
    assert result.exit_code == 13
    assert "give another topic" in result.stderr
    assert not (tmp_path / "d").exists()
