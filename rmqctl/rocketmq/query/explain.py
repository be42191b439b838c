"""Why a query by key or id does not find what it should: the log is read, and each loss followed to its cause (spec 4.3
to 4.6).

The query has left its own steps in a trace. Here the log's say is added: every message with the key, where its index
entries are, whatever headers, slots and chains say of it, and what kept the broker from them or from making one. The
last step names the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from formats.rocketmq.index import key_hash
from formats.rocketmq.message import ROLLBACK, TRANSACTION
from rmqctl.explain import NONE, Trace, TraceStep
from rmqctl.findings import Finding
from rmqctl.rocketmq.dump.record import host_text, transaction
from rmqctl.rocketmq.findings.log import LOG_GAP
from rmqctl.rocketmq.index import IndexEntry, IndexFile, index_files
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.ids import IdAnswer, MessageId, NotAMessageId, clock_ahead, parse_message_id
from rmqctl.rocketmq.query.index_walk import DatabaseWalk, End, IndexChain, Walk, open_index, row_keys
from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery
from rmqctl.rocketmq.query.log_search import Progress, Search, search_log
from rmqctl.rocketmq.query.messages import RecordUnit, unit_of
from rmqctl.rocketmq.query.records import ENCODING, KEYS, UNIQUE_KEY, Absence, Record
from rmqctl.rocketmq.state.config import did_you_mean, known_topics, read_checkpoint
from rmqctl.rocketmq.store.databases import MESSAGES
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.text import instant, number_of

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the wanted hash that leads to the wanted offset."""

    file: IndexFile
    number: int
    entry: IndexEntry


def places_of(files: Iterable[IndexFile], physical: int, key_hash: int) -> list[Place]:
    """Entries that name an offset and a hash, newest file first."""
    return [place for file in reversed(list(files)) for place in _in_file(file, physical, key_hash)]


def covers(file: IndexFile, physical: int) -> bool:
    """Whether an offset lies in what the header says the file holds."""
    return file.header["begin_phy_offset"] <= physical <= file.header["end_phy_offset"]


def _in_file(file: IndexFile, physical: int, key_hash: int) -> Iterator[Place]:
    """By halving where the header can be believed; else, or where that finds nothing, entry by entry."""
    if _is_sound(file):
        if not covers(file, physical):
            return
        found = list(_matches(file, file.first_at_or_after(physical), _CHUNK, physical, key_hash))
        if found:
            yield from found
            return
    for first in range(1, file.geometry.entries, _CHUNK):
        yield from _matches(file, first, _CHUNK, physical, key_hash)
        if file.geometry.entry_at(first + _CHUNK) >= file.size:
            return


def _is_sound(file: IndexFile) -> bool:
    header = file.header
    return 1 < header["index_count"] <= file.geometry.entries and (
        0 <= header["begin_phy_offset"] <= header["end_phy_offset"]
    )


def _matches(file: IndexFile, first: int, count: int, physical: int, key_hash: int) -> Iterator[Place]:
    entries = file.entries(first, count)
    for row in np.flatnonzero((entries["physical_offset"] == physical) & (entries["key_hash"] == key_hash)).tolist():
        fields = (int(entries[name][row]) for name in IndexEntry._fields)
        yield Place(file, first + row, IndexEntry(*fields))


# --- what kept a broker from an index entry that is there -------------------------------------------


_SECOND = 1000


