"""kill -9 at random moments: every acknowledged message is there after recovery, none twice, none torn."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from tests.rocketmq.engine.engine_helpers import complaints

_WRITERS = 8
_CODE = """
import sys, threading
from pathlib import Path
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
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
_IN_FLIGHT = """
import sys, threading
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
engine = StoreEngine.open(sys.argv[1], StoreConfig.small(flush=FlushMode.SYNC))
room = threading.Semaphore(IN_FLIGHT)
def told(future, number, n):
    r = future.result()
    sys.stdout.write(f"{r.topic} {r.queue_id} {r.queue_offset} {r.physical_offset} {number} {n}\\n")
    sys.stdout.flush()
    room.release()
n = 0
while True:
    room.acquire()
    number = n % 8
    body = b"%d %d " % (number, n) + b"x" * (n * 37 % 900)
    future = engine.put_async(Message("T%d" % (number % 2), body, number % 3, {"KEYS": "%d-%d" % (number, n)}))
    future.add_done_callback(lambda future, number=number, n=n: told(future, number, n))
    n += 1
""".replace("IN_FLIGHT", "64")
_CODES = {"threads": _CODE, "in flight": _IN_FLIGHT}


def killed(root: Path, seconds: float, code: str = _CODE) -> list[list[str]]:
    """Write until the kill; the lines of the acknowledged messages."""
    with subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True) as process:
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


@pytest.mark.parametrize("writers", list(_CODES))
@pytest.mark.parametrize("run", range(2))
def test_killed(run: int, writers: str, tmp_path: Path) -> None:
    acknowledged = killed(tmp_path / "s", random.Random(run).uniform(0.0, 0.3), _CODES[writers])
    assert acknowledged
    check(tmp_path / "s", acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(200))
def test_killed_200_times(run: int, tmp_path: Path) -> None:
    moments = random.Random(run)
    for _ in range(2):  # a store that was recovered is killed again
        check(tmp_path / "s", killed(tmp_path / "s", moments.uniform(0.0, 0.6)))


@pytest.mark.slow
@pytest.mark.parametrize("run", range(50))
def test_killed_50_times_with_messages_in_flight(run: int, tmp_path: Path) -> None:
    moments = random.Random(1000 + run)
    for _ in range(2):
        check(tmp_path / "s", killed(tmp_path / "s", moments.uniform(0.0, 0.6), _IN_FLIGHT))
