"""Messages by key, as a broker finds them: index, records, then the client's filter (spec 4.6, 8.3).

Sources: DefaultMessageStore.queryMessage, MQAdminImpl.queryMessage. NumPy is not imported on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.rocketmq.index import index_key, tag_index_key
from rmqctl.explain import Trace
from rmqctl.rocketmq.index import IndexFile, index_files, is_asked
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.index_walk import MAX_BATCH, IndexQuery, Walk, walk_index
from rmqctl.rocketmq.query.records import ENCODING, Absence, Record, RecordReader
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry, integer

if TYPE_CHECKING:
    from rmqctl.rocketmq.query.index_walk import MessageIndex

FOREVER = (1 << 63) - 1
UNIQUE_MAX = 32
"""`defaultQueryMaxNum`: what a broker makes of ``max`` in a query for a unique key."""


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A question for the index.

    Attributes:
        topic: as it stands in the record: a half, delayed or timer copy is under its system topic.
        key: one part of KEYS, or with ``unique`` a UNIQ_KEY; None to ask for ``tag`` alone.
        tag: without a key, the entries of whole TAGS texts that brokers write from 5.4.0 on; with one,
            only messages with these tags are kept.
        begin, end: store times in epoch ms, both inclusive.
        max: candidates at most; the broker's limits come on top: 64, and 32 for a unique key whatever is asked.
        strict: read properties as brokers up to 4.9.0 do.
    """

    topic: str
    key: str | None
    unique: bool = False
    tag: str | None = None
    begin: int = 0
    end: int = FOREVER
    max: int = MAX_BATCH
    strict: bool = False

    @property
    def text(self) -> str:
        """What the index holds the hash of: bytes that are not UTF-8 as Java reads them."""
        topic = as_java_reads(self.topic)
        if self.key is None:
            return tag_index_key(topic, as_java_reads(self.tag or ""))
        return index_key(topic, as_java_reads(self.key))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of rows that the index in RocksDB is asked for, each only where those in front of it give nothing."""
        if self.key is None:
            return ("T",)
        return ("U",) if self.unique else ("K", "U")

    @property
    def wanted(self) -> str:
        """What is looked for, in words."""
        if self.key is None:
            return f"tags {self.tag}"
        return f"unique key {self.key}" if self.unique else f"key {self.key}"

    def index_query(self, batch: int = MAX_BATCH) -> IndexQuery:
        """As the index is asked."""
        wanted = UNIQUE_MAX if self.unique else self.max
        return IndexQuery(self.text, self.begin, self.end, wanted, batch)

    def matches(self, record: Record) -> str:
        """Why the client drops a message; "" when it keeps it."""
        if record.topic != self.topic:
            return f"its topic is {record.topic}"
        if self.key is not None and not self._has_key(record, self.key):
            what = "unique key" if self.unique else "part of KEYS"
            return f"no {what} equals {self.key}: another key with the same hash"
        if self.tag is not None and not record.has_tags(self.tag):
            return f"its tags are not {self.tag}"
        return ""

    def _has_key(self, record: Record, key: str) -> bool:
        return record.has_unique_key(key) if self.unique else record.has_key(key)


def as_java_reads(text: str) -> str:
    """Text of the command line with U+FFFD where its bytes are not UTF-8."""
    return text.encode(*ENCODING).decode("utf-8", "replace")


@dataclass(slots=True)
class KeyAnswer:
    """What a broker answers.

    Attributes:
        walk: the index's part of it.
        raw: messages that the broker sends (``DefaultMessageStore.queryMessage``): ascending by physical offset,
            repeats included.
        absent: candidates whose record cannot be read, ascending, once each.
        messages: those of ``raw`` that the client keeps, once each.
    """

    walk: Walk
    raw: list[Record] = field(default_factory=list)
    absent: list[Absence] = field(default_factory=list)
    messages: list[Record] = field(default_factory=list)


def by_key(store: StoreFiles, query: KeyQuery, trace: Trace | None = None) -> KeyAnswer:
    """Return the messages that a broker's index gives for a key."""
    trace = trace or Trace(on=False)
    batch = integer(store.settings, "maxMsgsNumBatch") or MAX_BATCH
    if is_asked(store):
        from rmqctl.rocketmq.query.index_walk import open_index  # with NumPy

        with LogReader(store.log_files) as log, open_index(store) as index:
            return by_key_in_database(index, log, query, trace, batch)
    files = index_files(store, index_geometry(store))
    try:
        with LogReader(store.log_files) as log:
            return by_key_in(files, log, query, trace, batch)
    finally:
        for file in files:
            file.close()


def by_key_in(
    files: Iterable[IndexFile], log: LogReader, query: KeyQuery, trace: Trace, batch: int = MAX_BATCH
) -> KeyAnswer:
    """Find messages by key in index files that are open; ``batch`` is the broker's `maxMsgsNumBatch`."""
    asked = query.index_query(batch)
    trace.add("", "hash", f"{asked.text} has hash {asked.hash}")
    return _read(KeyAnswer(walk_index(files, asked, trace)), log, query, trace)


def by_key_in_database(
    index: MessageIndex, log: LogReader, query: KeyQuery, trace: Trace, batch: int = MAX_BATCH
) -> KeyAnswer:
    """Find messages by key in the index in RocksDB."""
    asked = query.index_query(batch)
    text = query.tag or "" if query.key is None else query.key
    walk = index.walk(query.topic, text, query.kinds, (query.begin, query.end), asked.limit, trace)
    return _read(KeyAnswer(walk), log, query, trace)


def _read(answer: KeyAnswer, log: LogReader, query: KeyQuery, trace: Trace) -> KeyAnswer:
    """Read the records of the candidates, and keep what the client keeps."""
    reader = RecordReader(log, trace, strict=query.strict)
    found: dict[int, Record | Absence] = {}
    for physical in sorted(answer.walk.offsets):
        if physical in found:
            trace.add("", f"record {physical}", "a candidate again: the entry is a repeat")
        record = found.setdefault(physical, reader.at(physical)) if physical not in found else found[physical]
        if isinstance(record, Record):
            answer.raw.append(record)
    answer.absent = [r for r in found.values() if isinstance(r, Absence)]
    answer.messages = [r for r in found.values() if isinstance(r, Record) and _keeps(query, r, trace)]
    return answer


def _keeps(query: KeyQuery, record: Record, trace: Trace) -> bool:
    why = query.matches(record)
    trace.add(record.file, f"record {record.physical_offset}", f"dropped, {why}" if why else "kept")
    return not why
