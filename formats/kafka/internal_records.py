"""Records of internal topics: from a key and a value to the names and values of their tables.

Which tables a topic has is said here once. Nothing raises: what does not fit its table is kept with the reason.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from formats.errors import DecodeError
from formats.kafka.coordinator_messages import (
    REMOTE_LOG_RECORDS,
    SHARE_KEYS,
    SHARE_VALUES,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
)
from formats.kafka.group_messages import CONSUMER_ASSIGNMENT, CONSUMER_SUBSCRIPTION, KEYS, VALUES
from formats.kafka.messages import UNKNOWN_TAGS, Message, Values, decode, decode_at
from formats.kafka.metadata_messages import CONTROL_NAMES, CONTROL_RECORDS, METADATA_RECORDS, read_frame, record_type

CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
SHARE_GROUP_STATE, REMOTE_LOG_METADATA = "__share_group_state", "__remote_log_metadata"
CLUSTER_METADATA = "__cluster_metadata"

_KEYED: Mapping[str, tuple[Mapping[int, Message], Mapping[int, Message]]] = {
    CONSUMER_OFFSETS: (KEYS, VALUES),
    TRANSACTION_STATE: ({0: TRANSACTION_KEY}, {0: TRANSACTION_VALUE}),
    SHARE_GROUP_STATE: (SHARE_KEYS, SHARE_VALUES),
}
_FRAMED: Mapping[str, Mapping[int, Message]] = {
    CLUSTER_METADATA: METADATA_RECORDS,
    REMOTE_LOG_METADATA: REMOTE_LOG_RECORDS,
}
INTERNAL_TOPICS = (*_KEYED, *_FRAMED)


@dataclass(frozen=True, slots=True)
class InternalRecord:
    """A record of an internal topic, taken apart.

    Attributes:
        type: number at the start of the key; for framed records and control records their name in capitals.
        version: of the value; None when there is none.
        key: fields of the key, None when the topic has no keys, or the key does not fit.
        value: fields of the value, None for a tombstone and for one that does not fit.
        message: table of the value, or of the key where there is no value; None when the type is not known.
        error: why something could not be taken apart, "" when all was.
    """

    type: int | str | None
    version: int | None = None
    key: Values | None = None
    value: Values | None = None
    message: Message | None = None
    error: str = ""

    def row(self) -> dict[str, Any]:
        """Return the record as JSON values; bytes are base64 text, as the official decoders write them."""
        key, value = plain(self.key, tags=True), plain(self.value, tags=True)
        row = {"type": self.type, "version": self.version, "key": key, "value": value}
        return row | ({"error": self.error} if self.error else {})


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord | None:
    """Return a data record of an internal topic taken apart; None for a topic that is not internal."""
    if topic in _KEYED:
        keys, values = _KEYED[topic]
        return _decode_keyed(keys, values, key, value)
    if topic in _FRAMED:
        return _decode_framed(_FRAMED[topic], value)
    return None


def decode_control(kind: int, value: bytes | None) -> InternalRecord | None:
    """Return the value of a control record taken apart; None for a transaction marker and for unknown types."""
    message = CONTROL_RECORDS.get(kind)
    if message is None:
        return None
    name = CONTROL_NAMES[kind]
    version = int.from_bytes((value or b"")[:2], "big")
    try:  # the version stands in the value itself; a later one is read as the highest known
        return InternalRecord(
            name, version, None, decode(message, min(version, message.highest), value or b""), message
        )
    except DecodeError as error:
        return InternalRecord(name, None, None, None, message, str(error))


def plain(value: Any, *, tags: bool = False) -> Any:
    """Return decoded values as JSON values: bytes as base64 text.

    Args:
        tags: also the tagged fields that no table names, which the official decoders leave out.
    """
    if isinstance(value, dict):
        return {name: plain(inner, tags=tags) for name, inner in value.items() if tags or name != UNKNOWN_TAGS}
    if isinstance(value, list):
        return [plain(inner, tags=tags) for inner in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _decode_keyed(
    keys: Mapping[int, Message], values: Mapping[int, Message], key: bytes | None, value: bytes | None
) -> InternalRecord:
    if key is None or len(key) < 2:
        return InternalRecord(None, error="the key has no type" if key is not None else "there is no key")
    number = int.from_bytes(key[:2], "big", signed=True)
    if number not in keys:
        return InternalRecord(number, error=f"type {number} of a key is not known")
    try:
        fields = decode(keys[number], number, key[2:])
    except DecodeError as error:
        return InternalRecord(number, None, None, None, keys[number], f"key: {error}")
    if value is None:
        return InternalRecord(number, None, fields, None, keys[number])
    return _decode_value(number, fields, values[number], value)


def _decode_value(number: int, fields: Values, message: Message, value: bytes) -> InternalRecord:
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) > 1 else None
    if version is None:
        return InternalRecord(number, None, fields, None, message, "the value has no version")
    try:
        found = decode(message, version, value[2:])
    except DecodeError as error:
        return InternalRecord(number, version, fields, None, message, f"value: {error}")
    if found.get("protocolType") == "consumer":
        found["members"] = [_consumer_member(member) for member in found["members"] or ()]
    return InternalRecord(number, version, fields, found, message)


def _decode_framed(tables: Mapping[int, Message], value: bytes | None) -> InternalRecord:
    if value is None:
        return InternalRecord(None, error="there is no value")
    try:
        number, version, position = read_frame(value)
    except DecodeError as error:
        return InternalRecord(None, error=str(error))
    message = tables.get(number)
    if message is None:
        return InternalRecord(None, version, error=f"record {number} is not known")
    name = record_type(message)
    try:
        fields, end = decode_at(message, version, value, position)
    except DecodeError as error:
        return InternalRecord(name, version, None, None, message, str(error))
    rest = f"{len(value) - end} bytes after the last field" if end != len(value) else ""
    return InternalRecord(name, version, None, fields, message, rest)


def _consumer_member(member: Values) -> Values:
    """Return a member, its subscription and assignment taken apart where they fit, as the official decoder does."""
    member = dict(member)
    for name, message in (("subscription", CONSUMER_SUBSCRIPTION), ("assignment", CONSUMER_ASSIGNMENT)):
        data = member[name] or b""
        version = int.from_bytes(data[:2], "big", signed=True)
        try:
            member[name] = decode_at(message, version, data, 2)[0]
        except DecodeError:
            continue
    return member
