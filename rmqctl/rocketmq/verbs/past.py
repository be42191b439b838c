"""The rows of `topics` and `lag` and the document of `info` as they were at a time, made as those of now are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rmqctl import questions
from rmqctl.answer import Answer
from rmqctl.filters import Names
from rmqctl.past import DAMAGE, GONE, NOT_NOTED, RETENTION, Past, said_time
from rmqctl.rocketmq.dispatch.past import LogThen, is_now, log_at
from rmqctl.rocketmq.dispatch.queue_ends import QueueRow
from rmqctl.rocketmq.query.lag import with_lite_topics
from rmqctl.rocketmq.recovery.queue_ends import ends_at
from rmqctl.rocketmq.store.files import LIGHT, StoreFiles
from rmqctl.rocketmq.verbs.common import no_queue

BOUNDS = ("end_at_least", "end_at_most")
"""Keys that the rows of `topics` have when they are of a time."""
Fields = dict[str, Any]
_OF_QUEUE = (
    "min_offset",
    "max_offset",
    "messages",
    "bytes",
    "first_store_timestamp",
    "last_store_timestamp",
    *BOUNDS,
)
_ENDS = ("max_offset", *BOUNDS)
_OF_LITE = ("expires_timestamp", "groups")
_OF_GROUP = (
    "consumer_offset",
    "lag",
    "lag_bytes",
    "lag_ms",
    "anomaly",
    "last_consumed_timestamp",
    "next_store_timestamp",
    "file",
)
"""What is unknown where nothing is known of a queue, a lite topic or a group."""
NOT_SHOWN = "queues that were deleted since, and whose messages were deleted with the begin of the log, are not shown"


def add_past(answer: Answer, is_of_queues: bool) -> None:
    """Add the keys that rows of a time have to the header and the columns."""
    more = BOUNDS if is_of_queues else ()
    answer.header = [*(answer.header or ()), *more, "unknown"]
    if answer.columns is not None:
        answer.columns = [*answer.columns, *more]


def info_then(store: StoreFiles, at: int, facts: Fields, answer: Answer) -> Fields:
    """Return the document of `info` of a time, from that of now."""
    past, then = _begin(store, at, answer)
    if is_now(store, then, at):
        return facts | {"at": at, "unknown": {}}
    log = {**facts["commit_log"], "unknown": {}}
    log["max_offset"], log["last_store_timestamp"] = min(then.high, log["max_offset"]), then.last
    past.forget(log, ["files", "bytes", "bytes_allocated"], NOT_NOTED)
    if then.begin:
        past.forget(log, ["min_offset", "first_store_timestamp"], RETENTION, then.begins)
    if then.reason:
        past.forget(log, ["max_offset", "last_store_timestamp"], then.reason, then.begins)
    facts |= {"at": at, "unknown": {f"commit_log.{name}": reason for name, reason in log.pop("unknown").items()}}
    facts["commit_log"] = log
    queues = list(_queues(store, then, past, as_found=False))
    facts["topics"], facts["queues"] = len({row["topic"] for row in queues}), len(queues)
    names = ["state", "releases", "release_evidence", "checkpoint", "index_files", "subsystems"]
    past.forget(facts, names, NOT_NOTED)
    if then.reason or any(row["unknown"].get("max_offset") for row in queues):
        past.forget(facts, ["topics", "queues"], then.reason or GONE, then.begins)
    answer.remarks += past.remarks()
    return facts


def topics_then(store: StoreFiles, asked: questions.Topics, answer: Answer) -> Iterator[Fields]:
    """Yield the rows of `topics` of a time."""
    assert asked.time is not None
    wanted = Names.of(asked.topic)
    past, then = _begin(store, asked.time, answer)
    if is_now(store, then, asked.time):
        answer.remark("no file here was written after that: this is what files show")
        (ends,) = ends_at(store, (None,), as_found=asked.as_found)
        rows: Iterable[Fields] = [
            row.row() | dict.fromkeys(BOUNDS, row.max_offset) | {"unknown": {}} for row in ends.rows
        ]
    else:
        rows = _queues(store, then, past, as_found=asked.as_found)
    rows = [row for row in rows if wanted.include(row["topic"])]
    for row in with_lite_topics(store, _by_topic(rows) if asked.by_topic else rows):
        yield past.forget(dict(row), _OF_LITE, NOT_NOTED) if "parent" in row else dict(row)
    answer.remarks += past.remarks()
    if then.begin:
        answer.remark(NOT_SHOWN)
    unmet = wanted.unmet({row["topic"] for row in rows})
    if unmet or not rows:
        answer.is_no = True
        answer.remarks += [no_queue(store, name) for name in unmet] or ["no queue had a message by then"]


def lag_then(store: StoreFiles, asked: questions.Lag, rows: Iterable[Fields], answer: Answer) -> Iterator[Fields]:
    """Yield the rows of `lag` of a time: where queues ended is known, where groups were is in files of now only."""
    assert asked.time is not None
    past, then = _begin(store, asked.time, answer)
    if is_now(store, then, asked.time):
        answer.remark("no file here was written after that: this is what files show")
        yield from (row | {"unknown": {}} for row in rows)
        return
    queues = {(row["topic"], row["queue_id"]): row for row in _queues(store, then, past, as_found=asked.as_found)}
    past.remarks()
    for now in rows:
        queue = queues.get((now["topic"], now["queue_id"]))
        if queue is None and now["max_offset"]:
            continue  # it had no message
        row = {**now, "unknown": {}}
        if queue is None and then.begin:
            past.forget(row, ("max_offset", "min_offset"), GONE)
        for name in ("max_offset", "min_offset"):
            if queue is not None:
                row[name] = queue[name]
                past.forget(
                    row, [name] if name in queue["unknown"] else [], queue["unknown"].get(name, ""), then.begins
                )
        yield past.forget(row, _OF_GROUP, NOT_NOTED)
    answer.remarks += past.remarks()


def _begin(store: StoreFiles, at: int, answer: Answer) -> tuple[Past, LogThen]:
    answer.remark(said_time(at))
    return Past(at), log_at(store, at)


def _queues(store: StoreFiles, then: LogThen, past: Past, *, as_found: bool) -> Iterator[Fields]:
    """Yield the queues that had a message, by topic and id; those that are gone since last."""
    places = (None, then.low) if then.is_known else (None, then.low, then.high)
    now, *found = ({(r.topic, r.queue_id): r for r in ends.rows} for ends in ends_at(store, places, as_found=as_found))
    low, high = found[0], found[-1]
    seen = set()
    for key in sorted(now):
        least, most = (_end(now[key], rows.get(key)) for rows in (low, high))
        if not most and now[key].max_offset and key not in then.next:
            continue
        seen.add(key)
        yield _queue((high.get(key) or now[key]).row(), (least, most), then, past)
    for topic, queue_id in sorted(set(then.next) - seen):
        row: Fields = {"topic": topic, "queue_id": queue_id, **dict.fromkeys(_OF_QUEUE), "unknown": {}}
        yield past.forget(row, _OF_QUEUE, GONE)


def _queue(found: Fields, ends: tuple[int, int], then: LogThen, past: Past) -> Fields:
    """Return the row of a queue, from that of its units and the bounds of its end."""
    (least, most), key = ends, (found["topic"], found["queue_id"])
    logged = then.next.get(key)
    lacks_units = then.is_known and logged is not None and most > logged and not found["messages"]
    if lacks_units:  # the log has messages of then, and the queue begins later
        least = most = logged or 0
    row: Fields = {**found, **dict(zip(BOUNDS, (least, most), strict=True)), "unknown": {}}
    if then.reason == RETENTION:
        return past.forget(row, _OF_QUEUE, RETENTION, then.begins)
    if (logged or 0) > most:
        return past.forget(row, _OF_QUEUE, GONE)
    if least != most:
        return past.forget(row, [name for name in _OF_QUEUE if name not in {"min_offset", *BOUNDS}], then.reason)
    row["max_offset"] = most
    if lacks_units:
        return past.forget(row, [name for name in _OF_QUEUE if name not in _ENDS], DAMAGE)
    if most and not then.begin and logged is None and not key[0].startswith(LIGHT):
        return past.forget(row, _OF_QUEUE, DAMAGE)  # nothing was deleted, and the log has no message of it
    if row["messages"] != most and (row["min_offset"] or then.begin):
        past.forget(row, ["min_offset", "messages", "bytes", "first_store_timestamp"], RETENTION, then.begins)
        if not row["last_store_timestamp"] and most:
            past.forget(row, ["last_store_timestamp"], RETENTION, then.begins)
    return row


def _end(now: QueueRow, then: QueueRow | None) -> int:
    """Return the next offset of a queue: that of its first unit where the units of then are not there any more."""
    if then is None or (not then.max_offset and not then.messages):
        return now.min_offset if now.messages else now.max_offset
    return then.max_offset


def _by_topic(rows: Iterable[Fields]) -> list[Fields]:
    """Return the rows added up, one a topic; what is unknown of a queue is unknown of its topic."""
    topics: dict[str, Fields] = {}
    for row in rows:
        total = topics.setdefault(row["topic"], {"topic": row["topic"], "queues": 0, "messages": 0, "bytes": 0})
        total["queues"] += 1
        for name in ("messages", "bytes"):
            total[name] += row[name] or 0
        for name, choose in (("first_store_timestamp", min), ("last_store_timestamp", max)):
            times = [time for time in (total.get(name), row[name]) if time is not None]
            total[name] = choose(times, default=None)
        unknown = total.pop("unknown", {})
        total["unknown"] = unknown | {name: why for name, why in row["unknown"].items() if name in total}
    return [total | dict.fromkeys(total["unknown"]) for total in topics.values()]
