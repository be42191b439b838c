"""One copy of a partition as columns of its sound batches, and the leader epochs that it proves (spec 2, 9.3).

Base offset and leader epoch of a batch stand outside its CRC. Both can only grow along a log, so a batch that breaks
the order of its neighbours carries a damaged field, not other data: it is named, and where the neighbours leave room
for one value only the field counts as that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from formats.kafka.checkpoint import LeaderEpoch, parse_leader_epochs
from formats.kafka.record_batch import Attributes
from rmqctl.answer import Advance
from rmqctl.findings import Finding, FindingKind
from rmqctl.kafka.directory.directory import LogDirectories, LogFile, Partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.findings.log import BATCH_BASE_OFFSET, BATCH_LEADER_EPOCH, BATCH_OFFSET_ORDER
from rmqctl.kafka.loading.checkpoints import read_text
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.log.block import INT_MAX, Block, Flags, GapKind, Ints
from rmqctl.kafka.log.gaps import kind_of_gap, wrong_crc
from rmqctl.kafka.log.scan import Extent, scan_inside
from rmqctl.kafka.recovery.losses import kept_of
from rmqctl.kafka.state.partition_state import PartitionLog

_COLUMNS = (
    "file", "position", "size", "base", "last", "epoch", "crc", "count", "magic", "producer", "control", "stored_base",
)  # fmt: skip
_MOST_RUNS = 4096
_NO_OFFSET = (1 << 63) - 1
"""No record can have it, for the log would end after it."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches as columns, int64, shape (n,) each.

    Attributes:
        file: number of the file.
        position, size: bytes.
        base, last: offsets, as they count; ``stored_base`` and ``stored_epoch`` as they stand in the file, of messages
            of magic 0 and 1 the base that goes with the offset there.
        epoch: -1 for none, and for messages of magic 0 and 1.
        crc: as stored; with the offsets it sets batches apart.
        count: records.
        producer: id, -1 for none.
        control: 1 for a control batch.
    """

    file: Ints
    position: Ints
    size: Ints
    base: Ints
    last: Ints
    epoch: Ints
    crc: Ints
    count: Ints
    magic: Ints
    producer: Ints
    control: Ints
    stored_base: Ints
    stored_epoch: Ints

    def __len__(self) -> int:
        return len(self.base)

    def take(self, rows: np.ndarray | slice) -> Batches:
        """Return the rows of an index, of flags or of a slice."""
        return Batches(*(getattr(self, name)[rows] for name in Batches.__slots__))

    @property
    def records(self) -> int:
        """Records of data in all."""
        return int(self.count[self.control == 0].sum())

    @property
    def bytes(self) -> int:
        return int(self.size.sum())

    def keys(self) -> np.ndarray:
        """Return what sets a batch apart from all others of the partition, as a record array."""
        found = np.empty(len(self), [(name, "i8") for name in ("base", "last", "epoch", "crc")])
        for name in found.dtype.names or ():
            found[name] = getattr(self, name)
        return found


@dataclass
class Copy:
    """A copy of a partition.

    Attributes:
        name: what to call it.
        files: its segments, or lone files of it.
        batches: the sound ones, ascending by offset; none overlaps the one before.
        damage: places that hold no batch and should, and fields that are damaged.
        misplaced: batches whose offsets are in no order with the others, and that no neighbours explain.
        chain: leader epochs: of its checkpoint where that agrees with the batches, and of the batches.
        known: those that a broker started on it knows, by which followers cut their logs.
        start, end: the first offset that it serves, and the next that a broker started on it would write.
        kept: which of the batches such a broker keeps, shape (n,).
        high_watermark: below it all was committed, 0 where nobody says.
        deleted_to: offsets below it were deleted on purpose (log-start-offset-checkpoint).
        cleaned_to: offsets below it were compacted (cleaner-offset-checkpoint).
        listed: epochs of its leader-epoch-checkpoint as it stands.
    """

    name: str
    files: list[LogFile]
    batches: Batches
    damage: list[Finding] = field(default_factory=list)
    misplaced: int = 0
    chain: EpochChain = field(default_factory=lambda: EpochChain(()))
    known: EpochChain = field(default_factory=lambda: EpochChain(()))
    start: int = 0
    end: int = 0
    kept: Flags = field(default_factory=lambda: np.zeros(0, bool))
    high_watermark: int = 0
    deleted_to: int = 0
    cleaned_to: int = 0
    listed: frozenset[int] = frozenset()

    @cached_property
    def is_compacted(self) -> bool:
        """Whether offsets may be missing: the cleaner worked on it, or records are missing in and between batches."""
        b = self.batches
        touch = (b.file[1:] == b.file[:-1]) & (b.position[1:] == b.position[:-1] + b.size[:-1])
        return self.is_thinned or bool((touch & (b.base[1:] != b.last[:-1] + 1)).any())

    @cached_property
    def is_thinned(self) -> bool:
        """Whether the cleaner says that it worked on it, or records are missing in batches."""
        b = self.batches
        short = (b.magic >= 2) & (b.control == 0) & (b.count < b.last - b.base + 1)
        return bool(self.cleaned_to or short.any())

    @property
    def served(self) -> Batches:
        """The batches that a broker keeps when it starts on this copy."""
        return self.batches.take(self.kept)


class EpochChain:
    """Leader epochs with the first offset of each, both ascending."""

    def __init__(self, starts: Iterable[tuple[int, int]]) -> None:
        """
        Args:
            starts: epochs and offsets in any order; of several starts of an epoch the first counts, and an epoch
                that a later one begins before or with has nothing.
        """
        first = dict[int, int]()
        for epoch, start in starts:
            first[epoch] = min(start, first.get(epoch, start))
        limit, kept = 1 << 63, list[tuple[int, int]]()
        for epoch in sorted(first, reverse=True):
            if first[epoch] < limit:
                limit = first[epoch]
                kept.append((epoch, limit))
        self.entries = kept[::-1]

    @property
    def latest(self) -> int:
        """The highest epoch, -1 for none."""
        return self.entries[-1][0] if self.entries else -1

    def at(self, offsets: Ints) -> Ints:
        """Return the epoch that each offset belongs to, -1 before the first, shape (n,)."""
        if not self.entries:
            return np.full(len(offsets), -1, np.int64)
        epochs, starts = (np.array(column, np.int64) for column in zip(*self.entries, strict=True))
        rows = np.searchsorted(starts, offsets, "right") - 1
        return np.where(rows < 0, -1, epochs[np.maximum(rows, 0)])

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return what a leader answers to OffsetsForLeaderEpoch: the largest epoch not above, and where it ends
        (KIP-101).

        -1 and -1 for an epoch above all that it knows; the epoch itself where it knows none that is not above.
        """
        if not self.entries or epoch > self.latest or epoch < 0:
            return -1, -1
        at = bisect_right(self.entries, epoch, key=lambda entry: entry[0]) - 1
        if at < 0:
            return epoch, self.entries[0][1]
        return self.entries[at][0], self.entries[at + 1][1] if at + 1 < len(self.entries) else log_end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochChain) and self.entries == other.entries

    __hash__ = None  # type: ignore[assignment]


