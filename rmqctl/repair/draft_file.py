"""One file while a plan is gone through: its bytes as they would be after the edits so far."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rmqctl.repair.changes import PIECE, STORE, FileChange, Payload, Piece, Region, Side
from rmqctl.repair.extents import data_extents
from rmqctl.repair.reader import Reader
from rmqctl.repair.runs import Runs


class DraftFile:
    """A file that a plan edits, moves or makes.

    Attributes:
        base: the file whose bytes it starts from, or its first bytes themselves.
        base_size: how many of them count; zeros follow up to the size.
        was_at, is_at: place before and place now, see `Side`.
    """

    def __init__(
        self, name: str, base: str | bytes, base_size: int, size: int, mtime_ns: int, was_at: str, reader: Reader
    ) -> None:
        self.name, self.base, self.base_size = name, base, base_size
        self.was_at = self.is_at = was_at
        self.first_size = self.size = self.floor = size
        self.first_mtime = self.mtime_ns = mtime_ns
        self.is_link = was_at == STORE and isinstance(base, str) and Path(base).is_symlink()
        self._runs, self._reader = Runs(), reader

    def read(self, offset: int, size: int) -> bytes:
        """Bytes as they are now; less than asked for at the end of the file."""
        size = max(min(size, self.size - offset), 0)
        buffer = bytearray(self.base_bytes(offset, max(min(size, self.floor - offset), 0)).ljust(size, b"\0"))
        self._runs.lay_over(offset, buffer)
        return bytes(buffer)

    def write(self, offset: int, data: bytes) -> None:
        self._runs.put(offset, data)

    def resize(self, size: int) -> None:
        self.floor = min(self.floor, size)
        self.size = size
        self._runs.clip(size)

    def move_link(self) -> bool:
        """From now on the link itself is meant, not the file that it leads to; False if that was changed."""
        if self._runs or self.size != self.first_size or self.mtime_ns != self.first_mtime:
            return False
        found = os.lstat(str(self.base))
        self.first_size = self.size = self.floor = self.base_size = found.st_size
        self.first_mtime = self.mtime_ns = found.st_mtime_ns
        return True

    def touched(self) -> list[tuple[int, int]]:
        """Begin and end of the stretches whose bytes change or come or go, ascending."""
        ranges = [(start, start + len(run)) for start, run in self._runs]
        if self.floor < max(self.first_size, self.size):
            ranges = [r for r in ranges if r[0] < self.floor]
            ranges.append((self.floor, max(self.first_size, self.size)))
        return ranges

    def change(self) -> FileChange:
        """What has become of it."""
        before = Side(self.was_at, self.first_size, self.first_mtime)
        after = Side(self.is_at, self.size, self.mtime_ns)
        pieces = tuple(sorted(self._pieces(), key=lambda p: p.offset))
        return FileChange(self.name, before, after, self.floor, pieces, self._content())

    def _content(self) -> Payload | None:
        if self.was_at == STORE:
            return None
        return self.base if isinstance(self.base, bytes) else Region(self.base, 0, self.base_size)

    def _pieces(self) -> Iterator[Piece]:
        for start, run in self._runs:
            for at in range(start, start + len(run), PIECE):
                data = run[at - start : at - start + PIECE]
                kept = max(min(len(data), self.floor - at), 0)
                if kept:
                    yield Piece(at, kept, self.base_bytes(at, kept), data[:kept])
                if kept < len(data):
                    yield Piece(at + kept, len(data) - kept, None, data[kept:])
        yield from self._lost()

    def _lost(self) -> Iterator[Piece]:
        """What the file held behind the shortest that it was."""
        end = min(self.first_size, self.base_size)
        if isinstance(self.base, bytes):
            for at in range(self.floor, end, PIECE):
                data = self.base[at : min(at + PIECE, end)]
                yield Piece(at, len(data), data, None)
        elif self.floor < end:
            with open(self.base, "rb", buffering=0) as file:
                for at, size in data_extents(file.fileno(), self.floor, end):
                    yield Piece(at, size, Region(self.base, at, size), None)

    def base_bytes(self, offset: int, size: int) -> bytes:
        """Bytes before every edit; zeros behind them."""
        wanted = max(min(size, self.base_size - offset), 0)
        if isinstance(self.base, bytes):
            data = self.base[offset : offset + wanted]
        elif wanted:
            data = self._reader.read(self.base, offset, wanted)
        else:
            data = b""
        return data.ljust(size, b"\0")
