"""Tables of the KRaft metadata log, its snapshots, and the values of control records (spec 4, 10.4).

A record of ``__cluster_metadata`` has no key; its value begins with a frame of three unsigned varints: the frame's
version, the record's number, the record's version. Source: the message schemas of Kafka's controller and of raft.
"""

from __future__ import annotations

import re

from formats.errors import DecodeError
from formats.kafka.messages import Field, Message, read_unsigned_varint, write_unsigned_varint

FRAME_VERSION = 1
CONFIG_RESOURCES = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
"""``resourceType`` of a configuration -> its name."""

_END_POINTS = Field(
    "endPoints",
    "[]struct",
    fields=(
        Field("name", "string"),
        Field("host", "string"),
        Field("port", "uint16"),
        Field("securityProtocol", "int16"),
    ),
)
_FEATURES = Field(
    "features",
    "[]struct",
    fields=(Field("name", "string"), Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16")),
)
_BROKER = (Field("brokerId", "int32"), Field("brokerEpoch", "int64"))
_ID_EPOCH = (Field("id", "int32"), Field("epoch", "int64"))
_PARTITION = (Field("partitionId", "int32"), Field("topicId", "uuid"))


def _optional(name: str, kind: str, tag: int, versions: str = "0+") -> Field:
    return Field(name, kind, versions, nullable=versions, tag=tag)


_TABLES = (
    (
        0,
        "RegisterBrokerRecord",
        "0-4",
        (
            Field("brokerId", "int32"),
            Field("isMigratingZkBroker", "bool", "2+"),
            Field("incarnationId", "uuid"),
            Field("brokerEpoch", "int64"),
            _END_POINTS,
            _FEATURES,
            Field("rack", "string", nullable="0+"),
            Field("fenced", "bool"),
            Field("inControlledShutdown", "bool", "1+"),
            Field("logDirs", "[]uuid", "3+", tag=0, default=[]),
            _optional("cordonedLogDirs", "[]uuid", 1, "4+"),
        ),
    ),
    (1, "UnregisterBrokerRecord", "0", _BROKER),
    (2, "TopicRecord", "0", (Field("name", "string"), Field("topicId", "uuid"))),
    (
        3,
        "PartitionRecord",
        "0-2",
        (
            *_PARTITION,
            Field("replicas", "[]int32"),
            Field("isr", "[]int32"),
            Field("removingReplicas", "[]int32"),
            Field("addingReplicas", "[]int32"),
            Field("leader", "int32"),
            Field("leaderRecoveryState", "int8", tag=0, default=0),
            Field("leaderEpoch", "int32"),
            Field("partitionEpoch", "int32"),
            Field("directories", "[]uuid", "1+"),
            _optional("eligibleLeaderReplicas", "[]int32", 1, "2+"),
            _optional("lastKnownElr", "[]int32", 2, "2+"),
        ),
    ),
    (
        4,
        "ConfigRecord",
        "0",
        (
            Field("resourceType", "int8"),
            Field("resourceName", "string"),
            Field("name", "string"),
            Field("value", "string", nullable="0+"),
        ),
    ),
    (
        5,
        "PartitionChangeRecord",
        "0-2",
        (
            *_PARTITION,
            _optional("isr", "[]int32", 0),
            Field("leader", "int32", tag=1, default=-2),
            _optional("replicas", "[]int32", 2),
            _optional("removingReplicas", "[]int32", 3),
            _optional("addingReplicas", "[]int32", 4),
            Field("leaderRecoveryState", "int8", tag=5, default=-1),
            _optional("directories", "[]uuid", 8, "1+"),
            _optional("eligibleLeaderReplicas", "[]int32", 6, "2+"),
            _optional("lastKnownElr", "[]int32", 7, "2+"),
        ),
    ),
    (7, "FenceBrokerRecord", "0", _ID_EPOCH),
    (8, "UnfenceBrokerRecord", "0", _ID_EPOCH),
    (9, "RemoveTopicRecord", "0", (Field("topicId", "uuid"),)),
    (
        10,
        "DelegationTokenRecord",
        "0",
        (
            Field("owner", "string"),
            Field("requester", "string"),
            Field("renewers", "[]string"),
            Field("issueTimestamp", "int64"),
            Field("maxTimestamp", "int64"),
            Field("expirationTimestamp", "int64"),
            Field("tokenId", "string"),
        ),
    ),
    (
        11,
        "UserScramCredentialRecord",
        "0",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("salt", "bytes"),
            Field("storedKey", "bytes"),
            Field("serverKey", "bytes"),
            Field("iterations", "int32"),
        ),
    ),
    (12, "FeatureLevelRecord", "0", (Field("name", "string"), Field("featureLevel", "int16"))),
    (
        14,
        "ClientQuotaRecord",
        "0",
        (
            Field(
                "entity",
                "[]struct",
                fields=(Field("entityType", "string"), Field("entityName", "string", nullable="0+")),
            ),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
    ),
    (15, "ProducerIdsRecord", "0", (*_BROKER, Field("nextProducerId", "int64"))),
    (
        17,
        "BrokerRegistrationChangeRecord",
        "0-3",
        (
            *_BROKER,
            Field("fenced", "int8", tag=0, default=0),
            Field("inControlledShutdown", "int8", "1+", tag=1, default=0),
            Field("logDirs", "[]uuid", "2+", tag=2, default=[]),
            _optional("cordonedLogDirs", "[]uuid", 3, "3+"),
        ),
    ),
    (
        18,
        "AccessControlEntryRecord",
        "0",
        (
            Field("id", "uuid"),
            Field("resourceType", "int8"),
            Field("resourceName", "string"),
            Field("patternType", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permissionType", "int8"),
        ),
    ),
    (19, "RemoveAccessControlEntryRecord", "0", (Field("id", "uuid"),)),
    (20, "NoOpRecord", "0", ()),
    (21, "ZkMigrationStateRecord", "0", (Field("zkMigrationState", "int8"),)),
    (22, "RemoveUserScramCredentialRecord", "0", (Field("name", "string"), Field("mechanism", "int8"))),
    (23, "BeginTransactionRecord", "0", (_optional("name", "string", 0),)),
    (24, "EndTransactionRecord", "0", ()),
    (25, "AbortTransactionRecord", "0", (_optional("reason", "string", 0),)),
    (26, "RemoveDelegationTokenRecord", "0", (Field("tokenId", "string"),)),
    (
        27,
        "RegisterControllerRecord",
        "0",
        (
            Field("controllerId", "int32"),
            Field("incarnationId", "uuid"),
            Field("zkMigrationReady", "bool"),
            _END_POINTS,
            _FEATURES,
        ),
    ),
    (28, "ClearElrRecord", "0", (Field("topicName", "string"),)),
    (29, "UnregisterControllerRecord", "0", (Field("controllerId", "int32"),)),
)

METADATA_RECORDS: dict[int, Message] = {
    key: Message(name, versions, "0+", fields, key, "4.0" if key > 27 else "2.8")
    for key, name, versions, fields in _TABLES
}
"""Number in the frame -> table."""

_VOTER = (Field("voterId", "int32"), Field("voterDirectoryId", "uuid", "1+"))
LEADER_CHANGE = Message(
    "LeaderChangeMessage",
    "0-1",
    "0+",
    (
        Field("version", "int16"),
        Field("leaderId", "int32"),
        Field("voters", "[]struct", fields=_VOTER),
        Field("grantingVoters", "[]struct", fields=_VOTER),
    ),
    2,
    "3.0",
)

CONTROL_RECORDS: dict[int, Message] = {
    2: LEADER_CHANGE,
    3: Message(
        "SnapshotHeaderRecord",
        "0",
        "0+",
        (Field("version", "int16"), Field("lastContainedLogTimestamp", "int64")),
        3,
        "3.0",
    ),
    4: Message("SnapshotFooterRecord", "0", "0+", (Field("version", "int16"),), 4, "3.0"),
    5: Message("KRaftVersionRecord", "0", "0+", (Field("version", "int16"), Field("kRaftVersion", "int16")), 5, "3.8"),
    6: Message(
        "VotersRecord",
        "0",
        "0+",
        (
            Field("version", "int16"),
            Field(
                "voters",
                "[]struct",
                fields=(
                    Field("voterId", "int32"),
                    Field("voterDirectoryId", "uuid"),
                    Field(
                        "endpoints",
                        "[]struct",
                        fields=(Field("name", "string"), Field("host", "string"), Field("port", "uint16")),
                    ),
                    Field(
                        "kRaftVersionFeature",
                        "struct",
                        fields=(Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16")),
                    ),
                ),
            ),
        ),
        6,
        "3.8",
    ),
}
"""Type in the key of a control record -> table of its value; transaction markers (0 and 1) are none of them."""

CONTROL_NAMES: dict[int, str] = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
"""Type in the key of a control record -> its name."""


def record_type(message: Message) -> str:
    """Return the name of a framed record as the official decoder prints it: ``PARTITION_CHANGE_RECORD``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message.name).upper()


def read_frame(data: bytes) -> tuple[int, int, int]:
    """Return number and version of a framed record, and where its fields begin.

    Raises:
        DecodeError: there is no frame, or it has another version.
    """
    frame, position = read_unsigned_varint(data, 0)
    if frame != FRAME_VERSION:
        raise DecodeError(f"version {frame} of a frame is not known, only {FRAME_VERSION}")
    key, position = read_unsigned_varint(data, position)
    version, position = read_unsigned_varint(data, position)
    return key, version, position


def frame(message: Message, version: int, body: bytes) -> bytes:
    """Return the value of a framed record."""
    assert message.key is not None
    out = bytearray()
    for number in (FRAME_VERSION, message.key, version):
        write_unsigned_varint(out, number)
    return bytes(out + body)
