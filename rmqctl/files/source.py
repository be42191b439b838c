"""The one interface behind which files lie: a size, and bytes at an offset.

Reads are positioned and may come back short: a file that shrinks or vanishes while it is read
gives fewer bytes, never a signal. (A memory map of such a file would kill the process.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ByteSource(Protocol):
    """A file that can be read at any offset."""

    @property
    def name(self) -> str:
        """What to call the file in messages: its path as the user gave it."""
        ...

    def size(self) -> int:
        """Bytes in the file now; a growing file gives a larger number later."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file, empty behind it."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``offset``; return the number of bytes that were there."""
        ...

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Parts of ``[start, end)`` that may hold something but zeros, ascending."""
        ...

    def close(self) -> None:
        """Release what the source holds; reading afterwards is an error."""
        ...


class BytesSource:
    """Bytes in memory behind the same interface, for tests and for records taken out of other formats."""

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self._data = data
        self.name = name

    def size(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + max(size, 0)]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        piece = self.read_at(offset, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, len(self._data))
        if start < end:
            yield start, end

    def close(self) -> None:
        pass
