"""Annotations of text files, line by line: configuration, epochs, abort, lock and the like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from formats.errors import DecodeError
from formats.rocketmq.abort_lock import LOCK_TEXT, abort_pid
from formats.rocketmq.config_json import parse_config
from formats.rocketmq.epoch import parse_epochs
from rmqctl.hexview.annotation import Annotation, Group, View
from rmqctl.hexview.gaps import ZERO_RUN
from rmqctl.hexview.meanings import text

MAX_TEXT = 64 << 20
"""Bytes of a text file that are judged as a whole; longer ones are only shown."""
_WINDOW = 1 << 16
_ZEROS_CARRIED = 16
_ZEROS = re.compile(rb"\0{%d,}" % ZERO_RUN)
Verdict = tuple[str, bool]
Judge = Callable[[bytes], Verdict]


def walk_lines(name: str, judge: Judge | None = None) -> Callable[[View, int, int], Iterator[Annotation]]:
    """A walker for text files of one kind; ``judge`` says what the whole file is, and whether that is wrong."""

    def walk(view: View, begin: int, stop: int) -> Iterator[Annotation]:
        title, wrong = "", False
        if judge is not None and view.size <= MAX_TEXT:
            title, wrong = judge(view.source.read_at(0, view.size))
        group = Group(name, 0, view.size, title, wrong)
        for number, at, raw in _lines(view, begin - begin % _WINDOW, stop):
            if at + len(raw) > begin:
                yield _note(view, number, at, raw, group, title if wrong else "")
                wrong = False

    return walk


def _note(view: View, number: int, at: int, raw: bytes, group: Group, problem: str) -> Annotation:
    """A line, or a run of zeros; the first one carries what is wrong with the file."""
    if len(raw) >= ZERO_RUN and not any(raw):
        path, value, meaning = (group.name, "zeros"), None, problem or f"{len(raw):,} bytes"
        return view.note(
            path, at, raw[:_ZEROS_CARRIED], value, meaning, size=len(raw), wrong=bool(problem), group=group
        )
    path = (group.name, f"line[{number}]" if number else "text")
    return view.note(path, at, raw, text(raw.rstrip(b"\r\n")), problem, wrong=bool(problem), group=group)


def _lines(view: View, start: int, stop: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, place and bytes of each line, in pieces where it is longer than a window or holds long runs of zeros.

    Lines are numbered from 1; 0 where the walk began inside the file and nobody counted.
    """
    number, held, at = (1 if start == 0 else 0), b"", start
    while at + len(held) < min(stop, view.size):
        window = view.source.read_at(at + len(held), _WINDOW)
        if not window:
            break
        lines = (held + window).splitlines(keepends=True)
        held = b"" if at + len(held) + len(window) >= view.size or len(lines[-1]) >= _WINDOW else lines.pop()
        for line in lines:
            yield from ((number, at + offset, piece) for offset, piece in _pieces(line))
            at += len(line)
            number += 1 if number and line.endswith((b"\n", b"\r")) else 0
    if held:
        yield from ((number, at + offset, piece) for offset, piece in _pieces(held))


def _pieces(line: bytes) -> Iterator[tuple[int, bytes]]:
    """A line, with long runs of zeros as pieces of their own."""
    at = 0
    for zeros in _ZEROS.finditer(line):
        if zeros.start() > at:
            yield at, line[at : zeros.start()]
        yield zeros.start(), zeros[0]
        at = zeros.end()
    if at < len(line):
        yield at, line[at:]


def judge_json(data: bytes) -> Verdict:
    """Whether a broker can read a configuration file."""
    try:
        parse_config(data)
    except DecodeError as error:
        return f"no JSON: {error}", True
    return "JSON", False


def judge_epochs(data: bytes) -> Verdict:
    """Whether count and CRC of an epoch file fit its lines."""
    try:
        return f"{len(parse_epochs(data))} epochs, count and CRC ok", False
    except DecodeError as error:
        return str(error), True


def judge_abort(data: bytes) -> Verdict:
    """Which process was not stopped cleanly."""
    pid = abort_pid(data)
    return (f"process {pid} runs or was not stopped cleanly" if pid is not None else ""), False


def judge_lock(data: bytes) -> Verdict:
    """Whether the file is as a broker leaves it."""
    return ("as a broker writes it", False) if data == LOCK_TEXT else ("not what a broker writes", bool(data))
