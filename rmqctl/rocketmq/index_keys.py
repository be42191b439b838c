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
_LAST = 1 << 20


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


class KeyHashes:
    """Hashes of keys, with the hash of each topic kept.

    Args:
        tags: with the entries of tags, which only 5.4.0 and later write.
    """

    def __init__(self, *, tags: bool = True) -> None:
        self._tags = tags
        self._prefix: list[int] = []
        self._tag_prefix: list[int] = []

    def columns(self, block: Block, pairs: Pairs, topics: Ints, names: list[bytes]) -> KeyColumns:
        """Entries of all records of a block; rollback records have none."""
        self._learn(names)
        unique, keys, tags = pairs.named(b"UNIQ_KEY"), pairs.named(b"KEYS"), pairs.named(b"TAGS")
        if not self._tags:
            tags = tags.take(np.zeros(0, np.int64))
        parts = _parts(keys)
        owner = np.concatenate([unique.owner, parts.owner, tags.owner])
        rank = np.concatenate([np.zeros(len(unique), np.int64), 1 + np.arange(len(parts)), np.full(len(tags), _LAST)])
        hashes = np.concatenate(
            [
                _joined(unique, topics, np.array(self._prefix, np.uint32)),
                _joined(parts, topics, np.array(self._prefix, np.uint32)),
                _joined(tags, topics, np.array(self._tag_prefix, np.uint32)),
            ]
        )
        order = np.lexsort((rank, owner))
        rolled_back = (block["sys_flag"] & _ROLLBACK) == _ROLLBACK
        if rolled_back.any():
            order = order[~rolled_back[owner[order]]]
        return KeyColumns(owner[order], index_hashes(hashes)[order], (rank == _LAST)[order])

    def counts(self, block: Block, pairs: Pairs) -> npt.NDArray[np.int32]:
        """How many entries each record has, shape (n,): the same without the work of hashing."""
        owners = [pairs.named(b"UNIQ_KEY").owner, _parts(pairs.named(b"KEYS")).owner]
        owners += [pairs.named(b"TAGS").owner] if self._tags else []
        found = np.bincount(np.concatenate(owners), minlength=len(block)).astype(np.int32)
        found[(block["sys_flag"] & _ROLLBACK) == _ROLLBACK] = 0
        return found

    def _learn(self, names: list[bytes]) -> None:
        for name in names[len(self._prefix) :]:
            topic = name.decode("utf-8", "replace")
            self._prefix.append(java_hash(topic + "#") & 0xFFFFFFFF)
            self._tag_prefix.append(java_hash(topic + "#T#") & 0xFFFFFFFF)


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
