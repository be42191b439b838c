"""Tables of ``__consumer_offsets``: offsets and members of consumer, share and streams groups (spec 10.2).

A key is a number (int16) and fields, a value a version (int16) and fields. The number names the pair of tables.
Source: the message schemas of Apache Kafka's group coordinator and of the consumer protocol.
"""

from __future__ import annotations

from formats.kafka.messages import Field, Message

_GROUP = (Field("groupId", "string"),)
_GROUP_MEMBER = (Field("groupId", "string"), Field("memberId", "string"))
_PARTITIONS = Field("partitions", "[]int32")
_TOPIC_ID = Field("topicId", "uuid")
_TOPIC_PARTITIONS = (_TOPIC_ID, _PARTITIONS)
_EPOCH_PARTITIONS = (*_TOPIC_PARTITIONS, Field("assignmentEpochs", "[]int32", nullable="0+", tag=0))
_NAMED_TOPIC = (_TOPIC_ID, Field("topicName", "string"))
_NAMED_PARTITIONS = (*_NAMED_TOPIC, _PARTITIONS)
_TOPIC_METADATA = (
    Field(
        "topics",
        "[]struct",
        fields=(
            *_NAMED_TOPIC,
            Field("numPartitions", "int32"),
            Field("partitionMetadata", "[]struct", fields=(Field("partition", "int32"), Field("racks", "[]string"))),
        ),
    ),
)
_ASSIGNMENT_EPOCH = (Field("assignmentEpoch", "int32"), Field("assignmentTimestamp", "int64", tag=0, default=0))
_TARGET = (Field("topicPartitions", "[]struct", fields=_TOPIC_PARTITIONS),)
_KEY_VALUE = (Field("key", "string"), Field("value", "string"))
_TASKS = (Field("subtopologyId", "string"), _PARTITIONS, Field("assignmentEpochs", "[]int32", nullable="0+", tag=0))
_TOPIC_INFO = (
    Field("name", "string"),
    Field("partitions", "int32"),
    Field("replicationFactor", "int16"),
    Field("topicConfigs", "[]struct", fields=_KEY_VALUE),
)


def _key(number: int, name: str, fields: tuple[Field, ...], since: str) -> Message:
    return Message(name, "0+", "", fields, number, since)


def _value(number: int, name: str, fields: tuple[Field, ...], since: str, older: tuple[Message, ...] = ()) -> Message:
    return Message(name, "0", "0", fields, number, since, older)


OFFSET_COMMIT_KEY = Message(
    "OffsetCommitKey", "0+", "", (Field("group", "string"), Field("topic", "string"), Field("partition", "int32")), 1
)
OFFSET_COMMIT_VALUE = Message(
    "OffsetCommitValue",
    "0-4",
    "4+",
    (
        Field("offset", "int64"),
        Field("leaderEpoch", "int32", "3+"),
        Field("metadata", "string"),
        Field("commitTimestamp", "int64"),
        Field("expireTimestamp", "int64", "1"),
        Field("topicId", "uuid", "4+", tag=0, default="A" * 22),
    ),
    1,
)
GROUP_METADATA_KEY = Message("GroupMetadataKey", "0+", "", (Field("group", "string"),), 2)
GROUP_METADATA_VALUE = Message(
    "GroupMetadataValue",
    "0-4",
    "4+",
    (
        Field("protocolType", "string"),
        Field("generation", "int32"),
        Field("protocol", "string", nullable="0+"),
        Field("leader", "string", nullable="0+"),
        Field("currentStateTimestamp", "int64", "2+"),
        Field(
            "members",
            "[]struct",
            fields=(
                Field("memberId", "string"),
                Field("groupInstanceId", "string", "3+", nullable="3+"),
                Field("clientId", "string"),
                Field("clientHost", "string"),
                Field("rebalanceTimeout", "int32", "1+"),
                Field("sessionTimeout", "int32"),
                Field("subscription", "bytes"),
                Field("assignment", "bytes"),
            ),
        ),
    ),
    2,
)

