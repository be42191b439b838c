"""What a broker's admin answered at moments, against what `--at` says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqctl.opening import open_store
from tests.recorded_past_helpers import differ

Moment = dict[str, Any]
_STATES = {"COMPLETE_COMMIT": "CompleteCommit", "COMPLETE_ABORT": "CompleteAbort"}


def differences(root: Path, moment: Moment, seen: Counter[str]) -> Iterator[str]:
    """Yield what is said otherwise than the admin did; what is unknown is counted, and never wrong."""
    at = moment["at"]
    yield from _topics(root, moment, at, seen)
    yield from _groups(root, moment, at, seen)
    yield from _transactions(root, moment, at, seen)
    yield from _producers(root, moment, at, seen)


def _topics(root: Path, moment: Moment, at: int, seen: Counter[str]) -> Iterator[str]:
    rows = {(row["topic"], row["partition"]): row for row in open_store(str(root)).topics(at=at)}
    answers = {(topic, number): rest for topic, number, *rest in moment["topics"]}
    if rows.keys() != answers.keys():
        yield f"{at}: topics {sorted(rows.keys() ^ answers.keys())} are only in one of both"
    for key in rows.keys() & answers.keys():
        topic_id, start, end, stable = answers[key]
        row, where = rows[key], f"{at} {key}"
        answered = {
            "topic_id": topic_id,
            "log_start_offset": start,
            "log_end_offset": end,
            "last_stable_offset": stable,
        }
        yield from differ(row, answered, where, seen)
        if row["end_at_least"] is not None and not row["end_at_least"] <= end <= row["end_at_most"]:
            yield f"{where}: the end is {end}, not from {row['end_at_least']} to {row['end_at_most']}"
        seen[f"clock {row['clock']}"] += 1


def _groups(root: Path, moment: Moment, at: int, seen: Counter[str]) -> Iterator[str]:
    rows = {(row["group"], row["topic"], row["partition"]): row for row in open_store(str(root)).lag(at=at)}
    answers = {(group, topic, number): offset for group, topic, number, offset in moment["groups"]}
    ends = {(topic, number): end for topic, number, _, _, end, _ in moment["topics"]}
    for key, row in rows.items():
        answered = {"consumer_offset": answers.get(key)}
        if key[1:] in ends:
            answered["log_end_offset"] = ends[key[1:]]
        yield from differ(row, answered, f"{at} {key}", seen)
    yield from (f"{at}: {key} is not said" for key in answers.keys() - rows.keys())


def _transactions(root: Path, moment: Moment, at: int, seen: Counter[str]) -> Iterator[str]:
    rows = {row["transactional_id"]: row for row in open_store(str(root)).transactions(at=at)}
    for name, state, producer, epoch, partitions in moment["transactions"]:
        if name not in rows:
            yield f"{at}: {name} is not said"
            continue
        state = state if state != "PrepareEpochFence" else "PrepareEpochFence"
        answered = {"state": state, "producer_id": producer, "producer_epoch": epoch, "partitions": partitions}
        yield from differ(rows[name], answered, f"{at} {name}", seen)


def _producers(root: Path, moment: Moment, at: int, seen: Counter[str]) -> Iterator[str]:
    rows = {(r["topic"], r["partition"], r["producer_id"]): r for r in open_store(str(root)).producers(at=at)}
    gone = {(topic, number) for topic, number, *_ in moment["topics"]} - {key[:2] for key in rows}
    for topic, number, producer, epoch, sequence, first in moment["producers"]:
        key = topic, number, producer
        if key in rows:
            answered = {"producer_epoch": epoch, "last_sequence": sequence, "current_txn_first_offset": first}
            yield from differ(rows[key], answered, f"{at} {key}", seen)
        elif (topic, number) not in gone:
            yield f"{at}: producer {key} is not said"
        else:
            seen["producers of topics that are gone"] += 1
