"""``String.hashCode`` of many strings at once: Horner's rule by column over strings of one length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from formats.rocketmq.index import java_hash
from rmqctl.rocketmq.block import Bytes8, Ints
from rmqctl.rocketmq.columns import rows_of

Hashes = npt.NDArray[np.uint32]
_THIRTY_ONE = np.uint32(31)


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
    value = np.zeros(len(texts), np.uint32)
    for column in np.ascontiguousarray(texts.T):
        value *= _THIRTY_ONE
        value += column
    if texts.max(initial=0) >= 0x80:
        for row in np.flatnonzero((texts >= 0x80).any(axis=1)):  # the hash is over UTF-16 units, not bytes
            value[row] = java_hash(texts[row].tobytes().decode("utf-8", "replace")) & 0xFFFFFFFF
    return value


def power(size: Ints) -> Hashes:
    """31 to the power of each length: what a prefix's hash is multiplied by, modulo 2^32."""
    top = int(size.max(initial=0))
    table = np.ones(top + 1, np.uint32)
    for at in range(1, top + 1):
        table[at] = np.uint32(int(table[at - 1]) * 31 & 0xFFFFFFFF)
    return table[size]


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
