"""Files of a RocksDB database as RocksDB 8 writes them: tables, write-ahead log, manifest (little-endian).

A table (``*.sst``) is a row of blocks, each with a trailer; the footer at its end leads to the index block, whose
entries lead to the data blocks, and to the block that names all others. Entries of a block share beginnings of keys.
The write-ahead log (``*.log``) and the manifest are logs of one format: records cut into pieces by blocks of 32 KiB.
"""

from __future__ import annotations

from construct import (
    BytesInteger,
    Const,
    Error,
    GreedyBytes,
    If,
    IfThenElse,
    Int8ub,
    Int16ul,
    Int32ul,
    Int64ul,
    Prefixed,
    RepeatUntil,
    Struct,
    Switch,
    VarInt,
    this,
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
    "sequence" / BytesInteger(7, swapped=True) * "little-endian; rises with every write of the database",
)
"""What follows the user's key in a table."""

LogPiece = Struct(
    "checksum" / Int32ul * "of kind and content",
    "size" / Int16ul * "bytes of content",
    "kind" / Int8ub * "1 whole record, 2 first piece, 3 middle, 4 last; 5 to 8 the same in a log used again",
)

_TEXT = Prefixed(VarInt, GreedyBytes)


class WriteKind:
    """Kinds of writes, in tables and in write batches; in a batch those into a family but the default have others."""

    DELETION, VALUE, SINGLE_DELETION, RANGE_DELETION = 0, 1, 7, 15
    LOG_DATA, NOOP = 3, 13
    IN_FAMILY = {4: DELETION, 5: VALUE, 8: SINGLE_DELETION, 14: RANGE_DELETION}  # noqa: RUF012 -- read only


WriteBatchHeader = Struct(
    "sequence" / Int64ul * "of the first write; each further one but log data counts one more",
    "count" / Int32ul * "writes in the record",
    "writes" / GreedyBytes * "one after the other, each a rocksdb-write",
)

Write = Struct(
    "kind"
    / Int8ub
    * "0 deletion, 1 value, 7 single deletion, 15 deletion of a range; 4, 5, 8, 14: the same in a family",
    "family" / If((this.kind == 4) | (this.kind == 5) | (this.kind == 8) | (this.kind == 14), VarInt),
    "key" / _TEXT * "of a range the first one",
    "value"
    / If((this.kind == 1) | (this.kind == 5) | (this.kind == 14) | (this.kind == 15), _TEXT)
    * "of a range the key after its last",
)
"""One write of a batch; kind 3 has a text for the log alone, kind 13 nothing."""


class ManifestTag:
    """Kinds of fields in a record of the manifest."""

    COMPARATOR = 1
    LOG_NUMBER = 2
    NEXT_FILE, LAST_SEQUENCE, PREVIOUS_LOG = 3, 4, 9
    COMPACT_CURSOR, DELETED_FILE, LEAST_LOG = 5, 6, 10
    NEW_FILE = 103
    FAMILY, FAMILY_ADD, FAMILY_DROP, MOST_FAMILY = 200, 201, 202, 203
    ATOMIC_GROUP = 300
    SAFE_TO_SKIP = 1 << 13
    """Set in kinds that may be passed over by a reader that does not know them; a text follows."""


_LAST_DETAIL = 1

TableDetail = Struct("kind" / VarInt * "1: the last, without a value", "value" / If(this.kind != _LAST_DETAIL, _TEXT))

ManifestTable = Struct(
    "level" / VarInt,
    "number" / VarInt * "of the file, which is its name",
    "size" / VarInt * "of the file, bytes",
    "first_key" / _TEXT * "with the kind and the sequence number of its write",
    "last_key" / _TEXT * "with the kind and the sequence number of its write",
    "first_sequence" / VarInt,
    "last_sequence" / VarInt,
    "details"
    / RepeatUntil(lambda found, _all, _context: found["kind"] == _LAST_DETAIL, TableDetail)
    * "rocksdb-manifest-table-detail each, up to kind 1",
)
"""A table that an edit adds."""

ManifestTableGone = Struct("level" / VarInt, "number" / VarInt * "of the file")
"""A table that an edit takes away."""

_NUMBERS = (
    ManifestTag.LOG_NUMBER,
    ManifestTag.NEXT_FILE,
    ManifestTag.LAST_SEQUENCE,
    ManifestTag.PREVIOUS_LOG,
    ManifestTag.LEAST_LOG,
    ManifestTag.MOST_FAMILY,
    ManifestTag.ATOMIC_GROUP,
    ManifestTag.FAMILY,
)

ManifestField = Struct(
    "tag"
    / VarInt
    * (
        "1 comparator, 2 log, 3 next file, 4 last sequence, 5 compaction, 6 rocksdb-manifest-table-gone, "
        "9 log before, 10 oldest log, 103 rocksdb-manifest-table, 200 family, 201 family added, 202 dropped, "
        "203 largest family, 300 group"
    ),
    "value"
    / Switch(
        this.tag,
        {
            ManifestTag.COMPARATOR: _TEXT,
            ManifestTag.FAMILY_ADD: _TEXT,
            ManifestTag.FAMILY_DROP: Struct(),
            ManifestTag.COMPACT_CURSOR: Struct("level" / VarInt, "key" / _TEXT),
            ManifestTag.DELETED_FILE: ManifestTableGone,
            ManifestTag.NEW_FILE: ManifestTable,
            **dict.fromkeys(_NUMBERS, VarInt),
        },
        IfThenElse(lambda found: bool(found.tag & ManifestTag.SAFE_TO_SKIP), _TEXT, Error),
    ),
)
"""A field of a record; a record is an edit, field after field."""
