"""Names, lengths and strays of a store's files; nothing is read (spec 1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from rmqctl.files.tree import Entry, Listing, plain_directories, plain_files
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.release import Release
from rmqctl.rocketmq.findings.derived import (
    INDEX_FILE_LENGTH,
    INDEX_FILE_NAME,
    QUEUE_FILE_GAP,
    QUEUE_FILE_LENGTH,
    QUEUE_FILE_NAME,
    QUEUE_TORN_UNIT,
)
from rmqctl.rocketmq.findings.log import LOG_FILE_LENGTH, LOG_FILE_NAME, LOG_ZERO_FILE
from rmqctl.rocketmq.findings.state import FILE_EMPTY, FILE_STRAY, TIMER_LOG
from rmqctl.rocketmq.log.commitlog import has_data
from rmqctl.rocketmq.queues.files import UNIT
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    OFFSET_DIGITS,
    QUEUES,
    QUEUES_EXT,
    StoreFile,
    StoreFiles,
    is_offset,
    is_queue_id,
    missing_log,
    sequence,
)
from rmqctl.rocketmq.store.geometry import HEADER, Geometry, IndexGeometry, detect_index_geometry, read_header

_DATABASE_FILE = re.compile(r"\d{6,}\.(sst|log|blob)|CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+")
_CONTROL = ("abort", "lock", "checkpoint")
_DIRECTORIES = (QUEUES, BATCH_QUEUES, QUEUES_EXT, "index", "config", "timerlog")
_INDEX_NAME_DIGITS = 17
_DROPS_EMPTY_LAST = Release(5, 1, 3)
_UNKNOWN = -1  # a link to nowhere or in a circle; reading it says so


class FileCheck:
    """Looks at every name and length of a store; iterate :meth:`findings` to the end.

    Attributes:
        files: files seen.
        queues: names and sizes of each consume queue's files, by its path; kept for the checks that read them.

    Args:
        release: the release that will start on the store; None: a late one. Before 5.1.3 no broker starts where the
            last file of a sequence is empty.
    """

    def __init__(self, store: StoreFiles, geometry: Geometry, release: Release | None = None) -> None:
        self.store, self.geometry = store, geometry
        self._empty_last = Severity.ERROR if release is not None and release < _DROPS_EMPTY_LAST else None
        self.files = 0
        self.queues: dict[str, Listing] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield findings in the order log, files in the place of directories, queues, index, timer log."""
        yield from self._log()
        for name in _DIRECTORIES:
            entry = self.store.tree.stat(name)
            if entry is not None and not entry.is_directory:
                yield Finding(FILE_STRAY, name, 0, 0, "a file in the place of one of the broker's directories")
        if not self.store.is_rocksdb:
            yield from self._queues(QUEUES, self.geometry.queue_file_size)
        yield from self._queues(BATCH_QUEUES, self.geometry.batch_queue_file_size)
        yield from self._queues(QUEUES_EXT, self.geometry.queue_ext_file_size)
        yield from self._index()
        yield from self._timer_log()
        self.files += sum(self.store.tree.stat(name) is not None for name in _CONTROL)
        self.files += sum(not e.is_directory for e in self.store.tree.entries("config", sizes=False))

    # --- the log ------------------------------------------------------------------------------

    def _log(self) -> Iterator[Finding]:
        files = self.store.log_files
        self.files += len(files)
        for entry in self.store.log_strays:
            yield from _stray(entry, LOG_FILE_NAME)
        if not files:
            if (missing := missing_log(self.store)) is not None:
                yield missing
            return
        size = self.geometry.commit_log_file_size
        lost = {file.name: rest for file, rest in cut_files(files, size)}
        for finding in _lengths(files, size, LOG_FILE_LENGTH, self._empty_last):
            yield _cut(finding, *lost[finding.file]) if finding.file in lost else finding
        yield from _multiples(files, self.geometry.commit_log_file_size, LOG_FILE_NAME)
        if len(files) > 1 and files[-1].size == self.geometry.commit_log_file_size and not has_data(files[-1]):
            message = "all zeros: made in advance for the records to come"
            yield Finding(LOG_ZERO_FILE, files[-1].name, 0, files[-1].size, message, physical_offset=files[-1].base)

    # --- queues ---------------------------------------------------------------------------------

    def _queues(self, kind: str, size: int) -> Iterator[Finding]:
        for topic in self.store.tree.entries(kind, sizes=False):
            if not topic.is_directory:
                if kind == QUEUES and self.store.has_rocksdb and _DATABASE_FILE.fullmatch(topic.name):
                    continue  # rocksdbCQDoubleWriteEnable keeps both in one directory
                yield from _stray(topic, FILE_STRAY)
                continue
            names = plain_directories(self.store.tree, topic.path)
            if names is None or not all(map(is_queue_id, names)):
                names = yield from self._queue_names(topic)
            for name in names:
                path = f"{topic.path}/{name}"
                listed = plain_files(self.store.tree, path)
                if listed is None or len(listed) != 1 or listed[0][1] != size or not is_offset(listed[0][0]):
                    for finding in self._queue(path, size, kind):
                        yield replace(finding, topic=topic.name, queue_id=int(name))
                    continue
                self.files += 1  # one whole file: what most queues are
                if kind == QUEUES:
                    self.queues[path] = listed

    def _queue_names(self, topic: Entry) -> Generator[Finding, None, list[str]]:
        """Names of queues of a topic; what else lies there is reported."""
        names = []
        for entry in self.store.tree.entries(topic.path, sizes=False):
            if entry.is_directory and is_queue_id(entry.name):
                names.append(entry.name)
            else:
                yield from _stray(entry, FILE_STRAY)
        return names

    def _queue(self, path: str, size: int, kind: str) -> Iterator[Finding]:
        files, others = sequence(self.store.tree, path, path)
        self.files += len(files)
        if kind == QUEUES:
            self.queues[path] = tuple((f.name.rpartition("/")[2], f.size) for f in files)
        for entry in others:
            yield from _stray(entry, QUEUE_FILE_NAME)
        yield from _lengths(files, size, QUEUE_FILE_LENGTH, self._empty_last)
        yield from _multiples(files, size, QUEUE_FILE_NAME)
        yield from _gaps(files, size, path)
        for file in files if kind == QUEUES else ():
            rest = max(file.size, 0) % UNIT.itemsize
            if rest:
                message = f"the file ends {rest} bytes into a unit of {UNIT.itemsize}"
                yield Finding(QUEUE_TORN_UNIT, file.name, file.size - rest, rest, message)

    # --- index and timer log ----------------------------------------------------------------------

    def _index(self) -> Iterator[Finding]:
        size = IndexGeometry(self.geometry.index_slots, self.geometry.index_entries).file_size
        for entry in self.store.index_files:
            if entry.is_directory or not (entry.name.isdigit() and len(entry.name) == _INDEX_NAME_DIGITS):
                yield Finding(INDEX_FILE_NAME, entry.path, 0, 0, f"{entry.name!r} is not a time of 17 digits")
                continue
            self.files += 1
            if entry.size not in (size, _UNKNOWN) and not self._proves_nothing(entry):
                message = f"{entry.size} bytes, {size} expected"
                yield Finding(INDEX_FILE_LENGTH, entry.path, 0, 0, message)

    def _proves_nothing(self, entry: Entry) -> bool:
        """Nobody said how large index files are, no file shows it, and this one is empty: its length may be right."""
        if self.geometry.source == "broker-conf" or detect_index_geometry(self.store.tree, self.store.index_files):
            return False
        source = self.store.tree.open(entry.path)
        try:
            return entry.size > HEADER.packer.size and not any(read_header(source).values())
        finally:
            source.close()

    def _timer_log(self) -> Iterator[Finding]:
        files, others = sequence(self.store.tree, "timerlog", "timerlog")
        self.files += len(files)
        for entry in others:
            yield from _stray(entry, FILE_STRAY)
        for file in files:
            if file.size != self.geometry.timer_log_file_size:
                message = f"{file.size} bytes, {self.geometry.timer_log_file_size} expected"
                yield Finding(TIMER_LOG, file.name, 0, 0, message, about="timer messages")


