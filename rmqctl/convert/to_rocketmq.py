"""Kafka log directories as a RocketMQ store: every partition a queue, with the same offsets."""

from __future__ import annotations

import heapq
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from formats.kafka.internal_records import CONSUMER_OFFSETS, INTERNAL_TOPICS
from formats.kafka.record_batch import Attributes
from rmqctl.convert.books import ConversionLedger, Decided, logs_of
from rmqctl.convert.mapping import NoTwin, kafka_topic, message_of, rocketmq_group, rocketmq_topic
from rmqctl.convert.report import Advance, Conversion, ConvertedQueue, ConvertOptions, check_room
from rmqctl.convert.to_kafka import DELAY_GROUP, SCHEDULE_TOPIC
from rmqctl.files.writing import Disk
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.findings.directory import FILE_UNREADABLE
from rmqctl.kafka.findings.log import RECORD_UNREADABLE
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.gaps import block_findings
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.state.internal_topics import group_offsets
from rmqctl.kafka.state.partition_state import PartitionLog, Spans, listed_as_aborted, producers_of
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.repair.copied import balance_copy
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import MessageRefused, check_topic
from rmqctl.rocketmq.engine.record import prepare
from rmqctl.rocketmq.engine.topic_table import save_config, versioned
from rmqctl.rocketmq.salvage.salvage import MOST_PLACEHOLDERS, Writer
from rmqctl.rocketmq.state.config import CONFIG
from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES
from rmqctl.rocketmq.store.locate import open_store_at

_WINDOW, _LEAST_WINDOW, _MEMORY = 8 << 20, 256 << 10, 256 << 20
_MOST_BODY = 64 << 20
_SMALL_LOG = 4 << 20
_STOPS = f"consumers before {FIRST_WITH_EMPTY_BODIES} stop at a message without a body"
_BLANK = f"[record|records] without a value [has|have] a body of one blank: {_STOPS}"
_EMPTY = f"[message|messages] had no body before, and [has|have] none again: {_STOPS}"

_OUT_OF_ORDER = "it lies after later ones, or another has its offset; rmqctl salvage brings a log into order"


@dataclass(frozen=True, slots=True)
class _Source:
    """A partition that is read, and the queue that is written.

    Attributes:
        producers: idempotent and transactional ones.
        start: the log start offset.
        stable: the first offset that is not decided.
        aborted: the transactions that readers of committed records pass over.
        kept: offsets of the messages of a queue that is numbered again.
    """

    log: PartitionLog
    queue: ConvertedQueue
    producers: int
    start: int
    stable: int
    aborted: Spans
    kept: array[int] = field(default_factory=lambda: array("q"))

    @property
    def decided(self) -> Decided:
        """What consumers of committed records get of it."""
        return Decided(self.start, self.stable, self.aborted)

    def place_of(self, offset: int) -> int:
        """Where a consumer that is at an offset of the partition goes on in a queue that is numbered again."""
        return bisect_left(self.kept, offset)


def to_rocketmq(replicas: Replicas, result: Conversion, options: ConvertOptions, advance: Advance) -> None:
    """Write the store.

    Raises:
        Unbalanced: a record of the source is not there.
        OSError: a directory of the source cannot be read; a file that cannot be is a finding.
    """
    config = StoreConfig.small(commit_log_file_size=_SMALL_LOG) if options.small else StoreConfig()
    release = options.release or config.release
    config = replace(config, release=release, services=False, max_message_size=_MOST_BODY, multi_dispatch=True)
    if not options.renumber:
        config = replace(config, log_start=config.commit_log_file_size)
    check_room(result.into, sum(max(f.size, 0) for log in replicas.served for f in log.partition.logs))
    sources = list(_sources(replicas, result, config, advance))
    with StoreEngine.open(result.into, config) as engine:
        for topic in dict.fromkeys(source.queue.target for source in sources):
            own = [source.queue.number for source in sources if source.queue.target == topic]
            count = max(replicas.partition_count(kafka_topic(topic)), *(n + 1 for n in own))
            engine.make_topic(topic, count)
        writer = Writer(engine, [(s.queue.target, s.queue.number) for s in sources], [], keep=True)
        _write(sources, writer, result, config, advance, renumber=options.renumber)
        ends = {(s.queue.target, s.queue.number): s.queue.end for s in sources if s.queue.end}
        writer.fill_to({} if options.renumber else ends)  # writes what waits, too
    for topic, queue_id, first, stop in writer.written.holes:
        result.lose(
            topic,
            queue_id,
            first,
            f"the gap up to {stop - 1} takes more than {MOST_PLACEHOLDERS:,} placeholders; use --renumber",
        )
    _write_groups(replicas, sources, result, config, renumber=options.renumber)
    _note_what_stays(replicas, sources, result)
    ledger = ConversionLedger(result, moves=options.renumber)
    decided = {(s.queue.topic, s.queue.number): s.decided for s in sources}
    ledger.before = partial(ledger.of_kafka, logs_of(replicas), decided)
    ledger.after = partial(ledger.of_rocketmq, open_store_at(str(result.into)))
    result.books = balance_copy(ledger, result.into)
    if options.renumber:
        for source in sources:
            source.queue.end = source.queue.messages


