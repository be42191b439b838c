"""`produce` into a log directory: what the options ask of the engine, which do not go together, and the work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

from formats.kafka.internal_records import INTERNAL_TOPICS
from rmqctl.answer import Row
from rmqctl.errors import Refused, WrongUsage
from rmqctl.kafka.directory.releases import known_release
from rmqctl.kafka.engine.config import Clock, EngineConfig, LogConfig, now_ms
from rmqctl.kafka.engine.engine import KafkaEngine, check_topic
from rmqctl.kafka.producer.bulk import can_bulk, produce_bulk
from rmqctl.kafka.producer.damage import KINDS, damage
from rmqctl.kafka.producer.drafts import Draft, Template, counted, from_jsonl, from_lines
from rmqctl.kafka.producer.produce import (
    BATCH_SIZE,
    MURMUR2,
    TRANSACTIONAL_ID,
    ProduceOptions,
    make_topics,
    room_for,
)
from rmqctl.kafka.producer.produce import produce as put
from rmqctl.kafka.state.parts import SEGMENT_BYTES_LEAST
from rmqctl.producing import Produced, ProduceRequest, source_name
from rmqctl.release import Release

_WORTH_SAYING = 64 << 20
"""Bytes from which on the room that is needed is said before the work."""
_INTERNAL_SINCE = Release(4, 0, 0)
"""The first release that takes segments of less than so many bytes by an internal setting only."""
_SMALL = LogConfig.small()
_ENDINGS = {"commit": "commit", "rollback": "abort", "pending": "open"}


@dataclass(frozen=True, slots=True)
class Asked(ProduceRequest):
    """A request with the options that only Kafka has, or has with RocketMQ.

    Attributes:
        log_file_size: ``segment.bytes`` of topics that are made.
        flush: ``sync``: each batch is on the disk before the next one is appended.
    """

    TARGET: ClassVar[str] = "log directory of Kafka"
    partitioner: str = MURMUR2
    level: int | None = None
    batch_size: int = BATCH_SIZE
    idempotent: bool = False
    transactional_id: str | None = None
    tombstone: bool = False
    compact: bool = False
    log_file_size: int | None = None
    flush: str = "async"

    def __post_init__(self) -> None:
        ProduceRequest.__post_init__(self)
        names = {"--key": self.keys, "--header": self.properties, "--tombstone": self.tombstone}
        used = next((name for name, value in names.items() if value), "")
        if self.jsonl is not None and used:
            raise WrongUsage(used, "cannot be given together with --jsonl, whose objects say it themselves.")
        if len(self.keys) > 1:
            raise WrongUsage("--key", "a record of Kafka has one key; give it once.")
        if self.tombstone and not self.keys:
            raise WrongUsage("--tombstone", "needs --key, whose value it deletes.")
        if self.tombstone and self.sources:
            raise WrongUsage("--tombstone", f"has no value; leave {self.sources[0]} out.")
        if self.compact and not self.keys and self.jsonl is None and self.topics:
            raise WrongUsage("--compact", "needs --key: the records of a compacted topic have one.")
        self._check_batches()
        has_work = bool(self.damage or self.compact) and not self.sources and self.count is None
        if not self.topics and self.jsonl is None and not has_work:
            raise WrongUsage("--topic", "is needed; only --jsonl names topics itself.")

    def _check_batches(self) -> None:
        """Hold what is asked of batches together."""
        if self.transactional_id is not None and not (self.transactional_id and self.transaction):
            raise WrongUsage("--transactional-id", "needs a name, and --transactional.")
        if self.codec == "zlib":
            raise WrongUsage("--codec", "Kafka has no zlib; give gzip, snappy, lz4 or zstd.")
        if self.level is not None and self.codec in (None, "none"):
            raise WrongUsage("--level", "needs --codec.")

    def check(self) -> None:
        """Refuse what cannot be produced, before anything is written.

        Raises:
            WrongUsage: damage that is not known.
            Refused: a topic that brokers do not take, a codec that the release lacks.
        """
        for topic in self.expanded_topics:
            check_topic(topic)
            if topic in INTERNAL_TOPICS:
                raise Refused(f"brokers take no records for {topic} from clients; give another topic")
        self.check_damage(KINDS.parse)
        config = self.config()
        config.check()
        self.options(config.wanted).check(config.wanted)

    def config(self) -> EngineConfig:
        """Return the settings of the engine; where times are made up, all else that is drawn is the seed's."""
        log = replace(LogConfig(), flush_messages=1) if self.flush == "sync" else LogConfig()
        start = self.start_time
        clock: Clock = now_ms if start is None else lambda: start
        return EngineConfig(known_release(self.release), log, clock=clock, seed=None if start is None else self.seed)

    def options(self, release: Release) -> ProduceOptions:
        """How to produce for a release."""
        return ProduceOptions(
            self.expanded_topics, self.queues, self.queue_id, self.partitioner, self.codec or "none", self.level,
            self.batch, self.batch_size, self.idempotent, _ENDINGS.get(self.transaction or "", ""),
            self.transactional_id or TRANSACTIONAL_ID, self.compact, self._settings(release), self.rate,
        )  # fmt: skip

    def _settings(self, release: Release) -> dict[str, str]:
        """Return settings of topics that are made."""
        found = {"cleanup.policy": "compact"} if self.compact else {}
        size = self.log_file_size or (_SMALL.segment_bytes if self.small else None)
        if size is not None:
            is_internal = release >= _INTERNAL_SINCE and size < SEGMENT_BYTES_LEAST
            found["internal.segment.bytes" if is_internal else "segment.bytes"] = str(size)
        if self.small:
            found["segment.index.bytes"] = str(_SMALL.index_bytes)
            found["index.interval.bytes"] = str(_SMALL.index_interval)
        return found

    # --- the records ----------------------------------------------------------------------------------

    @property
    def total(self) -> int | None:
        """How many records there will be; None where nobody knows before."""
        if self.lines is not None or self.jsonl is not None:
            return self.count
        return (1 if self.count is None else self.count) if self.topics else 0

    @property
    def is_counted(self) -> bool:
        """Whether the records are all of one template."""
        return self.lines is None and self.jsonl is None

    def template(self) -> Template:
        """Return what each record has."""
        body = self.body
        if self.body_file is not None:
            body = self.body_file.read().decode("utf-8", "surrogateescape")
        return Template(
            self.keys[0] if self.keys else None, body, self.size, self.properties, self.tombstone, self.start_time,
            1 if self.interval is None else self.interval, self.seed,
        )  # fmt: skip

    def drafts(self, template: Template) -> Iterator[Draft]:
        """Return the records."""
        if self.jsonl is not None:
            found = from_jsonl(self.jsonl, source_name(self.jsonl), needs_topic=not self.topics)
        elif self.lines is not None:
            found = from_lines(template, self.lines, source_name(self.lines))
        else:
            return counted(template, self.total or 0)
        return found if self.count is None else islice(found, self.count)


