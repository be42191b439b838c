"""Large Kafka segments for benchmarks: batches of one shape, with offsets that go on."""

from __future__ import annotations

import random
import struct
from pathlib import Path

from tests.kafka.batches import batch, record

WORDS = b"alpha beta gamma delta order price user lorem ipsum null zero 0123456789 ".split()


def value(rng: random.Random, size: int) -> bytes:
    return b" ".join(rng.choices(WORDS, k=size // 4))[:size]


def make_segment(path: Path, size: int, records: int, body: int) -> int:
    """Write batches of ``records`` records with values of ``body`` bytes; returns the number of records."""
    rng = random.Random(1)
    batches = []
    for _ in range(64):
        sizes = [rng.randint(body * 4 // 5, body * 6 // 5) for _ in range(records)]
        batches.append(
            batch(0, [record(i, b"key%04d" % rng.randrange(10000), value(rng, n)) for i, n in enumerate(sizes)])
        )
    written = offset = number = 0
    with open(path, "wb") as file:
        while written < size:
            one = batches[number % len(batches)]
            file.write(struct.pack(">q", offset) + one[8:])
            written += len(one)
            offset += records
            number += 1
    return offset
