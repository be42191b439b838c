"""The rows of a store, a part of it or a single file, with the filters and the limit applied.

A log that a broker appends to can be followed: every new record once, whole, across the files. A broker writes into a
mapped file, so a reader can meet a record of which only a part has arrived. The last record in front of unwritten
room is therefore held back until something follows it, or until it has not changed from one look to the next and its
body matches its CRC.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import orjson

from rmqctl.files.tree import Tree
from rmqctl.findings import Severity
from rmqctl.rocketmq.dump.log import LogDump, Request, merged
from rmqctl.rocketmq.dump.messages import MessageRows
from rmqctl.rocketmq.dump.record import Row
from rmqctl.rocketmq.dump.sources import Source, file_source, store_sources
from rmqctl.rocketmq.findings.log import LOG_STALE_TAIL, LOG_TORN_TAIL
from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, walk_file
from rmqctl.rocketmq.log.crc import body_crcs
from rmqctl.rocketmq.store.files import StoreFiles

POLL_SECONDS = 0.1
PATIENCE = 50
"""Looks after which a last record is shown although its CRC is wrong: it is damaged, not unfinished."""
_FRONT = (LOG_TORN_TAIL, LOG_STALE_TAIL)
"""What is met after the last record of a log that grows: not damage, but what is being overwritten."""


def _sleep() -> None:
    time.sleep(POLL_SECONDS)


@dataclass(slots=True)
class _Front:
    """The last record of the log, as it looked."""

    patience: int
    raw: bytes = b""
    looks: int = 0

    def is_settled(self, block: Block) -> bool:
        """Whether the one record of the block is complete, to judge by this and the last look at it."""
        raw = block.data.tobytes()
        self.looks = self.looks + 1 if raw == self.raw else 0
        self.raw = raw
        properties = raw[int(block.properties_at[0]) :][: int(block.properties_size[0])]
        sound = int(body_crcs(block)[0]) == int(block["body_crc"][0]) and 0 not in properties
        return self.looks >= (1 if sound else self.patience)


@dataclass(slots=True)
class Tail:
    """A pass over a log that does not end at its end.

    Args:
        dump: the log, and the filters and form of what is shown of it.
        wait: called when nothing new has come.
        patience: looks after which a last record is shown although its CRC is wrong.
    """

    dump: LogDump
    wait: Callable[[], None] = _sleep
    patience: int = PATIENCE
    _position: int = 0
    _state: LogState = field(default_factory=LogState)
    _front: _Front = field(init=False)

    def __post_init__(self) -> None:
        self._front = _Front(self.patience)

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
        """Yield what has come since the last look."""
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
        """Yield new records of one file, each block without its last record, which comes by itself."""
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
        self._front = _Front(self.patience)
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
    """Return a block without its last record, if that ends the block, and that record with bytes of its own."""
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
    """Return the position in the file up to which a block has been handed on: in front of the record held back."""
    if last is not None:
        return int(last.block.position[0]) - int(last.block.at[0])
    block = found.block
    ends = [b.end for b in block.blanks] + [f.offset + f.size for f in found.findings]
    if len(block):
        ends.append(int(block.position[-1] + block.total_size[-1]))
    return max(ends, default=0)


# --- the rows of a store ----------------------------------------------------------------------------


LineBytes = bytes | memoryview
_MANY = 5000


@dataclass(slots=True)
class Outcome:
    """What a dump came across; complete when its rows have been read to the end.

    Attributes:
        rows: rows shown, findings not counted.
        damage: errors and warnings shown.
        hidden: errors and warnings that the filters left out.
    """

    rows: int = 0
    damage: int = 0
    hidden: int = 0


class Dump:
    """One pass over sources of rows."""

    def __init__(self, sources: Iterable[Source], request: Request) -> None:
        self.sources, self.request = list(sources), request
        self.outcome = Outcome()
        self._left = request.limit

    @classmethod
    def of_store(cls, store: StoreFiles, request: Request) -> Dump:
        """Return what the store's selection means: the commit log for the root."""
        return cls(store_sources(store, request), request)

    @classmethod
    def of_file(cls, tree: Tree, name: str, request: Request) -> Dump:
        """Return a single file outside a store.

        Raises:
            NotAStore: neither name nor content is that of a store's file.
        """
        return cls([file_source(tree, name, name, request)], request)

    def rows(self) -> Iterator[Row]:
        """JSON-ready objects in order.

        Raises:
            NotAStore: a file is none of a store's.
        """
        for source in self.sources:
            if isinstance(source, LogDump):
                yield from self._counted(source.rows())
                self.outcome.hidden += source.hidden
            else:
                yield from self._counted(self._filtered(source()))
            if self._left == 0:
                return

    def lines(self) -> Iterator[LineBytes]:
        """Yield the same as JSON lines, in pieces of many lines; messages are not made into objects on the way.

        Raises:
            NotAStore: a file is none of a store's.
        """
        if not self.request.show.is_plain or (self.request.limit or _MANY) < _MANY:
            yield from map(_line, self.rows())
            return
        for source in self.sources:
            if isinstance(source, LogDump):
                yield from self._log_lines(source)
            else:
                yield from map(_line, self._counted(self._filtered(source())))
            if self._left == 0:
                return

    @property
    def total(self) -> int:
        """Bytes of the logs that are looked at."""
        return sum(source.total for source in self.sources if isinstance(source, LogDump))

    def report(self, advance: Callable[[int], None]) -> None:
        """Have ``advance`` called with the bytes of the logs that have been passed, out of :attr:`total`."""
        for source in self.sources:
            if isinstance(source, LogDump):
                source.advance = advance

    @property
    def log(self) -> LogDump | None:
        """The one log that is shown; None when it is something else."""
        logs = [source for source in self.sources if isinstance(source, LogDump)]
        return logs[0] if len(logs) == len(self.sources) == 1 else None

    def follow(self) -> Iterator[Row | None]:
        """Yield what is in the log (:attr:`log`) and what comes, without end; None where that may take a while."""
        assert self.log is not None
        for row in Tail(self.log).rows():
            if row is None:
                yield None
            else:
                yield from self._counted([row])
                if self._left == 0:
                    return

    def _log_lines(self, source: LogDump) -> Iterator[LineBytes]:
        from rmqctl.rocketmq.dump.lines import MessageLines

        messages = MessageLines(self.request.show)
        for part in source.parts():
            if self._left is not None and self._left <= len(part.block) + len(part.between):
                yield from map(_line, self._counted(messages.objects(part)))
            else:
                self._note_messages(len(part.block))
                for _, row in part.between:
                    self._note(row)
                yield from messages.pieces(part)
            if self._left == 0:
                break
        self.outcome.hidden += source.hidden

    def _filtered(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            if self.request.wanted.includes_row(row):
                yield row
            elif row["kind"] == "finding" and row["severity"] != Severity.NOTE:
                self.outcome.hidden += 1

    def _counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows up to the limit, counted as they go by."""
        if self._left == 0:
            return
        for row in rows:
            self._note(row)
            yield row
            if self._left == 0:
                return

    def _note(self, row: Row) -> None:
        """Count a row that is shown."""
        finding = row["kind"] == "finding"
        if not finding:
            self.outcome.rows += 1
        elif row["severity"] != Severity.NOTE:
            self.outcome.damage += 1
        if self._left is not None and (self.request.wanted.damaged or not finding):
            self._left -= 1

    def _note_messages(self, count: int) -> None:
        self.outcome.rows += count
        if self._left is not None:
            self._left -= count


def _line(row: Row) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
