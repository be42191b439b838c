"""Index files against the log: every key is indexed, every entry has its record (spec 4).

Entries are appended in log order, so the entries of a block's records are one slice of the index.
Where slice and expectation are equal, as they nearly always are, that is one comparison of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from rmqctl.findings import Finding, Severity
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.keys import KeyColumns, KeyHashes
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.findings.derived import INDEX_COVERAGE, INDEX_ENTRY, INDEX_MISSING
from rmqctl.rocketmq.index import IndexFile, index_files, is_written
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.queues.files import Window
from rmqctl.rocketmq.store.files import INDEX, StoreFiles
from rmqctl.rocketmq.store.geometry import Geometry, IndexGeometry, flag
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.index_file import (
    FileTimes,
    chain_findings,
    check_file,
    compare_times,
    entry_times,
    header_problem,
)
from rmqctl.text import number_of

_TAG_ENTRIES = (5, 4, 0)
_CHUNK = 1 << 14
NEAR = 1 << 16
"""Bytes of log between records that no index file holds, up to which they are one hole."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Neighbouring records with keys that no index file holds.

    Attributes:
        begin, end: physical offsets; count: records.
        first_end: physical offset after the first of them.
    """

    begin: int
    end: int
    count: int
    first_end: int


@dataclass(frozen=True, slots=True)
class Stranger:
    """An entry whose record has no such key, or that points where no record begins."""

    file: str
    offset: int
    physical: int


@dataclass(slots=True)
class IndexPartial:
    """What one split of the log says of the index.

    Attributes:
        uncovered: ascending.
        keyed: records with keys.
        times: by the path of each file, what the log says of its times.
    """

    uncovered: list[Uncovered] = field(default_factory=list)
    strangers: list[Stranger] = field(default_factory=list)
    keyed: int = 0
    times: dict[str, FileTimes] = field(default_factory=dict)

    def join(self, other: IndexPartial) -> None:
        """Add what the next split says."""
        self.uncovered += other.uncovered
        self.strangers += other.strangers
        self.keyed += other.keyed
        for path, times in other.times.items():
            self.times.setdefault(path, FileTimes()).add(times)


class IndexChecker:
    """Compares the records of one split with the index files.

    Attributes:
        damaged: physical offsets of records of the next block that are damaged; those are no records without entries.

    Args:
        begin: physical offset where the split begins; default: that of its first record.
    """

    def __init__(
        self,
        store: StoreFiles,
        geometry: Geometry,
        context: LogContext,
        ids: TextIds,
        near: int = NEAR,
        begin: int | None = None,
    ) -> None:
        self._partial, self._near = IndexPartial(), near
        self._ids, self._keys = ids, KeyHashes(early=DispatchRules(Release(*context.highest_release)).is_3)
        shape = IndexGeometry(geometry.index_slots, geometry.index_entries)
        files = [f for f in index_files(store, shape) if f.is_whole]
        sound = [f for f in files if f.count and not header_problem(f, unsettled=f is files[-1])]
        self._cursors = [_Cursor(f, number) for number, f in enumerate(sound)]
        self._with_tags = context.lowest_release >= _TAG_ENTRIES
        self._from = begin
        self.damaged: set[int] = set()

    def block(self, found: LogBlock) -> None:
        """Compare one block; what differs is judged at the end, when the log is known."""
        block = found.block
        if not len(block):
            return
        if not self._cursors:
            rows = np.flatnonzero(self._keys.counts(block, found.pairs, tags=False))
            self._partial.keyed += len(rows)
            self._add_uncovered(block, rows)
            return
        physical = block.physical
        low, high = self._from if self._from is not None else int(physical[0]), int(physical[-1])
        self._from = high + 1
        keys = self._keys_of(found, self._with_tags)
        owner = keys.owner[~keys.tag] if self._with_tags else keys.owner
        self._partial.keyed += int(np.count_nonzero(owner[1:] != owner[:-1])) + bool(len(owner))
        entries = _Slice.join([c.take(low, high) for c in self._cursors])
        row: Ints | None = keys.owner
        if not _equal(entries, physical, keys):
            row = self._look_closer(found, entries, physical)
        self._compare_times(entries, physical, block["store_timestamp"], row)

    def rest(self, end: int) -> None:
        """Note the entries that point after the last record of the split, to places in front of ``end``."""
        if self._from is not None and self._from < end:
            entries = _Slice.join([c.take(self._from, end - 1) for c in self._cursors])
            for place, number, at in zip(
                *(c.tolist() for c in (entries.physical, entries.file, entries.offset)), strict=True
            ):
                self._add_stranger(place, number, at)

    def partial(self) -> IndexPartial:
        """Return what this split found; closes the index files."""
        for cursor in self._cursors:
            cursor.file.close()
        return self._partial

    def _keys_of(self, found: LogBlock, with_tags: bool) -> KeyColumns:
        topics = found.topics(self._ids)
        return self._keys.columns(found.block, found.pairs, topics, self._ids.texts, tags=with_tags)

    def _compare_times(self, entries: _Slice, physical: Ints, stored: Ints, row: Ints | None) -> None:
        """Compare what entries say of the time of records of the block; others lie where no record begins.

        Args:
            row: of the record of each entry, where all are known.
        """
        if row is None:
            row = np.searchsorted(physical, entries.physical)
            known = row < len(physical)
            known[known] = physical[row[known]] == entries.physical[known]
            entries, row = entries.take(known), row[known]
        if not len(row):
            return
        numbers = np.flatnonzero(np.bincount(entries.file)).tolist()
        for number in numbers:
            own = slice(None) if len(numbers) == 1 else np.flatnonzero(entries.file == number)
            file = self._cursors[number].file
            offset, difference, place = entries.offset[own], entries.difference[own], entries.physical[own]
            times = compare_times(file, offset, difference, place, stored[row[own]])
            self._partial.times.setdefault(file.path, FileTimes()).add(times)

    def _look_closer(self, found: LogBlock, entries: _Slice, physical: Ints) -> Ints | None:
        """Entries and expectation differ: the broker may do the opposite about tags, or something is wrong.

        Returns the row of the record of each entry, where they are equal after all.
        """
        keys = self._keys_of(found, with_tags=True)
        for with_tags in (self._with_tags, not self._with_tags):
            expected = keys if with_tags else keys.without_tags()
            if _equal(entries, physical, expected):
                self._with_tags = with_tags
                return expected.owner
        self._differences(found.block, entries, physical, keys)
        return None

    def _differences(self, block: Block, entries: _Slice, physical: Ints, keys: KeyColumns) -> None:
        """Note records without their entries and entries without their record; repeats count once."""
        lacking = keys.owner[~keys.tag]
        if not len(entries.hash):
            self._add_uncovered(block, np.unique(lacking))
            return
        places = physical[keys.owner].tolist()
        wanted = set(zip(places, keys.hash.tolist(), strict=True))
        there = list(zip(entries.physical.tolist(), entries.hash.tolist(), strict=True))
        held = set(there)
        for (place, hash_), number, at in zip(there, entries.file.tolist(), entries.offset.tolist(), strict=True):
            if (place, hash_) not in wanted:
                self._add_stranger(place, number, at)
        rows = zip(lacking.tolist(), physical[lacking].tolist(), keys.hash[~keys.tag].tolist(), strict=True)
        unheld = {row for row, place, hash_ in rows if (place, hash_) not in held}
        self._add_uncovered(block, np.array(sorted(unheld), np.int64))

    def _add_stranger(self, place: int, number: int, at: int) -> None:
        path = self._cursors[number].file.path
        self._partial.strangers.append(Stranger(path, at, place))
        self._partial.times.setdefault(path, FileTimes()).strangers.add(place)

    def _add_uncovered(self, block: Block, rows: Ints) -> None:
        """Note records that lack an entry; those with nothing much between them as one run."""
        if self.damaged and len(rows):
            rows = rows[~np.isin(block.physical[rows], list(self.damaged))]
        if not len(rows):
            return
        begins, runs = block.physical[rows], self._partial.uncovered
        ends = begins + block.total_size[rows]
        starts = np.flatnonzero(begins - np.append(begins[:1] - self._near, ends[:-1]) >= self._near).tolist()
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            run = Uncovered(int(begins[start]), int(ends[stop - 1]), stop - start, int(ends[start]))
            runs[-1:] = _merged([*runs[-1:], run], self._near)


def _equal(entries: _Slice, physical: Ints, keys: KeyColumns) -> bool:
    """Whether entries and expectation are the same."""
    same = len(keys.hash) == len(entries.hash) and np.array_equal(entries.hash, keys.hash)
    return same and np.array_equal(entries.physical, physical[keys.owner])


@dataclass(slots=True)
class _Slice:
    """Entries of a physical range: columns of one length; ``file`` numbers the cursors."""

    physical: Ints
    hash: Ints
    offset: Ints
    file: Ints
    difference: Ints

    def take(self, keep: npt.NDArray[np.bool_]) -> _Slice:
        return _Slice(*(getattr(self, name)[keep] for name in _Slice.__slots__))

    @staticmethod
    def join(parts: list[_Slice]) -> _Slice:
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, np.int64)
        return _Slice(*(np.concatenate([none, *(getattr(p, name) for p in parts)]) for name in _Slice.__slots__))


class _Cursor:
    """Takes the entries of ascending physical ranges out of one index file."""

    def __init__(self, file: IndexFile, number: int) -> None:
        self.file, self.number = file, number
        self._next: int | None = None

    def take(self, low: int, high: int) -> _Slice:
        """Entries of records in ``[low, high]``; each call goes on after the last."""
        if not (self.file.header["begin_phy_offset"] <= high and self.file.header["end_phy_offset"] >= low):
            return _Slice.join([])
        if self._next is None:
            self._next = self.file.first_at_or_after(low)
        parts = []
        while self._next <= self.file.count:
            entries = self.file.entries(self._next, min(_CHUNK, self.file.count + 1 - self._next))
            beyond = np.flatnonzero(entries["physical_offset"] > high)
            number = int(beyond[0]) if len(beyond) else len(entries)
            if number:
                parts.append(self._slice(entries[:number], self._next))
            self._next += number
            if len(beyond) or not len(entries):
                break
        return _Slice.join(parts)

    def _slice(self, entries: npt.NDArray[np.void], first: int) -> _Slice:
        offset = self.file.geometry.entry_at(first) + np.arange(len(entries)) * entries.itemsize
        names = ("physical_offset", "key_hash", "time_difference")
        physical, hashes, difference = (entries[name].astype(np.int64) for name in names)
        return _Slice(physical, hashes, offset, np.full(len(entries), self.number, np.int64), difference)


def finish(
    store: StoreFiles,
    geometry: Geometry,
    said: IndexPartial,
    context: LogContext,
    chains: list[list[Finding]] | None = None,
    window: Window | None = None,
) -> Iterator[Finding]:
    """Check each index file alone, then yield what the log showed.

    Args:
        said: by all splits.
        chains: findings of :func:`chains_of` for each file, where they are known.
        window: only the files that end in this part of the log are looked at alone; None: all.
    """
    files = index_files(store, IndexGeometry(geometry.index_slots, geometry.index_entries))
    try:
        for number, file in enumerate(files):
            times = said.times.get(file.path, FileTimes())
            if window is not None and not _ends_in(file, window, unsettled=_is_unsettled(store, files, file)):
                yield from entry_times(file, context, times)
                continue
            known = chains[number] if chains is not None and number < len(chains) else None
            yield from check_file(store, file, context, _is_unsettled(store, files, file), times, chains=known)
        yield from _strangers(said.strangers, context)
        yield from _coverage(store, files, said, context)
    finally:
        for file in files:
            file.close()


def places_of(store: StoreFiles, geometry: Geometry, said: IndexPartial, window: Window) -> set[int]:
    """Return the physical offsets outside of a part of the log on which findings of :func:`finish` depend."""
    places = {stranger.physical for stranger in said.strangers}
    files = index_files(store, IndexGeometry(geometry.index_slots, geometry.index_entries))
    try:
        for file in files:
            if _ends_in(file, window, unsettled=_is_unsettled(store, files, file)) and file.is_whole:
                places |= {file.header["begin_phy_offset"], file.header["end_phy_offset"]}
    finally:
        for file in files:
            file.close()
    return {place for place in places if place not in window}


def _ends_in(file: IndexFile, window: Window, *, unsettled: bool) -> bool:
    """Whether the last entry of a file leads into a part of the log; where its header is wrong nobody can tell."""
    if not file.is_whole or header_problem(file, unsettled=unsettled):
        return True
    return file.header["end_phy_offset"] in window


def chains_of(store: StoreFiles, geometry: Geometry, number: int) -> list[Finding]:
    """Return findings of the slots and chains of one index file, by its number among all; none when it is gone."""
    files = index_files(store, IndexGeometry(geometry.index_slots, geometry.index_entries))
    try:
        if number >= len(files):
            return []
        return chain_findings(files[number], unsettled=_is_unsettled(store, files, files[number]))
    finally:
        for file in files:
            file.close()


def _is_unsettled(store: StoreFiles, files: list[IndexFile], file: IndexFile) -> bool:
    """Whether the header of a file may be older than its entries and slots: that of the newest, until a clean stop."""
    return file is files[-1] and (store.has_abort or store.is_running)


def _strangers(strangers: list[Stranger], context: LogContext) -> Iterator[Finding]:
    end = context.limit if context.end is None else context.end  # those that point beyond it are one finding
    for stranger in strangers:
        if stranger.physical < end and not context.is_damaged(stranger.physical, stranger.physical + 1):
            message = f"the entry points to {stranger.physical}, where no record has a key with its hash"
            yield Finding(INDEX_ENTRY, stranger.file, stranger.offset, 20, message, physical_offset=stranger.physical)


def _merged(runs: list[Uncovered], near: int = NEAR) -> Iterator[Uncovered]:
    """Yield runs with nothing much between them as one: a hole does not end with a split or a file."""
    open_run: Uncovered | None = None
    for run in runs:
        if open_run is not None and run.begin - open_run.end < near:
            open_run = replace(open_run, end=run.end, count=open_run.count + run.count)
            continue
        if open_run is not None:
            yield open_run
        open_run = run
    if open_run is not None:
        yield open_run


def _without_header(store: StoreFiles, files: list[IndexFile], context: LogContext) -> Iterator[tuple[int, int]]:
    """Physical ranges that files with a damaged header hold: from the sound file in front to the one after."""
    sound = [f.is_whole and not header_problem(f, unsettled=_is_unsettled(store, files, f)) for f in files]
    for number, file in enumerate(files):
        if sound[number] or not file.is_whole:
            continue
        front = [f.header["end_phy_offset"] for f, fine in zip(files[:number], sound, strict=False) if fine]
        after = [f.header["begin_phy_offset"] for f, fine in zip(files, sound, strict=True) if fine][len(front) :]
        yield front[-1] if front else -1, after[0] if after else context.limit


def _coverage(store: StoreFiles, files: list[IndexFile], said: IndexPartial, context: LogContext) -> Iterator[Finding]:
    """Yield records with keys that no file holds."""
    keyed, runs = said.keyed, said.uncovered
    if not keyed or not runs or not flag(context.settings, "messageIndexEnable", default=True):
        return
    if not files:
        if is_written(store) is not False:  # rows in RocksDB are compared with the log on their own
            return
        message = f"{number_of(keyed, 'message', 'have')} keys, but there is no index file"
        yield Finding(INDEX_MISSING, INDEX, 0, 0, message, about=f"{number_of(keyed, 'message')} with keys")
        return
    last = max((f.header["end_phy_offset"] for f in files), default=-1)
    unknown = list(_without_header(store, files, context))
    for run in _merged(runs):
        if any(low <= run.begin <= high and run.end <= high + NEAR for low, high in unknown):
            continue
        # units are written before keys: at a kill the last record with a unit may lack some or all of its entries
        is_next = run.first_end >= context.dispatched and context.crashed
        tail = run.begin >= last and (is_next or context.running)
        about = f"{number_of(run.count, 'message')} with keys"
        message = f"{about}, from {run.begin} to {run.end} in the log, in no index file"
        severity = Severity.NOTE if tail else None
        yield Finding(INDEX_COVERAGE, INDEX, 0, 0, message, severity, physical_offset=run.begin, about=about)
