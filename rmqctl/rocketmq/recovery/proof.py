"""Proof for the walk of recovery: several processes read the log ahead of it, and each proves its split.

A split is proven where sound records follow each other in an unbroken chain. The walk takes it over when it stands
exactly where the split's chain begins. From the first place that is not proven on, the literal walk goes on alone; so
the answer never depends on how the log was divided. Who reads the log anyway, as `verify` does, can prove its splits
on the way (:class:`Prover`). What a recovery gives up is found here too: messages after the cut that a search still
finds, or that queue units still name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from formats.rocketmq.message import TRANSACTION
from rmqctl.findings import Finding
from rmqctl.parallel import Ordered
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.rules import UNQUEUED, DispatchRules
from rmqctl.rocketmq.findings.log import LOG_BAD_RECORD, LOG_BODY_CRC
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.measure import MAX_RECORD
from rmqctl.rocketmq.log.record import SMALLEST
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.recovery.images import QueueImage
from rmqctl.rocketmq.recovery.log_replay import LogWalk, Verdict, good_records
from rmqctl.rocketmq.recovery.outcome import LostMessage, Recovery, Undispatched
from rmqctl.rocketmq.recovery.rules import RecoveryRules
from rmqctl.rocketmq.store.files import OFFSET_DIGITS, StoreFile

SPLIT_SIZE = 64 << 20
LEAST = 256 << 20
"""Bytes of log below which one process is as fast."""
_AHEAD = 2
"""Parts that are worked on or done beside those that all processes work on."""


@dataclass(frozen=True, slots=True)
class Job:
    """What all processes know; can be pickled.

    Attributes:
        files: of the log, as the broker lists them; first: the number of the one at which the walk begins.
        dispatches: whether records are dispatched at all; above: only those that say they lie after this offset.
        body: check body CRCs.
    """

    files: list[StoreFile]
    first: int
    rules: RecoveryRules
    dispatch_rules: DispatchRules
    wanted: Wanted
    dispatches: bool
    above: int | None
    body: bool


@dataclass(frozen=True, slots=True)
class FileRange:
    """A stretch of one file: ``start <= position < stop``."""

    file: int
    start: int
    stop: int


@dataclass(slots=True)
class Proof:
    """What one process found in its part.

    Attributes:
        first, end: positions in the file where the chain begins and ends; -1 and 0 without a record.
        whole: the chain reaches to the end of the part, or to the blank record that ends the file.
        blank: it is followed by that blank record.
    """

    part: FileRange
    first: int = -1
    end: int = 0
    whole: bool = False
    blank: bool = False
    records: int = 0
    bytes: int = 0
    last: int = -1
    last_time: int = 0
    dispatched: Dispatched | None = None


class Follower:
    """Carries a walk on by proofs, as they come in the order of the log."""

    def __init__(self, walk: LogWalk, files: list[StoreFile]) -> None:
        self.walk, self.files, self.is_over = walk, files, False

    def take(self, proof: Proof) -> bool:
        """Carry the walk on where a proof continues it; whether it did. Nothing does after one that does not."""
        walk, part = self.walk, proof.part
        is_passed = (part.file, part.stop) <= (walk.index, walk.position)
        if self.is_over or is_passed:  # a record of many bytes may lie in several parts
            return False
        self.is_over = part.file != walk.index or not proof.records or proof.first != walk.position
        if self.is_over:
            return False
        walk.position, walk.last = proof.end, proof.last
        walk.records += proof.records
        if walk.files[-1:] != [self.files[walk.index].name]:
            walk.files.append(self.files[walk.index].name)
        if proof.whole and proof.blank and walk.index + 1 < len(self.files):
            walk.index, walk.position = walk.index + 1, 0
        else:
            self.is_over = proof.blank or not proof.whole
        return True


def proofs(job: Job, processes: int) -> Iterator[Proof]:
    """Prove all parts of the log that the walk may reach, in several processes.

    What a proof has dispatched is good until the next one is taken.
    """
    parts = [
        FileRange(n, start, min(start + SPLIT_SIZE, job.files[n].size))
        for n in range(job.first, len(job.files))
        for start in range(0, job.files[n].size, SPLIT_SIZE)
    ]
    shared: Ordered[FileRange, Proof] = Ordered(_Worker(job), processes, processes + _AHEAD)
    yield from shared.results(parts)


@dataclass(frozen=True, slots=True)
class _Worker:
    """Makes what works on parts in a process; can be pickled."""

    job: Job

    def __call__(self) -> Callable[[FileRange], Proof]:
        return self._prove

    def _prove(self, part: FileRange) -> Proof:
        prover, file = Prover(self.job, part), self.job.files[part.file]
        source = file.open()
        try:
            for block in scan(source, Extent(file.name, file.base, part.start, part.stop, size=file.size)):
                prover.block(block)
                if prover.is_over:
                    break
        finally:
            source.close()
        return prover.proof()


class Prover:
    """Proves one part from its blocks, in order.

    Attributes:
        is_over: no later block can continue the chain.
    """

    def __init__(self, job: Job, part: FileRange) -> None:
        self.job, self.is_over = job, False
        self._proof, self._dispatcher = Proof(part), Dispatcher(job.dispatch_rules, job.wanted)

    def block(self, block: Block) -> None:
        """Take the next block of the part."""
        self.is_over = self.is_over or not _chain(block, self._proof, self.job, self._dispatcher)

    def proof(self) -> Proof:
        """Return what the blocks have proven."""
        proof = self._proof
        proof.whole = not self.is_over and proof.first >= 0 and (proof.blank or proof.end >= proof.part.stop)
        proof.dispatched = self._dispatcher.take()
        return proof


def _chain(block: Block, proof: Proof, job: Job, dispatcher: Dispatcher) -> bool:
    """Add a block's records as far as they continue the chain; whether it may go on."""
    position = block.position
    if len(block):
        proof.first = int(position[0]) if proof.first < 0 else proof.first
        starts = np.concatenate([[proof.end or proof.first], (position + block.total_size)[:-1]])
        odd = np.flatnonzero((position != starts) | ~good_records(block, job.rules, body=job.body))
        count = int(odd[0]) if len(odd) else len(block)
        if count:
            _note(block.take(slice(0, count)) if count < len(block) else block, proof, job, dispatcher)
        if count < len(block):
            return False
    if block.gaps:
        return False
    blanks = [b for b in block.blanks if b.position == proof.end and b.size == b.end - b.position]
    proof.blank = bool(proof.records and blanks)
    return not block.blanks or proof.blank


