"""What values stand for: one small function for each field that does not speak for itself.

A function gets the value and the structure it stands in, and says what a person would want to know:
a name, a time, an address, whether a check sum fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address
from typing import Any, NamedTuple

from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE, MAX_EXT_ADDRESS, PRE_BLANK_SIZE
from formats.rocketmq.consumequeue_ext import END_OF_FILE
from formats.rocketmq.message import Magic, SysFlag, body_crc
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from formats.rocketmq.timer import BLANK_MAGIC, UNIT_SIZE, TimerMagic
from rmqctl.hexview.annotation import Value, View
from rmqctl.rocketmq.dump.record import transaction
from rmqctl.rocketmq.log.record import compression
from rmqctl.text import number_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMER_PRECISION = 1000
_IPV4_SIZE = 4


class ShownValue(NamedTuple):
    """What a meaning function answers: the value to show, its meaning, and whether something is wrong."""

    value: Value
    meaning: str = ""
    wrong: bool = False


@dataclass(slots=True)
class Place:
    """The structure a field stands in.

    Attributes:
        offset: where it begins in the file, bytes.
        fields: all its fields by name, as far as they could be read.
        end: where it ends in the file, bytes; 0 where nobody knows.
    """

    view: View
    offset: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    end: int = 0

    @property
    def physical(self) -> int:
        """Where it lies in the sequence of files, bytes."""
        return self.view.base + self.offset


Meaning = Callable[[Any, Place], ShownValue]
Table = Mapping[str, Meaning]


def say(table: Table, name: str, value: Any, place: Place) -> ShownValue:
    """Return what is to be said of a field; by its table, else by the kind of name it has."""
    known = table.get(name)
    if known is not None:
        return known(value, place)
    if isinstance(value, int) and name.endswith(_TIMES):
        return time(value, place)
    if isinstance(value, bytes) and name.endswith("_ip"):
        return ShownValue(ip_text(value))
    return ShownValue(value if isinstance(value, int) else text(value))


_TIMES = ("_timestamp", "write_time", "read_time")


def text(data: bytes) -> str | bytes:
    """UTF-8 bytes as text, others as they are."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def ip_text(raw: bytes) -> str:
    """Return an address of 4 or 16 bytes."""
    return ".".join(map(str, raw)) if len(raw) == _IPV4_SIZE else IPv6Address(raw).compressed


def utc(milliseconds: int) -> str:
    """Epoch milliseconds in UTC; "" for what no calendar has."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def time(value: int, _: Place) -> ShownValue:
    """Return a time in epoch milliseconds."""
    return ShownValue(value, utc(value) if value else "not set")


def hexadecimal(value: int, bits: int = 32) -> str:
    """Return a signed integer as the bits it is stored in."""
    return f"0x{value & ((1 << bits) - 1):0{bits // 4}x}"


# --- message records --------------------------------------------------------------------------


def magic(value: int, _: Place) -> ShownValue:
    if value in Magic.__members__.values():
        return ShownValue(value, f"{Magic(value).name} {hexadecimal(value)}")
    return ShownValue(value, f"no magic that is known, {hexadecimal(value)}", wrong=True)


def total_size(value: int, place: Place) -> ShownValue:
    return ShownValue(value, f"next at 0x{place.offset + value:x}" if value > 0 else "")


def stored_body_crc(value: int, place: Place) -> ShownValue:
    body = place.fields.get("body")
    if body is None:
        return ShownValue(value)
    if not body:
        return ShownValue(value, "no body to check")
    computed = body_crc(body)
    return (
        ShownValue(value, "ok")
        if computed == value
        else ShownValue(value, f"bad: the body's is {computed}", wrong=True)
    )


def physical_offset(value: int, place: Place) -> ShownValue:
    return (
        ShownValue(value, "ok")
        if value == place.physical
        else ShownValue(value, f"lies at {place.physical}", wrong=True)
    )


def sys_flag(value: int, _: Place) -> ShownValue:
    """Return the bits that are set, and the two small numbers among them."""
    names = [SysFlag(bit).name or "" for bit in SysFlag if value & bit and bit != SysFlag.COMPRESSED]
    if value & SysFlag.COMPRESSED:
        names.insert(0, f"COMPRESSED {compression(value)}")
    if (kind := transaction(value)) != "none":
        names.append(f"TRANSACTION {kind}")
    return ShownValue(value, f"{', '.join(names)} {hexadecimal(value)}" if names else "")


def body(value: bytes, place: Place) -> ShownValue:
    codec = compression(place.fields.get("sys_flag", 0))
    return ShownValue(text(value), "" if codec == "none" else f"compressed, {codec}")


def half_message(value: int, _: Place) -> ShownValue:
    return ShownValue(value, "the half message" if value else "")


MESSAGE: Table = {
    "total_size": total_size,
    "magic": magic,
    "body_crc": stored_body_crc,
    "physical_offset": physical_offset,
    "sys_flag": sys_flag,
    "body": body,
    "prepared_transaction_offset": half_message,
}


def to_file_end(value: int, place: Place) -> ShownValue:
    left = place.view.size - place.offset
    return (
        ShownValue(value, "to the end of the file")
        if value == left
        else ShownValue(value, f"{number_of(left, 'byte', 'are')} left", wrong=True)
    )


def blank_magic(value: int, _: Place) -> ShownValue:
    return ShownValue(value, f"BLANK {hexadecimal(value)}")


BLANK: Table = {"size": to_file_end, "magic": blank_magic}
BATCH_ITEM: Table = {}


# --- queues -----------------------------------------------------------------------------------


def unit_size(value: int, _: Place) -> ShownValue:
    return ShownValue(value, "filler" if value == PRE_BLANK_SIZE else "")


def tags_code(value: int, place: Place) -> ShownValue:
    """Return a delivery time, an address in the queue's extension, or a hash (spec 3.2)."""
    if place.fields.get("size") == PRE_BLANK_SIZE:
        return ShownValue(value)
    if value <= MAX_EXT_ADDRESS:
        return ShownValue(value, f"extension unit at {value - EXT_ADDRESS_BASE}")
    if place.view.topic == SCHEDULE_TOPIC and value >= 1 << 31:
        return ShownValue(value, f"due {utc(value)}")
    if -(1 << 31) <= value < 1 << 31:
        return ShownValue(value, f"tag hash {hexadecimal(value)}" if value else "no tag")
    return ShownValue(value, f"no tag hash; as a time {utc(value)}")


