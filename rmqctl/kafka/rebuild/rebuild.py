"""`rebuild` of a log directory: every derived file as the logs give it, held against what is there.

A file with other bytes that answers alike stays: index entries depend on when a broker was started, and followers and
the cleaner write fewer. Whether it answers alike is what `verify` says of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from formats.kafka.checkpoint import PartitionOffset, format_offsets, parse_offsets
from formats.kafka.directory_files import METADATA_TOPIC_ID, format_partition_metadata, is_id
from formats.kafka.messages import uuid_bytes
from rmqctl.files.local import without_room
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import CHECKPOINTS, DirectoryState, FileKind
from rmqctl.kafka.findings.derived import SNAPSHOT_MISSING, TXN_INDEX_ENTRY
from rmqctl.kafka.findings.directory import CHECKPOINT_UNKNOWN
from rmqctl.kafka.findings.log import (
    BATCH_BASE_OFFSET,
    BATCH_CRC,
    BATCH_CUT,
    BATCH_LEADER_EPOCH,
    BATCH_LENGTH,
    BATCH_MAGIC,
    BATCH_OFFSET_ORDER,
    BATCH_SIZE,
    BATCH_WRAPPER,
    BATCH_ZERO_END,
    BATCH_ZEROS,
    SEGMENT_EMPTIED,
    SEGMENT_MISSING,
)
from rmqctl.kafka.loading.checkpoints import read_text
from rmqctl.kafka.loading.files import Content
from rmqctl.kafka.loading.loads import setting_of
from rmqctl.kafka.rebuild.build import Builder, Built, interval_of, is_index
from rmqctl.kafka.recovery.plan import content_edits
from rmqctl.kafka.state.metadata import topic_names_ever
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.kafka.verify.splits import Headers
from rmqctl.repair.edits import Create, Edit, Plan, Quarantine, Step

_DESTROYED = 2
"""Bytes of an id that may be wrong where the 14 others prove which one it was."""
_NOT_OVER = (
    "its records are of the topic of that id, so it is not written over; a broker sets the directory aside (-stray) "
    "and begins an empty one: put the partition's own directory in its place"
)
PARTS = ("index", "checkpoint")
_OF_LOGS = {
    BATCH_CRC, BATCH_SIZE, BATCH_MAGIC, BATCH_ZEROS, BATCH_CUT, BATCH_LENGTH,
    BATCH_ZERO_END, BATCH_BASE_OFFSET, BATCH_OFFSET_ORDER, BATCH_LEADER_EPOCH, BATCH_WRAPPER,
    SEGMENT_MISSING, SEGMENT_EMPTIED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One derived file.

    Attributes:
        name: relative to the log directory.
        change: ``equal`` bytes; ``keep``: other bytes, equal answers; ``create``, ``replace``, ``remove``.
        why: what is wrong with the one that is there, "" where nothing is.
        id: of that finding, else ``rebuild.file``.
        content: what it is to hold.
    """

    name: str
    change: str
    content: bytes = b""
    why: str = ""
    id: str = "rebuild.file"

    def row(self) -> dict[str, object]:
        """Return the change as a row."""
        return {"file": self.name, "change": self.change, "bytes": len(self.content), "why": self.why}


@dataclass
class Rebuilt:
    """What a rebuild of one log directory comes to.

    Attributes:
        changes: by name.
        left: why a file could not be built, by its name.
        damage: findings in the logs themselves: what lies there leaves no trace in what is derived.
        partitions: number of partitions that were read.
        built: by directory of the partition.
    """

    root: str
    changes: list[Change] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    damage: list[Finding] = field(default_factory=list)
    partitions: int = 0
    built: dict[str, Built] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """Return counts for the end of the answer."""
        counts = Counter(change.change for change in self.changes)
        names = ("equal", "keep", "create", "replace", "remove")
        return {"partitions": self.partitions, "files": {name: counts[name] for name in names}, "left": len(self.left)}

    def plan(self, directory: LogDirectory) -> Plan:
        """Return the edits that put the files in place."""
        return Plan(Path(directory.root), f"rebuild {directory.root}", tuple(self.steps(directory)))

    def steps(self, directory: LogDirectory) -> Iterator[Step]:
        """One step a file that changes."""
        there = {file.name: file for file in directory.all_files()}
        dangling = {link.name for link in directory.all_dangling()}
        for change in self.changes:
            edits = tuple(_edits(change, there.get(change.name)))
            if change.change == "create" and change.name in dangling:
                edits = (Quarantine(change.name), *edits)
            if edits:
                why = change.why or "it is made from the log"
                yield Step(change.id, change.name, _WORDS[change.change], why, edits)


