"""Files and directories of remote file systems, read by ranges: which file system a URL means, and its failures in this
project's words.

fsspec knows most protocols and reads their settings from its configuration and from the environment
(``FSSPEC_S3_ENDPOINT_URL``, ``FSSPEC_S3_ANON``). Where the package that fsspec wants is not
installed, the file systems inside pyarrow are asked.

A tree or a file is its URL and options, and travels between processes as such; the connection is
made when something is read. Where reads follow each other, 16 MiB are fetched at a time.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from rmqctl.errors import IOFailure, MissingExtra, NotAStore, RmqctlError
from rmqctl.files.local import ByteSource
from rmqctl.files.tree import Entry, LocalTree, Tree, join

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"s3": ("s3", "s3fs"), "s3a": ("s3", "s3fs")}
_PIP_NAMES = {"smbclient": "smbprotocol"}
_ADVICE = {
    "NoCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or FSSPEC_S3_ANON=true for a public bucket",
    "EndpointConnectionError": "check the network, and FSSPEC_S3_ENDPOINT_URL if the store is not on AWS",
}
READ_AHEAD = 16 << 20
"""Bytes fetched at once while a file is read from front to back."""
SMALLEST_READ = 64 << 10
"""Bytes fetched at once for a read here and there; a request costs more than they do."""
_MTIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")


class MissingPackage(MissingExtra):
    """A file system needs a package that no extra of this project brings."""

    def __init__(self, purpose: str, package: str) -> None:
        from rmqctl.installation import line_for_package

        RmqctlError.__init__(self, f"{purpose} needs the package {package}; type: {line_for_package(package)}")
        self.extra = ""


def is_url(path: str) -> bool:
    """Whether a path names a protocol: ``s3://...``, ``file://...``, ``simplecache::s3://...``."""
    return _URL.match(path) is not None


def split_url(url: str) -> tuple[str, str, str]:
    """Return what stands before the path of a URL, the path, and what stands after it in a chain of URLs.

    ``s3://bucket/store`` is ``("s3://", "bucket/store", "")``; the three put together give the URL.
    """
    first, chain, rest = url.partition("::")
    if "://" not in first:
        before, path, after = split_url(rest)
        return first + chain + before, path, after
    protocol, mark, path = first.partition("://")
    return protocol + mark, path, chain + rest


def join_url(url: str, path: str) -> str:
    """Return the URL of something below a directory."""
    before, root, after = split_url(url)
    return f"{before}{root.rstrip('/')}/{path}{after}" if path else url


def protocol_of(url: str) -> str:
    """Return the protocol of a URL, in small letters."""
    return split_url(url)[0].rpartition("://")[0].rpartition("::")[2].lower()


