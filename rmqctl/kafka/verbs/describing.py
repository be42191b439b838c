"""`info` and `metadata` of a log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from formats.kafka.directory_files import (
    MetaProperties,
    parse_quorum_state,
)
from rmqctl import questions
from rmqctl.answer import EVERY_KIND, Answer, Row, Section
from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.directory.releases import metadata_version_name, release_range
from rmqctl.kafka.loading.checkpoints import read_text
from rmqctl.kafka.state.metadata import MetadataImage, image_of_snapshot, metadata_image
from rmqctl.kafka.state.metadata_rows import HEADER, PARTS, image_document, image_rows
from rmqctl.kafka.state.partition_state import PartitionLog, first_timestamp
from rmqctl.kafka.state.past import image_before, reach_of
from rmqctl.kafka.state.replicas import Replicas, facts, meta_properties
from rmqctl.kafka.verbs.looking import begin
from rmqctl.kafka.verbs.past import past_of
from rmqctl.past import RETENTION, SET_BACK, Past, said_time

# --- info -------------------------------------------------------------------------------------------------


def info(replicas: Replicas, kind: str, state: str, asked: questions.Info) -> Answer:
    """Say what is here; with ``explain`` what each fact says about the release.

    Args:
        kind, state: of the store.
    """
    answer = begin(replicas, Answer())
    past = past_of(replicas, asked.time, answer)
    if asked.explain:
        answer.rows = (fact.row() for fact in facts(replicas))
    elif past is not None and not past.is_now:
        answer.document, answer.document_kinds = (
            lambda: past.info({"kind": kind, "at": past.past.at, "state": None, **_info(replicas, answer)}),
            EVERY_KIND,
        )
    else:
        answer.document, answer.document_kinds = (
            lambda: {"kind": kind, "state": state, **_info(replicas, answer)},
            EVERY_KIND,
        )
    return answer


def _info(replicas: Replicas, answer: Answer) -> Row:
    found = [meta_properties(directory) for directory in replicas.directories]
    first = next((properties for properties in found if properties), MetaProperties())
    for directory, properties in zip(replicas.directories, found, strict=True):
        for problem in properties.problems if properties else ():
            answer.is_no = True
            answer.remark(f"{directory.root}/meta.properties: {problem.message}")
    level = replicas.image.features.get("metadata.version") if replicas.image else None
    is_kraft = first.version == 1 or replicas.metadata_log is not None
    files = [file for log in replicas.all for file in log.partition.logs]
    return {
        "mode": "kraft" if is_kraft else "zookeeper",
        "releases": release_range(facts(replicas)),
        "cluster_id": first.cluster_id,
        "node_id": first.node_id,
        "directory_id": first.directory_id,
        "metadata_version": metadata_version_name(level) if level else None,
        "topics": len(replicas.topics),
        "partitions": len(replicas.all),
        "segments": len(files),
        "bytes": sum(max(file.size, 0) for file in files),
        "directories": [_directory(d, p) for d, p in zip(replicas.directories, found, strict=True)],
    }


def segments(replicas: Replicas) -> Answer:
    """List the segments of all partitions, with the time of the first record of each."""
    answer = begin(replicas, Answer())

    def rows() -> Iterator[Row]:
        for log in replicas.all:
            found = log.segments
            ends = [*(segment.base for segment in found[1:]), None][: len(found)]
            for segment, end in zip(found, ends, strict=True):
                file = segment.log
                assert file is not None
                yield {
                    "kind": "segment",
                    "file": file.name,
                    "topic": log.partition.topic,
                    "partition": log.partition.partition,
                    "base_offset": segment.base,
                    "end_offset": log.replayed.log_end_offset if end is None else end,
                    "size": file.size,
                    "first_timestamp": first_timestamp(file),
                }

    answer.rows = rows()
    return answer


def _directory(directory: LogDirectory, properties: MetaProperties | None) -> dict[str, Any]:
    """One of ``log.dirs``, with what a broker removes from it when it starts."""
    states = Counter(partition.state for partition in directory.partitions)
    leftovers = Counter(file.meaning.leftover for file in directory.all_files() if file.is_leftover)
    return {
        "path": directory.root,
        "directory_id": properties.directory_id if properties else None,
        "clean": directory.is_clean,
        "partitions": states[DirectoryState.PLAIN],
        "being_deleted": states[DirectoryState.DELETE],
        "being_moved": states[DirectoryState.FUTURE],
        "stray": states[DirectoryState.STRAY],
        "leftover_files": dict(sorted(leftovers.items())),
        "other_directories": directory.others,
    }


# --- metadata ---------------------------------------------------------------------------------------------


def metadata(replicas: Replicas, asked: questions.Metadata) -> Answer:
    """Show the cluster's metadata as the log, or one snapshot that was pointed at, gives it.

    Raises:
        NotAStore: no metadata log is here.
    """
    at, time, answer = asked.offset, asked.time, begin(replicas, Answer(header=HEADER.split()))
    if time is not None and _is_of_snapshot(replicas):
        raise WrongUsage("--at", "asks for a time of the metadata log, and PATH is one snapshot; give its directory.")
    if time is not None:
        reach = reach_of(_metadata_log(replicas), time)
        answer.remark(said_time(time))
        found = image_before(_metadata_log(replicas), reach.low)
        if found is None or not reach.is_known:
            return _unknown(answer, time, SET_BACK if found else RETENTION, reach.begins)
        at = found.offset
    image = _image(replicas, at)
    answer.rows = image_rows(image)
    answer.document = lambda: image_document(image)
    answer.sections = lambda: _sections(image)
    for problem in image.problems:
        answer.remark(f"{problem.file}: offset {problem.offset}: {problem.message}")
    answer.is_no = bool(image.problems)
    if at is not None and image.offset > at:
        answer.remark(f"nothing before offset {image.offset} is here any more")
    elif at is not None and image.offset < at:
        answer.remark(f"the metadata ends at offset {image.offset}: this is its end, not offset {at}")
    return answer


def _image(replicas: Replicas, at: int | None) -> MetadataImage:
    selected = replicas.place.selected_file
    if selected is not None and _is_of_snapshot(replicas):
        return image_of_snapshot(selected[1])
    log = _metadata_log(replicas)
    image = metadata_image(log, at)
    if image.leader is None and at is None:
        image.leader = _voted_leader(log)
    return image


def _is_of_snapshot(replicas: Replicas) -> bool:
    """Whether the user pointed at one snapshot."""
    selected = replicas.place.selected_file
    return selected is not None and selected[1].kind is FileKind.KRAFT_SNAPSHOT


def _metadata_log(replicas: Replicas) -> PartitionLog:
    log = replicas.metadata_log
    if log is None:
        raise NotAStore(
            replicas.place.root,
            "no __cluster_metadata-0 is in it",
            "give the log directory of a KRaft node (metadata.log.dir), or one of its .checkpoint files",
            wanted="directory with the metadata of a cluster",
        )
    return log


def _unknown(answer: Answer, at: int, reason: str, begins: int | None) -> Answer:
    """Say that the metadata of a time is not known."""
    past = Past(at)
    parts: dict[str, Any] = {**dict.fromkeys(image_document(MetadataImage())), "unknown": {}}
    answer.document = lambda: past.forget(parts, [name for name in parts if name != "unknown"], reason, begins)
    answer.document()
    answer.remarks += past.remarks()
    answer.is_no = True
    return answer


def _voted_leader(log: PartitionLog) -> int | None:
    """Return the leader that quorum-state names."""
    file = log.partition.one(FileKind.QUORUM_STATE)
    leader = parse_quorum_state(read_text(file)).values.get("leaderId") if file else None
    return leader if isinstance(leader, int) and leader >= 0 else None


def _sections(image: MetadataImage) -> Iterator[Section]:
    document = image_document(image)
    end = (
        f"metadata up to offset {image.offset}, epoch {image.epoch}" if image.offset >= 0 else "no metadata record yet"
    )
    start = f"from {image.snapshot} on" if image.snapshot else "from the log"
    yield Section(lines=[f"{end}, {start}"])
    for name, columns in PARTS.items():
        if document[name]:
            yield Section(lines=["", f"{name.replace('_', ' ')}:"], rows=document[name], columns=columns, is_part=True)
