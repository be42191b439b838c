"""Log directories of a running broker as they were at one moment.

A broker appends to a log, then to its indexes, and then writes checkpoints that lead there (UnifiedLog.append,
LogSegment.append). So checkpoints are read first, then the ends of indexes, last those of logs: what each names is in
those that come after it.

Segments go while they are read, by retention, or as the cleaner puts others in their place: file by file, the log
first (LogSegment.changeFileSuffixes). So the names in a directory count when they stayed the same while all files were
opened, and none of them is on its way. From then on the open files count, whatever has their names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

from rmqctl.files.local import PAGE, data_extents, pread
from rmqctl.files.moment import Moment, MomentTree, Pin, keep_small, pinned
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory, read_partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind, NameMeaning, meaning_of, partition_of

_ENTRY = {FileKind.OFFSET_INDEX: 8, FileKind.TIME_INDEX: 12}
"""Bytes of an entry of the indexes that are made at full length and filled later."""
_INDEXES = (*_ENTRY, FileKind.TXN_INDEX)
_GROWS = (*_INDEXES, FileKind.PRODUCER_SNAPSHOT, FileKind.LOG)
"""Kinds of files that grow and go, in the order in which their ends are looked for."""
_PATIENCE, _PAUSE = 2.0, 0.01
"""Seconds after which names count as they are, though some seem to be on their way; and between two looks."""
_SWAP = ".swap"


def at_one_moment(
    logs: LogDirectories, partitions: frozenset[str] | None = None, *, is_last: bool = False
) -> LogDirectories:
    """Return the directories of a running broker as they were at one moment; any others as they are.

    Args:
        partitions: names of the directories that are looked at: others may have changed since; None: all.
        is_last: the broker counts as killed then.
    """
    if not logs.is_running:
        return logs
    found = [_held(directory, partitions) for directory in logs.directories]
    for directory in found:
        if isinstance(directory.tree, MomentTree):
            directory.tree.moment.is_last = is_last
    return replace(logs, directories=found)


def _held(directory: LogDirectory, partitions: frozenset[str] | None) -> LogDirectory:
    tree = tree_at_one_moment(directory, partitions)
    if tree is directory.tree:
        return directory
    if _is_lone(directory):
        return LogDirectory(tree, [read_partition(tree, "")])
    return read_directory(tree)


def tree_at_one_moment(directory: LogDirectory, partitions: frozenset[str] | None) -> Tree:
    """Return the files of a directory as they are at one moment where a broker runs; else as they lie.

    Args:
        partitions: as of `at_one_moment`.
    """
    live = directory.tree
    if not isinstance(live, LocalTree) or isinstance(live, MomentTree) or not directory.is_running():
        return live
    is_lone = _is_lone(directory)
    moment = Moment()
    small = keep_small(live, [entry.path for entry in live.entries("", sizes=False) if not entry.is_directory])
    moment.list(live, below=partitions is None)
    _hold_small(moment, small)
    listed = moment.listed.get("", {}).values()
    names = [entry.path for entry in listed if entry.is_directory and partition_of(entry.name) is not None]
    waiting = [""] if is_lone else [name for name in names if partitions is None or name in partitions]
    until = time.monotonic() + _PATIENCE
    while waiting := [path for path in waiting if not _settle(live, moment, path)]:
        if time.monotonic() > until:
            break
        time.sleep(_PAUSE)
    return MomentTree(live, moment)


def _is_lone(directory: LogDirectory) -> bool:
    """Whether a user pointed at the directory of a partition that lies alone."""
    return len(directory.partitions) == 1 and not directory.partitions[0].directory


def _settle(live: LocalTree, moment: Moment, path: str) -> bool:
    """Hold the files of a partition as they are; whether they belong together."""
    before = _identities(live, path)
    if before is None:  # its topic was deleted since
        moment.hide(path)
        return True
    moment.listed[path] = {entry.name: entry for entry in live.entries(path)}
    files = {e.path: meaning_of(name) for name, e in moment.listed[path].items() if not e.is_directory}
    growing = [name for name, meaning in files.items() if meaning.kind in _GROWS and not meaning.leftover]
    small = keep_small(live, [name for name, meaning in files.items() if meaning.kind not in _GROWS])
    opened = {name: pinned(live.full(name)) for name in growing}
    has_stayed = _identities(live, path) == before
    _hold_small(moment, small)
    for name in files.keys() - small.keys() - set(growing):  # a name that is free again may come back with other bytes
        if (large := pinned(live.full(name))) is not None:
            moment.hold(name, large.size(), size=large.size(), pin=large, inode=large.inode())
        elif live.stat(name) is None:
            moment.hide(name)
    indexed = {files[name].base for name in growing if files[name].kind in _ENTRY}
    for name in sorted(growing, key=lambda name: _GROWS.index(files[name].kind)):
        meaning, pin, listed = files[name], opened[name], moment.listed[path][_last(name)].size
        inode = before.get(_last(name)) if pin is None else pin.inode()
        if not has_stayed and pin is None and live.stat(name) is None:  # seen if no look finds it quiet
            moment.hide(name)
            continue
        if meaning.kind in _ENTRY:
            moment.hold(name, _filled(pin, listed, _ENTRY[meaning.kind]), pin=pin, inode=inode)
        else:  # the indexes of a new log are made with its first batch
            is_new = meaning.kind is FileKind.LOG and meaning.base not in indexed
            size = listed if is_new or pin is None else pin.size()
            moment.hold(name, size, size=size, pin=pin, inode=inode)
    state = named.state if (named := partition_of(path)) is not None else DirectoryState.PLAIN
    served = state in {DirectoryState.PLAIN, DirectoryState.FUTURE}
    return has_stayed and not (served and _is_under_way(files, moment))


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _identities(live: LocalTree, path: str) -> dict[str, int] | None:
    """Return the inodes of names that are in use, or about to be; None where the directory is gone."""
    try:
        with os.scandir(live.full(path)) as found:
            return {entry.name: entry.inode() for entry in found if meaning_of(entry.name).leftover in {"", _SWAP}}
    except OSError:
        return None


def _is_under_way(files: Mapping[str, NameMeaning], moment: Moment) -> bool:
    """Whether a broker is just making, exchanging or taking away some of the files of a partition."""
    used = {(meaning.kind, meaning.base): name for name, meaning in files.items() if not meaning.leftover}
    bases = {kind: {base for other, base in used if other is kind and base is not None} for kind in _GROWS}
    logs, snapshots = bases[FileKind.LOG], bases[FileKind.PRODUCER_SNAPSHOT]
    if not logs or not any(kind is FileKind.PARTITION_METADATA for kind, _ in used):
        return True
    if any(bases[kind] - logs for kind in _INDEXES) or any(meaning.leftover == _SWAP for meaning in files.values()):
        return True
    newest = max(logs)
    if moment.held[used[FileKind.LOG, newest]].size and any(newest not in bases[kind] for kind in _ENTRY):
        return True
    if not snapshots:
        return False
    is_empty = not moment.held[used[FileKind.PRODUCER_SNAPSHOT, max(snapshots)]].size
    return is_empty or (len(logs) > 1 and max(snapshots) < newest)


def _hold_small(moment: Moment, small: Mapping[str, bytes]) -> None:
    """Hold files that are replaced by others, as they were read."""
    for path, data in small.items():
        if path.rpartition("/")[2] in moment.listed.get(path.rpartition("/")[0], {}):
            moment.hold(path, len(data), data, len(data))


def _filled(pin: Pin | None, size: int, entry: int) -> int:
    """Return where the entries of an index end: only zeros follow."""
    descriptor = None if pin is None else pin.opened()
    if descriptor is None:
        return size
    try:
        end = max((begin + length for begin, length in data_extents(descriptor, 0, size)), default=0)
        begin = max(end - PAGE, 0)
        last = begin + len(pread(descriptor, end - begin, begin).rstrip(b"\0"))
    except OSError:
        return size
    finally:
        os.close(descriptor)
    return -(-last // entry) * entry
