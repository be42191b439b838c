"""Words for people; bytes as JSON shows them, text or base64; and rows in a form of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Text = str | dict[str, str]
Row = Mapping[str, Any]
Fields = Mapping[str, tuple[str, Callable[[Row], Any]]]
"""What may stand after a percent sign: its meaning, and how it is read from a row."""

_OF_ONE = {"are": "is", "were": "was", "have": "has"}


def number_of(count: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun, which has an s but for one: ``1 file``, ``2,000 files``.

    Args:
        verb: what follows, as it is with many: ``1 file is``, ``2,000 files are``.
    """
    said = _OF_ONE.get(verb, f"{verb}s") if verb and count == 1 else verb
    return f"{count:,} {noun}{'' if count == 1 else 's'}{' ' if verb else ''}{said}"


def counted(counts: Row, said: Iterable[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield an indented line for each count that is not 0.

    Args:
        said: name of a count, what is counted if it is one, the same if it is not, and what is said of it.
    """
    for name, one, many, what in said:
        if counts[name]:
            yield f"  {counts[name]:,} {one if counts[name] == 1 else many} {what}"


def what_a_start_leaves(root: str, *, removes: bool) -> str:
    """Return what `recover` does not say of a store, after what a start removes, if it removes anything."""
    if not removes:
        return f"A start does not read all: rmqctl verify {root} looks at the rest"
    return f"This is what the start removes; damage in what it does not read stays: rmqctl verify {root}"


def instant(milliseconds: int) -> str:
    """Return epoch milliseconds of the years 1970 to 9999 as ISO 8601 in UTC."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def text_or_base64(data: bytes) -> Text:
    """UTF-8 bytes as text; other bytes as ``{"base64": ...}``, which stands where text would."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode("ascii")}


def raw(value: Text | int | None) -> bytes:
    """Return a shown value as the bytes it was; nothing for one that is absent or could not be read."""
    if value is None:
        return b""
    if isinstance(value, dict):
        import base64

        return base64.b64decode(value["base64"])
    return str(value).encode("utf-8", "surrogateescape")


# --- rows in a form of the user's own, in the manner of kcat ----------------------------------------


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_KNOWN_ESCAPES = ", ".join(["\\" + escape for escape in _ESCAPES] + ["\\xHH"])
_TOKEN = re.compile(r"%(.)|\\x([0-9A-Fa-f]{2})|\\(.)|([%\\])|[^%\\]+", re.DOTALL)


def compile_form(text: str, fields: Fields) -> Callable[[Row], bytes]:
    """Return a function from a row to bytes, as a format string says.

    Raises:
        ValueError: a ``%`` or ``\\`` is followed by nothing that has a meaning.
    """
    parts = [_part(match, fields) for match in _TOKEN.finditer(text)]
    return lambda row: b"".join(part if isinstance(part, bytes) else part(row) for part in parts)


def _part(match: re.Match[str], fields: Fields) -> bytes | Callable[[Row], bytes]:
    field, code, escape, alone = match.groups()
    if alone:
        raise ValueError(f"{alone!r} at the end has no meaning; write {alone * 2!r} for one {alone!r}")
    if code:
        return bytes.fromhex(code)
    if escape:
        if escape not in _ESCAPES:
            raise ValueError(f"'\\{escape}' has no meaning; known are {_KNOWN_ESCAPES}")
        return _ESCAPES[escape]
    if not field:
        return match[0].encode("utf-8", "surrogateescape")
    if field == "%":
        return b"%"
    if field not in fields:
        known = ", ".join(f"%{f} {meaning}" for f, (meaning, _) in fields.items())
        raise ValueError(f"'%{field}' has no meaning; known are {known}")
    read = fields[field][1]
    return lambda row: value if isinstance(value := read(row), bytes) else raw(value)


def name_of(data: bytes) -> str:
    """Bytes as the key of a JSON object, or a value of a column of text, which has no room for anything else."""
    text = text_or_base64(data)
    return text if isinstance(text, str) else f"base64:{text['base64']}"
