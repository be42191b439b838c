"""Batches without keys, values and values of headers, for bundles: what stands there keeps its shape.

Headers of batches, offsets, times, sizes and names of headers stay. A value becomes zeros, a key digits by which equal
keys stay equal; four bytes of them give the batch the CRC that it had. The records of a compressed batch are compressed
again, with room up to the size that they had. Records of brokers' own topics stay, but for what clients and
administrators put into them: metadata of a commit, secrets of users, tokens and settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from secrets import token_bytes

import numpy as np
from crc32c import crc32c

from formats.errors import DecodeError
from formats.kafka import message_set
from formats.kafka.internal_records import INTERNAL_TOPICS, decode_record
from formats.kafka.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    MAGIC_AT,
    PEEK,
    Attributes,
    Codec,
    header_plan,
)
from rmqctl.files.local import ByteSource
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, FileKind, meaning_of, partition_of
from rmqctl.kafka.log.codecs import deflate, inflate
from rmqctl.kafka.log.legacy import InnerMessages, Message, read_message, unwrap
from rmqctl.kafka.log.reference import Places, places
from rmqctl.kafka.log.scan import Extent, scan, whole_in
from rmqctl.redaction import Kept, healed_records, mask, masked, with_crc
from rmqctl.repair.crc_correction import CRC32, CRC32C, Crc

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform; the same function at a fifth of the speed
    from zlib import crc32

_CRC, _OLD_CRC = Crc(CRC32C, crc32c), Crc(CRC32, crc32)
_CODEC, _CONTROL = int(Attributes.CODEC), int(Attributes.CONTROL)
_PATCH, _LEAST = 4, 5
_SECRET = token_bytes(16)
"""Keys of one bundle are compared with each other, and with those of no other."""
_EMPTY_BLOCK = 5
"""Bytes of the smallest block in the framing of snappy: its length, and that nothing is in it."""
Span = tuple[int, int]
"""Where content lies: its first byte and its size."""


def redacted_file(
    name: str, source: ByteSource, healed: ByteSource | None, changed: Sequence[tuple[int, int]]
) -> Kept | str | None:
    """Return what a bundle keeps of a file of a log directory; None for all, a phrase for nothing.

    Args:
        name: relative to the directory.
        healed, changed: as of :func:`redacted_log`.
    """
    directory, _, own = name.rpartition("/")
    meaning = meaning_of(own)
    if meaning.kind is FileKind.OTHER:
        return "of no known kind"
    if meaning.kind not in {FileKind.LOG, FileKind.KRAFT_SNAPSHOT}:
        return None
    partition = partition_of(directory.rpartition("/")[2])
    is_metadata = meaning.kind is FileKind.KRAFT_SNAPSHOT
    topic = METADATA_TOPIC if is_metadata else "" if partition is None else partition.topic
    return redacted_log(source, topic, None if is_metadata else meaning.base, healed, changed)


def redacted_log(
    source: ByteSource,
    topic: str,
    base: int | None,
    healed: ByteSource | None = None,
    changed: Sequence[tuple[int, int]] = (),
) -> Kept:
    """Yield what a bundle keeps of a segment or of a snapshot of the metadata log.

    Args:
        base: base offset of the segment, None where nothing says it.
        healed: the file as a plan would leave it; None where no plan changes batches of it.
        changed: where the plan writes, ascending.
    """

    def redact(raw: bytes, damaged: bytes = b"") -> bytes:
        return redacted_batch(raw, topic, damaged)

    def inside(begin: int, end: int) -> Kept:
        found = whole_in(source, Extent(source.name, base, begin, end))
        for row, at in enumerate(found.position.tolist()):
            yield at, redact(found.raw(row))

    for block in scan(source, Extent(source.name, base)):
        for row, at in enumerate(block.position.tolist()):
            raw = block.raw(row)
            yield at, redact(raw)
            if not block.crc_ok[row]:
                yield from inside(at + 1, at + len(raw))
        for gap in block.gaps:
            yield from masked(source, gap.position, gap.end)
            head = source.read_at(gap.position, min(HEADER_SIZE, gap.end - gap.position))
            yield gap.position, _head(head)
            if any(source.data_ranges(gap.position, gap.end)):
                yield from inside(gap.position, gap.end)
    if healed is not None:
        batches = _changed_batches(healed, base, changed)
        yield from healed_records(source, batches, lambda at, raw: redact(raw, source.read_at(at, len(raw))))


def _head(data: bytes) -> bytes:
    """Return what is kept of the first bytes of a gap: what findings quote, or a header that looks like one."""
    if len(data) < HEADER_SIZE:
        return data[:PEEK]
    fields = header_plan().unpack_from(data)[0]
    is_one = fields["magic"] == 2 and 0 <= fields["attributes"] <= 0xFF and fields["last_offset_delta"] >= 0
    return data if is_one else data[:PEEK]


def _changed_batches(
    healed: ByteSource, base: int | None, changed: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """Yield the sound batches in which a plan writes."""
    begins, ends = np.array(changed, np.int64).reshape(-1, 2).T
    for block in scan(healed, Extent(healed.name, base)):
        first = np.searchsorted(ends, block.position, side="right")
        touched = first < np.searchsorted(begins, block.position + block.size, side="left")
        for row in np.flatnonzero(touched & block.crc_ok).tolist():
            yield int(block.position[row]), block.raw(row)


# --- a batch --------------------------------------------------------------------------------------------


def redacted_batch(raw: bytes, topic: str, damaged: bytes = b"") -> bytes:
    """Return a batch without its content: as long, with the same header, the same numbers and sizes of its records.

    Its CRC stays, right or wrong as it was; only that of so little content that it would say what this is becomes that
    of the filler. What cannot be decoded is masked.

    Args:
        damaged: what it is in the store, where a plan heals it: the filler has the CRC of that, too, when it is damaged
            in the same way.
    """
    if raw[MAGIC_AT] < 2:
        return _redacted_messages(raw)
    fields = header_plan().unpack_from(raw)[0]
    if fields["attributes"] & _CONTROL:
        return raw
    codec, stored = fields["attributes"] & _CODEC, raw[HEADER_SIZE:]
    data, spans = _filled(codec, stored, fields["records_count"], topic)
    if data == stored:
        return raw
    made = bytearray(raw[:HEADER_SIZE])
    if codec and data is not None:
        packed = _packed(codec, data, spans, len(stored))
        made += packed[0]
        spot = len(raw) - _PATCH if packed[1] >= _PATCH else None
        spans = [(len(stored) - packed[1], packed[1])]
    elif data is not None:
        made += data
        spot = None if topic in INTERNAL_TOPICS else _spot(spans, HEADER_SIZE)  # texts there stay texts
    else:
        made += bytes(len(stored))
        spot = len(raw) - _PATCH if len(stored) >= _LEAST else None
    free = [] if spot is None else [at for at in _inside(spans, HEADER_SIZE) if not made[at]]
    _settle(made, raw, CRC_AT, CRC_FROM, spot, _CRC)
    content = sum(size for _, size in spans)
    if len(damaged) == len(raw) and damaged[MAGIC_AT] < 2 and content >= _LEAST_BOTH:
        _settle_both(made, raw, damaged, free[-_MOST_FREE:])
    return bytes(made)


_LEAST_BOTH, _MOST_FREE = 9, 64
"""Bytes of content that do not follow from two CRCs, and those that are enough to choose both."""


def _inside(spans: Sequence[Span], lead: int) -> Iterator[int]:
    return (lead + at for begin, size in spans for at in range(begin, begin + size))


def _settle_both(made: bytearray, raw: bytes, damaged: bytes, free: Sequence[int]) -> None:
    """Give a batch whose damage makes an old message of it the CRC of that message, too, and leave its own.

    Both are linear, and their polynomials have no factor in common: 64 bits of filler, or some more where they are
    scattered, give any two of them.

    Args:
        raw, damaged: it and the message in the store.
        free: places whose filler may be any.
    """
    harmed = bytes(a ^ b ^ c for a, b, c in zip(made, raw, damaged, strict=True))
    begin = message_set.CRC_FROM
    left, chosen = _OLD_CRC.compute(damaged[begin:]) ^ _OLD_CRC.compute(harmed[begin:]), 0
    basis = dict[int, tuple[int, int]]()
    for number, at in enumerate(free):
        for bit in range(8):
            effect, flips = _effect(len(raw) - at, bit), 1 << 8 * number + bit
            while effect and effect.bit_length() in basis:
                other, more = basis[effect.bit_length()]
                effect, flips = effect ^ other, flips ^ more
            if effect:
                basis[effect.bit_length()] = effect, flips
    while left and left.bit_length() in basis:
        other, more = basis[left.bit_length()]
        left, chosen = left ^ other, chosen ^ more
    if left:
        return
    found = bytearray(made)
    for number, at in enumerate(free):
        found[at] ^= chosen >> 8 * number & 0xFF
    if any(found[at] != raw[at] for at in free):
        made[:] = found


def _effect(distance: int, bit: int) -> int:
    """Return what a bit does to both CRCs: that of a batch above that of an old message.

    Args:
        distance: bytes from its own to the end of both.
    """
    zeros = bytes(distance)
    one = bytes([1 << bit]) + zeros[1:]
    return (_CRC.compute(one) ^ _CRC.compute(zeros)) << 32 | _OLD_CRC.compute(one) ^ _OLD_CRC.compute(zeros)


def _settle(made: bytearray, raw: bytes, crc_at: int, begin: int, spot: int | None, crc: Crc) -> None:
    """Give a batch or message the CRC that it had, or the stored one that of the filler where it was right.

    Args:
        crc_at, begin: where the CRC stands, and the first byte under it.
        spot: where four bytes may be chosen; None for nowhere.
    """
    computed, stored = crc.compute(raw[begin:]), raw[crc_at : crc_at + _PATCH]
    if spot is not None:
        under = made[begin:]
        with_crc(under, spot - begin, computed, crc)
        if under[spot - begin :][:_PATCH] != raw[spot : spot + _PATCH]:
            made[begin:] = under
            return
    if int.from_bytes(stored, "big") == computed:
        made[crc_at : crc_at + _PATCH] = crc.compute(bytes(made[begin:])).to_bytes(_PATCH, "big")


def _spot(spans: Sequence[Span], lead: int) -> int | None:
    """Return where four bytes of the longest content begin; None where all content is hardly more than these."""
    at, size = max(spans, key=lambda span: span[1], default=(0, 0))
    if size < _PATCH or sum(size for _, size in spans) < _LEAST:
        return None
    return lead + at + size - _PATCH


def _filled(codec: int, stored: bytes, count: int, topic: str) -> tuple[bytes | None, list[Span]]:
    """Return records with filler, decompressed, and where it lies; None for what does not inflate."""
    try:
        data = bytearray(inflate(codec, stored))
    except DecodeError:
        return None, []
    spans: list[Span] = []
    end = 0
    try:
        for place in places(bytes(data), 0, len(data), count):
            spans += _fill_record(data, place, topic)
            end = place.end
    except DecodeError:
        data[end:] = mask(bytes(data[end:]))
        spans.append((end, len(data) - end))
    return bytes(data), spans


def _fill_record(data: bytearray, place: Places, topic: str) -> Iterator[Span]:
    """Put filler into the place of the content of a record; yield where."""
    if topic in INTERNAL_TOPICS:
        yield from _fill_secrets(data, place, topic)
        return
    if place.key_size > 0:
        _fill_key(data, place.key_at, place.key_size)
        yield place.key_at, place.key_size
    values = [(place.value_at, place.value_size), *((at, size) for _, _, at, size in place.headers)]
    for at, size in values:
        if size > 0:
            data[at : at + size] = bytes(size)
            yield at, size


def _fill_key(data: bytearray, at: int, size: int) -> None:
    data[at : at + size] = _key(bytes(data[at : at + size]))


@lru_cache(1 << 16)
def _key(key: bytes) -> bytes:
    """Return the filler of a key, the same for equal keys."""
    return blake2b(key, digest_size=16, key=_SECRET).hexdigest().encode().ljust(len(key), b"0")[: len(key)]


def _packed(codec: int, data: bytes, spans: Sequence[Span], size: int) -> tuple[bytes, int]:
    """Return records compressed to exactly a size, and how many bytes at the end mean nothing.

    Filler that does not fit becomes zeros, of which some at the front do not compress, as many as it takes. What is
    still too long is left out, and zeros stand for all of it.
    """
    for filler in _fillers(data, spans):
        packed = deflate(codec, filler)
        if codec == Codec.SNAPPY and len(packed) > size and len(data) <= _SMALL:
            packed = packed[:_XERIAL_HEAD] + _in_frame(_densely(filler))
        room = size - len(packed)
        if not _fits(codec, room):
            continue
        if codec == Codec.SNAPPY and room:
            return packed + _in_frame(bytes(room - _PATCH)), room - _EMPTY_BLOCK
        return packed + bytes(room), room
    return bytes(size), size


_SMALL = 4096
_XERIAL_HEAD = 16
_LEAST_COPY, _SHORT_COPY, _LONG_COPY, _NEAR, _FAR = 4, 11, 64, 1 << 11, 1 << 16


def _in_frame(block: bytes) -> bytes:
    return len(block).to_bytes(4, "big") + block


def _densely(data: bytes) -> bytes:
    """Return a block of snappy that takes every copy there is: Java's library takes more of them than others do."""
    made = bytearray()
    size = len(data)
    while size >= 0x80:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    made.append(size)
    at = literal = 0
    while at < len(data):
        length, start = _longest(data, at)
        if length < _LEAST_COPY:
            at += 1
            continue
        made += _literal(data[literal:at]) + _copies(at - start, length)
        at = literal = at + length
    return bytes(made + _literal(data[literal:]))


