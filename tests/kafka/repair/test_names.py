"""Segments under wrong names: exchanged, renamed, copied, of another log. What their batches say decides."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Severity
from rmqctl.kafka.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.kafka.verify.driver import Verification
from rmqctl.release import Release
from rmqctl.repair import apply, undo
from rmqctl.repair.edited_file import Overlay
from tests.kafka.repair.judged import opened
from tests.kafka.repair.markers_helpers import alone
from tests.kafka.repair.test_leftovers import made, named, one, run
from tests.repair.stores import state_of

Segments = dict[str, bytes]
FEW = ("3.9.2-crash", "txn-a-0"), ("4.3.1-clean", "deleted-rec-1")


def several() -> list[object]:
    """Partitions with more than one segment."""
    found = list[object]()
    for name in golden.KAFKA_NAMES:
        for partition in opened(golden.pristine(name)).partitions:
            if partition.is_plain and not partition.is_metadata_log and len(partition.logs) > 1:
                is_slow = (name, partition.directory) not in FEW
                found.append(pytest.param(name, partition.directory, marks=[pytest.mark.slow] if is_slow else []))
    return found


class Store:
    """A log directory with one partition of a golden one, and what its checkpoints say of it."""

    def __init__(self, name: str, directory: str, room: Path) -> None:
        self.root, self.release = alone(name, directory, room), Release.parse(name.partition("-")[0])
        self.logs, self.room = self.root / directory, room
        topic, _, number = directory.rpartition("-")
        if name.endswith("clean"):
            (self.root / ".kafka_cleanshutdown").touch()
        for checkpoint in ("cleaner-offset-checkpoint", "log-start-offset-checkpoint"):
            every = (golden.pristine(name) / checkpoint).read_text().splitlines()[2:]
            own = [line for line in every if line.startswith(f"{topic} {number} ")]
            (self.root / checkpoint).write_text("\n".join(["0", str(len(own)), *own, ""]))
        self.sound, self.findings = self.segments(), self._findings()
        self.before = {path.name: path.read_bytes() for path in self.logs.iterdir()}

    def segments(self) -> Segments:
        """The segments that hold something."""
        return {path.name: data for path in self.logs.glob("*.log") if (data := path.read_bytes())}

    def _findings(self) -> set[tuple[str, str]]:
        found = Verification(opened(self.root)).findings()
        return {(f.kind.id, f.file) for f in found if f.level is not Severity.NOTE}

    def again(self) -> None:
        """Put every file back."""
        for path in self.logs.iterdir():
            path.unlink()
        for name, data in self.before.items():
            (self.logs / name).write_bytes(data)

    def repaired(self) -> tuple[Segments, Repair]:
        """The segments as a plan would leave them; it is to leave nothing that was not wrong before the damage."""
        self.room.joinpath("staged").mkdir(exist_ok=True)
        plan = plan_repair(opened(self.root), RepairOptions(self.release), self.room / "staged")
        tree = Overlay(LocalTree(str(self.root)), plan.plan.edits)
        names = [entry.path for entry in tree.entries(self.logs.name) if entry.name.endswith(".log")]
        found = {name.rpartition("/")[2]: tree.open(name).read_at(0, 1 << 30) for name in names}
        assert {(f.kind.id, f.file) for f in plan.after} <= self.findings
        assert not plan.refusal
        return {name: data for name, data in found.items() if data}, plan


@pytest.mark.parametrize(("name", "directory"), several())
def test_any_two_segments_that_are_exchanged_go_back(name: str, directory: str, tmp_path: Path) -> None:
    store = Store(name, directory, tmp_path)
    for one_name, other in combinations(sorted(path.name for path in store.logs.glob("*.log")), 2):
        store.again()
        (store.logs / one_name).write_bytes(store.before[other])
        (store.logs / other).write_bytes(store.before[one_name])
        segments, plan = store.repaired()
        assert segments == store.sound, (one_name, other)
        assert sum(step.loses for step in plan.plan.steps) == 0
        assert not any("bridge" in step.what or "heal" in step.what for step in plan.plan.steps)


@pytest.mark.parametrize(("name", "directory"), several())
def test_a_log_alone_under_another_name_goes_back(name: str, directory: str, tmp_path: Path) -> None:
    store = Store(name, directory, tmp_path)
    bases = [int(path.name[:20]) for path in sorted(store.logs.glob("*.log"))]
    for base in bases:
        for other in sorted({base + 1, base + 1000, max(base - 3, 0), base ^ 4, base ^ 512, base + 10**6} - {*bases}):
            store.again()
            (store.logs / named(base, ".log")).rename(store.logs / named(other, ".log"))
            segments, plan = store.repaired()
            assert segments == store.sound, (base, other)
            assert sum(step.loses for step in plan.plan.steps) == 0


@pytest.mark.parametrize("wrong", ["copy.log", "30.log", "0000000000000000003x.log"])
def test_a_log_without_an_offset_in_its_name_gets_one(wrong: str, tmp_path: Path) -> None:
    store = Store("3.9.2-crash", "txn-a-0", tmp_path)
    for base in store.sound:
        store.again()
        (store.logs / base).rename(store.logs / wrong)
        assert store.repaired()[0] == store.sound


FILES = {named(0, ".log"): run(0, 20), named(20, ".log"): run(20, 40), named(40, ".log"): run(40, 60)}


def mended(root: Path) -> tuple[Segments, str]:
    """The segments after a repair that is carried out, and what it said; undo gives every byte back."""
    before = state_of(root)
    staged = root.parent / "staged"
    staged.mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), staged).plan
    done = apply(plan, journal_dir=root.parent / "journals", lock=".lock")
    found = {path.name: path.read_bytes() for path in sorted((root / "t-0").glob("*.log"))}
    assert done.journal is not None
    undo(done.journal)
    assert state_of(root) == before
    return found, " ".join(f"{step.what}; {step.why}" for step in plan.steps)


def test_a_name_among_the_offsets_before_hides_records(tmp_path: Path) -> None:
    """No batch is out of order; a broker looks for 12 to 19 in the second segment."""
    files = {**FILES, named(12, ".log"): FILES[named(20, ".log")]}
    del files[named(20, ".log")]
    root = made(tmp_path / "d", files, replication=60, recovery_point=60)
    assert "segment.name" in {f.kind.id for f in Verification(opened(root)).findings()}
    assert mended(root)[0] == FILES


def test_an_empty_end_under_an_offset_that_the_log_has(tmp_path: Path) -> None:
    """A broker would give the offsets from 50 on out again."""
    root = made(tmp_path / "d", {**FILES, named(50, ".log"): b""}, replication=60, recovery_point=60)
    assert "segment.name" in {f.kind.id for f in Verification(opened(root)).findings()}
    assert mended(root)[0] == {**FILES, named(60, ".log"): b""}


def test_a_copy_of_a_segment_in_the_place_of_another_goes(tmp_path: Path) -> None:
    files = {**FILES, named(20, ".log"): FILES[named(40, ".log")], named(20, ".index"): b""}
    found, _ = mended(made(tmp_path / "d", files, replication=60, recovery_point=60))
    assert {name: found[name] for name in (named(0, ".log"), named(40, ".log"))} == {
        name: FILES[name] for name in (named(0, ".log"), named(40, ".log"))
    }
    assert FILES[named(40, ".log")] not in found.get(named(20, ".log"), b"")


@pytest.mark.parametrize("first", [15, 25, 35])
def test_a_segment_of_another_log_is_not_believed_against_sound_ones(first: int, tmp_path: Path) -> None:
    """It has more batches than both beside it, and some have offsets that are missing."""
    files = {**FILES, named(20, ".log"): run(first, first + 100, b"of another log"), named(20, ".index"): b""}
    found, _ = mended(made(tmp_path / "d", files, replication=60, recovery_point=60))
    assert b"of another log" not in b"".join(found.values())
    assert found[named(0, ".log")] == FILES[named(0, ".log")]
    assert found[named(40, ".log")] == FILES[named(40, ".log")]


def test_a_damaged_segment_under_another_name_goes_back_first(tmp_path: Path) -> None:
    size = len(one(20))
    torn = bytes(size) + FILES[named(20, ".log")][size:]
    files = {**FILES, named(1020, ".log"): torn, named(20, ".index"): b""}
    del files[named(20, ".log")]
    found, _ = mended(made(tmp_path / "d", files, replication=60, recovery_point=60))
    assert {**found, named(20, ".log"): b""} == {**FILES, named(20, ".log"): b""}
    assert found[named(20, ".log")][size:] == FILES[named(20, ".log")][size:]


@pytest.mark.parametrize("gone", [0, 20, 40])
@pytest.mark.parametrize("damage", [None, 3, 25, 44])
def test_a_swap_gives_what_is_gone_and_no_more(damage: int | None, gone: int, tmp_path: Path) -> None:
    """A damaged one is mended like any other log, and sets no sound segment aside."""
    size, swap = len(one(20)), bytearray(run(0, 60))
    if damage is not None:
        swap[damage * size + 30] ^= 4
    files = {name: data for name, data in FILES.items() if name != named(gone, ".log")}
    root = made(tmp_path / "d", {**files, named(0, ".log.swap"): bytes(swap)}, replication=60, recovery_point=60)
    assert mended(root)[0] == FILES


def test_a_foreign_segment_is_named_batch_by_batch_where_a_later_epoch_has_its_offsets(tmp_path: Path) -> None:
    """Nothing proves that a leader of this log ever wrote them: they were the only ones of another topic."""
    files = {**FILES, named(40, ".log"): run(40, 60, epoch=2), named(0, ".log"): run(42, 54, b"of another topic")}
    root = made(tmp_path / "d", files, "0 0, 2 40", replication=60, recovery_point=60)
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged").plan
    given = {name.partition(" ")[0] for step in plan.steps for name in step.gives_up}
    assert given == {f"t-0@{offset}" for offset in range(42, 54)}


@pytest.mark.parametrize(
    ("directory", "segment", "other"),
    [
        ("txn-a-1", 62, "compacted-1/00000000000000000294.log"),
        ("deleted-rec-0", 27, "compacted-1/00000000000000000232.log"),
        ("txn-a-0", 34, "compacted-0/00000000000000000389.log"),
    ],
)
def test_a_segment_of_another_partition_goes_to_quarantine(
    directory: str, segment: int, other: str, tmp_path: Path
) -> None:
    """Its offsets are missing in this log, or come after its end; the index of its name is of other batches."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    name = f"{directory}/{segment:020d}.log"
    (root / name).write_bytes((root / other).read_bytes())
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged")
    [step] = [step for step in plan.plan.steps if step.id == "segment.name"]
    assert (step.file, step.what) == (name, "move out")
    assert [f for f in plan.after if f.level is Severity.ERROR] == []


