"""Archives and compressed files, which people point at in the place of the store that is inside; and bundles, which are
opened there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import NotAStore
from rmqctl.files.tree import BUNDLE_MANIFEST, Tree
from rmqctl.shell import shell_line

if TYPE_CHECKING:
    import tarfile
    from tempfile import TemporaryDirectory

_ZSTD = b"\x28\xb5\x2f\xfd"
_MAGICS = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (_ZSTD, "zstd"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)
_TAR_AT = 257


def unpacking(tree: Tree, name: str, path: str) -> tuple[str, str] | None:
    """Return what a packed file is and what to do about it; None where it is none.

    Args:
        path: as the user names the file.
    """
    source = tree.open(name)
    try:
        head = source.read_at(0, _TAR_AT + 5)
    finally:
        source.close()
    kind = next((kind for magic, kind in _MAGICS if head.startswith(magic)), "")
    if not kind and head[_TAR_AT:] != b"ustar":
        return None
    how = "unzip -d DIR" if kind == "zip" else "mkdir DIR && tar -C DIR -xf"
    what = f"it is packed ({kind or 'tar'})"
    return what, f"unpack it into a directory and give that: {how} {shell_line(path)}"


# --- bundles --------------------------------------------------------------------------------------------


Manifest = Mapping[str, Any]
BUNDLE, BUNDLE_VERSION = "rmqctl-bundle", 1
PATHS: dict[str, str] = {}
"""Of each bundle that was unpacked: where its store lies, before the directory around that; and its own path."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle, unpacked.

    Attributes:
        path: the directories of its store, with commas between them.
        commit_log: directories of a commit log outside of those.
        broker_conf: settings that were given when it was made, None without.
        family: of the store.
    """

    path: str
    commit_log: tuple[str, ...]
    broker_conf: str | None
    family: str
    manifest: Manifest


def bundle_at(path: str) -> Bundle | None:
    """Return the bundle at a path, packed or unpacked; None where none lies there.

    What is packed is unpacked into a temporary directory, which goes when the process ends.

    Raises:
        NotAStore: it is one of another version, or it is damaged.
    """
    if os.path.isfile(os.path.join(path, BUNDLE_MANIFEST)):
        return _opened(path, path)
    try:
        with open(path, "rb") as file:
            is_packed = file.read(len(_ZSTD)) == _ZSTD
    except OSError:
        return None
    if not is_packed:
        return None
    status = os.stat(path)
    directory = _unpacked(os.path.realpath(path), status.st_mtime_ns, status.st_size)
    if directory is None:
        return None
    found = _opened(directory, path)
    if found is not None:
        PATHS.update({found.path: path, directory: path})
    return found


def _opened(directory: str, path: str) -> Bundle | None:
    """Return what the manifest of an unpacked bundle says; None where the file is none.

    Raises:
        NotAStore: it is of another version.
    """
    import orjson

    try:
        manifest = orjson.loads(Path(directory, BUNDLE_MANIFEST).read_bytes())
        if manifest["kind"] != BUNDLE:
            return None
        version, opens = manifest["version"], manifest["opens"]
    except (ValueError, TypeError, KeyError):
        return None
    if version != BUNDLE_VERSION:
        raise NotAStore(path, f"it is a bundle of version {version}", "a later rmqctl reads it")

    def inside(name: str) -> str:
        return os.path.join(directory, name)

    conf = opens["broker_conf"]
    return Bundle(
        ",".join(map(inside, opens["roots"])),
        tuple(map(inside, opens["commit_log"])),
        None if conf is None else inside(conf),
        manifest["family"],
        manifest,
    )


@lru_cache(8)
def _unpacked(path: str, mtime_ns: int, size: int) -> str | None:  # noqa: ARG001 - another file has others of these
    """Unpack a bundle, holes and times kept; None where the archive is none.

    Raises:
        NotAStore: it ends early, or is damaged.
    """
    import tarfile
    from tempfile import TemporaryDirectory

    import zstandard

    with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        try:
            archive = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115 - the stream is closed, which is all there is
            first = archive.next()
        except (tarfile.TarError, zstandard.ZstdError):
            return None
        if first is None or first.name != BUNDLE_MANIFEST:
            return None
        directory = TemporaryDirectory(prefix="rmqctl-bundle-")
        _DIRECTORIES.append(directory)
        trust: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # 3.11.2 has none
        try:
            member: tarfile.TarInfo | None = first
            while member is not None:
                if not _is_inside(member):
                    raise NotAStore(path, f"it holds {member.name!r}, which is in no bundle", "make the bundle again")
                archive.extract(member, directory.name, **trust)
                if (mtime := _MTIME.fullmatch(member.pax_headers.get("mtime", ""))) is not None:
                    exact = int(mtime[1] + mtime[2])  # tarfile has it as a float
                    os.utime(os.path.join(directory.name, member.name), ns=(exact, exact), follow_symlinks=False)
                member = archive.next()
        except (tarfile.TarError, zstandard.ZstdError, EOFError, OverflowError) as error:
            raise NotAStore(path, f"it is a bundle that cannot be unpacked: {error}", "copy it again") from error
    return directory.name


def _is_inside(member: tarfile.TarInfo) -> bool:
    """Whether a member is a file or a directory whose name leads to no place outside of the archive."""
    parts = member.name.split("/")
    return (member.isreg() or member.isdir()) and not member.name.startswith("/") and ".." not in parts


_MTIME = re.compile(r"([0-9]{1,10})\.([0-9]{9})")
_DIRECTORIES: list[TemporaryDirectory[str]] = []
"""Of unpacked bundles: each goes with its object, at the end of the process."""