_WORDS = {"create": "make", "replace": "write again", "remove": "move out"}


def _edits(change: Change, file: LogFile | None) -> Iterator[Edit]:
    if change.change == "remove":
        yield Quarantine(change.name)
    elif change.change == "create":
        yield Create(change.name, change.content)
    elif change.change == "replace" and file is not None:
        before = Content(file, b"", file.size, file.size)
        yield from content_edits(change.name, before, Content(None, change.content, *[len(change.content)] * 2))


@dataclass
class RebuildOptions:
    """What to rebuild.

    Attributes:
        parts: of :data:`PARTS`; empty: all.
        topics: names; empty: all.
        settings: of the broker.
        fresh: the content of what answers alike is that which was made, not that which is there.
        processes: that share the logs while they are verified.
        only: directories of the partitions that may need it; None: any.
        findings: what verify finds at least at the level ``structure``; None: it is asked.
    """

    parts: Sequence[str] = ()
    topics: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    processes: int = 1
    only: frozenset[str] | None = None
    findings: Sequence[Finding] | None = None

    def wants(self, name: str) -> bool:
        """Whether a file is one of the parts."""
        return not self.parts or ("index" if is_index(name) else "checkpoint") in self.parts


def rebuild(
    replicas: Replicas, directory: LogDirectory, wanted: RebuildOptions, advance: Callable[[str], object] = str
) -> Rebuilt:
    """Make the derived files of one log directory and compare them with those that are there.

    Args:
        replicas: of all log directories of the broker; the metadata log may lie in another one.
        advance: called with the name of each partition.
    """
    return _Rebuild(replicas, directory, wanted, advance).run()


