"""A store as it would be with a plan carried out: the same tree, with the edits laid over it in memory.

Every later decision of a plan reads the store through the decisions before it, and the finished plan is
checked before a byte is written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqctl.files.local import ByteSource, LocalFile
from rmqctl.files.tree import Entry, Tree, join, local_path
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Quarantine, SetTimes


@dataclass(slots=True)
class _File:
    """What edits made of one file.

    Attributes:
        under: bytes of the file below, or of the one that a new file is made from, that still count, from its start.
        source: what a new file is made from.
        size: bytes now.
        pieces: bytes laid over, by where they start; ascending, never overlapping.
    """

    under: int
    size: int
    source: Path | None = None
    mtime_ms: int = 0
    starts: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    def put(self, offset: int, data: bytes) -> None:
        """Lay bytes over, cutting what they cover."""
        if not data:
            return
        end = offset + len(data)
        first = max(bisect_right(self.starts, offset) - 1, 0)
        last = bisect_left(self.starts, end)
        kept: list[tuple[int, bytes]] = []
        for at, piece in zip(self.starts[first:last], self.pieces[first:last], strict=True):
            if at < offset:
                kept.append((at, piece[: offset - at]))
            if at + len(piece) > end:
                kept.append((end, piece[end - at :]))
        kept = sorted([*(k for k in kept if k[1]), (offset, data)])
        self.starts[first:last] = [at for at, _ in kept]
        self.pieces[first:last] = [piece for _, piece in kept]

    def cut(self, size: int) -> None:
        """End the file at ``size``."""
        self.under, self.size = min(self.under, size), size
        if self.starts:
            self.starts, old = [], list(zip(self.starts, self.pieces, strict=True))
            self.pieces = []
            for at, piece in old:
                if at < size:
                    self.starts.append(at)
                    self.pieces.append(piece[: size - at])


class OverlayFile:
    """One file with bytes laid over it."""

    def __init__(self, name: str, file: _File, source: ByteSource | None) -> None:
        self.name, self._file, self._source = name, file, source

    def size(self) -> int:
        return self._file.size

    def read_at(self, offset: int, size: int) -> bytes:
        size = max(min(size, self._file.size - offset), 0)
        buffer = bytearray(size)
        self._fill(offset, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        size = max(min(len(buffer), self._file.size - offset), 0)
        buffer[:size] = bytes(size)
        self._fill(offset, buffer[:size])
        return size

    def _fill(self, offset: int, buffer: memoryview) -> None:
        file, end = self._file, offset + len(buffer)
        below = max(min(end, file.under) - offset, 0)
        if below and self._source is not None:
            data = self._source.read_at(offset, below)
            buffer[: len(data)] = data
        at = max(bisect_right(file.starts, offset) - 1, 0)
        while at < len(file.starts) and file.starts[at] < end:
            start, piece = file.starts[at], file.pieces[at]
            low, high = max(start, offset), min(start + len(piece), end)
            if low < high:
                buffer[low - offset : high - offset] = piece[low - start : high - start]
            at += 1

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self._file.size)
        found = [
            (max(s, start), min(s + len(p), end)) for s, p in zip(self._file.starts, self._file.pieces, strict=True)
        ]
        if self._source is not None and start < self._file.under:
            found += list(self._source.data_ranges(start, min(end, self._file.under)))
        low = high = -1
        for a, b in sorted(r for r in found if r[0] < r[1]):
            if a > high:
                if low < high:
                    yield low, high
                low, high = a, b
            high = max(high, b)
        if low < high:
            yield low, high

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


class Overlay:
    """A tree with edits laid over it; implements :class:`~rmqctl.files.tree.Tree`.

    Args:
        below: the tree as it is.
        edits: laid over in order; more by :meth:`apply`.
    """

    def __init__(
        self, below: Tree, edits: Iterable[Edit] = (), *, prefix: str = "", state: _State | None = None
    ) -> None:
        self._below, self._prefix = below, prefix
        self._state = state if state is not None else _State(below)
        self.root = below.root if not prefix else f"{below.root}/{prefix}"
        self.apply(edits)

    def apply(self, edits: Iterable[Edit]) -> None:
        """Lay further edits over; their file names are relative to the root of the whole tree."""
        for edit in edits:
            self._state.apply(edit)

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        return [self._own(e) for e in self._state.entries(self._full(path), sizes)]

    def stat(self, path: str) -> Entry | None:
        found = self._state.stat(self._full(path))
        return None if found is None else self._own(found)

    def open(self, path: str) -> ByteSource:
        return self._state.open(self._full(path))

    def full(self, path: str) -> str | None:
        """The path on this machine of a directory, of what no edit touches, or of what a new file is made from.

        None for a remote tree.
        """
        made = self._state.files.get(self._full(path))
        if made is not None and made.source is not None and not made.starts:
            return str(made.source)
        return local_path(self._below, self._full(path))

    def child(self, path: str) -> Overlay:
        return Overlay(self._below, prefix=self._full(path), state=self._state)

    def _full(self, path: str) -> str:
        return join(self._prefix, path) if path else self._prefix

    def _own(self, entry: Entry) -> Entry:
        if not self._prefix:
            return entry
        return replace(entry, path=entry.path[len(self._prefix) + 1 :])


class _State:
    """The edits so far, shared by an overlay and its children."""

    def __init__(self, below: Tree) -> None:
        self.below = below
        self.files: dict[str, _File] = {}
        self.gone: set[str] = set()

    def apply(self, edit: Edit) -> None:
        if isinstance(edit, Create):
            under = edit.source.stat().st_size if edit.source is not None else 0
            size = max(under, len(edit.content)) if edit.size is None else edit.size
            self.files[edit.file] = made = _File(under, size, edit.source)
            made.put(0, edit.content)
        elif isinstance(edit, Quarantine):
            self.files = {n: f for n, f in self.files.items() if not _is_in(n, edit.file)}
            self.gone.add(edit.file)
        else:
            self._change(self._file(edit.file), edit)

    def _change(self, file: _File, edit: Overwrite | Extend | Cut | SetTimes) -> None:
        if isinstance(edit, Overwrite):
            file.put(edit.offset, edit.after)
            file.size = max(file.size, edit.offset + len(edit.after))
        elif isinstance(edit, Extend):
            file.size = edit.to_size
        elif isinstance(edit, Cut):
            file.cut(edit.to_size)
        else:
            file.mtime_ms = edit.mtime_ns // 1_000_000

    def _file(self, path: str) -> _File:
        if path not in self.files:
            entry = self.below.stat(path)
            size = entry.size if entry is not None else 0
            self.files[path] = _File(size, size, mtime_ms=entry.mtime_ms if entry else 0)
        return self.files[path]

    def is_gone(self, path: str) -> bool:
        """Whether a path of the tree below was moved away, itself or a directory above it."""
        return any(_is_in(path, gone) for gone in self.gone)

    def stat(self, path: str) -> Entry | None:
        name = path.rpartition("/")[2]
        if path in self.files:
            file = self.files[path]
            return Entry(name, path, is_directory=False, size=file.size, mtime_ms=file.mtime_ms)
        if any(_is_in(made, path) and made != path for made in self.files):
            return Entry(name, path, is_directory=True, size=0)
        return None if self.is_gone(path) else self.below.stat(path)

    def entries(self, path: str, sizes: bool) -> list[Entry]:
        found = {e.name: e for e in self.below.entries(path, sizes=sizes)} if not self.is_gone(path) else {}
        found = {n: e for n, e in found.items() if not self.is_gone(e.path)}
        start = f"{path}/" if path else ""
        for made in self.files:
            if made.startswith(start):
                name = made[len(start) :].partition("/")[0]
                entry = self.stat(join(path, name))
                if entry is not None:
                    found[name] = entry
        return sorted(found.values(), key=lambda e: e.name)

    def open(self, path: str) -> ByteSource:
        if path in self.files:
            file = self.files[path]
            if file.source is not None:
                return OverlayFile(path, file, LocalFile(str(file.source), path))
            return OverlayFile(path, file, self.below.open(path) if file.under else None)
        if self.is_gone(path):
            raise FileNotFoundError(2, "moved into quarantine", path)
        return self.below.open(path)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
