"""kill -9 at random moments: every acknowledged message is there after recovery, none twice, none torn."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqctl.rocketmq.engine import StoreConfig, StoreEngine
from tests.rocketmq.engine.test_engine import complaints

_WRITERS = 8
_CODE = """
import sys, threading
from pathlib import Path
from rmqctl.rocketmq.engine import FlushMode, Message, StoreConfig, StoreEngine
engine = StoreEngine.open(sys.argv[1], StoreConfig.small(flush=FlushMode.SYNC))
def work(number):
    n = 0
    while True:
        body = b"%d %d " % (number, n) + b"x" * (n * 37 % 900)
        r = engine.put(Message("T%d" % (number % 2), body, number % 3, {"KEYS": "%d-%d" % (number, n)}))
        sys.stdout.write(f"{r.topic} {r.queue_id} {r.queue_offset} {r.physical_offset} {number} {n}\\n")
        sys.stdout.flush()
        n += 1
for number in range(WRITERS):
    threading.Thread(target=work, args=(number,), daemon=True).start()
threading.Event().wait()
""".replace("WRITERS", str(_WRITERS))


def killed(root: Path, seconds: float) -> list[list[str]]:
    """Write until the kill; the lines of the acknowledged messages."""
    with subprocess.Popen([sys.executable, "-c", _CODE, str(root)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    return [line.split() for line in (first + rest).splitlines() if line.count(" ") == 5]


def check(root: Path, acknowledged: list[list[str]]) -> None:
    with StoreEngine.open(root, StoreConfig.small()) as engine:
        seen: set[int] = set()
        for topic, queue, offset, physical, writer, n in acknowledged:
            found = engine.get(topic, int(queue), int(offset), 1).messages
            assert [m.physical_offset for m in found] == [int(physical)]
            assert found[0].fields["body"].startswith(f"{writer} {n} ".encode())
            assert int(physical) not in seen
            seen.add(int(physical))
        for topic in ("T0", "T1"):
            for queue_id in range(3):
                low, high = engine.offsets(topic, queue_id)
                assert all(engine.get(topic, queue_id, o, 1).messages for o in range(low, high, 7))
    assert [c for c in complaints(root) if not c.startswith("warning index.coverage")] == []


@pytest.mark.parametrize("run", range(2))
def test_killed(run: int, tmp_path: Path) -> None:
    check(tmp_path / "s", killed(tmp_path / "s", random.Random(run).uniform(0.0, 0.3)))


@pytest.mark.slow
@pytest.mark.parametrize("run", range(200))
def test_killed_200_times(run: int, tmp_path: Path) -> None:
    moments = random.Random(run)
    for _ in range(2):  # a store that was recovered is killed again
        check(tmp_path / "s", killed(tmp_path / "s", moments.uniform(0.0, 0.6)))
