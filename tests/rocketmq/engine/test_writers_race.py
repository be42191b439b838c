"""Processes that open, write and close one store by turns, as fast as they can: no acknowledged message is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from tests.rocketmq.engine.engine_helpers import complaints

WRITER = """
import os, random, sys, time
from rmqctl.errors import StoreInUse
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
root, name, turns, ends = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
chosen = random.Random(name)
config = StoreConfig.small(flush=FlushMode.SYNC, services=False)
for turn in range(turns):
    while True:
        try:
            engine = StoreEngine.open(root, config)
            break
        except StoreInUse:
            time.sleep(chosen.random() / 500)
    for n in range(chosen.randrange(1, 4)):
        body = f"{name}-{turn}-{n}".encode()
        result = engine.put(Message(f"T{name}", body))
        print(result.physical_offset, body.decode(), flush=True)
    getattr(engine, chosen.choice(ends))()
"""

HOLDER = """
import os, sys, time
from rmqctl.files.lock import LockHeldError, holding
path, marker, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
got = 0
while got < turns:
    try:
        with holding(path):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))  # fails where somebody else holds the lock, too
            os.unlink(marker)
            got += 1
    except LockHeldError:
        pass
"""


def race(code: str, arguments: list[list[str]]) -> list[str]:
    """The output of processes that run the same code at the same time."""
    runs = [subprocess.Popen([sys.executable, "-c", code, *a], stdout=subprocess.PIPE, text=True) for a in arguments]
    try:
        found = [run.communicate(timeout=240)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0] * len(runs)
    return found


@pytest.mark.parametrize("ends", ["close", "close,abandon"], ids=["clean stops", "some are killed"])
def test_no_acknowledged_message_of_racing_writers_is_lost(tmp_path: Path, ends: str) -> None:
    root = tmp_path / "store"
    told = race(WRITER, [[str(root), name, "12", ends] for name in "abcd"])
    acknowledged = {int(at): body for out in told for at, body in (line.split() for line in out.splitlines())}
    assert sum(out.count("\n") for out in told) == len(acknowledged)  # no place was given twice
    StoreEngine.open(root, StoreConfig.small(services=False)).close()
    with StoreEngine.open(root, StoreConfig.small(services=False)) as engine:
        stored = {at: engine.log.files.read(at, 4096) for at in acknowledged}
    assert all(acknowledged[at].encode() in data for at, data in stored.items())
    assert complaints(root) == []


def test_a_lock_file_that_comes_and_goes_has_one_holder_at_a_time(tmp_path: Path) -> None:
    race(HOLDER, [[str(tmp_path / "lock"), str(tmp_path / "marker"), "300"] for _ in range(3)])
    assert not (tmp_path / "marker").exists()


def test_a_store_that_is_refused_gets_no_lock_file(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small(services=False)) as engine:
        engine.put(Message("T", b"x"))
    (tmp_path / "lock").unlink()
    with pytest.raises(Exception, match="not 131072"):
        StoreEngine.open(tmp_path, StoreConfig.small(commit_log_file_size=131072, services=False))
    assert not (tmp_path / "lock").exists()
