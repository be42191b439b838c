"""Any record becomes a message and the same record again; any message a record and the same message again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.rocketmq.message import decode_record
from formats.rocketmq.properties import split_properties
from rmqctl.convert import convert
from rmqctl.convert.mapping import kafka_group, kafka_topic, message_of, record_of, rocketmq_group, rocketmq_topic
from rmqctl.convert.report import Conversion, ConvertOptions
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.opening import open_store
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.engine.record import prepare

CONFIG = StoreConfig()
NAMES = st.sampled_from(
    [b"a", b"TAGS", b"KEYS", b"kafka-key", b"kafka-headers", b"INNER_NUM", b"rmq-flag", b"", b"\xff"]
)
VALUES = st.none() | st.binary(max_size=12) | st.sampled_from([b"x y", b"", b"\x01", b"base64:", b"null"])
RECORDS = st.builds(
    Record,
    st.integers(0, 1 << 40),
    st.integers(-1, 1 << 45),
    st.just(-1),
    VALUES,
    VALUES,
    st.lists(st.tuples(NAMES | st.binary(max_size=5), VALUES), max_size=5).map(tuple),
)


def stored(message: Message, offset: int, time: int) -> dict[str, Any]:
    return decode_record(prepare(message, CONFIG).encode(offset, 0, time))[0]


@given(RECORDS)
def test_a_record_of_kafka_comes_back(record: Record) -> None:
    made = message_of(record, "t", 3, CONFIG.release)
    assert made.store_timestamp is None
    back, is_compressed = record_of(stored(made.message, record.offset, 1), record.offset)
    assert (back, is_compressed) == (record, False)


TEXTS = st.text(st.characters(min_codepoint=3, codec="utf-8"), min_size=1, max_size=6)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(1, 65535))


@given(
    st.dictionaries(
        st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "kafka-key", "own"]) | TEXTS, TEXTS, max_size=5
    ),
    st.binary(max_size=20),
    HOSTS,
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from([0, 2, 8]), st.integers(0, 1 << 42)),
)
def test_a_message_of_rocketmq_comes_back(
    properties: dict[str, str], body: bytes, host: Host, numbers: tuple[int, int, int, int]
) -> None:
    flag, reconsumed, sys_flag, born = numbers
    message = Message(
        "t",
        body,
        1,
        properties,
        flag,
        sys_flag,
        born,
        host,
        reconsume_times=reconsumed,
        store_host=Host(b"\1\2\3\4", 5),
    )
    fields = stored(message, 7, 99)
    record, _ = record_of(fields, 7)
    made = message_of(record, "t", 1, CONFIG.release)
    back = stored(made.message, 7, made.store_timestamp or 0)
    for name in ("properties", "total_size"):  # their order is no matter; all else is the same
        fields[name], back[name] = (
            (sorted(split_properties(f["properties"])) if name == "properties" else 0) for f in (fields, back)
        )
    assert back == fields


@given(st.text("ab%2E57C|_-", min_size=1, max_size=12), st.text("ab.2E57C_-", min_size=1, max_size=12))
def test_names_come_back(ours: str, theirs: str) -> None:
    assert rocketmq_topic(kafka_topic(ours)) == ours
    assert kafka_topic(rocketmq_topic(theirs)) == theirs
    assert kafka_topic("%RETRY%group") == ".25RETRY.25group"


@given(st.text("a.@%-\u20ac /", max_size=9))
def test_groups_come_back(group: str) -> None:
    ours = rocketmq_group(group)
    assert re.fullmatch("[%|a-zA-Z0-9_-]*", ours)
    assert kafka_group(ours) == group or "%" in group


PARTITIONS = st.lists(st.lists(st.tuples(st.integers(0, 3), RECORDS), max_size=8), min_size=1, max_size=3)


@settings(max_examples=8)
@given(PARTITIONS, st.integers(0, 1 << 33))
def test_small_random_log_directories(
    tmp_path_factory: Any, partitions: list[list[tuple[int, Record]]], start: int
) -> None:
    root: Path = tmp_path_factory.mktemp("random")
    wanted = {}
    with KafkaEngine.open(root / "a", EngineConfig(Release(3, 9, 2), cluster=False)) as engine:
        engine.make_topic("t.x", len(partitions))
        for number, drawn in enumerate(partitions):
            offset, log = start, engine.log("t.x", number)
            for gap, record in drawn:
                offset += gap
                one = record._replace(offset=offset)
                if not wanted or offset >= log.end:
                    log.append_stored(build_batch(BatchHead(offset), [one]))
                wanted[number, offset] = one
                offset += 1
    options = ConvertOptions(small=True, offsets_partitions=1)
    for source, into in (("a", "b"), ("b", "c")):
        answer = convert(open_store(str(root / source)), root / into, options)
        answer.prepare()
        assert not answer.is_no
        assert list(open_store(str(root / into)).verify(notes=False)) == []
    found = {}
    store: Any = open_store(str(root / "c"))
    for log in store.replicas.of("t.x"):
        for _, block in log.blocks():
            from rmqctl.kafka.log.reference import records_of_batch

            for row in range(len(block)):
                for record in records_of_batch(block.raw(row)):
                    found[log.partition.partition, record.offset] = record._replace(sequence=-1)
    assert found == wanted


def test_sentences_agree_with_their_numbers() -> None:
    result = Conversion("kafka-log-directory", "store", Path("logs"))
    result.count("light-queues", 1, "light [queue stays|queues stay] out")
    assert list(result.without_twin()) == [("light-queues", 1, "light queue stays out")]
    result.count("light-queues", 2, "light [queue stays|queues stay] out")
    assert list(result.without_twin()) == [("light-queues", 3, "light queues stay out")]


@pytest.mark.parametrize("name", ["KEYS", "__CRC32#", "rmq-flag", "kafka-key", "INNER_NUM"])
def test_a_header_named_like_a_property_with_a_meaning_is_none(name: str) -> None:
    """A broker or a client would read it; it lies with the other headers, and comes back from there."""
    record = Record(5, 7, -1, b"key", b"value", ((name.encode(), b"0123456789"), (b"own", b"x")))
    made = message_of(record, "t", 0, CONFIG.release)
    assert made.message.properties.get(name) != "0123456789"
    assert record_of(stored(made.message, 5, 1), 5) == (record, False)


def test_the_crc_of_a_record_is_no_header() -> None:
    """It covers the whole record in its place in the log, and says nothing of a record of Kafka (spec 2.7)."""
    fields = {
        "sys_flag": 0, "body": b"body", "properties": b"TAGS\1a\2KEYS\1k\2__CRC32#\x010123456789\2", "flag": 0,
        "born_timestamp": 7, "born_ip": b"\x0a\0\0\1", "born_port": 1, "store_ip": b"\x0a\0\0\2", "store_port": 2,
        "store_timestamp": 8, "reconsume_times": 0,
    }  # fmt: skip
    record, _ = record_of(fields, 3)
    names = [name for name, _ in record.headers]
    assert b"__CRC32#" not in names and names[0] == b"TAGS" and record.key == b"k"
