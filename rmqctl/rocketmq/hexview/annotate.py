"""Every byte of a file as a field with its meaning, or as a gap: the walkers put together and held to the bytes.

Which kind of file lies at a path inside a store, by its place and name.

Annotations of text files, line by line: configuration, epochs, abort, lock and the like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from formats.errors import DecodeError
from formats.rocketmq.abort_lock import LOCK_TEXT, abort_pid
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.epoch import parse_epochs
from rmqctl.files.local import ByteSource
from rmqctl.hexview.annotation import RAW_LIMIT, ZERO_RUN, Annotation, Group, View, gap
from rmqctl.rocketmq.hexview import units
from rmqctl.rocketmq.hexview.log import walk_dledger, walk_log
from rmqctl.rocketmq.hexview.meanings import text
from rmqctl.rocketmq.hexview.units import walk_ext, walk_index, walk_timer_log
from rmqctl.rocketmq.store.files import BATCH_QUEUES, COMMIT_LOG, INDEX, QUEUES, QUEUES_EXT, FileKind, is_offset
from rmqctl.rocketmq.store.geometry import IndexGeometry

_QUEUE_KINDS = {QUEUES: FileKind.QUEUE, QUEUES_EXT: FileKind.QUEUE_EXT, BATCH_QUEUES: FileKind.BATCH_QUEUE}
_COMPACTION = {"compactionLog": FileKind.COMPACTION_LOG, "compactionCq": FileKind.COMPACTION_QUEUE}
_BY_NAME = {
    "checkpoint": FileKind.CHECKPOINT,
    "timerwheel": FileKind.TIMER_WHEEL,
    "abort": FileKind.ABORT,
    "lock": FileKind.LOCK,
    "epochFileCheckpoint": FileKind.EPOCH,
    "brokerIdentity": FileKind.IDENTITY,
    "brokerIdentity-temp": FileKind.IDENTITY,
    "config/timercheck": FileKind.TIMER_CHECK,
    "compaction/position-checkpoint": FileKind.CONFIG,
}
_COPIES = (".bak", ".tmp")
_CONFIG_DEPTH = 2


def kind_of(path: str) -> FileKind:
    """The kind of the file at ``path``, relative to the store's root, with ``/``.

    Copies (``.bak``, ``.tmp``) are of the kind of what they are copies of; files in directories of
    RocksDB and unknown ones are ``OTHER``.
    """
    for suffix in _COPIES:
        path = path.removesuffix(suffix)
    if path in _BY_NAME:
        return _BY_NAME[path]
    parts = path.split("/")
    if parts[0].startswith("dledger-"):
        return _dledger(parts)
    if parts[0] == INDEX and len(parts) > 1:
        return FileKind.INDEX
    if parts[0] == "config" and len(parts) == _CONFIG_DEPTH:
        return FileKind.CONFIG
    return _sequence(parts) if is_offset(parts[-1]) else FileKind.OTHER


def _sequence(parts: list[str]) -> FileKind:
    """The kind of a file named by its offset."""
    if parts[0] in _QUEUE_KINDS:
        return _QUEUE_KINDS[parts[0]]
    if parts[0] == "compaction" and len(parts) > 1:
        return _COMPACTION.get(parts[1], FileKind.OTHER)
    if parts[0] == "timerlog":
        return FileKind.TIMER_LOG
    return FileKind.COMMIT_LOG if parts[0].startswith(COMMIT_LOG) or len(parts) == 1 else FileKind.OTHER


def _dledger(parts: list[str]) -> FileKind:
    if parts[1:] in (["checkpoint"], ["currterm"]):
        return FileKind.DLEDGER_CHECKPOINT if parts[1] == "checkpoint" else FileKind.DLEDGER_TERM
    if not is_offset(parts[-1]):
        return FileKind.OTHER
    return FileKind.DLEDGER_INDEX if "index" in parts[1:-1] else FileKind.DLEDGER_DATA


# --- annotations of text files ----------------------------------------------------------------------


MAX_TEXT = 64 << 20
"""Bytes of a text file that are judged as a whole; longer ones are only shown."""
_WINDOW = 1 << 16
_ZEROS_CARRIED = 16
_ZEROS = re.compile(rb"\0{%d,}" % ZERO_RUN)
Verdict = tuple[str, bool]
Judge = Callable[[bytes], Verdict]


def walk_lines(name: str, judge: Judge | None = None) -> Callable[[View, int, int], Iterator[Annotation]]:
    """A walker for text files of one kind; ``judge`` says what the whole file is, and whether that is wrong."""

    def walk(view: View, begin: int, stop: int) -> Iterator[Annotation]:
        title, wrong = "", False
        if judge is not None and view.size <= MAX_TEXT:
            title, wrong = judge(view.source.read_at(0, view.size))
        group = Group(name, 0, view.size, title, wrong)
        for number, at, raw in _lines(view, begin - begin % _WINDOW, stop):
            if at + len(raw) > begin:
                yield _note(view, number, at, raw, group, title if wrong else "")
                wrong = False

    return walk


def _note(view: View, number: int, at: int, raw: bytes, group: Group, problem: str) -> Annotation:
    """A line, or a run of zeros; the first one carries what is wrong with the file."""
    if len(raw) >= ZERO_RUN and not any(raw):
        path, value, meaning = (group.name, "zeros"), None, problem or f"{len(raw):,} bytes"
        return view.note(
            path, at, raw[:_ZEROS_CARRIED], value, meaning, size=len(raw), wrong=bool(problem), group=group
        )
    path = (group.name, f"line[{number}]" if number else "text")
    return view.note(path, at, raw, text(raw.rstrip(b"\r\n")), problem, wrong=bool(problem), group=group)


def _lines(view: View, start: int, stop: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, place and bytes of each line, in pieces where it is longer than a window or holds long runs of zeros.

    Lines are numbered from 1; 0 where the walk began inside the file and nobody counted.
    """
    number, held, at = (1 if start == 0 else 0), b"", start
    while at + len(held) < min(stop, view.size):
        window = view.source.read_at(at + len(held), _WINDOW)
        if not window:
            break
        lines = (held + window).splitlines(keepends=True)
        held = b"" if at + len(held) + len(window) >= view.size or len(lines[-1]) >= _WINDOW else lines.pop()
        for line in lines:
            yield from ((number, at + offset, piece) for offset, piece in _pieces(line))
            at += len(line)
            number += 1 if number and line.endswith((b"\n", b"\r")) else 0
    if held:
        yield from ((number, at + offset, piece) for offset, piece in _pieces(held))


