"""Timers of lost messages: their units are put out of reach, all others and the wheel stay as they are."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

UNIT, REFERENCE = 52, 28
Rmqctl = Callable[..., Result]


@pytest.fixture(params=["5.1.4-clean", "5.5.0-clean", "5.5.0-crash"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


def timer_log(root: Path) -> Path:
    return min((root / "timerlog").iterdir())


def references(root: Path) -> list[int]:
    """Physical offsets in all units, in order."""
    data = timer_log(root).read_bytes()
    count = next(n for n in range(len(data) // UNIT) if not any(data[n * UNIT : (n + 1) * UNIT]))
    return [struct.unpack_from(">q", data, n * UNIT + REFERENCE)[0] for n in range(count)]


def timer_findings(root: Path) -> list[Finding]:
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    return [f for f in found if f.kind.id == "timer.log"]


def cut(root: Path, at: int) -> None:
    """Zeros in the log from a physical offset on."""
    for file in sorted((root / "commitlog").iterdir()):
        data, begin = file.read_bytes(), int(file.name)
        kept = min(max(at - begin, 0), len(data))
        file.write_bytes(data[:kept].ljust(len(data), b"\0"))


def test_timers_behind_a_cut(root: Path, rmqctl: Rmqctl) -> None:
    before, wheel = references(root), (root / "timerwheel").read_bytes()
    lost = sorted(before)[len(before) // 2 :]
    cut(root, lost[0])
    assert sum("unit" in f.message for f in timer_findings(root)) == 1
    log = timer_log(root).read_bytes()
    done = rmqctl("repair", root, "--apply", "--yes")
    assert done.exit_code in (0, 1), done.output
    assert f"put {len(lost)} timer" in done.output
    assert references(root) == [-1 if at in lost else at for at in before]
    assert timer_findings(root) == []
    assert (root / "timerwheel").read_bytes() == wheel
    shown = rmqctl("dump", root, "--pending", "timer", "-o", "jsonl")
    assert shown.exit_code in (0, 1), shown.output
    assert rmqctl("repair", root).exit_code in (0, 1)
    assert rmqctl("undo", root, "--yes").exit_code == 0
    assert timer_log(root).read_bytes() == log


@pytest.mark.parametrize("row", [0, 3])
def test_a_unit_that_leads_to_another_record(row: int, root: Path, rmqctl: Rmqctl) -> None:
    """One unit, wherever it stands; a message in its place would end all deliveries."""
    before = references(root)
    with timer_log(root).open("r+b") as file:
        file.seek(row * UNIT + REFERENCE)
        file.write((17).to_bytes(8, "big"))
    planned = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    changed = [s["file"] for s in planned["steps"] if s["id"] != "index.newer-than-checkpoint"]  # of a killed store
    assert changed == [f"timerlog/{timer_log(root).name}"]
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert references(root) == [*before[:row], -1, *before[row + 1 :]]
    assert timer_findings(root) == []


def test_the_queue_offset_behind_a_cut(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Timers that come to the queue before it would not be taken up; a broker of 5.5 lowers it, too."""
    root = tmp_path / "store"
    timed = ("--topic", "Timed", "--queues", 1, "--count", 5, "--deliver-at", int(time.time() * 1000) + 3_600_000)
    assert rmqctl("produce", root, "--small", "--as-release", "5.5.0", *timed).exit_code == 0
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines()]
    end = max(row["physical_offset"] + row["size"] for row in rows if row["kind"] == "message")
    assert rmqctl("produce", root, *timed).exit_code == 0
    cut(root, end)
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    check = (root / "config" / "timercheck").read_bytes()
    assert int.from_bytes(check[16:24], "big") == 5
    assert json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"] == []
