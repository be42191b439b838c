"""Producing messages into a store: from drafts to results, with made-up or real clocks, by one or many writers, where
there is room for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from queue import Queue

from formats.rocketmq.message import COMPRESSION, SysFlag
from rmqctl.errors import RmqctlError
from rmqctl.producing import Room, paced
from rmqctl.rocketmq.engine.config import FlushMode, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import LOCALHOST, Message, MessageRefused, PutResult, PutStatus
from rmqctl.rocketmq.engine.putting import check_late, is_late
from rmqctl.rocketmq.engine.record import ordered_text, prepare
from rmqctl.rocketmq.producer.drafts import (
    THRESHOLD,
    Client,
    Draft,
    Template,
    broker_properties,
    client_batch,
    client_properties,
    compress,
    inner_batch,
)

_AROUND_BODY, _UNIT, _ENTRY = 91, 20, 20
_STAMPED = 200
"""Bytes of properties that client and broker add, about."""


def room_for(path: str, template: Template, count: int, topic: str, config: StoreConfig) -> Room:
    """Return the room for ``count`` messages of a template in a store at a path: log, units and index entries."""
    low, high = template.sizes or (0, 0)
    body = len(template.body) if template.body is not None else (low + high) // 2
    text = sum(len(name) + len(value) + 2 for name, value in template.texts(template.tag_of(0)).items())
    entries = (1 + len(template.keys) + bool(template.tags)) * _ENTRY if config.index else 0
    message = _AROUND_BODY + len(topic) + body + text + _STAMPED + _UNIT + entries
    return Room.at(path, count * message, "messages")


# --- producing messages into a store ----------------------------------------------------------------


COMMIT, ROLLBACK, PENDING = "commit", "rollback", "pending"
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_WAITING = 1024
Answer = Future[PutResult] | Future[list[PutResult]]


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How to produce.

    Attributes:
        topics: taken in turn by drafts that name none.
        queues: queues of a topic, taken in turn; ``queue_id``: all into this one.
        batch: messages stored together.
        compression: codec for bodies over ``compress_over`` bytes; "" for none.
        rate: messages a second at most; None: as fast as it goes.
        keep_times: store times of dumped objects are kept where they go forward.
        inner: a batch is one record, in a topic with batch queues.
        transaction: ``commit``, ``rollback`` or ``pending``; "" for plain messages.
        group: producer group of transactions.
    """

    topics: tuple[str, ...]
    queues: int = 4
    queue_id: int | None = None
    batch: int = 1
    compression: str = ""
    compress_over: int = THRESHOLD
    writers: int = 1
    rate: float | None = None
    seed: int = 0
    keep_times: bool = True
    inner: bool = False
    transaction: str = ""
    group: str = "rmqctl"


def produce(engine: StoreEngine, drafts: Iterable[Draft], options: ProduceOptions) -> Iterator[PutResult]:
    """Store the drafts and yield where each went; with several writers in the order of their answers.

    Raises:
        MessageRefused, Refused, IOFailure: one of them cannot be stored; those yielded are.
    """
    make_topics(engine, options)
    maker = _Maker(engine, options)
    groups = maker.groups(paced(drafts, options.rate))
    if options.writers > 1 and _can_fly(engine, options):
        yield from _in_flight(engine, groups, options)
        return
    if options.writers > 1:
        yield from _parallel(engine, groups, options)
        return
    for group in groups:
        yield from _put(engine, group, options)


def make_topics(engine: StoreEngine, options: ProduceOptions) -> None:
    """Make the topics known before their first message.

    Raises:
        MessageRefused: one has no name for a topic.
    """
    queues = options.queues if options.queue_id is None else options.queue_id + 1
    engine.known.make(options.topics, queues, batch=options.inner)


def _put(engine: StoreEngine, group: list[Message], options: ProduceOptions) -> list[PutResult]:
    with _naming_line(engine, group):
        return _stored(engine, group, options)


