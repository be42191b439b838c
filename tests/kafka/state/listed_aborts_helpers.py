"""Partitions in which a transaction index lists what no marker in the log ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fixtures import golden
from formats.kafka.indexes import AbortedTransaction, entry_dtype
from rmqctl.kafka.repair.bridge import bridge

STORE, PARTITION = "4.3.1-clean", "txn-a-0"
CASES = {"a marker is gone": {30, 31, 32}, "an entry begins earlier": {7, 8, 9, 11, 12, 13}}
"""Offsets of the first segment that readers of committed records pass over for it, or would have anyway."""


def listed(case: str, room: Path) -> Path:
    """Return a directory whose first segment of :data:`PARTITION` has an entry that its log does not bear out.

    Its producer has no other batch in the segment before its next ABORT marker, or the end: readers would pass over
    those, too, as far as one answer of the broker goes.
    """
    root = golden.unpack(STORE, room)
    log = root / PARTITION / f"{0:020d}.log"
    if case == "a marker is gone":
        data, size = log.read_bytes(), 78
        at = len(data) - size
        epoch = int.from_bytes(data[at + 12 : at + 16], "big")
        made = bridge(33, 34, epoch, 0, size, None)
        assert made is not None
        log.write_bytes(data[:at] + made)
    else:
        index = log.with_suffix(".txnindex")
        rows = np.frombuffer(index.read_bytes(), entry_dtype(AbortedTransaction)).copy()
        rows["first_offset"][rows["last_offset"] == 16] = 7
        index.write_bytes(rows.tobytes())
    return root
