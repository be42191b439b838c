"""Each way the index can hide a message, made by hand in a copy of a golden store, and the reason that is named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fixtures import golden as stores
from formats.rocketmq.index import index_key, key_hash
from rmqctl.explain import Trace, TraceStep, all_misses
from rmqctl.rocketmq.query.explain import explain_key
from rmqctl.rocketmq.query.key import KeyQuery, by_key
from rmqctl.rocketmq.store.geometry import ENTRY, IndexGeometry
from rmqctl.rocketmq.store.locate import open_store_at

NAME = "5.5.0-clean"
GEOMETRY = IndexGeometry(500, 1000)
BEGIN_AT, END_AT, COUNT_AT = 0, 8, 36


@dataclass
class Edit:
    """An index file open for edits."""

    path: Path

    def entry(self, number: int) -> tuple[int, int, int, int]:
        with open(self.path, "rb") as file:
            file.seek(GEOMETRY.entry_at(number))
            hashed, physical, time, previous = ENTRY.packer.unpack(file.read(20))
        return hashed, physical, time, previous

    def find(self, topic: str, key: str) -> int:
        """The newest entry of a key in the file."""
        hashed = key_hash(index_key(topic, key))
        return max(n for n in range(1, GEOMETRY.entries) if self.entry(n)[0] == hashed)

    def write(self, offset: int, form: str, *values: int) -> None:
        with open(self.path, "r+b") as file:
            file.seek(offset)
            file.write(struct.pack(form, *values))

    def put(self, number: int, *fields: int) -> None:
        self.write(GEOMETRY.entry_at(number), ">iqii", *fields)

    def slot_at(self, topic: str, key: str) -> int:
        return 40 + 4 * (key_hash(index_key(topic, key)) % GEOMETRY.slots)


@pytest.fixture
def root(golden: Callable[[str], Path]) -> Path:
    return golden(NAME)


@pytest.fixture
def oldest(root: Path) -> Edit:
    return Edit(min((root / "index").iterdir()))


def explained(root: Path, query: KeyQuery) -> TraceStep:
    store, trace = open_store_at(str(root)), Trace()
    return explain_key(store, query, by_key(store, query, trace), trace)


def buried(edit: Edit) -> tuple[KeyQuery, int, int]:
    """A query for a unique key with one entry in the file, that entry, and the one in front of it in its chain."""
    entries = {number: edit.entry(number) for number in range(1, GEOMETRY.entries)}
    newer = {previous: number for number, (_, _, _, previous) in entries.items()}
    for true in (t for t in stores.truth(NAME) if t["kind"] == "msg" and t["topic"] == "LabOrders"):
        hashed = key_hash(index_key("LabOrders", true["uniqKey"]))
        mine = [number for number, entry in entries.items() if entry[0] == hashed]
        if len(mine) == 1 and mine[0] in newer:
            return KeyQuery("LabOrders", true["uniqKey"], unique=True), mine[0], newer[mine[0]]
    raise AssertionError("no chain has two entries")


ONE = KeyQuery("LabOrders", "k5")
"""One message with this key, in the oldest of the three index files."""


def test_slot_behind_the_count(root: Path, oldest: Edit) -> None:
    number = oldest.find("LabOrders", "k5")
    oldest.write(COUNT_AT, ">i", number - 1)
    assert explained(root, ONE).id == "miss.slot-out-of-range"


def test_slot_emptied(root: Path, oldest: Edit) -> None:
    oldest.write(oldest.slot_at("LabOrders", "k5"), ">i", 0)
    assert explained(root, ONE).id == "miss.slot-empty"


def test_entry_of_another_hash(root: Path, oldest: Edit) -> None:
    number = oldest.find("LabOrders", "k5")
    oldest.put(number, 1, *oldest.entry(number)[1:])
    last = explained(root, ONE)
    assert last.id == "miss.never-indexed"
    assert "the index was off, or lost it" in last.result


def test_entry_that_leads_to_another_record(root: Path, oldest: Edit) -> None:
    number = oldest.find("LabOrders", "k5")
    hashed, _, time, previous = oldest.entry(number)
    oldest.put(number, hashed, 0, time, previous)
    assert explained(root, ONE).id == "miss.record-replaced"


@pytest.mark.parametrize("previous", ["itself", "negative", "behind the count"])
def test_chain_that_breaks(previous: str, root: Path, oldest: Edit) -> None:
    query, _, newer = buried(oldest)
    number = {"itself": newer, "negative": -4, "behind the count": 5000}[previous]
    oldest.put(newer, *oldest.entry(newer)[:3], number)
    last = explained(root, query)
    assert last.id == "miss.chain-broken"
    assert f"entry {newer} " in last.result


def test_negative_time(root: Path, oldest: Edit) -> None:
    query, _, newer = buried(oldest)
    hashed, physical, _, previous = oldest.entry(newer)
    oldest.put(newer, hashed, physical, -1, previous)
    assert explained(root, query).id == "miss.chain-broken"


def test_chain_left_at_an_older_entry_after_a_step_of_the_clock(root: Path, oldest: Edit) -> None:
    query, wanted, newer = buried(oldest)
    record = by_key(open_store_at(str(root)), query).messages[0]
    for number, time in ((newer, 0), (wanted, 5)):
        hashed, physical, _, previous = oldest.entry(number)
        oldest.put(number, hashed, physical, time, previous)
    last = explained(root, replace(query, begin=record.store_timestamp))
    assert last.id == "miss.chain-cut-by-time", last
    assert f"entry {wanted}" in last.result


def test_a_newer_file_that_begins_too_early_ends_the_search(root: Path) -> None:
    newest = Edit(max((root / "index").iterdir()))
    newest.write(BEGIN_AT, ">q", 1)
    last = explained(root, KeyQuery("LabOrders", "k5", begin=2))
    assert last.id == "miss.files-cut-by-time"


def test_header_with_times_of_another_day(root: Path, oldest: Edit) -> None:
    oldest.write(BEGIN_AT, ">2q", 1_000_000_000_000, 1_000_000_001_000)
    last = explained(root, KeyQuery("LabOrders", "k5", begin=1_700_000_000_000, end=4_102_444_800_000))
    assert last.id == "miss.index-header"
    assert "2001-09-09" in last.result


@pytest.mark.parametrize("begin", [5, 1, 1 << 40])
def test_a_damaged_begin_is_the_header_s_fault_and_not_the_message_s(begin: int, root: Path, oldest: Edit) -> None:
    """Times of entries count from it: the message seemed to be stored in 1970."""
    oldest.write(BEGIN_AT, ">q", begin)
    last = explained(root, KeyQuery("LabOrders", "k5", begin=1_700_000_000_000, end=4_102_444_800_000))
    assert last.id == "miss.index-header", last
    assert "that record was stored" in last.result


def test_keys_that_share_a_hash(root: Path) -> None:
    last = explained(root, KeyQuery("LabOne", "BBAa"))
    assert last.id == "miss.hash-collision"
    assert "3 candidates" in last.result


def test_an_entry_is_found_again_though_the_file_was_cut(root: Path, oldest: Edit) -> None:
    at = GEOMETRY.entry_at(oldest.find("LabOrders", "k5"))
    with open(oldest.path, "r+b") as file:
        file.truncate(at)
    assert explained(root, ONE).id == "miss.index-unreadable"


def test_after_a_crash_the_files_that_a_start_deletes_are_named() -> None:
    store, query = open_store_at(str(stores.pristine("5.5.0-crash"))), KeyQuery("LabOrders", "k5")
    trace = Trace()
    assert explain_key(store, query, by_key(store, query, trace), trace).id == "miss.none"
    after = [result["indexAfter"] for result in _results("5.5.0", "crash/none")]
    told = {step.file.removeprefix("index/") for step in trace if step.what == "after the crash"}
    assert told == {entry.name for entry in store.index_files} - {name for names in after for name in names}


def _results(release: str, variant: str) -> list[dict[str, dict[str, object]]]:
    return [stores.recovery_oracle(release)["variants"][variant]["result"]]


def test_the_table_is_sound() -> None:
    table = all_misses()
    assert len({m.id for m in table}) == len(table)
    for miss in table:
        assert miss.id.startswith("miss.")
        assert miss.meaning.endswith(".")
        assert not miss.sentence.endswith(".")


def test_golden_store_is_whole() -> None:
    assert explained(stores.pristine(NAME), ONE).id == "miss.none"


def test_what_a_question_asks_the_index_for() -> None:
    """Rows of tags alone for tags, of unique keys alone for a unique key; a key may be either."""
    by_tag, plain, unique = KeyQuery("T", None, tag="A"), KeyQuery("T", "k", tag="A"), KeyQuery("T", "k", unique=True)
    assert [q.kinds for q in (by_tag, plain, unique)] == [("T",), ("K", "U"), ("U",)]
    assert [q.wanted for q in (by_tag, plain, unique)] == ["tags A", "key k", "unique key k"]
    assert plain.text == unique.text == index_key("T", "k") != by_tag.text
