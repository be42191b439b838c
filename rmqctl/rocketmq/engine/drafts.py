"""Messages to produce, from what a user gave: counted templates, lines of a file, or dumped objects."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqctl.errors import Refused
from rmqctl.rocketmq.crc import MASK as CRC_MASK
from rmqctl.rocketmq.crc import crc32
from rmqctl.rocketmq.engine.config import Host
from rmqctl.rocketmq.engine.message import LOCALHOST

_INT = 1 << 31
_LONG = 1 << 63
Json = Mapping[str, Any]


@dataclass(slots=True)
class Draft:
    """A message before client and broker add to it.

    Attributes:
        topic: None: the topic asked for.
        queue_id: None: the next queue in turn.
        compression: codec of the stored body; "" for what the options say.
        stored: the properties are those of a record, to be stored as they are.
    """

    body: bytes
    topic: str | None = None
    queue_id: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    born_timestamp: int | None = None
    born_host: Host = LOCALHOST
    store_timestamp: int | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    sys_flag: int = 0
    compression: str = ""
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """What each message of a run has; ``{n}`` in a text becomes its number.

    Attributes:
        body: None: random bytes of ``sizes``, or a short text.
        sizes: smallest and largest random body, bytes.
        tags: tags with their weights.
    """

    body: str | None = None
    sizes: tuple[int, int] | None = None
    keys: tuple[str, ...] = ()
    tags: tuple[tuple[str, float], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    seed: int = 0

    def texts(self, tag: str | None) -> dict[str, str]:
        """The client's properties as templates, in the order in which a client puts them."""
        found = {} if tag is None else {"TAGS": tag}
        if self.keys:
            found["KEYS"] = " ".join(self.keys)
        return {**found, **dict(self.properties)}

    def properties_of(self, number: int) -> dict[str, str]:
        """The client's properties of message ``number``."""
        return {name: fill(value, number) for name, value in self.texts(self.tag_of(number)).items()}

    def tag_of(self, number: int) -> str | None:
        """The tag of message ``number``, by weight."""
        if len(self.tags) < 2:
            return self.tags[0][0] if self.tags else None
        sums = list(accumulate(weight for _, weight in self.tags))
        place = mixed(self.seed, number, _TAG) / (1 << 64) * sums[-1]
        return self.tags[min(bisect(sums, place), len(self.tags) - 1)][0]

    def size_of(self, number: int) -> int:
        """Bytes of the random body of message ``number``."""
        low, high = self.sizes or (0, 0)
        return low if low == high else low + mixed(self.seed, number, _SIZE) % (high - low + 1)

    def body_of(self, number: int) -> bytes | memoryview:
        """The body of message ``number``."""
        if self.body is not None:
            return fill(self.body, number).encode("utf-8", "surrogateescape")
        if self.sizes is not None:
            return noise(self.seed, number, self.size_of(number))
        return b"message %d" % number


_TAG, _SIZE = 1, 2
_NOISE, _PART = 1 << 22, 1 << 16
_STEP = 1031


def seeded(seed: int) -> Random:
    """What makes the random parts of a run: the same for the same seed."""
    return Random(seed)  # noqa: S311 - made-up data


def mixed(seed: int, number: int, what: int) -> int:
    """64 bits that look random and depend on nothing else (splitmix64)."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + what) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


_MASK = (1 << 64) - 1


def noise(seed: int, number: int, size: int) -> memoryview:
    """A random body: a stretch of 4 MiB of random bytes, another for each number."""
    pool = _pool(seed, size)
    at = number * _STEP % (len(pool) - size)
    return pool[at : at + size]


def fill_noise(seed: int, numbers: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The random bodies of many messages into ``out``, shape (n, bytes); gives the CRC that each is stored with.

    The numbers follow each other, so bodies lie at even distances but where they begin at the front again.
    """
    size = out.shape[1]
    pool = _pool(seed, size)
    at = numbers * _STEP % (len(pool) - size)
    if size:
        turns = (np.flatnonzero(at[1:] < at[:-1]) + 1).tolist()
        for begin, end in zip([0, *turns], [*turns, len(at)], strict=True):
            out[begin:end] = np.ndarray((end - begin, size), np.uint8, pool, int(at[begin]), (_STEP, 1))
    bodies = (pool[place : place + size] for place in at.tolist())
    return np.fromiter(map(crc32, bodies), np.int64, len(at)) & CRC_MASK


@lru_cache(maxsize=2)
def _pool_of(seed: int, size: int) -> memoryview:
    random = seeded(seed)
    parts = [random.randbytes(min(_PART, size - at)) for at in range(0, size, _PART)]  # the same bytes as in one go
    return memoryview(b"".join(parts))


