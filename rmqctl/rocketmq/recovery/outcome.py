"""What a replay of recovery found: the state after the broker's start, and what it cost, as the JSON object of the
contract, as rows, and as sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqctl.rocketmq.store.files import QUEUES, StoreFile
from rmqctl.text import first_lines, number_of

if TYPE_CHECKING:
    from rmqctl.findings import Finding
    from rmqctl.foresight import Statement
    from rmqctl.release import Release
    from rmqctl.rocketmq.recovery.databases import DatabaseStart
    from rmqctl.rocketmq.recovery.images import CutFile, IndexImage, QueueImage


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


@dataclass(frozen=True, slots=True)
class SecondStart:
    """Where the start after a clean stop of the started broker cuts the log, which the start itself does not read, or
    queues, which it leaves.

    Attributes:
        file: of the log or the first queue; position: byte in it; cut: physical offset.
        reason: what is wrong there, one sentence without a full stop.
        lost: messages given up then, ascending by offset.
    """

    file: str
    position: int
    cut: int
    reason: str
    lost: list[LostMessage]

    @property
    def is_queue(self) -> bool:
        """Whether queues are cut, and not the log."""
        return self.file.startswith(f"{QUEUES}/")


@dataclass(slots=True)
class Recovery:
    """One broker start.

    Attributes:
        release: whose rules were followed; normal: after a clean exit.
        error: why the broker does not start or never finishes; None when it starts.
        log_begin, end_before: physical offsets of the first byte of the log and after its last file.
        end: physical offset after the log afterwards; None when the broker does not start.
        stopped_by: the record at which the scan stopped, where that is damage.
        missing: that there is no log although there were messages; None where there is one.
        start_file, scanned_files: where the scan of the log began and what it went through.
        records, bytes: what the scan accepted; last_store_timestamp: of the last of it, ms.
        log_cut: where the broker cuts the log; None without a log.
        deleted: names of files that are gone afterwards, index files apart.
        cuts: files whose end moves.
        index_deleted: names of index files that loading deletes.
        never_dispatched: physical offsets between which messages get no queue unit: the first of it and after it.
        lost: messages given up, ascending by offset; undispatched: messages kept that no queue gets.
        redispatched: units appended to queues; index_keys: index entries made.
        images: every queue as it is afterwards; index: the index, where it was to be built.
        log_files: the files of the log that the broker loads.
        databases: what is written into RocksDB, where that was asked; dispatched_from: physical offset from which on
            records are dispatched to it, where they are not there yet.
        emptied: databases in whose place the start makes empty ones, deleting their tables.
        unknown_topics: topics with messages that the configuration does not name: the broker serves none of them.
        second: what the start after that one cuts; None where it finds what this one leaves.
        unread: parts of the store that the release does not know.
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
    databases: list[DatabaseStart] = field(default_factory=list)
    dispatched_from: int = 0
    emptied: list[str] = field(default_factory=list)
    unknown_topics: list[str] = field(default_factory=list)
    second: SecondStart | None = None
    unread: list[Statement] = field(default_factory=list)

    @property
    def starts(self) -> bool:
        """The broker comes up."""
        return self.error is None

    @property
    def is_harmless(self) -> bool:
        """The broker starts, has its log, no message is lost or kept from the consumers, and no database emptied; nor
        does the start after it cut the log.
        """
        whole = self.missing is None and not self.emptied and not self.unknown_topics and self.second is None
        whole = whole and not self.unread_harms
        return self.starts and whole and not self.lost and not self.undispatched.messages and not self.shifts()

    @property
    def unread_harms(self) -> list[Statement]:
        """Parts that the release does not know, and without which something is missed."""
        return [part for part in self.unread if part.harms]

    def harm(self, of: str) -> str:
        """What the start changes for the worse, one phrase; "" where it is harmless.

        Args:
            of: what the broker starts on, such as "the result".
        """
        broker = f"a broker of {self.release} would"
        if self.error is not None:
            return f"{broker} not start on {of}: {self.error}"
        found = []
        if self.missing is not None:
            found.append(f"start empty: {self.missing.message}")
        if self.lost:
            found.append(f"cut {number_of(len(self.lost), 'message')} off {of}, the first at {self.lost[0].physical}")
        if self.second is not None:
            count = number_of(len(self.second.lost), "message")
            begin = self.second.lost[0].physical if self.second.is_queue else self.second.cut
            found.append(f"cut {count} off {of} when it is started once more, the first at {begin}")
        if self.undispatched.messages:
            found.append(f"never give consumers {number_of(self.undispatched.messages, 'message')} of {of}")
        if shifts := self.shifts():
            count = number_of(sum(one["messages"] for one in shifts.values()), "message")
            queue, first = next(iter(shifts.items()))
            found.append(
                f"number {count} wrong, the first of queue {queue} {first['placed']} instead of {first['stated']}"
            )
        if self.unserved:
            found.append(f"serve {self.unserved}")
        if harms := self.unread_harms:
            found.append(f"do without {_some([part.about for part in harms])}")
        if self.emptied:
            found.append(f"make empty databases in the place of {_some(self.emptied)}")
        return f"{broker} {', '.join(found)}" if found else ""

    @property
    def unserved(self) -> str:
        """Of which topics a broker serves nothing, one phrase; "" for none."""
        names = _some(self.unknown_topics) if self.unknown_topics else ""
        return f"nothing of topics that its configuration does not name: {names}" if names else ""

    @property
    def removes(self) -> bool:
        """Whether anything goes: files, ends of files, messages or rows."""
        return any((self.deleted, self.index_deleted, self.cuts, self.lost, self.emptied, self.stopped_by))

    def refuse(self, error: str) -> None:
        """Note what keeps the broker from starting that shows only once the log is read; empty: nothing."""
        if error:
            self.error, self.end, self.lost, self.databases = error, None, [], []

    def shifts(self) -> dict[str, Row]:
        """What gets other queue offsets than it was stored with, by queue: messages, and the first of them."""
        return {
            f"{i.key[1]}/{i.key[2]}": {"messages": i.shifted, "stated": i.shift.stated, "placed": i.shift.placed}
            for i in self.images
            if i.shift is not None and self.starts
        }

    def waits(self) -> dict[str, int]:
        """Seconds that the start waits for queues that cannot take units, by queue: one for each unit."""
        return {f"{i.key[1]}/{i.key[2]}": len(i.refused) for i in self.images if i.refused and self.starts}

    def ranges(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first offset and next offset of every queue that is not new, by topic and id."""
        for image in sorted(self.images, key=lambda i: i.key[1:]):
            if self.starts and image.max_offset > 0:
                yield image.key[1], image.key[2], image.min_offset, image.max_offset


_NAMED = 3


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- a recovery as the json object of the contract --------------------------------------------------


Row = dict[str, Any]


HEADER = """
    release mode starts error log stopped_by scan deleted_files cut_files index_deleted lost undispatched waits
    renumbered unknown_topics second_start unread redispatched databases queues
"""
"""Every key that the object may have, in order."""


def document(found: Recovery) -> Row:
    """Return the object of ``recover -o json``: sizes in bytes, offsets of queues in messages."""
    return {
        "release": str(found.release),
        "mode": "normal" if found.normal else "abnormal",
        "starts": found.starts,
        "error": found.error,
        "log": {"min_offset": found.log_begin, "end_before": found.end_before, "end": found.end},
        "stopped_by": stop.row() if (stop := found.stopped_by or found.missing) else None,
        "scan": {"start_file": found.start_file, "records": found.records, "bytes": found.bytes},
        "deleted_files": found.deleted if found.starts else [],
        "cut_files": [{"file": c.file, "from": c.from_size, "to": c.to_size} for c in found.cuts],
        "index_deleted": sorted(found.index_deleted),
        "lost": lost(found),
        "undispatched": undispatched(found),
        "waits": {"seconds": sum(found.waits().values()), "by_queue": found.waits()},
        **({"renumbered": found.shifts()} if found.shifts() else {}),
        **({"unknown_topics": found.unknown_topics} if found.unknown_topics else {}),
        **({"second_start": _second(found.second)} if found.second is not None else {}),
        **({"unread": [part.row() for part in found.unread]} if found.unread and found.starts else {}),
        "redispatched": {"messages": found.redispatched, "index_keys": found.index_keys},
        **({"databases": [start.row() for start in found.databases]} if found.databases else {}),
        "queues": {f"{t}/{q}": {"min_offset": low, "max_offset": high} for t, q, low, high in found.ranges()},
    }


def lost(found: Recovery) -> Row:
    """How many messages are given up, their bytes, by topic, and the store times they span in ms."""
    return _sum(found.lost)


def _second(second: SecondStart) -> Row:
    return {
        "file": second.file,
        "offset": second.position,
        "log_end": second.cut,
        "reason": second.reason,
        "lost": _sum(second.lost),
    }


def _sum(messages: Sequence[LostMessage]) -> Row:
    topics = Counter(m.topic or "" for m in messages)
    times = [m.store_timestamp for m in messages if m.store_timestamp]
    summary: Row = {
        "messages": len(messages),
        "bytes": sum(m.size for m in messages),
        "by_topic": dict(sorted(topics.items())),
    }
    if times:
        summary |= {"first_store_timestamp": min(times), "last_store_timestamp": max(times)}
    return summary


def undispatched(found: Recovery) -> Row:
    """How many messages stay in the log and get into no queue, in the form of :func:`lost`."""
    left = found.undispatched
    summary: Row = {
        "messages": left.messages,
        "bytes": left.bytes,
        "by_topic": dict(sorted(left.by_topic.items())),
    }
    if left.last:
        summary |= {"first_store_timestamp": left.first, "last_store_timestamp": left.last}
    return summary


def lost_rows(found: Recovery) -> Iterator[Row]:
    """Yield the messages given up as `dump` shows them, and findings for what can no longer be read."""
    from rmqctl.rocketmq.dump.log import LogDump
    from rmqctl.rocketmq.log.commitlog import CommitLog
    from rmqctl.rocketmq.log.filters import Filter

    if found.log_cut is None or not found.lost:
        return
    log = CommitLog(found.log_files, crashed=True)
    for row in LogDump(log, Filter(from_offset=found.log_cut)).rows():
        if row["kind"] != "blank":
            yield row


def comparison(found: Recovery) -> Row:
    """One line of a comparison of releases."""
    return {
        "release": str(found.release),
        "starts": found.starts,
        "scan_from": found.start_file,
        "log_end": found.end,
        "lost_messages": len(found.lost),
        "lost_later": len(found.second.lost) if found.second is not None else 0,
        "undispatched": found.undispatched.messages,
        "does_without": len(found.unread_harms),
        "deleted_files": len(found.deleted) if found.starts else 0,
        "index_deleted": len(found.index_deleted),
        "redispatched": found.redispatched,
        "error": found.error,
    }


def queue_rows(found: Recovery) -> list[Row]:
    """Every queue after the start."""
    return [
        {"topic": topic, "queue_id": queue, "min_offset": low, "max_offset": high}
        for topic, queue, low, high in found.ranges()
    ]


def sentences(found: Recovery, *, every: bool = True) -> Iterator[str]:
    """Yield the same for people, without the queues: what it costs, then what is read, deleted and cut.

    Args:
        every: also each of many files that are deleted or cut.
    """
    if found.missing is not None:
        yield f"{found.missing.message}. {found.missing.kind.remedy}"
    exit_word = "clean exit" if found.normal else "crash (the file abort is there)"
    yield f"A {found.release} broker starting on this store after a {exit_word}:"
    if found.error is not None:
        yield f"  does not start: {found.error}"
        return
    yield "  starts"
    yield from _losses(found)
    yield from _harms(found)
    if found.start_file is not None:
        yield f"  reads the log from {found.start_file}: {number_of(found.records, 'record')}, {found.bytes:,} bytes"
    if found.stopped_by is not None:
        stop = found.stopped_by
        yield f"  stops at byte {stop.offset:,} of {stop.file}: {stop.message} ({stop.kind.id})"
    yield f"  ends the log at {found.end:,}" + ("" if found.end_before else ": there is none")
    yield from first_lines(list(_changes(found)), every=every)
    for queue, seconds in found.waits().items():
        yield f"  waits {number_of(seconds, 'second')} for queue {queue}: its last file is never full, and has no room"
    entries = "1 index entry" if found.index_keys == 1 else f"{found.index_keys:,} index entries"
    yield f"  dispatches {number_of(found.redispatched, 'queue unit')} and {entries} again"
    yield from (f"  {start.sentence()}" for start in found.databases if start.says_something)


def _harms(found: Recovery) -> Iterator[str]:
    if found.unknown_topics:
        yield f"  SERVES NOTHING of topics that its configuration does not name: {', '.join(found.unknown_topics)}"
    for part in found.unread_harms:
        yield f"  DOES WITHOUT {part.about}: {part.message}"
    for queue, shift in found.shifts().items():
        yield (
            f"  NUMBERS {number_of(shift['messages'], 'message')} of queue {queue} WRONG: {shift['stated']} becomes "
            f"{shift['placed']}; consumers read some again or never"
        )


def _changes(found: Recovery) -> Iterator[str]:
    for what, names in (("deletes", found.deleted), ("deletes the index file", sorted(found.index_deleted))):
        for name in names:
            yield f"{what} {name}"
    for cut in found.cuts:
        yield f"cuts {cut.file} at byte {cut.to_size:,}; what lies after it no longer counts"


def _losses(found: Recovery) -> Iterator[str]:
    total, left = lost(found), undispatched(found)
    if not found.lost:
        yield "  loses no message" + (" of the log" if left["messages"] else "") + (" yet" if found.second else "")
    else:
        yield f"  LOSES {number_of(total['messages'], 'message')}, {total['bytes']:,} bytes:"
        yield from _by_topic(total)
    if found.second is not None:
        then, place = _sum(found.second.lost), f"byte {found.second.position:,} of {found.second.file}"
        yield f"  LOSES {number_of(then['messages'], 'message')}, {then['bytes']:,} bytes, at the start after that:"
        what = "cuts queues, the first" if found.second.is_queue else "reads the log from an earlier file, and cuts it"
        yield f"    after a clean stop it {what} at {place}:"
        yield f"    {found.second.reason}"
        yield from _by_topic(then)
    if left["messages"]:
        count = number_of(left["messages"], "message")
        yield f"  NEVER DISPATCHES {count}, {left['bytes']:,} bytes: they stay in the log, and no consumer gets them:"
        yield from _by_topic(left)


def _by_topic(summary: Row) -> Iterator[str]:
    for topic, count in summary["by_topic"].items():
        yield f"    {count:>8,}  {topic}"
