"""A recovery as the JSON object of the contract, as rows, and as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmqctl.rocketmq.commitlog import CommitLog
from rmqctl.rocketmq.filters import Filter
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.rows.log import LogDump
from rmqctl.text import number_of

Row = dict[str, Any]


def document(found: Recovery) -> Row:
    """The object of ``recover -o json``: sizes in bytes, offsets of queues in messages."""
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
        "redispatched": {"messages": found.redispatched, "index_keys": found.index_keys},
        "queues": {f"{t}/{q}": {"min_offset": low, "max_offset": high} for t, q, low, high in found.ranges()},
    }


def lost(found: Recovery) -> Row:
    """How many messages are given up, their bytes, by topic, and the store times they span in ms."""
    topics = Counter(m.topic or "" for m in found.lost)
    times = [m.store_timestamp for m in found.lost if m.store_timestamp]
    summary: Row = {
        "messages": len(found.lost),
        "bytes": sum(m.size for m in found.lost),
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
    """The messages given up as `dump` shows them, and findings for what can no longer be read.

    Raises:
        OSError: a file cannot be read.
    """
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
        "undispatched": found.undispatched.messages,
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


def sentences(found: Recovery) -> Iterator[str]:
    """The same for people, without the queues."""
    if found.missing is not None:
        yield f"{found.missing.message}. {found.missing.kind.remedy}"
    exit_word = "clean exit" if found.normal else "crash (the file abort is there)"
    yield f"A {found.release} broker starting on this store after a {exit_word}:"
    if found.error is not None:
        yield f"  does not start: {found.error}"
        return
    yield "  starts"
    if found.start_file is not None:
        yield f"  reads the log from {found.start_file}: {number_of(found.records, 'record')}, {found.bytes:,} bytes"
    if found.stopped_by is not None:
        stop = found.stopped_by
        yield f"  stops at byte {stop.offset:,} of {stop.file}: {stop.message} ({stop.kind.id})"
    yield f"  ends the log at {found.end:,}" + ("" if found.end_before else ": there is none")
    yield from _changes(found)
    yield from _losses(found)
    for queue, seconds in found.waits().items():
        yield f"  waits {number_of(seconds, 'second')} for queue {queue}: its last file is never full, and has no room"
    entries = "1 index entry" if found.index_keys == 1 else f"{found.index_keys:,} index entries"
    yield f"  dispatches {number_of(found.redispatched, 'queue unit')} and {entries} again"


def _changes(found: Recovery) -> Iterator[str]:
    for what, names in (("deletes", found.deleted), ("deletes the index file", sorted(found.index_deleted))):
        for name in names:
            yield f"  {what} {name}"
    for cut in found.cuts:
        yield f"  cuts {cut.file} at byte {cut.to_size:,}; what lies behind no longer counts"


def _losses(found: Recovery) -> Iterator[str]:
    total, left = lost(found), undispatched(found)
    if not found.lost:
        yield "  loses no message" + (" of the log" if left["messages"] else "")
    else:
        yield f"  LOSES {number_of(total['messages'], 'message')}, {total['bytes']:,} bytes:"
        yield from _by_topic(total)
    if left["messages"]:
        count = number_of(left["messages"], "message")
        yield f"  NEVER DISPATCHES {count}, {left['bytes']:,} bytes: they stay in the log, and no consumer gets them:"
        yield from _by_topic(left)


def _by_topic(summary: Row) -> Iterator[str]:
    for topic, count in summary["by_topic"].items():
        yield f"    {count:>8,}  {topic}"
