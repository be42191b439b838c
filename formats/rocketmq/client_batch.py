"""One message inside an inner batch, as the producer encoded it (spec 2.11; MessageDecoder.encodeMessage)."""

from __future__ import annotations

from construct import GreedyBytes, Int16sb, Int32sb, Prefixed, Struct

BatchItem = Struct(
    "total_size" / Int32sb * "this item, bytes",
    "magic" / Int32sb * "0",
    "body_crc" / Int32sb * "0",
    "flag" / Int32sb * "the producer's own",
    "body" / Prefixed(Int32sb, GreedyBytes),
    "properties" / Prefixed(Int16sb, GreedyBytes) * "name 0x01 value 0x02 ..., UTF-8",
)
