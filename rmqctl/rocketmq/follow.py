"""Following a log that a broker appends to: every new record once, whole, across the files.

A broker writes into a mapped file, so a reader can meet a record of which only a part has arrived.
The last record in front of unwritten room is therefore held back until something follows it, or
until it has not changed from one look to the next and its body matches its CRC.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.rows.log import LogDump, merged
from rmqctl.rocketmq.rows.messages import MessageRows, Row

POLL_SECONDS = 0.1
_PATIENCE = 50
"""Looks after which a last record is shown although its CRC is wrong: it is damaged, not unfinished."""
_FRONT = (kinds.LOG_TORN_TAIL, kinds.LOG_STALE_TAIL)
"""What is met behind the last record of a log that grows: not damage, but what is being overwritten."""


def _sleep() -> None:
    time.sleep(POLL_SECONDS)


@dataclass(slots=True)
class _Front:
    """The last record of the log, as it looked."""

    raw: bytes = b""
    looks: int = 0

    def is_settled(self, block: Block) -> bool:
        """Whether the one record of the block is complete, to judge by this and the last look at it."""
        raw = block.data.tobytes()
        self.looks = self.looks + 1 if raw == self.raw else 0
        self.raw = raw
        properties = raw[int(block.properties_at[0]) :][: int(block.properties_size[0])]
        sound = int(body_crcs(block)[0]) == int(block["body_crc"][0]) and 0 not in properties
        return self.looks >= (1 if sound else _PATIENCE)


@dataclass(slots=True)
class Tail:
    """A pass over a log that does not end at its end.

    Args:
        dump: the log, and the filters and form of what is shown of it.
        wait: called when nothing new has come.
    """

    dump: LogDump
    wait: Callable[[], None] = _sleep
    _position: int = 0
    _state: LogState = field(default_factory=LogState)
    _front: _Front = field(default_factory=_Front)

    def rows(self) -> Iterator[Row | None]:
        """Rows of what is there and of what comes; None whenever it may take a while until the next. Never ends.

        Raises:
            OSError: a file cannot be read; one that was deleted meanwhile is passed over.
        """
        messages = MessageRows(self.dump.show)
        self._position = self.dump.wanted.from_offset or 0
        while True:
            position = self._position
            for found in self._look():
                for part in self.dump.parts_of(found):
                    yield from merged(messages.rows(part.block, part.crc_ok), part.between)
            yield None
            if self._position == position:
                self.wait()

    def _look(self) -> Iterator[LogBlock]:
        """What has come since the last look."""
        files = [file for file in self.dump.now() if file.base + file.size > self._position]
        log = CommitLog(files, lead=self.dump.log.lead)
        self.dump.log = log
        for context in log.contexts():
            try:
                yield from self._file(context)
            except FileNotFoundError:
                continue
            if self._position < context.file.base + context.file.size and not context.followed:
                return

    def _file(self, context: FileContext) -> Iterator[LogBlock]:
        """New records of one file, each block without its last record, which comes by itself."""
        base, lead = context.file.base, context.file.lead or self.dump.log.lead
        last: LogBlock | None = None
        start = max(self._position - base, 0)
        if not (context.followed or any(_read(context, start, 8))):
            return
        self._state.stale = False
        for found in walk_file(context, self._state, start=start, lead=lead):
            if not context.followed:
                found.findings = [f for f in found.findings if f.kind not in _FRONT]
            if len(found.block) or found.block.blanks or found.findings:
                if last is not None:
                    yield self._passed(last)
                rest, last = _split(found, lead)
                yield rest
                self._position = max(self._position, base + _end(found, last))
        if last is not None and (context.followed or self._is_complete(context, last)):
            yield self._passed(last)
        if context.followed:
            self._position = max(self._position, base + context.file.size)

    def _passed(self, last: LogBlock) -> LogBlock:
        block = last.block
        self._position = max(self._position, int(block.physical[0] + block.total_size[0]))
        self._front = _Front()
        return last

    def _is_complete(self, context: FileContext, last: LogBlock) -> bool:
        """Whether the last record of the log has arrived in full."""
        follows = _read(context, int(last.block.position[0] + last.block.total_size[0]), 8)
        return not follows or any(follows) or self._front.is_settled(last.block)


def _read(context: FileContext, position: int, size: int) -> bytes:
    source = context.file.open()
    try:
        return source.read_at(position, size)
    finally:
        source.close()


def _split(found: LogBlock, lead: int) -> tuple[LogBlock, LogBlock | None]:
    """A block without its last record, if that ends the block, and that record with bytes of its own."""
    block = found.block
    if not len(block) or block.blanks:
        return found, None
    at, size, position = int(block.at[-1]), int(block.total_size[-1]), int(block.position[-1])
    if any(finding.offset > position for finding in found.findings):
        return found, None
    one = block.take(np.array([len(block) - 1]))
    data = block.data[at - lead : at + size].copy()
    alone = Block(
        block.file, block.base, position - lead, data, np.array([lead]), one.variant, one.total_size,
        one.body_size, one.topic_size, one.properties_size,
    )  # fmt: skip
    rest = LogBlock(block.take(np.arange(len(block) - 1)), found.findings)
    rest.block.gaps, rest.block.blanks = block.gaps, block.blanks
    return rest, LogBlock(alone)


def _end(found: LogBlock, last: LogBlock | None) -> int:
    """The position in the file up to which a block has been handed on: in front of the record held back."""
    if last is not None:
        return int(last.block.position[0]) - int(last.block.at[0])
    block = found.block
    ends = [b.end for b in block.blanks] + [f.offset + f.size for f in found.findings]
    if len(block):
        ends.append(int(block.position[-1] + block.total_size[-1]))
    return max(ends, default=0)


__all__ = ["POLL_SECONDS", "Tail"]
