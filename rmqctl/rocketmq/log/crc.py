"""The two CRCs of a record: that of its body, and that which 5.2.0 and later can append over all of it (spec 2.5, 2.7).

Brokers store the CRC-32 of the stored body with its top bit cleared; the other one is the last property.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from formats.rocketmq.properties import NAME_END, PAIR_END
from formats.rocketmq.property_crc import DIGITS, NAME, SIZE
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.rocketmq.findings.log import LOG_CRC_ZERO, LOG_PROPERTY_CRC
from rmqctl.rocketmq.log.block import Block, Ints, gather
from rmqctl.rocketmq.log.columns import Texts, cut_out, rows_of

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # no wheel for this platform; the same function at a fifth of the speed
    from zlib import crc32

MASK = 0x7FFFFFFF
_COPIED = 1024  # bytes from which a slice of the window costs less than a copy


def body_crcs(block: Block) -> npt.NDArray[np.int64]:
    """Return the CRC each record of a block should carry, computed from its body, shape (n,)."""
    return block.derived("computed_body_crc", _body_crcs)


def _body_crcs(block: Block) -> Ints:
    return _crcs(block, block.body_at, block.body_at + block.body_size)


def record_crcs(block: Block, without: int) -> npt.NDArray[np.int64]:
    """Return the CRC over each whole record less its last ``without`` bytes (spec 2.7), shape (n,)."""
    return _crcs(block, block.at, block.at + block.total_size - without)


def _crcs(block: Block, begin: Ints, end: Ints) -> npt.NDArray[np.int64]:
    """CRCs of pieces of a window: in place, or of copies made at once where all are of one small size."""
    size = int(end[0] - begin[0]) if len(begin) else 0
    if 0 < size < _COPIED and (end - begin == size).all():
        found = list(map(crc32, cut_out(block.data, begin, size).tolist()))
    else:  # one slice at a time: a list of many would make the garbage collector run
        data = memoryview(block.data.data)
        found = [crc32(data[a:b]) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    return np.array(found, np.int64) & MASK


# --- the crc over a whole record ---------------------------------------------------------------


_LIGHT, _FIRST_PRINTED = b"INNER_MULTI_DISPATCH\x01", 0x20
_NAME_WORD = np.frombuffer(NAME[:8], np.uint64)[0]


def property_crc_findings(block: Block) -> list[Finding]:
    """Return records that end with the property and whose CRC does not match, or is zero and right."""
    rows = _carriers(block)
    if not len(rows):
        return []
    part = block.take(rows)
    computed = record_crcs(part, SIZE)
    digits = rows_of(part.data, part.at + part.total_size - SIZE + len(NAME), DIGITS).astype(np.int64) - ord("0")
    readable = ((digits >= 0) & (digits <= 9)).all(axis=1)
    stored = digits @ (10 ** np.arange(DIGITS, dtype=np.int64))
    bad = np.flatnonzero(~readable | (stored != computed))
    findings = [_finding(LOG_PROPERTY_CRC, part, int(i), int(stored[i]), int(computed[i])) for i in bad]
    zero = np.flatnonzero(readable & (stored == 0) & (computed == 0))
    return findings + [_finding(LOG_CRC_ZERO, part, int(i), 0, 0) for i in zero]


def reserved_findings(block: Block, texts: Texts) -> list[Finding]:
    """Return records of light queues with 20 bytes that were reserved for the property and never written (#8350).

    Brokers from 5.2.0 to 5.3.0 leave there what was in the buffer.
    """
    if _LIGHT not in texts.data.tobytes():
        return []
    findings = []
    for row in range(len(block)):
        text = texts[row]
        head, tail = text[:-SIZE], text[-SIZE:]
        if len(head) and _LIGHT in head and head[-1:] == PAIR_END and not _is_text(tail):
            message = f"the properties end with {SIZE} odd bytes, reserved for a CRC that was never written (#8350)"
            at = int(block.at[row] + block.total_size[row]) + block.start - SIZE
            topic = block.topic(row).decode("utf-8", "replace")
            findings.append(
                Finding(
                    LOG_PROPERTY_CRC,
                    block.file,
                    at,
                    SIZE,
                    message,
                    Severity.WARNING,
                    physical_offset=block.physical_of(row),
                    topic=topic,
                )
            )
    return findings


def _is_text(tail: bytes) -> bool:
    """Whether bytes are a pair of a name and a value, as an encoder writes them."""
    return NAME_END in tail and not any(byte < _FIRST_PRINTED and byte not in NAME_END + PAIR_END for byte in tail)


def _carriers(block: Block) -> Ints:
    """Rows whose properties end with the CRC property."""
    rows = np.flatnonzero(block.properties_size >= SIZE)
    if not len(rows):
        return rows
    ends = block.at + block.total_size
    rows = rows[gather(block.data, (ends if len(rows) == len(ends) else ends[rows]) - SIZE, "=u8") == _NAME_WORD]
    return rows[block.data[block.at[rows] + block.total_size[rows] - SIZE + 8] == NAME[8]]


def _finding(kind: FindingKind, block: Block, row: int, stored: int, computed: int) -> Finding:
    at = int(block.at[row] + block.total_size[row]) + block.start - SIZE
    return Finding(
        kind,
        block.file,
        at,
        SIZE,
        f"the record's own CRC is stored as {stored}, computed {computed}",
        physical_offset=block.physical_of(row),
        topic=block.topic(row).decode("utf-8", "replace"),
    )


def crc_flags(block: Block) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the CRC of each body, and whether the stored one equals it; an empty body has none to compare."""
    computed = body_crcs(block)
    return computed, (block["body_crc"] == computed) | (block.body_size == 0)
