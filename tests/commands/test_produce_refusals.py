"""What `rmqctl produce` refuses: by line and field, before anything of it is written, with a sound store behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Rmqctl = Callable[..., Result]
FINE = '{"topic":"T","body":"fine"}'


def rows(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def message(**fields: object) -> str:
    return json.dumps({"topic": "T", "body": "x", **fields})


BY_BROKER = {
    "illegal topic": (message(topic="a b"), "topic: MESSAGE_ILLEGAL"),
    "long topic": (message(topic="t" * 128), "topic: MESSAGE_ILLEGAL"),
    "large body": (message(body="x" * 40_000), "body: MESSAGE_ILLEGAL"),
    "large properties": (message(properties={"p": "x" * 32_770}), "properties: PROPERTIES_SIZE_EXCEEDED"),
    "count without batch": (message(properties={"INNER_NUM": "2"}), "properties.INNER_NUM: MESSAGE_ILLEGAL"),
    "separator in a name": (message(properties={"a\x01b": "c"}), r"properties.a\x01b: has a separator"),
    "separator in a value": (message(properties={"a": "b\x02c"}), "properties.a: has a separator"),
    "empty value": (message(properties={"a": ""}), "properties.a: name or value is empty"),
    "separator in a tag": (message(tags="a\x02"), "tags: has the separator"),
    "blank in a key": (message(keys=["a b"]), "keys: 'a b' is empty or has a blank"),
    "separator in a key": (message(keys=["a\x02b"]), "keys: has the separator"),
}
LIGHT = {
    "path": "%LMQ%../../../elsewhere",
    "twice": "%LMQ%a,%LMQ%a",
    "none": "%LMQ%a,,%LMQ%b",
    "blank": "a b",
}
BY_FIELD = {
    "inner of a plain record": (message(inner=[]), "inner: but sys_flag has no 0x80"),
    "inner that is a number": (message(inner=5), "inner: not a list"),
    "unknown": (message(delayLevel=3), "delayLevel: is no field of a message"),
    "misspelt": (message(tag="a"), "tag: is no field of a message"),
    "kind": (message(kind="letter"), "kind: is 'letter'"),
    "queue unit": ('{"kind":"queue_unit","topic":"T"}', "kind: is 'queue_unit'"),
    "a list for a kind": (message(kind=[]), "kind: is []"),
    "shown, of another type": (message(size="12"), "size: not a whole number"),
    "a flag of another type": (message(body_crc_ok=1), "body_crc_ok: not true or false"),
    "cut body": (message(body_truncated=True), "body_truncated: the body is not whole"),
    "transaction": (message(transaction="commit"), "transaction: is 'commit', but sys_flag says 'none'"),
    "other keys": (message(keys=["a"], properties={"KEYS": "b"}), "keys: differ"),
    "other tags": (message(tags="a", properties={"TAGS": "b"}), "tags: differs"),
    "queue": (message(queue_id=65_536), "queue_id: is above 65535"),
    "two forms": (message(body={"base64": "", "x": 1}), "body: neither text nor"),
}


@pytest.mark.parametrize("options", [(), ("--batch", "2"), ("--writers", "2"), ("--flush", "sync")], ids=" ".join)
@pytest.mark.parametrize("case", BY_BROKER)
def test_a_line_that_a_broker_refuses(case: str, options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    line, words = BY_BROKER[case]
    refused(line, words, options, rmqctl, tmp_path)


@pytest.mark.parametrize("case", BY_FIELD)
def test_a_field_that_no_message_has(case: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    line, words = BY_FIELD[case]
    refused(line, words, (), rmqctl, tmp_path)


def refused(line: str, words: str, options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    file, store = tmp_path / "lines.jsonl", tmp_path / "s"
    file.write_text(f"{FINE}\n\n{line}\n{FINE}\n")
    made = rmqctl("produce", store, "--jsonl", file, "--small", *options)
    assert made.exit_code == 13, made.output
    assert f"{file}, line 3, field {words}" in made.stderr
    assert "nothing of this line was written" in made.stderr
    assert rmqctl("verify", store).exit_code == 0
    dumped = rows(rmqctl("dump", store, "--body", "-o", "jsonl"))
    assert [row["body"] for row in dumped] == ["fine"] * len(dumped)
    topics = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"] if dumped else {"T": 0}
    assert list(topics) == ["T"]


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
@pytest.mark.parametrize("case", LIGHT)
def test_light_queues_of_no_name(case: str, release: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    line = message(properties={"INNER_MULTI_DISPATCH": LIGHT[case]})
    words = "properties.INNER_MULTI_DISPATCH: MESSAGE_ILLEGAL"
    refused(line, words, ("--as-release", release), rmqctl, tmp_path)


@pytest.mark.parametrize("release", ["4.9.8", "5.1.4", "5.5.0"])
def test_further_queues(release: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    names = ("--property", "INNER_MULTI_DISPATCH=%LMQ%a,other")
    made = rmqctl("produce", tmp_path / "s", "--topic", "T", "--small", "--as-release", release, *names)
    assert made.exit_code == (13 if release == "5.5.0" else 0), made.output
    if made.exit_code:
        assert "no light queue" in made.stderr
        return
    verified = rmqctl("verify", tmp_path / "s")
    assert verified.exit_code == 0, verified.output
    assert (tmp_path / "s" / "consumequeue" / "%LMQ%a" / "0").is_dir()


def test_an_only_line_that_is_refused_leaves_a_sound_store(rmqctl: Rmqctl, tmp_path: Path) -> None:
    file, store = tmp_path / "lines.jsonl", tmp_path / "s"
    file.write_text(message(topic="a b"))
    assert rmqctl("produce", store, "--jsonl", file, "--small").exit_code == 13
    assert rmqctl("verify", store).exit_code == 0
    assert rmqctl("recover", store, "-o", "json").exit_code == 0
    assert rmqctl("produce", store, "--topic", "T", "--small").exit_code == 0


def test_a_line_of_a_file_that_is_too_long(rmqctl: Rmqctl, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\n" + b"x" * 40_000 + b"\n")
    made = rmqctl("produce", tmp_path / "s", "--topic", "T", "--lines", file, "--small")
    assert made.exit_code == 13
    assert f"{file}, line 2, field body: MESSAGE_ILLEGAL" in made.stderr


def test_a_codec_that_the_release_does_not_know(rmqctl: Rmqctl, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(FINE + "\n" + message(compression="zstd"))
    made = rmqctl("produce", tmp_path / "s", "--jsonl", file, "--small", "--as-release", "4.9.3")
    assert made.exit_code == 13
    assert "line 2, field compression: " in made.stderr


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (("--topic", "T", "--damage", "nope"), "--damage list", 2),
        (("--topic", "T", "--damage", "body-flp"), "(did you mean body-flip", 2),
        (("--damage", "body-flip"), "no store is at", 13),
        (("--deliver-due",), "no store is at", 13),
        (("--format", "kafka", "--damage", "crc-flip"), "no store is at", 13),
        (("--topic", "T", "--damage", "body-flip@x"), "no place", 2),
        (("--topic", "T", "--damage", "body-flip@"), "no place", 2),
        (("--topic", "T", "--damage", "body-flip@5%%"), "no place", 2),
        (("--topic", "T", "--damage", "checkpoint-zero@3"), "whole store", 2),
        (("--topic", "T", "--damage", "body-flip", "--damage", "nope"), "--damage list", 2),
        (("--topic", "T{0..99999999}"), "100,000,000 topics, at most 10,000", 2),
        (("--topic", "T{0..99}{0..99}", "--topic", "U"), "10,001 topics", 2),
        (("--topic", "T{5..2}"), "names no topic", 2),
        (("--topic", "T", "--key", "a b"), "--key", 2),
        (("--topic", "T", "--key", ""), "--key", 2),
        (("--topic", "T", "--key", "a\x02"), "separator", 2),
        (("--topic", "T", "--tag", "a\x01"), "separator", 2),
        (("--topic", "T", "--tag", "a=inf"), "weight", 2),
        (("--topic", "T", "--property", "a\x01b=c"), "separator", 2),
        (("--topic", "T", "--property", "a="), "empty value", 2),
        (("--topic", "T", "--property", "__CRC32#=1234567890"), "--property-crc", 2),
        (("--topic", "a b"), "illegal characters", 13),
        (("--topic", "T", "--body", "x" * 40_000), "body size exceeded", 13),
        (("--topic", "T", "--store-host", "[::1]:1", "--as-release", "4.5.2"), "IPv6", 13),
        (("--topic", "T", "--start-time", "9223372036854775807"), "between 1970 and 9999", 2),
        (("--topic", "T", "--start-time", "1", "--interval", "1000h", "--count", "99999999999"), "1970", 2),
        (("--topic", "T", "--log-file-size", "3G"), "1 to 2,147,483,647", 13),
        (("--topic", "T", "--log-file-size", "9223372036854775807"), "1 to 2,147,483,647", 13),
        (("--topic", "T", "--queue-file-size", "0"), "1 to 2,147,483,647", 13),
        (("--topic", "T", "--index-entries", "2147483647"), "index file of", 13),
        (("--topic", "T", "--deliver-at", "1700000000000", "--as-release", "4.9.8"), "no timer", 13),
        (
            ("--topic", "T", "--property", "INNER_MULTI_DISPATCH=%LMQ%a", "--as-release", "4.9.2"),
            "4.9.2 have no light queues",
            13,
        ),
        (("--jsonl", "-", "--key", "k"), "whose objects say it themselves", 2),
        (("--jsonl", "-", "--tag", "k"), "--tag", 2),
        (("--jsonl", "-", "--delay-level", "1"), "--delay-level", 2),
        (("--topic", "T", "--size", "5M"), "body size exceeded", 13),
        (("--topic", "T", "--batch", "2", "--property", "DELAY=2"), "plain messages only", 2),
        (("--topic", "T", "--inner-batch", "--delay-level", "2"), "plain messages only", 2),
        (("--topic", "T", "--inner-batch", "--transaction", "commit"), "plain messages only", 2),
        (("--topic", "T", "--topic", "%RETRY%g", "--batch", "2"), "not for retry topics", 2),
        (("--topic", "T", "--transaction", "commit", "--delay-level", "2"), "go with a delay", 2),
        (("--topic", "T", "--delay-level", "2", "--deliver-at", "2100-01-01T00:00:00Z"), "--deliver-at", 2),
    ],
    ids=str,
)
def test_refused_before_anything_is_written(
    args: tuple[str, ...], words: str, code: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    made = rmqctl("produce", tmp_path / "s", "--small", *args)
    assert made.exit_code == code, made.output
    assert words in " ".join(made.stderr.split())
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("size", ["7", "33", "1999"])
def test_queue_files_hold_whole_units(size: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    for _ in range(2):
        args = ("--topic", "T", "--count", "300", "--queue-id", "0", "--small", "--queue-file-size", size)
        made = rmqctl("produce", tmp_path / "s", *args)
        assert made.exit_code == 0, made.output
    assert rmqctl("verify", tmp_path / "s").exit_code == 0
    files = list((tmp_path / "s" / "consumequeue" / "T" / "0").iterdir())
    assert {path.stat().st_size for path in files} == {-(-int(size) // 20) * 20}


def test_a_path_of_the_log_that_is_named_twice(rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = tmp_path / "s"
    paths = ",".join([str(store / "commitlog-a"), str(store / "commitlog-b"), str(store / "commitlog-a")])
    for _ in range(2):
        args = ("--topic", "T", "--count", "900", "--small", "--commitlog", paths)
        assert rmqctl("produce", store, *args).exit_code == 0
    assert rmqctl("verify", store).exit_code == 0
    assert rmqctl("dump", store, "-o", "jsonl").stdout.count('"kind":"message"') == 1800


def test_the_limit_of_topics_is_in_the_help(rmqctl: Rmqctl) -> None:
    assert "at most 10,000" in " ".join(rmqctl("produce", "--help").stdout.split())


def test_as_many_topics_as_may_be(rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = tmp_path / "s"
    args = ("--topic", "T{0..9999}", "--count", "100", "--small", "--queues", "1")
    assert rmqctl("produce", store, *args).exit_code == 0
    assert len(json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]) == 10_000


@pytest.mark.parametrize(
    "options",
    [
        ("--inner-batch", "--batch", "3"),
        ("--transaction", "commit"),
        ("--delay-level", "2"),
        ("--property-crc",),
        ("--property", "INNER_MULTI_DISPATCH=%LMQ%a,%LMQ%b"),
        ("--as-release", "4.9.8"),
    ],
    ids=" ".join,
)
def test_a_dumped_store_is_the_same_again(options: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    crc = tuple(o for o in options if o in ("--property-crc", "--as-release", "4.9.8"))
    store, copy, lines = tmp_path / "a", tmp_path / "b", tmp_path / "lines.jsonl"
    rmqctl("produce", store, "--topic", "T", "--count", "9", "--small", "--key", "k{n}", "--tag", "a", *options)
    lines.write_text(rmqctl("dump", store, "--body", "-o", "jsonl").stdout)
    made = rmqctl("produce", copy, "--jsonl", lines, "--small", *crc)
    assert made.exit_code == 0, made.output
    assert rmqctl("diff", store, copy).stdout.endswith("A and B are equal\n")
    assert rmqctl("verify", copy).exit_code == 0


@pytest.mark.parametrize(
    "how", [(), ("--batch", "2"), ("-o", "jsonl"), ("--writers", "2"), ("--flush", "sync")], ids=str
)
def test_a_plain_message_for_batch_queues(how: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = tmp_path / "s"
    rmqctl("produce", store, "--topic", "T", "--inner-batch", "--batch", "3", "--count", "6", "--small")
    assert rmqctl("produce", store, "--topic", "T", *how).exit_code == 0
    line = tmp_path / "line"
    line.write_text('{"topic": "T", "body": "x"}\n')
    assert rmqctl("produce", store, "--jsonl", line).exit_code == 0
    assert rmqctl("produce", store, "--jsonl", line, "--inner-batch").exit_code == 0
    assert rmqctl("verify", store).exit_code == 0
    found = json.loads(rmqctl("recover", store, "-o", "json").stdout)
    count = json.loads(rmqctl("verify", store, "-o", "json").stdout)["summary"]["messages"]
    assert sum(queue["max_offset"] for queue in found["queues"].values()) == count >= 9
    assert found["undispatched"]["messages"] == 0


def test_an_inner_batch_in_an_inner_batch(rmqctl: Rmqctl, tmp_path: Path) -> None:
    rmqctl("produce", tmp_path / "s", "--topic", "T", "--inner-batch", "--batch", "3", "--count", "6", "--small")
    lines = tmp_path / "lines"
    lines.write_text(rmqctl("dump", tmp_path / "s", "--body", "-o", "jsonl").stdout)
    made = rmqctl("produce", tmp_path / "c", "--jsonl", lines, "--inner-batch", "--small")
    assert made.exit_code == 13
    assert "line 1, field sys_flag: MESSAGE_ILLEGAL: is an inner batch already" in made.stderr


def test_further_queues_that_an_old_broker_does_not_know(rmqctl: Rmqctl, tmp_path: Path) -> None:
    line = tmp_path / "line"
    line.write_text(json.dumps({"topic": "T", "body": "x", "properties": {"INNER_MULTI_DISPATCH": "%LMQ%a,b/c"}}))
    assert rmqctl("produce", tmp_path / "s", "--small", "--jsonl", line, "--as-release", "4.7.1").exit_code == 0
    assert json.loads(rmqctl("dump", tmp_path / "s", "-o", "jsonl").stdout)["properties"] == {
        "INNER_MULTI_DISPATCH": "%LMQ%a,b/c"
    }
    assert rmqctl("verify", tmp_path / "s", "--as-release", "4.7.1").exit_code == 0


@pytest.mark.parametrize("words", [("--body", ""), ("--size", "0-20")])
def test_no_body_for_a_release_whose_consumers_fail_on_it(
    words: tuple[str, str], rmqctl: Rmqctl, tmp_path: Path
) -> None:
    asked = ("produce", tmp_path / "store", "--topic", "T", "--small", *words)
    result = rmqctl(*asked, "--as-release", "4.9.8")
    assert result.exit_code != 0
    assert "5.3.2" in result.stderr
    assert not (tmp_path / "store").exists()
    assert rmqctl(*asked, "--as-release", "5.5.0").exit_code == 0


@pytest.mark.parametrize(("release", "warns"), [("4.9.8", True), ("5.5.0", False)])
@pytest.mark.parametrize("option", ["--lines", "--jsonl"])
def test_empty_bodies_that_come_in_are_said(
    option: str, release: str, warns: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    texts = ["a", "", "b"]
    lines = texts if option == "--lines" else [json.dumps({"topic": "T", "body": text}) for text in texts]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    asked = ("--topic", "T", "--small", option, tmp_path / "in", "--as-release", release)
    result = rmqctl("produce", tmp_path / "store", *asked)
    assert result.exit_code == 0
    assert ("1 message without a body" in result.stderr) == warns


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--as-release", "3.2.6"), 13, "stores of 3.2.6 are only read"),
        (("--as-release", "3.2.5"), 2, "of that series only 3.2.6 is known here"),
        (("--as-release", "4.9.9"), 2, "the newest of that series that is known here is 4.9.8"),
        (("--format", "kafka", "--as-release", "3.2.9"), 2, "3.2.9 is no release of Kafka"),
    ],
)
def test_releases_as_which_nothing_is_written(
    options: tuple[str, ...], status: int, words: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """What would be written as 3.2.6 would have files that no 3.2.6 broker makes, and be taken for a later release."""
    refused = rmqctl("produce", tmp_path / "s", "--topic", "T", *options)
    assert (refused.exit_code, words in refused.stderr) == (status, True), refused.stderr
    assert not (tmp_path / "s").exists()
