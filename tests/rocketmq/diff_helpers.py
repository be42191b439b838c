"""What tests share with test_diff: messages, offset_of, read, write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fixtures import golden


def messages(name: str) -> list[dict[str, Any]]:
    return [row for row in golden.truth(name) if row["kind"] == "msg"]


def write(root: Path, physical: int, data: bytes) -> None:
    files = sorted((root / "commitlog").iterdir())
    file = next(f for f in reversed(files) if int(f.name) <= physical)
    with file.open("r+b") as opened:
        opened.seek(physical - int(file.name))
        opened.write(data)


def offset_of(row: dict[str, Any]) -> int:
    return int(row["commitLogOffset"])


def read(root: Path, physical: int, size: int) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    file = next(f for f in reversed(files) if int(f.name) <= physical)
    with file.open("rb") as opened:
        opened.seek(physical - int(file.name))
        return opened.read(size)
