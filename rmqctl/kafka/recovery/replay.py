"""What a broker does to its log directories when it starts: LogManager's part (spec 1, 10.4, 13)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from formats.kafka.checkpoint import OffsetCheckpoint, parse_offsets
from formats.kafka.directory_files import MetaProperties, parse_partition_metadata
from rmqctl.foresight import Effect, Statement
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, REMOTE_CACHE, DirectoryState, FileKind
from rmqctl.kafka.loading.checkpoints import read_text
from rmqctl.kafka.loading.files import Changes, StartFails
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.loading.load import LoadedPartition
from rmqctl.kafka.loading.loads import Loads
from rmqctl.kafka.recovery.losses import Lost, held_by, lost_of
from rmqctl.kafka.state.parts import needs_migration, refused_settings, unread_parts
from rmqctl.kafka.state.replicas import Replicas, conflicts, lacks_metadata, unknown_node
from rmqctl.release import Release
from rmqctl.text import number_of

STRAYS_SINCE = Release(3, 7, 0)
"""The first release that renames directories of partitions that a KRaft broker should not have."""
_READ_FIRST = (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS)


@dataclass
class RecoveredPartition:
    """One partition after the start.

    Attributes:
        is_clean: it was loaded as after an orderly stop.
        stray: why its directory is renamed to ``-stray``, and an empty one made where the partition belongs here; ""
            where it is not.
    """

    loaded: LoadedPartition
    is_clean: bool
    stray: str

    @cached_property
    def lost(self) -> Lost:
        """What it gives up of its records."""
        return Lost() if self.loaded.partition.state is DirectoryState.DELETE else lost_of(self.loaded)

    @property
    def is_stray(self) -> bool:
        """Whether its directory gets another name."""
        return bool(self.stray)

    @cached_property
    def hidden(self) -> Lost:
        """What goes out of service with the directory, though nothing of it is deleted."""
        return held_by(self.loaded.partition) if self.is_stray else Lost()

    @cached_property
    def changes(self) -> Changes:
        """How its files differ afterwards."""
        return self.loaded.files.changes()

    @property
    def key(self) -> str:
        """``topic-0``; the directory's name for a ``-future`` or ``-stray`` one."""
        partition = self.loaded.partition
        return partition.label if partition.is_plain else partition.directory


@dataclass
class Recovery:
    """A start of a broker.

    Attributes:
        release: whose rules were followed.
        error: why it does not start, or what takes a directory offline; None where nothing does.
        offline: a directory goes offline.
        unknown: why it cannot be known which partitions it serves, one phrase; "" where it can.
        partitions: in the order of their names; empty where it does not start.
        unread: parts of the directories that the release does not know.
    """

    release: Release
    error: str | None = None
    offline: bool = False
    starts: bool = True
    unknown: str = ""
    partitions: list[RecoveredPartition] = field(default_factory=list)
    unread: list[Statement] = field(default_factory=list)

    @property
    def lost_records(self) -> int:
        return sum(partition.lost.records for partition in self.partitions)

    @property
    def is_harmless(self) -> bool:
        """Whether the broker starts, loses nothing, and serves every partition as before."""
        unharmed = not (self.offline or self.unknown or self.lost_records or self.hidden)
        return self.starts and unharmed and not any(part.harms for part in self.unread)

    @property
    def hidden(self) -> list[RecoveredPartition]:
        """The partitions that were served, and go out of service with their directories."""
        return [
            partition for partition in self.partitions if partition.is_stray and partition.loaded.partition.is_plain
        ]

    def harm(self, of: str) -> str:
        """What the start changes for the worse, or what cannot be known of it, one phrase; "" where it is harmless.

        Args:
            of: what the broker starts on, such as "the result".
        """
        return "; ".join(filter(None, (self.known_harm(of), self.doubt(of))))

    def doubt(self, of: str) -> str:
        """What cannot be known of the start, one phrase; "" where all can."""
        return f"what a broker of {self.release} serves of {of} cannot be known: {self.unknown}" if self.unknown else ""

    def known_harm(self, of: str) -> str:
        """What the start certainly changes for the worse, one phrase; "" for nothing."""
        broker = f"a broker of {self.release} would"
        if not self.starts or self.offline:
            return f"{broker} not start on {of}: {self.error}"
        found = []
        if self.lost_records:
            found.append(f"cut {number_of(self.lost_records, 'record')} off {of}")
        if hidden := self.hidden:
            records = number_of(sum(partition.hidden.records for partition in hidden), "record")
            count = number_of(len(hidden), "partition")
            found.append(
                f"take {count} with {records} of {of} out of service, as -stray, the first {hidden[0].key}: "
                f"{hidden[0].stray}"
            )
        if without := [part.about for part in self.unread if part.harms]:
            found.append(f"do without {', '.join(without)}")
        return f"{broker} {' and '.join(found)}" if found else ""

    @property
    def removes(self) -> bool:
        """Whether anything goes but derived files: ends of logs, or directories by their name."""
        return any(
            one.lost.records or one.lost.bytes or one.is_stray or one.loaded.stopped_by for one in self.partitions
        )


