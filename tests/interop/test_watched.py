"""Beside a released broker under load, with retention, compaction, restarts and kills, `rmqctl watch` finds every byte that is
flipped, within a cycle, and nothing else. The latency of producers with and without it, in turns, and its memory are printed
(``-s``); no time fails.

Needs Java and Maven. RMQCTL_WATCHED is how many seconds the load lasts (default: 60).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from rmqctl.opening import open_store
from tests.interop.judge import class_path, has_java, java
from tests.interop.kafka_node import Node, format_directory

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
_SECONDS = int(os.environ.get("RMQCTL_WATCHED", "60"))
_TURNS = max(3, _SECONDS // 60)
_FLIPS = max(2, _SECONDS // 60)
_FILE = 4 << 20
_TOPICS = ("LiveA", "LiveB", "LiveC")
_KEPT = 10
"""Files of the log that do not expire."""
_PATIENCE = 300


class Load(ABC):
    """A broker with producers at work, that can be ended and started again.

    Attributes:
        root: its store.
    """

    root: Path

    @abstractmethod
    def start(self) -> None:
        """Start it, and the load."""

    @abstractmethod
    def stop(self) -> None:
        """Let it end in order."""

    @abstractmethod
    def kill(self) -> None:
        """End it as the kernel does."""

    @abstractmethod
    def latency(self) -> tuple[int, int, int]:
        """Messages sent since the last call, and of the microseconds that they took the median and the 99th."""

    @abstractmethod
    def place(self, chance: random.Random) -> tuple[Path, int]:
        """A byte that the broker has written and does not look at again: its file and where it is there."""

    @abstractmethod
    def tend(self) -> None:
        """Let expire what is to expire; called every second or so."""


class RocketMQ(Load):
    """Every file of the log but the last ten expires, by its age."""

    def __init__(self, release: str, home: Path, compiled: Path) -> None:
        self.root = home / "store"
        settings = (
            f"mappedFileSizeCommitLog={_FILE}", "mappedFileSizeConsumeQueue=40000", "maxHashSlotNum=2000", "maxIndexNum=8000",
            "autoCreateTopicEnable=true", "fileReservedTime=1", "cleanResourceInterval=2000", "flushConsumerOffsetInterval=300",
            f"deleteWhen={';'.join(f'{hour:02d}' for hour in range(24))}",
        )  # fmt: skip
        words = (self.root, ",".join(_TOPICS), 0, *settings)
        self._command = java(
            class_path(release, compiled, "WholeBroker"), home / "home", "WholeBroker", *words, memory="512m", storm="true",
            pause=8,
        )  # fmt: skip
        self._errors = home / "errors"

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=self.root.parent,
            )  # fmt: skip
        assert self._said() == "storming"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def latency(self) -> tuple[int, int, int]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        count, median, late = map(int, self._said().split())
        return count, median, late

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._over()

    def kill(self) -> None:
        self._process.kill()
        self._over()

    def _over(self) -> None:
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _log(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def tend(self) -> None:
        old = time.time() - 2 * 3600
        for file in self._log()[:-_KEPT]:
            with suppress(FileNotFoundError):
                os.utime(file, (old, old))

    def place(self, chance: random.Random) -> tuple[Path, int]:
        while len(closed := self._log()[:-1][-_KEPT // 2 :]) < 2:
            time.sleep(1)
        file = chance.choice(closed)
        row = chance.choice([row for row in rmqctl.open(str(file)).dump() if row.get("topic") in _TOPICS])
        # the body; size, magic code, offset in the queue and in the log
        field, size = chance.choice([(88, 1), (88, 1), (88, 1), (0, 4), (4, 4), (20, 8), (28, 8)])
        return file, row["position"] + field + chance.randrange(size)


_SHORT = ("segment.ms=2000", "file.delete.delay.ms=1000")
_DIRTY = ("min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1000", "delete.retention.ms=500")
_TOPICS_OF_KAFKA = {
    "kept": ("segment.ms=5000",),
    "short": (*_SHORT, "retention.bytes=60000"),
    "compact": (*_SHORT, "cleanup.policy=compact", *_DIRTY),
    "both": (*_SHORT, "cleanup.policy=compact,delete", "retention.bytes=60000", *_DIRTY),
    "txn": (*_SHORT, "retention.bytes=60000"),
    "txncompact": (*_SHORT, "cleanup.policy=compact", *_DIRTY),
}
_BROKER = {
    "log.retention.check.interval.ms": 1000, "log.cleaner.backoff.ms": 1000, "log.initial.task.delay.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.01, "log.cleaner.dedupe.buffer.size": 4 << 20,
}  # fmt: skip


class Kafka(Load):
    """Topics whose segments live for a moment, and go by retention or compaction, and one that is kept; those of txn... hold
    transactions.
    """

    def __init__(self, release: str, home: Path, compiled: Path) -> None:
        self.root, self._release, self._home, self._compiled = home / "logs", release, home, compiled
        format_directory(release, self.root, compiled)
        self._is_new = True

    def start(self) -> None:
        self._node = Node(self._release, self.root, self._compiled, _BROKER)
        self._node.__enter__()
        for name, settings in _TOPICS_OF_KAFKA.items():
            if self._is_new:
                self._node.ask("create", name, 2, 1, *settings)
            self._node.ask("storm", name, self._home / name, f"id-{name}" if name.startswith("txn") else "-", 20)
        if self._is_new:
            self._node.ask("commit", "group", "kept", 0)
        self._is_new = False

    def latency(self) -> tuple[int, int, int]:
        (found,) = self._node.ask("latency")
        return found[0], found[1], found[2]

    def stop(self) -> None:
        self._node.ask("calm")
        self._node.__exit__(None, None, None)

    def kill(self) -> None:
        self._node.kill()
        self.stop()

    def tend(self) -> None:  # the broker does it by itself
        pass

    def place(self, chance: random.Random) -> tuple[Path, int]:
        while len(closed := sorted((self.root / f"kept-{chance.randrange(2)}").glob("*.log"))[:-1]) < 2:
            time.sleep(1)
        file = chance.choice([file for file in closed if file.stat().st_size > 0])
        return file, chance.randrange(21, file.stat().st_size)


_LOADS: list[tuple[type[Load], str]] = [(RocketMQ, "5.5.0"), (Kafka, "4.3.1")]


class Watching:
    """A watch of a store in a process of its own, cycle after cycle; a new one goes on where the last has ended."""

    def __init__(self, root: Path, *words: str) -> None:
        self._said, self._held = root.parent / f"watch-{time.monotonic_ns()}.jsonl", list[int]()
        state = ("--state", str(root.parent / "watch.json"))
        command = [sys.executable, "-m", "rmqctl", "watch", str(root), "--every", "1s", "-o", "jsonl", *state, *words]
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out)

    def rows(self) -> list[dict[str, Any]]:
        """What it has said so far."""
        assert self._process.poll() is None, "it has ended"
        status = Path(f"/proc/{self._process.pid}/status").read_text("utf-8")
        self._held.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")))
        return [json.loads(line) for line in self._said.read_bytes().splitlines() if line.endswith(b"}")]

    def wait_until(self, done: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """What it has said, as soon as that is enough; nothing expires meanwhile."""
        until = time.monotonic() + _PATIENCE
        while not done(said := self.rows()):
            assert time.monotonic() < until, said[-5:]
            time.sleep(1)
        return said

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        print(f"memory of watch, kB: {self._held[:: max(len(self._held) // 15, 1)]}, most {max(self._held, default=0)}")


@contextmanager
def watching(root: Path, *words: str) -> Iterator[Watching]:
    watch = Watching(root, *words)
    try:
        yield watch
    finally:
        watch.end()


@contextmanager
def at_work(kind: type[Load], release: str, home: Path, compiled: Path) -> Iterator[Load]:
    load = kind(release, home, compiled)
    load.start()
    try:
        yield load
        load.stop()
    except BaseException:
        load.kill()
        raise


def _wait(seconds: float, load: Load, look: Callable[[], object] = lambda: None) -> None:
    """Wait, tend the load, and look every second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        load.tend()
        look()


