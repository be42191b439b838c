"""What lies at a path inside a store, as sources of rows: the log for the root, else the directory, database or single
file that the path leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from formats.rocketmq.dledger import ENTRY_SIZE
from rmqctl.errors import NotAStore
from rmqctl.files.tree import Entry, Tree, local_path
from rmqctl.findings import Finding
from rmqctl.rocketmq.dump.files import DLedgerDump, database_rows
from rmqctl.rocketmq.dump.kinds import first_offset, kind_of
from rmqctl.rocketmq.dump.log import LogDump, Request, is_under
from rmqctl.rocketmq.dump.queues import ExtensionFiles, QueueName, batch_rows, extension_rows, queue_rows
from rmqctl.rocketmq.dump.record import Row
from rmqctl.rocketmq.findings.state import FILE_STRAY
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.databases import databases_of, has_database
from rmqctl.rocketmq.store.file_kinds import KINDS, FileKind, reader
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    DLEDGER,
    INDEX,
    QUEUES,
    QUEUES_EXT,
    StoreFile,
    StoreFiles,
    is_offset,
    is_queue_id,
    log_sequence,
    missing_log,
    sequence,
)

RowMaker = Callable[[], Iterator[Row]]
Source = LogDump | RowMaker
"""Where rows come from: a log with filters of its own, or a function that yields all rows."""


def file_source(tree: Tree, path: str, shown: str, request: Request) -> Source:
    """Return the rows of one file, whatever it is.

    Args:
        shown: what rows call the file.

    Raises:
        NotAStore: neither name nor content is that of a store's file.
    """
    file, kind = identify(tree, path, shown)
    if kind is None:
        from rmqctl.files.archives import unpacking

        if (packed := unpacking(tree, path, local_path(tree, path) or shown)) is not None:
            raise NotAStore(shown, *packed)
        raise NotAStore(shown, "neither its name nor its first bytes are those of any file of a store")
    return source_of(file, kind, request)


def identify(tree: Tree, path: str, shown: str) -> tuple[StoreFile, FileKind | None]:
    """Return a file and its kind; its base is the offset in its name, or what the records in it say."""
    if tree.stat(path) is None:
        raise FileNotFoundError(2, "no such file or directory", path)
    name = path.rpartition("/")[2]
    with closing(tree.open(path)) as source:
        kind = kind_of(path, source)
        base = int(name) if is_offset(name) else first_offset(source) if kind is FileKind.COMMIT_LOG else 0
        return StoreFile(shown, base, source.size(), tree, path), kind


def source_of(file: StoreFile, kind: FileKind, request: Request) -> Source:
    """Return the rows of a file of a known kind."""
    if kind in {FileKind.COMMIT_LOG, FileKind.COMPACTION_LOG}:
        return log_source(lambda: [file], request)
    if kind is FileKind.DLEDGER_DATA:
        return dledger_source(lambda: [replace(file, lead=ENTRY_SIZE)], request)
    return lambda: reader(KINDS[kind].rows)(file, request)


ListFiles = Callable[[], list[StoreFile]]


def log_source(list_files: ListFiles, request: Request, *, crashed: bool = False, under: str = "") -> LogDump:
    """Return the rows of a log of messages."""
    log = CommitLog(list_files(), crashed=crashed)
    return LogDump(log, request.wanted, request.show, request.limit, under, list_files=list_files)


def dledger_source(list_files: ListFiles, request: Request, *, crashed: bool = False, under: str = "") -> LogDump:
    """Return the rows of a log of DLedger entries."""
    log = CommitLog(list_files(), crashed=crashed, lead=ENTRY_SIZE)
    return DLedgerDump(log, request.wanted, request.show, request.limit, under, list_files=list_files)


# --- what lies at a path inside a store -------------------------------------------------------------


_COMPACTED_LOG, _COMPACTED_QUEUE = "compactionLog", "compactionCq"
_MOST_DEPTH = 8
_QUEUES = (QUEUES, BATCH_QUEUES, QUEUES_EXT)
_QUEUE_DEPTH = 3
"""Names under the directory of all queues: topic, queue, file."""


def store_sources(store: StoreFiles, request: Request) -> Iterator[Source]:
    """Yield sources of what the store's selection means, in the order of names.

    Raises:
        NotAStore: the selection leads to nothing that belongs to a store.
    """
    path = store.selection
    top = path.partition("/")[0]
    if not path:
        yield from _root(store, request)
    elif _stands_alone(store.tree, path):
        yield from _files(store.tree, path, request)
    elif top.startswith(DLEDGER):
        yield from _dledger(store, path, request)
    elif any(path == name or path.startswith(f"{name}/") for name, _ in store.log_trees):
        yield from _log(store, path, request)
    elif top in _QUEUES:
        yield from _queues(store, path, request)
    elif top == "compaction":
        yield from _compaction(store, path, request)
    elif any(is_under(name, path) or is_under(path, name) for name in databases_of(store)):
        if (store.tree.stat(path) or _DIRECTORY).is_directory:
            yield from (
                partial(database_rows, store, name, request.wanted)
                for name in databases_of(store)
                if is_under(name, path)
            )
        yield from _files(store.tree, path, request, skips=any(is_under(path, name) for name in databases_of(store)))
    else:
        yield from _files(store.tree, path, request)


def _stands_alone(tree: Tree, path: str) -> bool:
    """Whether a path is a file that belongs to no sequence of files: its name or its place is none of those."""
    if (tree.stat(path) or _DIRECTORY).is_directory:
        return False
    top, *below = path.split("/")
    in_queue = len(below) == _QUEUE_DEPTH and is_queue_id(below[1])
    return not is_offset(path.rpartition("/")[2]) or (top in _QUEUES and not in_queue)


_DIRECTORY = Entry("", "", is_directory=True)


def _root(store: StoreFiles, request: Request) -> Iterator[Source]:
    """Yield the log: messages alone, also of a DLedger log; entries are shown when the path leads into the group."""
    if store.log_trees:
        yield log_source(partial(_log_files, store), request, crashed=store.has_abort)
    elif sequence(store.tree, "data", "data")[0]:  # the root is a DLedger group
        yield dledger_source(partial(_entry_files, store.tree, "data"), request)
    elif missing_log(store) is None:
        raise NotAStore(
            store.root, "it has no commitlog/", "give a directory inside it, such as consumequeue/ or config/"
        )


def _log_files(store: StoreFiles) -> list[StoreFile]:
    """Return the files of the log from all its paths, as they are now."""
    files = [file for name, tree in store.log_trees for file in log_sequence(tree, name)[0]]
    return sorted(files, key=lambda file: (file.base, file.name))


def _entry_files(tree: Tree, path: str) -> list[StoreFile]:
    """Return the files of a DLedger log as they are now."""
    return [replace(file, lead=ENTRY_SIZE) for file in sequence(tree, path, path)[0]]


def _log(store: StoreFiles, path: str, request: Request) -> Iterator[Source]:
    if any(is_under(file.name, path) for file in store.log_files):
        yield log_source(partial(_log_files, store), request, crashed=store.has_abort, under=path)
    elif path.count("/"):
        yield from _files(store.tree, path, request)


# --- queues ---------------------------------------------------------------------------------------


def _queues(store: StoreFiles, path: str, request: Request) -> Iterator[Source]:
    """Files of the queues at or below a path ``<kind>[/<topic>[/<queue>[/<file>]]]``."""
    kind, *rest = path.split("/")
    if path == QUEUES and has_database(store, QUEUES):
        yield partial(database_rows, store, QUEUES, request.wanted)
    for topic in _names(store.tree, kind, rest[:1]):
        for queue in _names(store.tree, f"{kind}/{topic}", rest[1:2]):
            if is_queue_id(queue):
                yield from _queue(store.tree, kind, QueueName(topic, int(queue)), f"{kind}/{topic}/{queue}", path)


def _names(tree: Tree, directory: str, given: list[str]) -> list[str]:
    return given or [e.name for e in tree.entries(directory, sizes=False) if e.is_directory]


def _queue(tree: Tree, kind: str, queue: QueueName, directory: str, path: str) -> Iterator[Source]:
    files = [f for f in sequence(tree, directory, directory)[0] if is_under(f.name, path)]
    if kind == BATCH_QUEUES:
        yield from (partial(batch_rows, file, queue) for file in files)
    elif kind == QUEUES_EXT:
        yield from (partial(extension_rows, file, queue) for file in files)
    else:
        beside = f"{QUEUES_EXT}{directory.removeprefix(kind)}"
        yield partial(_queue_rows, files, queue, sequence(tree, beside, beside)[0])


def _queue_rows(files: list[StoreFile], queue: QueueName, extension_files: list[StoreFile]) -> Iterator[Row]:
    extension = ExtensionFiles(extension_files)
    try:
        for file in files:
            yield from queue_rows(file, queue, extension)
    finally:
        extension.close()


# --- DLedger, compacted topics, and the rest --------------------------------------------------------


def _dledger(store: StoreFiles, path: str, request: Request) -> Iterator[Source]:
    """Yield a DLedger group's directory, its ``data``, or files in it."""
    group, _, rest = path.partition("/")
    data, index = f"{group}/data", f"{group}/{INDEX}"
    if not rest or is_under(path, data):
        files = partial(_entry_files, store.tree, data)
        yield dledger_source(files, request, crashed=store.has_abort, under=path if rest else "")
    if not rest or is_under(path, index):
        for file in sequence(store.tree, index, index)[0]:
            if not rest or is_under(file.name, path):
                yield source_of(file, FileKind.DLEDGER_INDEX, request)
    for name in ("checkpoint", "currterm"):
        if rest in {"", name} and store.tree.stat(f"{group}/{name}"):
            yield file_source(store.tree, f"{group}/{name}", f"{group}/{name}", request)


