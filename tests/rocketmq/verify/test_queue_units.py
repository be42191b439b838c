"""Units of delayed messages, and copies of units after a queue's end."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.rocketmq.dispatch.keys import DelayLevels, likely_delay
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.rocketmq.rare_stores_helpers import RARE

FIRST = f"{0:020d}"
SIZE = 20


def loud(root: Path) -> list[Finding]:
    found = Verification(open_store_at(str(root)), VerifyOptions()).findings()  # type: ignore[arg-type]
    return [f for f in found if f.level != "note"]


def units(path: Path) -> list[tuple[int, int, int]]:
    data = path.read_bytes()
    return [unit for unit in struct.iter_unpack(">qiq", data[: len(data) // SIZE * SIZE]) if unit[1]]


def write(path: Path, number: int, unit: tuple[int, int, int]) -> None:
    with path.open("r+b") as file:
        file.seek(number * SIZE)
        file.write(struct.pack(">qiq", *unit))


@pytest.fixture(params=["4.5.2-clean", "5.5.0-clean"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


@pytest.mark.parametrize("wrong", [123456789, 0, -5])
def test_the_first_unit_of_a_delay_level(wrong: int, root: Path) -> None:
    """The damaged one is named, and it wants the time when the message is due."""
    for path in sorted((root / "consumequeue" / "SCHEDULE_TOPIC_XXXX").glob(f"*/{FIRST}")):
        before = path.read_bytes()
        physical, size, due = units(path)[0]
        write(path, 0, (physical, size, wrong))
        found = loud(root)
        assert [(f.kind.id, f.offset, f.size) for f in found] == [("queue.unit-mismatch", 0, SIZE)]
        assert str((physical, size, due)) in found[0].message
        path.write_bytes(before)


def test_a_copy_of_the_last_unit_after_the_end(root: Path) -> None:
    path = max((root / "consumequeue").glob("Lab*/0"), key=lambda p: len(list(p.iterdir())))
    last = max(path.iterdir())
    count = len(units(last))
    assert 0 < count < last.stat().st_size // SIZE
    write(last, count, units(last)[-1])
    found = loud(root)
    assert [(f.kind.id, f.offset, f.level) for f in found] == [("queue.stale-tail", count * SIZE, "warning")]


@pytest.mark.parametrize(
    ("shown", "usual", "expected"),
    [
        ([], 1000, 1000),
        ([7000], 1000, 7000),
        ([7001], 1000, 1000),
        ([-1000], 5000, 5000),
        ([7000, 1000], 1000, 1000),
        ([1000, 7000], 1000, 1000),
        ([7000, 7000, 1000], 1000, 7000),
        ([123, 7000, 123, 123], 1000, 7000),
    ],
)
def test_the_delay_of_a_level(shown: list[int], usual: int, expected: int) -> None:
    assert likely_delay(shown, usual) == expected


def test_levels_of_a_setting_count() -> None:
    def shown(queue_id: int) -> Iterable[int]:
        raise AssertionError(queue_id)

    levels = DelayLevels.of("2s 9s", shown)
    assert [levels.due(level, level - 1, 10) for level in (1, 2, 3)] == [2010, 9010, 9010]
    learned = DelayLevels.of(None, {0: [3000], 1: [8]}.__getitem__)
    assert [learned.due(level, level - 1, 10) for level in (1, 2, 1)] == [3010, 5010, 3010]


@pytest.mark.parametrize("kind", ["epochs", "dledger", ""])
def test_what_replicas_have_not_confirmed_has_no_unit_after_a_clean_stop(kind: str, tmp_path: Path) -> None:
    """Under a controller, and in a DLedger group; of any other broker dispatch reaches the end when it stops."""
    root = tmp_path / "5.3.3-dledger"
    if kind == "dledger":
        golden.extract(RARE / f"{root.name}.tar.xz", tmp_path)
    else:
        root = golden.unpack("5.3.3-clean", tmp_path)
    if kind == "epochs":
        (root / "epochFileCheckpoint").write_text("1-0\n", "utf-8")
    ends = [(found[-1], len(found) - 1, path) for path in root.glob("consumequeue/*/*/*") if (found := units(path))]
    _, number, path = max(ends)
    write(path, number, (0, 0, 0))
    found = {f.kind.id for f in Verification(open_store_at(str(root)), VerifyOptions()).findings()}
    assert found & {"queue.undispatched", "queue.missing-units"} == {
        "queue.undispatched" if kind else "queue.missing-units"
    }
