"""Files of a RocksDB database as RocksDB 8 writes them: tables, write-ahead log, manifest (little-endian).

A table (``*.sst``) is a row of blocks, each with a trailer; the footer at its end leads to the index block, whose
entries lead to the data blocks, and to the block that names all others. Entries of a block share beginnings of keys.
The write-ahead log (``*.log``) and the manifest are logs of one format: records cut into pieces by blocks of 32 KiB.
"""

from __future__ import annotations

from construct import (
    BytesInteger,
    Const,
    GreedyBytes,
    Int8ub,
    Int16ul,
    Int32ul,
    Int64ul,
    Struct,
    VarInt,
)

TABLE_MAGIC = 0x88E241B785F4CFF7
LOG_BLOCK = 32 << 10
"""Pieces of log records do not cross the boundaries of blocks of this size."""
CHECKSUM_DELTA = 0xA282EAD8
"""A stored CRC-32C is turned right by 15 bits, and this is added."""
CRC32C = 1
FAMILY_NAME, INDEX_DELTAS = b"rocksdb.column.family.name", b"rocksdb.index.value.is.delta.encoded"
PROPERTIES, RANGE_DELETIONS = b"rocksdb.properties", b"rocksdb.range_del"
"""Names in the block that names others."""

BlockHandle = Struct(
    "offset" / VarInt * "where the block begins in the file, bytes",
    "size" / VarInt * "bytes without the trailer",
)

BlockTrailer = Struct(
    "compression" / Int8ub * "0 none, 1 Snappy, 4 LZ4, 5 LZ4HC, 7 ZSTD",
    "checksum" / Int32ul * "of the block as stored and the compression byte",
)

TableFooter = Struct(
    "checksum_type" / Int8ub * "1: CRC-32C",
    "handles" / BytesInteger(40) * "handles of the block that names others and of the index block, then zeros",
    "format_version" / Int32ul,
    "magic" / Const(TABLE_MAGIC, Int64ul),
)

BlockEntry = Struct(
    "shared" / VarInt * "bytes that the key has in common with the one in front",
    "unshared" / VarInt * "further bytes of the key",
    "value_size" / VarInt * "bytes; not there in index blocks whose values are deltas",
)

InternalKeyEnd = Struct(
    "kind" / Int8ub * "0 deletion, 1 value, 7 single deletion, 15 deletion of a range",
    "sequence" / BytesInteger(7, swapped=True) * "rises with every write of the database",
)
"""What follows the user's key in a table."""

LogPiece = Struct(
    "checksum" / Int32ul * "of kind and content",
    "size" / Int16ul * "bytes of content",
    "kind" / Int8ub * "1 whole record, 2 first piece, 3 middle, 4 last; 5 to 8 the same in a log used again",
)

WriteBatchHeader = Struct(
    "sequence" / Int64ul * "of the first write",
    "count" / Int32ul * "writes in the record",
    "writes" / GreedyBytes * "a kind (1 byte), for families other than the default one its number, key, value",
)


class ManifestTag:
    """Kinds of fields in a record of the manifest; what they hold is in the order of the file."""

    COMPARATOR = 1
    LOG_NUMBER = 2
    NEXT_FILE, LAST_SEQUENCE, PREVIOUS_LOG = 3, 4, 9
    COMPACT_CURSOR, DELETED_FILE, LEAST_LOG = 5, 6, 10
    NEW_FILE = 103
    FAMILY, FAMILY_ADD, FAMILY_DROP, MOST_FAMILY = 200, 201, 202, 203
    ATOMIC_GROUP = 300
    SAFE_TO_SKIP = 1 << 13
