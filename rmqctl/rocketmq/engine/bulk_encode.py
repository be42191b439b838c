"""Encoding many messages of one template by columns: what a record holds but its place in the log.

The bytes are those that single puts make: heads are set as columns of the layout derived from the record's schema,
texts are filled in as bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import record_plan
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.engine.bulk_chunks import Chunk, Matrix, Pieces
from rmqctl.rocketmq.engine.bulk_texts import BulkText
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.drafts import Template, fill_noise
from rmqctl.rocketmq.engine.encode import hosts_of, topic_field
from rmqctl.rocketmq.engine.limits import check_body_size, check_properties, check_record
from rmqctl.rocketmq.engine.message import LOCALHOST
from rmqctl.rocketmq.engine.produce import ProduceOptions
from rmqctl.rocketmq.engine.stamping import Client

Ints = npt.NDArray[np.int64]
CHUNK = 4096
"""Messages encoded together at most."""
_CHUNK_BYTES = 8 << 20
"""Bytes of bodies encoded together, about."""
ROOMS = 4
"""Chunks that may be in use at a time: one is written while others are filled or dispatched."""
_MOST_DIGITS = 19


@dataclass(slots=True)
class _Room:
    """Memory for one chunk; the constant bytes in it are those of numbers with so many digits."""

    digits: int = 0
    matrix: Matrix | None = None
    buffer: npt.NDArray[np.uint8] | None = None


class Encoder:
    """Encodes chunks of messages.

    Attributes:
        topics: of each topic the magic of its records and the topic as stored.
        sys_flag: of all records.
    """

    def __init__(self, template: Template, options: ProduceOptions, config: StoreConfig) -> None:
        """
        Raises:
            MessageRefused: a name or value contains a separator.
        """
        self.template, self.options, self.config = template, options, config
        self.client = Client(LOCALHOST, options.seed)
        tags: list[str | None] = [tag for tag, _ in template.tags]
        self.texts = {tag: BulkText.of(template, tag, self.client, config) for tag in tags or [None]}
        self.topics = [topic_field(topic) for topic in options.topics]
        self.sys_flag = hosts_of(LOCALHOST, config.store_host)
        self.run = record_plan(is_v2=False, hosts=self.sys_flag).runs[0]
        body = len(template.body or "") if template.sizes is None else template.sizes[1]
        self._most = min(CHUNK, max(_CHUNK_BYTES // max(body, 1), 1))
        self._rooms = deque(_Room() for _ in range(ROOMS))

    def step(self, first: int, left: int) -> int:
        """How many of ``left`` messages to encode together from number ``first`` on: numbers of as many digits."""
        return min(self._most, left, 10 ** len(str(first)) - first)

    def chunk(self, first: int, times: Ints) -> Chunk:
        """Messages from number ``first`` on, as many as there are times; at most `ROOMS` chunks may be in use.

        Raises:
            MessageRefused: the broker would not store one of them.
        """
        numbers = np.arange(first, first + len(times))
        chunk = self._encoded(numbers, numbers % len(self.topics), times)
        self._set_heads(chunk, first, times)
        return chunk

    def _encoded(self, numbers: Ints, topic: Ints, times: Ints) -> Chunk:
        """The messages without their heads: a matrix where all records have one size."""
        template = self.template
        fields = {len(field) for _, field in self.topics}
        is_even = template.body is None and template.sizes is not None and template.sizes[0] == template.sizes[1]
        if is_even and len(self.texts) == 1 and len(fields) == 1:
            return self._matrix(numbers, topic, times)
        bodies = [template.body_of(n) for n in numbers.tolist()]
        tails = self._tails(numbers, topic, times)
        self._check(max(map(len, bodies)), max(map(len, tails)) - min(fields) - 2)
        heads = np.zeros(len(bodies), self.run.dtype)
        heads["body"] = np.fromiter(map(len, bodies), np.int64, len(bodies))
        heads["total_size"] = heads["body"] + np.fromiter(map(len, tails), np.int64, len(tails)) + heads.itemsize
        heads["body_crc"] = np.fromiter(map(crc32, bodies), np.int64, len(bodies)) & MASK
        return Pieces(heads, topic, bodies, tails)

    def _matrix(self, numbers: Ints, topic: Ints, times: Ints) -> Matrix:
        (text,), size, digits = self.texts.values(), self.template.size_of(0), len(str(int(numbers[0])))
        fields = np.array([list(field) for _, field in self.topics], np.uint8)
        tail = self.run.packer.size + size
        behind = tail + fields.shape[1] + 2
        found = self._room(text, digits, behind).first(topic)
        rows, heads = found.rows, found.heads
        heads["body_crc"] = fill_noise(self.options.seed, numbers, rows[:, self.run.packer.size : tail])
        for column, values in enumerate(fields.T, tail):
            rows[:, column] = values[topic] if len(fields) > 1 else values[0]
        text.fill_columns(numbers, times, rows[:, behind:])
        heads["body"], heads["total_size"] = size, rows.shape[1]
        return found

    def _room(self, text: BulkText, digits: int, text_at: int) -> Matrix:
        """A matrix for records whose number has so many digits, their constant bytes set: the next in turn."""
        self._rooms.rotate(1)
        room = self._rooms[0]
        if room.digits != digits or room.matrix is None:
            size = text.size(digits)
            self._check(self.template.size_of(0), size)
            if room.buffer is None:
                room.buffer = np.empty(self._most * (text_at + text.size(_MOST_DIGITS)), np.uint8)
            room.matrix = Matrix.of(room.buffer, min(self._most, 10**digits), text_at + size, self.run.dtype)
            room.matrix.rows[:, text_at - 2 : text_at] = list(size.to_bytes(2, "big"))
            text.fill_constant(digits, room.matrix.rows[:, text_at:])
            room.digits = digits
        return room.matrix

    def _tails(self, numbers: Ints, topic: Ints, times: Ints) -> list[bytes]:
        """Topic and properties with their lengths."""
        texts, fields, found = self.texts, [field for _, field in self.topics], []
        single = texts[next(iter(texts))] if len(texts) == 1 else None
        for number, which, time in zip(numbers.tolist(), topic.tolist(), times.tolist(), strict=True):
            text = (single or texts[self.template.tag_of(number)]).fill(number, time)
            found.append(b"%b%b%b" % (fields[which], len(text).to_bytes(2, "big"), text))
        return found

    def _set_heads(self, chunk: Chunk, first: int, times: Ints) -> None:
        """The fixed fields, but for those that depend on the place."""
        heads, host, options = chunk.heads, self.config.store_host, self.options
        heads["magic"] = np.array([magic for magic, _ in self.topics])[chunk.topic]
        turns = np.arange(first, first + len(times)) // len(self.topics)
        heads["queue_id"] = turns % options.queues if options.queue_id is None else options.queue_id
        heads["sys_flag"], heads["flag"], heads["reconsume_times"] = self.sys_flag, 0, 0
        heads["prepared_transaction_offset"] = 0
        heads["born_timestamp"] = heads["store_timestamp"] = times
        heads["born_ip"], heads["born_port"] = np.void(LOCALHOST.ip), LOCALHOST.port
        heads["store_ip"], heads["store_port"] = np.void(host.ip), host.port

    def _check(self, body: int, text: int) -> None:
        """Apply the broker's limits to the largest body and text."""
        config = self.config
        check_body_size(body, config)
        check_properties(text)
        topics = max(len(field) for _, field in self.topics)
        check_record(self.run.packer.size + body + topics + 2 + text, body, config)


__all__ = ["CHUNK", "ROOMS", "Encoder"]