@dataclass(frozen=True, slots=True)
class IndexCauses:
    """Causes for the messages that one walk through the index did not give.

    Attributes:
        files: the index files, oldest first; at least one.
    """

    store: StoreFiles
    files: list[IndexFile]
    query: KeyQuery
    walk: Walk

    @property
    def _span(self) -> dict[str, object]:
        return {"span": steps.span(self.query.begin, self.query.end)}

    def why_not_reached(self, place: Place, record: Record) -> TraceStep:
        """Why the walk did not take an entry that is there."""
        file, query = place.file, self.query
        chain = next((c for c in self.walk.chains if c.file.path == file.path), None)
        if not query.begin <= record.store_timestamp <= query.end:
            return self._outside(file, record.store_timestamp)
        if chain is None:
            return self._not_looked_into(file)
        damaged = self._wrong_times(file) if any(file.header.values()) else None
        if damaged is not None:
            return damaged
        if chain.end in {End.NO_ENTRIES, End.TIME}:
            return self._bad_header(file, record)
        if not file.is_whole:
            return self._unreadable(file)
        return self._bad_slot(chain) if chain.end in {End.EMPTY, End.SLOT} else self._broken_chain(chain, place)

    def _bad_header(self, file: IndexFile, record: Record) -> TraceStep:
        """Return the reason where a header says that its file has no entries, or none of the time asked for."""
        header = file.header
        begin, end = header["begin_timestamp"], header["end_timestamp"]
        if not any(header.values()) or (header["index_count"] <= 1 and 0 <= begin <= end):
            at = record.physical_offset
            return steps.INDEX_EMPTY.conclude(file.path, file=file.path, key=self.query.wanted, physical_offset=at)
        if begin <= end and 0 < begin <= record.store_timestamp + _SECOND and end > 0:
            return steps.INDEX_TIME.conclude(file.path, **self._span)
        reason = f"it says that the first entry is of {instant(begin)}, the last of {instant(end)}"
        return steps.INDEX_HEADER.conclude(file.path, file=file.path, key=self.query.wanted, reason=reason)

    def _wrong_times(self, file: IndexFile) -> TraceStep | None:
        """Return the reason where a header has another time than the record it names: all others count from it."""
        reasons = []
        with LogReader(self.store.log_files) as log:
            for side, which in (("begin", "first"), ("end", "last")):
                said, stored = file.header[f"{side}_timestamp"], log.store_timestamp(file.header[f"{side}_phy_offset"])
                if stored not in (None, said):
                    wrong, right = instant(said), instant(stored or 0)
                    reasons.append(f"it says that the {which} entry is of {wrong}, but that record was stored {right}")
        if not reasons:
            return None
        return steps.INDEX_HEADER.conclude(file.path, file=file.path, key=self.query.wanted, reason="; ".join(reasons))

    def _outside(self, file: IndexFile, time: int) -> TraceStep:
        return steps.ENTRY_TIME.conclude(file.path, key=self.query.wanted, time=instant(time), **self._span)

    def _not_looked_into(self, file: IndexFile) -> TraceStep:
        cut = self.walk.cut_at
        if cut is not None:
            return steps.FILES_CUT_BY_TIME.conclude(
                cut.path, file=cut.path, key=self.query.wanted, begin=instant(self.query.begin)
            )
        return self._limit(file)

    def _limit(self, file: IndexFile) -> TraceStep:
        return steps.LIMIT.conclude(file.path, limit=self.query.index_query().limit, key=self.query.wanted)

    def _unreadable(self, file: IndexFile) -> TraceStep:
        geometry = file.geometry
        reason = (
            f"it has {file.size} bytes, but {geometry.slots} slots and {geometry.entries} entries "
            f"need {geometry.file_size}"
        )
        return steps.INDEX_UNREADABLE.conclude(file.path, file=file.path, reason=reason)

    def _bad_slot(self, chain: IndexChain) -> TraceStep:
        path, count = chain.file.path, max(chain.file.header["index_count"] - 1, 0)
        if chain.end is End.EMPTY:
            return steps.SLOT_EMPTY.conclude(path, key=self.query.wanted)
        return steps.SLOT_BAD.conclude(path, slot=chain.slot, file=path, entry=chain.newest, count=count)

    def _broken_chain(self, chain: IndexChain, place: Place) -> TraceStep:
        path = chain.file.path
        time = chain.file.header["begin_timestamp"] + place.entry.time_difference * 1000
        if not self.query.begin <= time <= self.query.end:
            return self._outside(chain.file, time)
        at: dict[str, object] = {"key": self.query.wanted, "entry": chain.last, "file": path}
        if chain.end is End.LIMIT:
            return self._limit(chain.file)
        if chain.end is End.BEFORE:
            return steps.CHAIN_TIME.conclude(path, **at, begin=instant(self.query.begin), wanted=place.number)
        reason = "it names no entry before it" if chain.end is End.FIRST else str(chain.end)
        return steps.CHAIN_BROKEN.conclude(path, **at, reason=reason)

    def never_indexed(self, record: Record) -> TraceStep:
        """No entry leads to a record: what its place in the log says of the reason."""
        lost: dict[str, object] = {"key": self.query.wanted, "physical_offset": record.physical_offset}
        first, last = self.files[0], self.files[-1]
        physical = record.physical_offset
        if record.fields["sys_flag"] & TRANSACTION == ROLLBACK:
            return steps.NEVER_INDEXED.conclude(**lost, reason="rollback records are not indexed")
        holder = next((f for f in self.files if covers(f, physical)), None)
        if holder is not None and not holder.is_whole:
            return self._unreadable(holder)
        if holder is not None:
            reason = f"{holder.path} holds what was stored before and after it; the index was off, or lost it"
            return steps.NEVER_INDEXED.conclude(holder.path, **lost, reason=reason)
        if physical > last.header["end_phy_offset"] and not self._is_queued(record):
            reason = "it was not dispatched: it has no queue unit either, and a broker dispatches it when it starts"
            return steps.NEVER_INDEXED.conclude(last.path, **lost, reason=reason)
        ends = {"first": first.header["begin_phy_offset"], "last": last.header["end_phy_offset"]}
        return steps.INDEX_OUTSIDE_FILES.conclude("index", **lost, **ends)

    def _is_queued(self, record: Record) -> bool:
        return unit_of(self.store, record).is_there


