"""Two records that should be one: in which fields they differ."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from formats.errors import DecodeError
from formats.rocketmq.message import decode_record
from rmqctl.rocketmq.crc import MASK, crc32

_FOLLOWS = {"total_size": ("body", "properties"), "body_crc": ("body",)}
"""Fields that differ because others do."""
_LONGEST = 20


def told(left: bytes, right: bytes) -> str:
    """One sentence: whether the bodies are equal, each field with both values, and whose body is damaged."""
    try:
        a, b = decode_record(left)[0], decode_record(right)[0]
    except DecodeError:
        return "one of them cannot be decoded"
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    shown = [name for name in names if name != "physical_offset" and not set(_FOLLOWS.get(name, ())) & set(names)]
    fields = "; ".join(_field(name, a.get(name), b.get(name)) for name in shown)
    bad = [side for side, record in (("A", a), ("B", b)) if not _is_sound(record)]
    verdict = f"; the body fails its CRC in {' and '.join(bad)}" if bad else ""
    return f"{'bodies differ' if 'body' in names else 'equal bodies'}; {fields or 'other bytes'}{verdict}"


def _field(name: str, a: object, b: object) -> str:
    """One field on both sides; of the body where it begins to differ, of the properties those that differ."""
    if not isinstance(a, bytes) or not isinstance(b, bytes):
        return f"{name} {_short(a)} / {_short(b)}"
    if name == "properties":
        one, two = _properties(a), _properties(b)
        keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
        values = [f"{_short(key)} {_short(one.get(key))} / {_short(two.get(key))}" for key in keys]
        return f"properties {', '.join(values) or 'in other bytes'}"
    if name == "body":
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
        return f"body from byte {same:,} on ({len(a):,} / {len(b):,} bytes)"
    return f"{name} {_short(a)} / {_short(b)}"


def _properties(text: bytes) -> dict[bytes, bytes]:
    """Names and values, as far as the text has any."""
    return {name: value for name, mark, value in (part.partition(b"\1") for part in text.split(b"\2")) if mark}


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether the stored CRC of a body is that of its bytes; 0 was never computed."""
    return int(record["body_crc"]) in {0, crc32(record["body"]) & MASK}


def _short(value: object) -> str:
    """A value that fits a sentence; of long ones the end, where ids that are made one after the other differ."""
    if value is None:
        return "none"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"
