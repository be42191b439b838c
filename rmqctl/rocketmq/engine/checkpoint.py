"""Writing the checkpoint file (spec 5; StoreCheckpoint)."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE
from formats.rocketmq.checkpoint import Checkpoint as CheckpointLayout
from rmqctl.rocketmq.engine.disk import Disk

_RUN = plan_of(CheckpointLayout).runs[0]
NAME = "checkpoint"


@dataclass(slots=True)
class Checkpoint:
    """What the checkpoint says; the fields of `formats.rocketmq.checkpoint`."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def load(cls, root: Path) -> Checkpoint:
        """From the file; zeros where it has none.

        Raises:
            OSError: the file cannot be read.
        """
        path = root / NAME
        data = path.read_bytes() if path.exists() else b""
        values = _RUN.packer.unpack(data[: _RUN.packer.size].ljust(_RUN.packer.size, b"\0"))
        return cls(**dict(zip(_RUN.names, values, strict=True)))

    def note_flushed(self, store_timestamp: int) -> None:
        """All messages stored until then are on the disk, ms."""
        self.physic_msg_timestamp = max(store_timestamp, self.physic_msg_timestamp)

    def pack(self) -> bytes:
        """The used bytes of the file."""
        return _RUN.packer.pack(*(getattr(self, f.name) for f in fields(self)))

    def save(self, root: Path, disk: Disk) -> None:
        """Write the file through to the disk.

        Raises:
            IOFailure: it cannot be written.
        """
        fd = disk.open(root / NAME, FILE_SIZE)
        try:
            disk.write(fd, self.pack(), 0)
            disk.sync(fd)
        finally:
            os.close(fd)
