"""The books of a conversion: every message that both sides know is on the other side, at its offset.

A message is known by what both sides know of it: the value as consumers get it, and when it was sent. Its place is the
partition that its queue becomes, and its offset there. Transactions are as the replay of the producers says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from formats.errors import DecodeError
from formats.kafka.internal_records import INTERNAL_TOPICS
from formats.kafka.record_batch import Attributes
from formats.rocketmq.message import TRANSACTION
from rmqctl.convert.mapping import BLANK, MOST_BODY, kafka_topic
from rmqctl.convert.report import Conversion
from rmqctl.kafka.log.block import Block as KafkaBlock
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.state.partition_state import PartitionLog, Spans
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.repair.copied import WHOLE, Flags, Rows
from rmqctl.rocketmq.dispatch.rules import UNQUEUED
from rmqctl.rocketmq.engine.message import is_topic
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.record import inner_messages, is_inner_batch, open_body
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.salvage.books import whole_blocks
from rmqctl.rocketmq.store.files import StoreFiles

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
LIGHT = "%LMQ%"
_OFFSETS, _LARGEST = 1 << 40, (1 << 64) - 1
"""More offsets than a queue can have; the largest place."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What of a partition consumers of committed records get.

    Attributes:
        start: the log start offset.
        stable: the first offset that is not decided.
    """

    start: int
    stable: int
    aborted: Spans


_NOTHING = Decided(0, 0, Spans([]))


def _is_aborted(block: KafkaBlock, row: int, limits: Decided) -> bool:
    if not block["attributes"][row] & int(Attributes.TRANSACTIONAL):
        return False
    return limits.aborted.find(int(block["producer_id"][row]), int(block["base_offset"][row])) is not None


def logs_of(replicas: Replicas) -> list[PartitionLog]:
    """Return the partitions whose records both sides know."""
    return [log for log in replicas.served if log.partition.topic not in INTERNAL_TOPICS]


class ConversionLedger:
    """Messages of both sides; a :class:`~rmqctl.repair.copied.CopyLedger`.

    Attributes:
        before, after: yield the rows of a side; :meth:`of_rocketmq` and :meth:`of_kafka` do.

    Args:
        result: what the conversion says of itself.
        moves: messages may get other offsets.
    """

    def __init__(self, result: Conversion, *, moves: bool) -> None:
        self.moves = moves
        self.before: Callable[[], Iterator[Rows]]
        self.after: Callable[[], Iterator[Rows]]
        to_kafka = result.kind == "kafka-log-directory"
        lost = [(row["topic"], row["queue_id"], row["queue_offset"]) for row in result.lost]
        self._lost = {(kafka_topic(topic) if to_kafka else topic, number, at) for topic, number, at in lost}
        made = {(queue.target if to_kafka else queue.topic, queue.number) for queue in result.queues}
        self._refused = {(topic, number) for topic, number, _ in self._lost} - made
        self._queues: dict[tuple[str, int], int] = {}

    # --- messages of RocketMQ -------------------------------------------------------------------------------

    def of_rocketmq(self, store: StoreFiles, end: int | None = None) -> Iterator[Rows]:
        """Yield the messages of a store.

        Args:
            end: physical offset where the log ends before old records; None: it does not.
        """
        for file in store.log_files:
            for block in whole_blocks(file):
                found = [one for row in range(len(block)) for one in self._messages(block, row, end)]
                yield np.array(found, WHOLE)

    def _messages(self, block: Block, row: int, end: int | None) -> Iterator[tuple[int, ...]]:
        fields = block.record(row)
        topic, number = fields["topic"].decode("utf-8", "surrogateescape"), fields["queue_id"]
        physical = int(block.physical[row])
        is_known = topic not in (HALF_TOPIC, OP_TOPIC) and not topic.startswith(LIGHT) and number >= 0
        is_known &= is_topic(topic) and fields["sys_flag"] & TRANSACTION not in UNQUEUED
        is_known &= end is None or physical < end or physical != fields["physical_offset"]
        place = kafka_topic(topic), number
        is_known &= place not in self._refused
        queue, offset = self._queue(*place), fields["queue_offset"]
        body = open_body(fields["body"], fields["sys_flag"], MOST_BODY).data
        values = [fields["body"] if body is None else body]
        if is_inner_batch(fields["sys_flag"]):
            try:
                values = [item["body"] for item in inner_messages(body or b"")]
            except DecodeError:
                pass
        count = -1 if is_marked(fields) else 1
        for at, value in enumerate(values):
            yield self._row(queue, offset + at, fields["born_timestamp"], value, count, is_known=is_known)

    # --- records of Kafka -----------------------------------------------------------------------------------

    def of_kafka(
        self, logs: Sequence[PartitionLog], decided: Mapping[tuple[str, int], Decided] | None = None
    ) -> Iterator[Rows]:
        """Yield the records of partitions.

        Args:
            decided: what of them is converted; None: all.
        """
        for log in logs:
            topic, number = log.partition.topic, log.partition.partition or 0
            limits = None if decided is None else decided.get((topic, number), _NOTHING)
            for segment in log.partition.logs:
                with closing(segment.open()) as source:
                    for block in scan(source, Extent(segment.name, segment.base, size=segment.size)):
                        sound = block.take(block.crc_ok & (block.magic <= 2) & ~block.flag(Attributes.CONTROL))
                        for records in records_of(sound):
                            yield np.array(list(self._records(records, self._queue(topic, number), limits)), WHOLE)

    def _records(self, records: Records, queue: int, limits: Decided | None) -> Iterator[tuple[int, ...]]:
        block = records.block
        gone = [limits is not None and _is_aborted(block, row, limits) for row in range(len(block))]
        times = records.timestamp.tolist()
        for at, (row, offset) in enumerate(zip(records.batch.tolist(), records.offset.tolist(), strict=True)):
            is_known = limits is None or (not gone[row] and limits.start <= offset < limits.stable)
            yield self._row(queue, offset, times[at], records.value(at) or b"", 1, is_known=is_known)

    # --- rows -----------------------------------------------------------------------------------------------

    def _queue(self, topic: str, number: int) -> int:
        return self._queues.setdefault((topic, number), len(self._queues))

    @staticmethod
    def _row(queue: int, offset: int, time: int, value: bytes, count: int, *, is_known: bool) -> tuple[int, ...]:
        digest = blake2b(b"%d %d " % (queue, time), digest_size=8)
        digest.update(b"" if value == BLANK else value)
        identity = int.from_bytes(digest.digest(), "little")
        return identity, queue * _OFFSETS + offset & _LARGEST, queue if is_known else ~queue, offset, count

    # --- the law --------------------------------------------------------------------------------------------

    def garbage(self, missing: Rows, holders: Rows) -> Flags:
        """Which messages the other side has no place for, as the conversion says by their kind."""
        found: Flags = missing["file"] < 0
        return found

    def given_up(self, missing: Rows, holders: Rows) -> Flags:
        """Which messages the conversion names, or have a place that another has."""
        names = list(self._queues)
        places = zip(missing["file"].tolist(), missing["position"].tolist(), strict=True)
        is_named = [(*names[queue], offset) in self._lost for queue, offset in places]
        found: Flags = (holders["file"] != -1) | np.array(is_named, np.bool_)
        return found

    def may_move(self, moved: Rows) -> Flags:
        """Every message, where queues count from 0, and the second of two that state one place in RocketMQ."""
        return np.full(len(moved), self.moves)

    def name(self, record: np.void, *, of_copy: bool) -> str:
        """Return the queue and the offset."""
        queue = int(record["file"])
        topic, number = list(self._queues)[queue if queue >= 0 else ~queue]
        return f"{topic}/{number}@{record['position']}"
