"""What the keys and tags of a block's records come to: hashes for the index, and tags codes for queue units (spec 3.2,
4.2, 4.3).

``String.hashCode`` is made of many strings of one length at once, eight bytes of each in one number. Delay levels that
only data shows are found on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message import COMMIT, ROLLBACK, TRANSACTION
from formats.rocketmq.tags_code import SCHEDULE_TOPIC, delivery_time, parse_delay_levels
from formats.text import java_hash
from rmqctl.rocketmq.log.block import Block, Bytes8, Ints
from rmqctl.rocketmq.log.columns import Pairs

Hashes = npt.NDArray[np.uint32]


_WORD, _STORED = np.uint64, np.dtype("<u8")
_WIDTH = _STORED.itemsize
_HIGH = _WORD(0x8080808080808080)
_FOUR, _EIGHT = np.uint32(31**4), np.uint32(pow(31, 8, 1 << 32))
Words = npt.NDArray[np.uint64]


def hash_codes(data: Bytes8, at: Ints, size: Ints) -> Hashes:
    """Java hashes (as unsigned 32-bit patterns) of the UTF-8 strings ``data[at:at+size]``, shape (n,)."""
    if not len(at):
        return np.zeros(0, np.uint32)
    first = int(size[0])
    if (size == first).all():
        return _of_length(data, at, first)
    result = np.zeros(len(at), np.uint32)
    for length in np.flatnonzero(np.bincount(size)).tolist():
        rows = np.flatnonzero(size == length)
        result[rows] = _of_length(data, at[rows], length)
    return result


def _of_length(data: Bytes8, at: Ints, length: int) -> Hashes:
    """Hashes of strings of one length, eight bytes at a time."""
    if not length:
        return np.zeros(len(at), np.uint32)
    words = _words(data, at, length)
    if length <= _WIDTH and (words == words[0, 0]).all():  # of one tag, say
        text = data[at[0] : at[0] + length].tobytes()
        return np.full(len(at), java_hash(text.decode("utf-8", "replace")) & 0xFFFFFFFF, np.uint32)
    is_ascii = not np.bitwise_or.reduce(words, axis=None) & _HIGH
    value = _folded(words)
    if is_ascii:
        return value
    for row in np.flatnonzero((_words(data, at, length) & _HIGH).any(axis=0)):  # hashes are of UTF-16 units
        text = data[at[row] : at[row] + length].tobytes()
        value[row] = java_hash(text.decode("utf-8", "replace")) & 0xFFFFFFFF
    return value


def _words(data: Bytes8, at: Ints, length: int) -> Words:
    """Strings of one length as words, shape (words, n): the first of them begins with zeros where bytes lack."""
    count, odd = -(-length // _WIDTH), length % _WIDTH
    first = odd - _WIDTH if odd else 0
    start, step = int(at[0]), int(at[1] - at[0]) if len(at) > 1 else 1
    even = step > 0 and bool((at[1:] - at[:-1] == step).all())
    if odd and (start if even else int(at.min())) + first < 0:
        data, at, start = np.concatenate([np.zeros(_WIDTH, np.uint8), data]), at + _WIDTH, start + _WIDTH
    words = np.empty((count, len(at)), _STORED)
    windows: Words = np.ndarray((len(data) - _WIDTH + 1,), _STORED, data, 0, (1,))
    for number in range(count):
        shift = first + number * _WIDTH
        words[number] = windows[start + shift :: step][: len(at)] if even else windows[at + shift]
    if odd:
        lacking = _WORD(8 * (_WIDTH - odd))
        words[0] >>= lacking
        words[0] <<= lacking
    return words


def _folded(words: Words) -> Hashes:
    """Return the hash of the bytes of each column of words, which are changed: neighbours are put together, then pairs
    of them, then fours of all words; each in the narrowest type that holds it, of which most are worked on at once.
    """
    twos = words.view("<u2")
    second = twos >> np.uint16(8)
    twos &= np.uint16(0xFF)
    twos *= np.uint16(31)
    twos += second
    fours = words.view("<u4")
    second = fours >> np.uint32(16)
    fours &= np.uint32(0xFFFF)
    fours *= np.uint32(31**2)
    fours += second
    total, *rest = fours
    for four in rest:
        total *= _EIGHT
        total += four
    found: Hashes = total[::2] * _FOUR
    found += total[1::2]
    return found


def power(size: Ints) -> Hashes:
    """What a prefix's hash is multiplied by: 31 to the power of each length, modulo 2^32; of one length one item."""
    first = int(size[0])
    if (size == first).all():
        return _powers(first)[first:]
    return _powers(int(size.max()))[size]


@lru_cache(maxsize=64)
def _powers(top: int) -> Hashes:
    """31 to the power of 0 to ``top``, modulo 2^32."""
    table = np.full(top + 1, 31, np.uint32)
    table[0] = 1
    return np.multiply.accumulate(table, dtype=np.uint32)


def utf16_sizes(data: Bytes8, at: Ints, size: Ints) -> Ints:
    """UTF-16 units of each string; its bytes where it is ASCII."""
    high = np.flatnonzero(data >= _FIRST_HIGH)
    units = size.copy()
    for row in np.flatnonzero(np.searchsorted(high, at + size) != np.searchsorted(high, at)):
        raw = data[at[row] : at[row] + size[row]].tobytes()
        units[row] = len(raw.decode("utf-8", "replace").encode("utf-16-le")) // 2
    return units


