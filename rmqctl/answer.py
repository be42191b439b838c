"""What a verb of a store answers: rows, how a terminal shows them, and what is said beside them.

An answer is lazy: its rows are made while they are read, once. What an answer says beside them
(:attr:`Answer.remarks`, :attr:`Answer.is_no`, documents and summaries) is complete after the last row.
An answer that writes, or that must be complete before its first row, does its work in :meth:`Answer.prepare`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.notices import about_one, queue_of
from rmqctl.text import listed, listed_names, number_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqctl.files.local import ByteSource
    from rmqctl.findings import Finding
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.notices import Notice
    from rmqctl.repair import Applied, Plan
    from rmqctl.repair.books import Books
    from rmqctl.repair.edits import Step
    from rmqctl.repair.planning import Repair

T = TypeVar("T")

Row = Mapping[str, Any]
"""JSON-ready: keys of the contract, bytes allowed where text stands."""

Advance = Callable[[int], object]
"""Called with the bytes done since its last call."""

EVERY_KIND = frozenset({"table", "json", "jsonl", "csv"})


@dataclass(frozen=True, slots=True)
class TableLayout:
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
    """A part of what a terminal shows: notices, then lines of text, then rows as a table.

    Attributes:
        notices: things to be understood.
        lines: text as it is.
        folds: the lines are sentences, broken where the terminal ends.
        rows: None for no table.
        columns: that fit a terminal, in order; None: all.
        layout: instead of ``columns``, for rows of several kinds.
        title: a line above the table.
        is_optional: no table, not even its header, where there are no rows.
        is_fixed: the table stays as it is, whatever columns, order and number of rows are asked for.
        is_part: the table is one of several that have columns of their own; its rows can be read again.
    """

    lines: Iterable[str] = ()
    rows: Iterable[Row | None] | None = None
    columns: Sequence[str] | None = None
    layout: TableLayout | None = None
    title: str = ""
    is_optional: bool = False
    is_fixed: bool = False
    is_part: bool = False
    folds: bool = False
    notices: Iterable[Notice] = ()


@dataclass(repr=False)
class Answer:
    """The answer of one verb. Iterate it for its rows.

    Attributes:
        rows: in order; None says that the next row may take a while.
        columns: those that fit a terminal; None: all.
        header: every key that a row may have, in order, which is what a CSV begins with; None: the keys of its rows.
        late_header: the same where it is known only once the first rows are read: those of several stores.
        sections: what a terminal shows where that is more than one table of ``rows``.
        document: the one object that stands for the rows in the kinds of output in ``document_kinds``.
        document_header: every key that the object may have, in order; None: those that it has.
        summary: the row that ends JSON lines.
        lines: the rows as JSON lines in large pieces, where that is faster.
        formatter: compiles a user's own format string (``%t %k %s``); raises ValueError for a bad one.
        remarks: sentences for people, beside the rows; those that come up while rows are read are added then.
        is_no: the answer is "no": damage found, nothing matched, the two differ.
        error: what could not be done after all; whoever shows the answer raises it last.
        work, total: what reading the rows does and how many bytes of log it passes; None: not worth a bar.
        unit: what ``total`` counts, a plural; ``stages`` where only the part is known that the work is in.
        on_advance, on_stage: whoever shows a bar puts them in.
        make: does the work once and fills in the rest; None: the rows do it.
        every: on a terminal, too, all that is alike, and all that does not change, is wanted.
    """

    rows: Iterable[Row | None] = ()
    columns: Sequence[str] | None = None
    header: Sequence[str] | None = None
    late_header: Callable[[], Sequence[str]] | None = None
    sections: Callable[[], Iterable[Section]] | None = None
    document: Callable[[], Mapping[str, Any]] | None = None
    document_kinds: frozenset[str] = frozenset({"json"})
    document_header: Sequence[str] | None = None
    summary: Callable[[], Row] | None = None
    lines: Callable[[], Iterable[bytes | memoryview]] | None = None
    formatter: Callable[[str], Callable[[Row], bytes]] | None = None
    remarks: list[str] = field(default_factory=list)
    is_no: bool = False
    error: RmqctlError | None = None
    work: str = ""
    total: int | None = None
    unit: str = "bytes"
    on_advance: Advance = lambda _: None
    on_stage: Callable[[str], object] = lambda _: None
    make: Callable[[], object] | None = None
    every: bool = False

    def __iter__(self) -> Iterator[Row]:
        self.prepare()
        return (row for row in self.rows if row is not None)

    def prepare(self) -> None:
        """Do what takes long before the first row, if there is any such work; later calls do nothing."""
        make, self.make = self.make, None
        if make is not None:
            make()

    def __repr__(self) -> str:
        about = f"{type(self).__name__}: {self.work}" if self.work else type(self).__name__
        state = "its work begins when it is iterated" if self.make is not None else "iterate it for its rows"
        columns = self.header or self.columns
        return f"<{about}{f', columns {listed_names(columns)}' if columns else ''}; {state}>"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook; of an answer whose work has not begun only what it is."""
        from rmqctl.notebook import HEAD, html_of

        if self.make is not None:
            return html_of([], (), repr(self), more=False)
        rows = (row for row in self.rows if row is not None)
        head = list(islice(rows, HEAD + 1))
        self.rows = chain(head, rows)
        return html_of(head[:HEAD], self.columns, type(self).__name__, more=len(head) > HEAD)

    def to_arrow(self) -> pa.Table:
        """Return all rows as a table of pyarrow: times as timestamps; they are kept, so that they can be read again."""
        from rmqctl.notebook import arrow_of

        kept = list(self)
        self.rows = kept
        return arrow_of(kept, self.header)

    def to_pandas(self) -> Any:
        """Return all rows as a DataFrame; they are kept, so that they can be read again."""
        return self.to_arrow().to_pandas()

    def advance(self, done: int) -> None:
        """Report bytes of log that have been passed since the last call."""
        self.on_advance(done)

    def stage(self, name: str) -> None:
        """Report which part of the work begins."""
        self.on_stage(name)

    def remark(self, sentence: str) -> None:
        """Add a sentence for people."""
        self.remarks.append(sentence)

    def remark_writers(self, *stores: Any) -> None:
        """Say of each store that a broker writes that what is read of it may be changing."""
        for store in stores:
            if store.is_running:
                self.remark(f"a broker holds the lock of {store.root}: what is read may be changing")


