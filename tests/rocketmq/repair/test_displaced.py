"""Bytes put into the log or taken out of it, and blocks swapped: the records behind them go back to their places."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fixtures import damage, golden
from fixtures.worse_damage import WorseDamager
from rmqctl.files.local import BytesSource
from rmqctl.rocketmq.log.measure import whole_records
from rmqctl.rocketmq.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.judged import refusals


@pytest.mark.parametrize("kind", ["log_inserted", "log_removed"])
@pytest.mark.parametrize(
    ("base", "seed"), [("4.9.8-clean", 2), ("4.9.8-crash", 3), ("5.5.0-clean", 1), ("5.1.4-crash", 5)]
)
def test_records_that_moved_come_back(base: str, seed: int, kind: str, tmp_path: Path) -> None:
    """All but those that the bytes cut in two, and the last, which went over the end of the file."""
    root = golden.unpack(base, tmp_path)
    recipe = getattr(WorseDamager(base), kind)(random.Random(seed))
    damage.apply(recipe, root)
    conf = golden.write_broker_conf(base, tmp_path / "broker.conf")
    store = open_store_at(str(root), broker_conf=str(conf))
    built = tmp_path / "built"
    built.mkdir()
    repair = plan_repair(store, RepairOptions(), built)
    after = overlaid(store, repair.plan.edits)
    assert refusals(repair, after) == []
    assert sum(step.loses for step in repair.plan.steps) <= 4
    lost = 0
    for before, file in zip(sorted((golden.pristine(base) / "commitlog").iterdir()), after.log_files, strict=True):
        source = file.open()
        content, was = source.read_at(0, file.size), before.read_bytes()
        source.close()
        records = [t for t in golden.truth(base) if t["kind"] == "msg" and Path(t["file"]).name == before.name]
        spans = [slice(t["pos"], t["pos"] + t["storeSize"]) for t in records]
        lost += sum(content[span] != was[span] for span in spans)
    assert lost <= 4


@pytest.mark.parametrize("lost", ["LabOrders/2", ""])
@pytest.mark.parametrize("shift", [1, 20, -4])
def test_records_that_moved_in_the_last_file_come_back_though_queues_are_lost(
    shift: int, lost: str, tmp_path: Path
) -> None:
    """Units lead to those beside them, or to none; each queue goes on at the end of the log."""
    root, name = golden.unpack("4.9.8-clean", tmp_path), f"commitlog/{3 * 131072:020d}"
    content = (root / name).read_bytes()
    at = 36_093  # in the middle of a record
    moved = content[:at] + b"\7" * shift + content[at - min(shift, 0) :]
    (root / name).write_bytes(moved.ljust(len(content), b"\0")[: len(content)])
    shutil.rmtree(root / "consumequeue" / lost)
    store = open_store_at(str(root))
    built = tmp_path / "built"
    built.mkdir()
    repair = plan_repair(store, RepairOptions(), built)
    after = overlaid(store, repair.plan.edits)
    assert refusals(repair, after) == []
    assert not [name for step in repair.plan.steps for name in step.gives_up]
    source = after.log_files[3].open()
    now = source.read_at(0, len(content))
    source.close()
    spans = [
        slice(t["pos"], t["pos"] + t["storeSize"]) for t in golden.truth("4.9.8-clean")
        if t["kind"] == "msg" and t["file"].endswith(Path(name).name)
    ]  # fmt: skip
    gone = [span for span in spans if now[span] != content[span]]
    assert [span.start < at < span.stop for span in gone] == [True]


def test_headers_that_claim_much_are_not_read_again_and_again() -> None:
    """Each claims the rest of the range and is no record; the sound ones in between are found all the same."""
    first = next((golden.pristine("4.9.8-clean") / "commitlog").iterdir())
    truth = next(t for t in golden.truth("4.9.8-clean") if t["kind"] == "msg" and Path(t["file"]).name == first.name)
    raw = first.read_bytes()[truth["pos"] : truth["pos"] + truth["storeSize"]]
    size = 2 << 20
    data, step = bytearray(size), 4 * len(raw)
    for at in range(0, size - step, step):
        data[at : at + 8] = (size - at).to_bytes(4, "big") + raw[4:8]
        data[at + len(raw) : at + 2 * len(raw)] = raw

    class Counting(BytesSource):
        read = 0

        def read_at(self, offset: int, size: int) -> bytes:
            Counting.read += size
            return super().read_at(offset, size)

    found = [at for at, _ in whole_records(Counting(bytes(data)))]
    assert found == list(range(len(raw), size - step + len(raw), step))
    assert Counting.read < 10 * size
