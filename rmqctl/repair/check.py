"""Is the store as a journal left it, as it was before, or between the two?"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator

from rmqctl.repair.changes import PIECE, STORE, FileChange, Piece, load
from rmqctl.repair.drive import outside, where
from rmqctl.repair.journal import Journal


def differences(journal: Journal, *, after: bool) -> list[str]:
    """Files and directories that are not as the journal has them on one side, a sentence each.

    Held against it: place, size, modification time and every byte that the journal changes.

    Raises:
        OSError: a file cannot be read.
    """
    return list(_differences(journal, after=after))


def strange(journal: Journal) -> list[str]:
    """Files that are neither before, nor after, nor anywhere between: somebody else changed them."""
    return [f"{file.name}: {why}" for file in journal.changes.files for why in _strange(journal, file)]


def _differences(journal: Journal, *, after: bool) -> Iterator[str]:
    changes = journal.changes
    inside = {f.name for f in changes.files if f.side(after=after).place == STORE}
    for file in changes.files:
        for why in _differs(journal, file, after=after):
            yield f"{file.name}: {why}"
            break
        if file.name not in inside and os.path.lexists(changes.path(file.name)):
            yield f"{file.name}: is there again"
            inside.add(file.name)
    for directory in changes.directories:
        if os.path.isdir(changes.path(directory.name)) != directory.side(after=after):
            yield f"{directory.name}/: is {'gone' if directory.side(after=after) else 'there again'}"


def _differs(journal: Journal, file: FileChange, *, after: bool) -> Iterator[str]:
    side = file.side(after=after)
    path = journal.changes.path(file.name) if side.place == STORE else outside(journal, file)
    if not os.path.lexists(path):
        yield "is gone" if side.place == STORE else f"is gone from {path}"
        return
    found = os.lstat(path) if file.moves else os.stat(path)
    if found.st_size != side.size:
        yield f"has {found.st_size:,} bytes, not {side.size:,}"
        return
    yield from _other_bytes(path, file, after=after)
    if found.st_mtime_ns != side.mtime_ns:
        yield "was written to since (its modification time is another)"


def _other_bytes(path: str, file: FileChange, *, after: bool) -> Iterator[str]:
    if not file.pieces:
        return
    with open(path, "rb", buffering=0) as opened:
        for offset, size, payload in file.payloads(after=after):
            if os.pread(opened.fileno(), size, offset) != load(payload):
                yield f"other bytes at {offset:,} than the journal knows"


def _strange(journal: Journal, file: FileChange) -> Iterator[str]:
    path = where(journal, file)
    if not os.path.lexists(path):
        if not any(os.path.lexists(p + ".rmqctl-part") for p in (path, outside(journal, file))):
            yield "is gone"
        return
    size = (os.lstat(path) if file.moves else os.stat(path)).st_size
    if size not in {file.before.size, file.after.size, file.floor}:
        yield f"has {size:,} bytes, neither {file.before.size:,} nor {file.after.size:,}"
        return
    if not file.pieces:
        return
    with open(path, "rb", buffering=0) as opened:
        for piece in file.pieces:
            data = os.pread(opened.fileno(), piece.size, piece.offset)
            if not is_between(data, _known(file, piece)):
                yield f"bytes at {piece.offset:,} that the journal does not know"
                return


def _known(file: FileChange, piece: Piece) -> list[bytes]:
    """What may lie at the place of a piece."""
    if piece.offset < file.floor:
        return [load(p) for p in (piece.before, piece.after) if p is not None]
    sides = [bytearray(piece.size), bytearray(piece.size)]  # behind the floor pieces of one side overlap the other's
    low = bisect_left(file.pieces, piece.offset - PIECE, key=lambda p: p.offset)
    high = bisect_left(file.pieces, piece.offset + piece.size, key=lambda p: p.offset)
    for other in file.pieces[low:high]:
        for side, payload in zip(sides, (other.before, other.after), strict=True):
            if payload is not None and other.offset >= file.floor:
                _lay(side, piece.offset, other.offset, load(payload))
    return [bytes(sides[0]), bytes(sides[1]), bytes(piece.size)]


def _lay(buffer: bytearray, start: int, offset: int, data: bytes) -> None:
    """Put bytes that lie at `offset` over a buffer that begins at `start`, where they overlap."""
    low, high = max(start, offset), min(start + len(buffer), offset + len(data))
    if low < high:
        buffer[low - start : high - start] = data[low - offset : high - offset]


def is_between(data: bytes, known: list[bytes]) -> bool:
    """Whether each byte is that of one of the known ones at its place: a write may have been broken off anywhere."""
    if any(data == one[: len(data)] for one in known):
        return True
    return all(byte in choices for byte, *choices in zip(data, *known, strict=False))
