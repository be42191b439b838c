"""One index file alone: header, slots, chains (spec 4.1, 4.3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rmqctl.findings import Finding
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.checkpoint import read_checkpoint
from rmqctl.rocketmq.index_files import IndexFile
from rmqctl.rocketmq.index_geometry import ENTRY, HEADER, SLOT_SIZE
from rmqctl.rocketmq.queue_numbers import run_starts
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.index_times import FileTimes, time_findings

Numbers = npt.NDArray[np.int32]
_CHUNK = 1 << 17
_MOST = 64


def check_file(
    store: RocketMQStore,
    file: IndexFile,
    context: LogContext,
    newest: bool,
    times: FileTimes,
    chains: list[Finding] | None = None,
) -> Iterator[Finding]:
    """Findings of one file; a file of another length has been named already and is left alone.

    Args:
        newest: it is the newest file.
        times: what the log said of the times of its entries.
        chains: what :func:`chain_findings` gave where that has run before.

    Raises:
        OSError: the file cannot be read.
    """
    if not file.is_whole:
        return
    problem = header_problem(file, unsettled=is_unsettled(context, newest))
    if problem:
        yield Finding(kinds.INDEX_HEADER, file.path, 0, HEADER.packer.size, problem)
        return
    yield from time_findings(file, context, times)
    yield from chain_findings(file, context, newest) if chains is None else chains
    yield from _against_log(file, context)
    checkpoint = read_checkpoint(store)
    if context.crashed and checkpoint and file.header["end_timestamp"] > checkpoint[0]["index_msg_timestamp"]:
        message = f"end time {file.header['end_timestamp']}, the checkpoint says {checkpoint[0]['index_msg_timestamp']}"
        yield Finding(kinds.INDEX_NEWER, file.path, 0, 0, message)


def chain_findings(file: IndexFile, context: LogContext, newest: bool) -> list[Finding]:
    """Findings of the slots and chains of one file, none where its length or header is wrong; needs no log.

    Raises:
        OSError: the file cannot be read.
    """
    unsettled = is_unsettled(context, newest)
    if not file.is_whole or header_problem(file, unsettled=unsettled):
        return []
    return list(_chains(file, unsettled=unsettled))


def is_unsettled(context: LogContext, newest: bool) -> bool:
    """Whether a broker may have been about to put a key into the file: the header is written last."""
    return newest and (context.crashed or context.running)


def header_problem(file: IndexFile, *, unsettled: bool = False) -> str | None:  # noqa: PLR0911 - one return a rule
    """What is wrong with the header, as a sentence; None if nothing is.

    Args:
        unsettled: one entry more than the header says may be written.
    """
    h = file.header
    beyond = file.entries(file.count + 1 + unsettled, 1)
    if 0 <= h["index_count"] < file.geometry.entries and len(beyond) and any(beyond[0].tolist()):
        return f"index_count is {h['index_count']}, but entry {file.count + 1 + unsettled} is written"
    if not any(h.values()):
        return None
    if not 0 <= h["index_count"] <= file.geometry.entries:
        return f"index_count is {h['index_count']}, the file has room for {file.geometry.entries}"
    if not 0 <= h["hash_slot_count"] <= file.geometry.entries:
        return f"hash_slot_count is {h['hash_slot_count']}, the file has {file.geometry.slots} slots"
    if min(h["begin_timestamp"], h["end_timestamp"]) < 0:
        return f"times {h['begin_timestamp']} to {h['end_timestamp']} are before 1970"
    if h["begin_phy_offset"] > h["end_phy_offset"] or h["begin_phy_offset"] < 0:
        return f"offsets {h['begin_phy_offset']} to {h['end_phy_offset']} are not in order"
    if file.count and file.physical_at(1) != h["begin_phy_offset"]:
        return f"begin_phy_offset is {h['begin_phy_offset']}, but the first entry points to {file.physical_at(1)}"
    if file.count and file.physical_at(file.count) != h["end_phy_offset"]:
        return f"end_phy_offset is {h['end_phy_offset']}, but the last entry points to {file.physical_at(file.count)}"
    return None


def _chains(file: IndexFile, unsettled: bool) -> Iterator[Finding]:
    """Compare every `previous` and every slot with what putting the entries in order gives."""
    newest = np.zeros(file.geometry.slots, np.int32)
    found = 0
    for first in range(1, file.count + 1, _CHUNK):
        entries = file.entries(first, min(_CHUNK, file.count + 1 - first))
        hashes = entries["key_hash"].astype(np.int32)
        expected = _previous(hashes % file.geometry.slots, first, newest)
        wrong = np.flatnonzero((entries["previous"] != expected) | (hashes < 0))
        for row in wrong[: _MOST - found].tolist():
            at = file.geometry.entry_at(first + row)
            message = (
                f"entry {first + row} names {int(entries['previous'][row])} as the one before, not {int(expected[row])}"
            )
            yield Finding(kinds.INDEX_CHAIN, file.path, at, ENTRY.packer.size, message)
        found += len(wrong)
    yield from _slots(file, newest, unsettled)


def _previous(slots: Numbers, first: int, newest: Numbers) -> Numbers:
    """The entry before each in its slot; ``newest`` holds the last of each slot and is brought up to date."""
    order = _in_order(slots)
    own, number = slots[order], (first + order).astype(np.int32)
    begins = run_starts(own)
    previous = np.empty_like(number)
    previous[1:] = number[:-1]
    previous[begins] = newest[own[begins]]
    result = np.empty_like(number)
    result[order] = previous
    ends = np.append(begins[1:], len(own)) - 1
    newest[own[ends]] = number[ends]
    return result


def _in_order(values: Numbers) -> Ints:
    """What puts values below 2^32 in order, equal ones as they stand: two passes of radix sort over 16 bits each."""
    low = np.argsort(values.astype(np.uint16), kind="stable")
    high = (values >> 16).astype(np.uint16)[low]
    order: Ints = low[np.argsort(high, kind="stable")]
    return order


def _slots(file: IndexFile, newest: Numbers, unsettled: bool) -> Iterator[Finding]:
    used = found = 0
    for first in range(0, file.geometry.slots, _CHUNK):
        count = min(_CHUNK, file.geometry.slots - first)
        values, expected = file.slots(first, count), newest[first : first + count]
        used += int(np.count_nonzero(expected))
        wrong = values != expected
        if unsettled:  # the header may lag behind the slots after a kill
            wrong &= values <= file.count
        for row in np.flatnonzero(wrong)[: _MOST - found].tolist():
            at = HEADER.packer.size + SLOT_SIZE * (first + row)
            message = f"slot {first + row} holds {int(values[row])}, its newest entry is {int(expected[row])}"
            yield Finding(kinds.INDEX_CHAIN, file.path, at, SLOT_SIZE, message)
        found += int(np.count_nonzero(wrong))
    stated = file.header["hash_slot_count"]
    if not unsettled and not found and stated not in (used, file.count):
        message = f"hash_slot_count is {stated}; {used} slots are in use by {file.count} entries"
        yield Finding(kinds.INDEX_COUNT, file.path, HEADER.packer.size - 8, 4, message)


def _against_log(file: IndexFile, context: LogContext) -> Iterator[Finding]:
    end = context.end
    if end is None or not file.count or file.header["end_phy_offset"] < end:
        return
    first = file.first_at_or_after(end)
    count = file.count + 1 - first
    message = f"{count} entries point behind the end of the log at {end}, the last to {file.header['end_phy_offset']}"
    yield Finding(
        kinds.INDEX_BEYOND, file.path, file.geometry.entry_at(first), count * ENTRY.packer.size, message,
        physical_offset=file.header["end_phy_offset"],
    )  # fmt: skip
