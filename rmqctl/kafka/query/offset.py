"""Records of a partition from an offset on: what a consumer gets, and why it gets no record at an offset (spec 12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.kafka.record_batch import Attributes
from rmqctl.explain import Trace
from rmqctl.kafka.directory.directory import Segment
from rmqctl.kafka.log.block import Flags
from rmqctl.kafka.log.indexes import read_offset_index
from rmqctl.kafka.log.records import Records, records_of
from rmqctl.kafka.query.steps import (
    ABORTED,
    BEYOND_END,
    COMPACTED,
    CONTROL_RECORD,
    DELETED_BY_REQUEST,
    DELETED_WITH_SEGMENTS,
    END_OF_LOG,
    LEFT_OUT,
    NO_BATCH,
    NO_SEGMENT,
    NOT_DECIDED,
)
from rmqctl.kafka.rows import record_row
from rmqctl.kafka.state.partition_state import PartitionLog, View, view_of

Keep = Callable[[Records], Flags]
"""Which records of a group are wanted, shape (n,)."""


@dataclass(frozen=True, slots=True)
class OffsetQuestion:
    """Which records are asked for.

    Attributes:
        limit: records at most.
        keep: further restrictions; None: every record.
    """

    offset: int
    limit: int = 1
    read_committed: bool = False
    explain: bool = False
    keep: Keep | None = None


def offset_rows(log: PartitionLog, question: OffsetQuestion) -> list[dict[str, Any]]:
    """Return the status, the records, then the steps."""
    state, offset = log.replayed, question.offset
    view = view_of(log, read_committed=question.read_committed)
    steps = Trace(on=question.explain)
    if not state.log_start_offset <= offset <= state.log_end_offset:
        next_offset = state.log_start_offset if offset < state.log_start_offset else state.log_end_offset
        _explain_range(log, offset, steps)
        return [_status(log, "OUT_OF_RANGE", next_offset), *steps.rows()]
    rows = list(_records(view, question))
    if question.explain:
        _explain(view, question, rows, steps)
    next_offset = rows[-1]["offset"] + 1 if rows else max(offset, view.end)
    return [_status(log, "FOUND" if rows else "END", next_offset), *rows, *steps.rows()]


def _records(view: View, question: OffsetQuestion) -> Iterator[dict[str, Any]]:
    left = question.limit
    for records in view.records(question.offset):
        wanted = np.arange(len(records)) if question.keep is None else np.flatnonzero(question.keep(records))
        for index in wanted[:left].tolist():
            yield record_row(records, index, view.log.partition)
        left -= len(wanted)
        if left <= 0:
            return


def _status(log: PartitionLog, status: str, next_offset: int) -> dict[str, Any]:
    state = log.replayed
    return {
        "kind": "status",
        "status": status,
        "next_offset": next_offset,
        "log_start_offset": state.log_start_offset,
        "log_end_offset": state.log_end_offset,
        "last_stable_offset": state.last_stable_offset,
    }


def _explain_range(log: PartitionLog, offset: int, steps: Trace) -> None:
    state = log.replayed
    steps.add("", "range", f"the log holds offsets from {state.log_start_offset} to before {state.log_end_offset}")
    if offset >= state.log_start_offset:
        steps.conclude(BEYOND_END, offset=offset, end=state.log_end_offset)
    elif log.served and offset >= log.served[0].base:
        steps.conclude(DELETED_BY_REQUEST, start=state.log_start_offset)
    else:
        steps.conclude(DELETED_WITH_SEGMENTS, start=state.log_start_offset)


def _explain(view: View, question: OffsetQuestion, rows: list[dict[str, Any]], steps: Trace) -> None:
    """Say how a broker gets to the offset, and why the first record is not the one asked for."""
    log, offset = view.log, question.offset
    segment = segment_of(log, offset)
    if segment is None or segment.log is None:
        steps.conclude(NO_SEGMENT)
        return
    steps.add(segment.log.name, "segment", f"base offset {segment.base}: the greatest that is not above {offset}")
    index_entry(segment, offset, steps)
    if rows and rows[0]["offset"] == offset:
        steps.found(f"the record is in the batch at byte {rows[0]['batch_position']}", rows[0]["file"])
        return
    _conclude(view, question, rows, steps)


def segment_of(log: PartitionLog, offset: int) -> Segment | None:
    """Return the segment that a broker opens for an offset."""
    return max((s for s in log.served if s.base <= offset), key=lambda s: s.base, default=None)


def index_entry(segment: Segment, offset: int, steps: Trace) -> int:
    """Return the byte at which a broker begins to read for an offset, by the offset index."""
    if segment.offset_index is None:
        steps.add(segment.log.name if segment.log else "", "offset index", "there is none: read from byte 0")
        return 0
    source = segment.offset_index.open()
    try:
        index = read_offset_index(source)
    finally:
        source.close()
    offsets = index.offsets(segment.base)
    number = int(np.searchsorted(offsets, offset, side="right")) - 1
    if number < 0:
        steps.add(
            segment.offset_index.name, f"{len(index)} entries", f"none is at or before {offset}: read from byte 0"
        )
        return 0
    position = int(index.positions[number])
    steps.add(segment.offset_index.name, f"entry {number}", f"offset {int(offsets[number])}: read from byte {position}")
    return position


def _conclude(view: View, question: OffsetQuestion, rows: list[dict[str, Any]], steps: Trace) -> None:
    """Say why a consumer gets no record at the offset."""
    log, offset = view.log, question.offset
    state = log.replayed
    after = f"; the next record is at {rows[0]['offset']}" if rows else "; no record follows"
    if offset >= state.log_end_offset:
        return steps.conclude(END_OF_LOG, offset=offset)
    if offset >= view.end:
        producer, first = min(state.open.items(), key=lambda item: item[1])
        return steps.conclude(NOT_DECIDED, producer=producer, first=first)
    aborted = state.aborted
    for _, block in log.blocks(offset):
        hit = np.flatnonzero((block["base_offset"] <= offset) & (block["last_offset"] >= offset))
        if len(hit):
            row = int(hit[0])
            place = f"the batch at byte {int(block.position[row])} of {block.file}"
            if block["attributes"][row] & Attributes.CONTROL:
                return steps.conclude(CONTROL_RECORD, offset=offset, place=place, after=after)
            span = aborted.find(int(block["producer_id"][row]), int(block["base_offset"][row]))
            if span is not None and question.read_committed:
                return steps.conclude(ABORTED, place=place, marker=span[1], after=after)
            there = any((records.offset == offset).any() for records in records_of(block.take(hit[:1])))
            return steps.conclude(LEFT_OUT if there else COMPACTED, offset=offset, place=place, after=after)
        if (block["base_offset"] > offset).any():
            break
    return steps.conclude(NO_BATCH, offset=offset, after=after)
