"""What a broker answered its admin at moments, against what `--at` says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.opening import open_store
from rmqctl.rocketmq.verbs.past import NOT_SHOWN
from tests.recorded_past_helpers import differ

Moment = dict[str, Any]


def differences(root: Path, moment: Moment, seen: Counter[str]) -> Iterator[str]:
    """Yield what is said otherwise than the broker did; what is unknown is counted, and never wrong."""
    store, at = open_store(str(root)), moment["at"]
    shown = store.topics(at=at)
    rows = {(row["topic"], row["queue_id"]): row for row in shown}
    now = {(row["topic"], row["queue_id"]) for row in store.topics()}
    answers = {(topic, queue): {"min_offset": low, "max_offset": high} for topic, queue, low, high in moment["queues"]}
    for key, answer in answers.items():
        if key not in rows and key not in now and NOT_SHOWN in shown.remarks:
            seen["queues that are gone"] += 1
            continue
        if key not in rows:
            yield f"{at} {key}: no row, the broker says {answer}"
            continue
        yield from differ(rows[key], answer, f"{at} {key}", seen)
        if rows[key]["end_at_least"] is not None:
            assert rows[key]["end_at_least"] <= answer["max_offset"] <= rows[key]["end_at_most"], (at, key)
    for key, row in rows.items():
        if key not in answers and row["max_offset"] is not None:
            yield f"{at} {key}: {row}, and the broker had no such queue"
    ends = {key: answer["max_offset"] for key, answer in answers.items()}
    for row in store.lag(at=at):
        key = row["topic"], row["queue_id"]
        answer = {"max_offset": ends[key]} if key in ends else {}
        offsets = {(group, topic, queue): offset for group, topic, queue, offset in moment["groups"]}
        answer["consumer_offset"] = offsets.get((row["group"], *key))
        yield from differ(row, answer, f"{at} {row['group']} {key}", seen)