def _longest(data: bytes, at: int) -> tuple[int, int]:
    """Return how many bytes from a place on stand at an earlier one, too, and at which; they may overlap."""
    start, length = -1, _LEAST_COPY - 1
    while True:
        found = data.find(data[at : at + length + 1], max(at - _FAR + 1, 0), at + length)
        if found < 0 or at + length >= len(data):
            return (length, start) if start >= 0 else (0, 0)
        start, length = found, length + 1


def _literal(data: bytes) -> bytes:
    if not data:
        return b""
    size = len(data) - 1
    short = 60
    if size < short:
        return bytes([size << 2]) + data
    width = (size.bit_length() + 7) // 8
    return bytes([short - 1 + width << 2]) + size.to_bytes(width, "little") + data


def _copies(offset: int, length: int) -> bytes:
    made = bytearray()
    while length:
        part = min(length, _LONG_COPY)
        if _LEAST_COPY <= part <= _SHORT_COPY and offset < _NEAR:
            made += bytes([1 | part - _LEAST_COPY << 2 | offset >> 8 << 5, offset & 0xFF])
        else:
            made += bytes([2 | part - 1 << 2]) + offset.to_bytes(2, "little")
        length -= part
    return bytes(made)


_NOISE = 64
"""Bytes of filler that do not compress at most, where some make a stream as long as it has to be."""


