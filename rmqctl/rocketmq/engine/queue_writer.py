"""The files of one queue as dispatch writes them: units, units of the extension, batch units (spec 3)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rmqctl.errors import IOFailure
from rmqctl.rocketmq.dispatch.queue_units import Appended
from rmqctl.rocketmq.engine.config import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqctl.rocketmq.engine.disk import Disk
from rmqctl.rocketmq.engine.mapped_files import MappedFiles
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES

UNIT_SIZES = {QUEUES: UNIT_SIZE, BATCH_QUEUES: BATCH_UNIT_SIZE}


class UnitFiles:
    """The file sequence of one queue; few descriptors are open at a time."""

    def __init__(self, disk: Disk, directory: Path, file_size: int, unit_size: int = 0) -> None:
        """
        Args:
            unit_size: of units that have one size; 0 otherwise.
        """
        self._unit_size = unit_size
        self.files = MappedFiles.load(disk, [directory], file_size)

    def write(self, found: Appended) -> None:
        """Write units where dispatch wants them, over as many files as that takes.

        Raises:
            IOFailure: a file cannot be made or written; whole units are in the files.
        """
        at, data = found.position, memoryview(found.data)
        while data:
            room = self.files.file_size - at % self.files.file_size
            try:
                self.files.write(at, data[:room])
            except IOFailure:
                self._mend(at, data[:room])
                raise
            at, data = at + len(data[:room]), data[room:]
            if data:
                self.files.close_files(at)

    def _mend(self, at: int, data: memoryview) -> None:
        """Take back the part of a unit that a failed write may have left: a start would take it for a whole one."""
        if not self._unit_size or self.files.find(at) is None:
            return
        with suppress(IOFailure):
            found = self.files.read(at, len(data))
            same = next((n for n, (a, b) in enumerate(zip(data, found, strict=False)) if a != b), len(data))
            first = same - same % self._unit_size
            if any(rest := found[first : first + self._unit_size]) and same < len(data):
                self.files.write(at + first, bytes(len(rest)))

    def sync(self, begin: int) -> None:
        """Make what was written from a position on survive a power failure.

        Raises:
            IOFailure: the disk fails.
        """
        self.files.sync(begin, 1 << 62)

    def close(self) -> None:
        """Close the files."""
        self.files.close()
