"""What is left of the queues once every record of the log has claimed its unit.

Most queues come out even: as many live units as records claimed. Only the others are looked at unit by unit. A store
may have hundreds of thousands of queues, nearly all even and most of one small file; those are read whole and counted
many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rmqctl.files.tree import Listing, Tree, read_head
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq.findings.derived import (
    QUEUE_AHEAD,
    QUEUE_HOLE,
    QUEUE_MIN_OFFSET,
    QUEUE_MISSING,
    QUEUE_MISSING_UNITS,
    QUEUE_REPEAT,
    QUEUE_STALE_TAIL,
    QUEUE_UNDISPATCHED,
    QUEUE_UNIT_MISMATCH,
)
from rmqctl.rocketmq.findings.log import LOG_GAP
from rmqctl.rocketmq.log.block import Ints
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.queues.files import (
    UNIT,
    Queue,
    QueueWindow,
    Units,
    Window,
    is_pre_blank,
    misnamed_queue,
    queue_home,
)
from rmqctl.rocketmq.store.files import (
    COMMIT_LOG,
    LIGHT,
    OFFSET_DIGITS,
    QUEUES,
    QueueFiles,
    StoreFile,
    StoreFiles,
    is_unread,
    listed_files,
    refusals_of,
)
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.missing import Flags, Key, Missing, MissingUnits
from rmqctl.text import number_of

_SMALL = 1 << 14
_UNIT = UNIT.itemsize
_AT_ONCE = 256
_TRIED = 64
"""Units at the end of a queue file that are asked whether a record stands for them."""


@dataclass(slots=True)
class ClaimedUnits:
    """Units of one queue that records of the log have claimed.

    Attributes:
        count: how many; low, high: smallest and largest queue offset; end: largest physical end.
        begin: smallest physical offset of a record, where it was noted; -1 where not.
    """

    count: int = 0
    low: int = -1
    high: int = -1
    end: int = -1
    begin: int = -1

    def add(self, count: int, low: int, high: int, end: int, begin: int = -1) -> None:
        """Add a run of units."""
        self.begin = begin if self.begin < 0 else min(self.begin, begin)
        self.low = low if self.low < 0 else min(self.low, low)
        self.count, self.high, self.end = self.count + count, max(self.high, high), max(self.end, end)

    def join(self, other: ClaimedUnits) -> None:
        """Add what another split claimed."""
        if other.count:
            self.add(other.count, other.low, other.high, other.end, other.begin)


def live_and_expired(units: Units, min_offset: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Units of records in the log, and units before it; what was never written and fillers are neither."""
    written = (units["size"] != 0) & ~is_pre_blank(units)
    old = units["physical_offset"] < min_offset
    return written & ~old, written & old


def uneven_queues(
    tree: Tree,
    listed: Mapping[str, Listing],
    claims: Mapping[Key, ClaimedUnits],
    lacking: Collection[Key],
    min_offset: int,
) -> Iterator[str]:
    """Paths of the queues that must be looked at one by one, in the order given; large ones are always among them.

    Args:
        listed: names and sizes of each queue's files by its path; a queue without files is left out.
        lacking: queues of which records of the log have no right unit.
        min_offset: physical offset at which the log begins.
    """
    paths = [path for path, files in listed.items() if files]
    for at in range(0, len(paths), _AT_ONCE):
        some = paths[at : at + _AT_ONCE]
        read = {path: units for path in some if (units := _read(tree, path, listed[path])) is not None}
        live, expired = _counts(list(read.values()), min_offset)
        even = set()
        for path, alive, old in zip(read, live, expired, strict=True):
            key = key_of(path)
            claimed = claims[key].count if key in claims else 0
            if not old and alive == claimed and key not in lacking:
                even.add(path)
        yield from (path for path in some if path not in even)


def key_of(path: str) -> Key:
    """Topic and queue id of ``<kind>/<topic>/<queue id>``."""
    _, topic, queue_id = path.split("/")
    return topic, int(queue_id)


