"""Every byte of a file as a field with its meaning, or as a gap: the walkers put together and held to the bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rmqctl.files.source import ByteSource
from rmqctl.hexview import lines, units
from rmqctl.hexview.annotation import RAW_LIMIT, Annotation, View
from rmqctl.hexview.chained import walk_ext, walk_timer_log
from rmqctl.hexview.gaps import gap
from rmqctl.hexview.index import walk_index
from rmqctl.hexview.log import walk_dledger, walk_log
from rmqctl.rocketmq.file_kinds import FileKind
from rmqctl.rocketmq.index_geometry import IndexGeometry

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
    FileKind.CONFIG: lines.walk_lines("config", lines.judge_json),
    FileKind.EPOCH: lines.walk_lines("epochs", lines.judge_epochs),
    FileKind.ABORT: lines.walk_lines("abort", lines.judge_abort),
    FileKind.LOCK: lines.walk_lines("lock", lines.judge_lock),
    FileKind.IDENTITY: lines.walk_lines("text"),
    FileKind.DLEDGER_CHECKPOINT: lines.walk_lines("text"),
    FileKind.DLEDGER_TERM: lines.walk_lines("text"),
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


__all__ = ["WALKERS", "annotate"]