def recover(
    replicas: Replicas,
    release: Release | None = None,
    settings: Mapping[str, str] | None = None,
    known: Mapping[str, KnownLogs] | None = None,
    only: Container[str] | None = None,
) -> Recovery:
    """Replay the start of a broker of a release; nothing is written.

    Args:
        release: None: that of the replicas, and then their loads are those that all others see.
        settings: of the broker, for what files do not store; None: those of the replicas.
        known: logs that have been read already, by the roots of their directories.
        only: directories of the partitions to load, and the metadata log, as if no others were there; None: all.
    """
    release = release or replicas.release
    found = Recovery(release, unread=list(unread_parts(replicas, release)))
    live = 0
    try:
        _check_identity(replicas, release)
        if why := refused_settings(replicas, release, replicas.settings if settings is None else settings):
            raise StartFails(why)
        _check_metadata(replicas)
        for part in found.unread:
            if part.effect is Effect.REFUSES:
                raise StartFails(part.message)
        _check_nodes(replicas)
        _check_names(replicas)
        for directory, identity in zip(replicas.directories, replicas.identities, strict=True):
            try:
                loads = replicas.loads(directory, release, settings, (known or {}).get(directory.root))
                found.partitions += _Directory(replicas, loads, identity, only).load()
                live += 1
            except StartFails as failure:
                if not failure.offline:
                    raise
                found.offline, found.error = True, failure.message
    except StartFails as failure:
        found.error, found.starts = failure.message, False
    found.starts = found.starts and live > 0
    if not found.starts:
        found.partitions = []
    elif hides_metadata(replicas, release):
        found.unknown = _unknown(len(replicas.served), release)
    found.partitions.sort(key=lambda p: (p.loaded.partition.topic, p.loaded.partition.partition or 0, p.key))
    return found


def hides_metadata(replicas: Replicas, release: Release) -> bool:
    """Whether what a release serves of directories depends on a metadata log that is not among them."""
    return lacks_metadata(replicas.directories) or needs_migration(replicas, release)


def _unknown(partitions: int, release: Release) -> str:
    """Say what the start of a KRaft node depends on where its metadata log is not here."""
    count = number_of(partitions, "partition")
    alone = f"renames {count} to -stray" if release >= STRAYS_SINCE else f"serves none of {count}"
    return (
        f"no directory that was given has {METADATA_TOPIC}-0, the metadata log that each KRaft node has. A node that "
        f"is its own only controller begins an empty one and {alone}; any other fetches it from the controllers"
    )


def _check_identity(replicas: Replicas, release: Release) -> None:
    """Hold the meta.properties of all directories against what a broker needs."""
    if replicas.metadata_log is not None and not any(replicas.identities):
        raise StartFails("no readable meta.properties file is found")
    for identity in replicas.identities:
        if identity is not None and identity.problems:
            raise StartFails(f"meta.properties cannot be used: {identity.problems[0].message}")
    for directory, why in conflicts(replicas.directories, release):
        raise StartFails(f"{directory.root}/meta.properties cannot be used: {why}")


def _check_metadata(replicas: Replicas) -> None:
    """Hold the metadata to what a controller reads: one that cannot apply a snapshot ends, and nobody knows what the
    snapshot said of features.
    """
    image = replicas.image
    for problem in () if image is None else image.problems:
        if image is not None and problem.file == image.snapshot:
            raise StartFails(f"snapshot {problem.file} of the metadata cannot be loaded: {problem.message}")


def _check_nodes(replicas: Replicas) -> None:
    """Hold the nodes that the cluster knows against this one."""
    for directory in replicas.directories:
        if why := unknown_node(directory, replicas.image):
            raise StartFails(f"meta.properties has {why}")


