"""Producers of a partition: sequences and epochs by columns, and markers that compaction took too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.kafka.record_batch import Attributes
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.loading.producers import Marker, ProducerReplay
from rmqctl.kafka.loading.snapshots import snapshot_bytes
from rmqctl.kafka.verify.driver import Verification
from tests.kafka.batches import batch, record


def sent(base: int, producer: int, epoch: int, sequence: int, attributes: int = 0, **fields: int) -> bytes:
    fields |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(base, [record(0, b"k%02d" % base, b"v")], attributes=attributes, **fields)


def found(root: Path) -> list[tuple[str, int, str]]:
    checked = Verification(read_directory(LocalTree(str(root))))
    kinds = {"batch.sequence", "batch.producer-epoch", "transaction.marker-gone", "transaction.open"}
    return [(f.kind.id, f.offset, f.message) for f in checked.findings() if f.kind.id in kinds]


def make_log(root: Path, parts: list[bytes]) -> Path:
    directory = root / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(parts))
    return directory


@pytest.mark.parametrize("others", [0, 40])
def test_jumps_are_found_among_few_and_many(tmp_path: Path, others: int) -> None:
    parts = [sent(i, 7, 1, i) for i in range(others)]
    parts += [sent(others + i, 9, e, s) for i, (e, s) in enumerate([(1, 0), (1, 1), (1, 3), (0, 4), (1, 4), (2, 0)])]
    size = len(parts[0])
    make_log(tmp_path, parts)
    assert found(tmp_path) == [
        ("batch.sequence", (others + 2) * size, "producer 9 goes on with sequence 3 where 2 would follow"),
        ("batch.producer-epoch", (others + 3) * size, "producer 9 with epoch 0 after epoch 1"),
    ]


@pytest.mark.parametrize("ended", [True, False])
def test_a_marker_that_compaction_took_too_early(tmp_path: Path, ended: bool) -> None:
    """KAFKA-13727: the snapshot knows that the transaction ended, and the compacted log does not."""
    data = sent(0, 5, 0, 0, Attributes.TRANSACTIONAL)
    compacted = batch(2, [record(1, b"k", b"v")], last_offset_delta=3)
    directory = make_log(tmp_path, [data, compacted])
    replay = ProducerReplay()
    replay.data(5, 0, 0, 0, 0, 1700000000000, transactional=True)
    if ended:
        replay.end(5, 0, 1, Marker(0, 0, 1700000000000))
    (directory / f"{6:020}.snapshot").write_bytes(snapshot_bytes(replay))
    ids = [kind for kind, _, _ in found(tmp_path)]
    assert ids == (["transaction.marker-gone"] if ended else []) + ["transaction.open"]
