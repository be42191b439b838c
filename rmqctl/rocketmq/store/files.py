"""A broker store on disk: which files there are, of which kinds, and which belong together (spec 1).

Nothing here reads a record. Discovery lists what is there and never fails on strange names; those are handed on for
`verify` to judge. Work goes on without files that cannot be read, each named once; a commit log that is gone is found:
no disk is mounted, a link leads nowhere, or a directory has no files. A broker takes such a store for a new one: it
starts with an empty log and deletes every queue (spec 6.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from formats.rocketmq.dledger import ENTRY_SIZE
from rmqctl.files.local import ByteSource
from rmqctl.files.moment import MomentTree, is_used
from rmqctl.files.remote import is_url
from rmqctl.files.tree import Entry, ForgivingTree, Listing, LocalTree, Refusals, Tree, join, local_path, read_all
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.log import LOG_MISSING
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.text import number_of

# --- a broker store on disk -------------------------------------------------------------------------


OFFSET_DIGITS = 20
DLEDGER = "dledger-"
COMMIT_LOG, QUEUES, QUEUES_EXT, BATCH_QUEUES, INDEX = (
    "commitlog",
    "consumequeue",
    "consumequeue_ext",
    "batchconsumequeue",
    "index",
)
SEPARATE_QUEUES = "consumequeue_rocksdb"
LIGHT = "%LMQ%"
"""What the names of light queues (LMQ) begin with."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file of a sequence of fixed-size files.

    Attributes:
        name: relative to the store root, as findings and dumps show it.
        base: offset of its first byte in the sequence, from its name.
        size: length in bytes; -1 where it was not asked for.
        tree, path: where it lies.
        lead: bytes in front of each record: 48 in a DLedger log, else 0.
        store: of a file of the log: the root of its store, where the queues lie; None where it is read alone.
    """

    name: str
    base: int
    size: int
    tree: Tree
    path: str
    mtime_ms: int = 0
    lead: int = 0
    store: Tree | None = None

    def open(self) -> ByteSource:
        """Return the bytes of the file."""
        return self.tree.open(self.path)


def bytes_held(files: Iterable[StoreFile]) -> int:
    """Bytes of files that take room, as far as their file system knows: a log is made at full length and filled later.

    Files that cannot be read count none; one on another machine counts in full, as nothing there says more.
    """
    held = 0
    for file in files:
        if local_path(file.tree, file.path) is None:
            held += max(file.size, 0)
            continue
        with suppress(OSError), closing(file.open()) as source:
            held += sum(end - start for start, end in source.data_ranges(0, file.size))
    return held


_LONGEST_NAME = 255
_NO_NAMES = (b"", b".", b"..")


def can_have_queues(topic: bytes) -> bool:
    """Whether a topic can name a directory: that of a damaged record may hold any bytes, and lead anywhere."""
    return topic not in _NO_NAMES and len(topic) <= _LONGEST_NAME and b"/" not in topic and b"\0" not in topic


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The directory of one queue: ``<root>/<kind>/<topic>/<queue_id>``."""

    kind: str
    topic: str
    queue_id: int
    path: str
    tree: Tree

    def files(self, *, sizes: bool = True) -> tuple[list[StoreFile], list[Entry]]:
        """Files whose names are offsets, ascending, and the entries whose names are not."""
        return sequence(self.tree, self.path, self.path, sizes=sizes)


_DATABASE_FILE = re.compile(r"\d{6,}\.(sst|log)")


def holds_current(tree: Tree, path: str) -> bool:
    """Whether a directory holds the file CURRENT of a RocksDB database; a topic may have that name, too."""
    current = tree.stat(f"{path}/CURRENT")
    return current is not None and not current.is_directory


def holds_database(tree: Tree, path: str) -> bool:
    """Whether a directory holds a RocksDB database: CURRENT, or without it rows in tables or a write-ahead log."""
    if holds_current(tree, path):
        return True
    names = [entry.name for entry in tree.entries(path, sizes=False) if _DATABASE_FILE.fullmatch(entry.name)]
    return any((file := tree.stat(f"{path}/{name}")) is not None and file.size > 0 for name in names)


