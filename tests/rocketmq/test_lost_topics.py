"""topics.json and its .bak are gone, or older than the queues: a broker serves nothing of what they do not name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.state.config import is_made_at_start, queue_type
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.state import check_config
from tests.rocketmq.rare_stores_helpers import RARE

PLAIN = ("LabDelay", "LabLog", "LabOne", "LabOrders", "LabRetry", "LabTx")


def unpacked(name: str, directory: Path) -> tuple[Path, Path]:
    return golden.unpack(name, directory), golden.write_broker_conf(name, directory / "broker.conf")


def lose_topics(root: Path) -> dict[str, Any]:
    """What they were."""
    document = json.loads((root / "config/topics.json").read_bytes())
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).unlink(missing_ok=True)
    table: dict[str, Any] = document["topicConfigTable"]
    return table


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean", "4.5.2-crash", "5.5.0-rdbcq-clean"])
def test_lost_topics_are_made_again(name: str, rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked(name, tmp_path)
    was = lose_topics(root)
    found = json.loads(rmqctl("verify", root, "--broker-conf", conf, "-o", "json").stdout)["findings"]
    (lost,) = [f for f in found if f["severity"] != "note"]
    assert (lost["id"], lost["file"], lost["severity"]) == ("config.no-topics", "config/topics.json", "error")
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes", "-o", "json")
    assert done.exit_code == 0, done.output
    assert rmqctl("verify", root, "--broker-conf", conf).exit_code == 0
    made = json.loads((root / "config/topics.json").read_bytes())["topicConfigTable"]
    start = recover(open_store_at(str(root), broker_conf=str(conf)))
    assert (start.error, start.unknown_topics) == (None, [])
    for topic, queue, _, _ in start.ranges():
        if topic in was and not is_made_at_start(topic):
            assert queue < made[topic]["readQueueNums"] <= was[topic]["readQueueNums"]
            assert queue_type(made[topic]) == queue_type(was[topic])


def test_what_a_start_serves_is_said(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked("4.9.8-clean", tmp_path)
    assert recover(open_store_at(str(root), broker_conf=str(conf))).is_harmless
    lose_topics(root)
    asked = rmqctl("recover", root, "--broker-conf", conf, "-o", "json")
    assert asked.exit_code == 1
    assert set(json.loads(asked.stdout)["unknown_topics"]) == set(PLAIN)
    assert "SERVES NOTHING of topics" in rmqctl("recover", root, "--broker-conf", conf).stdout


def test_a_start_of_5x_refuses_batch_queues_of_an_unknown_topic(tmp_path: Path) -> None:
    root, conf = unpacked("5.5.0-clean", tmp_path)
    lose_topics(root)
    found = recover(open_store_at(str(root), broker_conf=str(conf)), Release(5, 5, 0))
    assert "LabBatchCq" in (found.error or "")


def test_topics_that_an_older_file_lacks_come_back(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked("4.9.8-clean", tmp_path)
    path = root / "config/topics.json"
    document = json.loads(path.read_bytes())
    for topic in ("LabLog", "LabOrders"):
        del document["topicConfigTable"][topic]
    path.write_text(json.dumps(document))
    assert recover(open_store_at(str(root), broker_conf=str(conf))).unknown_topics == ["LabLog", "LabOrders"]
    assert rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes").exit_code == 0
    table = json.loads(path.read_bytes())["topicConfigTable"]
    assert {name: table[name] for name in document["topicConfigTable"]} == document["topicConfigTable"]
    assert table["LabOrders"]["readQueueNums"] == 4


@pytest.mark.parametrize("kind", ["5.3.3-ipv6-v2", "5.5.0-batch"])
def test_a_store_without_a_broker_has_no_topics_to_lose(kind: str, rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    golden.extract(RARE / f"{kind}.tar.xz", tmp_path)
    for name in (tmp_path / kind / "config").glob("*"):
        name.unlink()
    assert rmqctl("verify", tmp_path / kind).exit_code == 0
    assert recover(open_store_at(str(tmp_path / kind))).is_harmless


def test_doctor_names_the_page_for_lost_topics(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked("4.9.8-clean", tmp_path)
    shutil.rmtree(root / "config")
    asked = rmqctl("doctor", root, "--broker-conf", conf, "-o", "json")
    assert asked.exit_code == 1
    found = json.loads(asked.stdout)
    assert (found["worst"]["id"], found["page"]) == ("config.no-topics", "emergency/file-deleted")


def test_positions_that_are_lost_are_said_once_the_topics_are_back(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked("4.9.8-clean", tmp_path)
    shutil.rmtree(root / "config")
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes", "-o", "json")
    assert done.exit_code == 1  # the positions are left
    asked = rmqctl("doctor", root, "--broker-conf", conf, "-o", "json")
    assert asked.exit_code == 1
    found = json.loads(asked.stdout)
    assert (found["worst"]["id"], found["page"]) == ("config.no-offsets", "emergency/file-deleted")
    assert "Lab_grpRetry" in found["worst"]["message"]


@pytest.mark.parametrize("name", [*golden.BROKER_STORES, *golden.DATABASE_STORES])
def test_positions_of_a_whole_store_are_not_missed(name: str) -> None:
    store = open_store_at(str(golden.pristine(name)))
    assert [f for f in check_config(store, LogContext.of(store, None)) if f.kind.id == "config.no-offsets"] == []


def test_a_produced_store_has_no_positions_and_misses_none(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    for release in ("4.9.8", "5.5.0"):
        root = tmp_path / release
        words = "--topic", "%RETRY%group", "--topic", "Orders", "--count", 4, "--small", "--as-release", release
        assert rmqctl("produce", root, *words).exit_code == 0
        assert json.loads((root / "config/consumerOffset.json").read_bytes())["offsetTable"] == {}
        assert rmqctl("verify", root).exit_code == 0
        (root / "config/consumerOffset.json").unlink()
        found = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
        assert [f["id"] for f in found] == ["config.no-offsets"]
