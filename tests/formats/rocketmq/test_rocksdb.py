"""Keys and values of RocksDB: the schemas against the quick functions, and against a broker's database."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq import rocksdb, rocksdb_config, rocksdb_messages
from tests.strategies import i32, i64

names = st.binary(max_size=20).map(lambda name: name.replace(b"@", b"").replace(b"\x01", b""))


@given(names, i32, i64)
def test_unit_keys(topic: bytes, queue_id: int, offset: int) -> None:
    fields = {"topic": topic, "queue_id": queue_id, "queue_offset": offset}
    key = rocksdb.QueueUnitKey.build(fields)
    assert key.startswith(rocksdb.queue_prefix(topic, queue_id))
    is_possible = 0 <= offset <= rocksdb.LARGEST_OFFSET
    assert rocksdb.parse_unit_key(key) == ((topic, queue_id, offset) if is_possible else None)
    assert rocksdb.QueueUnitKey.parse(key).queue_offset == offset


@given(names, i32)
def test_end_keys(topic: bytes, queue_id: int) -> None:
    key = rocksdb.QueueEndKey.build({"topic": topic, "end": b"max", "queue_id": queue_id})
    assert rocksdb.parse_end_key(key) == (topic, queue_id)
    assert rocksdb.parse_end_key(key[:-1]) is None
    of_all = rocksdb.QueueEndKey.build({"topic": rocksdb.CHECKPOINT_TOPIC, "end": b"max", "queue_id": 0})
    assert rocksdb.parse_end_key(of_all) is None


@given(i64, names, names)
def test_rows_of_messages(number: int, topic: bytes, unique: bytes) -> None:
    """The number that a key begins with is the schema's, and lengths alone tell marks from rows."""
    timer = rocksdb_messages.TimerKey.build({"delivery_time": number, "unique_key": unique})
    half = rocksdb_messages.HalfMessageKey.build({"physical_offset": number, "topic": topic, "unique_key": unique})
    assert rocksdb_messages.leading_number(timer) == rocksdb_messages.leading_number(half) == number
    assert rocksdb_messages.is_timer(timer, bytes(12)) is (unique != b"")
    assert not rocksdb_messages.is_timer(timer, bytes(8))
    assert rocksdb_messages.has_half_key(half) is (topic + unique != b"")
    assert not rocksdb_messages.has_half_key(rocksdb_messages.INDEX_MARK)
    mark = rocksdb_messages.Mark.build({"value": number})
    assert rocksdb_messages.mark_of(mark) == rocksdb.dispatched_end(mark) == number
    assert rocksdb_messages.mark_of(mark[1:]) is rocksdb_messages.mark_of(None) is None
    assert rocksdb.dispatched_end(mark[1:]) == rocksdb.dispatched_end(None) == 0


@given(names, names, i32)
def test_consumer_offset_keys(group: bytes, topic: bytes, queue_id: int) -> None:
    fields = {"table_id": 1, "record_type": 2, "group": group, "topic": topic, "queue_id": queue_id}
    key = rocksdb_config.ConsumerOffsetKey.build(fields)
    assert key == rocksdb.consumer_offset_key(group, topic, queue_id)
    assert rocksdb.parse_consumer_offset_key(key) == (group, topic, queue_id)


def test_named_keys_begin_as_the_reader_expects() -> None:
    key = rocksdb_config.NamedKey.build({"table_id": 3, "record_type": 2, "name": b"TopicTest"})
    assert key == rocksdb.TOPIC_DATA + b"\0\x09TopicTest"
    assert rocksdb_config.NamedValue.parse(b"\x01{}").json == b"{}"


@given(i64, names, names, i32, i64)
def test_pop_keys(time: int, group: bytes, topic: bytes, queue_id: int, offset: int) -> None:
    raw = (
        struct.pack(">q", time)
        + group
        + b"@"
        + topic
        + b"@"
        + struct.pack(">i", queue_id)
        + b"@"
        + struct.pack(">q", offset)
    )
    key = rocksdb_messages.PopStateKey.parse(raw)
    assert (key.visibility_timeout, key.group, key.topic) == (time, group, topic)
    assert (key.queue_id, key.queue_offset) == (queue_id, offset)
    assert rocksdb_messages.PopStateKey.build(key) == raw


@given(i64, names, st.sampled_from([b"K", b"T"]), st.binary(max_size=20), names, i64)
def test_index_keys(hour: int, topic: bytes, kind: bytes, text: bytes, unique: bytes, physical: int) -> None:
    tail = struct.pack(">q", physical)
    raw = struct.pack(">q", hour) + b"@" + topic + b"@" + kind + b"@" + text + b"@" + unique + b"@" + tail
    found = rocksdb_messages.parse_message_index_key(raw)
    assert found == rocksdb_messages.MessageIndexEntry(hour, topic, kind, text, unique, physical)
    parsed = rocksdb_messages.MessageIndexKey.parse(raw)
    assert (parsed.hour, parsed.topic, parsed.kind) == (hour, topic, kind)
    assert rocksdb_messages.MessageIndexKey.build(parsed) == raw
    own = struct.pack(">q", hour) + b"@" + topic + b"@U@" + unique + b"@" + tail
    assert rocksdb_messages.parse_message_index_key(own) == rocksdb_messages.MessageIndexEntry(
        hour, topic, b"U", unique, unique, physical
    )


@pytest.mark.parametrize(
    "key", [b"", b"lastOffsetPy", b"\0" * 8 + b"@T@X@a@b@" + b"\0" * 8, b"\0" * 8 + b"@T@U@" + b"\0" * 8]
)
def test_other_keys_of_the_index_are_none(key: bytes) -> None:
    assert rocksdb_messages.parse_message_index_key(key) is None


def test_timer_and_half_messages() -> None:
    assert rocksdb_messages.TimerKey.build({"delivery_time": 1, "unique_key": b"u"}) == struct.pack(">q", 1) + b"u"
    assert rocksdb_messages.TimerValue.build({"size": 5, "physical_offset": 9}) == struct.pack(">iq", 5, 9)
    key = rocksdb_messages.HalfMessageKey.parse(struct.pack(">q", 7) + b"@T@u")
    assert (key.physical_offset, key.topic, key.unique_key) == (7, b"T", b"u")
    assert rocksdb_messages.HalfMessageValue.parse(struct.pack(">ii", 2, 300)).size == 300


@pytest.mark.parametrize("name", ["5.5.0-rocksdb-clean"])
def test_ends_of_queues_as_a_broker_wrote_them(name: str, tmp_path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    path = str(golden.unpack(name, tmp_path) / "consumequeue")
    raw = rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(path), raw)
    database = rocksdict.Rdict(path, raw, column_families=families)
    units = [(rocksdb.QueueUnitKey.parse(k), rocksdb.QueueUnitValue.parse(v)) for k, v in database.items()]
    ends = [(rocksdb.QueueEndKey.parse(k), v) for k, v in database.get_column_family(rocksdb.OFFSET_FAMILY).items()]
    last = {(key.topic, key.queue_id): (value.physical_offset, key.queue_offset) for key, value in units}
    dispatched = max(value.physical_offset + value.size for _, value in units)
    assert ends
    assert all(rocksdb.QueueEndKey.build(key) for key, _ in ends)
    for key, raw_value in ends:
        if key.topic == rocksdb.CHECKPOINT_TOPIC:
            assert rocksdb.DispatchedEnd.parse(raw_value).physical_offset == dispatched
        elif key.end == b"max":
            value = rocksdb.QueueEnd.parse(raw_value)
            assert (value.physical_offset, value.queue_offset) == last[key.topic, key.queue_id]