@pytest.mark.parametrize("name", ["4.3.1-crash", "3.9.2-clean"])
def test_no_index_moves_a_sound_segment(name: str, tmp_path: Path) -> None:
    """Another segment's index, none of its entries right, and one of a single entry that is wrong."""
    root = golden.unpack(name, tmp_path)
    for directory in ("plain-none-0", "compacted-0", "txn-a-0"):
        indexes = sorted(path for path in (root / directory).glob("*.index") if path.stat().st_size)
        data = [path.read_bytes() for path in indexes]
        for path, wrong in zip(indexes, [*data[1:], data[0]], strict=True):
            path.write_bytes(wrong)
        indexes[0].write_bytes(data[0][:3] + b"\xff" + data[0][4:8])
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse(name[:5])), tmp_path / "staged")
    assert not [step for step in plan.plan.steps if ".log" in step.file]


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("4.3.1-clean", ("txn-a-0/0", "plain-none-0/0")),
        pytest.param("4.3.1-clean", ("compacted-0/0", "compacted-1/0"), marks=pytest.mark.slow),
        pytest.param("3.9.2-crash", ("z-lz4-1/108", "compacted-0/0"), marks=pytest.mark.slow),
        pytest.param("3.9.2-clean", ("txn-a-0/0", "txn-b-0/0"), marks=pytest.mark.slow),
    ],
)
def test_logs_of_two_partitions_are_exchanged_back(name: str, pair: tuple[str, str], tmp_path: Path) -> None:
    """Only their offset indexes tell."""
    root = golden.unpack(name, tmp_path)
    logs = [root / directory / named(int(base), ".log") for directory, _, base in (one.partition("/") for one in pair)]
    sound = [path.read_bytes() for path in logs]
    for path, data in zip(logs, reversed(sound), strict=True):
        path.write_bytes(data)
    state = state_of(root)
    (tmp_path / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(Release.parse(name[:5])), tmp_path / "staged")
    assert found.books is not None
    assert (found.books.problems, found.books.loses, found.books.garbage, found.books.healed) == ([], 0, 0, 0)
    assert [finding for finding in found.after if finding.level is Severity.ERROR] == []
    applied = apply(found.plan, journal_dir=tmp_path / "journals", force=True, lock=".lock")
    assert [path.read_bytes() for path in logs] == sound
    assert applied.journal is not None
    undo(applied.journal)
    assert state_of(root) == state


