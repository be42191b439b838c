"""Words for people; times as people write them; bytes as JSON shows them; and rows in a form of the user's own."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

Text = str | dict[str, str]
Row = Mapping[str, Any]
Fields = Mapping[str, tuple[str, Callable[[Row], Any]]]
"""What may stand after a percent sign: its meaning, and how it is read from a row."""

_OF_ONE = {"are": "is", "were": "was", "have": "has"}

_SPAN_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_SPAN_MS)})")
SPANS = re.compile(rf"-(?:{_SPAN.pattern})+")
"""A time counted back from now: ``-15m``, ``-1h30m``."""
_DAYS_AGO = {"today": 0, "yesterday": 1}
_SECONDS = range(10**9, 10**10)
"""Numbers that are a second of the years 2001 to 2286; as milliseconds they lie in the first four months of 1970."""
_DATE_OF_DIGITS = re.compile(r"(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")


def number_of(count: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun, which has an s but for one: ``1 file``, ``2,000 files``.

    Args:
        verb: what follows, as it is with many: ``1 file is``, ``2,000 files are``.
    """
    said = _OF_ONE.get(verb, f"{verb}s") if verb and count == 1 else verb
    return f"{count:,} {noun}{'' if count == 1 else 's'}{' ' if verb else ''}{said}"


def listed(counts: Mapping[str, int], most: int = 5) -> str:
    """Return names with their counts, the largest first: ``LabLog 270, LabOrders 130, and 7 more``."""
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    said = ", ".join(f"{name} {count:,}" for name, count in ranked[:most])
    return said + (f", and {len(ranked) - most:,} more" if len(ranked) > most else "")


def listed_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and how many more there are: ``topic, queue_id, and 7 more``."""
    return ", ".join(names[:most]) + (f", and {len(names) - most:,} more" if len(names) > most else "")


def counted(counts: Row, said: Iterable[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield an indented line for each count that is not 0.

    Args:
        said: name of a count, what is counted if it is one, the same if it is not, and what is said of it.
    """
    for name, one, many, what in said:
        if counts[name]:
            yield f"  {counts[name]:,} {one if counts[name] == 1 else many} {what}"


def first_lines(lines: Sequence[str], *, every: bool, most: int = 3) -> Iterator[str]:
    """Yield indented lines, the first ones and how many more there are, or every one."""
    shown = lines if every or len(lines) <= most + 1 else lines[:most]
    yield from (f"  {line}" for line in shown)
    if len(shown) < len(lines):
        yield f"  and {len(lines) - len(shown):,} more (--all)"


def what_a_start_leaves(root: str, *, removes: bool) -> str:
    """Return what `recover` does not say of a store, after what a start removes, if it removes anything."""
    if not removes:
        return f"A start does not read all; to look at the rest, type: {typed('verify', root)}"
    said = "This is what the start removes; damage in what it does not read stays"
    return f"{said}; type: {typed('verify', root)}"


LATEST = 253_402_300_799_999
"""The last millisecond that a calendar has, in the year 9999; epoch milliseconds."""


