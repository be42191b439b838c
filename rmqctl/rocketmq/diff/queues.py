"""The consume queues of two stores, unit by unit; file queues against RocksDB queues too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import add

import numpy as np

from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq.diff.logs import Slice, merge
from rmqctl.rocketmq.dump.log import is_under
from rmqctl.rocketmq.findings.derived import DIFF_QUEUE_ONLY_A, DIFF_QUEUE_ONLY_B, DIFF_QUEUE_UNIT
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, queues_of
from rmqctl.rocketmq.queues.rocksdb import rocksdb_units
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFiles

Key = tuple[str, int]
QueueKey = tuple[str, Key]
"""``consumequeue`` or ``batchconsumequeue``, and the queue."""
_FIELDS = ("physical_offset", "size", "tags_code")
_BATCH_FIELDS = (*_FIELDS, "base_offset", "batch_size")


@dataclass(frozen=True, slots=True)
class Common:
    """The part of the log that both stores hold: units that lead elsewhere say nothing of the queues.

    Attributes:
        begin, end: physical offsets.
        places: units must name the same physical offsets; else only their tag codes count.
    """

    begin: int
    end: int
    places: bool = True

    def holds(self, units: Units) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which units lead there."""
        return (units["physical_offset"] >= self.begin) & (units["physical_offset"] < self.end)


class StoreQueues:
    """The queues of one kind of a store.

    Args:
        kind: ``consumequeue``, or ``batchconsumequeue``, whose units are numbered in the place of queue offsets.
    """

    def __init__(self, store: StoreFiles, kind: str = QUEUES) -> None:
        self.kind = kind
        self.dtype = BATCH_UNIT if kind == BATCH_QUEUES else UNIT
        self._rocks: dict[Key, Units] = {}
        self._files: dict[Key, Queue] = {}
        if store.is_rocksdb and kind == QUEUES:
            self._rocks = _rocks(store)
        else:
            queues = queues_of(store.queues(kind), self.dtype)
            self._files = {q.key: q for q in queues if is_under(q.where.path, store.selection)}

    def keys(self) -> set[Key]:
        """Topic and queue id of every queue."""
        return set(self._files) | set(self._rocks)

    def file_name(self, key: Key, offset: int) -> tuple[str, int]:
        """Return the file that holds a queue offset, and where in it; the directory where none does."""
        if key in self._files:
            position = offset * self.dtype.itemsize
            for file in self._files[key].files:
                if file.base <= position < file.base + file.size:
                    return file.name, position - file.base
        return (self.kind if self._rocks else f"{self.kind}/{key[0]}/{key[1]}"), 0

    def pieces(self, key: Key) -> Iterator[tuple[Ints, Units]]:
        """Queue offsets, ascending, and their units; fillers and what was never written are left out."""
        if key in self._rocks:
            units = self._rocks[key]
            yield units["queue_offset"].astype(np.int64), units
        elif key in self._files:
            queue, size = self._files[key], self.dtype.itemsize
            end = queue.end() // size
            for file in queue.files:
                for first, units in queue.chunks(file):
                    offsets = np.arange(len(units), dtype=np.int64) + file.base // size + first
                    keep = queue.valid(units) & ~is_pre_blank(units) & (offsets < end)
                    yield offsets[keep], units[keep]


def _rocks(store: StoreFiles) -> dict[Key, Units]:
    dtype = np.dtype([("queue_offset", np.int64), *((name, np.int64) for name in _FIELDS)])
    rows: dict[Key, list[tuple[int, ...]]] = {}
    for unit in rocksdb_units(store):
        row = (unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code)
        rows.setdefault((unit.topic, unit.queue_id), []).append(row)
    return {key: np.sort(np.array(found, dtype), order="queue_offset") for key, found in rows.items()}


@dataclass
class QueuesLaid:
    """What laying some queues of two stores beside each other has shown; it can be pickled.

    Attributes:
        findings: by topic and queue.
        counts: queues; units that are equal, different, only in A, only in B.
    """

    findings: list[Finding]
    counts: tuple[int, int, int, int, int]


Share = Callable[["QueueDiff", list[QueueKey]], Iterable[QueuesLaid]]