# --- why a query by key does not find what it should ------------------------------------------------


_LARGEST = 64 << 20
"""Bytes of one damaged place that are searched for the text of a key."""


def explain_key(
    store: StoreFiles, query: KeyQuery, answer: KeyAnswer, trace: Trace, progress: Progress | None = None
) -> TraceStep:
    """Read the log, add what it says to the trace, and name the reason for what the answer lacks."""
    files = index_files(store, index_geometry(store))
    try:
        return KeyExplanation(store, files, query, answer, trace).conclude(progress)
    finally:
        for file in files:
            file.close()


class KeyExplanation:
    """The explanation of one answer.

    Attributes:
        files: the index files that were asked, oldest first.
        found: messages of the log with the key, under any topic, in log order.
        damage: damage met in the log; end: physical offset after its last record.
    """

    def __init__(
        self, store: StoreFiles, files: list[IndexFile], query: KeyQuery, answer: KeyAnswer, trace: Trace
    ) -> None:
        self.store, self.files, self.query, self.answer, self.trace = store, files, query, answer, trace
        self.found: list[Record] = []
        self.damage: list[Finding] = []
        self.end = 0

    def conclude(self, progress: Progress | None = None) -> TraceStep:
        """Read the log, note what it says, and name the reason."""
        self._read_log(progress)
        expected = [r for r in self.found if not self.query.matches(r)]
        if expected:
            self._note_crash()
        seen = {r.physical_offset for r in self.answer.messages}
        missing = [r for r in expected if r.physical_offset not in seen]
        for record in missing[1:]:
            self.trace.add(record.file, f"record {record.physical_offset}", "has the key and is not found either")
        if missing:
            return self._why_missing(missing[0])
        if self.answer.absent:
            return self._why_absent(self.answer.absent[0])
        if self._strangers():
            return self._why_stranger(self._strangers()[0])
        return self._all_is_there() if self.answer.messages else self._why_nothing()

    # --- what the log says ----------------------------------------------------------------------

    def _read_log(self, progress: Progress | None) -> None:
        query = self.query
        wanted = Filter(key=query.key, tag=query.tag if query.key is None else None, strict=query.strict)
        places = (UNIQUE_KEY,) if query.unique else (KEYS,)
        for part in search_log(self.store, Search(wanted, places), progress=progress):
            self.found += part.records
            self.damage += part.findings
            self.end = self.end if part.end is None else part.end
        counts = Counter(r.topic for r in self.found)
        result = ", ".join(f"{n} under topic {topic}" for topic, n in counts.items()) or "none"
        self.trace.add("", "log", f"read from end to end for {self.query.wanted}: {result}")
        for finding in self.damage[:20]:
            self.trace.add(finding.file, f"damage at {finding.offset}", f"{finding.kind.id}: {finding.message}")

    def _note_crash(self) -> None:
        """Which index files a broker deletes when it starts on a store that was not stopped (spec 4.5)."""
        if not self.store.has_abort or self.store.is_running or isinstance(self.answer.walk, DatabaseWalk):
            return
        found = read_checkpoint(self.store)
        safe = found[0]["index_msg_timestamp"] if found else 0
        for file in self.files:
            if file.header["end_timestamp"] > safe:
                text = f"its last entry is newer than {instant(safe)}, which the checkpoint vouches for"
                what = "a broker that starts now deletes the file, and indexes again what it dispatches again"
                self.trace.add(file.path, "after the crash", f"{text}: {what}")

    # --- a message of the log that the query does not give --------------------------------------

    def _why_missing(self, record: Record) -> TraceStep:
        stored = instant(record.store_timestamp)
        self.trace.add(
            record.file, f"record {record.physical_offset}", f"has {self.query.wanted}, stored {stored}; not found"
        )
        lost: dict[str, object] = {"key": self.query.wanted, "physical_offset": record.physical_offset}
        if isinstance(self.answer.walk, DatabaseWalk):
            return self._why_not_in_database(record, self.answer.walk)
        if not self.files:
            return steps.NO_INDEX.conclude("index", **lost)
        places = places_of(self.files, record.physical_offset, self.query.index_query().hash)
        for place in places:
            self.trace.add(place.file.path, f"entry {place.number}", f"leads to record {record.physical_offset}")
        causes = IndexCauses(self.store, self.files, self.query, self.answer.walk)
        if places:
            return causes.why_not_reached(places[0], record)
        return self._why_stranger(self._strangers()[0]) if self._strangers() else causes.never_indexed(record)

    def _why_not_in_database(self, record: Record, walk: DatabaseWalk) -> TraceStep:
        """Why the index in RocksDB does not give a message of the log."""
        key, at = self.query.wanted, record.physical_offset
        span = steps.span(walk.begin, walk.end)
        if walk.refused:
            return steps.INDEX_SPAN.conclude(MESSAGES, span=walk.refused, key=key, physical_offset=at)
        if not walk.begin <= record.store_timestamp <= walk.end:
            time = instant(record.store_timestamp)
            return steps.ENTRY_TIME.conclude(MESSAGES, key=key, time=time, span=span)
        with open_index(self.store) as index:
            if index.has(record):
                return steps.LIMIT.conclude(MESSAGES, limit=walk.limit, key=key)
            mark = index.mark
        if not row_keys(record):
            reason = "records without a unique key, and rollbacks, get none"
        elif at >= mark:
            reason = f"the index reaches to {max(mark, 0)}, and a start of the broker dispatches what lies after it"
        else:
            reason = "records around it have theirs; the index was off, or lost it"
        return steps.INDEX_ROW_MISSING.conclude(MESSAGES, key=key, physical_offset=at, reason=reason)

    # --- nothing of it is in the log ------------------------------------------------------------

    def _why_absent(self, absence: Absence) -> TraceStep:
        """Why an entry of the index leads to no record: what the scan of the log says of the place."""
        at = absence.physical_offset
        finding = next((f for f in self.damage if f.kind is not LOG_GAP and _includes(f, at)), None)
        if finding is not None and absence.miss in {steps.RECORD_GONE, steps.RECORD_DAMAGED}:
            text = f"{absence.found} ({finding.kind.id})"
            absence = replace(absence, miss=steps.RECORD_DAMAGED, found=text)
        elif absence.miss is steps.RECORD_GONE and at >= self.end > 0:
            absence = replace(absence, miss=steps.BEYOND_LOG)
        return absent_step(absence, f"the index entry of {self.query.wanted}", self.store, self.end)

    def _strangers(self) -> list[Record]:
        """Candidates none of whose keys has the hash that was asked for, so that the entry cannot be theirs."""
        if isinstance(self.answer.walk, DatabaseWalk):
            return []
        wanted = self.query.index_query().hash
        return [r for r in self.answer.raw if wanted not in map(key_hash, r.index_keys())]

    def _why_stranger(self, record: Record) -> TraceStep:
        """Why an entry leads to a record that has no such key: its properties are damaged, or it is another record."""
        wanted, at = f"the index entry of {self.query.wanted}", record.physical_offset
        if record.damage:
            return steps.RECORD_DAMAGED.conclude(record.file, wanted=wanted, physical_offset=at, found=record.damage)
        found = f"topic {record.topic}, queue {record.fields['queue_id']}, queue offset {record.fields['queue_offset']}"
        return steps.RECORD_REPLACED.conclude(record.file, wanted=wanted, physical_offset=at, found=found)

    def _all_is_there(self) -> TraceStep:
        late = self._late()
        if late is not None:
            made, stored = map(instant, late)
            return steps.CODE_208.conclude(self.answer.messages[0].file, made=made, stored=stored)
        count = len(self.answer.messages)
        return NONE.conclude(found=f"{count} message{'s' * (count != 1)}, and the log has no other")

    def _late(self) -> tuple[int, int] | None:
        """Return times of the key and of the message, where a client would ask from too late a time on."""
        if not self.query.unique or self.query.key is None:
            return None
        try:
            unique = parse_message_id(self.query.key).unique
        except NotAMessageId:
            return None
        return None if unique is None else clock_ahead(self.answer.messages[0], unique, self.answer)

    def _why_nothing(self) -> TraceStep:
        elsewhere = [r for r in self.found if r.topic != self.query.topic]
        copies = [r for r in elsewhere if r.real_topic == self.query.topic]
        if copies:
            return self._copy(copies[0])
        names = known_topics(self.store)
        if self.query.topic not in names and not any(r.topic == self.query.topic for r in self.found):
            if elsewhere:
                return self._elsewhere(elsewhere)
            hint = did_you_mean(self.query.topic, names, self.store.root)
            return steps.UNKNOWN_TOPIC.conclude(topic=self.query.topic, nearest=hint)
        if elsewhere:
            return self._elsewhere(elsewhere)
        if self.answer.raw:
            is_prefix = isinstance(self.answer.walk, DatabaseWalk)
            miss, key = (steps.INDEX_PREFIX, self.query.key) if is_prefix else (steps.COLLISION, self.query.wanted)
            return miss.conclude(count=len(self.answer.raw), key=key)
        return self._lost_in_damage() if self.damage else self._nowhere()

    def _lost_in_damage(self) -> TraceStep:
        """Whether the text of the key stands in the damaged bytes, where they are there at all."""
        wanted = (self.query.key if self.query.key is not None else self.query.tag or "").encode(*ENCODING)
        with LogReader(self.store.log_files) as log:
            held = [f for f in self.damage if wanted in log.read(f.physical_offset or 0, min(f.size, _LARGEST))]
        for finding in held:
            self.trace.add(finding.file, f"damage at {finding.offset}", "the text stands in the damaged bytes")
        places = [f"{f.file} {f.offset}" for f in held or self.damage]
        named = ", ".join(places[:3]) + (f" and {len(places) - 3} more places" if len(places) > 3 else "")
        text = "its text stands" if held else "it may have been"
        return steps.LOG_DAMAGED.conclude(key=self.query.wanted, places=named, text=text)

    def _nowhere(self) -> TraceStep:
        where = f"under topic {self.query.topic}"
        if self.query.tag is not None and self.query.key is not None:
            where += f" with tags {self.query.tag}"
        return steps.KEY_NOWHERE.conclude(key=self.query.wanted, where=where)

    def _copy(self, record: Record) -> TraceStep:
        topic = record.topic
        return steps.SYSTEM_TOPIC.conclude(
            record.file, key=self.query.wanted, copy=copy_word(topic), system_topic=topic, topic=record.real_topic
        )

    def _elsewhere(self, records: Iterable[Record]) -> TraceStep:
        topics = dict.fromkeys(r.topic for r in records)
        return steps.OTHER_TOPIC.conclude(key=self.query.wanted, topic=", ".join(topics))


