"""What a verb of a store answers: rows, how a terminal shows them, and what is said beside them.

An answer is lazy: its rows are made while they are read, once. What an answer says beside them
(:attr:`Answer.remarks`, :attr:`Answer.is_no`, documents and summaries) is complete after the last row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.repair.edits import Plan

Row = Mapping[str, Any]
"""JSON-ready: keys of the contract, bytes allowed where text stands."""

Advance = Callable[[int], object]
"""Called with the bytes done since its last call."""

EVERY_KIND = frozenset({"table", "json", "jsonl", "csv"})


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table shows rows of several kinds.

    Attributes:
        columns: columns by ``kind``; the first row of a known kind decides. A kind that is not named has all keys.
        remark: the text of the column ``remark``: what is unusual about a row.
        as_text: kinds whose rows are nested, and are shown as text.
    """

    columns: Mapping[str, Sequence[str]]
    remark: Callable[[Row], str | None] = lambda row: None
    as_text: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of what a terminal shows: lines of text, then rows as a table.

    Attributes:
        lines: text as it is.
        folds: the lines are sentences, broken where the terminal ends.
        rows: None for no table.
        columns: that fit a terminal, in order; None: all.
        layout: instead of ``columns``, for rows of several kinds.
        title: a line above the table.
        is_optional: no table, not even its header, where there are no rows.
    """

    lines: Iterable[str] = ()
    rows: Iterable[Row | None] | None = None
    columns: Sequence[str] | None = None
    layout: Layout | None = None
    title: str = ""
    is_optional: bool = False
    folds: bool = False


@dataclass
class Answer:
    """The answer of one verb. Iterate it for its rows.

    Attributes:
        rows: in order; None says that the next row may take a while.
        columns: those that fit a terminal; None: all.
        sections: what a terminal shows where that is more than one table of ``rows``.
        document: the one object that stands for the rows in the kinds of output in ``document_kinds``.
        summary: the row that ends JSON lines.
        lines: the rows as JSON lines in large pieces, where that is faster.
        formatter: compiles a user's own format string (``%t %k %s``); raises ValueError for a bad one.
        remarks: sentences for people, beside the rows; those that come up while rows are read are added then.
        is_no: the answer is "no": damage found, nothing matched, the two differ.
        error: what could not be done after all; whoever shows the answer raises it last.
        work, total: what reading the rows does and how many bytes of log it passes; None: not worth a bar.
        on_advance: whoever shows a bar puts it in.
    """

    rows: Iterable[Row | None] = ()
    columns: Sequence[str] | None = None
    sections: Callable[[], Iterable[Section]] | None = None
    document: Callable[[], Mapping[str, Any]] | None = None
    document_kinds: frozenset[str] = frozenset({"json"})
    summary: Callable[[], Row] | None = None
    lines: Callable[[], Iterable[bytes | memoryview]] | None = None
    formatter: Callable[[str], Callable[[Row], bytes]] | None = None
    remarks: list[str] = field(default_factory=list)
    is_no: bool = False
    error: RmqctlError | None = None
    work: str = ""
    total: int | None = None
    on_advance: Advance = lambda _: None

    def __iter__(self) -> Iterator[Row]:
        return (row for row in self.rows if row is not None)

    def advance(self, done: int) -> None:
        """Report bytes of log that have been passed since the last call."""
        self.on_advance(done)

    def remark(self, sentence: str) -> None:
        """Add a sentence for people."""
        self.remarks.append(sentence)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Annotated bytes of one file, in order."""

    file: str
    file_size: int
    notes: Iterable[Annotation]


@dataclass
class HexAnswer(Answer):
    """Annotated bytes.

    Attributes:
        stretches: piece by piece, each file's pieces together; what is wrong in them makes the answer a "no".
    """

    stretches: Iterable[Stretch] = ()


@dataclass
class Proposal(Answer):
    """An answer with a plan that would change the store; use it as a context manager, since files may be staged.

    Attributes:
        plan: what :func:`rmqctl.repair.apply` carries out; None where nothing is to be carried out.
        check: looks at the changed store and says what is still wrong, a sentence each.
        lock: the store's lock file, relative to its root.
        close: removes what was staged.
    """

    plan: Plan | None = None
    check: Callable[[], Sequence[str]] | None = None
    lock: str = "lock"
    close: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
