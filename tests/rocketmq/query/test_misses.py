"""The table of reasons is printed by `rmqctl formats misses` and in docs/misses.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqctl.explain import all_misses

PAGE = Path(__file__).parents[3] / "docs" / "misses.md"


def page() -> str:
    """docs/misses.md, from the table."""
    lines = [
        "# Why a query finds nothing",
        "",
        "With `--explain`, `query-key`, `query-id`, `query-time` and `query-offset` print every step they took, and one last",
        "step that names the reason. Its `id` is stable; `{names}` in a sentence stand for what differs from case to case.",
        "`rmqctl formats misses` prints the same table.",
        "",
    ]
    for miss in all_misses():
        lines += [f"## {miss.id}", "", f"> {miss.sentence}", "", miss.meaning, ""]
    return "\n".join(lines).rstrip() + "\n"


def test_page(update_golden: bool) -> None:
    if update_golden:
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page(), "type: pytest tests/rocketmq/query/test_misses.py --update-golden"


def test_command_prints_the_table(rmqctl: Any) -> None:
    printed = [json.loads(line) for line in rmqctl("formats", "misses", "-o", "jsonl").stdout.splitlines()]
    assert [(row["id"], row["sentence"], row["meaning"]) for row in printed] == [
        (miss.id, miss.sentence, miss.meaning) for miss in all_misses()
    ]
