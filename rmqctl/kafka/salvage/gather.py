"""What there is to salvage: the copies of each partition in all sources, and what the sources know of its topic."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from formats.kafka.directory_files import parse_meta_properties
from rmqctl.answer import Advance
from rmqctl.errors import WrongUsage
from rmqctl.files.tree import ForgivingTree, LocalTree, Refusals, join
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.findings.directory import FILE_UNREADABLE
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.replication.copies import Copy, copy_at, copy_of_files
from rmqctl.kafka.replication.union import covered
from rmqctl.kafka.state.metadata import MetadataImage, topic_names_ever
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas

COMPACTED = {"cleanup.policy": "compact"}
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_ID_DIGITS = 8
_IN_PLACE_OF_OTHERS = (".swap", ".cleaned")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to take beside the partitions that a broker serves.

    Attributes:
        deleted, stray: directories that wait to be deleted, and those the cluster had no use for.
        partition: topic and number of files that lie in no partition's directory.
    """

    deleted: bool = False
    stray: bool = False
    partition: tuple[str, int] | None = None


@dataclass
class Found:
    """A partition in the sources.

    Attributes:
        copies, sources: each copy, and the number of its source.
        leftovers: logs of segments that a broker had begun to delete, to clean or to put in place.
    """

    topic: str
    number: int
    topic_id: str | None = None
    copies: list[Copy] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    leftovers: list[LogFile] = field(default_factory=list)


@dataclass
class Source:
    """One log directory, or several of one broker.

    Attributes:
        refusals: what the system refused to read, by name of the file.
    """

    name: str
    replicas: Replicas
    refusals: Refusals = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, logs: LogDirectories) -> Source:
        """Return log directories as a source; pages of local files that cannot be read are zeros."""
        refusals: Refusals = {}
        directories = [_forgiving(directory, refusals) for directory in logs.directories]
        return cls(name, Replicas(LogDirectories(directories, logs.selection)), refusals)

    @property
    def size(self) -> int:
        return self.replicas.place.size

    @property
    def image(self) -> MetadataImage | None:
        return self.replicas.image

    @property
    def identity(self) -> tuple[str | None, int | None]:
        """Cluster and node."""
        for directory in self.replicas.directories:
            file = directory.one(FileKind.META_PROPERTIES)
            if file is not None:
                found = parse_meta_properties(read_text(file))
                return found.cluster_id, found.node_id
        return None, None

    def unreadable(self) -> Iterator[Finding]:
        """Yield what the system refused to read."""
        for partition in self.replicas.place.partitions:
            if partition.problem:
                yield Finding(FILE_UNREADABLE, partition.directory, 0, 0, partition.problem)
        for name, (error, offset) in sorted(self.refusals.items()):
            yield Finding(FILE_UNREADABLE, name, offset, 0, f"cannot be read: {error.strerror or error}")


def gather(sources: Sequence[Source], wanted: Wanted, advance: Advance = lambda _: None) -> list[Found]:
    """Read all copies of all partitions.

    Raises:
        WrongUsage: files lie in no partition's directory, and nobody says whose they are.
    """
    found: dict[tuple[str, int], Found] = {}
    for number, source in enumerate(sources):
        names = _Names(source)
        served = {(log.partition.topic, log.partition.partition): log.topic_id for log in source.replicas.served}
        checkpoints = {id(d): Checkpoints(d) for d in source.replicas.directories}
        for directory, partition in _partitions(source, wanted):
            log = PartitionLog(directory, partition, checkpoints[id(directory)])
            topic, partition_number = names.place_of(log, wanted)
            topic_id = source.replicas.topic_id(log) if partition.is_plain else log.topic_id
            plain = served.get((topic, partition_number))
            if not partition.is_plain and topic_id is not None and plain not in (None, topic_id):
                topic = f"{topic}.{topic_id.replace('_', '').replace('-', '')[:_ID_DIGITS]}"
            one = found.setdefault((topic, partition_number), Found(topic, partition_number))
            one.topic_id = one.topic_id or topic_id
            name = join(source.name, partition.directory)
            one.copies.append(copy_at(source.replicas.place, log, name, advance))
            one.sources.append(number)
            _take_leftovers(one, name, partition)
    return [found[key] for key in sorted(found)]


