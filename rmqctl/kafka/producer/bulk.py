"""Many records of a template at once: batches that are alike are made as rows of one matrix and appended together.

The bytes are those that :func:`rmqctl.kafka.producer.produce.produce` appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from formats.kafka.record_batch import CRC_FROM, HEADER_SIZE, header_dtype
from rmqctl.kafka import reference
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.producer.drafts import NOISE, STEP, Draft, Template
from rmqctl.kafka.producer.produce import MURMUR2, ROUND_ROBIN, ProduceOptions, size_of
from rmqctl.kafka.reference import Record

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
_ROOM = 2 << 20
"""Bytes of a matrix."""
_FEW = 8
"""Batches that are not worth a matrix."""
_PLACE = "{n}"


class Run(NamedTuple):
    """What was appended together."""

    records: int
    bytes: int


def can_bulk(engine: KafkaEngine, template: Template, options: ProduceOptions) -> bool:
    """Whether a run of a template is such that its batches are alike, and go to partitions in turn."""
    if len(options.topics) != 1 or options.codec != "none" or options.idempotent or options.transactional:
        return False
    if options.rate is not None or options.partitioner == ROUND_ROBIN:
        return False
    topic = options.topics[0]
    logs = [engine.logs[topic, number] for number in range(engine.topics.get(topic, 0))]
    if any(log.config.append_time or (log.config.is_compacted and template.key is None) for log in logs):
        return False
    by_key = template.key is not None and options.partitioner == MURMUR2 and options.partition is None
    low, high = template.sizes or (0, 0)
    return not (by_key and len(logs) > 1) and low == high <= NOISE and bool(logs)


def produce_bulk(engine: KafkaEngine, template: Template, count: int, options: ProduceOptions) -> Iterator[Run]:
    """Append ``count`` records of a template.

    Raises:
        Refused, IOFailure: as :func:`rmqctl.kafka.producer.produce.produce`.
    """
    topic, number, turn = options.topics[0], 0, 0
    parts = [options.partition] if options.partition is not None else list(range(engine.topics[topic]))
    logs = [engine.log(topic, part) for part in parts]
    while number < count:
        each = _records_of_batch(template, options, number, count)
        alike = (min(_same_width(template, number), count) - number) // each
        rows = min(alike, max(_ROOM // max(options.batch_size, 1), 1) * len(logs))
        if rows < max(_FEW, len(logs)):
            batch = [_record(engine, template, number + i, i) for i in range(each)]
            log = logs[turn % len(logs)]
            size = engine.append_batch(topic, log.place.number, build_batch(BatchHead(), batch)).size
            yield Run(each, size)
            number, turn = number + each, turn + 1
            continue
        rows -= rows % len(logs)
        for at in range(len(logs)):
            log = logs[(turn + at) % len(logs)]
            matrix = _Matrix(engine, template, number + at * each, each, rows // len(logs), each * len(logs))
            log.append_alike(matrix.rows(), each, matrix.last_timestamps)
            log.flush_if_due()
            yield Run(rows // len(logs) * each, matrix.size)
        number, turn = number + rows * each, turn + rows


def _record(engine: KafkaEngine, template: Template, number: int, delta: int) -> Record:
    draft: Draft = template.draft(number)
    time = engine.config.clock() if draft.timestamp is None else draft.timestamp
    return Record(delta, time, -1, draft.key, draft.value, draft.headers)


def _records_of_batch(template: Template, options: ProduceOptions, number: int, count: int) -> int:
    """How many records from one on get into a batch."""
    limit = min(count - number, options.batch or count)
    one = size_of(template.draft(number))
    if _same_width(template, number) - number > options.batch_size // one:
        return max(min(options.batch_size // one, limit), 1)
    total = found = 0
    while found < limit:
        total += size_of(template.draft(number + found))
        if found and total > options.batch_size:
            break
        found += 1
    return max(found, 1)


def _same_width(template: Template, number: int) -> int:
    """Return the first number after one that is written with more digits, where that matters."""
    texts = [template.key, template.text, *(text for header in template.headers for text in header)]
    if any(_PLACE in text for text in texts if text):
        return int(10 ** len(str(number)))
    return 1 << 62


@dataclass
class _Matrix:
    """Some batches of one partition, a row each.

    Attributes:
        first: number of the first record; each: records of a batch; step: numbers from a batch to the next one here.
    """

    engine: KafkaEngine
    template: Template
    first: int
    each: int
    count: int
    step: int

    def __post_init__(self) -> None:
        clock = self.engine.config.clock()
        records = []
        for i in range(self.each):
            draft = self.template.draft(self.first + i)
            time = clock if draft.timestamp is None else draft.timestamp
            records.append(Record(i, time, -1, draft.key, draft.value, draft.headers))
        self._model = build_batch(BatchHead(), records)
        self.size = len(self._model) * self.count
        moved = self.step * (self.template.step if self.template.start is not None else 0)
        self._times = np.arange(self.count, dtype=np.int64) * moved
        largest = max(record.timestamp for record in records)
        self.last_timestamps = self._times + largest
        self._base_time = records[0].timestamp

    def rows(self) -> Bytes:
        """Return the batches, shape (count, bytes of a batch); base offsets and epochs are not set yet."""
        found = np.empty((self.count, len(self._model)), np.uint8)
        found[:] = np.frombuffer(self._model, np.uint8)
        payload = self._model[HEADER_SIZE:]
        for i, place in enumerate(reference.places(payload, 0, len(payload), self.each)):
            self._fill(found, i, place)
        heads = np.frombuffer(self._model[:HEADER_SIZE] * self.count, header_dtype()).copy()
        heads["base_timestamp"] = self._base_time + self._times
        heads["max_timestamp"] = self.last_timestamps
        found[:, :HEADER_SIZE] = heads.view(np.uint8).reshape(self.count, HEADER_SIZE)
        crcs = np.array([crc32c(row.data) for row in found[:, CRC_FROM:]], ">u4")
        found[:, CRC_FROM - 4 : CRC_FROM] = crcs.view(np.uint8).reshape(self.count, 4)
        return found

    def _fill(self, found: Bytes, i: int, place: reference.Places) -> None:
        template = self.template
        numbers = self.first + i + np.arange(self.count, dtype=np.int64) * self.step
        at = HEADER_SIZE + place.value_at
        if template.text is not None:
            _write_numbers(found, at, template.text, numbers)
        elif place.value_size > 0:
            found[:, at : at + place.value_size] = _windows(template, place.value_size)[numbers * STEP % NOISE]
        if template.key is not None:
            _write_numbers(found, HEADER_SIZE + place.key_at, template.key, numbers)
        for (name, value), (name_at, _, value_at, _) in zip(template.headers, place.headers, strict=True):
            _write_numbers(found, HEADER_SIZE + name_at, name, numbers)
            _write_numbers(found, HEADER_SIZE + value_at, value, numbers)


def _write_numbers(found: Bytes, at: int, text: str, numbers: Ints) -> None:
    """Write the number of each row where a text has ``{n}``; all have the same number of digits."""
    parts = text.split(_PLACE)
    width = len(str(int(numbers[0])))
    for part in parts[:-1]:
        at += len(part.encode("utf-8", "surrogateescape"))
        for digit in range(width):
            found[:, at + digit] = numbers // 10 ** (width - 1 - digit) % 10 + ord("0")
        at += width


@lru_cache(maxsize=4)
def _windows(template: Template, size: int) -> Any:
    noise = np.frombuffer(template.noise_of(0, NOISE) + template.noise_of(0, size), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(noise, size)
