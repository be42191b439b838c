"""The true bytes of a damaged record, where redundancy gives them and the record then proves itself.

What is known twice: TOTALSIZE (queue unit, next record's begin), magic (a constant), PHYSICALOFFSET (the position),
QUEUEID, QUEUEOFFSET and topic (queue unit), the lengths (they add up to TOTALSIZE), body and BODYCRC (each other).
What nothing gives a second time is left as it is: flags, times, hosts, RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET,
properties.

Where some lengths are wrong the bytes may be laid out in several ways between the known begin and end. Each way
corrects some of magic, host flags, BODYLEN, TOPICLEN and PROPLEN, so that everything adds up; which of them is right
is for a CRC to say.

Of a whole record the parts that the body CRC does not cover are healed as well: properties, the record's own CRC, the
store time, and SYSFLAG by what a sound body itself says of its compression.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from formats.rocketmq.message import BODY_MAGIC, COMMIT, TRANSACTION, Magic, SysFlag, codec_of, decode_record
from formats.rocketmq.properties import NAME_END, PAIR_END, is_clean, split_properties
from formats.rocketmq.property_crc import DIGITS, NAME, SIZE
from rmqctl.repair.crc_correction import CRC32, LONGEST_BURST, MOST_CANDIDATES, Crc, Diagnosis, diagnose, span_of
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.log.block import head_offsets, head_sizes
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.record import (
    BODY_LENGTH,
    COMPRESSIONS,
    CRC_SPAN,
    FLAGS_SPAN,
    HOST_SHIFT,
    MAGIC_SPAN,
    PHYSICAL_AT,
    QUEUE_OFFSET_AT,
    SIZE_SPAN,
    SMALLEST,
    body_size_of,
    can_be_topic,
    flags_of,
    head_offset,
    likely_variant,
    magic_of,
    names_place,
    physical_of,
    variant_of,
    why_not_inflated,
)
from rmqctl.rocketmq.repair.queue_references import QueueReference
from rmqctl.text import number_of

BODY_CRC = Crc(CRC32, crc32, MASK)
"""How brokers keep the CRC of a body: without the highest bit."""
_HOSTS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_MOST_PLACES = 64
_MOST_PROPERTIES = 32767


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where the parts of a record lie.

    Attributes:
        variant: number of the layout variant (V2 and host bits).
        body_size, topic_size, properties_size: bytes.
        changed: names of the fields that are not as stated.
    """

    variant: int
    body_size: int
    topic_size: int
    properties_size: int
    changed: tuple[str, ...]

    @property
    def body_at(self) -> int:
        return int(head_sizes()[self.variant])

    @property
    def text(self) -> int:
        """Bytes of the TOPICLEN field."""
        return 1 + (self.variant >> 2)

    @property
    def topic_at(self) -> int:
        return self.body_at + self.body_size + self.text

    @property
    def properties_at(self) -> int:
        return self.topic_at + self.topic_size + 2


def layouts(raw: bytes, topic: bytes | None) -> Iterator[RecordLayout]:
    """Layouts that fill ``raw`` exactly, those with fewer corrections first.

    Args:
        topic: the topic that a queue unit gives, None where nothing does.
    """
    found: dict[tuple[int, int, int, int], RecordLayout] = {}
    for variant, named in _variants(raw, topic):
        head, text = int(head_sizes()[variant]), 1 + (variant >> 2)
        for body in _body_sizes(raw, head, text, topic):
            for layout in _texts(raw, variant, body, named, topic):
                found.setdefault((variant, body, layout.topic_size, layout.properties_size), layout)
    yield from sorted(found.values(), key=lambda layout: len(layout.changed))


def _variants(raw: bytes, topic: bytes | None) -> Iterator[tuple[int, tuple[str, ...]]]:
    """All layout variants with the fields that would have to be corrected for them."""
    magic, flags = magic_of(raw), flags_of(raw)
    for v2 in (0, 4):
        if topic is not None and (len(topic) > 127) != bool(v2):
            continue
        right = magic == (Magic.MESSAGE_V2 if v2 else Magic.MESSAGE_V1)
        for hosts in range(4):
            changed = (() if right else ("MAGICCODE",)) + (
                () if (flags & _HOSTS) >> HOST_SHIFT == hosts else ("SYSFLAG",)
            )
            yield v2 | hosts, changed


def _body_sizes(raw: bytes, head: int, text: int, topic: bytes | None) -> Iterator[int]:
    """Yield the stated BODYLEN, those that put the known topic in its place, and those that the other lengths allow."""
    most = len(raw) - head - text - 2
    stated = int.from_bytes(raw[head - BODY_LENGTH : head], "big", signed=True)
    if 0 <= stated <= most:
        yield stated
    if topic:
        mark, at = len(topic).to_bytes(text, "big") + topic, head
        for _ in range(_MOST_PLACES):
            at = raw.find(mark, at)
            if at < 0:
                return
            yield at - head
            at += 1
        return
    yield from _fitting(raw, head, text)


