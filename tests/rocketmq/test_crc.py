"""CRCs and byte strings of pieces of a window, against plain slices."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.rocketmq.log.block import Block
from rmqctl.rocketmq.log.columns import Texts, cut_out
from rmqctl.rocketmq.log.crc import body_crcs

SIZES = st.one_of(
    st.lists(st.one_of(st.integers(0, 14), st.integers(0, 3000)), max_size=20),
    st.builds(lambda size, count: [size] * count, st.integers(0, 3000), st.integers(0, 20)),  # all of one size
)


@given(size=st.integers(1, 40), count=st.integers(0, 20), seed=st.integers(0, 99))
def test_pieces_cut_out_are_slices(size: int, count: int, seed: int) -> None:
    noise = np.random.default_rng(seed)
    data, at = noise.integers(0, 256, 200, np.uint8), noise.integers(0, 200 - size, count)
    assert cut_out(data, at, size).tolist() == [data[a : a + size].tobytes() for a in at.tolist()]


@given(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=30), gaps=st.integers(0, 9), seed=st.integers(0, 99))
def test_both_ways_to_texts_are_slices(sizes: list[int], gaps: int, seed: int) -> None:
    noise = np.random.default_rng(seed)
    size = np.array(sizes, np.int64)
    begin = np.cumsum(size + gaps) - size
    end = begin + size
    data = noise.integers(0, 256, int(end[-1]) + gaps, np.uint8)
    texts = [data[a:b].tobytes() for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    for found in (Texts._sliced(data, begin, end), Texts._taken(data, begin, end)):
        assert [found[i] for i in range(len(texts))] == texts
        assert found.start.tolist() == [0, *np.cumsum(size).tolist()]
        assert found.data.tobytes() == b"".join(texts)


@given(sizes=SIZES, seed=st.integers(0, 99))
def test_body_crcs(sizes: list[int], seed: int) -> None:
    head, noise = 88, np.random.default_rng(seed)
    buffer = bytearray(noise.integers(0, 256, sum(sizes) + head * len(sizes), np.uint8).tobytes())
    size, zero = np.array(sizes, np.int64), np.zeros(len(sizes), np.int64)
    at = np.cumsum(size + head) - size - head
    block = Block("f", 0, 0, np.frombuffer(buffer, np.uint8), at, zero, size + head, size, zero, zero)
    bodies = [buffer[a + head : a + head + n] for a, n in zip(at.tolist(), sizes, strict=True)]
    assert body_crcs(block).tolist() == [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]
