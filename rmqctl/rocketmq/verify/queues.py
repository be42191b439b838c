"""Consume queues against the log: every record has its unit, and every unit its record (spec 3, 14).

The log drives. For each block the units of its records are looked up and compared at once; what a
queue holds beyond that is counted at the end, and only queues whose count does not come out are
read unit by unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import TRANSACTION
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.errors import MissingExtra
from rmqctl.files.tree import Listing
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.keys import DelayLevels, delayed, tags_codes
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, DispatchRules, ExtraQueue, split_extra
from rmqctl.rocketmq.dispatch.units import units_of
from rmqctl.rocketmq.findings.derived import QUEUE_DATABASE
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import KeyNumbers, Pairs, TextIds, run_starts, signed
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import UNIT, Queue, UnitPages, Units, Window
from rmqctl.rocketmq.queues.rocksdb import QueueDatabase, open_queues
from rmqctl.rocketmq.store.databases import DatabaseDamaged, can_read
from rmqctl.rocketmq.store.files import LIGHT, QUEUES, QueueFiles, StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import Geometry
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.missing import Key, MissingUnits
from rmqctl.rocketmq.verify.unit_kinds import (
    BatchClaim,
    BatchMatch,
    ExtensionProblem,
    Extensions,
    extension_findings,
    finish_batches,
)
from rmqctl.rocketmq.verify.unmatched import ClaimedUnits, FileQueues, finish_queues

_MAX_EXT = -(1 << 31) - 1
_SAMPLE = 64
_CLAIM = 4
"""Columns of what a queue's records claim: count, lowest and highest queue offset, physical end."""
_LIGHT = LIGHT.encode()


@dataclass(slots=True)
class QueuePartial:
    """What one split of the log says of the queues.

    Attributes:
        claims: records of each queue that have a right unit.
        missing: runs of records without a unit, or with a wrong one.
        batches: what inner batches claim of batch queues.
        extensions: extension units that do not fit their record.
    """

    claims: dict[Key, ClaimedUnits] = field(default_factory=dict)
    missing: MissingUnits = field(default_factory=MissingUnits)
    batches: dict[Key, BatchClaim] = field(default_factory=dict)
    extensions: list[ExtensionProblem] = field(default_factory=list)

    def join(self, other: QueuePartial) -> None:
        """Add what the next split says."""
        for key, claim in other.claims.items():
            self.claims.setdefault(key, ClaimedUnits()).join(claim)
        for key, batches in other.batches.items():
            self.batches.setdefault(key, BatchClaim()).join(batches)
        self.missing.join(other.missing)
        self.extensions += other.extensions

    @property
    def dispatched(self) -> int:
        """Physical offset after the last record with a unit, in whatever queue; -1 without one."""
        ends = [claim.end for claim in self.claims.values()] + [batch.dispatched for batch in self.batches.values()]
        return max(ends, default=-1)


