"""Changes as lines of a journal, and back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

from rmqctl.repair.changes import Changes, DirectoryChange, FileChange, Payload, Piece, Region, Side

INLINE = 64
"""Bytes up to which a piece stands in its line, in hex, for people to read."""
Store = Callable[[bytes], int]
"""Keeps bytes in the data of the journal and returns where."""


def rows_for(changes: Changes, keep: Callable[[Payload], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The lines behind the header, without the end."""
    yield from changes.steps
    for name, mtime_ns in changes.times:
        yield {"kind": "times", "name": name, "mtime_ns": mtime_ns}
    for d in changes.directories:
        yield {
            "kind": "directory",
            "name": d.name,
            "before": d.before,
            "after": d.after,
            "mode": d.mode,
            "owner": list(d.owner),
        }
    for file in changes.files:
        yield {
            "kind": "file",
            "name": file.name,
            "before": _side_row(file.before),
            "after": _side_row(file.after),
            "floor": file.floor,
        }
        for piece in file.pieces:
            yield {
                "kind": "bytes",
                "offset": piece.offset,
                "size": piece.size,
                "before": None if piece.before is None else keep(piece.before),
                "after": None if piece.after is None else keep(piece.after),
            }


def changes_of(rows: list[dict[str, Any]], root: str, data: str) -> Changes:
    """The changes that the lines of a journal describe.

    Args:
        root: where the store lies.
        data: path of the journal's data.
    """
    files: list[tuple[dict[str, Any], list[Piece]]] = []
    for row in rows:
        if row["kind"] == "file":
            files.append((row, []))
        elif row["kind"] == "bytes":
            files[-1][1].append(_piece(row, data))
    return Changes(
        root=root,
        lock=str(rows[0]["lock"]),
        title=str(rows[0]["title"]),
        steps=tuple(r for r in rows if r["kind"] == "step"),
        files=tuple(_file(row, pieces) for row, pieces in files),
        directories=tuple(
            DirectoryChange(r["name"], r["before"], r["after"], r["mode"], (r["owner"][0], r["owner"][1]))
            for r in rows
            if r["kind"] == "directory"
        ),
        times=tuple((r["name"], r["mtime_ns"]) for r in rows if r["kind"] == "times"),
    )


def inline_or_kept(data: bytes, store: Store) -> dict[str, Any]:
    """How a line names some bytes: themselves in hex, or where they lie in the data."""
    if len(data) <= INLINE:
        return {"hex": data.hex()}
    return {"at": store(data), "crc": zlib.crc32(data)}


def _side_row(side: Side) -> dict[str, Any]:
    return {"place": side.place, "size": side.size, "mtime_ns": side.mtime_ns}


def _file(row: dict[str, Any], pieces: list[Piece]) -> FileChange:
    before, after = Side(**row["before"]), Side(**row["after"])
    return FileChange(row["name"], before, after, row["floor"], tuple(pieces))


def _piece(row: dict[str, Any], data: str) -> Piece:
    size = row["size"]
    return Piece(row["offset"], size, _payload(row["before"], size, data), _payload(row["after"], size, data))


def _payload(known: dict[str, Any] | None, size: int, data: str) -> Payload | None:
    if known is None:
        return None
    return bytes.fromhex(known["hex"]) if "hex" in known else Region(data, known["at"], size, known["crc"])
