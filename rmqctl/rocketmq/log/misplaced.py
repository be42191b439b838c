"""Files of the log under a wrong name: the PHYSICALOFFSET of their records says where they belong (spec 1.2, 2.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.log import LOG_FILE_NAME
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.files import OFFSET_DIGITS, RocketMQStore, StoreFile
from rmqctl.text import number_of

_LEAST, _MOST_OTHERS = 3, 0.1
"""Records that must agree, since one offset may be damaged; the part of them that may say something else."""
_HEAD, _PHYSICAL_AT = 36, 28
STRAY = -1
"""Base of a file whose name is no offset."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A file of the log, or beside it, and where its records say that it begins.

    Attributes:
        home: physical offset of its first byte, by its records.
        records: how many of them say so.
    """

    file: StoreFile
    home: int
    records: int

    @property
    def name(self) -> str:
        """The name it should have."""
        return f"{self.file.name.rpartition('/')[0]}/{self.home:0{OFFSET_DIGITS}d}"

    def at_home(self) -> StoreFile:
        """The file as if it had the right name."""
        return replace(self.file, base=self.home)


def misplaced_files(store: RocketMQStore, size: int) -> list[Misplaced]:
    """Files under a wrong name, those beside the log that are as long as its files included.

    Args:
        size: bytes of a file of the log.

    Raises:
        OSError: a file cannot be read.
    """
    found, right = [], []
    for file in [*store.log_files, *_strays(store, size)]:
        if file.lead or _begins_right(file):
            right.append(file.base)
        elif (one := _by_records(file)) is not None and one.home != file.base:
            found.append(one)
    rests = Counter(base % size for base in right or [one.home for one in found])
    grid = rests.most_common(1)[0][0] if rests else 0
    return [one for one in found if one.home >= 0 and one.home % size == grid]


def homecoming(store: RocketMQStore, found: Sequence[Misplaced]) -> list[Misplaced]:
    """Those of the files whose place no other file has, one for each place, ascending."""
    wrong = {one.file.name for one in found}
    taken = {f.base for f in store.log_files if f.name not in wrong}
    homes: dict[int, Misplaced] = {}
    for one in sorted(found, key=lambda one: -one.records):
        if one.home not in taken:
            homes.setdefault(one.home, one)
    return sorted(homes.values(), key=lambda one: one.home)


def misnamed(found: Sequence[Misplaced]) -> Finding:
    """One finding for files of the log that have a wrong name; at least one."""
    first, records = found[0], sum(one.records for one in found)
    short = {one.name: one.file.name.rpartition("/")[2] for one in found}
    pairs = [f"{old} should be {new.rpartition('/')[2]}" for new, old in short.items()]
    if len(found) == 2 and {one.name for one in found} == {one.file.name for one in found}:
        pairs = [f"{' and '.join(sorted(short.values()))} are exchanged"]
    message = f"{', '.join(pairs)}: so say the {number_of(records, 'record')} in them"
    return Finding(LOG_FILE_NAME, first.file.name, 0, 0, message, physical_offset=first.home)


def _strays(store: RocketMQStore, size: int) -> Iterator[StoreFile]:
    for entry in store.log_strays:
        found = store.tree.stat(entry.path)
        if found is not None and not found.is_directory and found.size == size:
            yield StoreFile(entry.path, STRAY, found.size, store.tree, entry.path, found.mtime_ms)


def _begins_right(file: StoreFile) -> bool:
    """Whether the first record says that it lies where it lies."""
    source = file.open()
    try:
        head = source.read_at(0, _HEAD)
    finally:
        source.close()
    return int.from_bytes(head[_PHYSICAL_AT:_HEAD], "big", signed=True) == file.base


def _by_records(file: StoreFile) -> Misplaced | None:
    """Where a file begins by nearly all of its records; None where they do not agree."""
    source = file.open()
    try:
        blocks = scan(source, Extent(file.name, file.base, 0))
        homes = [block["physical_offset"].astype(np.int64) - block.position for block in blocks]
    finally:
        source.close()
    found, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *homes]), return_counts=True)
    most = int(counts.max(initial=0))
    if most < max(_LEAST, (1 - _MOST_OTHERS) * counts.sum()):
        return None
    return Misplaced(file, int(found[counts.argmax()]), most)


__all__ = ["STRAY", "Misplaced", "homecoming", "misnamed", "misplaced_files"]
