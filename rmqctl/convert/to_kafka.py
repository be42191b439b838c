"""A RocketMQ store as a Kafka log directory of one node: every queue a partition, with the same offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from formats.errors import DecodeError
from formats.kafka.internal_records import CONSUMER_OFFSETS
from formats.rocketmq.message import decode_record
from rmqctl.convert.books import HALF_TOPIC, LIGHT, OP_TOPIC, ConversionLedger, logs_of
from rmqctl.convert.mapping import inner_fields, kafka_group, kafka_topic, record_of
from rmqctl.convert.report import Advance, Conversion, ConvertedQueue, ConvertOptions, check_room
from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.commits import commit_record
from rmqctl.kafka.engine.config import EngineConfig, LogConfig, check_codec
from rmqctl.kafka.engine.engine import KafkaEngine, check_topic
from rmqctl.kafka.engine.log import WritableLog
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.query.key import partition_of_name
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.repair.copied import balance_copy
from rmqctl.rocketmq.log.record import LogReader, inner_messages, is_inner_batch, open_body
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.salvage.gather import NO_QUEUE, Gathered, Merged, Names, Records, gather, merge
from rmqctl.rocketmq.state.config import (
    ConsumerOffset,
    consumer_offsets,
    delay_offsets,
    has_stored_config,
    read_config,
    stored_offsets,
    stored_topics,
    table,
)
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.text import number_of

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DELAY_GROUP = "rmq-delay-offsets"
"""The group whose offsets say up to where delayed messages were delivered, by level."""
_LEFT_OUT = frozenset({HALF_TOPIC, OP_TOPIC})
_MADE_BY_BROKERS = frozenset(
    {SCHEDULE_TOPIC, "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "TRANS_CHECK_MAX_TIME_TOPIC"}
)
_INHERITED = 1
"""A bit of ``perm`` of the topics that others are made like: TBW102, the cluster's and the broker's name."""
_BATCH_BYTES, _BATCH_RECORDS = 64 << 10, 500
_LARGE = 900 << 10
_LARGEST_GAP = 1 << 30
"""Offsets of one empty batch; its field for them has 31 bits."""
_KEPT = {"retention.ms": "-1"}
_OFFSETS_SETTINGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(100 << 20)}


def to_kafka(store: StoreFiles, result: Conversion, options: ConvertOptions, advance: Advance) -> None:
    """Write the log directory.

    Raises:
        Refused: brokers of the release do not know the codec.
        Unbalanced: a message of the source is not there.
        OSError: a directory of the source cannot be read; a file that cannot be is a finding.
    """
    config = EngineConfig(options.release, LogConfig.small() if options.small else LogConfig())
    check_codec(options.codec, config.wanted)
    names = Names()
    found = gather(store, 0, names, stale=False, advance=advance)
    merged = merge([found.records])
    check_room(result.into, int(found.records["size"].sum()))
    with KafkaEngine.open(result.into, config) as engine:
        writer = _Writer(engine, store, result, options, advance)
        try:
            writer.write(found, merged, names)
        finally:
            writer.reader.close()
        _write_offsets(engine, store, result, options)
    result.findings += found.unreadable
    _note_what_stays(store, found, names, result)
    ledger = ConversionLedger(result, moves=True)
    made = Replicas(LogDirectories([read_directory(LocalTree(str(result.into)))]))
    ledger.before, ledger.after = partial(ledger.of_rocketmq, store, found.end), partial(ledger.of_kafka, logs_of(made))
    result.books = balance_copy(ledger, result.into)


class _Writer:
    """Writes queue after queue."""

    def __init__(
        self, engine: KafkaEngine, store: StoreFiles, result: Conversion, options: ConvertOptions, advance: Advance
    ) -> None:
        self.engine, self.store, self.result, self.options, self.advance = engine, store, result, options, advance
        self.reader = LogReader(store.log_files)

    def write(self, found: Gathered, merged: Merged, names: Names) -> None:
        """Write all queues of the store, those that are empty too."""
        keys = names.queues()
        records, repeats = merged.records, merged.repeats
        counts = dict.fromkeys((*keys, *found.ends, *_known_queues(self.store)), 0)
        topics: dict[str, int] = {}
        for topic, number in counts:
            if self._is_taken(topic, number):
                topics[topic] = max(topics.get(topic, 0), number + 1)
        numbers = {key: at for at, key in enumerate(keys)}
        for topic in sorted(topics):
            target = kafka_topic(topic)
            of_topic = [numbers[topic, n] for n in range(topics[topic]) if (topic, n) in numbers]
            largest = int(records["size"][np.isin(records["queue"], of_topic)].max(initial=0))
            settings = _KEPT if largest < _LARGE else _KEPT | {"max.message.bytes": str(largest * 2)}
            self.engine.make_topic(target, topics[topic], settings)
            for number in range(topics[topic]):
                at = numbers.get((topic, number), NO_QUEUE - 1)
                queue = ConvertedQueue(topic, number, target)
                own = records[records["queue"] == at]
                again = repeats[repeats["queue"] == at]
                self._queue(queue, own[np.argsort(own["queue_offset"], kind="stable")], again, found.ends)
                self.result.queues.append(queue)

    def _is_taken(self, topic: str, number: int) -> bool:
        if topic in _LEFT_OUT or topic.startswith(LIGHT) or number < 0:
            return False
        try:
            check_topic(kafka_topic(topic))
        except Refused as error:
            self.result.lose(topic, number, 0, str(error))
            return False
        return True

    def _queue(
        self, queue: ConvertedQueue, records: Records, repeats: Records, ends: dict[tuple[str, int], int]
    ) -> None:
        log = self.engine.log(queue.target, queue.number)
        partition = _Partition(log, queue, self.options.codec)
        for row in records:
            for record in self._records(row, queue, int(row["queue_offset"])):
                partition.add(record)
        partition.end(ends.get((queue.topic, queue.number), 0))
        for row in repeats:  # two messages claim one place: the second gets one at the end
            for record in self._records(row, queue, partition.next):
                partition.add(record._replace(offset=partition.next))
        partition.finish(self.engine)

    def _records(self, row: Any, queue: ConvertedQueue, offset: int) -> Iterator[Record]:
        """Yield the record of a message, those of an inner batch, or none for what only keeps a place."""
        data = self.reader.read_from(int(row["file"]), int(row["physical"]), int(row["size"]))
        self.advance(len(data))
        fields = decode_record(data)[0]
        if is_marked(fields):
            return
        if not is_inner_batch(fields["sys_flag"]):
            yield self._one(fields, queue, offset)
            return
        self.result.count("inner-batches", 1, "inner [batch is|batches are] single records in Kafka")
        opened = open_body(fields["body"], fields["sys_flag"])
        try:
            for number, item in enumerate(inner_messages(opened.data or b"")):
                yield self._one(inner_fields(fields, item), queue, offset + number)
        except DecodeError as error:
            self.result.lose(queue.topic, queue.number, offset, f"an inner batch cannot be taken apart: {error}")

    def _one(self, fields: dict[str, Any], queue: ConvertedQueue, offset: int) -> Record:
        record, is_compressed = record_of(fields, offset)
        if is_compressed:
            self.result.count(
                "compressed-bodies",
                1,
                "[body|bodies] that cannot be decompressed [is a value|are values] as stored, see rmq-sys-flag",
            )
        return record


class _Partition:
    """Fills one partition: records into batches, gaps into empty ones."""

    def __init__(self, log: WritableLog, queue: ConvertedQueue, codec: int) -> None:
        self.log, self.queue, self.codec = log, queue, codec
        self.next = 0
        self._is_begun = False
        self._waiting: list[Record] = []
        self._bytes = 0

    def add(self, record: Record) -> None:
        """Take the next record; what lies below those before it keeps the first one."""
        if record.offset < self.next:
            record = record._replace(offset=self.next)
        self._reach(record.offset)
        self._waiting.append(record)
        self._bytes += len(record.value or b"") + sum(len(n) + len(v or b"") for n, v in record.headers)
        self.next = record.offset + 1
        self.queue.messages += 1
        if self._bytes >= _BATCH_BYTES or len(self._waiting) >= _BATCH_RECORDS:
            self.flush()

    def _reach(self, offset: int) -> None:
        """Go to an offset: the first one is where the log starts, before others there is an empty batch."""
        if not self._is_begun:
            self._is_begun = True
            self.next = self.queue.start = offset
            if offset:
                self.log.roll(offset)
            return
        if offset > self.next:
            self.flush()
            self.queue.gaps += offset - self.next
            head = BatchHead(max(self.next, offset - _LARGEST_GAP), offset - 1)  # before it there is nothing at all
            self.log.append_stored(build_batch(head, []))
            self.next = offset

    def flush(self) -> None:
        """Write the records that wait as one batch."""
        if self._waiting:
            head = BatchHead(self._waiting[0].offset, codec=self.codec)
            self.log.append_stored(build_batch(head, self._waiting))
            self._waiting, self._bytes = [], 0

    def end(self, end: int) -> None:
        """Bring the end of the log to where the queue's is, so that no offset is given away twice."""
        if end > self.next:
            if not self._is_begun:
                self._reach(end - 1)  # nothing is left of the queue but its counter
            self._reach(end)

    def finish(self, engine: KafkaEngine) -> None:
        """Write what waits, and let the log start where the queue does."""
        self.flush()
        queue = self.queue
        if not queue.messages and self.next:
            queue.start, queue.gaps = self.next, 0
        queue.end = self.next
        if queue.start:
            engine.delete_records(queue.target, queue.number, queue.start)


