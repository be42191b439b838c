"""One record as a broker's recovery judges it (spec 6.2; ``CommitLog.checkMessageAndReturnSize``).

This is the slow, literal port: recovery calls it where the scan has not proven the chain.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum

from formats.rocketmq.message import Magic, SysFlag
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.files.source import ByteSource
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.recovery.rules import RecoveryRules

_NUMBER_DIGITS = 19
_LARGEST_HEAD = 256


class Verdict(StrEnum):
    """What the broker makes of the bytes at a position."""

    RECORD = "record"
    END_OF_FILE = "end of file"
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
    """Judge the record at a position of a file that ends at ``end``, reading no more of it than the broker would.

    Raises:
        OSError: the file cannot be read.
    """
    head = source.read_at(position, min(end - position, 8))
    total = int.from_bytes(head[:4], "big", signed=True) if len(head) == 8 else 0
    wanted = min(end - position, 3 * max(total, 0) + _LARGEST_HEAD)
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
    if total < 0:
        raise _Underflow(f"TOTALSIZE is {total}")
    reader.room = total
    return _fields(reader, rules, total, body=body, wide=magic == Magic.MESSAGE_V2)


def _fields(reader: _Reader, rules: RecoveryRules, total: int, *, body: bool, wide: bool) -> Checked:
    stored_crc = reader.number(">i")
    reader.skip(4 + 4 + 8 + 8)
    flags = reader.number(">i") if rules.known_v6 else reader.number(">i") & ~0x30
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
    if reader.at != total:
        reason = f"TOTALSIZE is {total}, but the lengths inside add up to {reader.at}"
        return Checked(Verdict.BAD_SIZE if total > 0 else Verdict.BAD, max(total, 0), reader.at, reason)
    return Checked(Verdict.RECORD, total, reader.at)


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
