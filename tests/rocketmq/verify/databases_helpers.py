"""What tests share with test_databases: edit, found, marks_beyond, twin_rows, without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.rocketmq.rocksdb import queue_prefix

rocksdict = pytest.importorskip("rocksdict")


def edit(directory: Path, change: Callable[[Any], None]) -> None:
    """Change a database of a copy, as a broker would write it."""
    options = rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(str(directory), options), options)
    database = rocksdict.Rdict(str(directory), options=options, column_families=families)
    change(database)
    database.close()


def found(rmqctl: Any, root: Path, *, notes: bool = False) -> set[tuple[str, str]]:
    findings = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
    return {(f["id"], f["file"]) for f in findings if notes or f["severity"] != "note"}


def without(database: Any, family: str, number: int) -> None:
    """Take away a row of a timer or of a half message, by its place in the order of keys."""
    rows = database.get_column_family(family)
    del rows[[key for key in list(rows.keys()) if len(key) > 40][number]]


def marks_beyond(database: Any) -> None:
    for family in ("trans", "default"):
        rows = database.get_column_family(family) if family != "default" else database
        rows[b"lastOffsetPy"] = (1 << 40).to_bytes(8, "big")
    database.get_column_family("timer")[b"timeline_checkpoint"] = (1 << 50).to_bytes(8, "big")


def twin_rows(database: Any, part: str) -> None:
    """Take units of a queue that files have, too, or put units where files have none."""
    prefix = queue_prefix(b"CqOrders", 1)
    keys = [key for key in list(database.keys()) if key.startswith(prefix)]
    value = database[keys[-1]]
    for key in {"front": keys[:3], "queue": keys, "more": []}[part]:
        del database[key]
    if part == "more":
        database[prefix + (10_000).to_bytes(8, "big")] = value
        database[queue_prefix(b"CqOrders", 77) + bytes(8)] = value
