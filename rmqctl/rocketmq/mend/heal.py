"""The true bytes of a damaged record, where redundancy gives them and the record then proves itself.

What is known twice: TOTALSIZE (queue unit, next record's begin), magic (a constant), PHYSICALOFFSET (the
position), QUEUEID, QUEUEOFFSET and topic (queue unit), the lengths (they add up to TOTALSIZE), body and
BODYCRC (each other). What nothing gives a second time is left as it is: flags, times, hosts, RECONSUMETIMES,
PREPAREDTRANSACTIONOFFSET, properties.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from formats.rocketmq.message import Magic, SysFlag, decode_record
from formats.rocketmq.properties import NAME_END, PAIR_END, split_properties
from rmqctl.rocketmq.body import why_not_inflated
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.dispatch.request import TRANSACTION, UNQUEUED
from rmqctl.rocketmq.mend.claims import Claim
from rmqctl.rocketmq.mend.flags import KNOWN_FLAGS
from rmqctl.rocketmq.mend.layout import Layout, layouts
from rmqctl.rocketmq.mend.syndrome import Diagnosis, diagnose
from rmqctl.rocketmq.variants import HOST_SHIFT

SMALLEST = 92
"""Bytes of the smallest record with a topic: V1, IPv4 hosts, no body, one letter, no properties."""
_COMMIT = 0x8
_YEARS = 10 * 365 * 86_400_000  # ms
_CODECS = {0: b"\x78", 1: b"\x04\x22\x4d\x18", 2: b"\x28\xb5\x2f\xfd", 3: b"\x78"}
_PLACE = {"QUEUEID", "QUEUEOFFSET", "TOPIC"}
_LENGTHS = {"BODYLEN", "TOPICLEN", "PROPLEN"}


@dataclass(frozen=True, slots=True)
class Healed:
    """A record as it was.

    Attributes:
        record: all its bytes.
        fields: names of the fields that were corrected.
        proof: what proves it, one sentence.
    """

    record: bytes
    fields: tuple[str, ...]
    proof: str

    def what(self, physical: int) -> str:
        """What was done, for the plan."""
        return f"heal the record at {physical}: {', '.join(self.fields) or 'nothing to change'}"


def heal(raw: bytes, physical: int, claim: Claim | None = None) -> Healed | None:
    """The record that ``raw`` was, or None if nothing proves what it was.

    Of the ways to lay out the bytes the one with the fewest corrections counts, if it is the only one with so few.

    Args:
        raw: the bytes from the record's begin to its end, both known.
        physical: where it lies in the log, bytes.
        claim: what a queue unit says of it.
    """
    if len(raw) < SMALLEST:
        return None
    proven: dict[bytes, Healed] = {}
    fewest = 0
    for layout in layouts(raw, claim.topic_bytes if claim else None):
        if proven and len(layout.changed) > fewest:
            break
        found = _laid_out(raw, physical, claim, layout)
        if found is not None:
            proven.setdefault(found.record, found)
            fewest = len(layout.changed)
    if len(proven) > 1:  # the host bits of an IPv6 address beside an IPv4 one may be swapped: all lengths are equal
        proven = {record: healed for record, healed in proven.items() if _is_plausible(record)}
    return next(iter(proven.values())) if len(proven) == 1 else None


def _is_plausible(record: bytes) -> bool:
    """Whether hosts and times read as such: ports of 16 bits, stored within years of when it was born."""
    fields, _ = decode_record(record)
    born, stored = fields["born_timestamp"], fields["store_timestamp"]
    ports = 0 <= fields["born_port"] < 1 << 16 and 0 <= fields["store_port"] < 1 << 16
    return ports and born > 0 and stored > 0 and abs(stored - born) < _YEARS


def _laid_out(raw: bytes, physical: int, claim: Claim | None, layout: Layout) -> Healed | None:
    """The record by one layout, if its body proves it."""
    record, fields = bytearray(raw), list(layout.changed)
    _put(record, fields, "TOTALSIZE", 0, struct.pack(">i", len(raw)))
    magic = Magic.MESSAGE_V2 if layout.variant >> 2 else Magic.MESSAGE_V1
    record[4:8] = struct.pack(">i", magic)
    record[layout.body_at - 4 : layout.body_at] = struct.pack(">i", layout.body_size)
    record[layout.topic_at - layout.text : layout.topic_at] = layout.topic_size.to_bytes(layout.text, "big")
    record[layout.properties_at - 2 : layout.properties_at] = struct.pack(">h", layout.properties_size)
    place(record, fields, physical, claim, layout.topic_at)
    lengths = _LENGTHS & set(fields)
    if lengths and not is_clean(bytes(record[layout.properties_at :])):
        return None
    body = prove_body(record, layout, exact="SYSFLAG" in fields or len(lengths) > (1 if claim else 0))
    if body is None:
        return None
    if claim is not None and not _PLACE & set(fields) and raw[39] & TRANSACTION in UNQUEUED:
        fields += ["SYSFLAG"] if "SYSFLAG" not in fields else []  # what has its place in a queue is no half message
    if "SYSFLAG" in fields:
        set_flags(record, layout)
    if body.correction is not None:
        fields.append("BODYCRC" if body.correction.at < 0 else "body")
    return Healed(bytes(record), tuple(fields), _proof(layout, claim, body))


def _put(record: bytearray, fields: list[str], name: str, at: int, value: bytes) -> None:
    """Put a field right; note its name if it was not."""
    if record[at : at + len(value)] != value:
        record[at : at + len(value)] = value
        fields.append(name)


def place(record: bytearray, fields: list[str], physical: int, claim: Claim | None, topic_at: int) -> None:
    """Put right what a record says of its place in log and queue."""
    _put(record, fields, "PHYSICALOFFSET", 28, struct.pack(">q", physical))
    if claim is None:
        return
    _put(record, fields, "QUEUEID", 12, struct.pack(">i", claim.queue_id))
    _put(record, fields, "QUEUEOFFSET", 20, struct.pack(">q", claim.queue_offset))
    _put(record, fields, "TOPIC", topic_at, claim.topic_bytes)


def is_clean(properties: bytes) -> bool:
    """Whether a properties text is as encoders write it: no zero bytes, every piece a name, 0x01 and a value."""
    pieces = properties.removesuffix(PAIR_END).split(PAIR_END) if properties else []
    return b"\0" not in properties and all(piece.find(NAME_END) > 0 for piece in pieces)


def prove_body(record: bytearray, layout: Layout, *, exact: bool) -> Diagnosis | None:
    """Whether body and BODYCRC fit each other, after correcting a flipped bit or a short burst; else None.

    Args:
        exact: the body must fit as it is, because its place or length is a guess: two guesses do not prove each other.
    """
    body = bytes(record[layout.body_at : layout.body_at + layout.body_size])
    stored = int.from_bytes(record[8:12], "big")
    if stored == crc32(body) & MASK:
        return Diagnosis(0, 0, None) if body or not exact else None
    if exact:
        return None
    found = diagnose(body, stored)
    if found.correction is None:
        return None
    at = 8 if found.correction.at < 0 else layout.body_at + found.correction.at
    for i, bits in enumerate(found.correction.pattern):
        record[at + i] ^= bits
    return found


def set_flags(record: bytearray, layout: Layout) -> None:
    """Put right a SYSFLAG whose host bits were wrong: every other bit has its counterpart in the record (spec 2.3).

    Compression shows in the body, an inner batch has INNER_NUM, a committed message
    PREPAREDTRANSACTIONOFFSET; clients set no further bit.
    """
    stated, hosts = int.from_bytes(record[36:40], "big"), (layout.variant & 3) << HOST_SHIFT
    body = bytes(record[layout.body_at : layout.body_at + layout.body_size])
    names = {name for name, _ in split_properties(bytes(record[layout.properties_at :]))}
    prepared = int.from_bytes(record[layout.body_at - 12 : layout.body_at - 4], "big", signed=True)
    flags = hosts | _compression(stated, body)
    if b"INNER_NUM" in names:
        flags |= int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
    if prepared > 0 and b"TRAN_MSG" in names:
        flags |= _COMMIT
    record[36:40] = flags.to_bytes(4, "big")


def _compression(stated: int, body: bytes) -> int:
    """The bits of SYSFLAG about compression that go with a body."""
    codec, compressed = stated >> 8 & 7, bool(stated & SysFlag.COMPRESSED)
    if compressed and codec in _CODECS and body.startswith(_CODECS[codec]):
        return codec << 8 | int(SysFlag.COMPRESSED)
    for number in (1, 2):  # their marks are four bytes long and no chance
        if body.startswith(_CODECS[number]):
            return number << 8 | int(SysFlag.COMPRESSED)
    if stated & ~KNOWN_FLAGS and not why_not_inflated(body, int(SysFlag.COMPRESSED)):
        return int(SysFlag.COMPRESSED)  # bits that nobody sets: the whole field is gone, and the body is a zlib stream
    return 0


def _proof(layout: Layout, claim: Claim | None, body: Diagnosis) -> str:
    """One sentence on what proves a record."""
    parts = ["all lengths add up to the begin of the next record"]
    if claim is not None and claim.source:
        parts.append(f"topic, queue and queue offset by {claim.source}")
    parts.append(f"body CRC: {body.odds}" if body.correction else f"the CRC of the {layout.body_size}-byte body fits")
    return "; ".join(parts)
