"""Configuration files that cannot be read, with and without a good .bak, and offsets outside their queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions
from rmqctl.rocketmq.verify.state import _delays


def findings(root: Path, as_release: Release | None = None) -> list[Finding]:
    options = VerifyOptions(Level.QUICK, as_release=as_release)
    return [f for f in Verification(open_store_at(str(root)), options).findings() if f.level != "note"]


def brief(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.kind.id, f.file, str(f.level)) for f in found]


@pytest.fixture(params=["4.9.8-clean", "5.5.0-clean"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 200, b'{"topicConfigTable":{"a":}'])
def test_a_broken_file_with_a_good_backup(store: Path, content: bytes) -> None:
    path = store / "config" / "topics.json"
    (store / "config" / "topics.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(content)
    found = findings(store)
    assert brief(found) == [("config.fallback", "config/topics.json", "warning")]
    said = "is empty" if not content.strip(b"\0") else "is no JSON: expecting"
    assert found[0].message.startswith(f"the file {said}") and found[0].message.endswith("; its .bak is good")


def test_a_broken_file_and_a_broken_backup(store: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b'{"topicConfigTable":')
    assert brief(findings(store)) == [("config.unreadable", "config/topics.json", "error")]


def test_a_broken_file_and_no_backup(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_bytes(b"")
    (store / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    assert brief(findings(store)) == [("config.unreadable", "config/consumerOffset.json", "error")]


def test_a_consumer_beyond_the_end_of_its_queue(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"LabOne@g":{0:13},"LabLog@g":{0:1}}}')
    (found,) = findings(store)
    assert (found.kind.id, found.topic, found.queue_id) == ("config.consumer-offset", "LabOne", 0)
    assert "13" in found.message
    assert "12" in found.message


def test_a_delay_level_outside_its_queue(store: Path) -> None:
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:999}}')
    assert brief(findings(store)) == [("config.delay-offset", "config/delayOffset.json", "warning")]


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(("offset", "odd"), [(5, True), (10, False), (20, False), (21, True)])
def test_retention_is_ahead_of_the_position_that_a_running_broker_has_written(
    running: bool, offset: int, odd: bool
) -> None:
    found = list(_delays({1: offset}, {("SCHEDULE_TOPIC_XXXX", 0): (10, 20)}, running=running))
    assert bool(found) == (odd and not (running and offset < 10))


def test_a_topic_that_nobody_knows(store: Path) -> None:
    (store / "consumequeue" / "LabLog").rename(store / "consumequeue" / "Other")
    assert ("queue.orphan", "consumequeue/Other", "warning") in brief(findings(store))
