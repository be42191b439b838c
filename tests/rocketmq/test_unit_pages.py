"""Units looked up through a pool of pages, against reading each where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.query import units as query_units
from rmqctl.rocketmq.queues import files
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue
from rmqctl.rocketmq.store.files import QueueFiles, sequence

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


def stretch(queue: int, first: int, count: int) -> list[tuple[int, int]]:
    """Units that follow each other in their queue, as those of a block do."""
    return [(queue, number) for number in range(first, first + count)]


STRETCHES = st.lists(
    st.builds(stretch, st.integers(0, QUEUES), st.integers(0, UNITS), st.integers(1, 2 * FILE_UNITS)), min_size=1
).map(lambda runs: [row for run in runs for row in run])


@settings(max_examples=60, deadline=None)
@given(lookups=st.lists(LOOKUP | STRETCHES, max_size=6), pool=st.integers(1, 40), least=st.integers(1, PAGE))
def test_lookups_give_the_units_of_the_files(
    queues: list[Queue], lookups: list[list[tuple[int, int]]], pool: int, least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PAGE", PAGE)
        patch.setattr(files, "_POOL", pool * PAGE)
        patch.setattr(files, "_LEAST_PAGE", least)
        pages = files.UnitPages(lambda number: queues[number] if number < QUEUES else None)
        for rows in lookups:
            rows.sort(key=lambda row: row[0])
            queue, offset = (np.array(column, np.int64) for column in zip(*rows, strict=True))
            units = pages.lookup(queue, offset)
            there = [(q, n) for q, n in rows if q < QUEUES and n < UNITS]
            wanted = [(q * 1000 + n, 1, 0) if (q, n) in there else (0, 0, 0) for q, n in rows]
            assert units.tolist() == wanted
            assert pages.holds(queue, offset, np.array(wanted, UNIT))
            other = np.array(wanted, UNIT)
            other["tags_code"][len(wanted) // 2] = 7
            assert not pages.holds(queue, offset, other)
        pages.close()


@pytest.mark.parametrize("is_batch", [False, True], ids=["simple", "batch"])
@pytest.mark.parametrize("written", [0, 1, 3, 4, 5, 8, 9, 12])
def test_units_of_a_file_in_pieces(written: int, is_batch: bool, tmp_path: Path) -> None:
    """Where the written units end, and the bytes that they stand for; fillers of a simple queue stand for none."""
    dtype, room = (BATCH_UNIT if is_batch else UNIT), 12
    table = np.zeros(room, dtype)
    table["physical_offset"][:written] = 1000 + np.arange(written)
    table["size"][:written] = 300 + np.arange(written)
    if is_batch:
        table["store_timestamp"][:written], table["batch_size"][:written] = 1, 2
    elif written > 1:
        table["physical_offset"][0], table["size"][0] = 0, 0x7FFFFFFF
    (tmp_path / f"{0:020d}").write_bytes(table.tobytes())
    (file,), _ = sequence(LocalTree(tmp_path), "", "")
    found = query_units.UnitFile.of(file, is_batch=is_batch, chunk=4)
    assert found.cut() == (written == room)
    assert len(found) == written
    for number in range(written + 1):
        sizes = table["size"][number:written].tolist()
        assert found.bytes_from(number) == sum(size for size in sizes if size != 0x7FFFFFFF)