def test_a_segment_whose_name_cannot_hold_its_offsets_is_renamed_and_not_cut(tmp_path: Path) -> None:
    """As upstream's own tests leave one: offsets further from the name than an index can say, and an empty index."""
    batches = [one(offset) for offset in (1 << 31, (1 << 31) + 1)]
    root = made(tmp_path / "logs", {named(0, ".log"): b"".join(batches), named(0, ".index"): b""})
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    assert tree.open(f"t-0/{1 << 31:020d}.log").read_at(0, 1 << 20) == b"".join(batches)
    assert plan.books is not None
    assert (plan.books.balances, plan.books.given_up) == (True, 0)


@pytest.mark.parametrize(
    ("name", "before", "offset", "to"),
    [
        pytest.param(0, 0, 3_000_000_000, 3_000_000_000, id="alone in the log"),
        pytest.param(20, 20, 5_000_000_000, 5_000_000_000, id="after others"),
        pytest.param(1000, 20, 500, 500, id="before its name"),
        pytest.param(20, 20, 20 | 1 << 40, 20, id="a bit from where it follows"),
        pytest.param(20, 20, 0x5B1D_77A0_3C55_9E21, 20, id="an offset that no log reaches"),
    ],
)
def test_a_batch_alone_in_a_segment_that_cannot_hold_it_is_believed(
    name: int, before: int, offset: int, to: int, tmp_path: Path
) -> None:
    files = {named(0, ".log"): run(0, before)} if before else {}
    root = made(tmp_path / "logs", {**files, named(name, ".log"): one(offset)})
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    assert tree.open(f"t-0/{named(to, '.log')}").read_at(0, 1 << 20) == to.to_bytes(8, "big") + one(offset)[8:]
    assert plan.books is not None
    assert (plan.books.balances, plan.books.given_up, plan.books.healed) == (True, 0, int(to != offset))


