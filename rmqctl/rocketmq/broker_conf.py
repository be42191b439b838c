"""broker.conf: the settings that a store's files do not hold (Java properties text)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

OLD_NAMES = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Settings as releases up to 4.4 spell them (MessageStoreConfig) -> as all later ones do."""
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_broker_conf(path: Path) -> dict[str, str]:
    """Settings of a broker.conf by name.

    Raises:
        OSError: the file cannot be read.
    """
    return parse_broker_conf(path.read_text("utf-8", errors="replace"))


def parse_broker_conf(text: str) -> dict[str, str]:
    """Java properties: ``name = value`` or ``name: value``, ``#`` and ``!`` comments, ``\\`` continues a line.

    A setting under the name that old releases gave it is there under its present name, too.
    """
    settings = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        if name:
            settings[_unescape(name)] = _unescape(value)
    for old, new in OLD_NAMES.items():
        if old in settings:
            settings.setdefault(new, settings[old])
    return settings


def integer(settings: Mapping[str, str], name: str) -> int | None:
    """A positive whole number among the settings; None when absent or not one."""
    value = settings.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and int(value) > 0 else None


def flag(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A true/false setting; anything but ``true`` is false, as Java's Boolean.parseBoolean has it."""
    value = settings.get(name)
    return default if value is None else value.strip().lower() == "true"


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    open_line = ""
    for raw in text.splitlines():
        line = open_line + raw.lstrip()
        open_line = ""
        if not line or (line[0] in "#!" and not open_line):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            open_line = line[:-1]
            continue
        lines.append(line)
    return [*lines, open_line] if open_line else lines


def _split(line: str) -> tuple[str, str]:
    skip = False
    for at, char in enumerate(line):
        if not skip and char in "=: \t":
            rest = line[at:].lstrip(" \t")
            return line[:at], rest[1:].lstrip(" \t") if rest[:1] in ("=", ":") else rest
        skip = char == "\\" and not skip
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text.strip()
    out, at = [], 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            at += 1
            char = _ESCAPES.get(text[at], text[at])
        out.append(char)
        at += 1
    return "".join(out).strip()
