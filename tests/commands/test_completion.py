"""`rmqctl completion`: what a shell is offered, asked as shells ask."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import COMMANDS, COMPLETE, cli
from fixtures import golden
from rmqctl.findings import all_kinds
from rmqctl.rocketmq.state.releases import KNOWN
from tests.conftest import Rmqctl


def offered(*words: str) -> list[str]:
    """What bash is given for a line whose last word is not whole; a file where it is to complete files itself."""
    environment = {"COMP_WORDS": " ".join(["rmqctl", *words]), "COMP_CWORD": str(len(words)), COMPLETE: "bash_complete"}
    done = CliRunner(env=environment).invoke(cli, [], prog_name="rmqctl")
    assert not done.stderr, done.stderr
    found = [line.split(",", 1) for line in done.stdout.splitlines() if line]
    return ["<file>" if kind == "file" else value for kind, value in found]


@pytest.fixture
def rocketmq(tmp_path: Path) -> Path:
    return golden.unpack("5.3.3-clean", tmp_path)


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    return golden.unpack("3.9.2-clean", tmp_path)


def column(rmqctl: Rmqctl, key: str, *words: str) -> set[str]:
    return {json.loads(line)[key] for line in rmqctl(*words, "-o", "jsonl").stdout.splitlines()}


def test_names_of_commands() -> None:
    assert offered("query-") == [name for name in COMMANDS if name.startswith("query-")]
    assert offered("./no-such") == ["<file>"]
    assert offered("") == list(COMMANDS)


@pytest.mark.parametrize(
    "words", [("topics", "{}", "--topic", ""), ("query-time", "{}", ""), ("dump", "{}", "--topic", "")]
)
def test_topics_of_the_store(words: tuple[str, ...], rocketmq: Path, kafka: Path, rmqctl: Rmqctl) -> None:
    for store in (rocketmq, kafka):
        there = column(rmqctl, "topic", "topics", str(store))
        assert there <= set(offered(*(word.format(store) for word in words)))


def test_only_what_begins_as_typed(kafka: Path) -> None:
    assert offered("topics", str(kafka), "--topic", "txn") == ["txn-a", "txn-b"]


def test_groups_of_the_store(rocketmq: Path, kafka: Path, rmqctl: Rmqctl) -> None:
    for store in (rocketmq, kafka):
        there = column(rmqctl, "group", "lag", str(store))
        assert there <= set(offered("lag", str(store), "--group", ""))


def test_releases_of_the_stores_family(rocketmq: Path, kafka: Path) -> None:
    wanted = [f"4.9.{patch}" for patch in range(KNOWN[4, 9] + 1)]
    assert offered("recover", str(rocketmq), "--as-release", "4.9") == wanted
    assert offered("recover", str(kafka), "--as-release", "4.9") == []
    assert offered("recover", str(kafka), "--as-release", "4.3") == ["4.3.0", "4.3.1"]


def test_ids_of_findings() -> None:
    ids = [kind.id for kind in all_kinds() if kind.id.startswith("log.b")]
    assert offered("explain", "log.b") == ids
    assert offered("repair", "store", "--only", "log.b") == ids


def test_files_where_a_store_belongs(tmp_path: Path) -> None:
    assert offered("topics", "") == offered("diff", "a", "") == offered("stats", str(tmp_path), "") == ["<file>"]


def test_what_is_no_store_offers_nothing(tmp_path: Path, rocketmq: Path) -> None:
    (tmp_path / "junk").write_bytes(os.urandom(300))
    shutil.rmtree(rocketmq / "config")
    (rocketmq / "config").mkdir()
    (rocketmq / "config" / "topics.json").write_bytes(b"\x00" * 99)
    assert offered("topics", str(tmp_path / "junk"), "--topic", "") == []
    assert offered("topics", str(tmp_path / "nowhere"), "--topic", "") == []
    assert offered("lag", str(rocketmq), "--group", "") == []


def test_names_that_mean_more_to_a_shell_are_left_out(rocketmq: Path) -> None:
    (rocketmq / "consumequeue" / "Lab$(reboot)").mkdir()
    (rocketmq / "consumequeue" / "Lab订单").mkdir()
    there = offered("topics", str(rocketmq), "--topic", "Lab")
    assert "Lab订单" in there
    assert not any("$" in name for name in there)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell: str, rmqctl: Rmqctl) -> None:
    script = rmqctl("completion", shell).stdout
    assert f"{COMPLETE}={shell}_complete" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_it(rocketmq: Path) -> None:
    line = f"rmqctl topics {rocketmq} --topic LabO"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked = f"""
        eval "$(rmqctl completion bash)"
        COMP_WORDS=({line}); COMP_CWORD=4
        _rmqctl_completion rmqctl
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert done.stdout.split() == ["LabOne", "LabOrders"], done.stderr
