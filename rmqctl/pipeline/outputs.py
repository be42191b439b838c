"""Where results are written: a directory here or at a URL, whole files only."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol
from uuid import uuid4

import orjson
import pyarrow as pa

from rmqctl.errors import IOFailure, Refused
from rmqctl.files.new_files import exchange_paths, sync_names, sync_path
from rmqctl.files.remote import asking, connect, is_url, join_url
from rmqctl.pipeline.export_manifest import DATA, DONE, MANIFEST, OWNER, ExportedFile, ExportLayout, Manifest

_PARTIAL = ".partial"
_STAGED = ".staged"
_RETIRED = "old"


class Output(Protocol):
    """A directory to write into; names are relative to it, with ``/``. Travels to executors.

    Attributes:
        prefix: of the names of directories in which exports lie.
        evolves: whether an export may go on with other columns.
    """

    prefix: str
    evolves: ClassVar[bool]

    def shown(self, name: str = "") -> str:
        """Return the path of a name, for messages."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing is there, or an empty directory."""
        ...

    def staged(self, name: str) -> str:
        """Return what a file of an export is called until it is published: nothing that a pattern for files of its
        format matches, where files can be renamed.
        """
        ...

    def create(self, name: str) -> Any:
        """Return a context that gives a stream to write; the file is there when the context ends well, and whole."""
        ...

    def open(self, name: str) -> Any:
        """Return a file to read."""
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

    def claim(self, name: str, data: bytes) -> bool:
        """Have a small file with this content where none is, at once; False where one is there, which stays."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file or a directory with all in it, if it is there."""
        ...

    def fitted(self, layout: ExportLayout, schema: pa.Schema) -> ExportLayout:
        """Return a layout as the files here need it, before anything is read.

        Args:
            schema: all columns that tasks have for it.

        Raises:
            Refused: it does not go with what is here.
        """
        ...

    def clear(self, before: Manifest | None, directory: str = "") -> None:
        """Delete what is left of exports that were broken off or replaced: all but the files of the export that is
        there, and a directory.
        """
        ...

    def alone(self) -> AbstractContextManager[Callable[[], None]]:
        """No other export at work here, as long as the context lasts; it gives a function that raises :class:`Refused`
        where another took the place meanwhile.

        Raises:
            Refused: another export is at work.
        """
        ...

    def manifest(self) -> Manifest | None:
        """Return the manifest of the export that is here.

        Raises:
            Refused: it cannot be read.
        """
        ...

    def doubt(self) -> str:
        """Return why nobody can tell whether the rows of that export are all here; empty where they are."""
        ...

    def publish(self, plan: Manifest, kept: Sequence[ExportedFile], new: Sequence[ExportedFile]) -> Manifest:
        """Make a plan the export, by one switch: until then readers see what was there before, all of it.

        Args:
            kept: files of the last export that stay.
            new: files in the plan's directory.

        Returns: the plan with all files as they are called now.

        Raises:
            IOFailure: one of those in the plan's directory is not there.
        """
        ...


def read_manifest(output: Output, name: str = MANIFEST) -> Manifest | None:
    """Return the manifest in an output, None where there is none.

    Raises:
        Refused: it cannot be read.
    """
    raw = output.read(name)
    return None if raw is None else Manifest.load(raw, output.shown(name))


def output_at(path: str) -> Output:
    """Return the directory at a local path or a URL."""
    return RemoteOutput(path) if is_url(path) else LocalOutput(os.path.abspath(path))


