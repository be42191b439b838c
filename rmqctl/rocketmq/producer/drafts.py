"""Messages to produce, from what a user gave, as client and broker send them on: counted templates, alone or stored
together.

Client and broker add properties on the way into the store (spec 2.6). Client batches are record by record, inner
batches one record (spec 2.11). Bodies are compressed as clients do, with the SysFlag bits that say so (spec 2.3,
2.10). Sources: DefaultMQProducerImpl.sendKernelImpl (UNIQ_KEY, WAIT), MessageClientIDSetter,
SendMessageProcessor.sendMessage (MSG_REGION, TRACE_ON, CLUSTER, the WAIT of 4.9.1 to 4.9.8).
"""

from __future__ import annotations

import zlib
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from random import Random

import numpy as np
import numpy.typing as npt

from formats.rocketmq.client_batch import BatchItem
from formats.rocketmq.message import SysFlag
from formats.rocketmq.message_id import UniqueKeyV4, UniqueKeyV6
from rmqctl.errors import Refused
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.message import LOCALHOST, Message, MessageRefused, PutStatus
from rmqctl.rocketmq.engine.putting import INNER_NUM
from rmqctl.rocketmq.engine.record import batch_item_text, client_text, java_map_order
from rmqctl.rocketmq.log.crc import MASK as CRC_MASK
from rmqctl.rocketmq.log.crc import crc32


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
        """Return the client's properties as templates, in the order in which a client puts them."""
        found = {} if tag is None else {"TAGS": tag}
        if self.keys:
            found["KEYS"] = " ".join(self.keys)
        return {**found, **dict(self.properties)}

    def properties_of(self, number: int) -> dict[str, str]:
        """Return the client's properties of message ``number``."""
        return {name: fill(value, number) for name, value in self.texts(self.tag_of(number)).items()}

    def tag_of(self, number: int) -> str | None:
        """Return the tag of message ``number``, by weight."""
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
        """Return the body of message ``number``."""
        if self.body is not None:
            return fill(self.body, number).encode("utf-8", "surrogateescape")
        if self.sizes is not None:
            return noise(self.seed, number, self.size_of(number))
        return b"message %d" % number


_TAG, _SIZE = 1, 2
_NOISE, _PART = 1 << 22, 1 << 16
_STEP = 1031


def seeded(seed: int) -> Random:
    """Return what makes the random parts of a run: the same for the same seed."""
    return Random(seed)  # noqa: S311 - made-up data


def mixed(seed: int, number: int, what: int) -> int:
    """64 bits that look random and depend on nothing else (splitmix64)."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + what) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


_MASK = (1 << 64) - 1


def noise(seed: int, number: int, size: int) -> memoryview:
    """Return a random body: a stretch of 4 MiB of random bytes, another for each number."""
    pool = _pool(seed, size)
    at = number * _STEP % (len(pool) - size)
    return pool[at : at + size]


def fill_noise(seed: int, numbers: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return the random bodies of many messages into ``out``, shape (n, bytes); gives the CRC that each is stored with.

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
    """Return a template with its number."""
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


# --- what client and broker add to a message on its way into the store ------------------------------


Ints = npt.NDArray[np.int64]
_CLUSTER, _UNWAITED, _FIVE = Release(4, 6, 0), Release(4, 9, 1), Release(5, 0, 0)
_MONTH_MS = 31 * 86_400_000
_COUNTER_BITS = 16
_CHANGING = 10
"""Bytes at the end of a key: loader hash, time, counter."""


@dataclass
class Client:
    """A producer process: its address and what makes its unique keys its own.

    Attributes:
        seed: the same seed gives the same keys.
    """

    host: Host
    seed: int

    @cached_property
    def _identity(self) -> tuple[int, int]:
        random = seeded(self.seed)
        return random.getrandbits(_COUNTER_BITS), random.getrandbits(31)

    @cached_property
    def key_prefix(self) -> str:
        """What all its keys begin with: address and process id."""
        layout = UniqueKeyV6 if self.host.is_v6 else UniqueKeyV4
        fields = {"ip": self.host.ip, "pid": self._identity[0], "class_loader_hash": 0, "time": 0, "counter": 0}
        raw: bytes = layout.build(fields)
        return raw[:-_CHANGING].hex().upper()

    def key_parts(self, number: int, born_timestamp: int) -> tuple[int, int, int]:
        """Return the rest of the key of message ``number``: loader hash, time and counter.

        The counter has 16 bits; what is above goes into the loader hash, so that keys stay unique under a
        clock that stands still.
        """
        loader = self._identity[1] ^ number >> _COUNTER_BITS
        return loader, born_timestamp % _MONTH_MS, number & (1 << _COUNTER_BITS) - 1

    def key_columns(self, numbers: Ints, born_timestamps: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the parts of the unique keys of many messages, shape (n,) each."""
        loader = self._identity[1] ^ numbers >> _COUNTER_BITS
        return loader, born_timestamps % _MONTH_MS, numbers & (1 << _COUNTER_BITS) - 1

    def unique_key(self, number: int, born_timestamp: int) -> str:
        """UNIQ_KEY of message ``number``, in the shape of the Java client (spec 2.15)."""
        loader, time, counter = self.key_parts(number, born_timestamp)
        return f"{self.key_prefix}{loader:08X}{time:08X}{counter:04X}"


