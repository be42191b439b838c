"""Log directories of a running broker as they were at one moment.

A broker appends to a log, then to its indexes, and then writes checkpoints that lead there (UnifiedLog.append,
LogSegment.append). So checkpoints are read first, then the ends of indexes, last those of logs: what each names is in
those that come after it.

Segments go while they are read, by retention, or as the cleaner puts another in their place: they are called .deleted
then, and stay so for a minute (file.delete.delay.ms). A file counts by its inode, under either name.
"""

from __future__ import annotations

import os
from dataclasses import replace

from rmqctl.files.local import PAGE, data_extents, opened, pread
from rmqctl.files.moment import Moment, MomentTree, keep_small
from rmqctl.files.tree import Entry, LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory, read_partition
from rmqctl.kafka.directory.file_names import SEGMENT_KINDS, FileKind, meaning_of

_ENTRY = {FileKind.OFFSET_INDEX: 8, FileKind.TIME_INDEX: 12}
"""Bytes of an entry of the indexes that are made at full length and filled later."""


def at_one_moment(logs: LogDirectories, partitions: frozenset[str] | None = None) -> LogDirectories:
    """Return the directories of a running broker as they were at one moment; any others as they are.

    Args:
        partitions: names of the directories that are looked at: others may have changed since; None: all.
    """
    if not logs.is_running:
        return logs
    return replace(logs, directories=[_held(directory, partitions) for directory in logs.directories])


def _held(directory: LogDirectory, partitions: frozenset[str] | None) -> LogDirectory:
    live = directory.tree
    if not isinstance(live, LocalTree) or isinstance(live, MomentTree):
        return directory

    def counts(path: str) -> bool:
        above = path.partition("/")[0] if "/" in path else ""
        return partitions is None or not above or above in partitions

    small = keep_small(live, [f.name for f in directory.all_files() if f.kind not in _GROWS and counts(f.name)])
    moment = Moment()
    moment.list(live)
    found = [
        entry
        for entries in moment.listed.values()
        for entry in entries
        if not entry.is_directory and counts(entry.path)
    ]
    for path, data in small.items():
        if path.rpartition("/")[0] in moment.listed:
            moment.hold(path, len(data), data, len(data))
    kinds = {kind: [entry for entry in found if meaning_of(entry.name).kind is kind] for kind in _GROWS}
    for kind, entry_size in _ENTRY.items():
        for entry in kinds[kind]:
            end = _filled(live, entry, entry_size)
            moment.hold(entry.path, end, identity=_identity(live, entry)[1], taken=f"{entry.name}{_TAKEN}")
    for kind in (FileKind.TXN_INDEX, FileKind.PRODUCER_SNAPSHOT, FileKind.LOG):
        for entry in kinds[kind]:
            size, identity = _identity(live, entry)
            moment.hold(entry.path, size, size=size, identity=identity, taken=f"{entry.name}{_TAKEN}")
    tree = MomentTree(directory.root, moment)
    if len(directory.partitions) == 1 and not directory.partitions[0].directory:
        return LogDirectory(tree, [read_partition(tree, "")])
    return read_directory(tree)


_GROWS = (*SEGMENT_KINDS, FileKind.PRODUCER_SNAPSHOT)
_TAKEN = ".deleted"


def _identity(live: LocalTree, entry: Entry) -> tuple[int, tuple[int, int] | None]:
    """Size and inode of a file that was listed, which may have been taken away since."""
    for path in (live.full(entry.path), f"{live.full(entry.path)}{_TAKEN}"):
        try:
            status = os.stat(path)
        except OSError:
            continue
        return status.st_size, (status.st_dev, status.st_ino)
    return entry.size, None


def _filled(live: LocalTree, entry: Entry, size: int) -> int:
    """Return where the entries of an index end: only zeros follow."""
    try:
        descriptor = opened(live.full(entry.path))
    except OSError:
        return entry.size
    try:
        end = max((begin + length for begin, length in data_extents(descriptor, 0, entry.size)), default=0)
        begin = max(end - PAGE, 0)
        last = begin + len(pread(descriptor, end - begin, begin).rstrip(b"\0"))
    except OSError:
        return entry.size
    finally:
        os.close(descriptor)
    return -(-last // size) * size
