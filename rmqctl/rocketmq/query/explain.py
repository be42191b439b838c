"""Why a query by key does not find what it should: the log is read, and each loss followed to its cause.

The query has left its own steps in a trace. Here the log's say is added: every message with the key,
where its index entries are, and what kept the broker from them. The last step names the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from formats.rocketmq.index import key_hash
from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.checkpoint import read_checkpoint
from rmqctl.rocketmq.databases import MESSAGES
from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.geometry import index_geometry
from rmqctl.rocketmq.index_files import IndexFile, index_files
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.by_id import clock_ahead
from rmqctl.rocketmq.query.index_causes import IndexCauses
from rmqctl.rocketmq.query.index_evidence import places_of
from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery
from rmqctl.rocketmq.query.log_search import Progress, Search, search_log
from rmqctl.rocketmq.query.message_ids import NotAMessageId, parse_message_id
from rmqctl.rocketmq.query.message_index import DatabaseWalk, open_index, row_keys
from rmqctl.rocketmq.query.records import ENCODING, KEYS, UNIQUE_KEY, Absence, Record
from rmqctl.rocketmq.query.steps import Step, Trace
from rmqctl.rocketmq.query.topic_names import did_you_mean, topic_names
from rmqctl.rocketmq.store import RocketMQStore

_LARGEST = 64 << 20
"""Bytes of one damaged place that are searched for the text of a key."""


def explain_key(
    store: RocketMQStore, query: KeyQuery, answer: KeyAnswer, trace: Trace, progress: Progress | None = None
) -> Step:
    """Read the log, add what it says to the trace, and name the reason for what the answer lacks.

    Raises:
        OSError: a file cannot be read.
    """
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
        damage: damage met in the log; end: physical offset behind its last record.
    """

    def __init__(
        self, store: RocketMQStore, files: list[IndexFile], query: KeyQuery, answer: KeyAnswer, trace: Trace
    ) -> None:
        self.store, self.files, self.query, self.answer, self.trace = store, files, query, answer, trace
        self.found: list[Record] = []
        self.damage: list[Finding] = []
        self.end = 0

    def conclude(self, progress: Progress | None = None) -> Step:
        """Read the log, note what it says, and name the reason.

        Raises:
            OSError: a file cannot be read.
        """
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
        told = ", ".join(f"{n} under topic {topic}" for topic, n in counts.items()) or "none"
        self.trace.add("", "log", f"read from end to end for {self.query.wanted}: {told}")
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
                text = f"its last entry is newer than {steps.instant(safe)}, which the checkpoint vouches for"
                what = "a broker that starts now deletes the file, and indexes again what it dispatches again"
                self.trace.add(file.path, "after the crash", f"{text}: {what}")

    # --- a message of the log that the query does not give --------------------------------------

    def _why_missing(self, record: Record) -> Step:
        stored = steps.instant(record.store_timestamp)
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

    def _why_not_in_database(self, record: Record, walk: DatabaseWalk) -> Step:
        """Why the index in RocksDB does not give a message of the log."""
        key, at = self.query.wanted, record.physical_offset
        span = steps.span(walk.begin, walk.end)
        if walk.refused:
            return steps.INDEX_SPAN.conclude(MESSAGES, span=walk.refused, key=key, physical_offset=at)
        if not walk.begin <= record.store_timestamp <= walk.end:
            time = steps.instant(record.store_timestamp)
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

    def _why_absent(self, absence: Absence) -> Step:
        """Why an entry of the index leads to no record: what the scan of the log says of the place."""
        at = absence.physical_offset
        finding = next((f for f in self.damage if f.kind is not kinds.LOG_GAP and _includes(f, at)), None)
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

    def _why_stranger(self, record: Record) -> Step:
        """Why an entry leads to a record that has no such key: its properties are damaged, or it is another record."""
        wanted, at = f"the index entry of {self.query.wanted}", record.physical_offset
        if record.damage:
            return steps.RECORD_DAMAGED.conclude(record.file, wanted=wanted, physical_offset=at, found=record.damage)
        found = f"topic {record.topic}, queue {record.fields['queue_id']}, queue offset {record.fields['queue_offset']}"
        return steps.RECORD_REPLACED.conclude(record.file, wanted=wanted, physical_offset=at, found=found)

    def _all_is_there(self) -> Step:
        late = self._late()
        if late is not None:
            made, stored = map(steps.instant, late)
            return steps.CODE_208.conclude(self.answer.messages[0].file, made=made, stored=stored)
        count = len(self.answer.messages)
        return steps.NONE.conclude(found=f"{count} message{'s' * (count != 1)}, and the log has no other")

    def _late(self) -> tuple[int, int] | None:
        """Times of the key and of the message, where a client would ask from too late a time on."""
        if not self.query.unique or self.query.key is None:
            return None
        try:
            unique = parse_message_id(self.query.key).unique
        except NotAMessageId:
            return None
        return None if unique is None else clock_ahead(self.answer.messages[0], unique, self.answer)

    def _why_nothing(self) -> Step:
        elsewhere = [r for r in self.found if r.topic != self.query.topic]
        copies = [r for r in elsewhere if r.real_topic == self.query.topic]
        if copies:
            return self._copy(copies[0])
        names = topic_names(self.store)
        if self.query.topic not in names and not any(r.topic == self.query.topic for r in self.found):
            if elsewhere:
                return self._elsewhere(elsewhere)
            return steps.UNKNOWN_TOPIC.conclude(topic=self.query.topic, nearest=did_you_mean(self.query.topic, names))
        if elsewhere:
            return self._elsewhere(elsewhere)
        if self.answer.raw:
            is_prefix = isinstance(self.answer.walk, DatabaseWalk)
            miss, key = (steps.INDEX_PREFIX, self.query.key) if is_prefix else (steps.COLLISION, self.query.wanted)
            return miss.conclude(count=len(self.answer.raw), key=key)
        return self._lost_in_damage() if self.damage else self._nowhere()

    def _lost_in_damage(self) -> Step:
        """Whether the text of the key stands in the damaged bytes, where they are there at all."""
        wanted = (self.query.key if self.query.key is not None else self.query.tag or "").encode(*ENCODING)
        with LogReader(self.store.log_files) as log:
            held = [f for f in self.damage if wanted in log.read(f.physical_offset or 0, min(f.size, _LARGEST))]
        for finding in held:
            self.trace.add(finding.file, f"damage at {finding.offset}", "the text stands in the damaged bytes")
        places = [f"{f.file} {f.offset}" for f in held or self.damage]
        told = ", ".join(places[:3]) + (f" and {len(places) - 3} more places" if len(places) > 3 else "")
        text = "its text stands" if held else "it may have been"
        return steps.LOG_DAMAGED.conclude(key=self.query.wanted, places=told, text=text)

    def _nowhere(self) -> Step:
        where = f"under topic {self.query.topic}"
        if self.query.tag is not None and self.query.key is not None:
            where += f" with tags {self.query.tag}"
        return steps.KEY_NOWHERE.conclude(key=self.query.wanted, where=where)

    def _copy(self, record: Record) -> Step:
        topic = record.topic
        return steps.SYSTEM_TOPIC.conclude(
            record.file, key=self.query.wanted, copy=copy_word(topic), system_topic=topic, topic=record.real_topic
        )

    def _elsewhere(self, records: Iterable[Record]) -> Step:
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
    """What a message under a system topic is a copy for (spec 2.12, 2.13)."""
    return next((word for name, word in _COPIES if topic.startswith(name)), "system")


def absent_step(absence: Absence, wanted: str, store: RocketMQStore, end: int = 0) -> Step:
    """The last step where an entry, a unit or an id leads to an offset without a record.

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


__all__ = ["absent_step", "copy_word", "explain_key"]