def _pool(seed: int, size: int) -> memoryview:
    return _pool_of(seed, _NOISE if size <= _NOISE // 2 else 4 * size)


def fill(text: str, number: int) -> str:
    """A template with its number."""
    return text.replace("{n}", str(number)) if "{n}" in text else text


def counted(template: Template, count: int) -> Iterator[Draft]:
    """``count`` messages from a template."""
    for number in range(count):
        yield Draft(bytes(template.body_of(number)), properties=template.properties_of(number))


def from_bodies(template: Template, bodies: Iterable[bytes]) -> Iterator[Draft]:
    """One message a body, with the template's keys, tags and properties."""
    for number, body in enumerate(bodies):
        yield Draft(body, properties=template.properties_of(number))


def from_jsonl(lines: Iterable[bytes], name: str, *, needs_topic: bool = True) -> Iterator[Draft]:
    """One message a line, in the objects that ``dump --body -o jsonl`` prints; other kinds of rows are left out.

    Args:
        name: what to call the lines in messages.
        needs_topic: each object must name one.

    Raises:
        Refused: a line is no such object; says the line and the field.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            document = _object(line, f"{name}, line {number}")
            if document.get("kind", "message") == "message":
                yield _Reader(document, f"{name}, line {number}").draft(needs_topic=needs_topic)


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{where}: not JSON ({error}); nothing of this line was written") from error
    if not isinstance(document, dict):
        raise Refused(f"{where}: not a JSON object; nothing of this line was written")
    return document


def _escaped(text: str) -> str:
    """Text as `_Reader._text` gives it: a lone surrogate, which JSON can spell, becomes the bytes that stand for it."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


class _Reader:
    """Takes the fields of one object, and says which is wrong."""

    def __init__(self, document: Json, where: str) -> None:
        self._document, self._where = document, where

    def draft(self, *, needs_topic: bool) -> Draft:
        if needs_topic and not self._document.get("topic"):
            raise self._wrong("topic", "is missing (or give --topic)")
        return Draft(
            body=self._bytes("body"),
            topic=self._topic(),
            queue_id=self._queue_id(),
            properties=self._properties(),
            flag=self._number("flag", _INT) or 0,
            born_timestamp=self._number("born_timestamp", _LONG),
            born_host=self._host("born_host") or LOCALHOST,
            store_timestamp=self._number("store_timestamp", _LONG),
            store_host=self._host("store_host"),
            reconsume_times=self._number("reconsume_times", _INT) or 0,
            prepared_transaction_offset=self._number("prepared_transaction_offset", _LONG) or 0,
            sys_flag=self._number("sys_flag", _INT) or 0,
            compression=self._compression(),
            stored=True,
        )

    def _topic(self) -> str | None:
        topic = self._text("topic")
        if topic is not None and not topic.isascii() and any("\ud800" <= c <= "\udfff" for c in topic):
            raise self._wrong("topic", "is not UTF-8 text")
        return topic

    def _queue_id(self) -> int | None:
        number = self._number("queue_id", _INT)
        if number is not None and number < 0:
            raise self._wrong("queue_id", "is below 0")
        return number

    def _wrong(self, name: str, wanted: str) -> Refused:
        return Refused(f"{self._where}, field {name}: {wanted}; nothing of this line was written")

    def _number(self, name: str, limit: int) -> int | None:
        value = self._document.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise self._wrong(name, "not a whole number that fits")
        return value

    def _text(self, name: str) -> str | None:
        value = self._document.get(name)
        if value is None:
            return None
        raw = self._raw(name, value)
        return raw.decode("utf-8", "surrogateescape")

    def _bytes(self, name: str) -> bytes:
        if name not in self._document:
            raise self._wrong(name, "is missing (dump it with --body)")
        return self._raw(name, self._document[name])

    def _raw(self, name: str, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, dict) and isinstance(value.get("base64"), str):
            try:
                return base64.b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError) as error:
                raise self._wrong(name, f"is not base64 ({error})") from error
        raise self._wrong(name, 'neither text nor {"base64": "..."}')

    def _properties(self) -> dict[str, str]:
        value = self._document.get("properties")
        found: dict[str, str] = {}
        if isinstance(value, dict):
            for name, text in value.items():
                found[_escaped(name)] = self._raw(f"properties.{name}", text).decode("utf-8", "surrogateescape")
        elif value is not None:
            raise self._wrong("properties", "not an object of names and values")
        return self._with_shown(found)

    def _with_shown(self, found: dict[str, str]) -> dict[str, str]:
        """Keys and tags given only beside the properties, as in an object written by hand."""
        keys, tags = self._document.get("keys"), self._text("tags")
        if not isinstance(keys, list | None):
            raise self._wrong("keys", "not a list")
        if "KEYS" not in found and keys:
            found["KEYS"] = " ".join(_escaped(str(k)) for k in keys)
        if tags and "TAGS" not in found:
            found["TAGS"] = tags
        return found

    def _host(self, name: str) -> Host | None:
        value = self._document.get(name)
        if value is None:
            return None
        try:
            return Host.parse(value)
        except (ValueError, AttributeError, ipaddress.AddressValueError) as error:
            raise self._wrong(name, "not an address and port such as 127.0.0.1:10911") from error

    def _compression(self) -> str:
        value = self._document.get("compression", "none")
        if value not in ("none", "zlib", "lz4", "zstd"):
            raise self._wrong("compression", "none of none, zlib, lz4, zstd")
        return str(value)
