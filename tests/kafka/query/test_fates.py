"""`trace` of 300 records to which clients of a broker 4.3.1 gave random fates, and on damaged copies of the log directory.

Recorded by ``tests/interop/test_kafka_traced.py``, which has more such records.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from fixtures import golden
from tests.kafka.fates_helpers import Clients, damaged, wrong_fates, wrong_lives


def recorded() -> tuple[Path, Clients]:
    root, rows = golden.recorded_moments("fates-4.3.1")
    return root, Clients(rows)  # type: ignore[arg-type]


def test_every_fate_is_told_with_its_places() -> None:
    root, clients = recorded()
    seen = Counter(clients.fate(place) for place in clients.messages)
    assert seen.keys() > {"passed", "waiting", "stored", "open", "rolled-back", "compacted", "deleted"}
    assert seen.total() > 300
    assert list(wrong_lives(clients, root)) == []


@pytest.mark.parametrize(
    "seed", [0, 27, *(pytest.param(n, marks=pytest.mark.slow) for n in range(60) if n not in {0, 27})]
)
def test_no_fate_is_wrong_on_damaged_copies(seed: int, tmp_path: Path) -> None:
    root, clients = recorded()
    copy, chance = shutil.copytree(root, tmp_path / "copy"), random.Random(seed)
    damaged(copy, chance)
    assert list(wrong_fates(clients, copy, chance)) == []
