"""The CRC over a whole record that 5.2.0 and later can append as its last property (spec 2.7)."""

from __future__ import annotations

import numpy as np

from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import rows_of
from rmqctl.rocketmq.crc import record_crcs

NAME = b"__CRC32#\x01"
SIZE, DIGITS = 20, 10
_NAME_WORD = np.frombuffer(NAME[:8], np.uint64)[0]


def property_crc_findings(block: Block) -> list[Finding]:
    """Records that end with the property and whose CRC does not match, or is zero and right."""
    rows = _carriers(block)
    if not len(rows):
        return []
    part = block.take(rows)
    computed = record_crcs(part, SIZE)
    digits = rows_of(part.data, part.at + part.total_size - SIZE + len(NAME), DIGITS).astype(np.int64) - ord("0")
    readable = ((digits >= 0) & (digits <= 9)).all(axis=1)
    stored = digits @ (10 ** np.arange(DIGITS, dtype=np.int64))
    bad = np.flatnonzero(~readable | (stored != computed))
    findings = [_finding(kinds.LOG_PROPERTY_CRC, part, int(i), int(stored[i]), int(computed[i])) for i in bad]
    zero = np.flatnonzero(readable & (stored == 0) & (computed == 0))
    return findings + [_finding(kinds.LOG_CRC_ZERO, part, int(i), 0, 0) for i in zero]


def _carriers(block: Block) -> Ints:
    """Rows whose properties end with the CRC property."""
    rows = np.flatnonzero(block.properties_size >= SIZE)
    if not len(rows):
        return rows
    names = rows_of(block.data, block.at[rows] + block.total_size[rows] - SIZE, 8)
    rows = rows[names.view(np.uint64)[:, 0] == _NAME_WORD]
    return rows[block.data[block.at[rows] + block.total_size[rows] - SIZE + 8] == NAME[8]]


def _finding(kind: FindingKind, block: Block, row: int, stored: int, computed: int) -> Finding:
    at = int(block.at[row] + block.total_size[row]) + block.start - SIZE
    return Finding(
        kind,
        block.file,
        at,
        SIZE,
        f"the record's own CRC is stored as {stored}, computed {computed}",
        physical_offset=int(block.physical[row]),
        topic=block.topic(row).decode("utf-8", "replace"),
    )
