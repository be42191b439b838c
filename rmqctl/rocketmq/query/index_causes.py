"""What kept a broker from an index entry that is there, or from making one (spec 4.3 to 4.6)."""

from __future__ import annotations

from dataclasses import dataclass

from rmqctl.rocketmq.index_files import IndexFile
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.query import steps
from rmqctl.rocketmq.query.index_evidence import Place, covers
from rmqctl.rocketmq.query.index_walk import Chain, End, Walk
from rmqctl.rocketmq.query.key import KeyQuery
from rmqctl.rocketmq.query.queue_unit import unit_of
from rmqctl.rocketmq.query.records import Record
from rmqctl.rocketmq.query.steps import Step
from rmqctl.rocketmq.store import RocketMQStore

_ROLLBACK = 0xC
_SECOND = 1000


@dataclass(frozen=True, slots=True)
class IndexCauses:
    """Causes for the messages that one walk through the index did not give.

    Attributes:
        files: the index files, oldest first; at least one.
    """

    store: RocketMQStore
    files: list[IndexFile]
    query: KeyQuery
    walk: Walk

    @property
    def _span(self) -> dict[str, object]:
        return {"span": steps.span(self.query.begin, self.query.end)}

    def why_not_reached(self, place: Place, record: Record) -> Step:
        """Why the walk did not take an entry that is there."""
        file, query = place.file, self.query
        chain = next((c for c in self.walk.chains if c.file.path == file.path), None)
        if not query.begin <= record.store_timestamp <= query.end:
            return self._outside(file, record.store_timestamp)
        if chain is None:
            return self._not_looked_into(file)
        damaged = self._wrong_times(file) if any(file.header.values()) else None
        if damaged is not None:
            return damaged
        if chain.end in {End.NO_ENTRIES, End.TIME}:
            return self._bad_header(file, record)
        if not file.is_whole:
            return self._unreadable(file)
        return self._bad_slot(chain) if chain.end in {End.EMPTY, End.SLOT} else self._broken_chain(chain, place)

    def _bad_header(self, file: IndexFile, record: Record) -> Step:
        """The header says that the file has no entries, or none of the time asked for."""
        header = file.header
        begin, end = header["begin_timestamp"], header["end_timestamp"]
        if not any(header.values()) or (header["index_count"] <= 1 and 0 <= begin <= end):
            at = record.physical_offset
            return steps.INDEX_EMPTY.conclude(file.path, file=file.path, key=self.query.wanted, physical_offset=at)
        if begin <= end and 0 < begin <= record.store_timestamp + _SECOND and end > 0:
            return steps.INDEX_TIME.conclude(file.path, **self._span)
        reason = f"it says that the first entry is of {steps.instant(begin)}, the last of {steps.instant(end)}"
        return steps.INDEX_HEADER.conclude(file.path, file=file.path, key=self.query.wanted, reason=reason)

    def _wrong_times(self, file: IndexFile) -> Step | None:
        """The header has another time than the record it names: all times of the file count from it."""
        reasons = []
        with LogReader(self.store.log_files) as log:
            for side, which in (("begin", "first"), ("end", "last")):
                said, stored = file.header[f"{side}_timestamp"], log.store_timestamp(file.header[f"{side}_phy_offset"])
                if stored not in (None, said):
                    told, right = steps.instant(said), steps.instant(stored or 0)
                    reasons.append(f"it says that the {which} entry is of {told}, but that record was stored {right}")
        if not reasons:
            return None
        return steps.INDEX_HEADER.conclude(file.path, file=file.path, key=self.query.wanted, reason="; ".join(reasons))

    def _outside(self, file: IndexFile, time: int) -> Step:
        return steps.ENTRY_TIME.conclude(file.path, key=self.query.wanted, time=steps.instant(time), **self._span)

    def _not_looked_into(self, file: IndexFile) -> Step:
        cut = self.walk.cut_at
        if cut is not None:
            return steps.FILES_CUT_BY_TIME.conclude(
                cut.path, file=cut.path, key=self.query.wanted, begin=steps.instant(self.query.begin)
            )
        return self._limit(file)

    def _limit(self, file: IndexFile) -> Step:
        return steps.LIMIT.conclude(file.path, limit=self.query.index_query().limit, key=self.query.wanted)

    def _unreadable(self, file: IndexFile) -> Step:
        geometry = file.geometry
        reason = (
            f"it has {file.size} bytes, but {geometry.slots} slots and {geometry.entries} entries "
            f"need {geometry.file_size}"
        )
        return steps.INDEX_UNREADABLE.conclude(file.path, file=file.path, reason=reason)

    def _bad_slot(self, chain: Chain) -> Step:
        path, count = chain.file.path, max(chain.file.header["index_count"] - 1, 0)
        if chain.end is End.EMPTY:
            return steps.SLOT_EMPTY.conclude(path, key=self.query.wanted)
        return steps.SLOT_BAD.conclude(path, slot=chain.slot, file=path, entry=chain.newest, count=count)

    def _broken_chain(self, chain: Chain, place: Place) -> Step:
        path = chain.file.path
        time = chain.file.header["begin_timestamp"] + place.entry.time_difference * 1000
        if not self.query.begin <= time <= self.query.end:
            return self._outside(chain.file, time)
        at: dict[str, object] = {"key": self.query.wanted, "entry": chain.last, "file": path}
        if chain.end is End.LIMIT:
            return self._limit(chain.file)
        if chain.end is End.BEFORE:
            return steps.CHAIN_TIME.conclude(path, **at, begin=steps.instant(self.query.begin), wanted=place.number)
        reason = "it names no entry before it" if chain.end is End.FIRST else str(chain.end)
        return steps.CHAIN_BROKEN.conclude(path, **at, reason=reason)

    def never_indexed(self, record: Record) -> Step:
        """No entry leads to a record: what its place in the log tells of the reason."""
        lost: dict[str, object] = {"key": self.query.wanted, "physical_offset": record.physical_offset}
        first, last = self.files[0], self.files[-1]
        physical = record.physical_offset
        if record.fields["sys_flag"] & _ROLLBACK == _ROLLBACK:
            return steps.NEVER_INDEXED.conclude(**lost, reason="rollback records are not indexed")
        holder = next((f for f in self.files if covers(f, physical)), None)
        if holder is not None and not holder.is_whole:
            return self._unreadable(holder)
        if holder is not None:
            reason = f"{holder.path} holds what was stored before and after it; the index was off, or lost it"
            return steps.NEVER_INDEXED.conclude(holder.path, **lost, reason=reason)
        if physical > last.header["end_phy_offset"] and not self._is_queued(record):
            reason = "it was not dispatched: it has no queue unit either, and a broker dispatches it when it starts"
            return steps.NEVER_INDEXED.conclude(last.path, **lost, reason=reason)
        ends = {"first": first.header["begin_phy_offset"], "last": last.header["end_phy_offset"]}
        return steps.INDEX_OUTSIDE_FILES.conclude("index", **lost, **ends)

    def _is_queued(self, record: Record) -> bool:
        return unit_of(self.store, record).is_there


__all__ = ["IndexCauses"]
