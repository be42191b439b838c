"""Annotations as lines of text: hex, characters, and the field, side by side, in the manner of fq.

Lines are broken by the columns they take on a terminal, where Chinese characters take two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unicodedata import combining, east_asian_width

from rmqctl.hexview.annotation import Annotation, Group


def columns(text: str) -> int:
    """Columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def fold(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """Lines of at most ``width`` columns, broken at spaces, inside a word only where it is too long for a line.

    Args:
        first, later: what the first line and the others begin with.
    """
    if columns(first + text) <= width:
        return [first + text]
    lines: list[str] = []
    line, room = first, width - columns(first)
    for word in _words(text, width - max(len(first), len(later))):
        needed = columns(word) + (1 if line.strip() else 0)
        if needed > room and line.strip():
            lines.append(line)
            line, room, needed = later, width - columns(later), columns(word)
        line = f"{line} {word}" if line.strip() else line + word
        room -= needed
    return [*lines, line]


def _words(text: str, width: int) -> Iterator[str]:
    """Words, the too long ones in pieces."""
    for word in text.split(" "):
        while columns(word) > width:
            end = _fitting(word, width)
            yield word[:end]
            word = word[end:]
        yield word


def _fitting(word: str, width: int) -> int:
    """How many characters of a word fit, at least one."""
    used = 0
    for number, char in enumerate(word):
        used += _columns_of(char)
        if used > width:
            return max(number, 1)
    return len(word)


# --- annotations as lines of text -------------------------------------------------------------------


WIDE = 132
"""Columns from which a line has room for 16 bytes beside the fields; narrower ones have 8."""
LINES = 4
"""Lines of hex that a field may take before the rest is folded."""
_DIGITS = 8
_LEAST_TEXT = 24
_LONGEST_VALUE = 120
_FOLDED = frozenset({"zeros", "zero_tail", "gone"})
_RESET, _DIM, _NAME, _WRONG, _GROUP = "\x1b[0m", "\x1b[2m", "\x1b[36m", "\x1b[31m", "\x1b[1m"


def render(
    annotations: Iterable[Annotation], *, width: int = 100, colour: bool = False, lines: int | None = LINES
) -> Iterator[str]:
    """Lines without newline: offset, bytes in hex at their place, the same as characters, then the field.

    A field reads ``name: value (meaning) 0xfirst-0xlast.size``. Records, units and entries have a line
    of their own above their fields. Control characters are escaped.

    Args:
        width: columns; longer text goes on in the next line.
        lines: lines of hex per field, None for all that annotations carry.
    """
    page = _Page(width, colour, lines)
    group: Group | None = None
    path: tuple[str, ...] = ()
    for note in annotations:
        if note.group is not None and note.group != group:
            yield from page.heading(note.group)
            path = (note.group.name,)
        elif note.group is None:
            path = ()
        group = note.group
        yield from page.levels(note, path)
        path = note.path[:-1]
        yield from page.field(note)


class _Page:
    """Column positions for one width."""

    def __init__(self, width: int, colour: bool, lines: int | None) -> None:
        self.per_line = 16 if width >= WIDE else 8
        self.lines, self.colour = lines, colour
        left = _DIGITS + 1 + 3 * self.per_line - 1 + 1 + self.per_line + 1
        self.text_width = max(width - left - 1, _LEAST_TEXT)

    def heading(self, group: Group) -> Iterator[str]:
        """Yield the line of a record, unit or entry."""
        text = f"{group.name} {printable(group.title)}".rstrip()
        style = _WRONG if group.wrong else _GROUP
        for number, piece in enumerate(self._wrapped(f"{text} {span(group.offset, group.size)}", 0)):
            yield self._line(group.offset if number == 0 else None, b"", 0, self._paint(piece, style))

    def levels(self, note: Annotation, path: tuple[str, ...]) -> Iterator[str]:
        """Lines for the names between the group and the field that were not there before."""
        outer = note.path[:-1]
        first = 1 if note.group is not None and outer[:1] == (note.group.name,) else 0
        while first < min(len(outer), len(path)) and outer[first] == path[first]:
            first += 1
        for depth in range(first, len(outer)):
            yield self._line(note.offset, b"", 0, f"{'  ' * depth}{self._paint(printable(outer[depth]), _NAME)}")

    def field(self, note: Annotation) -> Iterator[str]:
        """Yield the lines of one field."""
        pieces = self._text(note)
        rows = [] if note.path[-1] in _FOLDED else list(self._rows(note))
        for number in range(max(len(rows), len(pieces), 1)):
            text = pieces[number] if number < len(pieces) else ""
            if number < len(rows):
                yield self._line(*rows[number], text)
            elif rows or number:
                yield self._line(None, b"", 0, text)
            else:
                yield self._folded(note, text)
        if rows and (left := note.size - sum(len(data) for _, data, _ in rows)) > 0:
            for piece in self._wrapped(f"* {left:,} bytes more, up to 0x{note.end - 1:x}", note.depth):
                yield self._line(None, b"", 0, piece)

    def _rows(self, note: Annotation) -> Iterator[tuple[int, bytes, int]]:
        """Address, bytes and column of each line of hex."""
        at, end = note.offset, note.offset + len(note.raw)
        count = 0
        while at < end and (self.lines is None or count < self.lines):
            column = at % self.per_line
            size = min(self.per_line - column, end - at)
            yield at - column, note.raw[at - note.offset : at - note.offset + size], column
            at, count = at + size, count + 1

    def _text(self, note: Annotation) -> list[str]:
        name, rest = printable(note.path[-1]), _said(note)
        pieces = self._wrapped(f"{name}{rest} {span(note.offset, note.size)}", note.depth)
        if not self.colour:
            return pieces
        style = _WRONG if note.wrong else _NAME
        return [self._colored(piece, name, style, whole=note.wrong) for piece in pieces]

    def _colored(self, piece: str, name: str, style: str, *, whole: bool) -> str:
        text = piece.lstrip()
        indent = piece[: len(piece) - len(text)]
        if whole or not text.startswith(name):
            return f"{indent}{style}{text}{_RESET}" if whole else piece
        return f"{indent}{style}{name}{_RESET}{text[len(name) :]}"

    def _wrapped(self, text: str, depth: int) -> list[str]:
        indent = "  " * min(depth, 8)
        return fold(text, self.text_width, indent, indent + "    ")

    def _folded(self, note: Annotation, text: str) -> str:
        stars = ("*" if note.size else "").ljust(3 * self.per_line - 1)
        return f"{note.offset:0{_DIGITS}x} {stars}|{' ' * self.per_line}|{text}".rstrip()

    def _line(self, address: int | None, data: bytes, column: int, text: str) -> str:
        where = " " * _DIGITS if address is None else f"{address:0{_DIGITS}x}"
        hexadecimal = f"{'   ' * column}{data.hex(' ')}".ljust(3 * self.per_line - 1)
        characters = f"{' ' * column}{''.join(chr(b) if 32 <= b < 127 else '.' for b in data)}".ljust(self.per_line)
        if self.colour:
            where = f"{_DIM}{where}{_RESET}"
        return f"{where} {hexadecimal}|{characters}|{text}".rstrip()

    def _paint(self, text: str, style: str) -> str:
        return f"{style}{text}{_RESET}" if self.colour else text


def _said(note: Annotation) -> str:
    """Value and meaning."""
    meaning = f" ({printable(note.meaning)})" if note.meaning else ""
    match note.value:
        case None:
            return meaning
        case int() as number:
            return f": {number}{meaning}"
        case str() as text:
            return f": {_quoted(text)}{meaning}"
        case bytes() as data:
            return f": {len(data):,} bytes{meaning}" if not note.is_elided else f": {note.size:,} bytes{meaning}"


def _quoted(text: str) -> str:
    shown = printable(text[:_LONGEST_VALUE])
    return f'"{shown}"' + ("..." if len(text) > _LONGEST_VALUE else "")


def span(offset: int, size: int) -> str:
    """First and last byte, and the size: ``0x0-0x3.4``; of nothing, its place: ``0x4.0``."""
    return f"0x{offset:x}-0x{offset + size - 1:x}.{size}" if size else f"0x{offset:x}.0"


def printable(text: str) -> str:
    """Text whose control characters are escapes, so that stored bytes cannot drive a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
