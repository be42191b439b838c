"""The index of keys, tags and unique keys in RocksDB, and what a broker answers from it (spec A5.1; IndexRocksDBStore).

Its keys are joined with ``@`` and compared by prefix only: asking for ``mail0`` also gives the messages with the key
``mail0@host``. It answers the oldest hour first, index files answer the newest message first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from formats.rocketmq.rocksdb_messages import HOUR_MS, INDEX_MARK, message_index_prefix
from rmqctl.rocketmq.query.index_walk import Candidate, Walk
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.steps import Trace, instant, span
from rmqctl.rocketmq.queues.log_end import log_end
from rmqctl.rocketmq.store.databases import MESSAGES, Database, open_database
from rmqctl.rocketmq.store.files import RocketMQStore
from rmqctl.rocketmq.store.geometry import integer

_FAMILY = "default"
_MOST_HOURS = 720
_DEFAULT_DAYS = 7
_DAY_MS = 24 * HOUR_MS
FOREVER = (1 << 63) - 1


@dataclass(slots=True)
class DatabaseWalk(Walk):
    """The answer of the index in RocksDB.

    Attributes:
        begin, end: store times that were looked at, ms.
        refused: why the broker answers nothing at all; "" when it looked.
        limit: rows that it takes at most.
    """

    begin: int = 0
    end: int = 0
    refused: str = ""
    limit: int = 0


class MessageIndex:
    """The open index; :func:`open_index` makes one."""

    def __init__(self, store: RocketMQStore, database: Database) -> None:
        self._store, self._database = store, database
        self._days = integer(store.settings, "maxRocksDBIndexQueryDays") or _DEFAULT_DAYS
        self._late: dict[str, list[tuple[bytes, int]]] = {}

    @cached_property
    def mark(self) -> int:
        """Physical offset of the newest record in the index, as its mark has it; -1 without a mark."""
        value = self._database.get(_FAMILY, INDEX_MARK)
        return int.from_bytes(value, "big", signed=True) if value is not None and len(value) == 8 else -1

    def has(self, record: Record) -> bool:
        """Whether all rows of a record are there."""
        return all(self._database.get(_FAMILY, key) is not None for key in row_keys(record))

    def walk(
        self, topic: str, text: str, kinds: tuple[str, ...], times: tuple[int, int], most: int, trace: Trace
    ) -> DatabaseWalk:
        """What the broker finds for a text; a later kind is asked only where the earlier ones gave nothing.

        Args:
            kinds: of ``K``, ``T`` and ``U``, in the order they are asked.
            times: store times in epoch ms, both inclusive; without a begin or an end, the last days before the end of
                the log.
        """
        begin, end = times
        if begin <= 0 or end >= FOREVER:
            now = log_end(self._store).store_timestamp or 0
            begin, end = now - self._days * _DAY_MS, now
            trace.add(MESSAGES, "times", f"no begin or no end: the last {self._days} days, {span(begin, end)}")
        found = DatabaseWalk(begin=begin, end=end, limit=most)
        if end - begin > self._days * _DAY_MS:
            found.refused = f"{span(begin, end)} is more than {self._days} days (maxRocksDBIndexQueryDays)"
            trace.add(MESSAGES, "times", f"{found.refused}: a broker answers nothing")
            return found
        for kind in kinds:
            found.candidates = list(islice(self._candidates(topic, text, kind, (begin, end)), most))
            told = f"{len(found.candidates)} rows begin with {topic}@{kind}@{text}@, {span(begin, end)}"
            trace.add(MESSAGES, f"rows of kind {kind}", told)
            if found.candidates:
                break
        for candidate in found.candidates:
            trace.add(MESSAGES, f"row of {instant(candidate.time)}", f"leads to record {candidate.physical_offset}")
        return found

    def _candidates(self, topic: str, text: str, kind: str, times: tuple[int, int]) -> Iterator[Candidate]:
        """Rows in the order of their bytes, hour by hour."""
        begin, end = times
        first = begin // HOUR_MS * HOUR_MS
        for number in range(min(end // HOUR_MS - begin // HOUR_MS + 1, _MOST_HOURS)):
            parts = (part.encode("utf-8", "surrogateescape") for part in (topic, kind, text))
            prefix = message_index_prefix(first + number * HOUR_MS, *parts)
            rows = ((key, int.from_bytes(value, "big", signed=True)) for key, value in self._stored(prefix))
            late = [row for row in self._dispatched_late(topic) if row[0].startswith(prefix)]
            for key, stored in sorted({*rows, *late}) if late else rows:
                if begin <= stored <= end:
                    yield Candidate(MESSAGES, 0, int.from_bytes(key[-8:], "big", signed=True), stored)

    def _stored(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in self._database.rows(_FAMILY, prefix) if len(value) == 8)

    def _dispatched_late(self, topic: str) -> list[tuple[bytes, int]]:
        """Rows of a topic that the start of a broker makes again after a crash: those from the mark on."""
        if self._store.state != "crashed":
            return []
        if topic not in self._late:
            from rmqctl.rocketmq.log.filters import Filter
            from rmqctl.rocketmq.query.log_search import Search, search_log

            wanted = Filter((topic,), from_offset=max(self.mark, 0))
            parts = search_log(self._store, Search(wanted))
            self._late[topic] = [
                (key, record.store_timestamp) for part in parts for record in part.records for key in row_keys(record)
            ]
        return self._late[topic]


def row_keys(record: Record) -> list[bytes]:
    """Keys of the rows that a record has in the index."""
    from rmqctl.rocketmq.dispatch.index import index_row_keys  # with NumPy, which lookups do without

    fields = record.fields
    return index_row_keys(
        fields["topic"], record.properties, fields["sys_flag"], record.store_timestamp, record.physical_offset
    )


@contextmanager
def open_index(store: RocketMQStore) -> Iterator[MessageIndex]:
    """The index in RocksDB, for reading.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_database(store, MESSAGES, "reading the message index in RocksDB") as database:
        yield MessageIndex(store, database)
