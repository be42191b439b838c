"""Splits are left out only where nothing wanted lies, and are left out where that can be told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
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


def test_splits_are_skipped_by_topic_and_queue() -> None:
    root = golden.pristine("5.3.3-clean")
    everything = offsets(root)[1]
    assert offsets(root, topic="LabOne", queue="0")[1] < everything / 4
    assert offsets(root, topic="LabOne", queue="0", skip="false")[1] == everything


def test_nothing_is_skipped_by_queues_that_are_not_whole(golden: Any) -> None:
    root = golden("5.3.3-clean")
    everything = offsets(root)[1]
    queue = root / "consumequeue" / "LabOne" / "0"
    expected = offsets(root, topic="LabOne", queue="0")[0]
    file = next(queue.iterdir())
    data = bytearray(file.read_bytes())
    data[20:40] = bytes(20)
    file.write_bytes(data)
    assert offsets(root, topic="LabOne", queue="0") == (expected, everything)
    shutil.rmtree(queue)
    assert offsets(root, topic="LabOne", queue="0") == (expected, everything)


@pytest.mark.parametrize("name", golden.BROKER_STORES[::3])
def test_nothing_wanted_is_skipped_by_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.rocketmq.tables.message_table.CLOCK_STEP_MS", 0)
    root, true = golden.pristine(name), truths.expected(name)
    times = [ms(row) for row in true]
    assert times == sorted(times)
    some = times[:: max(len(times) // 3, 1)]
    for after in some:
        for before in some:
            if after < before:
                found, _ = offsets(root, after=str(after), before=str(before))
                assert found == [r["physical_offset"] for r in true if after <= ms(r) < before]
    assert offsets(root, after=str(times[-1]))[1] < offsets(root)[1] * 0.7  # what is left is unwritten room
    assert offsets(root, before=str(times[0] + 1))[1] < 5


def test_a_clock_that_was_set_back_hides_nothing(golden: Any) -> None:
    root = golden("5.3.3-clean")
    shifted = list(_move_back(root, 300_000))
    found = offsets(root, after=str(min(shifted)), before=str(max(shifted) + 1))[0]
    assert len(found) >= len(shifted)


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
