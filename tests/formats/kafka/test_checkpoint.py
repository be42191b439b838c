"""Checkpoint text files: what a broker reads, what it refuses, and what is kept of a bad one."""

from __future__ import annotations

import pytest
from construct import GreedyRange, Struct
from hypothesis import given
from hypothesis import strategies as st

from formats.kafka.checkpoint import (
    CheckpointHead,
    LeaderEpoch,
    LeaderEpochLine,
    OffsetLine,
    PartitionOffset,
    format_leader_epochs,
    format_offsets,
    parse_leader_epochs,
    parse_offsets,
)

_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12)
_OFFSETS = st.lists(st.builds(PartitionOffset, _NAMES, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1)))
_EPOCHS = st.lists(st.builds(LeaderEpoch, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 63) - 1)))


@given(_OFFSETS)
def test_offsets_are_read_as_written(entries: list[PartitionOffset]) -> None:
    data = format_offsets(entries)
    assert parse_offsets(data).entries == tuple(entries)
    assert not parse_offsets(data).problems
    schema = Struct("head" / CheckpointHead, "lines" / GreedyRange(OffsetLine))
    parsed = schema.parse(data)
    assert (parsed.head.version, parsed.head.count) == (0, len(entries))
    assert [(line.topic.decode(), line.partition, line.offset) for line in parsed.lines] == [
        (entry.topic, entry.partition, entry.offset) for entry in entries
    ]


@given(_EPOCHS)
def test_epochs_are_read_as_written(entries: list[LeaderEpoch]) -> None:
    data = format_leader_epochs(entries)
    assert parse_leader_epochs(data).entries == tuple(entries)
    schema = Struct("head" / CheckpointHead, "lines" / GreedyRange(LeaderEpochLine))
    assert [(line.epoch, line.start_offset) for line in schema.parse(data).lines] == [
        (entry.epoch, entry.start_offset) for entry in entries
    ]


@given(st.binary(max_size=120))
def test_no_bytes_raise(data: bytes) -> None:
    for parsed in (parse_offsets(data), parse_leader_epochs(data)):
        for problem in parsed.problems:
            assert 0 <= problem.offset <= problem.offset + problem.size <= len(data)


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0", b"0\r\n0\r\n"])
def test_no_entries(data: bytes) -> None:
    assert parse_offsets(data).entries == ()
    assert parse_offsets(data).problems == ()


def test_windows_line_ends_and_runs_of_blanks_are_read() -> None:
    found = parse_offsets(b"0\r\n2\r\nt  0\t5\r\nt-1 1 7 \r\n")
    assert found.offsets == {("t", 0): 5, ("t-1", 1): 7}
    assert found.problems == ()


@pytest.mark.parametrize(
    ("data", "entries", "offset", "message"),
    [
        (b"1\n1\nt 0 5\n", 1, 0, "version 1 is not known, only 0"),
        (b"x\n1\nt 0 5\n", 1, 0, "'x' is not a version"),
        (b" 0\n1\nt 0 5\n", 1, 0, "' 0' is not a version"),
        (b"0\n2\nt 0 5\n", 1, 2, "2 entries announced, 1 lines there"),
        (b"0\ntwo\nt 0 5\n", 1, 2, "'two' is not a number of entries"),
        (b"0\n1\nt 0\n", 0, 4, "'t 0' is not a topic, a partition and an offset"),
        (b"0\n1\n t 0 5\n", 0, 4, "' t 0 5' is not a topic, a partition and an offset"),
        (b"0\n2\nt 0 5\n\n", 1, 10, "'' is not a topic, a partition and an offset"),
        (b"0\n1\nt 2147483648 5\n", 0, 4, "'t 2147483648 5' is not a topic, a partition and an offset"),
        (
            b"0\n1\nt 0 9223372036854775808\n",
            0,
            4,
            "'t 0 9223372036854775808' is not a topic, a partition and an offset",
        ),
        (b"0\n1\nt 0 5x\n", 0, 4, "'t 0 5x' is not a topic, a partition and an offset"),
    ],
)
def test_what_a_broker_refuses(data: bytes, entries: int, offset: int, message: str) -> None:
    found = parse_offsets(data)
    assert len(found.entries) == entries
    assert [(problem.offset, problem.message) for problem in found.problems] == [(offset, message)]


def test_the_last_of_two_entries_counts() -> None:
    assert parse_offsets(b"0\n2\nt 0 5\nt 0 9\n").offsets == {("t", 0): 9}


def test_epochs_out_of_order_are_kept() -> None:
    found = parse_leader_epochs(b"0\n2\n5 10\n3 4\n")
    assert found.entries == (LeaderEpoch(5, 10), LeaderEpoch(3, 4))
    assert parse_leader_epochs(b"0\n1\n5 10 1\n").problems[0].message == "'5 10 1' is not an epoch and an offset"
