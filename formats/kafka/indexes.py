"""The three index files of a segment (spec 7.1, 8.1, 9.1): entries end to end, no header, no checksum.

Offsets in ``.index`` and ``.timeindex`` count from the segment's base offset. Both are zeros after
the last entry while the segment is active.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from construct import Int16sb, Int32sb, Int64sb, Struct

from formats.layout import plan_of

OffsetIndexEntry = Struct(
    "relative_offset" / Int32sb * "offset less the segment's base offset; since 2.0 the last one of the batch",
    "position" / Int32sb * "where the batch starts in the .log file, bytes; never 0",
)

TimeIndexEntry = Struct(
    "timestamp" / Int64sb * "largest timestamp up to here, ms",
    "relative_offset" / Int32sb * "of the batch that holds it, less the segment's base offset",
)

AbortedTransaction = Struct(
    "version" / Int16sb * "0",
    "producer_id" / Int64sb,
    "first_offset" / Int64sb * "base offset of the transaction's first batch, maybe in an earlier segment",
    "last_offset" / Int64sb * "offset of the ABORT marker",
    "last_stable_offset" / Int64sb * "first offset of the earliest transaction then open, else last_offset + 1",
)


@cache
def entry_dtype(schema: Any) -> np.dtype[np.void]:
    """Return an index entry as a record type, as stored."""
    return plan_of(schema).runs[0].dtype
