"""Units of batch queues against the inner batches of the log, field by field."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.unit_kinds import Batch, _out_of_turn

QUEUE = "batchconsumequeue/LabBatchCq/0"
FIRST = f"{QUEUE}/{0:020d}"
SIZE = 46
PHYSICAL, LENGTH, CODE, TIME, BASE, COUNT = (0, ">q"), (8, ">i"), (12, ">q"), (20, ">q"), (28, ">q"), (36, ">h")


def loud(root: Path, split_size: int = 64 << 20) -> list[Finding]:
    found = Verification(open_store_at(str(root)), VerifyOptions(split_size=split_size)).findings()  # type: ignore[arg-type]
    return [f for f in found if f.level != "note"]


@pytest.fixture(params=["5.1.4-clean", "5.5.0-crash"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


def units(root: Path) -> int:
    data = (root / FIRST).read_bytes()
    return sum(data[at : at + 12] != bytes(12) for at in range(0, len(data) - SIZE + 1, SIZE))


def change(root: Path, number: int, field: tuple[int, str], to: Callable[[int], int]) -> None:
    data = bytearray((root / FIRST).read_bytes())
    at = number * SIZE + field[0]
    struct.pack_into(field[1], data, at, to(struct.unpack_from(field[1], data, at)[0]))
    (root / FIRST).write_bytes(data)


CHANGES: dict[str, tuple[tuple[int, str], Callable[[int], int]]] = {
    "position 1 off": (PHYSICAL, lambda v: v + 1),
    "position 8 off": (PHYSICAL, lambda v: v - 8),
    "position 1,000 off": (PHYSICAL, lambda v: v + 1000),
    "size 5": (LENGTH, lambda _: 5),
    "tags": (CODE, lambda v: v ^ 4),
    "time": (TIME, lambda v: v + 1),
    "base one more": (BASE, lambda v: v + 1),
    "base far off": (BASE, lambda v: v + (1 << 40)),
    "count": (COUNT, lambda v: v + 1),
    "no count": (COUNT, lambda _: 0),
    "negative position": (PHYSICAL, lambda _: -1),
}


@pytest.mark.parametrize("which", ["first", "second", "last"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_field_of_a_unit(name: str, which: str, root: Path) -> None:
    number = {"first": 0, "second": 1, "last": units(root) - 1}[which]
    change(root, number, *CHANGES[name])
    for split in (64 << 20, 1 << 15):
        found = loud(root, split)
        assert [(f.kind.id, f.file, f.offset, f.size) for f in found] == [
            ("queue.unit-mismatch", FIRST, number * SIZE, SIZE)
        ]
        assert "wants" in found[0].message


@pytest.mark.parametrize("filler", [bytes(SIZE), struct.pack(">qiq", 0, 0x7FFFFFFF, 0).ljust(SIZE, b"\0")])
def test_a_unit_of_zeros_or_a_filler(filler: bytes, root: Path) -> None:
    data = bytearray((root / FIRST).read_bytes())
    data[SIZE : 2 * SIZE] = filler
    (root / FIRST).write_bytes(data)
    kind = "queue.unit-mismatch" if any(filler) else "queue.hole"
    assert [(f.kind.id, f.offset) for f in loud(root)] == [(kind, SIZE)]


def test_a_copy_of_the_last_unit_is_served_twice(root: Path) -> None:
    count = units(root)
    data = bytearray((root / FIRST).read_bytes())
    copy = data[(count - 1) * SIZE : count * SIZE]
    assert len(data) >= (count + 1) * SIZE
    data[count * SIZE : (count + 1) * SIZE] = copy
    (root / FIRST).write_bytes(data)
    found = loud(root)
    assert [(f.kind.id, f.offset, f.level) for f in found] == [("queue.stale-tail", count * SIZE, "warning")]
    assert "twice" in found[0].message


def test_a_lost_last_unit(root: Path) -> None:
    """Missing after a clean stop; and after a kill, for other queues have units of later records."""
    count = units(root)
    data = bytearray((root / FIRST).read_bytes())
    data[(count - 1) * SIZE : count * SIZE] = bytes(SIZE)
    (root / FIRST).write_bytes(data)
    assert [(f.kind.id, f.offset) for f in loud(root)] == [("queue.missing-units", (count - 1) * SIZE)]


@pytest.mark.parametrize("messages", [16, 28])
def test_batches_that_a_kill_kept_from_their_queues(
    messages: int, rmqctl: Callable[..., Result], tmp_path: Path
) -> None:
    """Dispatch follows the log, so units of batches alone tell where it stood; without any the queues are gone."""
    made = ("--topic", "T", "--queues", 3, "--inner-batch", "--batch", 4, "--count", messages, "--crash")
    assert rmqctl("produce", tmp_path / "s", "--as-release", "5.5.0", "--small", *made).exit_code == 0
    found = list(Verification(open_store_at(str(tmp_path / "s")), VerifyOptions()).findings())
    assert [f for f in found if f.level != "note"] == []
    assert {f.queue_id for f in found if f.kind.id == "queue.undispatched"}
    shutil.rmtree(tmp_path / "s/batchconsumequeue")
    assert {f.kind.id for f in loud(tmp_path / "s")} >= {"queue.missing"}


def test_two_units_exchanged(root: Path) -> None:
    data = bytearray((root / FIRST).read_bytes())
    data[: 2 * SIZE] = data[SIZE : 2 * SIZE] + data[:SIZE]
    (root / FIRST).write_bytes(data)
    assert {f.kind.id for f in loud(root)} == {"queue.unit-mismatch"}


@pytest.mark.parametrize(("physical", "kind"), [(17, "queue.unit-mismatch"), (1 << 40, "queue.ahead")])
def test_a_unit_of_no_batch(physical: int, kind: str, root: Path) -> None:
    """Behind the end of the log it is ahead; inside it stands for nothing."""
    count = units(root)
    data = bytearray((root / FIRST).read_bytes())
    data[count * SIZE : (count + 1) * SIZE] = struct.pack(">qiqqqhii", physical, 99, 0, 5, 1 << 30, 1, -1, 0)
    (root / FIRST).write_bytes(data)
    assert [(f.kind.id, f.offset) for f in loud(root)] == [(kind, count * SIZE)]


def test_a_unit_of_a_damaged_batch_is_its_own_finding_no_more(root: Path) -> None:
    """The record's place in the log is reported once."""
    data = bytearray((root / FIRST).read_bytes())
    physical = struct.unpack_from(">q", data, SIZE)[0]
    data[SIZE : 2 * SIZE] = bytes(SIZE)
    size = max(file.stat().st_size for file in (root / "commitlog").iterdir())
    log = root / "commitlog" / f"{physical // size * size:020d}"
    raw = bytearray(log.read_bytes())
    raw[physical % size + 95] ^= 1
    log.write_bytes(raw)
    assert {(f.kind.id, f.physical_offset) for f in loud(root)} == {("log.body-crc", physical)}
    (root / FIRST).write_bytes(data)
    found = {f.kind.id for f in loud(root)}
    assert found == {"log.body-crc"}, found


@pytest.mark.parametrize(
    ("held", "found"), [("abc", ""), ("acb", "c"), ("cab", "c"), ("ab", "c"), ("bca", "bc"), ("", "abc")]
)
def test_batches_out_of_turn(held: str, found: str) -> None:
    """A batch has its turn where its unit stands after those of all batches before it that had theirs."""
    batch = {name: Batch(1000 + number, 10, 0, 0, number, 1) for number, name in enumerate("abc")}
    assert _out_of_turn([batch[n] for n in "abc"], [batch[n] for n in held]) == [batch[n] for n in found]