def test_what_proves_the_end_of_a_log_outranks_a_batch_far_away(tmp_path: Path) -> None:
    files = {named(0, ".log"): run(0, 20), named(20, ".log"): one(5_000_000_000)}
    root = made(tmp_path / "logs", files, recovery_point=21, replication=21)
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    assert tree.open(f"t-0/{named(20, '.log')}").read_at(0, 1 << 20) == one(20)[:8] + one(5_000_000_000)[8:]


def test_a_batch_alone_in_a_compacted_segment_that_cannot_hold_it_is_not_believed(tmp_path: Path) -> None:
    """Offsets are missing anywhere there, so any batch fits somewhere, of another log too."""
    root = made(tmp_path / "logs", {named(0, ".log"): run(0, 20), named(1000, ".log"): one(500)})
    (root / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1000\n")
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    assert tree.stat(f"t-0/{named(500, '.log')}") is None
    assert plan.books is not None
    assert plan.books.balances


@pytest.mark.parametrize("bit", [6, 24, 30])
def test_the_name_of_a_segment_proves_the_base_offset_of_the_last_batch_alone_in_it(bit: int, tmp_path: Path) -> None:
    """Its indexes have no entry, and the segment can hold the wrong offset, too."""
    files = {named(0, ".log"): run(0, 20), named(20, ".log"): one(20 ^ 1 << bit), named(21, ".snapshot"): b""}
    root = made(tmp_path / "logs", files)
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release.parse("4.3.1")), tmp_path / "staged")
    tree = Overlay(LocalTree(str(root)), plan.plan.edits)
    assert tree.open(f"t-0/{named(20, '.log')}").read_at(0, 1 << 20) == one(20)[:8] + one(20 ^ 1 << bit)[8:]
    assert plan.books is not None
    assert (plan.books.balances, plan.books.given_up, plan.books.healed) == (True, 0, 1)
