"""The checkpoint of stores whose broker did not live long, and of one whose clock was set back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message

ZERO, AHEAD = "checkpoint.zero", "checkpoint.ahead"
PHYSIC, LOGICS = slice(0, 8), slice(8, 16)
START = "2026-11-10T00:00:00Z"
EARLIER = 1_794_096_000_000
"""Two days before, in ms."""


def severities(rmqctl: Callable[..., Any], root: Path) -> dict[str, str]:
    result = rmqctl("verify", root, "-o", "json")
    return {f["id"]: f["severity"] for f in json.loads(result.stdout)["findings"]}


@pytest.fixture
def made(rmqctl: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """A store of 50 messages, some ms apart."""

    def make(release: str, *words: object) -> Path:
        root = tmp_path / "store"
        given = (
            "--topic",
            "T",
            "--count",
            50,
            "--small",
            "--as-release",
            release,
            "--body",
            "b",
            "--key",
            "k-{n}",
            *words,
        )
        assert rmqctl("produce", root, *given).exit_code == 0
        return root

    return make


def clear(root: Path, *fields: slice) -> None:
    data = bytearray((root / "checkpoint").read_bytes())
    for part in fields:
        data[part] = bytes(8)
    (root / "checkpoint").write_bytes(data)


def test_a_log_that_was_never_flushed_by_time(made: Callable[..., Path], rmqctl: Callable[..., Any]) -> None:
    """The log's time is set by the thorough flush only, 10 s after the start; a clean stop writes that of the queues."""
    root = made("4.9.8", "--start-time", START, "--interval", "5ms")
    clear(root, PHYSIC)
    assert severities(rmqctl, root)[ZERO] == "note"
    clear(root, LOGICS, slice(16, 24))
    assert severities(rmqctl, root)[ZERO] == "warning"


@pytest.mark.parametrize(("step", "severity"), [("5ms", "note"), ("5s", "warning")])
def test_a_broker_killed_before_it_wrote_a_checkpoint(
    step: str, severity: str, made: Callable[..., Path], rmqctl: Callable[..., Any]
) -> None:
    """Only one that lived for less than a minute may leave zeros."""
    root = made("5.1.4", "--start-time", START, "--interval", step, "--crash")
    clear(root, PHYSIC, LOGICS, slice(16, 24))
    assert severities(rmqctl, root)[ZERO] == severity


@pytest.mark.parametrize("abort", [False, True])
def test_a_broker_that_never_got_a_message(abort: bool, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """It leaves a checkpoint of zeros and a configuration, and no log (5.2.0)."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    if abort:
        (tmp_path / "abort").touch()
    assert set(severities(rmqctl, tmp_path).values()) <= {"note"}
    (tmp_path / "checkpoint").write_bytes(bytes(7) + b"\1" + bytes(4088))
    assert severities(rmqctl, tmp_path)["log.missing"] == "error"


def test_a_clock_that_was_set_back(made: Callable[..., Path], rmqctl: Callable[..., Any]) -> None:
    """The index file ends before it begins, and the checkpoint may be later than the last record: no damage."""
    root = made("4.9.8", "--start-time", START, "--interval", "1s")
    clock = MadeUpClock(EARLIER, 1000)
    with StoreEngine.open(root, StoreConfig.small(release=Release(4, 9, 8), clock=clock)) as engine:
        for n in range(50):
            engine.put(Message("T", b"b", n % 4, {"KEYS": f"k-{n}"}))
    data = bytearray((root / "checkpoint").read_bytes())
    data[PHYSIC] = (1762732830_000).to_bytes(8, "big")  # 2025: any time of the log
    (root / "checkpoint").write_bytes(data)
    found = severities(rmqctl, root)
    assert found["log.store-time"] == found["index.header"] == "note"
    assert set(found.values()) == {"note"}


def test_what_points_into_a_log_that_is_gone_is_not_accused(tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """Nobody knows where the log ended: one finding says that it is not there. A negative offset is wrong without it."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    shutil.rmtree(root / "commitlog")
    assert not {"timer.log", "checkpoint.offset"} & set(severities(rmqctl, root))
    data = bytearray((root / "checkpoint").read_bytes())
    data[24:32] = (-1).to_bytes(8, "big", signed=True)
    (root / "checkpoint").write_bytes(data)
    assert "checkpoint.offset" in severities(rmqctl, root)


@pytest.mark.parametrize(
    ("release", "physic", "logics", "words", "severity"),
    [
        ("4.9.8", 0, 600_000, (), "warning"), ("4.9.8", 0, 3, (), "note"), ("4.9.8", 0, 600_000, ("--crash",), "note"),
        ("4.9.8", 1, 0, (), "note"), ("5.5.0", 1, 600_000, (), "note"), ("5.5.0", 0, 600_000, (), None),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_behind(
    release: str,
    physic: int,
    logics: int,
    words: tuple[str, ...],
    severity: str | None,
    made: Callable[..., Path],
    rmqctl: Callable[..., Any],
) -> None:
    """Up to 4.9 a clean stop writes the time of the last dispatched record; 5.x writes it with a flush each minute only."""
    root = made(release, *words)
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines()]
    last = max(row["store_timestamp"] for row in rows if row["kind"] == "message")
    data = bytearray((root / "checkpoint").read_bytes())
    data[PHYSIC], data[LOGICS] = (last - physic).to_bytes(8, "big"), (last - logics).to_bytes(8, "big")
    (root / "checkpoint").write_bytes(data)
    assert severities(rmqctl, root).get("checkpoint.behind") == severity
