"""What of a log directory each release reads: parts that came later or went, what a broker does without them, and what
the one that was here finds when it comes back (spec 1, 9, 10.4, 18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from formats.kafka.record_batch import MAGIC_AT
from rmqctl.foresight import Effect, Statement
from rmqctl.kafka.directory.directory import LogFile
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, DirectoryState
from rmqctl.kafka.directory.releases import features_of_release, metadata_version_name, unsupported
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.known_settings import KnownSettings
from rmqctl.release import Release
from rmqctl.text import listed_names

KRAFT_ONLY, KRAFT = Release(4, 0, 0), Release(2, 8, 0)
METADATA_LOG_SINCE = Release(3, 0, 0)
STRAY_SINCE, DIRECTORY_IDS_SINCE, TIERED_SINCE = Release(3, 7, 0), Release(3, 7, 0), Release(3, 6, 0)
SETTINGS = KnownSettings(__package__, "settings.txt", "KafkaConfig", ("listener.name.", "metric", "confluent."))
SEGMENT_BYTES_SINCE, SEGMENT_BYTES_LEAST = Release(4, 1, 0), 1 << 20
_METADATA = "metadata.version"
_PRESENT = 2
"""The magic of the format that all releases since 0.11 write."""
_NAMED = 3


def unread_parts(replicas: Replicas, release: Release) -> Iterator[Statement]:
    """Yield what of log directories a release does not read or does not start on."""
    yield from _mode(replicas, release)
    yield from _features(replicas, release)
    states = {p.state for directory in replicas.directories for p in directory.partitions}
    if release < STRAY_SINCE and DirectoryState.STRAY in states:
        yield Statement(
            "directory.stray", Effect.REFUSES, "-stray directories",
            "found directories that are not in the form of topic-partition: it knows no -stray",
            f"LogManager, since {STRAY_SINCE}", "move the directories that end with -stray out of the log directory",
        )  # fmt: skip
    if release >= SEGMENT_BYTES_SINCE and (small := _small_segments(replicas)):
        what = f"segment.bytes of {listed_names(small)}"
        yield Statement(
            "topics.segment-bytes", Effect.REFUSES, what,
            f"{what} is less than {SEGMENT_BYTES_LEAST:,}, the least that it takes",
            f"LogConfig (KAFKA-19080), since {SEGMENT_BYTES_SINCE}",
            "let the present release take the setting away, or raise it: kafka-configs.sh --alter --delete-config "
            "segment.bytes",
        )  # fmt: skip
    if release < TIERED_SINCE and (tiered := _tiered(replicas)):
        yield Statement(
            "records.tiered", Effect.HIDES, ", ".join(tiered), "serves nothing of them that is in tiered storage alone",
            f"RemoteLogManager (KIP-405), since {TIERED_SINCE}",
        )  # fmt: skip
    if release < DIRECTORY_IDS_SINCE and any(one is not None and one.directory_id for one in replicas.identities):
        yield Statement(
            "directory.id", Effect.IGNORES, "directory.id of meta.properties", "knows no ids of directories",
            f"MetaProperties (KIP-858), since {DIRECTORY_IDS_SINCE}",
        )  # fmt: skip
    if release >= KRAFT_ONLY and (old := _old_formats(replicas)):
        yield Statement(
            "records.v0-v1", Effect.CHANGES, old,
            "are read as they are, and nothing is converted: clients of before 2.1 get nothing from this broker",
            "KIP-724, KIP-896, since 4.0.0",
        )  # fmt: skip


def needs_migration(replicas: Replicas, release: Release) -> bool:
    """Whether directories are of a broker with ZooKeeper, or of one that was migrated from it and kept their version,
    and a release knows only KRaft.
    """
    versions = {one.version for one in replicas.identities if one is not None}
    return versions == {0} and release >= KRAFT_ONLY and replicas.metadata_log is None


def _mode(replicas: Replicas, release: Release) -> Iterator[Statement]:
    versions = {one.version for one in replicas.identities if one is not None}
    if needs_migration(replicas, release):
        yield Statement(
            "mode.zookeeper", Effect.CHANGES, "meta.properties",
            "is of version 0, that of brokers with ZooKeeper; it starts only with process.roles, as a KRaft node, "
            "and serves the partitions only where the cluster was migrated",
            "KafkaRaftServer.initializeLogDirs, KIP-833, since 4.0.0",
            "migrate the cluster to KRaft with 3.9, if that was not done (KIP-866)",
        )  # fmt: skip
    if 1 in versions and release < KRAFT:
        yield Statement(
            "mode.kraft", Effect.REFUSES, "meta.properties",
            "meta.properties is of version 1, that of KRaft, which came with 2.8",
            "MetaProperties (KIP-500), since 2.8.0",
        )  # fmt: skip


def _features(replicas: Replicas, release: Release) -> Iterator[Statement]:
    if KRAFT <= release < METADATA_LOG_SINCE and replicas.metadata_log is not None:
        yield Statement(
            "metadata.log", Effect.LOSES, METADATA_TOPIC,
            "does not read it: it begins a metadata log of its own, @metadata, and serves none of the partitions",
            f"KafkaRaftServer.MetadataTopic, renamed with {METADATA_LOG_SINCE}",
            "do not go back to the preview of KRaft: take the release that was here",
        )  # fmt: skip
        return
    if replicas.image is None or not (why := unsupported(replicas.image.features, release)):
        return
    lowest, highest = features_of_release(release).get(_METADATA, (0, 0))
    level = replicas.image.features.get(_METADATA, 0)
    before = ""
    if level < lowest:
        name = metadata_version_name(lowest).partition("-")[0]
        before = f"raise it with the present release: kafka-features.sh upgrade --release-version {name}"
    elif highest and level > highest:
        name = metadata_version_name(highest)
        before = (
            f"lower it with the present release: kafka-features.sh downgrade --metadata {name}; it refuses where "
            "records that the lower level cannot have were written (KIP-778)"
        )
    yield Statement("metadata.features", Effect.REFUSES, "features", why, "QuorumFeatures (KIP-584, KIP-778)", before)


def _tiered(replicas: Replicas) -> list[str]:
    configs = replicas.configs
    return sorted(t for t in replicas.topics if configs.get(("topic", t), {}).get("remote.storage.enable") == "true")


def _small_segments(replicas: Replicas) -> list[str]:
    """Topics whose segments are to be smaller than releases since `SEGMENT_BYTES_SINCE` take."""
    found = {
        name: values.get("segment.bytes", "") for (kind, name), values in replicas.configs.items() if kind == "topic"
    }
    return sorted(name for name, value in found.items() if value.isdigit() and int(value) < SEGMENT_BYTES_LEAST)


def _old_formats(replicas: Replicas) -> str:
    """Topics with a segment that begins with a message of magic 0 or 1, a few words."""
    found = sorted({log.partition.topic for log in replicas.served if any(map(_is_old, log.partition.logs[:1]))})
    if not found:
        return ""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"records of format v0 or v1 in {', '.join(found[:_NAMED])}{more}"


def _is_old(log: LogFile) -> bool:
    """Whether a log begins with a message of a format before the present one."""
    with closing(log.open()) as source:
        head = source.read_at(MAGIC_AT, 1)
    return bool(head) and head[0] < _PRESENT


def later_parts(shown: Release, release: Release, *, kraft: bool) -> Iterator[Statement]:
    """Yield what a release may write that the one shown does not read.

    Args:
        kraft: the cluster has no ZooKeeper.
    """
    if kraft:
        now, then = features_of_release(shown), features_of_release(release)
        for name, (_, highest) in then.items():
            known = now.get(name, (0, 0))[1]
            if highest > known:
                level = metadata_version_name(known) if name == _METADATA else str(known)
                yield Statement(
                    f"feature.{name}", Effect.REFUSES, f"{name} above {level}", f"{shown} does not start with it",
                    "QuorumFeatures (KIP-584, KIP-778)",
                )  # fmt: skip
    elif release[:2] > shown[:2]:
        yield Statement(
            "setting.inter.broker.protocol.version", Effect.REFUSES,
            f"inter.broker.protocol.version above {shown.major}.{shown.minor}",
            "brokers of before do not understand what is said then", "ApiVersion, MetadataVersion (upgrade notes)",
        )  # fmt: skip
    if shown < STRAY_SINCE <= release and kraft:
        yield Statement(
            "directory.stray", Effect.REFUSES, "-stray directories", "names that it takes for no partition's",
            f"LogManager, since {STRAY_SINCE}",
        )  # fmt: skip


def refused_settings(replicas: Replicas, release: Release, given: Mapping[str, str]) -> str:
    """Return why a broker does not start with the settings of its file on these directories; "" where it does.

    A file that does not name its log directories is taken for a part of one: of it only what it has counts.
    """
    roles, is_whole = given.get("process.roles"), bool({"log.dir", "log.dirs"} & {*given})
    if release >= KRAFT_ONLY and is_whole and not roles:
        return 'Missing required configuration "process.roles" which has no default value'
    number = given.get("node.id", given.get("broker.id", "")).strip()
    for identity in replicas.identities:
        if identity is None or identity.node_id is None:
            continue
        if number.isdigit() and int(number) != identity.node_id:
            return f"meta.properties is of node {identity.node_id}, and the settings have node {number}"
        if is_whole and not roles and identity.version == 1:
            return "meta.properties is of version 1, that of KRaft, and the settings name no process.roles"
    return ""
