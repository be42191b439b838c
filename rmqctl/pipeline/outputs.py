"""Where results are written: a directory here or at a URL, whole files only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import uuid4

from rmqctl.files.filesystem import asking, connect, is_url, join_url


class Output(Protocol):
    """A directory to write into; names are relative to it, with ``/``. Travels to executors."""

    def shown(self, name: str = "") -> str:
        """The path of a name, for messages."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing is there, or an empty directory."""
        ...

    def create(self, name: str) -> Any:
        """A context that gives a stream to write; the file is there when the context ends well, and whole."""
        ...

    def read(self, name: str) -> bytes | None:
        """A small file, None where there is none."""
        ...

    def names(self, directory: str) -> list[str]:
        """Names of the files right below a directory."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file; -1 where there is none."""
        ...

    def move(self, name: str, to: str) -> None:
        """Give a file another name; a file of that name is replaced."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file or a directory with all in it, if it is there."""
        ...


def output_at(path: str) -> Output:
    """The directory at a local path or a URL."""
    return RemoteOutput(path) if is_url(path) else LocalOutput(os.path.abspath(path))


class LocalOutput:
    """A directory of this machine, or of a file system that all executors mount."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def shown(self, name: str = "") -> str:
        return os.fspath(self.root / name)

    def is_empty(self) -> bool:
        return not self.root.exists() or (self.root.is_dir() and not any(self.root.iterdir()))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.parent / f"_{uuid4().hex}.partial"
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

    def move(self, name: str, to: str) -> None:
        target = self.root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).replace(target)

    def remove(self, name: str) -> None:
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class RemoteOutput:
    """A directory of a remote file system, through fsspec; an object appears when its upload is complete."""

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

    def move(self, name: str, to: str) -> None:
        filesystem, path = self._at(name)
        target = self._at(to)[1]
        with asking(self.shown(to)):
            filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            filesystem.mv(path, target)

    def remove(self, name: str) -> None:
        filesystem, path = self._at(name)
        with asking(self.shown(name)):
            try:
                filesystem.rm(path, recursive=True)
            except FileNotFoundError:
                pass
