"""One order for the records of several replicas: each message once, every queue ascending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.salvage.gather import NO_QUEUE, Records


@dataclass(frozen=True, slots=True)
class Merged:
    """What is to be written.

    Attributes:
        records: in the order in which they are to be written.
        repeats: records whose place in their queue another record of the same source holds; they come last,
            and get new queue offsets.
        duplicates: records left out because an earlier source, or the same message before, has them.
        conflicts: those among them whose store time or size is another.
    """

    records: Records
    repeats: Records
    duplicates: int
    conflicts: int


def merge(sources: Sequence[Records]) -> Merged:
    """The records of all sources; where two hold the same place of a queue, the earlier source counts."""
    order = np.concatenate([np.arange(len(s)) for s in sources]) if sources else np.zeros(0, np.int64)
    records = np.concatenate(sources)
    first, kept, again = _first_of_each(records, order)
    other = np.flatnonzero(~kept)
    same = again[other]
    conflict = (records["store_timestamp"][other] != records["store_timestamp"][same]) | (
        records["size"][other] != records["size"][same]
    )
    repeated = other[conflict & (records["source"][other] == records["source"][same])]
    chosen = records[first]
    return Merged(
        _ascending(chosen[_by_time(chosen)]),
        records[repeated],
        len(other) - len(repeated),
        int(conflict.sum()) - len(repeated),
    )


def _first_of_each(records: Records, order: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows to keep in order, a flag for each row, and the row that holds the same place."""
    place = np.where(records["queue"] == NO_QUEUE, records["physical"], records["queue_offset"])
    rows = np.lexsort((order, records["source"], place, records["queue"]))
    queue, sorted_place = records["queue"][rows], place[rows]
    new = np.ones(len(rows), bool)
    new[1:] = (queue[1:] != queue[:-1]) | (sorted_place[1:] != sorted_place[:-1])
    kept = np.zeros(len(rows), bool)
    kept[rows[new]] = True
    holder = np.empty(len(rows), np.int64)
    holder[rows] = rows[new][np.cumsum(new) - 1] if len(rows) else rows
    return np.flatnonzero(kept), kept, holder


def _by_time(records: Records) -> Ints:
    """Rows by store time; those of one source stay in its log order, whatever its clock did."""
    time = np.empty(len(records), np.int64)
    for source in np.unique(records["source"]):
        rows = np.flatnonzero(records["source"] == source)
        time[rows] = np.maximum.accumulate(records["store_timestamp"][rows])
    return np.lexsort((np.arange(len(records)), records["source"], time))


def _ascending(records: Records) -> Records:
    """The places of each queue in the order of queue offsets."""
    queued = np.flatnonzero(records["queue"] != NO_QUEUE)
    places = queued[np.argsort(records["queue"][queued], kind="stable")]
    wanted = queued[np.lexsort((records["queue_offset"][queued], records["queue"][queued]))]
    result = records.copy()
    result[places] = records[wanted]
    return result
