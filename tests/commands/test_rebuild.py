"""`rmqctl rebuild` from the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

Rmqctl = Callable[..., Any]


def test_a_sound_store_is_equal(rmqctl: Rmqctl) -> None:
    result = rmqctl("rebuild", golden.pristine("4.9.8-clean"))
    assert result.exit_code == 0
    assert "936 records dispatched as 4.9.8 does, 22 queues, 2 index files: 36 files equal" in result.stdout


def test_differences_are_listed_and_nothing_is_written(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "LabOne")
    before = sorted(root.rglob("*"))
    result = rmqctl("rebuild", root, "--queues", "-o", "jsonl")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [r["change"] for r in rows[:-1]] == ["create"]
    assert rows[-1]["kind"] == "summary"
    assert "--apply" in result.stderr
    assert sorted(root.rglob("*")) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4.9.8-clean"]


def test_apply_puts_the_files_in_place(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "LabOne")
    result = rmqctl("rebuild", root, "--topic", "LabOne", "--apply")
    assert result.exit_code == 0, result.stderr
    assert "rmqctl undo" in result.stderr
    assert rmqctl("rebuild", root).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["4.9.8-clean", "4.9.8-clean.rmqctl-journal"]


def test_into_a_directory(rmqctl: Rmqctl, tmp_path: Path) -> None:
    target = tmp_path / "new" / "place"
    result = rmqctl("rebuild", golden.pristine("5.3.3-clean"), "--into", target, "--checkpoint", "--index")
    assert result.exit_code == 0
    assert sorted(p.name for p in target.iterdir()) == ["checkpoint", "index"]
    again = rmqctl("rebuild", golden.pristine("5.3.3-clean"), "--into", target)
    assert again.exit_code == 13
    assert "not empty" in again.stderr


def test_one_document(rmqctl: Rmqctl) -> None:
    document = json.loads(rmqctl("rebuild", golden.pristine("5.5.0-crash"), "-o", "json").stdout)
    assert document["summary"]["files"] == {"equal": 41, "keep": 0, "create": 0, "replace": 2, "remove": 0}
    assert [c["differing_units"] for c in document["changes"]] == [1, None]


def test_what_nothing_shows_is_said(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    for kind in ("consumequeue", "index"):
        shutil.rmtree(root / kind)
    result = rmqctl("rebuild", root)
    assert "6,000,000 bytes" in result.stderr
    assert "5,000,000 slots and 20,000,000 entries" in result.stderr
    assert "delay levels" in result.stderr
    assert "--broker-conf" in result.stderr


def test_after_a_crash_the_next_start_is_thought_of(rmqctl: Rmqctl) -> None:
    assert "--checkpoint" in rmqctl("rebuild", golden.pristine("5.3.3-crash")).stderr
    assert "--checkpoint" not in rmqctl("rebuild", golden.pristine("5.3.3-crash"), "--queues").stderr


@pytest.mark.parametrize(
    "more", [("--into", "x", "--apply"), ("--topic", "T", "--index"), ("--topic", "T", "--checkpoint")]
)
def test_usage(rmqctl: Rmqctl, more: tuple[str, ...]) -> None:
    assert rmqctl("rebuild", golden.pristine("4.9.8-clean"), *more).exit_code == 2


def test_refused(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    inside = rmqctl("rebuild", root, "--into", root / "sub")
    assert inside.exit_code == 13
    assert not (root / "sub").exists()
    shutil.rmtree(root / "commitlog")
    without_log = rmqctl("rebuild", root)
    assert without_log.exit_code == 13
    assert "there is no directory commitlog; a broker would start empty" in without_log.stderr


def test_a_running_broker_is_left_alone(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    monkeypatch.setattr("rmqctl.files.moment.is_locked", lambda path: True)
    assert rmqctl("rebuild", root, "--apply").exit_code == 12
    assert rmqctl("rebuild", root).exit_code == 0


def test_too_little_room(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        f_bavail, f_frsize = 3, 512

    monkeypatch.setattr("rmqctl.rocketmq.rebuild.rebuild.os.statvfs", lambda path: Full)
    target = tmp_path / "into"
    result = rmqctl("rebuild", golden.pristine("4.9.8-clean"), "--into", target)
    assert result.exit_code == 13
    assert "1,536 are free" in result.stderr
    assert not target.exists()
    assert rmqctl("rebuild", golden.pristine("4.9.8-clean"), "--into", target, "--force").exit_code == 0


def test_rocksdb_queues_become_files_elsewhere(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-rocksdb-clean", tmp_path)
    result = rmqctl("rebuild", root, "--queues", "--topic", "RocksA", "--apply")
    assert result.exit_code == 13
    assert "--topic" in result.stderr
    assert rmqctl("rebuild", root, "--queues", "--apply", "--yes").exit_code == 0
    assert rmqctl("rebuild", root, "--into", tmp_path / "files").exit_code == 0
    assert (tmp_path / "files" / "consumequeue" / "RocksA").is_dir()
    assert not (tmp_path / "files" / "consumequeue" / "CURRENT").exists()


def test_without_a_record_in_the_log_nothing_goes(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    for file in (root / "commitlog").iterdir():
        size = file.stat().st_size
        file.write_bytes(bytes(size))
    queues = sorted((root / "consumequeue").rglob("*"))
    result = rmqctl("rebuild", root, "--apply")
    assert result.exit_code == 15
    assert "no record" in result.stderr
    assert sorted((root / "consumequeue").rglob("*")) == queues


def test_a_topic_that_is_not_there(rmqctl: Rmqctl) -> None:
    result = rmqctl("rebuild", golden.pristine("4.9.8-clean"), "--topic", "LabOrder")
    assert result.exit_code == 1
    assert "no message and no queue of topic LabOrder is there; did you mean LabOrders" in result.stderr


def test_index_files_with_foreign_names_are_left_alone(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    first, *_, last = sorted((root / "index").iterdir())
    first.rename(root / "index" / "00000000000000000007")
    last.unlink()
    result = rmqctl("rebuild", root, "--index", "-o", "jsonl")
    rows = [json.loads(line) for line in result.stdout.splitlines()][:-1]
    assert result.exit_code == 1, result.stderr
    assert [r["change"] for r in rows] == ["create", "create"]
    assert all(len(r["file"]) == len("index/") + 17 for r in rows)


def test_a_directory_in_place_of_the_checkpoint(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()
    assert rmqctl("rebuild", root, "--checkpoint").exit_code == 1
    assert rmqctl("repair", root).exit_code == 1
