"""What can be read in stores: every sound record with its place, what lies between them, and one order for those of
several replicas.

In that order each message comes once, and every queue ascends. Only columns are kept, some 60 bytes a record; the
bytes of a record are read again when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from formats.errors import DecodeError
from formats.rocketmq.message import TRANSACTION
from formats.rocketmq.properties import split_properties
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.dispatch.rules import INNER_BATCH, UNQUEUED
from rmqctl.rocketmq.engine.message import is_topic
from rmqctl.rocketmq.findings.log import LOG_TORN_TAIL
from rmqctl.rocketmq.log.block import Block, Ints
from rmqctl.rocketmq.log.columns import KeyNumbers, TextIds, signed
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.measure import block_of, outermost
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, queues_of
from rmqctl.rocketmq.queues.ranges import LogRange, queue_range
from rmqctl.rocketmq.store.files import BATCH_QUEUES, QUEUES, StoreFile, StoreFiles
from rmqctl.rocketmq.verify.log import body_crc_finding, damaged_properties, topic_finding

RECORD = np.dtype(
    [
        ("source", np.int16),
        ("file", np.int32),  # its number in the log of the source: names of several may claim one offset
        ("physical", np.int64),
        ("size", np.int32),
        ("queue", np.int32),
        ("queue_offset", np.int64),
        ("messages", np.int32),
        ("store_timestamp", np.int64),
        ("crc", np.int32),  # of the body
        ("stale", np.bool_),
    ]
)
Records = npt.NDArray[np.void]
NO_QUEUE = -1
"""Instead of a queue number: the record has no place in a queue (prepared, rollback)."""
_INNER_NUM = b"INNER_NUM"


class Names:
    """Numbers of queues, the same for all sources."""

    def __init__(self) -> None:
        self.ids, self._numbers = TextIds(), KeyNumbers()

    def of(self, topics: Ints, queue_ids: Ints) -> Ints:
        """Return the number of each record's queue."""
        return self._numbers.numbers(topics << 32 | (queue_ids.astype(np.int64) & 0xFFFFFFFF)).astype(np.int64)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id by number."""
        found = self._numbers.keys()
        return [(self.ids.texts[k >> 32].decode("utf-8", "surrogateescape"), signed(k & 0xFFFFFFFF)) for k in found]


@dataclass(slots=True)
class Gathered:
    """One source.

    Attributes:
        records: in log order, of dtype :data:`RECORD`.
        unreadable: findings for what could not be read, in log order.
        ends: next queue offset of each queue, as its files show it.
        end: physical offset where the log ends before old records, of which none is taken; None: it does not.
    """

    store: StoreFiles
    records: Records
    unreadable: list[Finding] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    end: int | None = None


def gather(store: StoreFiles, source: int, names: Names, *, stale: bool, advance: Callable[[int], object]) -> Gathered:
    """Read a store from end to end.

    Args:
        source: number of the store.
        stale: take old records after the end of the log, too.
        advance: called with bytes passed.
    """
    log = CommitLog(store.log_files, crashed=store.has_abort)
    parts: list[Records] = []
    found = Gathered(store, np.zeros(0, RECORD))
    state = LogState()
    for at, context in enumerate(log.contexts()):
        if gap := log.gap_before(at):
            found.unreadable.append(gap)
        between = list[tuple[int, int]]()
        for part in () if state.stale else walk_file(context, state):
            found.unreadable += filter(_is_loss, part.findings)
            parts.append(_columns(part, (source, at), names, found.unreadable, between))
        if state.stale:  # what lies there is old, but for what says that it belongs elsewhere
            between.append((max((state.end or 0) - context.file.base, 0), context.file.size))
        with closing(context.file.open()) as opened:
            for one in outermost(opened, context.file.base, between):
                block = LogBlock(block_of(one, context.file.name, context.file.base))
                if not state.stale or not _is_at_home(block.block):
                    parts.append(_columns(block, (source, at), names, found.unreadable))
        advance(context.file.size)
    if state.stale and not stale:
        found.end = state.end
    if stale:
        parts += _stale(store, source, names, state.end or 0, found.unreadable)
    found.records = np.concatenate(parts) if parts else found.records
    found.ends = _ends(store, found)
    return found


def _is_at_home(block: Block) -> bool:
    return int(block["physical_offset"][0]) == int(block.physical[0])


def gather_stray(store: StoreFiles, file: StoreFile, source: int, names: Names) -> Gathered:
    """Read a file beside those of the log: whole records anywhere in it, and nothing else is expected."""
    found, parts = Gathered(store.with_log([file]), np.zeros(0, RECORD)), [np.zeros(0, RECORD)]
    with closing(file.open()) as opened:
        for one in outermost(opened, file.base, [(0, file.size)]):
            block = LogBlock(block_of(one, file.name, file.base))
            parts.append(_columns(block, (source, 0), names, found.unreadable))
    found.records = np.concatenate(parts)
    return found


def _is_loss(finding: Finding) -> bool:
    """Whether a finding means that records are lost; a torn last one is, too, although killed brokers leave such."""
    return finding.level is Severity.ERROR or finding.kind is LOG_TORN_TAIL


def _ends(store: StoreFiles, found: Gathered) -> dict[tuple[str, int], int]:
    """Counters of the queues; units that point after everything the log held do not count."""
    if store.is_rocksdb:
        return {}
    damaged = [(f.physical_offset or 0) + f.size for f in found.unreadable]
    records = found.records
    last = int((records["physical"] + records["size"]).max(initial=0))
    log = LogRange(store.log_files[0].base if store.log_files else 0, max([last, *damaged]), is_5=True)
    queues = [*queues_of(store.queues(QUEUES), UNIT), *queues_of(store.queues(BATCH_QUEUES), BATCH_UNIT)]
    return {queue.key: queue_range(queue, log).max_offset for queue in queues}


def _stale(store: StoreFiles, source: int, names: Names, end: int, bad: list[Finding]) -> Iterator[Records]:
    """Yield records after the end of the log that lie where they say they lie: what a cut left."""
    for at, context in enumerate(CommitLog(store.log_files, crashed=True).contexts()):
        if context.file.base + context.file.size <= end:
            continue
        for part in _blocks_after(context, max(end - context.file.base, 0)):
            columns = _columns(part, (source, at), names, bad)
            columns["stale"] = True
            yield columns


def _blocks_after(context: FileContext, start: int) -> Iterator[LogBlock]:
    file = context.file
    source = file.open()
    try:
        for block in scan(source, Extent(file.name, file.base, start, lead=file.lead)):
            yield LogBlock(block.take(block["physical_offset"] == block.physical))
    finally:
        source.close()


def _columns(
    part: LogBlock,
    origin: tuple[int, int],
    names: Names,
    bad: list[Finding],
    between: list[tuple[int, int]] | None = None,
) -> Records:
    """Return the records of a block.

    Args:
        origin: numbers of the source, and of the file in its log.
        between: gets the parts of the file without a sound record.
    """
    block = part.block
    if between is not None:
        between += [(gap.position, gap.end) for gap in block.gaps]
        between += [(blank.position, blank.end) for blank in block.blanks]
    if not len(block):
        return np.zeros(0, RECORD)
    computed, ok = crc_flags(block)
    bad += [
        body_crc_finding(block, row, int(block["body_crc"][row]), int(computed[row]))
        for row in np.flatnonzero(~ok).tolist()
    ]
    if between is not None and not ok.all():
        torn = block.take(~ok)
        between += zip(torn.position.tolist(), (torn.position + torn.total_size).tolist(), strict=True)
    lost = list(damaged_properties(block, part.properties))
    bad += lost
    if between is not None:
        between += [(one.offset, one.offset + one.size) for one in lost]  # others may lie in what no CRC covers
    topics = part.topics(names.ids)
    ok &= _accepted(block, topics, names, bad)
    records = np.zeros(len(block), RECORD)
    flags = block["sys_flag"]
    unqueued = np.isin(flags & TRANSACTION, UNQUEUED)
    queue = np.full(len(block), NO_QUEUE)
    queue[ok] = names.of(topics[ok], block["queue_id"][ok])
    records["source"], records["file"] = origin
    records["physical"], records["size"] = block.physical, block.total_size
    records["queue"], records["queue_offset"] = np.where(unqueued, NO_QUEUE, queue), block["queue_offset"]
    records["messages"], records["store_timestamp"], records["crc"] = 1, block["store_timestamp"], block["body_crc"]
    for row in np.flatnonzero(flags & INNER_BATCH).tolist():
        records["messages"][row] = _inner_count(part, row)
    return records[ok]


def _accepted(block: Block, topics: Ints, names: Names, bad: list[Finding]) -> npt.NDArray[np.bool_]:
    """Which records have a topic that the engine takes; the others are noted: nothing here says where they belong."""
    odd = [n for n in np.unique(topics).tolist() if not is_topic(names.ids.texts[n].decode("utf-8", "replace"))]
    accepted: npt.NDArray[np.bool_] = ~np.isin(topics, odd)
    bad += [topic_finding(block, row, names.ids.texts[int(topics[row])]) for row in np.flatnonzero(~accepted).tolist()]
    return accepted


def _inner_count(part: LogBlock, row: int) -> int:
    """Messages of an inner batch, by INNER_NUM; 1 where that is no number."""
    try:
        text = part.block.record(row)["properties"]
    except DecodeError:
        return 1
    value = dict(split_properties(text)).get(_INNER_NUM, b"")
    return int(value) if value.isdigit() and 0 < len(value) < 6 else 1


# --- one order for the records of several replicas --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """What is to be written.

    Attributes:
        records: in the order in which they are to be written.
        repeats: records whose place in their queue another record of the same source holds; they come last,
            and get new queue offsets.
        duplicates: records left out because an earlier source, or the same message before, has them.
        conflicts: those among them whose store time, size or body is another.
    """

    records: Records
    repeats: Records
    duplicates: int
    conflicts: int


def merge(sources: Sequence[Records]) -> Merged:
    """Return the records of all sources; where two hold the same place of a queue, the earlier source counts."""
    order = np.concatenate([np.arange(len(s)) for s in sources]) if sources else np.zeros(0, np.int64)
    records = np.concatenate(sources)
    first, kept, again = _first_of_each(records, order)
    other = np.flatnonzero(~kept)
    same = again[other]
    conflict = np.zeros(len(other), np.bool_)
    for name in ("store_timestamp", "size", "crc"):
        conflict |= records[name][other] != records[name][same]
    repeated = other[conflict & (records["source"][other] == records["source"][same])]
    repeated = repeated[_distinct(records[repeated])]
    chosen = records[first]
    return Merged(
        _ascending(chosen[_by_time(chosen)]),
        records[repeated],
        len(other) - len(repeated),
        int(conflict.sum()) - len(repeated),
    )


def _distinct(records: Records) -> Ints:
    """Rows of which none has the message and the place of one before."""
    names = ["source", "queue", "queue_offset", "store_timestamp", "size", "crc"]
    found: Ints = np.sort(np.unique(records[names], return_index=True)[1])
    return found


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
    """Return the places of each queue in the order of queue offsets."""
    queued = np.flatnonzero(records["queue"] != NO_QUEUE)
    places = queued[np.argsort(records["queue"][queued], kind="stable")]
    wanted = queued[np.lexsort((records["queue_offset"][queued], records["queue"][queued]))]
    result = records.copy()
    result[places] = records[wanted]
    return result
