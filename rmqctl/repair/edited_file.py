"""Bytes under edits: one file, and a whole store as it would be with a plan carried out, both in memory.

Every later decision of a plan reads the store through the decisions before it, and the finished plan is
checked before a byte is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rmqctl.files.local import ByteSource, LocalFile, WrittenRanges
from rmqctl.files.tree import Entry, Tree, join, local_path
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Quarantine, SetTimes


class EditedFile:
    """The bytes of one file under edits, wherever those of the file itself come from.

    Attributes:
        base_size: bytes of the file that it starts from; zeros follow up to the size.
        size: bytes now; floor: the fewest it ever had, after which nothing of the file itself is left.
        written: bytes written over it.
    """

    def __init__(self, base_size: int, size: int) -> None:
        self.base_size = base_size
        self.size = self.floor = size
        self.written = WrittenRanges()

    def write(self, offset: int, data: bytes) -> None:
        """Write over what is there, or at the end."""
        self.written.put(offset, data)
        self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        """Cut the file, or make it longer by zeros."""
        self.written.clip(size)
        self.size, self.floor = size, min(self.floor, size)

    @property
    def kept(self) -> int:
        """Bytes of the file itself that still count, from its start."""
        return min(self.base_size, self.floor)

    def read(self, offset: int, size: int, base: Callable[[int, int], bytes]) -> bytes:
        """Bytes as they are now; less than asked for at the end of the file.

        Args:
            base: reads the file itself, at an offset so many bytes.
        """
        buffer = bytearray(max(min(size, self.size - offset), 0))
        below = max(min(offset + len(buffer), self.kept) - offset, 0)
        if below:
            data = base(offset, below)
            buffer[: len(data)] = data
        self.written.lay_over(offset, buffer)
        return bytes(buffer)


# --- a store with edits laid over it ----------------------------------------------------------------


class _Laid(EditedFile):
    """A file of such a store; a new one may be made from another file."""

    def __init__(self, base_size: int, size: int, source: Path | None = None, mtime_ms: int = 0) -> None:
        super().__init__(base_size, size)
        self.source, self.mtime_ms = source, mtime_ms


class OverlayFile:
    """One file with bytes laid over it."""

    def __init__(self, name: str, file: _Laid, source: ByteSource | None) -> None:
        self.name, self._file, self._source = name, file, source

    def size(self) -> int:
        return self._file.size

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size, self._below)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _below(self, offset: int, size: int) -> bytes:
        return b"" if self._source is None else self._source.read_at(offset, size)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self._file.size)
        found = [(max(low, start), min(high, end)) for low, high in self._file.written.spans(start, end)]
        if self._source is not None and start < self._file.kept:
            found += list(self._source.data_ranges(start, min(end, self._file.kept)))
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
        """Return the path on this machine of a directory, of what no edit touches, or of what a new file is made from.

        None for a remote tree.
        """
        made = self._state.files.get(self._full(path))
        if made is not None and made.source is not None and not made.written:
            return str(made.source)
        return local_path(self._below, self._full(path))

    def child(self, path: str) -> Overlay:
        return Overlay(self._below, prefix=self._full(path), state=self._state)

    def _full(self, path: str) -> str:
        return join(self._prefix, path) if path else self._prefix

    def _own(self, entry: Entry) -> Entry:
        if not self._prefix:
            return entry
        return entry._replace(path=entry.path[len(self._prefix) + 1 :])


class _State:
    """The edits so far, shared by an overlay and its children."""

    def __init__(self, below: Tree) -> None:
        self.below = below
        self.files: dict[str, _Laid] = {}
        self.gone: set[str] = set()
        self._names: dict[str, set[str]] = {}

    def apply(self, edit: Edit) -> None:
        if isinstance(edit, Create):
            under = edit.source.stat().st_size if edit.source is not None else 0
            size = max(under, len(edit.content)) if edit.size is None else edit.size
            self._lay(edit.file, made := _Laid(under, size, edit.source))
            made.write(0, edit.content)
        elif isinstance(edit, Quarantine):
            kept = {n: f for n, f in self.files.items() if not _is_in(n, edit.file)}
            if len(kept) < len(self.files):
                self.files, self._names = {}, {}
                for name, file in kept.items():
                    self._lay(name, file)
            self.gone.add(edit.file)
        else:
            self._change(self._file(edit.file), edit)

    def _change(self, file: _Laid, edit: Overwrite | Extend | Cut | SetTimes) -> None:
        if isinstance(edit, Overwrite):
            file.write(edit.offset, edit.after)
        elif isinstance(edit, Extend | Cut):
            file.resize(edit.to_size)
        else:
            file.mtime_ms = edit.mtime_ns // 1_000_000

    def _file(self, path: str) -> _Laid:
        if path not in self.files:
            entry = self.below.stat(path)
            size = entry.size if entry is not None else 0
            self._lay(path, _Laid(size, size, mtime_ms=entry.mtime_ms if entry else 0))
        return self.files[path]

    def _lay(self, path: str, file: _Laid) -> None:
        """Note a file, and under each directory above it the name through which it is reached."""
        self.files[path] = file
        while path:
            path, _, name = path.rpartition("/")
            self._names.setdefault(path, set()).add(name)

    def is_gone(self, path: str) -> bool:
        """Whether a path of the tree below was moved away, itself or a directory above it."""
        while path and self.gone:
            if path in self.gone:
                return True
            path = path.rpartition("/")[0]
        return False

    def stat(self, path: str) -> Entry | None:
        name = path.rpartition("/")[2]
        if path in self.files:
            file = self.files[path]
            return Entry(name, path, is_directory=False, size=file.size, mtime_ms=file.mtime_ms)
        if path in self._names:
            return Entry(name, path, is_directory=True, size=0)
        return None if self.is_gone(path) else self.below.stat(path)

    def entries(self, path: str, sizes: bool) -> list[Entry]:
        found = {e.name: e for e in self.below.entries(path, sizes=sizes)} if not self.is_gone(path) else {}
        found = {n: e for n, e in found.items() if not self.is_gone(e.path)}
        for name in self._names.get(path, ()):
            entry = self.stat(join(path, name))
            if entry is not None:
                found[name] = entry
        return sorted(found.values(), key=lambda e: e.name)

    def open(self, path: str) -> ByteSource:
        if path in self.files:
            file = self.files[path]
            if file.source is not None:
                return OverlayFile(path, file, LocalFile(str(file.source), path))
            return OverlayFile(path, file, self.below.open(path) if file.kept else None)
        if self.is_gone(path):
            raise FileNotFoundError(2, "moved into quarantine", path)
        return self.below.open(path)


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
