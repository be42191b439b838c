"""Stores on object storage and other file systems, through fsspec: ``s3://``, ``file://``, ``memory://``, ...

Credentials and endpoints come from where the file system itself looks (environment, config files)
and from fsspec's own configuration, such as ``FSSPEC_S3_ENDPOINT_URL``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rmqctl.errors import IOFailure, MissingExtra
from rmqctl.files.tree import Entry, join

_READ_AHEAD = 16 << 20
_EXTRAS = {"s3": "s3", "s3a": "s3"}


def is_url(path: str) -> bool:
    """Whether a path names a file system, like ``s3://bucket/store``."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme.replace("+", "").isalnum()


def remote_tree(url: str) -> RemoteTree:
    """The tree at a URL.

    Raises:
        MissingExtra: the package for this kind of URL is not installed.
        IOFailure: fsspec does not know the kind of URL.
    """
    return RemoteTree(url)


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec

    scheme = url.partition("://")[0]
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        if extra is None:
            raise IOFailure(f"cannot open {url}", str(error), "install the package it names") from error
        raise MissingExtra(f"reading {scheme}:// paths", extra) from error
    except ValueError as error:
        raise IOFailure(f"cannot open {url}", str(error), "use a path or a URL that fsspec knows, like s3://") from error
    return fs, path.rstrip("/")


class RemoteTree:
    """A directory tree of any fsspec file system; travels between processes as its URL."""

    def __init__(self, url: str) -> None:
        self.root = url
        self._fs, self._path = _filesystem(url)

    def __reduce__(self) -> tuple[type[RemoteTree], tuple[str]]:
        return RemoteTree, (self.root,)

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        try:
            found = self._fs.ls(self._full(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        own = self._full(path).rstrip("/")
        entries = [_entry(info, path) for info in found if info["name"].rstrip("/") != own]
        return sorted((e for e in entries if e.name), key=lambda e: e.name)

    def stat(self, path: str) -> Entry | None:
        try:
            return _entry(self._fs.info(self._full(path)), path.rpartition("/")[0])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> RemoteFile:
        return RemoteFile(self, path)

    def child(self, path: str) -> RemoteTree:
        return RemoteTree(join(self.root.rstrip("/"), path))

    def _full(self, path: str) -> str:
        return join(self._path, path) if path else self._path

    def fetch(self, path: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)`` of a file; fewer at its end."""
        data: bytes = self._fs.cat_file(self._full(path), start=start, end=end) if end > start else b""
        return data


def _entry(info: dict[str, Any], path: str) -> Entry:
    name = info["name"].rstrip("/").rpartition("/")[2]
    modified = info.get("LastModified") or info.get("mtime") or info.get("created") or 0
    stamp = modified.timestamp() if isinstance(modified, datetime) else modified if isinstance(modified, (int, float)) else 0
    return Entry(name, join(path, name), info["type"] == "directory", info.get("size") or 0, int(stamp * 1000))


class RemoteFile:
    """A remote file read by ranges, with 16 MiB of read-ahead while the reads are in order."""

    def __init__(self, tree: RemoteTree, path: str) -> None:
        self.name, self._tree, self._path = path, tree, path
        self._size: int | None = None
        self._held = b""
        self._at = 0

    def __reduce__(self) -> tuple[type[RemoteFile], tuple[RemoteTree, str]]:
        return RemoteFile, (self._tree, self._path)

    def size(self) -> int:
        entry = self._tree.stat(self._path)
        if entry is None:
            raise FileNotFoundError(2, "no such file", self._path)
        self._size = entry.size
        return entry.size

    def read_at(self, offset: int, size: int) -> bytes:
        limit = self.size() if self._size is None else self._size
        end = min(offset + max(size, 0), limit)
        if offset >= end:
            return b""
        if not self._at <= offset <= end <= self._at + len(self._held):
            ahead = _READ_AHEAD if self._at <= offset <= self._at + len(self._held) or size >= 1 << 20 else size
            self._held = self._tree.fetch(self._path, offset, min(max(end, offset + ahead), limit))
            self._at = offset
        return self._held[offset - self._at : end - self._at]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self.size() if self._size is None else self._size)
        if start < end:
            yield start, end

    def close(self) -> None:
        self._held, self._size = b"", None
