"""`rmqctl explain`, and the options that every command has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import COMMANDS, cli
from fixtures import golden
from rmqctl.findings import all_kinds
from tests.conftest import Rmqctl


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.id)
def test_every_finding_is_explained(kind: Any, rmqctl: Any) -> None:
    row = json.loads(rmqctl("explain", kind.id, "-o", "json").stdout)
    assert (row["id"], row["meaning"], row["remedy"]) == (kind.id, kind.meaning, kind.remedy)
    assert kind.id in rmqctl("explain", kind.id).stdout


def test_reasons_are_explained_and_wrong_ids_are_wrong_usage(rmqctl: Any) -> None:
    reason = json.loads(rmqctl("formats", "misses", "-o", "json").stdout)[0]
    pages = [f"reference/misses/{reason['id']}"]
    assert json.loads(rmqctl("explain", reason["id"], "-o", "json").stdout) == {**reason, "pages": pages}
    wrong = rmqctl("explain", "log.bodycrc")
    assert wrong.exit_code == 2
    assert "did you mean log.body-crc" in wrong.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_quiet(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    options = [o for parameter in command.params for o in parameter.opts]  # type: ignore[union-attr]
    assert {"-q", "--quiet", "--no-progress"} <= set(options)
    assert len(options) == len(set(options))


def test_quiet_leaves_results_and_errors(rmqctl: Any, tmp_path: Path) -> None:
    store = golden.unpack("4.9.8-clean", tmp_path)
    (store / "checkpoint").unlink()
    loud, quiet = (rmqctl("repair", store, *more) for more in ((), ("-q",)))
    assert loud.stdout == quiet.stdout
    assert loud.stderr
    assert quiet.stderr == ""
    assert rmqctl("info", "/nowhere", "-q").stderr.startswith("rmqctl: /nowhere")
    assert rmqctl("repair", store).stderr == loud.stderr


def test_a_beginning_that_only_one_id_has_is_enough(rmqctl: Rmqctl) -> None:
    assert rmqctl("explain", "log.body").stdout == rmqctl("explain", "log.body-crc").stdout
    told = rmqctl("explain", "log.file")
    assert told.exit_code == 2 and "did you mean log.file-length or log.file-name?" in " ".join(told.stderr.split())
