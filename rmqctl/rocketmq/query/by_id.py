"""A message by its id, as ``viewMessage`` finds it: by the place the id names, else by the index of unique keys.

Sources: DefaultMQAdminExtImpl.viewMessage, MQAdminImpl.queryMessageByUniqKey. NumPy is not imported on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rmqctl.rocketmq.geometry import index_geometry
from rmqctl.rocketmq.index_files import IndexFile, index_files
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.message_index import is_asked
from rmqctl.rocketmq.query.key import KeyAnswer, KeyQuery, by_key_in, by_key_in_database
from rmqctl.rocketmq.query.message_ids import MessageId, UniqueKey
from rmqctl.rocketmq.query.message_index import open_index
from rmqctl.rocketmq.query.records import Absence, Record, RecordReader
from rmqctl.rocketmq.query.steps import Trace
from rmqctl.rocketmq.query.topic_names import topic_names
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.text import number_of

_CLIENT_MARGIN = 1000
"""Clients ask for a unique key from so many ms before its own time on (MQAdminImpl.queryMessageByUniqKey)."""


@dataclass(slots=True)
class IdAnswer:
    """What an id leads to.

    Attributes:
        messages: the one that a client is shown first, the other copies and repeats behind it, ascending.
        by_offset: the message was found where an offsetMsgId says.
        foreign_host: the id names another broker than the one that wrote the record.
        absence: why there is no record where the id says.
        answers: what the index gave for the unique key, by topic.
        late: time of the key by the producer's clock and store time, where a client would miss the message.
    """

    messages: list[Record] = field(default_factory=list)
    by_offset: bool = False
    foreign_host: str = ""
    absence: Absence | None = None
    answers: dict[str, KeyAnswer] = field(default_factory=dict)
    late: tuple[int, int] | None = None


def by_id(
    store: RocketMQStore,
    wanted: MessageId,
    topics: Sequence[str] = (),
    trace: Trace | None = None,
    *,
    strict: bool = False,
) -> IdAnswer:
    """The message with an id.

    Args:
        topics: where to look for a unique key; default: every topic the store knows.

    Raises:
        OSError: a file cannot be read.
    """
    trace = trace or Trace(on=False)
    for line in wanted.describe():
        trace.add("", "id", line)
    with LogReader(store.log_files) as log:
        answer = _by_offset(wanted, RecordReader(log, trace, strict=strict), trace)
        if answer.messages and not answer.foreign_host:
            return answer
        names = topics or topic_names(store)
        found = _by_unique_key(store, wanted, names, log, trace, strict=strict)
        if not found.messages and wanted.text != wanted.text.upper():
            wanted = replace(wanted, text=wanted.text.upper())
            found = _by_unique_key(store, wanted, names, log, trace, strict=strict)
    if found.messages or not answer.messages:
        found.absence = answer.absence
        return found
    return answer


def _by_offset(wanted: MessageId, reader: RecordReader, trace: Trace) -> IdAnswer:
    """The record at the offset of the id, whatever broker the id names."""
    offset_id = wanted.offset
    if offset_id is None or not offset_id.is_plausible:
        return IdAnswer()
    record = reader.at(offset_id.physical_offset)
    if isinstance(record, Absence):
        return IdAnswer(absence=record)
    same = record.fields["store_ip"] == offset_id.ip and record.fields["store_port"] == offset_id.port
    answer = IdAnswer([record], by_offset=True, foreign_host="" if same else offset_id.host)
    told = "and of the broker that the id names" if same else f"but stored by another broker than {offset_id.host}"
    trace.add(record.file, f"record {record.physical_offset}", f"a message of topic {record.topic}, {told}")
    return answer


def _by_unique_key(
    store: RocketMQStore, wanted: MessageId, topics: Sequence[str], log: LogReader, trace: Trace, *, strict: bool
) -> IdAnswer:
    answer = IdAnswer()
    queries = (KeyQuery(topic, wanted.text, unique=True, strict=strict) for topic in topics)
    if is_asked(store):
        with open_index(store) as index:
            for query in queries:
                answer.answers[query.topic] = by_key_in_database(index, log, query, Trace(on=False))
    else:
        files = index_files(store, index_geometry(store))
        try:
            for query in queries:
                answer.answers[query.topic] = by_key_in(files, log, query, _quiet(trace, files, query))
        finally:
            for file in files:
                file.close()
    for found in answer.answers.values():
        answer.messages += found.messages
    told = f"{number_of(len(topics), 'topic')}: {number_of(len(answer.messages), 'message')}"
    trace.add("", "index", f"asked for the unique key under {told}")
    answer.messages.sort(key=rank)
    if answer.messages and wanted.unique is not None:
        first = answer.messages[0]
        answer.late = clock_ahead(first, wanted.unique, answer.answers[first.topic])
    return answer


def _quiet(trace: Trace, files: Sequence[IndexFile], query: KeyQuery) -> Trace:
    """The trace for topics whose slot holds something; where all slots are empty there is nothing to tell."""
    if not trace.on:
        return trace
    hashed = query.index_query().hash
    return trace if any(f.slot(hashed % max(f.geometry.slots, 1)) > 0 for f in files) else Trace(on=False)


def rank(record: Record) -> tuple[bool, int]:
    """Messages under the topic that their producer named come before copies under system topics."""
    return record.real_topic != record.topic, record.physical_offset


def clock_ahead(record: Record, unique: UniqueKey, answer: KeyAnswer) -> tuple[int, int] | None:
    """When the key was made and the message stored, epoch ms, where clients ask for later times and find nothing.

    Args:
        answer: what the index gave for the key; its times are in whole seconds from the first of their file.
    """
    made = unique.made_at(record.fields["born_timestamp"])
    times = [c.time for c in answer.walk.candidates if c.physical_offset == record.physical_offset]
    return (made, record.store_timestamp) if made - _CLIENT_MARGIN > max(times, default=made) else None


__all__ = ["IdAnswer", "by_id", "clock_ahead", "rank"]
