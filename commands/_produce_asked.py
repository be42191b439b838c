"""What the options of `rmqctl produce` ask of the engine, and which of them do not go together."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands._topic_patterns import MOST_TOPICS, expanded, number_of_topics
from commands._types import refuse

if TYPE_CHECKING:
    from rmqctl.release import Release
    from rmqctl.rocketmq.engine.config import Clock, ForwardClock, MadeUpClock, StoreConfig
    from rmqctl.rocketmq.producer.drafts import Draft, Template
    from rmqctl.rocketmq.producer.produce import ProduceOptions

_DEFAULT_COUNT = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as given."""

    topics: tuple[str, ...]
    queues: int | None
    queue_id: int | None
    count: int | None
    body: str | None
    body_file: Any
    lines: Any
    jsonl: Any
    size: tuple[int, int] | None
    keys: tuple[str, ...]
    tag: list[tuple[str, float]] | None
    properties: tuple[tuple[str, str], ...]
    seed: int
    batch: int
    codec: str | None
    compress_over: int
    flush: str
    inner: bool
    delay_level: int | None
    deliver_at: int | None
    deliver_due: bool
    transaction: str | None
    writers: int
    rate: float | None
    damage: tuple[str, ...]
    crash: bool
    commit_log: str | None
    start_time: int | None
    interval: int | None
    small: bool
    log_file_size: int | None
    queue_file_size: int | None
    index_slots: int | None
    index_entries: int | None
    property_crc: bool
    store_host: str

    def __post_init__(self) -> None:
        sources = [
            f"--{n.replace('_', '-')}" for n in ("body", "body_file", "lines", "jsonl", "size") if getattr(self, n)
        ]
        if len(sources) > 1:
            refuse(sources[1], f"cannot be given together with {sources[0]}.")
        names = ("--key", "--tag", "--property", "--delay-level", "--deliver-at")
        values = (self.keys, self.tag, self.properties, self.delay_level, self.deliver_at)
        unused = next((name for name, value in zip(names, values, strict=True) if value), None)
        if self.jsonl is not None and unused is not None:
            refuse(unused, "cannot be given together with --jsonl, whose objects say it themselves.")
        if self.queues is not None and self.queue_id is not None:
            refuse("--queue-id", "cannot be given together with --queues.")
        self._check_kinds()
        if not self.topics and self.jsonl is None and not (self._has_other_work and not sources and self.count is None):
            refuse("--topic", "is needed; only --jsonl names topics itself.")
        if self.interval is not None and self.start_time is None:
            refuse("--interval", "needs --start-time.")
        if self.start_time is not None:
            from rmqctl.rocketmq.index.files import LAST_TIME

            last = self.start_time + (1 if self.interval is None else self.interval) * (self.count or 1)
            if self.start_time < 0 or last > LAST_TIME:
                refuse("--start-time", "with --interval and --count, times must lie between 1970 and 9999.")
        self._check_texts()
        self._check_damage()
        if self.count is not None and (self.lines or self.jsonl) and self.writers > 1:
            refuse("--count", "does not go with --lines or --jsonl and several --writers.")

    def _check_kinds(self) -> None:
        """Refuse what no producer sends: batches that are more than plain messages, and two times of delivery."""
        from rmqctl.rocketmq.engine.routing import MOVING

        delays = [name for name, _ in self._all_properties if name in MOVING]
        if self.delay_level is not None and self.deliver_at is not None:
            refuse("--deliver-at", "cannot be given together with --delay-level.")
        if self.transaction and delays:
            refuse("--transaction", "does not go with a delay, which producers take from transactional messages.")
        is_retry = any(topic.startswith("%RETRY%") for topic in self.topics)
        if (self.batch > 1 or self.inner) and (self.transaction or delays or is_retry):
            refuse(
                "--inner-batch" if self.inner else "--batch",
                "holds plain messages only: not delayed, not transactional, not for retry topics.",
            )

    def _check_texts(self) -> None:
        """Refuse topics and properties that would be read as something else than was given."""
        if number_of_topics(self.topics) > MOST_TOPICS:
            refuse("--topic", f"names {number_of_topics(self.topics):,} topics, at most {MOST_TOPICS:,}.")
        if self.topics and not number_of_topics(self.topics):
            refuse("--topic", f"{self.topics[0]!r} names no topic; give {{0..9}} with the smaller number first.")
        for key in self.keys:
            if not key or any(c.isspace() for c in key):
                refuse("--key", f"{key!r} is empty or has a blank, which divides keys; give --key for each.")
        tags = [("TAGS", tag) for tag, _ in self.tag or ()]
        for name, value in (*(("KEYS", key) for key in self.keys), *tags, *self.properties):
            option = {"KEYS": "--key", "TAGS": "--tag"}.get(name, "--property")
            if not value:
                refuse(option, f"{name}: an empty value is not stored; leave it out.")
            if any(c in name + value for c in "\x01\x02"):
                refuse(option, f"{name!r} has the separator of properties 0x01 or 0x02; leave it out.")
            if name == "__CRC32#":
                refuse(option, f"{name} is made by the store; give --property-crc.")

    def _check_damage(self) -> None:
        """Refuse damage that is not known, before anything is written."""
        if self.damage:
            from rmqctl.errors import Refused
            from rmqctl.rocketmq.producer.damage import parse_wish

            try:
                for wish in self.damage:
                    parse_wish(wish)
            except Refused as error:
                refuse("--damage", f"{error}.")

    @property
    def _has_other_work(self) -> bool:
        """There is something to do without any message."""
        return self.deliver_due or bool(self.damage)

    def drafts(self) -> tuple[Iterator[Draft], int | None]:
        """The messages, and how many there are if that is known."""
        from rmqctl.rocketmq.producer.drafts import Template, counted, from_bodies
        from rmqctl.rocketmq.producer.jsonl import from_jsonl

        if self.jsonl is not None:
            return self._cut(from_jsonl(self.jsonl, _name(self.jsonl), needs_topic=not self.topics))
        if self.lines is not None:
            plain = Template(None, None, self.keys, tuple(self.tag or ()), self._all_properties, self.seed)
            return self._cut(from_bodies(plain, (line.rstrip(b"\r\n") for line in self.lines), _name(self.lines)))
        template, count = self.template(), _DEFAULT_COUNT if self.count is None else self.count
        count = count if self.topics else 0
        return (counted(template, count) if template else iter(())), count

    def template(self) -> Template | None:
        """What each message has, None where they come from a file one by one."""
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
        from rmqctl.errors import Refused
        from rmqctl.rocketmq.engine.late import MULTI_DISPATCH, NAMES
        from rmqctl.rocketmq.engine.message import check_body_size, check_host, check_topic
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
        for topic in expanded(self.topics):
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
            expanded(self.topics), self.queues or 4, self.queue_id, self.batch, self.codec or "", self.compress_over,
            self.writers, self.rate, self.seed, keep_times=self.start_time is None, inner=self.inner,
            transaction=self.transaction or "",
        )  # fmt: skip

    def _log_paths(self, path: str) -> tuple[str, ...]:
        """The directories of the log, relative to the store where they lie in it."""
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

    def config(self, path: str, release: Release | None, clock: Clock) -> StoreConfig:
        """The engine's settings."""
        from rmqctl.rocketmq.engine import FlushMode, Host, StoreConfig
        from rmqctl.rocketmq.engine.late import NAMES
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
            release=release or _shown_release(path) or config.release,
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
            refuse("--store-host", f"{self.store_host!r} is no address and port such as 127.0.0.1:10911.")


def _shown_release(path: str) -> Release | None:
    """The release that a store shows, None where there is none."""
    from rmqctl.rocketmq.engine import StoreConfig
    from rmqctl.rocketmq.engine.opening import existing
    from rmqctl.rocketmq.state.releases import release_range

    store = existing(Path(path), StoreConfig()) if os.path.isdir(path) else None
    return None if store is None else release_range(store).highest


def _name(file: Any) -> str:
    name = getattr(file, "name", "-")
    return "standard input" if name in ("-", "<stdin>") or file is sys.stdin.buffer else str(name)