def copy_of(
    log: PartitionLog, name: str, advance: Advance = lambda _: None, loaded: LoadedPartition | None = None
) -> Copy:
    """Return a partition of a log directory, with what a broker started on it would make of it.

    Args:
        loaded: what the replay of that start made of it.
    """
    found = copy_of_files(name, log.partition.logs, log.partition, is_clean=log.directory.is_clean, advance=advance)
    if loaded is not None:
        _as_loaded(found, loaded)
    if log.partition.state not in {DirectoryState.PLAIN, DirectoryState.FUTURE}:
        return found  # what the checkpoints say is of another directory
    if loaded is None:
        known = found.known
        _as_loaded(found, log.loaded)
        found.known = known  # as stored
    found.high_watermark = log.checkpoints.offset(FileKind.HIGH_WATERMARKS, log.partition) or 0
    found.deleted_to = log.checkpoints.offset(FileKind.LOG_STARTS, log.partition) or 0
    found.cleaned_to = log.checkpoints.offset(FileKind.CLEANER_OFFSETS, log.partition) or 0
    return found


def _as_loaded(found: Copy, loaded: LoadedPartition) -> None:
    kept = [kept_of(loaded, file) for file in found.files]
    ends = np.array([_NO_OFFSET if size is None else size for size in kept], np.int64)
    if loaded.unread_from is not None and found.files and found.files[-1].base == loaded.bases[-1]:
        ends[-1] = min(ends[-1], loaded.unread_from)
    batches = found.batches
    found.kept = batches.position + batches.size <= ends[batches.file]
    found.start, found.end = loaded.log_start_offset, loaded.log_end_offset
    found.known = EpochChain(loaded.epochs)


