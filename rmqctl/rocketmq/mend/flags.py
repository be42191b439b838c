"""SYSFLAG of a record whose body is sound: what the body itself says of its compression."""

from __future__ import annotations

from formats.rocketmq.message import SysFlag, decode_record
from rmqctl.rocketmq.body import COMPRESSIONS, why_not_inflated
from rmqctl.rocketmq.mend.fields import Mended, resealed

_AT, _COMPRESSED, _TYPE_SHIFT = 36, int(SysFlag.COMPRESSED), 8
_TYPE = 0x7 << _TYPE_SHIFT
KNOWN_FLAGS = 0x7FF
"""Bits that clients and brokers set; others go together with the wrong one."""


def mend_compression(raw: bytes) -> Mended | None:
    """A record that says its body is compressed, and it is not, or by another codec than the flag names.

    A client that cannot decompress a message throws away all that came with it (``MessageDecoder.decodesBatch``).
    """
    flags, body = int.from_bytes(raw[_AT : _AT + 4], "big"), decode_record(raw)[0]["body"]
    if flags & _TYPE and not flags & _COMPRESSED and body and not why_not_inflated(body, flags | _COMPRESSED):
        why = "the flag names a codec, and that opens the body"
        return _with_flags(raw, flags | _COMPRESSED, "set the compression bit of SYSFLAG", why)
    if not flags & _COMPRESSED or not why_not_inflated(body, flags):
        return None
    for codec in dict.fromkeys(COMPRESSIONS.values()):
        number = next(n for n, name in COMPRESSIONS.items() if name == codec)
        right = flags & KNOWN_FLAGS & ~_TYPE | number << _TYPE_SHIFT
        if not why_not_inflated(body, right):
            return _with_flags(
                raw, right, f"put the compression type of SYSFLAG right: {codec}", f"the body is {codec}"
            )
    why = "the body is sound and no codec opens it; a client would drop it, and the messages that come with it"
    return _with_flags(raw, flags & KNOWN_FLAGS & ~_TYPE & ~_COMPRESSED, "take the compression bit out of SYSFLAG", why)


def _with_flags(raw: bytes, flags: int, what: str, why: str) -> Mended:
    record = raw[:_AT] + flags.to_bytes(4, "big") + raw[_AT + 4 :]
    return Mended(resealed(record), what, why, is_exact=False)
