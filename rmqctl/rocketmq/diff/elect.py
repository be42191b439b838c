"""Which replica of a broker may be the master: their logs compared by physical offset, two at a time.

Replicas hold equal records at equal physical offsets: masters and slaves, brokers of a controller, DLedger groups. What
a choice loses is what others have and it has not, and what its own start cuts off. Where brokers kept master epochs
(``epochFileCheckpoint``), an epoch ends where the next one begins, whoever knows of that; what a replica has after
that of an earlier epoch was overwritten by a later master, and is no loss. In a DLedger log each entry names its term,
which counts as an epoch: a leader of a later term cuts off what it has not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry
from formats.rocketmq.epoch import parse_epochs
from rmqctl.answer import Advance
from rmqctl.election import Amount, Candidate, Contest, Relation
from rmqctl.rocketmq.diff.driver import LogDifferences, Side, is_sound_record
from rmqctl.rocketmq.diff.logs import Columns, LogDiff
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.recovery.rules import has_dledger_log
from rmqctl.rocketmq.store.files import StoreFiles

_EPOCHS = "epochFileCheckpoint"
_MOST = 16 << 20

Place = tuple[int, int, int, int]
"""Physical offset, size, CRC of the body and of the properties: what sets a record of a log apart from all others."""


@dataclass
class _Replica:
    """One replica.

    Attributes:
        epochs: master epochs with their first physical offset, ascending; none where the store keeps none.
        missing: records that other replicas have and this one has not, or in another version.
        cut: records of its own that its start gives up: physical offset and size.
    """

    name: str
    store: StoreFiles
    side: Side
    epochs: tuple[tuple[int, int], ...] = ()
    missing: dict[Place, int] = field(default_factory=dict)
    superseded: dict[Place, int] = field(default_factory=dict)
    cut: list[tuple[int, int]] = field(default_factory=list)
    error: str | None = None
    start: int = 0
    end: int = 0


def contests(
    names: Sequence[str], stores: Sequence[StoreFiles], advance: Advance = lambda _: None
) -> Iterator[Contest]:
    """Compare the logs of some stores; there is one log."""
    found = [_replica(name, store) for name, store in zip(names, stores, strict=True)]
    relations = [_compare(a, b, found, advance) for a, b in combinations(found, 2)]
    is_salvageable = not any(has_dledger_log(store) for store in stores)
    yield Contest("commitlog", [_candidate(one) for one in found], relations, is_salvageable=is_salvageable)


def _replica(name: str, store: StoreFiles) -> _Replica:
    found = _Replica(name, store, Side.of_store(store, name))
    if has_dledger_log(store):
        _look_at_entries(found)
        return found
    found.epochs = _epochs_of(store)
    started = recover(store)
    found.error = started.error
    found.start, found.end = started.log_begin, started.end or 0
    with LogReader(found.side.log.files) as log:
        for message in started.lost:
            if is_sound_record(log.read(message.physical, message.size)):
                found.cut.append((message.physical, message.size))
    return found


def _look_at_entries(found: _Replica) -> None:
    """Note where a DLedger log ends, and its terms with the first record of each; terms only grow along it."""
    found.start, terms = found.side.log.begin, list[tuple[int, int]]()
    with LogReader(found.side.log.files) as log:
        for piece in found.side.log.blocks():
            block, at = piece.block, 0
            places = block.physical.tolist()
            while at < len(places) and (not terms or _term(log, places[-1]) > terms[-1][0]):
                at = bisect_right(places, terms[-1][0], key=lambda place: _term(log, place)) if terms else 0
                terms.append((_term(log, places[at]), places[at]))
            if places:
                found.end = places[-1] + int(block.total_size[-1])
    found.epochs = tuple(terms)


def _term(log: LogReader, physical: int) -> int:
    """The term in the entry that holds the record at an offset."""
    return int(plan_of(DLedgerEntry).unpack_from(log.read(physical - ENTRY_SIZE, ENTRY_SIZE))[0]["term"])


def _epochs_of(store: StoreFiles) -> tuple[tuple[int, int], ...]:
    """Return the master epochs of a store; none where it keeps none, or none that can be read."""
    for name in (_EPOCHS, f"{_EPOCHS}.bak"):
        if store.tree.stat(name) is None:
            continue
        source = store.tree.open(name)
        try:
            entries = parse_epochs(source.read_at(0, min(source.size(), _MOST)))
            return tuple((entry.epoch, entry.start_offset) for entry in entries)
        except DecodeError:
            continue
        finally:
            source.close()
    return ()


def _compare(a: _Replica, b: _Replica, every: Sequence[_Replica], advance: Advance) -> Relation:
    """Lay two logs beside each other; each of them remembers what the other has and it has not."""
    diff = LogDiff(a.side.log, b.side.log)

    def passed(size: int) -> None:
        advance(size)

    diff.run(by_place=True, advance=passed)
    left = LogDifferences(diff, by_place=True)
    joined, changed = left.joined, np.concatenate([left.bodies, left.properties])
    replaced = left.replaced_rows
    only_a, only_b = left.a.take(joined.only_a), left.b.take(joined.only_b)
    other_a = left.a.take(np.concatenate([replaced[0], joined.a[changed]]))
    other_b = left.b.take(np.concatenate([replaced[1], joined.b[changed]]))
    other_a, other_b = _sound(other_a, a), _sound(other_b, b)
    for one, two, rows in ((a, b, (only_b, other_b)), (b, a, (only_a, other_a))):
        for columns in rows:
            _remember(one, two, columns, every)
    different = len(replaced[0]) + len(changed)
    return Relation(a.name, b.name, _common_end(a, b), left.first, _amount(only_a), _amount(only_b), different)


def _remember(one: _Replica, two: _Replica, columns: Columns, every: Sequence[_Replica]) -> None:
    """Note what ``one`` lacks of ``two``: lost with it, or superseded by a later epoch."""
    later = _overwritten(two, columns.physical, every)
    places = zip(
        *(column.tolist() for column in (columns.physical, columns.size, columns.body, columns.properties)), strict=True
    )
    for place, gone in zip(places, later.tolist(), strict=True):
        (one.superseded if gone else one.missing)[place] = place[1]


def _overwritten(replica: _Replica, physical: Ints, every: Sequence[_Replica]) -> np.ndarray:
    """Which places of a replica's log belong, by all that is known, to a later epoch than it has there."""
    own = dict(replica.epochs)
    starts = [
        start for one in every for epoch, start in one.epochs if epoch not in own and epoch > max(own, default=-1)
    ]
    if not replica.epochs or not starts:
        return np.zeros(len(physical), bool)
    return physical >= min(starts)