def _note(block: Block, proof: Proof, job: Job, dispatcher: Dispatcher) -> None:
    proof.end = int(block.position[-1] + block.total_size[-1])
    proof.records += len(block)
    proof.bytes += int(block.total_size.sum())
    proof.last, proof.last_time = int(block.physical[-1]), int(block["store_timestamp"][-1])
    if job.dispatches:
        chosen = block if job.above is None else block.take(np.flatnonzero(block["physical_offset"] > job.above))
        dispatcher.add(LogBlock(chosen))


# --- what a recovery gives up -----------------------------------------------------------------------


_CRC = "BODYCRC"
_PEEK = 4096
_LONGEST_LOG = 1 << 48
"""Bytes that no log has had: 256 TiB."""


def stop_finding(file: StoreFile, walk: LogWalk) -> Finding | None:
    """Return the finding for what ended the scan; None for the end of the data, where only zeros follow."""
    stopped = walk.stopped
    if stopped is None or stopped.verdict is Verdict.END_OF_FILE:
        return None
    source = file.open()
    try:
        if not any(source.read_at(walk.position, _PEEK)):
            return None
    finally:
        source.close()
    kind = LOG_BODY_CRC if stopped.reason.startswith(_CRC) else LOG_BAD_RECORD
    place = file.base + walk.position
    return Finding(kind, file.name, walk.position, stopped.size, stopped.reason, physical_offset=place)


def find_losses(result: Recovery) -> list[LostMessage]:
    """Messages at or after the cut, ascending: those a search finds, and those that only queue units name."""
    if not result.log_files:  # what the queues prove to have been there
        lost = ((place, size, i.key) for i in result.images for place, size, _ in i.lost)
        units = {place: (size, key) for place, size, key in lost if _is_sane(place, size)}
        return [LostMessage(place, size, key[1], key[2], None) for place, (size, key) in sorted(units.items())]
    found = {} if result.log_cut is None else {m.physical: m for m in _lost_after(result, result.log_cut)}
    return _from_units(result, ((image, image.lost) for image in result.images), found)


def find_undispatched(result: Recovery) -> Undispatched:
    """Messages in the range of the log that is not dispatched, and those whose queue refuses them or seems to have
    them.
    """
    begin, end = result.never_dispatched
    found = Undispatched()
    for image in result.images:
        if left := [*image.refused, *image.blank]:
            found.by_topic[image.key[1]] += len(left)
            found.bytes += sum(size for _, size in left)
    for image in result.images:
        if image.shift is not None:
            stop = min(image.shift.end, begin) if begin < end else image.shift.end
            own = image.key[1].encode("utf-8", "surrogateescape"), image.key[2]
            _add_between(found, result, (image.shift.begin, stop), own)
    if begin < end:
        _add_between(found, result, (begin, end))
    return found


def _add_between(
    found: Undispatched, result: Recovery, part: tuple[int, int], queue: tuple[bytes, int] | None = None
) -> None:
    """Add what lies between two physical offsets, of one queue or of all."""
    begin, end = part
    state, ids = LogState(), TextIds()
    for context in CommitLog(result.log_files, crashed=True).contexts():
        first, after = context.file.base, context.file.base + context.file.size
        if after > begin and first < end and not state.stale:
            _add_queued(found, context, state, (max(begin - first, 0), min(end, after) - first), ids, queue)


