"""Producing many messages that nobody waits for one by one: encoded by columns, written in large runs.

The bytes are those that single puts make of the same template, seed and clock: heads are set as
columns of the layout derived from the record's schema, texts are filled in as bytes, and a run of
records that fits the file goes down with one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import record_plan
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.engine.bulk_chunks import Chunk, Heads, Matrix, Pieces
from rmqctl.rocketmq.engine.bulk_texts import BulkText
from rmqctl.rocketmq.engine.config import FlushMode
from rmqctl.rocketmq.engine.drafts import Template, fill_noise
from rmqctl.rocketmq.engine.encode import hosts_of, topic_field
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.late import INNER_NUM, NAMES
from rmqctl.rocketmq.engine.limits import (
    BLANK_ROOM,
    check_body_size,
    check_properties,
    check_record,
)
from rmqctl.rocketmq.engine.message import LOCALHOST
from rmqctl.rocketmq.engine.produce import ProduceOptions, make_topics
from rmqctl.rocketmq.engine.routing import DELAY, DELAY_MS, DELAY_SEC, DELIVER_MS
from rmqctl.rocketmq.engine.stamping import Client
from rmqctl.rocketmq.variants import variant_of

Ints = npt.NDArray[np.int64]
CHUNK = 4096
"""Messages encoded together."""
_ROUTED = {DELAY, DELIVER_MS, DELAY_SEC, DELAY_MS, INNER_NUM, NAMES}
"""Properties that send a message elsewhere than where it says."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was written at once: messages, and their bytes of log."""

    messages: int
    bytes: int


def can_bulk(engine: StoreEngine, template: Template, options: ProduceOptions) -> bool:
    """Whether nothing asks for an answer or an encoding message by message."""
    if options.transaction or options.inner or any(name in _ROUTED for name, _ in template.properties):
        return False
    plain = options.batch == 1 and not options.compression and options.writers == 1 and options.rate is None
    config = engine.config
    return plain and config.flush is FlushMode.ASYNC and not config.property_crc and not config.transient_pool


def produce_bulk(engine: StoreEngine, template: Template, count: int, options: ProduceOptions) -> Iterator[Run]:
    """Write ``count`` messages of a template; yields after each run.

    Raises:
        MessageRefused: the broker would not store them; those of earlier runs are.
        IOFailure: the system refuses; the same.
    """
    encoder = _Encoder(engine, template, options)
    make_topics(engine, options)
    first = 0
    while first < count:
        step = min(CHUNK, count - first, 10 ** len(str(first)) - first)
        yield from encoder.write(first, step)
        first += step


