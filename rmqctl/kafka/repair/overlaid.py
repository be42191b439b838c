"""A log directory with the steps of a plan laid over it, and what of it they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rmqctl.files.tree import Tree
from rmqctl.kafka.directory.directory import LogDirectory, read_directory, read_partition
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Cut, Edit, Step


def overlaid(directory: LogDirectory, steps: Iterable[Step]) -> LogDirectory:
    """Return the directory with steps carried out in memory; partitions that none of them changes are the same."""
    edits = list(edits_of(steps))
    if not edits:
        return directory
    changed = changed_by(edits)
    known = {p.directory: p for p in directory.partitions if p.directory not in changed}
    return read_directory(Overlay(directory.tree, edits), known)


class Laid:
    """A log directory with the steps of a plan laid over it, more and more of them.

    What a step changes is listed again, and nothing else, so that each step costs what it changes.

    Attributes:
        directory: as the steps so far leave it. One of before has the partitions as they were, with the bytes of now.
        checkpoints: its text files with an offset a partition.
    """

    def __init__(self, below: LogDirectory) -> None:
        self.directory, self.checkpoints = below, Checkpoints(below)
        self._tree, self._steps = Overlay(below.tree), 0
        self._numbers = {partition.directory: number for number, partition in enumerate(below.partitions)}

    def lay(self, steps: Sequence[Step]) -> LogDirectory:
        """Return the directory with steps carried out in memory: those of the last call, and more after them."""
        edits, self._steps = list(edits_of(steps[self._steps :])), len(steps)
        if not edits:
            return self.directory
        self._tree.apply(edits)
        changed, partitions = changed_by(edits), list(self.directory.partitions)
        if all(name in self._numbers and _is_directory(self._tree, name) for name in changed):
            for name in changed:
                number = self._numbers[name]
                partitions[number] = read_partition(self._tree, name, partitions[number].name)
            self.directory = replace(self.directory, tree=self._tree, partitions=partitions)
        else:
            known = {p.directory: p for p in partitions if p.directory not in changed}
            self.directory = read_directory(self._tree, known)
            self.checkpoints = Checkpoints(self.directory)
            self._numbers = {partition.directory: number for number, partition in enumerate(self.directory.partitions)}
        return self.directory


def _is_directory(tree: Tree, name: str) -> bool:
    entry = tree.stat(name)
    return entry is not None and entry.is_directory


def changed_by(edits: Iterable[Edit]) -> set[str]:
    """Return the names, directly in the directory, of what edits change."""
    return {edit.file.partition("/")[0] for edit in edits}


def edits_of(steps: Iterable[Step]) -> Iterator[Edit]:
    return (edit for step in steps for edit in step.edits)


def cuts_of(log: PartitionLog, edits: Iterable[Edit]) -> Iterator[Cut]:
    """Edits that cut bytes off the segments of a log."""
    for edit in edits:
        if isinstance(edit, Cut) and edit.file.startswith(f"{log.partition.directory}/") and edit.file.endswith(".log"):
            yield edit
