"""The log directories of one broker, and what of them a user pointed at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from rmqctl.kafka.directory import LogDirectory, LogFile, Partition


@dataclass
class LogDirectories:
    """One or several log directories (``log.dirs``), or the part of one that a user pointed at.

    Attributes:
        directories: in the order given; usually one.
        selection: path inside, "" for all.
    """

    directories: list[LogDirectory]
    selection: str = ""

    @property
    def root(self) -> str:
        """The directories as the user gave them."""
        return ",".join(directory.root for directory in self.directories)

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
