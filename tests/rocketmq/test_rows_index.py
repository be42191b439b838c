"""Index files as rows: header, slots with chains, entries."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.index import IndexHeader, index_key, key_hash, tag_index_key
from rmqctl.files.local import BytesSource
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.files import index_rows
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.geometry import IndexGeometry
from rmqctl.rocketmq.store.locate import open_store

GEOMETRY = IndexGeometry(5, 8)
Row = dict[str, Any]


def index(slots: list[int], entries: list[tuple[int, int, int, int]], **header: int) -> bytes:
    """An index file of :data:`GEOMETRY`; entries (hash, offset, seconds, previous) are numbered from 1."""
    fields = {
        "begin_timestamp": 1000, "end_timestamp": 9000, "begin_phy_offset": 0, "end_phy_offset": 900,
        "hash_slot_count": 2, "index_count": len(entries) + 1, **header,
    }  # fmt: skip
    data = IndexHeader.build(fields) + struct.pack(">5i", *slots) + bytes(20)
    return (data + b"".join(struct.pack(">iqii", *entry) for entry in entries)).ljust(GEOMETRY.file_size, b"\0")


def rows_of(data: bytes) -> list[Row]:
    return list(index_rows(BytesSource(data), "index/1", GEOMETRY))


def test_header_slots_chains_and_entries() -> None:
    rows = rows_of(index([0, 3, 2, 0, 0], [(1, 0, 7, 0), (7, 100, 1, 0), (6, 200, 2, 1)]))
    assert rows[0] == {
        "kind": "index_header", "file": "index/1", "begin_timestamp": 1000, "end_timestamp": 9000,
        "begin_phy_offset": 0, "end_phy_offset": 900, "hash_slot_count": 2, "index_count": 4, "slots": 5, "entries": 8,
    }  # fmt: skip
    assert [(r["slot"], r["newest"], r["chain"]) for r in rows[1:3]] == [(1, 3, [3, 1]), (2, 2, [2])]
    assert rows[5] == {
        "kind": "index_entry", "file": "index/1", "number": 3, "slot": 1, "key_hash": 6, "physical_offset": 200,
        "time_difference": 2, "store_timestamp": 3000, "previous": 1,
    }  # fmt: skip
    assert list(rows[5])[2:] == [
        "number", "slot", "key_hash", "physical_offset", "time_difference", "store_timestamp", "previous",
    ]  # fmt: skip
    assert rows[3]["store_timestamp"] == 1000  # the difference of entry 1 is measured from another time


@pytest.mark.parametrize(
    ("slots", "entries", "message"),
    [
        ([0, 9, 0, 0, 0], [(1, 0, 0, 0)], "points at entry 9, the file has 1"),
        ([0, 2, 0, 0, 0], [(1, 0, 0, 2), (6, 0, 0, 1)], "entry 1 points forward or in a circle, at 2"),
        ([0, 0, 1, 0, 0], [(1, 0, 0, 0)], "entry 1 has hash 1, which belongs to another slot"),
        ([0, -1, 0, 0, 0], [(1, 0, 0, 0)], "points at entry -1, the file has 1"),
    ],
)
def test_broken_chains_are_findings(slots: list[int], entries: list[Any], message: str) -> None:
    (finding,) = [r for r in rows_of(index(slots, entries)) if r["kind"] == "finding"]
    assert finding["id"] == "index.chain" and message in finding["message"]


def test_entries_ahead_of_the_header_are_shown() -> None:
    rows = rows_of(index([0, 2, 0, 0, 0], [(1, 0, 0, 0), (6, 100, 0, 1)], index_count=2))
    assert [r["number"] for r in rows if r["kind"] == "index_entry"] == [1, 2]
    assert not [r for r in rows if r["kind"] == "finding"]


def test_file_too_short_for_its_header() -> None:
    (row,) = index_rows(BytesSource(b"abc"), "index/1", None)
    assert row["id"] == "index.file-length"


@pytest.mark.parametrize("name", ["4.5.2-clean", "5.5.0-clean"])
def test_entries_of_a_real_store_are_the_keys_of_its_messages(name: str) -> None:
    store = open_store(LocalTree(golden.pristine(name)))
    messages = [r for r in Dump.of_store(store, Request()).rows() if r["kind"] == "message"]
    store.selection = "index"
    entries = [r for r in Dump.of_store(store, Request()).rows() if r["kind"] == "index_entry"]
    found = {(r["key_hash"], r["physical_offset"]) for r in entries}
    for message in messages:
        keys = [*message["keys"], *filter(None, [message["unique_key"]])]
        hashes = {key_hash(index_key(message["topic"], key)) for key in keys}
        assert {(h, message["physical_offset"]) for h in hashes} <= found


def test_entries_of_a_key_or_a_tag() -> None:
    store = open_store(LocalTree(golden.pristine("5.5.0-clean")), selection="index")
    for wanted, text in (
        ({"key": "k1"}, index_key("LabOrders", "k1")),
        ({"tag": "TagA"}, tag_index_key("LabOrders", "TagA")),
    ):
        rows = list(Dump.of_store(store, Request(Filter(topics=("LabOrders",), **wanted))).rows())
        assert rows and {r["key_hash"] for r in rows} == {key_hash(text)}
