"""What a watch keeps of stores: where it is in them, and what it found; in a file it outlives the process."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rmqctl.answer import Row
from rmqctl.errors import WrongUsage
from rmqctl.files.new_files import sync_names
from rmqctl.text import json_bytes, raw

KIND, VERSION = "watch-state", 1
Key = tuple[str, str, int]
"""Id, file and offset of a finding."""


@dataclass(slots=True)
class Found:
    """A finding that is remembered.

    Attributes:
        row: as `verify` gives it; part: in which it was found.
        since: epoch ms of the first time; cycle: number of the last one in which it was seen.
    """

    row: Row
    part: str
    since: int
    cycle: int


@dataclass(slots=True)
class StoreMemory:
    """What is remembered of a store.

    Attributes:
        cycle: number of the cycle that is under way, or comes next; the first is 1.
        began: epoch ms of its begin, 0 where it has not begun.
        done: names of the parts that it has looked at.
        read: bytes that it has read.
        last: epoch ms of the end of the last cycle that went through all parts, 0 without one.
        found: findings by what they are and where.
    """

    cycle: int = 1
    began: int = 0
    done: list[str] = field(default_factory=list)
    read: int = 0
    last: int = 0
    found: dict[Key, Found] = field(default_factory=dict)


class Memory:
    """What is remembered of all stores, by their roots.

    Args:
        path: of the file that keeps it; None: it ends with the process.

    Raises:
        WrongUsage: the file is there and is no such file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.stores: dict[str, StoreMemory] = {}
        if path is not None and path.exists():
            try:
                document = orjson.loads(path.read_bytes())
                if (document["kind"], document["version"]) != (KIND, VERSION):
                    raise ValueError
                self.stores = {root: _read(one) for root, one in document["stores"].items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                reason = f"{path} is no state of a watch of this release; give another file, or delete it."
                raise WrongUsage("--state", reason) from None

    def of(self, root: str) -> StoreMemory:
        """Return what is remembered of a store."""
        return self.stores.setdefault(root, StoreMemory())

    def save(self) -> None:
        """Write the file, whole or not at all; nothing without a path."""
        if self.path is None:
            return
        stores = {root: _written(one) for root, one in self.stores.items()}
        data = json_bytes({"kind": KIND, "version": VERSION, "stores": stores})
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            sync_names([self.path])
        finally:
            beside.unlink(missing_ok=True)


def _read(document: dict[str, Any]) -> StoreMemory:
    found = {}
    for one in document.pop("found"):
        row = one["row"]
        found[key_of(row)] = Found(row, one["part"], one["since"], one["cycle"])
    return StoreMemory(**document, found=found)


def _written(memory: StoreMemory) -> Row:
    found = [{"row": f.row, "part": f.part, "since": f.since, "cycle": f.cycle} for f in memory.found.values()]
    names = ("cycle", "began", "done", "read", "last")
    return {**{name: getattr(memory, name) for name in names}, "found": found}


def key_of(row: Row) -> Key:
    """Return what a finding is and where."""
    file = row["file"]
    if not isinstance(file, str):  # a name that is no UTF-8, as JSON has kept it
        file = raw(file).decode("utf-8", "surrogateescape")
    return row["id"], file, row["offset"]
