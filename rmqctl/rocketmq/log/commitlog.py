"""The whole commit log: its files in order, the blocks of each, and what their gaps mean.

A gap alone says that bytes are no record. Here it gets its meaning from where it lies: in the
middle of the log it is damage, after the last record it is a torn write, room never written, or
what a cut once left (spec 14.1 to 14.3).

A file of the log may lie under a wrong name: the PHYSICALOFFSET of its records says where it belongs (spec 1.2, 2.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from formats.rocketmq.message import SysFlag
from rmqctl.files.local import ByteSource
from rmqctl.files.tree import join
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.log import (
    LOG_BAD_RECORD,
    LOG_BLANK,
    LOG_FILE_NAME,
    LOG_GAP,
    LOG_PHYSICAL_OFFSET,
    LOG_STALE_TAIL,
    LOG_TORN_TAIL,
)
from rmqctl.rocketmq.log.block import Blank, Block, Gap, GapKind, Ints
from rmqctl.rocketmq.log.columns import (
    KeyNumbers,
    Pairs,
    TextIds,
    Texts,
    pairs_of,
    pairs_repeated,
    properties_of,
    topic_numbers,
)
from rmqctl.rocketmq.log.measure import whole_records
from rmqctl.rocketmq.log.record import (
    HEAD_SEEN,
    VARIANTS,
    flags_of,
    head_offset,
    head_size,
    magic_of,
    physical_of,
    variant_of,
)
from rmqctl.rocketmq.log.scan import WINDOW, Extent, scan
from rmqctl.rocketmq.store.files import OFFSET_DIGITS, StoreFile, StoreFiles
from rmqctl.text import number_of

LOOK_BACK = 1 << 20, 16 << 20
"""Bytes in front of a place in which a record should begin: the usual way, and with the largest messages."""
_INNER = int(SysFlag.INNER_BATCH)
_FILES_BACK = 4
"""Files in front of the end of the log in one of which a record should lie."""
_PARTS, _PART = 8, 1 << 20
"""How many parts of a file are asked where it belongs, and bytes of each."""
_LEAST, _MOST_OTHERS = 3, 0.1
"""Records that must agree, since one may be damaged; the part of them that may say something else."""
_OF_DATA = 3
"""One part in so many of the bytes of a file must be those records."""


@dataclass(slots=True)
class LogState:
    """What has been seen of the log so far.

    Attributes:
        store_timestamp: of the last record of the log, 0 before the first.
        end: physical offset after the last record of the log, None before the first.
        records: records seen.
        stale: set once old records after the end of the log have begun: nothing after counts.
    """

    store_timestamp: int = 0
    end: int | None = None
    records: int = 0
    stale: bool = False


@dataclass(frozen=True, slots=True)
class FileContext:
    """Where a file stands in its log.

    Attributes:
        followed: a later file of the log holds data, so this one must be full.
        crashed: the store was not stopped cleanly; an unfinished tail is then nothing unusual.
        before: the files in front of one that no data follows, where the log may end, the nearest first; their last
            record is newer than what a cut has left in this one.
    """

    file: StoreFile
    followed: bool
    crashed: bool = False
    before: tuple[StoreFile, ...] = ()


@dataclass(slots=True)
class LogBlock:
    """Records of the log with the findings of the bytes between them, ordered by offset in the file."""

    block: Block
    findings: list[Finding] = field(default_factory=list)
    _topics: tuple[TextIds, Ints] | None = None
    _by_queue: tuple[KeyNumbers, Ints, Ints] | None = None
    _properties: Texts | None = None
    _pairs: Pairs | None = None

    @property
    def properties(self) -> Texts:
        """The properties texts of the records, made once."""
        if self._properties is None:
            self._properties = properties_of(self.block)
        return self._properties

    @property
    def pairs(self) -> Pairs:
        """The properties of the records as pairs, made once."""
        if self._pairs is None:
            self._pairs = pairs_of(self.properties)
        return self._pairs

    @classmethod
    def alike(cls, block: Block) -> LogBlock:
        """Return a block of records, at least one, whose properties are known to have the same names at the same
        places.
        """
        texts = properties_of(block)
        return cls(block, _properties=texts, _pairs=pairs_repeated(texts))

    def leave_window(self, ids: TextIds, fields: Iterable[str]) -> int:
        """Keep the records after their window is reused: their sizes, these header fields, topics in ``ids`` and
        properties, but no other byte. Return how many bytes that are, roughly.
        """
        columns = [self.block[name] for name in fields]
        self.topics(ids)
        kept = len(self.properties.data)
        self.block.data, self.block.heads = np.zeros(0, np.uint8), None
        return kept + len(self.block) * (len(columns) + 8) * 8

    def topics(self, ids: TextIds) -> Ints:
        """Return the number of each record's topic in ``ids``, made once for the same ``ids``."""
        if self._topics is None or self._topics[0] is not ids:
            self._topics = ids, topic_numbers(self.block, ids)
        return self._topics[1]

    def by_queue(self, ids: TextIds, numbers: KeyNumbers) -> tuple[Ints, Ints]:
        """Return the records sorted by queue, those of one in log order: queue numbers and rows; made once."""
        if self._by_queue is None or self._by_queue[0] is not numbers:
            queues = numbers.numbers(self.topics(ids) << 32 | (self.block["queue_id"].astype(np.int64) & 0xFFFFFFFF))
            row = np.argsort(queues, kind="stable")
            self._by_queue = numbers, queues[row].astype(np.int64), row
        return self._by_queue[1], self._by_queue[2]


