"""`rmqctl watch` as it is typed: notices and lines, what is refused, signals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from commands.watch import Rate, Subset, _reloading, command
from rmqctl.files.pace import Pace
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from tests.conftest import Rmqctl
from tests.watch.test_watch import flip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    engine = StoreEngine.open(tmp_path / "store", StoreConfig.small(commit_log_file_size=1 << 15))
    for n in range(300):
        engine.put(Message("T", b"%d " % n * 20, n % 4))
    engine.close()
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.files.pace.step_aside", lambda: None)  # for the tests after this one


def test_once(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    state = tmp_path / "state.json"
    words = ("watch", store, "--once", "--no-figures", "--rate", "0", "--state", state)
    done = rmqctl(*words)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("nothing wrong\n") and len(done.stdout.splitlines()) == 1
    flip(store, random.Random(1))
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    done = rmqctl(*words)
    assert done.exit_code == 1
    assert "log.body-crc" in done.stdout and done.stdout.endswith("1 error\n")
    done = rmqctl(*words, "-o", "jsonl")
    assert done.exit_code == 1, "it is not gone"
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["cycle"]
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before


def test_what_is_refused(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    for words, code, said in (
        ((store, "--state", store / "state.json"), 13, "only read"),
        ((store, "--textfile", store / "config" / "x.prom"), 13, "only read"),
        ((tmp_path / "nowhere",), 11, "nothing is there"),
        ((store / "commitlog",), 2, "give its root"),
        ((store, "--subset", "3/2"), 2, "1/10 to 10/10"),
        ((store, "--rate", "fast"), 2, "not a size"),
        ((store, "--metrics", "9105"), 2, "HOST:PORT"),
    ):
        done = rmqctl("watch", *words, "--once")
        assert (done.exit_code, said in done.stderr) == (code, True), (words, done.stderr)
    assert not (store / "state.json").exists()


def test_rates_and_subsets_are_read_as_people_write_them() -> None:
    for text, rate in (("50MiB/s", 50 << 20), ("1G", 1 << 30), ("64K / s", 64 << 10), (7, 7)):
        assert Rate().convert(text, None, None) == rate
    assert Subset().convert("3/10", None, None) == (3, 10)


def test_a_hangup_reads_the_rate_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rmqctl" / "config.toml"
    file.parent.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    pace = Pace(1)
    with click.Context(command), _reloading(pace):
        for text, rate in (('[watch]\nrate = "2MiB/s"', 2 << 20), ("", 50 << 20), ('[watch]\nrate = "fast"', 50 << 20)):
            file.write_text(text)
            os.kill(os.getpid(), signal.SIGHUP)
            assert pace.rate == rate
    assert "the settings stay as they are" in capsys.readouterr().err


@pytest.mark.slow  # at the lowest priority it may take long
@pytest.mark.parametrize("damaged", [False, True])
def test_sigterm_ends_it_with_what_was_found(store: Path, tmp_path: Path, damaged: bool) -> None:
    if damaged:
        flip(store, random.Random(1))
    state = tmp_path / "state.json"
    words = ["watch", str(store), "--state", str(state), "-o", "jsonl", "--no-figures"]
    code = "from commands import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "cycle":
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == int(damaged)
    assert json.loads(state.read_bytes())["stores"][str(store)]["cycle"] == 2


def test_sigterm_ends_it_in_the_middle_of_a_part(store: Path, tmp_path: Path) -> None:
    words = ["watch", str(store), "--rate", "1", "-o", "jsonl", "--metrics", "127.0.0.1:0"]
    code = "from commands import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "metrics on port" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
