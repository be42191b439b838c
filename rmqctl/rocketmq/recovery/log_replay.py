"""The walk of recovery over the log: record after record as a broker of one release does it (spec 6.2 to 6.4, 6.7).

The scan proves the chain for whole blocks at a time; where it does not, `check_message` decides about one record as
the broker's own code would: the slow, literal port of ``CommitLog.checkMessageAndReturnSize``. At which file of the
log the walk starts is decided here too (``isMappedFileMatchedRecover``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from formats.rocketmq.message import HOSTS, Magic, SysFlag, record_plan
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.files.local import ByteSource
from rmqctl.rocketmq.log.block import Block, head_sizes
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.crc import MASK, body_crcs, crc32
from rmqctl.rocketmq.log.measure import Flags
from rmqctl.rocketmq.log.record import body_size_of, flags_of, likely_variant, magic_of, physical_of, total_size_of
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.recovery.rules import RecoveryRules, ScanStart
from rmqctl.rocketmq.store.files import StoreFile

_NUMBER_DIGITS = 19
_LARGEST_HEAD = 256
_LARGEST_TEXTS = (1 << 15) + (1 << 7)
"""Topic and properties after the body."""


class Verdict(StrEnum):
    """What the broker makes of the bytes at a position."""

    RECORD = "record"
    END_OF_FILE = "end of file"
    PASSED = "passed over"
    BAD = "bad"
    BAD_SIZE = "bad size"


@dataclass(frozen=True, slots=True)
class Checked:
    """A verdict.

    Attributes:
        size: TOTALSIZE of a record or of one whose lengths do not add up; else 0.
        consumed: bytes that the broker has read past the start.
        reason: why it is bad, one sentence without a full stop.
    """

    verdict: Verdict
    size: int = 0
    consumed: int = 0
    reason: str = ""


class _Underflow(Exception):
    """The broker's reader runs over the end of its buffer, which it takes for a bad record."""


class _Reader:
    """A Java ByteBuffer over the rest of a file; ``room`` is the size of the array that texts are read into."""

    def __init__(self, data: memoryview, left: int) -> None:
        self.data, self.left, self.at, self.room = data, left, 0, 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        if self.at + size > len(self.data):
            raise _Underflow("the file ends inside the record")
        value: int = struct.unpack_from(form, self.data, self.at)[0]
        self.at += size
        return value

    def take(self, size: int) -> memoryview:
        if size < 0 or size > self.room:
            raise _Underflow(f"a length of {size} bytes does not fit a record of {self.room} bytes")
        return self.skip(size)

    def skip(self, size: int) -> memoryview:
        if size < 0 or self.at + size > len(self.data):
            raise _Underflow(f"a length of {size} bytes runs over the end of the file")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part


def check_at(source: ByteSource, position: int, end: int, rules: RecoveryRules, *, body: bool = True) -> Checked:
    """Judge the record at a position of a file that ends at ``end``, reading no more of it than the broker would."""
    head = source.read_at(position, min(end - position, 8))
    total = total_size_of(head) if len(head) == 8 else 0
    texts = 3 * max(total, 0) if rules.holds_length else rules.room + _LARGEST_TEXTS
    wanted = min(end - position, texts + _LARGEST_HEAD)
    return check_message(memoryview(source.read_at(position, wanted)), rules, end - position, body=body)


def check_message(data: memoryview, rules: RecoveryRules, left: int | None = None, *, body: bool = True) -> Checked:
    """Judge the record at the start of ``data``.

    Args:
        left: bytes from its start to the end of the file, where ``data`` holds fewer.
        body: read the body and check its CRC, as recovery does; reput does neither.
    """
    reader = _Reader(data, len(data) if left is None else left)
    try:
        return _check(reader, rules, body=body)
    except _Underflow as error:
        return Checked(Verdict.BAD, consumed=reader.at, reason=str(error))


def _check(reader: _Reader, rules: RecoveryRules, *, body: bool) -> Checked:
    if rules.precheck and reader.left <= 4:
        raise _Underflow("fewer than 5 bytes are left in the file")
    total = reader.number(">i")
    if rules.precheck and reader.left < total:
        raise _Underflow(f"TOTALSIZE is {total}, but the file ends after {reader.left} bytes")
    magic = reader.number(">i")
    if magic == Magic.BLANK:
        return Checked(Verdict.END_OF_FILE, consumed=reader.at)
    if magic != Magic.MESSAGE_V1 and not (magic == Magic.MESSAGE_V2 and rules.known_v2):
        raise _Underflow(f"MAGICCODE is 0x{magic & 0xFFFFFFFF:08X}, none that {rules.release} knows")
    if total < 0 and rules.holds_length:
        raise _Underflow(f"TOTALSIZE is {total}")
    reader.room = rules.room or total
    return _fields(reader, rules, total, body=body, wide=magic == Magic.MESSAGE_V2)


