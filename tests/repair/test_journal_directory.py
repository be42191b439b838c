"""A directory of journals that holds other things too, and is used by several runs at once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.repair import Overwrite, apply, choose_journal, history, pending, undo
from rmqctl.repair.journal_directory import JOURNAL, journals_in, line_of, staged
from tests.repair.faults import CountingLayer, FailingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import LOG, make_store, plan_of, put, rich_plan, state_of
from tests.repair.workshop import Workshop, chosen

TOP = Path(__file__).parents[2]
MANY = """
import sys
from pathlib import Path
from rmqctl.repair import apply, undo
from tests.repair.faults import QuickLayer
from tests.repair.stores import rich_plan
root, journals = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    done = apply(rich_plan(root), journal_dir=journals, layer=QuickLayer())
    assert done.complaints == (), done
    back = undo(done.journal, layer=QuickLayer())
    assert back.complaints == (), back
print(done.journal, back.journal)
"""


def users_files(directory: Path) -> None:
    """What somebody may keep under names like those of journals."""
    for name in ("2024/new/a.txt", "2024/data", "2024/state.jsonl", "0001/new/deep/b", "0001/x", "7/data", "notes"):
        put(directory, name, name.encode())
    (directory / "0002" / "new").mkdir(parents=True)
    (directory / "2025").mkdir()


def test_files_of_the_user_stay(shop: Workshop) -> None:
    before, plan, backup = shop.state(), rich_plan(shop.root), shop.home / "backup"
    backup.mkdir()
    users_files(backup)
    kept = state_of(backup, directories=False)
    first = apply(plan, journal_dir=backup, layer=QuickLayer())
    assert first.journal == backup / "2026"
    undo(first.journal, layer=QuickLayer())
    assert shop.state() == before
    found = state_of(backup, directories=False)
    assert {name: found.get(name, "gone") for name in kept} == kept
    assert {p.name for p in backup.iterdir() if p.name not in ("2026", "2027")} == {
        *("2024", "2025", "0001", "0002", "7", "notes")
    }


@pytest.mark.parametrize("killed", [False, True])
def test_files_of_the_user_stay_when_a_run_stops_anywhere(shop: Workshop, stride: int, *, killed: bool) -> None:
    before, plan, backup = shop.state(), rich_plan(shop.root), shop.home / "backup"
    backup.mkdir()
    users_files(backup)
    kept = state_of(backup, directories=False)
    shop.save()
    layer = CountingLayer()
    apply(plan, journal_dir=backup, layer=layer)
    for at, _ in chosen(layer.requests, stride):
        shop.restore()
        with pytest.raises((Killed, OSError, Exception)):
            apply(plan, journal_dir=backup, layer=KillingLayer(at) if killed else FailingLayer(at, for_ever=True))
        if (journal := pending(shop.root)) is not None:
            undo(journal, layer=QuickLayer())
        if shop.state() != before:  # only the last words were missing
            undo(choose_journal(backup), layer=QuickLayer())
        apply(plan, journal_dir=backup, layer=QuickLayer())
        found = state_of(backup, directories=False)
        assert {name: found.get(name, "gone") for name in kept} == kept
        assert not [p for p in backup.iterdir() if p.name.endswith(".rmqctl-part")]


def test_an_empty_directory_that_was_given_stays_when_the_run_fails(shop: Workshop) -> None:
    empty = shop.home / "empty"
    empty.mkdir()
    with pytest.raises(Exception, match="nothing was changed"):
        apply(rich_plan(shop.root), journal_dir=empty, layer=FailingLayer(3))
    assert empty.is_dir() and not list(empty.iterdir())


def test_what_a_kill_left_goes_unless_somebody_works_on_it(shop: Workshop) -> None:
    plan, outside = plan_of(shop.root, Overwrite(LOG, 0, b"\0\1", b"xy")), shop.home / "outside"
    put(outside, "new/precious", b"p")
    for name in ("0001", "0002"):
        put(shop.base, f"{name}.rmqctl-part/journal.jsonl", line_of({"kind": "rmqctl-journal"}, 0))
        put(shop.base, f"{name}.rmqctl-part/new/commitlog/1", b"x")
    put(shop.base, "0001.rmqctl-part/of the user", b"x")
    (shop.base / "0003.rmqctl-part").symlink_to(outside)
    (shop.base / "0004.rmqctl-part").mkdir()
    (shop.base / "0004.rmqctl-part" / "new").symlink_to(outside / "new")
    held = os.open(shop.base / "0002.rmqctl-part", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert apply(plan, layer=QuickLayer()).journal == shop.base / "0005"
    os.close(held)
    assert (shop.base / "0002.rmqctl-part/new/commitlog/1").exists()
    assert (outside / "new/precious").read_bytes() == b"p"
    assert sorted(p.name for p in (shop.base / "0001.rmqctl-part").iterdir()) == ["of the user"]


def test_what_a_kill_left_of_staged_files_goes_unless_somebody_builds_there(shop: Workshop) -> None:
    left, built, own = (shop.home / f".rmqctl-plan-{name}" for name in ("abcd_123", "abcd_124", "of-the-user"))
    for directory in (left, built, own):
        put(directory, "positions/000001.sst", b"x")
    link = shop.home / ".rmqctl-plan-abcd_125"
    link.symlink_to(own)
    held = os.open(built, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with staged(shop.home) as mine:
        put(mine, "new", b"x")
        with staged(shop.home) as other:
            assert (mine / "new").exists()
    os.close(held)
    assert [path.exists() for path in (left, mine, other, built, own, link)] == [False] * 3 + [True] * 3
    assert (own / "positions/000001.sst").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"new/commitlog/1": b"mine"},
        {"journal.jsonl": b"notes\n", "data": b"mine", "state.jsonl": b"also mine"},
        {"journal.jsonl": b'{"kind":"rmqctl-journal"}\n', "new/a": b"x"},
        {"data": b"mine"},
        {"state.jsonl": b""},
        {"journal.jsonl": b"", "new/empty": b""},
        {"journal.jsonl": b"", "other/new": b""},
    ],
)
def test_what_is_only_called_like_a_journal_in_the_making_stays(shop: Workshop, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        put(shop.base, f"0008.rmqctl-part/{name}", data)
    users = shop.base / "0008.rmqctl-part"
    before = state_of(users, directories=True)
    done = apply(plan_of(shop.root, Overwrite(LOG, 0, b"\0\1", b"xy")), layer=QuickLayer())
    assert done.journal == shop.base / "0009"
    assert state_of(users, directories=True) == before


def test_a_name_that_another_run_takes_in_between(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["0001", "0001", "0002"])
    monkeypatch.setattr("rmqctl.repair.execute.next_name", lambda base: next(names))
    (shop.base / "0001").mkdir(parents=True)
    before = shop.state()
    done = apply(rich_plan(shop.root), layer=QuickLayer())
    assert done.journal == shop.base / "0002"
    assert all(f.kept_at.startswith("0002/") for f in _moved(done.journal))
    monkeypatch.undo()
    undo(done.journal, layer=QuickLayer())
    assert shop.state() == before


def _moved(journal: Path) -> list[object]:
    from rmqctl.repair import read_journal

    return [f for f in read_journal(journal).changes.files if f.moves]


@pytest.mark.parametrize("pairs", [pytest.param(40, marks=pytest.mark.slow), 4])
def test_many_runs_with_one_directory(tmp_path: Path, pairs: int) -> None:
    """Each pair of processes applies and takes back at the same time, on two stores, with journals in one place."""
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    roots = [make_store(tmp_path / name / "store") for name in "ab"]
    before = [state_of(root) for root in roots]
    for number in range(pairs):
        journals = tmp_path / f"journals-{number}"
        runs = [
            subprocess.Popen(
                [sys.executable, "-c", MANY, str(root), str(journals), "3"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for root in roots
        ]
        for run in runs:
            assert run.stdout is not None and run.stdout.readline() == "ready\n"
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("\n")
            run.stdin.flush()
        for run in runs:
            _, complaint = run.communicate(timeout=60)
            assert run.returncode == 0, complaint
        assert [state_of(root) for root in roots] == before
        assert len(journals_in(journals)) == 12
        assert not [p for p in journals.iterdir() if not p.name.isdigit()]


@pytest.mark.parametrize(
    ("reverses", "expected"),
    [
        ({}, ("0003", 0)),
        ({"0003": "0002"}, ("0002", 1)),
        ({"0003": "0002", "0002": "0001"}, ("0001", 2)),
        ({"0003": "0003"}, ("0003", 0)),
        ({"0003": "0002", "0002": "0003"}, ("0002", 1)),
        ({"0003": "../0002"}, ("0003", 0)),
        ({"0003": "/etc"}, ("0003", 0)),
    ],
)
def test_journals_that_reverse_each_other_end(
    reverses: dict[str, str], expected: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No journal of ours goes round, or leads out of its directory."""
    for name in ("0001", "0002", "0003"):
        put(tmp_path, f"{name}/{JOURNAL}", b"")
    monkeypatch.setattr(history, "header_of", lambda path: {"reverses": reverses.get(path.name)})
    assert history.lineage(tmp_path / "0003") == expected