def signed(values: Hashes) -> Ints:
    """As Java's int."""
    return values.view(np.int32).astype(np.int64)


def index_hashes(values: Hashes) -> npt.NDArray[np.int32]:
    """Absolute values as an index file stores them; the smallest int becomes 0."""
    found = np.abs(values.view(np.int32))
    return np.maximum(found, 0, out=found)


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


_SPACE, _FIRST_HIGH = 0x20, 0x80
_TAGS = 2


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Entries that records of a block should have, in the order a broker writes them.

    Attributes:
        owner: row of the record, ascending; hash: as stored; tag: whether it is the entry of the tags,
            which only 5.4.0 and later write; shape (m,).
    """

    owner: Ints
    hash: npt.NDArray[np.int32]
    tag: npt.NDArray[np.bool_]

    def without_tags(self) -> KeyColumns:
        """Only the entries that every release writes."""
        keep = ~self.tag
        return KeyColumns(self.owner[keep], self.hash[keep], self.tag[keep])


class KeyHashes:
    """Hashes of keys, with the hash of each topic kept.

    Args:
        early: as 3.x, which makes no entry of UNIQ_KEY and none for a transaction that is committed.
    """

    def __init__(self, *, early: bool = False) -> None:
        self._early = early
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
        prefix, is_ascii = np.array(self._prefix, np.uint32), pairs.data.max(initial=0) < _FIRST_HIGH
        if self._early:
            unique = unique.take(np.zeros(len(unique), bool))
        columns = [_joined(one, topics, prefix, is_ascii) for one in (unique, parts)]
        owners = [unique.owner, parts.owner]
        if tags:
            labels = pairs.named(b"TAGS")
            columns.append(_joined(labels, topics, np.array(self._tag_prefix, np.uint32), is_ascii))
            owners.append(labels.owner)
        owner, hashes, tag = _in_turn(owners, columns)
        left_out = self._left_out(block)
        if left_out.any():
            kept = ~left_out[owner]
            owner, hashes, tag = owner[kept], hashes[kept], tag[kept]
        return KeyColumns(owner, index_hashes(hashes), tag)

    def counts(self, block: Block, pairs: Pairs, *, tags: bool = True) -> npt.NDArray[np.int32]:
        """How many entries each record has, shape (n,): the same without the work of hashing."""
        owners = [_parts(pairs.named(b"KEYS")).owner]
        owners += [] if self._early else [pairs.named(b"UNIQ_KEY").owner]
        owners += [pairs.named(b"TAGS").owner] if tags else []
        found = np.bincount(np.concatenate(owners), minlength=len(block)).astype(np.int32)
        found[self._left_out(block)] = 0
        return found

    def _left_out(self, block: Block) -> npt.NDArray[np.bool_]:
        """Which records have no entry, whatever keys they have."""
        kind = block["sys_flag"] & TRANSACTION
        found: npt.NDArray[np.bool_] = kind == ROLLBACK
        return found | (kind == COMMIT) if self._early else found

    def _learn(self, names: list[bytes]) -> None:
        for name in names[len(self._prefix) :]:
            topic = name.decode("utf-8", "replace")
            self._prefix.append(java_hash(topic + "#") & 0xFFFFFFFF)
            self._tag_prefix.append(java_hash(topic + "#T#") & 0xFFFFFFFF)


def _in_turn(owners: list[Ints], hashes: list[Hashes]) -> tuple[Ints, Hashes, npt.NDArray[np.bool_]]:
    """Several columns as one, ordered by owner and then as given: owner, hash, and whether it is the third's."""
    count, first = len(owners), owners[0]
    if all(other is first or np.array_equal(first, other) for other in owners[1:]):  # one of each, as most records have
        rows, tags = np.empty((len(first), count), np.int64), np.zeros((len(first), count), bool)
        rows[:], tags[:, _TAGS:] = first[:, None], True
        return rows.reshape(-1), np.stack(hashes, axis=1).reshape(-1), tags.reshape(-1)
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    source = np.repeat(np.arange(count), [len(o) for o in owners])
    return owner[order], np.concatenate(hashes)[order], source[order] == _TAGS


def _joined(pairs: Pairs, topics: Ints, prefix: Hashes, is_ascii: bool) -> Hashes:
    """Hash of the topic's prefix followed by each value: hash(a + b) = hash(a) * 31^len(b) + hash(b)."""
    if not len(pairs):
        return np.zeros(0, np.uint32)
    sizes = pairs.value_size if is_ascii else utf16_sizes(pairs.data, pairs.value_at, pairs.value_size)
    result: Hashes = prefix[topics[pairs.owner]]
    result *= power(sizes)
    result += hash_codes(pairs.data, pairs.value_at, pairs.value_size)
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
    is_space = keys.data == _SPACE
    if not is_space.any():
        return False
    spaces = np.flatnonzero(is_space)
    inside = np.searchsorted(spaces, keys.value_at)
    found = spaces[np.minimum(inside, len(spaces) - 1)]
    return bool(((found >= keys.value_at) & (found < keys.value_at + keys.value_size)).any())
