"""Producing records into a log directory as the Java client does: partitions, batches, transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from formats.kafka.record_batch import Codec
from rmqctl.errors import Refused
from rmqctl.kafka.engine.batch import BatchHead, build_batch, sequence_after
from rmqctl.kafka.engine.config import check_codec
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import AppendResult
from rmqctl.kafka.engine.transactions import Coordinator, Transactional
from rmqctl.kafka.log.codecs import LEVELS
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.producer.drafts import Draft, Template
from rmqctl.kafka.query.key import partition_of_key
from rmqctl.producing import Room, paced
from rmqctl.release import Release

MURMUR2, ROUND_ROBIN, STICKY = "murmur2", "round-robin", "sticky"
COMMIT, ABORT, OPEN = "commit", "abort", "open"
TRANSACTIONAL_ID = "rmqctl"
BATCH_SIZE = 16 << 10
"""``batch.size`` of the Java client."""
_AROUND = 21
"""Bytes of a record beside key and value at most, without headers."""
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How to produce.

    Attributes:
        topics: taken in turn by records that name none.
        partitions: of a topic; None: those that it has, 1 of a new one. ``partition``: all into this one.
        partitioner: ``murmur2`` by the key, and batch by batch where there is none; ``round-robin``; ``sticky``.
        codec, level: of batches; level None: the default of the Java client.
        batch: records of a batch at most, None for any; ``batch_size``: bytes, as long as it has one record.
        idempotent: with a producer id and sequences.
        transactional: all as one transaction that ends so: ``commit``, ``abort``, ``open``; "" for none.
        transactional_id: whose transaction that is.
        compact: everything is compacted at the end.
        settings: of topics that are made.
        rate: records a second at most; None: as fast as it goes.
    """

    topics: tuple[str, ...] = ()
    partitions: int | None = None
    partition: int | None = None
    partitioner: str = MURMUR2
    codec: str = "none"
    level: int | None = None
    batch: int | None = None
    batch_size: int = BATCH_SIZE
    idempotent: bool = False
    transactional: str = ""
    transactional_id: str = TRANSACTIONAL_ID
    compact: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    rate: float | None = None

    @property
    def number_of_codec(self) -> int:
        return int(Codec[self.codec.upper()])

    def check(self, release: Release) -> None:
        """Hold the codec and its level to the release.

        Raises:
            Refused: brokers of the release do not know the codec, or it has no such level.
        """
        check_codec(self.number_of_codec, release)
        low, high = LEVELS.get(self.number_of_codec, (0, 0))
        if self.level is not None and not low <= self.level <= high:
            known = f"it has {low} to {high}" if high else "it has none"
            raise Refused(f"{self.codec} has no level {self.level}; {known}")


def room_for(path: str, template: Template, count: int) -> Room:
    """Return the room for ``count`` records of a template, not compressed."""
    return Room.at(path, count * (template.size + 12), "records")


def produce(engine: KafkaEngine, drafts: Iterable[Draft], options: ProduceOptions) -> Iterator[AppendResult]:
    """Append the drafts and yield where each batch went. Topics are made when a record needs them.

    Raises:
        Refused, IOFailure: a batch cannot be appended; those yielded are.
    """
    producer = Producer(engine, options)
    for number, draft in enumerate(paced(drafts, options.rate)):
        yield from producer.send(number, draft)
    yield from producer.finish()


def size_of(draft: Draft) -> int:
    """Bytes of a record at most, not compressed, by which batches are filled."""
    size = len(draft.key or b"") + len(draft.value or b"") + _AROUND
    return size + sum(len(name) + len(value or b"") + 10 for name, value in draft.headers)


def make_topics(engine: KafkaEngine, options: ProduceOptions) -> None:
    """Make the topics, with the partitions asked for.

    Raises:
        Refused: one has no name for a topic, or has more partitions already.
    """
    for topic in options.topics:
        make_topic(engine, topic, options, options.partition)


def make_topic(engine: KafkaEngine, topic: str, options: ProduceOptions, partition: int | None) -> None:
    """Make one topic, or partitions of it that are missing."""
    has = engine.topics.get(topic, 0)
    wanted = options.partitions or max(has, (partition or 0) + 1, 1)
    engine.make_topic(topic, wanted, options.settings)


