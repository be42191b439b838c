"""Tiered storage: layouts by hand."""

from __future__ import annotations

import struct

from formats.catalogue import find
from formats.rocketmq import tiered


def test_sizes_are_those_of_the_brokers_constants() -> None:
    sizes = {"tiered-index-header": 28, "tiered-index-slot": 8, "tiered-index-item": 32, "tiered-compact-slot": 8}
    sizes |= {"tiered-compact-item": 28, "tiered-coda": 16, "tiered-queue-unit": 20}
    for name, size in sizes.items():
        found = find(name)
        assert found is not None
        assert found.size == size, name


def test_magics_follow_from_the_brokers_expressions() -> None:
    for magic, step in ((tiered.OPEN_MAGIC, 4), (tiered.CLOSED_MAGIC, 8)):
        assert magic & 0xFFFFFFFF == 0xCCDDEEFF ^ (1880681586 + step)
    assert tiered.TieredCoda.build({"max_store_timestamp": 7}) == struct.pack(
        ">IIq", 16, 0xBBCCDDEE ^ (1880681586 + 8), 7
    )


def test_an_item_by_hand() -> None:
    raw = struct.pack(">iiiqiii", 11, 2, 3, 4096, 126, 5, 9)
    item = tiered.TieredIndexItem.parse(raw)
    assert (item.key_hash, item.topic_id, item.queue_id, item.offset, item.size) == (11, 2, 3, 4096, 126)
    assert (item.time_difference, item.previous) == (5, 9)
    assert tiered.TieredIndexItem.build(item) == raw
    assert tiered.TieredCompactItem.parse(raw).time_difference == 5
    assert tiered.TieredCompactItem.build(item) == raw[:28]