def _fitting(raw: bytes, head: int, text: int) -> Iterator[int]:
    """Places where TOPICLEN, a topic and PROPLEN reach exactly to the end; looked for in the last 32 KiB or so."""
    low, count = max(head, len(raw) - _MOST_PROPERTIES - 260), 0
    for at in range(len(raw) - text - 3, low - 1, -1):
        size = int.from_bytes(raw[at : at + text], "big")
        end = at + text + size
        if not 0 < size <= 255 or end + 2 > len(raw):
            continue
        if end + 2 + int.from_bytes(raw[end : end + 2], "big") == len(raw) and can_be_topic(raw[at + text : end]):
            yield at - head
            count += 1
            if count >= _MOST_PLACES:
                return


def _texts(
    raw: bytes, variant: int, body: int, changed: tuple[str, ...], topic: bytes | None
) -> Iterator[RecordLayout]:
    """Layouts for one body: topic and properties as stated, or corrected to fill the rest."""
    head, text = int(head_sizes()[variant]), 1 + (variant >> 2)
    stated_body = body_size_of(raw, variant)
    if body != stated_body:
        changed = (*changed, "BODYLEN")
    at = head + body
    stated = int.from_bytes(raw[at : at + text], "big", signed=True)
    for size in _topic_sizes(raw, at + text, stated, topic):
        rest = len(raw) - at - text - size - 2
        if not 0 <= rest <= _MOST_PROPERTIES:
            continue
        named = changed if size == stated else (*changed, "TOPICLEN")
        if int.from_bytes(raw[at + text + size : at + text + size + 2], "big", signed=True) != rest:
            named = (*named, "PROPLEN")
        yield RecordLayout(variant, body, size, rest, named)


def _topic_sizes(raw: bytes, at: int, stated: int, topic: bytes | None) -> Iterator[int]:
    """Yield the known length, or the stated one, or any that puts a fitting PROPLEN after a valid topic."""
    if topic is not None:
        yield len(topic)
        return
    if 0 < stated <= 255:
        yield stated
    for size in range(1, 256):
        end = at + size
        if end + 2 > len(raw):
            return
        if int.from_bytes(raw[end : end + 2], "big") == len(raw) - end - 2 and can_be_topic(raw[at:end]):
            yield size


# --- parts of a whole record that the body crc does not cover ---------------------------------------


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


def mend_ports(raw: bytes) -> Mended:
    """Ports of hosts made such that a client can decode the record: their upper two bytes are always zero."""
    variant = variant_of(magic_of(raw), flags_of(raw))
    record = bytearray(raw)
    for at in (head_offset(name, variant or 0) for name in ("born_port", "store_port")):
        record[at : at + 2] = bytes(2)
    what = "put zeros into the upper bytes of a host's port"
    return Mended(resealed(bytes(record)), what, "no port has others; clients decode the record again", is_exact=False)


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
    """Return what stands between two ends of pairs, with a zero byte that must have been a separator put right."""
    zero, names = piece.find(0), piece.count(NAME_END)
    if piece.count(0) != 1 or zero == 0:
        return piece
    if names == 0:
        return piece.replace(b"\0", NAME_END)
    is_between = piece.find(NAME_END) < zero < piece.rfind(NAME_END) - 1
    return piece.replace(b"\0", PAIR_END) if names == 2 and is_between else piece


def resealed(record: bytes) -> bytes:
    """Return the record with its own CRC computed again, if it carries one."""
    return record[:-SIZE] + _digits(record) if record[-SIZE:].startswith(NAME) else record


def _digits(record: bytes) -> bytes:
    """Return the CRC property that the record should end with (spec 2.7)."""
    number = crc32(record[:-SIZE]) & MASK
    return NAME + (b"%0*d" % (DIGITS, number))[::-1] + PAIR_END


