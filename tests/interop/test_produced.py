"""Stores made by ``rmqctl produce`` under released classes: loaded whole, read, asked, written on, taken over again: needs Maven."""

from __future__ import annotations

import json
import random
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from tests.interop.compare import Answers, dumped, geometry, ranges
from tests.interop.conftest import Judges
from tests.interop.judge import RELEASES, Judge, has_java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
IN_A_DAY = str(int(time.time() + 86_400) * 1000)
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
    "property crc": ("--topic", "Crc", "--count", "200", "--size", "10-900", "--property-crc", "--small", *KEYED),
    "timer": ("--topic", "Timed", "--count", "50", "--body", "x {n}", "--deliver-at", IN_A_DAY, "--small", *KEYED),
    "inner batch": ("--topic", "Inner", "--count", "200", "--body", "x {n}", "--batch", "8", "--inner-batch", "--small", *KEYED),
}  # fmt: skip
Question = tuple[str, tuple[Any, ...]]
WORKERS = 6
WHERE = {"property crc": ["enabledAppendPropCRC=true"]}


def wanted() -> list[tuple[str, str, str]]:
    """Case, release that the store is of, release that opens it."""
    both = [(name, release, release) for name in CASES for release in ("4.9.8", "5.5.0")]
    newer = [(name, "4.9.8", "5.5.0") for name in ("plain", "crash", "batch", "committed")]
    return both + newer + [(name, "5.5.0", "5.5.0") for name in ONLY_5]


@pytest.mark.parametrize("release", RELEASES)
def test_produced_stores(release: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    cases = [(case, written) for case, written, opener in wanted() if opener == release]
    with ThreadPoolExecutor(WORKERS) as pool:
        checks = Checks(judges(release, workers=WORKERS), release, rmqctl, tmp_path)
        wrong = list(pool.map(lambda case: checks.why_not(*case), cases))
    assert [w for w in wrong if w] == []


class Checks:
    """The life of a produced store: made, opened by the classes, written on, taken over by the engine, opened again."""

    def __init__(self, judge: Judge, release: str, rmqctl: Callable[..., Any], directory: Path) -> None:
        self.judge, self.release, self.directory = judge, release, directory
        self._rmqctl, self._lock = rmqctl, threading.Lock()

    def rmqctl(self, *words: object) -> Any:
        """The command line in this process serves one at a time."""
        with self._lock:
            return self._rmqctl(*words)

    def why_not(self, case: str, written: str) -> str:
        """What is wrong with a case; empty when nothing is."""
        try:
            self.check(case, written)
        except Exception:  # noqa: BLE001 -- the other cases go on
            return f"{case}, written as {written}: {traceback.format_exc()}"
        return ""

    def check(self, case: str, written: str) -> None:
        name = f"{case}-{written}".replace(" ", "-")
        root = self.directory / name
        result = self.rmqctl("produce", root, "--as-release", written, *(CASES.get(case) or ONLY_5[case]))
        assert result.exit_code == 0, result.output
        settings = geometry(root) + WHERE.get(case, [])
        before = dumped(self.rmqctl, root)
        expected = ranges(root)
        questions = random_questions(before, self.release)
        ours = {q: a for q, a in self.ours(root, questions) if not (q[0] == "key" and "crash" in case)}
        check_opened(self.judge.ask(name, "open", root, *settings), before, expected)
        check_read(self.judge, name, before)
        theirs = {q: self.judge.ask(name, q[0], *q[1]) for q in questions}
        assert {q: (a, theirs[q]) for q, a in ours.items() if a != theirs[q]} == {}
        put = self.judge.ask(name, "put", "FromJava", 3, 50, "j")
        assert self.judge.ask(name, "stop", root)
        if "crash" in case:  # the index holds the undispatched tail only after the start
            assert {q: (a, theirs[q]) for q, a in self.ours(root, questions) if q[0] == "key" and a != theirs[q]} == {}
        go_on(root)
        after = dumped(self.rmqctl, root)
        assert {p: m for p, m in after.items() if p in before} == before
        assert [p for p, _ in put] == [p for p in after if after[p]["topic"] == "FromJava"]
        assert len(after) == len(before) + 50 + 20
        check_verified(self.rmqctl, root)
        check_opened(self.judge.ask(name, "open", root, *settings), after, ranges(root))
        check_read(self.judge, name, after)
        assert self.judge.ask(name, "stop", root)
        check_verified(self.rmqctl, root)

    def ours(self, root: Path, questions: list[Question]) -> list[tuple[Question, Any]]:
        with Answers(root, self.release).opened() as answers:
            return [(q, getattr(answers, q[0])(*q[1])) for q in questions]


def go_on(root: Path) -> None:
    """The engine opens what the classes left and puts 20 messages."""
    with StoreEngine.open(root) as engine:
        assert engine.recovered is None
        for n in range(20):
            engine.put(Message("FromEngine", b"body %d" % n, n % 2, {"KEYS": f"engine-{n}", "TAGS": "TagA"}))


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


def check_read(judge: Judge, name: str, messages: dict[int, dict[str, Any]]) -> None:
    """Every message of every queue is the one that ``rmqctl dump`` shows."""
    read = judge.ask(name, "read")
    assert read["odd"] == []
    found = {message["physical"]: message for message in read["messages"]}
    assert found == messages


def random_questions(messages: dict[int, dict[str, Any]], release: str) -> list[Question]:
    """Keys, times and offsets; in the store, beside it and outside."""
    rng = random.Random(1)
    times = sorted({m["stored"] for m in messages.values()})
    found: list[Question] = []
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
