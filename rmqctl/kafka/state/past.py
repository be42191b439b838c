"""Log directories as they were at a time: how far each log reached then, by which clock, and views that end there.

Brokers date the batches of topics with ``message.timestamp.type=LogAppendTime``, those of internal topics and of the
metadata log, and the markers of transactions. The time of other records is what their producer claims (CreateTime): it
says that a batch was not there before, if the producer's clock was right, and never that it was. That a segment was
complete says the time at which its file was written last, where no record in it claims a later one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from formats.kafka.internal_records import CLUSTER_METADATA, CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from formats.kafka.messages import Values
from formats.kafka.record_batch import Attributes
from rmqctl.kafka.directory.directory import Segment
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.log.block import Block, stated_records
from rmqctl.kafka.state.metadata import MetadataImage, metadata_image
from rmqctl.kafka.state.partition_state import PartitionLog, reached_offsets
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.past import CLIENTS, COMPACTION, DAMAGE, RETENTION, SET_BACK, Past, is_current

BROKERS, FILES, PRODUCERS = "broker", "file", "producers"
"""Whose clock says where a log ended."""
_BY_BROKERS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, CLUSTER_METADATA})
_GRAIN_MS = 20
"""How much later than the time of its file a write may have been: systems take that time from a clock that ticks."""
_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a log reached at a time.

    Attributes:
        low, high: what its end was at least and at most; the same where that is known.
        reason: why they differ, "" where they do not.
        clock: :data:`BROKERS`, :data:`FILES`, or :data:`PRODUCERS` where it rests on what clients claim.
        hole: the first offset after the first batch that is missing, compacted away or lost; None: none below ``high``.
        first: offset of the first batch that is here; that of the end where there is none.
        begins: time of the first batch that a broker dated, epoch ms; None without one.
    """

    low: int
    high: int
    reason: str
    clock: str
    hole: int | None
    first: int
    begins: int | None

    @property
    def is_known(self) -> bool:
        return self.low == self.high


def reach_of(log: PartitionLog, at: int) -> Reach:
    """Return how far a log reached at a time, epoch ms; one pass over the headers of its batches."""
    found = _Stamps(at, log.partition.topic in _BY_BROKERS)
    files: list[tuple[int, int, int]] = []
    for number, segment in enumerate(log.served):
        for block in log.blocks_of(number):
            found.add(block)
        end = log.served[number + 1].base if number + 1 < len(log.served) else log.end
        files.append((end, segment.log.mtime_ms if segment.log is not None else 0, found.latest))
    end = log.end
    high, low, clock, reason = min(found.after, end), found.before, BROKERS, ""
    if low > high:
        return found.reach(high, min(low, end), SET_BACK, BROKERS)
    for reached, written, latest in files:
        if low < reached <= high and latest <= written <= at - _GRAIN_MS and written > 0:
            low, clock = reached, FILES
    if low <= found.claimed < high:
        high, clock = found.claimed, PRODUCERS
    reached = max((offset for offset, _ in reached_offsets(log)), default=0)
    if high == end < reached and log.partition.is_plain:
        return found.reach(low, reached, DAMAGE, clock)
    if low < high:
        is_cut = not low and high <= found.first and log.served[0].base
        reason = RETENTION if is_cut else _why_apart(log, low, high)
    return found.reach(low, high, reason, clock)


def _why_apart(log: PartitionLog, low: int, high: int) -> str:
    """Return why the end of a log is not settled between two offsets."""
    for _, block in log.blocks(low):
        if ((block["last_offset"] >= low) & (block["base_offset"] < high)).any():
            return CLIENTS
    return COMPACTION


class _Stamps:
    """What the times of batches say, gathered block by block.

    Attributes:
        before: offset after the last batch that a broker dated not later than the time.
        after, claimed: offset of the first batch that a broker, or only its producer, dated later.
        first: offset of the first batch.
        latest: the latest time of any batch so far, epoch ms.
    """

    def __init__(self, at: int, by_brokers: bool) -> None:
        self.at, self.by_brokers = at, by_brokers
        self.before, self.after, self.claimed, self.first, self.latest = 0, _NEVER, _NEVER, _NEVER, -1
        self.hole, self.next, self.begins = _NEVER, -1, -1

    def add(self, block: Block) -> None:
        if not len(block):
            return
        base, last, time = block["base_offset"], block["last_offset"], block["max_timestamp"]
        appended = block.flag(Attributes.LOG_APPEND_TIME) | block.flag(Attributes.CONTROL) | self.by_brokers
        dated, later = time >= 0, time > self.at
        if self.next < 0:
            self.first = self.next = int(base[0])
        short = stated_records(block) < last - base + 1
        missing = np.flatnonzero((base != np.concatenate([[self.next], last[:-1] + 1])) | short)
        if len(missing) and self.hole == _NEVER:
            at = int(missing[0])
            self.hole = self.next if not at else int(last[at - 1]) + 1
        self.next = int(last[-1]) + 1
        for rows, name in ((appended & later, "after"), (~appended & later, "claimed")):
            if rows.any():
                setattr(self, name, min(getattr(self, name), int(base[rows].min())))
        there = appended & dated & ~later
        if there.any():
            self.before = max(self.before, int(last[there].max()) + 1)
        self.latest = max(self.latest, int(time.max()))
        sure = np.flatnonzero(appended & dated)
        if len(sure) and self.begins < 0:
            self.begins = int(time[sure[0]])

    def reach(self, low: int, high: int, reason: str, clock: str) -> Reach:
        hole = self.hole if self.hole < high else None
        first = high if self.first == _NEVER else self.first
        return Reach(low, high, reason, clock, hole, first, self.begins if self.begins >= 0 else None)


