"""Splits are left out only where nothing wanted lies, and are left out where that can be told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.errors import IOFailure
from rmqctl.rocketmq.tables import splits
from rmqctl.rocketmq.tables.columns import table_options
from rmqctl.rocketmq.tables.message_table import MessageTable
from tests.pipeline import truths

COLUMNS = "physical_offset"


def offsets(path: Path, **options: str) -> tuple[list[int], int]:
    """Physical offsets that the table gives, and in how many splits."""
    table = MessageTable(table_options({"path": str(path), "columns": COLUMNS, "splitSize": "4K", **options}))
    parts = table.parts()
    return [o for part in parts for batch in table.read(part) for o in batch.column(0).to_pylist()], len(parts)


def ms(row: dict[str, Any]) -> int:
    return round(row["store_timestamp"].timestamp() * 1000)


@pytest.mark.parametrize("name", golden.NAMES)
def test_nothing_wanted_is_skipped_by_topic(name: str) -> None:
    root, true = golden.pristine(name), truths.expected(name)
    queues = sorted({(row["topic"], row["queue_id"]) for row in true})
    for topic in sorted({topic for topic, _ in queues}):
        assert offsets(root, topic=topic)[0] == [r["physical_offset"] for r in true if r["topic"] == topic]
    for topic, queue in queues[::5]:
        expected = [r["physical_offset"] for r in true if (r["topic"], r["queue_id"]) == (topic, queue)]
        assert offsets(root, topic=topic, queue=str(queue))[0] == expected


def test_queues_leave_out_no_message(golden: Any) -> None:
    """A topic whose queues say less than the log, while those of other topics are whole and later."""
    root = golden("5.3.3-clean")
    expected = offsets(root, topic="LabOne", queue="0")[0]
    queue = root / "consumequeue" / "LabOne" / "0"
    file = next(queue.iterdir())
    sound = file.read_bytes()
    used = len(sound.rstrip(b"\0")) // 20 * 20
    for begin, end in ((20, 40), (used // 2 // 20 * 20, used), (0, len(sound))):  # a hole, a lost tail, made again
        file.write_bytes(sound[:begin] + bytes(end - begin) + sound[end:])
        assert offsets(root, topic="LabOne", queue="0")[0] == expected
    file.write_bytes(sound[:7] + bytes([sound[7] ^ 64]) + sound[8:])
    assert offsets(root, topic="LabOne", queue="0")[0] == expected
    shutil.rmtree(queue)
    assert offsets(root, topic="LabOne", queue="0")[0] == expected


@pytest.mark.parametrize("back", [0, 300_000, 7_200_000])
def test_a_clock_that_was_set_back_hides_nothing(golden: Any, back: int) -> None:
    root = golden("5.3.3-clean")
    shifted = set(_move_back(root, back))
    every = [
        (row["physical_offset"], ms(row) - (back if row["file"] == sorted(os.listdir(root / "commitlog"))[1] else 0))
        for row in truths.expected("5.3.3-clean")
    ]
    times = sorted(time for _, time in every)
    for after, before in ((min(shifted), max(shifted) + 1), (times[0], times[9]), (times[-9], times[-1] + 1)):
        expected = [offset for offset, time in every if after <= time < before]
        assert offsets(root, after=str(after), before=str(before))[0] == expected


def _move_back(root: Path, milliseconds: int) -> Iterator[int]:
    """Set the store times of the second log file back; what they are then."""
    path = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    for row in truths.expected("5.3.3-clean"):
        if row["file"] == path.name:
            at = row["position"] + 56
            time = int.from_bytes(data[at : at + 8], "big") - milliseconds
            data[at : at + 8] = time.to_bytes(8, "big")
            yield time
    path.write_bytes(data)


def test_splits_are_skipped_by_physical_offset() -> None:
    root = golden.pristine("5.3.3-clean")
    everything, splits = offsets(root)
    middle = everything[len(everything) // 2]
    assert offsets(root, fromOffset=str(middle)) == (
        [o for o in everything if o >= middle],
        offsets(root, fromOffset=str(middle))[1],
    )
    assert offsets(root, fromOffset=str(middle))[1] < splits * 0.7
    assert offsets(root, fromOffset=str(middle), skip="false")[1] == splits


def test_a_file_that_retention_deletes_is_an_error(golden: Any) -> None:
    """Rows that were planned and cannot be read are not left out in silence."""
    root = golden("5.3.3-clean")
    table = MessageTable(table_options({"path": str(root), "columns": COLUMNS}))
    parts = table.parts()
    (root / "commitlog" / min(os.listdir(root / "commitlog"))).unlink()
    with pytest.raises(IOFailure, match="deleted after the work was planned"):
        list(chain.from_iterable(map(table.read, parts)))
    assert offsets(root)[0]


def test_planning_does_not_read_the_last_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what follows the last record that queues know; without queues all of it."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    store = table_options({"path": str(root)}).store()
    walked: list[int] = []
    real = splits.walk_file

    def walk_file(context: Any, state: Any, *, start: int = 0, stop: int | None = None) -> Any:
        walked.append(start)
        return real(context, state, start=start, stop=stop)

    monkeypatch.setattr(splits, "walk_file", walk_file)
    known = splits.log_splits(store, 4096)
    assert len(known) > 100
    assert len(walked) == 1
    assert walked[0] > 4096
    walked.clear()
    for queue in (root / "consumequeue").iterdir():
        shutil.rmtree(queue)
    assert splits.log_splits(table_options({"path": str(root)}).store(), 4096) != []
    assert walked == [0]
