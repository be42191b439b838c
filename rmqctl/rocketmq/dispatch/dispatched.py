"""What a stretch of log dispatches, column by column: units by queue and hashes of keys.

The result can be pickled: it is what a process that works on a split hands back. The rules are those of
`rmqctl.rocketmq.dispatch.rules`, applied to all records of a block at once; records of batch queues, which are few,
take that module's own path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import TRANSACTION
from formats.rocketmq.tags_code import delivery_time
from rmqctl.rocketmq.dispatch.keys import KeyHashes, delayed, tags_codes
from rmqctl.rocketmq.dispatch.rules import (
    UNQUEUED,
    DispatchRequest,
    DispatchRules,
    request_of_fields,
    split_extra,
)
from rmqctl.rocketmq.dispatch.units import units_of
from rmqctl.rocketmq.findings.log import LOG_BAD_RECORD, LOG_BLANK, LOG_GAP, LOG_TORN_TAIL
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import KeyNumbers, Pairs, TextIds, signed
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.queues.files import UNIT, Units

Key = tuple[bytes, int]
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NO_EXTENSION = -1
_MARK = 1
_LOST = (LOG_BAD_RECORD, LOG_BLANK, LOG_GAP, LOG_TORN_TAIL)


@dataclass(frozen=True, slots=True)
class UnitRun:
    """Units of one simple queue from one stretch of log, in log order.

    Attributes:
        key: topic and queue id.
        offsets: queue offset of each record, shape (n,); None where they are ``first``, ``first + 1``, ... and the
            records ascend.
        times: store time of each record in ms, shape (n,), ``NO_EXTENSION`` for a unit that never has an extension;
            None where the rules have no extension.
    """

    key: Key
    units: Units
    first: int
    offsets: Ints | None = None
    times: Ints | None = None


@dataclass(frozen=True, slots=True)
class IndexColumns:
    """Entries that a stretch of log makes.

    Attributes:
        physical, store_timestamp, keys: of each dispatched record: where it lies, when it was stored (ms), how many
            entries it has (0 where it is not indexed); shape (n,).
        hashes: of all entries in order, shape (keys.sum(),), int32.
    """

    physical: Ints
    store_timestamp: Ints
    keys: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.int32]


@dataclass(slots=True)
class Dispatched:
    """Everything that one stretch of log dispatches.

    Attributes:
        pieces: units of simple queues, each queue once.
        batches: records for batch queues, in log order.
        index: None unless it was asked for.
        records: how many records were dispatched.
        end: physical offset after the last of them; 0 without any.
        last: physical offset of the last record, 0 without any; last_store_timestamp: of it, ms.
        damage: places and lengths in the log that hold no record and should, bytes.
    """

    pieces: list[UnitRun] = field(default_factory=list)
    batches: list[DispatchRequest] = field(default_factory=list)
    index: IndexColumns | None = None
    records: int = 0
    end: int = 0
    last: int = 0
    last_store_timestamp: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which parts of dispatch are wanted.

    Attributes:
        queues, index: queue units, index entries.
        topics: only units of these topics, and of extra queues of these names; None for all. The index is made whole.
        hashes: of index entries; without, they are only counted.
        stated: use PHYSICALOFFSET as a record states it, as brokers do, not where the record lies.
    """

    queues: bool = True
    index: bool = True
    topics: frozenset[bytes] | None = None
    stated: bool = False
    hashes: bool = True


