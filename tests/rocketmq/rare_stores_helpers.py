"""What tests share with test_rare_stores: KINDS, rare, truth."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden

RARE = Path(__file__).parents[2] / "fixtures" / "rare"


KINDS = ("ipv6-v2", "ext", "dledger", "compaction")


@pytest.fixture
def rare(tmp_path: Path) -> Callable[[str], Path]:
    """Unpack a rare store by kind."""

    def unpack(kind: str) -> Path:
        golden.extract(RARE / f"5.3.3-{kind}.tar.xz", tmp_path)
        return tmp_path / f"5.3.3-{kind}"

    return unpack


def truth(kind: str) -> list[dict[str, Any]]:
    """One object a message, as the store answered when it took it."""
    with lzma.open(RARE / f"5.3.3-{kind}.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
