"""Units of batch queues and of extensions against the log (spec 3.5, 3.6).

Units of a batch queue lie one after the other, whatever their queue offsets. Each split looks up its batches by
halving; only queues that do not come out even are read unit by unit.

A tags code may be an address into consumequeue_ext, which leads to the unit that has the true one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.consumequeue import EXT_ADDRESS_BASE
from formats.rocketmq.consumequeue_ext import HEAD_SIZE, ConsumeQueueExtUnit
from formats.rocketmq.message import TRANSACTION
from formats.rocketmq.properties import split_properties
from formats.rocketmq.tags_code import tags_code
from rmqctl.files.local import ByteSource
from rmqctl.findings import Finding, FindingKind
from rmqctl.rocketmq.dispatch.keys import tags_codes
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, inner_batch
from rmqctl.rocketmq.findings.derived import (
    QUEUE_AHEAD,
    QUEUE_EXT,
    QUEUE_HOLE,
    QUEUE_MISSING,
    QUEUE_MISSING_UNITS,
    QUEUE_STALE_TAIL,
    QUEUE_UNDISPATCHED,
    QUEUE_UNIT_MISMATCH,
)
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import Pairs
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import (
    BATCH_UNIT,
    Queue,
    QueueWindow,
    Units,
    Window,
    misnamed_queue,
    queue_home,
    queues_of,
)
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    QUEUES_EXT,
    QueueFiles,
    StoreFile,
    StoreFiles,
    is_unread,
    refusals_of,
    sequence,
)
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.missing import Key
from rmqctl.rocketmq.verify.unmatched import ClaimedUnits

_HEAD = plan_of(ConsumeQueueExtUnit).runs[0]
Wrong = tuple[int, int, str]
"""Offset and size of a wrong field in its unit, bytes, and what is wrong."""


@dataclass(frozen=True, slots=True)
class ExtensionProblem:
    """An extension unit that does not fit the record whose queue unit names it.

    Attributes:
        file: the extension file, or the queue's directory where it has none.
        offset, size: the bytes that are wrong; 0 and 0 where there is no file.
        what: the problem, the same for all of its sort.
        physical: physical offset of the record.
    """

    topic: str
    queue_id: int
    file: str
    offset: int
    size: int
    what: str
    physical: int


class Extensions:
    """The extension files of all queues, opened when first asked for."""

    def __init__(self, store: StoreFiles) -> None:
        self.store = store
        self.problems: list[ExtensionProblem] = []
        self._files: dict[str, list[StoreFile]] = {}
        self._open: dict[str, ByteSource] = {}

    def close(self) -> None:
        """Close all files."""
        for source in self._open.values():
            source.close()
        self._open.clear()

    def names(self, topic: str, queue_id: int, address: int, wanted: tuple[int, int], physical: int) -> bool:
        """Whether a queue unit's address is that of the record's extension unit; a damaged one is kept as a problem.

        An address is taken to be right when the unit there has the record's tags code or its store time, when nothing
        is written there, or when the file it leads to is gone.

        Args:
            wanted: tags code and store time (ms) of the record.
            physical: physical offset of the record.
        """
        path, offset = f"{QUEUES_EXT}/{topic}/{queue_id}", address - EXT_ADDRESS_BASE
        files = self._listed(path)
        file = next((f for f in files if f.base <= offset < f.base + f.size), None)
        wrong: Wrong | None = (0, 0, "the extension file that units point into is gone")
        if file is not None:
            head = self._head(file, offset - file.base)
            if head.leads_elsewhere(wanted):
                return False
            wrong = head.wrong_field(wanted)
        elif files and offset >= files[-1].base + 2 * files[-1].size:
            return False
        name, position = (file.name, offset - file.base) if file else (path, 0)
        if wrong and not is_unread(refusals_of(self.store.tree), name):
            self.problems.append(
                ExtensionProblem(topic, queue_id, name, position + wrong[0], wrong[1], wrong[2], physical)
            )
        return True

    def _head(self, file: StoreFile, position: int) -> _Head:
        if file.name not in self._open:
            self._open[file.name] = file.open()
        raw = self._open[file.name].read_at(position, HEAD_SIZE).ljust(HEAD_SIZE, b"\0")
        size, tags_code, store_timestamp, bitmap = _HEAD.packer.unpack(raw)
        return _Head(size, tags_code, store_timestamp, bitmap, file.size - position)

    def _listed(self, path: str) -> list[StoreFile]:
        if path not in self._files:
            self._files[path] = sequence(self.store.tree, path, path)[0]
        return self._files[path]


@dataclass(frozen=True, slots=True)
class _Head:
    """The fixed fields of an extension unit, and the bytes from it to the end of its file."""

    size: int
    tags_code: int
    store_timestamp: int
    bitmap: int
    room: int

    @property
    def is_empty(self) -> bool:
        """Nothing is written here."""
        return not (self.size or self.tags_code or self.store_timestamp or self.bitmap)

    def leads_elsewhere(self, wanted: tuple[int, int]) -> bool:
        """Whether nothing here is the record's."""
        return not self.is_empty and self.tags_code != wanted[0] and self.store_timestamp != wanted[1]

    def wrong_field(self, wanted: tuple[int, int]) -> Wrong | None:
        """Return the first field that cannot be right."""
        if self.is_empty:
            return 0, HEAD_SIZE, "nothing is written where an extension unit should be"
        if self.tags_code != wanted[0]:
            return 2, 8, "the extension unit has another tags code than the record"
        if self.store_timestamp != wanted[1]:
            return 10, 8, "the extension unit has another store time than the record"
        if self.size != HEAD_SIZE + self.bitmap or not HEAD_SIZE <= self.size <= self.room:
            return 0, HEAD_SIZE, "the sizes of the extension unit and of its bitmap contradict each other"
        return None


