"""`topics`, `producers`, `transactions` and `lag` of a log directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from rmqctl.answer import Answer, Row
from rmqctl.filters import Glob, Names, did_you_mean
from rmqctl.kafka.findings.log import BATCH_ROOM
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.internal_topics import GroupOffsets, Transaction, group_offsets, share_states, transactions
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verbs.past import BOUNDS, past_of
from rmqctl.text import number_of, typed

if TYPE_CHECKING:
    from rmqctl import questions
    from rmqctl.kafka.query.life import Keeping
    from rmqctl.kafka.replication.cluster import ClusterReplicas

_TOPIC_COLUMNS = (
    "topic",
    "partition",
    "log_start_offset",
    "log_end_offset",
    "last_stable_offset",
    "records",
    "bytes",
    "last_timestamp",
)
_PRODUCER_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "last_timestamp",
    "current_txn_first_offset",
)
_HEADERS = {
    "topics": "topic partition topic_id log_start_offset log_end_offset high_watermark last_stable_offset records "
    "bytes segments first_timestamp last_timestamp",
    "by topic": "topic topic_id partitions records bytes segments first_timestamp last_timestamp",
    "lag": "group topic partition consumer_offset log_end_offset lag metadata leader_epoch commit_timestamp anomaly "
    "pending_offset",
    "producers": "topic partition producer_id producer_epoch last_sequence last_offset offset_delta last_timestamp "
    "coordinator_epoch current_txn_first_offset",
    "transactions": "transactional_id producer_id producer_epoch state partitions start_timestamp timeout_ms "
    "last_update hanging",
}
"""Every key of the rows of an answer, in order."""
_MOST_READ_FOR_NAMES = 64 << 20
_FIRST = 5
"""Partitions that are named one by one."""
_PENDING = "open-transaction"
"""An offset that a transaction commits once it ends: worth seeing, and nothing is wrong."""
_LAG_COLUMNS = (
    "group",
    "topic",
    "partition",
    "consumer_offset",
    "log_end_offset",
    "lag",
    "commit_timestamp",
    "anomaly",
)
_TRANSACTION_COLUMNS = (
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "state",
    "partitions",
    "start_timestamp",
    "hanging",
)


def begin(replicas: Replicas, answer: Answer) -> Answer:
    """Say that a broker runs, where one does."""
    if replicas.place.is_running:
        answer.remark("a broker holds the lock of this directory: what is read may be changing")
    return answer


def begin_served(replicas: Replicas, answer: Answer, asked: Sequence[PartitionLog] | None = None) -> Answer:
    """Say also that no broker starts, where none does; the partitions are loaded then, each by itself.

    Args:
        asked: the partitions that are asked for, and others are not looked at; None: all.
    """
    begin(replicas, answer)
    if replicas.place.is_running:
        return answer  # it has started
    try:
        found = recover(replicas, only=None if asked is None else {log.partition.directory for log in asked})
    except OSError:
        return answer  # whoever shows the file says so
    if not found.starts:
        root = replicas.place.root
        answer.remark(
            f"a broker of {found.release} does not start on {root}: {found.error}; shown is what it serves of "
            f"each partition that it can load, and the files of others as they lie; see: {typed('repair', root)}"
        )
    elif found.offline:
        answer.remark(f"a broker of {found.release} takes a log directory offline: {found.error}")
    return answer


def no_topic(replicas: Replicas, topic: str | None) -> str:
    """Why nothing was found for a topic."""
    if topic is None:
        return "no partition is there"
    if isinstance(topic, Glob):
        return f"no partition of a topic that matches {topic} is here"
    near = did_you_mean(topic, [name for name in replicas.topics if name != topic])
    return f"no partition of topic {topic} is here{near}"


# --- topics -----------------------------------------------------------------------------------------------


def topics(replicas: Replicas, asked: questions.Topics) -> Answer:
    """List partitions, or topics with their partitions added up."""
    wanted, by_topic = Names.of(asked.topic), asked.by_topic
    columns, header = (None, "by topic") if by_topic else (_TOPIC_COLUMNS, "topics")
    answer = begin_served(replicas, Answer(columns=columns, header=_HEADERS[header].split()))
    past = past_of(replicas, asked.time, answer, () if by_topic else BOUNDS)

    def rows() -> Iterator[Row]:
        here = set[str]()

        def each() -> Iterator[dict[str, Any]]:
            one = (_topic_row(replicas, log, answer) for log in replicas.pointed_at(wanted))
            for row in one if past is None else past.topics(wanted, lambda view, log: _topic_row(view, log, answer)):
                here.add(row["topic"])
                yield row

        yield from _by_topic(each(), apart=asked.apart) if by_topic else each()
        unmet = wanted.unmet(here)
        if unmet or not here:
            answer.is_no = True
            answer.remarks += [
                f"no partition of topic {name} was here by then"
                if name in replicas.topics
                else no_topic(replicas, name)
                for name in unmet
            ] or [no_topic(replicas, None) if asked.time is None else "no partition was here by then"]

    answer.rows = rows()
    return answer


def keeping_of(replicas: Replicas, topic: str, settings: Mapping[str, str]) -> Keeping:
    """Return how long the records of a topic are kept, as the metadata log, or else the broker's settings, have it."""
    from rmqctl.kafka.engine.config import DELETE, LogConfig
    from rmqctl.kafka.query.life import Keeping

    broker = {**replicas.configs.get(("broker", ""), {}), **settings}
    config = LogConfig().with_settings(replicas.configs.get(("topic", topic), {}), broker)
    is_deleted = DELETE in config.policies
    limits = (config.retention_ms, config.retention_bytes) if is_deleted else (-1, -1)
    return Keeping(*limits, config.is_compacted)


