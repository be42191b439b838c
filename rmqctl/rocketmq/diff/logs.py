"""Two commit logs side by side: which records are equal byte for byte at the same physical offset.

Two streams of sorted numbers are laid side by side in pieces that cover the same range. Records of one log that the
other does not hold at the same place are kept as columns and matched by queue offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from rmqctl.findings import Severity
from rmqctl.rocketmq.findings.log import LOG_GAP
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import TextIds, topic_numbers
from rmqctl.rocketmq.log.commitlog import CommitLog, LogBlock
from rmqctl.rocketmq.log.crc import crc32
from rmqctl.rocketmq.store.files import StoreFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice(Generic[T]):
    """Some neighbouring items of a stream.

    Attributes:
        keys: ascending, shape (n,).
        of: what the items belong to, None where there is nothing.
        first: number of the first item in it.
    """

    keys: Ints
    of: T | None = None
    first: int = 0

    def rows(self, index: Ints) -> Ints:
        """Numbers of items, in what they belong to."""
        return index + self.first


_NONE = np.zeros(0, np.int64)


class _Stream(Generic[T]):
    """A stream with what is left of its current piece."""

    def __init__(self, pieces: Iterator[tuple[Ints, T]]) -> None:
        self._pieces = pieces
        self._last = -1
        self.keys, self.at = _NONE, 0
        self._of: T | None = None

    def fill(self) -> bool:
        """Whether items are left, the next piece taken where needed; keys that do not ascend are dropped."""
        while self.at >= len(self.keys):
            piece = next(self._pieces, None)
            if piece is None:
                self.keys, self._of, self.at = _NONE, None, 0
                return False
            self.keys, self._of = piece
            self.at = int(np.searchsorted(self.keys, self._last, "right"))
        return True

    def last(self) -> int:
        return int(self.keys[-1])

    def take(self, bound: int) -> Slice[T]:
        """Return the items up to a key."""
        begin, self.at = self.at, max(self.at, int(np.searchsorted(self.keys, bound, "right")))
        part = Slice(self.keys[begin : self.at], self._of, begin)
        if len(part.keys):
            self._last = int(part.keys[-1])
        return part


def merge(a: Iterator[tuple[Ints, T]], b: Iterator[tuple[Ints, T]]) -> Iterator[tuple[Slice[T], Slice[T]]]:
    """Parts of both that cover the same range of keys; one of them may be empty.

    What an item belongs to must stay readable until the next part is asked for.

    Args:
        a, b: pieces with ascending keys, shape (n,), and what they belong to.
    """
    left, right = _Stream(a), _Stream(b)
    while True:
        more = left.fill(), right.fill()
        if not any(more):
            return
        bound = min(s.last() for s, is_more in zip((left, right), more, strict=True) if is_more)
        yield left.take(bound), right.take(bound)


# --- records of one log that the other does not hold at the same place ------------------------------


class Columns(NamedTuple):
    """One row a record, int64, shape (n,) each.

    Attributes:
        seq: number of the record in its log.
        file: number of its file.
        physical, size: where it lies, and its length in bytes.
        topic: number of the topic, the same for both logs.
        body_size: bytes.
        body, properties: CRC-32 of their bytes.
    """

    seq: Ints
    file: Ints
    physical: Ints
    size: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    body_size: Ints
    body: Ints
    properties: Ints

    def take(self, rows: Ints) -> Columns:
        """Return the rows of an index."""
        return Columns(*(column[rows] for column in self))


NO_COLUMNS = Columns(*(np.zeros(0, np.int64) for _ in Columns._fields))
"""No records."""


@dataclass
class Unmatched:
    """Collects records of one log."""

    topics: TextIds
    parts: list[Columns] = field(default_factory=list)

    def add(self, block: Block, rows: Ints, seq: Ints, file: int) -> None:
        """Keep the records ``rows`` of a block, whose numbers in the log are ``seq``."""
        if not len(rows):
            return
        b = block.take(rows)
        self.parts.append(
            Columns(
                seq,
                np.full(len(rows), file, np.int64),
                b.physical,
                b.total_size.astype(np.int64),
                topic_numbers(b, self.topics),
                b["queue_id"].astype(np.int64),
                b["queue_offset"].astype(np.int64),
                b.body_size.astype(np.int64),
                _crcs(b, b.body_at, b.body_size),
                _crcs(b, b.properties_at, b.properties_size),
            )
        )

    def columns(self) -> Columns:
        """Everything kept, in log order."""
        if not self.parts:
            return NO_COLUMNS
        return Columns(*(np.concatenate(column) for column in zip(*self.parts, strict=True)))


def _crcs(block: Block, at: Ints, size: Ints) -> Ints:
    data = memoryview(block.data.data)
    found = [crc32(data[a : a + n]) for a, n in zip(at.tolist(), size.tolist(), strict=True)]
    return np.fromiter(found, np.int64, len(found))


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows of A and B that belong together, and those of each that have no partner; ascending in A and in B."""

    a: Ints
    b: Ints
    only_a: Ints
    only_b: Ints


