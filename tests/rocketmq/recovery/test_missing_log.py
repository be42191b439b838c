"""A store whose log is not there, as where a disk was not mounted: said first, by every command, and nothing is given up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from commands import cli
from fixtures import golden
from rmqctl.errors import Refused, TooDamaged
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message

NAMES = ("4.9.8-clean", "5.5.0-crash", "5.5.0-rocksdb-clean")


def gone(log: Path) -> None:
    shutil.rmtree(log)


def empty(log: Path) -> None:
    shutil.rmtree(log)
    log.mkdir()


def file(log: Path) -> None:
    shutil.rmtree(log)
    log.write_bytes(b"")


def dangling(log: Path) -> None:
    shutil.rmtree(log)
    log.symlink_to("/mnt/not/mounted")


WAYS = {gone: "no directory commitlog", empty: "is empty", file: "is a file", dangling: "a link to /mnt/not/mounted"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_recover_says_it_first(name: str, way: Callable[[Path], None], tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    way(root / "commitlog")
    told = run("recover", root)
    assert _exit(told) == 1
    first = " ".join(told.stdout.split())
    assert WAYS[way] in first[:120]
    assert "a broker would start empty" in first
    found = json.loads(run("recover", root, "-o", "json").stdout)
    assert found["stopped_by"]["id"] == "log.missing"
    queued = {(t["topic"], t["queueId"], t["queueOffset"]) for t in golden.truth(name) if t["kind"] == "msg"}
    assert 0 < found["lost"]["messages"] <= len(queued)
    if "rocksdb" not in name and "crash" not in name:
        assert found["lost"]["by_topic"]["LabLog"] == len([q for q in queued if q[0] == "LabLog"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_verify_and_repair_say_it_and_change_nothing(name: str, way: Callable[[Path], None], tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    way(root / "commitlog")
    told = run("verify", root, "-o", "json")
    findings = json.loads(told.stdout)["findings"]
    assert _exit(told) == 1
    assert [f["id"] for f in findings if f["severity"] == "error"] == ["log.missing"]
    assert WAYS[way] in findings[0]["message"]
    mended = run("repair", root, "-o", "json")
    assert _exit(mended) == 1
    assert json.loads(mended.stdout)["steps"] == []
    assert WAYS[way] in mended.stderr.splitlines()[0]
    applied = run("recover", root, "--apply")
    assert isinstance(applied.exception, Refused)
    with pytest.raises((TooDamaged, Refused)):
        StoreEngine.open(root)


@pytest.mark.parametrize("way", WAYS)
def test_answers_from_the_rest_begin_with_it(way: Callable[[Path], None], tmp_path: Path) -> None:
    """Else they look as if there never was a message."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    way(root / "commitlog")
    for words in (
        ["info", root],
        ["topics", root, "-o", "jsonl"],
        ["lag", root],
        ["query-key", root, "LabOrders", "k1"],
        ["query-id", root, "7F00000100002A9F0000000000000000"],
        ["query-offset", root, "LabOrders/0", "0"],
        ["query-time", root, "LabOrders/0", "2026-11-21"],
        ["dump", root],
        ["stats", root],
        ["sql", root, "select 1"],
        ["diff", root, root],
    ):
        told = run(*words)
        assert _exit(told) == 1, words
        first, *more = dict.fromkeys(told.stderr.splitlines())
        assert WAYS[way] in first
        assert not any(WAYS[way] in line for line in more)
    refused = run("rebuild", root, "--apply")
    assert isinstance(refused.exception, Refused)
    assert WAYS[way] in str(refused.exception)
    found = json.loads(run("verify", root, "-o", "json").stdout)["findings"]
    assert not any(f["id"] in ("config.consumer-offset", "config.delay-offset") for f in found)


@pytest.mark.parametrize("way", [file, dangling])
def test_a_directory_with_nothing_else_is_wrong_too(way: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    way(tmp_path / "commitlog")
    for command in ("verify", "repair", "recover"):
        assert _exit(run(command, tmp_path)) == 1


def test_a_store_that_never_had_a_message_is_fine(tmp_path: Path) -> None:
    StoreEngine.open(tmp_path, StoreConfig.small(services=False)).close()
    assert {_exit(run(command, tmp_path)) for command in ("verify", "repair", "recover")} == {0}
    with StoreEngine.open(tmp_path) as engine:
        engine.put(Message("T", b"x"))


def _exit(result: Result) -> int:
    if isinstance(result.exception, SystemExit):
        return int(result.exception.code or 0)
    assert result.exception is None, result.exception
    return result.exit_code
