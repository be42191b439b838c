"""Host bits of SYSFLAG that are gone, of a record with one host of IPv4 and one of IPv6: all lengths add up both ways."""

from __future__ import annotations

import struct

import pytest

from formats.rocketmq.message import HOSTS
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.record import prepare
from rmqctl.rocketmq.log.record import FLAGS_SPAN, flags_of, head_offset, magic_of, variant_of
from rmqctl.rocketmq.repair.heal import heal

TIME = 1_700_000_000_000


def record(address: bytes, *, stored: bool) -> bytes:
    """A record whose other host has an address of IPv6, for the store or for the producer."""
    six, four = Host(address, 4000), Host(b"\x0a\0\0\1", 5000)
    born, store = (four, six) if stored else (six, four)
    message = Message("Topic", b"body", 1, {"KEYS": "k"}, born_timestamp=TIME, born_host=born, store_host=store)
    return prepare(message, StoreConfig()).encode(7, 4096, TIME + 5)


def unmarked(raw: bytes) -> bytes:
    flags = int.from_bytes(raw[FLAGS_SPAN], "big") & ~HOSTS
    return raw[: FLAGS_SPAN.start] + flags.to_bytes(4, "big") + raw[FLAGS_SPAN.stop :]


def address(port: int, time: int, *, stored: bool) -> bytes:
    """An address in which the other reading finds a port and a time of its own."""
    rest = b"\xfe\x80\0\1"
    return struct.pack(">iq", port, time) + rest if stored else rest + struct.pack(">iq", port, time)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("port", "time"),
    [
        (-1, TIME), (1 << 16, TIME), (0x20010DB8, TIME), (-(1 << 31), TIME),
        (80, -TIME), (80, 0), (80, 1), (80, TIME + (1 << 40)),
    ],
)  # fmt: skip
def test_a_reading_with_a_port_or_a_time_that_is_none_is_none(port: int, time: int, *, stored: bool) -> None:
    raw = record(address(port, time, stored=stored), stored=stored)
    healed = heal(unmarked(raw), 4096)
    assert healed is not None
    assert healed.record == raw


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("port", [0, 80, (1 << 16) - 1])
def test_where_both_readings_can_be_nothing_is_healed(port: int, *, stored: bool) -> None:
    assert heal(unmarked(record(address(port, TIME, stored=stored), stored=stored)), 4096) is None


@pytest.mark.parametrize("stored", [True, False])
def test_where_the_port_of_the_store_is_none_no_reading_is_believed(*, stored: bool) -> None:
    """It stands at the same place in both readings, so that neither is one of what a broker wrote."""
    raw = bytearray(record(address(-1, TIME, stored=stored), stored=stored))
    assert heal(unmarked(bytes(raw)), 4096) is not None
    at = head_offset("store_port", variant_of(magic_of(raw), flags_of(raw)) or 0)
    raw[at] = 1
    assert heal(unmarked(bytes(raw)), 4096) is None
