"""Records by key: the log is searched, since Kafka keeps no index of keys; and the partition that a key belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.kafka.record_batch import Attributes
from rmqctl.explain import Trace
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.query.offset import Keep
from rmqctl.kafka.query.steps import KEY_ELSEWHERE, NO_KEY
from rmqctl.kafka.rows import record_row
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.parallel import Ordered
from rmqctl.text import number_of

_M, _R = 0x5BD1E995, 24
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash that Kafka's default partitioner takes of a key, unsigned."""
    size = len(data)
    h = (_SEED ^ size) & _MASK
    for at in range(0, size - size % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[size - size % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that the default partitioner of the Java client chooses for a key."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of_keys(keys: npt.NDArray[np.uint8], partitions: int) -> npt.NDArray[np.int64]:
    """Return :func:`partition_of_key` of many keys of one length, shape (n, bytes of a key), as shape (n,)."""
    n, size = keys.shape
    words = np.ascontiguousarray(keys[:, : size - size % 4]).view("<u4")
    m, h = np.uint32(_M), np.full(n, (_SEED ^ size) & _MASK, np.uint32)
    for at in range(size // 4):
        k = words[:, at] * m
        k = (k ^ k >> np.uint32(_R)) * m
        h = h * m ^ k
    if size % 4:
        for at in range(size % 4):
            h ^= keys[:, size - size % 4 + at].astype(np.uint32) << np.uint32(8 * at)
        h *= m
    h = (h ^ h >> np.uint32(13)) * m
    h ^= h >> np.uint32(15)
    return ((h & np.uint32(_POSITIVE)) % np.uint32(partitions)).astype(np.int64)


def partition_of_name(name: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` or ``__transaction_state`` for a group or a transactional id."""
    units = name.encode("utf-16-be", "surrogatepass")
    h = 0
    for at in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[at : at + 2], "big")) & _MASK
    signed = h - (1 << 32) if h >> 31 else h
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


Advance = Callable[[int], object]
SegmentPlace = tuple[int, int]
"""Number of a partition in the search, and of a segment in it."""
SegmentRows = list[dict[str, Any]]


@dataclass
class KeySearch:
    """A search for a key in some partitions, segment by segment, in one process or several.

    Attributes:
        keep: further restrictions; None: every record.
        advance: called with the bytes of log passed since its last call.
    """

    logs: Sequence[PartitionLog]
    key: bytes
    keep: Keep | None = None
    processes: int = 1
    advance: Advance = field(default=bool, repr=False)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the records with the key in order, of aborted transactions too; each with the number of its log."""
        parts = [(number, segment) for number, log in enumerate(self.logs) for segment in range(len(log.served))]
        for (number, segment), rows in zip(parts, self._results(parts), strict=True):
            file = self.logs[number].served[segment].log
            self.advance(file.size if file else 0)
            yield from ((number, row) for row in rows)

    def _results(self, parts: list[SegmentPlace]) -> Iterator[SegmentRows]:
        if self.processes == 1 or len(parts) == 1:
            return map(self._search, parts)
        searcher = replace(self, advance=bool)
        return Ordered(searcher.worker, min(self.processes, len(parts)), 2 * self.processes).results(parts)

    def worker(self) -> Callable[[SegmentPlace], SegmentRows]:
        """Return what works on a part in a process of its own."""
        return self._search

    def _search(self, part: SegmentPlace) -> SegmentRows:
        log = self.logs[part[0]]
        found = []
        for block in log.blocks_of(part[1]):
            for records in records_of(block.take(~block.flag(Attributes.CONTROL))):
                hits = _with_key(records, self.key)
                wanted = None if self.keep is None or not hits else self.keep(records)
                found += [
                    record_row(records, index, log.partition)
                    for index in hits
                    if records.offset[index] >= log.loaded.log_start_offset and (wanted is None or wanted[index])
                ]
        return found


def latest_rows(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Only the last row of each partition."""
    last: dict[str, Any] | None = None
    for row in rows:
        if last is not None and last["partition"] != row["partition"]:
            yield last
        last = row
    if last is not None:
        yield last


def explain_key(logs: Sequence[PartitionLog], key: bytes, partitions: int, rows: Sequence[Mapping[str, Any]]) -> Trace:
    """Say where a key belongs, where it was found, and what a consumer does not see of it.

    Args:
        logs: the partitions that were searched.
        partitions: of the topic in the whole cluster.
        rows: what was found.
    """
    steps = Trace(on=True)
    home = partition_of_key(key, partitions)
    steps.add("", "partition", f"the default partitioner puts the key into partition {home} (of 0 to {partitions - 1})")
    for log in logs:
        number = log.partition.partition
        found = [row for row in rows if row["partition"] == number]
        steps.add(log.partition.directory, f"partition {number}", f"{number_of(len(found), 'record')} with the key")
        hidden = _hidden(log, found)
        if hidden:
            steps.add(log.partition.directory, "transactions", hidden)
    if rows:
        others = sorted({row["partition"] for row in rows} - {home})
        where = f"; {', '.join(map(str, others))} is not where the default partitioner puts the key" if others else ""
        steps.found(f"{number_of(len(rows), 'record', 'have')} the key{where}")
    elif home not in {log.partition.partition or 0 for log in logs}:
        steps.conclude(KEY_ELSEWHERE, home=home)
    else:
        steps.conclude(NO_KEY)
    return steps


def _with_key(records: Records, key: bytes) -> list[int]:
    """Numbers of the records with a key; compared where the sizes are equal."""
    rows = np.flatnonzero(records.key_size == len(key))
    if not len(rows) or not key:
        return [int(row) for row in rows]
    places = records.key_at[rows][:, None] + np.arange(len(key))
    return [int(row) for row in rows[(records.data[places] == np.frombuffer(key, np.uint8)).all(axis=1)]]


def _hidden(log: PartitionLog, rows: Sequence[Mapping[str, Any]]) -> str:
    """Which of the records readers of committed ones do not get."""
    state = log.replayed
    aborted = state.aborted
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
