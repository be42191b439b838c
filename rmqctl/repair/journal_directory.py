"""Journals as they lie on the disk: their names, how far they came, which one was broken off, and how a new one takes
its name.

While a repair is under way a link in the store's root leads to the journal, wherever that lies; where the file system
knows no links, a file of the same name holds the path.

A journal is written under the name ``0001.rmqctl-part`` and gets its own name when it is whole. The directory of
journals is locked while names are taken and given, a journal in the making as long as somebody works on it; what a
kill leaves is known by its name, by its first line, and by nobody holding its lock.

Lines of JSON that prove themselves: each carries its number and the CRC-32 of its own text.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import Refused
from rmqctl.text import typed

if TYPE_CHECKING:  # whoever only asks whether a run was broken off writes nothing
    from rmqctl.files.writing import FileLayer
    from rmqctl.repair.journal import Journal

SUFFIX = ".rmqctl-journal"
JOURNAL, DATA, STATE, AFTER = "journal.jsonl", "data", "state.jsonl", "after.jsonl"
READY, BEGUN, APPLIED, DONE, TAKEN_BACK, UNDONE = "ready", "begun", "applied", "done", "taken-back", "undone"
"""States: written; the store may have changed; all edits made; checked; a broken-off run taken back; a
finished run taken back by a later one."""
PENDING = frozenset({BEGUN, APPLIED})
PART = ".rmqctl-part"
"""After the name of a journal, or of a file in place of the link, that is not whole yet."""
STAGED = ".rmqctl-plan-"
"""Before the name of a directory in which what a plan puts in place is built. Only directories of these two kinds of
names are ever cleaned up."""


def line_of(row: dict[str, Any], number: int) -> bytes:
    """Return a row as one line; its CRC is the last key. Names of a store that are not UTF-8 stay what they are."""
    text = json.dumps({**row, "line": number}, separators=(",", ":"), ensure_ascii=False)
    return f'{text[:-1]},"crc":{zlib.crc32(text.encode("utf-8", "surrogatepass"))}}}\n'.encode("utf-8", "surrogatepass")


def rows_of(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of all lines up to the first that is cut, changed or out of order."""
    for number, line in enumerate(data.split(b"\n")):
        row = _row(line)
        if row is None or row.pop("line", None) != number:
            return
        yield row


def _row(line: bytes) -> dict[str, Any] | None:
    body, mark, crc = line.rpartition(b',"crc":')
    if not mark or not crc.endswith(b"}") or crc[:-1] != b"%d" % zlib.crc32(body + b"}"):
        return None
    row = json.loads(body + b"}")
    return row if isinstance(row, dict) else None


def journals_in(base: Path) -> list[Path]:
    """Return the journals in a directory, in the order in which they were made."""
    found = [p for p in base.iterdir() if p.name.isdigit() and (p / JOURNAL).is_file()] if base.is_dir() else []
    return sorted(found, key=lambda p: (int(p.name), p.name))


def default_directory(root: Path) -> Path:
    """Where the journals of a store lie unless somebody says otherwise: beside it."""
    real = Path(os.path.realpath(root))
    return real.with_name(real.name + SUFFIX)


def header_of(path: Path) -> dict[str, Any]:
    """Return the first line of a journal, without the rest; empty where it is damaged."""
    with (path / JOURNAL).open("rb") as file:
        return next(rows_of(file.readline()), {})


def root_of(path: Path, header: dict[str, Any]) -> str:
    """Return the journal's store: where it was, or beside the journal if both were moved together.

    Raises:
        Refused: neither is there, or the store beside the journal is another one.
    """
    root, beside = str(header["root"]), ""
    if path.parent.name.endswith(SUFFIX):
        beside = str(path.parent.with_name(path.parent.name.removesuffix(SUFFIX)))
    if os.path.isdir(root):
        if header.get("beside") and beside != root:
            raise Refused(
                f"{path} is the journal of another store: it was written for {root}, and lies beside {beside}; "
                f"put it back to {header['base']}, or give the journal of {beside}"
            )
        return root
    if beside and os.path.isdir(beside):
        return beside
    raise Refused(f"the store of {path} is gone: {root} is no directory; put it back and run the command again")


def states(path: Path) -> list[dict[str, Any]]:
    """Lines of a journal's state; empty when it has none yet."""
    try:
        return list(rows_of((path / STATE).read_bytes()))
    except FileNotFoundError:
        return []


def undo_command(path: Path | None, outside: Iterable[str] = (), *, resume: bool = False) -> str:
    """Return what to type to take a journal back, or to finish it."""
    options = ["--resume"] if resume else []
    return typed("undo", str(path), *options, *(word for one in outside for word in ("--outside", one)))


# --- which run was broken off ------------------------------------------------------------------------


POINTER = "rmqctl.pending"
"""The link in a store; one request makes it and one removes it. Brokers ignore it."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""What file systems without symbolic links answer."""


