"""The life of one record: its batch, its transaction, who committed offsets after it, when it may go (spec 9, 10, 12).

What follows from a record that is there is said with its place. What follows from one that is not there is said only
where no damage can have held it: batches with a wrong CRC are no evidence, even where a broker would serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from formats.kafka.internal_records import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from formats.kafka.record_batch import Attributes
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.loading.producers import EndedTransaction
from rmqctl.kafka.log.block import Flags
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.query.key import KeySearch
from rmqctl.kafka.query.offset import segment_of
from rmqctl.kafka.query.time import largest_timestamp, time_index_of
from rmqctl.kafka.rows import batch_rows, record_row
from rmqctl.kafka.state.internal_topics import (
    Noted,
    PastCommit,
    ShareState,
    commit_history,
    noted_of,
    share_states,
)
from rmqctl.kafka.state.partition_state import PartitionLog, damage_of
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.life import Event, Life, at_time, named
from rmqctl.text import number_of, raw

_SHARE_WORDS = {0: "available", 1: "acquired", 2: "acknowledged", 4: "archived"}
"""Delivery states of a share group (SharePartition.RecordState)."""
_READ = {"passed": "passed by", "not-passed": "not passed by", "unknown": "not known of"}
_FATES = {"passed": "passed", "not-passed": "waiting", "unknown": "unknown"}
"""Kinds of steps of groups, with the words of the sentence, and the fates that they stand for."""
Row = dict[str, Any]
Place = tuple[str, int]
"""Topic and number of a partition."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long the records of a topic are kept.

    Attributes:
        retention_ms: -1 for ever, or where the topic's records are only compacted.
        retention_bytes: they also go where the log grows beyond it; -1 for any size.
        is_compacted: records whose key comes again go.
    """

    retention_ms: int
    retention_bytes: int
    is_compacted: bool

    @property
    def is_bounded(self) -> bool:
        """Whether the size of the log counts."""
        return self.retention_bytes >= 0


@dataclass(slots=True)
class _Found:
    """What has been found of a record so far."""

    log: PartitionLog
    batch: Row
    record: Row
    damage: list[tuple[int, str]]
    events: list[Event] = field(default_factory=list)
    clauses: list[str] = field(default_factory=list)
    fate: str = "stored"

    @property
    def offset(self) -> int:
        return int(self.record["offset"])

    def harmed(self, last: int | None = None) -> str:
        """Return in words the first damaged place after the record, up to an offset; "" without one."""
        return next((said for at, said in self.damage if last is None or at <= last), "")

    def end(self, fate: str, clause: str) -> None:
        self.fate = fate
        self.clauses.append(clause)


class LifeReader:
    """Makes lives of records of some log directories.

    Attributes:
        keeping: gives how long the records of a topic are kept.
        advance: called with the bytes of log passed since its last call.
    """

    def __init__(
        self,
        replicas: Replicas,
        keeping: Callable[[str], Keeping],
        advance: Callable[[int], object] = bool,
        *,
        processes: int = 1,
    ) -> None:
        self.replicas, self.keeping, self.advance, self.processes = replicas, keeping, advance, processes
        self._damage: dict[Place, list[tuple[int, str]]] = {}
        self._states: dict[int, list[Noted]] = {}
        self._commits: dict[Place, dict[str, list[PastCommit]]] = {}

    # --- which record is meant --------------------------------------------------------------------

    def at_place(self, topic: str, number: int, offset: int) -> list[Life]:
        """Return the life of the record at an offset, or why there is none; nothing where the partition is not here."""
        log = self.replicas.find(topic, number)
        if log is None:
            return []
        for _, block in log.blocks(offset, check_crc=True):
            hit = np.flatnonzero((block["base_offset"] <= offset) & (block["last_offset"] >= offset))
            if not len(hit):
                continue
            one = block.take(hit[:1])
            batch = batch_rows(one, log.partition)[0]
            for records in records_of(one):
                found = np.flatnonzero(records.offset == offset)
                if len(found):
                    record = record_row(records, int(found[0]), log.partition)
                    return [self._life(log, batch, record)]
            return [self._nothing(log, offset, batch)]
        return [self._nothing(log, offset, None)]

    def with_key(self, key: bytes, topic: str | None, most: int) -> tuple[list[Life], int]:
        """Return the lives of the records with a key, the newest first.

        Args:
            topic: only records of this topic; None: of all but the internal ones.
            most: lives to return.

        Returns:
            The lives, and how many more there are.
        """
        logs = self.logs(topic)
        rows = [row for _, row in KeySearch(logs, key, None, self.processes, self.advance).rows()]
        rows.sort(key=lambda row: (row["timestamp"], row["topic"], row["partition"], row["offset"]), reverse=True)
        lives = [self.at_place(row["topic"], row["partition"], row["offset"])[0] for row in rows[:most]]
        return lives, max(len(rows) - most, 0)

    def logs(self, topic: str | None) -> list[PartitionLog]:
        """Return the partitions that are searched for a key."""
        return [
            log
            for log in self.replicas.served
            if (log.partition.topic == topic if topic is not None else log.partition.topic not in INTERNAL_TOPICS)
        ]

    # --- a record that is there ---------------------------------------------------------------------

    def _life(self, log: PartitionLog, batch: Row, record: Row) -> Life:
        life = _Found(log, batch, record, [place for place in self._damage_of(log) if place[0] > record["offset"]])
        life.events += self._stored(life)
        if batch["control"]:
            life.end("control", f"a control record, {record['control_type']}: consumers are not given it")
        else:
            life.events += self._transaction(life)
            if life.fate not in {"rolled-back", "open", "unknown"}:
                life.events += self._visible(life)
                life.events += self._consumed(life)
            life.events += self._keys(life)
        life.events += self._expiry(life)
        begins = _first_epoch(log)
        if life.offset < log.replayed.log_start_offset:
            text = f"records before {log.replayed.log_start_offset} were deleted by request; the bytes are still there"
            life.events.append(Event("deleted", text, None, str(FileKind.LOG_STARTS)))
            life.end("deleted", f"deleted by request: the log starts at {log.replayed.log_start_offset}")
        elif begins is not None and life.offset < begins and batch["leader_epoch"] not in {None, -1}:
            text = f"leader epochs begin at offset {begins}: older records were deleted by request, or the file is cut"
            file = log.partition.one(FileKind.LEADER_EPOCHS)
            life.events.append(Event("unknown", text, None, file.name if file is not None else None))
            life.end("unknown", f"unknown whether it was deleted: {text}")
        if place := life.harmed():
            life.events.append(Event("damage", f"the log is damaged after it, first at {place}"))
        return _life_of(log, life.offset, life.events, life.fate, "; ".join(life.clauses) or "stored", record)

    def _damage_of(self, log: PartitionLog) -> list[tuple[int, str]]:
        place = _place(log)
        if place not in self._damage:
            self._damage[place] = list(damage_of(log))
        return self._damage[place]

    def _stored(self, life: _Found) -> Iterator[Event]:
        batch, record, log = life.batch, life.record, life.log
        who = "without a producer id"
        if batch["producer_id"] is not None and batch["producer_id"] >= 0:
            who = f"by producer {batch['producer_id']} of epoch {batch['producer_epoch']}"
            who += f", sequence {record['sequence']}"
        kind = "appended" if batch["timestamp_type"] == "LogAppendTime" else "created"
        more = {name: batch[name] for name in ("producer_id", "producer_epoch", "leader_epoch", "transactional")}
        more |= {"sequence": record["sequence"], "offset": record["offset"]}
        count = "" if batch["count"] is None else f", one of {number_of(batch['count'], 'record')}"
        text = f"{kind}, and stored {who}{count} of the batch at {batch['base_offset']}"
        yield Event("stored", text, record["timestamp"], record["file"], record["batch_position"], more)
        epoch = batch["leader_epoch"]
        begins = next((e.start_offset for e in log.leader_epochs.entries if e.epoch == epoch), None)
        if epoch is not None and begins is not None:
            file = log.partition.one(FileKind.LEADER_EPOCHS)
            text = f"leader epoch {epoch}, which begins at offset {begins}"
            yield Event("leader", text, None, file.name if file is not None else None)
        mark = log.replayed.high_watermark
        if life.offset < mark:
            text = f"below the high watermark, {mark}: every in-sync replica has it"
        else:
            text = f"not below the high watermark that was saved, {mark}: whether other replicas have it is not known"
        yield Event("replicated" if life.offset < mark else "unknown", text, None, str(FileKind.HIGH_WATERMARKS))

    # --- its transaction ----------------------------------------------------------------------------

    def _transaction(self, life: _Found) -> Iterator[Event]:
        if not life.batch["transactional"]:
            return
        state, producer, offset = life.log.replayed, life.batch["producer_id"], life.offset
        covering = (t for t in state.producers.ended if t.producer_id == producer)
        ended = next((t for t in covering if t.first_offset <= offset <= t.last_offset), None)
        opened = state.open.get(producer)
        marker = None if ended is None else self._marker(life.log, ended.last_offset)
        if ended is not None and marker is not None and not life.harmed(ended.last_offset - 1):
            yield from self._noted(life, self._before(life.log, ended), marker["max_timestamp"])
            word = "committed" if ended.committed else "aborted"
            text = f"{word} by the marker at offset {ended.last_offset}; its transaction begins at {ended.first_offset}"
            yield Event(word, text, marker["max_timestamp"], marker["file"], marker["position"])
            if ended.committed:
                life.clauses.append(f"committed{at_time(marker['max_timestamp'])}")
            else:
                text = f"rolled back{at_time(marker['max_timestamp'])} by the marker at offset {ended.last_offset}"
                life.end("rolled-back", f"{text}: readers of committed records never get it")
        elif place := life.harmed():
            life.end("unknown", f"unknown: what decides its transaction may have lain at {place}")
        elif opened is not None and opened <= offset:
            yield from self._noted(life, 0, None)
            text = f"its transaction is open since offset {opened}: readers of committed records wait"
            yield Event("open", text)
            life.end("open", text)
        else:
            why = "the marker of its transaction is not in the log, compaction may have taken it"
            life.end("unknown", f"unknown: {why}")

    def _marker(self, log: PartitionLog, offset: int) -> Row | None:
        """Return the batch of a marker; None where its CRC is wrong."""
        for _, block in log.blocks(offset, check_crc=True):
            hit = np.flatnonzero(block["base_offset"] == offset)
            if len(hit):
                return batch_rows(block.take(hit[:1]), log.partition)[0]
        return None

    def _before(self, log: PartitionLog, ended: EndedTransaction) -> int:
        """Return when the transaction before one of the same producer ended here, epoch ms; 0 where none is known."""
        earlier = (t for t in log.replayed.producers.ended if t.producer_id == ended.producer_id)
        last = max((t.last_offset for t in earlier if t.last_offset < ended.first_offset), default=None)
        marker = None if last is None else self._marker(log, last)
        return 0 if marker is None else int(marker["max_timestamp"])

    def _noted(self, life: _Found, before: int, ended: int | None) -> Iterator[Event]:
        """Yield what the coordinator noted of the transaction; one of a producer is known by the time it starts.

        Args:
            before: when the transaction before it ended, epoch ms.
            ended: when this one ended; None while it is open.
        """
        logs = self.replicas.of(TRANSACTION_STATE)
        producer = life.batch["producer_id"]
        if producer not in self._states:
            self._states[producer] = noted_of(logs, producer, check_crc=True)
        states = self._states[producer]
        place = _place(life.log)
        starts = {
            noted.transaction.start_timestamp
            for noted in states
            if place in noted.transaction.partitions
            and (noted.transaction.is_open if ended is None else before <= noted.transaction.start_timestamp <= ended)
        }
        begin = max(starts, default=None)
        for noted in states:
            found, record = noted
            if found.start_timestamp == begin:
                text = f"the coordinator of {found.transactional_id} notes {found.state}"
                yield Event("coordinator", text, found.last_update, record.file, record.position)
        if begin is None:
            whole = len(logs) >= self.replicas.partition_count(TRANSACTION_STATE) > 0
            why = "nothing of it is left" if whole else f"not all of {TRANSACTION_STATE} is here"
            yield Event("unknown", f"what its coordinator noted is not known: {why}")

    def _visible(self, life: _Found) -> Iterator[Event]:
        """Since when readers of committed records see it, by the last stable offset."""
        state, offset = life.log.replayed, life.offset
        if offset >= state.last_stable_offset:
            producer, first = min(state.open.items(), key=lambda item: item[1])
            text = f"not before the last stable offset: producer {producer} has a transaction open since {first}"
            yield Event("held", f"{text}, so readers of committed records do not see it yet")
            life.clauses.append("not visible to readers of committed records yet")
            return
        over = [t for t in state.producers.ended if t.first_offset <= offset < t.last_offset]
        if not over:
            yield Event("visible", "visible to readers of committed records at once: no transaction was open")
            return
        by_marker = sorted(state.producers.ended, key=lambda transaction: transaction.last_offset)
        freed = next((t for t in by_marker if t.last_offset > offset and t.last_stable_offset > offset), None)
        marker = None if freed is None else self._marker(life.log, freed.last_offset)
        if freed is not None and marker is not None and not life.harmed(freed.last_offset - 1):
            text = f"visible to readers of committed records since the marker at offset {freed.last_offset}"
            yield Event("visible", text, marker["max_timestamp"], marker["file"], marker["position"])

    # --- who read it --------------------------------------------------------------------------------

    def _consumed(self, life: _Found) -> Iterator[Event]:
        gone = [event for topic in (CONSUMER_OFFSETS, SHARE_GROUP_STATE) if (event := self._gone(topic)) is not None]
        events = [*self._groups(life.log, life.offset), *self._shares(life)]
        yield from (*events, *gone)
        said = dict[str, list[str]]()
        for event in events:
            if "group" in event.more:
                when = at_time(event.time) if event.what == "passed" else ""
                said.setdefault(event.what, []).append(f"{event.more['group']}{when}")
        life.clauses += [f"{words} {_in_words(said[what])}" for what, words in _READ.items() if what in said]
        life.fate = next((fate for what, fate in _FATES.items() if what in said), "stored")
        if gone and life.fate != "passed":
            life.fate = "unknown"
            life.clauses.append(f"unknown who passed it: {gone[0].text}")
        elif not said:
            life.clauses.append("stored; no group has committed an offset in its partition, as far as is known here")

    def _groups(self, log: PartitionLog, offset: int) -> Iterator[Event]:
        """Yield for each group the commit with which it passed an offset, or its last one."""
        logs, place = self.replicas.of(CONSUMER_OFFSETS), _place(log)
        if place not in self._commits:
            found = self._commits[place] = {}
            for commit in commit_history(logs, *place):
                found.setdefault(commit.group, []).append(commit)
        commits = self._commits[place]
        harm = self._harm_of(CONSUMER_OFFSETS)
        for group in sorted(commits):
            yield self._of_group(group, commits[group], offset, harm)
        if not logs and not self.replicas.partition_count(CONSUMER_OFFSETS):
            yield Event("unknown", f"no partition of {CONSUMER_OFFSETS} is here: which groups read it is not known")

    def _harm_of(self, topic: str) -> str:
        """Return in words the first damaged place of a topic, "" without one."""
        return next((said for log in self.replicas.of(topic) for _, said in self._damage_of(log)), "")

    def _gone(self, topic: str) -> Event | None:
        """Return what is not here of a topic that says who read what; None where nothing is missing."""
        count, here = self.replicas.partition_count(topic), len(self.replicas.of(topic))
        if here < count:
            return Event(
                "unknown", f"only {here} of {count} partitions of {topic} are here: other groups may have read it"
            )
        harm = self._harm_of(topic)
        return Event("damage", f"{topic} is damaged, first at {harm}: groups may be missing") if harm else None

    @staticmethod
    def _of_group(group: str, commits: Sequence[PastCommit], offset: int, harm: str) -> Event:
        counted = [c for c in commits if c.end is not None]
        first = next((c for c in counted if c.commit is not None and c.commit.offset > offset), None)
        more: Row = {"group": group}
        if first is not None and first.commit is not None:
            commit, record = first.commit, first.record
            more["consumer_offset"] = commit.offset
            earlier = any(c.commit is not None for c in counted[: counted.index(first)])
            left = "" if earlier else ", the first that is left of it, so at that time at the latest"
            again = counted[-1].commit
            back = "" if again is None or again.offset > offset else f"; it went back to {again.offset} later"
            text = f"group {group} has passed it: it committed {commit.offset}{left}{back}"
            return Event("passed", text, commit.commit_timestamp, record.file, record.position, more)
        last = commits[-1]
        at = last.record.timestamp, last.record.file, last.record.position
        if last.commit is None:
            text = f"the offset of group {group} was removed: whether it passed is not known"
            return Event("unknown", text, *at, more)
        if last.end is None and last.commit.offset > offset:
            text = f"group {group} passes it with a commit of {last.commit.offset} in a transaction that is open"
            return Event("not-passed", text, *at, more)
        more["consumer_offset"] = last.commit.offset
        text = f"group {group} has not passed it: its last commit is {last.commit.offset}"
        if harm:
            return Event("unknown", f"{text}, and later ones may have lain at {harm}", *at, more)
        return Event("not-passed", text, *at, more)

    @cached_property
    def _share_states(self) -> dict[Any, ShareState]:
        return dict(share_states(self.replicas.of(SHARE_GROUP_STATE), check_crc=True))

    def _shares(self, life: _Found) -> Iterator[Event]:
        place = self.replicas.topic_id(life.log), life.log.partition.partition or 0
        harm = self._harm_of(SHARE_GROUP_STATE)
        for key, state in self._share_states.items():
            if (key.topic_id, key.partition) != place:
                continue
            word = next((s for first, last, s in state.batches if first <= life.offset <= last), None)
            is_done = life.offset < state.start_offset
            stands = "done with" if is_done else _SHARE_WORDS.get(word or 0, f"in state {word}")
            text = f"share group {key.group}: {stands}; it starts at {state.start_offset}"
            time = state.write_timestamp if state.write_timestamp >= 0 else None
            what = "passed" if is_done or word in {2, 4} else "unknown" if harm else "not-passed"
            yield Event(what, text, time, state.file, state.position, {"group": f"{key.group} (share)"})

    # --- how long it stays --------------------------------------------------------------------------

    def _keys(self, life: _Found) -> Iterator[Event]:
        """What compaction does to it: a later record of its key, or that it deletes the key. Records that were rolled
        back, or are not decided yet, take no other's place (Cleaner.buildOffsetMapForSegment).
        """
        record, log = life.record, life.log
        if not self.keeping(log.partition.topic).is_compacted or record["key"] is None:
            return
        if record["value"] is None:
            yield Event("tombstone", "its value is null: it deletes its key, and goes itself after a compaction")
        rows = KeySearch([log], raw(record["key"]), lambda records: _stands(records, log)).rows()
        later = next((row for _, row in rows if row["offset"] > life.offset), None)
        if later is not None:
            text = f"the record at offset {later['offset']} has its key: compaction removes this one"
            yield Event("superseded", text, later["timestamp"], later["file"], later["batch_position"])
            life.clauses.append(f"superseded by the record at offset {later['offset']}, so compaction removes it")

    def _expiry(self, life: _Found) -> Iterator[Event]:
        """When its segment may be deleted (UnifiedLog.deleteRetentionMsBreachedSegments)."""
        keeping, segment = self.keeping(life.log.partition.topic), segment_of(life.log, life.offset)
        if segment is None or segment.log is None:
            return
        if keeping.retention_ms < 0:
            if not keeping.is_compacted and not keeping.is_bounded:
                yield Event("kept", "its topic has no limit of time or size: its segment is never deleted")
            return
        largest, _ = largest_timestamp(life.log, segment, time_index_of(segment))
        size = ", or earlier, when the partition is too large" if keeping.is_bounded else ""
        text = f"its segment may be deleted from then on (retention.ms {keeping.retention_ms}){size}"
        yield Event("expires", text, largest + keeping.retention_ms, segment.log.name)

    # --- a record that is not there -----------------------------------------------------------------

    def _nothing(self, log: PartitionLog, offset: int, batch: Row | None) -> Life:
        events = [] if offset >= log.replayed.log_end_offset else list(self._groups(log, offset))
        groups = {what: [e.more["group"] for e in events if e.what == what and "group" in e.more] for what in _READ}
        fate, sentence = self._why_nothing(log, offset, batch)
        if fate == "deleted" and groups["not-passed"]:
            sentence += f"; before {_in_words(groups['not-passed'])} read it"
        if groups["passed"]:
            sentence += f"; passed by {_in_words(groups['passed'])}"
        return _life_of(log, offset, events, fate, sentence)

    def _why_nothing(self, log: PartitionLog, offset: int, batch: Row | None) -> tuple[str, str]:
        state = log.replayed
        place = next((said for at, said in self._damage_of(log) if at <= offset), "")
        lost = "unknown", f"unknown: it may have lain at {place}"
        if offset >= state.log_end_offset:
            written = "unwritten", f"never written: the log ends before offset {state.log_end_offset}"
            return lost if place else written
        if offset < state.log_start_offset:
            begins = _first_epoch(log)
            if begins is not None and begins < state.log_start_offset and begins <= offset:
                text = f"no broker deleted it, as leader epochs begin at offset {begins}, and the log at"
                return "unknown", f"unknown: {text} {state.log_start_offset}; its segment is lost"
            by = "with its segment, by retention or by request"
            return "deleted", f"deleted {by}: the log starts at {state.log_start_offset}"
        if batch is not None:
            where = f"the batch at byte {batch['position']} of {batch['file']}"
            return "compacted", f"removed by compaction from {where}, and its key with it"
        if place or not self.keeping(log.partition.topic).is_compacted:
            return lost if place else ("unknown", "unknown: no batch holds the offset")
        text = "a later record has its key, or it was a tombstone, or was rolled back"
        return "compacted", f"removed by compaction with its batch: {text}, which is not known here"


def _life_of(
    log: PartitionLog, offset: int, events: Sequence[Event], fate: str, sentence: str, record: Row | None = None
) -> Life:
    topic, number = log.partition.topic, log.partition.partition or 0
    identity = {"topic": topic, "partition": number, "offset": offset, "key": record["key"] if record else None}
    key = f" {identity['key']}" if isinstance(identity["key"], str) else ""
    return Life(f"{topic}/{number}@{offset}{key}", identity, events, fate, sentence)


def _stands(records: Records, log: PartitionLog) -> Flags:
    """Return which records are in no transaction that was rolled back or is open."""
    producer, state = records.block["producer_id"][records.batch], log.replayed
    stands = np.ones(len(records.offset), np.bool_)
    is_in = records.block.flag(Attributes.TRANSACTIONAL)[records.batch]
    for ended in state.producers.ended:
        if not ended.committed:
            inside = (records.offset >= ended.first_offset) & (records.offset < ended.last_offset)
            stands &= ~(is_in & inside & (producer == ended.producer_id))
    for one, first in state.open.items():
        stands &= ~(is_in & (records.offset >= first) & (producer == one))
    return stands


def _first_epoch(log: PartitionLog) -> int | None:
    """Return where the leader epochs begin, which brokers move with the start of a log; None where no file has them."""
    return next((entry.start_offset for entry in log.leader_epochs.entries), None)


def _place(log: PartitionLog) -> Place:
    return log.partition.topic, log.partition.partition or 0


def _in_words(groups: Sequence[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"groups {named(groups)}"
