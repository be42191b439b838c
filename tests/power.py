"""What a power cut may leave of the files that a run writes.

A run is recorded: every request that changes or syncs something below a directory, in its order. From that come images
of the directory at any moment, as a file system may show them after a power cut:

* The bytes of a file are safe as of its last sync. What was written since may be there, or not, page by page. The
  length is one that was set since then, or any on the way where writing made the file longer. A file that was never
  synced may be empty.
* A name that came, went or changed is safe when its directory was synced. Others may be kept, in the order of the
  requests; a rename that is kept keeps all renames before it. Two disks know nothing of each other's order.

A file system may keep more than it has to, never less. What is written without Python shows as written and not synced.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Any

PAGE = 4096
_TICK = 50_000_000
_CARRIES_OUT = ("sync_path", "sync_names", "sync_tree")
_DSYNC = getattr(os, "RWF_DSYNC", 0)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NAMES = ("rename", "replace", "link", "symlink", "mkdir", "rmdir", "unlink", "remove")
_BYTES = ("pwrite", "pwritev", "write", "ftruncate")
_SYNCS = ("fsync", "fdatasync")
Entry = tuple[int, str]
"""The number of a directory, and a name in it."""


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file at some moment; pages without one hold zeros. It had these lengths since the last sync."""

    size: int = 0
    pages: dict[int, bytes] = field(default_factory=dict)
    mtime_ns: int = 0
    lengths: tuple[int, ...] = ()

    @classmethod
    def of(cls, path: str) -> Content:
        with open(path, "rb", buffering=0) as file:
            fd, found, pages = file.fileno(), os.fstat(file.fileno()), {}
            at = 0
            while at < found.st_size:
                try:
                    begin = os.lseek(fd, at, os.SEEK_DATA)
                    at = os.lseek(fd, begin, os.SEEK_HOLE)
                except OSError:
                    break
                for page in range(begin // PAGE, -(-at // PAGE)):
                    data = os.pread(fd, PAGE, page * PAGE)
                    if data.strip(b"\0"):
                        pages[page] = data.ljust(PAGE, b"\0")
        return cls(found.st_size, pages, found.st_mtime_ns)

    def same_bytes(self, other: Content) -> bool:
        return (self.size, self.pages) == (other.size, other.pages)

    def put(self, path: str) -> None:
        with open(path, "wb") as file:
            file.truncate(self.size)
            for page, data in self.pages.items():
                if page * PAGE < self.size:
                    file.seek(page * PAGE)
                    file.write(data[: self.size - page * PAGE])
        os.utime(path, ns=(self.mtime_ns, self.mtime_ns))


def torn(safe: Content, live: Content, chance: random.Random) -> Content:
    """What may be left of a file: of each page the old bytes or the new ones, of its length anything between."""
    if safe.same_bytes(live):
        return chance.choice([safe, live])
    grew = live.size > max(safe.size, *live.lengths, 0)
    size = chance.choice([safe.size, live.size, *live.lengths, *([(safe.size + live.size) // 2] if grew else [])])
    pages = {}
    for page in safe.pages.keys() | live.pages.keys():
        data = chance.choice([safe, live]).pages.get(page)
        if data is not None and page * PAGE < size:
            pages[page] = data[: size - page * PAGE].ljust(PAGE, b"\0")
    return Content(size, pages, live.mtime_ns + 1)


@dataclass(slots=True)
class Node:
    """A file, a directory or a link.

    Attributes:
        kind: ``file``, ``directory`` or ``link``.
        safe: bytes as of the last sync; None: it was never synced.
        last: bytes when it was last looked at, with what the system said of it then.
        target: of a link.
        safe_time: of a directory, as of its last sync.
    """

    kind: str
    safe: Content | None = None
    last: Content = Content()
    seen: tuple[int, ...] = ()
    target: str = ""
    mode: int = 0o644
    safe_time: int = 0
    time: int = 0
    lengths: tuple[int, ...] = ()


@dataclass(slots=True)
class Change:
    """One request that changed names: what they lead to after it, None for nothing."""

    names: list[tuple[Entry, int | None]]
    is_rename: bool
    disk: int = 0
    is_safe: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is known when the power is cut.

    Attributes:
        number, request: which request came next, and what it was.
        note: what the test wanted to know of this moment.
    """

    number: int
    request: str
    note: Any
    base: dict[Entry, int]
    changes: list[Change]
    nodes: dict[int, tuple[Node, Content | None, Content]]

    def images(self, seed: int = 0) -> Iterator[tuple[str, Image]]:
        """Yield what may be there after the cut: the least, all names without their bytes, all, and two between."""
        chance = random.Random(self.number * 1000 + seed)
        most = len(self.changes)
        yield "the least", Image(self, (0, 0), lambda safe, _: safe or Content())
        yield (
            "names only",
            Image(self, (most, most), lambda safe, live: safe or Content(live.size, {}, live.mtime_ns + 1)),
        )
        yield "everything", Image(self, (most, most), lambda _, live: live)
        if any(change.disk for change in self.changes):
            yield "one disk", Image(self, (most, 0), lambda safe, live: safe or live)
            yield "the other disk", Image(self, (0, most), lambda safe, live: safe or live)
        for number in range(2):
            kept = chance.randint(0, most), chance.randint(0, most)
            yield f"torn {number}", Image(self, kept, lambda safe, live: torn(safe or Content(), live, chance))


@dataclass(frozen=True, slots=True)
class Image:
    """A state of the directory: the first so many changes of names on each disk, and what `choose` makes of bytes."""

    moment: Moment
    kept: tuple[int, int]
    choose: Callable[[Content | None, Content], Content]

    def names(self) -> tuple[dict[Entry, int], set[int]]:
        """Return what there is, and the directories that have lost names since their last sync."""
        found, lost = dict(self.moment.base), set[int]()
        last = list(self.kept)
        for number, change in enumerate(self.moment.changes):
            if change.is_rename and change.is_safe:
                last[change.disk] = max(last[change.disk], number + 1)
        for number, change in enumerate(self.moment.changes):
            is_before = number < (last if change.is_rename else self.kept)[change.disk]
            if change.is_safe or is_before:
                for entry, node in change.names:
                    if node is None:
                        found.pop(entry, None)
                    else:
                        found[entry] = node
            else:
                lost |= {entry[0] for entry, _ in change.names}
        return found, lost

    def walk(self) -> Iterator[tuple[str, Node, Content]]:
        """Yield every path with what lies there, directories before what is in them."""
        inside: dict[int, list[tuple[str, int]]] = {}
        names, _ = self.names()
        for (directory, name), number in names.items():
            inside.setdefault(directory, []).append((name, number))
        waiting, done = [("", 0)], {0}
        while waiting:
            path, directory = waiting.pop()
            for name, number in sorted(inside.get(directory, [])):
                node, safe, live = self.moment.nodes[number]
                content = self.choose(safe, live) if node.kind == "file" else live
                yield os.path.join(path, name), node, content
                if node.kind == "directory" and number not in done:
                    done.add(number)
                    waiting.append((os.path.join(path, name), number))

    def put(self, home: Path) -> None:
        """Make the directory look like this."""
        for entry in home.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        times = []
        _, lost = self.names()
        without = [self.moment.nodes[number][0] for number in lost]
        for name, node, content in self.walk():
            path = os.path.join(home, name)
            if node.kind == "directory":
                os.mkdir(path, node.mode)
                is_old = any(node is one for one in without) and node.safe_time
                times.append((path, node.safe_time if is_old else node.time))
            elif node.kind == "link":
                os.symlink(node.target, path)
            else:
                content.put(path)
                os.chmod(path, node.mode)
        for path, mtime_ns in reversed(times):
            os.utime(path, ns=(mtime_ns, mtime_ns))


class Recorder:
    """Records what is done below a directory; what lies there before is safe.

    Attributes:
        points: numbers of requests before which the power may be cut.
        apart: a directory that lies on another disk.
        moments: what was found there.
        note: gives what the test wants to know of a moment.
        deaf: places of the code, as ``file:line``, whose syncs do not count.
        heard: the places of the code that synced.
    """

    def __init__(
        self, home: Path, points: Collection[int] = (), note: Callable[[], Any] = lambda: None, apart: str = ""
    ) -> None:
        self.apart = os.path.join(os.path.realpath(home), apart) if apart else "-"
        self.home, self.points, self.note = os.path.realpath(home), frozenset(points), note
        self.count = 0
        self.moments: list[Moment] = []
        self.deaf: set[str] = set()
        self.heard: dict[str, int] = {}
        self._lock, self._busy = threading.RLock(), 0
        self._opened: list[str] = []
        self.nodes: dict[int, Node] = {0: Node("directory")}
        self._by_inode: dict[tuple[int, int], int] = {_inode(os.stat(self.home)): 0}
        self._disks: dict[int, int] = {}
        self.now: dict[Entry, int] = {}
        self.changes: list[Change] = []
        self._look(self.home, 0)
        self.base, self.changes = dict(self.now), []
        for node in self.nodes.values():
            node.safe, node.safe_time = node.last, node.time

    # --- names ------------------------------------------------------------------------------------------

    def _look(self, directory: str, number: int) -> None:
        """Take notice of names that are there or gone without having been seen to come or go."""
        found = {entry.name: entry for entry in os.scandir(directory)}
        for parent, name in [entry for entry in self.now if entry[0] == number and entry[1] not in found]:
            self._change([((parent, name), None)])
        for name, entry in sorted(found.items()):
            known = self.now.get((number, name))
            if known is None or self._by_inode.get(_inode(entry.stat(follow_symlinks=False))) != known:
                known = self._node(entry.path)
                self._change([((number, name), known)])
            if entry.is_dir(follow_symlinks=False):
                self._look(entry.path, known)

    def _node(self, path: str) -> int:
        """Return the number of what lies at a path, a new one for what was not there before."""
        found = os.lstat(path)
        known = self._by_inode.get(_inode(found))
        if known is None:
            known = len(self.nodes)
            kind = "link" if os.path.islink(path) else "directory" if os.path.isdir(path) else "file"
            self.nodes[known] = Node(kind, target=os.readlink(path) if kind == "link" else "")
            self._disks[known] = int((path + os.sep).startswith(self.apart + os.sep))
            self._by_inode[_inode(found)] = known
        self._see(known, path)
        return known

    def _see(self, number: int, path: str) -> Content:
        node, found = self.nodes[number], os.stat(path) if path.startswith("/proc/") else os.lstat(path)
        node.mode, node.time = found.st_mode & 0o7777, found.st_mtime_ns
        seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_blocks)
        if node.kind == "file" and seen != node.seen:
            is_settled = time.time_ns() - found.st_ctime_ns > _TICK  # else the next change may have the same time
            node.last, node.seen = Content.of(path), seen if is_settled else ()
        return node.last

    def _entry(self, path: str) -> Entry | None:
        """Return the directory of a path and its name in it; None outside of the watched directory."""
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not path.startswith(self.home + os.sep):
            return None
        number = 0
        for name in os.path.relpath(os.path.dirname(path), self.home).split(os.sep):
            if name != ".":
                inner = self.now.get((number, name))
                if inner is None:
                    return None
                number = inner
        return number, os.path.basename(path)

    def _change(self, names: list[tuple[Entry, int | None]], *, is_rename: bool = False) -> None:
        number = names[0][0][0] if names else 0
        self.changes.append(Change(names, is_rename, self._disks.get(number, 0)))
        for entry, node in names:
            if node is None:
                self.now.pop(entry, None)
            else:
                self.now[entry] = node

    def _catch_up(self) -> None:
        """Take notice of files that were opened since the last request, and are there now."""
        opened, self._opened = self._opened, []
        for path in opened:
            entry = self._entry(path)
            if entry is not None and entry not in self.now and os.path.lexists(path) and not os.path.isdir(path):
                self._change([(entry, self._node(path))])

    # --- requests ---------------------------------------------------------------------------------------

    def opened(self, path: object, flags: int) -> None:
        if flags & _WRITING and isinstance(path, str | bytes | os.PathLike) and self._busy != threading.get_ident():
            self._opened.append(os.path.abspath(os.fsdecode(path)))

    def _point(self, request: str) -> None:
        self._catch_up()
        if self.count in self.points:
            self.moments.append(self.moment(request))
        self.count += 1

    def _naming(self, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
        keys = ("src_dir_fd", "dst_dir_fd") if name in ("rename", "replace", "link", "symlink") else ("dir_fd",)
        paths = [_path(arg, more, key) for arg, key in zip(args, keys, strict=False)]
        if not any(os.path.abspath(path).startswith((self.home + os.sep, "/proc/self/fd/")) for path in paths):
            return real(*args, **more)
        self._point(f"{name} {os.path.relpath(paths[-1], self.home)}")
        entries = [self._entry(os.path.abspath(path)) for path in paths]
        gone = [path for path in (paths[-1:] if name != "link" else []) if os.path.lexists(path)]
        numbers = [self.now.get(entry) if entry else None for entry in entries]
        inode = None
        if gone and name in ("unlink", "remove", "rename", "replace", "rmdir") and numbers[-1] is not None:
            self._see(numbers[-1], gone[0])
            found = os.lstat(gone[0])
            inode = _inode(found) if found.st_nlink == 1 or name == "rmdir" else None
        result = real(*args, **more)
        if inode is not None:  # the next file may get it
            self._by_inode.pop(inode, None)
        if name in ("unlink", "remove", "rmdir"):
            self._change([(entries[0], None)] if entries[0] else [])
        elif name in ("rename", "replace"):
            names = [(entry, None) for entry in entries[:1] if entry is not None]
            self._change([*names, *([(entries[1], self._node(paths[1]))] if entries[1] else [])], is_rename=True)
        elif entries[-1] is not None:
            self._change([(entries[-1], self._node(paths[-1]))])
        return result

    def _syncing(self, name: str, real: Callable[..., Any], fd: int) -> Any:
        path = _of(fd)
        if not path.startswith(self.home):
            return real(fd)
        self._point(f"{name} {os.path.relpath(path, self.home)}")
        self._hear(fd)
        return None  # the disk itself need not be waited for

    def _safe(self, fd: int) -> None:
        """What a file holds, or which names a directory has, is on the disk."""
        found = os.fstat(fd)
        number = self._by_inode.get(_inode(found))
        if number is None:
            number = len(self.nodes)
            self.nodes[number] = Node("directory" if S_ISDIR(found.st_mode) else "file")
            self._by_inode[_inode(found)] = number
        node = self.nodes[number]
        if node.kind == "directory":
            self._look(_of(fd), number)
            node.time = node.safe_time = found.st_mtime_ns
            for change in self.changes:
                change.is_safe |= any(entry[0] == number for entry, _ in change.names)
        else:
            node.safe, node.lengths = self._see(number, f"/proc/self/fd/{fd}"), ()

    def _act(self, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
        with self._lock:
            if self._busy:
                return real(*args, **more)
            self._busy = threading.get_ident()
            try:
                if name in _NAMES:
                    return self._naming(name, real, *args, **more)
                return self._syncing(name, real, *args) if name in _SYNCS else self._filling(name, real, *args)
            finally:
                self._busy = 0

    def _filling(self, name: str, real: Callable[..., Any], fd: int, *args: Any) -> Any:
        path = _of(fd)
        if not path.startswith(self.home):
            return real(fd, *args)
        self._point(f"{name} {os.path.relpath(path, self.home)}")
        result = real(fd, *args)
        if name == "ftruncate" and (number := self._by_inode.get(_inode(os.fstat(fd)))):
            self.nodes[number].lengths += (args[0],)
        if name == "pwritev" and len(args) > 2 and args[2] & _DSYNC:
            self._hear(fd)
        return result

    def _hear(self, fd: int) -> None:
        place = _place()
        self.heard[place] = self.heard.get(place, 0) + 1
        if place not in self.deaf:
            self._safe(fd)

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record while a block runs."""
        kept = {name: getattr(os, name) for name in (*_NAMES, *_BYTES, *_SYNCS)}
        for name, real in kept.items():
            setattr(os, name, partial(self._act, name, real))
        _listen(self)
        try:
            yield self
        finally:
            _listen(None)
            for name, real in kept.items():
                setattr(os, name, real)

    # --- moments ----------------------------------------------------------------------------------------

    def moment(self, request: str = "the end") -> Moment:
        """Return what is known now."""
        busy, self._busy = self._busy, threading.get_ident()
        try:
            return self._moment(request)
        finally:
            self._busy = busy

    def _moment(self, request: str) -> Moment:
        self._catch_up()
        self._look(self.home, 0)
        for path, number in self._paths():
            with suppress(FileNotFoundError):
                self._see(number, path)
        nodes = {
            number: (
                Node(n.kind, target=n.target, mode=n.mode, safe_time=n.safe_time, time=n.time),
                n.safe,
                replace(n.last, lengths=n.lengths),
            )
            for number, n in self.nodes.items()
        }
        changes = [replace(change) for change in self.changes]
        return Moment(self.count, request, self.note(), self.base, changes, nodes)

    def _paths(self) -> Iterator[tuple[str, int]]:
        inside: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), number in self.now.items():
            inside.setdefault(directory, []).append((name, number))
        waiting = [(self.home, 0)]
        while waiting:
            path, directory = waiting.pop()
            for name, number in inside.get(directory, []):
                yield os.path.join(path, name), number
                if self.nodes[number].kind == "directory":
                    waiting.append((os.path.join(path, name), number))

    def unsafe(self) -> list[str]:
        """Names and files that a power cut could still take or change, a sentence each."""
        with self._lock:
            moment = self.moment()
        images = dict(moment.images())
        least, all_there = ({path: (node, content) for path, node, content in images[name].walk()}
                            for name in ("the least", "everything"))  # fmt: skip
        found = [f"{path}: is not there" for path in all_there if path not in least]
        found += [f"{path}: is there again" for path in least if path not in all_there]
        for path, (node, content) in all_there.items():
            if path in least and node.kind == "file" and not content.same_bytes(least[path][1]):
                found.append(f"{path}: other bytes")
        return sorted(found)


_listeners: list[Recorder | None] = []


def _listen(recorder: Recorder | None) -> None:
    """Have a recorder hear of opened files; a hook can be set only once, and for good."""
    if not _listeners:
        sys.addaudithook(_heard)
    _listeners[:] = [recorder]


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and (listener := _listeners[0] if _listeners else None) is not None:
        listener.opened(args[0], args[2])


def _inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _path(path: Any, more: dict[str, Any], key: str) -> str:
    fd = more.get(key)
    text = os.fsdecode(path)
    return os.path.join(_of(fd), text) if isinstance(fd, int) and not os.path.isabs(text) else text


def _place() -> str:
    """Where in the code a sync was asked for: the nearest line outside of the modules that only carry it out."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if (
            f"{os.sep}rmqctl{os.sep}" in name
            and not name.endswith("writing.py")
            and frame.f_code.co_name not in _CARRIES_OUT
        ):
            return f"{name.rpartition(os.sep + 'rmqctl' + os.sep)[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def recorded(
    home: Path,
    run: Callable[[], Any],
    count: int,
    note: Callable[[], Any] = lambda: None,
    again: Callable[[], None] | None = None,
    apart: str = "",
) -> list[Moment]:
    """Carry out a run twice, first to count its requests; moments evenly over it, and the one after it.

    Args:
        again: puts everything back for the second time.
    """
    first = Recorder(home)
    with first.recording():
        run()
    if again is not None:
        again()
    step = max(first.count / count, 1.0)
    second = Recorder(home, {int(number * step) for number in range(count)}, note, apart)
    with second.recording():
        run()
    return [*second.moments, second.moment()]
