"""Messages to produce, from what a user gave: counted templates, lines of a file, or dumped objects."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from random import Random

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.crc import MASK as CRC_MASK
from rmqctl.rocketmq.crc import crc32
from rmqctl.rocketmq.engine.config import Host
from rmqctl.rocketmq.engine.message import LOCALHOST


@dataclass(slots=True)
class Draft:
    """A message before client and broker add to it.

    Attributes:
        topic: None: the topic asked for.
        queue_id: None: the next queue in turn.
        compression: codec of the stored body; "" for what the options say.
        stored: the properties are those of a record, to be stored as they are.
        ordered: and in the order in which they are.
        origin: what a refusal calls it, such as ``orders.jsonl, line 3``; "" for a message nobody wrote down.
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
    ordered: bool = False
    origin: str = ""


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


def from_bodies(template: Template, bodies: Iterable[bytes], name: str = "") -> Iterator[Draft]:
    """One message a body, with the template's keys, tags and properties.

    Args:
        name: what to call the lines in refusals.
    """
    for number, body in enumerate(bodies):
        origin = f"{name}, line {number + 1}" if name else ""
        yield Draft(body, properties=template.properties_of(number), origin=origin)