@contextmanager
def _naming_line(engine: StoreEngine, group: list[Message]) -> Iterator[None]:
    """Let a refusal say where the message that is the reason for it was written down."""
    try:
        yield
    except MessageRefused as error:
        message = _refused(engine, group)
        raise (error.at(message.origin) if message.origin else error) from error


def _refused(engine: StoreEngine, group: list[Message]) -> Message:
    """Return the message of a group that is the reason for its refusal; the first where it is all of them together."""
    for message in group:
        try:
            if is_late(message, engine.config, is_batch=engine.topics.is_batch(message.topic)):
                check_late(message, engine.config, engine.topics)
            prepare(message, engine.config)
        except MessageRefused:
            return message
    return group[0]


def _stored(engine: StoreEngine, group: list[Message], options: ProduceOptions) -> list[PutResult]:
    if options.transaction:
        return [result for message in group for result in _transact(engine, message, options)]
    return engine.put_batch(group) if len(group) > 1 else [engine.put(group[0])]


def _transact(engine: StoreEngine, message: Message, options: ProduceOptions) -> Iterator[PutResult]:
    half = engine.prepare(message, options.group)
    yield half.result
    if options.transaction != PENDING:
        result = engine.end(half, commit=options.transaction == COMMIT)
        if result is not None:
            yield result


class _Maker:
    """Turns drafts into messages as client and broker do."""

    def __init__(self, engine: StoreEngine, options: ProduceOptions) -> None:
        self._engine, self._options = engine, options
        self._client = Client(LOCALHOST, options.seed)

    def groups(self, drafts: Iterator[Draft]) -> Iterator[list[Message]]:
        """Messages that are stored together: one, or the records of a batch."""
        messages = (self._named(number, draft) for number, draft in enumerate(drafts))
        if self._options.batch == 1 and not self._options.inner:
            yield from ([message] for message in messages)
            return
        keys = 0
        for group in _runs(messages, self._options.batch):
            yield self._batch(group, keys)
            keys += len(group) + 1

    def _batch(self, group: list[Message], first_key: int) -> list[Message]:
        config = self._engine.config
        try:
            if self._options.inner:
                return [self._compressed(inner_batch(group, first_key, self._client, config))]
            return group if group[0].is_stored else client_batch(group, first_key, self._client, config)
        except MessageRefused as error:
            origin = group[0].origin
            raise (error.at(origin) if origin else error) from error

    def _compressed(self, batch: Message) -> Message:
        """Return an inner batch with its body compressed as a whole; consumers know no other compression."""
        body, flags = self._packed(batch.body, "")
        return replace(batch, body=body, sys_flag=batch.sys_flag | flags)

    def _named(self, number: int, draft: Draft) -> Message:
        """Return the message of a draft; a refusal says where the draft was written down."""
        try:
            return self._message(number, draft)
        except MessageRefused as error:
            raise (error.at(draft.origin) if draft.origin else error) from error

    def _message(self, number: int, draft: Draft) -> Message:
        options, config = self._options, self._engine.config
        topics = options.topics
        turn = number // max(options.batch, 1)
        topic = draft.topic if draft.topic is not None and not topics else topics[turn % len(topics)]
        queue = draft.queue_id if options.queue_id is None else options.queue_id
        queue = turn // max(len(topics), 1) % options.queues if queue is None else queue
        if draft.sys_flag & _INNER_BATCH and options.inner:
            raise MessageRefused(
                PutStatus.MESSAGE_ILLEGAL, "is an inner batch already; leave --inner-batch out", "sys_flag"
            )
        if (draft.sys_flag & _INNER_BATCH or options.inner) and self._engine.topics.queues(topic) is None:
            self._engine.make_topic(topic, queue + 1, batch=True)
        body, flags = self._body(draft)
        sys_flag = draft.sys_flag & ~COMPRESSION | flags
        return Message(
            topic, body, queue, self._properties(number, draft), draft.flag, sys_flag,
            draft.born_timestamp if draft.stored else None, draft.born_host, self._store_timestamp(draft),
            draft.store_host or config.store_host, draft.reconsume_times, draft.prepared_transaction_offset,
            property_bytes=ordered_text(draft.properties, config.release) if draft.ordered else None,
            is_stored=draft.stored, origin=draft.origin,
        )  # fmt: skip

    def _body(self, draft: Draft) -> tuple[bytes, int]:
        return (draft.body, 0) if self._options.inner else self._packed(draft.body, draft.compression)

    def _packed(self, body: bytes, codec: str) -> tuple[bytes, int]:
        """Return a body as it is stored, with its bits of SYSFLAG; without a codec of its own by the one asked for."""
        if not codec and len(body) >= self._options.compress_over:
            codec = self._options.compression
        return compress(body, codec, self._engine.config.release) if codec not in ("", "none") else (body, 0)

    def _properties(self, number: int, draft: Draft) -> dict[str, str]:
        if draft.stored or self._options.batch > 1 or self._options.inner:
            return draft.properties
        key = self._client.unique_key(number, self._engine.config.clock.now())
        return broker_properties(client_properties(draft.properties, key), self._engine.config)

    def _store_timestamp(self, draft: Draft) -> int | None:
        given = draft.store_timestamp if draft.stored and self._options.keep_times else None
        return given if given is not None and given >= self._engine.log.store_timestamp else None


