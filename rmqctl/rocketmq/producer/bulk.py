"""Producing many messages that nobody waits for one by one: encoded by columns, written in large runs.

The bytes are those that single puts make of the same template, seed and clock: heads are set as
columns of the layout derived from the record's schema, texts are filled in as bytes, and a run of
records that fits the file goes down with one write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.engine.config import FlushMode
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.late import INNER_NUM, NAMES
from rmqctl.rocketmq.engine.message import BLANK_ROOM
from rmqctl.rocketmq.engine.routing import MOVING
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.record import variant_of
from rmqctl.rocketmq.producer.bulk_encode import ROOMS, Chunk, Encoder, Heads
from rmqctl.rocketmq.producer.drafts import Template
from rmqctl.rocketmq.producer.produce import ProduceOptions, make_topics

Ints = npt.NDArray[np.int64]
_ROUTED = MOVING | {INNER_NUM, NAMES}
"""Properties that send a message elsewhere than where it says."""

_FORGOTTEN_AT_ONCE, _UNFLUSHED = 1 << 20, 4 << 20


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
    plain &= not any(map(engine.topics.is_batch, options.topics))
    config = engine.config
    return plain and config.flush is FlushMode.ASYNC and not config.property_crc and not config.transient_pool


def produce_bulk(engine: StoreEngine, template: Template, count: int, options: ProduceOptions) -> Iterator[Run]:
    """Write ``count`` messages of a template; yields after each run.

    Raises:
        MessageRefused: the broker would not store them; those of earlier runs are.
        IOFailure: the system refuses; the same.
    """
    encoder = Encoder(template, options, engine.config)
    make_topics(engine, options)
    with engine.feeding() as dispatch, ThreadPoolExecutor(1, "rmqctl-bulk") as helper:
        yield from _Writer(engine, encoder, dispatch).run(count, helper)


class _Writer:
    """Appends what an encoder makes. While one chunk is written, others are dispatched and encoded."""

    def __init__(self, engine: StoreEngine, encoder: Encoder, dispatch: Callable[[LogBlock], None]) -> None:
        self.engine, self.encoder, self._dispatch = engine, encoder, dispatch
        self._end, self._is_alone = engine.log.wrote, True
        self._forgotten = engine.log.wrote

    def run(self, count: int, helper: Executor) -> Iterator[Run]:
        """Write ``count`` messages, with a helper that does one thing after the other."""
        first, ahead = 0, deque[Future[Chunk | None]]()

        def go_on(written: list[tuple[Chunk, Block]]) -> None:
            nonlocal first
            times = self._times(first, count)
            ahead.append(helper.submit(self._turn, written, first, times))
            first += len(times)

        for _ in range(ROOMS):
            go_on([])
        while ahead:
            chunk = ahead.popleft().result()
            if chunk is not None:
                written: list[tuple[Chunk, Block]] = []
                for found in self._append_all(chunk):
                    written.append((chunk, found))
                    yield Run(len(found), len(found.data))
                go_on(written)

    def _times(self, first: int, count: int) -> Ints:
        """Store times of the chunk that begins with number ``first``."""
        with self.engine.log.locked():
            return self.engine.config.clock.stamps(self.encoder.step(first, count - first))

    def _turn(self, written: list[tuple[Chunk, Block]], first: int, times: Ints) -> Chunk | None:
        """Dispatch a chunk that was written, whose room is then free, and encode another; None behind the last."""
        for chunk, found in written:
            self._dispatch(chunk.log_block(found))
        self._forget()
        return self.encoder.chunk(first, times) if len(times) else None

    def _forget(self) -> None:
        """Hand back memory that the system keeps for what of the log is on the disk.

        A long run would else push out what other programs have there, for a log that nobody reads meanwhile. It is
        also faster: the system gets its memory from what was just handed back, rather than from the other end of it.
        """
        until = self.engine.log.flushed
        if until - self._forgotten >= _FORGOTTEN_AT_ONCE:
            self.engine.log.files.forget(self._forgotten, until)
            self._forgotten = until

    def _append_all(self, chunk: Chunk) -> Iterator[Block]:
        """Append a chunk, in as many parts as it touches files."""
        done = 0
        while done < len(chunk.heads):
            with self.engine.log.locked():
                found = self._append(chunk, done)
            done += len(found)
            self.engine.keep_up()
            self.engine.flush_soon(_UNFLUSHED)
            yield found

    def _append(self, chunk: Chunk, done: int) -> Block:
        """Append as many as the file takes, from message ``done`` of the chunk on; returns their records."""
        log = self.engine.log
        self._is_alone &= log.wrote == self._end
        sizes = chunk.heads["total_size"][done:].astype(np.int64)
        start = log.room(int(sizes[0]))
        base = start - start % log.files.file_size
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, base + log.files.file_size - start - BLANK_ROOM, "right"))
        part = slice(done, done + count)
        run = chunk.heads[part]
        run["physical_offset"] = start + ends[:count] - sizes[:count]
        run["queue_offset"], advance = self._queue_offsets(chunk.topic[part], run["queue_id"].astype(np.int64))
        if not self._is_alone:  # others may have been given later times since these were taken
            run["store_timestamp"] = np.maximum(run["store_timestamp"], log.store_timestamp)
        data = chunk.joined(part)
        log.append_bytes(data.data, start + int(ends[count - 1]), int(run["store_timestamp"][-1]))
        self._end = log.wrote
        for key, number in advance:
            log.queues.advance(*key, number)
        return self._block(data, base, start - base, run, chunk.topic[part])

    def _block(self, data: npt.NDArray[np.uint8], base: int, position: int, heads: Heads, topic: Ints) -> Block:
        """What a scan would find of records that lie end to end."""
        total, body, encoder = heads["total_size"].astype(np.int64), heads["body"].astype(np.int64), self.encoder
        names = np.array([len(name.encode("utf-8", "surrogateescape")) for name in encoder.options.topics])[topic]
        fields = np.array([len(field) for _, field in encoder.topics])[topic]
        variants = np.array([variant_of(magic, encoder.sys_flag) for magic, _ in encoder.topics], np.int64)[topic]
        rest = total - heads.itemsize - body - fields - 2
        return Block("", base, position, data, np.cumsum(total) - total, variants, total, body, names, rest)

    def _queue_offsets(self, topic: Ints, queue: Ints) -> tuple[Ints, list[tuple[tuple[str, int], int]]]:
        """The queue offset of each message, and by how much each queue grows."""
        keys, group = np.unique(topic << 32 | queue, return_inverse=True)
        names = [(self.encoder.options.topics[key >> 32], key & 0xFFFFFFFF) for key in keys.tolist()]
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group)
        rank = np.empty(len(group), np.int64)
        rank[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([self.engine.log.queues.next(*name) for name in names])
        return first[group] + rank, list(zip(names, counts.tolist(), strict=True))


__all__ = ["Run", "can_bulk", "produce_bulk"]
