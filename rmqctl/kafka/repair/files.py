"""Files and directories that are mended by their names and by the metadata: strays, swaps, ids, votes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from formats.kafka.directory_files import (
    ZERO_ID,
    MetaProperties,
    format_meta_properties,
    format_partition_metadata,
    is_id,
    is_reserved,
    parse_meta_properties,
)
from rmqctl.files.tree import local_path
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.findings.directory import (
    DIRECTORY_FOREIGN,
    DIRECTORY_IDENTITY,
    DIRECTORY_LOST,
    DIRECTORY_LOST_LOG,
    DIRECTORY_NAME,
    DIRECTORY_STRAY,
    DIRECTORY_SWAP,
    DIRECTORY_TOPIC_ID,
    FILE_UNREADABLE,
    QUORUM_STATE,
)
from rmqctl.kafka.loading.checkpoints import read_text
from rmqctl.kafka.repair.heal import stored_epochs
from rmqctl.kafka.repair.log import Source, is_of_epoch, left_over, leftover_sources
from rmqctl.kafka.repair.survey import Survey
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import PartitionLog, reached_offsets
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verify.state import is_compacted
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Quarantine, Step, placed
from rmqctl.text import number_of

_PIECE = 8 << 20
_SWAP = ".swap"


def left(finding: Finding, why: str) -> Step:
    """Return a step that changes nothing and says why."""
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


# --- names --------------------------------------------------------------------------------------------


def name_steps(directory: LogDirectory, findings: Iterable[Finding], image: MetadataImage | None) -> Iterator[Step]:
    """Move out what keeps a broker from starting, and partitions that the cluster does not know."""
    for finding in findings:
        path = finding.file.rstrip("/")
        if directory.tree.stat(path) is None:
            continue  # moved already
        if finding.kind is DIRECTORY_FOREIGN:
            why = "no broker starts with a directory of such a name"
            yield Step(finding.kind.id, finding.file, "move out", why, (Quarantine(path),))
        elif finding.kind is DIRECTORY_NAME:
            why = "no broker loads a partition with a file of such a name"
            yield Step(finding.kind.id, finding.file, "move out", why, (Quarantine(path),))
        elif finding.kind is DIRECTORY_STRAY and not path.endswith("-stray"):
            if image is None or image.problems:
                yield left(finding, "the metadata log is damaged: it may have lost the topic")
            else:
                why = "the metadata log, which is sound, knows no such topic; a broker would set it aside, too"
                yield Step(finding.kind.id, finding.file, "move out", why, (Quarantine(path),))


_ASIDE = {
    DirectoryState.DELETE: ("waits to be deleted", "rmqctl salvage --deleted takes the records that it still has"),
    DirectoryState.STRAY: ("was set aside", "rmqctl salvage --stray takes the records that it still has"),
    DirectoryState.FUTURE: ("is a copy under way", "move it away, and the broker copies the partition once more"),
}


def link_steps(directory: LogDirectory, findings: Iterable[Finding]) -> Iterator[Step]:
    """Move out links that lead nowhere, in whose place the file is made again where something says what was in it."""
    links = {link.name for link in directory.all_dangling()}
    for finding in findings:
        if finding.kind is FILE_UNREADABLE and finding.file in links:
            why = f"{finding.message}; if what it leads to is only not mounted, mount that instead"
            yield Step(finding.kind.id, finding.file, "move out the link", why, (Quarantine(finding.file),))


def aside_steps(directory: LogDirectory, findings: Iterable[Finding]) -> Iterator[Step]:
    """Move damaged files but logs out of directories that no broker serves: it loads them, too, and may not start.

    Their logs stay as they are.
    """
    states = {p.directory: _ASIDE[p.state] for p in directory.partitions if p.state in _ASIDE}
    there, seen = {file.name for file in directory.all_files()}, set[str]()
    for finding in findings:
        place, slash, name = finding.file.rpartition("/")
        if not slash or place not in states or finding.level is not Severity.ERROR or finding.file in seen:
            continue
        what, way = states[place]
        if finding.file in there and not name.endswith(".log"):
            seen.add(finding.file)
            why = f"{finding.message}; its partition {what}, and a broker does without the file"
            yield Step(finding.kind.id, finding.file, "move out", why, (Quarantine(finding.file),))
        elif place not in seen:
            seen.add(place)
            why = f"the directory {what}, and nobody reads it; {way}"
            yield Step(finding.kind.id, f"{place}/", f"left as it is: {finding.message}", why)


def topic_id_steps(
    directory: LogDirectory, own: Replicas, others: Sequence[Replicas], findings: Iterable[Finding]
) -> Iterator[Step]:
    """Write the partition.metadata that nothing here knows the content of as a replica has it."""
    plain = {p.directory: p for p in directory.partitions if p.is_plain and not p.is_metadata_log}
    for finding in findings:
        partition = plain.get(finding.file.rpartition("/")[0])
        if finding.kind is not DIRECTORY_TOPIC_ID or partition is None:
            continue
        if own.image is not None and partition.topic in own.image.topics:
            continue
        images = [replica.image for replica in others if replica.image is not None]
        ids = {image.topics.get(partition.topic) for image in images}
        ids |= {log.topic_id for replica in others for log in replica.of(partition.topic)}
        ids -= {None}
        if len(ids) != 1:
            why = "the ids that the replicas say differ" if ids else "nothing here says which id its topic has"
            why += "; give a log directory of the cluster that has the topic, or its metadata log, with --from"
            yield left(finding, why)
            continue
        file = partition.one(FileKind.PARTITION_METADATA)
        content = format_partition_metadata(next(iter(ids)) or "")
        before = b"" if file is None else read_text(file)
        why = f"{finding.message}; a replica says which id the topic has"
        yield Step(finding.kind.id, finding.file, "write it", why, written(file, content, before, finding.file))


# --- partitions that are gone -------------------------------------------------------------------------


def lost_steps(
    findings: Iterable[Finding], own: Replicas, others: Sequence[Replicas], room: Callable[[], Path]
) -> Iterator[Step]:
    """Take the logs of partitions that are gone as a whole from the replica that reaches farthest, then has most.

    Where none has any of it, from segments that a broker left over. Damage that a log has there is mended later.
    """
    for finding in findings:
        if finding.kind not in {DIRECTORY_LOST, DIRECTORY_LOST_LOG} or finding.topic is None:
            continue
        label, number = f"{finding.topic}-{finding.partition}", finding.partition or 0
        topic_id = None if own.image is None else own.image.topics.get(finding.topic)
        found = [
            (int(survey.columns["last_offset"].max()), len(survey), log.directory.root, log.partition)
            for replica in others
            if (log := replica.find(finding.topic, number)) is not None
            and log.topic_id in {None, topic_id or log.topic_id}
            and len(survey := Survey(log.partition))
        ]
        log = own.find(finding.topic, number)
        compacted = log is None or is_compacted(log.partition, log.checkpoints, own.image)
        apart = _left_over(log, compacted=compacted) if log is not None and not found else None
        if apart is not None:
            found.append((0, 0, "the files that a broker left over", apart))
        if not found:
            none = "no replica that was given has it" if others else "restore it with --from REPLICA"
            why = f"{none}; without one, rmqctl salvage makes a new log directory of what other copies or files have"
            if log is not None:
                why += left_over(leftover_sources(log.partition), (), log.log_start_offset, -1)
            yield Step(finding.kind.id, f"{label}/", f"left as it is: {finding.message}", why)
            continue
        *_, root, partition = max(found, key=lambda one: one[:2])
        edits = list[Edit]()
        for file in partition.logs:
            here = local_path(file.tree, file.name)
            if here is None:
                _copy_file(file, path := room())
                here = str(path)
            edits += placed(f"{label}/{file.base:020d}.log", Path(here))
        what = f"restore {number_of(len(partition.logs), 'segment')} from {root}"
        yield Step(finding.kind.id, f"{label}/", what, finding.message, tuple(edits))


def _left_over(log: PartitionLog, *, compacted: bool) -> Partition | None:
    """Return the ``.deleted`` and ``.cleaned`` segments of a partition, where they prove to be the log that it had.

    Every batch is of the leader epoch that the log had there, or of a time without them; an index of the first segment
    is in use, as none is of what retention deleted; and the last one reaches all offsets that checkpoints, snapshots
    and indexes state. Of a compacted partition it is one file: of several some may be what the cleaner read, and others
    what it wrote.
    """
    indexes = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    used = sorted(file.base for kind in indexes for file in log.partition.of_kind(kind))
    files = dict[int, LogFile]()
    for file in log.partition.leftovers:
        if file.kind is FileKind.LOG and file.meaning.leftover != _SWAP and used and file.base >= used[0]:
            files[file.base] = max(file, files.get(file.base, file), key=lambda one: one.size)
    segments = [Segment(base, log=file) for base, file in sorted(files.items())]
    found = Partition(log.partition.directory, log.partition.name, segments)
    survey, epochs = Survey(found), stored_epochs(log)
    if not len(survey) or segments[0].base != used[0]:
        return None
    end = int(survey.columns["last_offset"].max()) + 1
    reached = max([used[-1] + 1, log.log_start_offset + 1, *(offset for offset, _ in reached_offsets(log))])
    batches = survey.batches(np.arange(len(survey)))
    is_proven = all(is_of_epoch(batch, epochs) or (batch.magic < 2 and not epochs) for batch in batches)
    return found if is_proven and end >= reached and not (compacted and len(segments) > 1) else None


# --- swaps --------------------------------------------------------------------------------------------


def swap_steps(directory: LogDirectory, room: Callable[[], Path]) -> Iterator[Step]:
    """Put batches of a ``.swap`` log in the place of segments that are gone; then it goes, for the log has them.

    A broker that starts deletes what a swap covers. Segments that hold batches are kept, so only the stretches between
    them are taken, damaged ones too: these are mended like any other.
    """
    for partition in directory.partitions:
        if not partition.is_plain:
            continue
        logs = {source.name: source for source in leftover_sources(partition) if source.name.endswith(_SWAP)}
        for file in partition.leftovers:
            if file.meaning.leftover != _SWAP:
                continue
            made = list(_missing(partition, logs[file.name], room)) if file.name in logs else []
            what, why = "move out", "indexes are made from the log"
            if made:
                names = ", ".join(edit.file.rpartition("/")[2] for edit in made if isinstance(edit, Create))
                what = f"put it in place as {names}"
                why = "it was complete when it got its name, and of what it stands for some is gone"
            elif file.name in logs:
                why = "the segments that it stands for are there"
            yield Step(DIRECTORY_SWAP.id, file.name, what, why, (*made, Quarantine(file.name)))


def _missing(partition: Partition, source: Source, room: Callable[[], Path]) -> Iterator[Edit]:
    """Yield segments of what a swap has and no segment does: from its start, or after one, to the next."""
    survey, own = source.survey, Survey(partition)
    file = survey.files[0]
    bases, lasts, places = (survey.columns[name] for name in ("base_offset", "last_offset", "position"))
    kept = dict[int, tuple[int, int]]()
    for number in np.unique(own.columns["segment"]).tolist():
        rows = own.columns["segment"] == number
        kept[number] = own.files[number].base, int(own.columns["last_offset"][rows].max())
    begin = file.base
    for first, last in (*kept.values(), (1 << 62, 1 << 62)):
        there = np.flatnonzero((bases >= begin) & (bases < first))
        if len(there):
            is_start = begin == file.base
            base = file.base if is_start else int(bases[there[0]])
            later = places[bases >= first]
            stop = int(later[0]) if len(later) else file.size
            _copy_file(file, path := room(), 0 if is_start else int(places[there[0]]), stop)
            for number, log in enumerate(partition.logs):  # nothing in them is whole
                if number not in kept and base <= log.base <= lasts[there[-1]]:
                    yield Quarantine(log.name)
            yield Create(f"{partition.directory}/{base:020d}.log", source=path)
        begin = max(begin, last + 1)


def _copy_file(file: LogFile, path: Path, begin: int = 0, end: int | None = None) -> None:
    source, stop = file.open(), file.size if end is None else end
    try:
        with open(path, "wb") as made:
            made.writelines(source.read_at(at, min(_PIECE, stop - at)) for at in range(begin, stop, _PIECE))
    finally:
        source.close()


# --- who the directory is -----------------------------------------------------------------------------


def identity_steps(
    directory: LogDirectory, replicas: Replicas, others: Sequence[Replicas], findings: Iterable[Finding]
) -> Iterator[Step]:
    """Write meta.properties with what it still says, what the metadata log says, and the cluster id of a replica."""
    finding = next((f for f in findings if f.kind is DIRECTORY_IDENTITY), None)
    if finding is None:
        return
    file = directory.one(FileKind.META_PROPERTIES)
    data = b"" if file is None else read_text(file)
    stored, image = parse_meta_properties(data), replicas.image
    if image is None:
        yield left(
            finding,
            "no metadata log is here; a broker writes it by its settings, or as in its other directories",
        )
        return
    node = stored.node_id if stored.node_id is not None else _node(directory, image)
    cluster = stored.cluster_id or next((found.cluster_id for found in map(_identity, others) if found), None)
    why = "the metadata log says which node it is"
    if cluster is None and len({*image.brokers, *image.controllers}) <= 1:
        cluster, why = _id_of(image), f"{why}; its cluster has no other node, so a new cluster id does"
    if node is None or cluster is None:
        missing = "which node it is" if node is None else "the id of its cluster"
        yield left(finding, f"nothing here says {missing}; give a log directory of another node with --from")
        return
    id_there = stored.directory_id or ""
    own = id_there if is_id(id_there) and not is_reserved(id_there) else None
    made = format_meta_properties(1, node, cluster, own or _directory_id(directory, image, node))
    yield Step(finding.kind.id, finding.file, f"write node {node}, cluster {cluster}", why, written(file, made, data))


def _id_of(image: MetadataImage) -> str:
    """Return an id made from what the metadata log holds, so that a plan is the same each time that it is made."""
    seed = "".join(sorted({*image.topics.values(), *(str(v["incarnationId"]) for v in image.brokers.values())}))
    text = base64.urlsafe_b64encode(hashlib.sha256(seed.encode()).digest()[:16]).rstrip(b"=").decode("ascii")
    return "k" + text[1:]


def written(file: LogFile | None, content: bytes, before: bytes = b"", name: str = "") -> tuple[Edit, ...]:
    """Edits that give a small file its content."""
    if file is None:
        return (Create(name or str(FileKind.META_PROPERTIES), content),)
    return (Cut(file.name, len(before), 0), *appended(file.name, 0, content))


def appended(name: str, size: int, content: bytes) -> Iterator[Edit]:
    """Edits that put bytes at the end of a file."""
    yield Extend(name, size, size + len(content))
    yield Overwrite(name, size, bytes(len(content)), content)


def _identity(replicas: Replicas) -> MetaProperties | None:
    file = replicas.directories[0].one(FileKind.META_PROPERTIES)
    return None if file is None else parse_meta_properties(read_text(file))


def _node(directory: LogDirectory, image: MetadataImage) -> int | None:
    """Return the only node that has a replica of every partition here; without partitions, the only node there is."""
    nodes = {*image.brokers, *image.controllers}
    for partition in directory.partitions:
        topic = image.topics.get(partition.topic)
        known = image.partitions.get((topic or "", partition.partition or 0))
        if partition.is_plain and known is not None:
            nodes &= set(known["replicas"])
    return next(iter(nodes)) if len(nodes) == 1 else None


def _directory_id(directory: LogDirectory, image: MetadataImage, node: int) -> str | None:
    """Return the id of the directory in which the node has the partitions that are here."""
    found = set[str]()
    for partition in directory.partitions:
        topic = image.topics.get(partition.topic)
        known = image.partitions.get((topic or "", partition.partition or 0))
        if partition.is_plain and known is not None and node in known["replicas"]:
            ids = known.get("directories") or []
            at = known["replicas"].index(node)
            found |= set(ids[at : at + 1])
    known_ids = {number for number in found if not number.startswith(ZERO_ID[:-1])}
    if len(known_ids) == 1:
        return known_ids.pop()
    dirs = (image.brokers.get(node) or {}).get("logDirs") or []
    return dirs[0] if len(dirs) == 1 else None


# --- the vote -----------------------------------------------------------------------------------------


def vote_steps(partition: Partition | None, image: MetadataImage | None, findings: Iterable[Finding]) -> Iterator[Step]:
    """Write a quorum-state without a vote, in the epoch that the metadata log has reached."""
    finding = next((f for f in findings if f.kind is QUORUM_STATE), None)
    if finding is None or partition is None or image is None:
        return
    file = partition.one(FileKind.QUORUM_STATE)
    state: dict[str, object] = {"leaderId": -1, "leaderEpoch": max(image.epoch, 0), "votedId": -1}
    if image.kraft_version >= 1:
        state |= {"votedDirectoryId": ZERO_ID, "data_version": 1}
    elif image.quorum:
        voters = [{"voterId": number} for number in image.quorum]
        state = {"clusterId": "", **state, "appliedOffset": 0, "currentVoters": voters, "data_version": 0}
    else:
        yield left(finding, "no leader change in the metadata log says who votes; a broker begins without a vote")
        return
    content = json.dumps(state, separators=(",", ":")).encode("ascii")
    before = b"" if file is None else read_text(file)
    why = f"epoch {max(image.epoch, 0)} is the last in the metadata log; a vote in a later one is not known"
    yield Step(finding.kind.id, finding.file, "write it", why, written(file, content, before, finding.file))
