"""Local files by positioned reads; holes of sparse files are skipped, not read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

_GONE = (errno.ESTALE, errno.ENXIO)
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not make us wait


class LocalFile:
    """A file of this machine.

    The descriptor is opened at the first read and kept; a file that is cut or deleted meanwhile
    reads short. A store has thousands of files, so :meth:`close` early.

    Raises:
        OSError: the file cannot be opened or read (no permission, I/O error).
    """

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        self.path = os.fspath(path)
        self.name = name or self.path
        self._fd: int | None = None

    def _descriptor(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, READ)
        return self._fd

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        fd, parts = self._descriptor(), []
        while size > 0 and (part := os.pread(fd, min(size, 1 << 30), offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        fd, done = self._descriptor(), 0
        while done < len(buffer) and (n := os.preadv(fd, [buffer[done:]], offset + done)):
            done += n
        return done

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        fd, end = self._descriptor(), min(end, self.size())
        while start < end:
            try:
                data = os.lseek(fd, start, os.SEEK_DATA)
                hole = os.lseek(fd, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno in _GONE:  # ENXIO: only a hole is left
                    return
                hole, data = end, start  # a file system that cannot tell
            if data >= end:
                return
            yield data, min(hole, end)
            start = hole

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __getstate__(self) -> tuple[str, str]:
        return self.path, self.name

    def __setstate__(self, state: tuple[str, str]) -> None:
        self.path, self.name = state
        self._fd = None
