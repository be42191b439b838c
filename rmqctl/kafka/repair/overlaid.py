"""A log directory with the steps of a plan laid over it, and what of it they change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqctl.kafka.directory.directory import LogDirectory, read_directory
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
