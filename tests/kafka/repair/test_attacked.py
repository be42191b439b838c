"""What judges repairs of attacked log directories by brute force: it counts what is there, and undo gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from tests.kafka.repair.attacked import Verdict, attacked_everywhere, batches_of, judge, judge_root


@pytest.mark.parametrize("name", ["3.9.2-clean", "4.3.1-crash"])
def test_brute_force_finds_the_batches_of_a_sound_directory(name: str) -> None:
    expected = {(row["file"], row["position"]) for row in golden.truth(name) if row["t"] == "batch"}
    found = batches_of(LocalTree(str(golden.pristine(name))))
    places = {(f"{directory}/{file}", at) for (directory, _), where in found.items() for file, at in where}
    assert {place for place in places if place[0].endswith(".log")} == {
        place for place in expected if place[0].endswith(".log")
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_repair_is_taken_back_byte_for_byte(seed: int, tmp_path: Path) -> None:
    judge(seed, tmp_path, applies=True)


FOUND = [5016, 5023, 5117, 5121, 5135, 20051, 20179, 20287, 20327, 20352, 30001, 30002, 30003, 30024, 30090]
FOUND += [50100, 50249, 53037, 53119, 700364, 930390, 951138, 971128, 971367]
"""Damage that repairs made worse once."""


@pytest.mark.parametrize(
    "seed", [*range(3, 9), *(pytest.param(n, marks=pytest.mark.slow) for n in (*range(9, 800), *FOUND))]
)
def test_no_repair_loses_or_makes_up_a_whole_batch(seed: int, tmp_path: Path) -> None:
    verdict = judge(seed, tmp_path, applies=seed % 8 == 0)
    assert (verdict.lost, verdict.invented, verdict.outcomes) == ([], [], []), verdict.done


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        741_027,
        741_062,
        741_083,
        741_271,
        930_017,
        930_028,
        930_170,
        930_247,
        930_259,
        930_375,
        951_311,
        971_215,
        971_262,
        971_362,
        985_156,
        990_315,
        990_428,
        990_439,
    ],
)
def test_bytes_of_another_log_leave_no_error(seed: int, tmp_path: Path) -> None:
    verdict = judge(seed, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], []), verdict.done


@pytest.mark.slow
@pytest.mark.parametrize("seed", [141_028, 990_135, 951_125, 951_254, 951_270, 951_325, 951_387])
def test_what_is_against_a_batch_a_name_or_an_entry_is_mended(seed: int, tmp_path: Path) -> None:
    verdict = judge(seed, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], []), verdict.done


@pytest.mark.slow
def test_batches_that_belong_nowhere_stay_and_the_rest_of_their_log_is_mended(tmp_path: Path) -> None:
    verdict = judge(741_273, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes) == ([], [], [])
    assert verdict.repair is not None
    mended = {edit.file for step in verdict.repair.plan.steps for edit in step.edits}
    assert {
        f"append_time-0/{base:020d}.{kind}" for base, kind in ((0, "log"), (99, "index"), (99, "timeindex"))
    } <= mended
    left = [(step.file, step.what.partition(", ")[0]) for step in verdict.repair.left if step.id == "repair.books"]
    assert left == [
        (f"append_time-0/{0:020d}.log", "left as it is: bytes 367 to 733"),
        (f"txn-b-0/{0:020d}.log", "left as it is: bytes 0 to 366"),
    ]
    assert {error.partition(": ")[0].partition(" ")[2] for error in verdict.errors} == {file for file, _ in left}


@pytest.mark.slow
def test_a_placeholder_is_not_put_where_a_batch_that_stays_belongs(tmp_path: Path) -> None:
    verdict = judge(951_215, tmp_path)
    assert (verdict.lost, verdict.invented, verdict.outcomes) == ([], [], [])
    assert verdict.repair is not None
    assert f"compacted-0/{0:020d}.log" not in {edit.file for edit in verdict.repair.plan.edits}
    assert sum(step.id == "repair.books" for step in verdict.repair.left) == 2


@pytest.mark.slow
def test_a_log_that_two_partitions_exchanged_leaves_no_error(tmp_path: Path) -> None:
    verdict = judge(371, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], []), verdict.done


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60_000, 60_002))
def test_damage_in_every_partition_at_once_is_mended_without_a_loss(seed: int, tmp_path: Path) -> None:
    root, done, name = attacked_everywhere(seed, tmp_path)
    assert len(done) > 12
    verdict = judge_root(Verdict(seed, done), root, name, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], []), done
