"""What kind of file lies somewhere, from its place, its name and its first bytes: the one answer for all commands."""

from __future__ import annotations

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.checkpoint import FILE_SIZE, Checkpoint
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry, DLedgerIndexUnit
from formats.rocketmq.index import IndexHeader
from formats.rocketmq.message import Magic
from formats.rocketmq.timer import MAGIC_BITS, UNIT_SIZE, WHEEL_SLOTS, TimerLogUnit, TimerWheelSlot
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.log.measure import MAX_RECORD, PEEK, candidates
from rmqctl.rocketmq.log.record import physical_of
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, is_pre_blank, is_valid, is_valid_batch
from rmqctl.rocketmq.store.file_kinds import KINDS, FileKind, kind_at, kind_by_name, reader
from rmqctl.rocketmq.store.files import is_offset

HEAD = 4096
_SEARCHED = 1 << 20
_ENTRY = plan_of(DLedgerEntry).runs[0].packer
_ENTRY_INDEX = plan_of(DLedgerIndexUnit).runs[0].packer
_DLEDGER_MAGICS = (1, 2, 3)
_MAGICS = {int(m) for m in Magic}
_TIMES = range(946_684_800_000, 4_102_444_800_000)  # the years 2000 to 2099 in ms
_TIMER_UNIT = plan_of(TimerLogUnit).runs[0].only("size", "magic")
_INDEX_HEAD = plan_of(IndexHeader).runs[0].only("begin_timestamp", "end_timestamp", "index_count")
_EXTENSION = plan_of(ConsumeQueueExtUnit).runs[0].packer


def kind_of(path: str, source: ByteSource) -> FileKind | None:
    """Return the kind of a file; None when neither place, name nor content is that of a store's file.

    Args:
        path: relative to the root of a store, with ``/``; a name alone says nothing of the place.
    """
    if "/" in path and (by_place := kind_at(path)) is not FileKind.OTHER:
        return by_place
    name = path.rpartition("/")[2]
    return kind_by_name(name) or _kind_of_content(name, source)


def _kind_of_content(name: str, source: ByteSource) -> FileKind | None:
    head, size = source.read_at(0, HEAD), source.size()
    if name.removesuffix(".bak") == "checkpoint":
        return FileKind.DLEDGER_CHECKPOINT if _is_properties(head) else FileKind.CHECKPOINT
    found = next((row.kind for row in KINDS.values() if row.looks and reader(row.looks)(head, size)), None)
    if found is None and (_holds_magic(source) or (is_offset(name) and not any(head))):
        return FileKind.COMMIT_LOG
    return found


def first_offset(source: ByteSource) -> int:
    """Physical offset of the first byte of a log file, as its first readable record states it; 0 without one."""
    data = np.frombuffer(source.read_at(0, _SEARCHED), np.uint8)
    for at in candidates(data)[:1].tolist() if len(data) >= PEEK else []:
        return max(physical_of(data[at : at + PEEK].tobytes()) - at, 0)
    return 0


def _int(head: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(head[at : at + size], "big", signed=True)


def is_log(head: bytes, size: int) -> bool:
    """Whether a file begins with a record of the log."""
    return _int(head, 4) in _MAGICS and 0 < _int(head, 0) <= max(size, 8)


def is_dledger_log(head: bytes, size: int) -> bool:
    """Whether a file begins with a DLedger entry, or with the blank that fills it."""
    if len(head) < ENTRY_SIZE:
        return False
    magic, total, *_, position, _channel, _chain, _crc, body = _ENTRY.unpack_from(head)
    if magic == -1:
        return bool(total == size)
    return magic in _DLEDGER_MAGICS and total == ENTRY_SIZE + body and body >= 0 and position >= 0


def is_dledger_index(head: bytes, _: int) -> bool:
    """Whether a file begins with units of the entry index."""
    units = [_ENTRY_INDEX.unpack_from(head, at) for at in range(0, len(head) - _ENTRY_INDEX.size, _ENTRY_INDEX.size)]
    units = [u for u in units if any(u)][:2]
    sound = [u[0] in _DLEDGER_MAGICS and u[1] >= 0 and u[2] >= ENTRY_SIZE and u[3] >= 0 <= u[4] for u in units]
    return bool(units) and all(sound) and (len(units) < 2 or units[1][3] == units[0][3] + 1)


def is_timer_log(head: bytes, _: int) -> bool:
    """Whether a file begins with a unit of the timer log."""
    if len(head) < UNIT_SIZE:
        return False
    size, magic = _TIMER_UNIT.unpack_from(head)
    return bool(size == UNIT_SIZE and 0 <= magic <= MAGIC_BITS)


def is_timer_wheel(_: bytes, size: int) -> bool:
    """Whether a file is as long as a timer wheel."""
    return size == WHEEL_SLOTS * plan_of(TimerWheelSlot).runs[0].packer.size


def is_batch_queue(head: bytes, _: int) -> bool:
    """Whether a file begins with units of a batch queue."""
    units = np.frombuffer(head, BATCH_UNIT, min(len(head) // BATCH_UNIT.itemsize, 2))
    if not len(units) or not (units["reserved"] == 0).all():
        return False
    return bool(is_valid_batch(units[:1])[0] and units["compacted_offset"][0] == -1)


def is_queue(head: bytes, _: int) -> bool:
    """Whether a file begins with units of a consume queue."""
    units = np.frombuffer(head, UNIT, min(len(head) // UNIT.itemsize, 8))
    sound = (is_valid(units) & (units["size"] <= MAX_RECORD)) | is_pre_blank(units)
    empty = (units["physical_offset"] == 0) & (units["size"] == 0) & (units["tags_code"] == 0)
    return bool(len(units) and sound[0] and (sound | empty).all())


def is_extension(head: bytes, _: int) -> bool:
    """Whether a file begins with an extension unit."""
    if len(head) < HEAD_SIZE:
        return False
    size, _, _, bitmap = _EXTENSION.unpack_from(head)
    return bool(bitmap >= 0 and size == HEAD_SIZE + bitmap)


def is_json(head: bytes, _: int) -> bool:
    """Whether a file begins as JSON does."""
    return head.lstrip()[:1] in {b"{", b"["}


def is_checkpoint(head: bytes, size: int) -> bool:
    """Whether a file has the size, the times and the empty rest of a checkpoint."""
    return size == FILE_SIZE and _int(head, 0, 8) in _TIMES and not any(head[Checkpoint.sizeof() :])


def is_index(head: bytes, _: int) -> bool:
    """Whether a file begins with a header of an index."""
    if len(head) < _INDEX_HEAD.size:
        return False
    begin, end, count = _INDEX_HEAD.unpack_from(head)
    return begin in _TIMES and end in _TIMES and count > 1


def _is_properties(head: bytes) -> bool:
    text = head.rstrip(b"\0")
    return b"=" in text and text.isascii() and b"\0" not in text


def _holds_magic(source: ByteSource) -> bool:
    """Whether a message begins in the first mebibyte: a log whose first bytes are damaged."""
    data = np.frombuffer(source.read_at(0, _SEARCHED), np.uint8)
    return len(data) >= PEEK and len(candidates(data)) > 0