def _known_queues(store: StoreFiles) -> Iterator[tuple[str, int]]:
    """Yield the queues that the configuration names, those of the brokers' own making left out."""
    topics = table(read_config(store, "topics.json").document, "topicConfigTable")
    if has_stored_config(store):
        topics = topics | stored_topics(store)
    for topic, entry in topics.items():
        if not isinstance(entry, dict):
            continue
        count = entry.get("writeQueueNums")
        is_own = topic.startswith(("rmq_sys_", "RMQ_SYS_")) or topic.endswith("_REPLY_TOPIC")
        is_own = is_own or topic in _MADE_BY_BROKERS or bool(entry.get("perm", 0) & _INHERITED)
        if isinstance(count, int) and count > 0 and not is_own:
            yield topic, count - 1


# --- consumer groups ------------------------------------------------------------------------------------


def _write_offsets(engine: KafkaEngine, store: StoreFiles, result: Conversion, options: ConvertOptions) -> None:
    """Write the offsets of all groups as the group coordinator commits them."""
    offsets = {(o.group, o.topic, o.queue_id): o for o in consumer_offsets(store)}
    if has_stored_config(store):
        offsets |= {(o.group, o.topic, o.queue_id): o for o in stored_offsets(store)}
    commits = [*offsets.values(), *_delays(store)]
    made = {(queue.topic, queue.number) for queue in result.queues}
    light = sum(o.topic.startswith(LIGHT) for o in commits)
    result.count("light-queue-offsets", light, "[offset|offsets] in light queues: Kafka has no light queues")
    stray = [o for o in commits if (o.topic, o.queue_id) not in made and not o.topic.startswith(LIGHT)]
    result.count("offsets-without-queue", len(stray), "[offset|offsets] of groups in queues that are not in the store")
    commits = [o for o in commits if (o.topic, o.queue_id) in made]
    if not commits:
        return
    engine.make_topic(CONSUMER_OFFSETS, options.offsets_partitions, _OFFSETS_SETTINGS)
    now = time.time_ns() // 1_000_000
    by_partition: dict[int, list[Record]] = {}
    for commit in sorted(commits, key=lambda o: (o.group, o.topic, o.queue_id)):
        records = by_partition.setdefault(partition_of_name(kafka_group(commit.group), options.offsets_partitions), [])
        records.append(_commit(commit, now, len(records)))
        result.groups.add(commit.group)
    for number, records in by_partition.items():
        for at in range(0, len(records), _BATCH_RECORDS):
            engine.append(CONSUMER_OFFSETS, number, records[at : at + _BATCH_RECORDS])


