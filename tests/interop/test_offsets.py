"""Positions set while no broker ran: a released broker serves its groups from exactly there. Needs Java and Maven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.opening import open_store
from tests.interop.brokers_helpers import run
from tests.interop.compare import dumped
from tests.interop.judge import has_java, settings_of
from tests.interop.kafka_node import Node
from tests.interop.test_converted import records

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
_OLD, _NEW = "g-classic", "blue-green"
_STORES = (
    ("4.9.8-clean", "4.9.7", "LabLog", "Lab_grpLag"),
    ("5.5.0-clean", "5.5.0", "LabLog", "Lab_grpLag"),
    ("5.5.0-rdbcfg-clean", "5.5.0", "CfgLog", "Cfg_grpLag"),
    ("5.5.0-rdbcfgv2-clean", "5.5.0", "VtwoLog", "Vtwo_grpLag"),
)


@pytest.mark.parametrize(
    ("name", "release"), [("4.3.1-clean", "4.3.1"), ("4.3.1-crash", "4.3.1"), ("3.9.2-crash", "3.9.2")]
)
def test_a_kafka_broker(name: str, release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    logs = golden.unpack(name, tmp_path)
    for group, topic, to in ((_OLD, "plain-none", "-5"), (_NEW, "plain-none", "100"), (_NEW, "z-gzip", "latest")):
        words = ("--group", group, "--topic", topic, "--to", to, "--apply", "--yes")
        done = rmqctl("offsets", logs, "set", *words)
        assert done.exit_code == 0, done.stderr
    wanted = {
        (group, topic): {
            r["partition"]: r["consumer_offset"] for r in open_store(str(logs)).lag(group=group, topic=topic)
        }
        for group, topic in ((_OLD, "plain-none"), (_NEW, "plain-none"), (_NEW, "z-gzip"))
    }
    with Node(
        release, logs, compiled, {"offsets.topic.num.partitions": len(list(logs.glob("__consumer_offsets-*")))}
    ) as node:
        for (group, topic), at in wanted.items():
            left = [one for one in records(logs, topic) if one[1] >= at[one[0]]]
            assert sorted(node.ask("resume", group, topic)) == sorted(left), (group, topic)
    written = [row["file"] for row in open_store(str(logs)).verify(notes=False)]
    assert not [file for file in written if file.startswith("__consumer_offsets")]


@pytest.mark.parametrize(("name", "release", "topic", "group"), _STORES)
def test_a_rocketmq_broker(
    name: str, release: str, topic: str, group: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    if "rdb" in name:
        pytest.importorskip("rocksdict")
    root = golden.unpack(name, tmp_path)
    for words in (
        ("set", "--group", group, "--topic", topic, "--to", "+3"),
        ("copy", "--group", group, "--to-group", _NEW),
    ):
        done = rmqctl("offsets", root, *words, "--apply", "--yes")
        assert done.exit_code == 0, done.stderr
    assert (
        rmqctl("offsets", root, "set", "--group", _NEW, "--topic", topic, "--to", "-2", "--apply", "--yes").exit_code
        == 0
    )
    before = {p: m for p, m in dumped(rmqctl, root).items() if m["topic"] == topic}
    at = {
        who: {r["queue_id"]: r["consumer_offset"] for r in open_store(str(root)).lag(group=who, topic=topic)}
        for who in (group, _NEW)
    }
    settings = settings_of(golden.broker_conf(name))
    answer = run(
        compiled, release, root, [topic], 0, settings, groups=f"{group}@{topic},{_NEW}@{topic}", silence=12_000
    )
    assert len(answer["resumed"]) == len(at)
    for who, messages in answer["resumed"]:
        wanted = {p for p, m in before.items() if m["offset"] >= at[who][m["queue"]]}
        assert {m["physical"] for m in messages} == wanted, who
        assert 0 < len(wanted) < len(before)
