"""The archive of a bundle: a tar of version PAX with sparse files (GNU format 1.0), compressed by Zstandard."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from rmqctl.errors import Refused
from rmqctl.files.local import data_extents

_BLOCK = 512
_LEVEL = 12


def write_archive(directory: Path, out: Path, first: str, max_size: int | None) -> None:
    """Pack all that lies in a directory.

    Args:
        first: the name of the file that comes first.
        max_size: bytes of the archive at most.

    Raises:
        Refused: it needs more.
    """
    with out.open("wb") as file:
        limited = _Limited(file, max_size)
        with (
            zstandard.ZstdCompressor(level=_LEVEL).stream_writer(cast(BinaryIO, limited), closefd=False) as stream,
            tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            _add(archive, directory / first, first)
            for path in sorted(directory.rglob("*")):
                name = path.relative_to(directory).as_posix()
                if name != first:
                    _add(archive, path, name)


class _Limited:
    """A file that may not grow beyond a size."""

    def __init__(self, file: BinaryIO, most: int | None) -> None:
        self._file, self._left, self._most = file, most, most

    def write(self, data: bytes) -> int:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise Refused(
                    f"the bundle needs more than the {self._most:,} bytes of --max-size; nothing was written; give it "
                    "more, or leave out --bodies"
                )
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    status = path.stat()
    seconds, parts = divmod(status.st_mtime_ns, 1_000_000_000)
    info.mtime, info.pax_headers = seconds, {"mtime": f"{seconds}.{parts:09}"}
    if path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
        return
    with path.open("rb") as file:
        extents = list(data_extents(file.fileno(), 0, status.st_size))
        if sum(size for _, size in extents) == status.st_size:
            info.size = status.st_size
            file.seek(0)
            archive.addfile(info, file)
            return
        extents.append((status.st_size, 0))
        head = _map(extents)
        info.name = f"GNUSparseFile.0/{name}"
        info.pax_headers |= {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": name,
            "GNU.sparse.realsize": str(status.st_size),
        }
        info.size = len(head) + sum(size for _, size in extents)
        archive.addfile(info, cast(BinaryIO, io.BufferedReader(_Pieces(head, file.fileno(), extents))))


def _map(extents: list[tuple[int, int]]) -> bytes:
    """Return the map of a sparse file: how many extents, then offset and size of each, a decimal number a line."""
    numbers = [len(extents), *(number for extent in extents for number in extent)]
    text = "".join(f"{number}\n" for number in numbers).encode()
    return text.ljust(-(-len(text) // _BLOCK) * _BLOCK, b"\0")


class _Pieces(io.RawIOBase):
    """A map, then the extents of a file."""

    def __init__(self, head: bytes, fd: int, extents: list[tuple[int, int]]) -> None:
        self._pieces = self._read(head, fd, extents)
        self._rest = b""

    @staticmethod
    def _read(head: bytes, fd: int, extents: list[tuple[int, int]]) -> Iterator[bytes]:
        yield head
        for at, size in extents:
            if size:
                yield os.pread(fd, size, at)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        piece, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
