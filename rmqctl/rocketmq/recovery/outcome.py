"""What a replay of recovery found: the state after the broker's start, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.index_image import IndexImage
from rmqctl.rocketmq.recovery.queue_image import CutFile, QueueImage
from rmqctl.rocketmq.store import StoreFile


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that the store holds and the broker gives up.

    Attributes:
        physical: offset in the log, bytes; size: of its record.
        topic, queue_id, store_timestamp: as far as they can be read.
    """

    physical: int
    size: int
    topic: str | None
    queue_id: int | None
    store_timestamp: int | None


@dataclass(slots=True)
class Undispatched:
    """Messages that the log keeps and no queue gets: consumers never see them.

    Attributes:
        by_topic: how many; bytes: of their records.
        first, last: store times, ms; 0 without one.
    """

    by_topic: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    first: int = 0
    last: int = 0

    @property
    def messages(self) -> int:
        """How many of all topics."""
        return self.by_topic.total()


@dataclass(slots=True)
class Recovery:
    """One broker start.

    Attributes:
        release: whose rules were followed; normal: after a clean exit.
        error: why the broker does not start or never finishes; None when it starts.
        log_begin, end_before: physical offsets of the first byte of the log and behind its last file.
        end: physical offset behind the log afterwards; None when the broker does not start.
        stopped_by: the record at which the scan stopped, where that is damage.
        missing: that there is no log although there were messages; None where there is one.
        start_file, scanned_files: where the scan of the log began and what it went through.
        records, bytes: what the scan accepted; last_store_timestamp: of the last of it, ms.
        log_cut: where the broker cuts the log; None without a log.
        deleted: names of files that are gone afterwards, index files apart.
        cuts: files whose end moves.
        index_deleted: names of index files that loading deletes.
        never_dispatched: physical offsets between which messages get no queue unit: the first of it and behind it.
        lost: messages given up, ascending by offset; undispatched: messages kept that no queue gets.
        redispatched: units appended to queues; index_keys: index entries made.
        images: every queue as it is afterwards; index: the index, where it was to be built.
        log_files: the files of the log that the broker loads.
    """

    release: Release
    normal: bool
    error: str | None = None
    log_begin: int = 0
    end_before: int = 0
    end: int | None = None
    stopped_by: Finding | None = None
    missing: Finding | None = None
    start_file: str | None = None
    scanned_files: list[str] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    last_store_timestamp: int = 0
    log_cut: int | None = None
    deleted: list[str] = field(default_factory=list)
    cuts: list[CutFile] = field(default_factory=list)
    index_deleted: list[str] = field(default_factory=list)
    never_dispatched: tuple[int, int] = (0, 0)
    lost: list[LostMessage] = field(default_factory=list)
    undispatched: Undispatched = field(default_factory=Undispatched)
    redispatched: int = 0
    index_keys: int = 0
    images: list[QueueImage] = field(default_factory=list)
    index: IndexImage | None = None
    log_files: list[StoreFile] = field(default_factory=list)

    @property
    def starts(self) -> bool:
        """The broker comes up."""
        return self.error is None

    @property
    def is_harmless(self) -> bool:
        """The broker starts, has its log, and no message is lost or kept from the consumers."""
        return self.starts and self.missing is None and not self.lost and not self.undispatched.messages

    def waits(self) -> dict[str, int]:
        """Seconds that the start waits for queues that cannot take units, by queue: one for each unit."""
        return {f"{i.key[1]}/{i.key[2]}": len(i.refused) for i in self.images if i.refused and self.starts}

    def ranges(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first offset and next offset of every queue that is not new, by topic and id."""
        for image in sorted(self.images, key=lambda i: i.key[1:]):
            if self.starts and image.max_offset > 0:
                yield image.key[1], image.key[2], image.min_offset, image.max_offset
