"""The changes of a journal as rows, for people who want to know before they type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqctl.repair.changes import STORE, FileChange
from rmqctl.repair.journal import Journal


def change_rows(journal: Journal, *, after: bool) -> Iterator[dict[str, Any]]:
    """One row a file or directory that is driven to one side; sizes in bytes.

    Args:
        after: to the state after the plan, else to the one before it.
    """
    for file in journal.changes.files:
        target, origin = file.side(after=after), file.side(after=not after)
        yield {
            "file": file.name,
            "does": ", ".join(_does(file, after=after)),
            "size": origin.size if origin.place == STORE else None,
            "to_size": target.size if target.place == STORE else None,
            "bytes": sum(size for _, size, _ in file.payloads(after=after)),
            "mtime_ns": target.mtime_ns,
        }
    for directory in journal.changes.directories:
        does = "make the directory" if directory.side(after=after) else "remove the empty directory"
        yield {"file": f"{directory.name}/", "does": does, "size": None, "to_size": None, "bytes": 0}


def _does(file: FileChange, *, after: bool) -> Iterator[str]:
    target, origin = file.side(after=after), file.side(after=not after)
    if file.moves:
        yield f"bring in from {origin.place}" if target.place == STORE else f"move out to {target.place}"
    if target.size != origin.size:
        yield f"{'extend' if target.size > origin.size else 'cut'} to {target.size:,} bytes"
    places = sum(1 for _ in file.payloads(after=after))
    if places:
        yield f"write {places:,} {'piece' if places == 1 else 'pieces'}"
    if target.mtime_ns != origin.mtime_ns:
        yield "set the modification time"
