"""Whether the log goes on after a break, or a cut has left what lies there.

After a cut a broker writes on where it was, over the old records, and the rest of these stays. They lie where they say,
and are older than what was written since. But a page of another log that lies in the last file looks the same there,
for what follows it is older, too. What sets them apart: records that were written after a cut go on in
their queues where the cut was, and the queues lead to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.consumequeue import ConsumeQueueUnit
from formats.rocketmq.message import COMMIT, TRANSACTION, SysFlag
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.record import SMALLEST
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.files import QUEUES, StoreFile, is_offset

_NEAR = 1 << 20
"""Bytes in front of a break whose records are asked."""
_INNER = int(SysFlag.INNER_BATCH)
_LOOKED_AT = 64
"""Records after a break, and in front of it, that are asked."""
_LEAST = 3
"""Records that must agree, since one may be damaged."""
_MOST_OTHERS = 0.1
"""The part of them that may say something else."""
_UNIT = plan_of(ConsumeQueueUnit).runs[0].dtype


def goes_on(
    file: StoreFile, earlier: Sequence[StoreFile], source: ByteSource, front: int, after: int, time: int
) -> bool:
    """Whether the records from ``after`` on go on where those in front of ``front`` end, but for the store time of one.

    Args:
        file: with the break, the last one of the log that has data.
        earlier: files in front of it, the nearest first.
        source: the bytes of ``file``.
        front, after: bytes of the file at which the break begins and ends.
        time: store time of the record in front, ms; the next ones after it are older.
    """
    behind = _behind(file, source, after)
    known, room = _near(file, source, front)
    usual = _usual(behind)
    if all(one.time > usual for one in known):
        for other in earlier[:1]:
            with closing(other.open()) as before:
                known = _near(other, before, other.size)[0] + known
    start = next((at for at in range(len(known), 0, -1) if known[at - 1].time <= usual), 0)
    old, since = known[:start], known[start:]
    if _follow(old, since):
        return False
    units = _Units(file)
    if _comes_later(file, source, after, time, units):
        return True
    if (told := _units_tell(units, since, behind)) is not None:
        return told
    room += after - front
    if _is_of_another_log(old, since):
        known, room = old, room + sum(one.size for one in since)
    elif len(since) > 1:
        return False
    due = {one.key: one.offset + 1 for one in known}
    missing = [offset - due[key] for key, offset in _first(behind).items() if key in due]
    return bool(missing) and min(missing) >= 0 and sum(missing) <= room // SMALLEST


QueueKey = tuple[bytes, int]


class _InPlace(NamedTuple):
    """A record that lies where it says: its topic and queue, None where it has no place in one, or more than one."""

    key: QueueKey | None
    offset: int
    time: int
    physical: int
    size: int


def _behind(file: StoreFile, source: ByteSource, after: int) -> list[_InPlace]:
    """Return the first records after a break."""
    found, queued = list[_InPlace](), 0
    for block in scan(source, Extent(file.name, file.base, after, lead=file.lead, chained=True)):
        for one in _in_place(block):
            found.append(one)
            queued += one.key is not None
            if queued == _LOOKED_AT:
                return found
    return found


def _usual(records: Sequence[_InPlace]) -> int:
    """Return the store time that half of some records do not reach; a page of another log may lie among them, too."""
    times = sorted(one.time for one in records)
    return times[len(times) // 2] if times else 0


def _first(records: Iterable[_InPlace]) -> dict[QueueKey, int]:
    """Return the queue offset of the first record of each queue."""
    found: dict[QueueKey, int] = {}
    for one in records:
        if one.key is not None:
            found.setdefault(one.key, one.offset)
    return found


def _missing(old: Sequence[_InPlace], since: Sequence[_InPlace]) -> list[int]:
    """Return how many messages are missing in each queue that has records in front and after it."""
    due = {one.key: one.offset + 1 for one in old}
    return [offset - due[key] for key, offset in _first(since).items() if key in due]


def _follow(old: Sequence[_InPlace], since: Sequence[_InPlace]) -> bool:
    """Whether newer records begin where older ones end, in the log and in each queue: as after a cut; one alone may
    have a wrong store time.
    """
    if not old or len(since) <= 1 or old[-1].physical + old[-1].size != since[0].physical:
        return False
    missing = _missing(old, since)
    return bool(missing) and not any(missing)


def _is_of_another_log(old: Sequence[_InPlace], since: Sequence[_InPlace]) -> bool:
    """Whether newer records were not written after older ones: they do not go on in their queues with no more missing
    between than have room there. What a broker writes after a cut goes on at the cut.
    """
    if not old or not since:
        return False
    room = since[0].physical - old[-1].physical - old[-1].size
    missing = _missing(old, since)
    return min(missing) < 0 or sum(missing) > room // SMALLEST if missing else room > 0


def _comes_later(file: StoreFile, source: ByteSource, after: int, time: int, units: _Units) -> bool:
    """Whether records follow that are as new as the one in front of a break; not if the queues know others."""
    later = list[_InPlace]()
    for block in scan(source, Extent(file.name, file.base, after, lead=file.lead, chained=True)):
        newer = block["store_timestamp"] >= time
        later += (one for one in _in_place(block, newer) if one.key is not None)
        if len(later) >= _LOOKED_AT:
            break
    led, asked = units.lead_to(later[:_LOOKED_AT])
    return led >= _LEAST if asked >= _LEAST else led == asked and len(later) >= _LEAST


def _units_tell(units: _Units, since: Sequence[_InPlace], behind: Sequence[_InPlace]) -> bool | None:
    """Return whether the log goes on, by where the queues lead: to what lies after a break, or to what is newer and in
    front; None where they do not say.
    """
    led, asked = units.lead_to(behind[:_LOOKED_AT])
    led_since, asked_since = units.lead_to(since[-_LOOKED_AT:])
    if asked < 1:
        return None
    if asked < _LEAST or asked_since < 1:  # few are left, as at the end of the log: none may say otherwise
        return True if led == asked and led_since == 0 and len(since) >= _LEAST else None
    if led > asked // 2 and led_since <= _MOST_OTHERS * asked_since:
        return True
    return False if led <= _MOST_OTHERS * asked and led_since > asked_since // 2 else None


class _Units:
    """Where the queues beside a log lead to.

    Args:
        log: a file of the log.
    """

    def __init__(self, log: StoreFile) -> None:
        self._tree = log.store if not log.lead else None
        self._files: dict[QueueKey, list[tuple[int, int, str]]] = {}

    def lead_to(self, records: Iterable[_InPlace]) -> tuple[int, int]:
        """Return how many of the records that have a queue file a unit leads to, and how many these are."""
        led = asked = 0
        for one in records:
            if one.key is not None and (unit := self._unit(one.key, one.offset)) is not None:
                asked += 1
                led += unit == (one.physical, one.size)
        return led, asked

    def _unit(self, key: QueueKey, offset: int) -> tuple[int, int] | None:
        """Return the physical offset and the size of a unit; None where no file has it."""
        at = offset * _UNIT.itemsize
        for base, size, path in self._of(key):
            if self._tree is not None and base <= at <= base + size - _UNIT.itemsize:
                try:
                    with closing(self._tree.open(path)) as source:
                        raw = source.read_at(at - base, _UNIT.itemsize)
                except OSError:
                    return None
                if len(raw) == _UNIT.itemsize:
                    unit = np.frombuffer(raw, _UNIT)[0]
                    return int(unit["physical_offset"]), int(unit["size"])
        return None

    def _of(self, key: QueueKey) -> list[tuple[int, int, str]]:
        """Return base, size and path of the files of a queue."""
        topic = key[0].decode("utf-8", "surrogateescape")
        if key not in self._files:
            self._files[key] = []
            if self._tree is not None and "/" not in topic:
                with suppress(OSError):
                    entries = self._tree.entries(f"{QUEUES}/{topic}/{key[1]}")
                    self._files[key] = [(int(e.name), e.size, e.path) for e in entries if is_offset(e.name)]
        return self._files[key]


def _near(file: StoreFile, source: ByteSource, end: int) -> tuple[list[_InPlace], int]:
    """Return the records of a file near in front of a byte, and how many bytes between them no record has."""
    found, room = list[_InPlace](), 0
    for block in scan(source, Extent(file.name, file.base, max(end - _NEAR, 0), end, lead=file.lead)):
        found += _in_place(block)
        room += sum(min(gap.end, end) - gap.position for gap in block.gaps)
    return found, room


def _in_place(block: Block, wanted: np.ndarray | None = None) -> Iterator[_InPlace]:
    """Yield the records that lie where they say.

    Args:
        wanted: which of the records, shape (n,); None: all.
    """
    flags = block["sys_flag"]
    queued = ((flags & _INNER) == 0) & (((flags & TRANSACTION) == 0) | ((flags & TRANSACTION) == COMMIT))
    columns = (block[name] for name in ("queue_id", "queue_offset", "store_timestamp", "physical_offset"))
    queue, offset, time, physical = (column.tolist() for column in columns)
    in_place = block["physical_offset"] == block.physical
    for row in np.flatnonzero(in_place if wanted is None else in_place & wanted).tolist():
        key = (block.topic(row), queue[row]) if queued[row] else None
        yield _InPlace(key, offset[row], time[row], physical[row], int(block.total_size[row]))
