"""Records of a log without bodies, keys and values of properties, for bundles: what stands there keeps its shape.

Headers, topics and names of properties stay. A body becomes zeros whose last four bytes give it the CRC that it had;
one that is compressed a stream of its codec. A value becomes a text of the same hash code, so that units of queues and
entries of the index still fit. What brokers write themselves stays: it decides what they do.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zlib import compress

from formats.errors import DecodeError
from formats.layout import plan_of
from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.dledger import ENTRY_SIZE
from formats.rocketmq.message import COMPRESSION, SysFlag
from formats.rocketmq.properties import NAME_END, PAIR_END
from formats.rocketmq.property_crc import NAME as CRC_NAME
from formats.rocketmq.property_crc import SIZE, property_crc, property_crc_bytes, stored_property_crc
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    INDEX_MARK,
    INDEX_TIME,
    MARK,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
)
from rmqctl.errors import MissingExtra, Refused
from rmqctl.files.local import ByteSource
from rmqctl.redaction import Kept, healed_records, mask, masked, same_hash, with_crc
from rmqctl.repair.crc_correction import CRC32, Crc
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.measure import records_anywhere, whole_records
from rmqctl.rocketmq.log.record import (
    CRC_SPAN,
    HEAD_SEEN,
    MAGIC_SPAN,
    body_size_of,
    compression,
    flags_of,
    head_size,
    inner_messages,
    likely_variant,
    magic_of,
    names_place,
    open_body,
    physical_of,
    variant_of,
    why_not_inflated,
)
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.databases import (
    DATABASES,
    MESSAGES,
    DatabaseDamaged,
    has_database,
    new_database,
    open_database,
)
from rmqctl.rocketmq.store.file_kinds import FileKind, kind_at
from rmqctl.rocketmq.store.files import StoreFiles, is_offset

KEPT_PROPERTIES = frozenset({
    b"PGROUP", b"WAIT", b"DELAY", b"RETRY_TOPIC", b"REAL_TOPIC", b"REAL_QID", b"TRAN_MSG", b"MIN_OFFSET",
    b"MAX_OFFSET", b"TRANSFER_FLAG", b"CORRECTION_FLAG", b"MQ2_FLAG", b"RECONSUME_TIME", b"MSG_REGION", b"TRACE_ON",
    b"MAX_RECONSUME_TIMES", b"CONSUME_START_TIME", b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME",
    b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES", b"CHECK_IMMUNITY_TIME_IN_SECONDS", b"TTL",
    b"ARRIVE_TIME", b"PUSH_REPLY_TIME", b"CLUSTER", b"MSG_TYPE", b"INNER_MULTI_QUEUE_OFFSET", b"INNER_MULTI_DISPATCH",
    b"INNER_NUM", b"INNER_BASE", b"TIMER_DELAY_LEVEL", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES",
    b"TIMER_OUT_MS", b"TIMER_DELAY_SEC", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"DLQ_ORIGIN_TOPIC",
    b"__STARTDELIVERTIME", b"DELIVERED_TIMESTAMP", b"TRANS_OFFSET", b"ORIGIN_GROUP", b"__LITE_TOPIC", b"__CRC32#",
})  # fmt: skip
"""Properties whose values brokers and clients make themselves, and by which brokers do things (MessageConst)."""
_KEPT_BODIES = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_REVIVE_LOG_")
"""Topics whose bodies brokers write: offsets of half messages, and what pop consumers took."""
_KEYS = b"KEYS"
_INNER, _COMPRESSED = int(SysFlag.INNER_BATCH), int(SysFlag.COMPRESSED)
_CRC = Crc(CRC32, crc32)
_LEAST = 5
"""Bytes of a body that may keep its CRC: one of four is the only one that has it."""
_PATCH = 4
_PEEK = MAGIC_SPAN.stop
_ITEM = plan_of(BatchItem)
_BODY_SIZE, _TEXT_SIZE = struct.Struct(">i"), struct.Struct(">h")
_MOST_TOPIC = 255


_LOGS = frozenset({FileKind.COMMIT_LOG, FileKind.DLEDGER_DATA, FileKind.COMPACTION_LOG})


def redacted_file(
    store: StoreFiles,
    name: str,
    source: ByteSource,
    healed: ByteSource | None,
    changed: Sequence[tuple[int, int]],
) -> Kept | str | None:
    """Return what a bundle keeps of a file of a store; None for all, a phrase for nothing.

    Args:
        name: as findings have it.
        healed, changed: as of :func:`redacted_log`.
    """
    own = next((file for file in store.log_files if file.name == name), None)
    if own is not None:
        return redacted_log(source, own.base, own.lead, healed, changed)
    kind = kind_at(name)
    if kind in _LOGS or any(entry.path == name for entry in store.log_strays):
        last = name.rpartition("/")[2]
        lead = ENTRY_SIZE if kind is FileKind.DLEDGER_DATA else 0
        return redacted_log(source, int(last) if is_offset(last) else -1, lead, healed, changed)
    is_database = any(name.startswith(f"{path}/") for path in DATABASES)
    return "of no known kind" if kind is FileKind.OTHER and not is_database else None


def write_redacted_databases(store: StoreFiles, place: Path) -> dict[str, str]:
    """Write databases whose keys are keys of messages, with the filler of these.

    Args:
        place: the copy of the store, in which their directories do not exist.

    Returns for each directory that was written, or could not be, why it was not; "" where it was.
    """
    if not has_database(store, MESSAGES):
        return {}
    place = place / MESSAGES
    place.mkdir()
    try:
        with (
            open_database(store, MESSAGES, "leaving keys out of a database") as old,
            new_database(place, old.families) as new,
        ):
            for family in old.families:
                redact = _ROWS.get(family, bytes)
                for key, value in old.rows(family):
                    new.put(family, redact(key), value)
    except (DatabaseDamaged, MissingExtra, Refused) as error:
        shutil.rmtree(place)
        place.mkdir()
        return {MESSAGES: f"a database of keys; {error}"}
    return {MESSAGES: ""}


def _index_row(key: bytes) -> bytes:
    """Return the key of a row of the index without the keys of messages in it."""
    hour, mark, rest = key[:_LONG], key[_LONG : _LONG + 1], key[_LONG + 1 :]
    if mark != MARK or len(rest) < _LONG or key in {INDEX_MARK, INDEX_TIME}:
        return key
    rest, physical = rest[: -_LONG - 1], rest[-_LONG - 1 :]
    topic, kind, texts = rest.split(MARK, 2) if rest.count(MARK) > 1 else (rest, b"", b"")
    text, between, unique = texts.rpartition(MARK)
    return hour + mark + MARK.join((topic, kind, same_hash(text) + between + same_hash(unique))) + physical


def _timer_row(key: bytes) -> bytes:
    """Return the key of a row of the timer without the unique key."""
    return key if key in {TIMER_SCANNED, TIMER_DELIVERED} else key[:_LONG] + same_hash(key[_LONG:])


def _half_row(key: bytes) -> bytes:
    """Return the key of a row of half messages without the unique key."""
    if key in {INDEX_MARK, INDEX_TIME} or key[_LONG : _LONG + 1] != MARK:
        return key
    topic, mark, unique = key[_LONG + 1 :].partition(MARK)
    return key[: _LONG + 1] + topic + mark + same_hash(unique)


_LONG = 8
_ROWS = {"default": _index_row, TIMER_FAMILY: _timer_row, HALF_FAMILY: _half_row}
"""How the keys of a column family lose what is content."""


def redacted_log(
    source: ByteSource,
    base: int,
    lead: int = 0,
    healed: ByteSource | None = None,
    changed: Sequence[tuple[int, int]] = (),
) -> Kept:
    """Yield what a bundle keeps of a file of records.

    Args:
        base: physical offset of the first byte.
        lead: bytes in front of each record that belong to it.
        healed: the file as a plan would leave it; None where no plan changes records of it.
        changed: where the plan writes, ascending.
    """
    for block in scan(source, Extent(source.name, base, lead=lead)):
        for row, at in enumerate(block.position.tolist()):
            yield at, redacted_record(block.raw(row))
            if lead:
                yield at - lead, source.read_at(at - lead, lead)
        for blank in block.blanks:
            yield from _redacted_gap(source, base, blank.position, blank.end)
        for gap in block.gaps:
            yield from _redacted_gap(source, base, gap.position, gap.end)
    if healed is not None:
        records = whole_records(healed, base, changed)
        yield from healed_records(source, records, lambda at, raw: redacted_record(raw, _misread(source, at)))


def _misread(source: ByteSource, at: int) -> Sequence[slice]:
    """Return where in a record a broker that believes its body length reads lengths; none where there is a body."""
    head = source.read_at(at, head_size(7))
    variant = likely_variant(head) if len(head) >= HEAD_SEEN else 0
    if len(head) < head_size(variant) or body_size_of(head, variant) > 0:
        return ()
    text = head_size(variant) + 1 + (variant >> 2)
    prefix = slice(head_size(variant), text)
    topic_size = int.from_bytes(source.read_at(at + prefix.start, text - prefix.start), "big")
    return prefix, slice(text + topic_size, text + topic_size + _TEXT_SIZE.size)


def _redacted_gap(source: ByteSource, base: int, begin: int, end: int) -> Kept:
    """Yield what is kept of bytes between records: the first ones, which findings quote, and heads of records."""
    yield from masked(source, begin, end)
    yield begin, source.read_at(begin, min(_PEEK, end - begin))
    for found in records_anywhere(source, base, [(begin, end)]):
        if begin <= found.at < end:
            if found.is_whole:
                yield found.at, redacted_record(found.raw)
            elif found.at == begin or names_place(physical_of(found.raw)):  # another may be made up in a body
                yield found.at, _redacted_part(source, found.at, end)


def _redacted_part(source: ByteSource, at: int, end: int) -> bytes:
    """Return what is left of a record that is not whole: its head, its topic, its properties."""
    head = source.read_at(at, min(head_size(7), end - at))
    if len(head) < HEAD_SEEN:
        return head
    variant = likely_variant(head)
    size = max(body_size_of(head, variant), 0)
    head = head[: head_size(variant)]
    room = end - at - len(head)
    if size >= room:
        return head + _masked_body(source.read_at(at + len(head), size), max(room, 0))
    return head + _redacted_text(source.read_at(at + len(head), room), size, 1 + (variant >> 2))


def _redacted_text(data: bytes, size: int, prefix: int) -> bytes:
    """Return body, topic and properties of a record that may be cut, the body masked.

    Lengths stay, also where they are none, and the CRC of the body: what stops a start quotes them.
    """
    body, rest = _masked_body(data[:size]), data[size:]
    topic_size = int.from_bytes(rest[:prefix], "big")
    topic, text = rest[prefix : prefix + topic_size], rest[prefix + topic_size :]
    if not size or topic_size > _MOST_TOPIC or not topic.isascii():
        topic = mask(topic)
    if len(text) < _TEXT_SIZE.size:
        return body + rest[:prefix] + topic + mask(text)
    (length,) = _TEXT_SIZE.unpack_from(text)
    end = _TEXT_SIZE.size + max(length, 0)
    properties = _redacted_properties(text[_TEXT_SIZE.size : end])
    return body + rest[:prefix] + topic + text[: _TEXT_SIZE.size] + properties + mask(text[end:])


def _masked_body(body: bytes, room: int | None = None) -> bytes:
    """Return a body, or as many bytes of it as are its own, masked, with the CRC of it where four are not zero."""
    made = bytearray(mask(body[:room]))
    own = len(made)
    at = made.rfind(b"." * _PATCH)
    made += body[own:]
    if at >= 0 and own >= _LEAST:
        with_crc(made, at, crc32(body), _CRC)
    return bytes(made[:own])


# --- a whole record -------------------------------------------------------------------------------------


def redacted_record(raw: bytes, kept: Sequence[slice] = ()) -> bytes:
    """Return a whole record without its content: as long, with the same header, topic and names of properties.

    The CRC of its body stays, right or wrong as it was; only that of a body of fewer than five bytes, which would say
    what these are, becomes that of the filler.

    Args:
        kept: bytes of the body that stay, since a broker reads them as lengths.
    """
    variant = variant_of(magic_of(raw), flags_of(raw))
    assert variant is not None
    body_at = head_size(variant)
    size = body_size_of(raw, variant)
    topic_at = body_at + size + 1 + (variant >> 2)
    topic_size = int.from_bytes(raw[body_at + size : topic_at], "big")
    text_at = topic_at + topic_size + _TEXT_SIZE.size
    topic = raw[topic_at : topic_at + topic_size]
    data = bytearray(raw)
    if not topic.decode("utf-8", "replace").startswith(_KEPT_BODIES):
        body = raw[body_at : body_at + size]
        made = _redacted_body(body, flags_of(raw))
        if inside := [span for span in kept if span.stop <= body_at + size - _PATCH]:
            held = bytearray(made)
            for span in inside:
                held[span.start - body_at : span.stop - body_at] = raw[span]
            with_crc(held, size - _PATCH, crc32(body), _CRC)
            made = bytes(held)
        data[body_at : body_at + size] = made
        if (stored := int.from_bytes(raw[CRC_SPAN], "big")) and stored == crc32(body) & MASK:
            data[CRC_SPAN] = (crc32(made) & MASK).to_bytes(4, "big")
    data[text_at:] = _redacted_properties(raw[text_at:])
    if stored_property_crc(raw) == property_crc(raw):
        data[-SIZE:] = property_crc_bytes(property_crc(bytes(data)))
    return bytes(data)


def _redacted_body(body: bytes, flags: int) -> bytes:
    """Return what stands for a body, with the CRC of it where there is room for that."""
    stream = _stream(body, flags)
    if stream is None and flags & _INNER and not flags & _COMPRESSED and (batch := _redacted_batch(body)) is not None:
        return batch
    made = bytearray((stream or b"").ljust(len(body), b"\0"))
    if stream is None and flags & COMPRESSION and len(body) > 2 * _PATCH:
        made[:_PATCH] = body[:_PATCH]  # findings quote how a body begins that is not what its flag says
    room = len(body) - len(stream or b"")
    if room >= (_PATCH if stream else _LEAST):
        with_crc(made, len(made) - _PATCH, crc32(body), _CRC)
    if bytes(made) == body and len(body) > len(stream or b""):
        made = bytearray(len(body))
    return bytes(made)


def _stream(body: bytes, flags: int) -> bytes | None:
    """Return a short stream of what a body is compressed with, whether its flag says so or not; None for others."""
    named = flags | _COMPRESSED
    if not (flags & COMPRESSION or body.startswith(_ZLIB_STARTS)) or why_not_inflated(body, named):
        return None
    inside = b"\0"
    if flags & _INNER and (whole := open_body(body, named).data) is not None:
        inside = _redacted_batch(whole) or inside
    match compression(named):
        case "lz4":
            import lz4.frame

            made: bytes = lz4.frame.compress(inside, store_size=False)
        case "zstd":
            import zstandard

            made = zstandard.ZstdCompressor(write_content_size=False).compress(inside)
        case _:
            made = compress(inside, 9)
    return made if len(made) <= len(body) else None


_ZLIB_STARTS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def _redacted_batch(body: bytes) -> bytes | None:
    """Return the messages of an inner batch without their content; None where they cannot be read."""
    made = bytearray()
    try:
        for fields in inner_messages(body):
            item = dict(fields)
            item["body"] = bytes(len(fields["body"]))
            item["properties"] = _redacted_properties(fields["properties"])
            made += BatchItem.build(item)
    except DecodeError:
        return None
    return bytes(made)


# --- properties -----------------------------------------------------------------------------------------


def _redacted_properties(text: bytes) -> bytes:
    return PAIR_END.join(_redacted_pairs(text.split(PAIR_END)))


def _redacted_pairs(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pairs without their values; what is no pair is masked, but for a CRC that was cut."""
    for piece in pieces:
        name, mark, value = piece.partition(NAME_END)
        if not mark:
            yield piece if CRC_NAME.startswith(piece) else mask(piece)
        elif name in KEPT_PROPERTIES:
            yield piece
        elif name == _KEYS:
            yield name + mark + b" ".join(map(same_hash, value.split(b" ")))
        else:
            yield name + mark + NAME_END.join(map(same_hash, value.split(NAME_END)))