@dataclass
class StoreFiles:
    """A broker store.

    Attributes:
        tree: the root directory.
        log_trees: directories that hold the commit log, each with the name to show for it.
        selection: path inside the store that the user pointed at, "" for all of it.
        settings: broker.conf, empty when none was given.
        unread: databases of RocksDB that count as not there: whoever reads the store does not know them.
    """

    tree: Tree
    log_trees: list[tuple[str, Tree]]
    selection: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def __getstate__(self) -> dict[str, object]:
        """For another process, which asks for itself what a start makes."""
        return {name: value for name, value in self.__dict__.items() if name != "starts"}

    @property
    def root(self) -> str:
        return self.tree.root

    @property
    def logs_outside(self) -> list[str]:
        """Directories of the commit log that the user named and that lie outside the root."""
        return [tree.root for name, tree in self.log_trees if name.startswith("/")]

    @cached_property
    def _log(self) -> tuple[list[StoreFile], list[Entry]]:
        files: list[StoreFile] = []
        strays: list[Entry] = []
        for name, tree in self.log_trees:
            found, other = log_sequence(tree, name)
            files += (replace(file, store=self.tree) for file in found)
            strays += [Entry(e.name, join(name, e.name), e.is_directory, e.size, e.mtime_ms) for e in other]
        return sorted(files, key=lambda f: (f.base, f.name)), strays

    @property
    def log_files(self) -> list[StoreFile]:
        """Files of the commit log from all its paths, ascending by offset."""
        return self._log[0]

    @property
    def log_strays(self) -> list[Entry]:
        """What lies in the commit log's directories under a name that is no offset."""
        return self._log[1]

    def with_log(self, files: Iterable[StoreFile]) -> StoreFiles:
        """Return the store with other files as its log."""
        made = replace(self)
        made.__dict__["_log"] = sorted(files, key=lambda f: (f.base, f.name)), self.log_strays
        return made

    def without(self, databases: frozenset[str]) -> StoreFiles:
        """Return the store as one in which some databases of RocksDB are not there."""
        made = replace(self, unread=self.unread | databases)
        if "_log" in self.__dict__:
            made.__dict__["_log"] = self._log
        return made

    def queues(self, kind: str = QUEUES) -> Iterator[QueueFiles]:
        """Queues of a kind by topic and id; names that are no queue id are left out."""
        for topic in self.tree.entries(kind, sizes=False):
            if topic.is_directory:
                for queue in self.tree.entries(topic.path, sizes=False):
                    if queue.is_directory and is_queue_id(queue.name):
                        yield QueueFiles(kind, topic.name, int(queue.name), queue.path, self.tree)

    @cached_property
    def index_files(self) -> list[Entry]:
        """Entries of index/, by name."""
        return self.tree.entries(INDEX)

    @cached_property
    def starts(self) -> dict[object, Any]:
        """What the start of a broker makes of the store, by release; `RecoveredStore` keeps it here, so that it is
        replayed once for all questions. None leads to the release that is meant where nobody names one.
        """
        return {}

    @cached_property
    def has_abort(self) -> bool:
        """The file that a clean stop deletes is there."""
        return self.tree.stat("abort") is not None

    @cached_property
    def is_running(self) -> bool:
        """A broker holds the lock; always False for a remote store, where nobody can tell."""
        return is_used(self.tree, "lock")

    @property
    def state(self) -> str:
        """``running``, ``crashed`` or ``clean``."""
        return "running" if self.is_running else "crashed" if self.has_abort else "clean"

    @cached_property
    def queue_database(self) -> str | None:
        """Directory of the RocksDB database of queues; with useSeparateStorePathForRocksdbCQ it lies beside the files.

        A broker that finds a database in both directories does not start.
        """
        wanted = [path for path in (SEPARATE_QUEUES, QUEUES) if path not in self.unread]
        places = [path for path in wanted if holds_database(self.tree, path)]
        return next((path for path in places if holds_current(self.tree, path)), next(iter(places), None))

    @property
    def has_rocksdb(self) -> bool:
        """A RocksDB database of queues is there (spec 10)."""
        return self.queue_database is not None

    @cached_property
    def is_rocksdb(self) -> bool:
        """The queues are a RocksDB database (storeType=defaultRocksDB).

        False where queue files beside it are kept up to date, as rocksdbCQDoubleWriteEnable does: the files then count.
        """
        if not self.has_rocksdb:
            return False
        from rmqctl.rocketmq.queues.ranges import file_queues_are_kept

        return not file_queues_are_kept(self)

    @cached_property
    def has_light_database(self) -> bool:
        """The queues are files, but light queues lie in the database alone (combineCQUseRocksdbForLmq)."""
        if not self.has_rocksdb or self.is_rocksdb:
            return False
        return not any(e.is_directory and e.name.startswith(LIGHT) for e in self.tree.entries(QUEUES, sizes=False))

    def in_database(self, topic: str) -> bool:
        """Whether the queues of a topic are read from the RocksDB database."""
        return self.is_rocksdb or (topic.startswith(LIGHT) and self.has_light_database)


def sequence(tree: Tree, path: str, shown: str, *, sizes: bool = True) -> tuple[list[StoreFile], list[Entry]]:
    """Files named by offset in a directory, ascending, and what else lies there.

    Args:
        shown: what to call the directory in names.
    """
    files: list[StoreFile] = []
    others: list[Entry] = []
    for entry in tree.entries(path, sizes=sizes):
        if not entry.is_directory and is_offset(entry.name):
            files.append(
                StoreFile(join(shown, entry.name), int(entry.name), entry.size, tree, entry.path, entry.mtime_ms)
            )
        else:
            others.append(entry)
    return sorted(files, key=lambda f: f.base), others


def listed_files(tree: Tree, path: str, listing: Listing) -> list[StoreFile]:
    """Files of a directory that was listed before, ascending; all names are offsets."""
    files = [StoreFile(join(path, name), int(name), size, tree, join(path, name)) for name, size in listing]
    return sorted(files, key=lambda f: f.base)