def _pieces(line: bytes) -> Iterator[tuple[int, bytes]]:
    """A line, with long runs of zeros as pieces of their own."""
    at = 0
    for zeros in _ZEROS.finditer(line):
        if zeros.start() > at:
            yield at, line[at : zeros.start()]
        yield zeros.start(), zeros[0]
        at = zeros.end()
    if at < len(line):
        yield at, line[at:]


def judge_json(data: bytes) -> Verdict:
    """Whether a broker can read a configuration file."""
    try:
        parse_config(data)
    except DecodeError as error:
        return f"no JSON: {error}", True
    return "JSON", False


def judge_epochs(data: bytes) -> Verdict:
    """Whether count and CRC of an epoch file fit its lines."""
    try:
        return f"{len(parse_epochs(data))} epochs, count and CRC ok", False
    except DecodeError as error:
        return str(error), True


def judge_abort(data: bytes) -> Verdict:
    """Which process was not stopped cleanly."""
    pid = abort_pid(data)
    return (f"process {pid} runs or was not stopped cleanly" if pid is not None else ""), False


def judge_lock(data: bytes) -> Verdict:
    """Whether the file is as a broker leaves it."""
    return ("as a broker writes it", False) if data == LOCK_TEXT else ("not what a broker writes", bool(data))


# --- every byte of a file as a field with its meaning -----------------------------------------------


Walker = Callable[[View, int, int], Iterator[Annotation]]
"""Annotates what overlaps ``[begin, stop)``, in file order; what it leaves out becomes gaps and zeros."""


def _nothing(*_: object) -> Iterator[Annotation]:
    return iter(())


WALKERS: Mapping[FileKind, Walker] = {
    FileKind.COMMIT_LOG: walk_log,
    FileKind.COMPACTION_LOG: walk_log,
    FileKind.DLEDGER_DATA: walk_dledger,
    FileKind.QUEUE: units.QUEUE.walk,
    FileKind.BATCH_QUEUE: units.BATCH_QUEUE.walk,
    FileKind.COMPACTION_QUEUE: units.BATCH_QUEUE.walk,
    FileKind.DLEDGER_INDEX: units.DLEDGER_INDEX.walk,
    FileKind.TIMER_WHEEL: units.TIMER_WHEEL.walk,
    FileKind.QUEUE_EXT: walk_ext,
    FileKind.TIMER_LOG: walk_timer_log,
    FileKind.INDEX: walk_index,
    FileKind.CHECKPOINT: units.CHECKPOINT.walk,
    FileKind.TIMER_CHECK: units.TIMER_CHECK.walk,
    FileKind.CONFIG: walk_lines("config", judge_json),
    FileKind.EPOCH: walk_lines("epochs", judge_epochs),
    FileKind.ABORT: walk_lines("abort", judge_abort),
    FileKind.LOCK: walk_lines("lock", judge_lock),
    FileKind.IDENTITY: walk_lines("text"),
    FileKind.DLEDGER_CHECKPOINT: walk_lines("text"),
    FileKind.DLEDGER_TERM: walk_lines("text"),
    FileKind.OTHER: _nothing,
}


def annotate(
    source: ByteSource,
    kind: FileKind,
    *,
    base: int = 0,
    start: int = 0,
    stop: int | None = None,
    name: str,
    limit: int | None = RAW_LIMIT,
    index: IndexGeometry | None = None,
) -> Iterator[Annotation]:
    """The fields of a file in file order; together they cover it exactly, without overlap.

    Memory is bounded by the largest record, never by the file. Nothing raises on bytes.

    Args:
        base: offset of the file's first byte in its sequence of files, from its name.
        start, stop: show only what overlaps these bytes of the file; whole fields, while gaps end at ``stop``.
        name: the file's path relative to the store; the topic of a queue is read from it.
        limit: bytes of a field that an annotation carries, None for all.
        index: slots and entries of an index file; default: found from its entries.

    Raises:
        OSError: the source cannot be read.
    """
    size = source.size()
    stop = size if stop is None else min(stop, size)
    begin = max(start, 0)
    if begin >= stop:
        return
    view = View(source, name, size, base, limit, index)
    for note in _tiled(view, WALKERS[kind](view, begin, stop), begin, stop):
        if note.offset >= stop:
            return
        if note.end > begin or (note.size == 0 and note.offset >= begin):
            yield note


def _tiled(view: View, notes: Iterator[Annotation], begin: int, stop: int) -> Iterator[Annotation]:
    """The annotations with every hole between them filled; what would overlap is left out."""
    cursor = -1
    for note in notes:
        if cursor < 0:
            cursor = min(note.offset, begin)
        if note.offset < cursor or note.end > view.size:
            continue
        if note.offset > cursor:
            yield from gap(view, cursor, min(note.offset, stop))
        if note.offset >= stop:
            return
        yield note
        cursor = note.end
    cursor = begin if cursor < 0 else cursor
    if cursor < stop:
        yield from gap(view, cursor, stop)
