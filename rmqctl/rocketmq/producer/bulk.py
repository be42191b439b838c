"""Producing many messages that nobody waits for one by one: encoded by columns, written in large runs.

The bytes are those that single puts make of the same template, seed and clock: heads are set as
columns of the layout derived from the record's schema, texts are filled in as bytes, and a run of
records that fits the file goes down with one write.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import record_plan
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import BLANK_ROOM, LOCALHOST, check_body_size, check_properties, check_record
from rmqctl.rocketmq.engine.putting import INNER_NUM, NAMES
from rmqctl.rocketmq.engine.record import hosts_of, property_text, topic_field
from rmqctl.rocketmq.engine.routing import MOVING
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.crc import MASK, crc32
from rmqctl.rocketmq.log.record import variant_of
from rmqctl.rocketmq.producer.drafts import Client, Template, broker_properties, client_properties, fill_noise
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
    with engine.dispatching.feeding() as dispatch, ThreadPoolExecutor(1, "rmqctl-bulk") as helper:
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
        """Dispatch a chunk that was written, whose room is then free, and encode another; None after the last."""
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
            self.engine.dispatching.keep_up()
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
        """Return what a scan would find of records that lie end to end."""
        total, body, encoder = heads["total_size"].astype(np.int64), heads["body"].astype(np.int64), self.encoder
        names = np.array([len(name.encode("utf-8", "surrogateescape")) for name in encoder.options.topics])[topic]
        fields = np.array([len(field) for _, field in encoder.topics])[topic]
        variants = np.array([variant_of(magic, encoder.sys_flag) for magic, _ in encoder.topics], np.int64)[topic]
        rest = total - heads.itemsize - body - fields - 2
        return Block("", base, position, data, np.cumsum(total) - total, variants, total, body, names, rest)

    def _queue_offsets(self, topic: Ints, queue: Ints) -> tuple[Ints, list[tuple[tuple[str, int], int]]]:
        """Return the queue offset of each message, and by how much each queue grows."""
        keys, group = np.unique(topic << 32 | queue, return_inverse=True)
        names = [(self.encoder.options.topics[key >> 32], key & 0xFFFFFFFF) for key in keys.tolist()]
        order = np.argsort(group, kind="stable")
        counts = np.bincount(group)
        rank = np.empty(len(group), np.int64)
        rank[order] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.array([self.engine.log.queues.next(*name) for name in names])
        return first[group] + rank, list(zip(names, counts.tolist(), strict=True))


# --- encoding by columns -------------------------------------------------------------------------------


Heads = npt.NDArray[Any]


class Chunk(ABC):
    """Messages that are encoded together.

    Attributes:
        heads: the fixed fields of each record, shape (n,).
        topic: number of each one's topic, shape (n,).
    """

    heads: Heads
    topic: Ints

    @abstractmethod
    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        """Return the bytes of some records, one after the other."""

    def log_block(self, block: Block) -> LogBlock:
        """Return what dispatch is given of a block of its records."""
        return LogBlock(block)


@dataclass(slots=True)
class Matrix(Chunk):
    """Records of one size, shape (n, bytes); the heads lie in it."""

    heads: Heads
    topic: Ints
    rows: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, buffer: npt.NDArray[np.uint8], count: int, size: int, head: np.dtype[Any]) -> Matrix:
        """Room in a buffer for ``count`` records of ``size`` bytes that begin with ``head``."""
        rows = buffer[: count * size].reshape(count, size)
        return cls(rows[:, : head.itemsize].view(head)[:, 0], np.zeros(count, np.int64), rows)

    def first(self, topic: Ints) -> Matrix:
        """Its first records, which may be changed, as those of these topics."""
        return Matrix(self.heads[: len(topic)], topic, self.rows[: len(topic)])

    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        return self.rows[part].reshape(-1)

    def log_block(self, block: Block) -> LogBlock:
        return LogBlock.alike(block)


@dataclass(slots=True)
class Ragged(Chunk):
    """Records of any size, their bodies and what stands after these."""

    heads: Heads
    topic: Ints
    bodies: list[bytes | memoryview]
    tails: list[bytes]

    def joined(self, part: slice) -> npt.NDArray[np.uint8]:
        heads = self.heads[part]
        raw, size = memoryview(heads.tobytes()), heads.itemsize
        pieces: list[Any] = [None] * (3 * len(heads))
        pieces[::3] = [raw[at : at + size] for at in range(0, len(raw), size)]
        pieces[1::3], pieces[2::3] = self.bodies[part], self.tails[part]
        return np.frombuffer(b"".join(pieces), np.uint8)


# --- properties texts of many messages of one template ----------------------------------------------


Bytes8 = npt.NDArray[np.uint8]
_MARK, _NUMBER = "\x00", b"{n}"
_PIECES = re.compile(rb"(\x00|\{n\})")
_KEY_FORM, _KEY_NIBBLES = b"%08X%08X%04X", (8, 8, 4)


@dataclass(frozen=True, slots=True)
class BulkText:
    """The texts of messages with one tag.

    Attributes:
        pieces: constant bytes, ``{n}`` for the number of the message, 0x00 for what changes in its unique key.
        form: the same with ``%``.
    """

    pieces: tuple[bytes, ...]
    form: bytes
    client: Client

    @classmethod
    def of(cls, template: Template, tag: str | None, client: Client, config: StoreConfig) -> BulkText:
        """Return the texts of a template's messages with a tag.

        Raises:
            MessageRefused: a name or value contains a separator.
        """
        sent = client_properties(template.texts(tag), _MARK)
        text = property_text(broker_properties(sent, config), config.release)
        text = text.replace(_MARK.encode(), client.key_prefix.encode() + _MARK.encode(), 1)
        pieces = tuple(p for p in _PIECES.split(text) if p)
        forms = {_NUMBER: b"%d", _MARK.encode(): _KEY_FORM}
        return cls(pieces, b"".join(forms.get(p) or p.replace(b"%", b"%%") for p in pieces), client)

    def fill(self, number: int, time: int) -> bytes:
        """Return the text of one message."""
        values: list[int] = []
        for piece in self.pieces:
            if piece == _NUMBER:
                values.append(number)
            elif piece == _MARK.encode():
                values += self.client.key_parts(number, time)
        return self.form % tuple(values)

    def size(self, digits: int) -> int:
        """Bytes of a text whose number has so many digits."""
        return sum(size for _, _, size in self._places(digits))

    def _places(self, digits: int) -> Iterator[tuple[bytes, int, int]]:
        """Each piece with where it begins in a text whose number has so many digits, and its bytes."""
        sizes, at = {_NUMBER: digits, _MARK.encode(): sum(_KEY_NIBBLES)}, 0
        for piece in self.pieces:
            size = sizes.get(piece) or len(piece)
            yield piece, at, size
            at += size

    def fill_constant(self, digits: int, out: Bytes8) -> None:
        """Put what is the same in all texts whose number has so many digits into ``out``, shape (n, size)."""
        for piece, at, size in self._places(digits):
            if piece not in (_NUMBER, _MARK.encode()):
                out[:, at : at + size] = np.frombuffer(piece, np.uint8)

    def fill_columns(self, numbers: Ints, times: Ints, out: Bytes8) -> None:
        """Put in the rest of the texts of messages whose numbers have as many digits as the first, shape (n, size)."""
        digits, key = decimal(numbers), None
        for piece, at, size in self._places(digits.shape[1]):
            if piece == _NUMBER:
                out[:, at : at + size] = digits
            elif piece == _MARK.encode():
                key = self._keys(numbers, times) if key is None else key
                out[:, at : at + size] = key

    def _keys(self, numbers: Ints, times: Ints) -> Bytes8:
        found, at = np.empty((len(numbers), sum(_KEY_NIBBLES)), np.uint8), 0
        for values, size in zip(self.client.key_columns(numbers, times), _KEY_NIBBLES, strict=True):
            found[:, at : at + size] = hexadecimal(values, size)
            at += size
        return found


def decimal(numbers: Ints) -> Bytes8:
    """Decimal digits of numbers of one length, shape (n, digits)."""
    digits = len(str(int(numbers[0])))
    fours = np.empty((len(numbers), -(-digits // 4)), np.uint32)
    for at in range(fours.shape[1] - 1, -1, -1):
        numbers, rest = np.divmod(numbers, 10_000) if at else (numbers, numbers)
        fours[:, at] = _decimals()[rest]
    return fours.view(np.uint8)[:, 4 * fours.shape[1] - digits :]


def hexadecimal(numbers: Ints, size: int) -> Bytes8:
    """Hexadecimal digits of numbers, upper case, shape (n, size), or (1, size) where all are equal; size is even."""
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        numbers = numbers[:1]
    raw = numbers.astype(">i8").view(np.uint8).reshape(len(numbers), 8)[:, 8 - size // 2 :]
    return _hexadecimals()[raw].view(np.uint8)


@cache
def _decimals() -> npt.NDArray[np.uint32]:
    """Four decimal digits of each number below 10,000."""
    return np.frombuffer(b"".join(b"%04d" % n for n in range(10_000)), np.uint32)


@cache
def _hexadecimals() -> npt.NDArray[np.uint16]:
    """Two hexadecimal digits of each byte."""
    return np.frombuffer(b"".join(b"%02X" % n for n in range(256)), np.uint16)


# --- encoding many messages of one template by columns ----------------------------------------------


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
        """Take the template apart.

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
        """Return the messages without their heads: a matrix where all records have one size."""
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
        return Ragged(heads, topic, bodies, tails)

    def _matrix(self, numbers: Ints, topic: Ints, times: Ints) -> Matrix:
        (text,), size, digits = self.texts.values(), self.template.size_of(0), len(str(int(numbers[0])))
        fields = np.array([list(field) for _, field in self.topics], np.uint8)
        tail = self.run.packer.size + size
        after = tail + fields.shape[1] + 2
        found = self._room(text, digits, after).first(topic)
        rows, heads = found.rows, found.heads
        heads["body_crc"] = fill_noise(self.options.seed, numbers, rows[:, self.run.packer.size : tail])
        for column, values in enumerate(fields.T, tail):
            rows[:, column] = values[topic] if len(fields) > 1 else values[0]
        text.fill_columns(numbers, times, rows[:, after:])
        heads["body"], heads["total_size"] = size, rows.shape[1]
        return found

    def _room(self, text: BulkText, digits: int, text_at: int) -> Matrix:
        """Return a matrix for records whose number has so many digits, their constant bytes set: the next in turn."""
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
        """Set the fixed fields, but for those that depend on the place."""
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
