"""Dividing a commit log among tasks: each part is read alone, together they give what ``dump`` shows.

A log that grows is read no further than where a record may still be being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rmqctl.files.moment import MomentTree, alone
from rmqctl.files.tree import ForgivingTree
from rmqctl.findings import Severity
from rmqctl.parallel import leave_out, note
from rmqctl.rocketmq.findings.log import LOG_STALE_TAIL
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.commitlog import LOOK_BACK, CommitLog, FileContext, LogBlock, resume_state, walk_file
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.queues.ranges import late_start, log_end
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles
from rmqctl.rocketmq.verify.splits import Split, splits_of
from rmqctl.tables import check_reachable, gone

SPLIT_SIZE = 128 << 20
"""Bytes of the log in one task of jobs that keep something of each split."""
_SAMPLE = 8
"""Queues that are asked for a record near the end of the log: a dozen small reads for each."""


def log_of(store: StoreFiles) -> CommitLog:
    """Return the commit log of a store."""
    return CommitLog(store.log_files, crashed=store.has_abort)


def log_splits(store: StoreFiles, size: int = SPLIT_SIZE, end: int | None = None) -> list[Split]:
    """:func:`splits_of_log` for the log of a store, whose queues know records of the last file."""
    splits = splits_of_log(log_of(store), size, end, lambda file: late_start(store, file, _SAMPLE))
    return [replace(split, context=_alone(split.context)) for split in splits]


def _alone(context: FileContext) -> FileContext:
    """Return a file of the log without what a moment knows of others, to be taken to other processes with little."""
    if not isinstance(context.file.tree, MomentTree):
        return context
    files = [replace(f, tree=alone(f.tree, f.path)) for f in (context.file, *context.before)]
    if context.followed:  # only where the log ends its queues are asked
        files[0] = replace(files[0], store=None)
    return replace(context, file=files[0], before=tuple(files[1:]))


def splits_of_log(
    log: CommitLog, size: int = SPLIT_SIZE, end: int | None = None, known: Callable[[StoreFile], int] | None = None
) -> list[Split]:
    """Return splits of a log in order, up to where old records begin that a cut has left after its end.

    Only a walk over the last file shows where it ends. Where the file is divided, it begins at the last record that is
    known, so that little is read here; at the start of the file where nothing is known, or where the times of records
    in front of that one do not ascend.

    Args:
        end: a physical offset up to which the log is known to go; then nothing is scanned.
        known: a place in a file where a record begins that belongs to the log; 0 where nobody knows one.
    """
    found: list[Split] = []
    for context in log.contexts():
        parts = splits_of([context], size)
        if context.followed or len(parts) == 1 or end is not None:
            found += parts
            continue
        late = known(context.file) if known is not None else 0
        stale = stale_from(
            context, late if _ascends(context, [*(p.start for p in parts if p.start < late), late]) else 0
        )
        if stale is None:
            found += parts
        else:
            return found + [_clipped(part, stale) for part in parts if part.start < stale]
    return found


def _ascends(context: FileContext, places: Sequence[int]) -> bool:
    """Whether the last records in front of some places of a file were stored one after the other."""
    states = (resume_state(context, place) for place in places if place)
    times = [state.store_timestamp for state in states if state.records]
    return all(before <= after for before, after in pairwise(times))


def stale_from(context: FileContext, start: int = 0) -> int | None:
    """Where old records begin in the last file of a log, in bytes; None when there are none.

    Args:
        start: a place in front of which there are none.
    """
    for found in walk_file(context, resume_state(context, start), start=start):
        for finding in found.findings:
            if finding.kind is LOG_STALE_TAIL:
                return finding.offset
    return None


def _clipped(part: Split, end: int) -> Split:
    stop = end if part.stop is None else min(part.stop, end)
    return Split(part.context, part.start, stop)


def walk_split(split: Split) -> Iterator[LogBlock]:
    """Yield the blocks of records that start in a split.

    Raises:
        IOFailure: the store is not on this machine, or the file is no longer there.
    """
    file = split.context.file
    check_reachable(file.tree)
    state, is_empty = resume_state(split.context, split.start), True
    for found in walk_file(split.context, state, start=split.start, stop=split.stop):
        note(len(found.block), 0, damaged=_damaged(found))
        is_empty = is_empty and not (len(found.block) or found.block.blanks or found.block.gaps)
        yield found
    refused = file.tree.refusals.get(file.name) if isinstance(file.tree, ForgivingTree) else None
    if refused is not None and isinstance(refused[0], FileNotFoundError):
        raise gone(file.name)
    if refused is not None and is_empty:
        leave_out("unreadable", bytes_of(split))
    else:
        note(0, bytes_of(split))


def bytes_of(split: Split) -> int:
    """Bytes of log of a split."""
    return (split.context.file.size if split.stop is None else split.stop) - split.start


def _damaged(found: LogBlock) -> int:
    """Bytes of the gaps of a block that are damage, and no room or old records."""
    begins = {gap.position for gap in found.block.gaps}
    bad = (f for f in found.findings if f.level is Severity.ERROR and f.offset in begins)
    return sum(finding.size or 0 for finding in bad)


# --- how far a log can be read without meeting a record that is still being -------------------------


_BACK = 16 << 20


def log_tip(store: StoreFiles, known: int | None = None, *, growing: bool = True) -> int:
    """Return the physical offset after the last record that has arrived in full.

    A broker writes into a mapped file, so of the last record only a part may be there. In a growing
    log it counts when something follows it, or when its body matches its CRC and no zero stands in
    its properties.

    Args:
        known: an offset that this function gave before; what lies before it is not looked at again.
        growing: somebody may be writing.
    """
    contexts = log_of(store).contexts()
    if not contexts:
        return known or 0
    current = next((c for c in contexts if not c.followed), contexts[-1])
    base = current.file.base
    if known is not None:
        return max(_tip(current, max(known - base, 0), growing=growing) or base, known)
    start = max(log_end(store).offset - base - _BACK, 0)
    tip = _tip(current, start, growing=growing)
    if tip is None and start:
        tip = _tip(current, 0, growing=growing)
    return base if tip is None else tip


def _tip(context: FileContext, start: int, *, growing: bool) -> int | None:
    """After the last complete record of a file, None where it has none from ``start`` on."""
    base = context.file.base
    state = resume_state(context, start)
    tip: int | None = None
    for found in walk_file(context, state, start=start):
        block = found.block
        if len(block):
            complete = not growing or _is_complete(block)
            tip = (
                int(block.physical[-1] + block.total_size[-1])
                if complete
                else int(block.physical[-1]) - context.file.lead
            )
        if block.blanks:
            tip = base + context.file.size
    return tip


def _is_complete(block: Block) -> bool:
    """Whether the last record of a block has arrived in full."""
    one = block.take(np.array([len(block) - 1]))
    at = int(one.properties_at[0])
    properties = one.data[at : at + int(one.properties_size[0])]
    return int(body_crcs(one)[0]) == int(one["body_crc"][0]) and bool((properties != 0).all())


def mark_in_front(store: StoreFiles, offset: int) -> str | None:
    """Return what distinguishes the last record in front of a physical offset from any that may lie there later: its
    own physical offset, its time, its queue offset and the CRC of its body; None where no record lies near.
    """
    file = next((file for file in reversed(store.log_files) if file.base < offset), None)
    if file is None:
        return None
    stop, source, found = min(offset - file.base, file.size), file.open(), None
    try:
        for reach in LOOK_BACK:
            extent = Extent(file.name, file.base, max(stop - reach, 0), stop, lead=file.lead)
            for block in scan(source, extent):
                if len(block):
                    facts = (block.physical, block["store_timestamp"], block["queue_offset"], block["body_crc"])
                    found = ":".join(str(int(column[-1])) for column in facts)
            if found is not None or stop <= reach:
                break
    finally:
        source.close()
    return found
