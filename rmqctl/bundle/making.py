"""How a bundle is made: a copy of a store without its content beside the archive, held to the answers of the store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from rmqctl import __version__
from rmqctl.answer import Answer, Row, Section
from rmqctl.bundle.answers import Answers, answers_of, differences
from rmqctl.bundle.archive import write_archive
from rmqctl.errors import NotAStore, RmqctlError
from rmqctl.files.archives import BUNDLE, BUNDLE_VERSION
from rmqctl.files.local import ByteSource
from rmqctl.files.new_files import at_once, nearest_directory, refuse_inside
from rmqctl.files.tree import BUNDLE_MANIFEST, Entry, Tree, local_path
from rmqctl.opening import open_path
from rmqctl.redaction import Kept
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Overwrite
from rmqctl.store import Store, StoreDirectory
from rmqctl.text import json_bytes, number_of

_PIECE = 1 << 20
_SECRET_WORDS = ("password", "secret", "credential", "jaas", "token", "accesskey")
_NAMED = 20
"""Differences that the manifest names; all are counted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a bundle is made of.

    Attributes:
        bodies: keep bodies, keys and values.
        max_size: bytes of the archive at most; None: no limit.
        broker_conf: the broker's settings, where the store was opened with some.
        as_release: the start of which broker `recover` foresees; None: of the one that the store shows.
    """

    bodies: bool = False
    max_size: int | None = None
    broker_conf: str | None = None
    as_release: Release | None = None


def make(store: Store, out: Path, wanted: Wanted) -> Answer:
    """Return the answer whose work writes a bundle; its document is the manifest.

    It is a "no" where the bundle does not give the same findings, the same start and the same plan as the store does.

    Raises:
        Refused: the archive would lie in the store, or needs more room than it may have; nothing is left of it.
    """
    roots = [path for one in store.directories() if (path := local_path(one.tree, "")) is not None]
    refuse_inside(out, roots)
    answer = Answer(work="bundle", total=2 * store.size)

    def work() -> None:
        manifest = _made(store, out, wanted, answer)
        answer.document = lambda: manifest
        answer.rows = [manifest]
        answer.sections = lambda: [Section(lines=list(_sentences(manifest, out)), folds=True)]
        answer.is_no = not manifest["check"]["equal"]

    answer.make = work
    if store.selection:
        answer.remark(f"{store.selection} is a part of the store {store.root}: the bundle is of the whole store")
    return answer


def _made(running: Store, out: Path, wanted: Wanted, answer: Answer) -> Row:
    store = running.at_one_moment(is_last=True)
    before = answers_of(store, wanted.as_release)
    answer.advance(store.size)
    room = TemporaryDirectory(prefix=".rmqctl-bundle-", dir=nearest_directory(out.parent))
    with at_once(out) as written, room as name:
        staged = _Staged(Path(name), store, wanted, before, running.state)
        for number, one in enumerate(store.directories()):
            staged.copy(number, one, answer.advance)
        manifest = staged.manifest()
        staged.write(manifest)
        manifest["check"] = _checked(staged.directory, before, wanted)
        staged.write(manifest)
        write_archive(staged.directory, written, BUNDLE_MANIFEST, wanted.max_size)
    return {**manifest, "size": out.stat().st_size}


def _checked(directory: Path, before: Answers, wanted: Wanted) -> Row:
    """Return what the bundle answers otherwise than the store did."""
    try:
        opened = open_path(str(directory))
        if not isinstance(opened, Store):
            raise NotAStore(str(directory), "it is a single file")
        found = differences(before, answers_of(opened, wanted.as_release))
    except RmqctlError as error:
        found = [f"the bundle cannot be opened: {error}"]
    return {"equal": not found, "findings": before.findings, "differences": len(found), "first": found[:_NAMED]}


def _sentences(manifest: Row, out: Path) -> Iterator[str]:
    totals, check = manifest["totals"], manifest["check"]
    content = "without bodies, keys and values" if manifest["redacted"] else "with bodies, keys and values"
    files = number_of(totals["files"], "file")
    yield f"wrote {out}: {files} of {totals['bytes']:,} bytes, {content}"
    if manifest["left_out"]:
        names = ", ".join(f"{row['file']} ({row['why']})" for row in manifest["left_out"][:_FEW])
        more = len(manifest["left_out"]) - _FEW
        yield f"left out: {names}" + (f", and {number_of(more, 'more file')}" if more > 0 else "")
    if check["equal"]:
        yield (
            f"checked: the bundle gives the same {number_of(check['findings'], 'finding')}, the same start and "
            "the same plan of repair as the store"
        )
    else:
        yield f"the bundle differs from the store in {number_of(check['differences'], 'place')}:"
        yield from check["first"]


_FEW = 3


class _Staged:
    """The files of a bundle, before they are packed."""

    def __init__(self, directory: Path, store: Store, wanted: Wanted, before: Answers, state: str) -> None:
        self.directory, self.store, self.wanted, self.before, self.state = directory, store, wanted, before, state
        self.roots: list[str] = []
        self.commit_log: list[str] = []
        self.left_out: list[Row] = []
        self.files = self.bytes = self.kept = 0
        self.conf = None if wanted.broker_conf is None else "broker.conf"
        if wanted.broker_conf is not None:
            self._copy_settings(Path(wanted.broker_conf))

    def manifest(self) -> dict[str, Any]:
        """Return what the bundle says of itself, so far."""
        return {
            "kind": BUNDLE,
            "version": BUNDLE_VERSION,
            "made": int(time.time() * 1000),
            "made_by": f"rmqctl {__version__}",
            "family": self.store.family,
            "store": self.store.root,
            "state": self.state,
            "redacted": not self.wanted.bodies,
            "opens": {"roots": self.roots, "commit_log": self.commit_log, "broker_conf": self.conf},
            "totals": {"files": self.files, "bytes": self.bytes, "bytes_kept": self.kept},
            "left_out": self.left_out,
        }

    def write(self, manifest: Row) -> None:
        """Write the manifest."""
        (self.directory / BUNDLE_MANIFEST).write_bytes(json_bytes(manifest, orjson.OPT_INDENT_2))

    def _copy_settings(self, path: Path) -> None:
        """Copy settings without the values of those that look secret."""
        lines = path.read_text("utf-8", "replace").splitlines()
        kept = [line for line in lines if not any(word in line.lower() for word in _SECRET_WORDS)]
        (self.directory / "broker.conf").write_text("\n".join(kept) + "\n", "utf-8")
        if len(kept) < len(lines):
            self.left_out.append({"file": "broker.conf", "size": 0, "why": "settings that look secret"})

    def copy(self, number: int, one: StoreDirectory, advance: Callable[[int], object]) -> None:
        """Copy a directory of the store."""
        names = self.commit_log if one.prefix else self.roots
        names.append(f"{'commitlog' if one.prefix else 'store'}{f'-{number}' if number else ''}")
        target = self.directory / names[-1]
        target.mkdir()
        overlay = Overlay(one.tree, self._edits(one)) if not self.wanted.bodies else None
        written = {} if number or self.wanted.bodies else self.store.write_redacted(target)
        self.left_out += [{"file": name, "size": None, "why": why} for name, why in written.items() if why]
        for entry in _walk(one.tree, ""):
            place = target / entry.path
            if entry.is_directory:
                place.mkdir(exist_ok=True)
                continue
            if entry.path.rpartition("/")[0] in written:
                continue
            with closing(one.tree.open(entry.path)) as source:
                try:
                    self._copy_file(one, entry, source, place, overlay)
                except OSError as error:
                    self._leave_out(one, entry, place, f"cannot be read: {error.strerror or error}")
            own = local_path(one.tree, entry.path)
            mtime = entry.mtime_ms * 1_000_000
            with suppress(FileNotFoundError):  # it expired since it was opened
                mtime = os.stat(own).st_mtime_ns if own is not None else mtime
            os.utime(place, ns=(mtime, mtime))
            advance(max(entry.size, 0))

    def _edits(self, one: StoreDirectory) -> list[Overwrite]:
        """Return what the plan of repair writes over bytes of a directory, named as in it."""
        found = []
        for edit in self.before.overwrites:
            outside = edit.file.startswith("/")
            if outside == bool(one.prefix) and edit.file.startswith(one.prefix):
                name = edit.file.removeprefix(one.prefix)
                found.append(Overwrite(name, edit.offset, edit.before, edit.after))
        return found

    def _copy_file(
        self, one: StoreDirectory, entry: Entry, source: ByteSource, place: Path, overlay: Overlay | None
    ) -> None:
        size = source.size()
        kept: Kept | str | None = None
        if overlay is not None:
            changed = sorted(
                (edit.offset, edit.offset + len(edit.after)) for edit in self._edits(one) if edit.file == entry.path
            )
            healed = overlay.open(entry.path) if changed else None
            kept = self.store.redacted(f"{one.prefix}{entry.path}", source, healed, changed)
        if isinstance(kept, str):
            self._leave_out(one, entry, place, kept)
            return
        self.files += 1
        self.bytes += size
        self.kept += _write(place, size, _whole(source, size) if kept is None else kept)

    def _leave_out(self, one: StoreDirectory, entry: Entry, place: Path, why: str) -> None:
        """Leave a hole where a file was."""
        _write(place, max(entry.size, 0), iter(()))
        self.left_out.append({"file": f"{one.prefix}{entry.path}", "size": entry.size, "why": why})


def _walk(tree: Tree, path: str) -> Iterator[Entry]:
    """Yield what lies in a directory and those in it, directories before what is in them; no link to nowhere."""
    for entry in tree.entries(path):
        if entry.is_directory:
            yield entry
            yield from _walk(tree, entry.path)
        elif not entry.is_dangling and entry.size >= 0:
            yield entry


def _whole(source: ByteSource, size: int) -> Kept:
    for low, high in source.data_ranges(0, size):
        for at in range(low, high, _PIECE):
            yield at, source.read_at(at, min(_PIECE, high - at))


def _write(place: Path, size: int, pieces: Kept) -> int:
    """Write a file of a size, a hole where nothing is said; return how many bytes were."""
    count = 0
    with place.open("wb") as file:
        file.truncate(size)
        for at, data in _joined(pieces):
            if data.strip(b"\0") or count:
                file.seek(at)
                file.write(data)
            count += len(data)
    return count


def _joined(pieces: Kept) -> Iterator[tuple[int, bytes | bytearray]]:
    """Yield pieces that follow each other as one, up to a size."""
    begin, run = 0, bytearray()
    for at, data in pieces:
        if run and (at != begin + len(run) or len(run) >= _PIECE):
            yield begin, run
            run = bytearray()
        if not run:
            begin = at
        run += data
    if run:
        yield begin, run
