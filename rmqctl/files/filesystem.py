"""Which file system a URL means, and its failures in this project's words.

fsspec knows most protocols and reads their settings from its configuration and from the environment
(``FSSPEC_S3_ENDPOINT_URL``, ``FSSPEC_S3_ANON``). Where the package that fsspec wants is not
installed, the file systems inside pyarrow are asked.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rmqctl.errors import IOFailure, MissingExtra, NotAStore, RmqctlError

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS = {"s3": ("s3", "s3fs"), "s3a": ("s3", "s3fs")}
_PIP_NAMES = {"smbclient": "smbprotocol"}
_ADVICE = {
    "NoCredentialsError": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or FSSPEC_S3_ANON=true for a public bucket",
    "EndpointConnectionError": "check the network, and FSSPEC_S3_ENDPOINT_URL if the store is not on AWS",
}


class MissingPackage(MissingExtra):
    """A file system needs a package that no extra of this project brings."""

    def __init__(self, purpose: str, package: str) -> None:
        RmqctlError.__init__(self, f"{purpose} needs the package {package}; type: pip install {package}")
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
    """Return the same from pyarrow, which brings some protocols along; S3 is left to s3fs and its settings."""
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
