"""SYSFLAG of a record whose body is sound: what the body itself says of its compression."""

from __future__ import annotations

from collections.abc import Mapping

from formats.rocketmq.message import SysFlag, decode_record
from rmqctl.rocketmq.body import COMPRESSIONS, why_not_inflated
from rmqctl.rocketmq.mend.fields import Mended, resealed
from rmqctl.text import number_of

_AT, _COMPRESSED, _TYPE_SHIFT = 36, int(SysFlag.COMPRESSED), 8
_TYPES = 0x7
_TYPE = _TYPES << _TYPE_SHIFT
KNOWN_FLAGS = 0x7FF
"""Bits that clients and brokers set; others go together with the wrong one."""


def mend_compression(raw: bytes, usual: Mapping[int, int] | None = None) -> Mended | None:
    """A record whose body is not compressed as its flags say: not at all, by another codec, or without a word of it.

    A client that cannot decompress a message throws away all that came with it (``MessageDecoder.decodesBatch``).

    Args:
        usual: how many records of the store name each compression type; of two types of one codec the commoner counts.
    """
    flags, body = int.from_bytes(raw[_AT : _AT + 4], "big"), decode_record(raw)[0]["body"]
    counts = usual or {}
    if not flags & _COMPRESSED:
        if not body or why_not_inflated(body, flags | _COMPRESSED):
            return None
        why = "the body is a whole stream of the codec that the flags, or the other messages of the topic, name"
        return _with_flags(raw, flags | _COMPRESSED, "set the compression bit of SYSFLAG", why)
    if not why_not_inflated(body, flags):
        return None
    for number in sorted(COMPRESSIONS, key=lambda n: (-counts.get(n, 0), _distance(n, flags), n)):
        right = flags & KNOWN_FLAGS & ~_TYPE | number << _TYPE_SHIFT
        if not why_not_inflated(body, right):
            what = f"put the compression type of SYSFLAG right: {number}, {COMPRESSIONS[number]}"
            named = number_of(counts.get(number, 0), "record")
            why = f"the body is {COMPRESSIONS[number]}, for which {named} of the log name type {number}"
            return _with_flags(raw, right, what, why)
    why = "the body is sound and no codec opens it; a client would drop it, and the messages that come with it"
    return _with_flags(raw, flags & KNOWN_FLAGS & ~_TYPE & ~_COMPRESSED, "take the compression bit out of SYSFLAG", why)


def _distance(number: int, flags: int) -> int:
    """Bits in which a compression type differs from the one that the flags name."""
    return ((flags >> _TYPE_SHIFT & _TYPES) ^ number).bit_count()


def _with_flags(raw: bytes, flags: int, what: str, why: str) -> Mended:
    record = raw[:_AT] + flags.to_bytes(4, "big") + raw[_AT + 4 :]
    return Mended(resealed(record), what, why, is_exact=False)
