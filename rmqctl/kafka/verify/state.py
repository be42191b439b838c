"""The small files of a partition and of the directory, held against the log: epochs, checkpoints, ids, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from formats.kafka.checkpoint import EpochCheckpoint
from formats.kafka.directory_files import parse_meta_properties, parse_quorum_state
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition
from rmqctl.kafka.directory.file_names import CHECKPOINTS, LONG_MAX, METADATA_TOPIC, DirectoryState, FileKind
from rmqctl.kafka.findings.derived import EPOCH_BATCHES, EPOCH_BEYOND_END, EPOCH_MISSING, EPOCH_ORDER, EPOCH_UNREADABLE
from rmqctl.kafka.findings.directory import (
    CHECKPOINT_BEYOND_END,
    CHECKPOINT_LOG_START,
    CHECKPOINT_UNKNOWN,
    CHECKPOINT_UNREADABLE,
    DIRECTORY_DOUBLE,
    DIRECTORY_EMPTY,
    DIRECTORY_FOREIGN,
    DIRECTORY_IDENTITY,
    DIRECTORY_LEFTOVER,
    DIRECTORY_LOST,
    DIRECTORY_LOST_LOG,
    DIRECTORY_NAME,
    DIRECTORY_NODE,
    DIRECTORY_ORPHAN,
    DIRECTORY_OTHER,
    DIRECTORY_OTHER_ID,
    DIRECTORY_STRAY,
    DIRECTORY_SWAP,
    DIRECTORY_TOPIC_ID,
    FILE_UNREADABLE,
    METADATA_LOG,
    METADATA_REPLAY,
    METADATA_SNAPSHOT,
    QUORUM_STATE,
)
from rmqctl.kafka.findings.log import SEGMENT_MISSING
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.state.metadata import MetadataImage, metadata_image
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Gone, lacks_metadata, unknown_node
from rmqctl.kafka.verify.log import LogCheck
from rmqctl.kafka.verify.producers import COORDINATED
from rmqctl.kafka.verify.sound import SoundLog

_SEGMENT_ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


# --- a partition ------------------------------------------------------------------------------------


def check_epochs(log: PartitionLog, check: LogCheck | SoundLog) -> Iterator[Finding]:
    """Check the leader-epoch-checkpoint against the epochs in the batches."""
    file = log.partition.one(FileKind.LEADER_EPOCHS)
    if file is None:
        if check.epochs and log.partition.is_plain:
            name = f"{log.partition.directory}/{FileKind.LEADER_EPOCHS}".lstrip("/")
            yield Finding(EPOCH_MISSING, name, 0, 0, "it is not there")
        return
    found = log.leader_epochs
    for problem in found.problems:
        yield Finding(EPOCH_UNREADABLE, file.name, problem.offset, problem.size, problem.message)
    if found.problems or log.partition.state is DirectoryState.DELETE:
        return
    if not found.entries:
        if check.epochs:
            yield Finding(EPOCH_MISSING, file.name, 0, 0, "it has no entry")
        return
    yield from _epoch_entries(file, found, log, check)


def _epoch_entries(
    file: LogFile, found: EpochCheckpoint, log: PartitionLog, check: LogCheck | SoundLog
) -> Iterator[Finding]:
    entries = found.entries
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            message = (
                f"epoch {entry.epoch} from offset {entry.start_offset} follows epoch {before.epoch} "
                f"from {before.start_offset}"
            )
            yield Finding(EPOCH_ORDER, file.name, 0, 0, message)
            return
    beyond = [entry for entry in entries if entry.start_offset > check.end_offset]
    for entry in beyond:
        message = f"epoch {entry.epoch} starts at {entry.start_offset}, the log ends at {check.end_offset}"
        yield Finding(EPOCH_BEYOND_END, file.name, 0, 0, message)
    if check.damaged or check.legacy:  # brokers forget epochs while the topic's format is an old one
        return
    stated = {entry.epoch: entry.start_offset for entry in entries}
    start = log.log_start_offset
    for (epoch, offset), (_, end) in pairwise([*check.epochs, (0, check.end_offset)]):
        if epoch not in stated:
            if end <= start:  # a broker forgets epochs that end at or before the log start (``truncateFromStart``)
                continue
            message = f"batches from offset {offset} have epoch {epoch}, which is not in it"
            yield Finding(EPOCH_BATCHES, file.name, 0, 0, message)
            return
        collapsed = entries[0].epoch == epoch  # the log start moved into this epoch
        if stated[epoch] > max(offset, start) and not collapsed:
            message = f"epoch {epoch} starts at {stated[epoch]}, in the batches at {offset}"
            yield Finding(EPOCH_BATCHES, file.name, 0, 0, message)
            return


def check_partition_files(log: PartitionLog, image: MetadataImage | None, *, is_gone: bool) -> Iterator[Finding]:
    """Names of the files of a partition, what is left over, and its topic id.

    Args:
        is_gone: it had records, and no segment is left.
    """
    partition = log.partition
    yield from _dangling(partition.dangling)
    segments = {segment.base for segment in partition.segments if segment.log is not None}
    for file in partition.files:
        meaning = file.meaning
        if meaning.base is not None and meaning.kind is not FileKind.OTHER and not meaning.leftover:
            continue
        name = file.name.rpartition("/")[2]
        if file.is_leftover:
            swap = file.meaning.leftover == ".swap"
            kind = DIRECTORY_SWAP if swap and partition.is_plain else DIRECTORY_LEFTOVER
            yield Finding(kind, file.name, 0, 0, f"{file.meaning.leftover} file of {file.size} bytes")
        elif name.endswith(_SEGMENT_ENDINGS) and file.meaning.base is None:
            message = f"{name} does not begin with an offset of 20 digits, at most {LONG_MAX}"
            yield Finding(DIRECTORY_NAME, file.name, 0, 0, message)
        elif file.kind is FileKind.OTHER:
            yield Finding(DIRECTORY_OTHER, file.name, 0, 0, "no file of a broker has such a name")
    for segment in () if is_gone else partition.segments:
        for index in (segment.offset_index, segment.time_index, segment.txn_index):
            if index is not None and segment.base not in segments:
                message = f"no segment begins at offset {segment.base}"
                yield Finding(DIRECTORY_ORPHAN, index.name, 0, 0, message)
    yield from _lost_start(log, image)
    if not segments and partition.is_plain and not is_gone:
        yield Finding(DIRECTORY_EMPTY, f"{partition.directory}/", 0, 0, "no .log file is in it")
    yield from _topic_id(log, image)


def _lost_start(log: PartitionLog, image: MetadataImage | None) -> Iterator[Finding]:
    """First segments that nothing deleted: the epochs begin before the log, and its topic keeps all records.

    A broker that deletes segments lets the epochs begin with those that are left, where none are in remote storage. So
    where no settings are known, it is a warning.
    """
    partition, epochs = log.partition, log.leader_epochs
    if not partition.is_plain or partition.is_metadata_log or not log.segments or epochs.problems:
        return
    first, entry = log.segments[0].base, min(epochs.entries, key=lambda one: one.start_offset, default=None)
    begin = max(entry.start_offset, log.checkpoints.offset(FileKind.LOG_STARTS, partition) or 0) if entry else first
    before = [segment.base for segment in partition.segments if segment.base < first]
    deleted = {f.meaning.base for f in partition.leftovers if f.meaning.base in range(begin, first)}
    is_left = deleted != {*before}  # the indexes go with a log that a broker deletes
    if entry is None or begin >= first or is_left or not (image is None or _keeps_all(partition, image)):
        return
    keeps = "its topic keeps all" if image is not None else "nothing here says whether it keeps all"
    there = f"epoch {entry.epoch} begins at {entry.start_offset} in {FileKind.LEADER_EPOCHS}, and {keeps}"
    message = f"it is not there, but {there}; offsets {begin} to {first - 1} are missing"
    level = Severity.WARNING if image is None else None
    yield Finding(SEGMENT_MISSING, f"{partition.directory}/{begin:020d}.log", 0, 0, message, severity=level)


def _keeps_all(partition: Partition, image: MetadataImage) -> bool:
    """Whether neither time nor size lets a broker delete segments of a topic, as far as its settings say."""
    own = image.configs.get(("topic", partition.topic), {})
    if own.get("remote.storage.enable", "").lower() == "true":
        return False
    if "delete" not in own.get("cleanup.policy", "delete"):
        return True
    size = own.get("retention.bytes") or image.configs.get(("broker", ""), {}).get("log.retention.bytes", "-1")
    return own.get("retention.ms") == size == "-1"


def _dangling(links: Iterable[LogFile]) -> Iterator[Finding]:
    for link in links:
        message = "it is a link that leads nowhere; for a broker no such file is there"
        yield Finding(FILE_UNREADABLE, link.name, 0, 0, message)


def _topic_id(log: PartitionLog, image: MetadataImage | None) -> Iterator[Finding]:
    partition = log.partition
    file = partition.one(FileKind.PARTITION_METADATA)
    if partition.state is DirectoryState.STRAY:
        message = "its directory is marked as stray"
        yield Finding(DIRECTORY_STRAY, f"{partition.directory}/", 0, 0, message)
    if file is None:
        needed = image is not None and not partition.is_metadata_log and partition.is_plain
        if needed and image is not None and partition.topic in image.topics:
            name = f"{partition.directory}/{FileKind.PARTITION_METADATA}".lstrip("/")
            message = f"it is not there; the cluster's id of the topic is {image.topics[partition.topic]}"
            yield Finding(DIRECTORY_TOPIC_ID, name, 0, 0, message)
    else:
        for problem in log.topic_id_file.problems[:1]:
            yield Finding(DIRECTORY_TOPIC_ID, file.name, problem.offset, problem.size, problem.message)
    if image is None or partition.is_metadata_log or not partition.is_plain:
        return
    wanted, stored = image.topics.get(partition.topic), log.topic_id
    if wanted is None:
        message = f"the cluster's metadata knows no topic {partition.topic}"
        found = Finding(DIRECTORY_STRAY, f"{partition.directory}/", 0, 0, message)
        if image.problems:
            cause = f"the cluster's metadata is damaged: {image.problems[0].message}"
            found = replace(found, cause=cause, folded_under=METADATA_REPLAY.id)
        yield found
    elif stored is not None and stored != wanted and file is not None:
        message = f"topic id {stored}, the cluster's metadata says {wanted}"
        yield Finding(DIRECTORY_OTHER_ID, file.name, 0, 0, message)


def check_gone(found: Iterable[Gone]) -> Iterator[Finding]:
    """Yield partitions that had records of which nothing is left."""
    for gone in found:
        kind = DIRECTORY_LOST if gone.partition is None else DIRECTORY_LOST_LOG
        yield Finding(kind, gone.file, 0, 0, gone.message, topic=gone.topic, partition=gone.number)


# --- the directory ----------------------------------------------------------------------------------


def check_directory(directory: LogDirectory) -> Iterator[Finding]:
    """Yield the files directly in a log directory."""
    yield from _dangling(directory.dangling)
    for name in directory.others:
        if name != "remote-log-index-cache":
            message = f"{name} is no name of a partition's directory"
            yield Finding(DIRECTORY_FOREIGN, f"{name}/", 0, 0, message)
    for file in directory.files:
        if file.is_leftover:
            message = f"{file.meaning.leftover} file of {file.size} bytes"
            yield Finding(DIRECTORY_LEFTOVER, file.name, 0, 0, message)
        elif file.kind is FileKind.OTHER:
            yield Finding(DIRECTORY_OTHER, file.name, 0, 0, "no file of a broker has such a name")
    properties = directory.one(FileKind.META_PROPERTIES)
    if properties is None:
        yield Finding(DIRECTORY_IDENTITY, FileKind.META_PROPERTIES, 0, 0, "it is not there")
    else:
        for problem in parse_meta_properties(read_text(properties)).problems:
            yield Finding(DIRECTORY_IDENTITY, properties.name, problem.offset, problem.size, problem.message)
    labels = Counter(p.label for p in directory.partitions if p.is_plain)
    for label in sorted(name for name, count in labels.items() if count > 1):
        yield Finding(DIRECTORY_DOUBLE, f"{label}/", 0, 0, f"{label} is there {labels[label]} times")


def check_checkpoints(
    directory: LogDirectory, checkpoints: Checkpoints, ends: Mapping[str, int], gone: Container[tuple[str, int]]
) -> Iterator[Finding]:
    """Check the offset checkpoints against the ends of the logs.

    Args:
        ends: the offset after the last batch, by directory of the partition.
        gone: partitions of which it is said elsewhere that they are not here.
    """
    by_name = {(p.topic, p.partition): p for p in directory.partitions if p.is_plain}
    for kind in CHECKPOINTS:
        file = directory.one(kind)
        if file is None:
            continue
        found = checkpoints.of(kind)
        severity = Severity.WARNING if kind is FileKind.CLEANER_OFFSETS else None
        for problem in found.problems:
            yield Finding(CHECKPOINT_UNREADABLE, file.name, problem.offset, problem.size, problem.message, severity)
        for (topic, number), offset in sorted(found.offsets.items()):
            partition = by_name.get((topic, number))
            if partition is None:
                if (topic, number) in gone:
                    continue
                message = f"{topic}-{number} is not in this directory"
                yield Finding(CHECKPOINT_UNKNOWN, file.name, 0, 0, message, topic=topic, partition=number)
                continue
            end = ends.get(partition.directory)
            if end is None or offset <= end:
                continue
            message = f"{topic}-{number} has offset {offset}, its log ends at {end}"
            wrong = CHECKPOINT_LOG_START if kind is FileKind.LOG_STARTS else CHECKPOINT_BEYOND_END
            yield Finding(wrong, file.name, 0, 0, message, topic=topic, partition=number)


# --- the metadata log -------------------------------------------------------------------------------


def read_image(directory: LogDirectory, checkpoints: Checkpoints) -> MetadataImage | None:
    """Return the cluster's metadata; None where the directory has none."""
    partition = directory.metadata_log
    return None if partition is None else metadata_image(PartitionLog(directory, partition, checkpoints))


