"""Which queues come out even: as many live units as records of the log claimed, and nothing else to tell.

A store may have hundreds of thousands of queues, nearly all even and most of one small file; those
are read whole and counted many at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqctl.files.tree import Listing, Tree, read_head
from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.queue_files import UNIT, Units, is_pre_blank

Key = tuple[str, int]
_SMALL = 1 << 14
_UNIT = UNIT.itemsize
_AT_ONCE = 256


@dataclass(slots=True)
class Claim:
    """Units of one queue that records of the log have claimed.

    Attributes:
        count: how many; low, high: smallest and largest queue offset; end: largest physical end.
        begin: smallest physical offset of a record, where it was noted; -1 where not.
    """

    count: int = 0
    low: int = -1
    high: int = -1
    end: int = -1
    begin: int = -1

    def add(self, count: int, low: int, high: int, end: int, begin: int = -1) -> None:
        """Add a run of units."""
        self.begin = begin if self.begin < 0 else min(self.begin, begin)
        self.low = low if self.low < 0 else min(self.low, low)
        self.count, self.high, self.end = self.count + count, max(self.high, high), max(self.end, end)

    def join(self, other: Claim) -> None:
        """Add what another split claimed."""
        if other.count:
            self.add(other.count, other.low, other.high, other.end, other.begin)


def live_and_expired(units: Units, min_offset: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Units of records in the log, and units before it; what was never written and fillers are neither."""
    written = (units["size"] != 0) & ~is_pre_blank(units)
    old = units["physical_offset"] < min_offset
    return written & ~old, written & old


def uneven_queues(
    tree: Tree, listed: Mapping[str, Listing], claims: Mapping[Key, Claim], lacking: Collection[Key], min_offset: int
) -> Iterator[str]:
    """Paths of the queues that must be looked at one by one, in the order given; large ones are always among them.

    Args:
        listed: names and sizes of each queue's files by its path; a queue without files is left out.
        lacking: queues of which records of the log have no right unit.
        min_offset: physical offset at which the log begins.

    Raises:
        OSError: a file cannot be read.
    """
    paths = [path for path, files in listed.items() if files]
    for at in range(0, len(paths), _AT_ONCE):
        some = paths[at : at + _AT_ONCE]
        read = {path: units for path in some if (units := _read(tree, path, listed[path])) is not None}
        live, expired = _counts(list(read.values()), min_offset)
        even = set()
        for path, alive, old in zip(read, live, expired, strict=True):
            key = key_of(path)
            claimed = claims[key].count if key in claims else 0
            if not old and alive == claimed and key not in lacking:
                even.add(path)
        yield from (path for path in some if path not in even)


def key_of(path: str) -> Key:
    """Topic and queue id of ``<kind>/<topic>/<queue id>``."""
    _, topic, queue_id = path.split("/")
    return topic, int(queue_id)


def _read(tree: Tree, path: str, files: Listing) -> bytes | None:
    """The written units of a queue; None of one with several files or many units."""
    if len(files) != 1:
        return None
    ((name, size),) = files
    data = read_head(tree, f"{path}/{name}", size) if size <= _SMALL else _read_sparse(tree, f"{path}/{name}", size)
    torn = len(data) % _UNIT if data is not None else 0
    return data[:-torn] if torn and data is not None else data


def _read_sparse(tree: Tree, path: str, size: int) -> bytes | None:
    """Units of a large file outside its holes, None if they are many."""
    begin, room, parts = 0, _SMALL, []
    source = tree.open(path)
    try:
        for start, stop in source.data_ranges(0, size):
            begin, end = max(begin, start // _UNIT * _UNIT), -(-stop // _UNIT) * _UNIT
            room -= end - begin
            if room < 0:
                return None
            parts.append(source.read_at(begin, end - begin))
            begin = end
    finally:
        source.close()
    return b"".join(parts)


def _counts(queues: list[bytes], min_offset: int) -> tuple[list[int], list[int]]:
    """Live and expired units of each queue."""
    data = b"".join(queues)
    if not data.strip(b"\0"):
        return [0] * len(queues), [0] * len(queues)
    ends = np.cumsum([0] + [len(queue) // _UNIT for queue in queues])
    live, expired = live_and_expired(np.frombuffer(data, UNIT), min_offset)
    return _sums(live, ends), _sums(expired, ends)


def _sums(flags: npt.NDArray[np.bool_], ends: Ints) -> list[int]:
    """How many flags are set from each end to the next."""
    before = np.concatenate([[0], np.cumsum(flags)])[ends]
    counts: list[int] = np.diff(before).tolist()
    return counts
