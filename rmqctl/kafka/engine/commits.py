"""The records by which coordinators keep where a group is: a committed offset (``GroupCoordinatorRecordHelpers``, spec
10.2), and the start of a share group in a partition (``ShareCoordinatorRecordHelpers``, spec 10.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.kafka.coordinator_messages import SHARE_KEYS, SHARE_VALUES
from formats.kafka.group_messages import OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE
from formats.kafka.messages import encode
from rmqctl.kafka.log.reference import Record

if TYPE_CHECKING:
    from rmqctl.kafka.state.internal_topics import SharePartition, ShareState

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


_SNAPSHOT = 0


def share_record(partition: SharePartition, known: ShareState, start: int, time: int) -> Record:
    """Return the snapshot by which a share group begins at an offset, with nothing acquired or done after it.

    It is what an administrator's reset has the coordinator write (``ShareCoordinatorShard.initializeState``), under the
    epochs that the state has: a replay takes a snapshot for the whole state, and keeps the highest epochs. The record
    is at offset 0.

    Args:
        known: the state before it.
        time: epoch ms.
    """
    key = {"groupId": partition.group, "topicId": partition.topic_id, "partition": partition.partition}
    value = {
        "snapshotEpoch": known.snapshot_epoch + 1, "stateEpoch": known.state_epoch,
        "leaderEpoch": max(known.leader_epoch, 0), "startOffset": start, "deliveryCompleteCount": 0,
        "createTimestamp": time, "writeTimestamp": time, "stateBatches": [],
    }  # fmt: skip
    packed = (
        _SNAPSHOT.to_bytes(2, "big") + encode(SHARE_KEYS[_SNAPSHOT], 0, key),
        _SNAPSHOT.to_bytes(2, "big") + encode(SHARE_VALUES[_SNAPSHOT], 0, value),
    )
    return Record(0, time, -1, *packed, ())
