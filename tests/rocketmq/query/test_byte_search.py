"""Bytes found without a copy, against ``bytes.find``."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.rocketmq.query.log_search import find, find_in_copy

_FEW = st.lists(st.sampled_from([0, 1, 255]), max_size=40).map(bytes)


@given(data=_FEW, text=_FEW.filter(bool), start=st.integers(0, 45))
def test_equals_bytes_find(data: bytes, text: bytes, start: int) -> None:
    window = np.frombuffer(data, np.uint8)
    assert find(window, text, start) == find_in_copy(window, text, start) == data.find(text, start)
