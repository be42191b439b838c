"""Records to produce, from what a user gave: counted templates, lines of a file, or dumped objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, NamedTuple

from rmqctl.producing import JsonObject

Header = tuple[bytes, bytes | None]
NOISE, STEP = 1 << 22, 1031
"""Bytes that random values are cut from, and how far apart those of two numbers begin."""
_LONG = 1 << 63


class Draft(NamedTuple):
    """A record before it has an offset.

    Attributes:
        topic: None: the next of those asked for.
        partition: None: as the partitioner says.
        timestamp: ms; None: as the clock says.
        origin: what a refusal calls it, such as ``orders.jsonl, line 3``; "" for one that nobody wrote down.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    topic: str | None = None
    partition: int | None = None
    origin: str = ""


@dataclass(frozen=True)
class Template:
    """What each record of a run has; ``{n}`` in a text becomes its number.

    Attributes:
        value: None: random bytes of ``sizes``, or a short text.
        sizes: smallest and largest random value, bytes.
        headers: names and values.
        tombstone: the value is null.
        start, step: timestamp of the first record and from each to the next, ms; start None: of the clock.
    """

    key: str | None = None
    value: str | None = None
    sizes: tuple[int, int] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    tombstone: bool = False
    start: int | None = None
    step: int = 1
    seed: int = 0

    def draft(self, number: int) -> Draft:
        """Record ``number``."""
        key = None if self.key is None else _bytes(self.key, number)
        headers = tuple((_bytes(name, number), _bytes(value, number)) for name, value in self.headers)
        return Draft(key, self.value_of(number), headers, self.time_of(number))

    def time_of(self, number: int) -> int | None:
        """Return the timestamp of record ``number``, None for that of the clock."""
        return None if self.start is None else self.start + number * self.step

    @property
    def text(self) -> str | None:
        """The value as a text with ``{n}``; None where it is null or random."""
        if self.tombstone or (self.value is None and self.sizes is not None):
            return None
        return "record {n}" if self.value is None else self.value

    def value_of(self, number: int) -> bytes | None:
        """Return the value of record ``number``."""
        text = self.text
        if text is not None:
            return _bytes(text, number)
        if self.tombstone or self.sizes is None:
            return None
        low, high = self.sizes
        size = low if low == high else low + Random(self.seed << 40 ^ number).randrange(high - low + 1)  # noqa: S311
        return self.noise_of(number, size)

    def noise_of(self, number: int, size: int) -> bytes:
        """Random bytes, the same for the same seed and number."""
        noise, at = self._noise, number * STEP % NOISE
        if size > NOISE:
            noise *= -(-size // NOISE) + 1
        return noise[at : at + size] if at + size <= len(noise) else (noise[at:] + noise)[:size]

    @cached_property
    def _noise(self) -> bytes:
        return Random(self.seed).randbytes(NOISE)  # noqa: S311 - made-up data

    @property
    def size(self) -> int:
        """Bytes of a record with what is around it, about."""
        low, high = self.sizes or (0, 0)
        value = len(self.value) if self.value is not None else (low + high) // 2 if self.sizes else 12
        return value + len(self.key or "") + sum(len(n) + len(v) + 4 for n, v in self.headers) + 16


def _bytes(text: str, number: int) -> bytes:
    return (text.replace("{n}", str(number)) if "{n}" in text else text).encode("utf-8", "surrogateescape")


def counted(template: Template, count: int) -> Iterator[Draft]:
    """``count`` records of a template."""
    return map(template.draft, range(count))


def from_lines(template: Template, lines: Iterable[bytes], name: str) -> Iterator[Draft]:
    """Yield a record a line, with the template's key, headers and times.

    Args:
        name: what to call the lines in refusals.
    """
    for number, line in enumerate(lines):
        yield template.draft(number)._replace(value=line.rstrip(b"\r\n"), origin=f"{name}, line {number + 1}")


# --- dumped objects ---------------------------------------------------------------------------------


_OTHER_KINDS = {"batch", "finding", "gap", "summary"}
_SHOWN = {
    "kind": str, "file": str, "batch_position": int, "offset": int, "sequence": int, "key_size": int,
    "value_size": int, "control_type": str, "decoded": dict,
}  # fmt: skip
"""Fields that ``dump`` shows and a log works out for itself."""
_TAKEN = {"topic", "partition", "timestamp", "key", "value", "headers"}
_PARTIAL = {
    "key_truncated": "the key is not whole; dump it without a limit",
    "value_truncated": "the value is not whole; dump it without --body-limit",
}


def from_jsonl(lines: Iterable[bytes], name: str, *, needs_topic: bool = True) -> Iterator[Draft]:
    """Yield a record an object that ``dump --records -o jsonl`` prints; batches, control records and findings are left
    out.

    Args:
        name: what to call the lines in refusals.
        needs_topic: each object must name one.

    Raises:
        Refused: a line is no such object; says the line and the field.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            reader = _Reader(line, f"{name}, line {number}")
            if reader.is_record():
                yield reader.draft(needs_topic=needs_topic)


class _Reader(JsonObject):
    """Takes the fields of one object."""

    def is_record(self) -> bool:
        """Whether the object is a record that a producer sent."""
        return self.is_row("record", _OTHER_KINDS) and self.document.get("control_type") is None

    def draft(self, *, needs_topic: bool) -> Draft:
        for name, value in self.document.items():
            if name in _PARTIAL:
                raise self.wrong(name, _PARTIAL[name])
            if name in _SHOWN:
                if value is not None and type(value) is not _SHOWN[name]:
                    raise self.wrong(name, f"not of type {_SHOWN[name].__name__}")
            elif name not in _TAKEN:
                raise self.wrong(name, "is no field of a record")
        topic = self.document.get("topic")
        if topic is not None and not isinstance(topic, str):
            raise self.wrong("topic", "not text")
        if needs_topic and not topic:
            raise self.wrong("topic", "is missing (or give --topic)")
        for name in ("key", "value"):
            if name not in self.document:
                raise self.wrong(name, "is missing (null for none)")
        key, value = (self._bytes(name, self.document[name]) for name in ("key", "value"))
        time, partition = self.number("timestamp", -1, _LONG), self.number("partition", 0, 1 << 31)
        return Draft(key, value, self._headers(), time, topic, partition, self.where)

    def _bytes(self, name: str, value: Any) -> bytes | None:
        return None if value is None else self.raw(name, value, 'neither text, null, nor {"base64": "..."}')

    def _headers(self) -> tuple[Header, ...]:
        value = self.document.get("headers")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            raise self.wrong("headers", "not a list of pairs of name and value")
        found = [(self._bytes("headers", name), self._bytes("headers", content)) for name, content in value]
        if any(name is None for name, _ in found):
            raise self.wrong("headers", "a header has no name")
        return tuple((name or b"", content) for name, content in found)