_CONSUMER_MEMBER = (
    Field("instanceId", "string", nullable="0+"),
    Field("rackId", "string", nullable="0+"),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("subscribedTopicNames", "[]string"),
    Field("subscribedTopicRegex", "string", nullable="0+"),
    Field("rebalanceTimeoutMs", "int32"),
    Field("serverAssignor", "string", nullable="0+"),
    Field(
        "classicMemberMetadata",
        "struct",
        nullable="0+",
        tag=0,
        fields=(
            Field("sessionTimeoutMs", "int32"),
            Field("supportedProtocols", "[]struct", fields=(Field("name", "string"), Field("metadata", "bytes"))),
        ),
    ),
)
_STREAMS_MEMBER = (
    Field("instanceId", "string", nullable="0+"),
    Field("rackId", "string", nullable="0+"),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeoutMs", "int32"),
    Field("topologyEpoch", "int32"),
    Field("processId", "string"),
    Field("userEndpoint", "struct", nullable="0+", fields=(Field("host", "string"), Field("port", "uint16"))),
    Field("clientTags", "[]struct", fields=_KEY_VALUE),
)
_SUBTOPOLOGY = (
    Field("subtopologyId", "string"),
    Field("sourceTopics", "[]string"),
    Field("sourceTopicRegex", "[]string"),
    Field("stateChangelogTopics", "[]struct", fields=_TOPIC_INFO),
    Field("repartitionSinkTopics", "[]string"),
    Field("repartitionSourceTopics", "[]struct", fields=_TOPIC_INFO),
    Field(
        "copartitionGroups",
        "[]struct",
        fields=(
            Field("sourceTopics", "[]int16"),
            Field("sourceTopicRegex", "[]int16"),
            Field("repartitionSourceTopics", "[]int16"),
        ),
    ),
)
_MEMBER_STATE = (Field("memberEpoch", "int32"), Field("previousMemberEpoch", "int32"), Field("state", "int8"))
_STREAMS_TASKS = tuple(
    Field(name, "[]struct", fields=_TASKS) for name in ("activeTasks", "standbyTasks", "warmupTasks")
)
_STREAMS_PENDING = tuple(Field(f"{field.name}PendingRevocation", "[]struct", fields=_TASKS) for field in _STREAMS_TASKS)
_SHARE_TOPICS = (
    Field("initializingTopics", "[]struct", fields=_NAMED_PARTITIONS),
    Field("initializedTopics", "[]struct", fields=_NAMED_PARTITIONS),
    Field("deletingTopics", "[]struct", fields=_NAMED_TOPIC),
)
_DATED_PARTITIONS = (*_NAMED_PARTITIONS, Field("createTimestamp", "int64"))
_DATED_TOPICS = (
    Field("initializingTopics", "[]struct", fields=_DATED_PARTITIONS),
    Field("initializedTopics", "[]struct", fields=_DATED_PARTITIONS),
    Field("deletingTopics", "[]struct", fields=_NAMED_TOPIC),
)
_VALIDATED = Field("validatedTopologyEpoch", "int32", tag=0, default=-1)
_ASSIGNMENT_CONFIGS = Field("assignmentConfigs", "[]struct", fields=_KEY_VALUE)