# --- reading --------------------------------------------------------------------------------------------


def _sources(replicas: Replicas, result: Conversion, config: StoreConfig, advance: Advance) -> Iterator[_Source]:
    """Yield the partitions that become queues: their producers replayed, damage noted."""
    for log in replicas.served:
        topic, number = log.partition.topic, log.partition.partition or 0
        if topic in INTERNAL_TOPICS:
            continue
        target = rocketmq_topic(topic)
        try:
            check_topic(target, config.release)
        except MessageRefused as error:
            result.lose(topic, number, 0, str(error))
            continue
        queue = ConvertedQueue(topic, number, target)
        replay = producers_of(log, _sound(log, queue, result.findings, advance))
        start = max(log.checkpoints.offset(FileKind.LOG_STARTS, log.partition) or 0, _first_base(log))
        queue.end = max(queue.end, start)
        result.queues.append(queue)
        is_cut = queue.end > log.end  # where a broker cuts the log, it has decided nothing of the rest
        stable = replay.stable_offset(queue.end) if is_cut else log.replayed.last_stable_offset
        aborted = Spans([*replay.aborted, *listed_as_aborted(log)])
        yield _Source(log, queue, len(replay.producers), start, stable, aborted)


def _sound(log: PartitionLog, queue: ConvertedQueue, findings: list[Finding], advance: Advance) -> Iterator[Block]:
    """Yield the batches of a partition that are right; where they end, and what is damaged, is noted."""
    for block in _blocks(log, _WINDOW, findings):
        findings += [f for f in block_findings(block, log.partition) if f.level is not Severity.NOTE]
        sound = block.take(block.crc_ok & (block.magic <= 2))
        if len(sound):
            queue.end = max(queue.end, int(sound["last_offset"].max()) + 1)
            yield sound
        advance(len(block.data) // 2)


def _first_base(log: PartitionLog) -> int:
    return log.segments[0].base if log.segments else 0


def _blocks(log: PartitionLog, window: int, found: list[Finding] | None = None) -> Iterator[Block]:
    """All batches of a partition, also those after damage, where a broker would cut the log.

    Args:
        found: gets a finding for each segment that cannot be read.
    """
    for segment in log.segments:
        assert segment.log is not None
        try:
            source = segment.log.open()
            try:
                yield from scan(source, Extent(segment.log.name, segment.base, size=segment.log.size), window)
            finally:
                source.close()
        except OSError as error:
            if found is not None:
                topic, number = log.partition.topic, log.partition.partition
                why = f"{error.strerror or error}"
                found.append(Finding(FILE_UNREADABLE, segment.log.name, 0, 0, why, topic=topic, partition=number))


def _records(source: _Source, window: int, result: Conversion) -> Iterator[Record]:
    """Yield what a consumer of committed records gets, in order of offsets; each offset once."""
    queue, aborted = source.queue, source.aborted
    following = source.start
    for block in _blocks(source.log, window):
        keep = block.crc_ok & (block.magic <= 2) & ~block.flag(Attributes.CONTROL)
        keep &= (block["base_offset"] < source.stable) & (block["last_offset"] >= source.start)
        for row in np.flatnonzero(keep & block.flag(Attributes.TRANSACTIONAL)).tolist():
            if aborted.find(int(block["producer_id"][row]), int(block["base_offset"][row])) is not None:
                keep[row] = False
                queue.aborted += max(int(block["records_count"][row]), 0)
        kept = block.take(keep)
        for records in records_of(kept):
            for row, error in records.failures.items():
                result.findings.append(
                    Finding(
                        RECORD_UNREADABLE, kept.file, int(kept.position[row]), int(kept.size[row]), str(error),
                        topic=queue.topic, partition=queue.number,
                    )
                )  # fmt: skip
            for index in range(len(records)):
                offset = int(records.offset[index])
                if source.start <= offset < min(following, source.stable):
                    result.lose(queue.topic, queue.number, offset, _OUT_OF_ORDER)
                elif following <= offset < source.stable:
                    following = offset + 1
                    yield Record(
                        offset, int(records.timestamp[index]), -1, records.key(index), records.value(index),
                        tuple(records.headers_of(index)),
                    )  # fmt: skip


# --- writing --------------------------------------------------------------------------------------------


def _write(
    sources: list[_Source],
    writer: Writer,
    result: Conversion,
    config: StoreConfig,
    advance: Advance,
    *,
    renumber: bool,
) -> None:
    """Write the messages of all queues in the order of their times, as they would have come to a broker."""
    window = max(min(_WINDOW, _MEMORY // max(len(sources), 1)), _LEAST_WINDOW)
    now = time.time_ns() // 1_000_000
    latest = 0
    for when, number, record in heapq.merge(*(_timed(s, n, window, result, now) for n, s in enumerate(sources))):
        source = sources[number]
        queue = source.queue
        latest = max(latest, when) or now
        place = len(source.kept) if renumber else record.offset
        try:
            made = message_of(record, queue.target, queue.number, config.release)
            stored = latest if made.store_timestamp is None else made.store_timestamp
            data = prepare(made.message, config).encode(place, 0, stored)
        except (NoTwin, MessageRefused) as error:
            result.lose(queue.topic, queue.number, record.offset, str(error))
            continue
        if not queue.messages:
            queue.start = place
        if renumber:
            source.kept.append(record.offset)
        writer.put(number, place, data, stored)
        if not record.value and config.release < FIRST_WITH_EMPTY_BODIES:
            is_own = made.store_timestamp is not None
            result.count("empty-bodies" if is_own else "empty-values", 1, _EMPTY if is_own else _BLANK)
        queue.messages += 1
        advance(len(data) // 2)
    for source in sources:
        queue = source.queue
        if not queue.messages and not renumber:
            queue.start = queue.end
        if not renumber:
            queue.gaps = queue.end - queue.start - queue.messages


def _timed(
    source: _Source, number: int, window: int, result: Conversion, now: int
) -> Iterator[tuple[int, int, Record]]:
    """Yield records with the time at which they come into the log: ascending, and no later than now."""
    reached = 0
    for record in _records(source, window, result):
        own = next((v for n, v in record.headers if n == b"rmq-store-timestamp"), None)
        when = int(own) if own is not None and own.isdigit() else record.timestamp
        reached = max(reached, min(when, now))
        yield reached, number, record


def _write_groups(
    replicas: Replicas, sources: list[_Source], result: Conversion, config: StoreConfig, *, renumber: bool
) -> None:
    """Write consumerOffset.json, and delayOffset.json where the delayed messages came along."""
    found = group_offsets(replicas.of(CONSUMER_OFFSETS))
    made = {(source.queue.topic, source.queue.number): source for source in sources}
    offsets: dict[str, dict[str, int]] = {}
    delays: dict[str, int] = {}
    stray = noted = 0
    for (group, topic, number), commit in sorted(found.commits.items()):
        source = made.get((topic, number))
        if source is None:
            stray += 1
            continue
        noted += bool(commit.metadata)
        result.groups.add(group)
        offset = source.place_of(commit.offset) if renumber else commit.offset
        if group == DELAY_GROUP and topic == SCHEDULE_TOPIC:
            delays[str(number + 1)] = offset
        else:
            offsets.setdefault(f"{source.queue.target}@{rocketmq_group(group)}", {})[str(number)] = offset
    result.count("offsets-without-queue", stray, "[offset|offsets] of groups in partitions that are not here")
    result.count(
        "commit-metadata", noted, "[text|texts] that consumers commit with an offset [has|have] no twin in RocketMQ"
    )
    result.count("pending-commits", len(found.pending), "[offset|offsets] inside open transactions [stays|stay] out")
    now, disk = config.clock.now(), Disk()
    directory = result.into / CONFIG
    directory.mkdir(exist_ok=True)
    for name, own in (("consumerOffset.json", offsets), ("delayOffset.json", delays)):
        if own:
            document = versioned({"offsetTable": own}, config.release, now)
            save_config(result.into, name, document, disk, config.release)


def _note_what_stays(replicas: Replicas, sources: list[_Source], result: Conversion) -> None:
    undecided = sum(max(source.queue.end - source.stable, 0) for source in sources)
    result.count(
        "open-transactions",
        undecided,
        "[offset|offsets] at or after the start of an open transaction: what lies there stays out",
    )
    aborted = sum(source.queue.aborted for source in sources)
    result.count(
        "aborted-records",
        aborted,
        "[record|records] of aborted transactions [stays|stay] out; placeholders keep the offsets",
    )
    producers = sum(source.producers for source in sources)
    result.count(
        "producers", producers, "idempotent [producer|producers]: ids, epochs and sequences have no twin in RocketMQ"
    )
    for topic in INTERNAL_TOPICS:
        logs = replicas.of(topic) if topic != CONSUMER_OFFSETS else []
        size = sum(max(file.size, 0) for log in logs for file in log.partition.logs)
        if size and topic != "__cluster_metadata":
            result.count(topic, len(logs), f"[partition|partitions] of {topic} [has|have] no twin in RocketMQ")
