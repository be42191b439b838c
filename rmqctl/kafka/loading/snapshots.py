"""Producer state as a broker loads, replays and snapshots it while it starts (spec 9.2, 13.4; ProducerStateManager)."""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
from crc32c import crc32c

from formats.kafka.producer_snapshot import CRC_FROM, VERSION, SnapshotHead, producer_dtype
from formats.layout import plan_of
from rmqctl.kafka.directory.file_names import LONG_MAX
from rmqctl.kafka.loading.files import PartitionFiles, StartFails
from rmqctl.kafka.loading.producers import Producer, ProducerReplay
from rmqctl.kafka.log.indexes import read_producer_snapshot

ENDING = ".snapshot"
EXPIRATION_MS = 86_400_000
"""``producer.id.expiration.ms`` of a broker without settings: snapshots of longer idle producers are not loaded."""
_LOAD = 0.75
_LONG = re.compile(r"[+-]?[0-9]+")


class ProducerStates:
    """The producers of a partition and the snapshots of them, in a view of its files.

    Attributes:
        replay: the producers now.
        snapshots: names of the snapshot files that are known, by offset.
        end: the offset that the state has reached.
        snapped: that of the newest snapshot taken or loaded.
        alive_since: producers in snapshots that have no later timestamp, ms, and no transaction are left out.
    """

    def __init__(self, files: PartitionFiles, alive_since: int) -> None:
        self.files, self.alive_since = files, alive_since
        self.replay = ProducerReplay()
        self.snapshots = self._listed()
        self.end = self.snapped = 0

    def _listed(self) -> dict[int, str]:
        names = [name for name in self.files.names() if name.endswith(ENDING)]
        return {offset_of(name): name for name in names}

    @property
    def newest(self) -> int | None:
        """The offset of the newest snapshot."""
        return max(self.snapshots, default=None)

    def remove(self, offset: int) -> None:
        """Delete a snapshot, where there is one."""
        name = self.snapshots.pop(offset, None)
        if name is not None:
            self.files.delete(name)

    def remove_strays(self, bases: set[int]) -> None:
        """Delete snapshots that belong to no segment, but the newest where it is above the last segment's base."""
        self.snapshots = self._listed()
        strays = sorted(offset for offset in self.snapshots if offset not in bases)
        kept = strays[-1:] if strays and bases and strays[-1] >= max(bases) else []
        for offset in strays:
            if offset not in kept:
                self.remove(offset)

    def start_at(self, offset: int) -> None:
        """Forget all, snapshots too, and go on from an offset."""
        self.replay = ProducerReplay()
        for known in list(self.snapshots):
            self.remove(known)
        self.end, self.snapped = offset, 0

    def reload(self, log_start: int, end: int) -> None:
        """Load the newest snapshot inside a range; those outside it, and those that cannot be read, are deleted."""
        for offset in list(self.snapshots):
            if offset > end or offset <= log_start:
                self.remove(offset)
        if end == self.end:
            self.end = max(self.end, log_start)
            self.snapped = log_start if self.newest is None else self.newest
            return
        self.replay = ProducerReplay()
        while (newest := self.newest) is not None:
            with closing(self.files.open(self.snapshots[newest])) as source:
                found = read_producer_snapshot(source)
            if found.is_good:
                self.replay.load(row for row in found.rows() if self._is_alive(row))
                self.end = self.snapped = newest
                return
            self.remove(newest)
        self.end = self.snapped = log_start

    def _is_alive(self, row: dict[str, int]) -> bool:
        return row["current_txn_first_offset"] >= 0 or row["last_timestamp"] > self.alive_since

    def take_snapshot(self) -> None:
        """Write a snapshot of what is known now, unless there is one of this offset already."""
        if self.end <= self.snapped:
            return
        name = f"{self.end:020d}{ENDING}"
        self.files.put(name, snapshot_bytes(self.replay))
        self.snapshots[self.end] = name
        self.snapped = self.end


def offset_of(name: str) -> int:
    """Return the offset in a file's name, as a broker reads it.

    Raises:
        StartFails: there is none; a broker does not start then.
    """
    text = name.partition(".")[0]
    if _LONG.fullmatch(text) is None or not -LONG_MAX - 1 <= (offset := int(text)) <= LONG_MAX:
        raise StartFails(f'no offset is in the file name {name}: NumberFormatException: For input string: "{text}"')
    return offset


def snapshot_bytes(replay: ProducerReplay) -> bytes:
    """Return the bytes of a snapshot, producers in the order of the broker's hash table."""
    rows = _in_table_order(list(replay.producers.values()))
    found = np.zeros(len(rows), producer_dtype())
    for number, producer in enumerate(rows):
        found[number] = tuple(producer.row()[name] for name in found.dtype.names or ())
    head = plan_of(SnapshotHead).runs[0].packer
    made = head.pack(VERSION, 0, len(rows)) + found.tobytes()
    return head.pack(VERSION, crc32c(memoryview(made)[CRC_FROM:]), len(rows)) + made[head.size :]


def _in_table_order(producers: list[Producer]) -> list[Producer]:
    """By the bucket of the id in a ``java.util.HashMap`` of this many entries; first come, first served in each."""
    buckets = 16
    while len(producers) > buckets * _LOAD:
        buckets *= 2

    def bucket(producer: Producer) -> int:
        number = (producer.producer_id ^ (producer.producer_id >> 32)) & 0xFFFFFFFF
        return (number ^ (number >> 16)) & (buckets - 1)

    return sorted(producers, key=bucket)
