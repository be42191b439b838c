"""Standard output as a place for bytes: large writes, each kind of failure by its name, never text encoding."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import BinaryIO

from commands import _progress
from commands._guard import output_failure
from rmqctl.errors import IOFailure

BATCH_BYTES = 1 << 18
BATCH_SECONDS = 0.1


def write(data: bytes) -> None:
    """Write ``data`` to stdout and flush it.

    Raises:
        IOFailure: the disk that stdout goes to is full, or stdout is closed.
        BrokenPipeError: the reader has gone.
    """
    if not data:
        return
    _progress.make_way()
    stream = _stream()
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise output_failure(error) from error


def write_text(lines: Iterable[str | None]) -> int:
    """Write lines of text as UTF-8 in large pieces; None asks to write what is held. Returns the number of lines."""
    count = 0
    with batch() as add:
        for line in lines:
            if line is None:
                add(None)
            else:
                add(f"{line}\n".encode(errors="backslashreplace"))
                count += 1
    return count


class Batch:
    """Gathers pieces and writes them when they are many or old; ``None`` means: write what you have."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._due = monotonic() + BATCH_SECONDS

    def __call__(self, piece: bytes | None) -> None:
        if piece is not None:
            self._pieces.append(piece)
            self._bytes += len(piece)
            if self._bytes < BATCH_BYTES and monotonic() < self._due:
                return
        self.flush()

    def flush(self) -> None:
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        write(b"".join(pieces))
        self._due = monotonic() + BATCH_SECONDS


@contextmanager
def batch() -> Iterator[Batch]:
    """Give a :class:`Batch` that is flushed at the end, also when the rows stop with an error."""
    gathered = Batch()
    try:
        yield gathered
    finally:
        gathered.flush()


def _stream() -> BinaryIO:
    if sys.stdout is None:
        raise IOFailure("cannot write the results to standard output", "it is closed", "redirect it to a file")
    sys.stdout.flush()
    return sys.stdout.buffer
