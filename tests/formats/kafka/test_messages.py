"""The codec of messages: tables to bytes and back, broken bytes, and samples that brokers wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import DecodeError
from formats.kafka import internal_records as records
from formats.kafka.group_messages import GROUP_METADATA_VALUE, KEYS, OFFSET_COMMIT_VALUE, VALUES
from formats.kafka.message_catalogue import messages
from formats.kafka.messages import UNKNOWN_TAGS, Field, Message, decode, encode, uuid_bytes, uuid_text, within
from formats.kafka.metadata_messages import METADATA_RECORDS, frame, read_frame, record_type

TABLES = {name: message for name, _, _, message in messages()}
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.type.startswith("[]"):
        found: st.SearchStrategy[Any] = st.lists(_values(field.element, version), max_size=3)
    elif field.type in _INTEGERS:
        limit = 1 << _INTEGERS[field.type] - 1
        found = st.integers(-limit, limit - 1)
    else:
        found = {
            "uint16": st.integers(0, 65535),
            "bool": st.booleans(),
            "float64": st.floats(allow_nan=False),
            "uuid": st.binary(min_size=16, max_size=16).map(uuid_text),
            "string": st.text(st.characters(codec="utf-8"), max_size=20),
            "bytes": st.binary(max_size=20),
            "struct": _structs(field.fields, version),
        }[field.type]
    return st.none() | found if within(version, field.nullable) else found


def _structs(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    present = [field for field in fields if within(version, field.versions)]
    return st.fixed_dictionaries(
        {field.name: _values(field, version) for field in present if field.tag is None},
        optional={field.name: _values(field, version) for field in present if field.tag is not None},
    )


def _versions(message: Message) -> range:
    low, _, high = message.versions.removesuffix("+").partition("-")
    return range(int(low), int(high or low) + 1)


@pytest.mark.parametrize("name", list(TABLES))
@settings(max_examples=12)
@given(st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(_versions(TABLES[name])))
    values = data.draw(_structs(TABLES[name].fields, version))
    written = encode(TABLES[name], version, values)
    assert decode(TABLES[name], version, written) == values
    assert encode(TABLES[name], version, decode(TABLES[name], version, written)) == written


@pytest.mark.parametrize("topic", records.INTERNAL_TOPICS)
def test_no_bytes_raise(topic: str) -> None:
    number = st.integers(-1, 30).map(lambda n: n.to_bytes(2, "big", signed=True))
    framed = st.tuples(st.just(1), st.integers(0, 31), st.integers(0, 4)).map(bytes)

    @given(number, st.binary(max_size=60), number | framed, st.binary(max_size=200))
    def check(kind: bytes, key: bytes, start: bytes, rest: bytes) -> None:
        for k, v in ((kind + key, start + rest), (key, rest), (None, rest), (kind + key, None)):
            found = records.decode_record(topic, k, v)
            assert found is not None
            assert found.row()["type"] == found.type

    check()


@given(st.integers(-3, 9), st.none() | st.binary(max_size=80))
def test_no_control_value_raises(kind: int, value: bytes | None) -> None:
    found = records.decode_control(kind, value)
    assert (found is None) == (not 2 <= kind <= 6)


@pytest.mark.parametrize(
    ("version", "data", "values"),
    [
        (
            1,
            "0000000000000005 0001 6d 0000018bcfe56800 ffffffffffffffff",
            {"offset": 5, "metadata": "m", "commitTimestamp": 1700000000000, "expireTimestamp": -1},
        ),
        (
            3,
            "0000000000000005 00000007 0000 0000018bcfe56800",
            {"offset": 5, "leaderEpoch": 7, "metadata": "", "commitTimestamp": 1700000000000},
        ),
        (
            4,
            "0000000000000005 00000007 01 0000018bcfe56800 00",
            {"offset": 5, "leaderEpoch": 7, "metadata": "", "commitTimestamp": 1700000000000},
        ),
        (
            4,
            "0000000000000005 00000007 01 0000018bcfe56800 01 00 10 00000000000000000000000000000001",
            {
                "offset": 5,
                "leaderEpoch": 7,
                "metadata": "",
                "commitTimestamp": 1700000000000,
                "topicId": "AAAAAAAAAAAAAAAAAAAAAQ",
            },
        ),
    ],
)
def test_an_offset_commit_of_each_encoding(version: int, data: str, values: dict[str, Any]) -> None:
    assert decode(OFFSET_COMMIT_VALUE, version, bytes.fromhex(data)) == values
    assert encode(OFFSET_COMMIT_VALUE, version, values) == bytes.fromhex(data)


def test_a_tag_that_no_table_names_is_kept_and_written_again() -> None:
    data = bytes.fromhex("00000001 02 05 03 616263 09 00")
    values = decode(VALUES[12], 0, data)
    assert values == {"assignmentEpoch": 1, UNKNOWN_TAGS: [[5, b"abc"], [9, b""]]}
    assert encode(VALUES[12], 0, values) == data
    assert records.plain(values) == {"assignmentEpoch": 1}
    assert records.plain(values, tags=True)[UNKNOWN_TAGS] == [[5, "YWJj"], [9, ""]]


def test_the_layout_of_an_earlier_release_is_read() -> None:
    assert decode(VALUES[11], 0, bytes.fromhex("00000003 00")) == {"epoch": 3}
    assert decode(VALUES[11], 0, bytes.fromhex("00000003 0000000000000001 00")) == {"epoch": 3, "metadataHash": 1}


@pytest.mark.parametrize("version", range(5))
def test_every_cut_of_a_value_is_refused(version: int) -> None:
    values: dict[str, Any] = {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": "l"}
    values |= {"currentStateTimestamp": 5, "members": []}
    data = encode(GROUP_METADATA_VALUE, version, values)
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            decode(GROUP_METADATA_VALUE, version, data[:size])
    with pytest.raises(DecodeError, match="after the last field"):
        decode(GROUP_METADATA_VALUE, version, data + b"\0")


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 5"):
        decode(OFFSET_COMMIT_VALUE, 5, b"")
    with pytest.raises(ValueError, match="version 5"):
        encode(OFFSET_COMMIT_VALUE, 5, {})
    with pytest.raises(ValueError, match="cannot be written"):
        encode(OFFSET_COMMIT_VALUE, 3, {"offset": 1})


def test_a_count_beyond_the_data_costs_nothing() -> None:
    with pytest.raises(DecodeError, match="cannot fit"):
        decode(VALUES[13], 0, b"\xff\xff\xff\xff\x0f")


def test_a_framed_record() -> None:
    topic = METADATA_RECORDS[2]
    values = {"name": "t", "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}
    value = frame(topic, 0, encode(topic, 0, values))
    assert read_frame(value) == (2, 0, 3)
    found = records.decode_record(records.CLUSTER_METADATA, None, value)
    assert found is not None
    assert found.row() == {"type": "TOPIC_RECORD", "version": 0, "key": None, "value": values}
    assert record_type(METADATA_RECORDS[17]) == "BROKER_REGISTRATION_CHANGE_RECORD"
    assert record_type(METADATA_RECORDS[20]) == "NO_OP_RECORD"


def test_an_unknown_topic_has_no_tables() -> None:
    assert records.decode_record("orders", b"\0\0", b"\0\0") is None
    assert records.decode_record("__consumer_offsets", None, None) == records.InternalRecord(
        None, error="there is no key"
    )


def test_keys_and_values_have_the_same_numbers() -> None:
    assert list(KEYS) == list(VALUES)
    assert [KEYS[n].name.removesuffix("Key") for n in KEYS] == [VALUES[n].name.removesuffix("Value") for n in VALUES]


def test_ids() -> None:
    assert uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\1"
    for text in ("", "AAAA", "no id!", "AAAAAAAAAAAAAAAAAAAAAQAAAA", "é" * 22):
        with pytest.raises(ValueError, match="no id"):
            uuid_bytes(text)
