"""Which batches and records a user wants: tests on headers first, on keys, values and headers of the rest last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters, Names, within
from rmqctl.kafka.directory.directory import Partition
from rmqctl.kafka.log.block import Block, Flags
from rmqctl.kafka.log.records import Records


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters that commands share, applied to Kafka's records.

    Raises:
        WrongUsage: one of them has no meaning here.
    """

    filters: Filters

    def __post_init__(self) -> None:
        if self.filters.tag is not None:
            raise WrongUsage("--tag", "is for RocketMQ: Kafka's records have keys and headers.")

    @property
    def looks_into_records(self) -> bool:
        """Whether records must be decoded to choose."""
        f = self.filters
        return bool(f.keys) or bool(f.properties) or f.grep is not None or self._is_by_time

    @property
    def _is_by_time(self) -> bool:
        return self.filters.after is not None or self.filters.before is not None

    @property
    def is_selective(self) -> bool:
        """Whether anything but the place in the directory is asked for."""
        return self.looks_into_records or self.filters.from_offset is not None or self.filters.to_offset is not None

    def includes_partition(self, partition: Partition | None) -> bool:
        """Whether a partition's records are wanted at all."""
        topics, queue = self.filters.topics, self.filters.queue
        if partition is None:
            return not topics and queue is None
        return topics.include(partition.topic) and queue in {None, partition.partition}

    def batches(self, block: Block) -> Flags:
        """Batches that may hold wanted records, by their headers, shape (n,)."""
        f = self.filters
        wanted = np.ones(len(block), np.bool_)
        if f.from_offset is not None:
            wanted &= block["last_offset"] >= f.from_offset
        if f.to_offset is not None:
            wanted &= block["base_offset"] < f.to_offset
        if f.after is not None:  # a record is no later than its batch says; messages of magic 0 have no time
            wanted &= block["max_timestamp"] >= f.after
        if f.before is not None:  # of other batches no field says how old the oldest record is
            of_leader = block.flag(Attributes.LOG_APPEND_TIME) & (block["magic"] > 0)
            wanted &= ~of_leader | (block["max_timestamp"] < f.before)
        return wanted

    def records(self, records: Records) -> Flags:
        """Which records are wanted, shape (n,)."""
        f = self.filters
        wanted = np.ones(len(records), np.bool_)
        for column, low, high in (
            (records.offset, f.from_offset, f.to_offset),
            (records.timestamp, f.after, f.before),
        ):
            if low is not None:
                wanted &= column >= low
            if high is not None:
                wanted &= column < high
        if keys := f.keys:
            exact = set(map(_encoded, keys.exact))
            sizes = np.isin(records.key_size, [len(key) for key in exact]) if not keys.like else records.key_size >= 0
            _narrow(wanted, sizes, lambda i: _is_one_of(records.key(i), exact, keys))
        for name, value in f.properties:
            pair = _encoded(name), _encoded(value)
            _narrow(wanted, records.header_count > 0, lambda i, pair=pair: pair in records.headers_of(i))
        if f.grep is not None:
            pattern = f.grep
            _narrow(wanted, records.value_size >= 0, lambda i: pattern.search(records.value(i) or b"") is not None)
        return wanted

    def includes_row(self, row: dict[str, Any]) -> bool:
        """Whether a row that is neither batch nor record passes: an index entry, a producer, a checkpoint's line."""
        f = self.filters
        if row["kind"] == "finding":
            return True
        if f.damaged or f.keys or f.properties or f.grep is not None:
            return False
        offset, time = row.get("offset"), row.get("timestamp", row.get("last_timestamp"))
        return (
            f.topics.include(row.get("topic"))
            and (f.queue is None or row.get("partition") == f.queue)
            and within(offset, f.from_offset, f.to_offset)
            and within(time, f.after, f.before)
        )


def _narrow(wanted: Flags, cheap: Flags, test: Any) -> None:
    """Keep those that pass a test made record by record, where a cheap one on columns passes."""
    wanted &= cheap
    for index in np.flatnonzero(wanted).tolist():
        wanted[index] = test(index)


def _is_one_of(key: bytes | None, exact: set[bytes], keys: Names) -> bool:
    if key is None:
        return False
    return key in exact or bool(keys.like and keys.include(key.decode("utf-8", "surrogateescape")))


def _encoded(value: str | None) -> bytes:
    """Text of the command line as the bytes that stand in a record."""
    return (value or "").encode("utf-8", "surrogateescape")
