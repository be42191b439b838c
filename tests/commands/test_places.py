"""Which paths commands take: parts of stores, URLs, and places where something is to be made."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from commands import cli
from fixtures import golden
from rmqctl.errors import RmqctlError
from tests.repair.stores import state_of

STORE = "4.9.8-clean"
PARTS = ["consumequeue", "commitlog/00000000000000000000", "config", "checkpoint", "index"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return golden.unpack(STORE, tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)


WRITERS = [
    ("repair", []),
    ("repair", ["--apply"]),
    ("recover", ["--apply"]),
    ("rebuild", []),
    ("rebuild", ["--apply"]),
    ("rebuild", ["--into", "out"]),
]


@pytest.mark.parametrize("part", ["consumequeue", "commitlog/00000000000000000000", "config", "index"])
@pytest.mark.parametrize(("name", "options"), WRITERS)
def test_what_writes_takes_roots_only(root: Path, name: str, options: list[str], part: str) -> None:
    before = state_of(root.parent)
    result = run(name, root / part, *options)
    assert isinstance(result.exception, RmqctlError) and result.exception.exit_code == 13
    assert f"lies in the store {root}" in str(result.exception) and f"give its root: {root}" in str(result.exception)
    assert state_of(root.parent) == before


@pytest.mark.parametrize("part", ["consumequeue", "commitlog/deep/new", "consumequeue/T/0"])
@pytest.mark.parametrize("kind", ["produce", "salvage", "rebuild"])
def test_no_store_is_made_in_another(root: Path, kind: str, part: str) -> None:
    other = golden.unpack(STORE, root.parent / "other")
    before, place = state_of(root.parent), root / part
    arguments = {
        "produce": ("produce", place, "--topic", "T", "--count", 1, "--small"),
        "salvage": ("salvage", other, place),
        "rebuild": ("rebuild", other, "--into", place),
    }[kind]
    result = run(*arguments)
    assert isinstance(result.exception, RmqctlError) and f"give its root: {root}" in str(result.exception)
    assert state_of(root.parent) == before


def test_names_that_only_look_like_parts_of_a_store_are_taken(tmp_path: Path) -> None:
    for name in ("a/index/new", "b/config/store", "c/commitlog/store"):
        result = run("produce", tmp_path / name, "--topic", "T", "--count", 1, "--small")
        assert result.exception is None
        assert (tmp_path / name / "commitlog").is_dir()


LOOKING = [
    ("info", []),
    ("verify", []),
    ("topics", []),
    ("lag", []),
    ("recover", []),
    ("query-key", ["TopicTest", "x"]),
    ("query-time", ["TopicTest", "0"]),
]


@pytest.mark.parametrize("part", ["consumequeue", "commitlog/00000000000000000000"])
@pytest.mark.parametrize(("name", "options"), LOOKING)
def test_what_looks_at_the_whole_store_says_so(root: Path, name: str, options: list[str], part: str) -> None:
    result = run(name, root / part, *options)
    line = f"rmqctl: {part} is a part of the store {root}: this looks at the whole store"
    assert result.stderr.splitlines().count(line) == 1
    assert "looks at the whole" not in run(name, root, *options).stderr


def test_what_keeps_to_a_part_says_nothing(root: Path) -> None:
    for name in ("checkpoint", "consumequeue"):
        assert "whole store" not in run("dump", root / name).stderr
    assert "whole store" not in run("diff", root / "consumequeue", root / "consumequeue").stderr


URLS = ["s3://bucket/x", "memory://a", "hdfs://host/a", "simplecache::s3://b/c", "gs://b", "http://h/x"]


@pytest.mark.parametrize("url", URLS)
def test_urls_are_no_names_of_local_directories(root: Path, url: str) -> None:
    before = state_of(root.parent)
    for arguments in (
        ("salvage", root, url),
        ("rebuild", root, "--into", url),
        ("produce", url, "--topic", "T", "--count", 1),
        ("repair", root, "--apply", "--journal", url),
        ("recover", root, "--apply", "--journal", url),
        ("rebuild", root, "--apply", "--journal", url),
        ("repair", root, "--apply", "--outside", url),
        ("undo", url),
    ):
        result = CliRunner().invoke(cli, [str(a) for a in arguments])
        assert result.exit_code == 2 and "local directories only" in result.stderr, (arguments, result.output)
        assert state_of(root.parent) == before
    assert sorted(os.listdir(root.parent)) == [root.name]


@pytest.mark.parametrize("url", ["memory://nowhere/store", "s3://bucket/store"])
@pytest.mark.parametrize("name", ["repair", "recover", "rebuild"])
def test_stores_elsewhere_are_not_written_to(root: Path, name: str, url: str) -> None:
    result = run(name, url, "--apply")
    assert isinstance(result.exception, (RmqctlError, OSError))
    assert sorted(os.listdir(root.parent)) == [root.name]


def test_a_remote_store_is_planned_for_and_not_changed(root: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/mine", recursive=True)
    try:
        for name in ("repair", "recover", "rebuild"):
            result = run(name, "memory://mine", "--apply")
            assert isinstance(result.exception, RmqctlError), (name, result.output)
            assert re.search("not on this machine|not a local directory", str(result.exception)), result.exception
            assert result.exception.exit_code == 13
        assert sorted(os.listdir(root.parent)) == [root.name]
    finally:
        memory.rm("/mine", recursive=True)


def test_a_file_url_is_a_local_path(root: Path) -> None:
    before = state_of(root)
    assert run("salvage", f"file://{root}", f"file://{root.parent}/saved").exception is None
    assert run("rebuild", root, "--into", f"file://{root.parent}/built").exception is None
    assert run("produce", f"file://{root.parent}/made", "--topic", "T", "--count", 1, "--small").exception is None
    assert {p.name for p in root.parent.iterdir()} == {root.name, "saved", "built", "made"}
    assert state_of(root) == before
