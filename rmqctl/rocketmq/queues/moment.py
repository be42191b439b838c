"""A running store as it was at one moment: what its broker had dispatched when it was looked at, and nothing later.

A broker writes a record, then its queue units, then its index entries, one record after the other (ReputMessageService,
doDispatch). So the log up to the last record that has a unit is complete, and so are queues and index up to it, as soon
as they are looked at later; what they have of later records is left out. Offsets of consumers and the checkpoint are
read first: they lead to nothing later.

Files of the log go while they are read, by retention, and then those of queues and index that lead there
(CleanCommitLogService, CleanConsumeQueueService). So those of queues and index are opened, then those of the log: what
leads to a file that is there is there, too. From then on the open files count, whatever has their names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from rmqctl.files.moment import SMALL, Moment, MomentTree, keep_small, pinned
from rmqctl.files.tree import LocalTree, Refusals, Tree, join
from rmqctl.rocketmq.index import IndexFile, index_files
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import BATCH_UNIT, Queue, is_pre_blank, queues_of
from rmqctl.rocketmq.queues.ranges import last_unit, log_end, written_units
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, StoreFiles
from rmqctl.rocketmq.store.geometry import HEADER, IndexGeometry, geometry_of

_SMALL = "config"
_CHECKPOINT = "checkpoint"
_PATIENCE, _LOOKS, _CONFIG_LOOKS = 0.02, 10, 50
"""Seconds between looks at files that are just being written, and how many, also at those of config/."""
_BACK = 1 << 12
"""Units or entries that are read at once on the way back."""


def at_one_moment(store: StoreFiles, *, is_last: bool = False) -> StoreFiles:
    """Return a running store as it was at one moment; any other as it is, and one with queues in RocksDB.

    Args:
        is_last: the broker counts as killed then.
    """
    live = store.tree
    if not store.is_running or isinstance(live, MomentTree) or store.has_rocksdb or not isinstance(live, LocalTree):
        return store
    small = _settled(live) | keep_small(live, [_CHECKPOINT])
    begin, end = _dispatched(replace(store))
    _wait_for_index(store, begin)
    moment, refusals = Moment(), Refusals()
    moment.list(live)
    for path, data in small.items():
        moment.hold(path, len(data), data, len(data))
    tree = MomentTree(live, moment, "", refusals)
    logs = list[tuple[str, Tree]]()
    for kind in (INDEX, BATCH_QUEUES, QUEUES):
        _open_all(live, moment, kind)
    for name, log in store.log_trees:
        if not isinstance(log, LocalTree) or log.root == join(live.root, name):
            _open_all(live, moment, name)
            logs.append((name, tree.child(name)))
        else:
            outside = Moment()
            outside.list(log)
            _open_all(log, outside, "")
            logs.append((name, MomentTree(log, outside, name, refusals)))
    found = replace(store, tree=tree, log_trees=logs)
    for file in found.log_files:
        if file.base + file.size > end and isinstance(file.tree, MomentTree):
            file.tree.hold(file.path, max(end - file.base, 0))
    for queue in _queues(found):
        _hold_queue(tree, queue, end)
    _hold_index(tree, found, end)
    moment.is_last = is_last
    return replace(found)


def _open_all(live: LocalTree, moment: Moment, path: str) -> None:
    """Keep the files in a directory and below open, as many as may be; what has gone since then is not there."""
    for entry in list(moment.listed.get(path, {}).values()):
        if entry.is_directory:
            _open_all(live, moment, entry.path)
        elif (pin := pinned(live.full(entry.path))) is not None:
            moment.hold(entry.path, entry.size, pin=pin, inode=pin.inode())
        elif not os.path.lexists(live.full(entry.path)):
            moment.hide(entry.path)


def _settled(live: LocalTree) -> dict[str, bytes]:
    """Read the files of config/ when none of them is just being replaced. For that a broker moves the file to its .bak
    and writes it again (5.5, ``ConfigManager.persist``), writes over it (5.3), or writes a .tmp, deletes the file and
    renames the .tmp (4.x, ``MixAll.string2File``): for a moment it is empty or not there.
    """
    small = dict[str, bytes]()
    for _ in range(_CONFIG_LOOKS):
        before = _config(live)
        small = keep_small(live, before)
        is_whole = all(small.get(path) or size > SMALL for path, size in before.items())
        is_whole &= all(path.removesuffix(".bak") in before for path in before)
        if is_whole and _config(live).keys() == before.keys() and not any(path.endswith(".tmp") for path in before):
            break
        time.sleep(_PATIENCE)
    return small


def _config(live: LocalTree) -> dict[str, int]:
    return {entry.path: entry.size for entry in live.entries(_SMALL) if not entry.is_directory}


def _queues(store: StoreFiles) -> Iterator[Queue]:
    batches = (Queue.open(where, BATCH_UNIT) for where in store.queues(BATCH_QUEUES))
    return chain(queues_of(store.queues(QUEUES)), batches)


def _dispatched(store: StoreFiles) -> tuple[int, int]:
    """Return where the last record that has a unit begins and ends; for both the end of the log where none has one."""
    places = []
    for queue in _queues(store):
        unit = last_unit(queue)
        if unit is not None and len(unit) and not is_pre_blank(unit)[0]:
            places.append((int(unit["physical_offset"][0]), int(unit["size"][0])))
    with LogReader(store.log_files) as log:
        for physical, size in sorted(places, reverse=True):
            record = log.record(physical)
            if record is not None and len(record) == size:
                return physical, physical + size
    end = log_end(store).offset
    return end, end


def _wait_for_index(store: StoreFiles, begin: int) -> None:
    """Let the index come to a record whose unit is there; not for long, as it may have no key."""
    for _ in range(_LOOKS):
        files = _index_files(replace(store))
        reached = max((file.header["end_phy_offset"] for file in files), default=begin)
        for file in files:
            file.close()
        if reached >= begin:
            return
        time.sleep(_PATIENCE)


def _index_files(store: StoreFiles) -> list[IndexFile]:
    geometry = geometry_of(store)
    return index_files(store, IndexGeometry(geometry.index_slots, geometry.index_entries))


def _hold_queue(tree: MomentTree, queue: Queue, end: int) -> None:
    """Leave out the units of records that were dispatched later."""
    for file in reversed(queue.files):
        count = written_units(queue, file)
        while count:
            first = max(count - _BACK, 0)
            units = queue.read(file, first, count - first)
            earlier = np.flatnonzero(units["physical_offset"] < end)
            if len(earlier):
                count = first + int(earlier[-1]) + 1
                break
            count = first
        tree.hold(file.path, count * queue.dtype.itemsize)
        if count:
            return


def _hold_index(tree: MomentTree, store: StoreFiles, end: int) -> None:
    """Leave out the entries of records that were dispatched later, of the newest files."""
    files = _index_files(store)
    try:
        with LogReader(store.log_files) as log:
            for file in reversed(files):
                if not file.is_whole:
                    return
                count = _entries_before(file, end)
                if count:
                    tree.hold(file.path, file.geometry.entry_at(count + 1), _head(file, count, log))
                    return
                tree.hide(file.path)
    finally:
        for file in files:
            file.close()


def _entries_before(file: IndexFile, end: int) -> int:
    """Return how many entries are of records in front of a place."""
    count = file.count
    while count:
        first = max(count - _BACK, 0)
        earlier = np.flatnonzero(file.entries(first + 1, count - first)["physical_offset"] < end)
        if len(earlier):
            return first + int(earlier[-1]) + 1
        count = first
    return 0


def _head(file: IndexFile, count: int, log: LogReader) -> bytes:
    """Return header and slots as they were when a file had so many entries: a later entry leads to the one that its
    slot led to before (IndexFile.putKey).
    """
    slots = file.slots(0, file.geometry.slots).copy()
    used, later = int(np.count_nonzero(slots)), np.flatnonzero(slots > count)
    for slot in later.tolist():
        number = int(slots[slot])
        while number > count:
            entry = file.entries(number, 1)
            previous = int(entry["previous"][0]) if len(entry) else 0
            number = previous if previous < number else 0
        slots[slot] = max(number, 0)
    fields = dict(file.header)
    if count + 1 < fields["index_count"] or len(later):
        last = int(file.entries(count, 1)["physical_offset"][0])
        counts_slots = fields["hash_slot_count"] <= used
        fields |= {
            "index_count": count + 1,
            "end_phy_offset": last,
            "end_timestamp": log.store_timestamp(last) or fields["end_timestamp"],
            "hash_slot_count": int(np.count_nonzero(slots)) if counts_slots else count,
        }
    return HEADER.packer.pack(*(fields[name] for name in HEADER.names)) + slots.astype(">i4").tobytes()
