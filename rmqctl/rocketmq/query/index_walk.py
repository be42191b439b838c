"""The walk through the index that a broker makes for a key (spec 4.6).

Source of the rules: IndexService.queryOffset, IndexFile.selectPhyOffset and isTimeMatched.

Of each file the header, one slot and the entries of one chain are read, 20 bytes each. The walk keeps
to the broker's rules even where the bytes are damaged, but always ends: a circle in which a broker
would run for ever is left.

The index in RocksDB (spec A5.1; IndexRocksDBStore) has keys joined with ``@`` that are compared by prefix only: asking
for ``mail0`` also gives the messages with the key ``mail0@host``. It answers the oldest hour first, index files the
newest entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import islice

from formats.rocketmq.index import key_hash
from formats.rocketmq.rocksdb_messages import HOUR_MS, INDEX_MARK, last_number, message_index_prefix
from rmqctl.explain import Trace
from rmqctl.rocketmq.index import IndexEntry, IndexFile
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.steps import span
from rmqctl.rocketmq.store.databases import MESSAGES, Database, open_database
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import integer
from rmqctl.text import instant

MAX_BATCH = 64
"""`maxMsgsNumBatch`: candidates that a broker collects at most, whatever it is asked for."""


class End(StrEnum):
    """Why a broker reads no further in one file."""

    TIME = "the file's times do not touch those asked for"
    EMPTY = "the slot is empty"
    NO_ENTRIES = "the header says that there are no entries"
    SLOT = "the slot points behind the last entry"
    FIRST = "the chain ends"
    LIMIT = "enough candidates"
    NEGATIVE = "its time is negative"
    RANGE = "the entry before it has a number out of range"
    SELF = "it names itself as the entry before it"
    BEFORE = "it is older than the time asked for"
    CIRCLE = "the chain comes back to an entry it has passed"
    OUTSIDE = "the file has no such entry"


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What the index is asked.

    Attributes:
        text: what was hashed: ``topic#key``, or ``topic#T#tags``.
        begin, end: store times in epoch ms, both inclusive.
        max: candidates wanted; never more than ``batch``.
        batch: the broker's `maxMsgsNumBatch`.
    """

    text: str
    begin: int
    end: int
    max: int = MAX_BATCH
    batch: int = MAX_BATCH

    @property
    def hash(self) -> int:
        return key_hash(self.text)

    @property
    def limit(self) -> int:
        return min(self.max, self.batch)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry with the wanted hash and a time asked for.

    Attributes:
        number: of the entry in its file.
        time: of the entry in epoch ms, in whole seconds from the first entry of the file.
    """

    file: str
    number: int
    physical_offset: int
    time: int


@dataclass(slots=True)
class IndexChain:
    """What was read of one file.

    Attributes:
        slot: number of the slot; newest: what it holds.
        last: number of the last entry read, 0 without one.
        entries: how many were read.
    """

    file: IndexFile
    end: End
    slot: int = 0
    newest: int = 0
    last: int = 0
    entries: int = 0


@dataclass(slots=True)
class Walk:
    """The answer of the index.

    Attributes:
        candidates: in the broker's order: newest file first, newest entry of a chain first.
        chains: one a file that was looked at, newest file first.
        cut_at: the file whose begin made the broker look into no older one, None when it saw all it wanted.
    """

    candidates: list[Candidate] = field(default_factory=list)
    chains: list[IndexChain] = field(default_factory=list)
    cut_at: IndexFile | None = None

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of the candidates, repeats included."""
        return [c.physical_offset for c in self.candidates]

    @property
    def endless(self) -> bool:
        """Whether a broker would never come back from this walk."""
        return any(c.end is End.CIRCLE for c in self.chains)


def walk_index(files: Iterable[IndexFile], query: IndexQuery, trace: Trace) -> Walk:
    """Ask the index files, given oldest first."""
    walk = Walk()
    for file in reversed(list(files)):
        begin, end = file.header["begin_timestamp"], file.header["end_timestamp"]
        times = f"{instant(begin)} to {instant(end)}" if trace.on else ""
        asked = span(query.begin, query.end) if trace.on else ""
        if is_time_matched(file, query):
            trace.add(file.path, "index file", f"{times} overlaps {asked}: looked into")
            walk.chains.append(_Chase(file, query, walk.candidates, trace).run())
        else:
            trace.add(file.path, "index file", f"{times} does not overlap {asked}: passed over")
            walk.chains.append(IndexChain(file, End.TIME))
        if begin < query.begin:
            trace.add(file.path, "index file", "begins before the time asked for: older files are not looked at")
            walk.cut_at = file
            break
        if len(walk.candidates) >= query.limit:
            trace.add(file.path, "index file", f"{query.limit} candidates: older files are not looked at")
            break
    return walk


def is_time_matched(file: IndexFile, query: IndexQuery) -> bool:
    """Whether a broker looks into a file (IndexFile.isTimeMatched), with its answer for a begin after the end too."""
    first, last = file.header["begin_timestamp"], file.header["end_timestamp"]
    around = query.begin < first and query.end > last
    return around or first <= query.begin <= last or first <= query.end <= last