def _fields(reader: _Reader, rules: RecoveryRules, total: int, *, body: bool, wide: bool) -> Checked:
    stored_crc = reader.number(">i")
    reader.skip(4 + 4 + 8 + 8)
    flags = reader.number(">i") if rules.known_v6 else reader.number(">i") & ~HOSTS
    reader.skip(8)
    reader.take(20 if flags & SysFlag.BORN_HOST_V6 else 8)
    reader.skip(8)
    reader.take(20 if flags & SysFlag.STORE_HOST_V6 else 8)
    reader.skip(4 + 8)
    _body(reader, stored_crc, check=body)
    topic = bytes(reader.take(reader.number(">h" if wide else ">b")))
    size = reader.number(">h")
    if size > 0:
        _check_properties(bytes(reader.take(size)), topic, rules)
    if not rules.holds_length:
        return _counted(total, reader.at)
    if reader.at != total:
        reason = f"TOTALSIZE is {total}, but the lengths inside add up to {reader.at}"
        return Checked(Verdict.BAD_SIZE if total > 0 else Verdict.BAD, max(total, 0), reader.at, reason)
    return Checked(Verdict.RECORD, total, reader.at)


def _counted(total: int, consumed: int) -> Checked:
    """Return what 3.x makes of a record that can be read, whatever TOTALSIZE says (``recoverNormally``)."""
    if total > 0:
        return Checked(Verdict.RECORD, total, consumed)
    if total == 0:
        return Checked(Verdict.END_OF_FILE, consumed=consumed)
    if total == -1:
        return Checked(Verdict.BAD, consumed=consumed, reason="TOTALSIZE is -1")
    return Checked(Verdict.PASSED, consumed=consumed)


def _body(reader: _Reader, stored_crc: int, *, check: bool) -> None:
    size = reader.number(">i")
    if size <= 0:
        return
    if not check:
        reader.skip(size)
        return
    computed = crc32(reader.take(size)) & MASK
    if computed != stored_crc:
        raise _Underflow(f"BODYCRC is {stored_crc}, the body's CRC is {computed}")


def has_numbers(text: bytes, topic: bytes, rules: RecoveryRules) -> bool:
    """Whether every property that the broker parses as a number is one."""
    try:
        _check_properties(text, topic, rules)
    except _Underflow:
        return False
    return True


def _check_properties(text: bytes, topic: bytes, rules: RecoveryRules) -> None:
    """Properties that the broker parses as numbers; a text that is none stops it."""
    found = dict(split_properties(text))
    delay = found.get(b"DELAY")
    if topic == SCHEDULE_TOPIC.encode() and delay is not None and not is_number(delay, 31):
        raise _Underflow(f"the property DELAY is {delay!r}, no number")
    inner = found.get(b"INNER_BASE"), found.get(b"INNER_NUM")
    if not rules.batch_queues or inner[0] is None or inner[1] is None:
        return
    if not is_number(inner[0], 63) or not is_number(inner[1], 15):
        raise _Underflow("INNER_BASE or INNER_NUM is no number")


def is_number(text: bytes, bits: int) -> bool:
    """Whether Java's parseShort, parseInt or parseLong accepts the text (15, 31 or 63 bits and a sign)."""
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits.isdigit() or len(digits.lstrip(b"0")) > _NUMBER_DIGITS:
        return False
    value = -int(digits) if text[:1] == b"-" else int(digits)
    return -(1 << bits) <= value < 1 << bits


# --- which file of the log recovery starts at -------------------------------------------------------


_MARGIN_MS = 3000
_HEAD = 128


@dataclass(frozen=True, slots=True)
class Known:
    """What the choice depends on.

    Attributes:
        queues_end: physical offset after the last record that a queue knows; -1 without queues.
        checkpoint: its fields by name.
        index_safe: ``messageIndexEnable`` and ``messageIndexSafe``.
        rocksdb: queues are a RocksDB database.
        body: check body CRCs (``checkCRCOnRecover``).
        databases: how far RocksDB databases beside the queue files reach in the log, each.
    """

    queues_end: int
    checkpoint: Mapping[str, int]
    index_safe: bool = False
    rocksdb: bool = False
    body: bool = True
    databases: Sequence[int] = ()

    @property
    def min_timestamp(self) -> int:
        """``StoreCheckpoint.getMinTimestamp``, ms."""
        pair = self.checkpoint["physic_msg_timestamp"], self.checkpoint["logics_msg_timestamp"]
        return max(min(pair) - _MARGIN_MS, 0)

    @property
    def min_timestamp_index(self) -> int:
        """``StoreCheckpoint.getMinTimestampIndex``, ms."""
        return min(self.min_timestamp, self.checkpoint["index_msg_timestamp"])


