"""Messages in a form of the user's own, by a format string in the manner of kcat."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from rmqctl.rocketmq.rows.text import Text

Row = Mapping[str, Any]
Part = bytes | Callable[[Row], bytes]

FIELDS: dict[str, tuple[str, Callable[[Row], Any]]] = {
    "t": ("topic", lambda row: row["topic"]),
    "p": ("queue id", lambda row: row["queue_id"]),
    "o": ("queue offset", lambda row: row["queue_offset"]),
    "O": ("physical offset", lambda row: row["physical_offset"]),
    "k": ("keys", lambda row: b" ".join(map(raw, row["keys"]))),
    "T": ("store time (ms)", lambda row: row["store_timestamp"]),
    "s": ("body", lambda row: row["body"]),
    "S": ("body size (bytes)", lambda row: row["body_size_decompressed"]),
    "h": ("properties", lambda row: b",".join(b"%s=%s" % (n.encode(), raw(v)) for n, v in row["properties"].items())),
    "i": ("message id", lambda row: row["message_id"]),
}
"""What stands behind a percent sign: its meaning, and how it is read from a message's row with its body."""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_KNOWN_ESCAPES = ", ".join(["\\" + escape for escape in _ESCAPES] + ["\\xHH"])
_TOKEN = re.compile(r"%(.)|\\x([0-9A-Fa-f]{2})|\\(.)|([%\\])|[^%\\]+", re.DOTALL)


def compile_format(text: str) -> Callable[[Row], bytes]:
    """A function from a message's row (made with ``Show(body=True)``) to bytes.

    Raises:
        ValueError: a ``%`` or ``\\`` is followed by nothing that has a meaning.
    """
    parts = [_part(match) for match in _TOKEN.finditer(text)]
    return lambda row: b"".join(part if isinstance(part, bytes) else part(row) for part in parts)


def raw(value: Text | int | None) -> bytes:
    """A shown value as the bytes it was; nothing for one that is absent or could not be read."""
    if value is None:
        return b""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return str(value).encode("utf-8", "surrogateescape")


def _part(match: re.Match[str]) -> Part:
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
    if field not in FIELDS:
        known = ", ".join(f"%{f} {meaning}" for f, (meaning, _) in FIELDS.items())
        raise ValueError(f"'%{field}' has no meaning; known are {known}")
    read = FIELDS[field][1]
    return lambda row: value if isinstance(value := read(row), bytes) else raw(value)