_COPIES = (
    ("RMQ_SYS_TRANS_HALF_TOPIC", "half"),
    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "transaction mark"),
    ("TRANS_CHECK_MAX_TIME_TOPIC", "given-up half"),
    ("SCHEDULE_TOPIC_XXXX", "delayed"),
    ("rmq_sys_wheel_timer", "timer"),
    ("%RETRY%", "retry"),
    ("%DLQ%", "dead-letter"),
)


def copy_word(topic: str) -> str:
    """Return what a message under a system topic is a copy for (spec 2.12, 2.13)."""
    return next((word for name, word in _COPIES if topic.startswith(name)), "system")


def absent_step(absence: Absence, wanted: str, store: StoreFiles, end: int = 0) -> TraceStep:
    """Return the last step where an entry, a unit or an id leads to an offset without a record.

    Args:
        end: of the log, in bytes; default: of its last file.
    """
    files = store.log_files
    last = files[-1].base + files[-1].size if files else 0
    ends = {"min_offset": files[0].base if files else 0, "end": end or last}
    at = absence.physical_offset
    return absence.miss.conclude(absence.file, wanted=wanted, physical_offset=at, found=absence.found, **ends)


def _includes(finding: Finding, physical: int) -> bool:
    begin = finding.physical_offset
    return begin is not None and begin <= physical < begin + max(finding.size, 1)