def _fillers(data: bytes, spans: Sequence[Span]) -> Iterator[bytes]:
    yield data
    plain = bytearray(data)
    for at, length in spans:
        plain[at : at + length] = bytes(length)
    yield bytes(plain)
    content = (at for begin, length in spans for at in range(begin, begin + length))
    for number, at in enumerate(islice(content, _NOISE)):
        plain[at] = 0x80 | number
        yield bytes(plain)


def _fits(codec: int, room: int) -> bool:
    """Whether a stream can be followed by so many bytes that no reader looks at."""
    return room >= _EMPTY_BLOCK or room == 0 if codec == Codec.SNAPPY else room >= 0


# --- magic 0 and 1 --------------------------------------------------------------------------------------


def _redacted_messages(raw: bytes) -> bytes:
    """Return a message of magic 0 or 1 without its content, or one that wraps others."""
    try:
        message = read_message(raw, 0, len(raw))
        inner = unwrap(raw, message) if message.codec else None
    except DecodeError:
        return raw[:PEEK] + mask(raw[PEEK:])
    made = bytearray(raw)
    if inner is None:
        spans = list(_fill_message(made, message))
        spot = _spot(spans, 0)
    else:
        packed, room = _packed(message.codec, *_filled_inner(inner), message.value_size)
        made[message.value_at : message.value_at + message.value_size] = packed
        spot = message.value_at + message.value_size - _PATCH if room >= _PATCH else None
    _settle(made, raw, message_set.CRC_AT, message_set.CRC_FROM, spot, _OLD_CRC)
    return bytes(made)


