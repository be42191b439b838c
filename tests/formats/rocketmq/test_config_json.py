"""Configuration text: what fastjson writes and forgives is read, the rest says where it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.errors import DecodeError
from formats.rocketmq.config_json import MAX_DEPTH, parse_config
from formats.rocketmq.forgiving_json import parse_forgiving

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
    max_leaves=12,
)
OFFSETS = {"offsetTable": {"T@g": {"0": 123, "1": 456, "10": 3000000000}, "{1:2}": "{3:4,}"}}


def test_integer_keys_stay_unquoted_and_commas_trail() -> None:
    text = b'{\n\t"offsetTable":{"T@g":{0:123,1:456,10:3000000000\n\t},"{1:2}":"{3:4,}",},}'
    assert parse_config(text) == parse_forgiving(text) == OFFSETS


@given(VALUES)
def test_both_readers_read_strict_json_as_it_is(value: Any) -> None:
    for text in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent="\t").encode()):
        assert parse_config(text) == parse_forgiving(text) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{a:1,$b_2:'x',\"c\":[1,,2,],,}", {"a": 1, "$b_2": "x", "c": [1, 2]}),
        (b"\xef\xbb\xbf{/* why */ 'a' : true // so\n}", {"a": True}),
        (b'{"a":"line\nbreak\ttab"}', {"a": "line\nbreak\ttab"}),
        (rb"{'a':'\'\x41\u0042\0\/'}", {"a": "'AB\0/"}),
        (b"{-1:+5,2:1.5e3}", {"-1": 5, "2": 1500.0}),
        (b'{"g\xff":"\xe4"}', {"g\ufffd": "\ufffd"}),
        (rb'{"a":"\ud83d\ude00 \ud83d"}', {"a": "\U0001f600 \ufffd"}),
        (rb"{a:'\ud83d\ude00 \ude00'}", {"a": "\U0001f600 \ufffd"}),
        (b'{"a":1}\0\0\0', {"a": 1}),
    ],
)
def test_what_fastjson_forgives(data: bytes, expected: Any) -> None:
    assert parse_config(data) == expected


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"\0\0\0", 0),
        (b"{", 1),
        (b'{"a":', 5),
        (b'{"t":{"0":1,"1":2', 17),
        (b'{"a":1 "b":2}', 7),
        (b'{"a" 1}', 5),
        (b'{"abc\xc3\xa9\xff":nope}', 10),
        (b"{1:}", 3),
        (b'{"a":"b', 5),
        (b'{"a":"\\q"}', 5),
        (b'{"a":1}}', 7),
        (b'{"a":NaN}', 5),
        (b"\xff\xfe", 0),
        (b"[1/* no end", 2),
        (b"[1" + b"2" * 5000 + b"]", 1),
    ],
)
def test_broken_text_says_where(data: bytes, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_config(data)
    assert caught.value.offset == offset


def test_depth_is_bounded() -> None:
    assert parse_config(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(DecodeError, match=r"deep"):
            parse_config(b"[" * depth + b"]" * depth)


@given(st.binary(max_size=40) | st.text(alphabet="{}[]:,'\"\\u0d8/* a1-\n\0", max_size=30).map(str.encode))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    assert 0 <= place(parse_config, data) <= len(data)
    assert 0 <= place(parse_forgiving, data) <= len(data)


def place(read: Callable[[bytes], Any], data: bytes) -> int:
    """Where it breaks; the end of text that is read."""
    try:
        json.dumps(read(data)).encode()
    except DecodeError as error:
        return error.offset
    return len(data)


@given(VALUES, st.data())
def test_a_cut_is_found_where_it_is(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"table": value}).encode()
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(DecodeError) as caught:
        parse_config(cut)
    begins_string = cut[caught.value.offset :].startswith(b'"')
    assert begins_string or len(cut) - caught.value.offset <= len("false")


@pytest.mark.parametrize("release", golden.RELEASES)
def test_files_of_brokers(release: str, tmp_path: Path) -> None:
    root = golden.unpack(f"{release}-clean", tmp_path)
    files = sorted((root / "config").glob("*.json"))
    assert files
    for file in files:
        data = file.read_bytes()
        assert parse_config(data) == parse_forgiving(data)
    (file,) = (root / "config").glob("*onsumerOffset.json")
    offsets = parse_config(file.read_bytes())["offsetTable"]
    assert all(int(queue) >= 0 and offset >= 0 for queues in offsets.values() for queue, offset in queues.items())
