"""The life of one message: its copies in the log, what leads to them, who passed them (spec 2.12, 2.13, 9, A5, A6).

A message is stored several times: as a half message, a delayed or timed one, for consumers, for a retry, as a dead
letter. All copies have one unique key (UNIQ_KEY), so the log is searched for that, and no index is needed. What is
known of each copy comes from the rooms that answer for it: units, index, lag, pending. A fate that follows from
something that is not there is life only where no damage can have held it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from formats.rocketmq.index import index_key, key_hash
from formats.rocketmq.message import COMMIT, ROLLBACK, TRANSACTION
from formats.rocketmq.tags_code import DEFAULT_DELAY_LEVELS, SCHEDULE_TOPIC, delivery_time, parse_delay_levels
from rmqctl.explain import Trace
from rmqctl.filters import Names
from rmqctl.findings import Finding
from rmqctl.life import Event, Life, at_time, in_order, named
from rmqctl.rocketmq.dump.record import RowOptions
from rmqctl.rocketmq.index import IndexFile, index_files, is_asked
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query import pending
from rmqctl.rocketmq.query.copies import (
    CHECKS,
    GIVEN_UP,
    HALVES,
    INTERNAL,
    RECALL,
    WAITING,
    Copies,
    Damage,
    QueuePlace,
    follows,
    number_in,
    place_of,
    queues_of,
    role_of,
    text_of,
    topic_of,
    topics_of,
)
from rmqctl.rocketmq.query.disk import reserved
from rmqctl.rocketmq.query.explain import places_of
from rmqctl.rocketmq.query.ids import NotAMessageId, parse_message_id
from rmqctl.rocketmq.query.index_walk import open_index
from rmqctl.rocketmq.query.lag import DEAD, RETRY, LagRow, lag_rows, queues_of_topic
from rmqctl.rocketmq.query.log_search import Search, search_log
from rmqctl.rocketmq.query.messages import UnitMessages, unit_of
from rmqctl.rocketmq.query.queue_view import open_queue, queue_on_disk
from rmqctl.rocketmq.query.records import ENCODING, KEYS, UNIQUE_KEY, Absence, Record, RecordReader
from rmqctl.rocketmq.query.steps import RECORD_EXPIRED
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.config import delay_offsets, read_checkpoint, read_config
from rmqctl.rocketmq.store.databases import MESSAGES
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.text import instant, number_of

_OPS = (pending.OP_TOPIC, pending.ROCKSDB_OP_TOPIC)
_READ = {"passed": "passed by", "not-passed": "not passed by", "unknown": "not known of"}
_FATES = {"passed": "passed", "not-passed": "waiting", "unknown": "unknown"}
"""Kinds of steps of groups, with the words of the sentence, and the fates that they stand for."""
_OUT, _FIRST_POP = b"TIMER_OUT_MS", b"1ST_POP_TIME"


@dataclass(slots=True)
class _End:
    """What a life comes to: the fate, and the clauses of its sentence."""

    fate: str = "stored"
    clauses: list[str] = field(default_factory=list)

    def say(self, fate: str, clause: str) -> None:
        self.fate = fate
        self.clauses.append(clause)


class LifeReader:
    """Makes lives of messages of one store.

    Attributes:
        started: the store as a broker has it once it has started.
        progress: called with the bytes of log passed since its last call.
    """

    def __init__(self, started: RecoveredStore, progress: Callable[[int], object], *, strict: bool = False) -> None:
        self.started, self.store, self.progress, self.strict = started, started.store, progress, strict
        self._lag: dict[str, list[LagRow]] = {}

    def close(self) -> None:
        """Close the index; the store is another's."""
        for file in vars(self).get("_index_files", ()):
            file.close()

    # --- which message is meant -------------------------------------------------------------------

    def at_place(self, topic: str, queue_id: int, offset: int) -> list[Life]:
        """Return the life of the message at a queue offset, or why there is none; nothing without such a queue."""
        if queue_id not in queues_of_topic(self.started, topic) and not (
            self.started.replays and queue_id in self.started.recovered_queues(topic)
        ):
            return []
        with open_queue(self.started, topic, queue_id) as view:
            found = view.at(offset)
            unit = found[0].unit(found[1]) if found is not None else None
            messages = UnitMessages(view, RowOptions(), Trace(on=False))
            if unit is not None and not unit.is_filler and unit.size > 0:
                wrong = messages.why_not(unit)
                record = messages.record(unit)
                if wrong is None and isinstance(record, Record):
                    return [self._life(self._copies_of(record))]
                gone = wrong is not None and wrong.id == RECORD_EXPIRED.id
                reason = wrong.result if wrong is not None else "its unit leads to no record"
            else:
                gone = offset < view.min_offset and self.started.log.min_offset > 0
                reason = f"the queue begins at {max(view.min_offset, 0)} and ends before {view.max_offset}"
            beyond = offset >= view.max_offset
        claims = self._claiming(topic, queue_id, offset)
        if claims:  # the record outranks its place
            return [self._life(self._copies_of(record)) for record in claims]
        return [self._nothing_at((topic, queue_id, offset), reason, is_expired=gone, is_beyond=beyond)]

    def named(self, text: str, topic: str | None, most: int) -> tuple[list[Life], int]:
        """Return the lives of the messages that a key or an id names, the newest first.

        Args:
            topic: only messages of this topic; None: of any.
            most: lives to return.

        Returns:
            The lives, and how many more there are.
        """
        seed = self._by_offset_id(text)
        key = seed.properties.get(UNIQUE_KEY, b"").decode(*ENCODING) if seed is not None else text
        records, damage = self._search(key) if key else ([seed] if seed is not None else [], [])
        if not records and key != key.upper() and _is_id(key):
            records, damage = self._search(key.upper())
        groups = dict[bytes | int, list[Record]]()
        for record in records:
            groups.setdefault(record.properties.get(UNIQUE_KEY) or record.physical_offset, []).append(record)
        chosen = [g for g in groups.values() if topic is None or any(topic in topics_of(r) for r in g)]
        chosen.sort(key=lambda group: group[0].physical_offset, reverse=True)
        return [self._life(Copies(group, damage)) for group in chosen[:most]], max(len(chosen) - most, 0)

    def why_not(self, text: str) -> str:
        """Return why no message has a key or an id, as far as files say it, a sentence."""
        with suppress(NotAMessageId):
            wanted = parse_message_id(text)
            if wanted.offset is not None and wanted.offset.is_plausible and wanted.unique is None:
                found = RecordReader(self.started.log, Trace(on=False)).at(wanted.offset.physical_offset)
                if isinstance(found, Absence):
                    return f"the id names offset {found.physical_offset}: {found.found}"
        if self.started.log.min_offset > 0:
            begin = self.started.log.min_offset
            return f"the log begins at offset {begin}, so it may have been deleted with the files before it"
        return "the whole log was read, and it begins at offset 0: it was never stored here"

    def _by_offset_id(self, text: str) -> Record | None:
        """Return the message at the place that an offsetMsgId names."""
        try:
            wanted = parse_message_id(text).offset
        except NotAMessageId:
            return None
        if wanted is None or not wanted.is_plausible:
            return None
        found = RecordReader(self.started.log, Trace(on=False), strict=self.strict).at(wanted.physical_offset)
        return found if isinstance(found, Record) else None

    def _search(self, key: str) -> tuple[list[Record], Damage]:
        records, damage = list[Record](), list[tuple[int, str]]()
        for part in search_log(self.store, Search(Filter(key=key, strict=self.strict)), progress=self.progress):
            records += part.records
            damage += [(self._physical(f), f"byte {f.offset} of {f.file}") for f in part.findings]
        return records, sorted([*damage, *self._holes, *self._lost_end])

    def _physical(self, finding: Finding) -> int:
        base = next((file.base for file in self.store.log_files if file.name == finding.file), 0)
        return base + (finding.offset or 0)

    @cached_property
    def _holes(self) -> Damage:
        """Where a file of the log is missing between two others, or is cut."""
        files = self.store.log_files
        ends = [(file.base + file.size, file.name, later.base) for file, later in pairwise(files)]
        return [(end, f"the end of {name}, after which bytes are missing") for end, name, begin in ends if end < begin]

    @cached_property
    def _lost_end(self) -> Damage:
        """Whether files say that the log once was longer: the checkpoint, and queues."""
        end = log_end(self.store)
        known, stat = read_checkpoint(self.store), self.store.tree.stat("checkpoint")
        reached = known[0]["physic_msg_timestamp"] if known is not None and stat is not None else 0
        if stat is not None and (end.store_timestamp or 0) < reached <= stat.mtime_ms:  # else the checkpoint is damaged
            return [(end.offset, f"the end of the log, which once reached to {instant(reached)} (checkpoint)")]
        for topic in (*_OPS, *HALVES, *WAITING):
            for queue_id in queues_of_topic(self.started, topic):
                with queue_on_disk(self.started, topic, queue_id) as view:
                    last = view.last_unit()
                    if last is not None and last.physical_offset + last.size > end.offset:
                        return [(end.offset, f"the end of the log, beyond which units of {view.name} lead")]
        return []

    def _copies_of(self, record: Record) -> Copies:
        key = record.properties.get(UNIQUE_KEY)
        if not key:
            return Copies([record])
        records, damage = self._search(key.decode(*ENCODING))
        return Copies([r for r in records if r.properties.get(UNIQUE_KEY) == key] or [record], damage)

    def _claiming(self, topic: str, queue_id: int, offset: int) -> list[Record]:
        """Return the records that say they have a queue offset, whatever the queue says."""
        wanted = Search(Filter((topic,), queue_id))
        found = (record for part in search_log(self.store, wanted, progress=self.progress) for record in part.records)
        return [record for record in found if record.fields["queue_offset"] == offset]

    # --- a message that is there --------------------------------------------------------------------

    def _life(self, copies: Copies) -> Life:
        first = copies.records[0]
        events = [event for record in copies.records for event in self._of_copy(record, copies)]
        end = _End()
        events += self._waits(copies, end)
        events += self._transaction(copies, end)
        events += self._consumption(copies, end)
        doubts = [f"{place_of(record)}: {record.doubt}" for record in copies.records if record.doubt]
        if doubts and end.fate == "stored":
            end.say("unknown", f"what else became of it is not known: {doubts[-1]}")
        places = copies.harmed(first.physical_offset)
        if places:
            events.append(Event("damage", f"the log is damaged after it was stored, first at {places}"))
        events += self._expiry(copies.records[-1])
        sentence = "; ".join(end.clauses) or "stored"
        if places and end.fate not in {"unknown", "dead-lettered"}:
            sentence += "; damaged places of the log may hold more of it"
        own = copies.records[-1]
        identity = {
            "topic": topic_of(first),
            "unique_key": text_of(first.properties.get(UNIQUE_KEY)),
            "keys": text_of(first.properties.get(KEYS)),
            "physical_offset": own.physical_offset,
        }
        key = identity["unique_key"] or f"at offset {own.physical_offset}"
        return Life(f"{topic_of(first)} {key}", identity, in_order(events), end.fate, sentence)

    def _of_copy(self, record: Record, copies: Copies) -> Iterator[Event]:
        what, text = role_of(record, copies)
        fields = record.fields
        more = {
            "topic": record.topic,
            "queue_id": fields["queue_id"],
            "queue_offset": fields["queue_offset"],
            "physical_offset": record.physical_offset,
        }
        yield Event(what, f"{text} {place_of(record)}", record.store_timestamp, record.file, record.position, more)
        if record.damage:
            yield Event("damage", record.damage, None, record.file, record.position)
        if self._is_cut(record):
            cut = self.started.recovery.end
            text = f"a broker that starts cuts the log at offset {cut}, and this record with it"
            yield Event("cut", text, None, record.file, record.position)
        yield from self._dispatch(record)
        if record.topic not in INTERNAL:
            yield from self._index(record)

    def _is_cut(self, record: Record) -> bool:
        if not self.started.replays or not self.started.recovery.starts:
            return False
        end = self.started.recovery.end
        return end is not None and record.physical_offset >= end

    def _dispatch(self, record: Record) -> Iterator[Event]:
        unit = unit_of(self.store, record)
        if unit.is_there:
            file = unit.file or (self.store.queue_database if self.store.in_database(record.topic) else None)
            if record.topic not in INTERNAL:
                yield Event("dispatched", unit.found, None, file, unit.position)
        elif not unit.wanted:
            yield Event("not-dispatched", "records of this kind get no queue unit")
        else:
            with open_queue(self.started, record.topic, record.fields["queue_id"]) as view:
                comes = view.at(record.fields["queue_offset"]) is not None
            later = "; a broker that starts makes it" if comes and self.started.replays else ""
            yield Event("not-dispatched", f"{unit.found}{later}", None, unit.file or None)

    @cached_property
    def _index_files(self) -> list[IndexFile]:
        return index_files(self.store, index_geometry(self.store))

    def _index(self, record: Record) -> Iterator[Event]:
        topic = record.topic.encode(*ENCODING).decode("utf-8", "replace")
        parts = [record.properties.get(UNIQUE_KEY, b""), *record.properties.get(KEYS, b"").split(b" ")]
        keys = [part.decode("utf-8", "replace") for part in parts if part]
        if not keys or record.fields["sys_flag"] & TRANSACTION == ROLLBACK:
            yield Event("not-indexed", "records without a key, and rollbacks, get no entry")
            return
        if is_asked(self.store):
            with open_index(self.store) as index:
                is_there = index.has(record)
            what, text = ("indexed", "its rows are in RocksDB") if is_there else ("not-indexed", "rows are missing")
            yield Event(what, text, None, MESSAGES)
            return
        if not self._index_files:
            yield Event("not-indexed", "the store has no index file: the index was off, or its files were deleted")
            return
        for key in dict.fromkeys(keys):
            found = next(
                iter(places_of(self._index_files, record.physical_offset, key_hash(index_key(topic, key)))), None
            )
            if found is None:
                yield Event("not-indexed", f"no index entry of key {key} leads to it")
            else:
                at = found.file.geometry.entry_at(found.number)
                yield Event("indexed", f"entry {found.number} has the hash of key {key}", None, found.file.path, at)

    def _expiry(self, record: Record) -> Iterator[Event]:
        """When the newest copy may be deleted (CommitLog.deleteExpiredFile)."""
        file = next((f for f in self.store.log_files if f.name == record.file), None)
        if file is None or not file.mtime_ms:
            return
        kept, whose = reserved(self.store)
        yield Event("expires", f"its log file may be deleted from then on ({whose})", file.mtime_ms + kept, file.name)

    # --- delays and timers --------------------------------------------------------------------------

    def _waits(self, copies: Copies, end: _End) -> Iterator[Event]:
        for record in copies.of(lambda r: r.topic in WAITING and RECALL not in r.properties):
            later = copies.of(lambda r, of=record: r.physical_offset > of.physical_offset)  # type: ignore[misc]
            came = next((after for after in later if follows(record, after)), None)
            if came is not None:
                if came.topic == record.real_topic and not came.topic.startswith(RETRY):
                    end.clauses.append(f"delivered to {came.topic}{at_time(came.store_timestamp)}, after its delay")
                continue
            is_timer = record.topic == pending.WHEEL_TOPIC
            due = number_in(record.properties.get(_OUT)) if is_timer else self._due(record)
            word = "timed" if is_timer else "delayed"
            until = f"until {instant(due)}" if due is not None else "until a time that is not known"
            what = f"a retry in {record.real_topic}" if record.real_topic.startswith(RETRY) else record.real_topic
            marks = copies.of(lambda r: RECALL in r.properties)  # whatever damage has made of their topic
            marks += [mark] if (mark := self._recalls.get(record.properties.get(UNIQUE_KEY, b""))) is not None else []
            recalled = marks[0] if marks and is_timer else None
            if recalled is not None and recalled.physical_offset > record.physical_offset:
                if all(copy.physical_offset != recalled.physical_offset for copy in copies.records):
                    text = f"recalled: a delete mark for {text_of(record.properties.get(UNIQUE_KEY))} was stored"
                    yield Event("recalled", text, recalled.store_timestamp, recalled.file, recalled.position)
                end.say(
                    "recalled", f"recalled{at_time(recalled.store_timestamp)} before it was due, and never delivered"
                )
            elif self._is_past(record, due):
                harmed = copies.harmed(record.physical_offset)
                reason = f"the log is damaged at {harmed}" if harmed else "no copy of it is in the log"
                end.say("unknown", f"unknown: {word} {until} for {what}, the broker has gone past it, and {reason}")
            else:
                text = f"{word} {until} for {what}, and not delivered yet"
                yield Event("due", text, due, None, None)
                end.say(word, text)

    def _due(self, record: Record) -> int | None:
        """When a delayed message is due: its unit holds the time (spec 2.13)."""
        with open_queue(self.started, record.topic, record.fields["queue_id"]) as view:
            found = view.at(record.fields["queue_offset"])
            unit = found[0].unit(found[1]) if found is not None else None
        if unit is not None and unit.physical_offset == record.physical_offset and unit.tags_code:
            return unit.tags_code
        levels = parse_delay_levels(self.store.settings.get("messageDelayLevel") or DEFAULT_DELAY_LEVELS)
        level = number_in(record.properties.get(b"DELAY"))
        return None if level is None else delivery_time(record.store_timestamp, level, levels)

    def _is_past(self, record: Record, due: int | None) -> bool:
        """Whether the broker's own progress says that it has delivered a waiting message."""
        if record.topic == SCHEDULE_TOPIC:
            level = record.fields["queue_id"] + 1
            return record.fields["queue_offset"] < delay_offsets(self.store).get(level, 0)
        return record.physical_offset not in self._timers and due is not None

    @cached_property
    def _timers(self) -> set[int]:
        """Physical offsets of timer messages that are still to be delivered."""
        return {row["physical_offset"] for row in pending.pending_rows(self.started, "timer")}

    # --- transactions -------------------------------------------------------------------------------

    @cached_property
    def _marks(self) -> list[Record]:
        """Records that end half messages, and those that delete timers."""
        wanted = Search(Filter((*_OPS, pending.WHEEL_TOPIC)))
        found = (record for part in search_log(self.store, wanted) for record in part.records)
        return [record for record in found if record.topic in _OPS or RECALL in record.properties]

    @cached_property
    def _recalls(self) -> dict[bytes, Record]:
        """Delete marks by unique key, with a topic in front of it or without."""
        found = [(r.properties[RECALL], r) for r in self._marks if RECALL in r.properties]
        return {name.partition(b"+")[2] or name: record for name, record in found}

    @cached_property
    def _ended(self) -> tuple[dict[int, Record], dict[int, Record]]:
        """The record that ends a half message, by its queue offset, and by its physical offset of those in RocksDB."""
        by_queue, by_place = dict[int, Record](), dict[int, Record]()
        for record in self._marks:
            if record.topic == pending.OP_TOPIC:
                numbers = (int(text) for text in record.fields["body"].split(b",") if text.isdigit())
                by_queue |= {number: record for number in numbers if number not in by_queue}
            elif (place := number_in(record.properties.get(b"TRANS_OFFSET"))) is not None:
                by_place.setdefault(place, record)
        return by_queue, by_place

    def _transaction(self, copies: Copies, end: _End) -> Iterator[Event]:
        halves = copies.of(lambda r: r.topic in HALVES)
        later = copies.of(lambda r: r.topic not in HALVES | {GIVEN_UP})
        # with a half message here, whatever damaged flags say, copies elsewhere were committed, those there not
        committed = later if halves else [r for r in later if r.fields["sys_flag"] & TRANSACTION == COMMIT]
        operation = next((op for half in halves if (op := self._operation(half)) is not None), None)
        if operation is not None:
            text = f"the half message is marked as ended by {place_of(operation)}"
            yield Event("ended", text, operation.store_timestamp, operation.file, operation.position)
        if committed:
            end.clauses.append(f"committed{at_time(committed[0].store_timestamp)}")
        if not halves or committed:
            return
        first = halves[0].physical_offset
        checks = max((number_in(half.properties.get(CHECKS)) or 0 for half in halves), default=0)
        checked = f"checked {number_of(checks, 'time')}"
        given_up = copies.of(lambda r: r.topic == GIVEN_UP)
        if number_in(halves[0].properties.get(CHECKS)):  # the first copy is gone, and what ended it may be, too
            first = 0
        if operation is not None and not copies.harmed(first, operation.physical_offset):
            when = at_time(operation.store_timestamp)
            late = "; checks that came too late gave it up all the same" if given_up else ""
            text = f"rolled back, marked as ended{when}, and no committed message is there{late}"
            end.say("rolled-back", text)
        elif harmed := copies.harmed(first):
            end.say("unknown", f"unknown: what ended its transaction may have lain at {harmed}; {checked}")
        elif not first and self.started.log.min_offset > 0:
            text = f"unknown: its first half message is gone, and the log begins at {self.started.log.min_offset}"
            end.say("unknown", f"{text}, so what ended its transaction may have gone with the files before; {checked}")
        elif given_up:
            when = at_time(given_up[0].store_timestamp)
            end.say("given-up", f"given up{when}: {checked}, never decided, and nobody gets the message")
        elif self._is_cut(halves[-1]):
            end.say("unknown", f"unknown: a start cuts its last half message off, so no check of it comes; {checked}")
        else:
            open_ = self._is_open(halves[-1])
            state = "open" if open_ else "passed over by the checks"
            end.say("open" if open_ else "given-up", f"{state}: {checked}, neither committed nor rolled back")

    def _operation(self, half: Record) -> Record | None:
        by_queue, by_place = self._ended
        by_name = half.topic == pending.HALF_TOPIC
        found = by_queue.get(half.fields["queue_offset"]) if by_name else by_place.get(half.physical_offset)
        return found if found is not None and found.physical_offset > half.physical_offset else None

    def _is_open(self, half: Record) -> bool:
        """Whether the broker will ask for the transaction again."""
        return half.physical_offset in {
            row["physical_offset"] for row in pending.pending_rows(self.started, "transaction")
        }

    # --- consumers ----------------------------------------------------------------------------------

    def _consumption(self, copies: Copies, end: _End) -> Iterator[Event]:
        shown = copies.of(lambda r: r.topic not in INTERNAL)
        alive = [record for record in shown if not record.topic.startswith(DEAD)]
        dead = [record for record in shown if record.topic.startswith(DEAD)]
        pops = [event for record in alive for event in self._pops(record, alive)]
        groups = [event for record in alive for event in self._groups(record)]
        yield from pops
        yield from groups
        if not shown:
            return
        is_waiting = end.fate != "stored"  # a retry that has not come yet
        if retries := dict.fromkeys(record.topic for record in alive if record.topic.startswith(RETRY)):
            count = sum(record.topic in retries for record in alive)
            end.clauses.append(f"retried {number_of(count, 'time')} in {named(retries)}")
        for record in dead[-1:]:
            failed, group = record.fields["reconsume_times"], record.topic.removeprefix(DEAD)
            text = f"dead-lettered for group {group}{at_time(record.store_timestamp)}"
            end.say("dead-lettered", f"{text} after consuming failed {number_of(failed, 'time')}")
        taken = {event.more["group"]: event.text for event in pops if event.what == "taken"}
        done = {
            event.more["group"]: f"{event.text}{at_time(event.time)}" for event in pops if event.what == "acknowledged"
        }
        said = dict[str, list[str]]()
        for event in groups:
            if event.more["group"] not in taken:
                is_retry = event.more["topic"].startswith(RETRY)
                said.setdefault(event.what, []).append(event.more["group"] + " (retry)" * is_retry)
        end.clauses += [f"{words} {_groups_in_words(said[what])}" for what, words in _READ.items() if what in said]
        end.clauses += [*done.values(), *taken.values()]
        if is_waiting or dead:
            return
        read = "passed" if done else next((fate for what, fate in _FATES.items() if what in said), "stored")
        end.fate = "in-flight" if taken else read
        if not groups and not taken and not done:
            end.clauses.append("stored; no group has an offset in its queue, so who read it is not known")

    def _groups(self, record: Record) -> Iterator[Event]:
        """Yield what each group's stored offset says of a copy."""
        for topic, queue_id, offset in queues_of(record):
            for row in self._lag_of(topic):
                if row.queue_id != queue_id or row.consumer_offset is None or row.file is None:
                    continue
                stat, where = self.store.tree.stat(row.file), f"{topic}/{queue_id}@{offset}"
                saved = f", saved{at_time(stat.mtime_ms)}," if stat is not None and stat.mtime_ms else ""
                more = {"group": row.group, "consumer_offset": row.consumer_offset, "topic": topic}
                text = f"{where}: its offset{saved} is {row.consumer_offset}"
                if row.consumer_offset > offset:
                    yield Event("passed", f"group {row.group} has passed {text}", None, row.file, None, more)
                elif self._is_backup(row.file):
                    file, text = f"{row.file}.bak", "the offsets that are there are an older copy"
                    yield Event("unknown", f"group {row.group} may have passed {where}: {text}", None, file, None, more)
                else:
                    yield Event("not-passed", f"group {row.group} has not passed {text}", None, row.file, None, more)

    def _is_backup(self, file: str) -> bool:
        return file.startswith("config/") and file.endswith(".json") and read_config(self.store, file[7:]).fallback

    def _lag_of(self, topic: str) -> list[LagRow]:
        if topic not in self._lag:
            self._lag[topic] = list(lag_rows(self.started, topic=Names((topic,))))
        return self._lag[topic]

    @cached_property
    def _points(self) -> list[pending.CheckPoint]:
        return list(pending.check_points(self.started))

    @cached_property
    def _in_flight(self) -> list[dict[str, Any]]:
        rows = pending.pending_rows(self.started, "pop")
        return [row for row in rows if not row["source"].startswith(pending.REVIVE_TOPIC)]

    def _pops(self, record: Record, copies: Sequence[Record]) -> Iterator[Event]:
        """Yield what pop consumers did with a copy, as far as check points and the database have it.

        Args:
            copies: those that consumers see: one for a retry of the group shows that its time ran out.
        """
        places, known = set(queues_of(record)), set[str]()
        for point in self._points:
            taken, store = point.taken, point.record
            if (taken["topic"], taken["queue_id"], taken["queue_offset"]) not in places:
                continue
            until = f"popped by group {taken['group']}, invisible until {instant(taken['due_timestamp'])}"
            again = {f"{RETRY}{taken['group']}{joint}{taken['topic']}" for joint in "_+"}
            came = any(c.topic in again and c.store_timestamp >= taken["due_timestamp"] for c in copies)
            ended = point.acknowledged is not None or point.merged or point.settled or came
            what, more = "popped" if ended else "taken", {"group": taken["group"]}
            yield Event(what, until, taken["pop_timestamp"], store.file, store.position, more)
            if (ack := point.acknowledged) is not None:
                text = f"acknowledged by group {taken['group']}"
                yield Event("acknowledged", text, ack.store_timestamp, ack.file, ack.position, more)
            elif point.merged:
                text = f"acknowledged by group {taken['group']}, as its check point says"
                yield Event("acknowledged", text, None, store.file, store.position, more)
            known.add(taken["group"])
        yield from _popped_before(record, copies, known)
        for row in self._in_flight:
            if (row["topic"], row["queue_id"], row["queue_offset"]) in places:
                text = f"popped by group {row['group']} and not acknowledged"
                text += f", invisible until {instant(row['due_timestamp'])}"
                yield Event("taken", text, row["pop_timestamp"], row["source"], None, {"group": row["group"]})

    # --- a message that is not there ----------------------------------------------------------------

    def _nothing_at(self, place: QueuePlace, reason: str, *, is_expired: bool, is_beyond: bool) -> Life:
        topic, queue_id, offset = place
        name = f"{topic}/{queue_id}@{offset}"
        events, passed, behind = list[Event](), list[str](), list[str]()
        for row in self._lag_of(topic):
            if row.queue_id == queue_id and row.consumer_offset is not None and row.file is not None and not is_beyond:
                is_past = row.consumer_offset > offset
                (passed if is_past else behind).append(row.group)
                word = "has" if is_past else "has not"
                text = f"group {row.group} {word} passed it: its offset is {row.consumer_offset}"
                events.append(Event("passed" if is_past else "not-passed", text, None, row.file))
        identity = {"topic": topic, "queue_id": queue_id, "queue_offset": offset}
        if is_beyond:
            return Life(name, identity, events, "unwritten", f"never written here: {reason}")
        log = f"the log begins at offset {self.started.log.min_offset}"
        if not is_expired:
            return Life(name, identity, events, "unknown", f"unknown: {reason}; {log}")
        sentence = f"deleted with the log files before it, by retention or by hand: {log}"
        if behind:
            sentence += f"; before {_groups_in_words(behind)} read it"
        if passed:
            sentence += f"; after {_groups_in_words(passed)} passed it"
        return Life(name, identity, [Event("deleted", reason), *events], "deleted", sentence)


def _popped_before(record: Record, copies: Sequence[Record], known: set[str]) -> Iterator[Event]:
    """Yield who popped a message by its copies for a retry: the database has no row of it any more when they come.

    Args:
        known: groups of which something is said already; those that are found join them.
    """
    ends = tuple(f"{joint}{record.topic}" for joint in "_+")
    for copy in copies:
        first = number_in(copy.properties.get(_FIRST_POP))
        if first is not None and copy.topic.startswith(RETRY) and copy.topic.endswith(ends):
            group = copy.topic[len(RETRY) : -len(ends[0])]
            if group not in known:
                known.add(group)
                text = f"popped by group {group}, and not acknowledged in time"
                yield Event("popped", text, first, copy.file, copy.position, {"group": group})


def _groups_in_words(groups: Iterable[str]) -> str:
    every = dict.fromkeys(groups)
    names = [
        name for name in every if name.removesuffix(" (retry)") == name or name.removesuffix(" (retry)") not in every
    ]
    return f"group {names[0]}" if len(names) == 1 else f"groups {named(names)}"


def _is_id(text: str) -> bool:
    try:
        parse_message_id(text)
    except NotAMessageId:
        return False
    return True