def disk(replicas: Replicas, asked: questions.Topics, settings: Mapping[str, str]) -> Answer:
    """List the room that files take, by partition or topic and what they hold."""
    from rmqctl.disk import show_uses
    from rmqctl.kafka.query.disk import RULE, uses

    answer, wanted = begin_served(replicas, Answer()), Names.of(asked.topic)
    only = replicas.directories[0].root if len(replicas.directories) == 1 else ""  # others may lie on other disks
    found = uses(replicas, lambda topic: keeping_of(replicas, topic, settings), wanted)
    show_uses(answer, found, only, number="partition", by_topic=asked.by_topic, rule=RULE)
    answer.remarks += [no_topic(replicas, name) for name in wanted.unmet(replicas.topics)]
    return answer


def _topic_row(replicas: Replicas, log: PartitionLog, answer: Answer) -> dict[str, Any]:
    state = log.replayed
    stop, counted = state.stop, state.counted
    if stop is not None and stop.kind is not BATCH_ROOM and log.is_whole:
        answer.remark(f"{stop.file}: a broker that starts cuts it at byte {stop.offset}: {stop.message}")
    return {
        "topic": log.partition.topic,
        "partition": log.partition.partition,
        "topic_id": replicas.topic_id(log),
        "log_start_offset": state.log_start_offset,
        "log_end_offset": state.log_end_offset,
        "high_watermark": state.high_watermark,
        "last_stable_offset": state.last_stable_offset,
        "records": counted.count,
        "bytes": sum(max(file.size, 0) for file in log.partition.logs),
        "segments": len(log.served),
        "first_timestamp": counted.first_timestamp,
        "last_timestamp": counted.last_timestamp,
    }