def copy_at(
    place: LogDirectories,
    log: PartitionLog,
    name: str,
    advance: Advance = lambda _: None,
    loaded: LoadedPartition | None = None,
) -> Copy:
    """Return a partition, as far as the user pointed at it: one file, or all of it; lone files where there is nothing
    else.

    Args:
        loaded: what the replay of a start made of it.
    """
    only = place.selected_file
    if only is not None:
        return copy_of_files(name, [only[1]], advance=advance)
    if log.segments:
        return copy_of(log, name, advance, loaded)
    lone = [file for file in log.partition.files if file.kind is FileKind.LOG and not file.is_leftover]
    return copy_of_files(name, lone, log.partition, advance=advance)


def copy_of_files(
    name: str,
    files: list[LogFile],
    partition: Partition | None = None,
    *,
    is_clean: bool = False,
    advance: Advance = lambda _: None,
) -> Copy:
    """Return the batches of some files of one partition, whatever stands between them.

    Args:
        partition: for its checkpoint of leader epochs.
        is_clean: the broker was stopped in order, so the end of the last file is no work in progress.
    """
    damage, parts = list[Finding](), [np.zeros((len(_COLUMNS), 0), np.int64)]
    for number, file in enumerate(files):
        is_last = number + 1 == len(files)
        for block, inside in _blocks(file):
            damage += _damage(file, block, is_last=is_last, growing=not is_clean)
            whole = (block.take(block.crc_ok), *inside)
            parts += [_columns(one.take(one["records_count"] >= 0), number) for one in whole]
            advance(int(block.size.sum()))
    rows = np.concatenate(parts, axis=1)
    rows = rows[:, np.lexsort((rows[1], rows[0]))]  # those inside of torn ones came after the others of their window
    columns = dict(zip(_COLUMNS, rows, strict=True))
    batches = Batches(**columns, stored_epoch=columns["epoch"])
    found = Copy(name, files, batches, damage)
    _put_in_order(found)
    _settle_epochs(found, partition)
    batches = found.batches
    found.known, found.kept = found.chain, np.ones(len(batches), bool)
    found.start = int(batches.base[0]) if len(batches) else 0
    found.end = int(batches.last[-1]) + 1 if len(batches) else 0
    return found


def _blocks(file: LogFile) -> Iterator[tuple[Block, list[Block]]]:
    source = file.open()
    try:
        yield from scan_inside(
            source, Extent(file.name, size=file.size if file.size >= 0 else None)
        )  # its name may be wrong
    finally:
        source.close()


def _damage(file: LogFile, block: Block, *, is_last: bool, growing: bool) -> Iterator[Finding]:
    for gap in block.gaps:
        if gap.why is not GapKind.ZERO_TAIL:
            kind = kind_of_gap(gap, is_last=is_last, growing=growing)
            yield Finding(kind, file.name, gap.position, gap.end - gap.position, gap.detail)
    for row in np.flatnonzero(~block.crc_ok).tolist():
        yield wrong_crc(block, row, None)


def _columns(block: Block, file: int) -> Ints:
    columns = [np.full(len(block), file, np.int64), block.position, block.size]
    base, last = block["base_offset"], block.proven_last
    columns += [base, last, *(block[n] for n in ("partition_leader_epoch", "crc", "records_count"))]
    columns += [block.magic, block["producer_id"], block.flag(Attributes.CONTROL).astype(np.int64)]
    columns.append(base + block["last_offset"] - last)  # what stands in the file is the last one of old messages
    return np.stack(columns) if len(block) else np.zeros((len(columns), 0), np.int64)


# --- offsets and epochs that can be -----------------------------------------------------------------


