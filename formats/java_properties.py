"""Java properties text: ``name = value`` or ``name: value``, ``#`` and ``!`` comments, ``\\`` continues a line."""

from __future__ import annotations

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str) -> dict[str, str]:
    """Return values by name, the last where a name repeats. Nothing raises: half an escape stands for itself."""
    found = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        if name:
            found[_unescape(name)] = _unescape(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    open_line: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        part = raw.lstrip(" \t\f")
        if open_line is None and (not part or part[0] in "#!"):
            continue
        line = (open_line or "") + part
        open_line = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            open_line = line[:-1]
        else:
            lines.append(line)
    return [*lines, open_line] if open_line else lines


def _split(line: str) -> tuple[str, str]:
    skip = False
    for at, char in enumerate(line):
        if not skip and char in "=: \t\f":
            rest = line[at:].lstrip(" \t\f")
            return line[:at], rest[1:].lstrip(" \t\f") if rest[:1] in ("=", ":") else rest
        skip = char == "\\" and not skip
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = _ESCAPES.get(text[at], text[at])
            code = text[at + 1 : at + 5]
            at += 1
            if char == "u" and re.fullmatch("[0-9a-fA-F]{4}", code):
                char = chr(int(code, 16))
                at += 4
        out.append(char)
    return _HALVES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), "".join(out))
