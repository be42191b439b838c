"""Files are there at their full length or not at all; those that a kill left short are made whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.writing import Disk
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.query.key import KeyQuery
from tests.rocketmq.engine.engine_helpers import complaints


class Killed(BaseException):
    """What nobody catches."""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system cannot make files without a name")
def test_a_kill_before_the_length_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Disk, fd: int, size: int) -> None:
        raise Killed

    monkeypatch.setattr(Disk, "resize", killed)
    with pytest.raises(Killed):
        Disk().open(tmp_path / "queue" / "0", 6000)
    assert list((tmp_path / "queue").iterdir()) == []


def test_without_files_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    fd = Disk().open(tmp_path / "queue" / "0", 6000)
    assert os.fstat(fd).st_size == 6000
    os.close(fd)


def test_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*names: Any, **more: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(os, "link", link)
    fd = Disk().open(tmp_path / "queue" / "0", 6000)
    assert os.fstat(fd).st_size == 6000
    os.close(fd)


@pytest.mark.parametrize("length", [0, 3, 40, 1000])
def test_an_index_file_that_a_kill_left_short(length: int, tmp_path: Path) -> None:
    """A broker extends it when it maps it at the next start."""
    root = tmp_path / "s"
    engine = StoreEngine.open(root, StoreConfig.small())
    for n in range(40):
        engine.put(Message("T", b"x", 0, {"KEYS": f"k{n}"}))
    engine.crash()
    for path in (root / "index").iterdir():
        path.unlink()
    (root / "index" / "20261121145502644").write_bytes(bytes(length))
    with StoreEngine.open(root, StoreConfig.small()) as opened:
        assert opened.put(Message("T", b"y", 0, {"KEYS": "k40"})).queue_offset == 40
        assert [m.fields["body"] for m in opened.query(KeyQuery("T", "k40"))] == [b"y"]
        assert len(opened.query(KeyQuery("T", "k3"))) == 1
    assert complaints(root) == []


@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.0-crash"])
def test_recover_carries_out_its_plan_on_a_short_index_file(name: str, tmp_path: Path, rmqctl: Any) -> None:
    root = golden.unpack(name, tmp_path / "store")
    (root / "index" / "20991121145502644").write_bytes(b"")
    found = rmqctl("recover", root, "--apply", "--journal", tmp_path / "journal")
    assert found.exit_code == 0, found.output
    assert "index.file-length" not in rmqctl("verify", root).stdout
