"""The checkpoint file: 4096 bytes, of which the first 24 to 48 are used (spec 5; StoreCheckpoint)."""

from __future__ import annotations

from construct import Int64sb, Struct

Checkpoint = Struct(
    "physic_msg_timestamp" / Int64sb * "store time of the last message known flushed, ms",
    "logics_msg_timestamp" / Int64sb * "store time of the last message with a queue unit, ms",
    "index_msg_timestamp" / Int64sb * "end time of the last full, flushed index file, ms",
    "master_flushed_offset" / Int64sb * "5.0.0 and later: flushed offset of the master, bytes",
    "confirm_phy_offset" / Int64sb * "5.1.1 and later: confirm offset, bytes",
    "logics_physical_offset" / Int64sb * "5.5.0 and later: last record dispatched at the last queue flush, bytes",
)

FILE_SIZE = 4096
