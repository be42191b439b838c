"""Where results are written: a directory here or at a URL, whole files only."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

import orjson

from rmqctl.errors import IOFailure, Refused
from rmqctl.files.new_files import sync_names, sync_path
from rmqctl.files.remote import asking, connect, is_url, join_url
from rmqctl.pipeline.export_manifest import DATA, DONE, MANIFEST, OWNER, ExportedFile

_PARTIAL = ".partial"


class Output(Protocol):
    """A directory to write into; names are relative to it, with ``/``. Travels to executors.

    Attributes:
        prefix: of the names of directories in which exports lie.
    """

    prefix: str

    def shown(self, name: str = "") -> str:
        """Return the path of a name, for messages."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing is there, or an empty directory."""
        ...

    def create(self, name: str) -> Any:
        """Return a context that gives a stream to write; the file is there when the context ends well, and whole."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a small file, None where there is none."""
        ...

    def names(self, directory: str) -> list[str]:
        """Names of the files right below a directory."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file; -1 where there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Have a small file with this content, at once."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file or a directory with all in it, if it is there."""
        ...

    def clear(self, kept: Collection[str]) -> None:
        """Delete the directories of exports but these."""
        ...

    def alone(self) -> AbstractContextManager[Callable[[], None]]:
        """No other export at work here, as long as the context lasts; it gives a function that raises :class:`Refused`
        where another took the place meanwhile.

        Raises:
            Refused: another export is at work.
        """
        ...

    def kept(self, files: Sequence[ExportedFile], directory: str) -> list[ExportedFile]:
        """Return the files of the last export as those of the next one, whose own are in ``directory``."""
        ...

    def publish(self, directory: str, manifest: bytes, files: Collection[str]) -> None:
        """Make the manifest the export's, by one switch: until then readers see what was there before, all of it.

        Args:
            files: all that the manifest names.

        Raises:
            IOFailure: one of those in ``directory`` is not there.
        """
        ...


def output_at(path: str) -> Output:
    """Return the directory at a local path or a URL."""
    return RemoteOutput(path) if is_url(path) else LocalOutput(os.path.abspath(path))


