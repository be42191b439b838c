"""Index files built in batches equal those built key by key, by the rules as they are written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.layout import plan_of
from formats.rocketmq.index import IndexEntry
from rmqctl.rocketmq.dispatch import series as series_module
from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.series import IndexSeries, chain
from rmqctl.rocketmq.index import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.rebuild.build import IndexFilesWriter
from rmqctl.rocketmq.store.geometry import SLOT_SIZE, IndexGeometry

Record = tuple[int, int, list[int]]
"""Physical offset, store time (ms), hashes of its keys."""


ENTRY = plan_of(IndexEntry).runs[0].packer


@dataclass(frozen=True, slots=True)
class IndexPut:
    """Where one put writes; the header, `IndexHead.pack`, is to be written at byte 0 afterwards.

    Attributes:
        entry_at, slot_at: bytes into the file.
        entry, slot: 20 and 4 bytes.
    """

    entry_at: int
    entry: bytes
    slot_at: int
    slot: bytes


def put_key(
    head: IndexHead,
    geometry: IndexGeometry,
    key_hash: int,
    physical: int,
    store_timestamp: int,
    read_slot: Callable[[int], bytes],
    *,
    counts_slots: bool,
) -> IndexPut:
    """Put one key into a file that is not full; changes ``head``.

    Args:
        read_slot: the four bytes at a byte offset of the file.
        counts_slots: `DispatchRules.counts_slots`.
    """
    slot_at = HEADER_SIZE + SLOT_SIZE * (key_hash % geometry.slots)
    newest = int.from_bytes(read_slot(slot_at), "big", signed=True)
    if newest <= 0 or newest > head.index_count:
        newest = 0
    difference = head.difference(store_timestamp)
    number = head.put(physical, store_timestamp, new_slot=not counts_slots or newest == 0)
    entry = ENTRY.pack(key_hash, physical, difference, newest)
    return IndexPut(geometry.entry_at(number), entry, slot_at, number.to_bytes(SLOT_SIZE, "big"))


def one_by_one(
    records: list[Record], geometry: IndexGeometry, *, counts_slots: bool, first: bytes | None = None
) -> list[bytes]:
    """The files that IndexService.buildIndex makes of the records (spec 4.3, 4.4)."""
    files = [bytearray(first)] if first else []
    heads = [IndexHead.parse(first)] if first else []
    for physical, time, hashes in records:
        _room(files, heads, geometry)
        if physical < heads[-1].end_phy_offset:
            continue
        for key in hashes:
            _room(files, heads, geometry)
            file, head = files[-1], heads[-1]

            def slot(at: int, file: bytearray = file) -> bytes:
                return bytes(file[at : at + 4])

            put = put_key(head, geometry, key, physical, time, slot, counts_slots=counts_slots)
            file[put.entry_at : put.entry_at + 20] = put.entry
            file[put.slot_at : put.slot_at + 4] = put.slot
            file[:HEADER_SIZE] = head.pack()
    return [bytes(f) for f in files]


def _room(files: list[bytearray], heads: list[IndexHead], geometry: IndexGeometry) -> None:
    if not heads or heads[-1].is_full(geometry):
        heads.append(heads[-1].successor() if heads else IndexHead())
        files.append(bytearray(heads[-1].pack().ljust(geometry.file_size, b"\0")))


def columns(records: list[Record]) -> IndexColumns:
    physical, times = (np.array([r[i] for r in records], np.int64) for i in (0, 1))
    counts = np.array([len(r[2]) for r in records], np.int32)
    return IndexColumns(physical, times, counts, np.array([h for r in records for h in r[2]], np.int32))


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Records in log order, few different keys, with idle time and clocks set back between them."""
    steps = draw(st.lists(st.tuples(st.integers(100, 900), st.integers(-2000, 90_000)), max_size=60))
    found, physical, time = [], 0, draw(st.sampled_from([0, 1_700_000_000_000]))
    for step, pause in steps:
        found.append((physical, max(time, 0), draw(st.lists(st.integers(0, 40), max_size=4))))
        physical, time = physical + step, time + pause
    return found


