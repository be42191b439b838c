"""Rows of every RocksDB database taken apart, each with the field names of its schema (spec 10, A2 to A6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from construct import Construct, ConstructError

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq import rocksdb, rocksdb_config, rocksdb_messages
from formats.rocketmq.config_json import parse_config
from rmqctl.rocketmq.store import databases
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES

Decoded = dict[str, Any] | None
Decoder = Callable[[bytes, bytes], Decoded]
_UNIT = plan_of(rocksdb.QueueUnitValue).runs[0]
_TABLES = {1: "consumer_offset", 2: "pull_offset", 3: "topic_config", 4: "group_config"}


def decoder_of(path: str, family: str) -> Decoder:
    """Return what takes the rows of a column family apart; it knows none of families that brokers leave empty."""
    if path in (QUEUES, SEPARATE_QUEUES):
        return _DECODERS.get((QUEUES, family), _unknown)
    return _DECODERS.get((path, family), _unknown)


def fits(path: str, family: str, key: bytes, value: bytes) -> bool:
    """Whether a row has the format of its column family; of a family that no broker uses every row fits."""
    decode = decoder_of(path, family)
    if decode is _unknown:
        return True
    try:
        return decode(key, value) is not None
    except (ConstructError, DecodeError, UnicodeError):
        return False


def _unknown(_key: bytes, _value: bytes) -> Decoded:
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _whole(schema: Construct[Any, Any], data: bytes) -> Any:
    """Return the fields of a schema that takes all of the bytes.

    Raises:
        ConstructError: the bytes are not of the schema, or more follow.
    """
    found = schema.parse(data)
    if schema.build(found) != data:
        raise ConstructError("more bytes than the schema has")
    return found


# --- queues -----------------------------------------------------------------------------------------


def _unit(key: bytes, value: bytes) -> Decoded:
    parsed = rocksdb.parse_unit_key(key)
    if parsed is None or len(value) != _UNIT.packer.size:
        return None
    row = {"kind": "queue_unit", "topic": _text(parsed[0]), "queue_id": parsed[1], "queue_offset": parsed[2]}
    return row | dict(zip(_UNIT.names, _UNIT.packer.unpack(value), strict=True))


def _queue_end(key: bytes, value: bytes) -> Decoded:
    end = _whole(rocksdb.QueueEndKey, key)
    row = {"kind": "queue_end", "topic": _text(end.topic), "queue_id": end.queue_id, "end": _text(end.end)}
    if end.topic == rocksdb.CHECKPOINT_TOPIC and len(value) == rocksdb.DispatchedEnd.sizeof():
        return row | {"physical_offset": rocksdb.DispatchedEnd.parse(value).physical_offset, "queue_offset": None}
    found = _whole(rocksdb.QueueEnd, value)
    return row | {"physical_offset": found.physical_offset, "queue_offset": found.queue_offset}


# --- configuration ------------------------------------------------------------------------------------


def _object(value: bytes) -> dict[str, Any] | None:
    document = parse_config(value)
    return document if isinstance(document, dict) else None


def _named(kind: str, name: str) -> Decoder:
    def decode(key: bytes, value: bytes) -> Decoded:
        settings = _object(value)
        return None if settings is None else {"kind": kind, name: _text(key), "settings": settings}

    return decode


def _offsets(key: bytes, value: bytes) -> Decoded:
    parts, document = _text(key).split("@"), _object(value)
    offsets = document.get("offsetTable") if document is not None else None
    if len(parts) != 2 or not isinstance(offsets, dict):
        return None
    return {"kind": "consumer_offset", "topic": parts[0], "group": parts[1], "offsets": offsets}


def _version(table: str) -> Decoder:
    def decode(key: bytes, value: bytes) -> Decoded:
        document = _object(value)
        if key != rocksdb_config.DATA_VERSION_KEY or document is None:
            return None
        names = {"state_version": "stateVersion", "timestamp": "timestamp", "counter": "counter"}
        return {"kind": "data_version", "table": table} | {k: document.get(n) for k, n in names.items()}

    return decode


def _config_v2(key: bytes, value: bytes) -> Decoded:
    prefix = rocksdb.ConfigKeyPrefix.parse(key)
    table = _TABLES.get(prefix.table_id)
    if table is None:
        return None
    if prefix.record_type == rocksdb_config.VERSION_RECORD:
        version = _whole(rocksdb_config.DataVersionValue, value)
        return {"kind": "data_version", "table": table, **_fields(version)}
    if table in ("consumer_offset", "pull_offset"):
        place = _whole(rocksdb_config.ConsumerOffsetKey, key)
        offset = _whole(rocksdb_config.ConsumerOffsetValue, value).offset
        names = {"group": _text(place.group), "topic": _text(place.topic), "queue_id": place.queue_id}
        return {"kind": table, **names, "offset": offset}
    name = _text(_whole(rocksdb_config.NamedKey, key).name)
    stored = rocksdb_config.NamedValue.parse(value)
    settings = _object(stored.json)
    if settings is None:
        return None
    row = {"kind": table, "topic" if table == "topic_config" else "group": name}
    return row | {"serialization": stored.serialization, "settings": settings}


def _fields(found: Any) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not name.startswith("_")}


# --- messages -----------------------------------------------------------------------------------------

_MARKS = {
    rocksdb_messages.INDEX_MARK,
    rocksdb_messages.INDEX_TIME,
    rocksdb_messages.TIMER_SCANNED,
    rocksdb_messages.TIMER_DELIVERED,
}


def _mark(key: bytes, value: bytes) -> Decoded:
    if key not in _MARKS:
        return None
    return {"kind": "database_mark", "name": _text(key), "value": _whole(rocksdb_messages.Mark, value).value}


def _index(key: bytes, value: bytes) -> Decoded:
    if (mark := _mark(key, value)) is not None:
        return mark
    entry = rocksdb_messages.parse_message_index_key(key)
    if entry is None:
        return None
    return {
        "kind": "index_row",
        "hour": entry.hour,
        "topic": _text(entry.topic),
        "index_kind": _text(entry.kind),
        "text": _text(entry.text),
        "unique_key": _text(entry.unique_key),
        "physical_offset": entry.physical_offset,
        "store_timestamp": _whole(rocksdb_messages.MessageIndexValue, value).store_timestamp,
    }


def _timer(key: bytes, value: bytes) -> Decoded:
    if (mark := _mark(key, value)) is not None:
        return mark
    timer, place = rocksdb_messages.TimerKey.parse(key), _whole(rocksdb_messages.TimerValue, value)
    return {
        "kind": "timer_row",
        "delivery_timestamp": timer.delivery_time,
        "unique_key": _text(timer.unique_key),
        "physical_offset": place.physical_offset,
        "size": place.size,
    }


def _half(key: bytes, value: bytes) -> Decoded:
    if (mark := _mark(key, value)) is not None:
        return mark
    half, counts = rocksdb_messages.HalfMessageKey.parse(key), _whole(rocksdb_messages.HalfMessageValue, value)
    return {
        "kind": "half_row",
        "physical_offset": half.physical_offset,
        "topic": _text(half.topic),
        "transaction_id": _text(half.unique_key),
        "check_count": counts.check_count,
        "size": counts.size,
    }


def _pop(key: bytes, value: bytes) -> Decoded:
    place, record = _whole(rocksdb_messages.PopStateKey, key), _object(value)
    if record is None:
        return None
    return {
        "kind": "pop_row",
        "visibility_timestamp": place.visibility_timeout,
        "group": _text(place.group),
        "topic": _text(place.topic),
        "queue_id": place.queue_id,
        "queue_offset": place.queue_offset,
        "record": record,
    }


_TOPIC, _GROUP = _named("topic_config", "topic"), _named("group_config", "group")
_FORBIDDEN = _named("forbidden", "group")
_SEPARATE = {
    databases.TOPICS_V1: (_TOPIC, "topic_config"),
    databases.GROUPS_V1: (_GROUP, "group_config"),
    databases.OFFSETS_V1: (_offsets, "consumer_offset"),
}
_DECODERS: dict[tuple[str, str], Decoder] = {
    (QUEUES, rocksdb.UNIT_FAMILY): _unit,
    (QUEUES, rocksdb.OFFSET_FAMILY): _queue_end,
    (databases.METADATA, "topic"): _TOPIC,
    (databases.METADATA, "topicVersion"): _version("topic_config"),
    (databases.METADATA, "subscriptionGroup"): _GROUP,
    (databases.METADATA, "subscriptionGroupVersion"): _version("group_config"),
    (databases.METADATA, "forbidden"): _FORBIDDEN,
    (databases.METADATA, "consumerOffset"): _offsets,
    (databases.METADATA, "consumerOffsetVersion"): _version("consumer_offset"),
    **{(path, "default"): decode for path, (decode, _) in _SEPARATE.items()},
    **{(path, "kvDataVersion"): _version(table) for path, (_, table) in _SEPARATE.items()},
    (databases.GROUPS_V1, "forbidden"): _FORBIDDEN,
    (databases.CONFIG_V2, "default"): _config_v2,
    (databases.MESSAGES, "default"): _index,
    (databases.MESSAGES, rocksdb_messages.TIMER_FAMILY): _timer,
    (databases.MESSAGES, rocksdb_messages.HALF_FAMILY): _half,
    (databases.POP, rocksdb_messages.POP_FAMILY): _pop,
}
