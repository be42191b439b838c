"""Real processes, really killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqctl.repair import apply, pending, resume, undo
from tests.repair.faults import CountingLayer
from tests.repair.stores import rich_plan
from tests.repair.workshop import Workshop

pytestmark = pytest.mark.slow
TOP = Path(__file__).parents[2]

AT_A_REQUEST = """
import os, signal, sys
from pathlib import Path
from rmqctl.repair import apply, resume, undo
from rmqctl.files.writing import FileLayer
from tests.repair.stores import rich_plan

class Layer(FileLayer):
    count = int(sys.argv[3])
    def request(self, operation, path, act):
        if Layer.count == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        Layer.count -= 1
        return act()

place = Path(sys.argv[2])
if sys.argv[1] == "apply":
    apply(rich_plan(place), layer=Layer())
else:
    (resume if sys.argv[1] == "resume" else undo)(place, layer=Layer())
"""

LARGE = """
import sys
from pathlib import Path
from rmqctl.repair import Create, Cut, Overwrite, Plan, Quarantine, Step, apply
root = Path(sys.argv[1])
edits = [Cut("log", 30 << 20, 0)]
for n in range(200):
    edits += [Create(f"queue/{n}/0", bytes([n]) * 6000, size=60000), Overwrite("units", n * 20, bytes(20), b"u" * 20)]
edits += [Quarantine("index")]
print("go", flush=True)
apply(Plan(root, "large", (Step("x.y", "log", "w", "y", tuple(edits)),)))
"""


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(TOP), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def killed(*arguments: object) -> bool:
    with child(AT_A_REQUEST, *arguments) as process:
        return process.wait() == -signal.SIGKILL


def test_at_requests_of_apply_and_of_going_on(shop: Workshop) -> None:
    before, plan = shop.state(), rich_plan(shop.root)
    shop.save()
    layer = CountingLayer()
    apply(plan, layer=layer)
    total = len(layer.requests)
    found = 0
    for round_, at in enumerate(range(3, total, 7)):
        shop.restore()
        assert killed("apply", shop.root, at)
        for second in ("resume", "undo"):
            if (journal := pending(shop.root)) is not None:
                found += 1
                killed(second, journal, 5 + at // 3)
        journal = pending(shop.root)
        if journal is not None and round_ % 2:
            journal = resume(journal).journal
            assert journal is not None and shop.state() != before
            undo(journal)
        elif journal is not None:
            undo(journal)
        if shop.state() != before:
            undo(shop.base / "0001")
        assert shop.state() == before
    assert found > 10


def test_at_random_moments_of_a_large_run(shop: Workshop) -> None:
    (shop.root / "log").write_bytes(os.urandom(30 << 20))
    (shop.root / "units").write_bytes(bytes(4000))
    before = shop.state()
    shop.save()
    started = time.monotonic()
    with child(LARGE, shop.root) as process:
        assert process.stdout is not None and process.stdout.readline() == "go\n"
        started = time.monotonic()
        assert process.wait() == 0
    takes, after = time.monotonic() - started, shop.state()
    times = [name for name in after if name.startswith(("./queue", "queue"))]
    draw, outcomes = random.Random(5), set()
    for number in range(24):
        shop.restore()
        with child(LARGE, shop.root) as process:
            assert process.stdout is not None and process.stdout.readline() == "go\n"
            started = time.monotonic()
            try:
                process.wait(takes * draw.random())
                takes = min(takes, time.monotonic() - started)  # the first run may have been slower than all others
            except subprocess.TimeoutExpired:
                process.kill()
        journal = pending(shop.root)
        outcomes.add(journal is None)
        if journal is not None:
            (resume if number % 2 else undo)(journal)
        found = shop.state()
        if found != before:
            assert found.keys() == after.keys()
            assert {k: v for k, v in found.items() if k not in times} == {
                k: v for k, v in after.items() if k not in times
            }
            undo(shop.base / "0001")
            assert shop.state() == before
    assert False in outcomes
