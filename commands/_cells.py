"""Values as people read them: times in ISO 8601, sizes in binary units, text without control characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

_TIME_KEY = re.compile(r"(?:.*[_.])?timestamp|(?:.*\.)?time|delete_horizon")
_SIZE_KEY = re.compile(r"(?!batch_size$)(?:.*[_.])?(?:size|bytes)(?:_decompressed|_allocated|_used|_free|_needed)?")
_COUNT_KEY = re.compile(r"(?:.*[_.])?(?:messages|records|lag|entries|units|files|segments|topics|queues|partitions)")
"""How many there are; offsets are names of places and have no separators, so that they can be pasted."""
_PLAIN = 9_999
"""The largest count without separators."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # years 1 to 9999


def cell(key: str, value: Any, *, local_time: bool = False) -> str:
    """Return the text of ``value`` in the column ``key``; the key decides about times (ms) and sizes (bytes)."""
    if isinstance(value, str):
        return printable(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _integer(key, value, local_time)
    return _other(key, value, local_time)


def instant(milliseconds: int, *, local_time: bool = False) -> str:
    """Epoch milliseconds as ISO 8601 with milliseconds; the number itself where no calendar has the day."""
    seconds, rest = divmod(milliseconds, 1000)
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return str(milliseconds)
    try:
        text, zone = _second(seconds, local_time)
    except (OverflowError, OSError, ValueError):  # the first and last day, moved by the local zone
        return str(milliseconds)
    return f"{text}.{rest:03}{zone}"


def size(count: int) -> str:
    """Bytes in binary units: ``126 B``, ``64 KiB``, ``1.4 GiB``."""
    amount, unit = float(count), 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount.is_integer() else f"{amount:.1f} {_UNITS[unit]}"


def span(milliseconds: int) -> str:
    """A length of time in its two largest units: ``340 ms``, ``23m 54s``, ``2d 0h``."""
    seconds, rest = divmod(abs(milliseconds), 1000)
    sign = "-" if milliseconds < 0 else ""
    if seconds < 60:
        return f"{milliseconds} ms" if seconds < 1 else f"{sign}{seconds + rest / 1000:.1f}s".replace(".0s", "s")
    for unit, length, inner, part in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= length:
            return f"{sign}{seconds // length:,}{unit} {seconds % length // part}{inner}"
    raise AssertionError("a minute is the last unit")


def heading(key: str) -> list[str]:
    """The words of a key as people read them; a span does not name its unit, which stands in each cell."""
    words = key.split("_")
    if words[-1] == "ms" and len(words) > 1:
        words[-1:] = [] if words[-2] in {"timeout", "time"} else ["time"]
    return words


def printable(text: str) -> str:
    """``text`` with control characters written as escapes, so that stored bytes cannot drive a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_THINGS = "records|messages|units|entries|slots|batches|files|keys|places"
_AMOUNT = re.compile(
    r"(?<![\w.,/:+-])(?:\d{5,}(?= (?:bytes|expected)\b)|(?<=bytes, not )\d{5,}\b|"
    rf"(?<!offset )(?<!offsets )(?<!at )(?<!to )\d{{5,}}(?= (?:empty |more )?(?:{_THINGS})\b))"
)
_YEARLESS = re.compile(r"(?<=at most )\d{15,}\b")
"""Epoch milliseconds of no year that a calendar has."""


def said(text: str) -> str:
    """A sentence for people: printable, with separators in its amounts; offsets and checksums stay as they are."""
    text = _AMOUNT.sub(lambda found: f"{int(found[0]):,}", printable(text))
    return _YEARLESS.sub(lambda found: f"the year {1970 + int(found[0]) // _YEAR_MS}", text)


_YEAR_MS = 31_556_952_000
"""An average year of the calendar, in milliseconds."""
_NEVER = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")
"""Times of a checkpoint, which are 0 until something was flushed."""


_UNDATED = ("timestamp", "base_timestamp", "max_timestamp", "first_timestamp", "last_timestamp")
"""Times of Kafka, which are -1 where there is none."""


def is_number(key: str, value: Any) -> bool:
    """Whether the column is aligned to the right: numbers and sizes, not times."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not is_time(key)


def _integer(key: str, value: int, local_time: bool) -> str:
    if is_time(key):
        if not value and key.endswith(_NEVER):
            return "never"
        if value == -1 and key in _UNDATED:
            return ""
        return instant(value, local_time=local_time)
    if key.endswith("_ms"):
        return span(value)
    if _is_size(key):
        return size(value)
    return f"{value:,}" if abs(value) > _PLAIN and _is_count(key) else str(int(value))


def _other(key: str, value: Any, local_time: bool) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        from rmqctl.text import text_or_base64

        return cell(key, text_or_base64(bytes(value)))
    if isinstance(value, Mapping):
        if list(value) == ["base64"]:
            return f"base64:{value['base64']}"
        return ", ".join(f"{printable(str(k))}={cell(str(k), v, local_time=local_time)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(key, item, local_time=local_time) for item in value)
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else printable(str(value))


@lru_cache(4096)
def _second(seconds: int, local_time: bool) -> tuple[str, str]:
    moment = datetime.fromtimestamp(seconds, UTC)
    if not local_time:
        return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0"), "Z"
    text = moment.astimezone().isoformat(timespec="seconds")
    return text[:19], text[19:]


@lru_cache(1024)
def is_time(key: str) -> bool:
    """Whether the column holds times, epoch milliseconds."""
    return _TIME_KEY.fullmatch(key) is not None


@lru_cache(1024)
def _is_count(key: str) -> bool:
    return _COUNT_KEY.fullmatch(key) is not None


@lru_cache(1024)
def _is_size(key: str) -> bool:
    return _SIZE_KEY.fullmatch(key) is not None


_colour = {"when": "auto"}


def want_colour(when: str) -> None:
    """Show colour ``always``, ``never``, or on terminals that take it (``auto``)."""
    _colour["when"] = when


def colour_is_wanted() -> str:
    """Return when colour is wanted: ``always``, ``never`` or ``auto``."""
    return _colour["when"]
