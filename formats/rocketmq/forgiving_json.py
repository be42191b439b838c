"""A JSON reader that forgives what fastjson forgives, and says where the rest breaks.

Forgiven (fastjson 1.2 with its default features AllowUnQuotedFieldNames, AllowSingleQuotes and
AllowArbitraryCommas): keys that are bare words or numbers, strings in single quotes, commas too
many, comments, a byte order mark, control characters between tokens and inside strings. A missing
comma, colon or bracket, and anything after the value, is an error there and here.
"""

from __future__ import annotations

import re
from typing import Any

from formats.errors import DecodeError

_SPACE = re.compile(r"(?:[\x00-\x20\x7f\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_ESCAPE = r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7bfFnrtv\"'/\\])"
_STRING = re.compile(rf"\"([^\"\\]*(?:{_ESCAPE}[^\"\\]*)*)\"|'([^'\\]*(?:{_ESCAPE}[^'\\]*)*)'")
_ESCAPES = re.compile(_ESCAPE)
_MEANING = {"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_CONSTANTS = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 4000
"""Python refuses to convert much longer integers; no field of a broker has more than 19 digits."""


def parse_forgiving(data: bytes) -> Any:
    """Return the value that a JSON text holds; bytes that are not UTF-8 become U+FFFD.

    Raises:
        DecodeError: not JSON, even so; ``offset`` is the byte where it breaks.
    """
    reader = _Reader(data.decode("utf-8", "surrogateescape"))
    try:
        return reader.document()
    except RecursionError as error:
        raise reader.error("Too deep a nesting") from error


def whole_characters(text: str) -> str:
    """Text whose surrogate pairs are one character each, and single halves U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Reader:
    """The text and how far it is read; stray bytes are kept as escapes, so that places can be given in bytes."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def document(self) -> Any:
        value = self.value()
        if self.next():
            raise self.error("Extra data")
        return value

    def value(self) -> Any:
        match self.next():
            case "{":
                return self.object()
            case "[":
                return self.array()
            case '"' | "'":
                return self.string()
            case _:
                return self.scalar()

    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while self.after_commas() != "}":
            key = self.key()
            if self.next() != ":":
                raise self.error("Expecting ':'")
            self.at += 1
            found[key] = self.value()
            self.expect_end_of_item("}")
        self.at += 1
        return found

    def array(self) -> list[Any]:
        found = []
        self.at += 1
        while self.after_commas() != "]":
            found.append(self.value())
            self.expect_end_of_item("]")
        self.at += 1
        return found

    def key(self) -> str:
        if self.next() in {'"', "'"}:
            return self.string()
        found = self.take(_NUMBER) or self.take(_WORD)
        if not found:
            raise self.error("Expecting a property name")
        return found[0]

    def string(self) -> str:
        found = self.take(_STRING)
        if not found:
            raise self.error("A string without an end, or with a wrong escape, begins")
        raw = found[1] if found[1] is not None else found[2]
        text = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return whole_characters(_ESCAPES.sub(_unescape, text)) if "\\" in text else text

    def scalar(self) -> Any:
        begin = self.at
        number = self.take(_NUMBER)
        if number and len(number[0]) <= _MAX_DIGITS:
            return float(number[0]) if number[1] or number[2] else int(number[0])
        word = self.take(_WORD)
        if word and word[0] in _CONSTANTS:
            return _CONSTANTS[word[0]]
        self.at = begin
        raise self.error("Too long a number" if number else "Expecting value")

    def next(self) -> str:
        """Return the next character that means something, "" at the end."""
        self.take(_SPACE)
        return self.text[self.at : self.at + 1]

    def after_commas(self) -> str:
        """Return the next character that means something and is no comma, "" at the end."""
        while self.next() == ",":
            self.at += 1
        return self.next()

    def expect_end_of_item(self, bracket: str) -> None:
        if self.next() not in {",", bracket}:
            raise self.error(f"Expecting ',' or '{bracket}'")

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def error(self, message: str) -> DecodeError:
        before = self.text[: self.at]
        place = len(before.encode("utf-8", "surrogateescape"))
        return DecodeError(f"{message} at line {before.count(chr(10)) + 1}", field="json", offset=place)


def _unescape(match: re.Match[str]) -> str:
    """Return the character that an escape stands for; one code unit of a pair for half of a ``\\u`` pair."""
    kind, rest = match[0][1], match[0][2:]
    if rest:
        return chr(int(rest, 16))
    return chr(int(kind)) if kind.isdigit() else _MEANING.get(kind, kind)