class LocalOutput:
    """A directory of this machine, or of a file system that all executors mount.

    The files of an export are written in `.data-N-...`, by names that no pattern for its format matches, with their
    manifest. Then they get their names, and that directory and `data` are exchanged: that is the switch, for those who
    go by the manifest, to which `_manifest.json` is a link, as well as for those who list directories or use patterns.
    """

    prefix = f".{DATA}-"
    evolves: ClassVar[bool] = False

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

    def staged(self, name: str) -> str:
        return f"{name}{_STAGED}"

    def open(self, name: str) -> BinaryIO:
        return (self.root / name).open("rb")

    def manifest(self) -> Manifest | None:
        data = f"{self.prefix}{_RETIRED}" if self._is_between() else DATA
        return read_manifest(self, f"{data}/{MANIFEST}") or read_manifest(self)

    def doubt(self) -> str:
        """Return nothing: whoever takes away files here harms the export."""
        return ""

    def _is_between(self) -> bool:
        """Whether the last export was killed between the two steps of a switch, where directories cannot be
        exchanged.
        """
        return not os.path.lexists(self.root / DATA) and (self.root / f"{self.prefix}{_RETIRED}").is_dir()

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

    def claim(self, name: str, data: bytes) -> bool:
        target = self.root / name
        made = target.parent / f"_{uuid4().hex}{_PARTIAL}"
        self.write(made.relative_to(self.root).as_posix(), data)
        try:
            os.link(made, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without links; who writes here is alone
            if target.exists():
                return False
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
        sync_path(target.parent)
        return True

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_path(path.parent)

    def fitted(self, layout: ExportLayout, schema: pa.Schema) -> ExportLayout:
        """Return the layout: files replace each other whatever theirs is."""
        return layout

    def clear(self, before: Manifest | None, directory: str = "") -> None:
        self._check_own(before)
        kept = {directory, *_directories(before)}
        for entry in list(self.root.iterdir()):
            is_ours = entry.name.startswith(self.prefix) or (entry.name.startswith("_") and entry.suffix == _PARTIAL)
            if is_ours and entry.name not in kept:
                self.remove(entry.name)
        if (self.root / DATA / DONE).is_dir():
            self.remove(f"{DATA}/{DONE}")

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
            if self._is_between():
                (self.root / f"{self.prefix}{_RETIRED}").rename(self.root / DATA)
                sync_path(self.root)
            yield lambda: None
        finally:
            os.close(descriptor)

    def publish(self, plan: Manifest, kept: Sequence[ExportedFile], new: Sequence[ExportedFile]) -> Manifest:
        home = self.root / plan.directory
        home.mkdir(parents=True, exist_ok=True)
        named = {_within(file.path): file for file in (*kept, *new)}
        self._check_all_there(home, set(named), [_within(file.path) for file in new])
        for file in kept:
            if not (home / _within(file.path)).exists():
                self._keep(file, home / self.staged(_within(file.path)))
        whole = plan.of([replace(file, path=f"{DATA}/{name}") for name, file in named.items()])
        self.write(f"{plan.directory}/{MANIFEST}", whole.dump())
        if not (self.root / MANIFEST).is_symlink():
            self._link(MANIFEST, f"{DATA}/{MANIFEST}")
        for name in named:
            if (home / self.staged(name)).exists():
                (home / self.staged(name)).replace(home / name)
        for path in (*filter(Path.is_dir, home.rglob("*")), home):
            sync_path(path)
        self._switch(home)
        self.remove(plan.directory)
        self.remove(f"{DATA}/{DONE}")
        return whole

    def _check_own(self, before: Manifest | None) -> None:
        """Hold what lies in `data`, which the next switch puts away, to what the export there has written.

        Raises:
            Refused: there is something else.
        """
        home, own = self.root / DATA, {MANIFEST, *(_within(file.path) for file in (before.files if before else ()))}
        for path in home.rglob("*"):
            name = path.relative_to(home).as_posix()
            if name not in own and not name.startswith(f"{DONE}/") and (path.is_symlink() or not path.is_dir()):
                raise Refused(f"no export wrote {path}, and the next one would delete it; move it somewhere else")

    def _check_all_there(self, home: Path, named: set[str], new: Sequence[str]) -> None:
        """Delete from a directory of an export what is none of its files.

        Raises:
            IOFailure: one of them is not there.
        """
        there = {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()}
        for name in new:
            if not {name, self.staged(name)} & there:
                raise lost(os.fspath(home / name))
        for name in there - named - set(map(self.staged, named)):
            if not name.startswith(f"{DONE}/"):
                (home / name).unlink()

    def _keep(self, file: ExportedFile, target: Path) -> None:
        """Have a file of the last export among those of the next."""
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(self.root / file.path, target)
        except OSError:  # a file system without links
            shutil.copy2(self.root / file.path, target)
            sync_path(target)

    def _switch(self, home: Path) -> None:
        """Have a directory in the place of `data`, at once; where the system cannot do that, there is none for a
        moment.
        """
        data = self.root / DATA
        if not os.path.lexists(data):
            home.rename(data)
        elif not exchange_paths(home, data):
            data.rename(self.root / f"{self.prefix}{_RETIRED}")
            sync_path(self.root)
            home.rename(data)
            sync_path(self.root)
            self.remove(f"{self.prefix}{_RETIRED}")
        sync_path(self.root)

    def _link(self, name: str, target: str) -> None:
        """Have a symbolic link, in place of another file at once."""
        made = self.root / f"{self.prefix}link-{uuid4().hex}"
        made.symlink_to(target)
        made.replace(self.root / name)
        sync_path(self.root)


def _within(path: str) -> str:
    """Return the name of a file in the directory of its export."""
    return path.partition("/")[2]


def _directories(manifest: Manifest | None) -> set[str]:
    """Return the directories in which the files of an export lie."""
    return {file.path.partition("/")[0] for file in manifest.files} if manifest else set()


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
    evolves: ClassVar[bool] = False

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

    def staged(self, name: str) -> str:
        return name

    def open(self, name: str) -> Any:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            return filesystem.open(path, "rb")

    def manifest(self) -> Manifest | None:
        return read_manifest(self)

    def doubt(self) -> str:
        """Return nothing: whoever takes away files here harms the export."""
        return ""

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

    def claim(self, name: str, data: bytes) -> bool:
        filesystem, path = self._at(name)
        try:
            filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            filesystem.pipe_file(path, data, mode="create")
        except OSError:  # a file system calls what is there already by several names
            if self.read(name) is None:
                with asking(self.shown(name)):
                    raise
            return False
        return True

    def fitted(self, layout: ExportLayout, schema: pa.Schema) -> ExportLayout:
        """Return the layout: files replace each other whatever theirs is."""
        return layout

    def clear(self, before: Manifest | None, directory: str = "") -> None:
        kept = {directory, *_directories(before)}
        for name in before.merged if before is not None else ():
            self.remove(name)
        filesystem, path = self._at("")
        with asking(self.url):
            filesystem.invalidate_cache(path)
            try:
                found = [str(name).rstrip("/").rpartition("/")[2] for name in filesystem.ls(path, detail=False)]
            except FileNotFoundError:
                return
        for name in found:
            is_ours = re.fullmatch(rf"{re.escape(self.prefix)}\d+-[0-9a-f]+", name) is not None
            if is_ours and name not in kept:
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
        self.claim(OWNER, orjson.dumps(asdict(mine)))
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

    def publish(self, plan: Manifest, kept: Sequence[ExportedFile], new: Sequence[ExportedFile]) -> Manifest:
        self.check_all_there(plan.directory, new)
        whole = plan.of([*kept, *new])
        self.write(MANIFEST, whole.dump())  # the switch
        self.remove(f"{plan.directory}/{DONE}")
        return whole

    def check_all_there(self, directory: str, files: Sequence[ExportedFile]) -> None:
        """Delete from a directory of an export what is none of its files.

        Raises:
            IOFailure: one of them is not there.
        """
        filesystem, path = self._at(directory)
        named = {file.path for file in files}
        with asking(self.shown(directory)):
            filesystem.invalidate_cache(path)
            there = {
                f"{directory}/{str(found).removeprefix(path.rstrip('/')).lstrip('/')}": found
                for found in filesystem.find(path)
            }
            for name in sorted(named - there.keys()):
                raise lost(self.shown(name))
            for name, found in there.items():
                if name not in named and not name.startswith(f"{directory}/{DONE}/"):
                    filesystem.rm_file(found)

    def remove(self, name: str) -> None:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            try:
                filesystem.rm(path, recursive=True)
            except FileNotFoundError:
                pass
