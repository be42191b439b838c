"""``topics`` of every golden store equals the offsets the broker's own store had after it was loaded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fixtures import golden

Ranges = dict[tuple[str, int], tuple[int, int]]

# The last record of these stores was not dispatched when the broker was killed; the oracle speaks of the time
# after recovery, when the broker had given it its unit. The log proves the offset, so `topics` counts it too.
UNDISPATCHED = {"4.9.8-crash": ("LabLog", 1), "5.5.0-crash": ("LabLog", 2)}
_UNIT = 20  # bytes


def _topics(rmqctl: Any, name: str) -> list[dict[str, Any]]:
    result = rmqctl("topics", golden.pristine(name), "-o", "jsonl")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def _broker_answer(name: str) -> Ranges:
    queues = (
        golden.oracle(name)["embedded"]["afterLoad"]["queues"]
        if name in golden.BROKER_STORES
        else golden.manifest(name)["oracle"]["queues"]
    )
    return {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in queues}


@pytest.mark.parametrize("name", golden.NAMES)
def test_offsets_are_those_of_the_broker(name: str, rmqctl: Any) -> None:
    rows = {(row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in _topics(rmqctl, name)}
    # 4.9.8 makes delay queues without messages in memory only; there is nothing on disk to tell of them
    expected = {queue: offsets for queue, offsets in _broker_answer(name).items() if offsets != (0, 0)}
    assert {queue: offsets for queue, offsets in rows.items() if offsets != (0, 0)} == expected


@pytest.mark.parametrize("name", golden.NAMES)
def test_counts_bytes_and_times_are_those_of_the_records(name: str, rmqctl: Any) -> None:
    records = [true for true in golden.truth(name) if true["kind"] == "msg"]
    for row in _topics(rmqctl, name):
        if row["topic"].startswith("%LMQ%"):
            continue  # its messages are records of other topics
        mine = [r for r in records if (r["topic"], r["queueId"]) == (row["topic"], row["queue_id"])]
        times = [r["storeTimestamp"] for r in mine]
        assert row["bytes"] == sum(r["storeSize"] for r in mine), row
        assert row["messages"] == row["max_offset"] - row["min_offset"], row
        if times:
            assert (row["first_store_timestamp"], row["last_store_timestamp"]) == (times[0], times[-1]), row


@pytest.mark.parametrize("name", UNDISPATCHED)
def test_a_record_without_a_unit_counts(name: str, rmqctl: Any) -> None:
    topic, queue_id = UNDISPATCHED[name]
    last = max((golden.pristine(name) / "consumequeue" / topic / str(queue_id)).iterdir())
    content = last.read_bytes()
    units = sum(any(content[at : at + _UNIT]) for at in range(0, len(content), _UNIT))
    rows = {(row["topic"], row["queue_id"]): row for row in _topics(rmqctl, name)}
    assert rows[topic, queue_id]["max_offset"] == int(last.name) // _UNIT + units + 1
