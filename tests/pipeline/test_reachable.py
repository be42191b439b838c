"""A store that a machine with tasks does not have is no empty store."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.errors import IOFailure
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.tables.columns import table_options
from rmqctl.rocketmq.tables.splits import log_splits, walk_split


def test_tasks_find_a_relative_path_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden.unpack("5.3.3-crash", tmp_path).rename(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    splits = log_splits(table_options({"path": "store"}).store())
    count = sum(len(part.block) for split in splits for part in walk_split(split))
    sent = pickle.dumps(splits)
    monkeypatch.chdir(os.sep)
    assert sum(len(part.block) for split in pickle.loads(sent) for part in walk_split(split)) == count > 1000


def test_a_store_that_is_not_there_stops_the_task(tmp_path: Path) -> None:
    root = golden.unpack("5.3.3-crash", tmp_path)
    split = log_splits(table_options({"path": str(root)}).store())[0]
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(IOFailure, match="every machine that runs tasks must have the store under the same path"):
        list(walk_split(split))


def test_trees_are_sent_with_their_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(LocalTree("store"))).root == str(tmp_path / "store")
