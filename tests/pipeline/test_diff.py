"""`diff --engine spark` says what `diff` says, to the byte."""

from __future__ import annotations

import random
import re
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline.diff import SparkSharing, stretches
from rmqctl.rocketmq.diff.driver import Side
from rmqctl.rocketmq.store.locate import open_store_at

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

STORE = "5.1.4-crash"


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes the sharing."""
    monkeypatch.setattr("rmqctl.pipeline.diff.SparkSharing", partial(SparkSharing, split_size=50_000))


def both(rmqctl: Any, *arguments: object) -> tuple[int, str]:
    """What both engines print, which must be one, but for the seconds."""
    local, spread = (rmqctl("diff", *arguments, "-o", "json", *more) for more in ((), ("--engine", "spark")))
    assert spread.exit_code == local.exit_code, spread.stderr
    texts = [re.sub(r'"seconds": ?[\d.]+', "", result.stdout) for result in (local, spread)]
    assert texts[1] == texts[0]
    return local.exit_code, texts[0]


@pytest.mark.parametrize("by", ["physical", "queue"])
def test_a_store_is_equal_to_itself(by: str, rmqctl: Any) -> None:
    code, _ = both(rmqctl, golden.pristine(STORE), golden.pristine(STORE), "--by", by)
    assert code == 0


@pytest.mark.parametrize("by", ["physical", "queue"])
@pytest.mark.parametrize("names", [("5.3.3-clean", "5.5.0-clean"), ("4.9.8-crash", "5.5.0-rocksdb-clean")])
def test_unrelated_stores(names: tuple[str, str], by: str, rmqctl: Any) -> None:
    code, text = both(rmqctl, *map(golden.pristine, names), "--by", by)
    assert code == 1
    assert text.count('"diff.') > 10


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_copy(seed: int, rmqctl: Any, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = golden.unpack(STORE, tmp_path)
    for file in chance.sample(sorted((root / "commitlog").iterdir()), 2):
        data = bytearray(file.read_bytes())
        for _ in range(3):
            at = chance.randrange(len(data))
            data[at : at + 300] = chance.randbytes(len(data[at : at + 300]))
        file.write_bytes(data)
    for file in chance.sample(sorted((root / "consumequeue").rglob("0000*")), 3):
        data = bytearray(file.read_bytes())
        at = chance.randrange(60)
        data[at : at + 60] = chance.randbytes(60)
        file.write_bytes(data)
    for by in ("physical", "queue"):
        code, text = both(rmqctl, golden.pristine(STORE), root, "--by", by)
        assert code == 1
        assert '"diff.' in text


def test_logs_of_different_begin_and_missing_files(rmqctl: Any, tmp_path: Path) -> None:
    root = golden.unpack(STORE, tmp_path)
    logs = sorted((root / "commitlog").iterdir())
    logs[0].unlink()
    logs[2].unlink()
    shutil.rmtree(min((root / "consumequeue").iterdir()))
    assert both(rmqctl, golden.pristine(STORE), root)[0] == 1
    assert both(rmqctl, root, golden.pristine(STORE), "--no-queues")[0] == 1


def test_moved_messages(rmqctl: Any, tmp_path: Path) -> None:
    salvaged = tmp_path / "salvaged"
    rmqctl("salvage", golden.pristine(STORE), salvaged)
    for by in ("physical", "queue"):
        both(rmqctl, golden.pristine(STORE), salvaged, "--by", by)


def test_stretches_hold_each_byte_once(tmp_path: Path) -> None:
    roots = golden.unpack(STORE, tmp_path / "a"), golden.unpack(STORE, tmp_path / "b")
    logs = sorted((roots[1] / "commitlog").iterdir())
    logs[1].unlink()
    with logs[2].open("ab") as grown:  # reaches over into the next file
        grown.write(bytes(5000))
    a, b = (Side.of_store(open_store_at(str(root)), str(root)).log for root in roots)
    found = stretches(a, b, 7_000)
    for log, side in ((a, "a"), (b, "b")):
        parts = [part for stretch in found for part in getattr(stretch, side)]
        for file in log.files:
            mine = [(p.start, p.stop) for p in parts if p.context.file.name == file.name]
            assert mine[0][0] == 0
            assert all(before[1] == after[0] for before, after in pairwise(mine))
            assert mine[-1][1] is None or file is log.files[-1]
    assert len(found) > 2 * len(a.files)
