"""The replicas in the log directories of a broker, each opened once, with the cluster's metadata beside them.

What the directories say about the release that wrote them last is asked here too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

from formats.kafka.directory_files import MetaProperties, parse_meta_properties
from rmqctl.filters import ALL, Names
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, Partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.directory.releases import COMPARED, KNOWN, METADATA_VERSION, Evidence, evidence, release_range
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.loading.loads import Configs, Loads
from rmqctl.kafka.state.metadata import MetadataImage, image_of_snapshot, metadata_image
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.release import Release


class Replicas:
    """The replicas that a broker serves: those in plain partition directories.

    Where two directories hold the same partition, which no broker starts on, the first one counts.

    Attributes:
        place: the log directories, and what of them a user pointed at.

    Args:
        settings: of the broker, for what files do not store.
        release: whose broker starts on them; None: that of the release which the directories show.
    """

    def __init__(
        self, place: LogDirectories, settings: Mapping[str, str] | None = None, release: Release | None = None
    ) -> None:
        self.place, self.settings, self._asked = place, settings or {}, release
        self.directories: Sequence[LogDirectory] = place.directories
        self._checkpoints = [Checkpoints(directory) for directory in place.directories]
        self._loads: dict[tuple[str, Release], Loads] = {}

    @cached_property
    def all(self) -> list[PartitionLog]:
        """Every plain partition, by topic and number; the metadata log too."""
        found: dict[tuple[str, int], PartitionLog] = {}
        for directory, checkpoints in zip(self.directories, self._checkpoints, strict=True):
            for partition in directory.partitions:
                if partition.is_plain:
                    number = -1 if partition.partition is None else partition.partition
                    loads = None if partition.is_metadata_log else partial(self.loads, directory)
                    log = PartitionLog(directory, partition, checkpoints, loads)
                    found.setdefault((partition.topic, number), log)
        return [found[key] for key in sorted(found)]

    @cached_property
    def identities(self) -> Sequence[MetaProperties | None]:
        """The meta.properties of each directory, as far as it can be read; None where it is not there."""
        return [meta_properties(directory) for directory in self.directories]

    @cached_property
    def held(self) -> frozenset[tuple[str, int | None, DirectoryState]]:
        """The partitions that a broker serves or moves here, by topic, number and state."""
        served, all_here = (DirectoryState.PLAIN, DirectoryState.FUTURE), (d.partitions for d in self.directories)
        return frozenset((p.topic, p.partition, p.state) for p in chain.from_iterable(all_here) if p.state in served)

    @cached_property
    def release(self) -> Release:
        """Whose broker starts on them."""
        return self._asked or release_shown(self)

    @property
    def configs(self) -> Configs:
        """The settings that the metadata log has; empty where it is not here."""
        return {} if self.image is None else self.image.configs

    def loads(
        self,
        directory: LogDirectory,
        release: Release | None = None,
        settings: Mapping[str, str] | None = None,
        known: KnownLogs | None = None,
    ) -> Loads:
        """Return the loads of the partitions of a directory; for one release and no other settings always the same.

        Args:
            release, settings: None: those of the replicas.
            known: logs that have been read already.
        """
        release, settings = release or self.release, self.settings if settings is None else settings
        checkpoints = self._checkpoints[self.directories.index(directory)]
        made = Loads(directory, checkpoints, release, lambda: self.configs, settings, known)
        if known is not None or settings != self.settings:
            return made
        return self._loads.setdefault((directory.root, release), made)

    @property
    def served(self) -> list[PartitionLog]:
        """The partitions that clients can ask for: all but the metadata log."""
        return [log for log in self.all if not log.partition.is_metadata_log]

    def pointed_at(self, topics: Names = ALL) -> list[PartitionLog]:
        """Those of them, or those of some topics, that the user's path names: all for the root. The metadata log is
        there for those who name it.
        """
        named = {id(partition) for partition in self.place.selected}
        chosen = (log for log in self.all if not log.partition.is_metadata_log or log.partition.topic in topics.exact)
        return [log for log in chosen if id(log.partition) in named and topics.include(log.partition.topic)]

    def of(self, topic: str) -> list[PartitionLog]:
        """Return the partitions of a topic, by number."""
        return [log for log in self.all if log.partition.topic == topic]

    def find(self, topic: str, number: int) -> PartitionLog | None:
        """One partition; None where it is not here."""
        return next((log for log in self.of(topic) if log.partition.partition == number), None)

    @property
    def topics(self) -> list[str]:
        """Names of the topics that have a partition here, sorted."""
        return sorted({log.partition.topic for log in self.served})

    @cached_property
    def metadata_log(self) -> PartitionLog | None:
        """The log of the KRaft controller; None where it is not here."""
        return next((log for log in self.all if log.partition.is_metadata_log), None)

    @cached_property
    def image(self) -> MetadataImage | None:
        """The cluster's metadata at the end of the metadata log; None where that is not here."""
        return None if self.metadata_log is None else metadata_image(self.metadata_log)

    @cached_property
    def topic_names(self) -> dict[str, str]:
        """Name of a topic by its id, from the metadata and from the partitions themselves."""
        names = {log.topic_id: log.partition.topic for log in self.all if log.topic_id is not None}
        return names | (self.image.topic_names if self.image else {})

    def topic_id(self, log: PartitionLog) -> str | None:
        """Return the id of a partition's topic, as the partition says, else as the metadata does."""
        if log.topic_id is not None:
            return log.topic_id
        return self.image.topics.get(log.partition.topic) if self.image else None

    def gone(self) -> Iterator[Gone]:
        """Yield what is gone already from the directories, one after the other, before a broker is started."""
        for directory, checkpoints in zip(self.directories, self._checkpoints, strict=True):
            here = {(p.topic, p.partition) for other in self.directories for p in other.partitions}
            yield from gone_of(directory, checkpoints, self.image, here)

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic in the whole cluster, as far as is known here."""
        known = len(self.image.partitions_of(topic)) if self.image else 0
        numbers = [log.partition.partition or 0 for log in self.of(topic)]
        return max(known, max(numbers, default=-1) + 1)


# --- what is gone already -----------------------------------------------------------------------------


class Gone(NamedTuple):
    """The log of a partition that had records here.

    Attributes:
        partition: its directory; None where that is gone too.
        file: what names the records; message: one sentence on it.
    """

    topic: str
    number: int
    partition: Partition | None
    file: str
    message: str

    @property
    def label(self) -> str:
        """``topic-0``."""
        return f"{self.topic}-{self.number}"


def gone_of(
    directory: LogDirectory,
    checkpoints: Checkpoints,
    image: MetadataImage | None,
    here: Container[tuple[str, int | None]],
) -> Iterator[Gone]:
    """Yield the partitions of a directory of which no segment is left, then those without a directory.

    Args:
        here: topic and number of every partition in all directories of the broker, whatever its state.
    """
    for partition in directory.partitions:
        if partition.is_plain and not partition.logs and not partition.problem:
            yield from _emptied(partition, checkpoints)
    properties = meta_properties(directory)
    if image is None or properties is None or properties.node_id is None:
        return
    stated = dict[tuple[str, int], tuple[int, str]]()
    for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS):
        for key, offset in checkpoints.of(kind).offsets.items():
            stated[key] = max(stated.get(key, (0, "")), (offset, str(kind)))
    starts = checkpoints.of(FileKind.LOG_STARTS).offsets
    for (topic, number), (offset, file) in sorted(stated.items()):
        known = image.partitions.get((image.topics.get(topic, ""), number))
        if (topic, number) in here or offset <= starts.get((topic, number), 0) or known is None:
            continue
        if _is_assigned(known, properties, image):
            others = [node for node in known["replicas"] if node != properties.node_id]
            broker = (
                f"fetches it from {_nodes(others)} where one of them leads it" if others else "has no other replica"
            )
            message = (
                f"{topic}-{number} has offset {offset}, the metadata gives it to this node ({properties.node_id}), and "
                f"no directory of it is here; a broker makes it empty and {broker}"
            )
            yield Gone(topic, number, None, file, message)


def _emptied(partition: Partition, checkpoints: Checkpoints) -> Iterator[Gone]:
    """Yield a partition without a segment, where a checkpoint or a derived file shows that it had records."""
    start = checkpoints.offset(FileKind.LOG_STARTS, partition) or 0
    found = [
        (checkpoints.offset(kind, partition) or 0, str(kind))
        for kind in (FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS)
    ]
    derived = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.PRODUCER_SNAPSHOT)
    found += [(file.base, file.name) for kind in derived for file in partition.of_kind(kind)]
    offset, file = max(found)
    swapped = (file.kind is FileKind.LOG and file.meaning.leftover == ".swap" for file in partition.leftovers)
    if offset > start and not any(swapped):
        message = f"{partition.label} has offset {offset} in {file}, and no segment is here"
        yield Gone(partition.topic, partition.partition or 0, partition, f"{partition.directory}/".lstrip("/"), message)


def _is_assigned(known: Mapping[str, Any], properties: MetaProperties, image: MetadataImage) -> bool:
    """Whether the metadata gives a replica to this node, and to no other directory of it."""
    node, replicas = properties.node_id, known["replicas"]
    if node not in replicas:
        return False
    directories = known.get("directories") or []
    assigned = directories[replicas.index(node)] if len(directories) == len(replicas) else None
    if assigned == properties.directory_id:
        return True
    registered = image.brokers.get(node or 0, {}).get("logDirs") or []
    return len(registered) <= 1 and assigned not in registered


def _nodes(nodes: Sequence[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {_listed(nodes)}"


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


# --- which release wrote them -----------------------------------------------------------------------


def facts(replicas: Replicas) -> list[Evidence]:
    """Return what the directories say about the release that wrote them last."""
    features = replicas.image.features if replicas.image else {}
    found: dict[str, Evidence] = {}
    for directory in replicas.directories:
        file = directory.one(FileKind.CLEAN_SHUTDOWN)
        marker = read_text(file) if file else None
        formatted = None if features.get(METADATA_VERSION) else directory.one(FileKind.KRAFT_SNAPSHOT)
        begun = image_of_snapshot(formatted).features if formatted else {}
        for fact in evidence(directory, features, begun, marker):
            found[fact.fact] = fact
        properties = meta_properties(directory)
        if properties is not None and properties.version == 1:
            found["kraft"] = Evidence("meta.properties is of version 1", "2.8.0")
        if properties is not None and properties.directory_id:
            found["directory"] = Evidence("meta.properties has a directory.id", "3.7.0")
    return list(found.values())


def meta_properties(directory: LogDirectory) -> MetaProperties | None:
    """Return the meta.properties of a directory, as far as it can be read; None where it is not there."""
    file = directory.one(FileKind.META_PROPERTIES)
    return None if file is None else parse_meta_properties(read_text(file))


def lacks_metadata(directories: Sequence[LogDirectory]) -> bool:
    """Whether directories hold partitions of a KRaft node, and none of them the metadata log that each such node has.

    Brokers and controllers keep one in ``metadata.log.dir`` (``KafkaRaftManager``); one of several ``log.dirs`` has it.
    """
    properties = (meta_properties(directory) for directory in directories)
    if not any(found is not None and found.version == 1 for found in properties):
        return False
    partitions = [partition for directory in directories for partition in directory.partitions if partition.is_plain]
    return bool(partitions) and not any(partition.is_metadata_log for partition in partitions)


def unknown_node(directory: LogDirectory, image: MetadataImage | None) -> str:
    """Return why a directory is of a node that its cluster does not know, one phrase; "" where it is not.

    No file but meta.properties has the id of the cluster, so a wrong one cannot be seen in one directory.
    """
    properties = meta_properties(directory)
    if image is None or properties is None or properties.node_id is None:
        return ""
    voters = {voter["voterId"] for voter in image.voters} | {*image.quorum}
    known = {*image.brokers, *image.controllers, *voters}
    known |= {node for partition in image.partitions.values() for node in partition["replicas"]}
    if not known or properties.node_id in known:
        return ""
    waits = f"waits for {'controller' if len(voters) == 1 else 'controllers'} {_listed(voters)}" if voters else "waits"
    return (
        f"node.id {properties.node_id}, and the cluster's metadata knows only {_nodes(sorted(known))}: such a node "
        f"{waits}, and is a new broker to them, to which none of the partitions here belongs"
    )


DIRECTORY_IDS_SINCE = Release(3, 7, 0)
"""The first release that gives log directories an id."""


def conflicts(
    directories: Sequence[LogDirectory], release: Release | None = None
) -> Iterator[tuple[LogDirectory, str]]:
    """Yield the directories of a broker whose meta.properties does not go with those before it, and why.

    Args:
        release: whose broker reads them; None: one that knows ids of directories.
    """
    ids, first = dict[str, str](), dict[str, tuple[str | int, str]]()
    for directory in directories:
        found = meta_properties(directory)
        if found is None:
            continue
        for name, value in (("cluster.id", found.cluster_id), ("node id", found.node_id)):
            if value is None:
                continue
            expected, root = first.setdefault(name, (value, directory.root))
            if value != expected:
                yield directory, f"{name} {value}, in the meta.properties of {root} it is {expected}"
        if found.directory_id is not None and (release is None or release >= DIRECTORY_IDS_SINCE):
            root = ids.setdefault(found.directory_id, directory.root)
            if root != directory.root:
                yield directory, f"directory.id {found.directory_id} is that of {root}, too"


def is_beside(own: MetaProperties, other: MetaProperties | None) -> bool:
    """Whether a directory is another one of the same broker, and no copy of the same one, as a backup is."""
    if other is None or None in {own.directory_id, other.directory_id, own.node_id}:
        return False
    same = (own.cluster_id, own.node_id) == (other.cluster_id, other.node_id)
    return same and own.directory_id != other.directory_id


def are_of_one_broker(some: Replicas, others: Replicas) -> bool:
    """Whether directories may be the ``log.dirs`` of one broker: none names another cluster or node, and no partition
    lies in two of them, as it does in a copy.
    """
    ids = {(one.cluster_id, one.node_id) for one in (*some.identities, *others.identities) if one is not None}
    return len(ids) <= 1 and some.held.isdisjoint(others.held)


def other_cluster(some: Replicas, others: Replicas) -> str:
    """Say that directories name one node and two clusters, as a wrong volume does; "" where they do not."""
    one, other = (next(filter(None, group.identities), None) for group in (some, others))
    if one is None or other is None or one.node_id is None or one.node_id != other.node_id:
        return ""
    if None in {one.cluster_id, other.cluster_id} or one.cluster_id == other.cluster_id:
        return ""
    return f"both are of node {one.node_id}, of clusters {one.cluster_id} and {other.cluster_id}"


def release_shown(replicas: Replicas) -> Release:
    """Return the release that wrote the directories last, as far as they show it.

    With KRaft it is the newest known patch of the series of ``metadata.version``. A directory of the time of
    ZooKeeper counts as one of 3.x where every partition has leader epochs, which releases before did without.
    """
    found = facts(replicas)
    lowest, highest = (Release.parse(text) for text in release_range(found))
    if any(fact.fact.startswith(METADATA_VERSION) for fact in found):
        return lowest._replace(patch=KNOWN.get(lowest[:2], lowest.patch))
    if replicas.metadata_log is None and not any(fact.fact.startswith("meta.properties is") for fact in found):
        epochs = [log.partition.one(FileKind.LEADER_EPOCHS) for log in replicas.served]
        return COMPARED[1] if all(epochs) else COMPARED[0]
    return highest
