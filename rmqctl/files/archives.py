"""Archives and compressed files, which people point at in the place of the store that is inside; and bundles, which are
opened there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import NotAStore
from rmqctl.files.tree import BUNDLE_MANIFEST, Tree, join
from rmqctl.text import shell_line

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
Unpacked = dict[tuple[str, int, int], str | None]
"""Where bundles were unpacked by this process, or one that it works for: by path, time and size of the file; None for a
file that is none.
"""
UNPACKED = Unpacked()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle, unpacked.

    Attributes:
        path: as it was given: what is in it is named below it.
        directory: where it lies unpacked; the path itself where it was given so.
        manifest: what it says of itself.
    """

    path: str
    directory: str
    manifest: Manifest

    @property
    def family(self) -> str:
        """The family of its store."""
        return str(self.manifest["family"])

    @property
    def roots(self) -> str:
        """Paths of the directories of its store, with commas between them."""
        roots = self.manifest["opens"]["roots"]
        return self.path if self._has_one_root else ",".join(self._named(name) for name in roots)

    @property
    def commit_log(self) -> tuple[str, ...]:
        """Paths of directories of a commit log outside of those."""
        return tuple(self._named(name) for name in self.manifest["opens"]["commit_log"])

    @property
    def broker_conf(self) -> str | None:
        """Where the settings lie that were given when it was made, None without."""
        name = self.manifest["opens"]["broker_conf"]
        return None if name is None else os.path.join(self.directory, name)

    def place(self, inside: str) -> str:
        """Return where a path in it lies on this machine: one in its store, or in another directory by its name."""
        opens, first = self.manifest["opens"], inside.partition("/")[0]
        if self._has_one_root and first not in opens["commit_log"]:
            inside = join(opens["roots"][0], inside) if inside else opens["roots"][0]
        return os.path.join(self.directory, inside) if inside else self.directory

    def why_not(self, inside: str) -> str:
        """Return why nothing of a file is in it that was in its store, or of a directory; "" for what is."""
        named = inside if self._has_one_root else inside.partition("/")[2]
        for row in self.manifest["left_out"]:
            if named == row["file"] or named.startswith(f"{row['file']}/"):
                return str(row["why"])
        return ""

    @property
    def _has_one_root(self) -> bool:
        return self.directory != self.path and len(self.manifest["opens"]["roots"]) == 1

    def _named(self, name: str) -> str:
        return os.path.join(self.path, name)


def bundle_at(path: str) -> tuple[Bundle, str] | None:
    """Return the bundle at a path, packed or unpacked, or that in which it lies, and the path inside, "" for all of it;
    None where none is. What is unpacked is one at its own path alone.

    What is packed is unpacked into a temporary directory, which goes when the process ends.

    Raises:
        NotAStore: it is one of another version, or it is damaged.
    """
    if os.path.isdir(path):
        found = _opened(path, path)
        return None if found is None else (found, "")
    packed = path.rstrip("/")
    while packed and not os.path.isfile(packed):
        packed = packed.rpartition("/")[0]
    directory = _directory_of(packed) if packed else None
    found = None if directory is None else _opened(directory, packed)
    return None if found is None else (found, path[len(packed) :].strip("/"))


def _directory_of(path: str) -> str | None:
    """Return where a bundle lies unpacked; None where the file is none."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_ZSTD)) != _ZSTD:
                return None
    except OSError:
        return None
    status = os.stat(path)
    key = os.path.realpath(path), status.st_mtime_ns, status.st_size
    if key not in UNPACKED:
        UNPACKED[key] = _unpacked(key[0])
    return UNPACKED[key]


def _opened(directory: str, path: str) -> Bundle | None:
    """Return what the manifest of an unpacked bundle says; None where the file is none, and where there is none.

    Raises:
        NotAStore: it is of another version.
    """
    import orjson

    try:
        manifest = orjson.loads(Path(directory, BUNDLE_MANIFEST).read_bytes())
        if manifest["kind"] != BUNDLE:
            return None
        version, _ = manifest["version"], manifest["opens"]
    except (ValueError, TypeError, KeyError, FileNotFoundError):
        return None
    if version != BUNDLE_VERSION:
        raise NotAStore(path, f"it is a bundle of version {version}", "a later rmqctl reads it")
    return Bundle(path, directory, manifest)


def _unpacked(path: str) -> str | None:
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