class Dispatcher:
    """Collects what the blocks of a stretch of log dispatch.

    Args:
        rules: of the broker.
    """

    def __init__(self, rules: DispatchRules, wanted: Wanted | None = None) -> None:
        self.rules, self.wanted = rules, wanted or Wanted()
        self._ids, self._hashes, self._numbers = TextIds(), KeyHashes(early=self.rules.is_3), KeyNumbers()
        self._done = Dispatched()
        self._queued: list[_Queued] = []
        self._indexed: list[IndexColumns] = []

    def add(self, found: LogBlock) -> None:
        """Dispatch the records of one block; nothing of it is kept."""
        block = found.block
        self._done.damage += [(f.physical_offset or 0, f.size) for f in found.findings if f.kind in _LOST]
        if not len(block):
            return
        topics, pairs = found.topics(self._ids), self._pairs(found)
        physical = block["physical_offset"] if self.wanted.stated else block.physical
        if self.wanted.queues:
            self._add_queues(block, topics, pairs, physical)
        if self.wanted.index:
            self._add_index(block, topics, pairs, physical)
        self._done.records += len(block)
        self._done.end = int(block.physical[-1] + block.total_size[-1])
        self._done.last = int(block.physical[-1])
        self._done.last_store_timestamp = int(block["store_timestamp"][-1])

    def take(self) -> Dispatched:
        """Return what was collected since the last call."""
        done, self._done = self._done, Dispatched()
        if self._queued:
            done.pieces = list(self._pieces(_Queued.concatenate(self._queued)))
        if self._indexed:
            columns = ([getattr(part, name) for part in self._indexed] for name in IndexColumns.__slots__)
            done.index = IndexColumns(*(np.concatenate(c) for c in columns))
        self._queued, self._indexed = [], []
        return done

    def _pairs(self, found: LogBlock) -> Pairs:
        """Return the properties, as the release of the rules reads them."""
        return early_pairs(found.pairs) if self.rules.strict_properties else found.pairs

    # --- queues -------------------------------------------------------------------------------

    def _add_queues(self, block: Block, topics: Ints, pairs: Pairs, physical: Ints) -> None:
        codes = tags_codes(block, pairs)
        for at, level in delayed(pairs, topics, self._ids.texts).items():
            codes[at] = delivery_time(int(block["store_timestamp"][at]), level, dict(self.rules.delays))
        rows = self._simple_rows(block, topics, physical)
        keys = topics[rows] << 32 | (block["queue_id"][rows].astype(np.int64) & 0xFFFFFFFF)
        row, key, offset, own = self._with_extra(block, topics, pairs, (rows, keys, block["queue_offset"][rows]))
        if self.wanted.topics is not None:
            keep = self._is_wanted(key)
            row, key, offset, own = row[keep], key[keep], offset[keep], own[keep]
        if not len(row):
            return
        units = units_of(physical[row], block.total_size[row], codes[row])
        times = np.where(own, block["store_timestamp"][row], NO_EXTENSION) if self.rules.extension else None
        self._queued.append(_Queued(self._numbers.numbers(key), units, offset, times))

    def _simple_rows(self, block: Block, topics: Ints, physical: Ints) -> Rows:
        """Rows that have a unit in the simple queue of their topic; those of batch queues are put aside."""
        flags = block["sys_flag"]
        queued = np.ones(len(block), bool)
        if (flags & TRANSACTION).any():
            queued = ~np.isin(flags & TRANSACTION, UNQUEUED)
        batch = self._batch_rows(topics) & queued
        if batch.any():
            rows = np.flatnonzero(batch)
            wanted = rows if self.wanted.topics is None else rows[self._is_wanted(topics[rows] << 32)]
            self._done.batches += [self._request(block, row, int(physical[row])) for row in wanted.tolist()]
            queued &= ~batch
        return np.flatnonzero(queued)

    def _batch_rows(self, topics: Ints) -> npt.NDArray[np.bool_]:
        numbers = [n for n, name in enumerate(self._ids.texts) if name in self.rules.batch_topics]
        return np.isin(topics, numbers) if numbers else np.zeros(len(topics), bool)

    def _request(self, block: Block, row: int, physical: int) -> DispatchRequest:
        return request_of_fields({**block.record(row), "physical_offset": physical}, self.rules)

    def _with_extra(
        self, block: Block, topics: Ints, pairs: Pairs, own: tuple[Rows, Ints, Ints]
    ) -> tuple[Rows, Ints, Ints, Flags]:
        """Rows, keys and queue offsets with those of extra queues added, in log order; which are a record's own."""
        extra = self._extra_rows(block, topics, pairs)
        if not extra:
            return *own, np.ones(len(own[0]), bool)
        columns = np.concatenate([np.stack(own), np.array(extra, np.int64).T], axis=1)
        order = np.argsort(columns[0], kind="stable")
        row, key, offset = columns[:, order]
        return row, key, offset, order < len(own[0])

    def _extra_rows(self, block: Block, topics: Ints, pairs: Pairs) -> list[tuple[int, int, int]]:
        """Row, key and queue offset of each unit in a queue of INNER_MULTI_DISPATCH."""
        names, offsets = pairs.named(b"INNER_MULTI_DISPATCH"), pairs.named(b"INNER_MULTI_QUEUE_OFFSET")
        at = {int(row): i for i, row in enumerate(offsets.owner)}
        found = []
        for i, row in enumerate(names.owner.tolist()):
            if row in at and self.rules.dispatches_extra(self._ids.texts[topics[row]]) and self._is_queued(block, row):
                queue_id = int(block["queue_id"][row])
                for extra in split_extra(names.value(i), offsets.value(at[row]), queue_id, self.rules):
                    key = self._ids.number(extra.topic) << 32 | extra.queue_id & 0xFFFFFFFF
                    found.append((row, key, extra.queue_offset))
        return found

    def _is_queued(self, block: Block, row: int) -> bool:
        return int(block["sys_flag"][row]) & TRANSACTION not in UNQUEUED

    def _is_wanted(self, keys: Ints) -> npt.NDArray[np.bool_]:
        wanted = self.wanted.topics or frozenset()
        numbers = [n for n, name in enumerate(self._ids.texts) if name in wanted]
        return np.isin(keys >> 32, numbers)

    def _pieces(self, queued: _Queued) -> list[UnitRun]:
        """Return the rows by queue, those of each queue in log order."""
        order = np.argsort(queued.number, kind="stable")
        numbers, units, offsets = queued.number[order], queued.units[order], queued.offset[order]
        first = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        uneven = self._uneven(units, offsets, first)
        stops, keys = np.append(first[1:], len(numbers)).tolist(), self._numbers.keys()
        times = None if queued.times is None else queued.times[order]
        starts = offsets[first].tolist()
        found = []
        for i, (begin, end) in enumerate(zip(first.tolist(), stops, strict=True)):
            own = offsets[begin:end] if i in uneven else None
            key = keys[int(numbers[begin])]
            name = self._ids.texts[key >> 32], signed(key & 0xFFFFFFFF)
            found.append(UnitRun(name, units[begin:end], starts[i], own, None if times is None else times[begin:end]))
        return found

    @staticmethod
    def _uneven(units: Units, offsets: Ints, first: Ints) -> set[int]:
        """Numbers of the queues whose offsets do not count up by one, or whose records do not ascend."""
        ends = units["physical_offset"] + units["size"]
        broken = np.concatenate([[True], (offsets[1:] != offsets[:-1] + 1) | (ends[1:] <= ends[:-1])])
        broken[first] = False
        odd = np.flatnonzero(broken)
        return set((np.searchsorted(first, odd, "right") - 1).tolist())

    # --- index --------------------------------------------------------------------------------

    def _add_index(self, block: Block, topics: Ints, pairs: Pairs, physical: Ints) -> None:
        if not self.wanted.hashes:
            count, none = self._hashes.counts(block, pairs, tags=self.rules.tag_entries), np.zeros(0, np.int32)
            self._indexed.append(IndexColumns(physical, block["store_timestamp"], count, none))
            return
        keys = self._hashes.columns(block, pairs, topics, self._ids.texts, tags=self.rules.tag_entries)
        count = np.bincount(keys.owner, minlength=len(block)).astype(np.int32)
        self._indexed.append(IndexColumns(physical, block["store_timestamp"], count, keys.hash.astype(np.int32)))