class _Rebuild:
    def __init__(
        self, replicas: Replicas, directory: LogDirectory, wanted: RebuildOptions, advance: Callable[[str], object]
    ) -> None:
        self.replicas, self.directory, self.wanted, self.advance = replicas, directory, wanted, advance
        self.found = Rebuilt(directory.root)
        self.wrong: dict[str, list[Finding]] = {}
        self.builders: dict[str, Builder | None] = {}

    def run(self) -> Rebuilt:
        found = self.found
        logs = {log.partition.directory: log for log in self.replicas.all if self._is_wanted(log)}
        self._verify(logs)
        for name, log in logs.items():
            self.advance(name)
            self._partition(log)
        if not self.wanted.topics:
            for kind in CHECKPOINTS:
                self._checkpoint(kind)
        found.changes = sorted((c for c in found.changes if self.wanted.wants(c.name)), key=lambda c: c.name)
        return found

    def _is_wanted(self, log: PartitionLog) -> bool:
        topics, only = self.wanted.topics, self.wanted.only
        if log.directory is not self.directory or (topics and log.partition.topic not in topics):
            return False
        return only is None or log.partition.directory in only

    def _watch(
        self, logs: Mapping[str, PartitionLog], partition: Partition, segment: Segment, headers: Headers | OSError
    ) -> None:
        """Build a large log from what verify sees of it, so that it is read once."""
        name = partition.directory
        if name not in logs:
            return
        if name not in self.builders:
            self.builders[name] = self._builder(logs[name])
        builder = self.builders[name]
        if isinstance(headers, OSError):
            self.builders[name] = None  # whoever reads it again says why it cannot be read
        elif builder is not None:
            if builder.segment is not segment:
                builder.begin(segment)
            builder.add(headers, headers.markers.get)

    def _verify(self, logs: Mapping[str, PartitionLog]) -> None:
        found: Iterable[Finding] | None = self.wanted.findings
        if found is None:
            options = VerifyOptions("structure", processes=self.wanted.processes)
            found = Verification(
                self.directory, options, image=self.replicas.image, watch=partial(self._watch, logs)
            ).findings()
        for finding in found:
            if finding.kind in _OF_LOGS:
                self.found.damage.append(finding)
            elif finding.level is not Severity.NOTE or finding.kind is SNAPSHOT_MISSING:
                self.wrong.setdefault(finding.file, []).append(finding)

    # --- a partition ----------------------------------------------------------------------------------

    def _partition(self, log: PartitionLog) -> None:
        partition, found = log.partition, self.found
        found.partitions += 1
        builder = self.builders.pop(partition.directory, None)
        made = found.built[partition.directory] = self._builder(log).run() if builder is None else builder.finish()
        there = {file.name: file for file in partition.files if not file.is_leftover}
        prefix = f"{partition.directory}/".lstrip("/")
        found.left |= {prefix + name: why for name, why in made.left.items()}
        last = partition.logs[-1].name.rpartition("/")[2].removesuffix(".log") if partition.logs else ""
        for name in made.names:
            growing = name.startswith(last) and is_index(name) and not self.directory.is_clean
            self._judge(prefix + name, made.content(name), there.get(prefix + name), growing=growing)
        self._superfluous(partition, {prefix + name for name in (*made.names, *made.left)})
        self._topic_id(log)

    def _builder(self, log: PartitionLog) -> Builder:
        partition = log.partition
        interval = interval_of(partition, setting_of(self.replicas.configs, self.wanted.settings, partition.topic))
        return Builder(log, interval, at_end=self.directory.is_clean and not partition.is_metadata_log)

    def _judge(self, name: str, content: bytes, file: LogFile | None, *, growing: bool = False) -> None:
        """Compare a file with what it is to hold."""
        if file is None:
            if content or not name.endswith(".txnindex"):
                finding = next(iter(self.wrong.get(name, ())), None)
                self._add(name, "create", content, finding)
            return
        stored = read_text(file)
        finding = next(iter(self.wrong.get(name, ())), None)
        is_room = growing and finding is None and without_room(stored) == without_room(content)
        is_equal = stored == content or is_room
        if is_equal:
            self.found.changes.append(Change(name, "equal", content))
        elif finding is not None:
            self._add(name, "replace", content, finding)
        else:
            self.found.changes.append(Change(name, "keep", content if self.wanted.fresh else stored))

    def _add(self, name: str, change: str, content: bytes, finding: Finding | None) -> None:
        if finding is None:
            self.found.changes.append(Change(name, change, content))
        else:
            self.found.changes.append(Change(name, change, content, finding.message, finding.kind.id))

    def _superfluous(self, partition: Partition, built: set[str]) -> None:
        """Indexes without a segment, and what is wrong and not to be made: snapshots and indexes of nothing."""
        for file in partition.files:
            if file.is_leftover or file.name in built:
                continue
            finding = next(iter(self.wrong.get(file.name, ())), None)
            is_derived = file.kind is FileKind.PRODUCER_SNAPSHOT or is_index(file.name)
            if finding is not None and is_derived and finding.kind is not TXN_INDEX_ENTRY:
                self._add(file.name, "remove", b"", finding)
            elif finding is not None and is_derived:
                self._add(file.name, "replace", b"", finding)

    def _topic_id(self, log: PartitionLog) -> None:
        """Make the partition.metadata as the metadata log has it, else as other partitions of the topic do."""
        partition = log.partition
        if partition.state is not DirectoryState.PLAIN:
            return
        name = f"{partition.directory}/{FileKind.PARTITION_METADATA}".lstrip("/")
        finding = next(iter(self.wrong.get(name, ())), None)
        if partition.is_metadata_log:
            if finding is not None:
                content = format_partition_metadata(METADATA_TOPIC_ID)
                self._judge(name, content, partition.one(FileKind.PARTITION_METADATA))
            return
        image = self.replicas.image
        topic_id = None if image is None else image.topics.get(partition.topic)
        if topic_id is None and finding is not None:
            ids = {other.topic_id for other in self.replicas.of(partition.topic)} - {None}
            topic_id = next(iter(ids)) if len(ids) == 1 else None
        if topic_id is None:
            return
        file = partition.one(FileKind.PARTITION_METADATA)
        stored = None if file is None else log.topic_id
        if stored is not None and stored != topic_id and not is_flipped(stored, topic_id, self._named):
            self.found.left[name] = f"its id is {stored}{self._whose(stored)}, the cluster's {topic_id}: {_NOT_OVER}"
            return
        self._judge(name, format_partition_metadata(topic_id), file)

    def _whose(self, topic_id: str) -> str:
        """Say whose id one is, as far as the metadata log knows."""
        image, name = self.replicas.image, self._named.get(topic_id)
        if name is None:
            return ", which the metadata log does not name"
        is_there = image is not None and image.topics.get(name) == topic_id
        return f", that of topic {name}{'' if is_there else ', which was deleted'}"

    @cached_property
    def _named(self) -> dict[str, str]:
        """Names of all topics, those that were deleted too, by their ids."""
        metadata = self.replicas.metadata_log
        return {} if metadata is None else topic_names_ever(metadata)

    # --- the directory --------------------------------------------------------------------------------

    def _checkpoint(self, kind: FileKind) -> None:
        """Make a checkpoint of the lines that can be read and that the logs do not contradict."""
        file = self.directory.one(kind)
        findings = [f for f in self.wrong.get(str(kind), ()) if f.kind is not CHECKPOINT_UNKNOWN]
        is_needed = kind is FileKind.RECOVERY_POINTS and self.directory.is_clean
        if file is None and not is_needed:
            return
        stored = () if file is None else parse_offsets(read_text(file)).entries
        kept = dict[tuple[str, int], int]()
        ends = self._ends()
        for entry in stored:
            key, end = (entry.topic, entry.partition), ends.get((entry.topic, entry.partition))
            if end is None or 0 <= entry.offset <= end:
                kept[key] = entry.offset
            elif kind in {FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS} and entry.offset > end:
                kept[key] = end
        if is_needed:
            kept = {**{key: end for key, end in ends.items() if not key[0].startswith("__cluster_metadata")}, **kept}
        content = format_offsets(PartitionOffset(*key, offset) for key, offset in kept.items())
        if file is None or findings:
            self._judge(str(kind), content, file)
        else:
            self.found.changes.append(Change(str(kind), "equal", read_text(file)))

    def _ends(self) -> dict[tuple[str, int], int]:
        """Where the logs end, by topic and partition."""
        found = dict[tuple[str, int], int]()
        for log in self.replicas.all:
            made = self.found.built.get(log.partition.directory)
            if made is not None and log.directory is self.directory and log.partition.partition is not None:
                found[log.partition.topic, log.partition.partition] = made.end_offset
        return found


def is_flipped(stored: str, right: str, named: Mapping[str, str]) -> bool:
    """Whether an id is another one with a byte or two destroyed: no topic ever had it, and all other bytes agree."""
    if stored in named or not is_id(stored):
        return False
    pairs = zip(uuid_bytes(stored), uuid_bytes(right), strict=True)
    return sum(mine != theirs for mine, theirs in pairs) <= _DESTROYED


def write_into(rebuilt: Rebuilt, into: Path) -> None:
    """Write the files that were made to a directory, each under its own name."""
    for change in rebuilt.changes:
        if change.change != "remove":
            path = into / change.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(change.content)
