"""What became of the transactions of a partition: committed, aborted or open, by its markers and transaction indexes.

Held to the batches of data that readers meet. The next marker of its producer says how a batch ended, unless a
transaction index knows better: it has an entry for every abort, so a batch in front of the first offset of the entry of
that marker was over before, and a batch inside an entry was aborted even where its own marker is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from formats.kafka.record_batch import Attributes, ControlType
from rmqctl.kafka.loading.producers import marker_of
from rmqctl.kafka.log.indexes import read_txn_index
from rmqctl.kafka.repair.sides import Home, Side
from rmqctl.kafka.repair.transactions import transaction_name

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a transaction index: offsets of the first batch and of the marker."""

    first: int
    last: int


@dataclass
class _Log:
    """Batches and markers of one producer, by their offsets, in order."""

    data: list[int] = field(default_factory=list)
    markers: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Outcomes:
    """The transactions of one partition on one side.

    Attributes:
        batches: outcome of each transactional batch of data, by producer and base offset.
        entries: of the transaction indexes that can be read, by producer.
        ends: offset of the marker that ends each batch, if it is there.
    """

    batches: Mapping[tuple[int, int], str]
    entries: Mapping[int, list[Entry]]
    ends: Mapping[tuple[int, int], int]


def outcomes_of(side: Side, directory: str, before: Outcomes | None = None) -> Outcomes:
    """Return what became of the transactions in a directory.

    Args:
        before: of the other side. An abort that was in an index there and is in none now is served as committed.
    """
    entries, found = entries_of(side, directory), dict[tuple[int, int], str]()
    ends = dict[tuple[int, int], int]()
    for producer, log in _producers(side, side.home(directory)).items():
        mine = entries.get(producer, [])
        known = [] if before is None else before.entries.get(producer, [])
        at = 0
        for base in log.data:
            while at < len(log.markers) and log.markers[at][0] < base:
                at += 1
            marker = log.markers[at] if at < len(log.markers) else None
            found[producer, base] = _outcome(base, marker, mine, known)
            ends[producer, base] = marker[0] if marker is not None else _END
    return Outcomes(found, entries, ends)


def _outcome(base: int, marker: tuple[int, int] | None, entries: list[Entry], known: list[Entry]) -> str:
    if any(entry.first <= base <= entry.last for entry in entries):
        return ABORTED
    if marker is None:
        return OPEN
    offset, kind = marker
    if kind == ControlType.COMMIT:
        return COMMITTED
    if any(entry.last == offset for entry in entries):
        return COMMITTED
    return COMMITTED if any(entry.first <= base <= entry.last for entry in known) else ABORTED


def _producers(side: Side, home: Home) -> Mapping[int, _Log]:
    c, found = home.columns, defaultdict[int, _Log](_Log)
    wanted = (c["attributes"] & int(Attributes.TRANSACTIONAL) != 0) & (c["magic"] >= 2) & (c["producer_id"] >= 0)
    for row in np.flatnonzero(wanted).tolist():
        log, base = found[int(c["producer_id"][row])], int(c["base_offset"][row])
        if not int(c["attributes"][row]) & Attributes.CONTROL:
            log.data.append(base)
            continue
        marker = marker_of(side.bytes_at(*home.place(row)))
        if marker is not None:
            log.markers.append((base, marker.type))
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
    found, first = dict[str, str](), dict[int, tuple[int, int, str]]()
    for (producer, base), outcome in before.batches.items():
        end = before.ends[producer, base]
        known = first.get(producer)
        if known is None or known[1:] != (end, outcome):
            known = first[producer] = base, end, outcome
        current = now.batches.get((producer, base))
        name = transaction_name(directory, producer, known[0])
        if current is not None:
            found[name] = current if found.get(name, current) == current else "of several outcomes"
    return found
