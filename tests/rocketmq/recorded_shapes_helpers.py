"""What tests share with test_recorded_shapes: DIRECTORY, said."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "interop" / "shapes"


@cache
def said(name: str) -> dict[str, Any]:
    """What the classes said."""
    with lzma.open(DIRECTORY / f"{name}.json.xz", "rt", encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    return document
