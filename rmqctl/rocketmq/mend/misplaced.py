"""Files of the log under a wrong name get their right one, or go where no broker stumbles over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.files.tree import LocalTree
from rmqctl.repair.edits import Create, Edit, Quarantine, SetTimes, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.geometry import Geometry
from rmqctl.rocketmq.misplaced import STRAY, Misplaced, homecoming, misplaced_files
from rmqctl.rocketmq.store import RocketMQStore, StoreFile
from rmqctl.text import number_of


def misplaced_steps(store: RocketMQStore, geometry: Geometry) -> Iterator[Step]:
    """Right names for files that have a wrong one; those whose place another file has go into quarantine.

    Raises:
        OSError: a file cannot be read.
    """
    found = misplaced_files(store, geometry.commit_log_file_size)
    moved = homecoming(store, found)
    if moved:
        yield _renamed(moved)
    for one in found:
        if one not in moved:
            why = f"its {number_of(one.records, 'record')} say that they lie in {one.name}, which is there"
            yield Step(_id(one), one.file.name, "move to quarantine", why, (Quarantine(one.file.name),))


def _renamed(moved: list[Misplaced]) -> Step:
    """One step, since a file may have the name that another should have."""
    away: list[Edit] = [Quarantine(one.file.name) for one in moved]
    back: list[Edit] = []
    for one in moved:
        path = _path(one.file)
        back += [Create(one.name, source=path), SetTimes(one.name, path.stat().st_mtime_ns)]
    records = sum(one.records for one in moved)
    names = ", ".join(f"{one.file.name} as {one.name.rpartition('/')[2]}" for one in moved)
    why = f"{number_of(records, 'record')} say that they lie there, and no other file does"
    return Step(_id(moved[0]), moved[0].file.name, f"give it its right name: {names}", why, (*away, *back))


def _path(file: StoreFile) -> Path:
    assert isinstance(file.tree, LocalTree)
    return Path(file.tree.full(file.path))


def _id(one: Misplaced) -> str:
    """What `verify` finds: a name off the grid, or records that lie elsewhere."""
    is_name = one.file.base == STRAY or one.file.base % one.file.size != one.home % one.file.size
    return (kinds.LOG_FILE_NAME if is_name else kinds.LOG_PHYSICAL_OFFSET).id


__all__ = ["misplaced_steps"]