# --- the work -----------------------------------------------------------------------------------------


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Open the log directory at a path, or make it, and write records into it as its broker would.

    Raises:
        WrongUsage: options do not go together.
        Refused, StoreInUse, IOFailure, TooDamaged: see :meth:`KafkaEngine.open`.
    """
    asked = Asked.of(request)
    asked.check()
    asked.check_there(path)
    template = asked.template()
    answer = Produced(path=str(path), work="Producing", total=asked.total, unit="records")
    if asked.total:
        room = room_for(str(path), template, asked.total)
        room.check(str(path))
        if room.needed >= _WORTH_SAYING:
            answer.remark(f"about {room.needed:,} bytes will be written to {path}; {room.free:,} are free")
    engine = KafkaEngine.open(path, asked.config())
    answer.close = engine.close
    if engine.had_crashed and engine.recovered is not None and engine.recovered.files:
        undo = engine.recovered.undo_command
        answer.remark(f"{path} had crashed; recovered as its broker would; to take that back: {undo}")
    work = _Work(answer, asked, engine, template)
    answer.rows = work.rows() if request.lists else ()
    if not request.lists:
        answer.make = work.run
    return answer


def damages() -> list[Row]:
    """Return the kinds of damage that `produce --format kafka --damage` knows."""
    return KINDS.rows()


@dataclass
class _Work:
    """Writes the records of a request and counts them."""

    answer: Produced
    asked: Asked
    engine: KafkaEngine
    template: Template

    def run(self) -> None:
        """Write everything, many batches at once where they are alike."""
        with self.engine:
            options = self._begin()
            if self.asked.is_counted and can_bulk(self.engine, self.template, options):
                for run in produce_bulk(self.engine, self.template, self.asked.total or 0, options):
                    self.answer.count(set(options.topics), run.records, run.bytes)
            else:
                deque(self._put(options), 0)
            self._end()
        self.answer.harm(self.asked, damage)

    def rows(self) -> Iterator[Row]:
        """Write batch after batch."""
        with self.engine:
            yield from self._put(self._begin())
            self._end()
        self.answer.harm(self.asked, damage)

    def _begin(self) -> ProduceOptions:
        options = self.asked.options(self.engine.release)
        options.check(self.engine.release)
        make_topics(self.engine, options)
        return options

    def _put(self, options: ProduceOptions) -> Iterator[Row]:
        for result in put(self.engine, self.asked.drafts(self.template), options):
            self.answer.count({result.topic}, result.last_offset - result.base_offset + 1, result.size)
            yield result.row()

    def _end(self) -> None:
        if self.asked.compact:
            self.engine.compact(roll=True)
        if self.asked.crash:
            self.engine.crash()
