"""Random damages, two at once: no sound byte of the log differs after repair, and brokers start, cut nothing and serve it."""

from __future__ import annotations

import pytest

from fixtures import golden
from tests.rocketmq.repair.judged import Bench, produced, seeds

FEW, MANY = range(3), seeds("3-63")


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    """Working copies by release, made when first asked for."""
    room = tmp_path_factory.mktemp("judged")
    return {release: Bench(release, room) for release in golden.RELEASES}


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_random_damage(release: str, seed: int, benches: dict[str, Bench]) -> None:
    check(benches[release], seed)


def test_offsets_are_put_right_in_what_the_bak_has(benches: dict[str, Bench]) -> None:
    """A file of offsets that cannot be read, whose .bak has one after the end of a queue that has lost its last file."""
    bench, offsets = benches["5.3.3"], "config/consumerOffset.json"
    recipe = [
        {"op": "delete", "file": "commitlog/00000000000000524288"},
        {"op": "write", "file": offsets, "offset": 332, "hex": "b0"},
    ]
    verdict = bench.judge_recipe(bench.damagers[0], recipe)
    assert (verdict.lost, verdict.unserved, verdict.refused) == ([], [], [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
@pytest.mark.parametrize("release", golden.RELEASES)
def test_more_random_damage(release: str, seed: int, benches: dict[str, Bench]) -> None:
    check(benches[release], seed)


@pytest.fixture(scope="module")
def produced_benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    """Working copies of stores that `rmqctl produce` makes, by release."""
    room = tmp_path_factory.mktemp("produced")
    return {release: Bench(release, room, produced(room)) for release in ("4.9.8", "5.5.0")}


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_random_damage_to_a_produced_store(release: str, seed: int, produced_benches: dict[str, Bench]) -> None:
    check(produced_benches[release], seed)


@pytest.mark.parametrize("shift", [1, 2, -1, -3])
@pytest.mark.parametrize("first", [3, 25])
def test_a_lost_file_and_a_queue_moved_by_some_places(
    first: int, shift: int, produced_benches: dict[str, Bench]
) -> None:
    """The records after the lost ones tell their numbers together, whatever all units of the queue say."""
    bench = produced_benches["5.5.0"]
    queue, damager = "consumequeue/Made2/2/00000000000000000000", bench.damagers[0]
    units = (damager.root / queue).read_bytes()
    at = 20 * first
    moved = (
        units[:at] + units[at : at + 20] * shift + units[at:] if shift > 0 else units[:at] + units[at - 20 * shift :]
    )
    moved = moved[: len(units)].ljust(len(units), b"\0")
    cut = {"op": "truncate", "file": "commitlog/00000000000000196608", "length": 1}
    verdict = bench.judge_recipe(damager, [cut, {"op": "write", "file": queue, "offset": 0, "hex": moved.hex()}])
    assert (verdict.lost, verdict.unserved, verdict.refused) == ([], [], [])
    assert verdict.destroyed > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_more_random_damage_to_a_produced_store(release: str, seed: int, produced_benches: dict[str, Bench]) -> None:
    check(produced_benches[release], seed)


def check(bench: Bench, seed: int) -> None:
    verdict = bench.judge(seed)
    assert (verdict.lost, verdict.unserved, verdict.refused) == ([], [], []), verdict.recipe
