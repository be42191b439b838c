"""Producer snapshots ``<offset>.snapshot``: the state of all producers up to an offset (spec 9.2)."""

from __future__ import annotations

from functools import cache

import numpy as np
from construct import Int16sb, Int32sb, Int32ub, Int64sb, Struct

from formats.layout import plan_of

VERSION = 1

SnapshotHead = Struct(
    "version" / Int16sb * "1",
    "crc" / Int32ub * "CRC-32C of everything after this field",
    "count" / Int32sb * "entries",
)

ProducerEntry = Struct(
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "last_sequence" / Int32sb * "-1: no data in this epoch",
    "last_offset" / Int64sb * "of the last data record, -1 none",
    "offset_delta" / Int32sb * "last_offset less the base offset of that batch",
    "last_timestamp" / Int64sb * "ms; largest of the last batch, or the marker's",
    "coordinator_epoch" / Int32sb * "of the last marker, -1 none",
    "current_txn_first_offset" / Int64sb * "-1: no open transaction",
)

CRC_FROM = 6
"""Where the bytes under the CRC-32C begin."""


@cache
def producer_dtype() -> np.dtype[np.void]:
    """Return an entry as a record type, as stored."""
    return plan_of(ProducerEntry).runs[0].dtype