def _compaction(store: StoreFiles, path: str, request: Request) -> Iterator[Source]:
    """Yield logs and queues of compacted topics, and their progress."""
    entry = store.tree.stat(path)
    if entry is not None and not entry.is_directory and path.count("/") < 2:
        yield file_source(store.tree, path, path, request)
        return
    directory = path if entry is None or entry.is_directory else path.rpartition("/")[0]
    for below in _directories(store.tree, directory):
        for file in sequence(store.tree, below, below)[0]:
            if is_under(file.name, path):
                yield from _compacted(file, request)
    if path == "compaction" and store.tree.stat("compaction/position-checkpoint"):
        yield file_source(store.tree, "compaction/position-checkpoint", "compaction/position-checkpoint", request)


def _compacted(file: StoreFile, request: Request) -> Iterator[Source]:
    """Yield a file of a compacted topic; its log may end anywhere, so each file stands alone."""
    parts = file.name.split("/")
    name = QueueName(parts[2], int(parts[3])) if len(parts) > 4 and is_queue_id(parts[3]) else QueueName(None, None)
    if _COMPACTED_QUEUE in parts:
        yield partial(batch_rows, file, name)
    elif _COMPACTED_LOG in parts:
        yield LogDump(CommitLog([file]), request.wanted, request.show, request.limit)


