"""Records that stand where messages were destroyed: sound for every release, honest about what they are.

A placeholder keeps topic, queue and queue offset of the lost message, so that queues and a rebuild of them
stay whole and no consumer stalls. For the broker's own topics it says what makes the broker pass over it.
A filler belongs to no queue: brokers never dispatch rollback records (CommitLogDispatcherBuildConsumeQueue).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from formats.rocketmq.message import (
    COMPRESSION,
    HOSTS,
    ROLLBACK,
    BlankRecord,
    Magic,
    SysFlag,
    body_crc,
    encode_record,
    record_plan,
)
from formats.rocketmq.properties import NAME_END, PAIR_END, join_properties
from formats.text import java_hash
from rmqctl.rocketmq.log.stand_ins import CRC_PROPERTY, FILLER_TOPIC, FLAG, MARK, OPERATION, SHORT_MARK, TEXT
from rmqctl.rocketmq.repair.queue_references import QueueReference

_UNNEEDED = (b"WAIT", b"TRACE_ON", b"MSG_REGION", b"CLUSTER")
"""Properties that a message may lose for the mark: brokers and clients set them again, or show them to nobody."""
_INNER = int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
_ITEM = 22
_FIRST_LETTER = ord("A")
_HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"
_OPERATIONS = b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
_GIVEN_UP = (b"TRANSACTION_CHECK_TIMES", b"1000")
_CRC_SIZE = 20
Pairs = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Setting:
    """What placeholders take over from the sound record in front.

    Attributes:
        store_timestamp: ms.
        store_ip, store_port: of the broker; IPv4.
        property_crc: records of this log end with their own CRC (spec 2.7).
        keeps_tags_code: queue units cannot be changed: a placeholder gets tags with the hash that its unit has.
    """

    store_timestamp: int = 0
    store_ip: bytes = b"\x7f\0\0\1"
    store_port: int = 10911
    property_crc: bool = False
    keeps_tags_code: bool = False


def placeholder(
    claim: QueueReference, size: int, setting: Setting, light: Sequence[QueueReference] = ()
) -> bytes | None:
    """Return a record of ``size`` bytes at ``claim.physical``, in the claimed place of its queue; None if that is too
    small.

    Args:
        light: places in light queues that the destroyed message had as well.
    """
    fields = _fields(claim.physical, setting) | {
        "topic": claim.topic_bytes, "queue_id": claim.queue_id, "queue_offset": claim.queue_offset,
    }  # fmt: skip
    if len(claim.topic_bytes) > 127:
        fields["magic"] = int(Magic.MESSAGE_V2)
    if claim.batch:
        return _inner_batch(fields, claim, size, setting)
    need = _needed(claim, setting) + _light(light)
    flagged = fields | {"flag": FLAG}
    marks: tuple[Pairs, ...] = ([(MARK, b"destroyed")], [(MARK, b"1")], [(SHORT_MARK, b"1")], [])
    for least in (1, 0):  # without a body only where the destroyed record can have had none
        for mark in marks[3 * (not least) :]:
            record = _filled(fields if mark else flagged, [*need, *mark], size, setting, least)
            if record is not None:
                return record
    return None


def filler(physical: int, size: int, setting: Setting) -> bytes | None:
    """Return a record of ``size`` bytes that no queue and no index takes up; None if that is too small."""
    for topic, pairs in ((FILLER_TOPIC, [(MARK, b"filler")]), (FILLER_TOPIC, []), (b"R", [])):
        fields = _fields(physical, setting) | {"topic": topic, "sys_flag": ROLLBACK}
        record = _filled(fields, pairs, size, setting)
        if record is not None:
            return record
    return None


def blank(size: int) -> bytes:
    """Return the eight bytes that end a file ``size`` bytes before its end (spec 2.9)."""
    data: bytes = BlankRecord.build({"size": size, "magic": int(Magic.BLANK)})
    return data


def bodiless(fields: dict[str, object], raw_size: int, properties: bytes, setting: Setting) -> bytes | None:
    """Return a record whose body alone is destroyed: everything else as it was, the body replaced, the property added.

    The new body has a byte or more: clients of old releases fail on a message without one, and go on no more.
    """
    fields = {**fields, "sys_flag": int(fields["sys_flag"]) & ~COMPRESSION}  # type: ignore[call-overload]
    for text in (properties, _without(properties, _UNNEEDED)):
        joint = b"" if not text or text.endswith(PAIR_END) else PAIR_END
        for mark in (MARK + b"\x01body destroyed", MARK + b"\x011", SHORT_MARK + b"\x011"):
            end = PAIR_END if not joint or setting.property_crc else b""
            record = _sized(fields, text + joint + mark + end, raw_size, setting, 1)
            if record is not None:
                return record
    return _sized(fields | {"flag": FLAG}, properties, raw_size, setting)


def _without(properties: bytes, names: Collection[bytes]) -> bytes:
    """Return a properties text without the pairs of these names."""
    pieces = properties.split(PAIR_END)
    return PAIR_END.join(piece for piece in pieces if piece.partition(NAME_END)[0] not in names)


def _fields(physical: int, setting: Setting) -> dict[str, object]:
    return {
        "total_size": 0, "magic": int(Magic.MESSAGE_V1), "body_crc": 0, "queue_id": 0, "flag": 0, "queue_offset": 0,
        "physical_offset": physical, "sys_flag": 0, "born_timestamp": setting.store_timestamp,
        "born_ip": setting.store_ip, "born_port": setting.store_port, "store_timestamp": setting.store_timestamp,
        "store_ip": setting.store_ip, "store_port": setting.store_port, "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }  # fmt: skip


def _needed(claim: QueueReference, setting: Setting) -> Pairs:
    """Properties without which the broker itself would stumble over a record of one of its own topics."""
    match claim.topic_bytes:
        case b"SCHEDULE_TOPIC_XXXX":  # delivery discards what is for the half topic; before 4.9 the check there does
            return [(b"REAL_TOPIC", _HALF_TOPIC), (b"REAL_QID", b"0"), _GIVEN_UP]
        case b"rmq_sys_wheel_timer":  # a delete marker is taken up and never delivered
            due = b"%d" % (setting.store_timestamp // 1000 * 1000)
            return [
                (b"TIMER_OUT_MS", due),
                (b"TIMER_DEL_UNIQKEY", b"none"),
                (b"REAL_TOPIC", _HALF_TOPIC),
                (b"REAL_QID", b"0"),
            ]
        case b"RMQ_SYS_TRANS_HALF_TOPIC":  # checked often enough: given up
            return [_GIVEN_UP, (b"REAL_TOPIC", FILLER_TOPIC), (b"REAL_QID", b"0")]
        case b"RMQ_SYS_TRANS_OP_HALF_TOPIC":  # only tag d is counted as done; its body names no half message
            return [(b"TAGS", b"d")]
    return [(b"TAGS", tags_of(claim.tags_code))] if setting.keeps_tags_code and claim.tags_code else []


def tags_of(code: int) -> bytes:
    """Seven characters from ``A`` on whose Java hash is ``code``: its digits to the base 31."""
    letters = bytes((_FIRST_LETTER,)) * 7
    number, out = (code - java_hash(letters.decode())) & 0xFFFFFFFF, bytearray()
    for _ in range(7):
        number, digit = divmod(number, 31)
        out.append(_FIRST_LETTER + digit)
    return bytes(reversed(out))


def _light(light: Sequence[QueueReference]) -> Pairs:
    """Return the properties that dispatch a record to further queues (spec 3.7)."""
    if not light:
        return []
    names = b",".join(c.topic_bytes for c in light)
    offsets = b",".join(b"%d" % c.queue_offset for c in light)
    return [(b"INNER_MULTI_DISPATCH", names), (b"INNER_MULTI_QUEUE_OFFSET", offsets)]


def _filled(fields: dict[str, object], pairs: Pairs, size: int, setting: Setting, least: int = 0) -> bytes | None:
    return _sized(fields, join_properties(pairs), size, setting, least)


def _sized(fields: dict[str, object], properties: bytes, size: int, setting: Setting, least: int = 0) -> bytes | None:
    """Return the record of ``size`` bytes with these properties: the body takes what is left, ``least`` bytes
    or more.
    """
    if setting.property_crc:
        properties += CRC_PROPERTY + b"\x01" + b"0" * 10 + b"\x02"
    room = size - _without_body(fields) - len(properties)
    if room < least or len(properties) > 32767:
        return None
    text = OPERATION if fields["topic"] == _OPERATIONS else TEXT
    return _built(fields, text[:room].ljust(room, b"\0"), properties, size, setting)


def _without_body(fields: dict[str, object]) -> int:
    """Bytes of a record without body and properties."""
    is_v2, flags = fields["magic"] == int(Magic.MESSAGE_V2), int(fields["sys_flag"])  # type: ignore[call-overload]
    head: int = record_plan(is_v2, flags & HOSTS).runs[0].packer.size
    return head + 1 + is_v2 + len(fields["topic"]) + 2  # type: ignore[arg-type]


def _built(fields: dict[str, object], body: bytes, properties: bytes, size: int, setting: Setting) -> bytes:
    record = encode_record(
        {
            **fields,
            "total_size": size,
            "body": body,
            "body_crc": body_crc(body) if body else 0,
            "properties": properties,
        }
    )
    if setting.property_crc:
        digits = b"%010d" % body_crc(record[:-_CRC_SIZE])
        record = record[: -_CRC_SIZE + len(CRC_PROPERTY) + 1] + digits[::-1] + b"\x02"
    return record


def _inner_batch(fields: dict[str, object], claim: QueueReference, size: int, setting: Setting) -> bytes | None:
    """Return an inner batch with as many messages as the destroyed one had, of one byte where there is room (spec
    2.11).
    """
    properties = join_properties([(b"INNER_NUM", b"%d" % claim.batch), (b"INNER_BASE", b"%d" % claim.queue_offset)])
    marked = properties + join_properties([(MARK, b"destroyed")])
    fields = fields | {"sys_flag": _INNER}
    for text, flag in ((marked, 0), (properties, FLAG)):
        room = size - _without_body(fields) - len(text) - _CRC_SIZE * setting.property_crc
        if room >= _ITEM * claim.batch:
            least = int(room >= (_ITEM + 1) * claim.batch)
            extra = room - (_ITEM + least) * claim.batch
            items = [_item(least + (extra if i == 0 else 0)) for i in range(claim.batch)]
            crc = CRC_PROPERTY + b"\x01" + b"0" * 10 + b"\x02" if setting.property_crc else b""
            return _built(fields | {"flag": flag}, b"".join(items), text + crc, size, setting)
    return None


def _item(body: int) -> bytes:
    """Return a message of an inner batch with a body of zeros and no properties."""
    head = (_ITEM + body).to_bytes(4, "big") + bytes(12) + body.to_bytes(4, "big")
    return head + bytes(body) + b"\0\0"
