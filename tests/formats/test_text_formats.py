"""Formats that are text: their schemas read and write what the parsers do."""

from __future__ import annotations

import json
import struct

import pytest
from construct import ConstructError, GreedyRange
from hypothesis import given
from hypothesis import strategies as st

from formats.catalogue import find
from formats.rocketmq.compaction import PositionEntry
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit, PreBlankUnit
from formats.rocketmq.dledger import DLedgerCheckpointLine, DLedgerTermLine, parse_lines
from formats.rocketmq.properties import NAME_END, PAIR_END, PropertyPair, join_properties, split_properties
from formats.text import entries, marks_of

_WORD = st.binary(min_size=1, max_size=9).filter(lambda b: not {1, 2} & set(b))


@given(st.lists(st.tuples(_WORD, _WORD), min_size=1), st.booleans())
def test_properties(pairs: list[tuple[bytes, bytes]], closed: bool) -> None:
    text = join_properties(pairs, closed=closed)
    assert [(p.name, p.value) for p in GreedyRange(PropertyPair).parse(text)] == pairs == split_properties(text)
    assert b"".join(PropertyPair.build({"name": n, "value": v}) for n, v in pairs) == join_properties(pairs)


def test_the_filler_is_what_brokers_write_and_nothing_else() -> None:
    assert struct.pack(">qiq", 0, 0x7FFFFFFF, 0) == PRE_BLANK == PreBlankUnit.build({})
    with pytest.raises(ConstructError):
        PreBlankUnit.parse(ConsumeQueueUnit.build({"physical_offset": 0, "size": 100, "tags_code": 0}))


def test_dledger_texts() -> None:
    lines = b"endIndex=41\ncommittedIndex=40\n"
    assert {f.name: f.value for f in GreedyRange(DLedgerCheckpointLine).parse(lines)} == {
        b"endIndex": 41,
        b"committedIndex": 40,
    }
    term = b"currTerm=3\nvoteLeader=n0\n"
    found = {f.name.decode(): f.value.decode() for f in GreedyRange(DLedgerTermLine).parse(term)}
    assert found == parse_lines(DLedgerTermLine, term) == {"currTerm": "3", "voteLeader": "n0"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"endIndex=41\ncommittedIndex=40\n", {"endIndex": 41, "committedIndex": 40}),
        (b"#Sun Nov 22\r\nendIndex=41\r\ncommittedIndex=-1", {"endIndex": 41, "committedIndex": -1}),
        (b"endIndex = 41 \n\nnothing\ncommittedIndex=x1\nendIndex=42\n", {"endIndex": 42, "committedIndex": "x1"}),
        (b"\xff=\xfe\n=\n", {"\ufffd": "\ufffd", "": ""}),
        (b"endIndex=99999999999999999999\n", {"endIndex": "99999999999999999999"}),
        (b"", {}),
    ],
)
def test_lines_that_are_damaged_or_odd(data: bytes, expected: dict[str, object]) -> None:
    assert parse_lines(DLedgerCheckpointLine, data) == expected


def test_marks_come_from_the_schema() -> None:
    assert marks_of(PropertyPair) == (NAME_END, PAIR_END) == (b"\1", b"\2")
    assert marks_of(PositionEntry) == (b'"', b",")
    assert [e.queue for e in entries(PositionEntry, b'"a_0":7,"b_1":x,"c_2":9')] == [b"a_0", b"c_2"]


def test_compaction_positions() -> None:
    wanted = {"topic_with_bars_0": 7, "T_12": 1 << 40}
    inner = json.dumps(wanted, separators=(",", ":")).encode()[1:-1]
    assert {e.queue.decode(): e.offset for e in GreedyRange(PositionEntry).parse(inner)} == wanted


@pytest.mark.parametrize(
    "name", ["property", "queue-pre-blank", "compaction-position", "dledger-checkpoint-line", "dledger-term-line"]
)
def test_formats_prints_them(name: str) -> None:
    layout = find(name)
    assert layout is not None
    assert all(row.name and row.type for row in layout.rows())
