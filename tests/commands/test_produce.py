"""`rmqctl produce`: what it writes, what it says, what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from commands import cli

Rmqctl = Callable[..., Result]
CLOCK = ("--start-time", "1700000000000", "--interval", "5ms")


def rows(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "options",
    [
        ("--size", "10-900"),
        ("--body", "order {n}"),
        ("--compress", "--size", "5K"),
        ("--compress", "zstd", "--size", "5K"),
        ("--compress", "lz4", "--compress-over", "100", "--body", "a" * 300),
        ("--batch", "7", "--size", "300"),
        ("--batch", "7", "--as-release", "5.3.3"),
        ("--inner-batch", "--batch", "5"),
        ("--delay-level", "3"),
        ("--delay-level", "99", "--as-release", "4.5.2"),
        ("--delay-level", "1", "--deliver-due"),
        ("--deliver-at", "1700000600000"),
        ("--deliver-at", "1699999999999"),
        ("--transaction", "commit"),
        ("--transaction", "rollback", "--as-release", "4.9.8"),
        ("--transaction", "pending", "--as-release", "5.1.4"),
        ("--flush", "sync"),
        ("--writers", "3", "--size", "100-200"),
        ("--property-crc", "--size", "700"),
        ("--crash", "--size", "200"),
        ("--as-release", "4.5.2", "--size", "300"),
        ("--as-release", "4.9.8", "--batch", "3"),
        ("--as-release", "5.1.4", "--queue-id", "2"),
        ("--store-host", "[2001:db8::1]:10911", "--size", "50"),
        ("--log-file-size", "8K", "--queue-file-size", "200", "--index-slots", "10", "--index-entries", "25"),
    ],
    ids=" ".join,
)
def test_any_options_make_a_store_that_verify_likes(options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = tmp_path / "s"
    keys = ("--key", "k{n}", "--tag", "A=3,B=1", "--property", "p={n}%")
    made = rmqctl("produce", store, "--topic", "T{0..1}", "--count", "400", "--small", *keys, *CLOCK, *options)
    assert made.exit_code == 0, made.output
    assert " messages" in made.stdout
    assert f"rmqctl topics {store}" in made.stdout
    assert rmqctl("verify", store).exit_code == 0


@pytest.mark.parametrize(
    "options", [("--size", "10-900"), ("--batch", "3"), ("--crash",), ("--property-crc",)], ids=" ".join
)
def test_same_seed_same_bytes(options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    for name in ("a", "b"):
        args = ("--topic", "T", "--count", "500", "--seed", "7", "--small", "--key", "k{n}", *CLOCK, *options)
        rmqctl("produce", tmp_path / name, *args)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    rmqctl("produce", tmp_path / "c", "--topic", "T", "--count", "500", "--seed", "8", "--small", *CLOCK, *options)
    assert tree(tmp_path / "a") != tree(tmp_path / "c")


@pytest.mark.parametrize(
    "options", [("--size", "0-700", "--tag", "A=2,B=1,C=1"), ("--size", "300", "--tag", "A"), ("--size", "0")]
)
def test_bulk_and_single_puts_make_the_same_bytes(options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    args = ("--topic", "T{0..2}", "--count", "3000", "--key", "a-{n}-{n}", "--small", *CLOCK)
    args = (*args, *options, "--property", "u={n}%d%s", "--property", "v=w")
    rmqctl("produce", tmp_path / "bulk", *args)
    assert len(rows(rmqctl("produce", tmp_path / "single", *args, "-o", "jsonl"))) == 3000
    assert tree(tmp_path / "bulk") == tree(tmp_path / "single")


@pytest.mark.parametrize("options", [("--size", "700"), ("--size", "0"), ("--body", "same")], ids=" ".join)
def test_bulk_of_messages_without_numbers(options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    args = ("--topic", "T", "--count", "1500", "--small", *CLOCK, *options)
    assert rmqctl("produce", tmp_path / "bulk", *args).exit_code == 0
    assert len(rows(rmqctl("produce", tmp_path / "single", *args, "-o", "jsonl"))) == 1500
    assert tree(tmp_path / "bulk") == tree(tmp_path / "single")


def test_tells_where_each_message_went(rmqctl: Rmqctl, tmp_path: Path) -> None:
    made = rows(rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "10", "--small", "-o", "jsonl"))
    dumped = rows(rmqctl("dump", tmp_path / "s", "-o", "jsonl"))
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "unique_key")
    assert [[m[n] for n in names] for m in made] == [[d[n] for n in names] for d in dumped]
    assert {m["status"] for m in made} == {"PUT_OK"}


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_bodies_of_a_compressed_inner_batch(codec: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    kinds = ("--inner-batch", "--batch", "2", "--compress", codec, "--compress-over", "100")
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "4", "--small", "--body", "b{n}" * 60, *kinds)
    found = rows(rmqctl("dump", tmp_path / "s", "--body", "-o", "jsonl"))
    assert [row["compression"] for row in found] == [codec] * 2
    assert [part["body"] for row in found for part in row["inner"]] == [f"b{n}" * 60 for n in range(4)]


def test_what_was_dumped_can_be_produced_again(rmqctl: Rmqctl, golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = golden("4.9.8-clean")
    lines = tmp_path / "dump.jsonl"
    lines.write_text(rmqctl("dump", source, "--body", "-o", "jsonl").stdout)
    args = ("--log-file-size", "131072", "--queue-file-size", "1000", "--as-release", "4.9.8")
    assert rmqctl("produce", tmp_path / "copy", "--jsonl", lines, *args).exit_code == 0
    again = rows(rmqctl("dump", tmp_path / "copy", "--body", "-o", "jsonl"))
    strip = {"file", "position", "physical_offset", "size", "body_crc", "body_size", "message_id", "properties"}
    kept = [{k: v for k, v in row.items() if k not in strip} for row in again if row["kind"] == "message"]
    wanted = [{k: v for k, v in json.loads(line).items() if k not in strip} for line in lines.read_text().splitlines()]
    assert kept == [row for row in wanted if row["kind"] == "message"]


def many_lines(rmqctl: Rmqctl, tmp_path: Path) -> Path:
    lines = tmp_path / "lines"
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "1500", "--small", *CLOCK, "--interval", "1s")
    lines.write_text(rmqctl("dump", tmp_path / "s", "--body", "-o", "jsonl").stdout)
    return lines


@pytest.mark.parametrize("how", [(), ("--batch", "3"), ("--flush", "sync")], ids=str)
def test_several_writers_keep_the_store_times_of_objects(how: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    lines = many_lines(rmqctl, tmp_path)
    rmqctl("produce", tmp_path / "c", "--small", "--jsonl", lines, "--writers", "8", *how)
    assert "nothing wrong" in rmqctl("verify", tmp_path / "c").stdout


@pytest.mark.parametrize("time", [-(1 << 63), -5, (1 << 63) - 1])
def test_store_times_that_no_clock_shows(time: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(json.dumps({"topic": "T", "body": "x", "keys": ["k"], "store_timestamp": time}))
    small = ("--small", "--index-slots", "10", "--index-entries", "3")
    for _ in range(3):
        assert rmqctl("produce", tmp_path / "s", "--jsonl", lines, *small).exit_code == 0
    assert rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "9", "--key", "k{n}", *small).exit_code == 0
    assert rmqctl("verify", tmp_path / "s").exit_code in (0, 1)
    assert all(len(path.name) == 17 for path in (tmp_path / "s" / "index").iterdir())


def test_light_queues_of_a_delayed_message(rmqctl: Rmqctl, tmp_path: Path) -> None:
    args = ("produce", tmp_path / "s", "--small", "--start-time", "1700000000000")
    rmqctl(*args, "--topic", "T", "--delay-level", "1", "--property", "INNER_MULTI_DISPATCH=%LMQ%a")
    rmqctl("produce", tmp_path / "s", "--deliver-due")
    assert "FOUND" in rmqctl("query-offset", tmp_path / "s", "%LMQ%a/0", "0").output
    assert rmqctl("verify", tmp_path / "s").exit_code == 0


def test_queue_and_batches_of_objects(rmqctl: Rmqctl, tmp_path: Path) -> None:
    lines = many_lines(rmqctl, tmp_path)
    rmqctl("produce", tmp_path / "c", "--small", "--jsonl", lines, "--queue-id", "2")
    assert {row["queue_id"] for row in rows(rmqctl("dump", tmp_path / "c", "-o", "jsonl")) if "topic" in row} == {2}
    made = rmqctl("produce", tmp_path / "b", "--small", "--jsonl", lines, "--inner-batch", "--batch", "5")
    assert made.exit_code == 0, made.stderr
    assert (
        sum(json.loads(t)["messages"] for t in rmqctl("topics", tmp_path / "b", "-o", "jsonl").stdout.splitlines())
        == 1500
    )


def test_lines_of_standard_input(tmp_path: Path) -> None:
    args = [
        "produce",
        str(tmp_path / "s"),
        "--topic",
        "Log",
        "--lines",
        "-",
        "--queue-id",
        "0",
        "--small",
        "-o",
        "json",
    ]
    made = CliRunner().invoke(cli, args, input=b"one\r\ntwo\n\nfo\xffur\n")
    assert made.exit_code == 0
    dump = CliRunner().invoke(cli, ["dump", str(tmp_path / "s"), "--body", "-o", "json"])
    assert [row["body"] for row in json.loads(dump.stdout)] == ["one", "two", "", {"base64": "Zm//dXI="}]


BAD_LINES = {
    "no json": ("{nope", "line 2: not JSON"),
    "no object": ("[1]", "line 2: not a JSON object"),
    "no body": ('{"topic":"T"}', "line 2, field body: is missing"),
    "bad base64": ('{"topic":"T","body":{"base64":"%"}}', "line 2, field body: is not base64"),
    "bad number": ('{"topic":"T","body":"","queue_id":"x"}', "line 2, field queue_id: not a whole number"),
    "bad host": ('{"topic":"T","body":"","born_host":"x"}', "line 2, field born_host: not an address"),
    "bad properties": ('{"topic":"T","body":"","properties":{"a":1}}', "line 2, field properties.a"),
    "bad topic": ('{"topic":"a b","body":""}', "illegal characters"),
    "no topic": ('{"body":""}', "line 2, field topic: is missing"),
    "too large": ('{"topic":"T","body":"' + "x" * 40000 + '"}', "body size exceeded"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_named_and_the_store_stays_sound(case: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    line, words = BAD_LINES[case]
    file = tmp_path / "lines.jsonl"
    file.write_text('{"topic":"T","body":"fine"}\n' + line + "\n")
    made = rmqctl("produce", tmp_path / "s", "--jsonl", file, "--small")
    assert made.exit_code == 13
    assert words in made.stderr
    assert rmqctl("verify", tmp_path / "s").exit_code == 0
    assert len(rows(rmqctl("dump", tmp_path / "s", "-o", "jsonl"))) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--count", "1"), "--topic"),
        (("--topic", "T", "--body", "x", "--size", "10"), "--size"),
        (("--topic", "T", "--queues", "2", "--queue-id", "1"), "--queue-id"),
        (("--topic", "T", "--interval", "5ms"), "--start-time"),
        (("--topic", "T", "--size", "9-3"), "larger size"),
        (("--topic", "T", "--tag", "A=x"), "weight"),
        (("--topic", "T", "--store-host", "nowhere"), "--store-host"),
    ],
)
def test_wrong_usage(args: tuple[str, ...], words: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    result = rmqctl("produce", tmp_path / "s", *args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "s").exists()


def test_other_directories_and_sizes_are_refused(rmqctl: Rmqctl, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    assert rmqctl("produce", tmp_path, "--topic", "T").exit_code == 11
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--small")
    assert rmqctl("produce", tmp_path / "s", "--topic", "T", "--log-file-size", "1M").exit_code == 13
    assert rmqctl("produce", tmp_path / "s", "--topic", "a b").exit_code == 13
    assert rmqctl("produce", tmp_path / "s", "--topic", "T").exit_code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(rmqctl: Rmqctl, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(mode=0o500)
    assert rmqctl("produce", tmp_path / "s", "--topic", "T").exit_code == 10


def test_a_crashed_store_is_recovered_first(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "300", "--small", "--crash")
    assert (tmp_path / "s" / "abort").exists()
    made = rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", "5")
    assert made.exit_code == 0
    assert "rmqctl undo" in made.stderr
    assert rmqctl("verify", tmp_path / "s").exit_code == 0
    assert len(rows(rmqctl("dump", tmp_path / "s", "--topic", "T", "-o", "jsonl"))) == 305


@pytest.mark.parametrize("start", ["1700000000000", "1600000000000"], ids=["same time", "set back"])
def test_a_crashed_store_goes_on_under_the_same_clock(start: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    small = ("--small", "--index-slots", "10", "--index-entries", "25")
    args = ("--topic", "T", "--count", "600", "--key", "k{n}", *small)
    rmqctl("produce", tmp_path / "s", *args, *CLOCK, "--crash")
    made = rmqctl("produce", tmp_path / "s", *args, "--start-time", start)
    assert made.exit_code == 0, made.output
    for key in ("k7", "k599"):
        assert len(rows(rmqctl("query-key", tmp_path / "s", "T", key, "-o", "jsonl"))) == 2


@pytest.mark.parametrize("release", ["4.7.1", "5.5.0"])
def test_a_crash_leaves_the_checkpoint_of_the_stop_before(release: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    args = ("produce", tmp_path / "s", "--topic", "T", "--small", "--as-release", release)
    rmqctl(*args, "--count", "100")
    before = (tmp_path / "s" / "checkpoint").read_bytes()
    for count in ("0", "1"):
        rmqctl(*args, "--count", count, "--crash")
        assert (tmp_path / "s" / "checkpoint").read_bytes()[:16] >= before[:16]
        assert "checkpoint.zero" not in rmqctl("verify", tmp_path / "s").stdout


@pytest.mark.parametrize("how", [(), ("-o", "jsonl"), ("--batch", "3"), ("--transaction", "commit")], ids=str)
def test_store_times_never_go_back(how: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    store, ahead = tmp_path / "s", "2100-01-01T00:00:00Z"
    args = ("produce", store, "--topic", "T", "--key", "k{n}", "--count", "30", "--small", *how)
    assert rmqctl(*args, "--start-time", ahead, "--interval", "1s").exit_code == 0
    for start in ((), *[("--start-time", ahead, "--interval", "2s")] * 2, ()):
        made = rmqctl(*args, *start)
        assert made.exit_code == 0
        assert "store times go on after 2100-01-01T00:" in made.stderr
    found = rows(rmqctl("dump", store, "-o", "jsonl"))
    times = [row["store_timestamp"] for row in found if row["kind"] == "message"]
    assert times == sorted(times)
    keys = [row["unique_key"] for row in found if row.get("topic") == "T"]
    assert len(set(keys)) == len(keys)
    assert "nothing wrong" in rmqctl("verify", store).stdout


@pytest.mark.parametrize("key", ["k26", "k62", "k114"])
def test_sizes_of_an_index_with_one_entry_in_its_first_slot(key: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    line = tmp_path / "line"
    line.write_text(json.dumps({"topic": "T", "body": "x", "keys": [key]}))
    rmqctl("produce", tmp_path / "s", "--jsonl", line, "--small", "--index-slots", "40")
    found = json.loads(rmqctl("info", tmp_path / "s", "-o", "json").stdout)["geometry"]
    assert (found["index_slots"], found["index_entries"]) == (40, 1000)
    assert rmqctl("verify", tmp_path / "s").exit_code == 0


def test_too_little_room_is_refused_before_anything_is_written(rmqctl: Rmqctl, tmp_path: Path) -> None:
    made = rmqctl("produce", tmp_path / "s", "--topic", "T", "--count", 10**9, "--size", "3M")
    assert made.exit_code == 13
    assert "are free" in made.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("field", "value"), [("topic", '"\\ud800"'), ("queue_id", "-1"), ("keys", "5"), ("keys", '"order1"')]
)
def test_fields_that_no_record_can_have(rmqctl: Rmqctl, tmp_path: Path, field: str, value: str) -> None:
    sound = '{"topic": "T", "body": "x", "properties": {"a\\ud800": "\\ud800"}}\n'
    lines = tmp_path / "lines"
    wrong = f'{{"topic": "T", "body": "x", "{field}": {value}}}'
    lines.write_text(sound + wrong + "\n")
    result = rmqctl("produce", tmp_path / "store", "--jsonl", lines, "--small")
    assert result.exit_code == 13
    assert f"line 2, field {field}: " in result.stderr
    assert len(rmqctl("dump", tmp_path / "store", "-o", "jsonl").stdout.splitlines()) == 1
