"""What `--at` says of a thing, against what a real broker answered then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any


def differ(said: dict[str, Any], answered: dict[str, Any], where: str, seen: Counter[str]) -> Iterator[str]:
    """Yield what is said otherwise than the broker did; what is unknown is counted, and never wrong."""
    for name, value in answered.items():
        if name in said["unknown"]:
            assert said[name] is None
            seen[f"{name} unknown: {said['unknown'][name]}"] += 1
        elif said[name] != value:
            yield f"{where}: {name} {said[name]}, the broker said {value}"
        else:
            seen[f"{name} equal"] += 1
