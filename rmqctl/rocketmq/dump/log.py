"""A commit log as rows in log order: messages, blanks, and damage in its place (CLI contract, ``dump``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqctl.columns import Flags
from rmqctl.findings import Finding, Severity
from rmqctl.rocketmq.dump.messages import MessageRows
from rmqctl.rocketmq.dump.record import Row, RowOptions
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.rocketmq.log.block import Blank, Block
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, LogBlock, LogState, resume_state, walk_file
from rmqctl.rocketmq.log.crc import crc_flags
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import StoreFile
from rmqctl.rocketmq.verify.log import body_crc_finding


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks of a dump.

    Attributes:
        limit: rows to show at most; findings count only where nothing but damage is wanted.
        settings: broker.conf, for what files do not say.
    """

    wanted: Filter = field(default_factory=Filter)
    show: RowOptions = field(default_factory=RowOptions)
    limit: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


CHUNK = 4096
"""Records turned into rows at a time, so that what is made of them stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class ShownRecords:
    """Records of a block that are to be shown, and what stands between them.

    Attributes:
        crc_ok: whether the body of each record matches its CRC, shape (n,).
        between: ``(place, row)``: the row stands in front of record number ``place``; ascending.
    """

    block: Block
    crc_ok: Flags
    between: list[tuple[int, Row]]


@dataclass(slots=True)
class LogDump:
    """One pass over a commit log.

    Attributes:
        limit: how many rows are wanted, so that not many more are made.
        under: only files of this name, or in this directory.
        hidden: errors and warnings that the filters left out so far.
        list_files: lists the files of a log that grows.
        advance: called with the number of bytes that have been passed since its last call.
    """

    log: CommitLog
    wanted: Filter = field(default_factory=Filter)
    show: RowOptions = field(default_factory=RowOptions)
    limit: int | None = None
    under: str = ""
    hidden: int = 0
    list_files: Callable[[], list[StoreFile]] | None = None
    advance: Callable[[int], None] | None = None

    @property
    def total(self) -> int:
        """Bytes of the log that are looked at."""
        files = [file for file in self.log.files if is_under(file.name, self.under)]
        return sum(max(stop - start, 0) for start, stop in map(self._range, files))

    def now(self) -> list[StoreFile]:
        """Return the files of the log that are wanted, as they are now, ascending."""
        files = self.log.files if self.list_files is None else self.list_files()
        return [file for file in files if is_under(file.name, self.under)]

    def rows(self) -> Iterator[Row]:
        """JSON-ready objects in log order."""
        messages = MessageRows(self.show)
        for part in self.parts():
            yield from merged(messages.rows(part.block, part.crc_ok), part.between)

    def parts(self) -> Iterator[ShownRecords]:
        """Yield what is to be shown, some thousand records at a time."""
        for found in self._walk():
            yield from self.parts_of(found)

    def _walk(self) -> Iterator[LogBlock]:
        """Blocks of the files and parts of files that hold the wanted offsets."""
        state = LogState()
        for at, context in enumerate(self.log.contexts()):
            start, stop = self._range(context.file)
            if start >= stop or not is_under(context.file.name, self.under):
                continue
            if start == 0 and (gap := self.log.gap_before(at)):
                yield LogBlock(Block.empty(context.file.name, context.file.base, 0, []), [gap])
            if start:
                state = resume_state(context, start, self.log.lead)
            try:
                yield from self._file(context, state, start, stop)
            except OSError as error:
                if len(self.log.files) == 1:
                    raise
                yield LogBlock(Block.empty(context.file.name, context.file.base, 0, []), [_unreadable(context, error)])

    def _file(self, context: FileContext, state: LogState, start: int, stop: int) -> Iterator[LogBlock]:
        end, done = stop if stop < context.file.size else None, start
        for found in walk_file(context, state, start=start, stop=end, lead=self.log.lead):
            passed = min(found.block.start + len(found.block.data), stop)
            self._advance(max(passed - done, 0))
            done = max(passed, done)
            yield found
        self._advance(stop - done)

    def _advance(self, size: int) -> None:
        if self.advance is not None:
            self.advance(size)

    def _range(self, file: StoreFile) -> tuple[int, int]:
        """First and last position of a file that are wanted."""
        low, high = self.wanted.from_offset, self.wanted.to_offset
        start = 0 if low is None else max(low - file.base, 0)
        size = file.size if file.size >= 0 else 1  # one whose size nobody knows is at least tried
        stop = size if high is None else min(high - file.base, size)
        return start, stop

    def parts_of(self, found: LogBlock) -> Iterator[ShownRecords]:
        """Yield the chosen records of a block, with what stands between them."""
        chosen = self.wanted.select(found.block)
        block = found.block if chosen is None else found.block.take(chosen)
        between = [*self.between(found.block), *self._findings(found.findings)]
        between.sort(key=lambda b: b[0])
        chunk = CHUNK if self.limit is None else max(min(CHUNK, self.limit), 1)
        for start in range(0, max(len(block), 1), chunk):
            piece = block.take(slice(start, start + chunk)) if len(block) > chunk else block
            is_more = start + chunk < len(block)
            end = int(block.position[start + chunk]) if is_more else None
            here = [b for b in between if end is None or b[0] < end]
            between = between[len(here) :]
            part = self._part(piece, here)
            if len(part.block) or part.between:
                yield part

    def _part(self, block: Block, between: list[tuple[int, Row]]) -> ShownRecords:
        """Return a part, its bodies checked; ``between`` carries positions in the file."""
        computed, ok = crc_flags(block)
        bad = np.flatnonzero(~ok)
        for row in bad.tolist():
            found = body_crc_finding(block, row, int(block["body_crc"][row]), int(computed[row]))
            between.append((found.offset, found.row()))
        if self.wanted.damaged:
            block, ok = block.take(bad), ok[bad]
        between.sort(key=lambda b: b[0])
        places = np.searchsorted(block.position, [b[0] for b in between], side="right").tolist()
        return ShownRecords(block, ok, [(place, row) for place, (_, row) in zip(places, between, strict=True)])

    def between(self, block: Block) -> Iterator[tuple[int, Row]]:
        """Rows of what is no message, each with its position in the file: here the blanks."""
        if self.wanted.damaged or self.wanted.looks_at_content:
            return
        for blank in block.blanks:
            if self.wanted.includes_offset(block.base + blank.position):
                yield blank.position, blank_row(block, blank)

    def _findings(self, findings: list[Finding]) -> Iterator[tuple[int, Row]]:
        for finding in findings:
            if self.wanted.includes_damage(finding.topic, finding.queue_id):
                yield finding.offset, finding.row()
            elif finding.level is not Severity.NOTE:
                self.hidden += 1


def _unreadable(context: FileContext, error: OSError) -> Finding:
    message = f"cannot be read: {error.strerror or error}"
    return Finding(FILE_UNREADABLE, context.file.name, 0, 0, message)


def is_under(name: str, path: str) -> bool:
    """Whether a name is a path or lies below it; everything lies below ""."""
    return not path or name == path or name.startswith(f"{path}/")


def blank_row(block: Block, blank: Blank) -> Row:
    """Return the record that ends a full file."""
    return {
        "kind": "blank",
        "file": block.file,
        "position": blank.position,
        "physical_offset": block.base + blank.position,
        "size": blank.size,
    }


def merged(rows: list[Row], between: list[tuple[int, Row]]) -> Iterator[Row]:
    """Yield the rows of records with what stands between them."""
    at = 0
    for place, row in between:
        yield from rows[at:place]
        yield row
        at = place
    yield from rows[at:]
