"""The files that make a log directory a KRaft cluster of one node: who it is, and the metadata log with its topics.

:func:`write_cluster` writes, into a directory that may hold partitions already, ``meta.properties``,
``bootstrap.checkpoint``, and ``__cluster_metadata-0`` with one epoch: the leader change, the features of the release,
the topics with their ids, partitions and settings, and the first producer id that is free. A broker and controller of
that release (``process.roles=broker,controller``) with the node's id starts on it and serves the topics. Its quorum is
that of its own settings, ``controller.quorum.voters=ID@HOST:PORT``: a log cannot know where its node will listen.

Each partition has the node as its only replica and no leader, as after an orderly stop; the controller elects the
node in an epoch above the one given. Eligible leader replicas (KIP-966) stay off: with them a controller takes a node
that it never saw out of all replicas in sync. Partition directories are others' work; :func:`partition_metadata` is
the one file of them that a broker needs to know its topic again.
"""

from __future__ import annotations

import base64
import errno
import json
import secrets
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from formats.kafka.checkpoint import LEADER_EPOCHS, LeaderEpoch, format_leader_epochs
from formats.kafka.directory_files import (
    META_PROPERTIES,
    METADATA_TOPIC_ID,
    PARTITION_METADATA,
    QUORUM_STATE,
    format_meta_properties,
    format_partition_metadata,
)
from formats.kafka.messages import Values, encode
from formats.kafka.metadata_messages import CONFIG_RESOURCES, CONTROL_NAMES, CONTROL_RECORDS, METADATA_RECORDS, frame
from rmqctl.errors import Refused
from rmqctl.files.local import BytesSource
from rmqctl.files.writing import Disk
from rmqctl.kafka.directory.file_names import BOOTSTRAP, METADATA_TOPIC
from rmqctl.kafka.directory.releases import METADATA_VERSIONS
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.loading.index_build import IndexBuilder
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.release import Release

OLDEST = Release(3, 3, 0)
"""The first release whose KRaft is for production."""
METADATA_VERSION = "metadata.version"
_EPOCH = 1
_FEATURES_SINCE: tuple[tuple[Release, dict[str, int]], ...] = (
    (Release(4, 0, 0), {"group.version": 1, "transaction.version": 2}),
    (Release(4, 2, 0), {"share.version": 1, "streams.version": 1}),
)
"""Features that a directory formatted by a release or a later one has on."""
_DIRECTORIES_SINCE = METADATA_VERSIONS.index("3.7-IV2")
_TOPIC_RESOURCE = next(number for number, name in CONFIG_RESOURCES.items() if name == "topic")
_BY_NAME = {message.name: message for message in METADATA_RECORDS.values()}
_MOST_RECORDS = 500
_INDEX_INTERVAL = 4096
_PRODUCER_IDS = 1000
_NO_LEADER = -1


def new_id() -> str:
    """Return a random id of 16 bytes as its 22 characters; none that is reserved or begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode("ascii")
        if not text.startswith(("-", "A" * 12)):
            return text


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic of the cluster.

    Attributes:
        topic_id: 22 characters.
        partitions: highest leader epoch in the log by number of the partition, -1 for an empty one; without gaps.
        configs: settings of the topic that differ from the broker's.
    """

    name: str
    topic_id: str
    partitions: Mapping[int, int]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the files are to say.

    Attributes:
        cluster_id, directory_id: 22 characters each.
        release: of the broker that is to start here.
        features: level by name; those of a directory that the release formats where a name is missing.
        first_producer_id: above all that the logs hold, so that no producer gets the id of another.
    """

    cluster_id: str
    node_id: int
    release: Release
    topics: Sequence[ClusterTopic] = ()
    directory_id: str = field(default_factory=new_id)
    features: Mapping[str, int] = field(default_factory=dict)
    first_producer_id: int = 0


def write_cluster(root: Path, cluster: Cluster, now: int | None = None, disk: Disk | None = None) -> None:
    """Write the files of a cluster into its log directory; their names are on the disk after :meth:`Disk.settle`.

    Args:
        now: time of the records, epoch ms; None: that of the clock.
        disk: what writes.

    Raises:
        Refused: a broker of the release cannot run with KRaft.
        FileExistsError: one of the files is there already.
    """
    features, disk = features_of(cluster.release, cluster.features), disk or Disk()
    _put(
        disk,
        root / META_PROPERTIES,
        format_meta_properties(1, cluster.node_id, cluster.cluster_id, cluster.directory_id),
    )
    now = int(time.time() * 1000) if now is None else now
    first = [_record("FeatureLevelRecord", 0, name=n, featureLevel=level) for n, level in features.items()]
    _put(disk, root / BOOTSTRAP, _snapshot(first, now))
    place = root / f"{METADATA_TOPIC}-0"
    disk.make_directory(place)
    _put(disk, place / PARTITION_METADATA, partition_metadata(METADATA_TOPIC_ID))
    _put(disk, place / LEADER_EPOCHS, format_leader_epochs([LeaderEpoch(_EPOCH, 0)]))
    _put(disk, place / QUORUM_STATE, _quorum_state(cluster.node_id))
    log, records = bytearray(_leader_change(cluster.node_id, now)), [*first, *cluster_records(cluster, features)]
    for at in range(0, len(records), _MOST_RECORDS):
        log += _batch(at + 1, records[at : at + _MOST_RECORDS], now)
    for ending, data in indexes_of(bytes(log)):
        _put(disk, place / f"{0:020d}{ending}", data)


def indexes_of(log: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a segment of base offset 0, and its indexes as a broker that recovers it makes them; endings and bytes."""
    builder = IndexBuilder(0, _INDEX_INTERVAL)
    for block in scan(BytesSource(log), Extent("", 0)):
        builder.add(block)
    builder.finish()
    yield from ((".log", log), (".index", builder.offset_index()), (".timeindex", builder.time_index()))