class CommitLog:
    """The files of a log as one sequence.

    Args:
        files: ascending by offset.
        crashed: the store was not stopped cleanly.
        lead: bytes before each record where the files do not say so themselves.
        file_size: what a file should have; default: the commonest length.
    """

    def __init__(
        self, files: list[StoreFile], *, crashed: bool = False, lead: int = 0, file_size: int | None = None
    ) -> None:
        self.files, self.crashed, self.lead = files, crashed, lead
        sizes = Counter(f.size for f in files)
        self.file_size = file_size or max(sizes, key=lambda size: (sizes[size], size), default=0)

    def contexts(self) -> list[FileContext]:
        """Each file with its place in the log."""
        holds = [has_data(f) for f in self.files]
        last = max((i for i, data in enumerate(holds) if data), default=-1)
        return [
            FileContext(f, i < last, self.crashed, () if i < last else tuple(self.files[:i][: -_FILES_BACK - 1 : -1]))
            for i, f in enumerate(self.files)
        ]

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte of the first file; 0 for an empty log."""
        return self.files[0].base if self.files else 0

    def walk(self, window: int = WINDOW) -> Iterator[LogBlock]:
        """Blocks of all files in log order, with structural findings; stale records are left out."""
        state = LogState()
        for at, context in enumerate(self.contexts()):
            if finding := self.gap_before(at):
                yield LogBlock(Block.empty(context.file.name, context.file.base, 0, []), [finding])
            yield from walk_file(context, state, lead=self.lead, window=window)

    def gap_before(self, at: int) -> Finding | None:
        """Return the finding for files missing in front of file number ``at``."""
        return gap_between(self.files[at - 1], self.files[at], self.file_size) if at else None


def has_data(file: StoreFile) -> bool:
    """Whether the first bytes of a file are anything but zero; an unreadable file counts as full."""
    source = file.open()
    try:
        return any(source.read_at(0, 8))
    except OSError:
        return True
    finally:
        source.close()


def gap_between(previous: StoreFile, file: StoreFile, file_size: int) -> Finding | None:
    """Return the finding for files that are missing between two neighbours (``MappedFileQueue.checkSelf``).

    It names the first missing file. A file that is merely too short leaves no gap.
    """
    begin = previous.base + file_size
    missing = file.base - begin
    if missing <= 0:
        return None
    directory = file.name.rpartition("/")[0]
    message = f"no file holds offsets {begin} to {file.base}: {number_of(missing, 'byte')} missing"
    return Finding(LOG_GAP, join(directory, f"{begin:020d}"), 0, missing, message, physical_offset=begin)


def walk_file(
    context: FileContext,
    state: LogState,
    *,
    start: int = 0,
    stop: int | None = None,
    lead: int = 0,
    window: int = WINDOW,
) -> Iterator[LogBlock]:
    """Blocks of one file or a split of it; ``state`` is carried on."""
    file = context.file
    lead = file.lead or lead
    source: ByteSource = file.open()
    try:
        extent = Extent(file.name, file.base, start, stop, lead=lead)
        for block in scan(source, extent, window):
            found = LogBlock(block)
            _judge_gaps(found, context, state, source)
            _judge_blanks(found)
            _judge_offsets(found, context, state, source)
            found.findings.sort(key=lambda f: f.offset)
            _note(found.block, state)
            yield found
            if state.stale:
                return
    finally:
        source.close()


def resume_state(context: FileContext, start: int, lead: int = 0) -> LogState:
    """Return the state that a walk needs which begins at ``start``: of the last record in front of it.

    Where the log may end in the file, that record may lie in a file in front. No more than 16 MiB of a file are looked
    through.
    """
    state = LogState()
    for file, stop in [(context.file, start), *((file, None) for file in context.before)]:
        if stop != 0 and not state.records:
            _note_last(file, stop, file.lead or lead, state)
    return state


def _note_last(file: StoreFile, stop: int | None, lead: int, state: LogState) -> None:
    """Note the last record of a file in front of ``stop``, where one lies near."""
    end = file.size if stop is None else stop
    source = file.open()
    try:
        for reach in LOOK_BACK:
            for block in scan(source, Extent(file.name, file.base, max(end - reach, 0), stop, lead=lead)):
                _note(block, state)
            if state.records or end <= reach:
                return
    finally:
        source.close()


def _note(block: Block, state: LogState) -> None:
    if len(block):
        state.store_timestamp = int(block["store_timestamp"][-1])
        state.end = int(block.physical[-1] + block.total_size[-1])
        state.records += len(block)


def _judge_gaps(found: LogBlock, context: FileContext, state: LogState, source: ByteSource) -> None:
    """Turn each gap into a finding, and end the log where old records follow it."""
    for gap in found.block.gaps:
        if _is_stale(found.block, gap, context, state, source):
            _end_log(found, gap.position)
            found.findings.append(_stale(context, gap.position, gap.detail))
            state.stale = True
            return
        finding = _finding_of(gap, context)
        if finding is not None:
            found.findings.append(finding)


def _is_stale(block: Block, gap: Gap, context: FileContext, state: LogState, source: ByteSource) -> bool:
    """Whether the records after a gap are older than those in front: left by a cut, not part of the log."""
    if context.followed or not gap.resumed:
        return False
    row = int(np.searchsorted(block.position, gap.end + context.file.lead))
    before = _time_in_front(block, row, state)
    if row < len(block):
        is_next = int(block.position[row]) == gap.end + context.file.lead
        time = int(block["store_timestamp"][row]) if is_next else None
    else:
        time = _time_at(source, gap.end + context.file.lead)  # the record is not of this split
    is_older = time is not None and time < before and _are_older(source, context.file, gap.end, before)
    return is_older and not _goes_on(source, context, gap.position, gap.end, before)


def _goes_on(source: ByteSource, context: FileContext, front: int, after: int, time: int) -> bool:
    from rmqctl.rocketmq.log.cut import goes_on  # a sound log needs none of it

    return goes_on(context.file, context.before, source, front, after, time)


def _time_in_front(block: Block, row: int, state: LogState) -> int:
    """Return the store time of the last record in front of a row that lies where it says, ms."""
    rows = np.flatnonzero(block["physical_offset"][:row] == block.physical[:row])
    return int(block["store_timestamp"][rows[-1]]) if len(rows) else state.store_timestamp


_LOOKED_AT = 64
"""Records that are asked whether they are older than the last one in front."""


def _are_older(source: ByteSource, file: StoreFile, begin: int, before: int) -> bool:
    """Whether nearly all of the next records are older than ``before``: one alone may be damaged, or strayed.

    Args:
        begin: byte of the file where the first of them lies.
    """
    older = newer = 0
    for block in scan(source, Extent(file.name, file.base, begin, lead=file.lead, chained=True)):
        times = block["store_timestamp"][: _LOOKED_AT - older - newer]
        in_place = (block["physical_offset"] == block.physical)[: len(times)]
        count = int(np.count_nonzero(in_place & (times >= before)))
        older, newer = older + len(times) - count, newer + count
        if older + newer == _LOOKED_AT:
            break
    return newer <= _MOST_OTHERS * (older + newer)


def _time_at(source: ByteSource, position: int) -> int | None:
    """Return the store time of the record that begins at a place, ms; None where what begins there is none."""
    head = source.read_at(position, head_size(VARIANTS - 1))
    variant = variant_of(magic_of(head), flags_of(head)) if len(head) >= HEAD_SEEN else None
    if variant is None:
        return None
    at = head_offset("store_timestamp", variant)
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def _end_log(found: LogBlock, position: int) -> None:
    """Drop what lies at and after a position."""
    found.block = found.block.take(found.block.position < position)
    found.block.gaps = [g for g in found.block.gaps if g.position < position]
    found.block.blanks = [b for b in found.block.blanks if b.position < position]
    found.findings = [f for f in found.findings if f.offset < position]


def _stale(context: FileContext, position: int, detail: str) -> Finding:
    file = context.file
    message = f"{detail}; the sound records behind are older than the last one in front: left by a cut of the log"
    return Finding(
        LOG_STALE_TAIL, file.name, position, max(file.size - position, 0), message,
        physical_offset=file.base + position,
    )  # fmt: skip


def _finding_of(gap: Gap, context: FileContext) -> Finding | None:
    """Return what a gap means at its place; None for room that was never written."""
    size, place = gap.end - gap.position, context.file.base + gap.position
    severity: Severity | None = None
    if gap.why is GapKind.ZERO_TAIL and not context.followed:
        return None
    if gap.why in (GapKind.ZERO_TAIL, GapKind.ZEROS) and context.followed and not gap.resumed:
        kind, severity = LOG_BLANK, Severity.ERROR
        text = (
            "the next file has data, but zeros stand where a blank record should end this one; "
            f"{number_of(size, 'byte', 'are')} left"
        )
    elif gap.resumed or context.followed:
        kind, text = LOG_BAD_RECORD, f"{gap.detail}; {_after(gap, context)}"
    else:
        kind, severity = LOG_TORN_TAIL, Severity.WARNING if context.crashed else None
        text = f"{gap.detail}; nothing sound follows in the {size} bytes to the end of the data"
    return Finding(kind, context.file.name, gap.position, size, text, severity, physical_offset=place)


def _after(gap: Gap, context: FileContext) -> str:
    if gap.resumed:
        return f"{gap.end - gap.position} bytes on the chain goes on at offset {context.file.base + gap.end}"
    return f"nothing sound follows in this file, {gap.end - gap.position} bytes on; the next file has data"


def _judge_blanks(found: LogBlock) -> None:
    for blank in found.block.blanks:
        rest = blank.end - blank.position
        if blank.size != rest:
            found.findings.append(_blank_finding(found.block, blank, rest))


def _blank_finding(block: Block, blank: Blank, rest: int) -> Finding:
    message = f"the blank record states {blank.size} bytes, but {rest} are left in the file"
    place = block.base + blank.position
    return Finding(LOG_BLANK, block.file, blank.position, 8, message, physical_offset=place)


def _judge_offsets(found: LogBlock, context: FileContext, state: LogState, source: ByteSource) -> None:
    """Judge records that say they lie elsewhere; old ones at the very end are no part of the log."""
    block = found.block
    if not len(block):
        return
    stated, real = block["physical_offset"], block.physical
    for i in np.flatnonzero(stated != real):
        position = int(block.position[i])
        message = f"the record at {int(real[i])} says it lies at {int(stated[i])}"
        before, begin = _time_in_front(block, int(i), state), position - context.file.lead
        is_older = not context.followed and int(block["store_timestamp"][i]) < before
        is_older = is_older and _are_older(source, context.file, begin, before)
        if is_older and not _goes_on(source, context, begin, begin, before):
            _end_log(found, position)
            found.findings.append(_stale(context, position, message))
            state.stale = True
            return
        found.findings.append(
            Finding(
                LOG_PHYSICAL_OFFSET,
                block.file,
                position + 28,
                8,
                message,
                physical_offset=int(real[i]),
                topic=block.topic(int(i)).decode("utf-8", "replace"),
            )
        )


# --- files under a wrong name --------------------------------------------------------------------------


STRAY = -1
"""Base of a file whose name is no offset."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A file of the log, or beside it, and where its records say that it begins.

    Attributes:
        home: physical offset of its first byte, by its records.
        records: how many of them say so.
    """

    file: StoreFile
    home: int
    records: int

    @property
    def name(self) -> str:
        """The name it should have."""
        return f"{self.file.name.rpartition('/')[0]}/{self.home:0{OFFSET_DIGITS}d}"

    def at_home(self) -> StoreFile:
        """Return the file as if it had the right name."""
        return replace(self.file, base=self.home)


def misplaced_files(store: StoreFiles, size: int) -> list[Misplaced]:
    """Files under a wrong name, those beside the log that are as long as its files included.

    Args:
        size: bytes of a file of the log.
    """
    said: list[tuple[StoreFile, Misplaced | None]] = []
    right = []
    for file in [*store.log_files, *_strays(store, size)]:
        if file.lead or (file.base != STRAY and _begins_right(file)):
            right.append(file.base)
        else:
            said.append((file, _by_records(file)))
    rests = Counter(base % size for base in right or [one.home for _, one in said if one is not None])
    grid = rests.most_common(1)[0][0] if rests else 0
    found = []
    for file, one in said:
        home = one if one is not None and one.home % size == grid else _by_majority(file, size, grid)
        if home is not None and home.home >= 0 and home.home != file.base:
            found.append(home)
    return found


def files_to_rename(store: StoreFiles, found: Sequence[Misplaced]) -> list[Misplaced]:
    """Those of the files whose place no other file has, one for each place, ascending."""
    wrong = {one.file.name for one in found}
    taken = {f.base for f in store.log_files if f.name not in wrong}
    homes: dict[int, Misplaced] = {}
    for one in sorted(found, key=lambda one: -one.records):
        if one.home not in taken:
            homes.setdefault(one.home, one)
    return sorted(homes.values(), key=lambda one: one.home)


def misnamed(found: Sequence[Misplaced]) -> Finding:
    """One finding for files of the log that have a wrong name; at least one."""
    first, records = found[0], sum(one.records for one in found)
    short = {one.name: one.file.name.rpartition("/")[2] for one in found}
    pairs = [f"{old} should be {new.rpartition('/')[2]}" for new, old in short.items()]
    if len(found) == 2 and {one.name for one in found} == {one.file.name for one in found}:
        pairs = [f"{' and '.join(sorted(short.values()))} are exchanged"]
    message = f"{', '.join(pairs)}: so say the {number_of(records, 'record')} in them"
    return Finding(LOG_FILE_NAME, first.file.name, 0, 0, message, physical_offset=first.home)


def log_file_at(store: StoreFiles, name: str) -> StoreFile | None:
    """Return the file of the log, or beside those of the log, that has a name; None where it is none of them."""
    own = next((file for file in store.log_files if file.name == name), None)
    entry = store.tree.stat(name) if own is None and any(e.path == name for e in store.log_strays) else None
    if entry is None or entry.is_directory:
        return own
    return StoreFile(name, STRAY, entry.size, store.tree, name, entry.mtime_ms)


def _strays(store: StoreFiles, size: int) -> Iterator[StoreFile]:
    for entry in store.log_strays:
        found = store.tree.stat(entry.path)
        if found is not None and not found.is_directory and found.size == size:
            yield StoreFile(entry.path, STRAY, found.size, store.tree, entry.path, found.mtime_ms)


def _begins_right(file: StoreFile) -> bool:
    """Whether the first record says that it lies where it lies."""
    source = file.open()
    try:
        head = source.read_at(0, HEAD_SEEN)
    finally:
        source.close()
    return physical_of(head) == file.base


def _by_records(file: StoreFile) -> Misplaced | None:
    """Where a file begins by nearly all of its records; None where they do not agree."""
    homes, sizes, data = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    source = file.open()
    try:
        for block in scan(source, Extent(file.name, file.base, 0)):
            homes.append(block["physical_offset"].astype(np.int64) - block.position)
            sizes.append(block.total_size.astype(np.int64))
            data += sum(gap.end - gap.position for gap in block.gaps if gap.why is not GapKind.ZERO_TAIL)
    finally:
        source.close()
    found, place = np.unique(np.concatenate(homes), return_inverse=True)
    said = np.bincount(place), np.bincount(place, np.concatenate(sizes)).astype(np.int64)
    votes = dict(zip(found.tolist(), zip(*(column.tolist() for column in said), strict=True), strict=True))
    return _agreed(file, votes, data + int(said[1].sum()))


def _by_majority(file: StoreFile, size: int, grid: int) -> Misplaced | None:
    """Where a file begins by nearly all whole records of some parts of it, wherever in it they lie: bytes were put into
    it or taken out.
    """
    votes: dict[int, tuple[int, int]] = {}
    data = 0
    source = file.open()
    try:
        for begin in range(0, file.size, max(file.size // _PARTS, _PART)):
            stop = min(begin + _PART, file.size)
            data += len(source.read_at(begin, stop - begin).rstrip(b"\0"))
            for _, raw in whole_records(source, stretches=[(begin, stop)]):
                home = (physical_of(raw) - grid) // size * size + grid
                count, held = votes.get(home, (0, 0))
                votes[home] = count + 1, held + len(raw)
    finally:
        source.close()
    return _agreed(file, votes, data)


def _agreed(file: StoreFile, votes: Mapping[int, tuple[int, int]], data: int) -> Misplaced | None:
    """Return the home that nearly all records say; None where they do not agree.

    Args:
        votes: how many records say that the file begins at an offset, and their bytes.
        data: bytes that the file holds, records or not, of which those must be a good part: it may be one page of many.
    """
    home = max(votes, key=lambda one: votes[one], default=0)
    count, held = votes.get(home, (0, 0))
    is_most = count >= max(_LEAST, (1 - _MOST_OTHERS) * sum(number for number, _ in votes.values()))
    return Misplaced(file, home, count) if is_most and held * _OF_DATA >= data else None


__all__ = ["STRAY", "Misplaced", "files_to_rename", "log_file_at", "misnamed", "misplaced_files"]
