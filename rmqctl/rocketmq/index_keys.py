"""The index entries that records must have: hashes of their unique key, keys and tags (spec 4.2, 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from formats.rocketmq.index import java_hash
from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import Pairs
from rmqctl.rocketmq.java_hash import Hashes, hash_codes, index_hashes, power, utf16_sizes

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


__all__ = ["KeyColumns", "KeyHashes"]
