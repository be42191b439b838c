"""The files of one queue as dispatch writes them: units, units of the extension, batch units (spec 3)."""

from __future__ import annotations

from pathlib import Path

from rmqctl.rocketmq.dispatch.queue_units import Appended
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.mapped_files import MappedFiles


class UnitFiles:
    """The file sequence of one queue; few descriptors are open at a time."""

    def __init__(self, disk: Disk, directory: Path, file_size: int) -> None:
        self.files = MappedFiles.load(disk, [directory], file_size)

    def write(self, found: Appended) -> None:
        """Write units where dispatch wants them, over as many files as that takes.

        Raises:
            IOFailure: a file cannot be made or written.
        """
        at, data = found.position, memoryview(found.data)
        while data:
            room = self.files.file_size - at % self.files.file_size
            self.files.write(at, data[:room])
            at, data = at + len(data[:room]), data[room:]
            if data:
                self.files.close_files(at)

    def sync(self, begin: int) -> None:
        """Make what was written from a position on survive a power failure.

        Raises:
            IOFailure: the disk fails.
        """
        self.files.sync(begin, 1 << 62)

    def close(self) -> None:
        """Close the files."""
        self.files.close()
