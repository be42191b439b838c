"""The RocksDB databases of a broker store: which there are, and how they are read (spec A1, 10).

The database library writes files of its own beside the ones it opens, even when it only reads. So it is given a
temporary directory of links to the database's files: the store is not touched, and a broker may run. Rows that lie in
the write-ahead log alone are replayed in memory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqctl.errors import IOFailure, MissingExtra, Refused
from rmqctl.files.tree import Tree, local_path, read_all
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, StoreFiles, holds_current, holds_database

METADATA, CONFIG_V2 = "config/metadata", "config/rdb"
TOPICS_V1, GROUPS_V1, OFFSETS_V1 = "config/topics", "config/subscriptionGroups", "config/consumerOffsets"
MESSAGES, POP = "rocksdbstore", "kvStore"
DATABASES = (METADATA, TOPICS_V1, GROUPS_V1, OFFSETS_V1, CONFIG_V2, QUEUES, SEPARATE_QUEUES, MESSAGES, POP)
"""Where brokers keep databases, relative to the store."""
_ADVICE = (
    "`rmqctl repair STORE` makes queues, index, timers and transactions new from the log, `rmqctl rebuild STORE --into "
    "DIR` makes queue files of it; configuration and pop state: restore the directory from a copy"
)
_ATTEMPTS = 3
_FORMAT_VERSION = 5
"""Of tables: the latest that RocksDB 8.4, the library of 5.4 and 5.5 brokers, reads and writes."""
_BUFFER = 16 << 20
"""Bytes of rows of a family that are in memory while they are written."""
_PLACE = re.compile(r"\S*/rmqctl-rocksdb-[^/]*/\d+/")
"""The directory of links, in what the library says."""
_CURRENT = "CURRENT"
_NO_DATA = ("LOCK", "rocksdict-config.json")
_FIRST_MANIFEST = b"MANIFEST-000001"
"""RocksDB writes it when it makes a database, and the next one before it opens that: only a failure in between leaves
it named by CURRENT."""
_WRITE_AHEAD_LOG = re.compile(r"\d{6,}\.log")
Row = tuple[bytes, bytes]


class DatabaseDamaged(IOFailure):
    """The library that reads databases cannot open one: files of it are damaged or missing."""

    def __init__(self, shown: str, reason: str) -> None:
        """
        Args:
            shown: the directory, as the user knows it.
            reason: the library's words.
        """
        super().__init__(f"cannot open the RocksDB database {shown}", reason, _ADVICE)
        self.reason = reason


class Database:
    """An open database; :func:`open_database` makes one.

    Attributes:
        path: relative to the store.
        families: names of its column families; one exists only once something was written to it.
    """

    def __init__(self, handle: Any, path: str, families: list[str]) -> None:
        self._handle, self.path, self.families = handle, path, families
        self._families: dict[str, Any] = {
            name: handle if name == "default" else handle.get_column_family(name) for name in families
        }

    def family(self, name: str) -> Any:
        """Return the library's own object of a column family that is there."""
        return self._families[name]

    def close(self) -> None:
        """Close it; what the library gave of it must not be used any more."""
        self._families.clear()
        self._handle.close()

    def rows(self, family: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[Row]:
        """Keys that begin with a prefix, with their values, in byte order; none where the family is not there.

        Args:
            start: leave out the keys in front of this one.

        Raises:
            DatabaseDamaged: a block of the family cannot be read.
        """
        if family not in self.families:
            return
        rows, last = self.family(family), max(prefix, start)
        found = rows.items(from_key=last) if last else rows.items()
        try:
            for key, value in found:
                last = bytes(key)
                if not last.startswith(prefix):
                    return
                yield last, bytes(value)
        except Exception as error:  # what the library raises has no class of its own
            raise DatabaseDamaged(self.path, _PLACE.sub("", str(error))) from error
        self._check_end(rows.iter(), last)

    def _check_end(self, cursor: Any, last: bytes) -> None:
        """Hold that nothing follows a key: at a damaged block the library ends as if no rows came after it.

        Raises:
            DatabaseDamaged: a block cannot be read.
        """
        cursor.seek(last)
        if cursor.valid() and bytes(cursor.key()) == last:
            cursor.next()
        self.check(cursor)

    def check(self, cursor: Any) -> None:
        """Tell the end of a family, where a cursor of the library is not valid, from a damaged block.

        Raises:
            DatabaseDamaged: a block cannot be read.
        """
        try:
            cursor.status()
        except Exception as error:  # what the library raises has no class of its own
            raise DatabaseDamaged(self.path, _PLACE.sub("", str(error))) from error

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None where it is not there.

        Raises:
            DatabaseDamaged: a block of the family cannot be read.
        """
        if family not in self.families:
            return None
        try:
            value = self.family(family).get(key)
        except Exception as error:
            raise DatabaseDamaged(self.path, _PLACE.sub("", str(error))) from error
        return None if value is None else bytes(value)


def has_database(store: StoreFiles, path: str) -> bool:
    """Whether a database lies at a path of the store, and who reads it knows of it."""
    return path not in store.unread and holds_database(store.tree, path)


def lost_current(store: StoreFiles, path: str) -> str:
    """Why a broker makes an empty database at a path and deletes the tables in it, a clause; empty where it does not.

    RocksDB with create_if_missing first makes a manifest and CURRENT, and then fails if a write-ahead log lies there;
    the next time it opens what it made.
    """
    if not has_database(store, path):
        return ""
    current = read_all(store.tree, f"{path}/{_CURRENT}")
    if current is None:
        return "CURRENT is gone"
    if current.strip() == _FIRST_MANIFEST and any(e.name.endswith(".sst") for e in store.tree.entries(path)):
        return f"CURRENT names {_FIRST_MANIFEST.decode()}, which a start made that failed"
    return ""


def log_in_the_way(store: StoreFiles, path: str) -> str | None:
    """Return the write-ahead log for which RocksDB, where CURRENT is gone, fails once; None without one."""
    if holds_current(store.tree, path) or not has_database(store, path):
        return None
    names = (entry.name for entry in store.tree.entries(path, sizes=False))
    return min(filter(_WRITE_AHEAD_LOG.fullmatch, names), default=None)


def databases_of(store: StoreFiles) -> list[str]:
    """Return the databases that are there, in the order of :data:`DATABASES`."""
    return [path for path in DATABASES if has_database(store, path)]


def can_read() -> bool:
    """Whether the package that reads RocksDB databases is installed."""
    try:
        import rocksdict  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def open_database(store: StoreFiles, path: str, purpose: str) -> Iterator[Database]:
    """Yield a RocksDB database of a store by its path in it, for reading, all column families; keys and values are
    bytes.

    Args:
        purpose: what is done, for the error without the package.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    if local_path(store.tree, path) is None:
        raise Refused(
            "RocksDB databases can only be read on this machine; copy the store here and run the command on the copy"
        )
    from tempfile import mkdtemp

    if can_read() and (reason := lost_current(store, path)):
        raise DatabaseDamaged(f"{store.root}/{path}", reason)
    links = Path(mkdtemp(prefix="rmqctl-rocksdb-"))
    try:
        handle, families = _open(store.tree, path, links, purpose, f"{store.root}/{path}")
        database = Database(handle, path, families)
        try:
            yield database
        finally:
            database.close()
    finally:
        shutil.rmtree(links, ignore_errors=True)


class NewDatabase(Database):
    """A database that is being written; of two rows of a key the later counts. :func:`new_database` makes one.

    Rows may come in any order: the library sorts them, and holds few of them in memory.
    """

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a row."""
        _written(self.path, self._families[family].put, key, value)

    def delete(self, family: str, key: bytes) -> None:
        """Take a row away; it need not be there."""
        _written(self.path, self._families[family].delete, key)

    def flush(self) -> None:
        """Write to files what is in memory."""
        for family in self._families.values():
            _written(self.path, family.flush)

    def close(self) -> None:
        """The same as of one that is read; the library writes once more."""
        _written(self.path, super().close)


def _written(place: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call what writes in the library, and say of its refusal where it wrote."""
    try:
        return call(*arguments, **named)
    except OSError:
        raise
    except Exception as error:  # what the library raises has no class of its own
        raise IOFailure(f"cannot write a RocksDB database in {place}", str(error), "free some room") from error


@contextmanager
def new_database(place: Path, families: Iterable[str]) -> Iterator[NewDatabase]:
    """Yield a new database in an empty directory, in a form that the library of 5.x brokers reads; complete at the end.

    What the block of the caller raises passes as it is.

    Args:
        families: names of its column families; ``default`` is always one.

    Raises:
        MissingExtra: the package rocksdict is not installed.
    """
    try:
        from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict, WriteOptions
    except ImportError as error:
        raise MissingExtra("writing a RocksDB database", "rocksdb") from error
    options, tables, writing = Options(raw_mode=True), BlockBasedOptions(), WriteOptions()
    tables.set_format_version(_FORMAT_VERSION)
    tables.set_checksum_type(ChecksumType.crc32c())
    options.create_if_missing(True)  # noqa: FBT003 -- the library takes no name
    options.create_missing_column_families(True)  # noqa: FBT003
    options.set_block_based_table_factory(tables)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_BUFFER)
    writing.disable_wal = True  # type: ignore[method-assign, assignment]  # the library's stub is wrong
    names = list(dict.fromkeys(["default", *families]))
    column_families = dict.fromkeys(names, options)
    handle = _written(str(place), Rdict, str(place), options=options, column_families=column_families)
    made = NewDatabase(handle, str(place), names)
    try:
        for name in names:
            made.family(name).set_write_options(writing)
        yield made
        made.flush()
    finally:
        made.close()
    for file in place.iterdir():
        if file.name in _NO_DATA or file.name.startswith("LOG"):
            file.unlink()


