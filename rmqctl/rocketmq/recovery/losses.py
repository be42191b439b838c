"""What a recovery gives up: messages behind the cut that a search still finds, or that queue units still name."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.columns import TextIds
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.dispatch.request import TRANSACTION, UNQUEUED
from rmqctl.rocketmq.recovery.log_replay import LogWalk
from rmqctl.rocketmq.recovery.message_check import Verdict
from rmqctl.rocketmq.recovery.outcome import LostMessage, Recovery, Undispatched
from rmqctl.rocketmq.store import StoreFile

_CRC = "BODYCRC"
_PEEK = 4096


def stop_finding(file: StoreFile, walk: LogWalk) -> Finding | None:
    """The finding for what ended the scan; None for the end of the data, where only zeros follow."""
    stopped = walk.stopped
    if stopped is None or stopped.verdict is Verdict.END_OF_FILE:
        return None
    source = file.open()
    try:
        if not any(source.read_at(walk.position, _PEEK)):
            return None
    finally:
        source.close()
    kind = kinds.LOG_BODY_CRC if stopped.reason.startswith(_CRC) else kinds.LOG_BAD_RECORD
    place = file.base + walk.position
    return Finding(kind, file.name, walk.position, stopped.size, stopped.reason, physical_offset=place)


def find_losses(result: Recovery) -> list[LostMessage]:
    """Messages at or behind the cut, ascending: those a search finds, and those that only queue units name.

    Raises:
        OSError: a file cannot be read.
    """
    if not result.log_files:  # what the queues prove to have been there
        units = {place: (size, i.key) for i in result.images for place, size in i.lost}
        return [LostMessage(place, size, key[1], key[2], None) for place, (size, key) in sorted(units.items())]
    if result.log_cut is None:
        return _from_units(result, {})
    found = {m.physical: m for m in _behind(result, result.log_cut)}
    return _from_units(result, found)


def find_undispatched(result: Recovery) -> Undispatched:
    """Messages in the range of the log that is not dispatched, and those whose queue refuses them.

    Raises:
        OSError: a file cannot be read.
    """
    begin, end = result.never_dispatched
    found, state, ids = Undispatched(), LogState(), TextIds()
    for image in result.images:
        if image.refused:
            found.by_topic[image.key[1]] += len(image.refused)
            found.bytes += sum(size for _, size in image.refused)
    if begin >= end:
        return found
    for context in CommitLog(result.log_files, crashed=True).contexts():
        first, behind = context.file.base, context.file.base + context.file.size
        if behind > begin and first < end and not state.stale:
            _add_queued(found, context, state, (max(begin - first, 0), min(end, behind) - first), ids)
    return found


def _add_queued(
    found: Undispatched, context: FileContext, state: LogState, part: tuple[int, int], ids: TextIds
) -> None:
    """Add what dispatch would give to queues; half messages and rollbacks have none."""
    for piece in walk_file(context, state, start=part[0], stop=part[1]):
        block = piece.block.take(np.flatnonzero(~np.isin(piece.block["sys_flag"] & TRANSACTION, UNQUEUED)))
        if not len(block):
            continue
        names, counts = np.unique(LogBlock(block).topics(ids), return_counts=True)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True):
            found.by_topic[ids.texts[name].decode("utf-8", "replace")] += count
        times = block["store_timestamp"]
        first, last = int(times.min()), int(times.max())
        found.bytes += int(block.total_size.sum())
        found.first, found.last = min(found.first or first, first), max(found.last, last)


def _behind(result: Recovery, cut: int) -> list[LostMessage]:
    """Records behind the cut that a search finds; old ones that were cut before do not count."""
    log, ids, state = CommitLog(result.log_files, crashed=True), TextIds(), LogState()
    found: list[LostMessage] = []
    for context in log.contexts():
        if context.file.base + context.file.size > cut and not state.stale:
            found += _in_file(context, state, max(cut - context.file.base, 0), ids)
    return found


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


def _from_units(result: Recovery, found: dict[int, LostMessage]) -> list[LostMessage]:
    """The same with records that no search finds but a unit of a queue names, where nothing else lies."""
    begin, end = result.log_begin, result.end_before
    places = sorted(found)
    for image in result.images:
        for physical, size in image.lost:
            if begin <= physical < end and physical not in found and not _overlaps(places, found, physical):
                found[physical] = LostMessage(physical, size, image.key[1], image.key[2], None)
    return [found[physical] for physical in sorted(found)]


def _overlaps(places: list[int], found: dict[int, LostMessage], physical: int) -> bool:
    at = bisect_right(places, physical) - 1
    return at >= 0 and places[at] + found[places[at]].size > physical
