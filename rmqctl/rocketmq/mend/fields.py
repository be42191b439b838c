"""Parts of a whole record that the body CRC does not cover: properties, the record's own CRC, the store time."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from formats.rocketmq.message import decode_record
from formats.rocketmq.properties import NAME_END, PAIR_END
from rmqctl.rocketmq.block import head_offsets, head_sizes
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.mend.syndrome import LONGEST_BURST, MOST_CANDIDATES, diagnose, span_of
from rmqctl.rocketmq.verify.property_crc import DIGITS, NAME, SIZE


@dataclass(frozen=True, slots=True)
class Mended:
    """A record with one part put right.

    Attributes:
        record: all its bytes.
        what, why: for the plan.
        is_exact: the bytes are those that were there; else the damage is made harmless.
    """

    record: bytes
    what: str
    why: str
    is_exact: bool


def layout_variant(raw: bytes) -> int:
    """Number of the layout variant of a whole record."""
    return (int.from_bytes(raw[36:40], "big") >> 4 & 3) | (4 if raw[7] == 0xAB else 0)


def mend_properties(raw: bytes, *, closed: bool) -> Mended | None:
    """Properties with zero bytes: pieces that hold zeros give way to separators, which every decoder passes over.

    Args:
        closed: records of this log end their properties with 0x02, so a lost last byte was one.
    """
    text = decode_record(raw)[0]["properties"]
    at = len(raw) - len(text)
    if b"\0" not in text:
        return None
    if closed and text.find(b"\0") == len(text) - 1:
        why = "the records beside it end their properties with 0x02, and every pair in front is whole"
        return Mended(
            resealed(raw[:-1] + PAIR_END), "put the last separator of the properties back", why, is_exact=True
        )
    separated = PAIR_END.join(_separated(piece) for piece in text.split(PAIR_END))
    if b"\0" not in separated:
        why = "every pair has one 0x01 between name and value, and one 0x02 behind it"
        return Mended(resealed(raw[:at] + separated), "put a separator of the properties back", why, is_exact=True)
    if b"\0\0" not in text:  # a single byte may be a flipped bit: blanking the whole pair would lose more
        return None
    pieces = [PAIR_END * len(p) if b"\0" in p else p for p in text.split(PAIR_END)]
    lost = sum(b"\0" in p for p in text.split(PAIR_END))
    why = "nothing proves what they were; the body is sound, and every decoder passes over empty pairs"
    what = f"blank {lost} destroyed {'property' if lost == 1 else 'properties'}"
    return Mended(resealed(raw[:at] + PAIR_END.join(pieces)), what, why, is_exact=False)


def _separated(piece: bytes) -> bytes:
    """What stands between two ends of pairs, with a zero byte that must have been a separator put right."""
    zero, names = piece.find(0), piece.count(NAME_END)
    if piece.count(0) != 1 or zero == 0:
        return piece
    if names == 0:
        return piece.replace(b"\0", NAME_END)
    is_between = piece.find(NAME_END) < zero < piece.rfind(NAME_END) - 1
    return piece.replace(b"\0", PAIR_END) if names == 2 and is_between else piece


def resealed(record: bytes) -> bytes:
    """The record with its own CRC computed anew, if it carries one."""
    return record[:-SIZE] + _digits(record) if record[-SIZE:].startswith(NAME) else record


def _digits(record: bytes) -> bytes:
    """The CRC property that the record should end with (spec 2.7)."""
    number = crc32(record[:-SIZE]) & MASK
    return NAME + (b"%0*d" % (DIGITS, number))[::-1] + PAIR_END


def heal_property_crc(raw: bytes) -> Mended | None:
    """A record whose body is sound, but not its own CRC: the wrong bits outside the body, or those of the CRC.

    None where neither or both explain it.
    """
    found = _in_digits(raw) + _in_record(raw)
    return found[0] if len(found) == 1 else None


def _in_digits(raw: bytes) -> list[Mended]:
    right = _digits(raw)
    pattern = bytes(a ^ b for a, b in zip(raw[-SIZE:], right, strict=True))
    if not 0 < span_of(pattern) <= LONGEST_BURST:
        return []
    why = f"every other byte of the record gives this CRC; {SIZE * 8} places tried"
    return [Mended(raw[:-SIZE] + right, "put the record's own CRC right", why, is_exact=True)]


def _in_record(raw: bytes) -> list[Mended]:
    digits = raw[-SIZE + len(NAME) : -1]
    if not digits.isdigit():
        return []
    found = diagnose(raw[:-SIZE], int(digits[::-1]) & 0xFFFFFFFF)
    if found.correction is None or found.correction.at < 0 or found.tried > MOST_CANDIDATES:
        return []
    record, at = bytearray(raw), found.correction.at
    for i, bits in enumerate(found.correction.pattern):
        record[at + i] ^= bits
    fields = decode_record(raw)[0]
    body_at = int(head_sizes()[layout_variant(raw)])
    if body_at <= at + len(found.correction.pattern) - 1 and at < body_at + len(fields["body"]):
        return []  # the body has a CRC of its own, and that one fits
    return [
        Mended(bytes(record), f"heal byte {at} of the record", f"the record's own CRC: {found.odds}", is_exact=True)
    ]


def with_store_time(raw: bytes, time: int) -> bytes:
    """The record with another STORETIMESTAMP, in ms."""
    at = int(head_offsets("store_timestamp")[layout_variant(raw)])
    return resealed(raw[:at] + struct.pack(">q", time) + raw[at + 8 :])
