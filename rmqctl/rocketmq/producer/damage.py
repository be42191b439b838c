"""Damage on purpose to a RocketMQ store: its places, and the kinds of damage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from formats.layout import plan_of
from formats.rocketmq.consumequeue import ConsumeQueueUnit
from rmqctl.damage import FILE, NOTHING, DamageKinds, Target
from rmqctl.files.writing import Disk
from rmqctl.rocketmq.engine.opening import StoreLock
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.files import QUEUES
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, index_geometry
from rmqctl.rocketmq.store.locate import open_store_at

_PACKER = plan_of(ConsumeQueueUnit).runs[0].packer
_UNIT = _PACKER.size
_MAX_RECORDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A record: its file, where it lies there and in the log, and its parts, in bytes."""

    file: Path
    position: int
    physical: int
    size: int
    body_at: int
    body_size: int
    topic_width: int
    store_timestamp: int


class RocketMQTarget(Target):
    """A store that is to be damaged, and the places in it."""

    def __init__(self, root: Path, where: str, random: Random) -> None:
        super().__init__(root, where, random, "messages")
        self._store = open_store_at(str(root))

    def record(self, *, with_body: bool = False) -> Place:
        """Return the record that is meant; by choice one inside the log, not at its ends."""
        found = [r for r in self._records if r.body_size] if with_body else self._records
        return self.chosen(found, "record", inner=True)

    def last_record(self) -> Place:
        """Return the last record of the log."""
        return self.some(self._records, "record")[-1]

    def log_end(self) -> int:
        """Physical offset after the last record."""
        last = self.last_record()
        return last.physical + last.size

    @cached_property
    def _records(self) -> list[Place]:
        found: list[Place] = []
        for block in (b.block for b in CommitLog(self._store.log_files).walk()):
            file = self.root / block.file
            columns = (
                block.position, block.physical, block.total_size, block.body_at + block.start, block.body_size,
                1 + (block.variant >> 2), block["store_timestamp"],
            )  # fmt: skip
            found += [Place(file, *row) for row in zip(*(c.tolist() for c in columns), strict=True)]
            if len(found) > _MAX_RECORDS:
                break
        return found

    def blank(self) -> tuple[Path, int, int]:
        """Return a blank record: file, position, size."""
        found = [
            (self.root / b.block.file, blank.position, blank.size)
            for b in CommitLog(self._store.log_files).walk()
            for blank in b.block.blanks
        ]
        return self.chosen(found, "full log file")

    def log_file(self, *, inner: bool = False) -> Path:
        """Return a file of the log; ``inner``: not the last."""
        found = [self.root / f.name for f in self._store.log_files]
        return self.chosen(found[: -1 if inner else None], "log file in front of another" if inner else "log file")

    def queue_file(self) -> Path:
        """Return a file of a queue."""
        return self.chosen([p for p, _ in self._queue_files], "queue file")

    def filled_queue_file(self, room: int = 0) -> tuple[Path, int]:
        """Return a queue file with units, and their number; with room for more."""
        found = [(p, n) for p, n in self._queue_files if n >= 2 and n + room <= p.stat().st_size // _UNIT]
        last = {p.parent: p for p, _ in self._queue_files}
        return self.chosen([f for f in found if not room or last[f[0].parent] == f[0]], "queue file with units")

    @cached_property
    def _queue_files(self) -> list[tuple[Path, int]]:
        found = []
        for path in sorted((self.root / QUEUES).rglob("*")):
            if path.is_file():
                data = path.read_bytes()
                units = _PACKER.iter_unpack(data[: len(data) // _UNIT * _UNIT])
                found.append((path, sum(size != 0 for _, size, _ in units)))
        return found

    def index_file(self) -> Path:
        """Return an index file."""
        return self.chosen([self.root / e.path for e in self._store.index_files], "index file")

    def index_entry(self) -> tuple[Path, int, int]:
        """Return an entry of an index file: file, number, position."""
        geometry, found = index_geometry(self._store), []
        for file in index_files(self._store, geometry):
            if file.count:
                found.append((self.root / file.path, file.count))
            file.close()
        path, count = self.chosen(found, "index file with entries")
        number = 1 + self.random.randrange(count)
        return path, number, geometry.entry_at(number)


@contextmanager
def _held(root: Path) -> Iterator[None]:
    lock = StoreLock(root, Disk())
    try:
        yield
    finally:
        lock.release()


RECORD = "record"
KINDS = DamageKinds("store", "--damage list", _held, RocketMQTarget)
damage, kind = KINDS.do, KINDS.enter


# --- the log ----------------------------------------------------------------------------------------


@kind("body-flip", RECORD, "One bit of a body is wrong: the CRC does not fit.")
def _(target: RocketMQTarget) -> str:
    record = target.record(with_body=True)
    at = record.body_at + target.random.randrange(record.body_size)
    return target.flip(record.file, at)


@kind("size-flip", RECORD, "TOTALSIZE of a record is wrong: the chain breaks.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    return target.write(
        record.file, record.position, (record.size + 1 + target.random.randrange(500)).to_bytes(4, "big")
    )


@kind("magic-flip", RECORD, "The magic of a record is wrong: the log seems to end there.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    return target.flip(record.file, record.position + 4 + target.random.randrange(4))


@kind("offset-flip", RECORD, "PHYSICALOFFSET of a record says that it lies elsewhere.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    return target.write(record.file, record.position + 28, (record.physical + 4096).to_bytes(8, "big"))


@kind("topic-flip", RECORD, "A letter of a topic is wrong, which no CRC covers.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    return target.flip(record.file, record.body_at + record.body_size + 1 + record.topic_width, bits=1)


@kind("zero-record", RECORD, "A record is zeros, as a write that never reached the disk.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    return target.write(record.file, record.position, bytes(record.size))


@kind("zero-page", RECORD, "The 4 KiB page that a record starts in is zeros.")
def _(target: RocketMQTarget) -> str:
    record = target.record()
    page = record.position // 4096 * 4096
    return target.write(record.file, page, bytes(min(4096, record.file.stat().st_size - page)))


@kind("torn-tail", NOTHING, "The last record is half written, and the store was not stopped.")
def _(target: RocketMQTarget) -> str:
    record = target.last_record()
    half = record.size // 2
    target.fill(target.root / "abort", b"")
    return target.write(record.file, record.position + half, bytes(record.size - half))


@kind("blank-size", FILE, "The blank record at the end of a full file states a wrong size.")
def _(target: RocketMQTarget) -> str:
    file, position, size = target.blank()
    return target.write(file, position, (size + 64).to_bytes(4, "big"))


@kind("log-file-lost", FILE, "A file of the log is gone.")
def _(target: RocketMQTarget) -> str:
    return target.remove(target.log_file(inner=True))


@kind("log-file-cut", FILE, "A file of the log is shorter than it should be.")
def _(target: RocketMQTarget) -> str:
    return target.cut(target.log_file())


# --- what is derived from it ------------------------------------------------------------------------


@kind("queue-lost", FILE, "The directory of a queue is gone.")
def _(target: RocketMQTarget) -> str:
    directory = target.queue_file().parent
    shutil.rmtree(directory)
    return f"{target.name(directory)} removed"


@kind("queue-file-cut", FILE, "A queue file is shorter than it should be.")
def _(target: RocketMQTarget) -> str:
    return target.cut(target.queue_file())


@kind("queue-zeros", FILE, "Units in the middle of a queue file are zeros.")
def _(target: RocketMQTarget) -> str:
    file, units = target.filled_queue_file()
    first = max(units // 3, 1)
    return target.write(file, first * _UNIT, bytes(_UNIT * max(units // 10, 1)))


@kind("queue-flip", FILE, "A unit points to another place in the log.")
def _(target: RocketMQTarget) -> str:
    file, units = target.filled_queue_file()
    at = target.random.randrange(units) * _UNIT
    return target.flip(file, at + 6)


@kind("queue-ahead", FILE, "A queue has units of messages that the log does not hold.")
def _(target: RocketMQTarget) -> str:
    file, units = target.filled_queue_file(room=3)
    end = target.log_end()
    lost = b"".join((end + 4096 * n).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8) for n in range(3))
    return target.write(file, units * _UNIT, lost)


@kind("index-cycle", FILE, "Entries of an index file name each other as the one before: a search never ends.")
def _(target: RocketMQTarget) -> str:
    file, number, at = target.index_entry()
    return target.write(file, at + ENTRY.field("previous").offset, number.to_bytes(4, "big"))


@kind("index-header", FILE, "The header of an index file counts more entries than there are.")
def _(target: RocketMQTarget) -> str:
    return target.write(target.index_file(), HEADER.field("index_count").offset, (0x7FFF0000).to_bytes(4, "big"))


@kind("index-flip", FILE, "The hash of an index entry is wrong.")
def _(target: RocketMQTarget) -> str:
    file, _, at = target.index_entry()
    return target.flip(file, at + 3)


@kind("index-lost", FILE, "An index file is gone.")
def _(target: RocketMQTarget) -> str:
    return target.remove(target.index_file())


# --- state --------------------------------------------------------------------------------------------


@kind("checkpoint-zero", NOTHING, "The checkpoint is zeros.")
def _(target: RocketMQTarget) -> str:
    return target.write(target.root / "checkpoint", 0, bytes(48))


@kind("checkpoint-future", NOTHING, "The checkpoint is a day ahead of the log.")
def _(target: RocketMQTarget) -> str:
    ahead = target.last_record().store_timestamp + 86_400_000
    return target.write(target.root / "checkpoint", 0, ahead.to_bytes(8, "big") * 3)


@kind("checkpoint-lost", NOTHING, "There is no checkpoint.")
def _(target: RocketMQTarget) -> str:
    return target.remove(target.root / "checkpoint")


@kind("config-cut", NOTHING, "topics.json ends in the middle, and there is no copy.")
def _(target: RocketMQTarget) -> str:
    backup = target.root / "config" / "topics.json.bak"
    backup.unlink(missing_ok=True)
    return target.cut(target.root / "config" / "topics.json")


@kind("abort-left", NOTHING, "The abort file is there, as if the broker had been killed.")
def _(target: RocketMQTarget) -> str:
    return target.fill(target.root / "abort", b"4242")
