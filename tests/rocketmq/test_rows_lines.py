"""JSON lines made column by column are byte for byte what orjson makes of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from formats.rocketmq.message import Magic
from rmqctl.files.local import BytesSource
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump import lines
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.lines import MessageLines
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.messages import MessageRows
from rmqctl.rocketmq.dump.properties import PropertyTexts
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.columns import Texts, properties_of
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.log_files import item, log_of, record

IPV6 = bytes.fromhex("20010db8000000000000000000000001")
NAMES = st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"a", b"TRAN_MSG", b"TIMER_DELIVER_MS", b"TIMER_DELAYED_MS"])
VALUES = st.one_of(
    st.sampled_from(
        [b"order1", b"a b", b" a  b ", b" ", b"x\x01y", b'"', b"\\", b'\\"\n\x00\x1f\x7f', b"\xff", "é中😀".encode()]
    ),
    st.binary(max_size=6),
)
PAIRS = st.lists(st.tuples(NAMES | st.binary(max_size=3), VALUES), max_size=5)
PROPERTIES = st.builds(
    lambda pairs, end: b"\x02".join(n + b"\x01" + v for n, v in pairs) + end,
    PAIRS,
    st.sampled_from([b"", b"\x02", b"\x02\x02"]),
)


@pytest.fixture(autouse=True)
def _columns_for_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "FEW", 1)


def block_of(log: bytes) -> Block:
    (block,) = scan(BytesSource(log), Extent("commitlog/0", 0))
    return block


def both(log: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines by columns, and by objects."""
    block = block_of(log)
    ok = crc_flags(block)[1]
    rows = MessageRows(RowOptions()).rows(block, ok)
    return MessageLines(RowOptions()).lines(block, ok).to_pylist(), [orjson.dumps(row) + b"\n" for row in rows]


@given(st.lists(PROPERTIES, min_size=1, max_size=8))
def test_any_properties(properties: list[bytes]) -> None:
    made, expected = both(log_of(record(properties=text) for text in properties))
    assert made == expected


@given(st.lists(PROPERTIES, min_size=1, max_size=8))
def test_plain_properties_do_not_take_the_slow_way(properties: list[bytes]) -> None:
    data = b"".join(properties)
    bounds = [sum(map(len, properties[:n])) for n in range(len(properties) + 1)]
    texts = Texts(np.frombuffer(data, np.uint8), np.array(bounds, np.int64))
    odd = PropertyTexts((b"TAGS",)).json(texts).odd.tolist()
    assert [text for text, is_odd in zip(properties, odd, strict=True) if is_odd and _is_plain(text)] == []


def _is_plain(text: bytes) -> bool:
    """Whether every piece of a properties text is a pair of non-empty UTF-8 texts with a name of its own."""
    pieces = text.removesuffix(b"\x02").split(b"\x02") if text else []
    pairs = [piece.split(b"\x01") for piece in pieces]
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return all(len(p) == 2 and all(p) for p in pairs) and len({p[0] for p in pairs}) == len(pairs)


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "queue_id": st.integers(-(1 << 31), (1 << 31) - 1),
        "flag": st.integers(-5, 5),
        "queue_offset": st.integers(-(1 << 63), (1 << 63) - 1),
        "sys_flag": st.sampled_from([0, 1, 4, 8, 12, 0x101, 0x201, 0x301, 0x701, 0xC0, 0x8000]),
        "store_timestamp": st.integers(0, 1 << 42),
        "store_port": st.integers(-1, 70000),
        "reconsume_times": st.integers(0, 100),
        "topic": st.sampled_from([b"T", b"TopicTest", b'q"', b"\xff", b""]),
        "body": st.sampled_from([b"", b"hello", b"x" * 100, item(b"one", b"KEYS\x01k")]),
        "body_crc": st.integers(0, 3),
        "magic": st.sampled_from([int(Magic.MESSAGE_V1), int(Magic.MESSAGE_V2)]),
    },
)


@given(st.lists(FIELDS, min_size=1, max_size=8))
def test_any_header(changes: list[dict[str, Any]]) -> None:
    made, expected = both(log_of(record(**fields) for fields in changes))
    assert made == expected


def test_ipv6_hosts_among_others() -> None:
    both_v6 = record(sys_flag=0x30, born_ip=IPV6, store_ip=IPV6)
    made, expected = both(log_of([record(), both_v6, record(), record(sys_flag=0x10, born_ip=IPV6)]))
    assert made == expected and b"[2001:db8::1]" in made[1]


def test_more_sets_of_names_than_are_remembered() -> None:
    texts = PropertyTexts((b"TAGS",), most_sets=2)
    block = block_of(log_of(record(properties=b"n%d\x01v\x02n%d\x01w\x02" % (n % 5, n % 3)) for n in range(15)))
    for _ in range(3):
        odd = texts.json(properties_of(block)).odd.tolist()
        assert odd == [n % 5 == n % 3 for n in range(15)]


@pytest.mark.parametrize("name", ["4.5.2-crash", "5.5.0-clean"])
def test_lines_of_a_store_are_its_rows(name: str) -> None:
    store = open_store(LocalTree(golden.pristine(name)))
    made = b"".join(Dump.of_store(store, Request()).lines())
    dump = Dump.of_store(store, Request())
    assert made == b"".join(orjson.dumps(row) + b"\n" for row in dump.rows())
    assert dump.outcome.rows == made.count(b"\n")