def connect(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it.

    Raises:
        MissingExtra: the package that speaks the protocol is not installed.
        NotAStore: nobody knows the protocol.
        IOFailure: the file system cannot be set up.
    """
    from fsspec.core import url_to_fs

    with asking(url):
        try:
            filesystem, path = url_to_fs(url, **options)
        except ImportError as error:
            return _from_pyarrow(url) or _missing(url, error)
        except ValueError as error:
            return _from_pyarrow(url) or _unknown(url, error)
    return filesystem, path.rstrip("/")


def _from_pyarrow(url: str) -> tuple[Any, str] | None:
    """Return file system and path by pyarrow, which has some protocols; S3 is left to s3fs and its settings."""
    if protocol_of(url) in _EXTRAS:
        return None
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        filesystem, path = FileSystem.from_uri(url)
    except (ArrowInvalid, NotImplementedError):
        return None
    return wrap(filesystem), path.rstrip("/")


def wrap(filesystem: Any) -> Any:
    """Return an fsspec file system as it is, one of pyarrow's wrapped in fsspec's interface."""
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import FileSystem

    return ArrowFSWrapper(filesystem) if isinstance(filesystem, FileSystem) else filesystem


def read_range(filesystem: Any, path: str, start: int, end: int) -> bytes:
    """Bytes ``[start, end)`` of a file, in one request."""
    arrow: Any = getattr(filesystem, "fs", None)
    if hasattr(arrow, "open_input_file"):  # fsspec would open pyarrow's files as streams, which cannot seek
        with arrow.open_input_file(path) as file:
            found: bytes = file.read_at(end - start, start)
            return found
    data: bytes = filesystem.cat_file(path, start=start, end=end)
    return data


def _missing(url: str, error: ImportError) -> tuple[Any, str]:
    protocol, cause = protocol_of(url), error.__cause__ or error.__context__
    purpose = f"reading {protocol}:// paths"
    if protocol in _EXTRAS:
        extra, package = _EXTRAS[protocol]
        raise MissingExtra(purpose, extra, package) from error
    module = (getattr(cause, "name", None) or error.name or f"for {protocol}").partition(".")[0]
    raise MissingPackage(purpose, _PIP_NAMES.get(module, module)) from error


def _unknown(url: str, error: ValueError) -> tuple[Any, str]:
    if "Protocol not known" not in str(error):
        raise error
    raise NotAStore(
        url, f"no file system is known for {protocol_of(url)}://", "give a local path, file://, s3://, gs:// or hdfs://"
    ) from error


@contextmanager
def asking(url: str) -> Iterator[None]:
    """Turn what a file system raises into an `OSError` that carries the URL, or into :class:`IOFailure`."""
    try:
        yield
    except RmqctlError:
        raise
    except OSError as error:
        raise _with_url(error, url) from error
    except Exception as error:
        kind = type(error).__name__
        raise IOFailure(f"cannot read {url}", f"{kind}: {error}", _ADVICE.get(kind, "")) from error


def _with_url(error: OSError, url: str) -> OSError:
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, _reason(error), url)
    return OSError(error.errno or errno.EIO, _reason(error), url)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).strip().rstrip(".")


# --- trees and files ---------------------------------------------------------------------------------


def open_tree(path: str, options: Mapping[str, Any] | None = None) -> Tree:
    """Return the directory of a local path or of a URL (``file://``, ``s3://``, whatever fsspec or pyarrow knows).

    Args:
        options: for the file system, as fsspec has them; its environment variables work as well.

    Nothing is read yet: that the directory is not there shows when it is listed.
    """
    if not is_url(path):
        return LocalTree(path, unpacked(path))
    if protocol_of(path) in {"file", "local"} and "::" not in path:
        return LocalTree(local_path(path))
    return RemoteTree(path, options)


def unpacked(path: str) -> str:
    """Return where a path leads, from other processes, too: to itself, as a URL does, but for a bundle and what is in
    one, which is unpacked.

    Raises:
        NotAStore: it is a bundle that cannot be unpacked.
    """
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return path
    except NotADirectoryError:
        pass  # a file in the place of a directory
    except (OSError, ValueError):
        return path
    from rmqctl.files.archives import bundle_at

    found = bundle_at(path)
    return path if found is None else found[0].place(found[1])


def local_path(url: str) -> str:
    """Return the path of a ``file://`` URL; percent signs are decoded only where the path as written is not there."""
    path = split_url(url)[1].removeprefix("localhost/")
    path = path if path.startswith("/") else f"/{path}"
    return path if os.path.exists(path) else unquote(path)


class _Location:
    """A URL, options, and the connection made of them on first use; pickles without the connection.

    A file system given as an object is kept, and pickled as it pickles itself.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, filesystem: Any = None) -> None:
        self.url, self.options, self.given = url, dict(options or {}), filesystem

    @cached_property
    def _connection(self) -> tuple[Any, str]:
        if self.given is not None:
            path = split_url(self.url)[1] if is_url(self.url) else self.url
            return wrap(self.given), path.rstrip("/")
        return connect(self.url, self.options)

    @property
    def filesystem(self) -> Any:
        return self._connection[0]

    def full(self, path: str) -> str:
        """Return a path as the file system wants it."""
        root = self._connection[1]
        return f"{root}/{path}" if path else root

    def below(self, path: str) -> str:
        """Return the URL of a path."""
        return join_url(self.url, path) if is_url(self.url) else join(self.url, path)

    def __getstate__(self) -> tuple[str, dict[str, Any], Any]:
        return self.url, self.options, self.given

    def __setstate__(self, state: tuple[str, dict[str, Any], Any]) -> None:
        self.url, self.options, self.given = state


class RemoteTree:
    """A directory of a remote file system.

    Args:
        url: the directory.
        options: for fsspec.
        filesystem: an fsspec or pyarrow file system to use instead of what the URL says.

    Raises (all methods):
        MissingExtra, NotAStore, IOFailure: see :func:`connect`.
        OSError: no permission, or the system failed; carries the URL.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, filesystem: Any = None) -> None:
        self.root = url
        self._at = _Location(url, options, filesystem)

    def entries(self, path: str, *, sizes: bool = True) -> list[Entry]:
        """Names in a directory, sorted; asked again each time."""
        filesystem, full = self._at.filesystem, self._at.full(path)
        with asking(self._at.below(path)):
            try:
                filesystem.invalidate_cache(full)
                found = filesystem.ls(full, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        entries = (_entry(info, path) for info in found if not _is_itself(info, full))
        return sorted(entries, key=lambda e: e.name)

    def stat(self, path: str) -> Entry | None:
        """Return what is known of one path; None when nothing is there."""
        with asking(self._at.below(path)):
            try:
                info = self._at.filesystem.info(self._at.full(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        entry = _entry(info, "")
        return Entry(path.rpartition("/")[2], path, entry.is_directory, entry.size, entry.mtime_ms)

    def open(self, path: str) -> ByteSource:
        """Return the bytes of one file."""
        return RemoteFile(self._at.below(path), self._at.options, self._at.given, name=path)

    def child(self, path: str) -> RemoteTree:
        """Return the tree below a directory of this one."""
        return RemoteTree(self._at.below(path), self._at.options, self._at.given)


def _is_itself(info: Mapping[str, Any], full: str) -> bool:
    """Whether an entry of a listing is the directory itself: a marker object of S3, or a file that was listed."""
    return str(info["name"]).strip("/") == full.strip("/")


def _entry(info: Mapping[str, Any], directory: str) -> Entry:
    name = str(info["name"]).rstrip("/").rpartition("/")[2]
    size = info.get("size")
    return Entry(
        name, join(directory, name), info.get("type") == "directory", -1 if size is None else int(size), _mtime(info)
    )


def _mtime(info: Mapping[str, Any]) -> int:
    """Epoch milliseconds of the last modification, 0 where the file system does not say."""
    for key in _MTIMES:
        value = info.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
    return 0


class RemoteFile:
    """A file of a remote file system; not for several threads at once.

    Its length is that of the last call of :meth:`size`; reads stop there.

    Raises (all methods):
        MissingExtra, NotAStore, IOFailure: see :func:`connect`.
        OSError: the file is not there, may not be read, or the system failed; carries the URL.
    """

    def __init__(
        self, url: str, options: Mapping[str, Any] | None = None, filesystem: Any = None, *, name: str | None = None
    ) -> None:
        self.url, self.name = url, name or url
        self._at = _Location(url, options, filesystem)
        self._size: int | None = None
        self._start, self._data = 0, b""

    def size(self) -> int:
        """Bytes in the file; from the second call on the file system is asked again."""
        filesystem, full = self._at.filesystem, self._at.full("")
        with asking(self.url):
            if self._size is not None:
                filesystem.invalidate_cache(full.rpartition("/")[0])
            size = filesystem.info(full).get("size")
        if size is None:
            raise IOFailure(f"cannot read {self.url}", "the server does not say its length")
        self._size = int(size)
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        length = self.size() if self._size is None else self._size
        end = min(offset + size, length)
        if end <= offset:
            return b""
        have = self._start + len(self._data)
        if not self._start <= offset <= end <= have:
            self._fetch(offset, end, length, have)
        return self._data[offset - self._start : end - self._start]

    def _fetch(self, offset: int, end: int, length: int, have: int) -> None:
        """Make the buffer hold ``[offset, end)`` as far as it is there, and more where reads follow each other."""
        if self._data and self._start <= offset <= have:
            kept = self._data[offset - self._start :]
            self._data = kept + self._range(have, min(max(end, have + READ_AHEAD), length))
        else:
            self._data = self._range(offset, min(max(end, offset + SMALLEST_READ), length))
        self._start = offset

    def _range(self, start: int, end: int) -> bytes:
        with asking(self.url):
            try:
                return read_range(self._at.filesystem, self._at.full(""), start, end)
            except (FileNotFoundError, PermissionError):
                raise
            except OSError:
                if start < self.size():  # otherwise the file was cut since, and the range lies after its end
                    raise
                return b""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        piece = self.read_at(offset, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the whole range: no remote file system reports its holes."""
        end = min(end, self.size() if self._size is None else self._size)
        if start < end:
            yield start, end

    def close(self) -> None:
        """Drop what was fetched; the connection is shared and stays."""
        self._start, self._data = 0, b""

    def __getstate__(self) -> tuple[str, str, _Location]:
        return self.url, self.name, self._at

    def __setstate__(self, state: tuple[str, str, _Location]) -> None:
        self.url, self.name, self._at = state
        self._size, self._start, self._data = None, 0, b""