class StoredRows(MutableMapping[bytes, bytes]):
    """Rows by key in a database that is being written, for more of them than memory holds."""

    def __init__(self, database: NewDatabase, family: str) -> None:
        self._database, self._family = database, family

    def __getitem__(self, key: bytes) -> bytes:
        found = self._database.get(self._family, key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._database.put(self._family, key, value)

    def __delitem__(self, key: bytes) -> None:
        self._database.delete(self._family, key)

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._database.rows(self._family))

    def __len__(self) -> int:
        return sum(1 for _ in self)


_READ_WHOLE = ("CURRENT", "IDENTITY", "OPTIONS-")
"""How names of files begin that the library reads at once, however large they are."""
_LARGEST_TEXT = 4 << 20


def _can_be_read(place: str, name: str) -> bool:
    """Whether the library may have a file: a pipe would block it, a giant in the place of a text take all memory."""
    return os.path.isfile(place) and (not name.startswith(_READ_WHOLE) or os.path.getsize(place) <= _LARGEST_TEXT)


def _open(tree: Tree, path: str, links: Path, purpose: str, shown: str) -> tuple[Any, list[str]]:
    """Open the database through links; a running broker may delete files meanwhile, then it is tried again."""
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError as error:
        raise MissingExtra(purpose, "rocksdb") from error
    options = Options(raw_mode=True)
    for attempt in range(_ATTEMPTS):
        directory = links / str(attempt)
        directory.mkdir()
        try:
            current = local_path(tree, f"{path}/{_CURRENT}") or ""
            # before the look at the names: it must not name a manifest that comes later
            if _can_be_read(current, _CURRENT):
                shutil.copyfile(current, directory / _CURRENT)
            for file in tree.entries(path, sizes=False):
                place = local_path(tree, file.path)
                if place is not None and file.name != _CURRENT and _can_be_read(place, file.name):
                    (directory / file.name).symlink_to(Path(place).absolute())
            names = list(Rdict.list_cf(str(directory), options))
            families = dict.fromkeys(names, options)
            access = AccessType.read_only()
            return Rdict(str(directory), options=options, column_families=families, access_type=access), names
        except Exception as error:
            if attempt == _ATTEMPTS - 1 or all(link.exists() for link in directory.iterdir()):
                raise DatabaseDamaged(shown, str(error).replace(f"{directory}/", "").rstrip(": ")) from error
    raise AssertionError("the last attempt returns or raises")
