"""Where results are written: a directory here or at a URL, whole files only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

from rmqctl.errors import Refused
from rmqctl.files.new_files import sync_names, sync_path
from rmqctl.files.remote import asking, connect, is_url, join_url
from rmqctl.pipeline.export_manifest import DATA, DONE, MANIFEST, ExportedFile

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

    def alone(self) -> AbstractContextManager[None]:
        """No other export at work here, as long as the context lasts."""
        ...

    def kept(self, files: Sequence[ExportedFile], directory: str) -> list[ExportedFile]:
        """Return the files of the last export as those of the next one, whose own are in ``directory``."""
        ...

    def publish(self, directory: str, manifest: bytes, files: Collection[str]) -> None:
        """Make the manifest the export's, by one switch: until then readers see what was there before, all of it.

        Args:
            files: all that the manifest names.
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
    def alone(self) -> Iterator[None]:
        missing = [directory for directory in (self.root, *self.root.parents) if not directory.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        sync_names(missing)
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise Refused(f"another export is at work in {self.root}; wait for its end") from None
            yield
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
        for path in sorted(home.rglob("*"), reverse=True):
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
                return not filesystem.ls(path, detail=False)
            except FileNotFoundError:
                return True

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

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def kept(self, files: Sequence[ExportedFile], directory: str) -> list[ExportedFile]:
        return list(files)

    def publish(self, directory: str, manifest: bytes, files: Collection[str]) -> None:
        filesystem, path = self._at(directory)
        with asking(self.shown(directory)):
            filesystem.invalidate_cache(path)
            for found in filesystem.find(path):
                name = f"{directory}/{str(found).removeprefix(path.rstrip('/')).lstrip('/')}"
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
