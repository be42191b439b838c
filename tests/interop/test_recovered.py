"""Random damage: the start of released classes against the replay of ``rmqctl recover``: needs Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.brokers_helpers import started
from tests.interop.conftest import Judges
from tests.interop.judge import RELEASES, has_java

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
