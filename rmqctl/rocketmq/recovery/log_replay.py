"""The walk of recovery over the log: record after record as a broker of one release does it (spec 6.3, 6.4, 6.7).

The scan proves the chain for whole blocks at a time; where it does not, `message_check` decides about one
record as the broker's own code would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from formats.rocketmq.message import SysFlag
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.files.source import ByteSource
from rmqctl.rocketmq.block import Block, head_sizes
from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.crc import body_crcs
from rmqctl.rocketmq.measure import Flags
from rmqctl.rocketmq.recovery.message_check import Checked, Verdict, check_at, has_numbers
from rmqctl.rocketmq.recovery.rules import RecoveryRules
from rmqctl.rocketmq.scan import Extent, scan
from rmqctl.rocketmq.store import StoreFile
from rmqctl.rocketmq.variants import HOST_SHIFT

_V2 = 4
_SCHEDULE = SCHEDULE_TOPIC.encode()
_INNER_BATCH = int(SysFlag.INNER_BATCH)


@dataclass(slots=True)
class LogWalk:
    """How far a walk has come.

    Attributes:
        index: number of the file in the list.
        position: byte of that file behind the last record.
        records: records met; last: physical offset of the last of them, -1 before the first.
        stopped: what ended the walk; None where the files ran out.
    """

    index: int
    position: int = 0
    records: int = 0
    last: int = -1
    stopped: Checked | None = None
    files: list[str] = field(default_factory=list)


def replay_log(
    files: list[StoreFile], walk: LogWalk, rules: RecoveryRules, *, body: bool = True
) -> Iterator[tuple[LogBlock, StoreFile]]:
    """Records that the broker accepts, from where ``walk`` stands to where it stops; ``walk`` is carried on.

    Blocks share one window: use each before the next is asked for.

    Args:
        files: of the log, in the order in which the broker lists them; all of one length.
        body: check body CRCs, as recovery does.

    Raises:
        OSError: a file cannot be read.
    """
    while True:
        file = files[walk.index]
        if walk.files[-1:] != [file.name]:
            walk.files.append(file.name)
        source = file.open()
        try:
            for block in _FileReplay(source, file, walk, rules, body=body).run():
                yield LogBlock(block), file
        finally:
            source.close()
        if walk.stopped is None or walk.stopped.verdict is not Verdict.END_OF_FILE:
            return
        if walk.index + 1 >= len(files):
            return
        walk.index, walk.position, walk.stopped = walk.index + 1, 0, None


class _FileReplay:
    """One file of the walk."""

    def __init__(self, source: ByteSource, file: StoreFile, walk: LogWalk, rules: RecoveryRules, *, body: bool) -> None:
        self.source, self.file, self.walk, self.rules, self.body = source, file, walk, rules, body
        self.end = file.size

    def run(self) -> Iterator[Block]:
        extent = Extent(self.file.name, self.file.base, self.walk.position, size=self.end, chained=True)
        for block in scan(self.source, extent):
            yield from self._through(block)
            if self.walk.stopped is not None:
                return
        while self.walk.stopped is None:
            yield from self._step()

    def _through(self, block: Block) -> Iterator[Block]:
        """The records of one block of the scan that continue the broker's chain."""
        position = block.position
        good = good_records(block, self.rules, body=self.body)
        while self.walk.stopped is None:
            row = int(np.searchsorted(position, self.walk.position))
            if row < len(block) and position[row] == self.walk.position and good[row]:
                yield self._note(block.take(slice(row, row + _run(block, good, row))))
            elif row < len(block) or self._is_settled(block):
                yield from self._step()
            else:
                return

    def _is_settled(self, block: Block) -> bool:
        """Whether the block says that no later block can hold a record at the walk's position."""
        at = self.walk.position
        return any(g.end > at for g in block.gaps) or any(b.position == at for b in block.blanks)

    def _note(self, block: Block) -> Block:
        self.walk.position = int(block.position[-1] + block.total_size[-1])
        self.walk.records += len(block)
        self.walk.last = int(block.physical[-1])
        return block

    def _step(self) -> Iterator[Block]:
        """One record by the literal rule."""
        at = self.walk.position
        checked = check_at(self.source, at, self.end, self.rules, body=self.body)
        if checked.verdict is Verdict.RECORD:
            yield self._note(_single(self.source.read_at(at, checked.size), self.file, at, self.rules))
        else:
            self.walk.stopped = checked


def good_records(block: Block, rules: RecoveryRules, *, body: bool) -> Flags:
    """Records that need no closer look, shape (n,): body CRC right, and of a kind that the release knows."""
    good = np.ones(len(block), np.bool_)
    if body and len(block):
        good = (body_crcs(block) == block["body_crc"]) | (block.body_size == 0)
    if not rules.known_v2:
        good &= block.variant < _V2
    if not rules.known_v6:
        good &= (block.variant & 3) == 0
    for row in np.flatnonzero((block.topic_size == len(_SCHEDULE)) | (block["sys_flag"] & _INNER_BATCH != 0)):
        good[row] &= _has_numbers(block, int(row), rules)
    return good


def _has_numbers(block: Block, row: int, rules: RecoveryRules) -> bool:
    at, topic = int(block.properties_at[row]), block.topic(row)
    text = block.data[at : at + int(block.properties_size[row])].tobytes()
    return has_numbers(text, topic, rules)


def _run(block: Block, good: Flags, row: int) -> int:
    """How many records from ``row`` on follow each other without a hole and are good."""
    at, size = block.at[row:], block.total_size[row:]
    broken = np.flatnonzero((at[1:] != at[:-1] + size[:-1]) | ~good[row + 1 :])
    return int(broken[0]) + 1 if len(broken) else len(at)


def _single(record: bytes, file: StoreFile, position: int, rules: RecoveryRules) -> Block:
    """A block of one record that the scan refuses and brokers accept: lengths below zero count as none.

    To a release that knows no IPv6 the host bits of SYSFLAG mean nothing.
    """
    v2, hosts = record[7] == 0xAB, int.from_bytes(record[36:40], "big") >> HOST_SHIFT & 3
    hosts = hosts if rules.known_v6 else 0
    variant, text = hosts | (_V2 if v2 else 0), 2 if v2 else 1
    head = int(head_sizes()[variant])
    body = max(int.from_bytes(record[head - 4 : head], "big", signed=True), 0)
    topic = int.from_bytes(record[head + body : head + body + text], "big")
    properties = len(record) - head - body - text - topic - 2
    none = np.zeros(1, np.int64)
    data = np.frombuffer(record, np.uint8)
    sizes = (none + len(record), none + body, none + topic, none + properties)
    return Block(file.name, file.base, position, data, none, none + variant, *sizes)
