"""Producing many messages that nobody waits for one by one: encoded by columns, written in large runs.

The bytes are those that single puts make of the same template, seed and clock: heads are set as
columns of the layout derived from the record's schema, texts are filled in as bytes, and a run of
records that fits the file goes down with one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import record_plan
from rmqctl.rocketmq.crc import MASK, crc32
from rmqctl.rocketmq.engine.config import FlushMode
from rmqctl.rocketmq.engine.drafts import Template
from rmqctl.rocketmq.engine.encode import hosts_of, topic_field
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.limits import (
    BLANK_ROOM,
    check_body_size,
    check_properties,
    check_record,
)
from rmqctl.rocketmq.engine.message import LOCALHOST
from rmqctl.rocketmq.engine.produce import ProduceOptions, make_topics
from rmqctl.rocketmq.engine.property_text import property_text
from rmqctl.rocketmq.engine.stamping import Client, broker_properties, client_properties

Ints = npt.NDArray[np.int64]
CHUNK = 4096
"""Messages encoded together."""
_FLUSH_BYTES = 256 << 20
_MARK = "\x00"
_NUMBER = b"{n}"


@dataclass(frozen=True, slots=True)
class Run:
    """What was written at once: messages, and their bytes of log."""

    messages: int
    bytes: int


def can_bulk(engine: StoreEngine, options: ProduceOptions) -> bool:
    """Whether nothing asks for an answer or an encoding message by message."""
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
    for first in range(0, count, CHUNK):
        yield from encoder.write(first, min(CHUNK, count - first))


class _Encoder:
    """Encodes chunks of messages and appends them."""

    def __init__(self, engine: StoreEngine, template: Template, options: ProduceOptions) -> None:
        self.engine, self.template, self.options = engine, template, options
        self.client = Client(LOCALHOST, options.seed)
        tags: list[str | None] = [tag for tag, _ in template.tags]
        self.texts = {tag: _Text.of(self, tag) for tag in tags or [None]}
        self.topics = [topic_field(topic) for topic in options.topics]
        hosts = hosts_of(LOCALHOST, engine.config.store_host)
        self.sys_flag, self.run = hosts, record_plan(is_v2=False, hosts=hosts).runs[0]

    def write(self, first: int, count: int) -> Iterator[Run]:
        """Encode and append messages ``first`` to ``first + count - 1``."""
        numbers = range(first, first + count)
        bodies = [self.template.body_of(n) for n in numbers]
        topic, queue = self._places(first, count)
        log = self.engine.log
        with log.locked():
            times = self.engine.config.clock.stamps(count)
        tails = self._tails(numbers, topic, times)
        heads = self._heads(bodies, tails, topic, queue, times)
        self._check(bodies, tails, heads)
        done = 0
        while done < count:
            with log.locked():
                step = self._append(heads, bodies, tails, topic, queue, done)
            size = int(heads["total_size"][done : done + step].sum())
            done += step
            yield Run(step, size)

    def _places(self, first: int, count: int) -> tuple[Ints, Ints]:
        """Number of the topic and the queue id of each message."""
        turn, options = np.arange(first, first + count), self.options
        queue = turn // len(self.topics) % options.queues
        if options.queue_id is not None:
            queue = np.full(count, options.queue_id)
        return turn % len(self.topics), queue

    def _tails(self, numbers: range, topic: Ints, times: Ints) -> list[bytes]:
        """Topic and properties with their lengths."""
        texts, fields, found = self.texts, [field for _, field in self.topics], []
        single = texts[next(iter(texts))] if len(texts) == 1 else None
        for number, which, time in zip(numbers, topic.tolist(), times.tolist(), strict=True):
            text = (single or texts[self.template.tag_of(number)]).fill(number, time)
            found.append(b"%b%b%b" % (fields[which], len(text).to_bytes(2, "big"), text))
        return found

    def _heads(self, bodies: list[Any], tails: list[bytes], topic: Ints, queue: Ints, times: Ints) -> npt.NDArray[Any]:
        """The fixed fields, but for those that depend on the place."""
        heads = np.zeros(len(bodies), self.run.dtype)
        host, size = self.engine.config.store_host, np.fromiter(map(len, bodies), np.int64, len(bodies))
        heads["total_size"] = size + np.fromiter(map(len, tails), np.int64, len(tails)) + self.run.packer.size
        heads["magic"] = np.array([magic for magic, _ in self.topics])[topic]
        heads["body_crc"] = np.fromiter(map(crc32, bodies), np.int64, len(bodies)) & MASK
        heads["queue_id"], heads["sys_flag"], heads["body"] = queue, self.sys_flag, size
        heads["born_timestamp"] = heads["store_timestamp"] = times
        heads["born_ip"], heads["born_port"] = np.void(LOCALHOST.ip), LOCALHOST.port
        heads["store_ip"], heads["store_port"] = np.void(host.ip), host.port
        return heads

    def _check(self, bodies: list[Any], tails: list[bytes], heads: npt.NDArray[Any]) -> None:
        config = self.engine.config
        check_body_size(max(map(len, bodies)), config)
        check_properties(max(map(len, tails)) - min(len(field) for _, field in self.topics) - 2)
        largest = int(heads["total_size"].argmax())
        check_record(int(heads["total_size"][largest]), len(bodies[largest]), config)

    def _append(
        self, heads: npt.NDArray[Any], bodies: list[Any], tails: list[bytes], topic: Ints, queue: Ints, done: int
    ) -> int:
        """Append as many as the file takes, from message ``done`` of the chunk on; returns their number."""
        log = self.engine.log
        sizes = heads["total_size"][done:].astype(np.int64)
        start = log.room(int(sizes[0]))
        left = log.files.file_size - start % log.files.file_size - BLANK_ROOM
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, left, "right"))
        part = slice(done, done + count)
        run = heads[part]
        run["physical_offset"] = start + ends[:count] - sizes[:count]
        run["queue_offset"], advance = self._queue_offsets(topic[part], queue[part])
        data = _joined(run, bodies[part], tails[part])
        log.append_bytes(memoryview(data), start + int(ends[count - 1]), int(run["store_timestamp"][-1]))
        for key, number in advance:
            log.queues.advance(*key, number)
        return count

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


def _joined(heads: npt.NDArray[Any], bodies: list[Any], tails: list[bytes]) -> bytes:
    raw, size = memoryview(heads.tobytes()), heads.itemsize
    pieces: list[Any] = [None] * (3 * len(heads))
    pieces[::3] = [raw[at : at + size] for at in range(0, len(raw), size)]
    pieces[1::3], pieces[2::3] = bodies, tails
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class _Text:
    """The properties text of a tag as a bytes template.

    Attributes:
        form: with ``%d`` for each number and ``%08X%08X%04X`` for what changes in the unique key.
        before, after: numbers in front of the unique key and behind it.
    """

    form: bytes
    before: int
    after: int
    client: Client

    @classmethod
    def of(cls, encoder: _Encoder, tag: str | None) -> _Text:
        """The template of messages with one tag."""
        sent = client_properties(encoder.template.texts(tag), _MARK)
        text = property_text(broker_properties(sent, encoder.engine.config), encoder.engine.config.release)
        before, mark, after = text.partition(_MARK.encode())
        numbers = before.count(_NUMBER), after.count(_NUMBER)
        before, after = (part.replace(b"%", b"%%").replace(_NUMBER, b"%d") for part in (before, after))
        if mark:
            prefix = encoder.client.key_prefix.encode()
            return cls(before + prefix + b"%08X%08X%04X" + after, *numbers, encoder.client)
        return cls(before, numbers[0], -1, encoder.client)

    def fill(self, number: int, time: int) -> bytes:
        """The text of one message."""
        if self.after < 0:
            return self.form % ((number,) * self.before)
        return self.form % ((number,) * self.before + self.client.key_parts(number, time) + (number,) * self.after)


__all__ = ["CHUNK", "Run", "can_bulk", "produce_bulk"]
