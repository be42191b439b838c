"""How much room a rebuilding will need, from a few samples of the log, and whether it is there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogState, walk_file
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.geometry import Geometry, geometry_of
from rmqctl.rocketmq.index_geometry import ENTRY, SLOT_SIZE
from rmqctl.rocketmq.queue_files import UNIT
from rmqctl.rocketmq.store import RocketMQStore

_SAMPLES = 5
_SPARE = 4 << 20


def bytes_needed(store: RocketMQStore, geometry: Geometry, rules: DispatchRules, wanted: Wanted) -> int:
    """Bytes that queues and index will take on the disk, about: the log's size by what samples of it dispatch.

    Raises:
        OSError: the log cannot be read.
    """
    contexts = [c for c in CommitLog(store.log_files, crashed=store.has_abort).contexts() if c.file.size]
    step = max(len(contexts) // _SAMPLES, 1)
    samples = [_sample(context, rules, wanted) for context in contexts[::step]]
    records = sum(s.records for s in samples)
    seen = sum(s.end - s.damage[0][0] for s in samples if s.records)
    if not records or not seen:
        return _SPARE
    log = sum(c.file.size for c in contexts)
    keys = sum(int(s.index.keys.sum()) for s in samples if s.index is not None)
    units = sum(len(p.units) for s in samples for p in s.pieces) * UNIT.itemsize
    entries = log * keys // seen
    index = entries * ENTRY.packer.size + (entries // geometry.index_entries + 1) * geometry.index_slots * SLOT_SIZE
    return log * units // seen + (index if wanted.index else 0) + _SPARE


def _sample(context: FileContext, rules: DispatchRules, wanted: Wanted) -> Dispatched:
    """What the first block of a file dispatches; its ``damage`` is where the block begins."""
    dispatcher = Dispatcher(rules, wanted)
    for found in walk_file(context, LogState()):
        if len(found.block):
            dispatcher.add(found)
            sample = dispatcher.take()
            sample.damage = [(int(found.block.physical[0]), 0)]
            return sample
    return Dispatched()


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def building(store: RocketMQStore, directory: Path) -> Iterator[None]:
    """Say what is needed and what is free where the disk fills up while files are built in a directory.

    Raises:
        Refused: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        built = sum(p.stat().st_blocks * 512 for p in directory.rglob("*") if p.is_file())
        free = built + _free(directory)
        needed = max(bytes_needed(store, geometry_of(store), DispatchRules.of(store), Wanted()), free + 1)
        raise Refused(
            f"too little room in {directory.parent}: the files of the plan need about {needed:,} bytes, "
            f"and {free:,} are free; nothing was changed; free some, or give a directory on another disk with "
            "--journal DIR (in a dry run: TMPDIR)"
        ) from error


def check_room(directory: Path, needed: int, *, force: bool = False) -> int:
    """Bytes free where ``directory`` is or will be made.

    Args:
        force: do not refuse.

    Raises:
        Refused: they are fewer than needed.
    """
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    free = _free(place)
    if needed > free and not force:
        raise Refused(
            f"too little room in {place}: about {needed:,} bytes are needed and {free:,} are free; nothing was "
            "written; free some, or give a directory on another disk with --into DIR"
        )
    return free


def _free(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize
