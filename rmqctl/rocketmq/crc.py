"""CRC-32 of message bodies as brokers store it: of the stored bytes, top bit cleared (spec 2.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rmqctl.rocketmq.block import Block, Ints

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform; the same function at a fifth of the speed
    from zlib import crc32

MASK = 0x7FFFFFFF


def body_crcs(block: Block) -> npt.NDArray[np.int64]:
    """The CRC each record of a block should carry, computed from its body, shape (n,)."""
    return _crcs(block, block.body_at, block.body_at + block.body_size)


def record_crcs(block: Block, without: int) -> npt.NDArray[np.int64]:
    """The CRC over each whole record less its last ``without`` bytes (spec 2.7), shape (n,)."""
    return _crcs(block, block.at, block.at + block.total_size - without)


def _crcs(block: Block, begin: Ints, end: Ints) -> npt.NDArray[np.int64]:
    data = memoryview(block.data.data)
    found = [crc32(data[a:b]) for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    return np.fromiter(found, np.int64, len(found)) & MASK


__all__ = ["MASK", "body_crcs", "crc32", "record_crcs"]