# --- why an id leads to no message ------------------------------------------------------------------


def conclude_id(
    store: StoreFiles, wanted: MessageId, answer: IdAnswer, trace: Trace, progress: Progress | None = None
) -> TraceStep:
    """Note what the queues, or the log, say of the message; the last step names the reason."""
    if answer.messages:
        return _found(store, wanted, answer, trace)
    absent = next((a for k in answer.answers.values() for a in k.absent), None)
    records, end = _in_log(store, wanted, trace, progress)
    if records:
        return _hidden(store, wanted, records[0], answer, trace, progress)
    if absent is not None:
        return absent_step(absent, f"the index entry of unique key {wanted.text}", store, end)
    if answer.absence is not None:
        return _no_record(store, answer.absence, end)
    return steps.KEY_NOWHERE.conclude(key=f"unique key {wanted.text}", where="under any topic")


def _found(store: StoreFiles, wanted: MessageId, answer: IdAnswer, trace: Trace) -> TraceStep:
    """Return what is unusual about a message that was found; else that nothing is."""
    record = answer.messages[0]
    if answer.foreign_host:
        found = f"the record at its offset is a message of topic {record.topic}"
        host = _store_host(record)
        return steps.FOREIGN_HOST.conclude(record.file, host=answer.foreign_host, store_host=host, found=found)
    at: dict[str, object] = {"physical_offset": record.physical_offset}
    if record.damage:
        return steps.RECORD_DAMAGED.conclude(record.file, **at, wanted="the id", found=record.damage)
    unit = unit_of(store, record)
    trace.add(unit.file, f"queue {unit.topic}/{unit.queue_id}, offset {unit.queue_offset}", unit.found)
    if not unit.wanted:
        return steps.NEVER_QUEUED.conclude(record.file, **at, transaction=transaction(record.fields["sys_flag"]))
    if not unit.is_there:
        return steps.NO_QUEUE_UNIT.conclude(unit.file, **at, topic=unit.topic, queue_id=unit.queue_id)
    return _delivered(wanted, answer, unit)


