"""Tables of ``__transaction_state``, ``__share_group_state`` and ``__remote_log_metadata`` (spec 10.3).

Keys and values of the first two begin as those of ``__consumer_offsets`` do. ``__remote_log_metadata`` has no keys;
its values begin with a frame (``metadata_messages.read_frame``). Source: the message schemas of Apache Kafka.
"""

from __future__ import annotations

from enum import IntEnum

from formats.kafka.messages import Field, Message


class TransactionStatus(IntEnum):
    """What a coordinator notes about a transactional id; names as the broker's."""

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6
    PrepareEpochFence = 7


TRANSACTION_KEY = Message("TransactionLogKey", "0+", "", (Field("transactionalId", "string"),), 0, "0.11")
TRANSACTION_VALUE = Message(
    "TransactionLogValue",
    "0-1",
    "1+",
    (
        Field("producerId", "int64"),
        Field("previousProducerId", "int64", "1+", tag=0, default=-1),
        Field("nextProducerId", "int64", "1+", tag=1, default=-1),
        Field("producerEpoch", "int16"),
        Field("transactionTimeoutMs", "int32"),
        Field("transactionStatus", "int8"),
        Field(
            "transactionPartitions",
            "[]struct",
            nullable="0+",
            fields=(Field("topic", "string"), Field("partitionIds", "[]int32")),
        ),
        Field("transactionLastUpdateTimestampMs", "int64"),
        Field("transactionStartTimestampMs", "int64"),
        Field("clientTransactionVersion", "int16", "1+", tag=2, default=0),
    ),
    0,
    "0.11",
)

_SHARE_KEY = (Field("groupId", "string"), Field("topicId", "uuid"), Field("partition", "int32"))
_STATE_BATCHES = Field(
    "stateBatches",
    "[]struct",
    fields=(
        Field("firstOffset", "int64"),
        Field("lastOffset", "int64"),
        Field("deliveryState", "int8"),
        Field("deliveryCount", "int16"),
    ),
)
_DELIVERY_COMPLETE = Field("deliveryCompleteCount", "int32", tag=0, default=-1)
_EPOCH, _DEVELOPMENT_EPOCH = Field("snapshotEpoch", "int32"), Field("snapshotEpoch", "uint16")
_STATE_EPOCH, _LEADER_EPOCH = Field("stateEpoch", "int32"), Field("leaderEpoch", "int32")
_START = Field("startOffset", "int64")
_SNAPSHOT_TIMES = (Field("createTimestamp", "int64"), Field("writeTimestamp", "int64"))

SHARE_KEYS: dict[int, Message] = {
    0: Message("ShareSnapshotKey", "0+", "", _SHARE_KEY, 0, "4.0"),
    1: Message("ShareUpdateKey", "0+", "", _SHARE_KEY, 1, "4.0"),
}
SHARE_VALUES: dict[int, Message] = {
    0: Message(
        "ShareSnapshotValue",
        "0",
        "0",
        (_EPOCH, _STATE_EPOCH, _LEADER_EPOCH, _START, _DELIVERY_COMPLETE, *_SNAPSHOT_TIMES, _STATE_BATCHES),
        0,
        "4.0",
        (
            Message(
                "ShareSnapshotValue", "0", "0", (_EPOCH, _STATE_EPOCH, _LEADER_EPOCH, _START, _STATE_BATCHES), 0, "4.0"
            ),
            Message(
                "ShareSnapshotValue",
                "0",
                "0",
                (_DEVELOPMENT_EPOCH, _STATE_EPOCH, _LEADER_EPOCH, _START, _STATE_BATCHES),
                0,
            ),
        ),
    ),
    1: Message(
        "ShareUpdateValue",
        "0",
        "0",
        (_EPOCH, _LEADER_EPOCH, _START, _DELIVERY_COMPLETE, _STATE_BATCHES),
        1,
        "4.0",
        (Message("ShareUpdateValue", "0", "0", (_DEVELOPMENT_EPOCH, _LEADER_EPOCH, _START, _STATE_BATCHES), 1),),
    ),
}
"""First number of a key -> table, for keys and for values."""

_TOPIC_ID_PARTITION = Field(
    "topicIdPartition", "struct", fields=(Field("name", "string"), Field("id", "uuid"), Field("partition", "int32"))
)
_SEGMENT_ID = Field("remoteLogSegmentId", "struct", fields=(_TOPIC_ID_PARTITION, Field("id", "uuid")))
_SEGMENT = (
    Field("startOffset", "int64"),
    Field("endOffset", "int64"),
    Field("brokerId", "int32"),
    Field("maxTimestampMs", "int64"),
    Field("eventTimestampMs", "int64"),
    Field("segmentLeaderEpochs", "[]struct", fields=(Field("leaderEpoch", "int32"), Field("offset", "int64"))),
    Field("segmentSizeInBytes", "int32"),
    Field("customMetadata", "bytes", nullable="0+"),
    Field("remoteLogSegmentState", "int8"),
    Field("txnIndexEmpty", "bool", tag=0, default=False),
)

REMOTE_LOG_RECORDS: dict[int, Message] = {
    0: Message("RemoteLogSegmentMetadataRecord", "0", "0", (_SEGMENT_ID, *_SEGMENT), 0, "3.0"),
    1: Message(
        "RemoteLogSegmentMetadataUpdateRecord",
        "0",
        "0",
        (
            _SEGMENT_ID,
            Field("brokerId", "int32"),
            Field("eventTimestampMs", "int64"),
            Field("customMetadata", "bytes", nullable="0+"),
            Field("remoteLogSegmentState", "int8"),
        ),
        1,
        "3.0",
    ),
    2: Message(
        "RemotePartitionDeleteMetadataRecord",
        "0",
        "0",
        (
            _TOPIC_ID_PARTITION,
            Field("brokerId", "int32"),
            Field("eventTimestampMs", "int64"),
            Field("remotePartitionDeleteState", "int8"),
        ),
        2,
        "3.0",
    ),
    3: Message("RemoteLogSegmentMetadataSnapshotRecord", "0", "0", (Field("segmentId", "uuid"), *_SEGMENT), 3, "3.0"),
}
"""Number in the frame -> table."""
