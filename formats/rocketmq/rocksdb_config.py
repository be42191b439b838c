"""Keys and values of configuration in RocksDB (spec 10.3, 10.4; RocksDBConfigManager, ConfigHelper).

Version 1 (5.1.4 and later) has a database for each table, whose keys are plain names and whose
values are the JSON that the table's file would hold. Version 2 (5.3.2 and later) has one database.
"""

from __future__ import annotations

from construct import Const, GreedyBytes, Int8sb, Int16sb, Int32sb, Int64sb, Prefixed, Struct

from formats.rocketmq.rocksdb import SEPARATOR, ConfigKeyPrefix
from formats.text import until

ConfigEntryV1 = Struct("json" / GreedyBytes * "the object that the JSON file has for the name which is the key")

DATA_VERSION_KEY = b"kvDataVersionKey"
"""The one key of version 1's column family ``kvDataVersion``; its value is the JSON of a dataVersion."""

VERSION_RECORD = 1
"""The record type of data versions in version 2; the literal ``data_version`` follows in the key."""
GROUP_DATA: bytes = ConfigKeyPrefix.build({"table_id": 4, "record_type": 2})
"""What the keys of subscription groups in version 2 begin with."""

_PREFIX = ConfigKeyPrefix.subcons

NamedKey = Struct(*_PREFIX, "name" / Prefixed(Int16sb, GreedyBytes) * "topic or subscription group")

NamedValue = Struct(
    "serialization" / Int8sb * "1: JSON",
    "json" / GreedyBytes * "the object that the JSON file has for the name",
)

ConsumerOffsetKey = Struct(
    *_PREFIX,
    "group" / Prefixed(Int16sb, GreedyBytes),
    "group_mark" / Const(SEPARATOR),
    "topic" / Prefixed(Int16sb, GreedyBytes),
    "topic_mark" / Const(SEPARATOR),
    "queue_id" / Int32sb,
)

DataVersionKey = Struct(*_PREFIX, "literal" / Const(b"data_version"))

OffsetsKeyV1 = Struct("topic" / until(b"@"), "group" / GreedyBytes)
NameKeyV1 = Struct("name" / GreedyBytes * "topic or subscription group")
VersionKeyV1 = Struct("literal" / Const(DATA_VERSION_KEY))

ConsumerOffsetValue = Struct("offset" / Int64sb * "queue offset that the group reads next")

DataVersionValue = Struct(
    "state_version" / Int64sb * "that of the broker's role",
    "timestamp" / Int64sb * "ms",
    "counter" / Int64sb * "rises with every change",
)
