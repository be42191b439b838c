"""Segments as rows in order: batches, their records, and damage in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.columns import Row
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.columns import Shown, shown_text
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.filters import Wanted
from rmqctl.kafka.log.block import Block, Ints
from rmqctl.kafka.log.gaps import block_findings, unreadable
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.rows import batch_rows, record_rows

if TYPE_CHECKING:
    from rmqctl.kafka.state.partition_state import View

_CHUNK = 4096
_NO_END = 1 << 63
_PIECE, _PIECE_BYTES = 1 << 13, 1 << 20


@dataclass(slots=True)
class ShownBatches:
    """Batches of one window that are to be shown, what stands between them, and their records.

    Attributes:
        block: the chosen batches.
        findings: damage and notes, ascending by place; each stands before the first batch that begins after it.
        records: the chosen records of the batches, in order; None where only batches are shown.
        continued: the first batch was shown before, with as many of its records as are decoded at once.
    """

    partition: Partition | None
    block: Block
    findings: list[Finding]
    records: Records | None = None
    continued: bool = False


@dataclass
class SegmentDump:
    """One pass over the batches of segments and snapshots.

    Attributes:
        with_records: each batch is followed by its records.
        stopped: roots of the log directories whose broker was stopped in order.
        views: what a consumer of a partition sees who reads only what is committed; None: all is shown.
        hidden: errors and warnings that the filters left out.
        advance: is called with the bytes that have been passed.
    """

    wanted: Wanted
    with_records: bool = False
    show: Shown = shown_text
    stopped: frozenset[str] = frozenset()
    views: Callable[[Partition | None], View] | None = None
    hidden: int = 0
    advance: Callable[[int], object] = lambda _: None

    def rows(self, partition: Partition | None, file: LogFile) -> Iterator[Row]:
        """Yield the rows of one file."""
        for part in self.parts(partition, file):
            yield from self.rows_of(part)

    def rows_of(self, part: ShownBatches) -> Iterator[Row]:
        """Yield the rows of a part: findings, batches and records, by place."""
        records = _record_rows(part, self.show)
        batch_of, record = next(records, (-1, {}))
        findings = iter(part.findings)
        finding = next(findings, None)
        for row, batch in enumerate(batch_rows(part.block, part.partition)):
            while finding is not None and finding.offset < batch["position"]:
                yield finding.row()
                finding = next(findings, None)
            if row or not part.continued:
                yield batch
            while finding is not None and finding.offset < batch["position"] + batch["size"]:
                yield finding.row()
                finding = next(findings, None)
            while batch_of == row:
                yield record
                batch_of, record = next(records, (-1, {}))
        while finding is not None:
            yield finding.row()
            finding = next(findings, None)

    def parts(
        self, partition: Partition | None, file: LogFile, start: int = 0, stop: int | None = None
    ) -> Iterator[ShownBatches]:
        """Yield what is to be shown of one file, window by window.

        Args:
            start, stop: the batches and damage that begin among these bytes; ``stop`` None: to the end.
        """
        done, end = start, file.size if stop is None else stop
        source = file.open()
        try:
            for block in scan(source, replace(extent_of(file), start=start, stop=stop)):
                for piece in _pieces(block):
                    yield from self.parts_of(partition, piece)
                passed = min(block.start + len(block.data), end)
                self.advance(max(passed - done, 0))
                done = max(passed, done)
        finally:
            source.close()
        self.advance(max(end - done, 0))

    def parts_of(self, partition: Partition | None, block: Block) -> Iterator[ShownBatches]:
        """Yield the chosen batches and records of a block with its findings, as many records as are decoded at once."""
        findings = self._chosen([*block_findings(block, partition, is_clean=self._is_clean(partition))])
        keep = self.wanted.batches(block)
        view = self.views(partition) if self.views is not None else None
        if view is not None:
            keep &= view.wanted(block)
        if self.wanted.filters.damaged:
            keep &= ~block.crc_ok
        if not keep.all():
            block = block.take(keep)
        if self.with_records or self.wanted.looks_into_records:
            yield from self._with_records(partition, block, findings, view)
        else:
            yield ShownBatches(partition, block, findings)

    def _is_clean(self, partition: Partition | None) -> bool | None:
        """Whether the broker of a partition was stopped in order; None where that is not known."""
        if partition is None or not partition.logs:
            return None
        return partition.logs[-1].tree.root in self.stopped and not partition.is_metadata_log

    def _with_records(
        self, partition: Partition | None, block: Block, findings: list[Finding], view: View | None
    ) -> Iterator[ShownBatches]:
        shows_all, done = not self.wanted.is_selective and view is None, 0
        for records in records_of(block):
            failed = [unreadable(block, row, str(error), partition) for row, error in sorted(records.failures.items())]
            findings = sorted([*findings, *self._chosen(failed)], key=lambda f: f.offset)
            keep = self.wanted.records(records)
            if view is not None:
                keep &= records.offset < view.end
            found = records if keep.all() else records.take(keep)
            rows = np.unique(found.batch)
            if shows_all:
                end = max([done, *(row + 1 for row in [*rows[-1:].tolist(), *records.failures])])
                rows = np.arange(min([done, *rows[:1].tolist()]), end)
            if len(rows):
                last = int(rows[-1])
                limit = int(block.position[last + 1]) if last + 1 < len(block) else _NO_END
                before = [finding for finding in findings if finding.offset < limit]
                findings = findings[len(before) :]
                yield self._shown(partition, block, before, found, rows, done)
                done = last + 1
        rest = block.take(slice(done, None) if shows_all else slice(0, 0))
        if len(rest) or findings:
            yield ShownBatches(partition, rest, findings)

    def _shown(
        self, partition: Partition | None, block: Block, findings: list[Finding], found: Records, rows: Ints, done: int
    ) -> ShownBatches:
        """Return some batches with their records; batches before ``done`` were shown."""
        continued = bool(rows[0] < done)
        if not self.with_records:
            return ShownBatches(partition, block.take(rows[1:] if continued else rows), findings)
        if len(rows) < len(block):
            found.block, found.batch = block.take(rows), np.searchsorted(rows, found.batch)
        return ShownBatches(partition, found.block, findings, found, continued)

    def _chosen(self, findings: list[Finding]) -> list[Finding]:
        """Damage is shown unless records are chosen by what they say; then it is counted."""
        if not self.wanted.is_selective or self.wanted.filters.damaged:
            return findings
        self.hidden += sum(finding.level is not Severity.NOTE for finding in findings)
        return []


def _pieces(block: Block) -> Iterator[Block]:
    """Yield a block as smaller ones, so that what is made of them stays in the processor's cache; each with
    its gaps.
    """
    if len(block) <= _CHUNK:
        yield block
        return
    for start in range(0, len(block), _CHUNK):
        piece = block.take(slice(start, start + _CHUNK))
        low = int(block.position[start]) if start else -1
        high = int(block.position[start + _CHUNK]) if start + _CHUNK < len(block) else 1 << 63
        piece.gaps = [gap for gap in block.gaps if low <= gap.position < high]
        yield piece


def extent_of(file: LogFile) -> Extent:
    """How to scan a file: snapshots count offsets from 0, whatever their names say."""
    base = file.meaning.base if file.kind is FileKind.LOG else None
    return Extent(file.name, base, size=file.size if file.size >= 0 else None)


def pieces_of(records: Records) -> Iterator[Records]:
    """Yield records some at a time: so many, and so many bytes of keys and values, as stay in the processor's cache."""
    sizes = np.maximum(records.key_size, 0) + np.maximum(records.value_size, 0)
    number = np.cumsum(sizes) // _PIECE_BYTES + np.arange(len(records)) // _PIECE
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(records)]):
        yield records if stop - start == len(records) else records.take(np.arange(start, stop))


def _record_rows(part: ShownBatches, show: Shown) -> Iterator[tuple[int, Row]]:
    """Yield the rows of the records with the row of their batch."""
    for records in pieces_of(part.records) if part.records is not None else ():
        yield from zip(records.batch.tolist(), record_rows(records, part.partition, show), strict=True)