def point(journal: Journal, layer: FileLayer) -> None:
    """Say in the store that a journal is under way."""
    path = Path(journal.changes.path(POINTER))
    led_to = _target(path)
    if led_to is not None and led_to != journal.path:  # of a journal that is done
        layer.unlink(str(path))
    if led_to != journal.path:
        try:
            layer.symlink(str(journal.path), str(path))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write(path, journal.path, layer)
    layer.sync_directory(journal.changes.root)  # a link that is there may be so in memory only


def _write(path: Path, target: Path, layer: FileLayer) -> None:
    """Write the path into a file, which is there whole or not at all."""
    part = str(path) + PART
    if os.path.lexists(part):
        layer.unlink(part)
    with layer.create(part) as file:
        file.write(os.fsencode(target), 0)
        file.sync()
    layer.rename(part, str(path))


def unpoint(journal: Journal, layer: FileLayer) -> None:
    """Take the link away; the caller syncs the directory."""
    path = journal.changes.path(POINTER)
    for one in (path, path + PART):
        if os.path.lexists(one):
            layer.unlink(one)


def pending(root: Path) -> Path | None:
    """Return the journal that was begun on a store and neither finished nor taken back, or None.

    As long as there is one, no command may write to the store: offer :func:`resume` or :func:`undo`.

    Raises:
        Refused: the link in the store leads to a journal that is gone, or to that of another store.
    """
    link = root / POINTER
    journal = _target(link)
    if journal is not None:
        if not (journal / JOURNAL).is_file():
            beside = default_directory(root) / journal.name
            if not (beside / JOURNAL).is_file():
                raise Refused(
                    f"{root} was being changed by a journal that is gone: {journal}; put it back, "
                    f"then type: {typed('undo', journal)}"
                )
            journal = beside
        if not _belongs(journal, root):
            raise Refused(
                f"{link} leads to {journal}, which is no journal of this store; "
                f"remove the link when you know that nothing was broken off"
            )
        if state_of(journal) in PENDING:
            return journal
    return _beside(root)


