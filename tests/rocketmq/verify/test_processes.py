"""Several processes find what one finds."""

from __future__ import annotations

from pathlib import Path

from fixtures import golden
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions


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
