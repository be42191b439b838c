"""Lines of JSON that prove themselves: each carries its number and the CRC-32 of its own text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any


def line_of(row: dict[str, Any], number: int) -> bytes:
    """A row as one line; its CRC is the last key."""
    text = json.dumps({**row, "line": number}, separators=(",", ":"), ensure_ascii=False)
    return f'{text[:-1]},"crc":{zlib.crc32(text.encode())}}}\n'.encode()


def rows_of(data: bytes) -> Iterator[dict[str, Any]]:
    """The rows of all lines up to the first that is cut, changed or out of order."""
    for number, line in enumerate(data.split(b"\n")):
        row = _row(line)
        if row is None or row.pop("line", None) != number:
            return
        yield row


def _row(line: bytes) -> dict[str, Any] | None:
    body, mark, crc = line.rpartition(b',"crc":')
    if not mark or not crc.endswith(b"}") or crc[:-1] != b"%d" % zlib.crc32(body + b"}"):
        return None
    row = json.loads(body + b"}")
    return row if isinstance(row, dict) else None
