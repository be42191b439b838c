"""Entry headers of a DLedger log against the records behind them (spec 2.14)."""

from __future__ import annotations

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block, gather

_RUN = plan_of(DLedgerEntry).runs[0]
_OFFSETS = {field.name: field.offset for field in _RUN.fields}


def entry_findings(block: Block) -> list[Finding]:
    """Entries whose size or position does not fit the record they hold."""
    start = block.at - ENTRY_SIZE
    size = gather(block.data, start + _OFFSETS["size"], _RUN.dtype["size"])
    position = gather(block.data, start + _OFFSETS["position"], _RUN.dtype["position"])
    held = block.total_size + ENTRY_SIZE
    real = block.physical - ENTRY_SIZE
    return [
        _finding(block, int(i), int(size[i]), int(position[i]))
        for i in np.flatnonzero((size != held) | (position != real))
    ]


def _finding(block: Block, row: int, size: int, position: int) -> Finding:
    at, real = int(block.position[row]) - ENTRY_SIZE, int(block.physical[row])
    message = (
        f"the entry says size {size} and position {position}, but it lies at {real - ENTRY_SIZE} "
        f"and its record needs {int(block.total_size[row]) + ENTRY_SIZE} bytes"
    )
    return Finding(kinds.LOG_DLEDGER_ENTRY, block.file, at, ENTRY_SIZE, message, physical_offset=real)