def leader_epoch(partition: Partition, image: MetadataImage | None) -> int | None:
    """Return the epoch of the last leader that the cluster's metadata knows of a partition; None where nothing does."""
    number = partition.partition
    if image is None or image.problems or number is None or not partition.is_plain:
        return None
    known = image.partitions_of(partition.topic).get(number)
    return None if known is None else int(known["leaderEpoch"])


def is_compacted(partition: Partition, checkpoints: Checkpoints, image: MetadataImage | None) -> bool:
    """Whether a topic is known to be compacted: internally, by its settings, or because the cleaner worked on it."""
    if partition.topic in COORDINATED or partition.partition is None:
        return True
    policy = "" if image is None else image.configs.get(("topic", partition.topic), {}).get("cleanup.policy", "")
    cleaned = checkpoints.of(FileKind.CLEANER_OFFSETS).offsets
    return "compact" in policy or (partition.topic, partition.partition) in cleaned


def check_metadata_is_here(directory: LogDirectory) -> Iterator[Finding]:
    """Check that a KRaft node that has partitions has the metadata log, too."""
    if lacks_metadata([directory]):
        name = f"{METADATA_TOPIC}-0/"
        yield Finding(METADATA_LOG, name, 0, 0, "it is not there, and no other directory that was given has it")


