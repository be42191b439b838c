"""A RocksDB database that cannot be opened is a finding, and where its units are needed a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from rmqctl.rocketmq.findings.derived import QUEUE_DATABASE
from rmqctl.rocketmq.query.info import store_info
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

pytest.importorskip("rocksdict")


@pytest.fixture(params=["CURRENT", "MANIFEST-000005"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    store = golden.unpack("5.5.0-rocksdb-clean", tmp_path)
    (store / "consumequeue" / request.param).write_bytes(b"MANIFEST-999999\n")
    return store


def test_verify_finds_it_and_nothing_that_follows(damaged: Path) -> None:
    found = [f for f in Verification(open_store_at(str(damaged)), VerifyOptions()).findings() if str(f.level) != "note"]
    assert [(f.kind, f.file) for f in found] == [(QUEUE_DATABASE, "consumequeue")]
    assert "rmqctl-rocksdb" not in found[0].message


def test_info_leaves_the_numbers_out(damaged: Path) -> None:
    info = store_info(open_store_at(str(damaged)))
    assert (info["queue_store"], info["topics"], info["queues"]) == ("rocksdb", None, None)


def test_a_broker_does_not_start(damaged: Path) -> None:
    result = recover(open_store_at(str(damaged)))
    assert not result.starts
    assert "consumequeue cannot be opened" in (result.error or "")


def test_repair_leaves_it_and_says_what_helps(damaged: Path) -> None:
    result = CliRunner().invoke(cli, ["repair", str(damaged), "-o", "json"])
    assert result.exit_code == 1
    assert "queue.database" in result.stdout


@pytest.mark.parametrize("command", [("topics",), ("query-offset", "RocksA/0", "0")])
def test_reading_the_queues_says_what_to_type(damaged: Path, command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [command[0], str(damaged), *command[1:]])
    assert result.exit_code == 10
    assert "rmqctl rebuild" in result.stderr


def test_rebuild_makes_queue_files_from_the_log(damaged: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    result = CliRunner().invoke(cli, ["rebuild", str(damaged), "--into", str(into), "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    built = {f.parent.relative_to(into).as_posix(): f.stat().st_size for f in into.glob("consumequeue/*/*/*")}
    assert len(built) == 16


def test_the_log_still_answers(damaged: Path) -> None:
    result = CliRunner().invoke(cli, ["query-key", str(damaged), "RocksB", "key595", "-o", "json"])
    assert result.exit_code == 0