def instant(milliseconds: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC; the number itself where no calendar has the day."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds:,} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def milliseconds_of(moment: datetime | str | int, *, local: bool = False) -> int:
    """Return a time as people write it in epoch milliseconds.

    Taken are ISO 8601 with ``T`` or a space, a date alone, epoch milliseconds, ``-15m`` for 15 minutes ago, ``now``,
    ``today`` and ``yesterday`` for the midnight at which they begin. What is finer than a millisecond is left out.

    Args:
        local: take what names no zone as time of the local zone; else it is UTC.

    Raises:
        ValueError: it is no time, or a number that can only be seconds; the text says which, and what to give.
    """
    from datetime import UTC, datetime, timedelta

    if isinstance(moment, int):
        return _of_number(moment)
    if isinstance(moment, str):
        text = moment.strip()
        if date := _DATE_OF_DIGITS.fullmatch(text):
            raise ValueError(f"{moment!r} is a number of milliseconds as it stands; give {'-'.join(date.groups())}")
        if text.isascii() and text.isdigit():
            return _of_number(int(text))
        if SPANS.fullmatch(text):
            return time.time_ns() // 1_000_000 - span_ms(text[1:])
        if text == "now":
            return time.time_ns() // 1_000_000
        try:
            if text in _DAYS_AGO:
                now = datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
                day = (now.astimezone() if local else now).date() - timedelta(days=_DAYS_AGO[text])
                text = day.isoformat()
            found = datetime.fromisoformat(text)
            moment = found if found.tzinfo or not local else found.astimezone()
        except (ValueError, OverflowError, OSError):
            raise ValueError(
                f"{moment!r} is not a time; give 2026-11-20T08:00:00Z, 2026-11-20 or 2026-11-20 14:05 "
                f"({'local time' if local else 'UTC'}), epoch milliseconds, -15m for 15 minutes ago "
                "(ms, s, m, h, d, w), now, today or yesterday"
            ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def span_ms(text: str) -> int:
    """Return a length of time in milliseconds: ``250ms``, ``5s``, ``1h30m``.

    Raises:
        ValueError: it is none.
    """
    if not SPANS.fullmatch(f"-{text}"):
        raise ValueError(f"{text!r} is not a duration; give 250ms, 5s, 1h30m (ms, s, m, h, d, w)")
    return round(sum(float(number) * _SPAN_MS[unit] for number, unit in _SPAN.findall(text)))


def _of_number(number: int) -> int:
    if number in _SECONDS:
        raise ValueError(
            f"{number} can only be seconds; times are epoch milliseconds: {number * 1000}, or {instant(number * 1000)}"
        )
    return number


def text_or_base64(data: bytes) -> Text:
    """UTF-8 bytes as text; other bytes as ``{"base64": ...}``, which stands where text would."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode("ascii")}


def bytes_of(text: str) -> bytes:
    """Return the bytes that a name from a file system or a text file stands for, half a surrogate pair as its own."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def plain(value: Any) -> Any:
    """``value`` made of JSON's own types only: bytes, paths, tuples and text with stray bytes resolved."""
    match value:
        case Mapping():
            return {name_of(bytes_of(str(key))): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case str():
            return value if value.isascii() else text_or_base64(bytes_of(value))
        case int() | float() | None:
            return value
        case _:
            return plain(json_type(value))


def json_type(value: Any) -> Any:
    """Return a value of another type as one that JSON has.

    Raises:
        TypeError: there is none.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return text_or_base64(bytes(value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):  # a number from numpy
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def json_bytes(value: Any, options: int = 0) -> bytes:
    """Return a value as JSON, also where orjson has no way: stray bytes in names, integers beyond 64 bits.

    Args:
        options: of orjson; those for indents, order and a newline at the end count.
    """
    import orjson

    try:
        return orjson.dumps(value, json_type, options | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        import json

        indent = 2 if options & orjson.OPT_INDENT_2 else None
        separators = None if indent else (",", ":")
        text = json.dumps(
            plain(value), ensure_ascii=False, indent=indent, separators=separators,
            sort_keys=bool(options & orjson.OPT_SORT_KEYS),
        )  # fmt: skip
        return text.encode() + (b"\n" if options & orjson.OPT_APPEND_NEWLINE else b"")


def raw(value: Text | int | None) -> bytes:
    """Return a shown value as the bytes it was; nothing for one that is absent or could not be read."""
    if value is None:
        return b""
    if isinstance(value, dict):
        import base64

        return base64.b64decode(value["base64"]) if "base64" in value else f"sha256:{value['sha256']}".encode()
    return bytes_of(str(value))


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


@lru_cache(maxsize=256)
def name_of(data: bytes) -> str:
    """Bytes as the key of a JSON object, or a value of a column of text, which has no room for anything else."""
    text = text_or_base64(data)
    return text if isinstance(text, str) else f"base64:{text['base64']}"


# --- commands to type, as a shell takes them -----------------------------------------------------------


def typed(*words: str | os.PathLike[str]) -> str:
    """Return a command of ours as it is typed into a shell."""
    return shell_line("rmqctl", *words)


def shell_line(*words: str | os.PathLike[str]) -> str:
    """Return words as a shell takes them for what they are: on one line, without control characters."""
    return " ".join(_quoted(os.fspath(word)) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_in_quotes(char) for char in word) + "'"


def _in_quotes(char: str) -> str:
    """One character in the quotes of a shell that know escapes."""
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    is_byte = "\udc80" <= char <= "\udcff"  # of a name that is no UTF-8
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape" if is_byte else "surrogatepass"))
