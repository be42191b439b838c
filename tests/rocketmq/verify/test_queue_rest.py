"""Queues are looked at unit by unit only where a count does not come out; that look would find nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.store.locate import open_store
from rmqctl.rocketmq.verify import unmatched
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

UNEVEN = ("cq-", "zero-page", "delete", "queueoffset", "stale", "flip", "truncate", "torn", "garbage", "physicaloffset")


SLOW = [pytest.param(base, marks=pytest.mark.slow) for base in ("4.9.8-clean", "4.9.8-crash", "5.5.0-clean")]


@pytest.mark.parametrize("base", ["5.5.0-crash", *SLOW])
def test_the_count_leaves_nothing_out(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, _, state = base.partition("-")
    root = golden.unpack(base, tmp_path)
    for name, variant in golden.recovery_oracle(release)["variants"].items():
        if name.startswith(state) and any(word in name for word in UNEVEN):
            damage.apply(variant["recipe"], root)
            by_count = rows(root)
            with monkeypatch.context() as patch:
                patch.setattr(unmatched._QueueAgainstClaims, "_known", lambda _: -1)
                assert by_count == rows(root), name
            damage.undo(variant["recipe"], golden.pristine(base), root)


def rows(root: Path) -> list[dict[str, object]]:
    """Findings of a whole verification."""
    return [f.row() for f in Verification(open_store(LocalTree(root)), VerifyOptions()).findings()]


RANGES = st.lists(st.integers(0, 60), max_size=8, unique=True).map(
    lambda ends: tuple(zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False))
)


@given(damaged=RANGES, begin=st.lists(st.integers(0, 64), max_size=20), size=st.integers(1, 9))
def test_many_stretches_are_judged_as_one(damaged: tuple[tuple[int, int], ...], begin: list[int], size: int) -> None:
    context = LogContext.of(open_store(LocalTree(golden.pristine("5.5.0-clean"))))
    object.__setattr__(context, "damaged", damaged)
    found = context.are_damaged(np.array(begin, np.int64), np.array(begin, np.int64) + size)
    assert found.tolist() == [context.is_damaged(at, at + size) for at in begin]
