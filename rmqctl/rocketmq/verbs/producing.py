"""`produce` into a RocketMQ store: what the options ask of the engine, which do not go together, and the work."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rmqctl.answer import Row
from rmqctl.errors import Refused, WrongUsage
from rmqctl.producing import Produced, ProduceRequest, source_name
from rmqctl.text import instant, number_of

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.engine.config import Clock, ForwardClock, MadeUpClock, StoreConfig
    from rmqctl.rocketmq.engine.engine import StoreEngine
    from rmqctl.rocketmq.engine.message import PutResult
    from rmqctl.rocketmq.producer.drafts import Draft, Template
    from rmqctl.rocketmq.producer.produce import ProduceOptions

_DEFAULT_COUNT = 1
_WORTH_SAYING = 64 << 20
"""Bytes from which on the room that is needed is said before the work."""


@dataclass(frozen=True, slots=True)
class Asked(ProduceRequest):
    """A request with the options that only RocketMQ has."""

    TARGET: ClassVar[str] = "RocketMQ store"
    tag: list[tuple[str, float]] | None = None
    compress_over: int = 4096
    flush: str = "async"
    inner: bool = False
    delay_level: int | None = None
    deliver_at: int | None = None
    deliver_due: bool = False
    writers: int = 1
    commit_log: str | None = None
    log_file_size: int | None = None
    queue_file_size: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    property_crc: bool = False
    store_host: str = "127.0.0.1:10911"

    def __post_init__(self) -> None:
        ProduceRequest.__post_init__(self)
        names = ("--key", "--tag", "--property", "--delay-level", "--deliver-at")
        values = (self.keys, self.tag, self.properties, self.delay_level, self.deliver_at)
        unused = next((name for name, value in zip(names, values, strict=True) if value), None)
        if self.jsonl is not None and unused is not None:
            raise WrongUsage(unused, "cannot be given together with --jsonl, whose objects say it themselves.")
        if self.codec in ("gzip", "snappy"):
            raise WrongUsage("--compress", f"RocketMQ has no {self.codec}; give zlib, lz4 or zstd.")
        self._check_kinds()
        if (
            not self.topics
            and self.jsonl is None
            and not (self._has_other_work and not self.sources and self.count is None)
        ):
            raise WrongUsage("--topic", "is needed; only --jsonl names topics itself.")
        if self.start_time is not None:
            from rmqctl.rocketmq.index import LAST_TIME

            last = self.start_time + (1 if self.interval is None else self.interval) * (self.count or 1)
            if self.start_time < 0 or last > LAST_TIME:
                raise WrongUsage("--start-time", "with --interval and --count, times must lie between 1970 and 9999.")
        self._check_texts()
        if self.damage:
            from rmqctl.rocketmq.producer.damage import KINDS

            self.check_damage(KINDS.parse)
        if self.count is not None and (self.lines or self.jsonl) and self.writers > 1:
            raise WrongUsage("--count", "does not go with --lines or --jsonl and several --writers.")

    def _check_kinds(self) -> None:
        """Refuse what no producer sends: batches that are more than plain messages, and two times of delivery."""
        from rmqctl.rocketmq.engine.routing import MOVING

        delays = [name for name, _ in self._all_properties if name in MOVING]
        if self.delay_level is not None and self.deliver_at is not None:
            raise WrongUsage("--deliver-at", "cannot be given together with --delay-level.")
        if self.transaction and delays:
            raise WrongUsage(
                "--transaction", "does not go with a delay, which producers take from transactional messages."
            )
        is_retry = any(topic.startswith("%RETRY%") for topic in self.topics)
        if ((self.batch or 1) > 1 or self.inner) and (self.transaction or delays or is_retry):
            raise WrongUsage(
                "--inner-batch" if self.inner else "--batch",
                "holds plain messages only: not delayed, not transactional, not for retry topics.",
            )

    def _check_texts(self) -> None:
        """Refuse properties that would be read as something else than was given."""
        for key in self.keys:
            if not key or any(c.isspace() for c in key):
                raise WrongUsage("--key", f"{key!r} is empty or has a blank, which divides keys; give --key for each.")
        tags = [("TAGS", tag) for tag, _ in self.tag or ()]
        for name, value in (*(("KEYS", key) for key in self.keys), *tags, *self.properties):
            option = {"KEYS": "--key", "TAGS": "--tag"}.get(name, "--property")
            if not value:
                raise WrongUsage(option, f"{name}: an empty value is not stored; leave it out.")
            if any(c in name + value for c in "\x01\x02"):
                raise WrongUsage(option, f"{name!r} has the separator of properties 0x01 or 0x02; leave it out.")
            if name == "__CRC32#":
                raise WrongUsage(option, f"{name} is made by the store; give --property-crc.")

    @property
    def _has_other_work(self) -> bool:
        """There is something to do without any message."""
        return self.deliver_due or bool(self.damage)

    def drafts(self) -> tuple[Iterator[Draft], int | None]:
        """Return the messages, and how many there are if that is known."""
        from rmqctl.rocketmq.producer.drafts import Template, counted, from_bodies
        from rmqctl.rocketmq.producer.jsonl import from_jsonl

        if self.jsonl is not None:
            return self._cut(from_jsonl(self.jsonl, source_name(self.jsonl), needs_topic=not self.topics))
        if self.lines is not None:
            plain = Template(None, None, self.keys, tuple(self.tag or ()), self._all_properties, self.seed)
            return self._cut(from_bodies(plain, (line.rstrip(b"\r\n") for line in self.lines), source_name(self.lines)))
        template, count = self.template(), _DEFAULT_COUNT if self.count is None else self.count
        count = count if self.topics else 0
        return (counted(template, count) if template else iter(())), count

    def template(self) -> Template | None:
        """Return what each message has, None where they come from a file one by one."""
        from rmqctl.rocketmq.producer.drafts import Template

        if self.lines is not None or self.jsonl is not None:
            return None
        body = self.body
        if self.body_file is not None:
            self.body_file.seek(0)
            body = self.body_file.read().decode("utf-8", "surrogateescape")
        return Template(body, self.size, self.keys, tuple(self.tag or ()), self._all_properties, self.seed)

    @property
    def _all_properties(self) -> tuple[tuple[str, str], ...]:
        """The properties asked for, and those that say when to deliver."""
        found = self.properties
        if self.delay_level is not None:
            found = (*found, ("DELAY", str(self.delay_level)))
        return found if self.deliver_at is None else (*found, ("TIMER_DELIVER_MS", str(self.deliver_at)))

    def _cut(self, drafts: Iterator[Draft]) -> tuple[Iterator[Draft], int | None]:
        return (drafts, None) if self.count is None else (itertools.islice(drafts, self.count), self.count)

    def check(self, config: StoreConfig) -> None:
        """Refuse what no message of the template could be stored with, before a store is made for it.

        Raises:
            MessageRefused: a topic, the body or the properties, by the broker's rules.
            Refused: sizes that no broker has, or a delivery time for a release without a timer.
        """
        from rmqctl.rocketmq.engine.message import check_body_size, check_host, check_topic
        from rmqctl.rocketmq.engine.putting import MULTI_DISPATCH, NAMES
        from rmqctl.rocketmq.engine.record import property_text
        from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES

        check_host(config.store_host, config, "store_host")
        config.valid()
        if self.deliver_at is not None and not config.is_5:
            raise Refused(
                f"brokers of {config.release} have no timer; use --delay-level, or --as-release 5.0.0 or later"
            )
        if config.release < MULTI_DISPATCH and any(name == NAMES for name, _ in self.properties):
            raise Refused(
                f"brokers of {config.release} have no light queues; leave {NAMES} out, "
                f"or use --as-release {MULTI_DISPATCH} or later"
            )
        for topic in self.expanded_topics:
            check_topic(topic, config.release)
        template = self.template()
        if template is not None and self.topics:
            check_body_size(len(template.body or "") or (template.sizes or (0, 0))[1], config)
            property_text(template.properties_of(0), config.release)
            if config.release < FIRST_WITH_EMPTY_BODIES and (template.body == "" or (template.sizes or (1, 1))[0] == 0):
                raise Refused(
                    f"push consumers before {FIRST_WITH_EMPTY_BODIES} fail on a message without a body and stop there; "
                    f"give a body of one byte or more, or use --as-release {FIRST_WITH_EMPTY_BODIES} or later"
                )

    def options(self) -> ProduceOptions:
        """How to produce."""
        from rmqctl.rocketmq.producer.produce import ProduceOptions

        return ProduceOptions(
            self.expanded_topics, self.queues or 4, self.queue_id, self.batch or 1,
            "" if self.codec in (None, "none") else str(self.codec), self.compress_over,
            self.writers, self.rate, self.seed, keep_times=self.start_time is None, inner=self.inner,
            transaction=self.transaction or "",
        )  # fmt: skip

    def _log_paths(self, path: str) -> tuple[str, ...]:
        """Return the directories of the log, relative to the store where they lie in it."""
        given = [os.path.abspath(part) for part in (self.commit_log or "").split(",") if part]
        root = os.path.abspath(path)
        inside = os.path.join(root, "")
        return tuple(dict.fromkeys(part.removeprefix(inside) for part in given))

    def clock(self) -> ForwardClock | MadeUpClock:
        """Where store times come from."""
        from rmqctl.rocketmq.engine.config import ForwardClock, MadeUpClock

        if self.start_time is None:
            return ForwardClock()
        return MadeUpClock(self.start_time, 1 if self.interval is None else self.interval)

    def config(self, path: str, clock: Clock) -> StoreConfig:
        """Return the engine's settings."""
        from rmqctl.rocketmq.engine.config import FlushMode, Host, StoreConfig
        from rmqctl.rocketmq.engine.putting import NAMES
        from rmqctl.rocketmq.engine.routing import TIMES

        plain = StoreConfig()
        config = StoreConfig.small() if self.small else plain
        if self.small and self.log_file_size is not None:  # what fits its files, as far as brokers take it
            most = min(self.log_file_size // 2, plain.max_message_size)
            config = replace(config, max_message_size=max(config.max_message_size, most))
        sizes: dict[str, Any] = {
            "commit_log_file_size": self.log_file_size, "queue_file_size": self.queue_file_size,
            "index_slots": self.index_slots, "index_entries": self.index_entries,
        }  # fmt: skip
        config = replace(
            config,
            **{name: size for name, size in sizes.items() if size is not None},
            commit_log_paths=self._log_paths(path),
            release=self._release_for(path) or config.release,
            flush=FlushMode(self.flush),
            property_crc=self.property_crc,
            timer=self.deliver_at is not None or any(n in TIMES for n, _ in self.properties),
            multi_dispatch=self.jsonl is not None or self.deliver_due or any(n == NAMES for n, _ in self.properties),
            default_queues=self.queues or 4,
            services=not self.crash,
            process_id=None if self.start_time is None else self.seed,
            clock=clock,
        )
        try:
            return replace(config, store_host=Host.parse(self.store_host))
        except ValueError:
            reason = f"{self.store_host!r} is no address and port such as 127.0.0.1:10911."
            raise WrongUsage("--store-host", reason) from None

    def _release_for(self, path: str) -> Release | None:
        """Return the release by whose rules is written: that which was asked for, or that the store shows; None where
        there is neither.
        """
        from rmqctl.rocketmq.state.releases import FIRST_PATCH, KNOWN, OLDEST_APACHE

        release = self.release.among(KNOWN, "RocketMQ", FIRST_PATCH) if self.release else _shown_release(path)
        if release is not None and release < OLDEST_APACHE:
            raise Refused(
                f"stores of {release} are only read: what is written here has the files of {OLDEST_APACHE} and later; "
                f"use --as-release {OLDEST_APACHE} or later"
            )
        return release


def _shown_release(path: str) -> Release | None:
    """Return the release that a store shows, None where there is none."""
    from rmqctl.rocketmq.engine.config import StoreConfig
    from rmqctl.rocketmq.engine.opening import existing
    from rmqctl.rocketmq.state.releases import release_range

    store = existing(Path(path), StoreConfig()) if os.path.isdir(path) else None
    return None if store is None else release_range(store).highest


# --- the work -----------------------------------------------------------------------------------------


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Open the store at a path, or make it, and write messages into it as its broker would.

    Raises:
        WrongUsage: options do not go together.
        Refused, StoreInUse, IOFailure: see :meth:`rmqctl.rocketmq.engine.engine.StoreEngine.open`.
    """
    from rmqctl.rocketmq.engine.engine import StoreEngine
    from rmqctl.rocketmq.producer.produce import room_for
    from rmqctl.rocketmq.store.locate import check_no_part

    asked = Asked.of(request)
    check_no_part(path)
    asked.check_there(path)
    drafts, total = asked.drafts()
    clock = asked.clock()
    config, template = asked.config(str(path), clock), asked.template()
    asked.check(config)
    answer = Produced(path=str(path), work="Producing", total=total, unit="messages")
    if template is not None and asked.topics:
        room = room_for(str(path), template, total or 0, asked.topics[0], config)
        room.check(str(path))
        if room.needed >= _WORTH_SAYING:
            answer.remark(f"about {room.needed:,} bytes will be written to {path}; {room.free:,} are free")
    engine = StoreEngine.open(str(path), config)
    answer.close = engine.close
    if engine.recovered is not None and engine.recovered.files:
        undo = engine.recovered.undo_command
        answer.remark(f"{path} had crashed; recovered as its broker would; to take that back: {undo}")
    answer.remarks += _going_on(clock, engine.log.store_timestamp)
    work = _Work(answer, asked, engine, drafts, total)
    answer.rows = work.rows() if request.lists else ()
    if not request.lists:
        answer.make = lambda: work.run(template)
    return answer


def _going_on(clock: ForwardClock | MadeUpClock, last: int) -> Iterator[str]:
    """Keep store times in order: none is before that of the last message, ms, unless no clock ever showed that."""
    from rmqctl.rocketmq.index import LAST_TIME

    if last <= LAST_TIME and clock.not_before(last):
        yield f"store times go on after {instant(last)}, that of the last message, as they never go back"


def damages() -> list[Row]:
    """Return the kinds of damage that `produce --damage` knows."""
    from rmqctl.rocketmq.producer.damage import KINDS

    return KINDS.rows()


@dataclass
class _Work:
    """Writes the messages of a request and counts them."""

    answer: Produced
    asked: Asked
    engine: StoreEngine
    drafts: Iterator[Draft]
    total: int | None
    empty: int = 0

    def run(self, template: Template | None) -> None:
        """Write everything, many messages at once where they are all alike."""
        from rmqctl.rocketmq.producer.bulk import can_bulk, produce_bulk

        options = self.asked.options()
        if template is None or not can_bulk(self.engine, template, options):
            deque(self.rows(), 0)
            return
        with self.engine:
            for run in produce_bulk(self.engine, template, self.total or 0, options):
                self.answer.count(set(), run.messages, run.bytes)
            self.answer.topics.update(options.topics[: self.answer.messages])
            self._end()
        self._say()

    def rows(self) -> Iterator[Row]:
        """Write message after message."""
        from rmqctl.rocketmq.producer.produce import produce as put

        with self.engine:
            for result in put(self.engine, self._noted(), self.asked.options()):
                yield self._counted(result).row()
            self._end()
        self._say()

    def _noted(self) -> Iterator[Draft]:
        """Yield the drafts as they are; those without a body are counted."""
        for draft in self.drafts:
            self.empty += not draft.body
            yield draft

    def _counted(self, result: PutResult) -> PutResult:
        self.answer.count({result.topic}, 1, result.size)
        return result

    def _end(self) -> None:
        if self.asked.deliver_due:
            for result in self.engine.deliver_due():
                self._counted(result)
        if self.asked.crash:
            self.engine.crash()

    def _say(self) -> None:
        """Say that messages without a body stop consumers of a release, and do the damage that is wished for."""
        from rmqctl.rocketmq.producer.damage import damage
        from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES

        if self.empty and self.engine.config.release < FIRST_WITH_EMPTY_BODIES:
            self.answer.remark(
                f"{number_of(self.empty, 'message')} without a body: push consumers before {FIRST_WITH_EMPTY_BODIES} "
                "fail on that and stop there"
            )
        self.answer.harm(self.asked, damage)
