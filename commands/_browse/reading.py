"""What views read, in a process of its own, so that no scan keeps the screen waiting.

Each reader takes a store, and a function to be called often, and yields what it has read piece by piece.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from commands._answer import folded, notice_lines
from commands._browse.columns import Columns, Shown, Styled
from commands._cells import cell, printable
from commands._rows import Row, keys_of
from commands._screen import Screen
from commands._sheet import Sheet
from commands._table import Table
from rmqctl.answer import Answer
from rmqctl.errors import RmqctlError
from rmqctl.filters import Filters, Rendering
from rmqctl.questions import Question

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from rmqctl.files.tree import Entry
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.notices import Notice

Advance = Callable[[int], object]
Reader = Callable[[Any, Advance], Iterator[Any]]

KEPT_ROWS = 100_000
"""Rows of a verb that a view holds; the command shows the others."""
_WIDTHS_FROM = 500
"""Rows that the widths of columns come from."""
_EVERY_SECONDS = 0.1
"""How often what has been read is handed over, and how often it is asked whether anybody still wants it."""
_BODY = 160
"""Bytes of a body that a list of messages shows."""
_WHOLE_BODY = 1 << 16
"""And that the view of a message shows."""
_SEARCHED = 512
"""Messages that a search looks at together."""
_TABLE = 2000
"""Rows of a table in a text."""

MESSAGE_COLUMNS = {
    "message": ("queue_offset", "store_timestamp", "tags", "keys", "size", "body"),
    "record": ("offset", "timestamp", "key", "value", "headers"),
}
"""What lists show of messages, by the kind of their rows."""


def queue_of(row: Row) -> int:
    """Return the number of a queue or partition."""
    return int(row["queue_id"] if "queue_id" in row else row["partition"])


def offset_of(row: Row) -> int:
    """Return the offset of a message in its queue."""
    return int(row["queue_offset"] if "queue_offset" in row else row["offset"])


def ends_of(row: Row) -> tuple[int, int]:
    """Return the first offset of a queue, and the one after the last."""
    if "max_offset" in row:
        return int(row["min_offset"] or 0), int(row["max_offset"] or 0)
    return int(row["log_start_offset"] or 0), int(row["log_end_offset"] or 0)


def _as_they_lie(store: Any) -> dict[str, bool]:
    """Take queues as their files lie: what a start of the broker would leave of them takes a scan for each window."""
    return {"as_found": True} if store.family == "rocketmq" else {}


# --- rows -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a verb, with columns that fit them and those before; how far it is; at the end what is said."""

    columns: Columns
    rows: Sequence[Shown]
    is_first: bool
    percent: int | None = None
    remarks: Sequence[str] = ()
    is_more: bool = False


