"""What `dump --damaged` finds in segments, `verify` finds at the same places in the same words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rmqctl
from fixtures import golden
from rmqctl.filters import Filters
from rmqctl.store import Store

_WHAT = ("id", "file", "offset", "size", "severity", "message")
_NEEDS_NEIGHBOURS = {"batch.base-offset", "batch.leader-epoch", "batch.offset-order", "batch.offset-gap"}
"""What only somebody can see who knows other batches, names of files, or checkpoints."""


def _damage(log: Path, kind: str, draw: random.Random) -> None:
    data = bytearray(log.read_bytes())
    at = draw.randrange(len(data))
    if kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + 400] = bytes(len(data[at : at + 400]))
    elif kind == "magic":
        data[16] = 0x40 + draw.randrange(60)
    else:
        data[at] ^= 1 << draw.randrange(8)
    log.write_bytes(data)


@pytest.mark.parametrize("kind", ["cut", "zeros", "magic", "flip"])
@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_dump_and_verify_agree(kind: str, state: str, number: int, tmp_path: Path) -> None:
    root = golden.unpack(f"4.3.1-{state}", tmp_path)
    log = [path for path in sorted((root / "plain-none-0").glob("*.log")) if path.stat().st_size][number]
    _damage(log, kind, random.Random(f"{kind} {state} {number}"))
    opened = rmqctl.open(str(root))
    assert isinstance(opened, Store)
    dumped = {tuple(row[k] for k in _WHAT) for row in opened.dump(Filters(damaged=True)) if row["kind"] == "finding"}
    rows = [row for row in opened.verify(processes=1) if row["file"].endswith(".log")]
    verified = {tuple(row[k] for k in _WHAT) for row in rows}
    assert dumped
    assert dumped <= verified
    assert {row[0] for row in verified - dumped} <= _NEEDS_NEIGHBOURS
