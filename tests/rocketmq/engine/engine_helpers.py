"""What tests of the engine share: small stores, messages put, complaints of verify, and a slow disk."""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep

from rmqctl.files.writing import Buffer, Disk
from rmqctl.findings import Severity
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.housekeeping import HOUR_MS
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

START = 1_700_000_000_000


def small(**changes: object) -> StoreConfig:
    return StoreConfig.small(clock=MadeUpClock(START, 3), services=False, **changes)


def complaints(root: Path) -> list[str]:
    findings = Verification(open_store_at(str(root)), VerifyOptions()).findings()
    rows = ((f.severity or f.kind.severity, f) for f in findings)
    return [f"{severity} {f.kind.id} {f.file} {f.message}" for severity, f in rows if severity is not Severity.NOTE]


def put_some(engine: StoreEngine, count: int, topic: str = "Orders", queues: int = 3) -> None:
    for n in range(count):
        engine.put(Message(topic, b"body %d" % n, n % queues, {"KEYS": f"key-{n}", "TAGS": "TagA"}))


def age(root: Path, count: int, hours: int) -> list[Path]:
    """Make the oldest log files so old, as seen from START."""
    files = sorted((root / "commitlog").iterdir())
    for path in files:
        hours_ago = hours if path in files[:count] else 1
        os.utime(path, ns=(0, (START - hours_ago * HOUR_MS) * 1_000_000))
    return files[:count]


class SlowDisk(Disk):
    """Counts the syncs of log files, and takes its time for them; it cannot write and sync in one."""

    def __init__(self, seconds: float = 0.005) -> None:
        super().__init__()
        self.syncs, self.seconds = 0, seconds

    def sync(self, fd: int) -> None:
        self.syncs += 1
        sleep(self.seconds)

    def write_through(self, fd: int, data: Buffer, position: int) -> bool:
        return False


SCHEDULE, HALF, OP, TIMER = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_wheel_timer",
)


def bodies(engine: StoreEngine, topic: str, queue_id: int = 0) -> list[bytes]:
    engine.dispatch()
    return [p.record.fields["body"] for p in engine.reading.placed(topic, queue_id, 0)]
