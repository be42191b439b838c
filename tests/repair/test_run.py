"""Applying, taking back, taking back the taking back."""

from __future__ import annotations

from pathlib import Path

from rmqctl.repair import apply, pending, undo
from tests.repair.stores import make_store, rich_plan, state_of


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
