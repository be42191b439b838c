"""The small text files of a log directory, as a start reads them: an offset for each partition."""

from __future__ import annotations

from formats.kafka.checkpoint import OffsetCheckpoint, parse_offsets
from rmqctl.kafka.directory.directory import LogDirectory, LogFile, Partition
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.loading.files import MAX_TEXT


class Checkpoints:
    """The text files of a log directory with an offset a partition, each read once."""

    def __init__(self, directory: LogDirectory) -> None:
        self.directory = directory
        self._read: dict[FileKind, OffsetCheckpoint] = {}

    def of(self, kind: FileKind) -> OffsetCheckpoint:
        """Return a checkpoint as far as it can be read; empty where the file is not there."""
        found = self._read.get(kind)
        if found is None:
            file = self.directory.one(kind)
            found = self._read[kind] = OffsetCheckpoint() if file is None else parse_offsets(read_text(file))
        return found

    def offset(self, kind: FileKind, partition: Partition) -> int | None:
        """Return what a broker takes from a checkpoint for a partition; it takes nothing from one with a bad line."""
        found = self.of(kind)
        if partition.partition is None or found.problems:
            return None
        return found.offsets.get((partition.topic, partition.partition))


def read_text(file: LogFile) -> bytes:
    """Return the bytes of a small file."""
    source = file.open()
    try:
        return source.read_at(0, min(source.size(), MAX_TEXT))
    finally:
        source.close()
