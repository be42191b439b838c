"""`rmqctl undo`, and what commands that write share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from commands import cli
from commands._app import Output
from commands._apply import Manner, apply_options, carry_out, show_plan, stop_if_pending
from commands._options import output_option
from fixtures import golden
from rmqctl.errors import Refused
from rmqctl.repair import Overwrite, Plan, Step, apply, pending
from tests.repair.faults import CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import make_store, rich_plan, state_of


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@apply_options
@output_option("hex")
def mend(path: Path, manner: Manner, out: Output) -> None:
    """A command as repair, rebuild and recover are."""
    stop_if_pending(path)
    plan = rich_plan(path)
    show_plan(plan, out)
    carry_out(plan, manner, verify=list)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], standalone_mode=False)


def run_mend(*arguments: object) -> Result:
    return CliRunner().invoke(mend, [str(a) for a in arguments])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@contextmanager
def unchanged(root: Path) -> Iterator[None]:
    before = state_of(root.parent)
    yield
    assert state_of(root.parent) == before


def test_a_dry_run_writes_nothing_and_says_so(root: Path) -> None:
    for kind in ("table", "json", "jsonl", "csv", "hex"):
        with unchanged(root):
            result = run_mend(root, "-o", kind)
        assert result.exit_code == 0 and "add --apply" in result.stderr and result.stdout


def test_the_plan_as_json(root: Path) -> None:
    plan = json.loads(run_mend(root, "-o", "json").stdout)
    assert plan["kind"] == "plan" and plan["root"] == str(root)
    edits = plan["steps"][0]["edits"]
    assert edits[0] == {"edit": "overwrite", "file": "commitlog/00000000000000000000", "offset": 100, "size": 10}
    assert {e["edit"] for e in edits} == {"overwrite", "cut", "extend", "create", "quarantine", "set-times"}


def test_the_plan_as_hex_shows_the_bytes_on_both_sides(root: Path) -> None:
    text = run_mend(root, "-o", "hex").stdout
    checkpoint = text[
        text.index("checkpoint, 4096") if "checkpoint, 4096" in text else text.index("checkpoint, 4,096") :
    ]
    before, after = checkpoint.split("--- after")[:2]
    assert "physic_msg" not in before.split("--- before")[0]
    assert "00 00 00 00 00 00 00 00" in before and "01 01 01 01 01 01 01 01" in after
    assert "64 65 66 67|" in text and "30 31 32 33|" in text


def test_apply_then_undo_by_the_line_that_it_prints(root: Path) -> None:
    before = state_of(root)
    result = run_mend(root, "--apply")
    assert result.exit_code == 0 and "writing to" in result.stderr
    command = result.stderr.strip().rpartition("type: rmqctl ")[2].split()
    assert command == ["undo", str(root.parent / "store.rmqctl-journal" / "0001")]
    after = state_of(root)
    with unchanged(root):
        dry = run(*command, "--dry-run", "-o", "json")
    shown = json.loads(dry.stdout)
    assert shown["dry_run"] is True and shown["state"] == "done"
    assert {"commitlog/00000000000000000000", "abort", "consumequeue/V/"} <= {c["file"] for c in shown["changes"]}
    assert run(*command, "--yes").exception is None
    assert state_of(root) == before
    assert isinstance(run(*command).exception, Refused)
    back = run("undo", root.parent / "store.rmqctl-journal", "-o", "json")
    assert json.loads(back.stdout)["undo_journal"].endswith("0003") and state_of(root) == after


def test_the_last_run_of_a_store(root: Path) -> None:
    before = state_of(root)
    assert run_mend(root, "--apply").exit_code == 0
    assert run("undo", root).exception is None and state_of(root) == before
    assert run("undo", root).exception is None and state_of(root) != before  # the undo is the last run now
    assert run("undo", root).exception is None and state_of(root) == before


def test_journal_elsewhere(root: Path, tmp_path: Path) -> None:
    before = state_of(root)
    assert run_mend(root, "--apply", "--journal", tmp_path / "elsewhere").exit_code == 0
    assert not (tmp_path / "store.rmqctl-journal").exists()
    assert run("undo", tmp_path / "elsewhere" / "0001").exception is None
    assert state_of(root) == before


@pytest.mark.parametrize("options", [["--resume"], []])
def test_after_a_kill_only_resume_and_undo_are_offered(root: Path, options: list[str]) -> None:
    before = state_of(root)
    with pytest.raises(Killed):
        apply(rich_plan(root), layer=KillingLayer(70))
    journal = pending(root)
    with unchanged(root):
        refused = run_mend(root)
        assert isinstance(refused.exception, Refused)
        assert f"rmqctl undo {journal} --resume" in str(refused.exception)
        assert isinstance(run_mend(root, "--apply").exception, Refused)
        assert run("undo", root.parent / "store.rmqctl-journal", "--dry-run", *options).exception is None
    assert run("undo", journal, *options).exception is None
    assert (state_of(root) == before) == (not options)
    assert pending(root) is None


def test_undo_refuses_changed_files_with_13(root: Path) -> None:
    journal = apply(rich_plan(root), layer=QuickLayer()).journal
    (root / "checkpoint").write_bytes(b"other")
    with unchanged(root):
        for options in ([], ["--dry-run"], ["--force"]):
            result = run("undo", journal, *options)
            assert isinstance(result.exception, Refused) and result.exception.exit_code == 13
            assert "checkpoint" in str(result.exception)


def test_what_is_no_journal(root: Path) -> None:
    with unchanged(root):
        for path in (root, root / "checkpoint", root / "nothing"):
            assert isinstance(run("undo", path).exception, Refused)


WRITING = [
    ("repair", []),
    ("repair", ["--apply"]),
    ("rebuild", ["--apply"]),
    ("recover", ["--apply"]),
    ("produce", ["--topic", "T", "--body", "x"]),
]


@pytest.mark.parametrize(("name", "options"), WRITING)
def test_every_writing_command_stops_at_a_broken_off_run(tmp_path: Path, name: str, options: list[str]) -> None:
    root = golden.unpack("4.9.8-clean", tmp_path)
    edit = Overwrite("checkpoint", 0, (root / "checkpoint").read_bytes()[:8], bytes(8))
    step = Step("test.step", "checkpoint", "w", "y", (edit,))
    layer = CountingLayer()
    shutil.copytree(root, tmp_path / "copy" / "store")
    apply(Plan(tmp_path / "copy" / "store", "test", (step,)), layer=layer)
    begun = [operation for operation, _ in layer.requests].index("symlink")
    with pytest.raises(Killed):
        apply(Plan(root, "test", (step,)), layer=KillingLayer(begun + 3))
    with unchanged(root):
        assert "was broken off; first type: rmqctl undo" in run("verify", root).stderr
        result = run(name, root, *options)
        assert isinstance(result.exception, Refused), (result.exception, result.output)
        assert f"rmqctl undo {pending(root)} --resume" in str(result.exception)