def _runs(messages: Iterator[Message], size: int) -> Iterator[list[Message]]:
    """Yield runs of messages of one topic and queue, at most ``size`` long."""
    for _, run in groupby(messages, key=lambda message: (message.topic, message.queue_id)):
        while group := list(islice(run, max(size, 1))):
            yield group


def _can_fly(engine: StoreEngine, options: ProduceOptions) -> bool:
    """Whether one thread does for several writers: they would wait for flushes, and for nothing else."""
    return engine.config.flush is FlushMode.SYNC and not options.transaction and options.rate is None


def _in_flight(engine: StoreEngine, groups: Iterator[list[Message]], options: ProduceOptions) -> Iterator[PutResult]:
    """Let as many groups as there are writers wait for their flush; after a refusal, yield what else was stored."""
    waiting = deque[Answer]()
    try:
        for group in groups:
            with _naming_line(engine, group):
                waiting.append(engine.put_batch_async(group) if len(group) > 1 else engine.put_async(group[0]))
            while waiting and (len(waiting) >= options.writers or waiting[0].done()):
                yield from _results(waiting.popleft())
        while waiting:
            yield from _results(waiting.popleft())
    except RmqctlError:
        for answer in waiting:
            if answer.exception() is None:
                yield from _results(answer)
        raise


def _results(answer: Answer) -> list[PutResult]:
    found = answer.result()
    return found if isinstance(found, list) else [found]


def _next(
    engine: StoreEngine, groups: Iterator[list[Message]], options: ProduceOptions, lock: threading.Lock
) -> list[PutResult] | None:
    """Store the next group, None if there is none; those that bring store times one after the other, to keep order."""
    with lock:
        group = next(groups, None)
        if group is None:
            return None
        if group[0].is_stored:
            return _put(engine, group, options)
    return _put(engine, group, options)


def _parallel(engine: StoreEngine, groups: Iterator[list[Message]], options: ProduceOptions) -> Iterator[PutResult]:
    """Writers that each take the next group and wait for its answer."""
    writers = options.writers
    answers: Queue[list[PutResult] | BaseException | None] = Queue(_WAITING)
    lock, stop = threading.Lock(), threading.Event()

    def write() -> None:
        try:
            while not stop.is_set() and (found := _next(engine, groups, options, lock)) is not None:
                answers.put(found)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            stop.set()
            answers.put(error)
        answers.put(None)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(writers)]
    for thread in threads:
        thread.start()
    failure: BaseException | None = None
    while writers:
        answer = answers.get()
        if isinstance(answer, list):
            yield from answer
        elif answer is None:
            writers -= 1
        else:
            failure = failure or answer
    if failure is not None:
        raise failure
