"""What an engine needs to know that the files do not say: sizes, limits, flushing, release, hosts, and where store
times come from.

Times are those of the machine's clock, or made up, in order. The rules of dispatch follow from the settings.
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from formats.rocketmq.tags_code import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqctl.errors import Refused
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.engine.topic_table import TopicTable
from rmqctl.rocketmq.state.releases import NEWEST
from rmqctl.rocketmq.store.geometry import (
    BATCH_QUEUE_FILE_SIZE,
    BATCH_UNIT_SIZE,
    COMMIT_LOG_FILE_SIZE,
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY,
    HEADER,
    QUEUE_EXT_FILE_SIZE,
    QUEUE_FILE_SIZE,
    QUEUE_UNIT_SIZE,
    SLOT_SIZE,
    TIMER_LOG_FILE_SIZE,
)


class Clock(Protocol):
    """Gives times in epoch milliseconds."""

    def stamp(self) -> int:
        """Return the store time of the next record; asked once a record, or once a batch, under the append lock."""
        ...

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        """Store times of the next records together, shape (count,)."""
        ...

    def now(self) -> int:
        """Return the time now, without moving it."""
        ...


class SystemClock:
    """The clock of this machine."""

    def stamp(self) -> int:
        return time.time_ns() // 1_000_000

    now = stamp

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        return np.full(count, self.now())


@dataclass(slots=True)
class ForwardClock(SystemClock):
    """The clock of this machine, but never before a time.

    Attributes:
        earliest: that time, ms; after the last record of a store whose clock was ahead.
    """

    earliest: int = 0

    def now(self) -> int:
        return max(time.time_ns() // 1_000_000, self.earliest)

    stamp = now

    def not_before(self, last: int) -> bool:
        """Give times after this one, ms, if it is later than now; whether it is."""
        is_later = last > self.now()
        if is_later:
            self.earliest = last + 1
        return is_later


@dataclass(slots=True)
class MadeUpClock:
    """A clock that stands still but for a fixed step with each record.

    Attributes:
        time: store time of the next record, ms.
        interval: ms between one record and the next.
    """

    time: int
    interval: int = 0

    def stamp(self) -> int:
        found, self.time = self.time, self.time + self.interval
        return found

    def stamps(self, count: int) -> npt.NDArray[np.int64]:
        first, self.time = self.time, self.time + count * self.interval
        return first + np.arange(count) * self.interval

    def now(self) -> int:
        return self.time

    def not_before(self, last: int) -> bool:
        """Go on after this time, ms, if it is later than the next; whether it is."""
        is_later = last > self.time
        if is_later:
            self.time = last + max(self.interval, 1)
        return is_later


# --- what an engine needs to know that the files do not say -----------------------------------------


class FlushMode(StrEnum):
    """flushDiskType."""

    SYNC = "sync"
    ASYNC = "async"


IPV4_SIZE, _V6_SIZE = 4, 16


@dataclass(frozen=True, slots=True)
class Host:
    """An address and port as records hold them (spec 2.4)."""

    ip: bytes
    port: int

    @classmethod
    def parse(cls, text: str) -> Host:
        """``127.0.0.1:10911`` or ``[2001:db8::1]:10911``.

        Raises:
            ValueError: no address, or no port.
        """
        address, _, port = text.rpartition(":")
        number = int(port)
        if not 0 <= number < 1 << 31:
            raise ValueError(f"{port} is no port")
        return cls(ipaddress.ip_address(address.strip("[]")).packed, number)

    @property
    def is_v6(self) -> bool:
        return len(self.ip) == _V6_SIZE


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of an engine; defaults are the broker's.

    Attributes:
        release: whose forms are written: property text, files of the root, limits.
        log_start: where the log of a new store begins, a multiple of the size of its files. Above 0, brokers take the
            filler units of queues that do not begin at offset 0 for expired; at 0 for a record that consumers wait for.
        commit_log_paths: directories of the log, relative to the root or absolute; several for a multi-path log.
        store_host: brokerIP1 and listenPort.
        flush: sync answers a writer only when its bytes are on the disk.
        *_ms, *_pages: intervals in ms and least dirty pages (4 KiB) of the flush and commit services (spec 7).
        transient_pool: records wait in memory until the commit service writes them (transientStorePoolEnable).
        max_message_size: bytes of a body (maxMessageSize).
        property_crc: end each record with ``__CRC32#`` (enabledAppendPropCRC).
        index: write index files (messageIndexEnable).
        queue_ext: write the queue extension (enableConsumeQueueExt).
        multi_dispatch: serve INNER_MULTI_DISPATCH (enableMultiDispatch, enableLmq).
        delay_levels: messageDelayLevel.
        timer: serve TIMER_* properties with the timer wheel (timerWheelEnable); 5.0.0 and later.
        timer_precision_ms, timer_max_delay_sec, timer_roll_slots: timerPrecisionMs and its companions.
        reserved_hours: fileReservedTime.
        housekeeping: while it runs, deliver what is due and delete old files on the broker's schedule, and refuse
            messages when the disk is nearly full; without it, only when asked.
        delete_when: hours of the day, local time, in which old files are deleted: ``04`` or ``04;16`` (deleteWhen).
        disk_max_used: used part of a disk from which on old files are deleted at any hour (diskMaxUsedSpaceRatio).
        disk_clean_forcibly, disk_warning: used parts of a disk from which on files are deleted whatever their age
            (diskSpaceCleanForciblyRatio), and from which on messages are refused (diskSpaceWarningLevelRatio).
        clean_forcibly: the first of these two is in force (cleanFileForciblyEnable).
        cluster, region: what the broker adds to properties.
        default_queues: queues of a topic that is made on its first message.
        services: run the background threads; without them the caller flushes and dispatches.
        process_id: what ``abort`` says; default: of this process.
    """

    release: Release = NEWEST
    commit_log_file_size: int = COMMIT_LOG_FILE_SIZE
    queue_file_size: int = QUEUE_FILE_SIZE
    queue_ext_file_size: int = QUEUE_EXT_FILE_SIZE
    batch_queue_file_size: int = BATCH_QUEUE_FILE_SIZE
    timer_log_file_size: int = TIMER_LOG_FILE_SIZE
    index_slots: int = DEFAULT_SLOTS
    index_entries: int = DEFAULT_ENTRIES
    log_start: int = 0
    commit_log_paths: tuple[str, ...] = ()
    store_host: Host = Host(b"\x7f\0\0\1", 10911)
    flush: FlushMode = FlushMode.ASYNC
    sync_flush_timeout_ms: int = 5000
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    transient_pool: bool = False
    commit_interval_ms: int = 200
    commit_least_pages: int = 4
    commit_thorough_interval_ms: int = 200
    max_message_size: int = 4 << 20
    property_crc: bool = False
    index: bool = True
    queue_ext: bool = False
    multi_dispatch: bool = False
    delay_levels: str = DEFAULT_DELAY_LEVELS
    timer: bool = False
    timer_precision_ms: int = 1000
    timer_max_delay_sec: int = 3 * 86400
    timer_roll_slots: int = 2 * 86400
    reserved_hours: int = 72
    housekeeping: bool = False
    delete_when: str = "04"
    disk_max_used: float = 0.75
    disk_clean_forcibly: float = 0.85
    disk_warning: float = 0.90
    clean_forcibly: bool = True
    cluster: str = "DefaultCluster"
    region: str = "DefaultRegion"
    default_queues: int = 8
    services: bool = True
    process_id: int | None = None
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def small(cls, **changes: object) -> StoreConfig:
        """Files of tens of KiB, so that files roll within a demo."""
        return replace(cls(**_SMALL), **changes)  # type: ignore[arg-type]

    def valid(self) -> StoreConfig:
        """Return the settings with queue files of whole units, as a broker rounds them up.

        Raises:
            Refused: a size that no broker can have, as its files are at most 2 GiB long.
        """
        index = INDEX_HEAD + INDEX_SLOT * self.index_slots + INDEX_ENTRY * self.index_entries
        sizes = {"index file": index} | {name.replace("_", " "): getattr(self, name) for name in _FILE_SIZES}
        for name, size in sizes.items():
            if not 0 < size < _MOST_BYTES:
                raise Refused(
                    f"{name} of {size:,} bytes: brokers' files have 1 to {_MOST_BYTES - 1:,}; give another size"
                )
        return replace(
            self,
            queue_file_size=-(-self.queue_file_size // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE,
            batch_queue_file_size=-(-self.batch_queue_file_size // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE,
        )

    @property
    def is_5(self) -> bool:
        """Whether the rules of 5.x apply."""
        return self.release >= Release(5, 0, 0)

    @property
    def waits_in_memory(self) -> bool:
        """Records wait for one write of many: with a transient pool, and with sync flush, where all wait anyway."""
        return self.transient_pool or self.flush is FlushMode.SYNC


_FILE_SIZES = (
    "commit_log_file_size", "queue_file_size", "queue_ext_file_size", "batch_queue_file_size", "timer_log_file_size",
)  # fmt: skip
_MOST_BYTES = 1 << 31
INDEX_HEAD, INDEX_SLOT, INDEX_ENTRY = HEADER.packer.size, SLOT_SIZE, ENTRY.packer.size
_SMALL: dict[str, int] = {
    "commit_log_file_size": 64 << 10,
    "queue_file_size": 2000,
    "queue_ext_file_size": 4096,
    "batch_queue_file_size": 4600,
    "timer_log_file_size": 52 * 200 + 16,
    "index_slots": 500,
    "index_entries": 1000,
    "max_message_size": 32 << 10,
}


# --- the dispatch rules that follow from an engine's settings ---------------------------------------


def dispatch_rules(config: StoreConfig, topics: TopicTable, shown: DispatchRules | None) -> DispatchRules:
    """Rules for a store that is written as ``config`` says.

    Args:
        shown: what the store itself shows, where there is one: its batch topics stay so.
    """
    batch = frozenset(t.encode("utf-8", "surrogateescape") for t in topics.topics if topics.is_batch(t))
    if shown is not None:
        batch |= shown.batch_topics
    return replace(
        DispatchRules(config.release),
        delays=parse_delay_levels(config.delay_levels),
        multi_dispatch=config.multi_dispatch,
        lmq=config.multi_dispatch,
        extension=config.queue_ext,
        batch_topics=batch,
    )