def _sound(columns: Columns, replica: _Replica) -> Columns:
    """Without records whose body fails its own CRC: another version of those is no loss."""
    with LogReader(replica.side.log.files) as log:
        keep = [
            is_sound_record(log.read(physical, size))
            for physical, size in zip(columns.physical.tolist(), columns.size.tolist(), strict=True)
        ]
    return columns.take(np.array(keep, bool))


def _common_end(a: _Replica, b: _Replica) -> int:
    """Return the physical offset up to which both have the same epochs, as far as both reach."""
    end = min(a.end, b.end)
    for (epoch_a, start_a), (epoch_b, start_b) in zip(a.epochs, b.epochs, strict=False):
        if (epoch_a, start_a) != (epoch_b, start_b):
            return min(end, start_a, start_b)
    for extra in (a.epochs[len(b.epochs) :], b.epochs[len(a.epochs) :]):
        if extra and a.epochs and b.epochs:
            return min(end, extra[0][1])
    return end


def _candidate(one: _Replica) -> Candidate:
    lost = sorted({*((place[0], size) for place, size in one.missing.items()), *one.cut})
    gone = sorted((place[0], size) for place, size in one.superseded.items())
    error = None if one.error is None else f"a broker does not start on {one.name}: {one.error}"
    return Candidate(one.name, one.start, one.end, one.epochs, _ranges(lost), superseded=_ranges(gone), error=error)


def _amount(columns: Columns) -> Amount:
    return _ranges(sorted(zip(columns.physical.tolist(), columns.size.tolist(), strict=True)))


def _ranges(places: Sequence[tuple[int, int]]) -> Amount:
    """Return records as a number and the ranges of physical offsets, first and last byte."""
    found = list[tuple[int, int]]()
    for physical, size in places:
        if found and found[-1][1] + 1 >= physical:
            found[-1] = found[-1][0], max(found[-1][1], physical + size - 1)
        else:
            found.append((physical, physical + size - 1))
    return Amount(len(places), sum(size for _, size in places), tuple(found))
