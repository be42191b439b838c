"""What is no store, no directory or no setting is answered by a sentence that says what to do."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden


@pytest.mark.parametrize("command", ["info", "dump", "verify", "recover"])
@pytest.mark.parametrize("kind", ["tar.gz", "tar", "tar.xz", "zip"])
def test_archives_are_to_be_unpacked(command: str, kind: str, tmp_path: Path, rmqctl: Any) -> None:
    path, root = tmp_path / f"store.{kind}", golden.pristine("5.3.3-clean") / "config"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            packed.write(root / "topics.json", "topics.json")
    else:
        with tarfile.open(path, f"w:{kind.removeprefix('tar').lstrip('.')}") as packed:
            packed.add(root, "config")
    result = rmqctl(command, str(path))
    assert result.exit_code == 11
    assert "it is packed" in result.stderr
    assert f"{'unzip -d DIR' if kind == 'zip' else 'mkdir DIR && tar -C DIR -xf'} {path}" in result.stderr


def test_a_file_is_no_directory_to_write_to(tmp_path: Path, rmqctl: Any) -> None:
    (tmp_path / "notes.txt").touch()
    result = rmqctl("salvage", str(golden.pristine("5.3.3-clean")), str(tmp_path / "notes.txt"))
    assert result.exit_code == 13
    assert "notes.txt is a file" in result.stderr


@pytest.mark.parametrize("name", ["5.3.3-clean", "4.3.1-clean"])
def test_one_replica_is_no_election(name: str, tmp_path: Path, rmqctl: Any) -> None:
    root = golden.pristine(name)
    (tmp_path / "link").symlink_to(root)
    result = rmqctl("elect", str(root), str(tmp_path / "link"))
    assert result.exit_code == 2
    assert "is given twice" in result.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_a_file_without_settings_is_no_broker_conf(command: str, tmp_path: Path, rmqctl: Any) -> None:
    (tmp_path / "broker.conf").write_text("this is\nno such file\n")
    result = rmqctl(command, str(golden.pristine("5.3.3-clean")), "--broker-conf", str(tmp_path / "broker.conf"))
    assert result.exit_code == 2
    assert "has no setting" in result.stderr


def test_an_id_that_was_looked_for_in_the_log_is_not_to_be_looked_for_there(rmqctl: Any) -> None:
    root = str(golden.pristine("5.3.3-clean"))
    plain, scanned = (rmqctl("query-id", root, "0" * 32, *more) for more in ((), ("--scan",)))
    assert (plain.exit_code, scanned.exit_code) == (1, 1)
    assert "--scan looks for" in plain.stderr
    assert "--scan" not in scanned.stderr
