"""Whole batches in the wrong place: exchanged, misdirected, in the middle of what was destroyed. They go back."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.release import Release
from rmqctl.repair import apply, undo
from rmqctl.repair.edited_file import Overlay
from tests.kafka.batches import batch, record
from tests.kafka.repair.judged import opened
from tests.kafka.repair.test_leftovers import made, named
from tests.repair.stores import state_of

_DRAW = random.Random(11)
BATCHES, _at = [], 0
for _n in range(24):
    _count = _DRAW.choice([1, 1, 2, 3])
    _values = [record(k, b"%d" % (_at + k), _DRAW.randbytes(_DRAW.choice([10, 10, 40, 90]))) for k in range(_count)]
    BATCHES.append(batch(_at, _values, partition_leader_epoch=_n // 10))
    _at += _count
END = _at
EPOCHS = ", ".join(f"{n} {int.from_bytes(BATCHES[10 * n][:8], 'big')}" for n in range(3))


def stored(batches: list[bytes]) -> dict[str, bytes]:
    """Three segments of eight batches each, whatever they say."""
    names = [named(int.from_bytes(BATCHES[n][:8], "big"), ".log") for n in (0, 8, 16)]
    return {name: b"".join(batches[8 * n : 8 * n + 8]) for n, name in enumerate(names)}


SOUND = stored(BATCHES)


def repaired(files: dict[str, bytes], room: Path) -> tuple[dict[str, bytes], Repair]:
    """The segments after a repair that is carried out; undo gives every byte back."""
    root = made(room / "d", files, EPOCHS, replication=END, recovery_point=END)
    before = state_of(root)
    (room / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), room / "staged")
    assert not found.refusal
    done = apply(found.plan, journal_dir=room / "journals", lock=".lock")
    segments = {path.name: path.read_bytes() for path in sorted((root / "t-0").glob("*.log"))}
    assert done.journal is not None
    undo(done.journal)
    assert state_of(root) == before
    return segments, found


PAIRS = sorted(set(random.Random(5).sample(list(combinations(range(24), 2)), 40)) | {(n, n + 1) for n in range(23)})


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_batches_that_are_exchanged_go_back(one: int, other: int, tmp_path: Path) -> None:
    turned = list(BATCHES)
    turned[one], turned[other] = turned[other], turned[one]
    segments, found = repaired(stored(turned), tmp_path)
    assert segments == SOUND
    assert sum(step.loses for step in found.plan.steps) == 0


@pytest.mark.parametrize("seed", range(12))
def test_batches_in_any_order_in_any_segment_go_back(seed: int, tmp_path: Path) -> None:
    draw, turned = random.Random(seed), list(BATCHES)
    for _ in range(3):
        size, first, second = draw.randrange(1, 5), draw.randrange(0, 10), draw.randrange(14, 20)
        turned[first : first + size], turned[second : second + size] = (
            turned[second : second + size],
            turned[first : first + size],
        )
    segments, found = repaired(stored(turned), tmp_path)
    assert b"".join(segments.values()) == b"".join(SOUND.values())
    assert sum(step.loses for step in found.plan.steps) == 0


@pytest.mark.parametrize("lost", [1, 5, 7, 8, 12, 22])
def test_a_batch_written_over_another_costs_that_one(lost: int, tmp_path: Path) -> None:
    """It is there twice: what lies in the wrong place is no message of that place."""
    source = 3 if lost != 3 else 4
    data = BATCHES[source][: len(BATCHES[lost])].ljust(len(BATCHES[lost]), b"\0")
    segments, _ = repaired(stored([*BATCHES[:lost], data, *BATCHES[lost + 1 :]]), tmp_path)
    after = b"".join(segments.values())
    assert all(one in after for n, one in enumerate(BATCHES) if n != lost)
    assert after.count(BATCHES[source]) == 1
    assert after.count(BATCHES[source][17:]) == 1, "not under another offset either"


@pytest.mark.parametrize("home", [2, 9, 13, 20])
@pytest.mark.parametrize("where", ["after", "before", "elsewhere"])
def test_a_batch_inside_of_destroyed_bytes_is_taken_back(where: str, home: int, tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(150)
    turned = list(BATCHES)
    moved, turned[home] = turned[home], noise
    place = {"after": home + 1, "before": home - 1, "elsewhere": (home + 9) % 23}[where]
    turned[place] = noise[:40] + moved + noise[:25]
    segments, _ = repaired(stored(turned), tmp_path)
    after = b"".join(segments.values())
    assert all(one in after for n, one in enumerate(BATCHES) if n != place)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_batches_of_another_log_are_not_put_into_this_one(count: int, tmp_path: Path) -> None:
    foreign = [batch(500 + n, [record(0, b"k", b"of another log")], partition_leader_epoch=0) for n in range(count)]
    for over in (0, count):
        turned = [*BATCHES[:10], *foreign, *BATCHES[10 + over :]]
        files = stored(BATCHES)
        names = sorted(files)
        files[names[1]] = b"".join(turned[8 : 16 + count - over])
        (tmp_path / str(over)).mkdir()
        segments, _ = repaired(files, tmp_path / str(over))
        after = b"".join(segments.values())
        assert b"of another log" not in after
        assert all(one in after for n, one in enumerate(BATCHES) if not 10 <= n < 10 + over)


@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_that_begins_inside_a_torn_one_and_goes_on_after_it_is_kept(count: int, tmp_path: Path) -> None:
    """A torn frame ends in the middle of a whole batch, where bytes look like another frame."""
    first, last = (int.from_bytes(BATCHES[n][:8], "big") for n in (3, 3 + count))
    values = [record(n, b"k", b"another" if n else BATCHES[4][:61] + b"value") for n in range(last - first)]
    whole = batch(first, values)
    torn = BATCHES[2][:40] + whole
    torn = torn[:8] + (40 + whole.find(BATCHES[4][:61]) - 12).to_bytes(4, "big") + torn[12:]
    sound = [*BATCHES[:2], torn, *BATCHES[3 + count : 8]]
    files = SOUND | {named(0, ".log"): b"".join(sound)}
    segments, found = repaired(files, tmp_path)
    after = b"".join(segments.values())
    assert all(one in after for one in [*sound[:2], whole, *sound[3:]])
    lost = int.from_bytes(BATCHES[3][:8], "big") - int.from_bytes(BATCHES[2][:8], "big")
    assert sum(step.loses for step in found.plan.steps) == lost


@pytest.mark.parametrize(
    ("segment", "position", "bit"),
    [
        pytest.param(
            "compacted-1/00000000000000000324.log", 0, 4, id="another partition has a hole for the wrong offset"
        ),
        pytest.param("compacted-1/00000000000000000324.log", 0, 7, id="no partition has one"),
        pytest.param("compacted-1/00000000000000000294.log", 190, 7, id="within a segment"),
    ],
)
def test_a_bit_in_a_base_offset_of_a_compacted_log(segment: str, position: int, bit: int, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    sound = (root / segment).read_bytes()
    data = bytearray(sound)
    data[position + 7 - bit // 8] ^= 1 << bit % 8
    (root / segment).write_bytes(data)
    (tmp_path / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged")
    assert found.books is not None
    assert found.books.balances
    assert not found.books.given_up
    apply(found.plan, journal_dir=tmp_path / "journals", lock=".lock")
    assert (root / segment).read_bytes() == sound


def test_a_copy_of_another_partition_that_fits_a_gap_goes_and_nothing_is_healed_by_it(tmp_path: Path) -> None:
    """Its epoch begins later, as the checkpoint says: the batch after it comes back with its own."""
    root = golden.unpack("3.9.2-clean", tmp_path)
    path, source = (root / f"{name}.log" for name in (f"append_time-0/{99:020d}", f"z-zstd-1/{110:020d}"))
    sound, foreign = path.read_bytes(), source.read_bytes()[:444]
    path.write_bytes(sound[:474] + foreign + sound[474 + len(foreign) :])
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(3, 9, 2)), tmp_path / "staged")
    assert plan.books is not None
    assert (plan.books.balances, plan.books.placeholders) == (True, 9)  # 107 to 115
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    after = tree.open(f"append_time-0/{path.name}").read_at(0, 1 << 20)
    assert foreign not in after
    assert sound[915:] in after
    assert [f for f in plan.after if f.file.startswith("append_time-0/")] == []