def heal_property_crc(raw: bytes) -> Mended | None:
    """Heal a record whose body is sound, but not its own CRC: the wrong bits outside the body, or those of the CRC.

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
    found = diagnose(raw[:-SIZE], int(digits[::-1]) & 0xFFFFFFFF, BODY_CRC)
    if found.correction is None or found.correction.at < 0 or found.tried > MOST_CANDIDATES:
        return []
    record, at = bytearray(raw), found.correction.at
    for i, bits in enumerate(found.correction.pattern):
        record[at + i] ^= bits
    fields = decode_record(raw)[0]
    body_at = int(head_sizes()[likely_variant(raw)])
    if body_at <= at + len(found.correction.pattern) - 1 and at < body_at + len(fields["body"]):
        return []  # the body has a CRC of its own, and that one fits
    return [
        Mended(bytes(record), f"heal byte {at} of the record", f"the record's own CRC: {found.odds}", is_exact=True)
    ]


def with_store_time(raw: bytes, time: int) -> bytes:
    """Return the record with another STORETIMESTAMP, in ms."""
    at = int(head_offsets("store_timestamp")[likely_variant(raw)])
    return resealed(raw[:at] + struct.pack(">q", time) + raw[at + 8 :])


# --- sysflag of a record whose body is sound --------------------------------------------------------


_COMPRESSED, _TYPE_SHIFT = int(SysFlag.COMPRESSED), 8
_TYPES = 0x7
_TYPE = _TYPES << _TYPE_SHIFT
KNOWN_FLAGS = 0x7FF
"""Bits that clients and brokers set; others go together with the wrong one."""


def mend_compression(raw: bytes, usual: Mapping[int, int] | None = None) -> Mended | None:
    """Mend a record whose body is not compressed as its flags say: not at all, by another codec, or without a word of
    it.

    A client that cannot decompress a message throws away all that came with it (``MessageDecoder.decodesBatch``).

    Args:
        usual: how many records of the store name each compression type; of two types of one codec the commoner counts.
    """
    flags, body = flags_of(raw), decode_record(raw)[0]["body"]
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
    record = raw[: FLAGS_SPAN.start] + flags.to_bytes(4, "big") + raw[FLAGS_SPAN.stop :]
    return Mended(resealed(record), what, why, is_exact=False)


# --- the true bytes of a damaged record -------------------------------------------------------------


_YEARS = 10 * 365 * 86_400_000  # ms
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
        """Return what was done, for the plan."""
        return f"heal the record at {physical}: {', '.join(self.fields) or 'nothing to change'}"


def _names_queue(raw: bytes, claim: QueueReference | None) -> bool:
    """Whether a PHYSICALOFFSET of zero goes with a place in a queue that is not the claimed one, nor zero: the first
    record of another log.
    """
    if claim is None or physical_of(raw):
        return False
    at, size = head_offset("queue_id", 0), 4
    queue_id = int.from_bytes(raw[at : at + size], "big")
    return queue_id not in (0, claim.queue_id)


def heal(raw: bytes, physical: int, claim: QueueReference | None = None) -> Healed | None:
    """Return the record that ``raw`` was, or None if nothing proves what it was.

    Of the ways to lay out the bytes the one with the fewest corrections counts, if it is the only one with so few. A
    record that names another place, of this log or of another, and does not agree in everything else with the unit,
    is none of this place.

    Args:
        raw: the bytes from the record's begin to its end, both known.
        physical: where it lies in the log, bytes.
        claim: what a queue unit says of it.
    """
    if len(raw) < SMALLEST:
        return None
    stated = physical_of(raw)
    elsewhere = stated != physical and (names_place(stated) or _names_queue(raw, claim))
    proven: dict[bytes, Healed] = {}
    fewest = 0
    for layout in layouts(raw, claim.topic_bytes if claim else None):
        if proven and len(layout.changed) > fewest:
            break
        found = _laid_out(raw, physical, claim, layout)
        if found is not None and not (elsewhere and (claim is None or _PLACE & set(found.fields))):
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


def _laid_out(raw: bytes, physical: int, claim: QueueReference | None, layout: RecordLayout) -> Healed | None:
    """Return the record by one layout, if its body proves it."""
    record, fields = bytearray(raw), list(layout.changed)
    _put(record, fields, "TOTALSIZE", SIZE_SPAN.start, struct.pack(">i", len(raw)))
    magic = Magic.MESSAGE_V2 if layout.variant >> 2 else Magic.MESSAGE_V1
    record[MAGIC_SPAN] = struct.pack(">i", magic)
    record[layout.body_at - BODY_LENGTH : layout.body_at] = struct.pack(">i", layout.body_size)
    record[layout.topic_at - layout.text : layout.topic_at] = layout.topic_size.to_bytes(layout.text, "big")
    record[layout.properties_at - 2 : layout.properties_at] = struct.pack(">h", layout.properties_size)
    place(record, fields, physical, claim, layout.topic_at)
    lengths = _LENGTHS & set(fields)
    if lengths and not is_clean(bytes(record[layout.properties_at :])):
        return None
    body = prove_body(record, layout, exact=_is_guess(fields, has_unit=claim is not None))
    if body is None:
        return None
    if claim is not None and not _PLACE & set(fields) and flags_of(raw) & TRANSACTION in UNQUEUED:
        fields += ["SYSFLAG"] if "SYSFLAG" not in fields else []  # what has its place in a queue is no half message
    if "SYSFLAG" in fields:
        set_flags(record, layout)
    if body.correction is not None:
        fields.append("BODYCRC" if body.correction.at < 0 else "body")
    return Healed(bytes(record), tuple(fields), _proof(layout, claim, body))


def _is_guess(fields: list[str], *, has_unit: bool) -> bool:
    """Whether so much of a header had to be corrected that only a body which fits as it is proves the rest."""
    places, lengths = (_PLACE | {"PHYSICALOFFSET"}) & set(fields), _LENGTHS & set(fields)
    return "SYSFLAG" in fields or len(lengths) > (1 if has_unit else 0) or len(places) > 2


def _put(record: bytearray, fields: list[str], name: str, at: int, value: bytes) -> None:
    """Put a field right; note its name if it was not."""
    if record[at : at + len(value)] != value:
        record[at : at + len(value)] = value
        fields.append(name)


def place(record: bytearray, fields: list[str], physical: int, claim: QueueReference | None, topic_at: int) -> None:
    """Put right what a record says of its place in log and queue."""
    _put(record, fields, "PHYSICALOFFSET", PHYSICAL_AT, struct.pack(">q", physical))
    if claim is None:
        return
    _put(record, fields, "QUEUEID", head_offset("queue_id", 0), struct.pack(">i", claim.queue_id))
    _put(record, fields, "QUEUEOFFSET", QUEUE_OFFSET_AT, struct.pack(">q", claim.queue_offset))
    _put(record, fields, "TOPIC", topic_at, claim.topic_bytes)


def prove_body(record: bytearray, layout: RecordLayout, *, exact: bool) -> Diagnosis | None:
    """Whether body and BODYCRC fit each other, after correcting a flipped bit or a short burst; else None.

    Args:
        exact: the body must fit as it is, because its place or length is a guess: two guesses do not prove each other.
    """
    body = bytes(record[layout.body_at : layout.body_at + layout.body_size])
    stored = int.from_bytes(record[CRC_SPAN], "big")
    if stored == crc32(body) & MASK:
        return Diagnosis(0, 0, None) if body or not exact else None
    if exact:
        return None
    found = diagnose(body, stored, BODY_CRC)
    if found.correction is None:
        return None
    at = CRC_SPAN.start if found.correction.at < 0 else layout.body_at + found.correction.at
    for i, bits in enumerate(found.correction.pattern):
        record[at + i] ^= bits
    return found


def set_flags(record: bytearray, layout: RecordLayout) -> None:
    """Put right a SYSFLAG whose host bits were wrong: every other bit has its counterpart in the record (spec 2.3).

    Compression shows in the body, an inner batch has INNER_NUM, a committed message
    PREPAREDTRANSACTIONOFFSET; clients set no further bit.
    """
    stated, hosts = flags_of(record), (layout.variant & 3) << HOST_SHIFT
    body = bytes(record[layout.body_at : layout.body_at + layout.body_size])
    names = {name for name, _ in split_properties(bytes(record[layout.properties_at :]))}
    at = head_offset("prepared_transaction_offset", layout.variant)
    prepared = int.from_bytes(record[at : at + 8], "big", signed=True)
    flags = hosts | _compression(stated, body)
    if b"INNER_NUM" in names:
        flags |= int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
    if prepared > 0 and b"TRAN_MSG" in names:
        flags |= COMMIT
    record[FLAGS_SPAN] = flags.to_bytes(4, "big")


def _compression(stated: int, body: bytes) -> int:
    """Return the bits of SYSFLAG about compression that go with a body."""
    codec, compressed = codec_of(stated), bool(stated & SysFlag.COMPRESSED)
    if compressed and codec in BODY_MAGIC and body.startswith(BODY_MAGIC[codec]):
        return codec << 8 | int(SysFlag.COMPRESSED)
    for number in (1, 2):  # their marks are four bytes long and no chance
        if body.startswith(BODY_MAGIC[number]):
            return number << 8 | int(SysFlag.COMPRESSED)
    if stated & ~KNOWN_FLAGS and not why_not_inflated(body, int(SysFlag.COMPRESSED)):
        return int(SysFlag.COMPRESSED)  # bits that nobody sets: the whole field is gone, and the body is a zlib stream
    return 0


def _proof(layout: RecordLayout, claim: QueueReference | None, body: Diagnosis) -> str:
    """One sentence on what proves a record."""
    parts = ["all lengths add up to the begin of the next record"]
    if claim is not None and claim.source:
        parts.append(f"topic, queue and queue offset by {claim.source}")
    parts.append(f"body CRC: {body.odds}" if body.correction else f"the CRC of the {layout.body_size}-byte body fits")
    return "; ".join(parts)