KEYS: dict[int, Message] = {
    0: OFFSET_COMMIT_KEY,
    1: OFFSET_COMMIT_KEY,
    2: GROUP_METADATA_KEY,
    3: _key(3, "ConsumerGroupMetadataKey", _GROUP, "3.6"),
    4: _key(4, "ConsumerGroupPartitionMetadataKey", _GROUP, "3.6"),
    5: _key(5, "ConsumerGroupMemberMetadataKey", _GROUP_MEMBER, "3.6"),
    6: _key(6, "ConsumerGroupTargetAssignmentMetadataKey", _GROUP, "3.6"),
    7: _key(7, "ConsumerGroupTargetAssignmentMemberKey", _GROUP_MEMBER, "3.6"),
    8: _key(8, "ConsumerGroupCurrentMemberAssignmentKey", _GROUP_MEMBER, "3.6"),
    9: _key(9, "ShareGroupPartitionMetadataKey", _GROUP, "4.0"),
    10: _key(10, "ShareGroupMemberMetadataKey", _GROUP_MEMBER, "4.0"),
    11: _key(11, "ShareGroupMetadataKey", _GROUP, "4.0"),
    12: _key(12, "ShareGroupTargetAssignmentMetadataKey", _GROUP, "4.0"),
    13: _key(13, "ShareGroupTargetAssignmentMemberKey", _GROUP_MEMBER, "4.0"),
    14: _key(14, "ShareGroupCurrentMemberAssignmentKey", _GROUP_MEMBER, "4.0"),
    15: _key(15, "ShareGroupStatePartitionMetadataKey", _GROUP, "4.0"),
    16: _key(16, "ConsumerGroupRegularExpressionKey", (*_GROUP, Field("regularExpression", "string")), "4.0"),
    17: _key(17, "StreamsGroupMetadataKey", _GROUP, "4.1"),
    18: _key(18, "StreamsGroupPartitionMetadataKey", _GROUP, "4.1"),
    19: _key(19, "StreamsGroupMemberMetadataKey", _GROUP_MEMBER, "4.1"),
    20: _key(20, "StreamsGroupTargetAssignmentMetadataKey", _GROUP, "4.1"),
    21: _key(21, "StreamsGroupTargetAssignmentMemberKey", _GROUP_MEMBER, "4.1"),
    22: _key(22, "StreamsGroupCurrentMemberAssignmentKey", _GROUP_MEMBER, "4.1"),
    23: _key(23, "StreamsGroupTopologyKey", _GROUP, "4.1"),
    24: _key(24, "StreamsGroupTargetAssignmentResolvedTopicIdsKey", _GROUP, "4.3"),
}
"""First number of a key -> what follows it."""

