"""Directories that a command makes: whose they are, and what is left when it is stopped."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from commands import cli
from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.files.new_files import MARK
from tests.repair.stores import state_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
COMMANDS = {
    "salvage": ("salvage", "{store}", "{into}"),
    "rebuild": ("rebuild", "{store}", "--into", "{into}", "--checkpoint", "--index", "--queues"),
}
each = pytest.mark.parametrize("name", COMMANDS)


def words(name: str, store: Path, into: Path, *more: str) -> list[str]:
    return [word.format(store=store, into=into) for word in COMMANDS[name]] + list(more)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return golden.unpack("4.9.8-clean", tmp_path)


def owners(root: Path) -> set[tuple[int, int, int, bool]]:
    found = [p.lstat() for p in (root, *root.rglob("*"))]
    return {(s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode), stat.S_ISDIR(s.st_mode)) for s in found}


@as_root
@each
def test_what_is_made_belongs_to_whom_the_store_belongs(store: Path, tmp_path: Path, name: str) -> None:
    os.chown(store, 4321, 4322)
    store.chmod(0o750)
    into = tmp_path / "deep" / "into"
    assert run(*words(name, store, into)).exception is None
    assert owners(into) == {(4321, 4322, 0o750, True), (4321, 4322, 0o640, False)}
    assert not (into / MARK).exists()


@as_root
@each
@pytest.mark.parametrize(("owner", "found"), [("5001:5002", (5001, 5002)), (":5003", (4321, 5003))])
def test_an_owner_can_be_named(store: Path, tmp_path: Path, name: str, owner: str, found: tuple[int, int]) -> None:
    os.chown(store, 4321, 4322)
    assert run(*words(name, store, tmp_path / "into", "--owner", owner)).exception is None
    assert {(uid, gid) for uid, gid, _, _ in owners(tmp_path / "into")} == {found}


@each
def test_an_owner_that_nobody_is_stops_it_before_anything_is_written(store: Path, tmp_path: Path, name: str) -> None:
    result = run(*words(name, store, tmp_path / "into", "--owner", "nobody-here"))
    assert isinstance(result.exception, Refused) and not (tmp_path / "into").exists()


@each
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_what_fails_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, *, is_there: bool
) -> None:
    into = tmp_path / "into"
    if is_there:
        into.mkdir()

    def fail(*_: object, **__: object) -> object:
        assert (into / MARK).exists()
        raise error

    late = {
        "salvage": "rmqctl.rocketmq.salvage.salvage.copy_config",
        "rebuild": "rmqctl.rocketmq.rebuild.rebuild.Rebuild.complete",
    }
    monkeypatch.setattr(late[name], fail)
    result = CliRunner().invoke(cli, words(name, store, into))
    assert result.exit_code in (10, 130)
    assert into.exists() == is_there and (not is_there or not list(into.iterdir()))


SLOW = """
import sys, time
from pathlib import Path
import rmqctl.rocketmq.salvage.salvage as salvage, rmqctl.rocketmq.rebuild.rebuild as rebuild
def wait(*_, **__):
    print("there", flush=True)
    time.sleep(60)
salvage.copy_config = wait
rebuild.Rebuild.complete = wait
from commands import main
sys.argv = ["rmqctl", *sys.argv[1:]]
main()
"""


@each
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_command_that_is_stopped(store: Path, tmp_path: Path, name: str, number: int, code: int) -> None:
    into, before = tmp_path / "into", state_of(store)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words(name, store, into)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "there" in process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(20) == code
        said = process.stderr.read()
    assert state_of(store) == before
    if number != signal.SIGKILL:
        assert not into.exists()
        assert said.splitlines()[-1] == f"rmqctl: {'ended by SIGTERM' if number == signal.SIGTERM else 'interrupted'}"
        return
    assert (into / MARK).exists()
    assert "is unfinished" in CliRunner().invoke(cli, ["info", str(into)]).stderr
    for arguments in (words(name, store, into), ["repair", str(into)], ["produce", str(into), "--topic", "T"]):
        result = run(*arguments)
        assert isinstance(result.exception, Refused) and "left unfinished" in str(result.exception)