@dataclass(slots=True)
class _Batch:
    records: list[Record] = field(default_factory=list)
    size: int = 0
    origins: list[str] = field(default_factory=list)


class Producer:
    """A client: what waits for each partition, the sequences, the transaction."""

    def __init__(self, engine: KafkaEngine, options: ProduceOptions) -> None:
        self.engine, self.options = engine, options
        self._waiting: dict[Key, _Batch] = {}
        self._sequences: dict[Key, int] = {}
        self._turns: dict[str, int] = {}
        self._counts = engine.topics
        self._id, self._epoch = -1, -1
        self._transaction: Transactional | None = None
        if options.transactional:
            self._coordinator = Coordinator(engine)
            self._transaction = self._coordinator.begin(options.transactional_id)
            self._id, self._epoch = self._transaction.producer_id, self._transaction.producer_epoch
        elif options.idempotent:
            self._id, self._epoch = engine.new_producer_id(), 0

    def send(self, number: int, draft: Draft) -> Iterator[AppendResult]:
        """Put a record into its batch; yields the batch that is full now."""
        topics = self.options.topics
        topic = draft.topic if draft.topic is not None and not topics else topics[number % len(topics)]
        partition = self._partition(topic, draft)
        key = topic, partition
        time = self.engine.config.clock() if draft.timestamp is None else draft.timestamp
        size = size_of(draft)
        batch = self._waiting.get(key)
        if batch is not None and self._is_full(batch, size):
            yield self._flush(key)
            partition = self._partition(topic, draft)
            key = topic, partition
            batch = self._waiting.get(key)
        if batch is None:
            batch = self._waiting[key] = _Batch()
        batch.records.append(Record(len(batch.records), time, -1, draft.key, draft.value, draft.headers))
        batch.size += size
        if draft.origin and not batch.origins:
            batch.origins.append(draft.origin)

    def _is_full(self, batch: _Batch, size: int) -> bool:
        most = self.options.batch
        return batch.size + size > self.options.batch_size or (most is not None and len(batch.records) >= most)

    def _partition(self, topic: str, draft: Draft) -> int:
        options, count = self.options, self._counts.get(topic, 0)
        given = options.partition if options.partition is not None else draft.partition
        if not count or (given is not None and given >= count):
            if options.partitions and given is not None:
                raise Refused(
                    f"partition {given} is asked for, but --partitions gives topic {topic} {options.partitions}"
                )
            make_topic(self.engine, topic, options, given)
            self._counts = self.engine.topics
            count = self._counts[topic]
        if given is not None:
            return given
        if options.partitioner == ROUND_ROBIN:
            turn = self._turns[topic] = self._turns.get(topic, -1) + 1
            return turn % count
        if options.partitioner == MURMUR2 and draft.key is not None:
            return partition_of_key(draft.key, count)
        return self._turns.setdefault(topic, 0) % count

    def _flush(self, key: Key) -> AppendResult:
        batch = self._waiting.pop(key)
        options, first = self.options, self._sequences.get(key, 0)
        has_id = self._id >= 0
        head = BatchHead(
            codec=options.number_of_codec, level=options.level, producer_id=self._id,
            producer_epoch=self._epoch, base_sequence=first if has_id else -1,
            transactional=self._transaction is not None,
        )  # fmt: skip
        try:
            if any(r.key is None for r in batch.records):
                self.engine.check_keyless(*key)
            if self._transaction is not None:
                self._coordinator.add(self._transaction, [key])
            result = self.engine.append_batch(*key, build_batch(head, batch.records))
        except Refused as error:
            if not batch.origins:
                raise
            raise type(error)(f"{batch.origins[0]}: {error}") from error
        if has_id:
            self._sequences[key] = sequence_after(first, len(batch.records))
        if options.partitioner != ROUND_ROBIN and key[0] in self._turns:
            self._turns[key[0]] += 1
        return result

    def finish(self) -> Iterator[AppendResult]:
        """Append what waits, and end the transaction."""
        for key in sorted(self._waiting):
            yield self._flush(key)
        if self._transaction is not None and self.options.transactional != OPEN:
            self._coordinator.end(self._transaction, commit=self.options.transactional == COMMIT)
