"""What tests share with test_rare_stores: where they lie, their kinds, and what they hold."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

RARE = Path(__file__).parents[2] / "fixtures" / "rare"


KINDS = ("ipv6-v2", "ext", "dledger", "compaction")


def truth(kind: str) -> list[dict[str, Any]]:
    """One object a message, as the store answered when it took it."""
    with lzma.open(RARE / f"5.3.3-{kind}.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
