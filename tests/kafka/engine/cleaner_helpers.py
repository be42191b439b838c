"""What tests share with test_cleaner: COMPACT, batches_of, cleaned_often, content_of, logs_of, write_history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from freezegun import freeze_time

from formats.kafka.record_batch import HEADER_SIZE, header_plan
from rmqctl.files.local import LocalFile
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record, records_of_batch
from rmqctl.kafka.log.scan import Extent, scan

TIME = 1_700_000_000_000


COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "1500", "index.interval.bytes": "100"}


def batches_of(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        source = LocalFile(path, path.name)
        for block in scan(source, Extent(path.name)):
            yield from (block.raw(n) for n in range(len(block)))
        source.close()


def logs_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix == ".log")


def content_of(batch: bytes) -> tuple[dict[str, Any], list[Record]]:
    """What a batch holds, however well it is compressed."""
    head = header_plan().unpack_from(batch[:HEADER_SIZE])[0]
    left_out = ("crc", "batch_length") if head["attributes"] & 7 else ()
    return {name: value for name, value in head.items() if name not in left_out}, list(records_of_batch(batch))


def write_history(
    engine: KafkaEngine,
    draw: random.Random,
    first_id: int = 0,
    partition: int = 0,
    start: int = TIME,
    *,
    bumps: bool = False,
) -> None:
    """Puts and deletes of few keys, some idempotent, some in transactions that commit, abort or stay open.

    Args:
        first_id: of the two producers; -1: no batch has one.
        bumps: most transactions have an epoch of their own, which their marker begins.
    """
    sequences: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for _ in range(draw.randrange(40, 160)):
        producer = draw.choice([-1, -1, first_id, first_id + 1]) if first_id >= 0 else -1
        transactional = producer == first_id + 1 and producer > 0
        records = [
            Record(
                0,
                start + draw.randrange(1000),
                -1,
                b"k%d" % draw.randrange(12),
                draw.choice([None, b"v" * draw.randrange(60)]),
            )
            for _ in range(draw.randrange(1, 4))
        ]
        head = BatchHead(codec=draw.choice([0, 0, 3]))
        if producer >= 0:
            first = sequences.get(producer, 0)
            sequences[producer] = first + len(records)
            head = replace(
                head,
                producer_id=producer,
                producer_epoch=epochs.get(producer, 0),
                base_sequence=first,
                transactional=transactional,
            )
        engine.append("t", partition, records, head)
        if transactional and draw.random() < 0.7:
            commit = draw.random() < 0.5
            if bumps and draw.random() < 0.7:
                epochs[producer], sequences[producer] = epochs.get(producer, 0) + 1, 0
            engine.end_transaction(Ending(producer, epochs.get(producer, 0), commit=commit), [("t", partition)])


def cleaned_often(
    root: Path, partitions: int, config: EngineConfig, settings: dict[str, str], start: int = TIME
) -> None:
    """A directory with a topic ``t`` that was cleaned until markers are headers only, and then stopped in order."""
    moment = datetime.fromtimestamp(start // 1000 + 5, UTC)
    with freeze_time(moment) as clock, KafkaEngine.open(root, config) as engine:
        engine.make_topic("t", partitions, {**settings, "delete.retention.ms": "0"})
        for number in range(partitions):
            write_history(engine, random.Random(number), 10 * number, number, start, bumps=True)
        for _ in range(3):
            engine.compact(roll=True)
            clock.tick(10)
            for number in range(partitions):
                write_history(engine, random.Random(99), -1, number, start)
        engine.compact(roll=True)
