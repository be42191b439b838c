"""`rmqctl elect` of RocketMQ stores: replicas of a broker that lag, are damaged, or have parted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.epoch import EpochEntry, format_epochs
from tests.conftest import Rmqctl
from tests.rocketmq.test_diff import messages, offset_of, read, write


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return golden.unpack("5.1.4-clean", tmp_path / "a"), golden.unpack("5.1.4-clean", tmp_path / "b")


def elect(rmqctl: Rmqctl, *roots: Path, exit_code: int) -> dict[str, Any]:
    done = rmqctl("elect", *roots, "-o", "json")
    assert done.exit_code == exit_code, done.output
    (found,) = json.loads(done.stdout)["logs"]
    return dict(found)


def lost(found: dict[str, Any]) -> list[int]:
    return [choice["lost"]["records"] for choice in found["choices"]]


def test_equal_stores_may_both_lead(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    found = elect(rmqctl, *both, exit_code=0)
    assert lost(found) == [0, 0]
    assert found["relations"][0]["first_divergence"] is None


def test_slave_that_lags_loses_what_the_master_has(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    a, b = both
    rows = messages("5.1.4-clean")
    for row in rows[-5:]:
        write(b, offset_of(row), bytes(8))
    found = elect(rmqctl, b, a, exit_code=0)
    assert lost(found)[1] == 0
    assert lost(found)[0] >= 5
    assert found["best"] == str(a)
    assert found["relations"][0]["only_b"]["records"] >= 5


def test_damage_on_both_sides_loses_either_way(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    a, b = both
    rows = messages("5.1.4-clean")
    for root, row in ((a, rows[10]), (b, rows[20])):
        place = offset_of(row) + 90
        write(root, place, bytes([read(root, place, 1)[0] ^ 1]))
    found = elect(rmqctl, a, b, exit_code=1)
    assert lost(found)[0] >= 1
    assert lost(found)[1] >= 1
    assert found["salvage"] is True
    assert found["choices"][0]["lost"]["offsets"][0][0] <= offset_of(rows[10])


def test_a_later_master_epoch_has_overwritten_the_rest(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    a, b = both
    rows = messages("5.1.4-clean")
    start = offset_of(rows[-4])
    for root, entries in ((a, [EpochEntry(1, 0)]), (b, [EpochEntry(1, 0), EpochEntry(2, start)])):
        (root / "epochFileCheckpoint").write_bytes(format_epochs(entries))
    for row in rows[-4:]:
        write(b, offset_of(row), bytes(8))
    found = elect(rmqctl, a, b, exit_code=0)
    assert found["best"] == str(b)
    assert found["choices"][1]["superseded"]["records"] >= 4
    assert found["relations"][0]["common_end"] == start


def test_stores_of_two_families_are_no_replicas(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    assert rmqctl("elect", both[0], golden.pristine("4.3.1-clean")).exit_code == 2