class _Chase:
    """One chain of one file followed."""

    def __init__(self, file: IndexFile, query: IndexQuery, found: list[Candidate], trace: Trace) -> None:
        self.file, self.query, self.found, self.trace = file, query, found, trace
        self.hash, self.limit = query.hash, query.limit
        self.count = max(file.header["index_count"], 1)  # the number of the next entry (IndexHeader.load)
        self.chain = IndexChain(file, End.FIRST, self.hash % max(file.geometry.slots, 1))
        self._turns: dict[int, int] = {}

    def run(self) -> IndexChain:
        """Follow the chain from its slot."""
        chain = self.chain
        chain.newest = self.file.slot(chain.slot)
        number, end = chain.newest, self._slot_end()
        what = "empty" if chain.newest <= 0 else f"newest entry is {chain.newest}"
        note = "" if end in {None, End.EMPTY} else f": {end}, as the header counts {self.count - 1}"
        self.trace.add(self.file.path, f"slot {chain.slot}", f"{what}{note}")
        while end is None:
            number, end = self._step(number)
        chain.end = end
        return chain

    def _slot_end(self) -> End | None:
        if self.count <= 1:
            return End.NO_ENTRIES
        if self.chain.newest <= 0:
            return End.EMPTY
        return End.SLOT if self.chain.newest > self.count else None

    def _step(self, number: int) -> tuple[int, End | None]:
        """Look at one entry; the number of the next, and why there is none."""
        if len(self.found) >= self.limit:
            self._note(number, f"not looked at: {self.limit} candidates are enough")
            return number, End.LIMIT
        entry = self.file.entry(number)
        self.chain.last, self.chain.entries = number, self.chain.entries + 1
        if entry is None:
            self._note(number, str(End.OUTSIDE))
            return number, End.OUTSIDE
        if entry.time_difference < 0:
            self._note(number, str(End.NEGATIVE))
            return number, End.NEGATIVE
        time = self.file.header["begin_timestamp"] + entry.time_difference * 1000
        kept = self._take(number, entry, time)
        end = self._chain_end(number, entry, time)
        if self.trace.on:
            why = "" if end in {None, End.FIRST} else f"; {end}: the chain is left"
            what = f"hash {entry.key_hash}, offset {entry.physical_offset}, time {instant(time)}"
            self._note(number, f"{what}: {kept}{why}")
        return entry.previous, end

    def _take(self, number: int, entry: IndexEntry, time: int) -> str:
        if entry.key_hash != self.hash:
            return "dropped, another hash"
        if not self.query.begin <= time <= self.query.end:
            return "dropped, outside the time asked for"
        self.found.append(Candidate(self.file.path, number, entry.physical_offset, time))
        return "candidate"

    def _chain_end(self, number: int, entry: IndexEntry, time: int) -> End | None:
        previous = entry.previous
        if previous <= 0:
            return End.FIRST if previous == 0 else End.RANGE
        if previous > self.count:
            return End.RANGE
        if previous == number:
            return End.SELF
        if time < self.query.begin:
            return End.BEFORE
        return self._circle(number) if previous > number else None

    def _circle(self, number: int) -> End | None:
        """Return that the chain runs in a circle, once it comes back without a new candidate to an entry that goes up.

        A broker runs round until it has enough candidates; where a round gives none it never ends.
        """
        before = self._turns.get(number)
        self._turns[number] = len(self.found)
        return End.CIRCLE if before == len(self.found) else None

    def _note(self, number: int, result: str) -> None:
        self.trace.add(self.file.path, f"entry {number}", result)


# --- the index in RocksDB ------------------------------------------------------------------------------


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

    def __init__(self, store: StoreFiles, database: Database) -> None:
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
        """Return what the broker finds for a text; a later kind is asked only where the earlier ones gave nothing.

        Args:
            kinds: of ``K``, ``T`` and ``U``, in the order they are asked.
            times: store times in epoch ms, both inclusive; without a begin or an end, the last days before the end of
                the log.
        """
        begin, end = times
        if begin <= 0 or end >= FOREVER:
            from rmqctl.rocketmq.queues.ranges import log_end  # imports NumPy, which files do without

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
            result = f"{len(found.candidates)} rows begin with {topic}@{kind}@{text}@, {span(begin, end)}"
            trace.add(MESSAGES, f"rows of kind {kind}", result)
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
                    yield Candidate(MESSAGES, 0, last_number(key), stored)

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
    from rmqctl.rocketmq.dispatch.database_rows import index_row_keys  # with NumPy, which lookups do without

    fields = record.fields
    return index_row_keys(
        fields["topic"], record.properties, fields["sys_flag"], record.store_timestamp, record.physical_offset
    )


@contextmanager
def open_index(store: StoreFiles) -> Iterator[MessageIndex]:
    """Give the index in RocksDB, for reading.

    Raises:
        MissingExtra: the package rocksdict is not installed.
        Refused: the store is remote.
        DatabaseDamaged: the database cannot be opened.
    """
    with open_database(store, MESSAGES, "reading the message index in RocksDB") as database:
        yield MessageIndex(store, database)
