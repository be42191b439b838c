"""A log as rows: order, blanks, damage in its place, parts of the log, limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump import log
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.log_files import ended, log_of, record

SIZE = 4096
Store = Callable[..., StoreFiles]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Makes a store of log files, given as bytes."""

    def make(*files: bytes, selection: str = "") -> StoreFiles:
        (tmp_path / "commitlog").mkdir()
        for number, data in enumerate(files):
            (tmp_path / "commitlog" / f"{number * SIZE:020d}").write_bytes(data.ljust(SIZE, b"\0"))
        return open_store(LocalTree(tmp_path), selection=selection)

    return make


def dump(store: StoreFiles, limit: int | None = None, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of the log, after a check that the JSON lines say the same."""
    request = Request(Filter(**wanted), limit=limit)
    rows = list(Dump.of_store(store, request).rows())
    made = b"".join(Dump.of_store(store, request).lines())
    assert made == b"".join(orjson.dumps(row) + b"\n" for row in rows)
    return rows


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["kind"], row.get("id", row.get("physical_offset")), row.get("position", row.get("offset"))) for row in rows
    ]


SOUND = log_of(record(body=b"x" * n) for n in range(10))
ENDS = [p for n in range(1, 11) if (p := len(log_of(record(body=b"x" * k) for k in range(n))))]


def test_files_in_log_order_with_their_blanks(store: Store) -> None:
    second = log_of([record()], SIZE)
    rows = dump(store(ended(SOUND, SIZE), second))
    assert [r["physical_offset"] for r in rows] == [0, *ENDS[:-1], ENDS[-1], SIZE]
    assert rows[10] == {
        "kind": "blank", "file": "commitlog/" + "0" * 20, "position": ENDS[-1], "physical_offset": ENDS[-1],
        "size": SIZE - ENDS[-1],
    }  # fmt: skip


def test_wrong_crc_is_a_finding_behind_its_message(store: Store) -> None:
    data = bytearray(SOUND)
    data[ENDS[3] + 88] ^= 1
    rows = dump(store(bytes(data)))
    assert [r["kind"] for r in rows] == ["message"] * 5 + ["finding"] + ["message"] * 5
    assert [r["body_crc_ok"] for r in rows if r["kind"] == "message"] == [True] * 4 + [False] + [True] * 5
    assert (rows[5]["id"], rows[5]["offset"], rows[5]["size"]) == ("log.body-crc", ENDS[3] + 88, 4)


def test_destroyed_record_is_a_finding_in_its_place_and_the_dump_goes_on(store: Store) -> None:
    data = bytearray(SOUND)
    data[ENDS[3] + 4] ^= 0xFF
    rows = dump(store(bytes(data)))
    assert brief(rows)[3:6] == [
        ("message", ENDS[2], ENDS[2]),
        ("finding", "log.bad-record", ENDS[3]),
        ("message", ENDS[4], ENDS[4]),
    ]
    assert len(rows) == 10


def test_a_missing_file_is_a_finding_between(store: Store, tmp_path: Path) -> None:
    found = store(ended(SOUND, SIZE), b"", log_of([record()], 2 * SIZE))
    (tmp_path / "commitlog" / f"{SIZE:020d}").unlink()
    rows = dump(found)
    assert brief(rows)[-2:] == [("finding", "log.gap", 0), ("message", 2 * SIZE, 0)]


def test_from_and_to_offset(store: Store) -> None:
    found = store(ended(SOUND, SIZE), log_of([record()], SIZE))
    assert brief(dump(found, from_offset=ENDS[4], to_offset=ENDS[6])) == [("message", p, p) for p in ENDS[4:6]]
    assert brief(dump(found, from_offset=ENDS[4] + 1, to_offset=ENDS[6]))[0] == ("message", ENDS[5], ENDS[5])
    assert brief(dump(found, from_offset=SIZE)) == [("message", SIZE, 0)]
    assert dump(found, from_offset=9 * SIZE) == []


@pytest.mark.parametrize("chunk", [1, 3, 2048])
def test_limit_counts_messages_and_blanks_but_no_findings(
    store: Store, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHUNK", chunk)
    data = bytearray(SOUND)
    data[ENDS[3] + 4] ^= 0xFF
    found = store(bytes(data))
    assert [r["kind"] for r in dump(found, limit=6)] == ["message"] * 4 + ["finding"] + ["message"] * 2
    assert len(dump(found, limit=4)) == 4
    assert len(dump(found, limit=1, damaged=True)) == 1


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_change_nothing(store: Store, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(SOUND)
    data[ENDS[1] + 4] ^= 0xFF
    data[ENDS[5] + 88] ^= 1
    found = store(ended(bytes(data), SIZE), log_of([record()], SIZE))
    whole = dump(found)
    monkeypatch.setattr(log, "CHUNK", chunk)
    assert dump(found) == whole


def test_only_damage(store: Store) -> None:
    data = bytearray(SOUND)
    data[ENDS[1] + 4] ^= 0xFF
    data[ENDS[5] + 88] ^= 1
    rows = dump(store(ended(bytes(data), SIZE)), damaged=True)
    assert brief(rows) == [
        ("finding", "log.bad-record", ENDS[1]),
        ("message", ENDS[5], ENDS[5]),
        ("finding", "log.body-crc", ENDS[5] + 88),
    ]


def test_filters_hide_damage_that_cannot_be_told_to_match_and_count_it(store: Store) -> None:
    data = bytearray(SOUND)
    data[ENDS[1] + 4] ^= 0xFF
    found = Dump.of_store(store(ended(bytes(data), SIZE)), Request(Filter(topics=("TopicTest",))))
    assert {row["kind"] for row in found.rows()} == {"message"}
    assert (found.outcome.rows, found.outcome.damage, found.outcome.hidden) == (9, 0, 1)


def test_an_unreadable_file_is_a_finding_among_others_and_an_error_alone(store: Store, tmp_path: Path) -> None:
    found = store(ended(SOUND, SIZE), ended(log_of([record()], SIZE), SIZE), log_of([record()], 2 * SIZE))
    path = tmp_path / "commitlog" / f"{SIZE:020d}"
    path.unlink()
    path.symlink_to(path)
    assert brief(dump(found))[-2:] == [("finding", "file.unreadable", 0), ("message", 2 * SIZE, 0)]
    with pytest.raises(OSError, match="no such file"):
        list(Dump.of_file(LocalTree(path.parent), path.name, Request()).rows())


@pytest.mark.parametrize(
    "wanted", [{}, {"from_offset": 100}, {"to_offset": SIZE + 50}, {"from_offset": 50, "to_offset": 60}]
)
def test_progress_adds_up_to_the_total(store: Store, wanted: dict[str, int]) -> None:
    found = Dump.of_store(store(ended(SOUND, SIZE), log_of([record()], SIZE), b""), Request(Filter(**wanted)))
    steps: list[int] = []
    found.report(steps.append)
    for _ in found.rows():
        pass
    assert sum(steps) == found.total > 0 and min(steps) >= 0


def test_one_file_of_the_log_keeps_its_place(store: Store) -> None:
    second = log_of([record()], SIZE)
    found = store(ended(SOUND, SIZE), second, selection=f"commitlog/{SIZE:020d}")
    assert brief(dump(found)) == [("message", SIZE, 0)]
    found.selection = "commitlog"
    assert len(dump(found)) == 12


def test_logs_in_several_directories_are_one_log() -> None:
    store = open_store(LocalTree(golden.pristine("5.5.0-multipath-clean")))
    rows = dump(store)
    offsets = [row["physical_offset"] for row in rows]
    assert offsets == sorted(offsets) and len({row["file"].split("/")[0] for row in rows}) > 1
    store.selection = "commitlog-b"
    assert {row["file"].split("/")[0] for row in dump(store)} == {"commitlog-b"}
