"""What the keys and tags of a block's records come to: hashes for the index, and tags codes for queue units (spec 3.2,
4.2, 4.3).

``String.hashCode`` is made of many strings at once: a product of each length's bytes with powers of 31. Delay levels
that only data shows are found on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from formats.dataclass import dataclass
from formats.rocketmq.tags_code import SCHEDULE_TOPIC, delivery_time, parse_delay_levels
from formats.text import java_hash
from rmqctl.rocketmq.log.block import Block, Bytes8, Ints
from rmqctl.rocketmq.log.columns import Pairs, rows_of

Hashes = npt.NDArray[np.uint32]


def hash_codes(data: Bytes8, at: Ints, size: Ints) -> Hashes:
    """Java hashes (as unsigned 32-bit patterns) of the UTF-8 strings ``data[at:at+size]``, shape (n,)."""
    lengths = np.flatnonzero(np.bincount(size)).tolist() if len(at) else []
    if len(lengths) == 1 and lengths[0]:
        return _of_length(rows_of(data, at, lengths[0]))
    result = np.zeros(len(at), np.uint32)
    for length in filter(None, lengths):
        rows = np.flatnonzero(size == length)
        result[rows] = _of_length(rows_of(data, at[rows], length))
    return result


def _of_length(texts: npt.NDArray[np.uint8]) -> Hashes:
    value: Hashes = np.einsum("ij,j->i", texts.astype(np.uint32), _powers(texts.shape[1])[-2::-1])
    if texts.max(initial=0) >= 0x80:
        for row in np.flatnonzero((texts >= 0x80).any(axis=1)):  # the hash is over UTF-16 units, not bytes
            value[row] = java_hash(texts[row].tobytes().decode("utf-8", "replace")) & 0xFFFFFFFF
    return value


def power(size: Ints) -> Hashes:
    """31 to the power of each length: what a prefix's hash is multiplied by, modulo 2^32."""
    return _powers(int(size.max(initial=0)))[size]


@lru_cache(maxsize=64)
def _powers(top: int) -> Hashes:
    """31 to the power of 0 to ``top``, modulo 2^32."""
    table = np.full(top + 1, 31, np.uint32)
    table[0] = 1
    return np.multiply.accumulate(table, dtype=np.uint32)


def utf16_sizes(data: Bytes8, at: Ints, size: Ints) -> Ints:
    """UTF-16 units of each string; its bytes where it is ASCII."""
    if data.max(initial=0) < 0x80:
        return size
    high = np.flatnonzero(data >= 0x80)
    units = size.copy()
    for row in np.flatnonzero(np.searchsorted(high, at + size) != np.searchsorted(high, at)):
        raw = data[at[row] : at[row] + size[row]].tobytes()
        units[row] = len(raw.decode("utf-8", "replace").encode("utf-16-le")) // 2
    return units


def signed(values: Hashes) -> Ints:
    """As Java's int."""
    return values.view(np.int32).astype(np.int64)


def index_hashes(values: Hashes) -> Ints:
    """Absolute values as an index file stores them; the smallest int becomes 0."""
    found = np.abs(signed(values))
    found[found == 1 << 31] = 0
    return found


# --- the tags code that each record's queue unit must carry -----------------------------------------


_SECOND = 1000
Shown = Callable[[int], Iterable[int]]
"""Of a queue of the schedule topic: delivery time less store time of some of its messages, ms."""


@dataclass(slots=True)
class DelayLevels:
    """Delay of each level in ms.

    Without broker.conf the levels are learned from the queues: what most units of a queue show is its level's delay
    (a constant difference is a setting, not damage).

    Attributes:
        known: levels of messageDelayLevel; empty when nobody said.
        shown: what units of a queue show.
    """

    known: dict[int, int]
    shown: Shown
    _learned: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None, shown: Shown) -> DelayLevels:
        """Levels from broker.conf's ``messageDelayLevel``, None to learn them."""
        return cls(parse_delay_levels(text) if text else {}, shown)

    def due(self, level: int, queue_id: int, store_timestamp: int) -> int:
        """When a message of a level is due, in ms: the tags code of its unit."""
        if self.known:
            return delivery_time(store_timestamp, level, self.known)
        if queue_id not in self._learned:
            usual = delivery_time(0, queue_id + 1, parse_delay_levels())
            self._learned[queue_id] = likely_delay(self.shown(queue_id), usual)
        return store_timestamp + self._learned[queue_id]


def likely_delay(shown: Iterable[int], usual: int) -> int:
    """Return the delay of a level, ms: what most units show, of equally many the usual one, or whole seconds.

    Args:
        usual: the delay of this level where nobody configured it.
    """
    counts = Counter(delay for delay in shown if delay > 0 and delay % _SECOND == 0)
    return max(counts, key=lambda delay: (counts[delay], delay == usual), default=usual)


def tags_codes(block: Block, pairs: Pairs) -> Ints:
    """Java hash of each record's TAGS, 0 without; shape (n,)."""
    tags = pairs.named(b"TAGS")
    found = signed(hash_codes(tags.data, tags.value_at, tags.value_size))
    if len(tags) == len(block):
        return found
    codes = np.zeros(len(block), np.int64)
    codes[tags.owner] = found
    return codes


