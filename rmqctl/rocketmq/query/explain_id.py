"""Why an id leads to no message, or to one that consumers never get."""

from __future__ import annotations

from dataclasses import replace

from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.by_id import IdAnswer
from rmqctl.rocketmq.query.explain import absent_step, copy_word, explain_key
from rmqctl.rocketmq.query.key import KeyQuery
from rmqctl.rocketmq.query.log_search import Progress, Search, search_log
from rmqctl.rocketmq.query.message_ids import MessageId
from rmqctl.rocketmq.query.queue_unit import RecordUnit, unit_of
from rmqctl.rocketmq.query.records import UNIQUE_KEY, Absence, Record
from rmqctl.rocketmq.query.steps import Step, Trace
from rmqctl.rocketmq.rows.record import host_text, transaction
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.text import number_of


def conclude_id(
    store: RocketMQStore, wanted: MessageId, answer: IdAnswer, trace: Trace, progress: Progress | None = None
) -> Step:
    """Note what the queues, or the log, say of the message; the last step names the reason.

    Raises:
        OSError: a file cannot be read.
    """
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


def _found(store: RocketMQStore, wanted: MessageId, answer: IdAnswer, trace: Trace) -> Step:
    """What is unusual about a message that was found; else that nothing is."""
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


def _delivered(wanted: MessageId, answer: IdAnswer, unit: RecordUnit) -> Step:
    """A message that consumers get: whether clients find it by its id, and what it is a copy of."""
    record = answer.messages[0]
    if answer.late is not None:
        made, stored = map(steps.instant, answer.late)
        return steps.CODE_208.conclude(record.file, made=made, stored=stored)
    if record.topic != record.real_topic:
        copy: dict[str, object] = {"copy": copy_word(record.topic), "system_topic": record.topic}
        return steps.SYSTEM_TOPIC.conclude(
            record.file, key=f"the message {wanted.text}", **copy, topic=record.real_topic
        )
    return steps.NONE.conclude(found=f"the message lies at offset {record.physical_offset}, and {unit.found}")


def _in_log(
    store: RocketMQStore, wanted: MessageId, trace: Trace, progress: Progress | None
) -> tuple[list[Record], int]:
    """Messages of the log with the unique key, and the physical offset behind its last record."""
    search = Search(Filter(key=wanted.text), (UNIQUE_KEY,))
    found = list(search_log(store, search, progress=progress))
    records = [r for part in found for r in part.records]
    trace.add("", "log", f"read from end to end for the unique key: {number_of(len(records), 'message')}")
    for finding in [f for part in found for f in part.findings][:20]:
        trace.add(finding.file, f"damage at {finding.offset}", f"{finding.kind.id}: {finding.message}")
    return records, next((part.end for part in reversed(found) if part.end is not None), 0)


def _hidden(
    store: RocketMQStore, wanted: MessageId, record: Record, answer: IdAnswer, trace: Trace, progress: Progress | None
) -> Step:
    """The log has the message, and the index did not give it."""
    known = answer.answers.get(record.topic)
    if known is None:
        trace.add("", "topic", f"{record.topic} is the message's topic, and was not asked for")
        return steps.OTHER_TOPIC.conclude(key=f"unique key {wanted.text}", topic=record.topic)
    return explain_key(store, KeyQuery(record.topic, wanted.text, unique=True), known, trace, progress)


def _no_record(store: RocketMQStore, absence: Absence, end: int) -> Step:
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


__all__ = ["conclude_id"]