def _delays(store: StoreFiles) -> Iterable[ConsumerOffset]:
    return (
        ConsumerOffset("", SCHEDULE_TOPIC, DELAY_GROUP, level - 1, offset)
        for level, offset in delay_offsets(store).items()
    )


def _commit(commit: ConsumerOffset, now: int, offset: int) -> Record:
    group, topic = kafka_group(commit.group), kafka_topic(commit.topic)
    return commit_record(group, topic, commit.queue_id, max(commit.offset, 0), now)._replace(offset=offset)


# --- what is left out -----------------------------------------------------------------------------------


def _note_what_stays(store: StoreFiles, found: Gathered, names: Names, result: Conversion) -> None:
    keys, records = names.queues(), found.records
    by_topic: dict[str, int] = {}
    for number, count in zip(*np.unique(records["queue"], return_counts=True), strict=True):
        if number != NO_QUEUE:
            by_topic[keys[number][0]] = by_topic.get(keys[number][0], 0) + int(count)
    half, done = by_topic.get(HALF_TOPIC, 0), by_topic.get(OP_TOPIC, 0)
    result.count(
        "half-messages", half, f"half [message|messages] of transactions [stays|stay] out, "
        f"with {number_of(done, 'note')} on how they ended; "
        "`rmqctl dump --pending transaction` lists those that are open",
    )  # fmt: skip
    unqueued = int((records["queue"] == NO_QUEUE).sum())
    result.count(
        "unqueued-records",
        unqueued,
        "prepared or rolled back [record, which lies|records, which lie] in no queue, [stays|stay] out",
    )
    delivered = delay_offsets(store)
    waiting = sum(
        max(queue.end - max(delivered.get(queue.number + 1, 0), queue.start), 0)
        for queue in result.queues
        if queue.topic == SCHEDULE_TOPIC
    )
    result.count(
        "delayed-messages",
        waiting,
        f"delayed [message waits|messages wait] in {SCHEDULE_TOPIC}: Kafka delivers nothing later",
    )
    light = sum(topic.startswith(LIGHT) for topic, _ in found.ends)
    result.count(
        "light-queues",
        light,
        "light [queue stays|queues stay] out; messages of light queues lie in the queues of their topics",
    )
    groups = table(read_config(store, "subscriptionGroup.json").document, "subscriptionGroupTable")
    result.count("group-settings", len(groups), "consumer [group has|groups have] settings without a twin in Kafka")
    if result.queues:
        result.count(
            "retention", len({queue.topic for queue in result.queues}),
            "[topic has|topics have] retention.ms=-1: a broker would delete old records at once; set it as you need",
        )  # fmt: skip
