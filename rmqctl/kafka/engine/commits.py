"""The record by which a group coordinator keeps a committed offset (``GroupCoordinatorRecordHelpers``, spec 10.2)."""

from __future__ import annotations

from formats.kafka.group_messages import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from formats.kafka.messages import encode
from rmqctl.kafka.log.reference import Record

KEY_VERSION, VALUE_VERSION = 1, 3
"""All releases from 2.1 on read them."""


def commit_record(group: str, topic: str, partition: int, offset: int, time: int) -> Record:
    """Return the record of a commit without metadata and leader epoch, as an administrator makes it; at offset 0.

    Args:
        time: of the commit, epoch ms: offsets of a group without members expire some days after it.
    """
    key = {"group": group, "topic": topic, "partition": partition}
    value = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": time}
    packed = (
        KEY_VERSION.to_bytes(2, "big") + encode(OFFSET_COMMIT_KEY, KEY_VERSION, key),
        VALUE_VERSION.to_bytes(2, "big") + encode(OFFSET_COMMIT_VALUE, VALUE_VERSION, value),
    )
    return Record(0, time, -1, *packed, ())
