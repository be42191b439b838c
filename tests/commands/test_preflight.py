"""``rmqctl preflight``: the verdict is that of the replayed start, and every reason has its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.rocketmq.state.parts import PARTS

Rmqctl = Callable[..., Result]
ROCKETMQ, KAFKA = ("4.9.7", "5.1.4", "5.3.3", "5.5.0"), ("2.8.2", "3.3.2", "3.9.2", "4.0.0", "4.3.1", "4.4.0")
STORES = (
    "4.9.8-crash",
    "5.1.4-clean",
    "5.5.0-clean",
    "5.5.0-rdbcfgv2-clean",
    "5.5.0-rdblite-clean",
    "5.5.0-rocksdb-clean",
)
DIRECTORIES = ("2.8.2-clean", "3.9.2-crash", "4.3.1-clean")


def asked(rmqctl: Rmqctl, store: Path, to: str, *more: object) -> dict[str, Any]:
    result = rmqctl("preflight", store, "--to", to, "-o", "json", *more)
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found["verdict"] == "starts" else 1)
    return found


@pytest.mark.parametrize(
    ("store", "to"),
    [*((s, r) for s in STORES for r in ROCKETMQ), *((d, r) for d in DIRECTORIES for r in KAFKA)],
)
def test_the_verdict_is_that_of_recover(store: str, to: str, rmqctl: Rmqctl) -> None:
    found = asked(rmqctl, golden.pristine(store), to)
    replayed = rmqctl("recover", golden.pristine(store), "--as-release", to, "-o", "json")
    start = json.loads(replayed.stdout)
    is_brokers = store != "5.5.0-rocksdb-clean"  # has no configuration: a program has used the store's classes
    assert (found["verdict"] == "starts") == (replayed.exit_code == 0 and is_brokers)
    assert (found["starts"], found["error"], found["lost"]) == (start["starts"], start["error"], start["lost"])
    harms = {one["id"] for one in found["statements"] if one["effect"] in ("loses", "hides")}
    assert not harms or found["verdict"] in ("loses", "refuses")
    assert all(one["source"] for one in found["statements"])


def test_a_broker_serves_nothing_of_a_store_without_a_configuration(rmqctl: Rmqctl) -> None:
    store = golden.pristine("5.5.0-rocksdb-clean")
    found = asked(rmqctl, store, "5.5.0")
    assert (found["verdict"], found["starts"]) == ("loses", True)
    said = rmqctl("preflight", store, "--to", "5.5.0").stdout
    assert said.startswith(
        "A 5.5.0 broker starts and serves nothing of topics that its configuration does not name: Rocks"
    )
    assert rmqctl("recover", store).exit_code == 0, "the classes of the store serve them"


@pytest.mark.parametrize(
    ("store", "to", "verdict", "ids"),
    [
        ("5.5.0-clean", "4.9.7", "loses", {"timers.wheel", "queues.batch"}),
        ("5.5.0-clean", "5.3.3", "starts", set()),
        ("4.9.8-clean", "5.5.0", "starts", set()),
        ("5.5.0-rdbcfg-clean", "5.3.3", "loses", {"config.rocksdb-single"}),
        ("5.5.0-rdbcfgv2-clean", "5.1.4", "loses", {"config.rocksdb-2"}),
        ("5.5.0-rdbpop-clean", "5.1.4", "loses", {"pop.rocksdb"}),
        ("5.5.0-rdblite-clean", "5.3.3", "loses", {"queues.light-rocksdb"}),
        ("2.8.2-clean", "3.9.2", "starts", set()),
        ("2.8.2-clean", "4.0.0", "unknown", set()),
        ("3.9.2-clean", "4.4.0", "refuses", {"topics.segment-bytes"}),
        ("4.3.1-clean", "3.9.2", "refuses", {"metadata.features"}),
        ("3.9.2-clean", "4.0.0", "starts", set()),
        ("4.3.1-clean", "4.4.0", "starts", set()),
    ],
)
def test_what_is_not_read_is_named(store: str, to: str, verdict: str, ids: set[str], rmqctl: Rmqctl) -> None:
    found = asked(rmqctl, golden.pristine(store), to)
    harms = {one["id"] for one in found["statements"] if one["effect"] in ("refuses", "loses", "hides")}
    assert (found["verdict"], ids - harms) == (verdict, set())
    assert ids or not harms


def test_configuration_in_rocksdb_means_topics_that_nobody_serves(rmqctl: Rmqctl) -> None:
    store = golden.pristine("5.5.0-rdbcfgv2-clean")
    there = json.loads(rmqctl("recover", store, "--as-release", "5.5.0", "-o", "json").stdout)
    gone = json.loads(rmqctl("recover", store, "--as-release", "5.1.4", "-o", "json").stdout)
    assert "unknown_topics" not in there
    assert gone["unknown_topics"]
    assert [part["id"] for part in gone["unread"] if part["effect"] == "loses"] == ["config.rocksdb-2"]


def test_the_way_back_names_what_bars_it(rmqctl: Rmqctl) -> None:
    up = asked(rmqctl, golden.pristine("3.9.2-clean"), "4.4.0")["back"]
    assert (up["release"], up["verdict"]) == ("3.9.2", "starts")
    assert "feature.metadata.version" in {one["id"] for one in up["statements"]}
    down = asked(rmqctl, golden.pristine("5.5.0-clean"), "4.9.7")["back"]
    assert "timers.wheel" in {one["id"] for one in down["statements"]}
    assert asked(rmqctl, golden.pristine("5.5.0-clean"), "5.5.0")["back"] is None


def test_settings_are_held_against_the_release(rmqctl: Rmqctl, tmp_path: Path) -> None:
    conf, store = tmp_path / "broker.conf", golden.pristine("5.5.0-clean")
    sizes = "".join(f"{name}={value}\n" for name, value in golden.broker_conf("5.5.0-clean").items())
    conf.write_text(f"{sizes}popConsumerKVServiceEnable=true\nmapedFileSizeCommitLog=1\nnonsense=1\n", "utf-8")
    said = {one["id"]: one for one in asked(rmqctl, store, "5.1.4", "--conf", conf)["statements"]}
    assert "came with 5.3.3" in said["setting.popConsumerKVServiceEnable"]["message"]
    assert "no release knows it" in said["setting.nonsense"]["message"]
    assert "did you mean mappedFileSizeCommitLog" in said["setting.mapedFileSizeCommitLog"]["message"]
    assert "settings.defaults" in said
    conf.write_text("brokerName=a\n", "utf-8")
    refused = asked(rmqctl, store, "5.5.0", "--conf", conf)
    assert (refused["verdict"], "has 131072 bytes, not 1073741824" in refused["error"]) == ("refuses", True)


def test_settings_of_kafka_are_held_against_the_release(rmqctl: Rmqctl, tmp_path: Path) -> None:
    conf, logs = tmp_path / "server.properties", golden.pristine("3.9.2-clean")
    conf.write_text("log.dirs=/x\nnode.id=1\ninter.broker.protocol.version=3.9\nlistener.name.a.b=c\n", "utf-8")
    refused = asked(rmqctl, logs, "4.3.1", "--conf", conf)
    assert (refused["verdict"], "process.roles" in refused["error"]) == ("refuses", True)
    said = {one["id"]: one["message"] for one in refused["statements"]}
    assert "4.0.0 does not have it" in said["setting.inter.broker.protocol.version"]
    assert "setting.listener.name.a.b" not in said
    conf.write_text("log.dirs=/x\nprocess.roles=broker,controller\nnode.id=7\n", "utf-8")
    assert "settings have node 7" in asked(rmqctl, logs, "4.3.1", "--conf", conf)["error"]
    replayed = rmqctl("recover", logs, "--as-release", "4.3.1", "--broker-conf", conf, "-o", "json")
    assert json.loads(replayed.stdout)["starts"] is False


def test_a_directory_of_zookeeper_needs_a_migrated_cluster(rmqctl: Rmqctl, tmp_path: Path) -> None:
    conf, logs = tmp_path / "server.properties", golden.pristine("2.8.2-clean")
    found = asked(rmqctl, logs, "4.0.0")
    assert "-stray" in found["unknown"]
    assert "mode.zookeeper" in {one["id"] for one in found["statements"]}
    conf.write_text("log.dirs=/x\nzookeeper.connect=localhost:2181\n", "utf-8")
    assert "process.roles" in asked(rmqctl, logs, "4.0.0", "--conf", conf)["error"]
    assert asked(rmqctl, logs, "3.9.2", "--conf", conf)["verdict"] == "starts"


def test_an_estimate_counts_what_the_start_reads(rmqctl: Rmqctl) -> None:
    crashed = asked(rmqctl, golden.pristine("4.3.1-crash"), "4.3.1")["estimate"]
    clean = asked(rmqctl, golden.pristine("4.3.1-clean"), "4.3.1")["estimate"]
    assert crashed["bytes"] > clean["bytes"]
    assert len(crashed["longest"]) == 3
    assert crashed["seconds"] >= crashed["bytes"] / crashed["bytes_per_second"] * 0.99


def test_an_estimate_counts_of_a_queue_what_is_written(rmqctl: Rmqctl, tmp_path: Path) -> None:
    assert rmqctl("produce", tmp_path / "store", "--topic", "A", "--count", 100).exit_code == 0
    found = asked(rmqctl, tmp_path / "store", "5.5.0")
    log = json.loads(rmqctl("info", tmp_path / "store", "-o", "json").stdout)["commit_log"]["max_offset"]
    assert found["estimate"]["bytes"] == log + 100 * 20
    assert found["estimate"]["base_seconds"] <= found["estimate"]["seconds"]


def test_an_unknown_release_is_refused_by_its_option(rmqctl: Rmqctl) -> None:
    result = rmqctl("preflight", golden.pristine("5.5.0-clean"), "--to", "9.9.9")
    assert result.exit_code == 2
    assert "--to" in result.stderr


def test_parts_have_ids_of_their_own_and_come_in_order() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert [part.since for part in PARTS] == sorted(part.since for part in PARTS)
