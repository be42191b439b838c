"""Units looked up through a pool of pages, against reading each where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.queues import files
from rmqctl.rocketmq.queues.files import UNIT, Queue
from rmqctl.rocketmq.store.files import QueueFiles

QUEUES, UNITS, FILE_UNITS, PAGE = 5, 40, 16, 4
LOOKUP = st.lists(st.tuples(st.integers(0, QUEUES), st.integers(0, UNITS + 9)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> list[Queue]:
    """Queues of several files; the unit at offset n of queue q points to 1000 q + n."""
    tree = LocalTree(tmp_path_factory.mktemp("queues"))
    found = []
    for queue in range(QUEUES):
        path = f"consumequeue/T/{queue}"
        Path(tree.full(path)).mkdir(parents=True)
        table = np.zeros(UNITS, UNIT)
        table["physical_offset"], table["size"] = queue * 1000 + np.arange(UNITS), 1
        for first in range(0, UNITS, FILE_UNITS):
            table[first : first + FILE_UNITS].tofile(Path(tree.full(path)) / f"{first * UNIT.itemsize:020d}")
        found.append(Queue.open(QueueFiles("consumequeue", "T", queue, path, tree)))
    return found


@settings(max_examples=60, deadline=None)
@given(lookups=st.lists(LOOKUP, max_size=8), pool=st.integers(1, 8))
def test_lookups_give_the_units_of_the_files(
    queues: list[Queue], lookups: list[list[tuple[int, int]]], pool: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PAGE", PAGE)
        patch.setattr(files, "_POOL_PAGES", pool)
        pages = files.UnitPages(lambda number: queues[number] if number < QUEUES else None)
        for rows in lookups:
            rows.sort(key=lambda row: row[0])
            queue, offset = (np.array(column, np.int64) for column in zip(*rows, strict=True))
            units = pages.lookup(queue, offset)
            there = [(q, n) for q, n in rows if q < QUEUES and n < UNITS]
            wanted = [(q * 1000 + n, 1, 0) if (q, n) in there else (0, 0, 0) for q, n in rows]
            assert units.tolist() == wanted
        pages.close()
