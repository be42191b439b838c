"""Timer files of 5.x: wheel slots, log units, the progress file (spec 11; TimerWheel, TimerLog, TimerCheckpoint)."""

from __future__ import annotations

from enum import IntFlag

from construct import Int32sb, Int64sb, Struct

TimerWheelSlot = Struct(
    "time" / Int64sb * "delivery time / precision; another time in the same slot means empty",
    "first" / Int64sb * "timer log offset of the first unit of the chain",
    "last" / Int64sb * "timer log offset of the last unit",
    "count" / Int32sb * "messages; delete marks subtract",
    "magic" / Int32sb * "0",
)

TimerLogUnit = Struct(
    "size" / Int32sb * "52",
    "previous" / Int64sb * "timer log offset of the slot's unit before this one, -1 for none",
    "magic" / Int32sb * "TimerMagic",
    "write_time" / Int64sb * "ms, a multiple of the precision",
    "delay" / Int32sb * "delivery time - write time, ms",
    "physical_offset" / Int64sb * "where the message lies in the log, bytes",
    "message_size" / Int32sb * "bytes",
    "real_topic_hash" / Int32sb * "Java hash of the topic it will be delivered to",
    "reserved" / Int64sb * "0",
)

TimerLogBlank = Struct(
    "size" / Int32sb * "bytes left in the file from here",
    "zero" / Int64sb,
    "magic" / Int32sb * "0xCBD43194",
)

TimerCheck = Struct(
    "last_read_time" / Int64sb * "ms",
    "last_timer_log_flush_pos" / Int64sb * "bytes",
    "last_timer_queue_offset" / Int64sb,
    "master_timer_queue_offset" / Int64sb,
    "state_version" / Int64sb,
    "version_timestamp" / Int64sb * "ms",
    "version_counter" / Int64sb,
)

WHEEL_SLOTS = 2 * 7 * 86400
UNIT_SIZE, BLANK_SIZE, CHECK_SIZE = 52, 16, 4096
"""Bytes of a unit, of a blank, and of the progress file."""
BLANK_MAGIC = -875286124


class TimerMagic(IntFlag):
    """Bits of a timer log unit's magic."""

    DEFAULT = 1
    ROLL = 2
    DELETE = 4


MAGIC_BITS = 0xF
"""Bits that the magic of a unit may have."""
