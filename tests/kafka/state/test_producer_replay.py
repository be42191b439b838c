"""The replay of producers by columns equals the replay batch by batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.kafka.record_batch import Attributes
from rmqctl.files.local import LocalFile
from rmqctl.kafka.loading.producers import _FEW, BATCH_COLUMNS, UNKNOWN, ProducerReplay
from rmqctl.kafka.log.scan import Extent, scan
from tests.kafka.batches import batch, record

BATCHES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(-1, 6), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=4 * _FEW,
)


@given(BATCHES, st.integers(0, 90))
def test_columns_equal_one_after_the_other(drawn: list[tuple[int, int, int, int, bool]], cut: int) -> None:
    rows, offset = [], 0
    for producer, epoch, sequence, count, transactional in drawn:
        rows.append((producer, epoch, sequence, offset, offset + count - 1, 1000 + offset, transactional))
        offset += count
    slow, fast, wanted, found = ProducerReplay(), ProducerReplay(), [], []
    for *values, transactional in rows:
        known = slow.producers.get(values[0])
        wanted.append((known.producer_epoch, known.last_sequence) if known else (UNKNOWN, -1))
        slow.data(*values, transactional=transactional)
    for part in (rows[:cut], rows[cut:]):
        table = np.array(part, np.int64).reshape(-1, 7)
        columns = {name: table[:, i] for i, name in enumerate(BATCH_COLUMNS)}
        before = fast.stretch(columns, table[:, 6] != 0)
        found += list(zip(before.epoch.tolist(), before.sequence.tolist(), strict=True))
    assert found == wanted
    assert fast.rows() == slow.rows()
    assert fast.open == slow.open


def one(base: int, producer: int, sequence: int, attributes: int = 0) -> bytes:
    return batch(
        base,
        [record(0, b"k%d" % base, b"v")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=attributes,
    )


def marker(base: int, producer: int, commit: bool) -> bytes:
    key, value = bytes([0, 0, 0, commit]), bytes(6)
    attributes = Attributes.CONTROL | Attributes.TRANSACTIONAL
    return batch(base, [record(0, key, value)], producer_id=producer, producer_epoch=0, attributes=attributes)


def test_a_block_with_markers(tmp_path: Path) -> None:
    parts, sequences = [], [0, 0, 0]
    for number in range(120):
        producer = number * 7 % 3
        if number % 31 == 30:
            parts.append(marker(number, producer, number % 2 == 0))
        else:
            parts.append(one(number, producer, sequences[producer], Attributes.TRANSACTIONAL))
            sequences[producer] += 1
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    whole, single = ProducerReplay(), ProducerReplay()
    for block in scan(LocalFile(path), Extent(path.name)):
        whole.add(block)
        for row in range(len(block)):
            single.add(block.take(np.array([row])))
    assert whole.rows() == single.rows()
    assert (whole.open, whole.ended) == (single.open, single.ended)
    assert len(whole.ended) == 3