def delayed(pairs: Pairs, topics: Ints, names: list[bytes]) -> dict[int, int]:
    """Rows of the schedule topic with a delay level above 0, each with its level."""
    wanted = [n for n, name in enumerate(names) if name == SCHEDULE_TOPIC.encode()]
    if not wanted or not (topics == wanted[0]).any():
        return {}
    found = {}
    levels = pairs.named(b"DELAY")
    for i in range(len(levels)):
        row, text = int(levels.owner[i]), levels.value(i)
        if topics[row] == wanted[0] and text.isdigit() and int(text) > 0:
            found[row] = int(text)
    return found


# --- the index entries that records must have -------------------------------------------------------


_ROLLBACK = 0xC
_SPACE = 0x20
_TAGS = 2


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Entries that records of a block should have, in the order a broker writes them.

    Attributes:
        owner: row of the record, ascending; hash: as stored; tag: whether it is the entry of the tags,
            which only 5.4.0 and later write; shape (m,).
    """

    owner: Ints
    hash: Ints
    tag: npt.NDArray[np.bool_]

    def without_tags(self) -> KeyColumns:
        """Only the entries that every release writes."""
        keep = ~self.tag
        return KeyColumns(self.owner[keep], self.hash[keep], self.tag[keep])


class KeyHashes:
    """Hashes of keys, with the hash of each topic kept."""

    def __init__(self) -> None:
        self._prefix: list[int] = []
        self._tag_prefix: list[int] = []

    def columns(self, block: Block, pairs: Pairs, topics: Ints, names: list[bytes], *, tags: bool = True) -> KeyColumns:
        """Entries of all records of a block; rollback records have none.

        Args:
            tags: also those of the tags.
        """
        self._learn(names)
        unique, keys = pairs.named(b"UNIQ_KEY"), pairs.named(b"KEYS")
        parts = _parts(keys)
        prefix = np.array(self._prefix, np.uint32)
        columns = [_joined(unique, topics, prefix), _joined(parts, topics, prefix)]
        owners = [unique.owner, parts.owner]
        if tags:
            labels = pairs.named(b"TAGS")
            columns.append(_joined(labels, topics, np.array(self._tag_prefix, np.uint32)))
            owners.append(labels.owner)
        source, owner, hashes = _in_turn(owners, columns)
        rolled_back = (block["sys_flag"] & _ROLLBACK) == _ROLLBACK
        if rolled_back.any():
            kept = ~rolled_back[owner]
            source, owner, hashes = source[kept], owner[kept], hashes[kept]
        return KeyColumns(owner, index_hashes(hashes), source == _TAGS)

    def counts(self, block: Block, pairs: Pairs, *, tags: bool = True) -> npt.NDArray[np.int32]:
        """How many entries each record has, shape (n,): the same without the work of hashing."""
        owners = [pairs.named(b"UNIQ_KEY").owner, _parts(pairs.named(b"KEYS")).owner]
        owners += [pairs.named(b"TAGS").owner] if tags else []
        found = np.bincount(np.concatenate(owners), minlength=len(block)).astype(np.int32)
        found[(block["sys_flag"] & _ROLLBACK) == _ROLLBACK] = 0
        return found

    def _learn(self, names: list[bytes]) -> None:
        for name in names[len(self._prefix) :]:
            topic = name.decode("utf-8", "replace")
            self._prefix.append(java_hash(topic + "#") & 0xFFFFFFFF)
            self._tag_prefix.append(java_hash(topic + "#T#") & 0xFFFFFFFF)


def _in_turn(owners: list[Ints], hashes: list[Hashes]) -> tuple[Ints, Ints, Hashes]:
    """Several columns as one, ordered by owner and then as given: number of the column, owner, hash."""
    if all(np.array_equal(owners[0], other) for other in owners[1:]):  # one of each, as most records have
        count = len(owners)
        source = np.tile(np.arange(count), len(owners[0]))
        return source, np.repeat(owners[0], count), np.stack(hashes, axis=1).reshape(-1)
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    source = np.repeat(np.arange(len(owners)), [len(o) for o in owners])
    return source[order], owner[order], np.concatenate(hashes)[order]


def _joined(pairs: Pairs, topics: Ints, prefix: Hashes) -> Hashes:
    """Hash of the topic's prefix followed by each value: hash(a + b) = hash(a) * 31^len(b) + hash(b)."""
    if not len(pairs):
        return np.zeros(0, np.uint32)
    own = hash_codes(pairs.data, pairs.value_at, pairs.value_size)
    sizes = utf16_sizes(pairs.data, pairs.value_at, pairs.value_size)
    result: Hashes = prefix[topics[pairs.owner]] * power(sizes) + own
    return result


def _parts(keys: Pairs) -> Pairs:
    """Each non-empty part of KEYS between single spaces as a pair of its own, in order."""
    if not len(keys) or not _has_space(keys):
        return keys
    owner, at, size = [], [], []
    for i in range(len(keys)):
        start = int(keys.value_at[i])
        for part in keys.value(i).split(b" "):
            if part:
                owner.append(int(keys.owner[i]))
                at.append(start)
                size.append(len(part))
            start += len(part) + 1
    columns = (np.array(c, np.int64) for c in (owner, at, size))
    own, begin, length = columns
    return Pairs(keys.data, own, begin, length * 0, begin, length)


def _has_space(keys: Pairs) -> bool:
    spaces = np.flatnonzero(keys.data == _SPACE)
    if not len(spaces):
        return False
    inside = np.searchsorted(spaces, keys.value_at)
    found = spaces[np.minimum(inside, len(spaces) - 1)]
    return bool(((found >= keys.value_at) & (found < keys.value_at + keys.value_size)).any())
