"""Paths inside a store lead to what lies there, and only that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import NotAStore
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.sources import selected_files
from rmqctl.rocketmq.store.locate import open_path
from rmqctl.store import LoneFile
from tests.rocketmq.log_files import ended, log_of, record
from tests.rocketmq.rows_dledger_helpers import batch, entries, unit

NAME = "0" * 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        f"commitlog/{NAME}": log_of([record()]).ljust(4096, b"\0"),
        f"consumequeue/T/0/{NAME}": unit(0),
        f"consumequeue/T/1/{NAME}": unit(0),
        f"consumequeue/T2/0/{NAME}": unit(0),
        "consumequeue/T2/notes/x": b"x",
        "config/topics.json": b"{}",
        "config/readme.txt": b"hello",
        f"compaction/compactionLog/C/0/{NAME}": ended(log_of([record(topic=b"C")] * 3), 1000),
        f"compaction/compactionLog/C/0/{1000:020d}": log_of([record(topic=b"C")], 1000).ljust(1000, b"\0"),
        f"compaction/compactionCq/C/0/{NAME}": batch(1).ljust(92, b"\0"),
        "compaction/position-checkpoint": b'{"queueOffsetMap":{"C_0":3}}',
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def dump(path: Path) -> list[dict[str, Any]]:
    found = open_path(str(path))
    dump = (
        Dump.of_file(found.tree, found.name, Request())
        if isinstance(found, LoneFile)
        else Dump.of_store(found, Request())
    )
    return list(dump.rows())


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("", [f"commitlog/{NAME}"]),
        ("commitlog", [f"commitlog/{NAME}"]),
        ("consumequeue", [f"consumequeue/{q}/{NAME}" for q in ("T/0", "T/1", "T2/0")]),
        ("consumequeue/T", [f"consumequeue/{q}/{NAME}" for q in ("T/0", "T/1")]),
        ("consumequeue/T/1", [f"consumequeue/T/1/{NAME}"]),
        (f"consumequeue/T/1/{NAME}", [f"consumequeue/T/1/{NAME}"]),
        ("config", ["config/readme.txt", "config/topics.json"]),
        ("compaction/compactionCq", [f"compaction/compactionCq/C/0/{NAME}"]),
        (f"compaction/compactionLog/C/0/{1000:020d}", [f"compaction/compactionLog/C/0/{1000:020d}"]),
        ("compaction/position-checkpoint", ["compaction/position-checkpoint"]),
    ],
)
def test_files_of_a_path(root: Path, path: str, files: list[str]) -> None:
    assert list(dict.fromkeys(row["file"] for row in dump(root / path))) == files
    found = open_path(str(root / path))
    assert not isinstance(found, LoneFile) and {f.name for f in selected_files(found)} >= set(files)


def test_a_file_that_is_none_of_a_stores_is_a_finding_among_others_and_an_error_alone(root: Path) -> None:
    finding = next(row for row in dump(root / "config") if row["kind"] == "finding")
    assert (finding["id"], finding["file"]) == ("file.stray", "config/readme.txt")
    with pytest.raises(NotAStore):
        dump(root / "config" / "readme.txt")


def test_logs_of_compacted_topics_may_end_anywhere(root: Path) -> None:
    (root / f"compaction/compactionLog/C/0/{NAME}").write_bytes(log_of([record(topic=b"C")] * 3).ljust(1000, b"\0"))
    rows = dump(root / "compaction")
    assert [row["kind"] for row in rows] == ["batch_queue_unit", *["message"] * 4, "config"]
    assert {row["topic"] for row in rows[:-1]} == {"C"}


def test_paths_into_a_dledger_group(root: Path) -> None:
    data = root / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / NAME).write_bytes(entries([b"a"]).ljust(1000, b"\0"))
    for path in (root / "dledger-n0", data, data / NAME):
        assert [row["kind"] for row in dump(path)] == ["dledger_entry", "message"]
    assert dump(data)[1]["file"] == f"dledger-n0/data/{NAME}"


def test_a_part_of_a_queue_name_is_no_path(root: Path) -> None:
    with pytest.raises(NotAStore, match="nothing is there"):
        dump(root / "consumequeue" / "T3")


def test_links_in_a_circle_end(root: Path) -> None:
    (root / "compaction" / "loop").symlink_to(root / "compaction")
    assert len(dump(root / "compaction")) < 200


def test_every_file_of_a_real_store_can_be_asked_for() -> None:
    root = golden.pristine("5.5.0-crash")
    for path in sorted(p for p in root.rglob("*") if p.is_file() and "rocksdbstore" not in p.parts):
        name = str(path.relative_to(root))
        assert {row.get("file", name) for row in dump(path)} <= {name}
