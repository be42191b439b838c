"""The tables of `docs/internals/interop.md`: what brokers of each release did with stores of others, as recorded."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.release import Release

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "interop.md"
_NAMES = {"rocketmq": "RocketMQ", "kafka": "Kafka"}
_BEGIN, _END = "<!-- starts: printed by a test -->", "<!-- end -->"


def page(text: str) -> str:
    """Return the page with the tables of now."""
    head, _, rest = text.partition(_BEGIN)
    return f"{head}{_BEGIN}\n{tables()}{_END}{rest.partition(_END)[2]}"


def tables() -> str:
    """Return a table a family: a row a store, a column a release of the broker."""
    return "".join(f"\n{line}" for family in _NAMES for line in _table(family)) + "\n"


def _table(family: str) -> Iterator[str]:
    recorded = ROOT / "fixtures" / "interop" / f"{family}.matrix.json.xz"
    cells: list[dict[str, Any]] = json.loads(lzma.decompress(recorded.read_bytes()))
    releases = sorted({cell["release"] for cell in cells}, key=Release.parse)
    found = {(_store(cell), cell["release"]): _word(cell) for cell in cells}
    yield from (f"Stores of {_NAMES[family]}, {len(cells)} starts:", "")
    yield f"| store | {' | '.join(releases)} |"
    yield "| --- |" + " --- |" * len(releases)
    for store in sorted({store for store, _ in found}, key=lambda name: (Release.parse(name.partition("-")[0]), name)):
        yield f"| {store} | {' | '.join(found.get((store, release), '') for release in releases)} |"
    yield ""


def _store(cell: dict[str, Any]) -> str:
    return str(cell["store"]) + (", no features" if cell["settings"] == "plain" else "")


def _word(cell: dict[str, Any]) -> str:
    if not cell["starts"]:
        return "refuses"
    if "queues" in cell:
        topics = {queue.rpartition("/")[0] for queue in cell["queues"]} & set(cell["topics"])
        return "starts" if any(map(str.isalnum, topics)) else "serves nothing"
    return "starts" if any(not topic.startswith("__") for topic, *_ in cell["ends"]) else "serves nothing"
