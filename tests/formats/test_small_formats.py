"""Queue units, index keys, checkpoint, properties, epochs, configuration text: vectors and round trips."""

from __future__ import annotations

from typing import Any

import construct as c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.catalogue import CATALOGUE, find, nearest
from formats.layout import NotFlat, gather, plan_of
from formats.rocketmq import compaction
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit
from formats.rocketmq.index import IndexEntry, key_hash
from formats.rocketmq.properties import is_closed, join_properties, split_properties
from formats.rocketmq.tags_code import delivery_time, parse_delay_levels, tags_code
from formats.text import java_hash


def test_queue_unit_of_the_worked_example() -> None:
    raw = bytes.fromhex("0000000000000000 0000007e 000000000027a807")
    assert ConsumeQueueUnit.build({"physical_offset": 0, "size": 126, "tags_code": tags_code("TagA")}) == raw
    assert PRE_BLANK.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("aaaaa", 92567585),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(1 << 31)),
        ("TopicTest#order1", -2137216219),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_index_hash_of_the_smallest_int_is_zero() -> None:
    assert key_hash("TopicTest#tbaekxa") == 0
    assert key_hash("TopicTest#order1") == 2137216219


def test_index_entry_of_the_worked_example() -> None:
    raw = IndexEntry.build({"key_hash": 0x7F6354DB, "physical_offset": 0, "time_difference": 0, "previous": 0})
    assert raw.hex() == "7f6354db" + "0" * 32


@pytest.mark.parametrize(
    ("text", "late", "early"),
    [
        (b"KEYS\x01a\x02TAGS\x01b\x02", [(b"KEYS", b"a"), (b"TAGS", b"b")], [(b"KEYS", b"a"), (b"TAGS", b"b")]),
        (b"a\x01b\x01c", [(b"a", b"b\x01c")], []),
        (b"a\x01b\x01\x02", [(b"a", b"b\x01")], [(b"a", b"b")]),
        (b"\x01\x01\x02", [], []),
        (b"\x01v\x02", [], [(b"", b"v")]),
        (b"k\x01\x02", [], []),
        (b"", [], []),
        (b"plain", [], []),
    ],
)
def test_properties_of_both_decoders(text: bytes, late: list[Any], early: list[Any]) -> None:
    assert split_properties(text) == late
    assert split_properties(text, strict=True) == early


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=8), st.binary(min_size=1, max_size=8)), max_size=5), st.booleans()
)
def test_properties_round_trip(pairs: list[tuple[bytes, bytes]], closed: bool) -> None:
    pairs = [(n.translate(None, b"\x01\x02") or b"n", v.translate(None, b"\x01\x02") or b"v") for n, v in pairs]
    text = join_properties(pairs, closed=closed)
    assert split_properties(text) == pairs
    assert is_closed(text) == (closed and bool(pairs))


def test_delay_levels() -> None:
    levels = parse_delay_levels()
    assert (levels[1], levels[18]) == (1000, 7_200_000)
    assert delivery_time(10, 99, levels) == 7_200_010
    assert delivery_time(10, 5, {}) == 1010


def test_compaction_sizes_are_multiples() -> None:
    assert compaction.queue_file_size() == 10485746 // 46 * 46
    assert compaction.log_file_size() == 104857460


@pytest.mark.parametrize("name", [f.name for f in CATALOGUE])
def test_every_layout_prints_and_adds_up(name: str) -> None:
    layout = find(name)
    assert layout is not None
    rows = layout.rows()
    assert rows
    assert len({r.name for r in rows}) == len(rows)
    if layout.size is not None:
        assert sum(int(r.size) for r in rows) == layout.size


def test_nearest_names() -> None:
    assert "queue-unit" in nearest("que-unit")
    assert find("nothing") is None


def test_columns_equal_tuples() -> None:
    (run,) = plan_of(ConsumeQueueUnit).runs
    raw = b"xyz" + b"".join(
        ConsumeQueueUnit.build({"physical_offset": i, "size": -i, "tags_code": i << 33}) for i in range(5)
    )
    table = gather(np.frombuffer(raw, np.uint8), 3 + 20 * np.arange(5), run)
    assert table["physical_offset"].tolist() == [0, 1, 2, 3, 4]
    assert table["tags_code"].tolist() == [i << 33 for i in range(5)]
    assert [run.packer.unpack_from(raw, 3 + 20 * i) for i in range(5)] == [
        tuple(int(x) for x in row) for row in table.tolist()
    ]


@pytest.mark.parametrize(
    "schema",
    [
        c.Struct("a" / c.VarInt),
        c.Struct("a" / c.Int8ub[3]),
        c.Struct("a" / c.Prefixed(c.Int8ub, c.Int16ub)),
        c.Struct("a" / c.Prefixed(c.Int8ub, c.GreedyBytes, includelength=True)),
        c.Struct("a" / c.Int16ub, "b" / c.Int16ul),
    ],
)
def test_what_has_no_flat_layout_is_refused(schema: Any) -> None:
    with pytest.raises(NotFlat):
        plan_of(schema)
