"""A bridge fills its range exactly with records that decode, each in the place that was claimed for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import DecodeError
from formats.rocketmq.message import Magic, body_crc, decode_record
from formats.rocketmq.properties import split_properties
from formats.rocketmq.property_crc import SIZE
from formats.rocketmq.tags_code import tags_code
from rmqctl.rocketmq.log.record import SMALLEST
from rmqctl.rocketmq.log.stand_ins import FLAG, MARK, SHORT_MARK, is_filler, is_marked
from rmqctl.rocketmq.repair.gaps import LARGEST_FILLER, bridge
from rmqctl.rocketmq.repair.placeholder import Setting, blank, bodiless, filler, placeholder, tags_of
from rmqctl.rocketmq.repair.queue_references import QueueReference

SETTING = Setting(1_700_000_000_000)
BEGIN = 4096


def records(data: bytes, begin: int = BEGIN) -> list[dict[str, object]]:
    """The records that fill the bytes, each sound and at the place it states; a blank ends them."""
    found: list[dict[str, object]] = []
    at = 0
    while at < len(data):
        if int.from_bytes(data[at + 4 : at + 8], "big", signed=True) == Magic.BLANK:
            assert at + 8 == len(data)
            return found
        fields, after = decode_record(data, at)
        assert fields["physical_offset"] == begin + at
        assert fields["body_crc"] == (body_crc(fields["body"]) if fields["body"] else 0)
        found.append({**fields, "physical": begin + at})
        at = after
    return found


def fill(
    end: int, claims: Sequence[QueueReference], loose: Sequence[QueueReference] = (), *, at_end: bool = False
) -> list[dict[str, object]]:
    made = bridge(BEGIN, end, claims, loose, SETTING, at_end=at_end, light=lambda physical: ())
    assert made is not None
    assert len(made.data) == end - BEGIN or (at_end and made.ends_file)
    found = records(made.data)
    queued = [r for r in found if r["sys_flag"] == 0]
    assert [(r["physical"], r["total_size"], r["queue_offset"]) for r in queued] == [
        (c.physical, c.size, c.queue_offset) for c in made.placed
    ]
    assert len(made.placed) + len(made.unplaced) == len(claims) + len(loose)
    return found


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 600)), max_size=8), st.integers(0, 400), st.booleans())
def test_every_range_is_filled(parts: list[tuple[int, int]], tail: int, at_end: bool) -> None:
    claims, at = [], BEGIN
    for number, (free, extra) in enumerate(parts):
        claims.append(QueueReference("Orders", 1, number, at + free, SMALLEST + 8 + extra))
        at = claims[-1].end
    end = at + tail
    if end - BEGIN < SMALLEST:
        return
    found = fill(end, claims, at_end=at_end)
    queued = {r["queue_offset"]: r["physical"] for r in found if r["sys_flag"] == 0}
    assert len(queued) == len(claims)
    for claim, (free, _) in zip(claims, parts, strict=True):
        assert queued[claim.queue_offset] == claim.physical or free < SMALLEST


@given(st.integers(SMALLEST, 3000), st.integers(0, 6), st.booleans())
def test_missing_messages_without_a_place_are_put_where_room_is(size: int, count: int, at_end: bool) -> None:
    loose = [QueueReference("Orders", 0, 7 + n, -1) for n in range(count)]
    found = fill(BEGIN + size, [], loose, at_end=at_end)
    offsets = [r["queue_offset"] for r in found if r["sys_flag"] == 0]
    assert offsets == [7 + n for n in range(len(offsets))]
    assert len(offsets) == count or size < 400 * count


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 150, 700]), st.booleans()), max_size=12),
    st.integers(0, 2000),
    st.booleans(),
)
def test_what_has_no_place_goes_between_its_neighbours_in_the_queue(
    parts: list[tuple[int, bool]], tail: int, at_end: bool
) -> None:
    """Placeholders out of order would shift the queue: brokers append units in the order of the log."""
    claims, loose, at = [], [], BEGIN
    for number, (free, is_known) in enumerate(parts):
        if is_known:
            claims.append(QueueReference("Orders", 1, number, at + free, SMALLEST + 40))
            at = claims[-1].end
        else:
            loose.append(QueueReference("Orders", 1, number, -1))
    if at + tail - BEGIN < SMALLEST:
        return
    found = fill(at + tail, claims, loose, at_end=at_end)
    offsets = [r["queue_offset"] for r in found if r["sys_flag"] == 0]
    assert offsets == sorted(offsets)


def test_room_that_must_do_for_many_is_shared() -> None:
    loose = [QueueReference("Orders", 0, n, -1) for n in range(10)]
    found = fill(BEGIN + 1800, [], loose)
    assert [r["queue_offset"] for r in found if r["sys_flag"] == 0] == list(range(10))


def test_a_range_too_small_for_any_record_is_refused() -> None:
    assert bridge(0, SMALLEST - 1, [], [], SETTING, at_end=False, light=lambda physical: ()) is None


def test_the_end_of_a_file_gets_its_blank_and_the_bytes_behind_stay() -> None:
    made = bridge(BEGIN, BEGIN + 50, [], [], SETTING, at_end=True, light=lambda physical: ())
    assert made is not None
    assert made.data == blank(50)


def test_a_large_range_is_filled_with_more_than_one_record() -> None:
    found = fill(BEGIN + 3 * LARGEST_FILLER, [])
    assert len(found) == 3
    assert all(r["sys_flag"] == 0xC for r in found)  # rollback: dispatched to no queue and no index


@pytest.mark.parametrize("size", range(SMALLEST, SMALLEST + 60))
def test_fillers_of_every_small_size(size: int) -> None:
    record = filler(BEGIN, size, SETTING)
    assert record is not None
    assert len(record) == size
    decode_record(record)


@pytest.mark.parametrize("topic", ["Orders", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC",
                                   "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%RETRY%" + "g" * 140])  # fmt: skip
def test_a_placeholder_says_what_it_is(topic: str) -> None:
    record = placeholder(QueueReference(topic, 3, 42, BEGIN), 500, SETTING)
    assert record is not None
    fields, size = decode_record(record)
    assert size == 500
    assert (fields["topic"].decode(), fields["queue_id"], fields["queue_offset"]) == (topic, 3, 42)
    assert fields["store_timestamp"] == SETTING.store_timestamp
    assert dict(split_properties(fields["properties"]))[MARK] == b"destroyed"


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("topic", ["T", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_placeholders_of_every_small_size_have_a_body(topic: str, crc: bool) -> None:
    setting = Setting(1_700_000_000_000, property_crc=crc)
    sizes = range(SMALLEST, SMALLEST + 400)
    made = {size: placeholder(QueueReference(topic, 3, 42, BEGIN, size), size, setting) for size in sizes}
    found = [decode_record(record)[0] for record in made.values() if record is not None]
    smallest = min(size for size, record in made.items() if record is not None)
    assert all(made[size] is not None for size in range(smallest, SMALLEST + 400))
    assert [len(f["body"]) for f in found if not f["body"]] == [0]  # the smallest: its message had none, either
    marked = [MARK in f["properties"] or SHORT_MARK in f["properties"] for f in found]
    assert marked[10:] == [True] * len(marked[10:])
    assert all(map(is_marked, found))


@pytest.mark.parametrize("properties", [b"", b"WAIT\x01true\x02", b"TAGS\x01a", b"TAGS\x01a\x02WAIT\x01true"])
@pytest.mark.parametrize("size", range(1, 60))
def test_a_destroyed_body_of_any_size_gives_way_to_one(size: int, properties: bytes) -> None:
    fields = {
        "total_size": 0, "magic": int(Magic.MESSAGE_V1), "body_crc": 0, "queue_id": 0, "flag": 0, "queue_offset": 1,
        "physical_offset": 0, "sys_flag": 0, "born_timestamp": 1, "born_ip": bytes(4), "born_port": 1, "store_timestamp": 1,
        "store_ip": bytes(4), "store_port": 1, "reconsume_times": 0, "prepared_transaction_offset": 0, "topic": b"T",
        "body": bytes(size), "properties": properties,
    }  # fmt: skip
    total = SMALLEST + size + len(properties)
    record = bodiless(fields, total, properties, SETTING)
    assert record is not None
    after, length = decode_record(record)
    assert length == total
    assert after["body"]
    has_property = any(name in (MARK, SHORT_MARK) for name, _ in split_properties(after["properties"]))
    assert has_property or (size < 10 and b"WAIT" not in properties and after["flag"] == FLAG)
    assert is_marked(after)
    assert (MARK in after["properties"]) or size < 22


def test_broker_topics_get_what_makes_the_broker_pass_over_them() -> None:
    def properties(topic: str) -> dict[bytes, bytes]:
        record = placeholder(QueueReference(topic, 0, 1, BEGIN), 500, SETTING)
        assert record is not None
        return dict(split_properties(decode_record(record)[0]["properties"]))

    assert properties("SCHEDULE_TOPIC_XXXX")[b"REAL_TOPIC"] == b"RMQ_SYS_TRANS_HALF_TOPIC"
    assert b"DELAY" not in properties("SCHEDULE_TOPIC_XXXX")
    assert {b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"REAL_QID"} <= set(properties("rmq_sys_wheel_timer"))
    assert int(properties("RMQ_SYS_TRANS_HALF_TOPIC")[b"TRANSACTION_CHECK_TIMES"]) > 100
    assert properties("RMQ_SYS_TRANS_OP_HALF_TOPIC")[b"TAGS"] == b"d"


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_tags_can_have_any_hash(code: int) -> None:
    assert tags_code(tags_of(code).decode()) == code


def test_a_unit_that_cannot_be_changed_keeps_its_tags_code() -> None:
    record = placeholder(QueueReference("Orders", 3, 42, BEGIN, tags_code=-77), 400, Setting(keeps_tags_code=True))
    assert record is not None
    assert tags_code(dict(split_properties(decode_record(record)[0]["properties"]))[b"TAGS"].decode()) == -77


def test_an_inner_batch_keeps_its_offsets() -> None:
    record = placeholder(QueueReference("Batch", 0, 30, BEGIN, batch=4), 400, SETTING)
    assert record is not None
    fields, _ = decode_record(record)
    names = dict(split_properties(fields["properties"]))
    assert (names[b"INNER_BASE"], names[b"INNER_NUM"]) == (b"30", b"4")
    sizes, at = [], 0
    while at < len(fields["body"]):
        sizes.append(int.from_bytes(fields["body"][at : at + 4], "big"))
        at += sizes[-1]
    assert len(sizes) == 4
    assert at == len(fields["body"])


def test_light_queues_keep_their_place() -> None:
    light = [QueueReference("%LMQ%one", 0, 5, BEGIN), QueueReference("%LMQ%two", 0, 9, BEGIN)]
    record = placeholder(QueueReference("Orders", 3, 42, BEGIN), 500, SETTING, light)
    assert record is not None
    names = dict(split_properties(decode_record(record)[0]["properties"]))
    assert (names[b"INNER_MULTI_DISPATCH"], names[b"INNER_MULTI_QUEUE_OFFSET"]) == (b"%LMQ%one,%LMQ%two", b"5,9")


def test_records_that_carry_their_own_crc_get_one() -> None:
    record = placeholder(QueueReference("Orders", 3, 42, BEGIN), 300, Setting(1, property_crc=True))
    assert record is not None
    assert int(record[-11:-1][::-1]) == body_crc(record[:-SIZE])


def test_what_is_too_small_for_the_topic_gets_no_placeholder() -> None:
    assert placeholder(QueueReference("A" * 50, 0, 0, BEGIN), SMALLEST + 10, SETTING) is None
    with pytest.raises(DecodeError):
        decode_record(blank(100))


def test_a_place_that_is_too_small_for_its_topic_gets_a_filler() -> None:
    """The message is not placed, and what lies beside it stays where it is."""
    long, short = (
        QueueReference("L" * 100, 0, 7, BEGIN + 200, SMALLEST + 40),
        QueueReference("T", 0, 1, BEGIN + 200 + SMALLEST + 40, 300),
    )
    end = BEGIN + 200 + SMALLEST + 40 + 300
    made = bridge(BEGIN, end, [long, short], [], SETTING, at_end=False, light=lambda physical: ())
    assert made is not None
    assert (made.placed, made.unplaced) == ([short], [long])
    found = records(made.data)
    assert [r["physical"] for r in found][-2:] == [long.physical, short.physical]
    assert found[-2]["total_size"] == SMALLEST + 40
    assert sum(int(str(r["total_size"])) for r in found) == end - BEGIN


def test_a_filler_of_the_fewest_bytes_has_no_room_to_say_what_it_is() -> None:
    record = filler(1000, SMALLEST, Setting())
    assert record is not None
    fields = decode_record(record)[0]
    assert (len(record), fields["body"], is_filler(fields)) == (SMALLEST, b"", True)


@pytest.mark.parametrize("with_crc", [False, True])
def test_a_transaction_that_3_x_has_rolled_back_is_no_filler(with_crc: bool) -> None:
    """Its record has the topic of the message, here one of the name of fillers, and no body."""
    setting = Setting(property_crc=with_crc)
    record = next(filter(None, (filler(1000, size, setting) for size in range(SMALLEST, SMALLEST + 60))))
    fields = decode_record(record)[0]
    assert (fields["topic"], fields["body"], is_filler(fields)) == (b"R", b"", True)
    rolled_back = {**fields, "properties": b"PGROUP\x01producers\x02TRAN_MSG\x01true\x02"}
    assert not is_filler(rolled_back)