def _put_in_order(copy: Copy) -> None:
    """Leave the batches whose offsets ascend; a base offset that only one value fits is set right.

    Batches are looked at in the order of the files. One in no order with the others counts where it says that it
    belongs, if no other one has that place and others bear it out: a segment may lie under another name.
    """
    b = copy.batches
    if not len(b):
        return
    jumps = _jumps(copy)
    possible = (b.last >= b.base) & (b.last < _NO_OFFSET) & _near(b, copy.files) & ~jumps
    if possible.all() and (b.base[1:] > b.last[:-1]).all():
        return
    rows = np.flatnonzero(possible)
    good = rows[_ascending(b.base[rows], b.last[rows])]
    bad = np.setdiff1d(np.arange(len(b)), good)
    base, keep = b.base.copy(), np.zeros(len(b), bool)
    keep[good] = True
    taken = {(x, y) for x, y in zip(b.base[good].tolist(), b.crc[good].tolist(), strict=True)}
    away = list[int]()
    for row in bad.tolist():
        if (int(b.base[row]), int(b.crc[row])) in taken:
            message = f"the batch of offset {b.base[row]} stands here a second time"
            copy.damage.append(_of_row(copy, row, BATCH_OFFSET_ORDER, message))
            continue
        after = good[good > row]
        before = np.flatnonzero(keep[:row])
        low = int(base[before[-1]] + b.last[before[-1]] - b.base[before[-1]]) + 1 if len(before) else None
        span = (int(b.last[row]) - int(b.base[row])) % (1 << 64) + 1  # offsets beyond the largest number go round
        is_between = len(before) > 0 and len(after) > 0 and (before[-1], after[0]) == (row - 1, row + 1)
        fits = low is not None and is_between and low + span == int(b.base[after[0]])
        if low is not None and (fits or (jumps[row] and not len(after))):
            base[row], keep[row] = low, True
            message = (
                f"the base offset {b.base[row]} is in no order with those around it; {low} is the only one that fits"
            )
            copy.damage.append(_of_row(copy, row, BATCH_BASE_OFFSET, f"{message}, and counts"))
        else:
            away.append(row)
    last = b.last + (base - b.base)
    destroyed = sum(max(file.size, 0) for file in copy.files) - b.bytes
    is_whole = ~np.isin(b.file, b.file[good])  # nothing of its file is in order: the file lies elsewhere
    for row in _placed(
        base, last, keep, [row for row in away if possible[row]], np.where(is_whole, INT_MAX, destroyed)
    ):
        keep[row] = True
    for row in away:
        copy.misplaced += not keep[row]
        message = f"the base offset {b.base[row]} is in no order with those around it"
        message += ", but others bear it out, and it counts" if keep[row] else ""
        copy.damage.append(_of_row(copy, row, BATCH_BASE_OFFSET, message))
    columns = {name: getattr(b, name) for name in Batches.__slots__} | {"base": base, "last": last}
    kept = Batches(**columns).take(keep)
    copy.batches = kept.take(np.argsort(kept.base, kind="stable"))


