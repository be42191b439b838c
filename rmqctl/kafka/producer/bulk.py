"""Many records of a template at once: batches that are alike are made as rows of one matrix and appended together.

The bytes are those that :func:`rmqctl.kafka.producer.produce.produce` appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from formats.kafka.record_batch import CRC_FROM, HEADER_SIZE, header_dtype
from rmqctl.kafka.engine.batch import BatchHead, build_batch
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import WritableLog
from rmqctl.kafka.log import reference
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.producer.drafts import NOISE, STEP, Draft, Template
from rmqctl.kafka.producer.produce import MURMUR2, ROUND_ROBIN, ProduceOptions, size_of
from rmqctl.kafka.query.key import partitions_of_keys

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
_ROOM = 2 << 20
"""Bytes of a matrix."""
_FEW = 8
"""Batches that are not worth a matrix."""
_DEALT, _DEALT_MOST = 1 << 16, 1 << 21
"""Numbers of records that are dealt to partitions at a time, and at most where there are many partitions."""
_PLACE = "{n}"


class Run(NamedTuple):
    """What was appended together."""

    records: int
    bytes: int


def can_bulk(engine: KafkaEngine, template: Template, options: ProduceOptions) -> bool:
    """Whether a run of a template is such that its batches are alike."""
    if len(options.topics) != 1 or options.codec != "none" or options.idempotent or options.transactional:
        return False
    if options.rate is not None or options.partitioner == ROUND_ROBIN:
        return False
    topic = options.topics[0]
    logs = [engine.logs[topic, number] for number in range(engine.topics.get(topic, 0))]
    if any(log.config.append_time or (log.config.is_compacted and template.key is None) for log in logs):
        return False
    low, high = template.sizes or (0, 0)
    # Times that go up make batches of dealt records differ in the width of their time deltas.
    moves = template.start is not None and template.step != 0
    return not (_goes_by_key(template, options, len(logs)) and moves) and low == high <= NOISE and bool(logs)


def _goes_by_key(template: Template, options: ProduceOptions, partitions: int) -> bool:
    by_key = template.key is not None and options.partitioner == MURMUR2 and options.partition is None
    return by_key and partitions > 1


def produce_bulk(engine: KafkaEngine, template: Template, count: int, options: ProduceOptions) -> Iterator[Run]:
    """Append ``count`` records of a template.

    Raises:
        Refused, IOFailure: as :func:`rmqctl.kafka.producer.produce.produce`.
    """
    topic, number, turn = options.topics[0], 0, 0
    if _goes_by_key(template, options, engine.topics[topic]):
        yield from _produce_dealt(engine, template, count, options)
        return
    parts = [options.partition] if options.partition is not None else list(range(engine.topics[topic]))
    logs = [engine.log(topic, part) for part in parts]
    while number < count:
        each = _records_of_batch(template, options, number, count)
        alike = (min(_same_width(template, number), count) - number) // each
        rows = min(alike, max(_ROOM // max(options.batch_size, 1), 1) * len(logs))
        if rows < max(_FEW, len(logs)):
            yield _append_one(engine, template, logs[turn % len(logs)], range(number, number + each))
            number, turn = number + each, turn + 1
            continue
        rows -= rows % len(logs)
        for at in range(len(logs)):
            log = logs[(turn + at) % len(logs)]
            dealt = np.arange(number, number + rows * each, dtype=np.int64).reshape(-1, len(logs), each)[:, at]
            yield _append_alike(engine, template, log, dealt)
        number, turn = number + rows * each, turn + rows


def _produce_dealt(engine: KafkaEngine, template: Template, count: int, options: ProduceOptions) -> Iterator[Run]:
    """Append the records to the partitions of their keys; each batch is filled in the order of the numbers."""
    topic = options.topics[0]
    logs = [engine.log(topic, part) for part in range(engine.topics[topic])]
    waiting = [np.empty(0, np.int64) for _ in logs]
    number = 0
    while number < count:
        each = max(options.batch_size // size_of(template.draft(number)), 1)
        dealt = min(max(_DEALT, 4 * each * len(logs)), _DEALT_MOST)
        upto = min(number + dealt, _same_width(template, number), count)
        numbers = np.arange(number, upto, dtype=np.int64)
        parts = partitions_of_keys(_keys(template, numbers), len(logs))
        order = np.argsort(parts, kind="stable")
        for part, mine in enumerate(np.split(numbers[order], np.searchsorted(parts[order], np.arange(1, len(logs))))):
            waiting[part] = np.concatenate((waiting[part], mine))
        number = upto
        for part, log in enumerate(logs):
            for batches in _filled(template, options, waiting[part], is_end=number == count):
                waiting[part] = waiting[part][batches.size :]
                if len(batches) < _FEW:
                    for batch in batches:
                        yield _append_one(engine, template, log, batch.tolist())
                else:
                    yield _append_alike(engine, template, log, batches)


def _filled(template: Template, options: ProduceOptions, numbers: Ints, *, is_end: bool) -> Iterator[Ints]:
    """Yield the batches that are full, shape (batches, records of each); at the end also the last one."""
    most = options.batch or _DEALT_MOST
    rows = max(_ROOM // max(options.batch_size, 1), 1)
    while len(numbers):
        first = int(numbers[0])
        each = max(min(options.batch_size // size_of(template.draft(first)), most), 1)
        shape = min(int(np.searchsorted(numbers, _same_width(template, first))) // each, rows), each
        if not shape[0]:
            upto = _fitting(template, options, numbers[:most])
            if upto == len(numbers) < most and not is_end:
                return
            shape = 1, upto
        yield numbers[: shape[0] * shape[1]].reshape(shape)
        numbers = numbers[shape[0] * shape[1] :]


def _fitting(template: Template, options: ProduceOptions, numbers: Iterable[int]) -> int:
    """Return how many of the records get into one batch, at least one."""
    total = found = 0
    for number in numbers:
        total += size_of(template.draft(int(number)))
        if found and total > options.batch_size:
            break
        found += 1
    return found


def _keys(template: Template, numbers: Ints) -> Bytes:
    """Return the keys of records whose numbers have one width, a row each."""
    model = template.draft(int(numbers[0])).key or b""
    found = np.empty((len(numbers), len(model)), np.uint8)
    found[:] = np.frombuffer(model, np.uint8)
    _write_numbers(found, 0, template.key or "", numbers)
    return found


def _append_one(engine: KafkaEngine, template: Template, log: WritableLog, numbers: Iterable[int]) -> Run:
    batch = [_record(engine, template, number, i) for i, number in enumerate(numbers)]
    size = engine.append_batch(log.place.topic, log.place.number, build_batch(BatchHead(), batch)).size
    return Run(len(batch), size)


def _append_alike(engine: KafkaEngine, template: Template, log: WritableLog, numbers: Ints) -> Run:
    matrix = _Matrix(engine, template, numbers)
    log.append_alike(matrix.rows(), numbers.shape[1], matrix.last_timestamps)
    log.flush_if_due()
    return Run(numbers.size, matrix.size)


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
    return _fitting(template, options, range(number, number + limit))


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
        numbers: of the records, shape (batches, records of each); those of a row are as far apart in all rows where
            the template has times that go up.
    """

    engine: KafkaEngine
    template: Template
    numbers: Ints

    def __post_init__(self) -> None:
        self.count, self.each = self.numbers.shape
        records = [_record(self.engine, self.template, number, i) for i, number in enumerate(self.numbers[0].tolist())]
        self._model = build_batch(BatchHead(), records)
        self.size = len(self._model) * self.count
        moved = self.template.step if self.template.start is not None else 0
        self._times = (self.numbers[:, 0] - self.numbers[0, 0]) * moved
        self.last_timestamps = self._times + max(record.timestamp for record in records)
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
        numbers = np.ascontiguousarray(self.numbers[:, i])
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