@dataclass
class QueueDiff:
    """Compares the queues of two stores.

    Attributes:
        queues, equal: queues looked at, and units that are equal.
        different, only_a, only_b: units that are not.
    """

    a: StoreFiles
    b: StoreFiles
    common: Common
    queues: int = 0
    equal: int = 0
    different: int = 0
    only_a: int = 0
    only_b: int = 0

    def findings(self, share: Share | None = None) -> Iterator[Finding]:
        """Every difference, by topic and queue; units that follow each other are one finding.

        Queues in RocksDB are looked at here in any case: their database can be read once only.

        Args:
            share: compares queues elsewhere with :meth:`compare`, and gives the results in the order of the keys.
        """
        for kind in (QUEUES, BATCH_QUEUES):
            both = StoreQueues(self.a, kind), StoreQueues(self.b, kind)
            keys = sorted(both[0].keys() | both[1].keys())
            if share is None or (kind == QUEUES and (self.a.is_rocksdb or self.b.is_rocksdb)):
                yield from self._compared(keys, *both)
                continue
            for laid in share(self, [(kind, key) for key in keys]) if keys else ():
                self._add(laid.counts)
                yield from laid.findings

    def compare(self, keys: list[QueueKey]) -> QueuesLaid:
        """Compare some queues, and return what was counted and found."""
        work = QueueDiff(self.a, self.b, self.common)
        found: list[Finding] = []
        for kind in (QUEUES, BATCH_QUEUES):
            if mine := [key for of, key in keys if of == kind]:
                found += work._compared(mine, StoreQueues(self.a, kind), StoreQueues(self.b, kind))
        return QueuesLaid(found, (work.queues, work.equal, work.different, work.only_a, work.only_b))

    def _add(self, counts: tuple[int, int, int, int, int]) -> None:
        mine = self.queues, self.equal, self.different, self.only_a, self.only_b
        self.queues, self.equal, self.different, self.only_a, self.only_b = map(add, mine, counts)

    def _compared(self, keys: list[Key], one: StoreQueues, two: StoreQueues) -> Iterator[Finding]:
        for key in keys:
            self.queues += 1
            yield from self._queue(key, one, two)

    def _queue(self, key: Key, one: StoreQueues, two: StoreQueues) -> Iterator[Finding]:
        """Yield the differences of one queue."""
        found: dict[FindingKind, list[Ints]] = {k: [] for k in _KINDS}
        shown: dict[int, str] = {}
        for a, b in merge(one.pieces(key), two.pieces(key)):
            self._compare(a, b, found, shown)
        for kind, parts in found.items():
            side = two if kind is DIFF_QUEUE_ONLY_B else one
            yield from _ranges(kind, key, side, np.concatenate(parts) if parts else _NONE, shown)

    def _compare(
        self, a: Slice[Units], b: Slice[Units], found: dict[FindingKind, list[Ints]], shown: dict[int, str]
    ) -> None:
        """Sort the units of two parts into equal, different, and there on one side."""
        _, at_a, at_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
        if a.of is not None and b.of is not None and len(at_a):
            left, right = a.of[a.rows(at_a)], b.of[b.rows(at_b)]
            names: tuple[str, ...] = _BATCH_FIELDS if "batch_size" in (left.dtype.names or ()) else _FIELDS
            names = names if self.common.places else names[2:]
            other = np.zeros(len(left), bool)
            for name in names:
                other |= left[name] != right[name]
            if self.common.places:
                other &= self.common.holds(left) | self.common.holds(right)
            self.equal += int((~other).sum())
            self.different += int(other.sum())
            found[DIFF_QUEUE_UNIT].append(a.keys[at_a[other]])
            for i in np.flatnonzero(other).tolist():
                shown[int(a.keys[at_a[i]])] = f"{_unit(left[i])} / {_unit(right[i])} (A / B)"
        for part, at, kind in ((a, at_a, DIFF_QUEUE_ONLY_A), (b, at_b, DIFF_QUEUE_ONLY_B)):
            self._only(part, at, kind, found)

    def _only(self, part: Slice[Units], at: Ints, kind: FindingKind, found: dict[FindingKind, list[Ints]]) -> None:
        if part.of is None:
            return
        rest = np.ones(len(part.keys), bool)
        rest[at] = False
        if self.common.places:
            rest &= self.common.holds(part.of[part.rows(np.arange(len(part.keys)))])
        found[kind].append(part.keys[rest])
        if kind is DIFF_QUEUE_ONLY_A:
            self.only_a += int(rest.sum())
        else:
            self.only_b += int(rest.sum())


_NONE = np.zeros(0, np.int64)
_KINDS = (DIFF_QUEUE_UNIT, DIFF_QUEUE_ONLY_A, DIFF_QUEUE_ONLY_B)
_TEXTS = {
    DIFF_QUEUE_UNIT: "",
    DIFF_QUEUE_ONLY_A: "units in A, none in B",
    DIFF_QUEUE_ONLY_B: "units in B, none in A",
}


def _ranges(kind: FindingKind, key: Key, side: StoreQueues, offsets: Ints, shown: dict[int, str]) -> Iterator[Finding]:
    """Units that follow each other as one finding."""
    for part in np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1) if len(offsets) else []:
        first, last = int(part[0]), int(part[-1])
        file, position = side.file_name(key, first)
        what = "queue offset" if side.kind == QUEUES else "unit"
        where = f"{what} {first}" if first == last else f"{what}s {first} to {last}"
        yield Finding(
            kind, file, position, len(part) * side.dtype.itemsize, f"{where}: {_TEXTS[kind]}{shown.get(first, '')}",
            topic=key[0], queue_id=key[1], queue_offset=first,
        )  # fmt: skip


def _unit(unit: np.void) -> str:
    text = f"record at {unit['physical_offset']}, {unit['size']} bytes, tag code {unit['tags_code']}"
    if "batch_size" in (unit.dtype.names or ()):
        text += f", {unit['batch_size']} messages from queue offset {unit['base_offset']} on"
    return text
