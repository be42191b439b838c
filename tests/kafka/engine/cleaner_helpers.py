"""What tests share with test_cleaner: COMPACT, batches_of, content_of, logs_of, write_history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from formats.kafka.record_batch import HEADER_SIZE, header_plan
from rmqctl.files.local import LocalFile
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.reference import Record, records_of_batch
from rmqctl.kafka.segments import Extent, scan

TIME = 1_700_000_000_000


COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1500", "index.interval.bytes": "100"}


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
    engine: KafkaEngine, draw: random.Random, first_id: int = 0, partition: int = 0, start: int = TIME
) -> None:
    """Puts and deletes of few keys, some idempotent, some in transactions that commit, abort or stay open."""
    sequences: dict[int, int] = {}
    for _ in range(draw.randrange(40, 160)):
        producer = draw.choice([-1, -1, first_id, first_id + 1])
        transactional = producer == first_id + 1
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
                head, producer_id=producer, producer_epoch=0, base_sequence=first, transactional=transactional
            )
        engine.append("t", partition, records, head)
        if transactional and draw.random() < 0.7:
            engine.end_transaction(Ending(producer, 0, commit=draw.random() < 0.5), [("t", partition)])