def _add_queued(
    found: Undispatched,
    context: FileContext,
    state: LogState,
    part: tuple[int, int],
    ids: TextIds,
    queue: tuple[bytes, int] | None,
) -> None:
    """Add what dispatch would give to queues, or to one; half messages and rollbacks have none."""
    for piece in walk_file(context, state, start=part[0], stop=part[1]):
        keep = ~np.isin(piece.block["sys_flag"] & TRANSACTION, UNQUEUED)
        if queue is not None and len(keep):
            keep &= (piece.topics(ids) == ids.number(queue[0])) & (piece.block["queue_id"] == queue[1])
        block = piece.block.take(np.flatnonzero(keep))
        if not len(block):
            continue
        names, counts = np.unique(LogBlock(block).topics(ids), return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            found.by_topic[ids.texts[name].decode("utf-8", "replace")] += count
        times = block["store_timestamp"]
        first, last = int(times.min()), int(times.max())
        found.bytes += int(block.total_size.sum())
        found.first, found.last = min(found.first or first, first), max(found.last, last)


def _lost_after(result: Recovery, cut: int) -> list[LostMessage]:
    """Return records after the cut that a search finds; old ones that were cut before do not count."""
    log, ids, state = CommitLog(result.log_files, crashed=True), TextIds(), LogState()
    found: list[LostMessage] = []
    for context in log.contexts():
        start = max(cut - context.file.base, 0)
        if start < context.file.size and not state.stale and holds_data(context.file, start):
            found += _in_file(context, state, start, ids)
    return found


def lost_between(result: Recovery, begin: int, end: int) -> list[LostMessage]:
    """Return messages between two physical offsets that a cut at the first of them gives up, ascending: those a search
    finds, and those that units name.
    """
    found = {m.physical: m for m in _lost_after(result, begin) if m.physical < end}
    named = ((image, [unit for unit in image.given_up(begin)[0] if unit[0] < end]) for image in result.images)
    return _from_units(result, named, found)


def lost_from_queues(result: Recovery, end: int) -> tuple[list[LostMessage], str, int]:
    """Return messages of the log that a cut of all queues at a physical offset takes from their queue, ascending: those
    after a unit that leads to it or beyond.

    Returns: the messages, the first queue file that is cut, and the byte in it.
    """
    named, file, position = list[tuple[QueueImage, list[tuple[int, int, int]]]](), "", 0
    for image in result.images:
        cut, place = image.given_up(end)
        units = [unit for unit in cut if unit[0] < end and unit[2] < image.max_offset]  # the rest is cut off now
        if units:
            if not named:
                position = place % image.file_size
                file = f"{image.directory}/{place - position:0{OFFSET_DIGITS}d}"
            named.append((image, units))
    return _from_units(result, named, {}), file, position


def holds_data(file: StoreFile, begin: int) -> bool:
    """Whether anything but zeros lies after a byte of a file."""
    source = file.open()
    try:
        for start, end in source.data_ranges(begin, file.size):
            while start < end:
                piece = source.read_at(start, min(end - start, 1 << 22))
                if not piece:
                    return False
                if any(piece):
                    return True
                start += len(piece)
        return False
    finally:
        source.close()


def _in_file(context: FileContext, state: LogState, start: int, ids: TextIds) -> list[LostMessage]:
    found = []
    for part in walk_file(context, state, start=start):
        block, topics = part.block, part.topics(ids)
        queues, times = block["queue_id"], block["store_timestamp"]
        for i in range(len(block)):
            topic = ids.texts[topics[i]].decode("utf-8", "replace")
            size = int(block.total_size[i])
            found.append(LostMessage(int(block.physical[i]), size, topic, int(queues[i]), int(times[i])))
    return found


def _from_units(
    result: Recovery,
    named: Iterable[tuple[QueueImage, Iterable[tuple[int, int, int]]]],
    found: dict[int, LostMessage],
) -> list[LostMessage]:
    """Return what is lost with records that no search finds but a unit of a queue names, where nothing else lies.

    After the last file of the log only units count in whose place the queue has no other afterwards, and that are
    followed by none which leads further to the front: no queue goes back.
    """
    begin, end = result.log_begin, result.end_before
    places = sorted(found)
    for image, units in named:
        least = _LONGEST_LOG
        for physical, size, offset in sorted(units, key=itemgetter(2), reverse=True):
            is_named = begin <= physical and (physical < end or (offset >= image.max_offset and physical < least))
            least = min(least, physical)
            if (
                is_named
                and _is_sane(physical, size)
                and physical not in found
                and not _overlaps(places, found, physical)
            ):
                found[physical] = LostMessage(physical, size, image.key[1], image.key[2], None)
    return [found[physical] for physical in sorted(found)]


def _is_sane(physical: int, size: int) -> bool:
    """Whether a unit can be that of a record; garbage seldom can."""
    return SMALLEST <= size <= MAX_RECORD and physical < _LONGEST_LOG


def _overlaps(places: list[int], found: dict[int, LostMessage], physical: int) -> bool:
    at = bisect_right(places, physical) - 1
    return at >= 0 and places[at] + found[places[at]].size > physical