def _stray(entry: Entry, named: FindingKind) -> Iterator[Finding]:
    """Find a name that does not belong; a directory is only stray, a file's name may stop a broker."""
    if entry.is_directory:
        yield Finding(FILE_STRAY, entry.path, 0, 0, "a directory where the broker keeps files")
    elif entry.size == 0 and is_offset(entry.name):
        yield Finding(FILE_EMPTY, entry.path, 0, 0, "the file has no bytes")
    else:
        yield Finding(named, entry.path, 0, 0, f"{entry.name!r} is not the name of one of the broker's files here")


def cut_files(files: list[StoreFile], size: int) -> Iterator[tuple[StoreFile, tuple[int, int]]]:
    """Files of the log that are too short though a later one holds data, each with the physical range that is lost."""
    if all(file.size in (size, _UNKNOWN) for file in files):
        return
    last = max((number for number, file in enumerate(files) if file.size and has_data(file)), default=0)
    for file in files[:last]:
        if 0 <= file.size < size:
            yield file, (file.base + file.size, file.base + size)


def _cut(finding: Finding, begin: int, end: int) -> Finding:
    """Return the finding of a file's length as what it means: a part of the log is lost."""
    message = f"{finding.message}: offsets {begin} to {end} of the log are lost, and later files hold data"
    return replace(
        finding, kind=LOG_FILE_LENGTH, message=message, size=end - begin, severity=Severity.ERROR,
        physical_offset=begin,
    )  # fmt: skip


def _lengths(files: list[StoreFile], size: int, kind: FindingKind, empty_last: Severity | None) -> Iterator[Finding]:
    """Files of another length.

    Args:
        empty_last: how bad it is that the last file is empty.
    """
    for file in files:
        if file.size == 0 and file is files[-1]:
            yield Finding(FILE_EMPTY, file.name, 0, 0, "the file has no bytes", empty_last)
        elif file.size == 0:
            yield Finding(kind, file.name, 0, size, f"0 bytes, {size} expected")
        elif file.size not in (size, _UNKNOWN):
            yield Finding(
                kind, file.name, min(file.size, size), abs(file.size - size), f"{file.size} bytes, {size} expected"
            )


def _multiples(files: list[StoreFile], size: int, kind: FindingKind) -> Iterator[Finding]:
    """Names off the grid of the others; a whole sequence may start anywhere."""
    if len(files) < 2 or size <= 0:
        return
    remainder = Counter(f.base % size for f in files).most_common(1)[0][0]
    for file in files:
        if file.base % size != remainder:
            message = f"the name is no multiple of the file size, {size} bytes"
            yield Finding(kind, file.name, 0, 0, message)


def _gaps(files: list[StoreFile], size: int, path: str) -> Iterator[Finding]:
    for previous, file in _neighbours(files):
        begin = previous.base + size
        if file.base > begin:
            name = f"{path}/{begin:0{OFFSET_DIGITS}d}"
            message = f"no file holds bytes {begin} to {file.base} of the queue"
            yield Finding(QUEUE_FILE_GAP, name, 0, file.base - begin, message)


def _neighbours(files: list[StoreFile]) -> Iterable[tuple[StoreFile, StoreFile]]:
    return pairwise(files)
