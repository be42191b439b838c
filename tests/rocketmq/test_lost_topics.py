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
from rmqctl.rocketmq.state.config import configured_topics, is_made_at_start, queue_type, stored_topics, topics_counter
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
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in made, "brokers up to 4.9 know it only a minute after they start"
    for topic, queue, _, _ in start.ranges():
        if topic in was and not is_made_at_start(topic, {}):
            assert queue < made[topic]["readQueueNums"] <= was[topic]["readQueueNums"]
            assert queue_type(made[topic]) == queue_type(was[topic])


def test_what_a_start_serves_is_said(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, conf = unpacked("4.9.8-clean", tmp_path)
    assert recover(open_store_at(str(root), broker_conf=str(conf))).is_harmless
    lose_topics(root)
    asked = rmqctl("recover", root, "--broker-conf", conf, "-o", "json")
    assert asked.exit_code == 1
    made_when_needed = {"%DLQ%Lab_grpRetry", "%RETRY%Lab_grpRetry", "TRANS_CHECK_MAX_TIME_TOPIC"}
    assert set(json.loads(asked.stdout)["unknown_topics"]) == {*PLAIN, *made_when_needed}
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


@pytest.mark.parametrize(
    ("name", "topic"),
    [("4.9.8-clean", "%DLQ%Lab_grpRetry"), ("4.9.8-crash", "TRANS_CHECK_MAX_TIME_TOPIC"), ("5.3.3-clean", "%RETRY%Lab_grpRetry")],
)  # fmt: skip
def test_topics_that_a_broker_makes_when_it_has_a_message_for_them_are_missed_and_come_back(
    name: str, topic: str, rmqctl: Callable[..., Any], tmp_path: Path
) -> None:
    """The messages are there already: no broker makes the topic again before it has another one."""
    root, conf = unpacked(name, tmp_path)
    path = root / "config/topics.json"
    document = json.loads(path.read_bytes())
    was = document["topicConfigTable"].pop(topic)
    path.write_text(json.dumps(document))
    asked = rmqctl("verify", root, "--broker-conf", conf, "-o", "json")
    assert [f["topic"] for f in json.loads(asked.stdout)["findings"] if f["id"] == "queue.orphan"] == [topic]
    assert recover(open_store_at(str(root), broker_conf=str(conf))).unknown_topics == [topic]
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert done.exit_code == 0, done.output
    made = json.loads(path.read_bytes())["topicConfigTable"]
    assert {key: made[topic][key] for key in was if key != "attributes"} == {
        k: v for k, v in was.items() if k != "attributes"
    }
    assert recover(open_store_at(str(root), broker_conf=str(conf))).unknown_topics == []


@pytest.mark.parametrize("name", ["5.5.0-rdbcfg-clean", "5.5.0-rdbincr-crash"])
def test_topics_that_a_database_of_the_configuration_lacks_are_handed_to_it(
    name: str, rmqctl: Callable[..., Any], tmp_path: Path
) -> None:
    """By a topics.json that counts further. What another's database knows stays, and is not said again."""
    root, conf = unpacked(name, tmp_path)
    before = stored_topics(open_store_at(str(root), broker_conf=str(conf)))
    for part in ("topics", "metadata"):
        shutil.rmtree(root / "config" / part, ignore_errors=True)
    other = {"5.5.0-rdbcfg-clean": "5.5.0-rdbincr-crash", "5.5.0-rdbincr-crash": "5.5.0-rdbcfg-clean"}[name]
    for part in ("topics", "metadata"):
        if (foreign := golden.pristine(other) / "config" / part).exists():
            golden.copy_tree(foreign, root / "config" / part)
    store = open_store_at(str(root), broker_conf=str(conf))
    known, start = stored_topics(store), recover(store)
    missed = {topic for topic, *_ in start.ranges()} & before.keys() - known.keys()
    assert missed == {t for t in start.unknown_topics if t in before} != set()
    found = json.loads(rmqctl("verify", root, "--broker-conf", conf, "-o", "json").stdout)["findings"]
    in_queues = {f["topic"] for f in found if f["id"] == "queue.orphan"}
    assert in_queues == (set(start.unknown_topics) if name.endswith("clean") else set())
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert done.exit_code == 0, done.output
    written = json.loads((root / "config/topics.json").read_bytes())
    assert written["topicConfigTable"].keys() == set(start.unknown_topics)
    assert written["dataVersion"]["counter"] == topics_counter(store) + 1
    assert configured_topics(store) == known | written["topicConfigTable"]
    assert recover(open_store_at(str(root), broker_conf=str(conf))).unknown_topics == []


def test_a_database_that_the_settings_leave_unread_names_no_topic(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    """One of version 2, of another store, in the place of the broker's own."""
    root, conf = unpacked("5.5.0-rdbincr-crash", tmp_path)
    was = stored_topics(open_store_at(str(root), broker_conf=str(conf)))
    shutil.rmtree(root / "config")
    golden.copy_tree(golden.pristine("5.5.0-rdbcfgv2-clean") / "config", root / "config")
    start = recover(open_store_at(str(root), broker_conf=str(conf)))
    assert set(start.unknown_topics) & was.keys() == {*start.unknown_topics} != set()
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes", "-o", "json")
    assert json.loads(done.stdout)["summary"]["refusal"] == ""
    store = open_store_at(str(root), broker_conf=str(conf))
    assert configured_topics(store) == json.loads((root / "config/topics.json").read_bytes())["topicConfigTable"]
    assert recover(store).unknown_topics == []


def test_topics_that_a_broker_makes_at_its_start_are_not_missed(tmp_path: Path) -> None:
    """Some of them only under the settings of this broker."""
    root, conf = unpacked("4.9.8-clean", tmp_path)
    path = root / "config/topics.json"
    document = json.loads(path.read_bytes())
    trace, reply = "RMQ_SYS_TRACE_TOPIC", "LabCluster_REPLY_TOPIC"
    for topic in (trace, reply):
        shutil.copytree(root / "consumequeue/LabOne", root / "consumequeue" / topic)
        document["topicConfigTable"].pop(topic, None)
    path.write_text(json.dumps(document))
    for lines, missed in (
        ("", [trace]),
        ("brokerClusterName=LabCluster\n", [trace]),
        ("brokerClusterName=Other\n", [reply, trace]),
        ("brokerClusterName=LabCluster\ntraceTopicEnable=true\n", []),
    ):
        other = tmp_path / "other.conf"
        other.write_text(conf.read_text("utf-8") + lines, "utf-8")
        store = open_store_at(str(root), broker_conf=str(other))
        found = check_config(store, LogContext.of(store, None))
        assert [f.topic for f in found if f.kind.id == "queue.orphan"] == missed


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