def _by_topic(rows: Iterator[dict[str, Any]], *, apart: bool) -> Iterator[Row]:
    """One row a topic: counts added up, the first of the first times, the last of the last.

    Args:
        apart: with the rows of its partitions in `parts`.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        total = found.setdefault(row["topic"], {"topic": row["topic"], "topic_id": row["topic_id"], "partitions": 0})
        total["partitions"] += 1
        if apart:
            total.setdefault("parts", []).append(row)
        for name in ("records", "bytes", "segments"):
            total[name] = total.get(name, 0) + (row[name] or 0)
        for name, choose in (("first_timestamp", min), ("last_timestamp", max)):
            times = [time for time in (total.get(name), row[name]) if time is not None]
            total[name] = choose(times, default=None)
        for name, reason in row.get("unknown", {}).items():
            if name in total:
                total.setdefault("unknown", {})[name] = reason
    for total in found.values():
        yield total | dict.fromkeys(total.get("unknown", ()))


# --- producers and transactions ---------------------------------------------------------------------------


def producers(replicas: Replicas, asked: questions.Producers) -> Answer:
    """List the producers of each partition, replayed from its batches."""
    answer = begin_served(replicas, Answer(columns=_PRODUCER_COLUMNS, header=_HEADERS["producers"].split()))
    past, topic, partition = past_of(replicas, asked.time, answer), asked.topic, asked.queue

    def rows() -> Iterator[Row]:
        chosen = [log for log in replicas.pointed_at(Names.of(topic)) if partition in {None, log.partition.partition}]
        count = 0
        for log in chosen:
            for row in _producer_rows(log) if past is None else past.producers(log, _producer_rows):
                count += 1
                yield row
        if not count:
            answer.is_no = True
            answer.remark(no_topic(replicas, topic) if not chosen else "no batch there has a producer id")

    answer.rows = rows()
    return answer


def _producer_rows(log: PartitionLog) -> Iterator[dict[str, Any]]:
    for row in log.replayed.producers.rows():
        yield {"topic": log.partition.topic, "partition": log.partition.partition, **row}


def transaction_states(replicas: Replicas, asked: questions.Transactions, *, now: int | None = None) -> Answer:
    """List transactional ids by their latest state, and open transactions that no coordinator knows of.

    Args:
        now: epoch ms, by which transactions are open beyond their time; None: the clock.
    """
    answer = begin_served(replicas, Answer(columns=_TRANSACTION_COLUMNS, header=_HEADERS["transactions"].split()))
    past = past_of(replicas, asked.time, answer)
    moment = time.time_ns() // 1_000_000 if now is None else now

    def rows() -> Iterator[Row]:
        count = 0
        each = _transaction_rows(replicas, moment, answer) if past is None else past.transactions(_transaction_rows)
        for row in each:
            count += 1
            yield row
        if not count:
            answer.is_no = True
            here = f"no partition of {TRANSACTION_STATE} is here"
            answer.remark(f"no transaction is noted: {here}, or {_empty_by(asked.time)}")

    answer.rows = rows()
    return answer


def _transaction_rows(replicas: Replicas, now: int, answer: Answer | None = None) -> Iterator[dict[str, Any]]:
    known = transactions(replicas.of(TRANSACTION_STATE))
    open_in = _open_transactions(replicas)
    by_producer = {transaction.producer_id: transaction for transaction in known.values()}
    for name in sorted(known):
        yield _transaction_row(replicas, known[name], open_in.get(known[name].producer_id, {}), now, answer)
    for producer in sorted(set(open_in) - set(by_producer)):
        yield _orphan_row(replicas, producer, open_in[producer], answer)


def _open_transactions(replicas: Replicas) -> dict[int, dict[tuple[str, int], int]]:
    """First offset of each open transaction by producer and partition."""
    found: dict[int, dict[tuple[str, int], int]] = {}
    for log in replicas.served:
        for producer, first in log.replayed.open.items():
            found.setdefault(producer, {})[log.partition.topic, log.partition.partition or 0] = first
    return found


def _transaction_row(
    replicas: Replicas, transaction: Transaction, open_in: dict[tuple[str, int], int], now: int, answer: Answer | None
) -> dict[str, Any]:
    """Return the row of a transactional id. It hangs where it is open beyond its time, or in a partition it does not
    name.
    """
    unnamed = set(open_in) - (set(transaction.partitions) if transaction.is_open else set())
    late = transaction.is_open and now > transaction.start_timestamp + transaction.timeout_ms
    if unnamed or late:
        who = f"transactional id {transaction.transactional_id}"
        _say_how_to_abort(replicas, who, transaction.producer_id, open_in, answer)
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state,
        "partitions": [f"{topic}-{number}" for topic, number in transaction.partitions],
        "start_timestamp": transaction.start_timestamp,
        "timeout_ms": transaction.timeout_ms,
        "last_update": transaction.last_update,
        "hanging": bool(unnamed or late),
    }


def _orphan_row(
    replicas: Replicas, producer: int, open_in: dict[tuple[str, int], int], answer: Answer | None
) -> dict[str, Any]:
    """Return the row of a transaction that is open here and that no transactional id here has.

    It hangs when all of ``__transaction_state`` is here; else another broker may know it.
    """
    here = len(replicas.of(TRANSACTION_STATE))
    hangs = bool(here) and here >= replicas.partition_count(TRANSACTION_STATE)
    if hangs:
        who = f"producer {producer}, of which no transactional id is known,"
        _say_how_to_abort(replicas, who, producer, open_in, answer)
    (topic, number), _ = next(iter(open_in.items()))
    log = replicas.find(topic, number)
    state = log.replayed.producers.producers.get(producer) if log else None
    return {
        "transactional_id": None,
        "producer_id": producer,
        "producer_epoch": state.producer_epoch if state else -1,
        "state": None,
        "partitions": [f"{topic}-{number}" for topic, number in sorted(open_in)],
        "start_timestamp": None,
        "timeout_ms": None,
        "last_update": state.last_timestamp if state else None,
        "hanging": hangs,
    }


def _say_how_to_abort(
    replicas: Replicas, who: str, producer: int, open_in: dict[tuple[str, int], int], answer: Answer | None
) -> None:
    if answer is None:
        return  # it was so, and may not be any more
    for (topic, number), first in sorted(open_in.items()):
        answer.remark(
            f"{who} keeps a transaction open in {topic}-{number} since offset {first}; once the broker runs, type: "
            f"kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic {topic} --partition {number} "
            f"--start-offset {first}"
        )
    if open_in:
        wanted = [w for t, n in sorted(open_in) for w in ("--abort-transaction", f"{t}-{n}:{producer}")]
        answer.remark(f"where no broker can do it, in the files: {typed('repair', replicas.place.root, *wanted)}")


# --- lag --------------------------------------------------------------------------------------------------


def lag(replicas: Replicas, asked: questions.Lag) -> Answer:
    """List groups with the offsets they committed, and what they have not consumed."""
    answer = begin_served(replicas, Answer(columns=_LAG_COLUMNS, header=_HEADERS["lag"].split()))
    past = past_of(replicas, asked.time, answer)
    return _lag(asked, answer, lambda: list(_lag_rows(replicas) if past is None else past.lag(_lag_rows)))


def cluster_lag(names: Sequence[str], brokers: Sequence[Replicas], asked: questions.Lag) -> Answer:
    """List groups over the brokers of a cluster: what each committed from the partition of its coordinator, the end of
    each partition from the replica that `elect` would have lead. ``store`` has the log, ``coordinator`` the offset.
    """
    from rmqctl.kafka.replication.cluster import INTERNAL, ClusterReplicas

    groups, topics = Names.of(asked.group), Names.of(asked.topic)
    header = ["store", *_HEADERS["lag"].split(), "coordinator"]
    answer = Answer(columns=(*_LAG_COLUMNS, "coordinator"), header=header)
    for name, broker in zip(names, brokers, strict=True):
        answer.remarks += (f"{name}: {remark}" for remark in begin_served(broker, Answer()).remarks)
    internal = ClusterReplicas(names, brokers)
    committed = group_offsets(internal.of(CONSUMER_OFFSETS))
    keys = ((group, topic) for group, topic, _ in (*committed.commits, *committed.pending))
    wanted = {topic for group, topic in keys if groups.include(group) and topics.include(topic)}
    shared = {key.topic_id for key in share_states(internal.of(SHARE_GROUP_STATE)) if groups.include(key.group)}
    wanted |= {internal.topic_names.get(topic_id, topic_id) for topic_id in shared}
    replicas = ClusterReplicas(names, brokers, INTERNAL | wanted, internal)
    past = past_of(replicas, asked.time, answer)

    def coordinators() -> dict[tuple[str, str, int], str]:
        found = dict[tuple[str, str, int], str]()
        for log in replicas.of(CONSUMER_OFFSETS):
            one = group_offsets([log])
            found |= dict.fromkeys((*one.commits, *one.pending), replicas.store_of(log))
        for log in replicas.of(SHARE_GROUP_STATE):
            for key in share_states([log]):
                topic = replicas.topic_names.get(key.topic_id, key.topic_id)
                found[key.group, topic, key.partition] = replicas.store_of(log)
        return found

    def every() -> list[dict[str, Any]]:
        rows = list(_lag_rows(replicas) if past is None else past.lag(_lag_rows))
        origin = coordinators()
        for row in rows:
            log = replicas.find(row["topic"], row["partition"])
            row["store"] = None if log is None else replicas.store_of(log)
            row["coordinator"] = origin.get((row["group"], row["topic"], row["partition"]))
        answer.remarks += _lacking(replicas, rows)
        return rows

    return _lag(asked, answer, every)


def _empty_by(time: int | None) -> str:
    """Return how an internal topic is called in which nothing was found, at all or by a time."""
    return "it is empty" if time is None else "nothing was in it by then"


def _lacking(replicas: ClusterReplicas, rows: Sequence[Row]) -> Iterator[str]:
    """Say what of a cluster is on none of the stores, or cannot be read there."""
    for name, why in replicas.unread.items():
        yield f"{name}: {why}; other replicas were asked"
    count, here = replicas.partition_count(CONSUMER_OFFSETS), len(replicas.of(CONSUMER_OFFSETS))
    if here < count:
        yield (
            f"{number_of(count - here, 'partition')} of {count} of {CONSUMER_OFFSETS} on none of these stores: groups "
            "whose coordinator has it are not listed"
        )
    away = sorted({f"{row['topic']}-{row['partition']}" for row in rows if row["store"] is None and not row["anomaly"]})
    if away:
        more = f" and {len(away) - _FIRST} more" if len(away) > _FIRST else ""
        yield f"on none of these stores, and their lag is unknown: {', '.join(away[:_FIRST])}{more}"


def _lag(asked: questions.Lag, answer: Answer, every_row: Callable[[], list[dict[str, Any]]]) -> Answer:
    groups, topics = Names.of(asked.group), Names.of(asked.topic)

    def rows() -> Iterator[Row]:
        every = every_row()
        every.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
        shown = [r for r in every if groups.include(r["group"]) and topics.include(r["topic"])]
        yield from shown
        unmet = groups.unmet({row["group"] for row in shown}) + topics.unmet({row["topic"] for row in shown})
        answer.is_no = not shown or bool(unmet) or any(row["anomaly"] not in {None, _PENDING} for row in shown)
        if not shown or unmet:
            answer.remarks += _no_offset(every, groups, topics, _empty_by(asked.time))

    answer.rows = rows()
    return answer


def group_names(replicas: Replicas) -> list[str]:
    """Return the groups that committed an offset, sorted; none where so much log holds them that it takes long."""
    logs = replicas.of(CONSUMER_OFFSETS)
    if sum(max(file.size, 0) for log in logs for file in log.partition.logs) > _MOST_READ_FOR_NAMES:
        return []
    found = group_offsets(logs)
    shared = share_states(replicas.of(SHARE_GROUP_STATE))
    return sorted({key[0] for key in (*found.commits, *found.pending)} | {key.group for key in shared})


def _lag_rows(replicas: Replicas) -> Iterator[dict[str, Any]]:
    yield from _consumer_rows(replicas, group_offsets(replicas.of(CONSUMER_OFFSETS)))
    yield from _share_rows(replicas)


def _consumer_rows(replicas: Replicas, found: GroupOffsets) -> Iterator[dict[str, Any]]:
    for key in sorted({*found.commits, *found.pending}):
        commit, pending = found.commits.get(key), found.pending.get(key)
        row = _lag_row(replicas, *key, commit.offset if commit else None)
        shown = commit or pending
        assert shown is not None
        row |= {"metadata": shown.metadata, "leader_epoch": shown.leader_epoch}
        row |= {"commit_timestamp": shown.commit_timestamp, "anomaly": row.pop("anomaly")}
        if pending is not None:
            row["anomaly"] = row["anomaly"] or _PENDING
        row["pending_offset"] = pending.offset if pending else None
        yield row


def _share_rows(replicas: Replicas) -> Iterator[dict[str, Any]]:
    for key, state in share_states(replicas.of(SHARE_GROUP_STATE)).items():
        topic = replicas.topic_names.get(key.topic_id, key.topic_id)
        start = state.start_offset if state.start_offset >= 0 else None
        row = _lag_row(replicas, key.group, topic, key.partition, start)
        anomaly = row.pop("anomaly")
        row["lag"] = None if row["lag"] is None else max(row["lag"] - state.done, 0)
        row |= {"metadata": "", "leader_epoch": state.leader_epoch, "commit_timestamp": state.write_timestamp}
        yield row | {"anomaly": anomaly, "pending_offset": None}


def _lag_row(replicas: Replicas, group: str, topic: str, partition: int, offset: int | None) -> dict[str, Any]:
    log = replicas.find(topic, partition)
    end = log.replayed.log_end_offset if log else None
    lag = end - offset if end is not None and offset is not None else None
    return {
        "group": group,
        "topic": topic,
        "partition": partition,
        "consumer_offset": offset,
        "log_end_offset": end,
        "lag": lag,
        "anomaly": _anomaly(replicas, topic, log, offset),
    }


def _anomaly(replicas: Replicas, topic: str, log: PartitionLog | None, offset: int | None) -> str | None:
    """Return what is odd about a committed offset; a partition on another broker is not."""
    if log is None:
        known = replicas.image is not None and topic not in replicas.image.topics
        return "unknown-topic" if known or (replicas.image is None and not replicas.of(topic)) else None
    if offset is None:
        return None
    if offset > log.replayed.log_end_offset:
        return "beyond-end"
    return "before-start" if offset < log.replayed.log_start_offset else None


def _no_offset(rows: list[dict[str, Any]], group: Names, topic: Names, empty: str) -> list[str]:
    """Say which names no committed offset has, else why there is none."""
    if not rows:
        return [f"no offset is committed: no partition of {CONSUMER_OFFSETS} is here, or {empty}"]
    said = []
    for word, wanted in (("group", group), ("topic", topic)):
        names = sorted({row[word] for row in rows})
        said += [f"no offset is committed for {word} {name}{did_you_mean(name, names)}" for name in wanted.unmet(names)]
    return said or [f"{group.said('group')} has no offset in {topic.said('topic')}"]