def _near(b: Batches, files: Sequence[LogFile]) -> Flags:
    """Which batches are so near to the others in their file that one segment can hold them.

    What is alone among destroyed bytes has to be near to the name of its file.
    """
    near = np.ones(len(b), bool)
    for row in np.flatnonzero(np.bincount(b.file)[b.file] == 1).tolist():
        file = files[int(b.file[row])]
        is_named = file.kind is FileKind.LOG and file.meaning.base is not None
        near[row] = not is_named or b.size[row] == file.size or abs(int(b.base[row]) - file.base) <= INT_MAX
    far = np.flatnonzero(np.abs(np.diff(b.base)) > INT_MAX)
    for file in np.unique(b.file[[*far, *(far + 1)]]).tolist():
        rows = np.flatnonzero(b.file == file)
        middle = np.sort(b.base[rows])[(len(rows) - 1) // 2]  # of two the lower: offsets are rarely lowered so far
        near[rows] = np.abs(b.base[rows] - middle) <= INT_MAX
    return near


def _jumps(copy: Copy) -> Flags:
    """Which first batches of a file are too far from its name for an index, though the one before ends there."""
    b = copy.batches
    names = [file.base if file.kind is FileKind.LOG and file.meaning.base is not None else -1 for file in copy.files]
    begin = np.array(names, np.int64)[b.file]
    after = np.concatenate([[-1], b.last[:-1] + 1])
    return (b.position == 0) & (begin == after) & (np.abs(b.base - begin) > INT_MAX)


def _placed(base: Ints, last: Ints, keep: Flags, away: list[int], most: Ints) -> Iterator[int]:
    """Yield the batches that have a place of their own: between others, or not too far from them.

    Args:
        most: offsets that may be missing between, by row.
    """
    held = sorted(zip(base[keep].tolist(), last[keep].tolist(), strict=True))
    for rows in (sorted(away, key=lambda row: int(base[row])), sorted(away, key=lambda row: -int(base[row]))):
        for row in rows:
            low, high = int(base[row]), int(last[row])
            at = bisect_right(held, (low, high))
            is_free = (not at or held[at - 1][1] < low) and (at == len(held) or held[at][0] > high)
            is_near = bool(at) and low - held[at - 1][1] - 1 <= most[row]
            is_near |= at < len(held) and held[at][0] - high - 1 <= most[row]
            if is_free and (is_near or 0 < at < len(held)):
                held.insert(at, (low, high))
                yield row


def _of_row(copy: Copy, row: int, kind: FindingKind, message: str) -> Finding:
    b = copy.batches
    return Finding(kind, copy.files[int(b.file[row])].name, int(b.position[row]), int(b.size[row]), message)


def _ascending(base: Ints, last: Ints) -> list[int]:
    """Rows of the longest run of batches, not all neighbours, in which each begins after the one before ends."""
    ends, rows, before = list[int](), list[int](), [-1] * len(base)
    for row, (low, high) in enumerate(zip(base.tolist(), last.tolist(), strict=True)):
        if high < low or high >= _NO_OFFSET:
            continue
        at = bisect_right(ends, low - 1)  # chains that end below this one
        before[row] = rows[at - 1] if at else -1
        if at == len(ends):
            ends.append(high)
            rows.append(row)
        elif high < ends[at]:
            ends[at], rows[at] = high, row
    found, row = list[int](), rows[-1] if rows else -1
    while row >= 0:
        found.append(row)
        row = before[row]
    return found[::-1]


def _settle_epochs(copy: Copy, partition: Partition | None) -> None:
    """Set epochs right that break the order, and find the chain."""
    b = copy.batches
    file = partition.one(FileKind.LEADER_EPOCHS) if partition is not None else None
    parsed = parse_leader_epochs(read_text(file)) if file is not None else None
    listed = [] if parsed is None or parsed.problems else list(parsed.entries)
    epoch = b.epoch.copy()
    stated = epoch != -1  # none is stated by messages of magic 0 and 1
    epoch[stated] = _settled(epoch[stated])
    for row in np.flatnonzero(epoch != b.epoch).tolist():
        name, at = copy.files[int(b.file[row])].name, int(b.position[row])
        message = f"leader epoch {b.epoch[row]} among batches of epoch {epoch[row]}"
        copy.damage.append(Finding(BATCH_LEADER_EPOCH, name, at, int(b.size[row]), message))
    columns = {name: getattr(b, name) for name in Batches.__slots__} | {"epoch": epoch}
    copy.batches = b = Batches(**columns)
    runs = np.flatnonzero(np.diff(epoch, prepend=-2))
    proven = [(e, o) for e, o in zip(epoch[runs].tolist(), b.base[runs].tolist(), strict=True) if e >= 0]
    copy.chain = EpochChain([*proven, *_trusted(listed, b)])
    copy.listed = frozenset(entry.epoch for entry in listed)


def _settled(epoch: Ints) -> Ints:
    """Return the epochs of batches in an order that can be."""
    if not (np.diff(epoch, prepend=0) < 0).any():
        return epoch
    runs = np.flatnonzero(np.diff(epoch, prepend=-2))
    if len(runs) > _MOST_RUNS:
        return np.maximum.accumulate(epoch)
    weights = np.diff([*runs.tolist(), len(epoch)])
    good = _heaviest(epoch[runs], weights)
    found = np.empty(len(runs), np.int64)
    known = iter([*good, -1])
    at, current = next(known), max(int(epoch[runs[good[0]]]), 0) if good else -1
    for run in range(len(runs)):
        if run == at:
            current, at = int(epoch[runs[run]]), next(known)
        found[run] = current
    return np.repeat(found, weights)


def _heaviest(values: Ints, weights: Ints) -> list[int]:
    """Places of values that never go back, of the greatest weight in all."""
    best, before = weights.astype(np.int64).copy(), [-1] * len(values)
    for at in range(len(values)):
        lower = np.flatnonzero((values[:at] <= values[at]) & (values[:at] >= 0))
        if len(lower):
            top = int(lower[np.argmax(best[lower])])
            best[at], before[at] = best[top] + weights[at], top
    usable = np.flatnonzero(values >= 0)[::-1]  # of equals the last: one value was damaged rather than all after it
    found, at = list[int](), int(usable[np.argmax(best[usable])]) if len(usable) else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]


def _trusted(listed: list[LeaderEpoch], b: Batches) -> list[tuple[int, int]]:
    """Return the entries of a checkpoint, where they agree with the batches of the same copy."""
    entries = [(entry.epoch, entry.start_offset) for entry in listed]
    if any(one[0] >= two[0] or one[1] > two[1] for one, two in pairwise(entries)):
        return []
    modern = (b.epoch >= 0) & (b.base >= (entries[0][1] if entries else 0))
    agrees = not entries or (EpochChain(entries).at(b.base[modern]) == b.epoch[modern]).all()
    return entries if agrees else []