class _Encoder:
    """Encodes chunks of messages and appends them."""

    def __init__(self, engine: StoreEngine, template: Template, options: ProduceOptions) -> None:
        self.engine, self.template, self.options = engine, template, options
        self.client = Client(LOCALHOST, options.seed)
        tags: list[str | None] = [tag for tag, _ in template.tags]
        self.texts = {tag: BulkText.of(template, tag, self.client, engine.config) for tag in tags or [None]}
        self.topics = [topic_field(topic) for topic in options.topics]
        hosts = hosts_of(LOCALHOST, engine.config.store_host)
        self._rooms: dict[int, Matrix] = {}
        self.sys_flag, self.run = hosts, record_plan(is_v2=False, hosts=hosts).runs[0]

    def write(self, first: int, count: int) -> Iterator[Run]:
        """Encode and append messages ``first`` to ``first + count - 1``, whose numbers have as many digits."""
        topic, queue = self._places(first, count)
        log = self.engine.log
        with log.locked():
            times = self.engine.config.clock.stamps(count)
        chunk = self._chunk(np.arange(first, first + count), topic, times)
        self._set_heads(chunk.heads, topic, queue, times)
        done = 0
        while done < count:
            with log.locked():
                found = self._append(chunk, topic, queue, done)
            self.engine.dispatch_block(found)
            done += len(found.block)
            yield Run(len(found.block), len(found.block.data))

    def _chunk(self, numbers: Ints, topic: Ints, times: Ints) -> Chunk:
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
        return Pieces(heads, bodies, tails)

    def _matrix(self, numbers: Ints, topic: Ints, times: Ints) -> Matrix:
        (text,), size, digits = self.texts.values(), self.template.size_of(0), len(str(int(numbers[0])))
        fields = np.array([list(field) for _, field in self.topics], np.uint8)
        tail = self.run.packer.size + size
        behind = tail + fields.shape[1] + 2
        found = self._room(text, digits, behind).first(len(numbers))
        rows, heads = found.rows, found.heads
        heads["body_crc"] = fill_noise(self.options.seed, numbers, rows[:, self.run.packer.size : tail])
        rows[:, tail : behind - 2] = fields[topic]
        text.fill_columns(numbers, times, rows[:, behind:])
        heads["body"], heads["total_size"] = size, rows.shape[1]
        return found

    def _room(self, text: BulkText, digits: int, text_at: int) -> Matrix:
        """A matrix for records whose number has so many digits, their constant bytes set; it is used again."""
        if self._rooms.get(digits) is None:
            size = text.size(digits)
            self._check(self.template.size_of(0), size)
            room = Matrix.empty(CHUNK, text_at + size, self.run.dtype)
            room.rows[:, text_at - 2 : text_at] = list(size.to_bytes(2, "big"))
            text.fill_constant(digits, room.rows[:, text_at:])
            self._rooms = {digits: room}
        return self._rooms[digits]

    def _places(self, first: int, count: int) -> tuple[Ints, Ints]:
        """Number of the topic and the queue id of each message."""
        turn, options = np.arange(first, first + count), self.options
        queue = turn // len(self.topics) % options.queues
        if options.queue_id is not None:
            queue = np.full(count, options.queue_id)
        return turn % len(self.topics), queue

    def _tails(self, numbers: Ints, topic: Ints, times: Ints) -> list[bytes]:
        """Topic and properties with their lengths."""
        texts, fields, found = self.texts, [field for _, field in self.topics], []
        single = texts[next(iter(texts))] if len(texts) == 1 else None
        for number, which, time in zip(numbers.tolist(), topic.tolist(), times.tolist(), strict=True):
            text = (single or texts[self.template.tag_of(number)]).fill(number, time)
            found.append(b"%b%b%b" % (fields[which], len(text).to_bytes(2, "big"), text))
        return found

    def _set_heads(self, heads: Heads, topic: Ints, queue: Ints, times: Ints) -> None:
        """The fixed fields, but for those that depend on the place."""
        host = self.engine.config.store_host
        heads["magic"] = np.array([magic for magic, _ in self.topics])[topic]
        heads["queue_id"], heads["sys_flag"] = queue, self.sys_flag
        heads["born_timestamp"] = heads["store_timestamp"] = times
        heads["born_ip"], heads["born_port"] = np.void(LOCALHOST.ip), LOCALHOST.port
        heads["store_ip"], heads["store_port"] = np.void(host.ip), host.port

    def _check(self, body: int, text: int) -> None:
        """Apply the broker's limits to the largest body and text."""
        config = self.engine.config
        check_body_size(body, config)
        check_properties(text)
        topics = max(len(field) for _, field in self.topics)
        check_record(self.run.packer.size + body + topics + 2 + text, body, config)

    def _append(self, chunk: Chunk, topic: Ints, queue: Ints, done: int) -> LogBlock:
        """Append as many as the file takes, from message ``done`` of the chunk on; returns their records."""
        log = self.engine.log
        sizes = chunk.heads["total_size"][done:].astype(np.int64)
        start = log.room(int(sizes[0]))
        base = start - start % log.files.file_size
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, base + log.files.file_size - start - BLANK_ROOM, "right"))
        part = slice(done, done + count)
        run = chunk.heads[part]
        run["physical_offset"] = start + ends[:count] - sizes[:count]
        run["queue_offset"], advance = self._queue_offsets(topic[part], queue[part])
        data = chunk.joined(part)
        log.append_bytes(data.data, start + int(ends[count - 1]), int(run["store_timestamp"][-1]))
        for key, number in advance:
            log.queues.advance(*key, number)
        return LogBlock(self._block(data, base, start - base, run, topic[part]))

    def _block(self, data: npt.NDArray[np.uint8], base: int, position: int, heads: Heads, topic: Ints) -> Block:
        """What a scan would find of records that lie end to end."""
        total, body = heads["total_size"].astype(np.int64), heads["body"].astype(np.int64)
        names = np.array([len(name.encode("utf-8", "surrogateescape")) for name in self.options.topics])[topic]
        fields = np.array([len(field) for _, field in self.topics])[topic]
        variants = np.array([variant_of(magic, self.sys_flag) for magic, _ in self.topics], np.int64)[topic]
        rest = total - heads.itemsize - body - fields - 2
        return Block("", base, position, data, np.cumsum(total) - total, variants, total, body, names, rest)

    def _queue_offsets(self, topic: Ints, queue: Ints) -> tuple[Ints, list[tuple[tuple[str, int], int]]]:
        """The queue offset of each message, and by how much each queue grows."""
        keys, group = np.unique(topic << 32 | queue, return_inverse=True)
        names = [(self.options.topics[key >> 32], key & 0xFFFFFFFF) for key in keys.tolist()]
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group)
        rank = np.empty(len(group), np.int64)
        rank[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([self.engine.log.queues.next(*name) for name in names])
        return first[group] + rank, list(zip(names, counts.tolist(), strict=True))


__all__ = ["CHUNK", "Run", "can_bulk", "produce_bulk"]