def compaction_end(value: int, _: Place) -> ShownValue:
    return ShownValue(value, "end of the file's units" if value == -1 else "")


def ext_size(value: int, place: Place) -> ShownValue:
    if value == END_OF_FILE:
        return ShownValue(value, "ends the file")
    bitmap = place.fields.get("bitmap_size", value - 20)
    return ShownValue(value) if value == 20 + bitmap else ShownValue(value, f"20 + {bitmap} expected", wrong=True)


QUEUE: Table = {"size": unit_size, "tags_code": tags_code}
BATCH: Table = {"physical_offset": compaction_end, "tags_code": tags_code}
EXT: Table = {"size": ext_size}


# --- index ------------------------------------------------------------------------------------


def index_count(value: int, _: Place) -> ShownValue:
    return ShownValue(value, f"{max(value - 1, 0):,} entries")


def newest(value: int, place: Place) -> ShownValue:
    index = place.view.index
    return ShownValue(value, f"entry at 0x{index.entry_at(value):x}" if index and 0 < value < index.entries else "")


def key_hash(value: int, place: Place) -> ShownValue:
    index = place.view.index
    if value < 0:
        return ShownValue(value, "a hash is never negative", wrong=True)
    return ShownValue(value, f"slot {value % index.slots}" if index else "")


def time_difference(value: int, place: Place) -> ShownValue:
    begin = place.fields.get("begin_timestamp", 0)
    return ShownValue(value, f"{utc(begin + 1000 * value)}" if begin > 0 else "seconds")


def previous_entry(value: int, _: Place) -> ShownValue:
    return ShownValue(value, f"entry {value}" if value > 0 else "first of its slot")


INDEX_HEADER: Table = {"index_count": index_count}
INDEX_SLOT: Table = {"newest": newest}
INDEX_ENTRY: Table = {"key_hash": key_hash, "time_difference": time_difference, "previous": previous_entry}


# --- timer, DLedger, checkpoint ---------------------------------------------------------------


def slot_time(value: int, _: Place) -> ShownValue:
    return ShownValue(value, f"{utc(value * _TIMER_PRECISION)} at a precision of 1 s")


def timer_magic(value: int, place: Place) -> ShownValue:
    if value == BLANK_MAGIC:
        return blank_magic(value, place)
    if value < 0 or value >= 16:
        return ShownValue(value, f"no magic that is known, {hexadecimal(value)}", wrong=True)
    return ShownValue(value, ", ".join(bit.name or "" for bit in TimerMagic if value & bit))


def timer_unit_size(value: int, _: Place) -> ShownValue:
    return ShownValue(value) if value == UNIT_SIZE else ShownValue(value, f"{UNIT_SIZE} expected", wrong=True)


def delay(value: int, place: Place) -> ShownValue:
    written = place.fields.get("write_time", 0)
    return ShownValue(value, f"due {utc(written + value)}" if written > 0 else "ms")


def previous_unit(value: int, _: Place) -> ShownValue:
    return ShownValue(value, "none" if value == -1 else "")


TIMER_UNIT: Table = {"size": timer_unit_size, "magic": timer_magic, "delay": delay, "previous": previous_unit}
TIMER_SLOT: Table = {"time": slot_time}
TIMER_BLANK: Table = {"size": to_file_end, "magic": timer_magic}
TIMER_CHECK: Table = {}
CHECKPOINT: Table = {}

_ENTRY_MAGICS = {1: "a record follows", 2: "empty", 3: "a change of members", -1: "blank"}


def entry_magic(value: int, _: Place) -> ShownValue:
    meaning = _ENTRY_MAGICS.get(value)
    return ShownValue(value, meaning or "no magic that is known", wrong=meaning is None)


def entry_position(value: int, place: Place) -> ShownValue:
    return physical_offset(value, place)


DLEDGER_ENTRY: Table = {"magic": entry_magic, "position": entry_position}
DLEDGER_BLANK: Table = {"magic": entry_magic, "size": to_file_end}
DLEDGER_INDEX: Table = {"magic": entry_magic}

# --- properties of messages -------------------------------------------------------------------

PROPERTY_TIMES = frozenset({b"TIMER_DELIVER_MS", b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"})
