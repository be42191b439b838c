"""The 20-byte unit of a consume queue, and the filler in front of the first real one.

Sources: spec 3.1 to 3.4; ConsumeQueue (CQ_STORE_UNIT_SIZE, fillPreBlank). Unit k of a queue lies at
byte ``20 * k`` of its file sequence; the queue offset is that position and is not stored.
"""

from __future__ import annotations

from construct import Const, Int32sb, Int64sb, Struct

ConsumeQueueUnit = Struct(
    "physical_offset" / Int64sb * "where the record lies in the log, bytes",
    "size" / Int32sb * "TOTALSIZE of the record, bytes; 0 in a unit never written",
    "tags_code" / Int64sb * "Java hash of TAGS; a delivery time for delayed messages; an address of consumequeue_ext",
)

PRE_BLANK_SIZE = 0x7FFFFFFF
"""``size`` of a filler unit, whose other fields are zero (spec 3.4)."""

PreBlankUnit = Struct(
    "physical_offset" / Const(0, Int64sb),
    "size" / Const(PRE_BLANK_SIZE, Int32sb) * "which no record has",
    "tags_code" / Const(0, Int64sb),
)
PRE_BLANK: bytes = PreBlankUnit.build({})

MAX_EXT_ADDRESS = -(1 << 31) - 1
"""Largest tags code that is an address of an extension unit (spec 3.5)."""
EXT_ADDRESS_BASE = -(1 << 63)
"""Added to an offset in consumequeue_ext to make its address."""
