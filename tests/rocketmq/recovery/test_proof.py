"""Splits read ahead and proven give the answer of the walk alone, whatever is damaged and however the log is divided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from fixtures import damage, golden
from rmqctl.files.tree import LocalTree
from rmqctl.parallel import Ordered
from rmqctl.release import Release
from rmqctl.rocketmq.recovery import proof, replay
from rmqctl.rocketmq.recovery.outcome import Recovery, document
from rmqctl.rocketmq.store.locate import open_store

RELEASES = ("4.9.8", "5.5.0")
LOG = ("flip", "zero", "torn", "stale", "garbage", "blank", "delete", "none", "huge")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parts in the same order, without starting processes."""

    class Here(Ordered[proof.FileRange, proof.Proof]):
        def results(self, parts: Iterable[proof.FileRange]) -> Iterator[proof.Proof]:
            return map(self.make(), parts)

    monkeypatch.setattr(proof, "Ordered", Here)
    monkeypatch.setattr(replay, "LEAST", 0)


@pytest.mark.parametrize("size", [1000, 30_000, 131_072])
@pytest.mark.parametrize("release", RELEASES)
def test_proofs_change_nothing(
    release: str, size: int, tmp_path: Path, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "SPLIT_SIZE", size)
    for state in ("clean", "crash"):
        root = golden.unpack(f"{release}-{state}", tmp_path)
        for name, variant in golden.recovery_oracle(release)["variants"].items():
            if name.startswith(state) and any(word in name for word in LOG):
                damage.apply(variant["recipe"], root)
                alone, ahead = _recovered(root, release, 1), _recovered(root, release, 2)
                assert document(ahead) == document(alone), name
                damage.undo(variant["recipe"], golden.pristine(f"{release}-{state}"), root)


def test_processes_are_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SPLIT_SIZE", 50_000)
    monkeypatch.setattr(replay, "LEAST", 0)
    root = golden.pristine("5.5.0-crash")
    assert document(_recovered(root, "5.5.0", 2)) == document(_recovered(root, "5.5.0", 1))


def _recovered(root: Path, release: str, processes: int) -> Recovery:
    store = open_store(LocalTree(root), settings=golden.broker_conf("5.5.0-clean") if release == "5.5.0" else {})
    return replay.recover(store, Release.parse(release), processes=processes)
