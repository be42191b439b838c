"""Every message table with the name to type: ``rmqctl formats offset-commit-value``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from formats.kafka.coordinator_messages import (
    REMOTE_LOG_RECORDS,
    SHARE_KEYS,
    SHARE_VALUES,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
)
from formats.kafka.group_messages import CONSUMER_ASSIGNMENT, CONSUMER_SUBSCRIPTION, KEYS, VALUES
from formats.kafka.messages import Message
from formats.kafka.metadata_messages import CONTROL_RECORDS, METADATA_RECORDS

_GROUPS = "__consumer_offsets"
_TOPICS: tuple[tuple[str, str, tuple[Message, ...]], ...] = (
    ("key", _GROUPS, tuple(KEYS[number] for number in sorted(KEYS) if number)),
    ("value", _GROUPS, tuple(VALUES[number] for number in sorted(VALUES) if number)),
    ("members", _GROUPS, (CONSUMER_SUBSCRIPTION, CONSUMER_ASSIGNMENT)),
    ("key", "__transaction_state", (TRANSACTION_KEY,)),
    ("value", "__transaction_state", (TRANSACTION_VALUE,)),
    ("key", "__share_group_state", tuple(SHARE_KEYS.values())),
    ("value", "__share_group_state", tuple(SHARE_VALUES.values())),
    ("record", "__remote_log_metadata", tuple(REMOTE_LOG_RECORDS.values())),
    ("record", "__cluster_metadata", tuple(METADATA_RECORDS.values())),
    ("control record", "__cluster_metadata, <offset>-<epoch>.checkpoint", tuple(CONTROL_RECORDS.values())),
)


def messages() -> Iterator[tuple[str, str, str, Message]]:
    """Name to type, title, where it lies, and table of every message."""
    for part, topic, tables in _TOPICS:
        for message in tables:
            number = "" if message.key is None else f" {message.key}"
            title = f"{part}{number}: {message.name}, versions {message.versions}"
            yield kebab(message.name), title, topic, message


def kebab(name: str) -> str:
    """Return ``OffsetCommitKey`` as ``offset-commit-key``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
