"""Reading many small pieces of few files: the file that was read last stays open."""

from __future__ import annotations

import os


class Reader:
    """Keeps one file open; :meth:`close` when done."""

    def __init__(self) -> None:
        self._path = ""
        self._fd = -1

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end.

        Raises:
            OSError: it cannot be read.
        """
        if path != self._path:
            self.close()
            self._fd, self._path = os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, ""

    def __del__(self) -> None:
        self.close()
