"""Settings of a log directory's writer, with the names and defaults of the broker (LogConfig, ServerConfigs)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from formats.kafka.record_batch import Codec
from rmqctl.errors import Refused
from rmqctl.kafka.directory.releases import COMPARED
from rmqctl.release import Release

PER_BATCH_SINCE = Release(4, 1, 0)
"""The first release that indexes each batch of an append; those before index an append as a whole (spec 7.2)."""
ZSTD_SINCE = Release(2, 1, 0)
MAGIC_2_SINCE = Release(0, 11, 0)
COMPACT, DELETE = "compact", "delete"
_DAY_MS = 86_400_000
_UNLIMITED = (1 << 63) - 1
Clock = Callable[[], int]


def now_ms() -> int:
    """Return the time, epoch ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How the log of a partition is kept; names in brackets are those of the topic's settings.

    Attributes:
        segment_bytes, segment_ms, jitter_ms: when a segment is rolled (segment.bytes, segment.ms, segment.jitter.ms).
        index_bytes, index_interval: room of an index, bytes of log between entries (segment.index.bytes,
            index.interval.bytes).
        max_message_bytes: of a batch (max.message.bytes).
        flush_messages, flush_ms: after how many records and how long bytes go to the disk; None: when the system
            likes (flush.messages, flush.ms).
        retention_ms, retention_bytes: -1 for no limit (retention.ms, retention.bytes).
        policies: ``delete``, ``compact`` or both (cleanup.policy).
        delete_retention_ms: how long tombstones stay (delete.retention.ms).
        min_lag_ms, max_lag_ms: of compaction (min.compaction.lag.ms, max.compaction.lag.ms).
        append_time: records get the time at which they are appended (message.timestamp.type).
        preallocate: a new segment has its full length at once, and is trimmed when it ends (preallocate).
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    jitter_ms: int = 0
    index_bytes: int = 10 << 20
    index_interval: int = 4096
    max_message_bytes: int = (1 << 20) + 12
    flush_messages: int | None = None
    flush_ms: int | None = None
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    policies: frozenset[str] = frozenset({DELETE})
    delete_retention_ms: int = _DAY_MS
    min_lag_ms: int = 0
    max_lag_ms: int = _UNLIMITED
    append_time: bool = False
    preallocate: bool = False

    @classmethod
    def small(cls) -> LogConfig:
        """Small segments and indexes, so that both roll and have entries soon."""
        return cls(segment_bytes=64 << 10, index_bytes=4 << 10, index_interval=1 << 10)

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.policies

    @property
    def roll_ms(self) -> int:
        """After how long a segment is rolled: that of a compacted topic not later than it must be compacted."""
        return min(self.max_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    def with_settings(self, topic: Mapping[str, str], broker: Mapping[str, str] | None = None) -> LogConfig:
        """Return these settings changed by those of a topic, and of the broker for what the topic does not say."""
        found: dict[str, int] = {}
        for name, (names, of_broker) in _SETTINGS.items():
            given = [topic[n] for n in names if n in topic] + [
                (broker or {})[n] for n in of_broker if n in (broker or {})
            ]
            number = next((int(text) for text in given if text.lstrip("-").isdigit()), None)
            if number is not None:
                found[name] = number
        policy = topic.get("cleanup.policy") or (broker or {}).get("log.cleanup.policy")
        policies = frozenset(p.strip() for p in policy.split(",")) if policy else self.policies
        stamp = topic.get("message.timestamp.type") or (broker or {}).get("log.message.timestamp.type")
        append_time = self.append_time if stamp is None else stamp == "LogAppendTime"
        ahead = topic.get("preallocate") or (broker or {}).get("log.preallocate")
        preallocate = self.preallocate if ahead is None else ahead.strip().lower() == "true"
        return replace(self, **found, policies=policies, append_time=append_time, preallocate=preallocate)


_SETTINGS = {
    "segment_bytes": (("internal.segment.bytes", "segment.bytes"), ("log.segment.bytes",)),
    "segment_ms": (("segment.ms",), ("log.roll.ms",)),
    "jitter_ms": (("segment.jitter.ms",), ("log.roll.jitter.ms",)),
    "index_bytes": (("segment.index.bytes",), ("log.index.size.max.bytes",)),
    "index_interval": (("index.interval.bytes",), ("log.index.interval.bytes",)),
    "max_message_bytes": (("max.message.bytes",), ("message.max.bytes",)),
    "flush_messages": (("flush.messages",), ("log.flush.interval.messages",)),
    "flush_ms": (("flush.ms",), ("log.flush.interval.ms",)),
    "retention_ms": (("retention.ms",), ("log.retention.ms",)),
    "retention_bytes": (("retention.bytes",), ("log.retention.bytes",)),
    "delete_retention_ms": (("delete.retention.ms",), ("log.cleaner.delete.retention.ms",)),
    "min_lag_ms": (("min.compaction.lag.ms",), ("log.cleaner.min.compaction.lag.ms",)),
    "max_lag_ms": (("max.compaction.lag.ms",), ("log.cleaner.max.compaction.lag.ms",)),
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a log directory is written.

    Attributes:
        release: whose broker the directory is for; None: the one that it shows, else the newest known.
        log: of every topic, as far as the cluster's metadata does not say otherwise.
        broker: settings of the broker, as in server.properties.
        clock: the time, epoch ms.
        seed: ids of what is made are drawn from it; None: at random.
        cluster: make the files of a KRaft node in a new directory, so that a broker starts on it.
    """

    release: Release | None = None
    log: LogConfig = LogConfig()
    broker: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = now_ms
    seed: int | None = None
    cluster: bool = True

    @property
    def wanted(self) -> Release:
        """The release for a new directory."""
        return self.release or COMPARED[-1]

    @property
    def for_recovery(self) -> Mapping[str, str]:
        """Settings of the broker that is started: indexes are made again as this engine makes them."""
        indexes = {
            "log.index.interval.bytes": self.log.index_interval,
            "log.index.size.max.bytes": self.log.index_bytes,
        }
        return {name: str(value) for name, value in indexes.items()} | dict(self.broker)

    def check(self) -> None:
        """Hold the settings to the release.

        Raises:
            Refused: the release has no batches of magic 2.
        """
        if self.wanted < MAGIC_2_SINCE:
            raise Refused(
                f"brokers of {self.wanted} know no record batches, only older messages, which are not written; "
                f"use --as-release {MAGIC_2_SINCE} or later"
            )


def check_codec(codec: int, release: Release) -> None:
    """
    Raises:
        Refused: brokers of the release do not know the codec.
    """
    if codec == Codec.ZSTD and release < ZSTD_SINCE:
        raise Refused(f"brokers of {release} know no zstd; use --codec lz4, or --as-release {ZSTD_SINCE} or later")