def _flip(file: Path, at: int, bit: int) -> None:
    """Flip a bit; the time of the file stays."""
    times = file.stat()
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << bit]))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _millis() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize(("kind", "release"), _LOADS)
def test_every_flip_is_found_within_a_cycle_and_nothing_else(
    kind: type[Load], release: str, tmp_path: Path, compiled: Path
) -> None:
    chance, began, restarts = random.Random(release), time.monotonic(), 0
    with at_work(kind, release, tmp_path, compiled) as load, watching(load.root) as watch:
        for number in range(_FLIPS):
            left = _SECONDS - (time.monotonic() - began)
            _wait(max(left / (_FLIPS - number) - 25, 5), load, watch.rows)
            if number % 5 == 2:
                restarts += 1
                load.stop() if restarts % 2 else load.kill()
                _wait(3, load, watch.rows)
                load.start()
                _wait(5, load, watch.rows)
            assert not _open(watch.rows()), "a false finding"
            (file, at), bit = load.place(chance), chance.randrange(8)
            since = _millis()
            _flip(file, at, bit)
            where = f"{file.relative_to(load.root)} at {at}, bit {bit}"
            said = [row for row in watch.wait_until(lambda rows: bool(_open(rows))) if row["time"] >= since]
            found = [(row["id"], row["file"], row["offset"]) for row in said if row["event"] == "found"]
            first = next(row["time"] for row in said if row["event"] == "found")
            whole = [row for row in said if row["event"] == "cycle" and row["began"] > since and row["time"] < first]
            print(f"{release} flip {number}: {where}: {found} after {(_millis() - since) / 1000:.1f} s")
            _flip(file, at, bit)
            assert not whole, f"not within a cycle: {where}"
            assert str(file.relative_to(load.root)) in {file for _, file, _ in found}, where
            watch.wait_until(lambda rows: not _open(rows))
        cycles = _cycles(watch.rows())
        print(f"{release}: {_FLIPS} flips, {restarts} restarts, {cycles} cycles")
        watch.wait_until(lambda rows: _cycles(rows) >= cycles + 2)
        assert not _open(watch.rows()), "a false finding"
    assert list(open_store(str(load.root)).verify(notes=False)) == []


def _cycles(rows: list[dict[str, Any]]) -> int:
    return sum(row["event"] == "cycle" for row in rows)


def _open(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings that are not gone."""
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if row["event"] in {"found", "gone"}:
            key = row["id"], str(row["file"]), row["offset"]
            if row["event"] == "found":
                found[key] = row
            else:
                found.pop(key, None)
    return list(found.values())


@pytest.mark.parametrize(("kind", "release"), _LOADS)
def test_latency_of_producers_is_printed(kind: type[Load], release: str, tmp_path: Path, compiled: Path) -> None:
    with at_work(kind, release, tmp_path, compiled) as load:
        _wait(_SECONDS / 6, load)
        for turn in range(_TURNS):
            load.latency()
            _wait(_SECONDS / _TURNS / 2, load)
            print(f"{release} alone: sent, median, p99 in µs {load.latency()}, turn {turn}")
            with watching(load.root, "--no-figures") as watch:
                _wait(3, load, watch.rows)
                load.latency()
                _wait(_SECONDS / _TURNS / 2, load, watch.rows)
                print(f"{release} watched: sent, median, p99 in µs {load.latency()}, turn {turn}")
                watch.wait_until(lambda rows: _cycles(rows) > 0)
