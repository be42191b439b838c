"""Messages that a broker still has to deliver: timers, delays, open transactions, pop messages in flight.

Where they are kept in files, the log and the progress files show them (spec 9.2, 11); in RocksDB, the rows (A5.2, A5.3,
A6).
After a crash the rows that the start of a broker makes again from the log are among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from formats.errors import DecodeError
from formats.rocketmq.rocksdb_messages import (
    HALF_FAMILY,
    HALF_VALUE,
    INDEX_MARK,
    POP_FAMILY,
    TIMER_DELIVERED,
    TIMER_FAMILY,
    TIMER_SCANNED,
    TIMER_VALUE,
    PopStateKey,
    TimerKey,
    has_half_key,
    is_timer,
    leading_number,
    mark_of,
)
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.explain import Trace
from rmqctl.rocketmq.dispatch.database_rows import timer_check, wheel_offset
from rmqctl.rocketmq.index import may_have_rows
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query.lag import progress_of, queues_of_topic, topics_of
from rmqctl.rocketmq.query.log_search import Search, search_log
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.records import Absence, Record, RecordReader
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.config import delay_offsets
from rmqctl.rocketmq.store.databases import MESSAGES, POP, Database, has_database, open_database

KINDS = ("timer", "transaction", "pop", "delay")
WHEEL_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
_OUT, _DELETES, _TRANS_OFFSET, _UNIQUE_KEY = b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"TRANS_OFFSET", b"UNIQ_KEY"
REVIVE_TOPIC, _REVIVE_GROUP = "rmq_sys_REVIVE_LOG_", "CID_RMQ_SYS_REVIVE_GROUP"
_NUMBERS = ("so", "pt", "it", "n", "q")
"""Fields of a check point: first queue offset, when it was popped (ms), for how long (ms), messages, queue."""
_MOST_POPPED = 127
"""Messages of a check point: a byte holds their number."""
_Popped = tuple[Any, ...]
Row = dict[str, Any]
Timer = tuple[int, bytes]


def pending_rows(started: RecoveredStore, what: str) -> Iterator[Row]:
    """One row a message; times are compared with that of the last message of the log, as nobody knows the broker's.

    Args:
        what: one of :data:`KINDS`.

    Raises:
        MissingExtra: they are in a database, and the package rocksdict is not installed.
    """
    yield from {"timer": _timers, "transaction": _transactions, "pop": _pop, "delay": _delays}[what](started)


def _row(started: RecoveredStore, what: str, source: str, place: int, more: Row) -> Row:
    """Return a pending message; of a record that cannot be read no more than its place is known."""
    reader = RecordReader(started.log, Trace(on=False))
    record: Record | Absence | None = reader.at(place) if place >= 0 else None
    found: Row = {"kind": "pending", "what": what, "source": source, "physical_offset": place if place >= 0 else None}
    if isinstance(record, Record):
        now = log_end(started.store).store_timestamp or record.store_timestamp
        found |= {
            "topic": record.real_topic,
            "unique_key": _text(record.properties.get(_UNIQUE_KEY, b"")),
            "store_timestamp": record.store_timestamp,
            "age_ms": max(now - record.store_timestamp, 0),
            "missing": None,
        }
    else:
        why = record.found if record is not None else "its queue has no unit at this offset"
        found |= {"topic": None, "unique_key": None, "store_timestamp": None, "age_ms": None, "missing": why}
    return found | more


def _of_topic(started: RecoveredStore, *topics: str, begin: int = 0) -> Iterator[Record]:
    wanted = Filter(topics, from_offset=begin or None)
    for part in search_log(started.store, Search(wanted)):
        yield from part.records


# --- timers -------------------------------------------------------------------------------------------


def _timers(started: RecoveredStore) -> Iterator[Row]:
    store = started.store
    if may_have_rows(store):
        with open_database(store, MESSAGES, "reading timer messages in RocksDB") as database:
            if next(database.rows(TIMER_FAMILY), None) is not None:
                yield from _timer_rows(started, database)
                return
    since = timer_check(store).last_read_time
    timers: dict[Timer, int] = {}
    _add_timers(timers, _of_topic(started, WHEEL_TOPIC), since)
    yield from _shown_timers(started, "timerlog", timers)


def _timer_rows(started: RecoveredStore, database: Database) -> Iterator[Row]:
    """Rows that are due after what was delivered; rows are not deleted on delivery."""
    delivered = mark_of(database.get(TIMER_FAMILY, TIMER_DELIVERED)) or 0
    timers: dict[Timer, int] = {}
    for key, value in database.rows(TIMER_FAMILY):
        if not is_timer(key, value):
            continue
        timer = TimerKey.parse(key)
        if timer.delivery_time >= delivered:
            timers[timer.delivery_time, timer.unique_key] = TIMER_VALUE.unpack(value)[1]
    if started.store.state == "crashed":
        first = max(mark_of(database.get(TIMER_FAMILY, TIMER_SCANNED)) or 0, wheel_offset(started.store))
        late = (r for r in _of_topic(started, WHEEL_TOPIC) if r.fields["queue_offset"] >= first)
        _add_timers(timers, late, delivered)
    yield from _shown_timers(started, MESSAGES, timers)


def _add_timers(timers: dict[Timer, int], records: Iterator[Record], since: int) -> None:
    """Take records of the timer topic in log order: later ones replace those they are copies of, or delete them."""
    for record in records:
        out = record.properties.get(_OUT, b"")
        if not out.isdigit():
            continue
        due, deleted = int(out), record.properties.get(_DELETES)
        if deleted is not None:
            name = deleted.partition(b"+")[2] or deleted
            timers.pop((due, name), None)
        elif due >= since:
            timers[due, record.properties.get(_UNIQUE_KEY, b"")] = record.physical_offset


def _shown_timers(started: RecoveredStore, source: str, timers: dict[Timer, int]) -> Iterator[Row]:
    for (due, unique), place in sorted(timers.items()):
        yield _row(started, "timer", source, place, {"due_timestamp": due, "unique_key": _text(unique)})


# --- delays -------------------------------------------------------------------------------------------


def _delays(started: RecoveredStore) -> Iterator[Row]:
    """Units of the delay queues from the offset on that is to be delivered next."""
    offsets = delay_offsets(started.store)
    for queue_id in queues_of_topic(started, SCHEDULE_TOPIC):
        with open_queue(started, SCHEDULE_TOPIC, queue_id) as view:
            for offset in range(max(offsets.get(queue_id + 1, 0), view.min_offset, 0), view.max_offset):
                place = view.at(offset)
                unit = place[0].unit(place[1]) if place is not None else None
                if unit is not None and unit.size > 0:
                    more = {"delay_level": queue_id + 1, "queue_offset": offset, "due_timestamp": unit.tags_code}
                    yield _row(started, "delay", view.files[0].name, unit.physical_offset, more)


# --- transactions -------------------------------------------------------------------------------------


def _transactions(started: RecoveredStore) -> Iterator[Row]:
    yield from _classic(started)
    if may_have_rows(started.store):
        with open_database(started.store, MESSAGES, "reading half messages in RocksDB") as database:
            yield from _half_rows(started, database)


def _classic(started: RecoveredStore) -> Iterator[Row]:
    """Half messages from the offset on that is checked next, without those that an op message names."""
    stored = progress_of(started).offsets.get((TRANSACTION_GROUP, HALF_TOPIC), {}).get(0)
    first = stored.offset if stored is not None else 0
    halves: dict[int, Record] = {}
    ended: set[int] = set()
    for record in _of_topic(started, HALF_TOPIC, OP_TOPIC):
        if record.topic == HALF_TOPIC:
            halves[record.fields["queue_offset"]] = record
        else:
            ended |= {int(text) for text in record.fields["body"].split(b",") if text.isdigit()}
    for offset, record in sorted(halves.items()):
        if offset >= first and offset not in ended:
            checks = record.properties.get(b"TRANSACTION_CHECK_TIMES", b"")
            more = {"queue_offset": offset, "check_count": int(checks) if checks.isdigit() else 0}
            yield _row(started, "transaction", HALF_TOPIC, record.physical_offset, more)


def _half_rows(started: RecoveredStore, database: Database) -> Iterator[Row]:
    halves: dict[int, int] = {}
    for key, value in database.rows(HALF_FAMILY):
        if has_half_key(key) and len(value) == HALF_VALUE.size:
            halves[leading_number(key)] = HALF_VALUE.unpack(value)[0]
    if started.store.state == "crashed":
        begin = mark_of(database.get(HALF_FAMILY, INDEX_MARK)) or 0
        for record in _of_topic(started, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, begin=begin):
            if record.topic == ROCKSDB_HALF_TOPIC:
                halves[record.physical_offset] = 0
            elif record.properties.get(_TRANS_OFFSET, b"").isdigit():
                halves.pop(int(record.properties[_TRANS_OFFSET]), None)
    for place, checks in sorted(halves.items()):
        yield _row(started, "transaction", MESSAGES, place, {"check_count": checks})


# --- pop ----------------------------------------------------------------------------------------------


def _pop(started: RecoveredStore) -> Iterator[Row]:
    """Messages that pop consumers have taken and not acknowledged, by the time when they may be taken again."""
    store = started.store
    yield from _check_points(started)
    if not has_database(store, POP):
        return
    now = log_end(store).store_timestamp or 0
    with open_database(store, POP, "reading pop messages in RocksDB") as database:
        for key, value in database.rows(POP_FAMILY):
            with suppress(DecodeError, ValueError, TypeError, KeyError):
                yield _pop_row(started, key, value, now)


def _pop_row(started: RecoveredStore, key: bytes, value: bytes, now: int) -> Row:
    import orjson
    from construct import ConstructError

    try:
        place, record = PopStateKey.parse(key), orjson.loads(value)
    except ConstructError as error:
        raise ValueError(str(error)) from error
    return _taken(started, POP, now, {
        "due_timestamp": place.visibility_timeout,
        "topic": _text(place.topic),
        "queue_id": place.queue_id,
        "queue_offset": place.queue_offset,
        "group": _text(place.group),
        "pop_timestamp": int(record["popTime"]),
        "attempts": record.get("attemptTimes"),
        "attempt_id": record.get("attemptId"),
    })  # fmt: skip


def _taken(started: RecoveredStore, source: str, now: int, taken: Row) -> Row:
    """The row of a message that was popped, found by its queue offset."""
    with open_queue(started, taken["topic"], taken["queue_id"]) as view:
        found = view.at(taken["queue_offset"])
        unit = found[0].unit(found[1]) if found is not None else None
    physical = unit.physical_offset if unit is not None and unit.size > 0 else -1
    more = {"due_timestamp": taken["due_timestamp"], "age_ms": max(now - taken["pop_timestamp"], 0), **taken}
    return _row(started, "pop", source, physical, more)


class CheckPoint(NamedTuple):
    """One message that a pop consumer took, as the revive topic has it.

    Attributes:
        record: the check point, in the revive topic, or still in the timer that brings it there when it is due.
        taken: the message, with the names of the rows of :func:`pending_rows`.
        acknowledged: the record that acknowledges it; None without one.
        merged: the check point itself says that it is acknowledged.
        settled: the check point lies in front of the offset of the revive service (PopReviveService).
    """

    record: Record
    taken: Row
    acknowledged: Record | None
    merged: bool
    settled: bool


def _check_points(started: RecoveredStore) -> Iterator[Row]:
    """The same where it is kept in the log: check points of the revive topic, less the acknowledgements after them."""
    now = log_end(started.store).store_timestamp or 0
    for point in check_points(started):
        if not (point.settled or point.merged or point.acknowledged):
            yield _taken(started, point.record.real_topic, now, point.taken)


def check_points(started: RecoveredStore) -> Iterator[CheckPoint]:
    """Every message that check points name, by the time when it may be taken again.

    They come to the revive topic by timers, as acknowledgements do (PopMessageProcessor, AckMessageProcessor).
    """
    topics = [topic for topic in topics_of(started) if topic.startswith((REVIVE_TOPIC, WHEEL_TOPIC))]
    if not topics:
        return
    done = progress_of(started).offsets
    points: dict[_Popped, tuple[Row, Record, bool]] = {}
    acknowledged: dict[tuple[_Popped, int], Record] = {}
    for record in _of_topic(started, *topics):
        if not record.real_topic.startswith(REVIVE_TOPIC):
            continue
        stored = done.get((_REVIVE_GROUP, record.topic), {}).get(record.fields["queue_id"])
        settled = stored is not None and record.fields["queue_offset"] < stored.offset
        with suppress(ValueError, TypeError, KeyError):
            kind, body = record.properties.get(b"TAGS"), _object(record.fields["body"])
            popped = tuple(body.get(name) for name in ("t", "c", "q", "so", "pt", "bn"))
            if kind == b"ck" and _is_point(body):
                points[popped] = body, record, settled
            elif kind == b"ack":
                acknowledged[popped, int(body["ao"])] = record
            elif kind == b"bAck":
                acknowledged |= {(popped, int(offset)): record for offset in body["aol"]}
    by_due = sorted(points.items(), key=lambda item: item[1][0]["pt"] + item[1][0]["it"])
    for popped, (point, record, settled) in by_due:
        for number in range(int(point["n"])):
            steps = point.get("d") or range(int(point["n"]))
            offset = int(point["so"]) + int(steps[number])
            taken = {
                "due_timestamp": int(point["pt"]) + int(point["it"]),
                "topic": str(point["t"]),
                "queue_id": int(point["q"]),
                "queue_offset": offset,
                "group": str(point["c"]),
                "pop_timestamp": int(point["pt"]),
                "attempts": int(point.get("rp") or 0),
                "attempt_id": None,
            }
            merged = bool(int(point.get("bm") or 0) >> number & 1)
            yield CheckPoint(record, taken, acknowledged.get((popped, offset)), merged, settled)


def _object(body: bytes) -> Row:
    """A JSON object.

    Raises:
        ValueError: it is none.
    """
    import orjson

    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _is_point(found: Row) -> bool:
    """Whether an object has what a check point needs (PopCheckPoint)."""
    steps, count = found.get("d") or [], found.get("n", 0)
    return (
        all(isinstance(found.get(name), int) for name in _NUMBERS)
        and {"t", "c"} <= found.keys()
        and isinstance(steps, list)
        and all(isinstance(step, int) for step in steps)
        and isinstance(found.get("bm") or 0, int)
        and str(found.get("rp") or 0).isdecimal()
        and 0 <= count <= _MOST_POPPED
        and (not steps or len(steps) >= count)
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


__all__ = ["KINDS", "check_points", "pending_rows"]
