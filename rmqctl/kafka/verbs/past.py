"""The rows of `topics`, `lag`, `producers` and `transactions` as they were at a time, made as those of now are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from rmqctl.answer import Answer
from rmqctl.filters import Names
from rmqctl.kafka.directory.releases import metadata_version_name
from rmqctl.kafka.state.internal_topics import first_records
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.past import FILES, PastLog, PastReplicas, Reach
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.past import COMPACTION, DAMAGE, GONE, NOT_NOTED, RETENTION, SET_BACK, Past, said_time
from rmqctl.text import instant

BOUNDS = ("end_at_least", "end_at_most", "clock")
"""Keys that the rows of `topics` have when they are of a time."""
Fields = dict[str, Any]
_COUNTED, _UNNOTED = ("records", "bytes"), ("segments", "high_watermark")
_OF_PARTITION = (
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "records",
    "bytes",
    "segments",
    "first_timestamp",
    "last_timestamp",
    *BOUNDS,
)
_OF_GROUP = ("consumer_offset", "lag", "metadata", "leader_epoch", "commit_timestamp", "anomaly", "pending_offset")
_OF_ID = (
    "producer_id",
    "producer_epoch",
    "state",
    "partitions",
    "start_timestamp",
    "timeout_ms",
    "last_update",
    "hanging",
)
"""What is unknown where nothing is known of a partition, a group or a transactional id."""


def past_of(replicas: Replicas, at: int | None, answer: Answer, more: Iterable[str] = ()) -> PastRows | None:
    """Return what gives rows of a time; None for now.

    Args:
        more: keys that its rows have beside those of now and ``unknown``.
    """
    if at is None:
        return None
    if answer.header is not None:
        answer.header = [*answer.header, *more, "unknown"]
    if answer.columns is not None:
        answer.columns = [*answer.columns, *more]
    return PastRows(replicas, Past(at), answer)


class PastRows:
    """The rows of a time: those of the logs as far as they reached at least and at most, where both are the same."""

    def __init__(self, replicas: Replicas, past: Past, answer: Answer) -> None:
        self.now, self.past, self.answer = replicas, past, answer
        self.then = PastReplicas(replicas, past)
        self.is_now = self.then.is_now
        answer.remark(said_time(past.at))
        if self.is_now:
            answer.remark("no file here was written after that: this is what files show")
        elif replicas.metadata_log is not None and self.then.images[1] is None:
            begins = self.then.reach(replicas.metadata_log).begins
            since = "" if begins is None else f", at {instant(begins)}"
            answer.remark(f"which topics there were is unknown: the metadata log begins later{since}")

    def info(self, row: Fields) -> Fields:
        """Return the document of `info`: of the time what the metadata log has of it."""
        image, known = self.then.images[1], self.then.images[0] is self.then.images[1]
        gone = list(self.then.gone())
        level = None if image is None else image.features.get("metadata.version")
        row |= {
            "metadata_version": metadata_version_name(level) if level else None,
            "topics": len({*self.then.high.topics, *(topic for topic, _, _ in gone)}),
            "partitions": len(self.then.high.all) + len(gone),
            "unknown": {},
        }
        self.past.forget(row, ["state", "releases", "segments", "bytes", "directories"], NOT_NOTED)
        if image is None or not known:
            self.past.forget(row, ["metadata_version", "topics", "partitions"], SET_BACK if image else RETENTION)
        self._end()
        return row

    def topics(self, wanted: Names, row_of: Callable[[Replicas, PartitionLog], Fields]) -> Iterator[Fields]:
        """Yield the rows of partitions, those that are gone since last."""
        if self.is_now:
            for log in self.now.pointed_at(wanted):
                bounds = dict.fromkeys(BOUNDS[:2], log.end) | {"clock": FILES, "unknown": {}}
                yield row_of(self.now, log) | bounds
            return
        lows = {_key(log): log for log in self.then.low.pointed_at(wanted)}
        for log in self.then.high.pointed_at(wanted):
            yield self._topic(log, lows.get(_key(log)), row_of)
        for topic, number, topic_id in self.then.gone() if not self.now.place.selection else ():
            if wanted.include(topic):
                row: Fields = {"topic": topic, "partition": number, "topic_id": topic_id}
                yield self.past.forget(row | dict.fromkeys(_OF_PARTITION) | {"unknown": {}}, _OF_PARTITION, GONE)
        self._end()

    def _topic(
        self, log: PartitionLog, low: PartitionLog | None, row_of: Callable[[Replicas, PartitionLog], Fields]
    ) -> Fields:
        reach = self.then.reach(log)
        ends = [row_of(self.then.high, log)]
        if low is not None:
            ends.insert(0, ends[0] if reach.is_known else row_of(self.then.low, low))
        *least, most = (self.past.forget({**row, "unknown": {}}, _UNNOTED, NOT_NOTED) for row in ends)
        (row,) = self.past.agreed(least, [most], ("topic", "partition"), lambda _: reach.reason or self._apart(None))
        if row["records"] is None:
            self.past.forget(row, ["bytes"], row["unknown"]["records"])
        else:
            row["bytes"] = sum(int(block.size.sum()) for _, block in log.blocks())
        if reach.reason == DAMAGE:
            self.past.forget(row, [*_COUNTED, "last_stable_offset", "last_timestamp"], DAMAGE)
        start = log.replayed.log_start_offset
        if start:
            gone = [*_COUNTED, "log_start_offset", "first_timestamp"]
            self.past.forget(row, gone, RETENTION, reach.begins)
        elif _has_holes(reach):
            self.past.forget(row, [*_COUNTED, "first_timestamp"], COMPACTION)
        if not _knows_producers(log, reach):
            self.past.forget(row, ["last_stable_offset"], RETENTION if start else COMPACTION, reach.begins)
        unknown = row.pop("unknown")
        return row | {"end_at_least": reach.low, "end_at_most": reach.high, "clock": reach.clock, "unknown": unknown}

    def producers(self, log: PartitionLog, rows_of: Callable[[PartitionLog], Iterable[Fields]]) -> Iterator[Fields]:
        """Yield the rows of the producers of a partition."""
        if self.is_now:
            yield from ({**row, "unknown": {}} for row in rows_of(log))
            return
        reach = self.then.reach(log)
        low, high = (PastLog.of(log, self.then, is_most=is_most) for is_most in (False, True))
        rows = self.past.agreed(
            rows_of(low), rows_of(high), ("topic", "partition", "producer_id"), lambda _: reach.reason
        )
        for row in rows:
            if reach.reason == DAMAGE or not _knows_producers(high, reach):
                why = RETENTION if log.replayed.log_start_offset else COMPACTION
                names = [name for name in row if name not in {"topic", "partition", "producer_id", "unknown"}]
                self.past.forget(row, names, reach.reason if reach.reason == DAMAGE else why, reach.begins)
            yield row
        self._end()

    def transactions(self, rows_of: Callable[[Replicas, int], Iterable[Fields]]) -> Iterator[Fields]:
        """Yield the rows of transactional ids."""
        if self.is_now:
            yield from ({**row, "unknown": {}} for row in rows_of(self.now, self.past.at))
            return
        low, high = ([*rows_of(view, self.past.at)] for view in (self.then.low, self.then.high))
        is_damaged = self._is_damaged(TRANSACTION_STATE)
        for row in self.past.agreed(low, high, ("transactional_id", "producer_id"), lambda _: self._apart(None)):
            yield self.past.forget(row, _OF_ID if is_damaged else (), DAMAGE)
        seen = {row["transactional_id"] for row in (*low, *high)}
        for name, begins in self._compacted(TRANSACTION_STATE, {(name,) for name in seen if name}):
            row = {"transactional_id": name[0], **dict.fromkeys(_OF_ID), "unknown": {}}
            yield self.past.forget(row, _OF_ID, COMPACTION, begins)
        self._end()

    def lag(self, rows_of: Callable[[Replicas], Iterable[Fields]]) -> Iterator[Fields]:
        """Yield the rows of groups."""
        if self.is_now:
            yield from ({**row, "unknown": {}} for row in rows_of(self.now))
            return
        keys = ("group", "topic", "partition")
        low, high = ([*rows_of(view)] for view in (self.then.low, self.then.high))
        seen = {tuple(row[key] for key in keys) for row in (*low, *high) if row["consumer_offset"] is not None}
        lost = dict(self._compacted(CONSUMER_OFFSETS, seen))
        is_damaged = self._is_damaged(CONSUMER_OFFSETS)
        for row in self.past.agreed(low, high, keys, self._apart):
            key = tuple(row[name] for name in keys)
            self.past.forget(row, _OF_GROUP if is_damaged else (), DAMAGE)
            yield self._with_end(self.past.forget(row, _OF_GROUP, COMPACTION, lost.pop(key)) if key in lost else row)
        for key, begins in lost.items():
            row = dict(zip(keys, key, strict=True)) | dict.fromkeys(("log_end_offset", *_OF_GROUP)) | {"unknown": {}}
            log = self.then.high.find(str(key[1]), int(key[2]))
            reach = None if log is None else self.then.reach(log)
            row["log_end_offset"] = reach.high if reach is not None and reach.is_known else None
            yield self._with_end(self.past.forget(row, _OF_GROUP, COMPACTION, begins))
        self._end()

    def _is_damaged(self, topic: str) -> bool:
        """Whether an end of the log of an internal topic is lost, and with it what counted then."""
        return any(self.then.reach(log).reason == DAMAGE for log in self.now.of(topic))

    def _with_end(self, row: Fields) -> Fields:
        """Say why the end of a partition is not known, and what would need where it began."""
        log = self.then.high.find(row["topic"], row["partition"])
        if row["log_end_offset"] is None and "log_end_offset" not in row["unknown"]:
            if log is not None:
                self.past.forget(row, ["log_end_offset"], self.then.reach(log).reason or self._apart(None))
            elif self._is_gone(row["topic"]):
                self.past.forget(row, ["log_end_offset"], GONE)
                names = [name for name in ("lag", "anomaly") if name not in row["unknown"]]
                self.past.forget(row, names, GONE)
        if log is not None and row["anomaly"] == "before-start":
            self.past.forget(row, ["anomaly"], RETENTION, self.then.reach(log).begins)
        return row

    def _is_gone(self, topic: str) -> bool:
        """Whether a topic was there then, and its log is not here: it is that of another one, or none."""
        image = self.then.images[1]
        return bool(self.now.of(topic)) or (image is not None and topic in image.topics)

    def _apart(self, row: Fields | None) -> str:
        """Return why the rows of both views differ."""
        if row is not None:
            log = self.then.high.find(row["topic"], row["partition"])
            if log is not None and not self.then.reach(log).is_known:
                return self.then.reach(log).reason
            logs = self.now.of(CONSUMER_OFFSETS) + self.now.of(SHARE_GROUP_STATE)
        else:
            logs = self.now.of(TRANSACTION_STATE) + self.now.served
        return next((reach.reason for reach in map(self.then.reach, logs) if not reach.is_known), NOT_NOTED)

    def _compacted(self, topic: str, seen: set[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield the keys of an internal topic of which nothing from before the time is left, where something may have
        been, with the time of the first record that is.

        The cleaner takes a record only for a later one of its key, and then all before it: what is the last of its key
        in front of a place was so when the log was written.

        Args:
            seen: the keys of which something is left.
        """
        for log in self.now.of(topic):
            reach = self.then.reach(log)
            if not _has_holes(reach):
                continue
            what = "groups" if topic == CONSUMER_OFFSETS else "transactional ids"
            remark = f"{what} of which compaction has left no record are not listed, and may have been there then"
            if remark not in self.answer.remarks:
                self.answer.remark(remark)
            past = PastLog.of(log, self.then, is_most=True)
            before = set(first_records(past))
            for key, time in first_records(log).items():
                if key not in before and key not in seen:
                    yield key, time

    def _end(self) -> None:
        self.answer.remarks += [remark for remark in self.past.remarks() if remark not in self.answer.remarks]


def _key(log: PartitionLog) -> tuple[str, int | None]:
    return log.partition.topic, log.partition.partition


def _has_holes(reach: Reach) -> bool:
    """Whether something that was in a log may be missing in it."""
    return reach.hole is not None or bool(reach.first and reach.high)


def _knows_producers(log: PartitionLog, reach: Reach) -> bool:
    """Whether all that wrote to a log up to a time is in its batches, or in the snapshot in front of them."""
    first = log.segments[0].base if log.segments else 0
    if reach.hole is not None or (reach.first and not first and reach.high):
        return False
    return not first or (reach.low >= first and any(file.base == first for file in log.partition.snapshots))