def rows(
    question: Question[Answer], keys: Sequence[str], kinds: Sequence[str], store: Any, advance: Advance
) -> Iterator[Batch]:
    """Yield the rows of an answer.

    Args:
        keys: that are shown where rows have them; none: those that the answer has.
        kinds: of rows that are shown; none: all.
    """
    answer = store.ask(question)
    done = 0

    def advanced(size: int) -> None:
        nonlocal done
        done += size
        advance(0)

    answer.on_advance = advanced
    batch: list[Shown] = []
    columns, count, due, sent = Columns(), 0, 0.0, 0

    def piece(remarks: Sequence[str] = (), *, is_more: bool = False) -> Batch:
        columns.fit(batch[: max(_WIDTHS_FROM - sent, 0)])
        percent = min(done * 100 // answer.total, 100) if answer.total else None
        return Batch(columns, batch, not sent, percent, remarks, is_more)

    for row in answer:
        advance(0)
        if kinds and row.get("kind") not in kinds:
            continue
        if not count:
            columns = Columns([key for key in keys if key in row] or _keys_for(answer, row))
        batch.append(columns.shown(row))
        count += 1
        if monotonic() > due or count == KEPT_ROWS:
            yield piece()
            sent, batch, due = count, [], monotonic() + _EVERY_SECONDS
        if count == KEPT_ROWS:
            break
    remarks = [*answer.remarks, *([str(answer.error)] if answer.error is not None else [])]
    yield piece([printable(one) for one in remarks], is_more=count == KEPT_ROWS)


def _keys_for(answer: Answer, row: Row) -> Sequence[str]:
    """Return the keys that a list shows of the rows of an answer."""
    return [key for key in answer.columns or keys_of([row]) if not isinstance(row.get(key), (dict, list))]


# --- messages of a queue --------------------------------------------------------------------------------------


def bounds(topic: str, queue: int, store: Any, advance: Advance) -> Iterator[tuple[int, int]]:
    """Yield the first offset of a queue and the one after the last, where the store has the queue."""
    for row in store.topics(topic=topic, **_as_they_lie(store)):
        advance(0)
        if queue_of(row) == queue:
            yield ends_of(row)


def window(
    topic: str, queue: int, first: int, end: int, store: Any, _: Advance
) -> Iterator[tuple[Columns, list[Shown]]]:
    """Yield the messages between two offsets."""
    found = [row for row in _messages(store, topic, queue, first, end - first) if first <= offset_of(row) < end]
    yield _listed_messages(found)


def search(
    topic: str, queue: int, wanted: str, first: int, end: int, most: int, store: Any, advance: Advance
) -> Iterator[tuple[Columns, list[Shown], int]]:
    """Yield messages that have a text, some at most, each time with the offset up to which was looked."""
    at, count = first, 0
    while at < end and count < most:
        advance(0)
        read = list(_messages(store, topic, queue, at, min(_SEARCHED, end - at)))
        columns, shown = _listed_messages(read)
        found = [one for one in shown if wanted in one.text]
        at = min(max([at + _SEARCHED, *(offset_of(row) + 1 for row in read)]), end)
        count += len(found)
        yield columns, found, at


def _messages(store: Any, topic: str, queue: int, first: int, count: int) -> Iterator[Row]:
    """Read messages of a queue, as many at most, from an offset on."""
    is_redacted = store.bundle is not None and store.bundle["redacted"]
    rendering = Rendering() if is_redacted else Rendering(body=True, body_limit=_BODY)
    limited = Filters(limit=max(count, 1))
    answer = store.query_offset(topic, queue, first, limited, rendering, **_as_they_lie(store))
    return (row for row in answer if row["kind"] in MESSAGE_COLUMNS)


def _listed_messages(found: Sequence[Row]) -> tuple[Columns, list[Shown]]:
    keys = [key for key in MESSAGE_COLUMNS[found[0]["kind"]] if key in found[0]] if found else []
    columns = Columns(keys)
    return columns, [columns.shown(row) for row in found]


def seek(topic: str, queue: int, moment: int, store: Any, _: Advance) -> Iterator[int]:
    """Yield the offset that a broker answers for a time, epoch milliseconds; -1 for none."""
    for row in store.query_time(topic, queue, moment, **_as_they_lie(store)):
        if row["kind"] == "time_answer":
            yield offset_of(row)


# --- text -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that is folded to any width: notices, sentences, rows as a table, a record as a sheet."""

    notices: Sequence[Notice] = ()
    lines: Sequence[str] = ()
    rows: Sequence[Row] = ()
    columns: Sequence[str] | None = None
    title: str = ""
    sheet: Row | None = None

    def text(self, screen: Screen) -> Iterator[str]:
        """Yield its lines."""
        yield from notice_lines(self.notices, screen)
        yield from folded(self.lines, screen)
        if self.sheet:
            yield from Sheet(screen, local_time=False).lines(self.sheet)
        if self.rows:
            table = Table(screen, local_time=False, keys=list(self.columns or keys_of(self.rows)))
            yield from table.piece(self.rows, self.title, is_all=True)


Make = Callable[[Any, Advance], list[Passage]]


def text(make: Make, width: int, store: Any, advance: Advance) -> Iterator[tuple[list[Passage], int, list[str]]]:
    """Yield parts of a text, and their lines on so many cells."""
    yield from fold(make(store, advance), width, store, advance)


def fold(parts: list[Passage], width: int, _: Any, __: Advance) -> Iterator[tuple[list[Passage], int, list[str]]]:
    """Yield parts of a text that is there already with their lines."""
    screen = Screen(max(width, 20), colour=False, folds=True)
    yield parts, width, [printable(line) for part in parts for line in part.text(screen)]


def answered(question: Question[Answer], store: Any, advance: Advance) -> list[Passage]:
    """Return what a terminal shows of an answer."""
    return passages_of(store.ask(question), advance)


def passages_of(answer: Answer, advance: Advance) -> list[Passage]:
    """Return what a terminal shows of an answer."""
    answer.on_advance = advance
    answer.prepare()
    parts = []
    if answer.sections is None:
        parts.append(Passage(rows=list(islice(answer, _TABLE)), columns=answer.columns))
    for section in answer.sections() if answer.sections is not None else ():
        advance(0)
        found = list(islice((row for row in section.rows or () if row is not None), _TABLE))
        columns = section.columns
        if section.layout is not None and found:
            columns = section.layout.columns.get(found[0]["kind"])
        parts.append(Passage(list(section.notices), list(section.lines), found, columns, section.title))
    remarks = [*answer.remarks, *([str(answer.error)] if answer.error is not None else [])]
    return [*parts, Passage(lines=["", *remarks] if remarks else [])]


def doctor(path: str, store: Any, advance: Advance) -> list[Passage]:
    """Return the first look."""
    from rmqctl.doctor import examine, level_of

    checked = store.verify(level=level_of(store), notes=False, processes=1)
    return passages_of(examine(store, path, checked), advance)


def recovery(store: Any, advance: Advance) -> list[Passage]:
    """Return what a start of the broker would do."""
    with store.recover(processes=1) as answer:
        return passages_of(answer, advance)


def plan(store: Any, advance: Advance) -> list[Passage]:
    """Return what `repair` would do."""
    from rmqctl.repair.rendering import plan_notices

    with store.repair(processes=1) as answer:
        answer.on_advance = advance
        answer.prepare()
        notices = list(plan_notices(answer.shown)) if answer.shown is not None and answer.shown.steps else []
        refused = [str(answer.refusal)] if answer.refusal is not None else []
        lines = [*answer.closing, *answer.hints, *answer.remarks, *refused]
        return [Passage(notices, ["", *lines] if notices else lines)]


def finding(row: Row, _: Any, __: Advance) -> list[Passage]:
    """Return what a finding means, costs, and what to do about it."""
    from rmqctl.findings import find_kind
    from rmqctl.notices import finding_notices

    kind = find_kind(row["id"])
    lines = [f"Meaning: {kind.meaning}"] if kind is not None else []
    return [Passage(list(finding_notices([row], "")), ["", *lines, ""]), Passage(sheet=row)]


def sheet(row: Row, _: Any, __: Advance) -> list[Passage]:
    """Return all that a row has."""
    return [Passage(sheet=row)]


_FIRST = (
    *("topic", "queue_id", "partition", "queue_offset", "offset", "store_timestamp", "timestamp"),
    *("tags", "keys", "key", "unique_key", "headers", "transaction"),
)
"""What stands above the body of a message; the other fields stand below."""


def message(row: Row, store: Any, _: Advance) -> list[Passage]:
    """Return all fields of a message, and its body."""
    shown = row
    if store.bundle is None or not store.bundle["redacted"]:
        rendering, limited = Rendering(body=True, body_limit=_WHOLE_BODY), Filters(limit=1)
        place = row["topic"], queue_of(row), offset_of(row)
        found = store.query_offset(*place, limited, rendering, **_as_they_lie(store))
        shown = next((one for one in found if one["kind"] == row["kind"] and offset_of(one) == place[2]), row)
    content = [shown[key] for key in ("body", "value") if shown.get(key) is not None]
    fields = {k: v for k, v in shown.items() if k not in {"body", "value"} and v not in (None, [], {})}
    first = {key: fields.pop(key) for key in _FIRST if key in fields}
    lines = [line for value in content for line in _lines_of(value)]
    return [Passage(sheet=first), Passage(lines=["", *(lines or ["no body"]), ""]), Passage(sheet=fields)]


def _lines_of(value: Any) -> list[str]:
    return (value if isinstance(value, str) else cell("body", value)).splitlines()


# --- annotated bytes --------------------------------------------------------------------------------------------


_PAINT = re.compile(r"\x1b\[(\d+)m")
_PAINTS = {"0": "", "2": "dim", "36": "cyan", "31": "red", "1": "bold"}
_ADDRESS = re.compile(r"(?:\x1b\[2m)?([0-9a-f]{8,})")


@dataclass(frozen=True, slots=True)
class ByteLine:
    """A line of annotated bytes, and the place in the file that it, or the last one before it, begins at."""

    styled: Styled
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Annotated bytes of a file from ``begin`` to before ``end``; the file has ``size``."""

    lines: Sequence[ByteLine]
    begin: int
    end: int
    size: int


def annotated(path: str, begin: int, end: int, width: int, reach: int, store: Any, advance: Advance) -> Iterator[Chunk]:
    """Yield annotated bytes.

    Args:
        reach: begin so much earlier, at most, where what the first byte belongs to does.
    """
    from rmqctl.opening import open_path

    place = open_path(path, format=store.family)
    size, notes = _notes(place, begin, end, advance)
    group = notes[0].group if notes else None
    if group is not None and begin - reach <= group.offset < begin:
        size, notes = _notes(place, group.offset, end, advance)
    first = notes[0].offset if notes else begin
    last = max((note.end for note in notes), default=min(end, size))
    yield Chunk(_painted(notes, width), first, last, size)


def _notes(place: Any, begin: int, end: int, advance: Advance) -> tuple[int, list[Annotation]]:
    """Return the size of a file, and what its bytes mean from one to another."""
    size, notes = 0, []
    for stretch in place.hex(within=(begin, end)).stretches:
        size = stretch.file_size
        for note in stretch.notes:
            advance(0)
            notes.append(note)
    return size, notes


def _painted(notes: Sequence[Annotation], width: int) -> list[ByteLine]:
    from rmqctl.hexview.rendering import render

    lines, at = [], notes[0].offset if notes else 0
    for line in render(notes, width=max(width, 60), colour=True):
        found = _ADDRESS.match(line)
        at = int(found[1], 16) if found else at
        pieces = _PAINT.split(line)
        styles = ["", *(_PAINTS[code] for code in pieces[1::2])]
        styled = [(printable(piece), style) for piece, style in zip(pieces[::2], styles, strict=True) if piece]
        lines.append(ByteLine(styled, "".join(piece for piece, _ in styled).casefold(), at))
    return lines


# --- topics and files -----------------------------------------------------------------------------------------


def topics(store: Any, advance: Advance) -> Iterator[dict[str, list[tuple[int, int, int]]]]:
    """Yield the queues of each topic, a number and both ends: first the topics by name only."""
    found: dict[str, list[tuple[int, int, int]]] = {name: [] for name in store.topic_names()}
    yield found
    answer = store.topics(**_as_they_lie(store))
    answer.on_advance = advance
    for row in answer:
        advance(0)
        found.setdefault(row["topic"], []).append((queue_of(row), *ends_of(row)))
    yield dict(sorted(found.items()))


def directory(number: int, path: str, store: Any, _: Advance) -> Iterator[list[Entry]]:
    """Yield what lies in one of the directories of a store, directories first."""
    entries = store.directories()[number].tree.entries(path)
    yield sorted(entries, key=lambda entry: (not entry.is_directory, entry.name))


# --- the process ------------------------------------------------------------------------------------------------


class Unwanted(BaseException):
    """Nobody wants what is being read any more."""


def serve(connection: Connection) -> None:
    """Read what is asked for, until the connection ends.

    A question is the number of a moment, what opens the store, and a reader; an answer is ``here`` with a piece,
    ``far`` with the bytes that were read so far, ``failed`` with what stopped it, ``bug`` with the traceback, and
    ``end`` at last. Any word that comes while it reads means that nobody wants it.
    """
    reading = _Reading(connection)
    while True:
        try:
            asked = connection.recv()
            if asked is not None:
                reading.answer(*asked)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


class _Reading:
    """The store as a process has it open, and what it does for one question after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._parent = connection, os.getppid()
        self._moment = -1
        self._store: Any = None
        self._due, self._passed = 0.0, 0

    def answer(self, moment: int, opener: Callable[[], Any], reader: Reader) -> None:
        send, self._passed = self._connection.send, 0
        try:
            if self._store is None or moment != self._moment:
                self._store, self._moment = opener(), moment
            for piece in reader(self._store, self._advance):
                send(("here", piece))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except (RmqctlError, OSError, MemoryError) as error:
            send(("failed", error))
        except Unwanted:
            pass
        except Exception:  # noqa: BLE001 -- the process that draws raises it
            send(("bug", traceback.format_exc()))
        send(("end", None))

    def _advance(self, passed: int) -> None:
        self._passed += passed
        if monotonic() < self._due:
            return
        self._due = monotonic() + _EVERY_SECONDS
        if os.getppid() != self._parent:
            os._exit(1)
        if self._connection.poll():
            raise Unwanted
        if self._passed:
            self._connection.send(("far", self._passed))
