"""Stores that another release takes over: the replayed start against what whole brokers of that release had."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.interop.started_helpers import hold

RECORDED = Path(golden.__file__).parent / "interop" / "rocketmq.matrix.json.xz"
CELLS: list[dict[str, Any]] = json.loads(lzma.decompress(RECORDED.read_bytes()))


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell['store']}-{cell['settings']}-as-{cell['release']}")
def test_a_broker_of_another_release_has_what_is_replayed(cell: dict[str, Any]) -> None:
    hold(cell["store"], cell["release"], cell, kind=cell["settings"])
