"""The cluster's metadata: a KRaft snapshot and the log after it, replayed into one image (spec 10.4).

Records between BeginTransaction and EndTransaction count once the end stands in the log. What cannot be read or does
not fit the image is kept as a problem with its offset; the replay goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from formats.kafka.internal_records import CLUSTER_METADATA, InternalRecord, decode_control, decode_record
from formats.kafka.messages import Values
from formats.kafka.metadata_messages import CONFIG_RESOURCES
from formats.kafka.record_batch import Attributes, control_type
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.findings.log import BATCH_ROOM
from rmqctl.kafka.log.block import Block, GapKind
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.state.partition_state import PartitionLog

_UNCHANGED = -2
_PARTITION_LISTS = (
    "isr",
    "replicas",
    "removingReplicas",
    "addingReplicas",
    "directories",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)


class MetadataRecord(NamedTuple):
    """A record of the metadata log or of a snapshot; ``timestamp`` in ms."""

    offset: int
    epoch: int
    timestamp: int
    record: InternalRecord


class Problem(NamedTuple):
    """Something in the metadata that could not be applied: where, and one sentence."""

    file: str
    offset: int
    message: str


@dataclass
class MetadataImage:
    """The metadata of a cluster at one offset.

    Attributes:
        offset: of the last record that was applied, -1 for none.
        epoch: leader epoch of that record.
        timestamp: of that record, ms.
        snapshot: name of the snapshot that the replay began with, None where there was none.
        topics: topic id by name.
        partitions: fields of a PartitionRecord by topic id and number.
        configs: value by kind of resource, its name, and the name of the setting.
        quorum: ids of the voters of the last leader change.
        in_transaction: records of a metadata transaction that has not ended, and so are not applied.
    """

    offset: int = -1
    epoch: int = -1
    timestamp: int = -1
    snapshot: str | None = None
    brokers: dict[int, Values] = field(default_factory=dict)
    controllers: dict[int, Values] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Values] = field(default_factory=dict)
    configs: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    acls: dict[str, Values] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    scram: dict[tuple[str, int], Values] = field(default_factory=dict)
    tokens: dict[str, Values] = field(default_factory=dict)
    voters: list[Values] = field(default_factory=list)
    kraft_version: int = 0
    leader: int | None = None
    quorum: list[int] = field(default_factory=list)
    next_producer_id: int | None = None
    zk_migration_state: int | None = None
    in_transaction: list[MetadataRecord] | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def topic_names(self) -> dict[str, str]:
        """Name by topic id."""
        return {topic_id: name for name, topic_id in self.topics.items()}

    def partitions_of(self, topic: str) -> dict[int, Values]:
        """Return the partitions of a topic by number; empty for one that is not there."""
        topic_id = self.topics.get(topic)
        return {number: values for (owner, number), values in sorted(self.partitions.items()) if owner == topic_id}


def metadata_image(log: PartitionLog, at: int | None = None) -> MetadataImage:
    """Replay the newest snapshot that fits and the log after it.

    Args:
        at: offset of the last record to apply; None: to the end of the log.
    """
    image = MetadataImage()
    replay = _Replay(image, at)
    for snapshot in reversed(snapshots(log.partition)):
        if at is None or snapshot.base - 1 <= at:
            replay.snapshot(snapshot)
            break
    replay.log(log)
    return image


def image_of_snapshot(file: LogFile) -> MetadataImage:
    """Return the image that one snapshot gives."""
    image = MetadataImage()
    _Replay(image, None).snapshot(file)
    return image


def topic_names_ever(log: PartitionLog) -> dict[str, str]:
    """Name by id of all topics that a metadata log and its snapshots still name, the deleted ones too."""
    names = dict[str, str]()
    for snapshot in snapshots(log.partition):
        names |= image_of_snapshot(snapshot).topic_names
    for _, block in log.blocks():
        for found in _records(block):
            message, value = found.record.message, found.record.value
            if message is not None and message.name == "TopicRecord" and value:
                names[value["topicId"]] = value["name"]
    return names


def snapshots(partition: Partition) -> list[LogFile]:
    """Return the snapshots of a metadata log, by end offset and epoch."""
    files = partition.of_kind(FileKind.KRAFT_SNAPSHOT)
    return sorted(files, key=lambda file: (file.base, file.meaning.epoch or 0))


class _Replay:
    """Records applied to an image, one after the other."""

    def __init__(self, image: MetadataImage, at: int | None) -> None:
        self.image, self.at = image, at
        self.apply_by_name: dict[str, Callable[[Values], None]] = {
            "RegisterBrokerRecord": self._register_broker,
            "UnregisterBrokerRecord": lambda v: self._drop(image.brokers, v["brokerId"], "broker"),
            "TopicRecord": self._topic,
            "PartitionRecord": self._partition,
            "PartitionChangeRecord": self._partition_change,
            "ConfigRecord": self._config,
            "FenceBrokerRecord": lambda v: self._fence(v["id"], fenced=True),
            "UnfenceBrokerRecord": lambda v: self._fence(v["id"], fenced=False),
            "RemoveTopicRecord": self._remove_topic,
            "DelegationTokenRecord": lambda v: image.tokens.update({v["tokenId"]: v}),
            "RemoveDelegationTokenRecord": lambda v: self._drop(image.tokens, v["tokenId"], "delegation token"),
            "UserScramCredentialRecord": lambda v: image.scram.update({(v["name"], v["mechanism"]): v}),
            "RemoveUserScramCredentialRecord": lambda v: self._drop(
                image.scram, (v["name"], v["mechanism"]), "SCRAM credential"
            ),
            "FeatureLevelRecord": self._feature,
            "ClientQuotaRecord": self._quota,
            "ProducerIdsRecord": self._producer_ids,
            "BrokerRegistrationChangeRecord": self._registration_change,
            "AccessControlEntryRecord": lambda v: image.acls.update({v["id"]: v}),
            "RemoveAccessControlEntryRecord": lambda v: self._drop(image.acls, v["id"], "ACL"),
            "NoOpRecord": lambda v: None,
            "ZkMigrationStateRecord": self._zk_migration,
            "RegisterControllerRecord": lambda v: image.controllers.update({v["controllerId"]: v}),
            "UnregisterControllerRecord": lambda v: self._drop(image.controllers, v["controllerId"], "controller"),
            "ClearElrRecord": self._clear_elr,
        }
        self.file, self.offset = "", -1

    def snapshot(self, file: LogFile) -> None:
        """Apply a snapshot; the image then stands at the offset in its name."""
        source, batches = file.open(), 0
        try:
            for block in scan(source, Extent(file.name, None, size=file.size)):
                batches += len(block)
                self._gaps(block)
                for position in block.position[~block.crc_ok].tolist():
                    self._problem(file.name, file.base - 1, f"the CRC of the batch at byte {position} does not match")
                for record in _records(block):
                    self._apply(file.name, record)
        finally:
            source.close()
        if not batches:
            self._problem(file.name, file.base - 1, f"the newest snapshot holds no batch ({file.size} bytes)")
        self.image.snapshot = file.name
        self.image.offset, self.image.epoch = file.base - 1, file.meaning.epoch or 0

    def log(self, log: PartitionLog) -> None:
        """Apply what the log holds after the image's offset."""
        start = self.image.offset + 1
        is_wanted = self.at is None or self.at >= start
        if is_wanted and log.segments and log.segments[0].base > start:
            first = log.segments[0]
            assert first.log is not None
            self._problem(first.log.name, start, f"the log begins at {first.base}, and no snapshot reaches that far")
        for _, block in log.blocks(start):
            for record in _records(block):
                if self.at is not None and record.offset > self.at:
                    return
                if record.offset >= start:
                    self._apply(block.file, record)
                    self.image.offset, self.image.epoch = record.offset, record.epoch
                    self.image.timestamp = record.timestamp
        stop = log.loaded.stopped_by
        if stop is not None and stop.kind is not BATCH_ROOM:
            self._problem(stop.file, self.image.offset + 1, f"the log is cut here: {stop.message}")

    def _gaps(self, block: Block) -> None:
        for gap in block.gaps:
            if gap.why is not GapKind.ZERO_TAIL:
                self._problem(block.file, self.image.offset, f"damage at byte {gap.position}: {gap.detail}")

    def _apply(self, file: str, found: MetadataRecord) -> None:
        """Apply a record, or keep it until the end of its metadata transaction."""
        self.file, self.offset = file, found.offset
        record, name = found.record, found.record.message.name if found.record.message else ""
        if record.error or record.value is None:
            self._problem(file, found.offset, record.error or f"record {record.type} has no value")
        elif name == "BeginTransactionRecord":
            self.image.in_transaction = []
        elif name in {"EndTransactionRecord", "AbortTransactionRecord"}:
            held, self.image.in_transaction = self.image.in_transaction or [], None
            for inner in held if name == "EndTransactionRecord" else ():
                self._apply(file, inner)
        elif self.image.in_transaction is not None and name in self.apply_by_name:
            self.image.in_transaction.append(found)
        elif name in self.apply_by_name:
            self.apply_by_name[name](record.value)
        else:
            self._control(name, record.value)

    def _control(self, name: str, value: Values) -> None:
        image = self.image
        if name == "LeaderChangeMessage":
            image.leader = value["leaderId"]
            image.quorum = [voter["voterId"] for voter in value["voters"] or []]
        elif name == "KRaftVersionRecord":
            image.kraft_version = value["kRaftVersion"]
        elif name == "VotersRecord":
            image.voters = value["voters"] or []

    def _problem(self, file: str, offset: int, message: str) -> None:
        self.image.problems.append(Problem(file, offset, message))

    def _drop(self, table: dict[Any, Any], key: Any, what: str) -> None:
        if table.pop(key, None) is None:
            self._problem(self.file, self.offset, f"{what} {key} is removed, but not there")

    def _broker(self, number: int) -> Values:
        found = self.image.brokers.get(number)
        if found is None:
            self._problem(self.file, self.offset, f"broker {number} changes, but is not registered")
        return {} if found is None else found

    def _register_broker(self, value: Values) -> None:
        self.image.brokers[value["brokerId"]] = dict(value)

    def _fence(self, number: int, *, fenced: bool) -> None:
        self._broker(number)["fenced"] = fenced

    def _registration_change(self, value: Values) -> None:
        broker = self._broker(value["brokerId"])
        if value.get("fenced"):
            broker["fenced"] = value["fenced"] > 0
        if value.get("inControlledShutdown"):
            broker["inControlledShutdown"] = value["inControlledShutdown"] > 0
        for name in ("logDirs", "cordonedLogDirs"):
            if value.get(name) is not None:
                broker[name] = value[name]

    def _topic(self, value: Values) -> None:
        self.image.topics[value["name"]] = value["topicId"]

    def _remove_topic(self, value: Values) -> None:
        image, topic_id = self.image, value["topicId"]
        name = image.topic_names.get(topic_id)
        if name is None:
            self._problem(self.file, self.offset, f"topic {topic_id} is removed, but not there")
            return
        del image.topics[name]
        image.configs.pop(("topic", name), None)
        for key in [key for key in image.partitions if key[0] == topic_id]:
            del image.partitions[key]

    def _partition(self, value: Values) -> None:
        self.image.partitions[value["topicId"], value["partitionId"]] = dict(value)

    def _partition_change(self, value: Values) -> None:
        known = self.image.partitions.get((value["topicId"], value["partitionId"]))
        if known is None:
            what = f"partition {value['partitionId']} of topic {value['topicId']}"
            self._problem(self.file, self.offset, f"{what} changes, but is not there")
            return
        for name in _PARTITION_LISTS:
            if value.get(name) is not None:
                known[name] = value[name]
        if value.get("leader", _UNCHANGED) != _UNCHANGED:
            known["leader"] = value["leader"]
            known["leaderEpoch"] += 1
        if value.get("leaderRecoveryState", -1) >= 0:
            known["leaderRecoveryState"] = value["leaderRecoveryState"]
        known["partitionEpoch"] += 1

    def _config(self, value: Values) -> None:
        kind = CONFIG_RESOURCES.get(value["resourceType"], str(value["resourceType"]))
        settings = self.image.configs.setdefault((kind, value["resourceName"]), {})
        if value["value"] is None:
            settings.pop(value["name"], None)
        else:
            settings[value["name"]] = value["value"]

    def _feature(self, value: Values) -> None:
        if value["featureLevel"]:
            self.image.features[value["name"]] = value["featureLevel"]
        else:
            self.image.features.pop(value["name"], None)

    def _quota(self, value: Values) -> None:
        entity = tuple(sorted((part["entityType"], part["entityName"]) for part in value["entity"] or ()))
        quotas = self.image.quotas.setdefault(entity, {})
        if value["remove"]:
            quotas.pop(value["key"], None)
        else:
            quotas[value["key"]] = value["value"]

    def _producer_ids(self, value: Values) -> None:
        self.image.next_producer_id = value["nextProducerId"]

    def _zk_migration(self, value: Values) -> None:
        self.image.zk_migration_state = value["zkMigrationState"]

    def _clear_elr(self, value: Values) -> None:
        topic_id = self.image.topics.get(value["topicName"])
        for (owner, _), known in self.image.partitions.items():
            if not value["topicName"] or owner == topic_id:
                known["eligibleLeaderReplicas"], known["lastKnownElr"] = [], []


def _records(block: Block) -> Iterator[MetadataRecord]:
    """Yield the records of a block taken apart, control records too."""
    control = block.flag(Attributes.CONTROL)
    for records in records_of(block):
        epochs = records.column("partition_leader_epoch").tolist()
        rows, offsets, times = records.batch.tolist(), records.offset.tolist(), records.timestamp.tolist()
        for index, row in enumerate(rows):
            key, value = records.key(index), records.value(index)
            if control[row]:
                kind = control_type(key)
                found = decode_control(kind, value)
                found = found or InternalRecord(None, error=f"control record of type {kind} is not known")
            else:
                found = decode_record(CLUSTER_METADATA, key, value)
                assert found is not None
            yield MetadataRecord(offsets[index], epochs[index], times[index], found)
