"""What a later `produce` takes over from a store, and what fits files of a size that was asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from formats.rocketmq.property_crc import stored_property_crc
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.locate import open_store_at


def records(root: Path) -> list[bytes]:
    found = []
    for part in CommitLog(open_store_at(str(root)).log_files).walk():
        found += [part.block.raw(n) for n in range(len(part.block))]
    return found


@pytest.mark.parametrize("release", ["5.2.0", "5.5.0"])
def test_a_store_with_record_crcs_keeps_them(release: str, rmqctl: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    new = ("--as-release", release, "--property-crc", "--small")
    assert rmqctl("produce", root, "--topic", "T", "--count", 200, *new).exit_code == 0
    assert rmqctl("produce", root, "--topic", "T", "--count", 120).exit_code == 0
    assert [stored_property_crc(r) is not None for r in records(root)] == [True] * 320


def test_a_store_without_them_gets_none(rmqctl: Any, tmp_path: Path) -> None:
    for _ in range(2):
        assert rmqctl("produce", tmp_path / "s", "--topic", "T", "--as-release", "5.5.0", "--small").exit_code == 0
    assert not any(stored_property_crc(r) for r in records(tmp_path / "s"))


def test_small_files_of_another_size_take_what_fits_them(rmqctl: Any, tmp_path: Path) -> None:
    large = ("--topic", "T", "--size", 400_000, "--count", 3, "--small")
    assert rmqctl("produce", tmp_path / "s", *large).exit_code != 0
    done = rmqctl("produce", tmp_path / "s", *large, "--log-file-size", "1MiB")
    assert done.exit_code == 0, done.stderr
    assert len(records(tmp_path / "s")) == 3


def test_numbers_of_formats_are_numbers(rmqctl: Any) -> None:
    rows = json.loads(rmqctl("formats", "queue-unit", "-o", "json").stdout)
    assert [(row["offset"], row["size"]) for row in rows] == [(0, 8), (8, 4), (12, 8)]
    rows = json.loads(rmqctl("formats", "message-v1", "-o", "json").stdout)
    assert [row["offset"] for row in rows if row["name"] == "body"] == [88]
    assert [row["size"] for row in rows if row["name"] == "body"] == ["len(body)"]


@pytest.mark.parametrize("command", ["info", "dump", "verify", "topics", "lag", "recover", "repair", "rebuild", "diff"])
def test_a_path_that_does_not_exist_is_not_a_store(command: str, rmqctl: Any, tmp_path: Path) -> None:
    result = rmqctl(command, tmp_path / "gone", *([tmp_path / "gone"] if command == "diff" else []))
    assert result.exit_code == 11
    assert "nothing is there; check the spelling of the path" in result.stderr


def test_an_index_time_of_zero_is_no_date(rmqctl: Any, tmp_path: Path) -> None:
    assert rmqctl("produce", tmp_path / "s", "--topic", "T", "--small").exit_code == 0
    told = rmqctl("info", tmp_path / "s").stdout
    assert "1970" not in told
    assert "never" in next(line for line in told.splitlines() if "index msg timestamp" in line)


def test_a_damaged_store_is_equal_to_itself_only_as_far_as_it_can_be_read(rmqctl: Any, tmp_path: Path) -> None:
    root = tmp_path / "s"
    assert rmqctl("produce", root, "--topic", "T", "--count", 20, "--small").exit_code == 0
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[2000:2100] = b"x" * 100
    log.write_bytes(data)
    told = rmqctl("diff", root, root)
    assert told.exit_code == 1
    assert re.search(
        r"A: \d places? of the log without a record, not compared; type: rmqctl verify", " ".join(told.stdout.split())
    )
    assert "A and B are equal where both could be compared" in told.stdout
    assert json.loads(rmqctl("diff", root, root, "-o", "json").stdout)["summary"]["b"]["damaged_places"] > 0


def test_a_store_that_is_there_is_asked_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Messages that are appended stay: undo knows no journal of them."""
    monkeypatch.setattr("commands._apply._is_at_terminal", lambda: True)
    root = golden.unpack("5.5.0-clean", tmp_path)

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def run(place: Path, *more: str, typed: str = "") -> Any:
        return CliRunner().invoke(cli, ["produce", str(place), "--topic", "T", *more], input=typed)

    before = files()
    refused = run(root, typed="n\n")
    assert refused.exit_code == 1 and "undo cannot take messages back" in refused.output
    assert files() == before
    assert run(root, typed="y\n").exit_code == run(root, "--yes").exit_code == 0
    assert files() != before
    made = run(tmp_path / "new", "--small")
    assert made.exit_code == 0 and "undo" not in made.output
