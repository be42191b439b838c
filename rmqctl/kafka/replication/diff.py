"""Where two log directories, two replicas of a partition or two controllers differ.

Batches are compared by offsets, leader epoch and CRC. What has no equal is laid beside what the other copy has at the
same offsets: records that only one has, records that differ, equal records in other batches (compressed again, or
compacted at other times), or another leader epoch, where the logs have parted. Two metadata logs are also replayed to
the last offset that both have, and their images compared.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from formats.errors import DecodeError
from rmqctl.answer import Advance
from rmqctl.findings import DIFF_ONLY_A, DIFF_ONLY_B, DIFF_RECORD, Finding, FindingKind
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory
from rmqctl.kafka.findings.directory import DIFF_METADATA, DIFF_PARTITION, DIFF_TOPIC_ID
from rmqctl.kafka.findings.log import DIFF_BATCH, DIFF_EPOCH
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.log.block import Ints
from rmqctl.kafka.log.reference import Record, records_of_batch
from rmqctl.kafka.replication.copies import Batches, Copy, copy_at
from rmqctl.kafka.replication.elect import common_end
from rmqctl.kafka.replication.union import joined
from rmqctl.kafka.state.metadata import MetadataImage, metadata_image, snapshots
from rmqctl.kafka.state.metadata_rows import PARTS, image_document
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.parallel import Share, note
from rmqctl.text import number_of

_IDENTITY = {
    "brokers": ("node_id",), "controllers": ("node_id",), "voters": ("node_id",), "features": ("name",),
    "topics": ("topic",), "partitions": ("topic", "partition"), "configs": ("resource", "name", "key"),
    "acls": ("id",), "quotas": ("entity", "key"), "scram_credentials": ("user", "mechanism"),
    "delegation_tokens": ("token_id",),
}  # fmt: skip
"""What names a row of each part of a metadata image."""
_MOST_FIELDS = 3


@dataclass
class Amount:
    """What only one side has.

    Attributes:
        partitions: ``topic-0`` -> first and last offset, and records.
    """

    records: int = 0
    bytes: int = 0
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, label: str, batches: Batches) -> None:
        """Count some batches, ascending by offset."""
        self.records += batches.records
        self.bytes += batches.bytes
        known = self.partitions.setdefault(label, {"from": int(batches.base[0]), "to": 0, "records": 0})
        known["to"] = int(batches.last[-1])
        known["records"] += batches.records

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {"records": self.records, "bytes": self.bytes, "partitions": self.partitions}


@dataclass
class Side:
    """One of the two.

    Attributes:
        by_label: the partitions to compare, by ``topic-0``.
    """

    name: str
    replicas: Replicas
    by_label: dict[str, PartitionLog] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    damaged: int = 0

    @classmethod
    def of(cls, place: LogDirectories, name: str) -> Side:
        """Return what of a place is compared: the plain partitions that the user pointed at."""
        found = cls(name, Replicas(place))
        selected = {id(partition) for partition in place.selected}
        for log in found.replicas.all:
            if id(log.partition) in selected:
                found.by_label[log.partition.label] = log
        return found

    def row(self) -> dict[str, Any]:
        """As JSON."""
        counts = {"partitions": len(self.by_label), "records": self.records, "bytes": self.bytes}
        return {"path": self.name, **counts, "damaged_places": self.damaged}


class Diff:
    """Compares two sides: :meth:`findings` once, then :meth:`summary`.

    Attributes:
        by_batch: batches that differ count although their records are equal.
        share: reads the copies elsewhere; None: here.
        counts: findings by severity.
        first: the first offset at which a partition differs, by ``topic-0``.
    """

    def __init__(
        self, a: Side, b: Side, *, by_batch: bool, advance: Advance = lambda _: None, share: Share | None = None
    ) -> None:
        self.a, self.b, self.by_batch, self.advance, self.share = a, b, by_batch, advance, share
        self.counts: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        self.tally: Counter[str] = Counter()
        self.only = {"a": Amount(), "b": Amount()}
        self.metadata: dict[str, Any] | None = None
        self._started = time.monotonic()

    @property
    def is_different(self) -> bool:
        """Whether anything was found."""
        return sum(self.counts.values()) > 0

    def findings(self) -> Iterator[Finding]:
        """Differences by partition and offset, then those of the metadata."""
        for finding in self._all():
            self.counts[str(finding.level)] += 1
            yield finding

    def summary(self) -> dict[str, Any]:
        """Numbers of the whole; offsets are those of records."""
        names = ("equal", "changed", "repacked", "other_epoch")
        return {
            "a": self.a.row(),
            "b": self.b.row(),
            "by": "physical" if self.by_batch else "queue",
            "different": self.is_different,
            "first_divergence": self.first,
            "records": {
                **{name: self.tally[name] for name in names},
                "only_a": self.only["a"].row(),
                "only_b": self.only["b"].row(),
            },
            "partitions": {
                name: self.tally[f"partitions_{name}"] for name in ("compared", "equal", "only_a", "only_b")
            },
            "metadata": self.metadata,
            "findings": {level: self.counts[level] for level in ("error", "warning", "note")},
            "seconds": round(time.monotonic() - self._started, 3),
        }

    def _all(self) -> Iterator[Finding]:
        one, two = self.a.by_label, self.b.by_label
        if len(one) == len(two) == 1:  # two replicas under any names
            labels = list(one)
            pairs = {labels[0]: (one[labels[0]], next(iter(two.values())))}
        else:
            labels = sorted({*one, *two})
            pairs = {label: (one[label], two[label]) for label in labels if label in one and label in two}
        copies = iter(self._copies(list(pairs.values())))
        for label in labels:
            if label in pairs:
                yield from self._partition(label, *pairs[label], next(copies), next(copies))
            else:
                yield self._alone(label)
        yield from self._images()

    def _copies(self, pairs: list[tuple[PartitionLog, PartitionLog]]) -> Iterable[Copy]:
        """Return the copy of A, then that of B, of one partition after the other."""
        places = self.a.replicas.place, self.b.replicas.place
        wanted = [(place, log) for pair in pairs for place, log in zip(places, pair, strict=True)]
        if self.share is not None:
            return self.share(_read, [_by_itself(place, log) for place, log in wanted])
        return (copy_at(place, log, log.partition.directory, self.advance) for place, log in wanted)

    def _alone(self, label: str) -> Finding:
        letter, side = ("A", self.a) if label in self.a.by_label else ("B", self.b)
        log = side.by_label[label]
        self.tally[f"partitions_only_{letter.lower()}"] += 1
        size = sum(max(file.size, 0) for file in log.partition.logs)
        return Finding(DIFF_PARTITION, log.partition.directory, 0, size, f"{label} is only in {letter}")

    # --- a partition ------------------------------------------------------------------------------------

    def _partition(self, label: str, one: PartitionLog, two: PartitionLog, a: Copy, b: Copy) -> Iterator[Finding]:
        """Two copies of a partition."""
        self.tally["partitions_compared"] += 1
        before = sum(self.counts.values())
        ids = self.a.replicas.topic_id(one), self.b.replicas.topic_id(two)
        if None not in ids and ids[0] != ids[1]:
            text = f"{label}: the topic's id is {ids[0]} in A, {ids[1]} in B"
            yield Finding(DIFF_TOPIC_ID, f"{one.partition.directory}/partition.metadata".lstrip("/"), 0, 0, text)
        for side, copy in ((self.a, a), (self.b, b)):
            side.records += copy.batches.records
            side.bytes += copy.batches.bytes
            side.damaged += len(copy.damage)
        yield from _Pair(self, label, one, a, b).findings()
        self.tally["partitions_equal"] += sum(self.counts.values()) == before

    def _images(self) -> Iterator[Finding]:
        """Yield what two metadata logs say at the last offset that both have."""
        logs = [side.by_label.get(side.replicas.metadata_log.partition.label) if side.replicas.metadata_log else None
                for side in (self.a, self.b)]  # fmt: skip
        if logs[0] is None or logs[1] is None:
            return
        ends = [log.replayed.log_end_offset - 1 for log in logs if log is not None]
        at = min(ends)
        if at < 0:
            return  # one of them has no record
        one, two = (metadata_image(log, at) for log in logs if log is not None)
        self.metadata = {"offset": at, "end_a": ends[0] + 1, "end_b": ends[1] + 1, "differences": 0, "problem": None}
        for n, (side, log, image) in enumerate(((self.a, logs[0], one), (self.b, logs[1], two))):
            if image.offset == at and not image.problems:
                continue
            wrong = image.problems[0] if image.problems else None
            why = f"it begins at offset {image.offset}" if wrong is None else f"{wrong.file}: {wrong.message}"
            why, begins = f"{'AB'[n]}: {why}", _begins_after(log, at, image)
            if begins is not None and ends[n] > at:
                why = f"the metadata of {'AB'[n]} begins at {begins}, after {'BA'[n]} ends at {at + 1}"
            else:
                side.damaged = max(side.damaged, 1)
            self.metadata |= {"differences": None, "problem": self.metadata["problem"] or why}
        if self.metadata["differences"] is None:
            return
        file = logs[0].partition.logs[-1].name
        rows = zip(image_document(one).items(), image_document(two).values(), strict=True)
        for part, mine, others in ((name, x, y) for (name, x), y in rows if name in PARTS):
            for text in _unequal_rows(part, mine, others):
                self.metadata["differences"] += 1
                yield Finding(DIFF_METADATA, file, 0, 0, f"at offset {at}: {text}")


def _begins_after(log: PartitionLog, at: int, image: MetadataImage) -> int | None:
    """Return where the metadata of a controller begins, if that is after an offset and all that is wrong there."""
    later = [file.base for file in snapshots(log.partition) if file.base - 1 > at]
    is_all = len(image.problems) == 1 and image.problems[0].offset < log.segments[0].base
    return later[0] if later and is_all else None


def _by_itself(place: LogDirectories, log: PartitionLog) -> tuple[LogDirectories, PartitionLog]:
    """Return a partition without the others of its directory, so that little travels."""
    home = LogDirectory(log.directory.tree, [log.partition], log.directory.files)
    return LogDirectories([home], place.selection), PartitionLog(home, log.partition, Checkpoints(home))


def _read(task: tuple[LogDirectories, PartitionLog]) -> Copy:
    """Read a copy, by a task somewhere else."""
    place, log = task
    found = copy_at(place, log, log.partition.directory)
    note(found.batches.records, found.batches.bytes)
    return found


def _unequal_rows(part: str, mine: list[dict[str, Any]], others: list[dict[str, Any]]) -> Iterator[str]:
    """Rows of a part of two images that differ, a sentence each."""

    def keyed(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {" ".join(str(row[name]) for name in _IDENTITY[part]): row for row in rows}

    one, two, noun = keyed(mine), keyed(others), part.removesuffix("s").replace("_", " ")
    for key in {**one, **two}:
        if key not in one or key not in two:
            yield f"{noun} {key} is only in {'A' if key in one else 'B'}"
        elif one[key] != two[key]:
            fields = [
                f"{name} {one[key][name]} / {two[key][name]}"
                for name in one[key]
                if one[key][name] != two[key].get(name)
            ]
            yield f"{noun} {key}: {', '.join(fields[:_MOST_FIELDS])}"


@dataclass
class _Stretch:
    """Some neighbouring offsets at which both copies have batches, and not the same.

    Attributes:
        mine: the batches of A.
        end: the last offset.
        alone: records that only A and only B has.
        text: what differs first.
    """

    kind: FindingKind
    mine: Batches
    begin: int
    end: int
    changed: int = 0
    alone: tuple[int, int] = (0, 0)
    text: str = ""


class _Pair:
    """Two copies of one partition."""

    def __init__(self, diff: Diff, label: str, log: PartitionLog, a: Copy, b: Copy) -> None:
        self.diff, self.label, self.log, self.a, self.b = diff, label, log, a, b

    def findings(self) -> Iterator[Finding]:
        """Yield what differs, by offset."""
        x, y = self.a.batches, self.b.batches
        equal = np.isin(x.keys(), y.keys())
        self.diff.tally["equal"] += x.take(equal).records
        rest_x, rest_y = np.flatnonzero(~equal), np.flatnonzero(~np.isin(y.keys(), x.keys()))
        found = [
            *self._only("a", self.a, self.b, rest_x),
            *self._only("b", self.b, self.a, rest_y),
            *self._both(rest_x, rest_y),
        ]
        for offset, finding in sorted(found, key=lambda pair: pair[0]):
            self.diff.first.setdefault(self.label, offset)
            yield finding

    def _only(self, letter: str, mine: Copy, other: Copy, rest: Ints) -> Iterator[tuple[int, Finding]]:
        """Yield runs of batches where the other copy has nothing at all."""
        batches = mine.batches
        alone = rest[~_overlapped(batches.take(rest), other.batches)]
        kind = DIFF_ONLY_A if letter == "a" else DIFF_ONLY_B
        for run in np.split(alone, np.flatnonzero(np.diff(alone) != 1) + 1) if len(alone) else []:
            some = batches.take(run)
            self.diff.only[letter].add(self.label, some)
            begin, end = int(some.base[0]), int(some.last[-1])
            missing = "B" if letter == "a" else "A"
            text = (
                f"only in {letter.upper()}: {number_of(some.records, 'record')}, {some.bytes:,} bytes, "
                f"offsets {begin} to {end}; {missing}'s log {_why(begin, end, other)}"
            )
            yield begin, self._finding(kind, mine, some, text)

    def _both(self, rest_x: Ints, rest_y: Ints) -> Iterator[tuple[int, Finding]]:
        """Offsets at which both copies have batches, and not the same; neighbours that differ alike are one."""
        x, y = self.a.batches.take(rest_x), self.b.batches.take(rest_y)
        x, y = x.take(_overlapped(x, self.b.batches)), y.take(_overlapped(y, self.a.batches))
        run: list[_Stretch] = []
        for begin, end in _stretches(x, y):
            mine, others = (
                copy.batches.take((copy.batches.base <= end) & (copy.batches.last >= begin))
                for copy in (self.a, self.b)
            )
            found = self._stretch(mine, others)
            if run and not (found.kind is run[-1].kind and found.begin == run[-1].end + 1):
                yield run[0].begin, self._of_run(run)
                run = []
            if found.kind is not DIFF_BATCH or self.diff.by_batch or any(found.alone):
                run.append(found)
        if run:
            yield run[0].begin, self._of_run(run)

    def _stretch(self, mine: Batches, others: Batches) -> _Stretch:
        """Batches of both that no break between batches divides further."""
        tally = self.diff.tally
        epochs = tuple(tuple(sorted({*side.epoch.tolist()})) for side in (mine, others))
        found = _Stretch(DIFF_EPOCH, mine, min(int(mine.base[0]), int(others.base[0])), int(mine.last[-1]))
        found.end = max(found.end, int(others.last[-1]))
        if epochs[0] != epochs[1]:
            tally["other_epoch"] += mine.records
            found.text = f"leader epoch {_listed(epochs[0])} in A, {_listed(epochs[1])} in B"
            return found
        left, right = self._records(self.a, mine), self._records(self.b, others)
        changed = [offset for offset in left if offset in right and left[offset] != right[offset]]
        found.alone = len(left.keys() - right.keys()), len(right.keys() - left.keys())
        tally["repacked"] += len(left) - len(changed)
        if changed:
            tally["changed"] += len(changed)
            found.kind, found.changed = DIFF_RECORD, len(changed)
            found.text = _first_difference(left[changed[0]], right[changed[0]])
        else:
            found.kind = DIFF_BATCH
        return found

    def _of_run(self, run: list[_Stretch]) -> Finding:
        first, place = run[0], f"offsets {run[0].begin} to {run[-1].end}"
        alone = sum(one.alone[0] for one in run), sum(one.alone[1] for one in run)
        if first.kind is DIFF_EPOCH:
            text = f"{place}: {first.text}; the logs part at offset {common_end(self.a, self.b)}"
        elif first.kind is DIFF_RECORD:
            text = f"{number_of(sum(one.changed for one in run), 'record')} of {place}: {first.text}"
        elif any(alone):
            text = f"{place}: {alone[0]:,} records are only in A, {alone[1]:,} only in B"
        else:
            text = f"{place}: equal records in other batches"
        return self._finding(first.kind, self.a, joined([one.mine for one in run]), text)

    def _records(self, copy: Copy, batches: Batches) -> dict[int, Record]:
        """Return the records of some batches by offset, as far as they can be decoded."""
        found = dict[int, Record]()
        for row in range(len(batches)):
            source = copy.files[int(batches.file[row])].open()
            try:
                for record in records_of_batch(source.read_at(int(batches.position[row]), int(batches.size[row]))):
                    found[record.offset] = record
            except DecodeError:
                continue
            finally:
                source.close()
        return found

    def _finding(self, kind: FindingKind, copy: Copy, batches: Batches, text: str) -> Finding:
        file, at = copy.files[int(batches.file[0])].name, int(batches.position[0])
        partition = self.log.partition
        return Finding(kind, file, at, batches.bytes, text, topic=partition.topic, partition=partition.partition)


def _overlapped(batches: Batches, others: Batches) -> np.ndarray:
    """Which batches share an offset with one of the others, which are ascending."""
    first = np.searchsorted(others.last, batches.base, "left")
    found = first < len(others)
    if len(others):
        found &= others.base[np.minimum(first, len(others) - 1)] <= batches.last
    return found


def _stretches(x: Batches, y: Batches) -> Iterator[tuple[int, int]]:
    """Ranges of offsets, first and last, that no end of a batch of either divides further."""
    base, last = np.concatenate([x.base, y.base]), np.concatenate([x.last, y.last])
    order = np.argsort(base, kind="stable")
    base, last = base[order], last[order]
    if not len(base):
        return
    reach = np.maximum.accumulate(last)
    starts = np.concatenate([[0], np.flatnonzero(base[1:] > reach[:-1]) + 1])
    for begin, end in zip(starts.tolist(), [*(starts[1:] - 1).tolist(), len(base) - 1], strict=True):
        yield int(base[begin]), int(reach[end])


def _why(begin: int, end: int, other: Copy) -> str:
    if not len(other.batches):
        return "has no records"
    if end < other.start:
        return f"begins at {other.start}"
    return f"ends at {other.end}" if begin >= other.end else "has no sound batch there"


def _listed(epochs: tuple[int, ...]) -> str:
    return ", ".join(map(str, epochs)) or "none"


def _first_difference(one: Record, two: Record) -> str:
    """Return what differs in two records of one offset."""
    fields = [
        name
        for name in ("timestamp", "key", "value", "headers", "sequence")
        if getattr(one, name) != getattr(two, name)
    ]
    return f"first at offset {one.offset}, in {', '.join(fields)}"