@dataclass
class PastLog(PartitionLog):
    """A log of which only what lies before an offset is there.

    Attributes:
        whole: the log.
        past: the time.
        is_most: it ends where the log ended at most, not at least.
    """

    whole: PartitionLog = field(kw_only=True)
    past: PastReplicas = field(kw_only=True, repr=False)
    is_most: bool = field(kw_only=True)

    @classmethod
    def of(cls, whole: PartitionLog, past: PastReplicas, *, is_most: bool) -> PastLog:
        return cls(
            whole.directory, whole.partition, whole.checkpoints, whole.loads, whole=whole, past=past, is_most=is_most
        )

    @cached_property
    def loaded(self) -> LoadedPartition:
        return self.whole.loaded

    @property
    def reach(self) -> Reach:
        """How far the log reached."""
        return self.past.reach(self.whole)

    @property
    def end(self) -> int:
        return self.reach.high if self.is_most else self.reach.low

    @property
    def is_whole(self) -> bool:
        return False

    def blocks(self, start: int = 0, *, check_crc: bool = False) -> Iterator[tuple[Segment, Block]]:
        end = self.end
        for segment, block in self.whole.blocks(start, check_crc=check_crc):
            keep = block["last_offset"] < end
            if not len(block) or keep.all():
                yield segment, block
                continue
            if keep.any():
                yield segment, block.take(keep)
            return


class PastReplicas:
    """The replicas of a broker as they were at a time.

    Attributes:
        low, high: as far as their logs had come at least, and at most; the same where clocks settle it.
    """

    def __init__(self, now: Replicas, past: Past) -> None:
        self.now, self.past = now, past
        self._reaches: dict[int, Reach] = {}
        self.low = self._view(is_most=False)
        self.high = self._view(is_most=True)

    def reach(self, log: PartitionLog) -> Reach:
        """Return how far a log reached."""
        whole = log.whole if isinstance(log, PastLog) else log
        known = self._reaches.get(id(whole))
        if known is None:
            known = self._reaches[id(whole)] = reach_of(whole, self.past.at)
        return known

    @cached_property
    def is_now(self) -> bool:
        """Whether nothing was written after the time: files are as they were."""
        if is_current(self.past.at, is_running=self.now.place.is_running):
            return True
        written = max((f.mtime_ms for d in self.now.directories for f in d.all_files()), default=0)
        if not written or written > self.past.at:
            return False
        logs = [self.now.metadata_log] if self.now.metadata_log is not None else self.now.all
        return all(self.reach(log).low == log.end for log in logs)

    @cached_property
    def images(self) -> tuple[MetadataImage | None, MetadataImage | None]:
        """The cluster's metadata at least and at most; None where no metadata log, or none of that time, is here."""
        log = self.now.metadata_log
        if log is None:
            return None, None
        reach = self.reach(log)
        low = image_before(log, reach.low)
        return low, low if reach.is_known else image_before(log, reach.high)

    def _view(self, *, is_most: bool) -> Replicas:
        view = copy.copy(self.now)
        view.__dict__.pop("topic_names", None)
        image = self.images[is_most]
        view.__dict__["image"] = image
        view.__dict__["all"] = [
            PastLog.of(log, self, is_most=is_most) for log in self.now.all if _was_there(log, self.now, image)
        ]
        return view

    def of(self, view: Replicas, topic: str, number: int | None) -> Reach | None:
        """Return how far a partition of a view reached; None for one that is not in it."""
        log = view.find(topic, -1 if number is None else number)
        return None if log is None else self.reach(log)

    def gone(self) -> Iterator[tuple[str, int, str]]:
        """Yield the partitions that this node had then and whose log is not here: topic, number, id of the topic."""
        image = self.images[1]
        if image is None:
            return
        nodes = {properties.node_id for properties in self.now.identities if properties is not None}
        here = {(log.partition.topic, log.partition.partition) for log in self.high.all}
        for topic, topic_id in sorted(image.topics.items()):
            for number, values in image.partitions_of(topic).items():
                if (topic, number) not in here and _is_of(values, nodes):
                    yield topic, number, topic_id


def _is_of(partition: Values, nodes: set[int | None]) -> bool:
    return not nodes or bool(nodes & set(partition["replicas"]))


def _was_there(log: PartitionLog, replicas: Replicas, image: MetadataImage | None) -> bool:
    """Whether the log of a partition is that of its topic in an image; yes where there is none to ask."""
    if image is None or log.partition.is_metadata_log:
        return True
    known = image.topics.get(log.partition.topic)
    return known is not None and known == (replicas.topic_id(log) or known)


def image_before(log: PartitionLog, end: int) -> MetadataImage | None:
    """Return the metadata before an offset; None where neither the log nor a snapshot goes back that far."""
    image = metadata_image(log, end - 1)
    return image if image.offset < end and (image.snapshot or not log.segments or not log.segments[0].base) else None
