"""Stores made by ``rmqctl produce`` under released classes: loaded whole, read, asked, written on, taken over again: needs Maven."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.rocketmq.engine import Message, StoreEngine
from tests.interop.compare import Answers, dumped, geometry, ranges
from tests.interop.conftest import Judges
from tests.interop.judge import Judge, has_java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
KEYED = (
    "--key",
    "order-{n}",
    "--key",
    "ключ-{n}",
    "--tag",
    "TagA=3,TagB=1",
    "--property",
    "ünï=✓",
    "--property",
    "a=b",
)
CASES: dict[str, tuple[str, ...]] = {
    "plain": ("--topic", "Orders", "--count", "700", "--size", "10-1500", "--small", *KEYED),
    "crash": ("--topic", "Orders", "--count", "700", "--size", "10-1500", "--small", "--crash", *KEYED),
    "one key": ("--topic", "Orders", "--count", "300", "--body", "x", "--key", "same", "--key", "AaAa", "--small"),
    "rolled index": ("--topic", "Or{0..4}", "--count", "900", "--body", "b {n}", "--small", "--index-slots", "50", "--index-entries", "100", *KEYED),
    "zlib": ("--topic", "Zip", "--count", "60", "--body", "abc " * 700, "--compress", "zlib", "--compress-over", "100", "--small", *KEYED),
    "batch": ("--topic", "Batch", "--count", "500", "--size", "10-300", "--batch", "16", "--small", *KEYED),
    "batch crash": ("--topic", "Batch", "--count", "500", "--size", "10-300", "--batch", "16", "--small", "--crash", *KEYED),
    "delayed": ("--topic", "Late", "--count", "100", "--body", "later {n}", "--delay-level", "3", "--small", *KEYED),
    "committed": ("--topic", "Tx", "--count", "80", "--body", "tx {n}", "--transaction", "commit", "--small", *KEYED),
    "rolled back": ("--topic", "Tx", "--count", "80", "--body", "tx {n}", "--transaction", "rollback", "--small", *KEYED),
    "pending": ("--topic", "Tx", "--count", "80", "--body", "tx {n}", "--transaction", "pending", "--small", *KEYED),
    "writers": ("--topic", "W", "--count", "400", "--size", "10-300", "--writers", "8", "--flush", "sync", "--small", *KEYED),
    "made-up times": ("--topic", "T", "--count", "300", "--body", "t", "--small", "--start-time", "2026-11-01T00:00:00Z", "--interval", "700ms", *KEYED),
    "broker's sizes": ("--topic", "Big", "--count", "50", "--size", "100-9000", *KEYED),
}  # fmt: skip
ONLY_5: dict[str, tuple[str, ...]] = {
    "lz4": ("--topic", "Zip", "--count", "60", "--body", "abc " * 700, "--compress", "lz4", "--compress-over", "100", "--small"),
    "zstd": ("--topic", "Zip", "--count", "60", "--body", "abc " * 700, "--compress", "zstd", "--compress-over", "100", "--small"),
    "long topic": ("--topic", "L" * 200, "--count", "60", "--body", "v2 {n}", "--small", *KEYED),
    "property crc": ("--topic", "Crc", "--count", "200", "--size", "10-900", "--property-crc", "--small", *KEYED),
    "timer": ("--topic", "Timed", "--count", "50", "--body", "x {n}", "--deliver-at", "2030-01-01T00:00:00Z", "--small", *KEYED),
    "inner batch": ("--topic", "Inner", "--count", "200", "--body", "x {n}", "--batch", "8", "--inner-batch", "--small", *KEYED),
}  # fmt: skip
WHERE = {"property crc": ["enabledAppendPropCRC=true"], "long topic": ["enableMessageVersionV2=true"]}


def wanted() -> list[tuple[str, str, str]]:
    """Case, release that the store is of, release that opens it."""
    both = [(name, release, release) for name in CASES for release in ("4.9.8", "5.5.0")]
    newer = [(name, "4.9.8", "5.5.0") for name in ("plain", "crash", "batch", "committed")]
    return both + newer + [(name, "5.5.0", "5.5.0") for name in ONLY_5]


@pytest.mark.parametrize(("case", "written", "release"), wanted(), ids=lambda v: str(v).replace(" ", "-"))
def test_a_produced_store(
    case: str, written: str, release: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]
) -> None:
    root = tmp_path / "store"
    result = rmqctl("produce", root, "--as-release", written, *(CASES.get(case) or ONLY_5[case]))
    assert result.exit_code == 0, result.output
    settings = geometry(root) + WHERE.get(case, [])
    judge = judges(release)
    before = dumped(rmqctl, root)
    expected = ranges(root)
    questions = random_questions(before, release)
    with Answers(root, release).opened() as answers:
        ours = [getattr(answers, command)(*words) for command, words in questions]
    check_opened(judge.ask("s", "open", root, *settings), before, expected)
    check_read(judge, before)
    assert [(q, judge.ask("s", q[0], *q[1])) for q in questions] == list(zip(questions, ours, strict=True))
    put = judge.ask("s", "put", "FromJava", 3, 50, "j")
    assert judge.ask("s", "stop", root)
    go_on(root, case)
    after = dumped(rmqctl, root)
    assert {p: m for p, m in after.items() if p in before} == before
    assert [p for p, _ in put] == [p for p in after if after[p]["topic"] == "FromJava"]
    assert len(after) == len(before) + 50 + 20
    check_verified(rmqctl, root)
    check_opened(judge.ask("s", "open", root, *settings), after, ranges(root))
    check_read(judge, after)
    assert judge.ask("s", "stop", root)
    check_verified(rmqctl, root)


def go_on(root: Path, case: str) -> None:
    """The engine opens what the classes left and puts 20 messages."""
    with StoreEngine.open(root) as engine:
        assert engine.recovered is None
        for n in range(20):
            engine.put(Message("FromEngine", b"body %d" % n, n % 2, {"KEYS": f"engine-{n}", "TAGS": "TagE"}))


def check_verified(rmqctl: Callable[..., Any], root: Path) -> None:
    """Nothing is found but the topic that the classes were given without a broker, which would have written topics.json."""
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    findings = [row for row in rows if row.get("severity") in ("warning", "error")]
    assert [f for f in findings if (f["id"], f["file"]) != ("queue.orphan", "consumequeue/FromJava")] == []


def check_opened(opened: dict[str, Any], messages: dict[int, Any], expected: dict[str, list[int]]) -> None:
    """It loads, nothing is cut, and every queue has the offsets that ``rmqctl topics`` shows."""
    end = max(p + m["size"] for p, m in messages.items())
    assert opened["afterLoad"]["minPhy"] == opened["afterStart"]["minPhy"] == min(messages)
    assert opened["afterLoad"]["maxPhy"] == opened["afterStart"]["maxPhy"] == end
    assert {q: r for q, r in opened["afterStart"]["queues"].items() if r[1]} == {
        q: r for q, r in expected.items() if r[1]
    }


def check_read(judge: Judge, messages: dict[int, dict[str, Any]]) -> None:
    """Every message of every queue is the one that ``rmqctl dump`` shows."""
    read = judge.ask("s", "read")
    assert read["odd"] == []
    found = {message["physical"]: message for message in read["messages"]}
    assert found == messages


def random_questions(messages: dict[int, dict[str, Any]], release: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Keys, times and offsets; in the store, beside it and outside."""
    rng = random.Random(1)
    times = sorted({m["stored"] for m in messages.values()})
    found: list[tuple[str, tuple[Any, ...]]] = []
    for message in rng.choices(list(messages.values()), k=60):
        keys = message["properties"].get("KEYS", "nothing").split(" ")
        key = rng.choice([*keys, message["properties"].get("UNIQ_KEY", "x"), "none", "BBBB"])
        begin, end = rng.choice(((0, 2**62), (times[0], times[-1]), (message["stored"], message["stored"] + 1000)))
        found.append(("key", (message["topic"], key, rng.choice((1, 32, 64)), begin, end)))
        time = rng.choice((message["stored"], message["stored"] + 1, times[0] - 1, times[-1] + 1, 0))
        sides = ("", "LOWER", "UPPER") if release >= "5" else ("",)
        found.append(("time", (message["topic"], message["queue"], time, rng.choice(sides))))
        offset = rng.choice((message["offset"], 0, 10**6, -1, message["offset"] + 1))
        found.append(("get", (message["topic"], message["queue"], offset, rng.choice((1, 32)))))
    return found