def _read(tree: Tree, path: str, files: Listing) -> bytes | None:
    """Return the written units of a queue; None of one with several files or many units."""
    if len(files) != 1:
        return None
    ((name, size),) = files
    data = read_head(tree, f"{path}/{name}", size) if size <= _SMALL else _read_sparse(tree, f"{path}/{name}", size)
    torn = len(data) % _UNIT if data is not None else 0
    return data[:-torn] if torn and data is not None else data


def _read_sparse(tree: Tree, path: str, size: int) -> bytes | None:
    """Units of a large file outside its holes, None if they are many."""
    begin, room, parts = 0, _SMALL, []
    source = tree.open(path)
    try:
        for start, stop in source.data_ranges(0, size):
            begin, end = max(begin, start // _UNIT * _UNIT), -(-stop // _UNIT) * _UNIT
            room -= end - begin
            if room < 0:
                return None
            parts.append(source.read_at(begin, end - begin))
            begin = end
    finally:
        source.close()
    return b"".join(parts)


def _counts(queues: list[bytes], min_offset: int) -> tuple[list[int], list[int]]:
    """Live and expired units of each queue."""
    data = b"".join(queues)
    if not data.strip(b"\0"):
        return [0] * len(queues), [0] * len(queues)
    ends = np.cumsum([0] + [len(queue) // _UNIT for queue in queues])
    live, expired = live_and_expired(np.frombuffer(data, UNIT), min_offset)
    return _sums(live, ends), _sums(expired, ends)


def _sums(flags: npt.NDArray[np.bool_], ends: Ints) -> list[int]:
    """How many flags are set from each end to the next."""
    before = np.concatenate([[0], np.cumsum(flags)])[ends]
    counts: list[int] = np.diff(before).tolist()
    return counts


# --- what is left of the queues once every record of the log has claimed it -------------------------


OpenQueues = Callable[[Collection[Key]], Iterator[Queue]]
"""Opens the queues that must be looked at, given those of which the log misses units."""
_SIZE = UNIT.itemsize
_FARTHEST = (1 << 62) // _SIZE
"""Queue offset from which on there are no files; damaged records may name any."""


@dataclass(frozen=True, slots=True)
class FileQueues:
    """Queues of files; those that come out even are left out.

    Attributes:
        listed: names and sizes of each queue's files by its path.
        window: only units are seen that lead there, and queues that have or lack one; None: all.
    """

    store: StoreFiles
    listed: dict[str, Listing]
    claims: dict[Key, ClaimedUnits]
    context: LogContext
    window: Window | None = None

    def __call__(self, lacking: Collection[Key]) -> Iterator[Queue]:
        tree = self.store.tree
        for path in uneven_queues(tree, self.listed, self.claims, lacking, self.context.min_offset):
            files = listed_files(tree, path, self.listed[path])
            queue = Queue(QueueFiles(QUEUES, *key_of(path), path, tree), files, UNIT)
            if self.window is not None:
                queue = QueueWindow.of(queue, self.window, self.claims.get(queue.key, ClaimedUnits()).high)
                if queue.key not in lacking and queue.key not in self.claims and queue.is_empty:
                    continue
            yield queue


def finish_queues(
    store: StoreFiles,
    queues: OpenQueues,
    claims: dict[Key, ClaimedUnits],
    missing: MissingUnits,
    context: LogContext,
    file_size: int,
) -> Iterator[Finding]:
    """Yield findings of all queues, and of records whose queue has no files.

    Args:
        queues: opens them.
        file_size: what a file of the log should have, bytes.
    """
    explained = missing.is_wrong & context.are_damaged(missing.physical, missing.end)
    if context.misplaced:
        explained |= np.isin(missing.physical, list(context.misplaced))
    missing = missing.where(~explained)
    lacking = missing.by_queue()
    reached = max((claim.end for claim in claims.values()), default=-1)
    context = context.for_queues(reached, missing.physical)
    beyond, before, refusals = -1, -1, refusals_of(store.tree)
    homes: set[Key] = set()
    for queue in queues(lacking):
        claimed = queue.key in claims and claims[queue.key].count
        if isinstance(queues, FileQueues) and not claimed and (home := _home(queue, context)) is not None:
            lacking.pop(queue.key, None)
            homes.add(home)
            yield misnamed_queue(queue, home)
            continue
        known = _readable(lacking.pop(queue.key, MissingUnits()), [f for f in queue.files if f.name in refusals])
        rest = _QueueAgainstClaims(queue, claims.get(queue.key, ClaimedUnits()), known, context)
        yield from rest.findings()
        beyond = max(beyond, rest.beyond)
        before = rest.unexpired if before < 0 else min(before, rest.unexpired if rest.unexpired >= 0 else before)
    for key, records in sorted(lacking.items()):
        if key not in homes and not is_unread(refusals, f"{QUEUES}/{key[0]}/{key[1]}"):
            yield _no_queue(store, key, records, context)
    if before >= 0:
        yield lost_start(store, context, before, file_size)
    if beyond >= context.limit > 0 and store.log_files[-1].size == file_size:
        yield lost_file(store, context, beyond)


def _home(queue: Queue, context: LogContext) -> Key | None:
    """Return the queue to which the units of a directory belong that no record of its own claims, all of them wherever
    they lead.
    """
    with LogReader(context.log_files) as log:
        return queue_home(Queue(queue.where, queue.files, queue.dtype), log)


def _readable(missing: MissingUnits, unread: list[StoreFile]) -> MissingUnits:
    """Without records whose unit lies in a file that could not be read: that has been said."""
    return missing.where(~_lie_in(missing, unread)) if unread else missing


def _lie_in(missing: MissingUnits, files: list[StoreFile]) -> Flags:
    """Which records have the place of their unit in one of some files of a queue."""
    place = np.minimum(missing.offset, _FARTHEST) * _SIZE
    begin, size = (np.array([getattr(f, name) for f in files], np.int64) for name in ("base", "size"))
    order = np.argsort(begin)
    row = np.searchsorted(begin[order], place, side="right")
    return np.asarray((row > 0) & (place < np.append(begin + size, 0)[np.append(order, -1)[row - 1]]))


def _no_queue(store: StoreFiles, key: Key, records: MissingUnits, context: LogContext) -> Finding:
    """Report a queue that the log knows and no directory holds; of RocksDB queues a kill takes all that was in
    memory.
    """
    rocksdb = store.in_database(key[0])
    late = (context.crashed and rocksdb) or bool(context.are_undispatched(records.physical).all())
    kind = QUEUE_UNDISPATCHED if late else QUEUE_MISSING
    expired = Severity.NOTE if rocksdb and not late and _is_lite(key[0]) else None
    low, high = int(records.offset.min()), int(records.offset.max())
    message = (
        f"{number_of(len(records), 'message')} of the log, queue offsets {low} to {high}, and no "
        f"{'unit in RocksDB' if rocksdb else 'queue file'} for them"
    )
    if expired:
        message += "; a lite topic that has expired is deleted so"
    place = store.queue_database if rocksdb else QUEUES
    return Finding(
        kind, f"{place}/{key[0]}/{key[1]}", 0, 0, message, expired, topic=key[0], queue_id=key[1], queue_offset=low,
        physical_offset=records[0].physical, messages=len(records),
    )  # fmt: skip


def _is_lite(topic: str) -> bool:
    """Whether a name is that of the light queue of a lite topic: ``%LMQ%$parent$name``."""
    return topic.startswith(f"{LIGHT}$") and "$" in topic[len(LIGHT) + 1 :]


def lost_file(store: StoreFiles, context: LogContext, beyond: int) -> Finding:
    """Return the finding for a last file of the log that units prove to be missing."""
    directory = store.log_files[-1].name.rpartition("/")[0]
    message = (
        f"queue units point to offsets up to {beyond}, but the last file ends at {context.limit}: a file is missing"
    )
    name = f"{directory}/{context.limit:0{OFFSET_DIGITS}d}"
    return Finding(LOG_GAP, name, 0, 0, message, physical_offset=context.limit)


def lost_start(store: StoreFiles, context: LogContext, before: int, file_size: int) -> Finding:
    """Return the finding for first files of the log that did not expire: expiry would have deleted these queue files
    too. Beside a running broker it is about to do so.
    """
    directory = store.log_files[0].name.rpartition("/")[0] if store.log_files else COMMIT_LOG
    base = before // file_size * file_size
    when = "just now" if store.is_running else "just before the broker stopped"
    message = (
        f"whole queue files point to offsets from {before} on, but the log begins at {context.min_offset}: a file of "
        f"the log is missing, or it expired {when} (expiry deletes such queue files next)"
    )
    severity = Severity.NOTE if store.is_running else Severity.WARNING
    name = f"{directory}/{base:0{OFFSET_DIGITS}d}"
    size = context.min_offset - base
    return Finding(LOG_GAP, name, 0, size, message, severity, physical_offset=base)


_REASONS = {
    QUEUE_AHEAD.id: ", but the log ends at {end}",
    QUEUE_STALE_TAIL.id: ", and the log has no record for it",
    QUEUE_REPEAT.id: ", as the one beside does, and the log has no record for it",
}


_KINDS = (QUEUE_UNIT_MISMATCH, QUEUE_UNDISPATCHED, QUEUE_HOLE, QUEUE_MISSING_UNITS)
"""Of a record without a right unit."""


class _QueueAgainstClaims:
    """One queue against what was claimed of it."""

    def __init__(self, queue: Queue, claim: ClaimedUnits, missing: MissingUnits, context: LogContext) -> None:
        self.queue, self.claim, self.missing, self.context = queue, claim, missing, context
        self.beyond, self.unexpired = -1, -1
        self._wrong = set(missing.offset[missing.is_wrong].tolist())

    def findings(self) -> Iterator[Finding]:
        live = expired = 0
        for file in self.queue.files:
            in_file = 0
            for first, units in self.queue.chunks(file):
                alive, old = self._count(units)
                live, expired, in_file = live + alive, expired + old, in_file + alive
                if first == 0 and old and self.unexpired < 0:
                    self.unexpired = self._lowest(units)
            if file is self.queue.files[0] and (in_file or len(self.queue.files) == 1 or self._goes_on(file)):
                self.unexpired = -1
        if expired:
            yield self._expired(expired)
        if live == self.claim.count and not self.missing:
            return
        if live != self.claim.count + self._known():
            for file in self.queue.files:
                for first, units in self.queue.chunks(file):
                    yield from self._unclaimed(file, first, units)
        yield from self._missing()

    def _goes_on(self, file: StoreFile) -> bool:
        """Whether a file has units that lead into the log, beyond the part of it that is looked at."""
        return isinstance(self.queue, QueueWindow) and self.queue.last_physical(file) >= self.context.min_offset

    def _known(self) -> int:
        """Live units without a record that need no look at the log: they lead into damage, or were found wrong."""
        wrong, misplaced, end = list(self._wrong), list(self.context.misplaced), self._end()
        found = 0
        for file in self.queue.files:
            for first, units in self.queue.chunks(file):
                live, _ = live_and_expired(units, self.context.min_offset)
                begin = units["physical_offset"].astype(np.int64)
                damaged = self.context.are_damaged(begin, begin + np.maximum(units["size"], 1))
                number, lost = file.base // _SIZE + first + np.arange(len(units)), live & damaged & (begin < end)
                self.context.note_destroyed(self.queue.key, number[lost], begin[lost])
                known = (damaged | np.isin(begin, misplaced)) & (begin < end)
                inside = np.flatnonzero(live & known & ~np.isin(number, wrong))
                found += len(inside) - self._proven(number[inside], units[inside])
                found += int(np.count_nonzero(live & np.isin(number, wrong)))
        return found

    def _proven(self, number: Ints, units: Units) -> int:
        """How many units stand for their record: one with a wrong field or body has claimed its unit like any other."""
        with LogReader(self._log_files()) as log:
            return sum(self._is_record(log, n, unit) for n, unit in zip(number.tolist(), units, strict=True))

    def _end(self) -> int:
        return self.context.end if self.context.end is not None else self.context.limit

    def _count(self, units: Units) -> tuple[int, int]:
        """Live units, and units before the log."""
        if not np.any(units["size"]):
            return 0, 0
        live, expired = live_and_expired(units, self.context.min_offset)
        return int(np.count_nonzero(live)), int(np.count_nonzero(expired))

    def _lowest(self, units: Units) -> int:
        """Return the smallest physical offset among a chunk's real units."""
        return int(units["physical_offset"][(units["size"] != 0) & ~is_pre_blank(units)].min())

    def _expired(self, count: int) -> Finding:
        file = self.queue.files[0]
        message = f"{count} units point before the log, which begins at {self.context.min_offset}"
        return self._finding(QUEUE_MIN_OFFSET, file.name, 0, 0, message, file.base // _SIZE)

    def _unclaimed(self, file: StoreFile, first: int, units: Units) -> Iterator[Finding]:
        """Yield runs of units in a chunk that no record stands for."""
        number = file.base // _SIZE + first + np.arange(len(units))
        written = (units["size"] != 0) & ~is_pre_blank(units)
        written &= units["physical_offset"] >= self.context.min_offset
        outside = (number < self._low) | (number > self._high)
        if self.claim.count != self._high - self._low + 1:
            outside |= np.isin(number, self._unproven(number, units))
        if isinstance(self.queue, QueueWindow):  # others are of a record in another part, which says it
            before, after = self._own
            outside &= ((number > before) & (number < after)) | (number < self._low) | (number > self._high)
        rows = np.flatnonzero(written & outside)
        rows = rows[[int(n) not in self._wrong for n in number[rows]]] if self._wrong else rows
        for kind, run in self._classify(rows, units, number):
            yield self._run(kind, file, first + int(run[0]), units[run], number[run])

    def _unproven(self, number: Ints, units: Units) -> Ints:
        """Units inside the claimed range whose record does not say the same, one by one from the log."""
        found = []
        with LogReader(self._log_files()) as log:
            for n, unit in zip(number.tolist(), units, strict=True):
                if self._low <= n <= self._high and int(unit["size"]) and not self._is_record(log, n, unit):
                    found.append(n)
        return np.array(found, np.int64)

    def _is_record(self, log: object, number: int, unit: np.void) -> bool:
        from formats.rocketmq.message import decode_record

        assert isinstance(log, LogReader)
        raw = log.record(int(unit["physical_offset"]))
        if raw is None:
            return False
        fields, _ = decode_record(raw)
        topic = self.queue.where.topic.encode("utf-8", "surrogateescape")
        return len(raw) == unit["size"] and (fields["topic"] != topic or fields["queue_offset"] == number)

    def _log_files(self) -> list[StoreFile]:
        return self.context.log_files

    def _classify(self, rows: Ints, units: Units, number: Ints) -> Iterator[tuple[FindingKind, Ints]]:
        """Rows by what is wrong with them, as runs of neighbours; units at damaged records are none."""
        end = self._end()
        kinds_of: list[tuple[int, FindingKind]] = []
        repeats = self._repeats(units, rows, number)
        for row in rows.tolist():
            physical, size = int(units["physical_offset"][row]), int(units["size"][row])
            if physical >= end:
                if isinstance(self.queue, QueueWindow) and number[row] <= self._high:
                    continue  # of a record of another part, which says it
                self.beyond = max(self.beyond, physical + size) if physical < 2 * self.context.limit else self.beyond
                kinds_of.append((row, QUEUE_AHEAD))
            elif self.context.is_damaged(physical, physical + max(size, 1)) or physical in self.context.misplaced:
                continue
            elif row in repeats and number[row] <= self._high:
                kinds_of.append((row, QUEUE_REPEAT))
            elif row in repeats and number[row] - self._high <= self.context.most_destroyed(physical):
                continue  # how rebuild keeps the numbers of destroyed messages from being given again
            elif number[row] > self._high and self._is_judged_later(int(number[row])):
                continue
            else:
                inside = number[row] <= self._high
                if inside and isinstance(self.queue, QueueWindow) and physical < self.queue.window.begin:
                    continue  # of a part in front, which says it
                kinds_of.append((row, QUEUE_UNIT_MISMATCH if inside else QUEUE_STALE_TAIL))
        yield from _runs(kinds_of)

    @cached_property
    def _low(self) -> int:
        """The lowest queue offset of a record with a unit, as :attr:`_high`."""
        if not isinstance(self.queue, QueueWindow):
            return self.claim.low
        found = next(self._records_of(self.context.min_offset, self.queue.window.begin), -1)
        return self.claim.low if found < 0 else found if self.claim.low < 0 else min(self.claim.low, found)

    @cached_property
    def _high(self) -> int:
        """The highest queue offset of a record with a unit, also outside of the part of the log that is looked at: a
        look at the whole queue, for where something is wrong with it.
        """
        if not isinstance(self.queue, QueueWindow):
            return self.claim.high
        window, limit = self.queue.window, self.context.limit
        begin, end = (self.context.min_offset, window.begin) if window.is_last else (window.end, limit)
        return max(self.claim.high, next(self._records_of(begin, end, falls=True), -1))

    @cached_property
    def _own(self) -> tuple[int, int]:
        """Queue offsets between which a number is of the part of the log that is looked at: those of the last record in
        front of it and of the first one after it.
        """
        assert isinstance(self.queue, QueueWindow)
        window, far = self.queue.window, _FARTHEST
        numbers = [*self.missing.offset.tolist(), *((self.claim.low, self.claim.high) if self.claim.count else ())]
        low, high = (min(numbers), max(numbers)) if numbers else (far, -1)
        front = self._records_of(self.context.min_offset, window.begin, -1, low, falls=True)
        after = iter(()) if window.is_last else self._records_of(window.end, self.context.limit, high)
        return next(front, -1), next(after, far)

    def _records_of(
        self, begin: int, end: int, above: int = -1, below: int = _FARTHEST, *, falls: bool = False
    ) -> Iterator[int]:
        """Yield queue offsets between two others whose units lead into a stretch of the log, and stand for a record
        there; of each file no more than a few units are tried.

        Args:
            falls: the highest first.
        """
        with LogReader(self._log_files()) as log:
            for file in self.queue.files[:: -1 if falls else 1]:
                units = self.queue.read(file)
                leads, base = units["physical_offset"], file.base // _SIZE
                number = base + np.arange(len(units))
                chosen = (units["size"] > 0) & (leads >= begin) & (leads < end) & (number > above) & (number < below)
                rows = np.flatnonzero(chosen)
                for row in rows[:: -1 if falls else 1][:_TRIED].tolist():
                    if self._is_record(log, base + row, units[row]):
                        yield base + row

    def _is_judged_later(self, number: int) -> bool:
        """Whether the record of a unit can only lie after the part of the log that is looked at: the unit in front of
        it leads there.
        """
        if not isinstance(self.queue, QueueWindow) or self.queue.window.is_last or not number:
            return False
        before = self.queue.unit_at((number - 1) * _SIZE)
        return before is not None and int(before["physical_offset"][0]) >= self.queue.window.end

    def _repeats(self, units: Units, rows: Ints, number: Ints) -> set[int]:
        """Which of the rows repeat a unit beside them that is none of the rows, in the next or last file, too."""
        if not len(rows):
            return set()
        ends = (int(number[0]) - 1, int(number[-1]) + 1)
        before, after = (self.queue.unit_at(n * _SIZE) if n >= 0 else None for n in ends)
        parts = [np.zeros(1, UNIT) if part is None else part for part in (before, units, after)]
        around = np.concatenate(parts, dtype=UNIT)
        run = np.concatenate([[0], np.cumsum(around[1:] != around[:-1])])
        others = np.ones(len(around), bool)
        others[rows + 1] = False
        return set(rows[np.isin(run[rows + 1], run[others])].tolist())

    def _run(self, kind: FindingKind, file: StoreFile, at: int, units: Units, number: Ints) -> Finding:
        what = f"{len(units)} units" if len(units) > 1 else "a unit"
        points = f"{what} from queue offset {int(number[0])} on: the first points to {int(units['physical_offset'][0])}"
        end = self.context.end
        reason = _REASONS.get(kind.id, ", where no record of this queue is").format(end=end)
        return self._finding(kind, file.name, at * _SIZE, len(units) * _SIZE, points + reason, int(number[0]))

    def _missing(self) -> Iterator[Finding]:
        """Yield runs of records without a right unit, split where the queue's files end."""
        if not len(self.missing):
            return
        missing, size = self.missing.by_offset(), self._file_units()
        offset, kinds = missing.offset, self._kinds_of(missing)
        goes_on = (np.diff(offset) == 1) & (kinds[1:] == kinds[:-1]) & (offset[1:] % size != 0)
        bounds = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(missing)]
        for first, stop in pairwise(bounds):
            yield self._missing_run(missing[first], stop - first, _KINDS[kinds[first]])

    def _file_units(self) -> int:
        sizes = [f.size for f in self.queue.files]
        return max(max(sizes, key=sizes.count) // _SIZE, 1)

    def _kinds_of(self, missing: MissingUnits) -> Ints:
        """Return which of the kinds of missing units each is."""
        late, is_inside = self.context.are_undispatched(missing.physical), missing.offset < self._high
        is_hole = is_inside & _lie_in(missing, self.queue.files)
        found: Ints = np.select([missing.is_wrong, late, is_hole], [0, 1, 2], 3)
        return found

    def _missing_run(self, first: Missing, count: int, kind: FindingKind) -> Finding:
        size = self._file_units()
        base = first.offset // size * size * _SIZE
        name = self.queue.file_name(base)
        what = f"{count} records have" if count > 1 else "a record has"
        if kind is QUEUE_UNIT_MISMATCH and first.actual and first.expected:
            message = (
                f"the record at {first.physical} wants (offset, size, tags code) {first.expected}, found {first.actual}"
            )
            message += f"; {count - 1} more units behind it" if count > 1 else ""
        else:
            message = f"{what} no unit here, from queue offset {first.offset} (record at {first.physical}) on"
        found = self._finding(
            kind, name, first.offset % size * _SIZE, count * _SIZE, message, first.offset, first.physical
        )
        return replace(found, messages=count)

    def _finding(
        self,
        kind: FindingKind,
        file: str,
        offset: int,
        size: int,
        message: str,
        number: int,
        physical: int | None = None,
    ) -> Finding:
        topic, queue_id = self.queue.key
        return Finding(
            kind,
            file,
            offset,
            size,
            message,
            physical_offset=physical,
            topic=topic,
            queue_id=queue_id,
            queue_offset=number,
        )


def _runs(items: Iterable[tuple[int, FindingKind]]) -> Iterator[tuple[FindingKind, Ints]]:
    """Neighbouring rows of one kind."""
    run: list[int] = []
    kind: FindingKind | None = None
    for row, own in items:
        if run and (own is not kind or row != run[-1] + 1):
            yield kind or own, np.array(run)
            run = []
        run.append(row)
        kind = own
    if run and kind is not None:
        yield kind, np.array(run)
