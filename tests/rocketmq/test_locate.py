"""Paths as users type them: a root, a part, a file; and what is said of paths that are no store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_path, root_of
from rmqctl.store import LoneFile

Rmqctl = Callable[..., Result]
COMMANDS = ("info", "topics", "verify", "dump")


@pytest.mark.parametrize(
    "part",
    [
        "",
        "/",
        "commitlog",
        "commitlog/00000000000000131072",
        "consumequeue/LabOrders",
        "config/topics.json",
        "checkpoint",
    ],
)
def test_a_store_is_found_from_any_part_of_it(part: str) -> None:
    root = golden.pristine("5.3.3-clean")
    found = open_path(os.path.join(root, part) if part != "/" else f"{root}/")
    assert isinstance(found, StoreFiles)
    assert Path(found.root) == root
    assert found.selection == part.strip("/")


def test_a_root_whose_parents_are_named_like_a_part(tmp_path: Path) -> None:
    root = golden.unpack("4.5.2-clean", tmp_path / "index" / "config")
    found = open_path(str(root))
    assert isinstance(found, StoreFiles)
    assert (Path(found.root), found.selection) == (root, "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/commitlog/0", ("/a", "commitlog/0")),
        ("/a/consumequeue/commitlog/0", ("/a/consumequeue", "commitlog/0")),
        ("/a/b", None),
    ],
)
def test_the_root_above_a_path(path: str, expected: tuple[str, str] | None) -> None:
    found = root_of(PurePosixPath(path))
    assert (found and (str(found[0]), found[1])) == expected


def test_a_file_in_the_root_named_from_there(monkeypatch: pytest.MonkeyPatch, rmqctl: Rmqctl) -> None:
    monkeypatch.chdir(golden.pristine("5.3.3-crash"))
    found = open_path("abort")
    assert isinstance(found, StoreFiles)
    assert found.selection == "abort"
    assert rmqctl("info", "checkpoint").exit_code == 0


@pytest.mark.parametrize("name", ["file", "checkpoint", "abort", "lock"])
def test_a_file_outside_a_store(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    found = open_path(str(tmp_path / name))
    assert isinstance(found, LoneFile)
    assert found.name == name


def test_a_log_outside_the_root(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    whole = json.loads(rmqctl("info", root, "-o", "json").stdout)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    apart = json.loads(rmqctl("info", root, "--commitlog", tmp_path / "elsewhere", "-o", "json").stdout)
    names = ("files", "min_offset", "max_offset", "first_store_timestamp", "last_store_timestamp")
    assert [apart["commit_log"][n] for n in names] == [whole["commit_log"][n] for n in names]


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _unknown(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").touch()


BAD: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "empty folder": (Path.mkdir, 11, "directory is empty"),
    "other folder": (_unknown, 11, "notes.txt"),
    "nothing there": (lambda path: None, 11, "check the spelling"),
    "link to nowhere": (lambda path: path.symlink_to("nowhere"), 11, "check the spelling"),
    "link in a circle": (_loop, 10, "leads back to itself"),
    "file of 0 bytes": (Path.touch, 11, "not a message store"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("make", "code", "words"), BAD.values(), ids=BAD)
def test_bad_paths(
    command: str, make: Callable[[Path], object], code: int, words: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    path = tmp_path / "store"
    make(path)
    result = rmqctl(command, path)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_without_permission(
    command: str, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def refuse(path: str) -> object:
        if os.fspath(path).startswith(str(tmp_path)):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = rmqctl(command, tmp_path)
    assert result.exit_code == 10
    assert "let this user read them" in result.stderr


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--format", "kafka"), 11, "Kafka"),
        (("--commitlog", "nowhere"), 11, "nowhere"),
        (("--broker-conf", "nowhere"), 10, "nowhere"),
    ],
)
def test_bad_options(options: tuple[str, str], code: int, words: str, rmqctl: Rmqctl) -> None:
    result = rmqctl("info", golden.pristine("4.5.2-clean"), *options)
    assert result.exit_code == code
    assert words in result.stderr


def test_a_log_directory_that_is_a_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "file").touch()
    result = rmqctl("info", golden.pristine("4.5.2-clean"), "--commitlog", tmp_path / "file")
    assert result.exit_code == 10
    assert "give a directory" in result.stderr


@pytest.mark.parametrize("way", ["--commitlog", "--broker-conf"])
def test_log_directories_inside_the_store_are_named_relative_to_it(way: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden.unpack("5.5.0-multipath-clean", tmp_path)
    logs = ",".join(str(root / f"commitlog-{name}") for name in "abc")
    (tmp_path / "conf").write_text(f"storePathCommitLog={logs}\n")
    plain = rmqctl("dump", root, "-o", "jsonl").stdout
    assert rmqctl("dump", root, "-o", "jsonl", way, logs if way == "--commitlog" else tmp_path / "conf").stdout == plain
