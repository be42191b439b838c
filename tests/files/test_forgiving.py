"""Files that cannot be read: a verification names them once and goes on, pages of a failing disk count as zeros."""

from __future__ import annotations

import errno
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.files.lock import is_locked
from rmqctl.files.tree import PAGE, ForgivingFile, ForgivingTree, LocalTree, Refusals

Rmqctl = Callable[..., Result]
REPLACEMENTS: dict[str, Callable[[Path], object]] = {
    "link in a circle": lambda path: path.symlink_to(path.name),
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
}
FILES = (
    "commitlog/00000000000000131072",
    "consumequeue/LabOrders/0/00000000000000001000",
    "consumequeue_ext",
    "index",
    "checkpoint",
    "abort",
    "lock",
    "timerwheel",
    "timerlog/00000000000000000000",
    "config",
    "config/topics.json",
)


def _replace(path: Path, by: Callable[[Path], object]) -> None:
    if path.is_dir():
        os.rename(path, path.with_name("moved-away"))
    else:
        path.unlink(missing_ok=True)
    by(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_verify_always_ends_with_an_answer(
    name: str, by: Callable[[Path], object], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root = golden.unpack("5.3.3-crash", tmp_path)
    _replace(root / name, by)
    result = rmqctl("verify", root, "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    found = {f["file"]: f for f in json.loads(result.stdout)["findings"] if f["id"] == "file.unreadable"}
    if (root / name).is_symlink() and os.readlink(root / name) != "nowhere":
        assert found[name]["severity"] == "error"
        assert "symbolic links" in found[name]["message"]


def test_a_log_file_that_cannot_be_read_is_one_finding(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    _replace(root / FILES[0], REPLACEMENTS["link in a circle"])
    for options in ((), ("--processes", "2")):
        document = json.loads(rmqctl("verify", root, "-o", "json", *options).stdout)
        loud = [f for f in document["findings"] if f["severity"] != "note"]
        assert [(f["id"], f["file"]) for f in loud] == [("file.unreadable", FILES[0])]


def test_no_permission_is_a_finding_and_names_the_file(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    closed, real = str(root / FILES[1]), os.open
    queues = len(rmqctl("topics", root, "-o", "jsonl").stdout.splitlines())

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if os.fspath(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), closed)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    document = json.loads(rmqctl("verify", root, "-o", "json").stdout)
    loud = [(f["id"], f["file"]) for f in document["findings"] if f["severity"] != "note"]
    assert loud == [("file.unreadable", FILES[1])]
    topics = rmqctl("topics", root, "-o", "jsonl")
    assert (topics.exit_code, len(topics.stdout.splitlines())) == (1, queues)
    assert FILES[1] in topics.stderr


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", REPLACEMENTS.values(), ids=REPLACEMENTS)
@pytest.mark.parametrize("command", ["info", "topics"])
def test_info_and_topics_go_on(
    command: str, name: str, by: Callable[[Path], object], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root = golden.unpack("5.3.3-crash", tmp_path)
    _replace(root / name, by)
    result = rmqctl(command, root, "-o", "json")
    assert result.exit_code in (0, 1), result.stderr
    assert json.loads(result.stdout)
    assert (result.exit_code == 0) == (not result.stderr)


class _Disk:
    """A disk whose pages can fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, bad: set[int]) -> None:
        self.path, self.bad, self._pread, self._preadv = str(path), bad, os.pread, os.preadv
        monkeypatch.setattr(os, "pread", self.pread)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def _fail(self, fd: int, offset: int, size: int) -> None:
        pages = set(range(offset // PAGE, -(-(offset + size) // PAGE)))
        if os.readlink(f"/proc/self/fd/{fd}") == self.path and pages & self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._fail(fd, offset, size)
        return self._pread(fd, size, offset)

    def preadv(self, fd: int, buffers: Any, offset: int) -> int:
        self._fail(fd, offset, sum(len(b) for b in buffers))
        return self._preadv(fd, buffers, offset)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@needs_proc
def test_a_failing_page_is_zeros_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    data = bytes(range(1, 251)) * 80
    path.write_bytes(data)
    _Disk(monkeypatch, path, {1, 3})
    refusals: Refusals = {}
    file = ForgivingFile(str(path), "shown", refusals)
    expected = bytearray(data)
    for page in (1, 3):
        expected[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    assert file.read_at(100, 1 << 20) == expected[100:]
    buffer = bytearray(len(data))
    assert file.read_into(0, memoryview(buffer)) == len(data)
    assert buffer == expected
    assert file.read_at(0, PAGE) == data[:PAGE]
    error, offset = refusals["shown"]
    assert (error.errno, offset) == (errno.EIO, PAGE)
    file.close()


@needs_proc
def test_a_failing_page_of_the_log_costs_the_records_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmqctl: Rmqctl
) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    _Disk(monkeypatch, root / FILES[0], {10})
    document = json.loads(rmqctl("verify", root, "-o", "json", "--processes", "1").stdout)
    ids = {f["id"] for f in document["findings"] if f["severity"] != "note"}
    assert {"file.unreadable"} < ids <= {"file.unreadable", "log.bad-record", "log.body-crc", "log.queue-offset"}
    truth = [t for t in golden.truth("5.3.3-clean") if t["kind"] == "msg"]
    begin = 131072 + 10 * PAGE
    hit = [t for t in truth if t["commitLogOffset"] < begin + PAGE and t["commitLogOffset"] + t["storeSize"] > begin]
    assert len(truth) - len(hit) <= document["summary"]["records"] <= len(truth)


def test_a_forgiving_file_can_be_sent_to_another_process(tmp_path: Path) -> None:
    tree = ForgivingTree(LocalTree(tmp_path), "shown")
    tree.open("gone").read_at(0, 10)
    file = pickle.loads(pickle.dumps(tree.open("gone")))
    assert file.read_at(0, 10) == b""
    assert set(file.refusals) == {"shown/gone"}


def test_a_tree_lists_what_it_can(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    tree = ForgivingTree(LocalTree(tmp_path))
    assert [e.name for e in tree.entries("")] == ["file", "loop"]
    assert tree.entries("loop") == []
    assert tree.stat("loop") is None
    assert tree.child("loop").entries("") == []
    assert set(tree.refusals) == {"loop"}


@pytest.mark.parametrize("by", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_lock_that_cannot_be_opened_is_not_held(by: Callable[[Path], object], tmp_path: Path) -> None:
    by(tmp_path / "lock")
    assert not is_locked(str(tmp_path / "lock"))
