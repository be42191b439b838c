"""What is no sound batch as findings: bytes between batches, batches with a wrong CRC, those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from formats.kafka import message_set
from formats.kafka.record_batch import CRC_FROM
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.kafka.directory.directory import Partition, place_of
from rmqctl.kafka.findings.log import (
    BATCH_CRC,
    BATCH_CUT,
    BATCH_LENGTH,
    BATCH_MAGIC,
    BATCH_ROOM,
    BATCH_SIZE,
    BATCH_TORN_TAIL,
    BATCH_ZERO_END,
    BATCH_ZEROS,
    RECORD_UNREADABLE,
)
from rmqctl.kafka.log.block import Block, Gap, GapKind, stated_records

OF_GAPS: dict[GapKind, FindingKind] = {
    GapKind.ZEROS: BATCH_ZEROS,
    GapKind.ZERO_TAIL: BATCH_ROOM,
    GapKind.SIZE: BATCH_SIZE,
    GapKind.MAGIC: BATCH_MAGIC,
    GapKind.CRC: BATCH_LENGTH,
    GapKind.CUT: BATCH_CUT,
}
"""What a gap of the scan is called, where nothing is known of the log around it; see :func:`kind_of_gap`."""
LEAST_ZEROS = 18
"""Zeros after the last batch that a broker takes for a batch; it passes over fewer (spec 2)."""


def kind_of_gap(gap: Gap, *, is_last: bool, growing: bool) -> FindingKind:
    """Return what a gap of the scan is called.

    Args:
        is_last: it lies in the last segment of a log.
        growing: that log was not stopped in order, so that its end may be torn.
    """
    growing = growing and is_last
    if gap.why is GapKind.CUT and growing and not gap.resumed:
        return BATCH_TORN_TAIL
    is_seen = not is_last or gap.end - gap.position >= LEAST_ZEROS
    if gap.why is GapKind.ZERO_TAIL and not growing and is_seen:
        return BATCH_ZERO_END
    return OF_GAPS[gap.why]


def block_findings(block: Block, partition: Partition | None, *, is_clean: bool | None = None) -> Iterator[Finding]:
    """Yield what is wrong with the batches of a block and between them, by place.

    Args:
        is_clean: the broker was stopped in order; None: nothing is known of the log around the block.
    """
    found = [gap_finding(block.file, gap, partition, is_clean=is_clean) for gap in block.gaps]
    found += wrong_heads(block, partition)
    yield from sorted(found, key=lambda finding: finding.offset)


def wrong_heads(block: Block, partition: Partition | None) -> Iterator[Finding]:
    """Yield batches whose CRCs do not match, then those of a magic above 2 whose CRCs do."""
    for row in np.flatnonzero(~block.crc_ok).tolist():
        yield wrong_crc(block, row, partition)
    for row in np.flatnonzero(block.crc_ok & (block.magic > 2)).tolist():
        message = f"magic {block.magic[row]}, and the CRC is that of a batch of magic 2"
        yield _of_batch(BATCH_MAGIC, block, row, message, partition)


def gap_finding(file: str, gap: Gap, partition: Partition | None, *, is_clean: bool | None = None) -> Finding:
    """Bytes that are no batch, as a finding.

    Args:
        is_clean: as of :func:`block_findings`.
    """
    topic, number = place_of(partition)
    if is_clean is None or partition is None or topic is None:
        torn = gap.why is GapKind.CUT and not gap.resumed
        kind, severity = OF_GAPS[gap.why], Severity.WARNING if torn else None
    else:
        is_last = partition.logs[-1].name == file
        kind, severity = kind_of_gap(gap, is_last=is_last, growing=not is_clean), None
    return Finding(
        kind, file, gap.position, gap.end - gap.position, gap.detail, severity, topic=topic, partition=number
    )


def wrong_crc(block: Block, row: int, partition: Partition | None) -> Finding:
    """Return a batch whose CRC does not match, as a finding."""
    from crc32c import crc32c
    from isal.isal_zlib import crc32

    raw = block.raw(row)
    computed = crc32(raw[message_set.CRC_FROM :]) if block.magic[row] < 2 else crc32c(raw[CRC_FROM:])
    message = f"stored CRC {int(block['crc'][row])}, computed {computed}"
    found = _of_batch(BATCH_CRC, block, row, message, partition)
    return replace(found, messages=int(stated_records(block)[row]))


def unreadable(block: Block, row: int, why: str, partition: Partition | None) -> Finding:
    """Return a batch whose records cannot be read, as a finding."""
    return _of_batch(RECORD_UNREADABLE, block, row, why, partition)


def _of_batch(kind: FindingKind, block: Block, row: int, message: str, partition: Partition | None) -> Finding:
    topic, number = place_of(partition)
    at, size = int(block.position[row]), int(block.size[row])
    first, last = int(block["base_offset"][row]), int(block["last_offset"][row])
    return Finding(
        kind, block.file, at, size, message, topic=topic, partition=number, base_offset=first, last_offset=last
    )