@dataclass(frozen=True, slots=True)
class AnnotatedStretch:
    """Annotated bytes of one file, in order."""

    file: str
    file_size: int
    notes: Iterable[Annotation]


def within_one_file(files: Iterable[T]) -> T:
    """Return the one file of which a range of bytes is asked for.

    Raises:
        WrongUsage: the path names none, or several.
    """
    found = list(islice(files, 2))
    if len(found) == 1:
        return found[0]
    raise WrongUsage("--bytes", "are those of one file; give the path of the file.")


@dataclass(repr=False)
class HexAnswer(Answer):
    """Annotated bytes.

    Attributes:
        stretches: piece by piece, each file's pieces together; what is wrong in them makes the answer a "no".
    """

    stretches: Iterable[AnnotatedStretch] = ()


# --- answers with a plan --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to become of a plan.

    Attributes:
        is_real: it is to be carried out, not only shown.
        journal: directory for journals; None: the usual place beside the store.
        outside: directories outside the store that may be changed, too.
        force: go on although too little room on the disk seems to be free, or files have further names (hard links).
    """

    is_real: bool = False
    journal: Path | None = None
    outside: tuple[Path, ...] = ()
    force: bool = False


DRY_RUN = Intent()


@contextmanager
def staging(root: str, intent: Intent) -> Iterator[Path]:
    """Give a directory to build files in, removed afterwards: on the disk of the journal where a store is to be
    changed.
    """
    place: Path | None = None
    if intent.is_real:
        wanted = Path(os.path.realpath(intent.journal or Path(os.path.realpath(root)).parent))
        place = next(p for p in (wanted, *wanted.parents) if p.is_dir())
        place = place if os.access(place, os.R_OK | os.W_OK) else None
    from rmqctl.repair.journal_directory import STAGED, staged

    if place is None:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix=STAGED) as directory:
            yield Path(directory)
        return
    from rmqctl.files.new_files import sync_path

    with staged(place) as made:
        yield made
    sync_path(place)  # so that it does not come back after a power cut


Annotate = Callable[["ByteSource", str, int, int], Iterable["Annotation"]]
"""Gives the meaning of the bytes of a file: its content, its name in the store, the first byte and the one after the
last."""


@dataclass(repr=False)
class Proposal(Answer):
    """An answer with a plan that would change the store; use it as a context manager, since files may be staged.

    Attributes:
        plan: what :meth:`apply` carries out; None where nothing is to be carried out.
        shown: the plan as people see it instead of ``rows``, with the steps that are left; None: show the rows.
        preface: lines before the annotated bytes of ``-o hex``.
        closing: lines after a table or annotated bytes. A plan without steps is not shown where there are some.
        hints: sentences for people that belong after what is shown: what else could be done.
        annotate: gives the meaning of the bytes that are changed.
        refusal: why the plan may be shown but not carried out.
        check: looks at the changed store and says what is still wrong, a sentence each.
        is_no_after: the answer is still "no" once the plan is carried out without complaints.
        intent: what is to become of it.
        lock: the store's lock file, relative to its root.
        outside: directories outside the store that were named when it was opened.
        close: removes what was staged.
        books: what the plan does to whole records; None where nobody asked.
    """

    plan: Plan | None = None
    shown: Plan | None = None
    preface: Sequence[str] = ()
    closing: Sequence[str] = ()
    hints: list[str] = field(default_factory=list)
    annotate: Annotate | None = None
    refusal: RmqctlError | None = None
    check: Callable[[], Sequence[str]] | None = None
    is_no_after: bool = False
    intent: Intent = DRY_RUN
    lock: str = "lock"
    outside: Sequence[str] = ()
    close: Callable[[], object] = lambda: None
    books: Books | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def hold_to(self, books: Books) -> None:
        """Show the books of the plan, and refuse to carry it out where they do not balance."""
        self.books = books
        if self.summary is None:
            self.summary = lambda: {"kind": "summary", "loses": books.loses, "books": books.document()}
        self.closing = [*self.closing, books.sentence()]
        self.refusal = self.refusal or books.refusal()
        self.is_no = self.is_no or not books.balances

    def apply(self, advance: Callable[[int], None] = lambda size: None) -> Applied:
        """Carry the plan out by the journal, in the way of :attr:`intent`, and check the store afterwards.

        Args:
            advance: called with the bytes written since its last call.

        Raises:
            Refused, StoreInUse, IOFailure: see `rmqctl.repair.apply`.
            ValueError: there is no plan.
        """
        from rmqctl.repair import apply

        self.prepare()
        if self.plan is None:
            raise ValueError("there is no plan to carry out")
        if self.refusal is not None:
            raise self.refusal
        return apply(
            self.plan,
            journal_dir=self.intent.journal,
            force=self.intent.force,
            outside=(*self.outside, *self.intent.outside),
            verify=self.check,
            lock=self.lock,
            books=self.books,
            advance=advance,
        )


# --- the repair of a store as a proposal --------------------------------------------------------------


def show_repair(answer: Proposal, found: Repair, loses: str) -> None:
    """Fill a proposal with a repair: its plan, its rows, its document, its sentence and its exit status.

    Args:
        loses: what the sentence says of what is given up.
    """
    from rmqctl.repair.rendering import step_row

    books, unknown = found.books, found.unknown
    by_topic = books.by_topic if books is not None else {}
    rows = [finding.row() for finding in found.before]
    steps, left = _with_about(found.plan.steps, rows), _with_about(found.left, rows)
    answer.plan = found.plan if steps else None
    answer.shown = replace(found.plan, steps=(*steps, *left))
    answer.rows = [step_row(step) for step in answer.shown.steps]
    summary = {
        "steps": len(steps),
        "left": len(left),
        "loses": books.loses if books is not None else sum(step.loses for step in steps),
        "loses_by_topic": by_topic,
        "books": books.document() if books is not None else None,
        "before": len(found.before),
        "after": len(found.after),
        "remaining": [finding.row() for finding in found.after],
        "refusal": found.refusal,
        **({"unknown": unknown or None} if unknown is not None else {}),
    }
    answer.document = lambda: {
        "summary": summary,
        "steps": [step_row(step) for step in steps],
        "left": [step_row(step) for step in left],
    }
    answer.summary = lambda: {"kind": "summary", **summary}
    start = "".join(f"; {text}" for text in (found.refusal, unknown) if text)
    answer.closing = [_repair_sentence(found, loses + (f": {listed(by_topic)}" if by_topic else ""), start)]
    answer.is_no_after = bool(found.after or start)
    answer.is_no = answer.is_no_after or bool(steps)
    if steps and books is not None:
        answer.hold_to(books)


def _with_about(steps: Iterable[Step], rows: Sequence[Row]) -> tuple[Step, ...]:
    """Return steps with what they are about, as they say themselves, or the findings that they mend."""
    from rmqctl.repair.edits import Overwrite

    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_offset):
        found.setdefault((row["id"], row["file"]), []).append(row)

    def about(step: Step) -> str:
        here = found.get((step.id, step.file), [])
        place = next((e.offset for e in step.edits if isinstance(e, Overwrite) and e.file == step.file), None)
        if not here or (len(here) > 1 and place is None):
            return ""
        nearest = _nearest(here, place or 0)
        return about_one(nearest) if nearest.get("topic") or nearest.get("about") else ""

    return tuple(replace(step, about=step.about or about(step)) for step in steps)


def _nearest(rows: Sequence[Row], offset: int) -> Row:
    """Return the row whose offset is nearest to another, of several the first; rows ascend."""
    at = bisect_left(rows, offset, key=_offset)
    before = bisect_left(rows, rows[at - 1]["offset"], key=_offset) if at else 0
    return min((*rows[before : before + 1], *rows[at : at + 1]), key=lambda row: abs(row["offset"] - offset))


def _offset(row: Row) -> int:
    return int(row["offset"])


_NAMED = 3
"""Findings that the sentence names which a repair leaves."""


def _named(findings: Sequence[Finding]) -> str:
    """Return the first findings by id and what they are about, and how many more there are."""
    places = (queue_of(row) if (row := finding.row()).get("topic") else finding.file for finding in findings)
    named = dict.fromkeys(f"{finding.kind.id} in {place}" for finding, place in zip(findings, places, strict=True))
    more = len(named) - _NAMED
    return ", ".join([*named][:_NAMED]) + (f", and {number_of(more, 'more place')}" if more > 0 else "")


def _repair_sentence(found: Repair, loses: str, start: str) -> str:
    if not found.before and not found.plan.steps:
        return f"no finding, and no step{start}" if start else "nothing is wrong"
    count = len(found.before)
    wrong = f"{count:,} errors and warnings" if count != 1 else f"1 {found.before[0].level}"
    after = f"{len(found.after):,} would be left: {_named(found.after)}" if found.after else "none would be left"
    return f"{number_of(len(found.plan.steps), 'step')} for {wrong}; {loses}; {after}{start}"
