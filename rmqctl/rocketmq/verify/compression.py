"""Whether bodies are what the compression bits of SYSFLAG say (spec 2.3, 2.10).

A body is inflated piece by piece, and no further than the largest body that a broker of the store accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from formats.rocketmq.message import BODY_MAGIC, CODEC, SysFlag, codec_of
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.findings.log import LOG_COMPRESSION
from rmqctl.rocketmq.log.block import Block, gather
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.log.record import why_not_inflated
from rmqctl.text import number_of

_COMPRESSED = int(SysFlag.COMPRESSED)
_ZLIB, _ZLIB_LEAST, _ZLIB_CHECK = 0x78, 8, 31
_UNFLAGGED_MOST = 64


def compression_findings(block: Block, limit: int) -> list[Finding]:
    """Compressed bodies that are not what their flag says, and bodies of a named codec without the flag.

    Args:
        limit: bytes after which a body that goes on is believed.
    """
    flags = block["sys_flag"]
    findings = []
    for row in np.flatnonzero((flags & (_COMPRESSED | CODEC)) != 0).tolist():
        flag = int(flags[row])
        why = _why_wrong(block, row, flag, limit) if flag & _COMPRESSED else _why_unflagged(block, row, flag, limit)
        if why:
            severity = None
            if flag & _COMPRESSED and _is_checked_half(block, row):
                severity, why = Severity.NOTE, f"{why}: old brokers store it so when they check the transaction"
            findings.append(_finding(block, row, f"sys_flag 0x{flag:X} says {why}", severity))
    return findings


@dataclass(slots=True)
class Unflagged:
    """Whole zlib streams in records that name no compression, of one topic.

    Attributes:
        count: how many; first: findings of the first 64.
    """

    count: int = 0
    first: list[Finding] = field(default_factory=list)

    def add(self, other: Unflagged) -> None:
        """Add those of the next block or split."""
        self.count += other.count
        self.first = (self.first + other.first)[:_UNFLAGGED_MOST]

    def findings(self, *, is_usual: bool) -> Iterator[Finding]:
        """Each as a warning where the producers of the topic set the flag; else one note: they compress by themselves.

        Args:
            is_usual: other records of the topic are compressed and say so.
        """
        if is_usual:
            yield from (replace(found, severity=Severity.WARNING) for found in self.first)
        elif self.count:
            message = f"{self.first[0].message} ({number_of(self.count, 'such message')} in this topic)"
            yield replace(self.first[0], message=message, severity=Severity.NOTE)


def unflagged_bodies(block: Block, limit: int) -> dict[str, Unflagged]:
    """Whole zlib streams in records that name no compression, by topic: a lost flag, or the producer's own work."""
    found: dict[str, Unflagged] = {}
    starts = gather(block.data, block.body_at, ">u2")  # every record has two bytes after its body's length
    rows = np.flatnonzero(starts >> 8 == _ZLIB)
    rows = rows[starts[rows] % _ZLIB_CHECK == 0]
    rows = rows[(block["sys_flag"][rows] & (_COMPRESSED | CODEC) == 0) & (block.body_size[rows] >= _ZLIB_LEAST)]
    for row in rows.tolist():
        if not why_not_inflated(_body(block, row), _COMPRESSED, limit):
            message = "the body is a whole zlib stream, but sys_flag does not say so"
            one = _finding(block, row, message)
            found.setdefault(one.topic or "", Unflagged()).add(Unflagged(1, [one]))
    return found


def compressing_topics(block: Block) -> set[str]:
    """Topics of records whose flag says zlib without a type, as clients before 4.9.4 set it."""
    rows = np.flatnonzero((block["sys_flag"] & (_COMPRESSED | CODEC)) == _COMPRESSED)
    return {block.topic(row).decode("utf-8", "replace") for row in rows.tolist()}


def _why_wrong(block: Block, row: int, flag: int, limit: int) -> str:
    """Why a body that should be compressed is not; "" where it is, or the body itself is damaged."""
    codec, body = codec_of(flag), _body(block, row)
    magic = BODY_MAGIC.get(codec)
    if magic is None:
        return f"compressed, but compression type {codec} is unknown"
    if not body.startswith(magic):
        return f"compressed, but the body starts {body[:4].hex(' ')}"
    why = why_not_inflated(body, flag, limit)
    return f"compressed, but the body {why}" if why and _is_intact(block, row) else ""


def _why_unflagged(block: Block, row: int, flag: int, limit: int) -> str:
    codec, body = codec_of(flag), _body(block, row)
    magic = BODY_MAGIC.get(codec)
    if magic is None or not body.startswith(magic) or why_not_inflated(body, flag | _COMPRESSED, limit):
        return ""
    return f"compression type {codec} and not compressed, but the body is a whole stream of that type"


def _is_intact(block: Block, row: int) -> bool:
    """Whether the body is as it was written; one that is not has been named already."""
    part = block.take(np.array([row]))
    return bool(body_crcs(part)[0] == part["body_crc"][0])


def _is_checked_half(block: Block, row: int) -> bool:
    """Whether the record is a half message that the broker put once more to check its transaction.

    Old releases (seen in 4.4.0, no more in 4.7.1) put it with the body decompressed and the flags as they were.
    """
    at, size = int(block.properties_at[row]), int(block.properties_size[row])
    checked = b"TRANSACTION_CHECK_TIMES\x01" in block.data[at : at + size].tobytes()
    return checked and block.topic(row) == b"RMQ_SYS_TRANS_HALF_TOPIC"


def _body(block: Block, row: int) -> bytes:
    at = block.body_of(row)
    return block.data[at : at + int(block.body_size[row])].tobytes()


def _finding(block: Block, row: int, message: str, severity: Severity | None = None) -> Finding:
    at, size = block.body_of(row) + block.start, int(block.body_size[row])
    topic = block.topic(row).decode("utf-8", "replace")
    physical = block.physical_of(row)
    return Finding(LOG_COMPRESSION, block.file, at, size, message, severity, physical_offset=physical, topic=topic)


__all__ = ["Unflagged", "compressing_topics", "compression_findings", "unflagged_bodies"]
