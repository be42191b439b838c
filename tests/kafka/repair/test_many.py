"""Many damaged batches in one log: each is mended as if it were the only one, and no other is read for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqctl.kafka.directory import directory as directory_module
from rmqctl.kafka.repair import overlaid as overlaid_module
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.kafka.repair.sides import Side
from rmqctl.kafka.repair.survey import Survey
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from tests.benchmarks.kafka_logs import make_partitions
from tests.kafka.batches import TIME, batch, record
from tests.kafka.repair.judged import opened
from tests.kafka.repair.test_leftovers import made, named

NAME = named(0, ".log")


def log(count: int) -> list[bytes]:
    """Batches of two records, all of one size, a millisecond apart."""
    values = [record(n, b"key", b"value %d" % n * 5) for n in range(2)]
    return [batch(2 * n, values, base_timestamp=TIME + n, max_timestamp=TIME + n) for n in range(count)]


def placed(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


def repaired(batches: list[bytes], room: Path) -> tuple[bytes, Repair]:
    """The log after a repair, and the plan."""
    root = made(room / "d", {NAME: b"".join(batches)}, "0 0", replication=0, recovery_point=0)
    (room / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), room / "staged")
    source = Overlay(opened(root).tree, found.plan.edits).open(f"t-0/{NAME}")
    data = source.read_at(0, source.size())
    source.close()
    return data, found


@pytest.mark.parametrize("count", [2, 3, 7])
def test_first_bytes_of_batches_in_a_row_come_back(count: int, tmp_path: Path) -> None:
    """Those in the middle touch no batch that was whole before: all together have just the offsets between two."""
    sound = log(30)
    damaged = [b"\xa5" * 17 + one[17:] if 10 <= n < 10 + count else one for n, one in enumerate(sound)]
    data, found = repaired(damaged, tmp_path)
    assert data == b"".join(sound)
    assert found.left == ()


def test_a_base_offset_that_became_the_one_that_another_lost_is_healed_in_its_place(tmp_path: Path) -> None:
    """The batch of 40 says 1064, and that of 1064 says 1576: it is none that was moved from there."""
    sound = log(1000)
    damaged = list(sound)
    damaged[20], damaged[532] = placed(sound[20], 40 ^ 1024), placed(sound[532], 1064 ^ 512)
    data, found = repaired(damaged, tmp_path)
    assert data == b"".join(sound)
    assert found.left == ()


def test_low_bits_of_base_offsets_are_not_taken_for_compaction(tmp_path: Path) -> None:
    sound = log(100)
    damaged = [placed(one, 2 * n + 1) if n in {20, 40, 60, 80} else one for n, one in enumerate(sound)]
    damaged[50] = placed(sound[50], 98)  # as the one before it
    data, found = repaired(damaged, tmp_path)
    assert data == b"".join(sound)
    assert found.left == ()


@pytest.mark.parametrize("kind", ["epochs", "first bytes"])
def test_batches_that_are_read_for_a_damaged_one_do_not_grow_with_the_log(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = [0]

    def counted(of: type, name: str) -> None:
        plain = getattr(of, name)

        def read(self: object, *args: object) -> object:
            reads[0] += 1
            return plain(self, *args)

        monkeypatch.setattr(of, name, read)

    counted(Side, "bytes_at")
    counted(Survey, "raw")
    taken = list[int]()
    for size in (200, 800):
        sound, reads[0] = log(size), 0
        damaged = list(sound)
        for n in (n + beside for n in range(size - 180, size - 8, 18) for beside in (0, kind != "epochs")):
            one = sound[n]
            damaged[n] = one[:12] + b"\0\0\0\5" + one[16:] if kind == "epochs" else b"\xa5" * 17 + one[17:]
        (tmp_path / str(size)).mkdir()
        data, _ = repaired(damaged, tmp_path / str(size))
        assert data == b"".join(sound)
        taken.append(reads[0])
    assert taken[1] <= taken[0] + 20


@pytest.mark.parametrize("kind", ["partitions", "segments"])
def test_what_is_looked_at_grows_with_the_damage_and_with_the_log_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with one times the other: a step costs what it changes, and a batch is looked for in one place."""
    counts = Counter[str]()

    def count(owner: object, name: str) -> None:
        plain = getattr(owner, name)

        def counted(*args: object, **named: object) -> object:
            counts[name] += 1
            return plain(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    for module in (directory_module, overlaid_module):
        count(module, "read_partition")
    count(Side, "batches")
    taken = list[int]()
    for number in (5, 10, 20):
        root = tmp_path / str(number)
        if kind == "partitions":
            make_partitions(root, number, segments=2, batches=2)
            hurt = sorted(root.glob(f"topic*/{6:020d}.log"))
        else:
            files = {named(8 * n, ".log"): b"".join(log(4 * n + 4)[4 * n :]) for n in range(number)}
            made(root, files, "0 0", replication=8 * number, recovery_point=8 * number)
            hurt = sorted(root.glob("t-0/*.log"))
        for path in hurt:
            data = bytearray(path.read_bytes())
            data[100] ^= 4
            path.write_bytes(data)
        assert len(hurt) == number
        (tmp_path / f"staged-{number}").mkdir()
        counts.clear()
        found = plan_repair(opened(root), RepairOptions(Release(4, 1, 0)), tmp_path / f"staged-{number}")
        assert sum("heal the batch" in step.what for step in found.plan.steps) == number
        taken.append(counts.total())
    assert taken[2] - taken[1] <= 2 * (taken[1] - taken[0])
