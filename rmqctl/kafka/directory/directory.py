"""A log directory: which partitions, segments and files lie in it, whatever else lies there; and those of a broker.

Discovery goes by names alone and never fails on one. It reads no content but for what a name cannot say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from rmqctl.files.local import ByteSource
from rmqctl.files.moment import is_used
from rmqctl.files.tree import Entry, Tree
from rmqctl.kafka.directory.file_names import (
    CHECKPOINTS,
    METADATA_TOPIC,
    REMOTE_CACHE,
    SEGMENT_KINDS,
    DirectoryState,
    FileKind,
    NameMeaning,
    PartitionName,
    meaning_of,
    partition_of,
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a log directory.

    Attributes:
        name: path relative to the log directory, with ``/``.
        meaning: its name taken apart: kind, base offset, leftover suffix.
        size: bytes, -1 where unknown.
        mtime_ms: last modification in epoch milliseconds.
    """

    tree: Tree
    name: str
    meaning: NameMeaning
    size: int
    mtime_ms: int = 0

    @property
    def kind(self) -> FileKind:
        return self.meaning.kind

    @property
    def base(self) -> int:
        """The offset in its name; 0 where there is none."""
        return self.meaning.base or 0

    @property
    def is_leftover(self) -> bool:
        """Whether it waits to be deleted or renamed: no broker reads it as it is."""
        return bool(self.meaning.leftover)

    def open(self) -> ByteSource:
        """Return the bytes of the file; opened when first read."""
        return self.tree.open(self.name)


@dataclass(slots=True)
class Segment:
    """The files of one base offset that are in use; None for one that is not there."""

    base: int
    log: LogFile | None = None
    offset_index: LogFile | None = None
    time_index: LogFile | None = None
    txn_index: LogFile | None = None


@dataclass(slots=True)
class Partition:
    """A partition's directory.

    Attributes:
        directory: its path relative to the log directory; "" for a lone directory that is the partition itself.
        name: its name taken apart; the topic is the directory's name where that is no partition's.
        segments: ascending by base offset; those of an index without a ``.log`` too.
        files: all files, by name, leftovers and unknown ones too.
        dangling: links that lead nowhere: for a broker no such files are there.
        problem: why the directory cannot be listed, "" where it can.
    """

    directory: str
    name: PartitionName
    segments: list[Segment] = field(default_factory=list)
    files: list[LogFile] = field(default_factory=list)
    dangling: list[LogFile] = field(default_factory=list)
    problem: str = ""

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def partition(self) -> int | None:
        return self.name.partition

    @property
    def state(self) -> DirectoryState:
        return self.name.state

    @property
    def is_plain(self) -> bool:
        """Whether a broker serves it: no ``-future``, ``-delete`` or ``-stray`` directory."""
        return self.state is DirectoryState.PLAIN

    @property
    def is_metadata_log(self) -> bool:
        """Whether it is the log of a KRaft controller."""
        return self.topic == METADATA_TOPIC

    @property
    def label(self) -> str:
        """``topic-0``, as brokers and checkpoints name it."""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    @property
    def snapshots(self) -> list[LogFile]:
        """Producer snapshots in use, ascending."""
        return self.of_kind(FileKind.PRODUCER_SNAPSHOT)

    @property
    def logs(self) -> list[LogFile]:
        """The ``.log`` files in use, ascending."""
        return [segment.log for segment in self.segments if segment.log is not None]

    @property
    def replaced(self) -> frozenset[int]:
        """Base offsets of files that a broker deleted, or has others for: ``.cleaned`` ones it had not yet."""
        return frozenset(
            f.base for f in self.leftovers if f.meaning.leftover != ".cleaned" and f.meaning.base is not None
        )

    def of_kind(self, kind: FileKind) -> list[LogFile]:
        """Files of a kind that are in use, by base offset."""
        found = [f for f in self.files if f.meaning.kind is kind and not f.meaning.leftover]
        return sorted(found, key=lambda f: f.base) if len(found) > 1 else found

    def one(self, kind: FileKind) -> LogFile | None:
        """Return the one file of a kind, such as ``leader-epoch-checkpoint``; None where it is not there."""
        return next(iter(self.of_kind(kind)), None)

    @property
    def leftovers(self) -> list[LogFile]:
        """Files that a broker removes or renames when it starts."""
        return [f for f in self.files if f.is_leftover]


