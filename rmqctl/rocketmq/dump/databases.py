"""Rows of every RocksDB database of a store, each with the field names of its schema (spec 10, A2 to A6).

A row has no position in a file: ``position`` is null, ``family`` names the column family. What cannot be taken apart is
shown with key and value in hex, followed by a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from construct import ConstructError

from formats.errors import DecodeError
from formats.rocketmq import rocksdb
from rmqctl.findings import Finding
from rmqctl.rocketmq.dump.record import Row
from rmqctl.rocketmq.findings.state import DATABASE_ROW
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store import databases
from rmqctl.rocketmq.store.database_rows import Decoder, decoder_of
from rmqctl.rocketmq.store.files import QUEUES, SEPARATE_QUEUES, RocketMQStore

_SHOWN_BYTES = 256


def database_rows(store: RocketMQStore, path: str, wanted: Filter) -> Iterator[Row]:
    """Yield the rows of a database, family by family in the order of their names, those in the write-ahead log
    included.

    Args:
        wanted: of queues of other topics no unit is read; all other filters are applied to the rows later.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened, or a part of it not be read.
    """
    with databases.open_database(store, path, f"reading {path}") as database:
        for family in sorted(database.families):
            decode = decoder_of(path, family)
            rows = chain.from_iterable(database.rows(family, prefix) for prefix in _prefixes(path, wanted))
            for key, value in rows:
                yield from _rows(path, family, (key, value), decode)


def _rows(path: str, family: str, row: tuple[bytes, bytes], decode: Decoder) -> Iterator[Row]:
    key, value = row
    try:
        fields = decode(key, value)
    except (ConstructError, DecodeError, UnicodeError):
        fields = None
    if fields is not None:
        kind = fields.pop("kind")
        yield {"kind": kind, "file": path, "position": None, "family": family, **fields}
        return
    shown = {"key": key[:_SHOWN_BYTES].hex(), "value": value[:_SHOWN_BYTES].hex()}
    yield {"kind": "database_row", "file": path, "position": None, "family": family, **shown}
    message = f"a row of family {family} fits no format: key {key[:40].hex()}, value {value[:40].hex()}"
    yield Finding(DATABASE_ROW, path, 0, len(key) + len(value), message).row()


def _prefixes(path: str, wanted: Filter) -> list[bytes]:
    """Return what the keys to be read begin with."""
    if path not in (QUEUES, SEPARATE_QUEUES) or not wanted.topics:
        return [b""]
    return [rocksdb.topic_prefix(topic.encode("utf-8", "surrogateescape")) for topic in wanted.topics]
