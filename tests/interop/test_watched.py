"""Beside a released broker under load: the latency of its producers with and without `rmqctl watch`, in turns, and the
memory of the watch are printed (``-s``); no time fails.

Needs Java and Maven. RMQCTL_WATCHED is how many seconds the load lasts (default: 60).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.judge import class_path, has_java, java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
_SECONDS = int(os.environ.get("RMQCTL_WATCHED", "60"))
_TURNS = 3
_TOPICS = ("LiveA", "LiveB", "LiveC")
_EXPIRING = (
    "mappedFileSizeCommitLog=4194304", "mappedFileSizeConsumeQueue=40000", "maxHashSlotNum=2000", "maxIndexNum=8000",
    "autoCreateTopicEnable=true", "fileReservedTime=0", "cleanResourceInterval=2000",
    f"deleteWhen={';'.join(f'{hour:02d}' for hour in range(24))}",
)  # fmt: skip
"""Every file of the log but the last expires at once, at any hour; up to ten go every two seconds."""


class Load:
    """A RocketMQ broker on a store, with producers and a consumer at work."""

    def __init__(self, release: str, root: Path, compiled: Path, *settings: str) -> None:
        classes = class_path(release, compiled, "WholeBroker")
        words = (root, ",".join(_TOPICS), 0, *settings)
        command = java(classes, root.parent / "home", "WholeBroker", *words, storm="true")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            cwd=root.parent,
        )  # fmt: skip
        assert self._said() == "storming"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def latency(self) -> tuple[int, int, int]:
        """Messages sent since the last call, and of the microseconds that they took the median and the 99th."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        count, median, late = map(int, self._said().split())
        return count, median, late

    def stop(self) -> None:
        """Let it end in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def watching(root: Path, *words: str) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """A watch of a store in a process of its own, cycle after cycle; gives what it has said so far.

    Its memory is printed in the end.
    """
    said = root.parent / f"watch-{time.monotonic_ns()}.jsonl"
    command = [sys.executable, "-m", "rmqctl", "watch", str(root), "--every", "1s", "-o", "jsonl", *words]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        held: list[int] = []

        def rows() -> list[dict[str, Any]]:
            status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
            held.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")))
            return [json.loads(line) for line in said.read_bytes().splitlines() if line.endswith(b"}")]

        try:
            yield rows
        finally:
            process.send_signal(signal.SIGTERM)
    print(f"memory of watch, kB: {held[:: max(len(held) // 12, 1)]}")


def _wait(seconds: float, rows: Callable[[], list[dict[str, Any]]]) -> None:
    """Wait, and look at the process every two seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(2)
        rows()


@pytest.mark.parametrize("release", ["5.5.0"])
def test_latency_of_producers_is_printed(release: str, tmp_path: Path, compiled: Path) -> None:
    root = tmp_path / "store"
    load = Load(release, root, compiled, *_EXPIRING)
    try:
        for turn in range(_TURNS):
            load.latency()
            time.sleep(_SECONDS / _TURNS / 2)
            print(f"{release} alone: sent, median, p99 in µs {load.latency()}")
            with watching(root, "--no-figures") as rows:
                _wait(2, rows)
                load.latency()
                _wait(_SECONDS / _TURNS / 2, rows)
                print(f"{release} watched: sent, median, p99 in µs {load.latency()}, turn {turn}")
                assert any(row["event"] == "cycle" for row in rows())
        load.stop()
    finally:
        load.kill()
