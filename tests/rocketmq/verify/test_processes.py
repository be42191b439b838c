"""Several processes find what one finds."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import all_kinds
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.splits import SPLIT_ALONE, SPLIT_SIZE, size_for

GIB = 1 << 30


def findings(root: Path, processes: int) -> list[dict[str, object]]:
    options = VerifyOptions(processes=processes, split_size=1 << 15)
    return [f.row() for f in Verification(open_store_at(str(root)), options).findings()]


def test_damage_everywhere_is_told_in_the_same_words(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    for name, at in (
        ("commitlog/00000000000000131072", 5000),
        ("consumequeue/LabOrders/0/00000000000000000000", 7),
        (f"index/{min(f.name for f in (root / 'index').iterdir())}", 40 + 500 * 4 + 20 * 5 + 19),
    ):
        data = bytearray((root / name).read_bytes())
        data[at] ^= 1
        (root / name).write_bytes(data)
    one = findings(root, 1)
    assert {"index.chain", "queue.unit-mismatch"} < {f["id"] for f in one}
    assert findings(root, 2) == one


def test_a_store_time_that_is_damaged_is_known_to_all(tmp_path: Path) -> None:
    """Index entries of such a record are no finding: what another process says of the log counts where they are judged."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    log = root / "commitlog" / "00000000000000393216"
    data = bytearray(log.read_bytes())
    data[110_248 + 2] ^= 1  # of a record with three keys
    log.write_bytes(data)
    one = findings(root, 1)
    assert "log.store-time" in {f["id"] for f in one}
    assert "index.entry-time" not in {f["id"] for f in one}
    assert findings(root, 2) == one


def test_kinds_are_the_same_after_a_journey() -> None:
    assert all(pickle.loads(pickle.dumps(kind)) is kind for kind in all_kinds())


@pytest.mark.parametrize(
    ("length", "processes", "size"),
    [
        (GIB, 1, SPLIT_ALONE),
        (GIB, 2, GIB // 8),
        (GIB, 8, SPLIT_SIZE),
        (100 * GIB, 8, SPLIT_ALONE),
        (0, 2, SPLIT_SIZE),
    ],
)
def test_each_process_gets_several_splits_none_of_them_small(length: int, processes: int, size: int) -> None:
    assert size_for(length, processes) == size