def early_pairs(pairs: Pairs) -> Pairs:
    """Pairs as the decoder of 4.9.0 and before reads them (spec 2.6).

    Marks (0x01) after a value are cut off, and a value with one inside is dropped.
    """
    marks = np.flatnonzero(pairs.data == _MARK)
    if len(marks) == len(pairs):
        return pairs
    stops = pairs.value_at + pairs.value_size
    odd = np.flatnonzero(np.searchsorted(marks, stops) != np.searchsorted(marks, pairs.value_at))
    sizes, keep = pairs.value_size.copy(), np.ones(len(pairs), bool)
    for i in odd.tolist():
        value = pairs.value(i).rstrip(b"\x01")
        sizes[i], keep[i] = len(value), bool(value) and b"\x01" not in value
    return Pairs(pairs.data, pairs.owner, pairs.name_at, pairs.name_size, pairs.value_at, sizes).take(keep)


@dataclass(frozen=True, slots=True)
class _Queued:
    """Units of one block in log order, with the number of each one's queue; shape (n,)."""

    number: npt.NDArray[Any]
    units: Units
    offset: Ints
    times: Ints | None

    @classmethod
    def concatenate(cls, parts: list[_Queued]) -> _Queued:
        number, offset = (np.concatenate([getattr(p, n) for p in parts]) for n in ("number", "offset"))
        units = np.concatenate([p.units for p in parts], dtype=UNIT)  # else in this machine's byte order
        times = [p.times for p in parts if p.times is not None]
        return cls(number, units, offset, np.concatenate(times) if times else None)


__all__ = ["NO_EXTENSION", "Dispatched", "Dispatcher", "IndexColumns", "UnitRun", "Wanted"]
