"""`rmqctl query-offset`: pages of a queue, as a broker gives them or across files, filters, and reasons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden as stores
from rmqctl.opening import open_store
from rmqctl.rocketmq.state import releases

Rmqctl = Callable[..., Result]
Golden = Callable[[str], Path]
STORE = "5.5.0-clean"


def rows(rmqctl: Rmqctl, *args: object, code: int = 0) -> list[dict[str, Any]]:
    result = rmqctl("query-offset", *args, "-o", "jsonl")
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def truth(topic: str = "LabLog", queue: int = 1, name: str = STORE) -> list[dict[str, Any]]:
    return [r for r in stores.truth(name) if r["kind"] == "msg" and (r["topic"], r["queueId"]) == (topic, queue)]


def test_one_message(rmqctl: Rmqctl) -> None:
    status, message = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 7)
    first = {"kind": "status", "status": "FOUND", "next_offset": 8, "min_offset": 0, "max_offset": len(truth())}
    assert dict(list(status.items())[:5]) == first
    assert (message["kind"], message["physical_offset"]) == ("message", truth()[7]["commitLogOffset"])


def test_across_files_without_a_release(rmqctl: Rmqctl) -> None:
    """Queue files hold 50 units; one call of a broker ends with the file."""
    found = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 30, "-n", 60)
    assert [r["physical_offset"] for r in found[1:]] == [r["commitLogOffset"] for r in truth()[30:90]]
    assert found[0]["next_offset"] == 90
    call = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 30, "-n", 60, "--as-release", "5.5.0")
    assert [r["queue_offset"] for r in call[1:]] == list(range(30, 50))
    assert call[0]["next_offset"] == 50


def test_a_call_asks_for_32(rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 0, "--as-release", "5.5.0")
    assert len(found) == 1 + 32


@pytest.mark.parametrize(
    ("offset", "status", "next_offset", "miss"),
    [
        ("-1", "OFFSET_TOO_SMALL", 0, "miss.before-min-offset"),
        ("138", "OFFSET_OVERFLOW_ONE", 138, "miss.beyond-max-offset"),
        ("5000", "OFFSET_OVERFLOW_BADLY", 138, "miss.beyond-max-offset"),
    ],
)
def test_outside(offset: str, status: str, next_offset: int, miss: str, rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, stores.pristine(STORE), "LabLog/1", offset, "--explain", code=1)
    assert (found[0]["status"], found[0]["next_offset"]) == (status, next_offset)
    assert found[-1]["id"] == miss


def test_tags_by_code_and_then_by_text(rmqctl: Rmqctl) -> None:
    """AaAa and BBBB have one hash: the broker lets both pass, the consumer drops the other."""
    tags = [r.get("tags") for r in truth()]
    tag = max({t for t in tags if t}, key=tags.count)
    found = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 0, "-n", 500, "--tag", tag)
    assert [r["queue_offset"] for r in found[1:]] == [i for i, t in enumerate(tags) if t == tag]


def test_two_tags_with_one_hash(rmqctl: Rmqctl) -> None:
    tags = [r.get("tags") for r in truth()]
    at = tags.index("BB")
    steps = rows(rmqctl, stores.pristine(STORE), "LabLog/1", at, "--tag", "Aa", "--explain", code=1)
    assert steps[0]["status"] == "FOUND"
    assert steps[-1]["id"] == "miss.tag-text"
    steps = rows(
        rmqctl, stores.pristine(STORE), "LabLog/1", at, "--tag", "zz", "--as-release", "5.5.0", "--explain", code=1
    )
    assert (steps[0]["status"], steps[-1]["id"]) == ("NO_MATCHED_MESSAGE", "miss.tag-code")


def test_filters(rmqctl: Rmqctl) -> None:
    keyed = next(r for r in truth() if r.get("keys"))
    key = keyed["keys"].split()[0]
    found = rows(rmqctl, stores.pristine(STORE), "LabLog/1", 0, "-n", 500, "--key", key)
    assert keyed["commitLogOffset"] in [r["physical_offset"] for r in found[1:]]
    assert all(key in r["keys"] for r in found[1:])


def test_batches(rmqctl: Rmqctl) -> None:
    """Three records hold 18 messages; an offset inside a batch gives the batch."""
    found = rows(rmqctl, stores.pristine(STORE), "LabBatchCq/0", 1)
    assert (found[0]["status"], found[0]["max_offset"]) == ("FOUND", 18)
    assert len(found[1]["inner"]) > 1
    everything = rows(rmqctl, stores.pristine(STORE), "LabBatchCq/0", 0, "-n", 18)
    assert sum(len(r["inner"]) for r in everything[1:]) == 18
    assert everything[0]["next_offset"] == 18


def test_table(rmqctl: Rmqctl) -> None:
    result = rmqctl("query-offset", stores.pristine(STORE), "LabLog/1", 7, "-n", 2, "--explain")
    assert result.exit_code == 0
    assert result.stdout.startswith("FOUND: the queue is [0, 138), a consumer goes on at 9\n")
    assert result.stdout.splitlines()[-1].startswith("=> found: 2 messages")


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (("LabLg/0", "0"), 1, "did you mean LabLog"),
        (("LabLog/44", "0"), 1, "topic LabLog has no queue 44; its queues are 0 to 2"),
        (("LabLog", "0"), 2, "'LabLog' does not name a queue; give TOPIC/QUEUE"),
        (("LabLog/0", "many"), 2, "'many' is not a valid integer"),
    ],
)
def test_bad_questions(args: tuple[str, ...], code: int, sentence: str, rmqctl: Rmqctl) -> None:
    result = rmqctl("query-offset", stores.pristine(STORE), *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert sentence in result.stderr


def test_json_stays_json_for_an_unknown_topic(rmqctl: Rmqctl) -> None:
    result = rmqctl("query-offset", stores.pristine(STORE), "Nowhere/0", 0, "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, [])


def test_the_release_of_a_store_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    find = releases.release_range
    monkeypatch.setattr(releases, "release_range", lambda store: asked.append(store) or find(store))
    store = open_store(str(stores.pristine(STORE)))
    found = [[row["status"] for row in store.query_offset("LabOrders", 0, n) if "status" in row] for n in range(3)]
    assert found == [["FOUND"]] * 3
    assert len(asked) == 1