def _directories(tree: Tree, path: str, depth: int = 0) -> Iterator[str]:
    """Yield a directory and all below it; links in a circle end at a depth no store has."""
    yield path
    if depth < _MOST_DEPTH:
        for entry in tree.entries(path, sizes=False):
            if entry.is_directory:
                yield from _directories(tree, entry.path, depth + 1)


def _files(tree: Tree, path: str, request: Request, *, skips: bool = False) -> Iterator[Source]:
    """Yield a file, or the files of a directory.

    Args:
        skips: leave out what is no file of a store's: the directory is a database's own.
    """
    entry = tree.stat(path)
    if entry is None or not entry.is_directory:
        yield file_source(tree, path, path, request)
        return
    for found in tree.entries(path, sizes=False):
        if not found.is_directory:
            file, kind = identify(tree, found.path, found.path)
            if kind is not None:
                yield source_of(file, kind, request)
            elif not skips:
                yield partial(_stray, file)


def _stray(file: StoreFile) -> Iterator[Row]:
    """Yield the finding for a file that is none of a store's."""
    message = "neither the name nor the first bytes are those of any file of a store"
    yield Finding(FILE_STRAY, file.name, 0, file.size, message).row()


def selected_files(store: StoreFiles) -> Iterator[StoreFile]:
    """Yield the files that the store's selection means: those of the log for the root; directories in their order of
    names.
    """
    path = store.selection
    entry = store.tree.stat(path)
    if entry is not None and not entry.is_directory:
        yield identify(store.tree, path, path)[0]
        return
    if not path or any(path == name or path.startswith(f"{name}/") for name, _ in store.log_trees):
        yield from (file for file in _log_files(store) if is_under(file.name, path))
        if path or store.log_trees:
            return
    for directory in [] if entry is None or not entry.is_directory else _directories(store.tree, path):
        for found in store.tree.entries(directory):
            if not found.is_directory:
                base = int(found.name) if is_offset(found.name) else 0
                yield StoreFile(found.path, base, found.size, store.tree, found.path)
