"""Damage on purpose to log directories of Kafka: their places, and the kinds of damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from formats.kafka.checkpoint import HIGH_WATERMARK, RECOVERY_POINT
from formats.kafka.directory_files import CLEAN_SHUTDOWN, PARTITION_METADATA
from formats.kafka.internal_records import INTERNAL_TOPICS
from formats.kafka.record_batch import CRC_FROM, HEADER_SIZE
from rmqctl.damage import FILE, NOTHING, DamageKinds, Target
from rmqctl.errors import StoreInUse
from rmqctl.files.local import LocalFile
from rmqctl.files.lock import LockHeldError, holding
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import Partition, read_directory
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.log.scan import Extent, scan

_MOST_BATCHES = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A batch: its file, where it lies there, and its bytes."""

    file: Path
    position: int
    size: int
    base_offset: int


class KafkaTarget(Target):
    """A log directory that is to be damaged: places in its topics, those that brokers keep for themselves apart."""

    def __init__(self, root: Path, where: str, random: Random) -> None:
        super().__init__(root, where, random, "records")
        found = read_directory(LocalTree(str(root)))
        plain = [p for p in found.partitions if p.is_plain]
        self.partitions: list[Partition] = [p for p in plain if p.topic not in INTERNAL_TOPICS]

    @cached_property
    def _batches(self) -> list[Place]:
        found: list[Place] = []
        for log in (log for partition in self.partitions for log in partition.logs):
            path = self.root / log.name
            source = LocalFile(path, log.name)
            try:
                for block in scan(source, Extent(log.name, log.base, size=log.size)):
                    rows = zip(block.position.tolist(), block.size.tolist(), block["base_offset"].tolist(), strict=True)
                    found += [Place(path, *row) for row in rows]
            finally:
                source.close()
            if len(found) > _MOST_BATCHES:
                break
        return found

    def batch(self, *, with_records: bool = False) -> Place:
        """Return the batch that is meant; by choice one inside the logs, not at their ends."""
        found = [b for b in self._batches if b.size > HEADER_SIZE] if with_records else self._batches
        return self.chosen(found, "batch", inner=True)

    def last_batch(self) -> Place:
        """Return the last batch of a partition."""
        last = {batch.file.parent: batch for batch in self._batches}
        return self.chosen(list(last.values()), "partition with batches")

    def file(self, kind: FileKind, *, filled: bool = False, closed: bool = False) -> Path:
        """Return a file of a kind.

        Args:
            filled: one with bytes.
            closed: none of the last segment of a partition.
        """
        found = []
        for partition in self.partitions:
            last = partition.segments[-1].base if partition.segments else -1
            files = partition.of_kind(kind)
            found += [f for f in files if (f.size > 0 or not filled) and not (closed and f.base == last)]
        return self.root / self.chosen([f.name for f in found], f"{kind} file")

    def crash(self) -> None:
        """Take the marker of an orderly stop away."""
        self.remove(self.root / CLEAN_SHUTDOWN)


@contextmanager
def _held(root: Path) -> Iterator[None]:
    try:
        with holding(str(root / str(FileKind.LOCK))):
            yield
    except LockHeldError as error:
        raise StoreInUse(root) from error


BATCH = "batch"
KINDS = DamageKinds("log directory", "--format kafka --damage list", _held, KafkaTarget)
damage, kind = KINDS.do, KINDS.enter


# --- the log ----------------------------------------------------------------------------------------


@kind("record-flip", BATCH, "One bit of the records of a batch is wrong: the CRC does not fit.")
def _(target: KafkaTarget) -> str:
    batch = target.batch(with_records=True)
    return target.flip(batch.file, batch.position + HEADER_SIZE + target.random.randrange(batch.size - HEADER_SIZE))