def place_of(partition: Partition | None) -> tuple[str | None, int | None]:
    """Topic and number as rows show them; None for a file that lies in no partition's directory."""
    if partition is None or not partition.topic:
        return None, None
    return partition.topic, partition.partition


@dataclass(slots=True)
class LogDirectory:
    """One directory of ``log.dirs``.

    Attributes:
        tree: the directory itself.
        partitions: by topic and number; ``-future``, ``-delete`` and ``-stray`` ones after the plain one.
        files: files directly in it, by name.
        dangling: links directly in it that lead nowhere: for a broker nothing of such names is there.
        others: names of directories that are no partitions'.
    """

    tree: Tree
    partitions: list[Partition] = field(default_factory=list)
    files: list[LogFile] = field(default_factory=list)
    dangling: list[LogFile] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The directory as the user gave it."""
        return self.tree.root

    def one(self, kind: FileKind) -> LogFile | None:
        """Return the one file of a kind directly in the directory; None where it is not there."""
        return next((f for f in self.files if f.kind is kind and not f.is_leftover), None)

    @property
    def checkpoints(self) -> list[LogFile]:
        """The text files with an offset a partition."""
        return [f for f in self.files if f.kind in CHECKPOINTS and not f.is_leftover]

    @property
    def metadata_log(self) -> Partition | None:
        """The log of the KRaft controller, None where none is here."""
        return next((p for p in self.partitions if p.is_metadata_log and p.is_plain), None)

    @property
    def is_clean(self) -> bool:
        """Whether the marker of an orderly stop is there."""
        return self.one(FileKind.CLEAN_SHUTDOWN) is not None

    def is_running(self) -> bool:
        """Whether a broker holds the lock now; the lock file alone proves nothing."""
        return self.one(FileKind.LOCK) is not None and is_used(self.tree, FileKind.LOCK)

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return the plain partition of a topic and number."""
        return next((p for p in self.partitions if p.is_plain and (p.topic, p.partition) == (topic, number)), None)

    def all_dangling(self) -> Iterable[LogFile]:
        """Every link that leads nowhere, those of the directory itself first."""
        yield from self.dangling
        for partition in self.partitions:
            yield from partition.dangling

    def topics(self) -> list[str]:
        """Names of the topics that have a plain partition here, sorted."""
        return sorted({p.topic for p in self.partitions if p.is_plain})

    def all_files(self) -> Iterable[LogFile]:
        """Every file that was found, those of the directory itself first."""
        yield from self.files
        for partition in self.partitions:
            yield from partition.files


def read_directory(tree: Tree, known: Mapping[str, Partition] = MappingProxyType({})) -> LogDirectory:
    """Return what lies in a log directory.

    Args:
        known: partitions that need not be listed again, by the names of their directories.

    Raises:
        OSError: the directory itself cannot be listed; of a partition that cannot, only the name is known.
    """
    found = LogDirectory(tree)
    for entry in tree.entries(""):
        if not entry.is_directory:
            (found.dangling if entry.is_dangling else found.files).append(_file(tree, entry))
            continue
        name = partition_of(entry.name)
        if name is None or entry.name == REMOTE_CACHE:
            found.others.append(entry.name)
        else:
            found.partitions.append(known.get(entry.name) or read_partition(tree, entry.name, name))
    found.partitions.sort(key=_order)
    return found


