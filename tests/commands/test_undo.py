"""`rmqctl undo`, and what commands that write share."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from commands import cli
from commands._app import Output
from commands._apply import Manner, apply_options, ask, propose
from commands._guard import exit_code_of
from commands._options import output_option
from fixtures import golden
from rmqctl.answer import Proposal
from rmqctl.errors import NotAStore, Refused
from rmqctl.repair import Create, Overwrite, Plan, Step, apply, pending, refuse_pending
from rmqctl.repair.journal_directory import line_of, rows_of
from rmqctl.rocketmq.verbs.planning import annotate
from tests.repair.faults import CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import make_store, rich_plan, state_of


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@apply_options
@output_option("hex")
def mend(path: Path, manner: Manner, out: Output) -> None:
    """A command as repair, rebuild and recover are."""
    refuse_pending(path)
    plan = rich_plan(path)
    propose(Proposal(plan=plan, shown=plan, check=list, intent=manner, annotate=annotate), manner, out)


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
    assert result.exit_code == 0 and "about to write to" in result.stderr
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
    assert isinstance(run("undo", root.parent / "store.rmqctl-journal").exception, Refused)
    back = run("undo", root.parent / "store.rmqctl-journal", "--redo", "-o", "json")
    shown = json.loads(back.stdout)
    assert shown["kind"] == "redo" and shown["undo_journal"].endswith("0003") and state_of(root) == after


def three_runs(root: Path) -> list[object]:
    """The states of a store before, between and after three runs."""
    states: list[object] = [state_of(root)]
    for number in range(3):
        before = (root / "checkpoint").read_bytes()[number : number + 1]
        edits = Overwrite("checkpoint", number, before, b"x"), Create(f"index/{number}", b"new")
        apply(Plan(root, f"run {number}", (Step("x.y", "f", "w", "y", edits),)), layer=QuickLayer())
        states.append(state_of(root))
    return states


def number_of_state(root: Path, states: list[object]) -> int:
    return states.index(state_of(root))


def test_undo_walks_back_and_redo_forth(root: Path) -> None:
    states = three_runs(root)
    for options, ends in (([], (2, 1, 0)), (["--redo"], (1, 2, 3)), ([], (2, 1, 0))):
        for at in ends:
            assert run("undo", root, *options).exception is None
            assert number_of_state(root, states) == at
        assert isinstance(run("undo", root, *options).exception, Refused)
        assert number_of_state(root, states) == ends[-1]


def test_any_walk_ends_where_it_should(root: Path) -> None:
    states, at, draw = three_runs(root), 3, random.Random(7)
    for _ in range(40):
        forth = draw.random() < 0.5
        result = run("undo", root, *(["--redo"] if forth else []))
        wanted = at + (1 if forth else -1)
        assert (result.exception is None) == (0 <= wanted <= 3)
        at = wanted if 0 <= wanted <= 3 else at
        assert number_of_state(root, states) == at
        rows = json.loads(run("undo", root, "--list", "-o", "json").stdout)
        assert [row["next"] for row in rows].count("undo") == (at > 0)
        assert [row["next"] for row in rows].count("redo") == (at < 3)


def test_nothing_is_brought_again_over_a_later_run(root: Path) -> None:
    states = three_runs(root)
    assert run("undo", root).exception is None
    apply(Plan(root, "later", (Step("x.y", "f", "w", "y", (Create("index/9", b"x"),)),)), layer=QuickLayer())
    assert isinstance(run("undo", root, "--redo").exception, Refused)
    for at in (2, 1, 0):
        assert run("undo", root).exception is None
        assert number_of_state(root, states) == at


def test_a_named_journal_can_be_brought_again(root: Path) -> None:
    states, journals = three_runs(root), root.parent / "store.rmqctl-journal"
    assert isinstance(run("undo", journals / "0003", "--redo").exception, Refused)
    for _ in range(3):
        assert run("undo", journals / "0003").exception is None
        assert number_of_state(root, states) == 2
        assert isinstance(run("undo", journals / "0003").exception, Refused)
        assert run("undo", journals / "0003", "--redo").exception is None
        assert number_of_state(root, states) == 3


def test_the_list_of_journals(root: Path) -> None:
    three_runs(root)
    run("undo", root)
    run("undo", root)
    run("undo", root, "--redo")
    with unchanged(root):
        for place in (root, root.parent / "store.rmqctl-journal", root.parent / "store.rmqctl-journal" / "0002"):
            rows = json.loads(run("undo", place, "--list", "-o", "json").stdout)
    names = [(Path(row["journal"]).name, row["kind"], row["title"], row["state"], row["next"]) for row in rows]
    assert names == [
        ("0001", "run", "run 0", "done", None),
        ("0002", "run", "run 1", "done", None),
        ("0003", "run", "run 2", "undone", None),
        ("0004", "undo", "undo of 0003: run 2", "done", "redo"),
        ("0005", "undo", "undo of 0002: run 1", "undone", None),
        ("0006", "redo", "redo of 0002: run 1", "done", "undo"),
    ]


def test_a_list_of_nothing(root: Path) -> None:
    assert CliRunner().invoke(guarded, ["undo", str(root / "nowhere")]).exit_code == 11
    missing = CliRunner().invoke(guarded, ["undo", "--list", str(root / "nowhere")])
    assert missing.exit_code == 11 and "nothing of that name is there" in missing.stderr
    result = CliRunner().invoke(guarded, ["undo", "--list", str(root)])
    assert result.exit_code == 1 and "no journal of" in result.stderr


def test_journals_of_several_stores_in_one_directory(root: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other")
    for store in (root, other):
        apply(rich_plan(store), journal_dir=tmp_path / "journals", layer=QuickLayer())
    with unchanged(root):
        result = run("undo", tmp_path / "journals")
        assert isinstance(result.exception, Refused) and "journals of 2 stores" in str(result.exception)
    assert run("undo", tmp_path / "journals" / "0001").exception is None


@contextmanager
def at_a_terminal(answer: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    asked: list[str] = []

    def confirm(question: str, **options: object) -> bool:
        asked.append(question)
        if answer == "^C":
            raise click.Abort
        return answer == "y"

    monkeypatch.setattr("commands._apply.click.confirm", confirm)
    monkeypatch.setattr("commands._apply._is_at_terminal", lambda: True)
    yield asked


@pytest.mark.parametrize(("answer", "code", "said"), [("n", 1, "nothing was written"), ("^C", 130, "interrupted")])
def test_no_is_an_answer(root: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, said: str) -> None:
    apply(rich_plan(root), layer=QuickLayer())
    with unchanged(root), at_a_terminal(answer, monkeypatch) as asked:
        result = CliRunner().invoke(guarded, ["undo", str(root)])
        assert result.exit_code == code and result.stderr.splitlines()[-1] == f"rmqctl: {said}"
        assert ("interrupted" in result.stderr) == (answer == "^C")
        assert len(asked) == 1 and "commitlog/" in result.stdout  # the changes are shown before


@pytest.mark.parametrize("answer", ["y", "n"])
def test_json_is_shown_before_the_question(root: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    before = state_of(root)
    apply(rich_plan(root), layer=QuickLayer())
    shown: list[str] = []
    monkeypatch.setattr("commands.undo.ask", lambda question, yes: (shown.append("asked"), ask(question, yes)))
    monkeypatch.setattr(Output, "document", lambda out, document: shown.append(json.dumps(document)))
    with at_a_terminal(answer, monkeypatch):
        CliRunner().invoke(guarded, ["undo", str(root), "-o", "json"])
    document, asked = shown
    assert asked == "asked" and json.loads(document)["dry_run"] is False and json.loads(document)["changes"]
    assert (state_of(root) == before) == (answer == "y")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def guarded(words: tuple[str, ...]) -> None:
    """The program with its exit codes."""
    raise SystemExit(exit_code_of(lambda: cli.main(list(words), standalone_mode=False)))


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
        for path in (root, root / "checkpoint"):
            assert isinstance(run("undo", path).exception, Refused)
        assert isinstance(run("undo", root / "nothing").exception, NotAStore)


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


# --- held to the books ------------------------------------------------------------------------------------


def damaged(family: str, room: Path) -> Path:
    """A golden store of a family with a byte of a body in the middle turned over."""
    root = golden.unpack("5.3.3-clean" if family == "rocketmq" else "4.3.1-clean", room)
    logs = root.glob("commitlog/*" if family == "rocketmq" else "plain-none-0/*.log")
    path = max(logs, key=lambda log: len(log.read_bytes().rstrip(b"\0")))
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 0x55
    path.write_bytes(data)
    return root


@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_undo_and_redo_are_held_to_the_books(family: str, tmp_path: Path) -> None:
    root = damaged(family, tmp_path)
    plan = json.loads(run("repair", root, "--apply", "-o", "json").stdout)["summary"]["books"]
    assert plan["balances"]
    back = json.loads(run("undo", root, "-o", "json").stdout)
    assert back["complaints"] == []
    assert back["books"] == plan | {
        "whole_before": plan["kept"] + plan["moved"] + plan["placeholders"] + plan["healed"],
        "garbage": plan["placeholders"], "given_up": plan["healed"], "placeholders": 0,
        "healed": plan["given_up"] + plan["garbage"],
    }  # fmt: skip
    forth = json.loads(run("undo", root, "--redo", "-o", "json").stdout)
    assert (forth["complaints"], forth["books"]) == ([], plan)


@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_an_undo_that_does_not_meet_the_books_says_so(family: str, tmp_path: Path) -> None:
    """What is counted is what lies there, not what the journal says."""
    root = damaged(family, tmp_path)
    run("repair", root, "--apply", "-o", "json")
    journal = root.with_name(f"{root.name}.rmqctl-journal") / "0001" / "journal.jsonl"
    first, rest = journal.read_bytes().split(b"\n", 1)
    row = next(rows_of(first + b"\n"))
    row["books"]["before"][0][2] += 1
    journal.write_bytes(line_of(row, 0) + rest)
    found = run("undo", root, "-o", "json")
    shown = json.loads(found.stdout)
    assert found.exit_code == 1 and not shown["books"]["balances"]
    assert "whole records where it was changed" in shown["complaints"][0]
