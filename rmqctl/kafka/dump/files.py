"""Files that are no segments, as rows: index entries, producers, lines of checkpoints, small text files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from formats.kafka.checkpoint import Problem, parse_leader_epochs, parse_offsets
from formats.kafka.directory_files import (
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
    parse_quorum_state,
)
from rmqctl.columns import Row
from rmqctl.errors import NotAStore
from rmqctl.findings import Finding, FindingKind
from rmqctl.kafka.directory.directory import LogFile
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.findings.derived import (
    EPOCH_UNREADABLE,
    OFFSET_INDEX_SIZE,
    SNAPSHOT_UNREADABLE,
    TIME_INDEX_SIZE,
    TXN_INDEX_SIZE,
)
from rmqctl.kafka.findings.directory import CHECKPOINT_UNREADABLE
from rmqctl.kafka.log.indexes import (
    Index,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_txn_index,
)

_MOST_TEXT, _MOST_VALUES = 64 << 20, 1 << 20
"""Bytes that are read of a text with a line for each partition, and of one with a few values."""
_PIECE = 1 << 12
_PRODUCER_KEYS = (
    "producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp",
    "coordinator_epoch", "current_txn_first_offset",
)  # fmt: skip
_SIZES = {
    FileKind.OFFSET_INDEX: OFFSET_INDEX_SIZE,
    FileKind.TIME_INDEX: TIME_INDEX_SIZE,
    FileKind.TXN_INDEX: TXN_INDEX_SIZE,
}


def file_rows(file: LogFile) -> Iterator[Row]:
    """Yield the rows of a file that is no segment.

    Raises:
        NotAStore: nothing is known about such a file.
    """
    reader = _READERS.get(file.kind)
    if reader is None:
        raise NotAStore(file.name, "no file of a log directory has such a name", "give --format kafka for a segment")
    yield from reader(file)


def _offset_index(file: LogFile) -> Iterator[Row]:
    index = _read(file, read_offset_index)
    entries = zip(index.offsets(file.base).tolist(), index.positions.tolist(), strict=True)
    for number, (offset, position) in enumerate(entries):
        yield {
            "kind": "offset_index_entry", "file": file.name, "number": number, "offset": offset, "position": position,
        }  # fmt: skip
    yield from _rest(file, index)


def _time_index(file: LogFile) -> Iterator[Row]:
    index = _read(file, read_time_index)
    entries = zip(index.timestamps.tolist(), index.offsets(file.base).tolist(), strict=True)
    for number, (timestamp, offset) in enumerate(entries):
        yield {
            "kind": "time_index_entry", "file": file.name, "number": number, "timestamp": timestamp, "offset": offset,
        }  # fmt: skip
    yield from _rest(file, index)


def _txn_index(file: LogFile) -> Iterator[Row]:
    index = _read(file, read_txn_index)
    names = index.slots.dtype.names or ()
    for first in range(0, len(index.slots), _PIECE):
        for number, entry in enumerate(index.slots[first : first + _PIECE].tolist(), first):
            fields = dict(zip(names, entry, strict=True))
            del fields["version"]
            yield {"kind": "aborted_transaction", "file": file.name, "number": number, **fields}
    yield from _rest(file, index)


def _rest(file: LogFile, index: Index) -> Iterator[Row]:
    if index.rest:
        whole = len(index.slots) * index.entry_size
        message = f"{index.rest} bytes after the last of {len(index.slots)} entries of {index.entry_size} bytes"
        yield Finding(_SIZES[file.kind], file.name, whole, index.rest, message).row()


def _producers(file: LogFile) -> Iterator[Row]:
    snapshot = _read(file, read_producer_snapshot)
    if snapshot.problem:
        yield Finding(SNAPSHOT_UNREADABLE, file.name, 0, len(snapshot.data), snapshot.problem).row()
    for row in snapshot.rows():
        yield {"kind": "producer_state", "file": file.name, **{key: row[key] for key in _PRODUCER_KEYS}}


def _leader_epochs(file: LogFile) -> Iterator[Row]:
    found = parse_leader_epochs(_bytes(file))
    yield from _problems(file, found.problems, EPOCH_UNREADABLE)
    for entry in found.entries:
        yield {"kind": "leader_epoch", "file": file.name, "epoch": entry.epoch, "start_offset": entry.start_offset}


def _offsets(file: LogFile) -> Iterator[Row]:
    found = parse_offsets(_bytes(file))
    yield from _problems(file, found.problems)
    for entry in found.entries:
        yield {
            "kind": "checkpoint_offset", "file": file.name, "topic": entry.topic, "partition": entry.partition,
            "offset": entry.offset,
        }  # fmt: skip


def _meta_properties(file: LogFile) -> Iterator[Row]:
    found = parse_meta_properties(_bytes(file, _MOST_VALUES))
    yield {"kind": "meta_properties", "file": file.name, "properties": dict(found.values)}
    yield from _problems(file, found.problems)


def _partition_metadata(file: LogFile) -> Iterator[Row]:
    found = parse_partition_metadata(_bytes(file, _MOST_VALUES))
    yield {
        "kind": "partition_metadata", "file": file.name, "version": found.version, "topic_id": found.topic_id,
    }  # fmt: skip
    yield from _problems(file, found.problems)


def _quorum_state(file: LogFile) -> Iterator[Row]:
    found = parse_quorum_state(_bytes(file, _MOST_VALUES))
    yield {"kind": "quorum_state", "file": file.name, "state": found.values}
    yield from _problems(file, found.problems)


def _clean_shutdown(file: LogFile) -> Iterator[Row]:
    found = parse_clean_shutdown(_bytes(file, _MOST_VALUES))
    yield {"kind": "clean_shutdown", "file": file.name, "state": found.values}
    yield from _problems(file, found.problems)


def _lock(file: LogFile) -> Iterator[Row]:
    yield {"kind": "lock", "file": file.name, "size": file.size}


def _problems(file: LogFile, problems: Sequence[Problem], kind: FindingKind = CHECKPOINT_UNREADABLE) -> Iterator[Row]:
    for problem in problems:
        yield Finding(kind, file.name, problem.offset, problem.size, problem.message).row()


def _read(file: LogFile, reader: Callable[[Any], Any]) -> Any:
    source = file.open()
    try:
        return reader(source)
    finally:
        source.close()


def _bytes(file: LogFile, most: int = _MOST_TEXT) -> bytes:
    data: bytes = _read(file, lambda source: source.read_at(0, min(source.size(), most)))
    return data


_READERS: dict[FileKind, Callable[[LogFile], Iterator[Row]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.PRODUCER_SNAPSHOT: _producers,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.RECOVERY_POINTS: _offsets,
    FileKind.HIGH_WATERMARKS: _offsets,
    FileKind.LOG_STARTS: _offsets,
    FileKind.CLEANER_OFFSETS: _offsets,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
    FileKind.LOCK: _lock,
}
