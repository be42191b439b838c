"""What index files hold of messages that have expired, which no log can give: it stays, and the rest follows it.

A broker deletes an index file when all of its messages have expired (IndexService.deleteExpiredFile); until then the
file has entries that point in front of the log. Built from the log alone, every later file would begin elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rmqctl.files.tree import Entry, Tree
from rmqctl.rocketmq.dispatch.series import BATCH, IndexSeries, IndexSink, chain
from rmqctl.rocketmq.index import IndexFile, IndexHead, index_entries
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.geometry import IndexGeometry
from rmqctl.rocketmq.verify.index_file import header_problem


@dataclass(frozen=True, slots=True)
class ExpiredIndex:
    """What of the index lies in front of the log; can be pickled.

    Attributes:
        kept: headers of full files all of whose messages have expired: the first ones of the store.
        count: entries of such messages that the next file begins with; 0 where there is none.
        head: its header after them.
    """

    tree: Tree
    kept: tuple[IndexHead, ...] = ()
    entry: Entry | None = None
    count: int = 0
    head: IndexHead | None = None

    def series(self, geometry: IndexGeometry, sink: IndexSink, *, counts_slots: bool) -> IndexSeries:
        """Return the series that goes on after them; the entries of the file that is begun are written to ``sink``.

        They keep hash, offset and time; their chains are made again.
        """
        if self.entry is None or self.head is None:
            last = self.kept[-1] if self.kept else None
            return IndexSeries(geometry, counts_slots=counts_slots, sink=sink, head=last, is_closed=last is not None)
        head, table, slots = self.head.copy(), np.zeros(geometry.slots, np.int32), np.int32(geometry.slots)
        file = IndexFile.open(self.tree, self.entry, geometry)
        try:
            for first in range(1, self.count + 1, BATCH):
                entries = file.entries(first, min(BATCH, self.count + 1 - first)).copy()
                hashes = entries["key_hash"].astype(np.int32)
                entries["previous"] = previous = chain(table, hashes - hashes // slots * slots, first)
                head.hash_slot_count += int(np.count_nonzero(previous == 0)) if counts_slots else len(entries)
                sink.entries(first, entries)
        finally:
            file.close()
        return IndexSeries(geometry, counts_slots=counts_slots, sink=sink, head=head, slots=table)


def expired_index(store: StoreFiles, geometry: IndexGeometry) -> ExpiredIndex:
    """Return what of the index files is kept: nothing unless each of them is believable as far as it is asked."""
    begin = store.log_files[0].base if store.log_files else 0
    kept, none = list[IndexHead](), ExpiredIndex(store.tree)
    for entry in index_entries(store) if begin > 0 else ():
        if entry.is_dangling:
            return none
        file = IndexFile.open(store.tree, entry, geometry)
        try:
            if not file.is_whole or header_problem(file, unsettled=store.has_abort):
                return none
            count = file.first_at_or_after(begin) - 1
            if not count:
                break
            if not _in_order(file, count, begin) or not _fits(store, file, count):
                return none
            head = IndexHead(**file.header, on_disk=True)
            if count == file.count and head.is_full(geometry):
                kept.append(head)
                continue
            return ExpiredIndex(store.tree, tuple(kept), entry, count, _head_after(file, head, count))
        finally:
            file.close()
    return ExpiredIndex(store.tree, tuple(kept))


def _in_order(file: IndexFile, count: int, begin: int) -> bool:
    """Whether the first entries point to ascending places in front of the log."""
    last = 0
    for first in range(1, count + 1, BATCH):
        physical = file.entries(first, min(BATCH, count + 1 - first))["physical_offset"].astype(np.int64)
        if not len(physical) or physical[0] < last or physical[-1] >= begin or (np.diff(physical) < 0).any():
            return False
        last = int(physical[-1])
    return True


def _fits(store: StoreFiles, file: IndexFile, count: int) -> bool:
    """Whether the times of entries count from the time that the header says: those of records that the log has, or of
    the last entry.
    """
    begin = file.header["begin_timestamp"]
    with LogReader(store.log_files) as log:
        for number in {min(count + 1, file.count), file.count}:
            entry = file.entry(number)
            if entry is None:
                return False
            is_last = number <= count
            time = file.header["end_timestamp"] if is_last else log.store_timestamp(entry.physical_offset)
            if time is None or (number > 1 and max(time - begin, 0) // 1000 != entry.time_difference):
                return False
    return True


def _head_after(file: IndexFile, head: IndexHead, count: int) -> IndexHead:
    """Return the header as it was when so many entries were there, without its count of slots."""
    time = head.end_timestamp
    if count < file.count:
        entry = file.entry(count)
        time = head.begin_timestamp + 1000 * (entry.time_difference if entry is not None else 0)
    end = file.physical_at(count)
    return replace(head, end_timestamp=time, end_phy_offset=end, hash_slot_count=0, index_count=count + 1)
