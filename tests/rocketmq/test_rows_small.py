"""Small files as rows: checkpoint, abort, lock, epochs, configuration, DLedger text files."""

from __future__ import annotations

import fcntl
import struct
from pathlib import Path
from typing import Any

import pytest

from formats.rocketmq.epoch import EpochEntry, format_epochs
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request


@pytest.fixture
def dump(tmp_path: Path) -> Any:
    """Writes a file and dumps it."""

    def make(name: str, data: bytes) -> list[dict[str, Any]]:
        (tmp_path / name).write_bytes(data)
        return list(Dump.of_file(LocalTree(tmp_path), name, Request()).rows())

    return make


def test_checkpoint_is_the_object_of_the_contract(dump: Any) -> None:
    (row,) = dump("checkpoint", struct.pack(">6q", 1, 2, 3, 4, 5, 6).ljust(4096, b"\0"))
    assert list(row.items()) == [
        ("kind", "checkpoint"), ("physic_msg_timestamp", 1), ("logics_msg_timestamp", 2), ("index_msg_timestamp", 3),
        ("master_flushed_offset", 4), ("confirm_phy_offset", 5), ("logics_physical_offset", 6),
    ]  # fmt: skip


def test_checkpoint_cut_short(dump: Any) -> None:
    row, finding = dump("checkpoint", struct.pack(">2q", 1, 2))
    assert (row["logics_msg_timestamp"], row["index_msg_timestamp"]) == (2, 0)
    assert (finding["id"], finding["size"]) == ("checkpoint.length", 16)


@pytest.mark.parametrize(("data", "pid"), [(b"", None), (b"4711", 4711)])
def test_abort(dump: Any, data: bytes, pid: int | None) -> None:
    assert dump("abort", data) == [{"kind": "abort", "file": "abort", "size": len(data), "pid": pid}]


def test_lock(dump: Any, tmp_path: Path) -> None:
    assert dump("lock", b"lock") == [{"kind": "lock", "file": "lock", "size": 4, "text": "lock", "held": False}]
    with (tmp_path / "lock").open("r+b") as file:  # this process's own lock stands in nobody's way
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        (row,) = Dump.of_file(LocalTree(tmp_path), "lock", Request()).rows()
        assert row["held"] is False


def test_epochs(dump: Any) -> None:
    good = format_epochs([EpochEntry(1, 0), EpochEntry(2, 4096)])
    assert [(r["epoch"], r["start_offset"]) for r in dump("epochFileCheckpoint", good)] == [(1, 0), (2, 4096)]
    (finding,) = dump("epochFileCheckpoint.bak", good.replace(b"4096", b"4097"))
    assert finding["kind"] == "finding" and "CRC" in finding["message"]


def test_configuration_with_unquoted_keys(dump: Any) -> None:
    (row,) = dump("consumerOffset.json", b'{"offsetTable":{"T@g":{0:123,1:456}\n}}')
    assert row == {
        "kind": "config",
        "file": "consumerOffset.json",
        "content": {"offsetTable": {"T@g": {"0": 123, "1": 456}}},
    }


def test_configuration_that_cannot_be_read(dump: Any) -> None:
    (finding,) = dump("topics.json", b'{"a":')
    assert (finding["id"], finding["offset"]) == ("config.unreadable", 5)


def test_identity_and_text_files(dump: Any) -> None:
    (row,) = dump("brokerIdentity", b"c1#b1#0")
    assert row == {
        "kind": "broker_identity", "file": "brokerIdentity", "cluster": "c1", "broker_name": "b1", "broker_id": "0",
    }  # fmt: skip
    (row,) = dump("checkpoint", b"#Sat Nov 21\nendIndex=17\ncommittedIndex=16\n")
    assert row["kind"] == "dledger_checkpoint" and row["content"] == {"endIndex": 17, "committedIndex": 16}
    (row,) = dump("currterm", b"currTerm=3\nvoteLeader=n0\n")
    assert row["kind"] == "dledger_term" and row["content"] == {"currTerm": 3, "voteLeader": "n0"}


def test_timer_progress(dump: Any) -> None:
    (row,) = dump("timercheck", struct.pack(">7q", 1, 2, 3, 4, 5, 6, 7).ljust(4096, b"\0"))
    assert row == {
        "kind": "timer_check", "file": "timercheck", "last_read_time": 1, "last_timer_log_flush_pos": 2,
        "last_timer_queue_offset": 3, "master_timer_queue_offset": 4, "state_version": 5, "version_timestamp": 6,
        "version_counter": 7,
    }  # fmt: skip
