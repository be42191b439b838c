"""Bridges: batches of given offsets and bytes that every strict reader takes, and nobody gets a record from."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from formats.kafka.internal_records import CLUSTER_METADATA, decode_record
from rmqctl.files.local import BytesSource
from rmqctl.kafka.loading.producers import ProducerReplay
from rmqctl.kafka.log.reference import records_of_batch
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.kafka.repair.bridge import MOST, bridge, empty_batch, filler, metadata_batch
from rmqctl.kafka.repair.survey import Batch

PRODUCER = Batch(0, 0, 400, 2, 100, 109, 3, 0, 5000, 4000, 7, 90, 10)


@given(st.integers(72, 70_000), st.integers(0, 1 << 40), st.integers(1, 5000), st.integers(-1, 1 << 42))
def test_a_filler_has_its_offsets_and_its_size(size: int, first: int, count: int, time: int) -> None:
    made = filler(first, first + count - 1, 3, time, size)
    assert made is not None
    (block,) = scan(BytesSource(made), Extent("x"))
    assert (len(made), len(block)) == (size, 1)
    assert block.crc_ok.all()
    assert (block["base_offset"][0], block["last_offset"][0]) == (first, first + count - 1)
    assert len(list(records_of_batch(made))) == 1, "nothing is left after the record that the header announces"
    assert block["attributes"][0] == 0x20


def test_every_small_size() -> None:
    assert len(filler(5, 9, 0, 1, 61) or b"") == 61
    assert [size for size in range(62, 400) if filler(5, 5, 0, 1, size) is None] == list(range(62, 72))
    for size in (*range(72, 400), *range(8240, 8270), *range((1 << 20) + 50, (1 << 20) + 90)):
        made = filler(5, 5, 0, 1, size)
        assert made is not None
        assert (len(made), len(list(records_of_batch(made)))) == (size, 1)
        assert crc32c(made[21:]).to_bytes(4, "big") == made[17:21]
    assert not list(records_of_batch(empty_batch(5, 9, 0, 1)))


@pytest.mark.parametrize(("size", "count"), [(200, 10), (3 * MOST, 10), (3 * MOST + 17, 2), (133, 2)])
def test_a_bridge_covers_its_offsets(size: int, count: int) -> None:
    made = bridge(100, 100 + count, 3, 5000, size, None)
    assert made is not None
    assert len(made) == size
    block = next(iter(scan(BytesSource(made), Extent("x"))))
    assert block["base_offset"].tolist()[0] == 100
    assert block["last_offset"].tolist()[-1] == 99 + count
    assert (block["base_offset"][1:] == block["last_offset"][:-1] + 1).all()
    assert block.size.max() <= MOST or count == 2


def test_the_producer_goes_on() -> None:
    made = bridge(100, 110, 3, 5000, 400, PRODUCER)
    assert made is not None
    assert len(made) == 400
    replay = ProducerReplay()
    for block in scan(BytesSource(made), Extent("x")):
        assert block["last_offset"].tolist() == [108, 109]
        replay.add(block)
    found = replay.producers[4000]
    assert (found.producer_epoch, found.last_sequence) == (7, 99)


@given(st.integers(1, 60), st.integers(0, 1 << 40), st.integers(0, 40_000))
def test_records_of_the_metadata_log_that_change_nothing(count: int, first: int, more: int) -> None:
    least = len(metadata_batch(first, 3, 1000, 0, [], count))
    made = metadata_batch(first, 3, 1000, least + more, [], count)
    assert len(made) == least + more
    (block,) = scan(BytesSource(made), Extent("x"))
    assert block.crc_ok.all()
    records = list(records_of_batch(made))
    assert [record.offset for record in records] == list(range(first, first + count))
    for record in records:
        found = decode_record(CLUSTER_METADATA, record.key, record.value)
        assert found is not None
        assert (found.message.name if found.message else "", found.error) == ("NoOpRecord", "")