def _target(link: Path) -> Path | None:
    """Where a link leads, or the path that a file in its place holds."""
    if link.is_symlink():
        return link.readlink()
    try:
        return Path(os.fsdecode(link.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _beside(root: Path) -> Path | None:
    for path in reversed(journals_in(default_directory(root))):
        if state_of(path) in PENDING and _belongs(path, root):
            return path
    return None


def _belongs(path: Path, root: Path) -> bool:
    """Whether a journal is that of a store, by its first line; what is damaged there shows when it is opened."""
    header = header_of(path)
    with suppress(Refused, KeyError):
        return root_of(path, header) == os.path.realpath(root)
    return not header


def state_of(path: Path) -> str:
    """Return the last state of a journal, without reading the journal itself."""
    return next((str(row["state"]) for row in reversed(states(path)) if "state" in row), "")


def refuse_pending(root: Path) -> None:
    """Hold every command that writes off a store that an earlier run left half changed.

    Raises:
        Refused: the message says how to finish that run, and how to take it back.
    """
    path = pending(root)
    if path is not None:
        outside = header_of(path).get("outside") or ()
        raise Refused(
            f"an earlier run on {root} was broken off; first type: {undo_command(path, outside, resume=True)} "
            f"(to finish it) or {undo_command(path, outside)} (to take it back)"
        )


# --- the directory of a new journal ------------------------------------------------------------------


_BUSY = {errno.EWOULDBLOCK, errno.EACCES}
_PATIENCE = 60.0
"""Seconds to wait for another run that takes a name; it needs a few milliseconds."""
_LEFT = re.compile(r"\d{4,}" + re.escape(PART))
_STAGED = re.compile(re.escape(STAGED) + "[a-z0-9_]{8}")


class NameTaken(Exception):
    """Another run took the name of the journal first."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The directory of a journal that is being written.

    Attributes:
        base: the directory of journals.
        name: that of the journal.
        made: directories that had to be made for it, the outermost first.
    """

    base: Path
    name: str
    made: tuple[Path, ...] = ()

    @property
    def path(self) -> Path:
        """Where the journal will be when it is whole."""
        return self.base / self.name

    @property
    def part(self) -> Path:
        """Where it is until then."""
        return self.base / (self.name + PART)

    def inside(self, place: str) -> Path:
        """Where a place of the journal is while the journal is written; places of other journals stay."""
        own, _, rest = place.partition("/")
        return self.part / rest if own == self.name else self.base / place

    def finish(self, layer: FileLayer) -> Path:
        """Give the journal its name, safely on the disk."""
        with _locked(self.base):
            layer.rename(str(self.part), str(self.path))
        layer.sync_directory(str(self.base))
        return self.path

    def give_up(self, layer: FileLayer) -> None:
        """Remove what was written; what cannot be removed does no harm."""
        with suppress(OSError):
            discard(self.path if self.path.is_dir() and not self.part.is_dir() else self.part, layer)
        for directory in reversed(self.made):
            with suppress(OSError):
                layer.rmdir(str(directory))


def next_name(base: Path) -> str:
    """Return the name of the next journal in a directory: 0001, 0002, ..."""
    names = [p.name.removesuffix(PART) for p in base.iterdir()] if base.is_dir() else []
    return f"{max((int(n) for n in names if n.isascii() and n.isdigit()), default=0) + 1:04}"


@contextmanager
def reserved(base: Path, name: str, layer: FileLayer) -> Iterator[Reserved]:
    """Take a name for a journal; nobody else gets it, and nobody clears it away, as long as the block runs.

    Raises:
        NameTaken: somebody else has it.
        Refused: another run holds the directory, and does not let it go.
    """
    made: list[Path] = []
    place = Reserved(base, name)
    try:
        while True:
            made += _make(base, layer)
            with _locked(base) as is_there:
                if is_there:
                    place = Reserved(base, name, tuple(made))
                    _clean(base, _LEFT, lambda path: discard(path, layer), _is_ours)
                    if os.path.lexists(place.path) or os.path.lexists(place.part):
                        raise NameTaken
                    layer.mkdir(str(place.part))
                    held = _open(place.part)
                    _lock(held)
                    break
    except (OSError, NameTaken, KeyboardInterrupt):
        for directory in reversed(made):
            with suppress(OSError):
                layer.rmdir(str(directory))
        raise
    try:
        yield place
    finally:
        os.close(held)


def discard(path: Path, layer: FileLayer, new: Collection[str] | None = None) -> None:
    """Remove a journal that changed nothing, or whose store is as it was; never anything in quarantine.

    Args:
        new: the files in it that were made for the store, relative to it; default: all below ``new``.
    """
    for name in (JOURNAL, DATA, STATE):
        if (path / name).is_file() and not (path / name).is_symlink():
            layer.unlink(str(path / name))
    for directory, _, files in os.walk(path, topdown=False):
        inner = Path(directory).relative_to(path)
        for name in files if inner.parts[:1] == ("new",) else ():
            if new is None or str(inner / name) in new:
                layer.unlink(os.path.join(directory, name))
        if (not inner.parts or inner.parts[0] in ("new", "quarantine")) and not os.listdir(directory):
            layer.rmdir(directory)


def _clean(
    base: Path,
    names: re.Pattern[str],
    remove: Callable[[Path], None],
    is_ours: Callable[[Path], bool] = lambda path: True,
) -> None:
    """Remove directories that a kill left under such names; those that somebody works on stay."""
    for path in base.iterdir():
        if not names.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        with suppress(OSError):
            held = _open(path)
            try:
                if _lock(held) and is_ours(path):
                    remove(path)
            finally:
                os.close(held)


def _is_ours(path: Path) -> bool:
    """Whether a directory is what a kill left: by the first line of its journal, or where it had none yet, by holding
    no byte and no name that is not made before that line.
    """
    if (path / JOURNAL).is_file() and header_of(path).get("kind") == "rmqctl-journal":
        return True
    for directory, _, files in os.walk(path):
        if Path(directory) != path and Path(directory).relative_to(path).parts[0] not in ("new", "quarantine"):
            return False
        if any(Path(directory) != path or name not in (JOURNAL, DATA) or _size(path / name) for name in files):
            return False
    return True


def _size(path: Path) -> int:
    return os.lstat(path).st_size


@contextmanager
def staged(place: Path) -> Iterator[Path]:
    """Give a directory to build in what a plan puts in place, removed afterwards; what killed runs left goes first.

    Raises:
        Refused: another run holds the place.
    """
    from tempfile import TemporaryDirectory

    with ExitStack() as ends:
        with _locked(place):
            _clean(place, _STAGED, shutil.rmtree)
            directory = Path(ends.enter_context(TemporaryDirectory(prefix=STAGED, dir=place)))
            held = _open(directory)
            ends.callback(os.close, held)
            _lock(held)
        yield directory


def _make(base: Path, layer: FileLayer) -> list[Path]:
    """Make a directory and those above it that are missing; those made, the outermost first."""
    made = []
    for directory in reversed([d for d in (base, *base.parents) if not d.is_dir()]):
        with suppress(FileExistsError):
            layer.mkdir(str(directory))
            made.append(directory)
            layer.sync_directory(str(directory.parent))
    return made


@contextmanager
def _locked(base: Path) -> Iterator[bool]:
    """Hold the lock of a directory of journals; gives whether the directory is still there."""
    try:
        held = _open(base)
    except FileNotFoundError:
        yield False
        return
    try:
        until = time.monotonic() + _PATIENCE
        while _lock(held) is False:
            if time.monotonic() > until:
                raise Refused(f"another run holds {base}; nothing was written; wait for it, or give --journal DIR")
            time.sleep(0.005)
        yield _is_same(base, held)
    finally:
        os.close(held)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(fd: int) -> bool | None:
    """Lock a directory if nobody else does; None on a file system that locks none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


def _is_same(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
