"""Text broken into lines by the columns it takes on a terminal, where Chinese characters take two."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import combining, east_asian_width


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
