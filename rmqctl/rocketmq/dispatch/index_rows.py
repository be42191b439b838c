"""Rows that dispatch puts into the index in RocksDB for a record (spec A5.1; IndexRocksDBStore.buildIndex)."""

from __future__ import annotations

from collections.abc import Mapping

from formats.rocketmq.rocksdb_messages import HOUR_MS, MARK, message_index_prefix
from rmqctl.rocketmq.dispatch.request import TRANSACTION

_KEYS, _TAGS, _UNIQUE_KEY = b"KEYS", b"TAGS", b"UNIQ_KEY"
_ROLLBACK = 0xC


def index_row_keys(
    topic: bytes, properties: Mapping[bytes, bytes], sys_flag: int, store_timestamp: int, physical: int
) -> list[bytes]:
    """Keys of the rows, each once: of KEYS, TAGS and UNIQ_KEY; none for records without a unique key."""
    unique = properties.get(_UNIQUE_KEY, b"")
    if not unique or sys_flag & TRANSACTION == _ROLLBACK or store_timestamp <= 0:
        return []
    hour = store_timestamp // HOUR_MS * HOUR_MS
    end = unique + MARK + physical.to_bytes(8, "big")
    texts = [(b"K", part) for part in dict.fromkeys(properties.get(_KEYS, b"").split(b" ")) if part]
    texts += [(b"T", properties[_TAGS])] if properties.get(_TAGS) else []
    rows = [message_index_prefix(hour, topic, kind, text) + end for kind, text in texts]
    return [*rows, message_index_prefix(hour, topic, b"U", unique) + physical.to_bytes(8, "big")]