def start_index(files: list[StoreFile], rules: RecoveryRules, known: Known, *, normal: bool) -> int:
    """Return the number of the file where the scan begins."""
    start = rules.normal_start if normal else rules.abnormal_start
    if start is ScanStart.THIRD_LAST:
        return max(len(files) - 3, 0)
    left = rules.max_files
    for index in range(len(files) - 1, 0, -1):
        left -= 1
        fits = _matches(files[index], start, rules, known, normal=normal) and _suits_database(files[index], known)
        if fits or left == 0:
            return index
    return 0


def _matches(file: StoreFile, start: ScanStart, rules: RecoveryRules, known: Known, *, normal: bool) -> bool:
    if start is ScanStart.QUEUES_END:
        return file.base <= known.queues_end
    source = file.open()
    try:
        if start is ScanStart.STORE_TIME:
            return _matches_time(source, rules, known)
        return _matches_validated(source, file, start, rules, known, normal=normal)
    finally:
        source.close()


def _suits_database(file: StoreFile, known: Known) -> bool:
    """Whether the databases beside the queue files reach to a file (CombineConsumeQueueStore, IndexRocksDBStore)."""
    return all(file.base <= reached for reached in known.databases)


def _matches_time(source: ByteSource, rules: RecoveryRules, known: Known) -> bool:
    head = source.read_at(0, _HEAD)
    magic = magic_of(head)
    if magic != Magic.MESSAGE_V1 and not (magic == Magic.MESSAGE_V2 and rules.known_v2):
        return False
    if known.rocksdb:
        return physical_of(head) <= known.queues_end
    stored = _store_time(head, rules)
    return stored != 0 and stored <= (known.min_timestamp_index if known.index_safe else known.min_timestamp)


def _store_time(head: bytes, rules: RecoveryRules) -> int:
    hosts = flags_of(head) & SysFlag.BORN_HOST_V6 if rules.known_v6 else 0
    at = record_plan(is_v2=False, hosts=int(hosts)).runs[0].field("store_timestamp").offset
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def _matches_validated(
    source: ByteSource, file: StoreFile, start: ScanStart, rules: RecoveryRules, known: Known, *, normal: bool
) -> bool:
    """Hold the first record to being sound and stored at a time; a blank is sound but has none."""
    if check_at(source, 0, file.size, rules, body=known.body).verdict is not Verdict.RECORD:
        return False
    head = source.read_at(0, _HEAD)
    physical, stored = physical_of(head), _store_time(head, rules)
    if stored == 0 or (known.index_safe and stored > known.checkpoint["index_msg_timestamp"]):
        return False
    logics = known.checkpoint["logics_physical_offset"]
    if normal or known.rocksdb:
        return physical <= known.queues_end
    if start is ScanStart.LOGICS_OFFSET:
        return physical <= logics if logics > 0 else stored <= known.checkpoint["logics_msg_timestamp"]
    return stored <= known.min_timestamp


# --- the walk of recovery over the log --------------------------------------------------------------


_V2 = 4
_SCHEDULE = SCHEDULE_TOPIC.encode()
_INNER_BATCH = int(SysFlag.INNER_BATCH)


@dataclass(slots=True)
class LogWalk:
    """How far a walk has come.

    Attributes:
        index: number of the file in the list.
        position: byte of that file after the last record.
        drift: how many bytes the broker counts more than it has read of that file.
        records: records met; last: physical offset of the last of them, -1 before the first.
        stopped: what ended the walk; None where the files ran out.
    """

    index: int
    position: int = 0
    records: int = 0
    last: int = -1
    drift: int = 0
    stopped: Checked | None = None
    files: list[str] = field(default_factory=list)


def replay_log(
    files: list[StoreFile], walk: LogWalk, rules: RecoveryRules, *, body: bool = True
) -> Iterator[tuple[LogBlock, StoreFile]]:
    """Yield records that the broker accepts, from where ``walk`` stands to where it stops; ``walk`` is carried on.

    Blocks share one window: use each before the next is asked for.

    Args:
        files: of the log, in the order in which the broker lists them; all of one length.
        body: check body CRCs, as recovery does.
    """
    while True:
        file = files[walk.index]
        if walk.files[-1:] != [file.name]:
            walk.files.append(file.name)
        source = file.open()
        try:
            for block in _FileReplay(source, file, walk, rules, body=body).run():
                yield LogBlock(block), file
        finally:
            source.close()
        if walk.stopped is None or walk.stopped.verdict is not Verdict.END_OF_FILE:
            return
        if walk.index + 1 >= len(files):
            return
        walk.index, walk.position, walk.drift, walk.stopped = walk.index + 1, 0, 0, None