def partition_metadata(topic_id: str) -> bytes:
    """Return the bytes of a partition's ``partition.metadata``."""
    return format_partition_metadata(topic_id)


def features_of(release: Release, wanted: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the levels of features for a release, ``metadata.version`` first.

    Args:
        wanted: levels that another cluster had; no higher ``metadata.version`` than the release knows, no ELR.

    Raises:
        Refused: the release is too old for KRaft.
    """
    if release < OLDEST:
        raise Refused(
            f"a {release} broker cannot run without ZooKeeper; give --as-release 3.3.0 or later, or --as-topic-files"
        )
    known = [level for level, name in enumerate(METADATA_VERSIONS) if name and _series(name) <= release[:2]]
    found = {METADATA_VERSION: known[-1]}
    for since, levels in _FEATURES_SINCE:
        found |= levels if release >= since else {}
    for name, level in (wanted or {}).items():
        if name == METADATA_VERSION:
            found[name] = min(level, known[-1])
        elif name in found:
            found[name] = min(level, found[name])
    return found


def _series(name: str) -> tuple[int, int]:
    major, minor = name.partition("-")[0].split(".")
    return int(major), int(minor)


# --- the records ------------------------------------------------------------------------------------


def cluster_records(cluster: Cluster, features: Mapping[str, int], known: Container[str] = ()) -> Iterator[bytes]:
    """Yield the records after the features: topics, their settings and partitions, and the first free producer id.

    Args:
        known: topics that are in the log already and only get more partitions.
    """
    for topic in cluster.topics:
        if topic.name not in known:
            yield _record("TopicRecord", 0, name=topic.name, topicId=topic.topic_id)
            for name, value in topic.configs.items():
                yield _record(
                    "ConfigRecord", 0, resourceType=_TOPIC_RESOURCE, resourceName=topic.name, name=name, value=value
                )
        for number, epoch in sorted(topic.partitions.items()):
            yield _partition(cluster, topic, number, epoch, features)
    if cluster.first_producer_id > 0:
        block = -(-cluster.first_producer_id // _PRODUCER_IDS) * _PRODUCER_IDS
        yield _record("ProducerIdsRecord", 0, brokerId=cluster.node_id, brokerEpoch=-1, nextProducerId=block)


def _partition(cluster: Cluster, topic: ClusterTopic, number: int, epoch: int, features: Mapping[str, int]) -> bytes:
    """Return a partition with the node as its only replica, and no leader yet."""
    here = [cluster.node_id]
    return _record(
        "PartitionRecord",
        1 if features[METADATA_VERSION] >= _DIRECTORIES_SINCE else 0,
        partitionId=number,
        topicId=topic.topic_id,
        replicas=here,
        isr=here,
        removingReplicas=[],
        addingReplicas=[],
        leader=_NO_LEADER,
        leaderEpoch=max(epoch, 0),
        partitionEpoch=0,
        directories=[cluster.directory_id],
    )


def _record(message_name: str, version: int, /, **values: object) -> bytes:
    message = _BY_NAME[message_name]
    return frame(message, version, encode(message, version, values))


# --- batches ----------------------------------------------------------------------------------------


def _leader_change(node: int, now: int) -> bytes:
    voters: Values = {"version": 0, "leaderId": node, "voters": [{"voterId": node}]}
    value = _control_value("LEADER_CHANGE", {**voters, "grantingVoters": [{"voterId": node}]})
    return _batch(0, [value], now, control="LEADER_CHANGE")


def _snapshot(records: Sequence[bytes], now: int) -> bytes:
    """Return a snapshot of some records: between a header and a footer, offsets from 0."""
    head = _control_value("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 0})
    foot = _control_value("SNAPSHOT_FOOTER", {"version": 0})
    parts = [
        _batch(0, [head], now, epoch=0, control="SNAPSHOT_HEADER"),
        _batch(1, records, now, epoch=0),
        _batch(1 + len(records), [foot], now, epoch=0, control="SNAPSHOT_FOOTER"),
    ]
    return b"".join(parts)


def _control_number(name: str) -> int:
    return next(number for number, text in CONTROL_NAMES.items() if text == name)


def _control_value(name: str, values: Values) -> bytes:
    return encode(CONTROL_RECORDS[_control_number(name)], 0, values)


def _batch(base: int, values: Sequence[bytes], now: int, *, epoch: int = _EPOCH, control: str = "") -> bytes:
    """Return a batch of records without keys; a control batch where the name of a control record is given."""
    key = b"\0\0" + _control_number(control).to_bytes(2, "big") if control else None
    records = [Record(base + number, now, -1, key, value) for number, value in enumerate(values)]
    return build_batch(BatchHead(base, leader_epoch=epoch, control=bool(control)), records)


# --- small files ------------------------------------------------------------------------------------


def _quorum_state(node: int) -> bytes:
    """Return the vote in the epoch of the log: none given, no leader known."""
    state = {
        "clusterId": "",
        "leaderId": _NO_LEADER,
        "leaderEpoch": _EPOCH,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": node}],
        "data_version": 0,
    }
    return json.dumps(state, separators=(",", ":")).encode("ascii")


def _put(disk: Disk, path: Path, data: bytes) -> None:
    if path.exists():
        raise FileExistsError(errno.EEXIST, "a file of that name is there", str(path))
    disk.write_file(path, data)
