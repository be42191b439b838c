"""``verify`` of undamaged stores: nothing normal is reported as damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.rocketmq.damage_table import NORMAL_NOTES


def _verify(rmqctl: Any, root: Path, *options: str) -> dict[str, Any]:
    result = rmqctl("verify", root, "-o", "json", *options)
    assert result.exit_code in (0, 1), result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("name", golden.NAMES)
def test_no_error_and_no_warning(name: str, rmqctl: Any) -> None:
    document = _verify(rmqctl, golden.pristine(name))
    assert [found for found in document["findings"] if found["severity"] != "note"] == []
    assert document["summary"]["findings"]["error"] == document["summary"]["findings"]["warning"] == 0


@pytest.mark.parametrize("name", golden.NAMES)
def test_notes_are_the_normal_ones(name: str, rmqctl: Any) -> None:
    notes = {found["id"] for found in _verify(rmqctl, golden.pristine(name))["findings"]}
    assert notes <= NORMAL_NOTES[name.rpartition("-")[2]]
    assert ("store.abort" in notes) == name.endswith("-crash")


@pytest.mark.parametrize("name", golden.NAMES)
def test_broker_settings_change_nothing(name: str, rmqctl: Any, tmp_path: Path) -> None:
    conf = golden.write_broker_conf(name, tmp_path / "broker.conf")
    document = _verify(rmqctl, golden.pristine(name), "--broker-conf", str(conf))
    assert [found for found in document["findings"] if found["severity"] != "note"] == []


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("level", ["quick", "structure"])
def test_lower_levels_find_nothing_either(name: str, level: str, rmqctl: Any) -> None:
    document = _verify(rmqctl, golden.pristine(name), "--level", level)
    assert document["summary"]["level"] == level
    assert [found for found in document["findings"] if found["severity"] != "note"] == []


@pytest.mark.parametrize("name", golden.NAMES)
def test_summary_counts_the_records(name: str, rmqctl: Any) -> None:
    """And the messages in them: what `topics` counts, those of inner batches one by one."""
    summary = _verify(rmqctl, golden.pristine(name))["summary"]
    records = [true for true in golden.truth(name) if true["kind"] == "msg"]
    inner = [int(true["properties"].get("INNER_NUM", 1)) for true in records]
    assert [summary["records"], summary["messages"]] == [len(records), sum(inner)]


@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.0-crash"])
def test_the_record_without_a_unit_is_named(name: str, rmqctl: Any) -> None:
    last = [true for true in golden.truth(name) if true["kind"] == "msg"][-1]
    found = [f for f in _verify(rmqctl, golden.pristine(name))["findings"] if f["id"] == "queue.undispatched"]
    assert len(found) == 1
    assert f"{last['topic']}/{last['queueId']}" in found[0]["file"] or found[0].get("topic") == last["topic"]


@pytest.mark.parametrize("name", ["4.5.2-crash", "4.9.8-crash", "5.5.0-crash"])
def test_the_precreated_file_is_a_note(name: str, rmqctl: Any) -> None:
    found = [f for f in _verify(rmqctl, golden.pristine(name))["findings"] if f["id"] == "log.zero-file"]
    assert [f["file"] for f in found] == ["commitlog/00000000000000655360"]