VALUES: dict[int, Message] = {
    0: OFFSET_COMMIT_VALUE,
    1: OFFSET_COMMIT_VALUE,
    2: GROUP_METADATA_VALUE,
    3: _value(
        3,
        "ConsumerGroupMetadataValue",
        (
            Field("epoch", "int32"),
            Field("metadataHash", "int64", tag=0, default=0),
            Field("creationTimeMs", "int64", tag=1, default=-1),
        ),
        "3.6",
    ),
    4: _value(4, "ConsumerGroupPartitionMetadataValue", _TOPIC_METADATA, "3.6"),
    5: _value(5, "ConsumerGroupMemberMetadataValue", _CONSUMER_MEMBER, "3.6"),
    6: _value(6, "ConsumerGroupTargetAssignmentMetadataValue", _ASSIGNMENT_EPOCH, "3.6"),
    7: _value(7, "ConsumerGroupTargetAssignmentMemberValue", _TARGET, "3.6"),
    8: _value(
        8,
        "ConsumerGroupCurrentMemberAssignmentValue",
        (
            *_MEMBER_STATE,
            Field("assignedPartitions", "[]struct", fields=_EPOCH_PARTITIONS),
            Field("partitionsPendingRevocation", "[]struct", fields=_EPOCH_PARTITIONS),
        ),
        "3.6",
    ),
    9: _value(9, "ShareGroupPartitionMetadataValue", _TOPIC_METADATA, "4.0"),
    10: _value(
        10,
        "ShareGroupMemberMetadataValue",
        (
            Field("rackId", "string", nullable="0+"),
            Field("clientId", "string"),
            Field("clientHost", "string"),
            Field("subscribedTopicNames", "[]string"),
        ),
        "4.0",
    ),
    11: _value(
        11,
        "ShareGroupMetadataValue",
        (Field("epoch", "int32"), Field("metadataHash", "int64")),
        "4.0",
        (_value(11, "ShareGroupMetadataValue", (Field("epoch", "int32"),), "4.0"),),
    ),
    12: _value(12, "ShareGroupTargetAssignmentMetadataValue", _ASSIGNMENT_EPOCH, "4.0"),
    13: _value(13, "ShareGroupTargetAssignmentMemberValue", _TARGET, "4.0"),
    14: _value(
        14,
        "ShareGroupCurrentMemberAssignmentValue",
        (*_MEMBER_STATE, Field("assignedPartitions", "[]struct", fields=_EPOCH_PARTITIONS)),
        "4.0",
    ),
    15: _value(
        15,
        "ShareGroupStatePartitionMetadataValue",
        _SHARE_TOPICS,
        "4.0",
        (
            _value(15, "ShareGroupStatePartitionMetadataValue", _DATED_TOPICS, "4.1"),
            _value(15, "ShareGroupStatePartitionMetadataValue", _SHARE_TOPICS[1:], "4.0"),
        ),
    ),
    16: _value(
        16,
        "ConsumerGroupRegularExpressionValue",
        (Field("topics", "[]string"), Field("version", "int64"), Field("timestamp", "int64")),
        "4.0",
    ),
    17: _value(
        17,
        "StreamsGroupMetadataValue",
        (Field("epoch", "int32"), Field("metadataHash", "int64"), _VALIDATED),
        "4.1",
        (
            _value(
                17,
                "StreamsGroupMetadataValue",
                (Field("epoch", "int32"), Field("metadataHash", "int64"), _VALIDATED, _ASSIGNMENT_CONFIGS),
                "4.2",
            ),
            _value(17, "StreamsGroupMetadataValue", (Field("epoch", "int32"),), "4.1"),
        ),
    ),
    18: _value(18, "StreamsGroupPartitionMetadataValue", _TOPIC_METADATA, "4.1"),
    19: _value(19, "StreamsGroupMemberMetadataValue", _STREAMS_MEMBER, "4.1"),
    20: _value(20, "StreamsGroupTargetAssignmentMetadataValue", _ASSIGNMENT_EPOCH, "4.1"),
    21: _value(21, "StreamsGroupTargetAssignmentMemberValue", _STREAMS_TASKS, "4.1"),
    22: _value(
        22,
        "StreamsGroupCurrentMemberAssignmentValue",
        (*_MEMBER_STATE, *_STREAMS_TASKS, *_STREAMS_PENDING),
        "4.1",
    ),
    23: _value(
        23,
        "StreamsGroupTopologyValue",
        (Field("epoch", "int32"), Field("subtopologies", "[]struct", fields=_SUBTOPOLOGY)),
        "4.1",
    ),
    24: _value(
        24,
        "StreamsGroupTargetAssignmentResolvedTopicIdsValue",
        (
            Field("assignmentEpoch", "int32"),
            Field(
                "resolvedTopicIdsBySubtopology",
                "[]struct",
                fields=(Field("subtopologyId", "string"), Field("topicIds", "[]uuid")),
            ),
        ),
        "4.3",
    ),
}
"""First number of a key -> what follows the version of its value."""

_OWNED = (Field("topic", "string"), _PARTITIONS)

CONSUMER_SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    "0-3",
    "",
    (
        Field("topics", "[]string"),
        Field("userData", "bytes", nullable="0+"),
        Field("ownedPartitions", "[]struct", "1+", fields=_OWNED),
        Field("generationId", "int32", "2+"),
        Field("rackId", "string", "3+", nullable="3+"),
    ),
)
"""In ``subscription`` of a member whose protocol type is ``consumer``, after a version (int16)."""

CONSUMER_ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    "0-3",
    "",
    (Field("assignedPartitions", "[]struct", fields=_OWNED), Field("userData", "bytes", nullable="0+")),
)
"""In ``assignment`` of a member whose protocol type is ``consumer``, after a version (int16)."""
