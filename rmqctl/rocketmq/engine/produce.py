"""Producing messages into a store: from drafts to results, with made-up or real clocks, by one or many writers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from queue import Queue
from time import monotonic, sleep

from rmqctl.rocketmq.engine.compress import THRESHOLD, compress
from rmqctl.rocketmq.engine.drafts import Draft
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, PutResult
from rmqctl.rocketmq.engine.stamping import Client, broker_properties, client_properties

_COMPRESSION_BITS = 0x701
_WAITING = 1024


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


def produce(engine: StoreEngine, drafts: Iterable[Draft], options: ProduceOptions) -> Iterator[PutResult]:
    """Store the drafts and yield where each went; with several writers in the order of their answers.

    Raises:
        MessageRefused, Refused, IOFailure: one of them cannot be stored; those yielded are.
    """
    make_topics(engine, options)
    messages = _paced(_messages(engine, drafts, options), options.rate)
    groups = _groups(messages, options.batch)
    if options.writers > 1:
        yield from _parallel(engine, groups, options.writers)
        return
    for group in groups:
        yield from _put(engine, group)


def make_topics(engine: StoreEngine, options: ProduceOptions) -> None:
    """Make the topics known before their first message.

    Raises:
        MessageRefused: one has no name for a topic.
        IOFailure: topics.json cannot be written.
    """
    for topic in options.topics:
        engine.make_topic(topic, options.queues if options.queue_id is None else options.queue_id + 1)


def _put(engine: StoreEngine, group: list[Message]) -> list[PutResult]:
    return engine.put_batch(group) if len(group) > 1 else [engine.put(group[0])]


def _messages(engine: StoreEngine, drafts: Iterable[Draft], options: ProduceOptions) -> Iterator[Message]:
    maker = _Maker(engine, options)
    for number, draft in enumerate(drafts):
        yield maker.message(number, draft)


class _Maker:
    """Turns drafts into messages as client and broker do."""

    def __init__(self, engine: StoreEngine, options: ProduceOptions) -> None:
        self._engine, self._options = engine, options
        self._client: Client | None = None

    def message(self, number: int, draft: Draft) -> Message:
        options, config = self._options, self._engine.config
        topics = options.topics
        turn = number // max(options.batch, 1)
        topic = draft.topic if draft.topic is not None and not topics else topics[turn % len(topics)]
        queue = draft.queue_id if draft.queue_id is not None and draft.stored else options.queue_id
        queue = turn // max(len(topics), 1) % options.queues if queue is None else queue
        body, flags = self._body(draft)
        sys_flag = draft.sys_flag & ~_COMPRESSION_BITS | flags
        return Message(
            topic, body, queue, self._properties(number, draft), draft.flag, sys_flag,
            draft.born_timestamp if draft.stored else None, draft.born_host, self._store_timestamp(draft),
            draft.store_host or config.store_host, draft.reconsume_times, draft.prepared_transaction_offset,
        )  # fmt: skip

    def _body(self, draft: Draft) -> tuple[bytes, int]:
        codec = draft.compression
        if not codec and len(draft.body) >= self._options.compress_over:
            codec = self._options.compression
        return (
            compress(draft.body, codec, self._engine.config.release) if codec not in ("", "none") else (draft.body, 0)
        )

    def _properties(self, number: int, draft: Draft) -> dict[str, str]:
        if draft.stored:
            return draft.properties
        if self._client is None or self._client.host != draft.born_host:
            self._client = Client(draft.born_host, self._options.seed)
        key = self._client.unique_key(number, self._engine.config.clock.now())
        return broker_properties(client_properties(draft.properties, key), self._engine.config)

    def _store_timestamp(self, draft: Draft) -> int | None:
        given = draft.store_timestamp if draft.stored and self._options.keep_times else None
        return given if given is not None and given >= self._engine.log.store_timestamp else None


def _groups(messages: Iterator[Message], size: int) -> Iterator[list[Message]]:
    """Runs of messages of one topic and queue, at most ``size`` long."""
    for _, run in groupby(messages, key=lambda message: (message.topic, message.queue_id)):
        while group := list(islice(run, max(size, 1))):
            yield group


def _paced(messages: Iterator[Message], rate: float | None) -> Iterator[Message]:
    start = monotonic()
    for number, message in enumerate(messages):
        if rate:
            sleep(max(start + number / rate - monotonic(), 0))
        yield message


def _parallel(engine: StoreEngine, groups: Iterator[list[Message]], writers: int) -> Iterator[PutResult]:
    """Writers that each take the next group and wait for its answer."""
    answers: Queue[list[PutResult] | BaseException | None] = Queue(_WAITING)
    lock, stop = threading.Lock(), threading.Event()

    def write() -> None:
        try:
            while not stop.is_set():
                with lock:
                    group = next(groups, None)
                if group is None:
                    break
                answers.put(_put(engine, group))
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


__all__ = ["ProduceOptions", "produce"]