def _fill_message(data: bytearray, message: Message) -> Iterator[Span]:
    if message.key_size > 0:
        _fill_key(data, message.key_at, message.key_size)
        yield message.key_at, message.key_size
    if message.value_size > 0:
        data[message.value_at : message.value_at + message.value_size] = bytes(message.value_size)
        yield message.value_at, message.value_size


def _filled_inner(inner: InnerMessages) -> tuple[bytes, list[Span]]:
    """Return the messages of a wrapper with filler and CRCs of it, and where it lies."""
    data, spans = bytearray(inner.data), list[Span]()
    for message in inner:
        spans += _fill_message(data, message)
        crc_at = message.position + message_set.CRC_AT
        if message.crc == crc32(bytes(inner.data[message.crc_range])):
            data[crc_at : crc_at + _PATCH] = crc32(bytes(data[message.crc_range])).to_bytes(_PATCH, "big")
    return bytes(data), spans


# --- brokers' own topics --------------------------------------------------------------------------------


_SECRETS = {
    "OffsetCommitValue": ("metadata",),
    "UserScramCredentialRecord": ("salt", "storedKey", "serverKey"),
    "DelegationTokenRecord": ("tokenId",),
    "ConfigRecord": ("value",),
}
"""Fields that hold what clients and administrators put in, by the message that has them."""
_SECRET_SETTINGS = ("password", "secret", "jaas", "key", "credential", "token", "certificate")
"""Words in the names of settings whose values are secrets; what brokers do with logs depends on the others."""


def _fill_secrets(data: bytearray, place: Places, topic: str) -> Iterator[Span]:
    """Put filler into the place of secrets in a record of a broker's own topic; yield where."""
    if place.value_size <= 0:
        return
    value = bytes(data[place.value_at : place.value_at + place.value_size])
    key = bytes(data[place.key_at : place.key_at + place.key_size]) if place.key_size >= 0 else None
    found = decode_record(topic, key, value)
    if found is None or found.message is None or found.value is None:
        return
    fields = found.value
    name = str(fields.get("name", ""))
    if found.message.name == "ConfigRecord" and not any(word in name for word in _SECRET_SETTINGS):
        return
    for text in _texts(fields.get(name) for name in _SECRETS.get(found.message.name, ())):
        at = value.rfind(text) if found.message.name == "ConfigRecord" else value.find(text)
        if at >= 0:
            begin = place.value_at + at
            data[begin : begin + len(text)] = b"x" * len(text)
            yield begin, len(text)


def _texts(values: Iterable[object]) -> Iterator[bytes]:
    for value in values:
        text = value.encode() if isinstance(value, str) else value
        if isinstance(text, bytes) and text:
            yield text
