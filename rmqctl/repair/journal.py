"""The journal of one run: what it changes, with all bytes to go on or to go back, and how far it has come.

A directory beside the store::

    store.rmqctl-journal/0001/
      journal.jsonl   what is changed: a header, the plan's steps, the files, their pieces, an end
      data            bytes of pieces too long for a line
      state.jsonl     how far it has come, a line a step
      after.jsonl     size and time of every file of the store when it was done
      new/            files that the plan makes, until they enter the store
      quarantine/     files that left it

Every line and every piece carries a CRC-32. The journal is complete before the store's first byte changes; until
then its directory is called ``0001.rmqctl-part``.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rmqctl.errors import Refused
from rmqctl.files.writing import FileLayer
from rmqctl.repair.edits import ChangedBytes, Changes, DirectoryChange, FileChange, Payload, Region, Side
from rmqctl.repair.journal_directory import (
    DATA,
    DONE,
    JOURNAL,
    READY,
    STATE,
    SUFFIX,
    UNDONE,
    header_of,
    journals_in,
    line_of,
    root_of,
    rows_of,
    states,
)

# --- changes as lines of a journal ------------------------------------------------------------------


INLINE = 64
"""Bytes up to which a piece stands in its line, in hex, for people to read."""
Store = Callable[[bytes], int]
"""Keeps bytes in the data of the journal and returns where."""


def rows_for(changes: Changes, keep: Callable[[Payload], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the lines after the header, without the end."""
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
    """Return the changes that the lines of a journal describe.

    Args:
        root: where the store lies.
        data: path of the journal's data.
    """
    files: list[tuple[dict[str, Any], list[ChangedBytes]]] = []
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


def _file(row: dict[str, Any], pieces: list[ChangedBytes]) -> FileChange:
    before, after = Side(**row["before"]), Side(**row["after"])
    return FileChange(row["name"], before, after, row["floor"], tuple(pieces))


def _piece(row: dict[str, Any], data: str) -> ChangedBytes:
    size = row["size"]
    return ChangedBytes(row["offset"], size, _payload(row["before"], size, data), _payload(row["after"], size, data))


def _payload(known: dict[str, Any] | None, size: int, data: str) -> Payload | None:
    if known is None:
        return None
    return bytes.fromhex(known["hex"]) if "hex" in known else Region(data, known["at"], size, known["crc"])


# --- the journal of one run -------------------------------------------------------------------------


@dataclass
class Journal:
    """A journal that is there, read.

    Attributes:
        path: its directory, absolute.
        header: the first line.
        changes: what it carries out; its store is where it lies now.
    """

    path: Path
    header: dict[str, Any]
    changes: Changes

    @property
    def base(self) -> Path:
        """The directory of journals; places of moved files are relative to it."""
        return self.path.parent

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def title(self) -> str:
        return self.changes.title

    @property
    def reverses(self) -> Path | None:
        """The journal that this one takes back."""
        name = self.header.get("reverses")
        return self.base / name if name else None

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        return states(self.path)

    @property
    def state(self) -> str:
        """How far it has come, one of the states of this module."""
        return next((str(row["state"]) for row in reversed(self._lines) if "state" in row), READY)

    @property
    def undone_by(self) -> str:
        """Name of the journal that took this one back, or ""."""
        return str(self._lines[-1].get("by", "")) if self.state == UNDONE else ""

    @property
    def last(self) -> dict[str, Any]:
        """The last line of its state."""
        return self._lines[-1] if self._lines else {}

    @property
    def outside(self) -> tuple[str, ...]:
        """Directories outside the store that the user let it change."""
        return tuple(map(str, self.header.get("outside") or ()))

    def say(self, layer: FileLayer, **row: Any) -> None:
        """Add a line to its state, on the disk before anything else happens."""
        row["time"] = time.time_ns() // 1_000_000
        append(layer, self.path / STATE, row, self._lines)


def note_reversed(path: Path, layer: FileLayer, *, in_force: bool) -> None:
    """Note in the journal that this one takes back whether it still holds, and so on down the line.

    Args:
        in_force: whether the changes of the journal at `path` are in the store now.
    """
    header = header_of(path)
    earlier = path.parent / str(header.get("reverses"))
    if not header.get("reverses") or not (earlier / STATE).exists():
        return
    lines = states(earlier)
    wanted = {"state": UNDONE, "by": path.name} if in_force else {"state": DONE}
    if not lines or any(lines[-1].get(key) != value for key, value in wanted.items()):
        append(layer, earlier / STATE, {**wanted, "time": time.time_ns() // 1_000_000}, lines)
    note_reversed(earlier, layer, in_force=not in_force)


def append(layer: FileLayer, path: Path, row: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Put a line after the last that is whole; what a kill left of another one is cut off first."""
    end = sum(len(line_of(known, number)) for number, known in enumerate(lines))
    with layer.edit(str(path)) as file:
        if file.size() != end:
            file.truncate(end)
        file.write(line_of(row, len(lines)), end)
        file.sync()
    lines.append(row)


def read_journal(path: Path) -> Journal:
    """Read a journal and find its store.

    Raises:
        Refused: it is none, it is cut or changed, or it belongs to another store than the one beside it.
    """
    path = Path(os.path.realpath(path))
    try:
        data = (path / JOURNAL).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(f"{path} is no journal: no {JOURNAL} in it; give a directory such as {_example(path)}") from None
    rows = list(rows_of(data))
    if not rows or rows[0].get("kind") != "rmqctl-journal":
        raise Refused(f"{path} is no journal of rmqctl: its first line is damaged or of another program")
    if rows[0].get("version") != 1:
        raise Refused(f"{path} was written by a newer rmqctl (version {rows[0].get('version')}); use that one")
    if rows[-1].get("kind") != "end" or data.count(b"\n") != len(rows):
        raise Refused(
            f"{path} is cut or damaged: of {JOURNAL} only the first {len(rows):,} lines are whole; "
            "restore it from a copy, or keep the store as it is"
        )
    try:
        _check_data(path, rows[-1])
        return Journal(path, rows[0], changes_of(rows, root_of(path, rows[0]), str(path / DATA)))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{path} is no journal that rmqctl wrote: {type(error).__name__} {error}") from None


def _check_data(path: Path, end: dict[str, Any]) -> None:
    """Hold the size of the data to what the journal says; the CRCs are checked when pieces are read."""
    wanted = int(end["data_size"])
    found = os.path.getsize(path / DATA) if (path / DATA).exists() else 0
    if found != wanted:
        raise Refused(
            f"{path} is cut: {DATA} has {found:,} bytes and should have {wanted:,}; "
            "restore it from a copy, or keep the store as it is"
        )


def _example(path: Path) -> Path:
    inner = journals_in(path)
    return inner[-1] if inner else Path(f"store{SUFFIX}") / "0001"
