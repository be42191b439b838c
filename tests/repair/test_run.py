"""Applying, taking back, taking back the taking back."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import Refused
from rmqctl.repair import Create, Overwrite, Quarantine, apply, pending, undo
from tests.repair.faults import QuickLayer
from tests.repair.stores import make_store, plan_of, put, rich_plan, state_of


def test_apply_undo_and_undo_of_the_undo(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store")
    before = state_of(root)
    applied = apply(rich_plan(root), verify=list)
    assert applied.complaints == ()
    assert applied.journal == tmp_path / "store.rmqctl-journal" / "0001"
    after = state_of(root)
    assert after != before
    log = (root / "commitlog/00000000000000000000").read_bytes()
    assert log[100:115] == b"01234abcdefghij" and log[9000:9200] == b"x" * 200
    assert log[9200:] == bytes(800) + b"tail" + bytes(236)
    back = undo(applied.journal)
    assert back.complaints == ()
    assert state_of(root) == before
    assert back.journal is not None
    again = undo(back.journal)
    assert state_of(root) == after
    assert again.journal is not None and again.complaints == ()
    assert undo(applied.journal).complaints == ()
    assert state_of(root) == before
    assert pending(root) is None


def test_a_log_outside_the_root(tmp_path: Path) -> None:
    """The names of its files are absolute, or lead out of the root."""
    root, log = make_store(tmp_path / "store"), tmp_path / "disk2" / "commitlog"
    put(log, "00000000000000000000", b"a" * 100)
    put(log, "00000000000000000100", b"b" * 100)
    before = state_of(root), state_of(log)
    plan = plan_of(
        root,
        Overwrite(f"{log}/00000000000000000000", 5, b"aa", b"xy"),
        Quarantine("../disk2/commitlog/00000000000000000100"),
        Create(f"{log}/more/00000000000000000200", b"c"),
    )
    with pytest.raises(
        Refused, match=f"lies outside the store .where that belongs to the store, name it: --outside {log}"
    ):
        apply(plan, layer=QuickLayer())
    assert (state_of(root), state_of(log)) == before
    applied = apply(plan, layer=QuickLayer(), outside=[log])
    journal = applied.journal
    assert journal is not None
    assert applied.undo_command == f"rmqctl undo {journal} --outside {log}"
    assert sorted(p.name for p in log.iterdir()) == ["00000000000000000000", "more"]
    assert (log / "00000000000000000000").read_bytes()[4:8] == b"axya"
    assert (journal / "quarantine" / "up" / "disk2" / "commitlog" / "00000000000000000100").is_file()
    with pytest.raises(Refused, match="lies outside the store"):
        undo(journal, layer=QuickLayer())
    undo(journal, layer=QuickLayer(), outside=[log])
    assert (state_of(root), state_of(log)) == before