class _FileReplay:
    """One file of the walk."""

    def __init__(self, source: ByteSource, file: StoreFile, walk: LogWalk, rules: RecoveryRules, *, body: bool) -> None:
        self.source, self.file, self.walk, self.rules, self.body = source, file, walk, rules, body
        self.end = file.size

    def run(self) -> Iterator[Block]:
        extent = Extent(self.file.name, self.file.base, self.walk.position, size=self.end, chained=True)
        for block in scan(self.source, extent):
            yield from self._through(block)
            if self.walk.stopped is not None:
                return
        while self.walk.stopped is None:
            yield from self._step()

    def _through(self, block: Block) -> Iterator[Block]:
        """Yield the records of one block of the scan that continue the broker's chain."""
        position = block.position
        good = good_records(block, self.rules, body=self.body)
        while self.walk.stopped is None:
            row = int(np.searchsorted(position, self.walk.position))
            if row < len(block) and position[row] == self.walk.position and good[row]:
                yield self._note(block.take(slice(row, row + _run(block, good, row))))
            elif row < len(block) or self._is_settled(block):
                yield from self._step()
            else:
                return

    def _is_settled(self, block: Block) -> bool:
        """Whether the block says that no later block can hold a record at the walk's position."""
        at = self.walk.position
        return any(g.end > at for g in block.gaps) or any(b.position == at for b in block.blanks)

    def _note(self, block: Block) -> Block:
        self.walk.position = int(block.position[-1] + block.total_size[-1])
        self.walk.records += len(block)
        self.walk.last = int(block.physical[-1])
        return block

    def _step(self) -> Iterator[Block]:
        """One record by the literal rule."""
        at = self.walk.position
        checked = check_at(self.source, at, self.end, self.rules, body=self.body)
        if checked.verdict is Verdict.RECORD:
            block = self._note(_single(self.source.read_at(at, checked.consumed), self.file, at, self.rules))
            if checked.size != checked.consumed:
                self.walk.drift += checked.size - checked.consumed
                block = replace(block, total_size=block.total_size * 0 + checked.size)
            yield block
        elif checked.verdict is Verdict.PASSED:
            self.walk.position, self.walk.drift = at + checked.consumed, self.walk.drift - checked.consumed
        else:
            self.walk.stopped = checked


def good_records(block: Block, rules: RecoveryRules, *, body: bool) -> Flags:
    """Return records that need no closer look, shape (n,): body CRC right, and of a kind that the release knows."""
    good = np.ones(len(block), np.bool_)
    if body and len(block):
        good = (body_crcs(block) == block["body_crc"]) | (block.body_size == 0)
    if not rules.known_v2:
        good &= block.variant < _V2
    if not rules.known_v6:
        good &= (block.variant & 3) == 0
    for row in np.flatnonzero((block.topic_size == len(_SCHEDULE)) | (block["sys_flag"] & _INNER_BATCH != 0)):
        good[row] &= _has_numbers(block, int(row), rules)
    return good


def _has_numbers(block: Block, row: int, rules: RecoveryRules) -> bool:
    at, topic = int(block.properties_at[row]), block.topic(row)
    text = block.data[at : at + int(block.properties_size[row])].tobytes()
    return has_numbers(text, topic, rules)


def _run(block: Block, good: Flags, row: int) -> int:
    """How many records from ``row`` on follow each other without a hole and are good."""
    at, size = block.at[row:], block.total_size[row:]
    broken = np.flatnonzero((at[1:] != at[:-1] + size[:-1]) | ~good[row + 1 :])
    return int(broken[0]) + 1 if len(broken) else len(at)


def _single(record: bytes, file: StoreFile, position: int, rules: RecoveryRules) -> Block:
    """Return a block of one record that the scan refuses and brokers accept: lengths below zero count as none.

    To a release that knows no IPv6 the host bits of SYSFLAG mean nothing.
    """
    variant = likely_variant(record) if rules.known_v6 else likely_variant(record) & _V2
    text = 2 if variant & _V2 else 1
    head = int(head_sizes()[variant])
    body = max(body_size_of(record, variant), 0)
    topic = int.from_bytes(record[head + body : head + body + text], "big")
    properties = len(record) - head - body - text - topic - 2
    none = np.zeros(1, np.int64)
    data = np.frombuffer(record, np.uint8)
    sizes = (none + len(record), none + body, none + topic, none + properties)
    return Block(file.name, file.base, position, data, none, none + variant, *sizes)
