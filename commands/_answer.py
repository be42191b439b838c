"""Answers of a store's verbs on screen and as JSON, with what is said beside them, and their exit status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from commands import _sink
from commands._app import Output, message
from commands._cells import said
from commands._progress import STAGES, progress
from commands._rows import Row, keys_of, take
from commands._screen import SEVERITY_STYLES, Screen, cells_of
from commands._types import refuse
from rmqctl.answer import Answer, Section, TableLayout

if TYPE_CHECKING:
    from rmqctl.notices import Notice

_HEAD_ROWS = 100
_INDENT = "  "
_BODIES = ("body", "raw_body")
_LARGE_PIECE = 1 << 16


def show(out: Output, answer: Answer) -> None:
    """Write an answer, with its remarks on stderr and a bar while it is made.

    Raises:
        SystemExit: the answer is "no".
        RmqctlError: what could not be done after all.
    """
    if answer.make is not None:
        prepare(answer)
        write(out, answer)
    else:
        with showing(answer):
            write(out, answer)
    finish(answer)


def prepare(answer: Answer) -> None:
    """Say the remarks there are, do the work of an answer under a bar, and say what came of it."""
    if answer.make is not None:
        with showing(answer):
            answer.prepare()
    say(answer)


@contextmanager
def showing(answer: Answer) -> Iterator[None]:
    """Say the remarks there are, then show a bar while the block runs."""
    say(answer)
    if answer.total is None and answer.unit != STAGES:
        yield
        return
    with progress(answer.work, answer.total, unit=answer.unit) as advance:
        answer.on_advance, answer.on_stage = advance, lambda stage: advance(0, stage)
        yield


def finish(answer: Answer) -> None:
    """Say the last remarks and end with the exit status of the answer.

    Raises:
        SystemExit: the answer is "no".
        RmqctlError: what could not be done after all.
    """
    say(answer)
    if answer.error is not None:
        raise answer.error
    if answer.is_no:
        raise SystemExit(1)


def say(answer: Answer) -> None:
    """Put the remarks on stderr, each once."""
    for sentence in answer.remarks:
        message(sentence)
    answer.remarks.clear()


def write(out: Output, answer: Answer) -> None:
    """Write an answer in the kind that the user asked for."""
    answer.every = out.every
    if out.chooses and (answer.document is not None and out.kind in answer.document_kinds):
        refuse("--columns" if out.columns else "--sort", f"chooses in a table; with -o {out.kind} this is one object.")
    if answer.document is not None and out.kind in answer.document_kinds:
        document = answer.document()
        if out.kind == "csv" and answer.document_header is not None:
            document = {key: document.get(key) for key in answer.document_header}
        out.document(document)
    elif out.kind == "table" and answer.sections is not None:
        _write_sections(out, answer.sections())
    elif out.kind in {"json", "jsonl"} and answer.lines is not None and not out.chooses:
        _write_pieces(answer.lines() if out.kind == "jsonl" else _array(answer.lines()))
    else:
        out.show(answer.rows, columns=answer.columns, csv_columns=answer.late_header or answer.header)
    if out.kind == "jsonl" and answer.summary is not None:
        out.show([answer.summary()])


def write_notices(out: Output, notices: Iterable[Notice]) -> None:
    """Write notices for people: a head line, indented lines below it, what to type last."""
    screen = Screen.here()
    out.text(notice_lines(notices, screen))


def notice_lines(notices: Iterable[Notice], screen: Screen) -> Iterator[str]:
    """Yield the lines of notices, with an empty line between those that have more than two."""
    was_long = None
    for notice in notices:
        is_long = len(notice.lines) > 1 or bool(notice.command)
        if was_long is not None and (was_long or is_long):
            yield ""
        was_long = is_long
        yield from _one_notice(notice, screen)
    if was_long:
        yield ""


def _one_notice(notice: Notice, screen: Screen) -> Iterator[str]:
    first = f"{notice.level}  {notice.id}"
    head, *rest = screen.fold(f"{first}  {said(notice.about)}", hang=len(_INDENT))
    yield head.replace(notice.level, screen.style(notice.level, SEVERITY_STYLES.get(notice.level, "bold")), 1)
    yield from (f"{_INDENT}{line}" for line in rest)
    for text in notice.lines:
        for number, line in enumerate(screen.fold(said(text), screen.width - 2 * len(_INDENT))):
            yield f"{_INDENT if not number else 2 * _INDENT}{line}"
    if notice.command:
        yield f"{_INDENT}{screen.style(notice.command, 'bold')}"


def _write_sections(out: Output, sections: Iterable[Section]) -> None:
    """Write sections; where columns or an order are asked for, nothing before a table is found to have them."""
    if not out.chooses:
        for section in sections:
            _write_section(out, section)
        return
    held: list[Section] = []

    def release() -> None:
        for one in held:
            _write_section(plain, one)
        held.clear()

    plain, waiting, rest = replace(out, columns=(), sort=""), replace(out, before=release), iter(sections)
    for section in rest:
        if section.rows is None or section.is_fixed:
            held.append(section)
        elif section.is_part:
            _write_parts(waiting, [section, *rest])
        else:
            above = replace(section, rows=None)
            held.append(above)
            _write_section(waiting, replace(section, lines=(), notices=()))
            release()
    release()


def _write_parts(out: Output, sections: list[Section]) -> None:
    """Write the columns that each of several tables has of those asked for, and no table that has none of them."""
    from commands._choice import check, of_part

    keys = [keys_of(row for row in section.rows or () if row is not None) for section in sections]
    check(out, list(dict.fromkeys(key for some in keys for key in some)))
    if out.before is not None:
        out.before()
    for section, some in zip(sections, keys, strict=True):
        wanted = of_part(out, some)
        if wanted is not None:
            _write_section(replace(wanted, before=None), section)


def _write_section(out: Output, section: Section) -> None:
    write_notices(out, section.notices)
    out.text(folded(section.lines) if section.folds else section.lines)
    if section.rows is None:
        return
    rows: Iterator[Row | None] = iter(section.rows)
    if section.is_optional:
        first = next(rows, None)
        if first is None:
            return
        rows = chain([first], rows)
    if section.is_fixed:
        out = replace(out, columns=(), sort="", limit=None)
    if section.layout is None:
        out.show(rows, columns=section.columns, title=section.title)
    else:
        write_layout(out, rows, section.layout)


def folded(lines: Iterable[str], screen: Screen | None = None) -> Iterator[str]:
    """Sentences on as many lines as the terminal needs, without control characters; a command to type stays on one."""
    screen = screen or Screen.here()
    for line in map(said, lines):
        indent = len(line) - len(line.lstrip(" "))
        sentence, mark, typed = line[indent:].rpartition(": rmqctl ")
        if not mark or not screen.folds or cells_of(line) <= screen.width:
            sentence, mark, typed = line[indent:], "", ""
        first, *rest = screen.fold(sentence + mark[:1], screen.width - indent, hang=indent)
        yield " " * indent + first
        yield from (" " * (2 * indent) + part for part in rest)
        if mark:
            yield f"{' ' * indent}  rmqctl {typed}"


def write_layout(out: Output, rows: Iterator[Row | None], layout: TableLayout) -> None:
    """Write a table of rows of several kinds, with the columns for what comes first; nested objects as text."""
    head, _ = take(rows, _HEAD_ROWS, patient=False)
    every: Iterator[Row | None] = chain(head, rows)
    kinds = {row["kind"] for row in head}
    known = [kind for kind in kinds - {"finding"} if kind in layout.columns]
    if kinds & layout.as_text and not out.chooses:
        from commands._text import text_lines

        out.text(text_lines(every, local_time=out.local_time))
    elif not known and kinds != {"finding"}:
        out.show(row and {key: value for key, value in row.items() if key != "remedy"} for row in every)
    else:
        bodies = [key for key in _BODIES if any(key in row for row in head)]
        columns = layout.columns[known[0] if known else "finding"]
        out.show((row and {**row, "remark": layout.remark(row)} for row in every), columns=[*columns, *bodies])


def _array(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """JSON lines as one JSON array with a line for each."""
    before = b"[\n"
    for piece in pieces:
        if len(piece):
            yield before + bytes(piece)[:-1].replace(b"\n", b",\n")
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _write_pieces(pieces: Iterable[bytes | memoryview]) -> None:
    with _sink.batch() as add:
        for piece in pieces:
            if len(piece) < _LARGE_PIECE:
                add(bytes(piece))
            else:
                add(None)
                _sink.write(piece)  # type: ignore[arg-type]  # any buffer will do
