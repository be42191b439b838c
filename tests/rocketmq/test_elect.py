"""`rmqctl elect` of RocketMQ stores: replicas of a broker that lag, are damaged, or have parted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.epoch import EpochEntry, format_epochs
from tests.conftest import Rmqctl
from tests.rocketmq.diff_helpers import messages, offset_of, read, write


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


def test_the_term_of_a_dledger_entry_is_an_epoch(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Both sides have another last record, the one of a later term counts."""
    roots = []
    for name in "ab":
        golden.extract(Path(golden.DIRECTORY).parent / "rare" / "5.3.3-dledger.tar.xz", tmp_path / name)
        roots.append(tmp_path / name / "5.3.3-dledger")
    assert rmqctl("recover", roots[0], "--apply").exit_code == 13, "the group decides where such a log ends"
    found = elect(rmqctl, *roots, exit_code=0)
    assert [choice["epochs"] for choice in found["choices"]] == [[[0, 48]], [[0, 48]]]
    dump = rmqctl("dump", roots[0], "-o", "jsonl", "--body").stdout.splitlines()
    row = [row for row in map(json.loads, dump) if row["kind"] == "message"][-1]
    path = roots[1] / row["file"]
    data = bytearray(path.read_bytes())
    entry = row["position"] - 48
    data[entry + 16 : entry + 24] = (3).to_bytes(8, "big")
    path.write_bytes(data)
    other = bytearray((roots[0] / row["file"]).read_bytes())
    other[row["position"] + 50] ^= 1  # another time, which no CRC covers
    (roots[0] / row["file"]).write_bytes(other)
    found = elect(rmqctl, *roots, exit_code=0)
    assert found["choices"][1]["epochs"] == [[0, 48], [3, row["physical_offset"]]]
    assert (found["best"], lost(found)[1]) == (str(roots[1]), 0)
    assert found["choices"][1]["superseded"]["records"] == 1
    assert found["relations"][0]["common_end"] == row["physical_offset"]


def test_stores_of_two_families_are_no_replicas(rmqctl: Rmqctl, both: tuple[Path, Path]) -> None:
    assert rmqctl("elect", both[0], golden.pristine("4.3.1-clean")).exit_code == 2


def test_members_of_a_dledger_group_mend_each_other(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Salvage writes no DLedger log, so it is no advice; repair from the other member is, and it works."""
    roots = []
    for name in "ab":
        golden.extract(Path(golden.DIRECTORY).parent / "rare" / "5.3.3-dledger.tar.xz", tmp_path / name)
        roots.append(tmp_path / name / "5.3.3-dledger")
    dump = rmqctl("dump", roots[0], "-o", "jsonl").stdout.splitlines()
    rows = [row for row in map(json.loads, dump) if row["kind"] == "message"]
    for root, row in zip(roots, (rows[10], rows[20]), strict=True):
        data = bytearray((root / row["file"]).read_bytes())
        data[row["position"] + 20 : row["position"] + 60] = bytes(40)
        data[row["position"] + 85 : row["position"] + row["size"]] = bytes(row["size"] - 85)
        (root / row["file"]).write_bytes(data)
    assert elect(rmqctl, *roots, exit_code=1)["salvage"] is False
    text = " ".join(rmqctl("elect", *roots).stdout.split())
    assert "rmqctl salvage" not in text
    leader = next(root for root in roots if f"rmqctl repair {root} --from" in text)
    other = next(root for root in roots if root != leader)
    rmqctl("repair", leader, "--from", other, "--apply")
    assert elect(rmqctl, *roots, exit_code=0)["best"] == str(leader)
