"""Answers of a store's verbs on screen and as JSON, with what is said beside them, and their exit status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

from commands import _sink
from commands._app import Output, message
from commands._progress import progress
from commands._rows import Row, take
from commands._screen import Screen
from rmqctl.answer import Answer, Section, TableLayout

_HEAD_ROWS = 100
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
    if answer.total is None:
        yield
        return
    with progress(answer.work, answer.total, unit=answer.unit) as advance:
        answer.on_advance = advance
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
    if answer.document is not None and out.kind in answer.document_kinds:
        out.document(answer.document())
    elif out.kind == "table" and answer.sections is not None:
        for section in answer.sections():
            _write_section(out, section)
    elif out.kind in {"json", "jsonl"} and answer.lines is not None:
        _write_pieces(answer.lines() if out.kind == "jsonl" else _array(answer.lines()))
    else:
        out.show(answer.rows, columns=answer.columns)
    if out.kind == "jsonl" and answer.summary is not None:
        out.show([answer.summary()])


def _write_section(out: Output, section: Section) -> None:
    out.text(_folded(section.lines) if section.folds else section.lines)
    if section.rows is None:
        return
    rows: Iterator[Row | None] = iter(section.rows)
    if section.is_optional:
        first = next(rows, None)
        if first is None:
            return
        rows = chain([first], rows)
    if section.layout is None:
        out.show(rows, columns=section.columns, title=section.title)
    else:
        write_layout(out, rows, section.layout)


def _folded(lines: Iterable[str]) -> Iterator[str]:
    """Sentences on as many lines as the terminal needs."""
    screen = Screen.here()
    for line in lines:
        yield from screen.fold(line)


def write_layout(out: Output, rows: Iterator[Row | None], layout: TableLayout) -> None:
    """Write a table of rows of several kinds, with the columns for what comes first; nested objects as text."""
    head, _ = take(rows, _HEAD_ROWS, patient=False)
    every: Iterator[Row | None] = chain(head, rows)
    kinds = {row["kind"] for row in head}
    known = [kind for kind in kinds - {"finding"} if kind in layout.columns]
    if kinds & layout.as_text:
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
