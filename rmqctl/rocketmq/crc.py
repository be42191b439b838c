"""CRC-32 of message bodies as brokers store it: of the stored bytes, top bit cleared (spec 2.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.block import Block, Ints
from rmqctl.rocketmq.columns import bytes_of

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform; the same function at a fifth of the speed
    from zlib import crc32

MASK = 0x7FFFFFFF
_COPIED = 2048  # bytes up to which a copy costs less than a slice of the window


def body_crcs(block: Block) -> npt.NDArray[np.int64]:
    """The CRC each record of a block should carry, computed from its body, shape (n,)."""
    return _crcs(block, block.body_at, block.body_at + block.body_size)


def record_crcs(block: Block, without: int) -> npt.NDArray[np.int64]:
    """The CRC over each whole record less its last ``without`` bytes (spec 2.7), shape (n,)."""
    return _crcs(block, block.at, block.at + block.total_size - without)


def _crcs(block: Block, begin: Ints, end: Ints) -> npt.NDArray[np.int64]:
    """CRCs of pieces of a window: of small ones from copies made in one go, of large ones in place."""
    sizes = end - begin
    large = np.flatnonzero(sizes > _COPIED)
    if not len(large):
        return np.fromiter(map(crc32, bytes_of(block.data, begin, sizes)), np.int64, len(begin)) & MASK
    found, data = np.empty(len(begin), np.int64), memoryview(block.data.data)
    small = np.flatnonzero(sizes <= _COPIED)
    found[small] = [crc32(piece) for piece in bytes_of(block.data, begin[small], sizes[small])]
    found[large] = [crc32(data[a:b]) for a, b in zip(begin[large].tolist(), end[large].tolist(), strict=True)]
    return found & MASK


__all__ = ["MASK", "body_crcs", "crc32", "record_crcs"]
