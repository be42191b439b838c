"""No bytes make a dump raise: real files cut, flipped and overwritten, dumped as what they are or seem to be."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.errors import NotAStore
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.store.locate import open_store

NAME = "0" * 20
FILES = [
    f"commitlog/{262144:020d}",
    f"consumequeue/LabOrders/0/{NAME}",
    f"batchconsumequeue/LabBatchCq/0/{NAME}",
    "index/20261121014405104",
    f"timerlog/{NAME}",
    "config/timercheck",
    "config/topics.json",
    "checkpoint",
    "lock",
    "abort.bak",
]
_HEAD = 16384


@cache
def head(name: str) -> bytes:
    """The first bytes of a file of a real store."""
    return (golden.pristine("5.5.0-clean") / name).read_bytes()[:_HEAD]


EDITS = st.lists(st.tuples(st.integers(0, _HEAD - 1), st.binary(min_size=1, max_size=9)), max_size=6)


@pytest.mark.parametrize("name", FILES)
@given(edits=EDITS, cut=st.none() | st.integers(0, _HEAD))
def test_damaged_files(name: str, edits: list[tuple[int, bytes]], cut: int | None) -> None:
    data = bytearray(head(name)[:cut])
    for at, new in edits:
        at = at % max(len(data), 1)
        data[at : at + len(new)] = new[: len(data) - at]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (Path(directory) / "commitlog").mkdir(exist_ok=True)
        path.write_bytes(data)
        _dump(Path(directory), name)
        _dump(Path(directory), "/".join(name.split("/")[:1]))


def _dump(root: Path, selection: str) -> None:
    store = open_store(LocalTree(root), selection=selection)
    try:
        list(Dump.of_store(store, Request(show=RowOptions(body=True, raw_body=True, body_limit=10))).rows())
        rows = list(Dump.of_store(store, Request()).rows())
    except NotAStore:
        return
    lines = b"".join(Dump.of_store(store, Request()).lines())
    assert lines == b"".join(orjson.dumps(row) + b"\n" for row in rows)
