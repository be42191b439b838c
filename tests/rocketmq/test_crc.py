"""CRCs and byte strings of pieces of a window, against plain slices."""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.columns import bytes_of
from rmqctl.rocketmq.log.crc import body_crcs

SIZES = st.lists(st.one_of(st.integers(0, 14), st.integers(0, 3000)), max_size=20)


@given(sizes=SIZES, seed=st.integers(0, 99))
def test_pieces_are_slices(sizes: list[int], seed: int) -> None:
    ends = np.cumsum([0, *sizes])
    data = np.random.default_rng(seed).integers(0, 256, int(ends[-1]), np.uint8)
    found = bytes_of(data, ends[:-1], np.array(sizes, np.int64))
    assert found.tolist() == [data[a:b].tobytes() for a, b in pairwise(ends)]


@given(sizes=SIZES, seed=st.integers(0, 99))
def test_body_crcs(sizes: list[int], seed: int) -> None:
    head, noise = 88, np.random.default_rng(seed)
    buffer = bytearray(noise.integers(0, 256, sum(sizes) + head * len(sizes), np.uint8).tobytes())
    size, zero = np.array(sizes, np.int64), np.zeros(len(sizes), np.int64)
    at = np.cumsum(size + head) - size - head
    block = Block("f", 0, 0, np.frombuffer(buffer, np.uint8), at, zero, size + head, size, zero, zero)
    bodies = [buffer[a + head : a + head + n] for a, n in zip(at.tolist(), sizes, strict=True)]
    assert body_crcs(block).tolist() == [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]