def read_partition(tree: Tree, directory: str, name: PartitionName | None = None) -> Partition:
    """Return the segments and files of one directory, whatever it is called.

    Args:
        directory: its path in the tree; "" for the tree's root.
        name: what the directory's name says, where that is known already.
    """
    own = directory.rpartition("/")[2] or tree.root.rstrip("/").rpartition("/")[2]
    found = Partition(directory, name or partition_of(own) or PartitionName(own, None))
    try:
        entries = tree.entries(directory)
    except OSError as error:
        found.problem = f"cannot be listed: {error.strerror or error}"
        return found
    for entry in entries:
        if not entry.is_directory:
            (found.dangling if entry.is_dangling else found.files).append(_file(tree, entry))
    segments: dict[int, Segment] = {}
    for file in found.files:
        if file.kind in SEGMENT_KINDS and not file.is_leftover and file.meaning.base is not None:
            _put(segments.setdefault(file.base, Segment(file.base)), file)
    found.segments = [segments[base] for base in sorted(segments)]
    return found


def proves_log_directory(names: Iterable[str]) -> bool:
    """Whether files of a directory are those that only a log directory has."""
    return any(meaning_of(name).kind in _PROOFS for name in names)


def looks_like_partition(names: Iterable[str]) -> bool:
    """Whether the files of a directory are those of a partition, whatever the directory is called."""
    return any((m := meaning_of(name)).base is not None and m.kind is not FileKind.OTHER for name in names)


_PROOFS = {FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN, *CHECKPOINTS}


def _order(partition: Partition) -> tuple[str, int, bool, str]:
    return partition.topic, partition.partition or 0, not partition.is_plain, partition.directory


def _file(tree: Tree, entry: Entry) -> LogFile:
    return LogFile(tree, entry.path, meaning_of(entry.name), entry.size, entry.mtime_ms)


def _put(segment: Segment, file: LogFile) -> None:
    match file.kind:
        case FileKind.LOG:
            segment.log = file
        case FileKind.OFFSET_INDEX:
            segment.offset_index = file
        case FileKind.TIME_INDEX:
            segment.time_index = file
        case FileKind.TXN_INDEX:
            segment.txn_index = file


@dataclass
class LogDirectories:
    """One or several log directories (``log.dirs``), or the part of one that a user pointed at.

    Attributes:
        directories: in the order given; usually one.
        selection: path inside, "" for all.
        given: how the user named all of them at once, "" where it was each by itself.
    """

    directories: list[LogDirectory]
    selection: str = ""
    given: str = ""

    @property
    def root(self) -> str:
        """The directories as the user gave them."""
        return self.given or ",".join(directory.root for directory in self.directories)

    @property
    def is_clean(self) -> bool:
        """Whether each has the marker of an orderly stop."""
        return all(directory.is_clean for directory in self.directories)

    @property
    def is_running(self) -> bool:
        """Whether a broker holds the lock of one of them."""
        return any(directory.is_running() for directory in self.directories)

    @property
    def size(self) -> int:
        """Bytes of all ``.log`` files in use."""
        return sum(max(log.size, 0) for partition in self.partitions for log in partition.logs)

    @cached_property
    def partitions(self) -> list[Partition]:
        """The partitions of all directories, by topic and number, each directory's own after those before it."""
        found = [partition for directory in self.directories for partition in directory.partitions]
        return sorted(found, key=lambda p: (p.topic, -1 if p.partition is None else p.partition, not p.is_plain))

    @cached_property
    def selected(self) -> list[Partition]:
        """The partitions that the user pointed at: all of them for the root."""
        inside = self.selection.partition("/")[0]
        if not self.selection or inside in {file.name for file in self._top_files()}:
            return self.partitions
        return [partition for partition in self.partitions if partition.directory in {inside, ""}]

    @cached_property
    def selected_file(self) -> tuple[Partition | None, LogFile] | None:
        """The one file that the user pointed at, with its partition; None where it was a directory."""
        for file in self._top_files():
            if file.name == self.selection:
                return None, file
        for partition in self.partitions:
            for file in partition.files:
                if file.name == self.selection:
                    return partition, file
        return None

    def selected_logs(self) -> Iterator[tuple[Partition, LogFile]]:
        """Segments of the selected partitions in the order that dumps show."""
        for partition in self.selected:
            for log in partition.logs:
                yield partition, log

    def _top_files(self) -> Iterable[LogFile]:
        return (file for directory in self.directories for file in directory.files)
