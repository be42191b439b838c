"""Power cuts of real file systems: a loop device whose file system is shut down without its log being written.

Needs root, loop devices and the tools of the file system; skipped where one of them is missing, with what it is.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.rocketmq.engine.config import StoreConfig
from tests.conftest import Rmqctl
from tests.rocketmq.engine import test_kill
from tests.test_power import SMALL_KAFKA, check_kafka_start, check_served
from tests.writers import COMMANDS, Writer

_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
"""FS_IOC_SHUTDOWN and FSOP_GOING_FLAGS_NOLOGFLUSH of Linux."""
_SIZES = {"ext4": "128M", "xfs": "320M", "btrfs": "256M"}
_KAFKA = """
import sys
from dataclasses import replace
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.rocketmq.engine.config import StoreConfig
from tests.test_power import SMALL_KAFKA
engine = KafkaEngine.open(sys.argv[1], SMALL_KAFKA)
n = 0
while True:
    topic = f"t{n // 50 % 40}"
    if topic not in engine.topics:
        engine.make_topic(topic, 2)
    result = engine.append(topic, n % 2, [Record(0, 1700000000000 + n, -1, b"%d" % n, b"x" * (n * 37 % 900))])
    sys.stdout.write(f"{topic} {n % 2} {result.last_offset} {n}\\n")
    sys.stdout.flush()
    n += 1
"""

pytestmark = (
    pytest.mark.interop
)  # judged by kernels: their own races are in the result, so it stands beside the brokers


class Disk:
    """A file system of its own in a file.

    Attributes:
        mounted: where it is.
    """

    def __init__(self, kind: str, home: Path) -> None:
        self.kind, self.home, self._number = kind, home, 0
        needed("truncate", "-s", _SIZES[kind], self.image)
        needed(f"mkfs.{kind}", "-q", self.image)
        self._mount()

    @property
    def image(self) -> Path:
        return self.home / f"{self.kind}-{self._number}.img"

    @property
    def mounted(self) -> Path:
        return self.home / f"mounted-{self._number}"

    def _mount(self) -> None:
        self.mounted.mkdir()
        options = "loop,nouuid" if self.kind == "xfs" else "loop"  # the one before may still be there
        needed("mount", "-o", options, self.image, self.mounted)

    def unmount(self) -> None:
        """Unmount it, at the latest when the system has done with it."""
        for _ in range(20):
            gc.collect()
            if subprocess.run(["umount", self.mounted], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", self.mounted], check=True)
        self.image.unlink()

    def cut(self, writer: subprocess.Popen[str] | None = None) -> None:
        """Cut the power: what is on the device at this moment is all that is left, and mounted again."""
        if not self._shut_down() and writer is not None:  # the device is read while nobody writes
            writer.send_signal(signal.SIGSTOP)
            time.sleep(0.1)  # a request that is under way ends
        left = self.image.with_suffix(".left")
        needed("cp", "--sparse=always", self.image, left)
        if writer is not None:
            writer.kill()
            writer.wait()
        self.unmount()
        self._number += 1
        left.rename(self.image)
        self._mount()

    def _shut_down(self) -> bool:
        """Have the file system write nothing any more; False where it knows no such request."""
        fd = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            return False
        finally:
            os.close(fd)
        return True


def needed(*words: object) -> None:
    """Run a command that a machine may not have or allow."""
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"no {words[0]} here")
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{words[0]}: {done.stderr.strip()}")


@pytest.fixture(params=list(_SIZES))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid():
        pytest.skip("only root may mount")
    made = Disk(request.param, tmp_path)
    yield made
    made.unmount()


@pytest.fixture(params=[pytest.param(20, marks=pytest.mark.slow), 1])
def times(request: pytest.FixtureRequest) -> int:
    return request.param


def answered(disk: Disk, code: str, seconds: float, place: str) -> list[list[str]]:
    """Write until the power is cut; the lines of what was acknowledged."""
    lines = disk.home / "lines"
    with (
        lines.open("w") as out,
        subprocess.Popen(
            [sys.executable, "-c", code, str(disk.mounted / place)], stdout=out, stderr=subprocess.DEVNULL, text=True
        ) as process,
    ):
        until = time.monotonic() + 60
        while not lines.stat().st_size and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(seconds)
        before = lines.read_text()  # a sync that the end of the file system meets may be answered, and mean nothing
        disk.cut(process)
    return [line.split() for line in before.splitlines(keepends=True) if line.endswith("\n")]


def test_rocketmq_acknowledged(disk: Disk, times: int) -> None:
    moments = random.Random(disk.kind)
    for number in range(times):
        found = answered(disk, test_kill._CODE, moments.uniform(0, 0.4), f"deep/{number // 2}")  # each is cut twice
        assert found
        rows = [(topic, int(queue), int(offset), int(at)) for topic, queue, offset, at, *_ in found]
        check_served(disk.mounted / f"deep/{number // 2}", rows, StoreConfig.small())


def test_kafka_acknowledged(disk: Disk, times: int) -> None:
    moments = random.Random(disk.kind)
    for number in range(times):
        found = answered(disk, _KAFKA, moments.uniform(0, 0.4), f"deep/{number // 2}")
        assert found
        root = disk.mounted / f"deep/{number // 2}"
        check_kafka_start(root)
        with KafkaEngine.open(root, SMALL_KAFKA) as engine:
            for topic, partition, last, _ in found:
                assert engine.logs[topic, int(partition)].end > int(last)


@pytest.mark.parametrize("writer", [w for w in COMMANDS if w.makes or w.name.startswith("produce")], ids=str)
@pytest.mark.slow
def test_done_is_done(writer: Writer, disk: Disk, rmqctl: Rmqctl) -> None:
    writer.prepared(disk.mounted, rmqctl)
    os.sync()
    writer.run(disk.mounted, rmqctl)
    before = contents(disk.mounted)
    disk.cut()
    assert contents(disk.mounted) == before


def contents(root: Path) -> dict[str, str]:
    """Every file with a hash of its bytes, but locks."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