def check_node(directory: LogDirectory, image: MetadataImage | None) -> Iterator[Finding]:
    """Check that the cluster knows the node to which a directory belongs."""
    if why := unknown_node(directory, image):
        yield Finding(DIRECTORY_NODE, FileKind.META_PROPERTIES, 0, 0, why)


def check_metadata(partition: Partition, image: MetadataImage, *, damaged: bool) -> Iterator[Finding]:
    """Check that the metadata log and its snapshots replay without a problem, and that a vote is stored.

    Args:
        damaged: the log holds damage, which is reported already.
    """
    for problem in () if damaged else image.problems:
        yield Finding(METADATA_REPLAY, problem.file, 0, 0, f"offset {problem.offset}: {problem.message}")
    snapshots: Sequence[int] = [f.base for f in partition.of_kind(FileKind.KRAFT_SNAPSHOT)]
    start = partition.logs[0].base if partition.logs else 0
    if start > 0 and not any(end >= start for end in snapshots):
        message = f"the log starts at offset {start}, and no snapshot reaches it"
        yield Finding(METADATA_SNAPSHOT, f"{partition.directory}/", 0, 0, message)
    file = partition.one(FileKind.QUORUM_STATE)
    if file is None:
        name = f"{partition.directory}/{FileKind.QUORUM_STATE}"
        yield Finding(QUORUM_STATE, name, 0, 0, "it is not there")
        return
    for wrong in parse_quorum_state(read_text(file)).problems:
        yield Finding(QUORUM_STATE, file.name, wrong.offset, wrong.size, wrong.message)
