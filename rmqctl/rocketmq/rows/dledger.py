"""DLedger files as rows: entries with the messages in them, and the entry index (spec 2.14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry, DLedgerIndexUnit
from rmqctl.files.source import ByteSource
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import rows_of
from rmqctl.rocketmq.rows.log import LogDump
from rmqctl.rocketmq.rows.units import Records, Row, chunks, unit_rows, used

_ENTRY = plan_of(DLedgerEntry).runs[0].dtype
_INDEX = plan_of(DLedgerIndexUnit).runs[0].dtype
_NAMES = {"position": "entry_position"}


@dataclass(slots=True)
class DLedgerDump(LogDump):
    """A pass over a DLedger log: in front of each message the header of its entry; entries without a message too."""

    _seen: str = ""
    _end: int = 0

    def between(self, block: Block) -> Iterator[tuple[int, Row]]:
        """What stands between the messages of a block, headers of entries included, with its position in the file."""
        yield from LogDump.between(self, block)
        if self.wanted.damaged or self.wanted.looks_at_content:
            return
        starts = block.position - ENTRY_SIZE
        yield from self._rows(block, starts, rows_of(block.data, block.at - ENTRY_SIZE, ENTRY_SIZE).view(_ENTRY)[:, 0])
        empty = np.array(self._empty_entries(block, starts), np.int64)
        if len(empty):
            yield from self._rows(block, empty, self._read(block.file, empty))

    def _rows(self, block: Block, positions: Ints, headers: Records) -> Iterator[tuple[int, Row]]:
        rows = unit_rows("dledger_entry", block.file, positions.tolist(), headers, names=_NAMES)
        for position, row in zip(positions.tolist(), rows, strict=True):
            if self.wanted.includes_offset(block.base + position):
                yield position, row

    def _empty_entries(self, block: Block, starts: Ints) -> list[int]:
        """Positions of entries without a message: where the chain, which passes them in silence, left no trace."""
        spans = [*zip(starts.tolist(), (block.position + block.total_size).tolist(), strict=True)]
        spans = sorted(spans + [(g.position, g.end) for g in block.gaps] + [(b.position, b.end) for b in block.blanks])
        if block.file != self._seen:
            self._seen = block.file
            self._end = 0 if self.wanted.from_offset is None else spans[0][0]
        found: list[int] = []
        for start, end in spans:
            found += range(self._end, start, ENTRY_SIZE)
            self._end = end
        return found

    def _read(self, file: str, positions: Ints) -> Records:
        source = next(f for f in self.log.files if f.name == file).open()
        try:
            raw = b"".join(source.read_at(at, ENTRY_SIZE).ljust(ENTRY_SIZE, b"\0") for at in positions.tolist())
        finally:
            source.close()
        return np.frombuffer(raw, _ENTRY)


def entry_index_rows(source: ByteSource, file: str) -> Iterator[Row]:
    """Units of one file of the entry index that are not all zeros.

    Raises:
        OSError: the file cannot be read.
    """
    for position, units in chunks(source, _INDEX, 0, source.size()):
        rows = np.flatnonzero(used(units))
        places = (position + rows * _INDEX.itemsize).tolist()
        yield from unit_rows("dledger_index_entry", file, places, units[rows], names=_NAMES)