def join(a: Columns, b: Columns) -> Joined:
    """Match records by topic, queue and queue offset; several of one offset in the order of the log."""
    keys_a, keys_b = _keys(a), _keys(b)
    order = np.concatenate([keys_a, keys_b])
    _, numbers = np.unique(order, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    _, at_a, at_b = np.intersect1d(numbers[: len(keys_a)], numbers[len(keys_a) :], return_indices=True)
    rows = np.argsort(at_a, kind="stable")
    return Joined(at_a[rows], at_b[rows], _without(len(keys_a), at_a), _without(len(keys_b), at_b))


def _keys(columns: Columns) -> Ints:
    """Topic, queue, queue offset, and which of several with these it is; shape (n, 4)."""
    key = np.column_stack([columns.topic, columns.queue_id, columns.queue_offset])
    if not len(key):
        return np.zeros((0, 4), np.int64)
    order = np.lexsort((columns.physical, *key.T[::-1]))
    ordered = key[order]
    is_new = np.ones(len(key), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(1)
    starts = np.flatnonzero(is_new)
    rank = np.empty(len(key), np.int64)
    rank[order] = np.arange(len(key)) - starts[np.cumsum(is_new) - 1]
    return np.column_stack([key, rank])


def _without(count: int, rows: Ints) -> Ints:
    keep = np.ones(count, bool)
    keep[rows] = False
    return np.flatnonzero(keep)


# --- two commit logs side by side -------------------------------------------------------------------


@dataclass
class Log:
    """One of the two logs.

    Attributes:
        name: what to call it: its path as typed.
        files: ascending by offset.
        crashed: its store was not stopped cleanly.
        records, bytes: sound records seen, and their bytes.
        gaps: places that hold no record and should.
        begin, end: physical offsets of the first byte of the first file and after the last record.
    """

    name: str
    files: list[StoreFile]
    crashed: bool = False
    records: int = 0
    bytes: int = 0
    end: int = 0
    gaps: int = 0

    @property
    def begin(self) -> int:
        return self.files[0].base if self.files else 0

    def blocks(self) -> Iterator[LogBlock]:
        """All of it."""
        return CommitLog(self.files, crashed=self.crashed).walk()

    def missing_files(self) -> int:
        """Return at how many places between two files others are missing: no stretch of the log shows them."""
        log = CommitLog(self.files, crashed=self.crashed)
        return sum(log.gap_before(at) is not None for at in range(len(self.files)))

    def numbers(self) -> dict[str, int]:
        """Return the number of each file, by name."""
        return {file.name: number for number, file in enumerate(self.files)}


@dataclass
class Seen:
    """What was seen of a stretch of a log.

    Attributes:
        records, bytes, end: sound records, their bytes, and the physical offset after the last.
        gaps: places inside files that hold no record and should; nothing of them is compared.
    """

    records: int = 0
    bytes: int = 0
    end: int = 0
    gaps: int = 0

    def pieces(
        self, blocks: Iterable[LogBlock], advance: Callable[[int], None] = lambda size: None
    ) -> Iterator[tuple[Ints, tuple[Block, int]]]:
        """Physical offsets of the records of each block, with the block and the number of its first record."""
        for found in blocks:
            block, first = found.block, self.records
            self.gaps += sum(f.kind.severity is Severity.ERROR and f.kind is not LOG_GAP for f in found.findings)
            if len(block):
                self.records += len(block)
                self.bytes += int(block.total_size.sum())
                self.end = max(self.end, int(block.physical[-1] + block.total_size[-1]))
                yield block.physical, (block, first)
            advance(len(block.data))


@dataclass
class Laid:
    """What laying a stretch of both logs beside each other has shown; it can be pickled.

    Attributes:
        seen_a, seen_b: what there was.
        equal, equal_bytes: records that are equal byte for byte at the same physical offset.
        matched: records of which each log has an equal one in the same queue; in neither ``left_a`` nor ``left_b``.
        left_a, left_b: the others; ``seq`` counts from the begin of the stretch.
        topics: by the numbers in ``left_a`` and ``left_b``.
    """

    seen_a: Seen = field(default_factory=Seen)
    seen_b: Seen = field(default_factory=Seen)
    equal: int = 0
    equal_bytes: int = 0
    matched: int = 0
    left_a: Columns = NO_COLUMNS
    left_b: Columns = NO_COLUMNS
    topics: list[bytes] = field(default_factory=list)


Blocks = tuple[Iterable[LogBlock], Iterable[LogBlock]]
Share = Callable[[Log, Log, bool], Laid]
"""Lays two logs beside each other elsewhere, stretch by stretch with :func:`lay`, and adds up the results."""


def lay(
    blocks: Blocks,
    numbers: tuple[dict[str, int], dict[str, int]],
    *,
    by_place: bool,
    advance: Callable[[int], None] = lambda size: None,
) -> Laid:
    """Read a stretch of both logs once.

    Args:
        blocks: of A and of B, of the same range of physical offsets.
        numbers: of the files of A and of B, by name.
        by_place: records at the same physical offset are compared; else all are left to be matched by queue.
        advance: called with the bytes of A's log gone through.
    """
    laid, topics = Laid(), TextIds()
    kept = Unmatched(topics), Unmatched(topics)
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for parts in merge(laid.seen_a.pieces(blocks[0], advance), laid.seen_b.pieces(blocks[1])):
        equal = _equal(laid, *parts) if by_place else nothing
        for part, same, unmatched, files in zip(parts, equal, kept, numbers, strict=True):
            _keep(part, same, unmatched, files)
    laid.left_a, laid.left_b, laid.topics = kept[0].columns(), kept[1].columns(), topics.texts
    return laid


@dataclass
class LogDiff:
    """What is equal and what is left after the logs were laid beside each other."""

    a: Log
    b: Log
    laid: Laid = field(default_factory=Laid)

    def run(
        self, *, by_place: bool, advance: Callable[[int], None] = lambda size: None, share: Share | None = None
    ) -> None:
        """Read both logs once, here or by ``share``; the other arguments are those of :func:`lay`."""
        if share is not None:
            self.laid = share(self.a, self.b, by_place)
        else:
            numbers = self.a.numbers(), self.b.numbers()
            self.laid = lay((self.a.blocks(), self.b.blocks()), numbers, by_place=by_place, advance=advance)
        for log, seen in ((self.a, self.laid.seen_a), (self.b, self.laid.seen_b)):
            log.records, log.bytes, log.end = seen.records, seen.bytes, seen.end
            log.gaps = seen.gaps + log.missing_files()


def _equal(laid: Laid, a: Slice[tuple[Block, int]], b: Slice[tuple[Block, int]]) -> tuple[Ints, Ints]:
    """Places in both parts of the records that are equal byte for byte."""
    _, at_a, at_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
    if a.of is None or b.of is None or not len(at_a):
        none = np.zeros(0, np.int64)
        return none, none
    block_a, block_b = a.of[0], b.of[0]
    rows_a, rows_b = a.rows(at_a), b.rows(at_b)
    same = _same_bytes(block_a, rows_a, block_b, rows_b)
    laid.equal += int(same.sum())
    laid.equal_bytes += int(block_a.total_size[rows_a][same].sum())
    return at_a[same], at_b[same]


def _keep(part: Slice[tuple[Block, int]], same: Ints, unmatched: Unmatched, files: dict[str, int]) -> None:
    """Keep the records of a part that are not among the equal ones."""
    if part.of is None or len(same) == len(part.keys):
        return
    block, first = part.of
    rest = np.ones(len(part.keys), bool)
    rest[same] = False
    rows = part.rows(np.flatnonzero(rest))
    unmatched.add(block, rows, rows + first, files[block.file])


def _same_bytes(a: Block, rows_a: Ints, b: Block, rows_b: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the paired records are equal, shape (n,)."""
    at_a, at_b, size = a.at[rows_a], b.at[rows_b], a.total_size[rows_a]
    same = size == b.total_size[rows_b]
    left, right = memoryview(a.data.data), memoryview(b.data.data)
    low_a, high_a, low_b = int(at_a[0]), int(at_a[-1] + size[-1]), int(at_b[0])
    is_one_run = bool((at_a - low_a == at_b - low_b).all())
    if same.all() and is_one_run and left[low_a:high_a] == right[low_b : low_b + high_a - low_a]:
        return same
    for i in np.flatnonzero(same).tolist():
        x, y, n = int(at_a[i]), int(at_b[i]), int(size[i])
        same[i] = left[x : x + n] == right[y : y + n]
    return same