class LocalOutput:
    """A directory of this machine, or of a file system that all executors mount.

    The files of an export lie in `.data-N-...`, with their manifest. `data` is a link to the directory of the newest,
    and `_manifest.json` one to the manifest in there: to replace the link `data` is the switch, for those who go by the
    manifest as well as for those who list directories.
    """

    prefix = f".{DATA}-"

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def shown(self, name: str = "") -> str:
        return os.fspath(self.root / name)

    def is_empty(self) -> bool:
        return not self.root.exists() or (
            self.root.is_dir() and all(entry.suffix == _PARTIAL for entry in self.root.iterdir())
        )

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.parent / f"_{uuid4().hex}{_PARTIAL}"
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(entry.name for entry in (self.root / directory).iterdir() if entry.is_file())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, name: str) -> int:
        try:
            return (self.root / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return -1

    def write(self, name: str, data: bytes) -> None:
        with self.create(name) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_path(path.parent)

    def clear(self, kept: Collection[str]) -> None:
        for entry in list(self.root.iterdir()):
            is_ours = entry.name.startswith(self.prefix) or (entry.name.startswith("_") and entry.suffix == _PARTIAL)
            if is_ours and entry.name not in kept:
                self.remove(entry.name)

    @contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        missing = [directory for directory in (self.root, *self.root.parents) if not directory.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        sync_names(missing)
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise Refused(f"another export is at work in {self.root}; wait for its end") from None
            yield lambda: None
        finally:
            os.close(descriptor)

    def kept(self, files: Sequence[ExportedFile], directory: str) -> list[ExportedFile]:
        found = []
        for file in files:
            own = f"{directory}/{file.path.partition('/')[2]}"
            target = self.root / own
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            try:
                os.link(self.root / file.path, target)
            except OSError:  # a file system without links
                shutil.copy2(self.root / file.path, target)
                sync_path(target)
            found.append(replace(file, path=own))
        return found

    def publish(self, directory: str, manifest: bytes, files: Collection[str]) -> None:
        home = self.root / directory
        home.mkdir(parents=True, exist_ok=True)
        found = sorted(home.rglob("*"), reverse=True)
        _check_all_there(self, directory, files, {f"{directory}/{path.relative_to(home).as_posix()}" for path in found})
        for path in found:
            name = f"{directory}/{path.relative_to(home).as_posix()}"
            if path.is_file() and name not in files and path.parent != home / DONE:
                path.unlink()
        self.write(f"{directory}/{MANIFEST}", manifest)
        for path in (*filter(Path.is_dir, home.rglob("*")), home):
            sync_path(path)
        self._link(MANIFEST, f"{DATA}/{MANIFEST}")
        self._link(DATA, directory)  # the switch
        self.remove(f"{directory}/{DONE}")

    def _link(self, name: str, target: str) -> None:
        """Have a symbolic link, in place of another at once."""
        made = self.root / f"{self.prefix}link-{uuid4().hex}"
        made.symlink_to(target)
        made.replace(self.root / name)
        sync_path(self.root)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose export is at work."""

    token: str
    host: str
    pid: int
    since: str

    @property
    def is_over(self) -> bool:
        """Whether it was of a process of this machine that is no more."""
        if self.host != platform.node():
            return False
        if self.pid == os.getpid():
            return self.token not in _held
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


_held: set[str] = set()  # tokens of the exports at work in this process


def _check_all_there(output: Output, directory: str, files: Iterable[str], there: Container[str]) -> None:
    """Refuse to call files an export that are no longer there."""
    for name in files:
        if name.startswith(f"{directory}/") and name not in there:
            raise lost(output.shown(name))


def lost(shown: str) -> IOFailure:
    """Return the error of something that a task of an export has written, and that is not there when it is needed."""
    return IOFailure(
        f"cannot read {shown}",
        "it was written by a task of this export and is gone",
        "somebody cleared the directory; give the command again",
    )


class RemoteOutput:
    """A directory of a remote file system, through fsspec; an object appears when its upload is complete.

    The files of an export lie in `data-N-...`. Writing the manifest is the switch: nothing can be renamed there, so
    readers have to go by the manifest while an export is under way.
    """

    prefix = f"{DATA}-"

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def _at(self, name: str) -> tuple[Any, str]:
        filesystem, root = connect(self.url, {})
        return filesystem, f"{root}/{name}" if name else root

    def shown(self, name: str = "") -> str:
        return join_url(self.url, name)

    def is_empty(self) -> bool:
        filesystem, path = self._at("")
        with asking(self.url):
            try:
                names = [str(name).rpartition("/")[2] for name in filesystem.ls(path, detail=False)]
            except FileNotFoundError:
                return True
        return all(name == OWNER for name in names)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            stream = filesystem.open(path, "wb")
        try:
            yield stream
        except BaseException:
            getattr(stream, "discard", stream.close)()
            raise
        with asking(self.shown(name)):
            stream.close()

    def read(self, name: str) -> bytes | None:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            try:
                data: bytes = filesystem.cat_file(path)
            except FileNotFoundError:
                return None
        return data

    def names(self, directory: str) -> list[str]:
        filesystem, path = self._at(directory)
        with asking(self.shown(directory)):
            filesystem.invalidate_cache(path)
            try:
                found = filesystem.ls(path, detail=True)
            except FileNotFoundError:
                return []
        return sorted(str(entry["name"]).rpartition("/")[2] for entry in found if entry.get("type") == "file")

    def size(self, name: str) -> int:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            try:
                return int(filesystem.info(path)["size"])
            except FileNotFoundError:
                return -1

    def write(self, name: str, data: bytes) -> None:
        with self.create(name) as stream:
            stream.write(data)

    def clear(self, kept: Collection[str]) -> None:
        filesystem, path = self._at("")
        with asking(self.url):
            filesystem.invalidate_cache(path)
            try:
                found = [str(name).rstrip("/").rpartition("/")[2] for name in filesystem.ls(path, detail=False)]
            except FileNotFoundError:
                return
        for name in found:
            if name.startswith(self.prefix) and name not in kept:
                self.remove(name)

    @contextmanager
    def alone(self) -> Iterator[Callable[[], None]]:
        """See :meth:`Output.alone`: who creates the object with the owner's name owns the place; there is none else to
        be asked. One that a process of this machine left which no longer runs is taken over.
        """
        mine = _Owner(uuid4().hex, platform.node(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
        self._own(mine)
        _held.add(mine.token)
        try:
            yield lambda: self._check_owner(mine)
        finally:
            _held.discard(mine.token)
            if self._owner() == mine:
                self.remove(OWNER)

    def _own(self, mine: _Owner) -> None:
        there = self._owner()
        if there is not None and there.is_over:
            self.remove(OWNER)
        filesystem, path = self._at(OWNER)
        try:
            filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            filesystem.pipe_file(path, orjson.dumps(asdict(mine)), mode="create")
        except OSError:  # a file system calls what is there already by several names
            if self._owner() is None:
                with asking(self.shown(OWNER)):
                    raise
        self._check_owner(mine)

    def _check_owner(self, mine: _Owner) -> None:
        there = self._owner()
        if there is None:
            raise Refused(f"{self.shown(OWNER)} is gone: somebody took {self.url} over; give the command again")
        if there != mine:
            raise Refused(
                f"another export is at work in {self.url}, since {there.since} on {there.host}, process {there.pid}; "
                f"wait for its end, or delete {self.shown(OWNER)} if it was killed"
            )

    def _owner(self) -> _Owner | None:
        raw = self.read(OWNER)
        try:
            return None if raw is None else _Owner(**orjson.loads(raw))
        except (ValueError, TypeError):
            raise Refused(f"{self.shown(OWNER)} cannot be read; delete it if no export is at work") from None

    def kept(self, files: Sequence[ExportedFile], directory: str) -> list[ExportedFile]:
        return list(files)

    def publish(self, directory: str, manifest: bytes, files: Collection[str]) -> None:
        filesystem, path = self._at(directory)
        with asking(self.shown(directory)):
            filesystem.invalidate_cache(path)
            there = {
                f"{directory}/{str(found).removeprefix(path.rstrip('/')).lstrip('/')}": found
                for found in filesystem.find(path)
            }
            _check_all_there(self, directory, files, there)
            for name, found in there.items():
                if name not in files and not name.startswith(f"{directory}/{DONE}/"):
                    filesystem.rm_file(found)
        self.write(MANIFEST, manifest)  # the switch
        self.remove(f"{directory}/{DONE}")

    def remove(self, name: str) -> None:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            try:
                filesystem.rm(path, recursive=True)
            except FileNotFoundError:
                pass