def log_sequence(tree: Tree, shown: str) -> tuple[list[StoreFile], list[Entry]]:
    """Like :func:`sequence` for a directory of the log; files of a DLedger log know what leads their records."""
    files, others = sequence(tree, "", shown)
    is_dledger = shown.startswith(DLEDGER)
    return [replace(f, lead=ENTRY_SIZE) for f in files] if is_dledger else files, others


@lru_cache(1024)
def is_offset(name: str) -> bool:
    """Whether a broker can read the name as an offset (Long.parseLong), digits only as brokers write it."""
    return name.isascii() and name.isdigit() and len(name) >= OFFSET_DIGITS and int(name) < 1 << 63


@lru_cache(4096)
def is_queue_id(name: str) -> bool:
    """Whether a broker reads the name as a queue id (Integer.parseInt)."""
    digits = name.lstrip("+-") if name[:1] in "+-" else name
    return digits.isascii() and digits.isdigit() and -(1 << 31) <= int(name) < 1 << 31


def forgiving(store: StoreFiles) -> StoreFiles:
    """Return the store as one in which what cannot be read counts as empty. A remote one stays as it is: it stops the
    work.
    """
    if not isinstance(store.tree, LocalTree) or isinstance(store.tree, MomentTree):
        return store
    refusals, logs = Refusals(), list[tuple[str, Tree]]()
    for name, tree in store.log_trees:
        if not isinstance(tree, LocalTree):
            return store
        logs.append((name, ForgivingTree(tree, name, refusals)))
    return replace(store, tree=ForgivingTree(store.tree, "", refusals), log_trees=logs)


def refusals_of(tree: Tree) -> Refusals:
    """Return what could not be read so far; empty for a tree that is not forgiving."""
    return tree.refusals if isinstance(tree, ForgivingTree) else {}


def is_unread(refusals: Refusals, path: str) -> bool:
    """Whether a directory, one above it or anything in it could not be read."""
    return any(path == name or path.startswith(f"{name}/") or name.startswith(f"{path}/") for name in refusals)


def unreadable_files(store: StoreFiles) -> Iterator[Finding]:
    """One finding a file, by name. In a running store a file may expire while it is read: that is a note."""
    for name, (error, offset) in sorted(refusals_of(store.tree).items()):
        gone = isinstance(error, FileNotFoundError) and store.is_running
        message = f"cannot be read: {error.strerror or error}"
        severity = Severity.NOTE if gone else None
        yield Finding(FILE_UNREADABLE, name or ".", offset, 0, message, severity)


def lost_ranges(store: StoreFiles, files: Iterable[StoreFile], file_size: int) -> list[tuple[int, int]]:
    """Physical ranges of the log that lie in files that could not be read."""
    names = refusals_of(store.tree)
    return [(f.base, f.base + file_size) for f in files if f.name in names]


# --- a store whose commit log is not there ----------------------------------------------------------


def missing_log(store: StoreFiles) -> Finding | None:
    """Return the finding for a log without a file; None where there is one, or where there never was a message."""
    if store.log_files:
        return None
    odd = odd_place(store)
    queues = sum(1 for kind in (QUEUES, BATCH_QUEUES) for _ in store.queues(kind))
    if not odd and not queues and not store.index_files and not _checkpoint_says_something(store):
        return None
    whole = "its queue" if queues == 1 else f"all {number_of(queues, 'queue')}"
    deletes = f" and delete {whole}" if queues else ""
    message = f"{odd or _plain_place(store)}; a broker would start empty{deletes}"
    return Finding(LOG_MISSING, COMMIT_LOG, 0, 0, message)


def odd_place(store: StoreFiles) -> str:
    """Return what is wrong with the place of the log, whatever else the store holds; "" where it is a directory or
    nothing.
    """
    configured = store.settings.get("storePathCommitLog", "").strip()
    if configured and not Path(configured).exists() and all(name != configured for name, _ in store.log_trees):
        return f"the commit log that the broker's settings name, {configured}, is not there (is its disk mounted?)"
    entry = next((e for e in store.tree.entries("", sizes=False) if e.name == COMMIT_LOG), None)
    if entry is None or entry.is_directory:
        return ""
    path = Path(local_path(store.tree, COMMIT_LOG) or COMMIT_LOG)
    if not is_url(store.root) and path.is_symlink() and not path.exists():
        return f"{COMMIT_LOG} is a link to {path.readlink()}, which is not there (is its disk mounted?)"
    return f"{COMMIT_LOG} is a file, not a directory"


def _plain_place(store: StoreFiles) -> str:
    if not store.log_trees:
        return f"there is no directory {COMMIT_LOG}"
    names = ", ".join(name or "." for name, _ in store.log_trees)
    if all(not tree.entries("", sizes=False) for _, tree in store.log_trees):
        return f"{names} is empty (is its disk mounted?)"
    return f"{names} holds no file of the log"


def _checkpoint_says_something(store: StoreFiles) -> bool:
    """Whether messages were ever stored; a broker that got none leaves a checkpoint of zeros and no log file."""
    data = read_all(store.tree, "checkpoint")
    return data is not None and (not data or any(data))