def client_properties(properties: dict[str, str], unique_key: str) -> dict[str, str]:
    """Return what a client sends: its own properties, UNIQ_KEY and WAIT."""
    return {**properties, "UNIQ_KEY": properties.get("UNIQ_KEY", unique_key), "WAIT": properties.get("WAIT", "true")}


def batch_item(properties: dict[str, str], batch_key: str, config: StoreConfig) -> bytes:
    """Return the stored text of one message of a client batch, whose batch has the unique key ``batch_key``.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    batch = {"WAIT": "true"} if config.release < _FIVE else {"UNIQ_KEY": batch_key, "WAIT": "true"}
    if config.release >= _FIVE:
        batch |= {"MSG_REGION": config.region, "TRACE_ON": "true"}
    if config.release >= _CLUSTER:
        batch["CLUSTER"] = config.cluster
    return batch_item_text(properties, batch if config.release >= _CLUSTER else {}, config.release)


def broker_properties(properties: dict[str, str], config: StoreConfig) -> dict[str, str]:
    """Return what the broker of the release stores of that."""
    stored = {name: properties[name] for name in java_map_order(properties)}  # as the client's text has them
    if config.release >= _FIVE:
        stored |= {"MSG_REGION": config.region, "TRACE_ON": "true", "CLUSTER": config.cluster}
    elif config.release >= _CLUSTER:
        stored["CLUSTER"] = config.cluster
    if _UNWAITED <= config.release < _FIVE:
        stored.pop("WAIT", None)
    return stored


# --- messages stored together -----------------------------------------------------------------------


_MAX_INNER = (1 << 15) - 1
_HEAD = len(BatchItem.build({"total_size": 0, "magic": 0, "body_crc": 0, "flag": 0, "body": b"", "properties": b""}))


def client_batch(messages: Sequence[Message], first_key: int, client: Client, config: StoreConfig) -> list[Message]:
    """Return the records of a batch that a client sends: each has its own text, and what the broker adds for the batch.

    Args:
        messages: with the producer's own properties.
        first_key: number of the first unique key; the batch itself takes the one after its messages'.

    Raises:
        MessageRefused: a property contains a separator.
    """
    now = config.clock.now()
    batch_key = client.unique_key(first_key + len(messages), now)
    found = []
    for number, message in enumerate(messages):
        properties = client_properties(message.properties, client.unique_key(first_key + number, now))
        found.append(replace(message, properties=properties, property_bytes=batch_item(properties, batch_key, config)))
    return found


def inner_batch(messages: Sequence[Message], first_key: int, client: Client, config: StoreConfig) -> Message:
    """One record that holds all messages, for a topic with batch queues.

    Raises:
        MessageRefused: a property contains a separator.
        Refused: too many messages for one record.
    """
    if len(messages) > _MAX_INNER:
        raise Refused(f"{len(messages)} messages in one record, at most {_MAX_INNER}; make smaller batches")
    now = config.clock.now()
    items = []
    for number, message in enumerate(messages):
        properties = client_properties(message.properties, client.unique_key(first_key + number, now))
        items.append(_item(message, client_text(properties, config.release)))
    batch_key = client.unique_key(first_key + len(messages), now)
    stored = broker_properties(client_properties({}, batch_key), config)
    flags = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    return replace(
        messages[0], body=b"".join(items), properties={**stored, INNER_NUM: str(len(messages))}, sys_flag=flags, flag=0
    )


def _item(message: Message, text: bytes) -> bytes:
    size = _HEAD + len(message.body) + len(text)
    fields = {"total_size": size, "magic": 0, "body_crc": 0, "flag": message.flag}
    data: bytes = BatchItem.build({**fields, "body": message.body, "properties": text})
    return data


# --- compressing bodies as clients do ---------------------------------------------------------------


THRESHOLD = 4096
"""Bytes from which on clients compress (compressMsgBodyOverHowmuch)."""
_TYPES = {"lz4": 1, "zstd": 2, "zlib": 3}
_TYPED = Release(4, 9, 4)
_LEVEL = 5


def compress(body: bytes, codec: str, release: Release) -> tuple[bytes, int]:
    """Return the stored body and the SysFlag bits.

    Raises:
        MessageRefused: the release knows no such codec.
    """
    if release < _TYPED and codec != "zlib":
        raise MessageRefused(
            PutStatus.MESSAGE_ILLEGAL,
            f"brokers before {_TYPED} know no {codec}, only zlib; use zlib, or a later release by --as-release",
            "compression",
        )
    kind = _TYPES[codec] << 8 if release >= _TYPED else 0
    return _CODECS[codec](body), int(SysFlag.COMPRESSED) | kind


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, _LEVEL)


def _lz4(body: bytes) -> bytes:
    import lz4.frame

    data: bytes = lz4.frame.compress(body)
    return data


def _zstd(body: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(body)


_CODECS: dict[str, Callable[[bytes], bytes]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
