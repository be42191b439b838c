"""Queue files beside a RocksDB database: kept by double writing, or left behind by a move to RocksDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.rocketmq.queues.ranges import file_queues_are_kept
from rmqctl.rocketmq.store.locate import open_store_at

rocksdict = pytest.importorskip("rocksdict")

Rmqctl = Callable[..., Result]


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A store with queue files and a database without rows."""
    root = golden.unpack("5.3.3-clean", tmp_path)
    rocksdict.Rdict(str(root / "consumequeue"), options=rocksdict.Options(raw_mode=True)).close()
    (root / "consumequeue" / "rocksdict-config.json").unlink()
    return root


def cut_queues(root: Path, physical: int) -> None:
    """Drop every unit of records at and behind a physical offset, as if none had been written since."""
    for file in (root / "consumequeue").glob("*/*/*"):
        data = file.read_bytes()
        units = [data[at : at + 20] for at in range(0, len(data), 20)]
        file.write_bytes(b"".join(u if int.from_bytes(u[:8], "big") < physical else bytes(20) for u in units))


def test_files_of_a_double_write_count(both: Path, rmqctl: Rmqctl) -> None:
    store = open_store_at(str(both))
    assert (store.has_rocksdb, store.is_rocksdb) == (True, False)
    assert json.loads(rmqctl("info", both, "-o", "json").stdout)["queue_store"] == "files+rocksdb"
    found = json.loads(rmqctl("verify", both, "-o", "json").stdout)["findings"]
    assert [f for f in found if f["severity"] == "error" or f["id"] == "file.stray"] == []
    with_files = rmqctl("topics", both, "-o", "jsonl").stdout
    (both / "consumequeue" / "CURRENT").unlink()
    assert with_files == rmqctl("topics", both, "-o", "jsonl").stdout != ""


def test_a_damaged_unit_beside_a_database_is_found(both: Path, rmqctl: Rmqctl) -> None:
    path = both / "consumequeue" / "LabOrders" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    found = json.loads(rmqctl("verify", both, "-o", "json").stdout)["findings"]
    assert ("queue.unit-mismatch", str(path.relative_to(both))) in {(f["id"], f["file"]) for f in found}


def test_files_left_behind_do_not_count(both: Path) -> None:
    assert file_queues_are_kept(open_store_at(str(both)), 1000)
    cut_queues(both, 200_000)
    assert not file_queues_are_kept(open_store_at(str(both)), 1000)
    assert not open_store_at(str(both)).is_rocksdb
    cut_queues(both, 0)
    assert open_store_at(str(both)).is_rocksdb


def test_a_database_alone(tmp_path: Path) -> None:
    store = open_store_at(str(golden.unpack("5.5.0-rocksdb-clean", tmp_path)))
    assert (store.has_rocksdb, store.is_rocksdb) == (True, True)