def _check_names(replicas: Replicas) -> None:
    """Look for directories whose names are no partitions', and for two of one partition."""
    seen = dict[tuple[str, int | None, DirectoryState], str]()
    for directory in replicas.directories:
        for name in directory.others:
            if name != REMOTE_CACHE:
                raise StartFails(f"found directory {name}, which is not in the form of topic-partition")
        for partition in directory.partitions:
            key = partition.topic, partition.partition, partition.state
            if partition.state in {DirectoryState.PLAIN, DirectoryState.FUTURE} and key in seen:
                raise StartFails(f"duplicate log directories for {partition.label} are found")
            seen[key] = partition.directory


def _check_link(dangling: Iterable[LogFile], kind: FileKind) -> None:
    """Look for a checkpoint that is a link to nowhere: a broker makes one that is not there, and fails on a link."""
    for link in dangling:
        if link.kind is kind and not link.is_leftover:
            raise StartFails(f"checkpoint file {link.name} cannot be read: NoSuchFileException", offline=True)


class _Directory:
    """The start on one log directory."""

    def __init__(
        self, replicas: Replicas, loads: Loads, identity: MetaProperties | None, only: Container[str] | None
    ) -> None:
        self.replicas, self.loads, self.identity, self.only = replicas, loads, identity, only
        self.directory, self.release = loads.directory, loads.release

    def load(self) -> list[RecoveredPartition]:
        """Load its partitions, that of the metadata first.

        Raises:
            StartFails: as it says.
        """
        found = list[RecoveredPartition]()
        metadata = self.directory.metadata_log
        if metadata is not None:
            found.append(self._load(metadata))
        for kind in _READ_FIRST:
            self._checkpoint(kind)
        served = list(self._served())
        for partition in self._loaded():
            loaded = self._load(partition)
            if partition.state is not DirectoryState.DELETE:
                found.append(loaded)
        if served:
            self._checkpoint(FileKind.HIGH_WATERMARKS)
        return found

    def _served(self) -> Iterator[Partition]:
        return (partition for partition in self._loaded() if partition.state is not DirectoryState.DELETE)

    def _loaded(self) -> Iterator[Partition]:
        """Those that it serves, and those that wait to be deleted, in which a file may keep it from starting."""
        for partition in self.directory.partitions:
            if partition.partition is None or partition.is_metadata_log:
                continue
            if self.only is None or partition.directory in self.only:
                yield partition

    def _load(self, partition: Partition) -> RecoveredPartition:
        _check_link(partition.dangling, FileKind.LEADER_EPOCHS)
        try:
            loaded = self.loads.of(partition)
        except StartFails as failure:
            raise StartFails(f"{partition.directory}: {failure.message}", offline=failure.offline) from failure
        is_clean = self.directory.is_clean and not partition.is_metadata_log
        return RecoveredPartition(loaded, is_clean, self._stray(partition))

    def _checkpoint(self, kind: FileKind) -> OffsetCheckpoint:
        _check_link(self.directory.dangling, kind)
        file = self.directory.one(kind)
        found = OffsetCheckpoint() if file is None else parse_offsets(read_text(file))
        if found.problems:
            raise StartFails(f"checkpoint file {kind} cannot be read: {found.problems[0].message}", offline=True)
        return found

    def _stray(self, partition: Partition) -> str:
        """Return why a KRaft broker should not have a replica; "" where it should (LogManager.isStrayKraftReplica).

        Raises:
            StartFails: its partition.metadata cannot be read.
        """
        file = partition.one(FileKind.PARTITION_METADATA)
        found = None if file is None else parse_partition_metadata(read_text(file))
        if found is not None and found.problems:
            problem = found.problems[0].message
            raise StartFails(f"{partition.directory}/partition.metadata cannot be read: {problem}", offline=True)
        if partition.is_metadata_log or partition.state is DirectoryState.STRAY:
            return ""
        image = self.replicas.image
        if image is None or self.release < STRAYS_SINCE:
            return ""
        if found is None or found.topic_id is None:
            return "it has no partition.metadata that names its topic id"
        known = image.partitions.get((found.topic_id, partition.partition or 0))
        if known is None:
            return f"the cluster has no partition {partition.partition or 0} of the topic with id {found.topic_id}"
        node = self.identity
        if node is None or node.node_id in known["replicas"]:
            return ""
        return f"its replicas are on {', '.join(map(str, known['replicas']))}, and this is node {node.node_id}"