def extension_findings(problems: list[ExtensionProblem], context: LogContext) -> Iterator[Finding]:
    """One finding for each sort of problem in a file, at the first place."""
    groups: dict[tuple[str, str], list[ExtensionProblem]] = {}
    for problem in problems:
        if not context.is_damaged(problem.physical, problem.physical + 1):
            groups.setdefault((problem.file, problem.what), []).append(problem)
    for (file, what), found in groups.items():
        first = min(found, key=lambda p: p.offset)
        more = f"; so it is at {len(found) - 1} more places behind" if len(found) > 1 and first.size else ""
        units = f"; {len(found)} units do" if not first.size else ""
        yield Finding(
            QUEUE_EXT, file, first.offset, first.size, f"{what} (record at {first.physical}){more}{units}",
            physical_offset=first.physical, topic=first.topic, queue_id=first.queue_id,
        )  # fmt: skip


# --- batch consume queues against the log ----------------------------------------------------------


_SIZE = BATCH_UNIT.itemsize


class Batch(NamedTuple):
    """A record of a batch queue as its unit must say it, fields as in the schema of the unit."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int

    @property
    def end(self) -> int:
        """Physical offset after the record."""
        return self.physical_offset + self.size


@dataclass(slots=True)
class BatchClaim:
    """What the log claims of one batch queue.

    Attributes:
        claim: of the records with a queue offset: count, first and last queue offset, begin and end.
        unmatched: those whose unit was not found, in log order.
        dispatched: physical offset after the last whose unit was found; -1 without one.
    """

    claim: ClaimedUnits = field(default_factory=ClaimedUnits)
    unmatched: list[Batch] = field(default_factory=list)
    dispatched: int = -1

    def join(self, other: BatchClaim) -> None:
        """Add what the next split claims."""
        self.claim.join(other.claim)
        self.unmatched += other.unmatched
        self.dispatched = max(self.dispatched, other.dispatched)


class BatchMatch:
    """Finds the records of one split that have units in batch queues, and these units.

    Args:
        topics: those whose queues are batch queues.
    """

    def __init__(self, store: StoreFiles, topics: frozenset[bytes]) -> None:
        self.store, self.topics = store, topics
        self._found: dict[Key, list[Batch]] = {}

    def rows(self, block: Block, topics: Ints, names: list[bytes]) -> Ints:
        """Rows of the records of batch topics: those that have no unit in a simple queue."""
        numbers = [n for n, name in enumerate(names) if name in self.topics]
        return np.flatnonzero(np.isin(topics, numbers)) if numbers else np.zeros(0, np.int64)

    def claim(self, block: Block, rows: Ints, pairs: Pairs, topics: Ints, names: list[bytes]) -> None:
        """Note the units that the rows want."""
        said = {name: _texts(pairs.named(name)) for name in (b"INNER_BASE", b"INNER_NUM")}
        codes = tags_codes(block, pairs)
        for row in rows[~np.isin(block["sys_flag"][rows] & TRANSACTION, UNQUEUED)].tolist():
            properties = {name: own[row] for name, own in said.items() if row in own}
            base, count = inner_batch(properties, int(block["queue_offset"][row]))
            if base >= 0:
                key = names[topics[row]].decode("utf-8", "replace"), int(block["queue_id"][row])
                place, time = block.physical_of(row), int(block["store_timestamp"][row])
                batch = Batch(place, int(block.total_size[row]), int(codes[row]), time, base, count)
                self._found.setdefault(key, []).append(batch)

    def claims(self) -> dict[Key, BatchClaim]:
        """Per queue what this split claims."""
        claims = {}
        for key, batches in self._found.items():
            claimed = claims[key] = BatchClaim()
            for b in batches:
                last = b.base_offset + b.batch_size - 1
                claimed.claim.add(1, b.base_offset, last, b.end, b.physical_offset)
            topic, queue_id = key
            where = QueueFiles(BATCH_QUEUES, topic, queue_id, f"{BATCH_QUEUES}/{topic}/{queue_id}", self.store.tree)
            queue = Queue.open(where, BATCH_UNIT)
            held = list(_near(queue, batches))
            claimed.unmatched = _out_of_turn(batches, held) if held != batches else []
            left = set(claimed.unmatched)
            claimed.dispatched = max((b.end for b in batches if b not in left), default=-1)
        return claims


def _texts(pairs: Pairs) -> dict[int, bytes]:
    """Return the values by row; of repeated names the last counts."""
    return {int(pairs.owner[i]): pairs.value(i) for i in range(len(pairs))}


def _out_of_turn(batches: list[Batch], held: list[Batch]) -> list[Batch]:
    """Batches that have no unit among those held, or one in front of that of an earlier batch."""
    place = {unit: number for number, unit in enumerate(held)}
    last, found = -1, []
    for batch in batches:
        if place.get(batch, -1) > last:
            last = place[batch]
        else:
            found.append(batch)
    return found


def _near(queue: Queue, batches: list[Batch]) -> Iterator[Batch]:
    """As many units as there are batches, from where the first of them should be."""
    left, wanted = len(batches), batches[0].physical_offset
    for file in queue.files:
        count = file.size // _SIZE
        first = _first_at(queue, file, wanted) if left == len(batches) else 0
        units = queue.read(file, first, min(left, count - first))
        yield from _batches(units)
        left -= len(units)
        if left <= 0:
            return


def _first_at(queue: Queue, file: StoreFile, physical: int) -> int:
    """Return the number of the first unit of a file at or after a physical offset, by halving; room counts as
    after it.
    """
    low, high = 0, file.size // _SIZE
    while low < high:
        middle = (low + high) // 2
        unit = queue.read(file, middle, 1)
        if len(unit) and int(unit["size"][0]) > 0 and int(unit["physical_offset"][0]) < physical:
            low = middle + 1
        else:
            high = middle
    return low


def _batches(units: Units) -> list[Batch]:
    return [Batch(*row) for row in zip(*(units[name].tolist() for name in Batch._fields), strict=True)]


def finish_batches(
    store: StoreFiles,
    claims: Mapping[Key, BatchClaim],
    context: LogContext,
    window: Window | None = None,
) -> Iterator[Finding]:
    """Batch queues that do not come out even with the batches of the log.

    Args:
        window: only units count that lead into this part of the log; None: all.
    """
    left, homes = dict(claims), set()
    reached = max((claimed.dispatched for claimed in claims.values()), default=-1)
    context = context.for_queues(
        reached, np.array([b.physical_offset for c in claims.values() for b in c.unmatched], np.int64)
    )
    with LogReader(context.log_files) as log:
        for queue in queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT):
            claimed = left.pop(queue.key, BatchClaim())
            if window is not None:
                queue = QueueWindow.of(queue, window, claimed.claim.high)
                if not claimed.claim.count and queue.is_empty:
                    continue
            if not claimed.claim.count and (home := queue_home(queue, log)) is not None:
                homes.add(home)
                yield misnamed_queue(queue, home)
                continue
            if claimed.unmatched or _live(queue, context.min_offset) != claimed.claim.count:
                yield from _Uneven(queue, claimed, context, log).findings()
    for key, claimed in sorted((key, claimed) for key, claimed in left.items() if key not in homes):
        claim = claimed.claim
        message = f"{claim.count} records of the log, queue offsets {claim.low} to {claim.high}, and no queue file"
        path = f"{BATCH_QUEUES}/{key[0]}/{key[1]}"
        kind = QUEUE_UNDISPATCHED if context.is_undispatched(claim.begin) else QUEUE_MISSING
        yield Finding(kind, path, 0, 0, message, topic=key[0], queue_id=key[1], queue_offset=claim.low)


def _live(queue: Queue, min_offset: int) -> int:
    """Units that are written, but for those of expired batches."""
    return sum(
        int(np.count_nonzero(_written(units) & ~_is_expired(queue, units, min_offset)))
        for file in queue.files
        for _, units in queue.chunks(file)
    )


def _written(units: Units) -> Any:
    return (units["size"] != 0) | (units["physical_offset"] != 0) | (units["batch_size"] != 0)


def _is_expired(queue: Queue, units: Units, min_offset: int) -> Any:
    return queue.valid(units) & (units["physical_offset"] < min_offset)


class _Uneven:
    """One queue unit by unit."""

    def __init__(self, queue: Queue, claimed: BatchClaim, context: LogContext, log: LogReader) -> None:
        self.queue, self.context, self.log = queue, context, log
        self.lacking = {b.base_offset: b for b in claimed.unmatched}
        self.last, self.seen = -1, set[int]()
        self.next = claimed.claim.low

    def findings(self) -> Iterator[Finding]:
        self._drop_found()
        end = self._end()
        for file in self.queue.files:
            for first, units in self.queue.chunks(file):
                expired = _is_expired(self.queue, units, self.context.min_offset)
                for row, unit in enumerate(_batches(units)):
                    at = (first + row) * _SIZE
                    if file.base + at < end and not expired[row]:
                        yield from self._unit(file.name, at, unit)
        yield from self._missing(end)

    def _drop_found(self) -> None:
        """Halving over damaged units may have missed the place: look at all of them."""
        for file in self.queue.files if self.lacking else ():
            for _, units in self.queue.chunks(file):
                for unit in _batches(units):
                    if self.lacking.get(unit.base_offset) == unit:
                        del self.lacking[unit.base_offset]

    def _end(self) -> int:
        """Byte of the sequence after the last unit that is written."""
        end = 0
        for file in self.queue.files:
            for first, units in self.queue.chunks(file):
                rows = np.flatnonzero(_written(units))
                end = file.base + (first + int(rows[-1]) + 1) * _SIZE if len(rows) else end
        return end

    def _unit(self, file: str, at: int, unit: Batch) -> Iterator[Finding]:
        physical, context = unit.physical_offset, self.context
        is_record = self._stored(physical) == unit
        if is_record and unit.base_offset not in self.seen and unit.base_offset < self.last:
            message = f"the unit of queue offset {unit.base_offset} stands behind that of {self.last}"
            yield self._finding(QUEUE_UNIT_MISMATCH, file, at, message, unit.base_offset)
        if is_record and unit.base_offset not in self.seen:
            self.seen.add(unit.base_offset)
            self.last = max(self.last, unit.base_offset)
            self.next = unit.base_offset + unit.batch_size
            return
        wanted = None if is_record else self._wanted(unit)
        if wanted is not None:
            del self.lacking[wanted.base_offset]
            self.last, self.next = max(self.last, wanted.base_offset), wanted.base_offset + wanted.batch_size
            if self._is_explained(wanted.physical_offset, wanted.end):
                return
            kind = QUEUE_UNIT_MISMATCH if any(unit) else QUEUE_HOLE
            message = f"the record at {wanted.physical_offset} wants {tuple(wanted)}, found {tuple(unit)}"
        elif is_record:
            kind = QUEUE_STALE_TAIL if not self._is_claimed_after() else QUEUE_UNIT_MISMATCH
            message = f"the record at {physical} has a unit in front of this one: it is served twice"
        elif context.end is not None and physical >= context.end:
            kind, message = QUEUE_AHEAD, f"the unit points to {physical}, but the log ends at {context.end}"
        elif self._is_explained(physical, physical + max(unit.size, 1)):
            return
        else:
            kind, message = QUEUE_UNIT_MISMATCH, f"the unit {tuple(unit)} stands for no record of this queue"
        yield self._finding(kind, file, at, message, unit.base_offset)

    def _is_claimed_after(self) -> bool:
        return any(base > self.last for base in self.lacking)

    def _is_explained(self, begin: int, end: int) -> bool:
        """Whether the log says that the record itself is wrong."""
        context = self.context
        return context.is_damaged(begin, end) or begin in context.misplaced or begin in context.odd_times

    def _wanted(self, unit: Batch) -> Batch | None:
        """Return the batch of the log that a wrong unit stands for: of its queue offset, its place, or the next in
        turn.
        """
        by_place = (b for b in self.lacking.values() if b.physical_offset == unit.physical_offset)
        return self.lacking.get(unit.base_offset) or next(by_place, None) or self.lacking.get(self.next)

    def _stored(self, physical: int) -> Batch | None:
        """Return what the record at an offset says its unit is; None where no batch of this queue begins."""
        fields = self.log.fields(physical)
        if fields is None:
            return None
        properties = dict(split_properties(fields["properties"]))
        topic, queue_id = self.queue.key
        base, count = inner_batch(properties, fields["queue_offset"])
        if (fields["topic"], fields["queue_id"]) != (topic.encode("utf-8", "surrogateescape"), queue_id):
            return None
        if fields["sys_flag"] & TRANSACTION in UNQUEUED or base < 0:
            return None
        code = tags_code(properties.get(b"TAGS", b"").decode("utf-8", "replace"))
        return Batch(physical, fields["total_size"], code, fields["store_timestamp"], base, count)

    def _missing(self, end: int) -> Iterator[Finding]:
        """Batches without any unit; after a kill the last ones are dispatched at the next start."""
        explained = [b for b in self.lacking.values() if self._is_explained(b.physical_offset, b.end)]
        lacking = [b for b in self.lacking.values() if b not in explained]
        late = [b for b in lacking if self.context.is_undispatched(b.physical_offset)]
        for kind, batches in (
            (QUEUE_MISSING_UNITS, [b for b in lacking if b not in late]), (QUEUE_UNDISPATCHED, late),
        ):  # fmt: skip
            if batches:
                first = min(batches)
                what = f"{len(batches)} records of the log have" if len(batches) > 1 else "a record of the log has"
                message = f"{what} no unit here, from queue offset {first.base_offset} (record at "
                message += f"{first.physical_offset}) on"
                name = self.queue.files[-1].name
                yield self._finding(kind, name, end - self.queue.files[-1].base, message, first.base_offset, 0)

    def _finding(self, kind: FindingKind, file: str, at: int, message: str, number: int, size: int = _SIZE) -> Finding:
        topic, queue_id = self.queue.key
        return Finding(kind, file, at, size, message, topic=topic, queue_id=queue_id, queue_offset=number)