def _take_leftovers(one: Found, name: str, partition: Partition) -> None:
    """Add what a broker left over; a copy of its own is what had been about to replace segments that are gone."""
    for file in partition.leftovers:
        if file.kind is not FileKind.LOG:
            continue
        if file.meaning.leftover in _IN_PLACE_OF_OTHERS:
            copy = copy_of_files(f"{name}/{file.name.rpartition('/')[2]}", [file])
            if not covered(copy.batches, one.copies[-1].batches, epochs=False).all():
                one.copies.append(copy)
                one.sources.append(one.sources[-1])
                continue
        one.leftovers.append(file)


def _partitions(source: Source, wanted: Wanted) -> Iterator[tuple[LogDirectory, Partition]]:
    """Yield the directories to take, those that brokers serve first."""
    states = [DirectoryState.PLAIN, DirectoryState.FUTURE]
    states += [DirectoryState.DELETE] if wanted.deleted else []
    states += [DirectoryState.STRAY] if wanted.stray else []
    selected = {id(partition) for partition in source.replicas.place.selected}
    for state in states:
        for directory in source.replicas.directories:
            for partition in directory.partitions:
                if partition.state is state and id(partition) in selected and not partition.is_metadata_log:
                    yield directory, partition


class _Names:
    """Whose a directory is."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._ever: dict[str, str] | None = None

    def place_of(self, log: PartitionLog, wanted: Wanted) -> tuple[str, int]:
        """Topic and number of a partition.

        Raises:
            WrongUsage: neither its name nor the user says.
        """
        partition = log.partition
        if partition.partition is not None and partition.is_plain:
            return partition.topic, partition.partition
        if partition.is_plain:
            if wanted.partition is None:
                what = partition.directory or self.source.name
                raise WrongUsage("--partition", f"TOPIC/NUMBER is needed: the name of {what} says no partition.")
            return wanted.partition
        topic = self.ever.get(log.topic_id or "", partition.topic)
        number = partition.partition
        if number is None:
            raise WrongUsage("PATH", f"{partition.directory} was cut so short that it names no partition; rename it.")
        return topic, number

    @property
    def ever(self) -> dict[str, str]:
        """Names of all topics that the metadata log still names, the deleted ones too, by id."""
        if self._ever is None:
            log = self.source.replicas.metadata_log
            self._ever = {} if log is None else topic_names_ever(log)
        return self._ever


def _forgiving(directory: LogDirectory, refusals: Refusals) -> LogDirectory:
    """Return a log directory whose local files never stop a reader."""
    tree = directory.tree
    if not isinstance(tree, LocalTree):
        return directory
    if isinstance(tree, ForgivingTree):  # of a running broker, as it was at a moment
        tree.refusals = refusals
        return directory
    kind = ForgivingTree(tree, "", refusals)

    def of(file: LogFile | None) -> LogFile | None:
        return None if file is None else replace(file, tree=kind)

    def segment(one: Segment) -> Segment:
        return Segment(one.base, of(one.log), of(one.offset_index), of(one.time_index), of(one.txn_index))

    partitions = [
        replace(p, segments=[segment(s) for s in p.segments], files=[replace(f, tree=kind) for f in p.files])
        for p in directory.partitions
    ]
    for link in directory.all_dangling():
        refusals.setdefault(link.name, (FileNotFoundError(errno.ENOENT, "the link leads nowhere"), 0))
    return replace(directory, tree=kind, partitions=partitions, files=[replace(f, tree=kind) for f in directory.files])


def settings_of(sources: Sequence[Source], one: Found) -> dict[str, str]:
    """Return the settings that a topic had, as the first source that knows it says; else whether it was compacted."""
    for source in sources:
        if source.image is not None and one.topic in source.image.topics:
            return dict(source.image.configs.get(("topic", one.topic), {}))
    is_compacted = one.topic in _INTERNAL or any(copy.cleaned_to for copy in one.copies)
    return dict(COMPACTED) if is_compacted else {}
