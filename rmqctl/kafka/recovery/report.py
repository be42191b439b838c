"""A broker's start on log directories as the JSON object of the contract, as rows, and as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rmqctl.answer import Answer, Row, Section
from rmqctl.kafka.recovery.losses import lost_blocks
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery
from rmqctl.kafka.rows import batch_rows
from rmqctl.text import number_of, only_what_a_start_removes

_COLUMNS = ("partition", "log_start_offset", "log_end_offset", "segments", "recovered", "changes", "lost_records")


def show(found: Recovery, root: str, answer: Answer) -> None:
    """Let an answer show what a start does to the log directories of a root."""
    answer.rows = (partition_row(partition) for partition in found.partitions)
    answer.sections = lambda: _sections(found, root)
    answer.document = lambda: document(found)


def document(found: Recovery) -> Row:
    """Return the object of ``recover -o json``."""
    topics = Counter[str]()
    for partition in found.partitions:
        topics[partition.loaded.partition.topic] += partition.lost.records
    return {
        "release": str(found.release),
        "starts": found.starts,
        "error": found.error,
        "partitions": {partition.key: _partition(partition) for partition in found.partitions},
        "lost": {
            "records": found.lost_records,
            "bytes": sum(partition.lost.bytes for partition in found.partitions),
            "by_topic": {topic: count for topic, count in sorted(topics.items()) if count},
        },
        "offline": found.offline,
    }


def partition_row(partition: RecoveredPartition) -> Row:
    """One partition as a row of JSON lines."""
    return {"partition": partition.key, **_partition(partition)}


def _partition(partition: RecoveredPartition) -> Row:
    loaded, changes = partition.loaded, partition.changes
    row: Row = {
        "log_start_offset": loaded.log_start_offset,
        "log_end_offset": loaded.log_end_offset,
        "segments": len(loaded.bases),
        "recovered_segments": sorted(loaded.recovered),
        "stopped_by": None if loaded.stopped_by is None else loaded.stopped_by.row(),
        "deleted_files": changes.deleted,
        "created_files": changes.created,
        "changed_files": changes.changed,
        "lost": {"records": partition.lost.records, "bytes": partition.lost.bytes},
    }
    return {**row, "stray": True} if partition.is_stray else row


def lost_rows(found: Recovery) -> Iterator[Row]:
    """Yield the batches given up, as `dump` shows them.

    Raises:
        OSError: a file cannot be read.
    """
    for partition in found.partitions:
        if partition.lost.records or partition.lost.bytes:
            for block in lost_blocks(partition.loaded, is_clean=partition.is_clean):
                yield from batch_rows(block, partition.loaded.partition)


def comparison(found: Recovery) -> Row:
    """One release as a row beside others."""
    changes = [partition.changes for partition in found.partitions]
    return {
        "release": str(found.release),
        "starts": found.starts,
        "offline": found.offline,
        "recovered_segments": sum(len(partition.loaded.recovered) for partition in found.partitions),
        "deleted_files": sum(len(change.deleted) for change in changes),
        "created_files": sum(len(change.created) for change in changes),
        "changed_files": sum(len(change.changed) for change in changes),
        "strays": sum(partition.is_stray for partition in found.partitions),
        "lost_records": found.lost_records,
        "error": found.error,
    }


def _sections(found: Recovery, root: str) -> Iterator[Section]:
    yield Section([*_sentences(found), *([only_what_a_start_removes(root)] if found.starts else [])])
    rows = [_table_row(partition) for partition in found.partitions]
    if rows:
        yield Section(
            rows=rows, columns=_COLUMNS, title="Partitions afterwards (changes: files deleted -, created +, changed ~)"
        )


def _table_row(partition: RecoveredPartition) -> Row:
    loaded, changes = partition.loaded, partition.changes
    counts = (len(changes.deleted), len(changes.created), len(changes.changed))
    return {
        "partition": partition.key,
        "log_start_offset": loaded.log_start_offset,
        "log_end_offset": loaded.log_end_offset,
        "segments": len(loaded.bases),
        "recovered": len(loaded.recovered),
        "changes": "-{} +{} ~{}".format(*counts) if any(counts) else "",
        "lost_records": partition.lost.records,
    }


def _sentences(found: Recovery) -> Iterator[str]:
    """Yield what happens, for people."""
    broker = f"A {found.release} broker"
    if not found.starts:
        yield f"{broker} does not start: {found.error}"
        return
    if found.offline:
        yield f"{broker} takes a log directory offline: {found.error}"
    loss = number_of(found.lost_records, "record")
    yield f"{broker} starts and loses {loss}" if found.lost_records else f"{broker} starts and loses nothing"
    for partition in found.partitions:
        stop = partition.loaded.stopped_by
        if stop is not None:
            lost = number_of(partition.lost.records, "record")
            what = "ends for the broker, not in the file," if partition.is_clean else "is cut"
            yield f"{partition.key} {what} at byte {stop.offset} of {stop.file} ({stop.message}); {lost} lost"
        if partition.is_stray:
            yield f"{partition.key}: its directory is renamed to -stray, for the cluster has no such replica here"
