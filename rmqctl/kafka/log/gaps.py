"""What is no sound batch as findings: bytes between batches, batches with a wrong CRC, those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

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
from rmqctl.kafka.log.block import Block, Gap, GapKind

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


def block_findings(block: Block, partition: Partition | None) -> Iterator[Finding]:
    """Yield what is wrong with the batches of a block and between them, by place."""
    found = [gap_finding(block.file, gap, partition) for gap in block.gaps]
    found += [wrong_crc(block, row, partition) for row in np.flatnonzero(~block.crc_ok).tolist()]
    found += [unknown_magic(block, row, partition) for row in np.flatnonzero(block.magic > 2).tolist()]
    yield from sorted(found, key=lambda finding: finding.offset)


def gap_finding(file: str, gap: Gap, partition: Partition | None) -> Finding:
    """Bytes that are no batch, as a finding."""
    torn = gap.why is GapKind.CUT and not gap.resumed
    topic, number = place_of(partition)
    return Finding(
        OF_GAPS[gap.why], file, gap.position, gap.end - gap.position, gap.detail,
        Severity.WARNING if torn else None, topic=topic, partition=number,
    )  # fmt: skip


def wrong_crc(block: Block, row: int, partition: Partition | None) -> Finding:
    """Return a batch whose CRC does not match, as a finding."""
    from crc32c import crc32c
    from isal.isal_zlib import crc32

    raw, topic = block.raw(row), place_of(partition)
    computed = crc32(raw[message_set.CRC_FROM :]) if block.magic[row] < 2 else crc32c(raw[CRC_FROM:])
    message = f"stored CRC {int(block['crc'][row])}, computed {computed}"
    return Finding(
        BATCH_CRC, block.file, int(block.position[row]), len(raw), message, topic=topic[0], partition=topic[1]
    )


def unknown_magic(block: Block, row: int, partition: Partition | None) -> Finding:
    """Return a batch of a magic above 2, as a finding."""
    topic, number = place_of(partition)
    message = f"magic {int(block.magic[row])}, expected 0, 1 or 2"
    return Finding(BATCH_MAGIC, block.file, int(block.position[row]) + 16, 1, message, topic=topic, partition=number)


def unreadable(block: Block, row: int, why: str, partition: Partition | None) -> Finding:
    """Return a batch whose records cannot be read, as a finding."""
    topic, number = place_of(partition)
    at, size = int(block.position[row]), int(block.size[row])
    return Finding(RECORD_UNREADABLE, block.file, at, size, why, topic=topic, partition=number)
