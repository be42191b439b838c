"""The leader epochs of a partition as a broker reads, adds and cuts them (spec 9.3; LeaderEpochFileCache)."""

from __future__ import annotations

import numpy as np

from formats.kafka.checkpoint import LeaderEpoch, format_leader_epochs, parse_leader_epochs
from rmqctl.kafka.loading.files import MAX_TEXT, PartitionFiles, StartFails
from rmqctl.kafka.log.block import Batches

NAME = "leader-epoch-checkpoint"


class LeaderEpochs:
    """The epochs with their first offsets, ascending; every change is written to the view at once.

    Raises:
        StartFails: the file cannot be read as a checkpoint.
    """

    def __init__(self, files: PartitionFiles) -> None:
        self.files = files
        self.starts: dict[int, int] = {}
        if NAME not in files:
            files.put(NAME, b"")
        found = parse_leader_epochs(files.read(NAME, MAX_TEXT))
        if found.problems:
            raise StartFails(f"checkpoint file {NAME} cannot be read: {found.problems[0].message}", offline=True)
        for entry in found.entries:
            self._assign(entry.epoch, entry.start_offset)

    @property
    def latest(self) -> int | None:
        return max(self.starts, default=None)

    def add(self, block: Batches) -> None:
        """Take the epochs of batches that are higher than all before."""
        rows = np.flatnonzero((block.magic >= 2) & (block["partition_leader_epoch"] >= 0))
        epochs = block["partition_leader_epoch"][rows]
        if not len(rows) or (self.latest is not None and int(epochs.max()) <= self.latest):
            return
        for epoch, offset in zip(epochs.tolist(), block["base_offset"][rows].tolist(), strict=True):
            if (self.latest is None or epoch > self.latest) and self._assign(epoch, offset):
                self._write()

    def begin(self, epoch: int, start: int) -> None:
        """Take an epoch that a leader begins at an offset; one that is known already goes on."""
        if (self.latest is None or epoch > self.latest) and self._assign(epoch, start):
            self._write()

    def _assign(self, epoch: int, start: int) -> bool:
        if epoch < 0 or start < 0:
            raise StartFails(f"epoch {epoch} with start offset {start} is no leader epoch")
        latest = self.latest
        if latest is not None and epoch == latest and start >= self.starts[latest]:
            return False
        for known in sorted(self.starts, reverse=True):
            if not (known >= epoch or self.starts[known] >= start):
                break
            del self.starts[known]
        self.starts[epoch] = start
        return True

    def cut_end(self, end: int) -> None:
        """Remove the epochs that begin at an offset or after it."""
        latest = self.latest
        if latest is None or self.starts[latest] < end:
            return
        for known in sorted(self.starts, reverse=True):
            if self.starts[known] < end:
                break
            del self.starts[known]
        self._write()

    def cut_start(self, start: int) -> None:
        """Let the epoch in which an offset lies begin there, and remove those before."""
        removed = list[int]()
        for known in sorted(self.starts):
            if self.starts[known] > start:
                break
            removed.append(known)
            del self.starts[known]
        if removed:
            self.starts[removed[-1]] = start
            self._write()

    def clear(self) -> None:
        """Remove all."""
        self.starts.clear()
        self._write()

    def _write(self) -> None:
        entries = [LeaderEpoch(epoch, self.starts[epoch]) for epoch in sorted(self.starts)]
        self.files.put(NAME, format_leader_epochs(entries))
