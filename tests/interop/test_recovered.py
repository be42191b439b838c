"""Random damage: the start of released classes against the replay of ``rmqctl recover``: needs Maven."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from fixtures.random_damage import Damager
from tests.interop.conftest import Judges
from tests.interop.judge import RELEASES, Judge, has_java, settings_of
from tests.interop.recovered import base_of, files, judged, replayed

AT_ONCE = 24
SEEDS = range(1000, 1024)
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.mark.parametrize("release", RELEASES)
def test_random_damage(release: str, judges: Judges, tmp_path: Path) -> None:
    judge = judges(release, workers=8, patience=15_000)
    for first in range(SEEDS.start, SEEDS.stop, AT_ONCE):
        seeds = SEEDS[first - SEEDS.start : first - SEEDS.start + AT_ONCE]
        for seed, (ours, theirs) in started(judge, release, seeds, tmp_path).items():
            assert ours == theirs, (release, seed)


def started(judge: Judge, release: str, seeds: Sequence[int], directory: Path) -> dict[int, tuple[Any, Any]]:
    """What the replay and the classes say of the store that each seed damages. Starts that ran out of memory are left out."""
    ours, stores, found = {}, {}, {}
    damagers = {base: Damager(base) for base in {base_of(release, seed) for seed in seeds}}
    for seed in seeds:
        base = base_of(release, seed)
        root = golden.unpack(base, directory / str(seed))
        damage.apply(damagers[base].recipe(seed), root)
        stores[str(seed)] = (root, files(root), settings_of(golden.broker_conf(base)))
        ours[seed] = replayed(root, base, release)
    asked = [(seed, "judge", (root, *settings)) for seed, (root, _, settings) in stores.items()]
    for seed, answer in judge.ask_all(asked):
        root, before, _ = stores[seed]
        if "OutOfMemoryError" not in str(answer.get("problem")):
            found[int(seed)] = (ours[int(seed)], judged(answer, before, root))
        shutil.rmtree(directory / seed)
    return found
