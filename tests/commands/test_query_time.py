"""`rmqctl query-time`: rows, tables, steps, and what it says when the question is odd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl import open as rmqctl_store
from rmqctl.errors import WrongUsage
from rmqctl.text import instant

Rmqctl = Callable[..., Result]
STORE = "5.5.0-clean"
TOPIC, QUEUE = "LabLog", 1


def times(name: str = STORE) -> list[int]:
    """Store times of the queue's messages."""
    mine = [r for r in golden.truth(name) if r["kind"] == "msg" and (r["topic"], r["queueId"]) == (TOPIC, QUEUE)]
    return [r["storeTimestamp"] for r in mine]


def rows(rmqctl: Rmqctl, *args: object, code: int = 0) -> list[dict[str, Any]]:
    result = rmqctl("query-time", *args, "-o", "jsonl")
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_answer_and_its_message(rmqctl: Rmqctl) -> None:
    at = times()
    answer, message = rows(rmqctl, golden.pristine(STORE), f"{TOPIC}/{QUEUE}", at[40])
    offset = at.index(at[40])
    assert list(answer)[:5] == ["kind", "topic", "queue_id", "time", "queue_offset"]
    assert (answer["kind"], answer["queue_offset"], answer["boundary"]) == ("time_answer", offset, "lower")
    around = tuple(answer[f"{word}store_timestamp"] for word in ("previous_", "", "next_"))
    assert around == (at[offset - 1], at[offset], at[offset + 1])
    assert (message["kind"], message["queue_offset"], message["store_timestamp"]) == ("message", offset, at[40])


def test_every_queue_of_a_topic(rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, golden.pristine(STORE), TOPIC, times()[40])
    assert [r["queue_id"] for r in found if r["kind"] == "time_answer"] == [0, 1, 2]
    assert [r["kind"] for r in found] == ["time_answer", "message"] * 3


def test_the_message_is_the_one_of_dump(rmqctl: Rmqctl) -> None:
    message = rows(rmqctl, golden.pristine(STORE), f"{TOPIC}/{QUEUE}", times()[9], "--body")[1]
    dumped = rmqctl("dump", golden.pristine(STORE), "--topic", TOPIC, "--queue", QUEUE, "--body", "-o", "jsonl")
    assert message in [json.loads(line) for line in dumped.stdout.splitlines()]


def test_boundaries(rmqctl: Rmqctl) -> None:
    at = times()
    twice = next(i for i in range(1, len(at)) if at[i] == at[i - 1])
    last = max(i for i in range(len(at)) if at[i] == at[twice])
    answers = [
        rows(rmqctl, golden.pristine(STORE), f"{TOPIC}/{QUEUE}", at[twice], "--boundary", word)[0]["queue_offset"]
        for word in ("lower", "upper")
    ]
    assert answers == [at.index(at[twice]), last]


def test_behind_the_last_message(rmqctl: Rmqctl) -> None:
    """The end of the queue is the answer, no message is there, and that is no failure."""
    found = rows(rmqctl, golden.pristine(STORE), f"{TOPIC}/{QUEUE}", times()[-1] + 1)
    assert [r["kind"] for r in found] == ["time_answer"]
    assert found[0]["queue_offset"] == found[0]["max_offset"] == len(times())


def test_a_span_is_no_option(rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, golden.pristine(STORE), f"{TOPIC}/{QUEUE}", "-1h")
    assert found[0]["queue_offset"] in (0, len(times()))


def test_an_empty_queue(rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, golden.pristine(STORE), "LabEmpty/0", 0, "--explain", code=1)
    assert found[0]["queue_offset"] == 0
    assert found[-1]["id"] == "miss.queue-empty"


@pytest.mark.parametrize(
    ("queue", "sentence"),
    [
        ("LabLug", "the store knows no topic LabLug; did you mean LabLog"),
        ("LabLog/17", "topic LabLog has no queue 17; its queues are 0 to 2"),
    ],
)
def test_unknown_names(queue: str, sentence: str, rmqctl: Rmqctl) -> None:
    result = rmqctl("query-time", golden.pristine(STORE), queue, 0)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"rmqctl: {sentence}")
    assert rows(rmqctl, golden.pristine(STORE), queue, 0, "--explain", code=1)[-1]["result"].startswith(sentence)


def test_a_time_that_cannot_be_read(rmqctl: Rmqctl) -> None:
    result = rmqctl("query-time", golden.pristine(STORE), TOPIC, "tomorrow")
    assert result.exit_code == 2
    assert "'tomorrow' is not a time; give 2026-11-20T08:00:00Z" in result.stderr


def test_boundary_says_nothing_to_old_brokers(rmqctl: Rmqctl) -> None:
    result = rmqctl("query-time", golden.pristine("4.9.8-clean"), TOPIC, 0, "--boundary", "upper", "-o", "jsonl")
    assert result.exit_code == 0
    assert "a broker of 4.9.8 knows no boundary" in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["boundary"] == "nearest"


def test_table_and_steps(rmqctl: Rmqctl) -> None:
    result = rmqctl(
        "query-time", golden.pristine("4.9.8-clean"), f"{TOPIC}/{QUEUE}", times("4.9.8-clean")[40], "--explain"
    )
    assert result.exit_code == 0
    assert "modification time" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("=> found: ")


def test_files_out_of_order_are_explained(golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    """A copy without modification times: 4.x looks into the first file of the queue, whatever the time."""
    import os

    root, at = golden("4.9.8-clean"), times("4.9.8-clean")
    for file in (root / "consumequeue" / TOPIC / str(QUEUE)).iterdir():
        os.utime(file)
    found = rows(rmqctl, root, f"{TOPIC}/{QUEUE}", at[90], "--explain")
    assert found[0]["queue_offset"] == 49  # the last unit of the first file
    assert found[-1]["id"] == "miss.time-out-of-order"
    assert "modification time" in found[-1]["result"]


def test_a_time_as_a_table_prints_it_is_read_as_that_time(rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        at, place = times()[40], (golden.pristine(STORE), f"{TOPIC}/{QUEUE}")
        utc = instant(at)
        local = datetime.fromtimestamp(at / 1000).astimezone().isoformat(timespec="milliseconds")
        bare = local.rpartition("+")[0]
        assert bare[:13] != utc[:13]
        for text, option in (
            (utc, ()),
            (utc[:-1], ()),
            (local, ()),
            (local, ("--local-time",)),
            (bare, ("--local-time",)),
        ):
            assert rows(rmqctl, *place, text, *option)[0]["time"] == at
        assert rows(rmqctl, "--local-time", *place, bare)[0]["time"] == at
        store = rmqctl_store(place[0])
        for moment in (at, utc, utc[:-1].replace("T", " "), datetime.fromisoformat(utc)):
            assert next(iter(store.query_time(TOPIC, QUEUE, moment).rows))["time"] == at
    finally:
        monkeypatch.undo()
        time.tzset()


def test_seconds_are_refused(rmqctl: Rmqctl) -> None:
    result = rmqctl("query-time", golden.pristine(STORE), TOPIC, str(times()[0] // 1000))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"can only be seconds; times are epoch milliseconds: {times()[0] // 1000 * 1000}, or " in result.stderr
    with pytest.raises(WrongUsage, match=r"TIME takes a time: .* can only be seconds"):
        rmqctl_store(golden.pristine(STORE)).query_time(TOPIC, QUEUE, times()[0] // 1000)