@given(logs(), st.integers(1, 9), st.integers(2, 30), st.booleans(), st.integers(1, 7))
def test_batches_equal_single_puts(
    tmp_path_factory: pytest.TempPathFactory, log: list[Record], slots: int, entries: int, counts: bool, batch: int
) -> None:
    geometry = IndexGeometry(slots, entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_module, "BATCH", batch)
        writer = IndexFilesWriter(tmp_path_factory.mktemp("index"), geometry)
        series = IndexSeries(geometry, counts_slots=counts, sink=writer)
        for start in range(0, len(log), 7):
            series.add(columns(log[start : start + 7]))
        series.finish()
    built = [writer.path(n).read_bytes() for n in range(len(writer.heads))]
    assert built == one_by_one(log, geometry, counts_slots=counts)


@given(logs(), logs())
def test_entries_go_on_in_a_file_that_is_there(log: list[Record], again: list[Record]) -> None:
    """A replay over a file left by a crash: records before its last one are left out, stale slots are no chain."""
    geometry = IndexGeometry(5, 40)
    first = bytearray(one_by_one(log, geometry, counts_slots=True)[-1] if log else bytes(geometry.file_size))
    first[HEADER_SIZE : HEADER_SIZE + 8] = (37).to_bytes(4, "big") + (-3).to_bytes(4, "big", signed=True)
    slots = np.frombuffer(first, ">i4", geometry.slots, HEADER_SIZE)
    series = IndexSeries(geometry, counts_slots=True, head=IndexHead.parse(bytes(first)), slots=slots)
    if again:
        series.add(columns(again))
    expected = one_by_one(again, geometry, counts_slots=True, first=bytes(first))
    assert [h.pack() for h in series.heads] == [f[:HEADER_SIZE] for f in expected]


def test_records_out_of_order_are_judged_by_the_last_one_put() -> None:
    """Where records state wrong offsets, a record counts as indexed if it is before the one put last."""
    log = [(500, 1, [1]), (9000, 2, []), (100, 3, [2]), (700, 4, [3]), (600, 5, [4]), (700, 6, [5])]
    geometry = IndexGeometry(3, 20)
    series = IndexSeries(geometry, counts_slots=True)
    series.add(columns(log))
    assert series.heads[0].pack() == one_by_one(log, geometry, counts_slots=True)[0][:HEADER_SIZE]
    assert series.heads[0].index_count == 1 + 3


def test_a_full_file_has_a_successor_once_another_record_comes() -> None:
    """It is made before anybody looks for keys, with the times of the full file and no entry (spec 4.3)."""
    series = IndexSeries(IndexGeometry(3, 2), counts_slots=True)
    series.add(columns([(0, 1000, [7])]))
    assert len(series.heads) == 1
    series.add(columns([(100, 2000, [])]))
    assert [h.pack()[:16] for h in series.heads] == [(1000).to_bytes(8, "big") * 2] * 2
    assert series.heads[1].pack()[32:] == bytes(8)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80))
def test_chains_by_brute_force(slots: list[int]) -> None:
    table, expected = np.zeros(7, np.int32), []
    newest: dict[int, int] = {}
    for number, slot in enumerate(slots, 1):
        expected.append(newest.get(slot, 0))
        newest[slot] = number
    assert chain(table, np.array(slots, np.int32), 1).tolist() == expected
    assert {s: n for s, n in enumerate(table.tolist()) if n} == newest


def test_staged_files_have_the_length_of_their_geometry(tmp_path: Path) -> None:
    writer = IndexFilesWriter(tmp_path, IndexGeometry(500, 1000))
    series = IndexSeries(writer.geometry, counts_slots=True, sink=writer)
    series.add(columns([(0, 1, [])]))
    series.finish()
    assert writer.path(0).stat().st_size == 40 + 500 * 4 + 1000 * 20
    assert not any(writer.path(0).read_bytes())