@kind("crc-flip", BATCH, "The CRC of a batch is wrong, its records are right.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    return target.flip(batch.file, batch.position + CRC_FROM - 4 + target.random.randrange(4))


@kind("length-flip", BATCH, "The length of a batch is wrong: the chain breaks.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    length = batch.size - 12 + 1 + target.random.randrange(500)
    return target.write(batch.file, batch.position + 8, length.to_bytes(4, "big"))


@kind("magic-flip", BATCH, "The magic of a batch is 0: it is read as a message of an old release.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    return target.write(batch.file, batch.position + 16, b"\0")


@kind("offset-flip", BATCH, "The base offset of a batch, which no CRC covers, is 1000 too high.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    return target.write(batch.file, batch.position, (batch.base_offset + 1000).to_bytes(8, "big"))


@kind("zero-batch", BATCH, "A batch is zeros, as a write that never reached the disk.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    return target.write(batch.file, batch.position, bytes(batch.size))


@kind("zero-page", BATCH, "The 4 KiB page that a batch starts in is zeros.")
def _(target: KafkaTarget) -> str:
    batch = target.batch()
    page = batch.position // 4096 * 4096
    return target.write(batch.file, page, bytes(min(4096, batch.file.stat().st_size - page)))


@kind("torn-tail", NOTHING, "The last batch of a partition is half written, and the broker was not stopped.")
def _(target: KafkaTarget) -> str:
    batch = target.last_batch()
    target.crash()
    return target.cut(batch.file, batch.position + batch.size // 2)


@kind("zero-tail", NOTHING, "Zeros follow the last batch of a partition, and the broker was not stopped.")
def _(target: KafkaTarget) -> str:
    target.crash()
    return target.append(target.last_batch().file, bytes(4096))


@kind("garbage-tail", NOTHING, "Random bytes follow the last batch of a partition after an orderly stop.")
def _(target: KafkaTarget) -> str:
    return target.append(target.last_batch().file, target.random.randbytes(300))


@kind("segment-lost", FILE, "The .log file of a segment is gone.")
def _(target: KafkaTarget) -> str:
    return target.remove(target.file(FileKind.LOG, filled=True, closed=True))


@kind("segment-cut", FILE, "The .log file of a segment ends in the middle.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.LOG, filled=True, closed=True)
    return target.cut(file)


# --- what is derived from it ------------------------------------------------------------------------


@kind("index-lost", FILE, "An offset index is gone.")
def _(target: KafkaTarget) -> str:
    return target.remove(target.file(FileKind.OFFSET_INDEX))


@kind("index-flip", FILE, "A bit of a position in an offset index is wrong.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.OFFSET_INDEX, filled=True)
    return target.flip(file, target.random.randrange(file.stat().st_size // 8) * 8 + 6)


@kind("index-padded", FILE, "The index of a segment that is not written to was never trimmed.")
def _(target: KafkaTarget) -> str:
    return target.append(target.file(FileKind.OFFSET_INDEX, closed=True), bytes(800))


@kind("time-index-lost", FILE, "A time index is gone.")
def _(target: KafkaTarget) -> str:
    return target.remove(target.file(FileKind.TIME_INDEX))


@kind("time-index-flip", FILE, "A timestamp in a time index is days off.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.TIME_INDEX, filled=True)
    return target.flip(file, target.random.randrange(file.stat().st_size // 12) * 12 + 3)


@kind("txn-index-lost", FILE, "A transaction index is gone: aborted records show.")
def _(target: KafkaTarget) -> str:
    return target.remove(target.file(FileKind.TXN_INDEX))


@kind("snapshot-flip", FILE, "A producer snapshot has a wrong bit.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.PRODUCER_SNAPSHOT, filled=True)
    return target.flip(file, target.random.randrange(file.stat().st_size))


# --- state --------------------------------------------------------------------------------------------


@kind("epochs-cut", FILE, "A leader-epoch-checkpoint ends in the middle of a line.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.LEADER_EPOCHS, filled=True)
    return target.cut(file, max(file.stat().st_size - 3, 1))


@kind("topic-id-lost", FILE, "The partition.metadata of a partition is gone: a KRaft broker takes it for a stray.")
def _(target: KafkaTarget) -> str:
    partition = target.chosen([p for p in target.partitions if p.one(FileKind.PARTITION_METADATA)], "partition")
    return target.remove(target.root / partition.directory / PARTITION_METADATA)


@kind("checkpoint-cut", NOTHING, "The recovery points end in the middle: the directory goes offline.")
def _(target: KafkaTarget) -> str:
    file = target.root / RECOVERY_POINT
    return target.cut(file, max(file.read_bytes().rstrip().rfind(b" "), 1))


@kind("watermarks-future", NOTHING, "High watermarks are above the ends of the logs.")
def _(target: KafkaTarget) -> str:
    lines = (target.root / HIGH_WATERMARK).read_text().splitlines()
    ahead = [f"{line.rpartition(' ')[0]} {int(line.rpartition(' ')[2]) + 1000}" for line in lines[2:]]
    return target.fill(target.root / HIGH_WATERMARK, "".join(f"{line}\n" for line in (*lines[:2], *ahead)).encode())


@kind("marker-lost", NOTHING, "The marker of an orderly stop is gone, as if the broker had been killed.")
def _(target: KafkaTarget) -> str:
    return target.remove(target.root / CLEAN_SHUTDOWN)


@kind("swap-left", FILE, "A cleaned segment that was not put in yet lies beside the one that it replaces.")
def _(target: KafkaTarget) -> str:
    file = target.file(FileKind.LOG, filled=True, closed=True)
    return target.fill(file.with_name(f"{file.name}.swap"), file.read_bytes())
