"""What became of the transactions of a partition: committed, aborted or open, by its markers and transaction indexes.

Held to the batches of data that readers meet. The next marker of its producer says how a batch ended, unless a
transaction index knows better: it has an entry for every abort, so a batch in front of the first offset of the entry of
that marker was over before, and a batch inside an entry was aborted even where its own marker is gone.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from formats.kafka.record_batch import Attributes, ControlType
from rmqctl.kafka.loading.producers import marker_of
from rmqctl.kafka.log.block import Flags, Ints
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.repair.sides import Home, Side
from rmqctl.kafka.repair.transactions import transaction_name

COMMITTED, ABORTED, OPEN = KINDS = "committed", "aborted", "open"
_CODES = {kind: code for code, kind in enumerate(KINDS)}
_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a transaction index: offsets of the first batch and of the marker."""

    first: int
    last: int


@dataclass
class _Log:
    """Batches and markers of one producer, by their offsets, in order."""

    data: array[int] = field(default_factory=lambda: array("q"))
    markers: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """What became of the transactional batches of data of one producer.

    Attributes:
        bases: base offsets, ascending, shape (n,).
        kinds: numbers of :data:`KINDS`, shape (n,).
        ends: offsets of the markers that end them, 2^63 - 1 where there is none, shape (n,).
    """

    bases: Ints
    kinds: npt.NDArray[np.int8]
    ends: Ints

    def rows(self, bases: Ints) -> tuple[Ints, Flags]:
        """Return where batches are, and which of them are there, shape (n,) each."""
        if not len(self.bases):
            return np.zeros(len(bases), np.int64), np.zeros(len(bases), np.bool_)
        at = np.minimum(np.searchsorted(self.bases, bases), len(self.bases) - 1)
        return at, self.bases[at] == bases


@dataclass(frozen=True)
class Outcomes:
    """The transactions of one partition on one side.

    Attributes:
        producers: their batches, by producer.
        entries: of the transaction indexes that can be read, by producer.
    """

    producers: Mapping[int, Ended]
    entries: Mapping[int, list[Entry]]


def outcomes_of(side: Side, directory: str, before: Outcomes | None = None) -> Outcomes:
    """Return what became of the transactions in a directory.

    Args:
        before: of the other side. An abort that was in an index there and is in none now is served as committed.
    """
    entries, found = entries_of(side, directory), dict[int, Ended]()
    for producer, log in _producers(side, side.home(directory)).items():
        known = [] if before is None else before.entries.get(producer, [])
        found[producer] = _ended(log, entries.get(producer, []), known)
    return Outcomes(found, entries)


def _ended(log: _Log, entries: list[Entry], known: list[Entry]) -> Ended:
    bases = np.array(log.data, np.int64)
    markers = np.array([*log.markers, (_END, ControlType.ABORT)], np.int64)
    at = np.searchsorted(markers[:, 0], bases)
    ends, kinds = markers[at, 0], np.full(len(bases), _CODES[ABORTED], np.int8)
    entries, known = (_up_to_marker(some, markers) for some in (entries, known))
    kinds[_within(bases, known) | np.isin(ends, [entry.last for entry in entries])] = _CODES[COMMITTED]
    kinds[markers[at, 1] == ControlType.COMMIT] = _CODES[COMMITTED]
    kinds[at == len(markers) - 1] = _CODES[OPEN]
    kinds[_within(bases, entries)] = _CODES[ABORTED]
    return Ended(bases, kinds, ends)


def _up_to_marker(entries: list[Entry], markers: Ints) -> list[Entry]:
    """Return entries that go no further than the first ABORT marker from their begin on, as readers take them.

    A reader skips what a producer wrote from the first offset of an entry to its next ABORT marker
    (``CompletedFetch.containsAbortMarker`` of the consumer), whatever last offset the entry has.
    """
    aborts = markers[markers[:, 1] == ControlType.ABORT, 0]
    ends = aborts[np.searchsorted(aborts, [entry.first for entry in entries])].tolist()  # the last one has no end
    return [replace(entry, last=min(entry.last, end)) for entry, end in zip(entries, ends, strict=True)]


def _within(bases: Ints, entries: list[Entry]) -> Flags:
    found = np.zeros(len(bases), np.bool_)
    for entry in entries:
        found[slice(*np.searchsorted(bases, (entry.first, entry.last + 1)))] = True
    return found


def _producers(side: Side, home: Home) -> Mapping[int, _Log]:
    found = defaultdict[int, _Log](_Log)
    names = "base_offset", "producer_id", "attributes", "magic"
    for at, (base, producer, attributes, magic) in home.columns.stretches(*names, overlap=0):
        wanted = (attributes & int(Attributes.TRANSACTIONAL) != 0) & (magic >= 2) & (producer >= 0)
        for row in np.flatnonzero(wanted).tolist():
            log = found[int(producer[row])]
            if not int(attributes[row]) & Attributes.CONTROL:
                log.data.append(int(base[row]))
                continue
            marker = marker_of(side.bytes_at(*home.place(at + row)))
            if marker is not None:
                log.markers.append((int(base[row]), marker.type))
    return found


def entries_of(side: Side, directory: str) -> dict[int, list[Entry]]:
    """Return the entries of a partition's transaction indexes that can be read, by producer."""
    found = defaultdict[int, list[Entry]](list)
    partition = side.partition(directory)
    for segment in partition.segments if partition is not None else ():
        if segment.txn_index is None:
            continue
        try:
            source = segment.txn_index.open()
            try:
                index = read_txn_index(source)
            finally:
                source.close()
        except OSError:
            continue
        sound = index["version"] == 0
        sound &= (index["first_offset"] >= 0) & (index["first_offset"] <= index["last_offset"])
        sound &= (index["producer_id"] >= 0) & (index["last_offset"] >= segment.base)
        for row in np.flatnonzero(sound).tolist():
            entry = Entry(int(index["first_offset"][row]), int(index["last_offset"][row]))
            found[int(index["producer_id"][row])].append(entry)
    return dict(found)


def transactions(directory: str, before: Outcomes, now: Outcomes) -> dict[str, str]:
    """Return one side's outcomes by the transactions of before, each by its producer and its first batch that is there.

    Args:
        now: the side that is asked for; batches that are not on it are left out.
    """
    found = dict[str, str]()
    for producer, was in before.producers.items():
        is_first = np.ones(len(was.bases), np.bool_)
        is_first[1:] = (was.ends[1:] != was.ends[:-1]) | (was.kinds[1:] != was.kinds[:-1])
        current = now.producers.get(producer)
        if current is None:
            continue
        begins = np.flatnonzero(is_first)
        at, is_there = current.rows(was.bases)
        for begin, end in pairwise([*begins.tolist(), len(was.bases)]):
            kinds = np.unique(current.kinds[at[begin:end][is_there[begin:end]]]).tolist()
            if kinds:
                name = transaction_name(directory, producer, int(was.bases[begin]))
                found[name] = KINDS[kinds[0]] if len(kinds) == 1 else "of several outcomes"
    return found
