"""The rows of a store, a part of it or a single file, with the filters and the limit applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson

from rmqctl.files.tree import Tree
from rmqctl.findings import Severity
from rmqctl.rocketmq.follow import Tail
from rmqctl.rocketmq.rows.log import LogDump
from rmqctl.rocketmq.rows.one_file import Request, Source, file_source
from rmqctl.rocketmq.rows.places import store_sources
from rmqctl.rocketmq.rows.units import Row
from rmqctl.rocketmq.store import RocketMQStore

Piece = bytes | memoryview
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
    def of_store(cls, store: RocketMQStore, request: Request) -> Dump:
        """What the store's selection means: the commit log for the root."""
        return cls(store_sources(store, request), request)

    @classmethod
    def of_file(cls, tree: Tree, name: str, request: Request) -> Dump:
        """A single file outside a store.

        Raises:
            NotAStore: neither name nor content is that of a store's file.
        """
        return cls([file_source(tree, name, name, request)], request)

    def rows(self) -> Iterator[Row]:
        """JSON-ready objects in order.

        Raises:
            NotAStore: a file is none of a store's.
            OSError: a file cannot be read.
        """
        for source in self.sources:
            if isinstance(source, LogDump):
                yield from self._counted(source.rows())
                self.outcome.hidden += source.hidden
            else:
                yield from self._counted(self._filtered(source()))
            if self._left == 0:
                return

    def lines(self) -> Iterator[Piece]:
        """The same as JSON lines, in pieces of many lines; messages are not made into objects on the way.

        Raises:
            NotAStore: a file is none of a store's.
            OSError: a file cannot be read.
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
        """What is in the log (:attr:`log`) and what comes, without end; None when the next row may take a while.

        Raises:
            OSError: a file cannot be read.
        """
        assert self.log is not None
        for row in Tail(self.log).rows():
            if row is None:
                yield None
            else:
                yield from self._counted([row])
                if self._left == 0:
                    return

    def _log_lines(self, source: LogDump) -> Iterator[Piece]:
        from rmqctl.rocketmq.rows.lines import MessageLines

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
        """The rows up to the limit, counted as they go by."""
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