def _delivered(wanted: MessageId, answer: IdAnswer, unit: RecordUnit) -> TraceStep:
    """Return what is said of a message that consumers get: if clients find it by its id, and what it is a copy of."""
    record = answer.messages[0]
    if answer.late is not None:
        made, stored = map(instant, answer.late)
        return steps.CODE_208.conclude(record.file, made=made, stored=stored)
    if record.topic != record.real_topic:
        copy: dict[str, object] = {"copy": copy_word(record.topic), "system_topic": record.topic}
        return steps.SYSTEM_TOPIC.conclude(
            record.file, key=f"the message {wanted.text}", **copy, topic=record.real_topic
        )
    return NONE.conclude(found=f"the message lies at offset {record.physical_offset}, and {unit.found}")


def _in_log(store: StoreFiles, wanted: MessageId, trace: Trace, progress: Progress | None) -> tuple[list[Record], int]:
    """Messages of the log with the unique key, and the physical offset after its last record."""
    search = Search(Filter(key=wanted.text), (UNIQUE_KEY,))
    found = list(search_log(store, search, progress=progress))
    records = [r for part in found for r in part.records]
    trace.add("", "log", f"read from end to end for the unique key: {number_of(len(records), 'message')}")
    for finding in [f for part in found for f in part.findings][:20]:
        trace.add(finding.file, f"damage at {finding.offset}", f"{finding.kind.id}: {finding.message}")
    return records, next((part.end for part in reversed(found) if part.end is not None), 0)


def _hidden(
    store: StoreFiles, wanted: MessageId, record: Record, answer: IdAnswer, trace: Trace, progress: Progress | None
) -> TraceStep:
    """Return the reason where the log has the message and the index did not give it."""
    known = answer.answers.get(record.topic)
    if known is None:
        trace.add("", "topic", f"{record.topic} is the message's topic, and was not asked for")
        return steps.OTHER_TOPIC.conclude(key=f"unique key {wanted.text}", topic=record.topic)
    return explain_key(store, KeyQuery(record.topic, wanted.text, unique=True), known, trace, progress)


def _no_record(store: StoreFiles, absence: Absence, end: int) -> TraceStep:
    """Nothing lies where an offsetMsgId says."""
    if absence.miss is steps.RECORD_GONE and absence.physical_offset >= end > 0:
        absence = replace(absence, miss=steps.BEYOND_LOG)
    if absence.miss is not steps.RECORD_GONE:
        return absent_step(absence, "the id", store, end)
    at = absence.physical_offset
    return steps.NO_RECORD_AT_ID.conclude(absence.file, physical_offset=at, found=absence.found)


def _store_host(record: Record) -> str:
    fields = record.fields
    return host_text(fields["store_ip"] + fields["store_port"].to_bytes(4, "big", signed=True))
