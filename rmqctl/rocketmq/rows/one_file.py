"""One file of any kind as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from formats.rocketmq.dledger import ENTRY_SIZE
from rmqctl.errors import NotAStore
from rmqctl.files.lock import is_locked
from rmqctl.files.source import ByteSource
from rmqctl.files.tree import Entry, LocalTree, Tree, read_all
from rmqctl.rocketmq.broker_conf import integer
from rmqctl.rocketmq.commitlog import CommitLog
from rmqctl.rocketmq.file_kinds import FileKind
from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.index_geometry import IndexGeometry, detect_index_geometry
from rmqctl.rocketmq.rows import small, timer
from rmqctl.rocketmq.rows.dledger import DLedgerDump, entry_index_rows
from rmqctl.rocketmq.rows.guess import first_offset, kind_of
from rmqctl.rocketmq.rows.index import index_rows
from rmqctl.rocketmq.rows.log import LogDump
from rmqctl.rocketmq.rows.queues import QueueName, batch_rows, extension_rows, queue_rows
from rmqctl.rocketmq.rows.show import Show
from rmqctl.rocketmq.rows.units import Row
from rmqctl.rocketmq.store import StoreFile, is_offset


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks of a dump.

    Attributes:
        limit: rows to show at most; findings count only where nothing but damage is wanted.
        settings: broker.conf, for what files do not tell.
    """

    wanted: Filter = field(default_factory=Filter)
    show: Show = field(default_factory=Show)
    limit: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


RowMaker = Callable[[], Iterator[Row]]
Source = LogDump | RowMaker
"""Where rows come from: a log with filters of its own, or a function that yields all rows."""


def file_source(tree: Tree, path: str, shown: str, request: Request) -> Source:
    """The rows of one file, whatever it is.

    Args:
        shown: what rows call the file.

    Raises:
        NotAStore: neither name nor content is that of a store's file.
        OSError: the file cannot be read.
    """
    file, kind = identify(tree, path, shown)
    if kind is None:
        raise NotAStore(shown, "neither its name nor its first bytes are those of any file of a store")
    return source_of(file, kind, request)


def identify(tree: Tree, path: str, shown: str) -> tuple[StoreFile, FileKind | None]:
    """A file and its kind; its base is the offset in its name, or what the records in it say.

    Raises:
        OSError: the file is not there or cannot be read.
    """
    if tree.stat(path) is None:
        raise FileNotFoundError(2, "no such file or directory", path)
    name = path.rpartition("/")[2]
    with opened(tree.open(path)) as source:
        kind = kind_of(name, source)
        base = int(name) if is_offset(name) else first_offset(source) if kind is FileKind.COMMIT_LOG else 0
        return StoreFile(shown, base, source.size(), tree, path), kind


def source_of(file: StoreFile, kind: FileKind, request: Request) -> Source:
    """The rows of a file of a known kind."""
    if kind is FileKind.COMMIT_LOG:
        return log_source(lambda: [file], request)
    if kind is FileKind.DLEDGER_DATA:
        return dledger_source(lambda: [replace(file, lead=ENTRY_SIZE)], request)
    return lambda: _ROWS[kind](file, request)


ListFiles = Callable[[], list[StoreFile]]


def log_source(list_files: ListFiles, request: Request, *, crashed: bool = False, under: str = "") -> LogDump:
    """The rows of a log of messages."""
    log = CommitLog(list_files(), crashed=crashed)
    return LogDump(log, request.wanted, request.show, request.limit, under, list_files=list_files)


def dledger_source(list_files: ListFiles, request: Request, *, crashed: bool = False, under: str = "") -> LogDump:
    """The rows of a log of DLedger entries."""
    log = CommitLog(list_files(), crashed=crashed, lead=ENTRY_SIZE)
    return DLedgerDump(log, request.wanted, request.show, request.limit, under, list_files=list_files)


@contextmanager
def opened(source: ByteSource) -> Iterator[ByteSource]:
    """A source that is closed at the end."""
    try:
        yield source
    finally:
        source.close()


def configured_index(settings: Mapping[str, str]) -> IndexGeometry | None:
    """Slots and entries of index files by broker.conf; None when it does not say."""
    slots, entries = integer(settings, "maxHashSlotNum"), integer(settings, "maxIndexNum")
    return IndexGeometry(slots, entries) if slots and entries else None


def _index(file: StoreFile, request: Request) -> Iterator[Row]:
    entry = Entry(file.path.rpartition("/")[2], file.path, is_directory=False, size=file.size)
    geometry = configured_index(request.settings) or detect_index_geometry(file.tree, [entry])
    with opened(file.open()) as source:
        yield from index_rows(source, file.name, geometry)


def _entry_index(file: StoreFile, _: Request) -> Iterator[Row]:
    with opened(file.open()) as source:
        yield from entry_index_rows(source, file.name)


def _wheel(file: StoreFile, request: Request) -> Iterator[Row]:
    precision = integer(request.settings, "timerPrecisionMs") or timer.DEFAULT_PRECISION
    with opened(file.open()) as source:
        yield from timer.wheel_rows(source, file.name, precision)


def _lock(file: StoreFile, _: Request) -> Iterator[Row]:
    held = is_locked(file.tree.full(file.path)) if isinstance(file.tree, LocalTree) else None
    yield from small.lock_rows(_bytes(file), file.name, held=held)


def _whole(rows: Callable[[bytes, str], Iterator[Row]]) -> Callable[[StoreFile, Request], Iterator[Row]]:
    """Rows of a small file that is read at once."""
    return lambda file, _: rows(_bytes(file), file.name)


def _bytes(file: StoreFile) -> bytes:
    return read_all(file.tree, file.path) or b""


_NOWHERE = QueueName(None, None)
_ROWS: dict[FileKind, Callable[[StoreFile, Request], Iterator[Row]]] = {
    FileKind.QUEUE: lambda file, _: queue_rows(file, _NOWHERE),
    FileKind.BATCH_QUEUE: lambda file, _: batch_rows(file, _NOWHERE),
    FileKind.QUEUE_EXT: lambda file, _: extension_rows(file, _NOWHERE),
    FileKind.INDEX: _index,
    FileKind.CHECKPOINT: _whole(small.checkpoint_rows),
    FileKind.CONFIG: _whole(small.config_rows),
    FileKind.ABORT: _whole(small.abort_rows),
    FileKind.LOCK: _lock,
    FileKind.EPOCH: _whole(small.epoch_rows),
    FileKind.IDENTITY: _whole(small.identity_rows),
    FileKind.TIMER_WHEEL: _wheel,
    FileKind.TIMER_LOG: lambda file, _: timer.timer_log_rows(file),
    FileKind.TIMER_CHECK: _whole(timer.check_rows),
    FileKind.DLEDGER_INDEX: _entry_index,
    FileKind.DLEDGER_CHECKPOINT: _whole(lambda data, name: small.text_rows(data, name, "dledger_checkpoint")),
    FileKind.DLEDGER_TERM: _whole(lambda data, name: small.text_rows(data, name, "dledger_term")),
}
