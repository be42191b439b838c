"""Two commit logs side by side: which records are equal byte for byte at the same physical offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqctl.findings import Severity
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import TextIds
from rmqctl.rocketmq.commitlog import CommitLog, LogBlock
from rmqctl.rocketmq.diff.merge import Part, merge
from rmqctl.rocketmq.diff.unmatched import NO_COLUMNS, Columns, Unmatched
from rmqctl.rocketmq.store import StoreFile


@dataclass
class Log:
    """One of the two logs.

    Attributes:
        name: what to call it: its path as typed.
        files: ascending by offset.
        crashed: its store was not stopped cleanly.
        records, bytes: sound records seen, and their bytes.
        gaps: places that hold no record and should.
        begin, end: physical offsets of the first byte of the first file and behind the last record.
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
        """All of it.

        Raises:
            OSError: a file cannot be read.
        """
        return CommitLog(self.files, crashed=self.crashed).walk()

    def numbers(self) -> dict[str, int]:
        """The number of each file, by name."""
        return {file.name: number for number, file in enumerate(self.files)}


@dataclass
class Seen:
    """What was seen of a stretch of a log.

    Attributes:
        records, bytes, end: sound records, their bytes, and the physical offset behind the last.
        gaps: places that hold no record and should; nothing of them is compared.
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
            self.gaps += sum(f.kind.severity is Severity.ERROR for f in found.findings)
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

    Raises:
        OSError: a file cannot be read.
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
        """Read both logs once, here or by ``share``; the other arguments are those of :func:`lay`.

        Raises:
            OSError: a file cannot be read.
        """
        if share is not None:
            self.laid = share(self.a, self.b, by_place)
        else:
            numbers = self.a.numbers(), self.b.numbers()
            self.laid = lay((self.a.blocks(), self.b.blocks()), numbers, by_place=by_place, advance=advance)
        for log, seen in ((self.a, self.laid.seen_a), (self.b, self.laid.seen_b)):
            log.records, log.bytes, log.end, log.gaps = seen.records, seen.bytes, seen.end, seen.gaps


def _equal(laid: Laid, a: Part[tuple[Block, int]], b: Part[tuple[Block, int]]) -> tuple[Ints, Ints]:
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


def _keep(part: Part[tuple[Block, int]], same: Ints, unmatched: Unmatched, files: dict[str, int]) -> None:
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