class QueueChecker:
    """Compares the records of one split with the consume queues."""

    def __init__(self, store: StoreFiles, context: LogContext, ids: TextIds, numbers: KeyNumbers) -> None:
        self.store, self.context = store, context
        self._database = ExitStack()
        self._units = self._opened()
        self.enabled = not store.is_rocksdb or self._units is not None
        self._skips_light = store.has_light_database and self._units is None
        self._ids, self._numbers = ids, numbers
        self._queues: dict[int, Queue | None] = {}
        self._pages = UnitPages(self._queue)
        self._levels = DelayLevels.of(context.settings.get("messageDelayLevel"), self._shown_delays)
        self._rules = DispatchRules(Release(*context.highest_release))
        self._batches = BatchMatch(store, context.batch_topics)
        self._extensions = Extensions(store)
        self._claimed = np.zeros((_CLAIM, 0), np.int64)
        self._claims: dict[int, ClaimedUnits] = {}
        self._missing = MissingUnits()

    def block(self, found: LogBlock) -> None:
        """Look up the units of a block's records; what is wrong is reported at the end, when the log is known."""
        block = found.block
        if not self.enabled or not len(block):
            return
        pairs, topics = found.pairs, found.topics(self._ids)
        queue, row = found.by_queue(self._ids, self._numbers)
        queued = self._queued(block, pairs, topics)
        if queued is not None:
            kept = queued[row]
            queue, row = queue[kept], row[kept]
        if len(row):
            self._compare(block, queue, row, pairs, topics)
        self._dispatched_elsewhere(block, pairs)

    def partial(self) -> QueuePartial:
        """Return the claims of this split by topic and queue id; gives back what the units took."""
        self._pages.close()
        self._extensions.close()
        names = {number: self._name(key) for number, key in enumerate(self._numbers.keys())}
        claims = {names[number]: claim for number, claim in self._claims.items()}
        for number in np.flatnonzero(self._claimed[0]).tolist():
            claims.setdefault(names[number], ClaimedUnits()).add(*self._claimed[:, number].tolist())
        self._database.close()
        return QueuePartial(claims, self._missing, self._batches.claims(), self._extensions.problems)

    def _name(self, key: int) -> Key:
        return self._ids.texts[key >> 32].decode("utf-8", "replace"), signed(key & 0xFFFFFFFF)

    def _queue(self, number: int) -> Queue | None:
        if number not in self._queues:
            topic, queue_id = self._name(self._numbers.keys()[number])
            queue = self._open(topic, queue_id)
            self._queues[number] = queue if queue.files else None
        return self._queues[number]

    def _open(self, topic: str, queue_id: int) -> Queue:
        if self._units is not None and self.store.in_database(topic):
            return DatabaseQueue.of(self._units, topic, queue_id, self.store)
        path = f"{QUEUES}/{topic}/{queue_id}"
        return Queue.open(QueueFiles(QUEUES, topic, queue_id, path, self.store.tree))

    def _opened(self) -> QueueDatabase | None:
        """Return the database, open as long as the split is checked; None where queues are files, or it cannot
        be read.
        """
        if not (self.store.is_rocksdb or self.store.has_light_database):
            return None
        with suppress(MissingExtra, DatabaseDamaged):
            return self._database.enter_context(open_queues(self.store))
        return None

    def _queued(self, block: Block, pairs: Pairs, topics: Ints) -> npt.NDArray[np.bool_] | None:
        """Which records have a unit in the simple queue of their topic, None for all; batches go to batch queues."""
        flags = block["sys_flag"]
        negative = block["queue_offset"] < 0
        batches = self._batches.rows(block, topics, self._ids.texts)
        if not (len(batches) or negative.any() or (flags & TRANSACTION).any()):
            return None
        queued = ~(negative | np.isin(flags & TRANSACTION, UNQUEUED))
        if len(batches):
            self._batches.claim(block, batches, pairs, topics, self._ids.texts)
            queued[batches] = False
        return queued

    def _compare(self, block: Block, queue: Ints, row: Ints, pairs: Pairs, topics: Ints) -> None:
        """Compare records, sorted by queue, with their units."""
        at_home = block["physical_offset"][row] == block.physical[row]
        if not at_home.all():  # a copy of a record claims nothing: the unit is that of the other one
            queue, row = queue[at_home], row[at_home]
            if not len(row):
                return
        offset, physical, size = block["queue_offset"][row], block["physical_offset"][row], block.total_size[row]
        codes, end = tags_codes(block, pairs)[row], block.physical[row] + size
        levels = delayed(pairs, topics, self._ids.texts)
        if levels:
            codes = self._due(block, row, levels, codes)
        if self._pages.holds(queue, offset, units_of(physical, size, codes)):
            self._claim(queue, offset, end)
            return
        units = self._pages.lookup(queue, offset)
        placed = (units["physical_offset"] == physical) & (units["size"] == size)
        stored = units["tags_code"].astype(np.int64)
        right = placed & (stored == codes)
        if levels and self._rules.delay_slack:
            right |= placed & np.isin(row, list(levels)) & (np.abs(stored - codes) <= self._rules.delay_slack)
        odd = np.flatnonzero(placed & ~right)
        if len(odd):
            right[odd[self._extended(block, topics, row[odd], stored[odd], codes[odd])]] = True
        if right.any():
            self._claim(queue[right], offset[right], end[right])
        wrong = np.flatnonzero(~right)
        self._note_missing(block, row[wrong], queue[wrong], units[wrong], codes[wrong])

    def _due(self, block: Block, row: Ints, levels: dict[int, int], codes: Ints) -> Ints:
        """Return the codes, for delayed messages the time when they are due."""
        queue_ids, times, due = block["queue_id"], block["store_timestamp"], codes.copy()
        for i in np.flatnonzero(np.isin(row, list(levels))).tolist():
            r = int(row[i])
            due[i] = self._levels.due(levels[r], int(queue_ids[r]), int(times[r]))
        return due

    def _shown_delays(self, queue_id: int) -> Iterator[int]:
        """Delivery time less store time of some messages of a queue of the schedule topic."""
        queue = self._open(SCHEDULE_TOPIC, queue_id)
        with LogReader(self.store.log_files) as log:
            for file in queue.files[:1] + queue.files[1:][-1:]:
                _, units = next(queue.chunks(file), (0, np.zeros(0, UNIT)))
                written = np.flatnonzero(units["size"] > 0)
                for unit in units[written[:: -(-len(written) // _SAMPLE) or 1]]:
                    stored = log.store_timestamp(int(unit["physical_offset"]))
                    if stored is not None:
                        delay = int(unit["tags_code"]) - stored
                        yield round(delay, -3) if self._rules.delay_slack else delay

    def _extended(self, block: Block, topics: Ints, row: Ints, stored: Ints, codes: Ints) -> Ints:
        """Which units carry the address of an extension unit, and the right one."""
        fine = [
            i
            for i, (r, code) in enumerate(zip(row.tolist(), stored.tolist(), strict=True))
            if code <= _MAX_EXT and self._is_extended(block, int(topics[r]), r, code, int(codes[i]))
        ]
        return np.array(fine, np.int64)

    def _is_extended(self, block: Block, topic_number: int, row: int, address: int, code: int) -> bool:
        """Whether an address is that of the record's extension unit, sound or damaged."""
        topic, queue_id = self._ids.texts[topic_number].decode("utf-8", "replace"), int(block["queue_id"][row])
        wanted = code, int(block["store_timestamp"][row])
        return self._extensions.names(topic, queue_id, address, wanted, int(block.physical[row]))

    def _claim(self, queue: Ints, offset: Ints, end: Ints) -> None:
        """Note, for each queue of the block, how many right units it has, at least one, and where they lie."""
        first = run_starts(queue)
        counts = np.diff(np.append(first, len(queue)))
        numbers, missing = queue[first], int(queue[-1]) + 1 - self._claimed.shape[1]
        if missing > 0:
            unclaimed = np.repeat([[0], [np.iinfo(np.int64).max], [-1], [-1]], max(missing, self._claimed.shape[1]), 1)
            self._claimed = np.concatenate([self._claimed, unclaimed], axis=1)
        claimed, lows = self._claimed, np.minimum.reduceat(offset, first)
        claimed[0, numbers] += counts
        claimed[1, numbers] = np.minimum(claimed[1, numbers], lows)
        for row, column in ((2, offset), (3, end)):
            claimed[row, numbers] = np.maximum(claimed[row, numbers], np.maximum.reduceat(column, first))

    def _note_missing(self, block: Block, row: Ints, queue: Ints, units: Units, codes: Ints) -> None:
        """Keep the records whose unit is empty or wrong."""
        if len(row):
            keys = self._numbers.keys()
            numbers, index = np.unique(queue, return_inverse=True)
            names = [self._name(keys[number]) for number in numbers.tolist()]
            place = block["queue_offset"][row], block.physical[row], block.total_size[row]
            self._missing.add_wrong(names, index, *place, units, codes)

    def _dispatched_elsewhere(self, block: Block, pairs: Pairs) -> None:
        """Claims on the queues of INNER_MULTI_DISPATCH (LMQ and others, spec 3.7)."""
        names, offsets = pairs.named(b"INNER_MULTI_DISPATCH"), pairs.named(b"INNER_MULTI_QUEUE_OFFSET")
        at = {int(row): i for i, row in enumerate(offsets.owner)}
        for i, row in enumerate(names.owner.tolist()):
            if row in at and self._rules.dispatches_extra(block.topic(row)):
                queue_id = int(block["queue_id"][row])
                for extra in split_extra(names.value(i), offsets.value(at[row]), queue_id, self._rules):
                    self._claim_dispatch(block, row, extra)

    def _claim_dispatch(self, block: Block, row: int, extra: ExtraQueue) -> None:
        if extra.queue_offset < 0 or (self._skips_light and extra.topic.startswith(_LIGHT)):
            return
        key = self._ids.number(extra.topic) << 32 | extra.queue_id & 0xFFFFFFFF
        number, offset = int(self._numbers.numbers(np.array([key]))[0]), extra.queue_offset
        unit = self._pages.lookup(np.array([number]), np.array([offset]))[0]
        physical, end = int(block.physical[row]), int(block.physical[row] + block.total_size[row])
        if int(unit["physical_offset"]) == int(block["physical_offset"][row]) and int(unit["size"]):
            self._claims.setdefault(number, ClaimedUnits()).add(1, offset, offset, end)
        elif int(unit["size"]) == 0:
            name, size = self._name(self._numbers.keys()[number]), int(block.total_size[row])
            self._missing.add([name], *(np.array([value]) for value in (0, offset, physical, size)))


def finish(
    store: StoreFiles,
    geometry: Geometry,
    listed: dict[str, Listing],
    said: QueuePartial,
    context: LogContext,
    window: Window | None = None,
) -> Iterator[Finding]:
    """Yield what only shows when the whole log has been seen: missing units, units of no record, ends of queues.

    Args:
        listed: names and sizes of each consume queue's files by its path.
        said: by all splits.
        window: only units count that lead into this part of the log; None: all.
    """
    claims, missing = said.claims, said.missing
    if store.is_rocksdb:
        yield from finish_database(store, claims, missing, context, geometry.commit_log_file_size)
        return
    file_size = geometry.commit_log_file_size
    if store.has_light_database:
        light = {key: claim for key, claim in claims.items() if store.in_database(key[0])}
        lacking = missing.of_queues(lambda key: store.in_database(key[0]))
        yield from finish_database(store, light, lacking, context, file_size)
        claims = {key: claim for key, claim in claims.items() if key not in light}
        missing = missing.of_queues(lambda key: not store.in_database(key[0]))
    opened = FileQueues(store, listed, claims, context, window)
    yield from finish_queues(store, opened, claims, missing, context, file_size)
    yield from extension_findings(said.extensions, context)
    yield from finish_batches(store, said.batches, context, window)


_CHUNK_UNITS = 1 << 16


@dataclass(slots=True)
class DatabaseQueue(Queue):
    """A queue whose units lie in the database; its one file stands for the span of their offsets."""

    database: QueueDatabase | None = None

    @classmethod
    def of(cls, database: QueueDatabase, topic: str, queue_id: int, store: StoreFiles) -> DatabaseQueue:
        """Return the queue; without a file where it has no unit, or none that can be read."""
        place = store.queue_database or QUEUES
        where = QueueFiles(QUEUES, topic, queue_id, f"{place}/{topic}/{queue_id}", store.tree)
        first = last = None
        with suppress(DatabaseDamaged):  # the end of the checks says it
            first = next(database.units_of(topic, queue_id), None)
            last = database.last_unit(topic, queue_id)
        files = []
        if first is not None and last is not None:
            base, count = first.queue_offset, last.queue_offset - first.queue_offset + 1
            files = [StoreFile(place, base * UNIT.itemsize, count * UNIT.itemsize, store.tree, place)]
        return cls(where, files, UNIT, database)

    def read(self, file: StoreFile, first: int = 0, count: int | None = None) -> Units:
        """Units from number ``first`` of the span on; one that is not there is zero."""
        span = file.size // UNIT.itemsize
        units = np.zeros(max(span - first if count is None else min(count, span - first), 0), UNIT)
        base = file.base // UNIT.itemsize + first
        assert self.database is not None
        with suppress(DatabaseDamaged):
            for unit in self.database.units_of(*self.key, base):
                at = unit.queue_offset - base
                if at >= len(units):
                    break
                units[at] = (unit.physical_offset, unit.size, unit.tags_code)
        return units

    def chunks(self, file: StoreFile) -> Iterator[tuple[int, Units]]:
        """Yield the pieces of the span that hold a unit, each with the number of its first one.

        A row with a damaged key may have any queue offset, and lie an age away from the others.
        """
        assert self.database is not None
        base, first = file.base // UNIT.itemsize, 0
        while (unit := next(self.database.units_of(*self.key, base + first), None)) is not None:
            first = (unit.queue_offset - base) // _CHUNK_UNITS * _CHUNK_UNITS
            yield first, self.read(file, first, _CHUNK_UNITS)
            first += _CHUNK_UNITS

    def file_name(self, position: int) -> str:
        """Return the database as a whole."""
        return self.files[0].name if self.files else QUEUES


# --- the end of the checks of rocksdb queues --------------------------------------------------------


def finish_database(
    store: StoreFiles, claims: dict[Key, ClaimedUnits], missing: MissingUnits, context: LogContext, file_size: int
) -> Iterator[Finding]:
    """Yield findings of the queues that are read from the database, and of records without a unit; none without the
    extra.

    Raises:
        Refused: the store is remote.
    """
    if not can_read():
        return
    context = replace(context, dispatched=max((claim.end for claim in claims.values()), default=-1))
    try:
        with open_queues(store) as database:
            for _ in database.units():  # a block that cannot be read is no missing unit
                pass
            opened = (DatabaseQueue.of(database, *key, store) for key in database.queues() if store.in_database(key[0]))
            yield from finish_queues(
                store, lambda _: (queue for queue in opened if queue.files), claims, missing, context, file_size
            )
    except DatabaseDamaged as error:
        yield Finding(
            QUEUE_DATABASE, store.queue_database or QUEUES, 0, 0, f"the database cannot be opened: {error.reason}"
        )
