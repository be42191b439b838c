"""Records by key: the log is searched, since Kafka keeps no index of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.kafka.block import Block
from rmqctl.kafka.query.offset import Keep
from rmqctl.kafka.query.partitioner import partition_of_key
from rmqctl.kafka.query.reading import Spans
from rmqctl.kafka.query.steps import Steps
from rmqctl.kafka.records import Records, records_of
from rmqctl.kafka.rows import record_row
from rmqctl.kafka.state.partition_state import PartitionLog

Advance = Callable[[int], object]


def key_rows(
    log: PartitionLog, key: bytes, *, keep: Keep | None = None, advance: Advance = bool
) -> Iterator[dict[str, Any]]:
    """The records of one partition with a key, in order; those of aborted transactions too.

    Args:
        keep: further restrictions; None: every record.
        advance: called with the bytes of log passed since its last call.

    Raises:
        OSError: a file cannot be read.
    """
    for _, block in log.blocks(log.log_start_offset):
        for records in records_of(block.take(~block.flag(Attributes.CONTROL))):
            found = _with_key(records, key)
            wanted = None if keep is None or not found else keep(records)
            for index in found:
                if records.offset[index] >= log.log_start_offset and (wanted is None or wanted[index]):
                    yield record_row(records, index, log.partition)
        advance(_bytes_of(block))


def latest_rows(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Only the last of the rows of a partition."""
    last = None
    for row in rows:
        last = row
    if last is not None:
        yield last


def explain_key(logs: Sequence[PartitionLog], key: bytes, partitions: int, rows: Sequence[dict[str, Any]]) -> Steps:
    """Say where a key belongs, where it was found, and what a consumer does not see of it.

    Args:
        logs: the partitions that were searched.
        partitions: of the topic in the whole cluster.
        rows: what was found.
    """
    steps = Steps(on=True)
    home = partition_of_key(key, partitions)
    steps.add("", "partition", f"the default partitioner puts the key into {home} of {partitions}")
    for log in logs:
        number = log.partition.partition
        found = [row for row in rows if row["partition"] == number]
        steps.add(log.partition.directory, f"partition {number}", f"{len(found)} records with the key")
        hidden = _hidden(log, found)
        if hidden:
            steps.add(log.partition.directory, "transactions", hidden)
    steps.conclude(_conclusion([log.partition.partition or 0 for log in logs], home, rows))
    return steps


def _conclusion(searched: Sequence[int], home: int, rows: Sequence[dict[str, Any]]) -> str:
    if rows:
        others = sorted({row["partition"] for row in rows} - {home})
        where = f"; {', '.join(map(str, others))} is not where the default partitioner puts the key" if others else ""
        return f"{len(rows)} records have the key{where}"
    if home not in searched:
        return f"no record has the key here, but its partition {home} is not in this directory"
    return "no record has the key: never written, or removed by compaction or retention"


def _with_key(records: Records, key: bytes) -> list[int]:
    """Numbers of the records with a key; compared where the sizes are equal."""
    rows = np.flatnonzero(records.key_size == len(key))
    if not len(rows) or not key:
        return [int(row) for row in rows]
    places = records.key_at[rows][:, None] + np.arange(len(key))
    return [int(row) for row in rows[(records.data[places] == np.frombuffer(key, np.uint8)).all(axis=1)]]


def _hidden(log: PartitionLog, rows: Sequence[dict[str, Any]]) -> str:
    """Which of the records readers of committed ones do not get."""
    state = log.replayed
    aborted = Spans(state.producers.aborted)
    undecided = [row["offset"] for row in rows if row["offset"] >= state.last_stable_offset]
    gone = []
    for _, block in log.blocks(min((row["offset"] for row in rows), default=state.log_end_offset)):
        transactional = block.flag(Attributes.TRANSACTIONAL)
        for row in rows:
            hit = np.flatnonzero((block["base_offset"] <= row["offset"]) & (block["last_offset"] >= row["offset"]))
            if len(hit) and transactional[hit[0]]:
                at = int(hit[0])
                if aborted.find(int(block["producer_id"][at]), int(block["base_offset"][at])):
                    gone.append(row["offset"])
    parts = [f"aborted: {', '.join(map(str, gone))}"] * bool(gone)
    parts += [f"not decided: {', '.join(map(str, undecided))}"] * bool(undecided)
    return "; ".join(parts)


def _bytes_of(block: Block) -> int:
    return int(block.size.sum())
