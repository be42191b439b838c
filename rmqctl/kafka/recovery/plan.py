"""A broker's start as a plan of edits: the state in which the broker finds nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.files.local import without_room
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectory
from rmqctl.kafka.directory.file_names import FileKind, meaning_of
from rmqctl.kafka.loading.files import Content
from rmqctl.kafka.recovery.replay import RecoveredPartition, Recovery
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Plan, Quarantine, Step, changes

_PIECE = 1 << 20


def recovery_plan(directories: list[LogDirectory], found: Recovery) -> Plan:
    """Return the edits that bring a log directory into the state in which a start leaves it.

    Stray directories are left to the broker, which renames them under a name of its own. After an orderly stop the
    marker stays, and with it the indexes without the room that they have while a broker runs.

    Raises:
        Refused: the broker does not start, or there is not one local directory.
    """
    root = ",".join(directory.root for directory in directories)
    if not found.starts or found.offline:
        raise Refused(f"a {found.release} broker does not start on {root}: {found.error}")
    if len(directories) != 1 or not isinstance(directories[0].tree, LocalTree):
        raise Refused(f"{root} is not one local directory; copy it first, and give one log directory at a time")
    steps = [step for partition in found.partitions if not partition.is_stray for step in _steps(partition, found)]
    return Plan(Path(directories[0].tree.root), f"recover as {found.release}", tuple(steps))


def _steps(partition: RecoveredPartition, found: Recovery) -> Iterator[Step]:
    """One step a file, those that go away first: a file may be made again under a name that another had."""
    files, changed = partition.loaded.files, partition.changes
    leftovers = [name for name in files.before if name.endswith(".deleted") and name not in files]
    place = f"{partition.loaded.partition.directory}/"
    dangling = {link.name for link in partition.loaded.partition.dangling}
    for name in sorted({*changed.deleted, *leftovers}):
        why = f"a {found.release} broker deletes it"
        yield Step("recover.file", place + name, "move out", why, (Quarantine(place + name),))
    for name in changed.created:
        content = _at_rest(partition, name)
        edit = Create(place + name, without_room(b"".join(content.pieces())), size=content.size)
        edits = (Quarantine(place + name), edit) if place + name in dangling else (edit,)
        yield Step("recover.file", place + name, "make", f"a {found.release} broker makes it", edits)
    for name in changed.changed:
        different = tuple(content_edits(place + name, files.before[name], _at_rest(partition, name)))
        if not different:
            continue
        is_log = meaning_of(name).kind is FileKind.LOG
        what = f"{files.before[name].size:,} -> {files[name].size:,} bytes" if is_log else "write again"
        lost = partition.lost.records if is_log else 0
        yield Step("recover.file", place + name, what, f"a {found.release} broker does so", different, lost)


def _at_rest(partition: RecoveredPartition, name: str) -> Content:
    """Return what a file holds when no broker runs."""
    content = partition.loaded.files[name]
    has_room = meaning_of(name).kind in {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX}
    return replace(content, size=content.kept) if partition.is_clean and has_room else content


def content_edits(name: str, before: Content, after: Content) -> Iterator[Edit]:
    """Yield a size, then the bytes that differ."""
    if after.size < before.size:
        yield Cut(name, before.size, after.size)
    elif after.size > before.size:
        yield Extend(name, before.size, after.size)
    if after.stored is before.stored and after.stored is not None and after.kept == min(before.kept, after.size):
        return
    olds, at = before.pieces(), 0
    for new in after.pieces():
        old = next(olds, b"")[: len(new)].ljust(len(new), b"\0")
        yield from changes(name, at, old, new)
        at += _PIECE
