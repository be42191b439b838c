"""A DLedger log as rows: entries and the messages in them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerBlank
from rmqctl.errors import NotAStore
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.rows_dledger_helpers import entries

SIZE = 4096
Row = dict[str, Any]


def full(data: bytes) -> bytes:
    return (data + DLedgerBlank.build({"magic": -1, "size": SIZE - len(data)})).ljust(SIZE, b"\0")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two files of a DLedger log: entries without a message at the start, inside, in a row, at the end."""
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    first = entries([None, b"a", b"b", None, None, b"c", None])
    (data / f"{0:020d}").write_bytes(full(first))
    (data / f"{SIZE:020d}").write_bytes(entries([b"d", None], SIZE, 7).ljust(SIZE, b"\0"))
    return tmp_path


def rows(root: Path, selection: str = "dledger-n0/data", **wanted: Any) -> list[Row]:
    """Rows of the log, after a check that the JSON lines say the same."""
    found = open_store(LocalTree(root), selection=selection)
    made = list(Dump.of_store(found, Request(Filter(**wanted))).rows())
    lines = b"".join(Dump.of_store(found, Request(Filter(**wanted))).lines())
    assert lines == b"".join(orjson.dumps(row) + b"\n" for row in made)
    return made


def test_every_entry_in_order_with_its_message_behind(store: Path) -> None:
    found = rows(store)
    assert [r["index"] for r in found if r["kind"] == "dledger_entry"] == list(range(9))
    assert "".join({"dledger_entry": "e", "message": "m", "blank": "b"}[r["kind"]] for r in found) == "eememeeemebeme"
    for entry, message in pairwise(found):
        if message["kind"] == "message":
            assert message["position"] == entry["position"] + ENTRY_SIZE
            assert message["physical_offset"] == entry["entry_position"] + ENTRY_SIZE
            assert message["size"] == entry["body_size"] and message["body_crc_ok"]


def test_entry_header_has_a_place_in_the_file_and_one_in_the_log(store: Path) -> None:
    entry = next(r for r in rows(store) if r["kind"] == "dledger_entry" and r["index"] == 7)
    assert entry == {
        "kind": "dledger_entry", "file": f"dledger-n0/data/{SIZE:020d}", "position": 0, "magic": 1,
        "size": entry["body_size"] + ENTRY_SIZE, "index": 7, "term": 1, "entry_position": SIZE, "channel": 0,
        "chain_crc": 0, "body_crc": 0, "body_size": entry["body_size"],
    }  # fmt: skip


def test_filters_show_messages_alone(store: Path) -> None:
    assert [r["kind"] for r in rows(store, topics=("TopicTest",))] == ["message"] * 4


def test_from_an_offset_on(store: Path) -> None:
    found = rows(store, from_offset=SIZE)
    assert (found[0]["kind"], found[0]["position"]) == ("dledger_entry", 0)
    assert {r["file"] for r in found} == {f"dledger-n0/data/{SIZE:020d}"}


def test_damage_in_its_place(store: Path) -> None:
    path = store / "dledger-n0" / "data" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    second = [r for r in rows(store) if r["kind"] == "dledger_entry"][1]["position"]
    data[second + ENTRY_SIZE + 4] ^= 0xFF
    path.write_bytes(data)
    found = rows(store)
    assert [(r["kind"], r.get("id")) for r in found if r["kind"] == "finding"] == [("finding", "log.bad-record")]
    assert [r["index"] for r in found if r["kind"] == "dledger_entry"] == [0, 2, 3, 4, 5, 6, 7, 8]


def test_paths_into_a_group(store: Path) -> None:
    (store / "dledger-n0" / "checkpoint").write_text("endIndex=8\ncommittedIndex=8\n")
    assert [r["kind"] for r in rows(store, "dledger-n0")][-1] == "dledger_checkpoint"
    one = rows(store, f"dledger-n0/data/{SIZE:020d}")
    assert {r["file"] for r in one} == {f"dledger-n0/data/{SIZE:020d}"}
    inside = [{**r, "file": r["file"].removeprefix("dledger-n0/")} for r in rows(store)]
    assert rows(store / "dledger-n0", "") == inside


def test_the_log_of_the_store_is_its_messages(store: Path) -> None:
    assert rows(store, "") == [r for r in rows(store) if r["kind"] != "dledger_entry"]


def test_a_root_without_any_log(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    with pytest.raises(NotAStore, match="no commitlog/"):
        rows(tmp_path, "")


def test_empty_entries_behind_damage_are_entries(tmp_path: Path) -> None:
    """The damage ends with the entry that is damaged, whatever the next one holds and wherever the log ends."""
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    raw = bytearray(entries([b"a", b"b", None, None, b"c", b"d", None]))
    starts = [int(row["position"]) for row in rows_of_bytes(data, bytes(raw))]
    for damaged in (1, 5):
        raw[starts[damaged] + 4] ^= 0x40  # the entry's size
        raw[starts[damaged] + ENTRY_SIZE] ^= 0x40  # TOTALSIZE of its message
    found = [(row["kind"], row.get("position", row.get("offset"))) for row in rows_of_bytes(data, bytes(raw))]
    expected = [("finding" if n in (1, 5) else "dledger_entry", at) for n, at in enumerate(starts)]
    assert [f for f in found if f[0] in ("finding", "dledger_entry")] == expected


def rows_of_bytes(directory: Path, raw: bytes) -> list[Row]:
    """Rows of a log of one file, messages left out."""
    (directory / f"{0:020d}").write_bytes(raw.ljust(SIZE, b"\0"))
    return [row for row in rows(directory.parent.parent) if row["kind"] != "message"]
