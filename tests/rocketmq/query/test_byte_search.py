"""Bytes found without a copy, against ``bytes.find``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.files.local import BytesSource
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.query import log_search
from rmqctl.rocketmq.query.log_search import Search, find, find_in_copy
from tests.rocketmq.log_files import log_of, record

_FEW = st.lists(st.sampled_from([0, 1, 255]), max_size=40).map(bytes)


@given(data=_FEW, text=_FEW.filter(bool), start=st.integers(0, 45))
def test_equals_bytes_find(data: bytes, text: bytes, start: int) -> None:
    window = np.frombuffer(data, np.uint8)
    assert find(window, text, start) == find_in_copy(window, text, start) == data.find(text, start)


_TEXTS = st.sampled_from([b"", b"KEYS\x01k1 k2\x02", b"KEYS\x01k12\x02TAGS\x01k1", b"UNIQ_KEY\x01k1\x02", b"KEYS\x01k"])


@given(
    records=st.lists(st.tuples(_TEXTS, st.sampled_from([b"", b"k1", b"k"]), st.booleans()), max_size=12),
    key=st.sampled_from(["k1", "k2", "1"]),
)
def test_properties_searched_alone_or_with_the_rest(records: list[tuple[bytes, bytes, bool]], key: str) -> None:
    """The key may stand in a body, across two records, or in a topic: only in properties it counts."""
    log = log_of(record(properties=p, body=b, topic=b"k1" if named else b"T") for p, b, named in records)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for part in (0, 1 << 40):
            patch.setattr(log_search, "_SMALL_PART", part)
            rows = []
            for block in scan(BytesSource(log), Extent("log", 0)):
                rows += [r.physical_offset for r in log_search._matches(block, Search(Filter(key=key)))]
            found.append(rows)
    assert found[0] == found[1]
    assert len(found[0]) == sum(key.encode() in p.split(b"\x02")[0].split(b"\x01")[-1].split(b" ") for p, *_ in records)
