"""Metrics of a watch, and what the pages give to use with them."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from rmqctl.errors import MissingExtra, WrongUsage
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.watch import Memory
from rmqctl.watch.metrics import METRICS, Metrics
from tests.watch.test_watch import ONCE, flip, watched

DOCS = Path(__file__).parents[2] / "docs"
_NAME = re.compile(r"rmqctl_watch_\w+")
Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    return {
        (one.name, tuple(one.labels[label] for label in METRICS[one.name][1])): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name in METRICS
    }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    engine = StoreEngine.open(root, StoreConfig.small(commit_log_file_size=1 << 15))
    for n in range(300):
        engine.put(Message("T", b"%d " % n * 20, n % 4))
    engine.close()
    offsets = {"offsetTable": {"T@readers": {"0": 15, "1": 75}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return root


def test_they_say_what_the_events_say(store: Path, tmp_path: Path) -> None:
    file, memory = tmp_path / "watch.prom", Memory()
    listener = Metrics("127.0.0.1:0", file)
    pristine = shutil.copytree(store, tmp_path / "pristine")
    flip(store, random.Random(1))
    name = str(store)
    settings = ONCE.__class__(cycles=1, every=0, patience=0, figures=60)
    events = watched(store, settings, memory, listener=listener)
    (found,) = (event for event in events if event["event"] == "found")
    cycle, figures = events[-1], next(event for event in events if event["event"] == "figures")
    with urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
        served = samples(answer.read().decode())
    assert served == samples(file.read_text())
    assert served["rmqctl_watch_findings", (name, found["id"], "error")] == 1
    assert served["rmqctl_watch_store_readable", (name,)] == 1
    assert served["rmqctl_watch_lag_messages", (name, "readers", "T")] == 210
    assert figures["lag"] == [{"group": "readers", "topic": "T", "lag": 210}]
    assert served["rmqctl_watch_start_read_bytes", (name,)] == figures["start"]["bytes"] > 0
    assert served["rmqctl_watch_read_bytes_total", (name,)] == cycle["bytes"]
    assert served["rmqctl_watch_cycle_begin_timestamp_seconds", (name,)] == 0
    assert abs(served["rmqctl_watch_cycle_end_timestamp_seconds", (name,)] * 1000 - cycle["time"]) < 1000
    assert {key[0] for key in served} == METRICS.keys()
    shutil.rmtree(store)
    shutil.copytree(pristine, store)
    watched(store, ONCE, memory, listener=listener)
    assert not any(key[0] == "rmqctl_watch_findings" for key in samples(file.read_text()))
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("address", ["9105", "host", "127.0.0.1:x", "127.0.0.1:70000", ":1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(WrongUsage):
        Metrics(address)


def test_without_the_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match="the extra watch"):
        Metrics("127.0.0.1:0")


def test_the_page_names_every_metric_with_its_labels() -> None:
    shown = re.findall(r"`(rmqctl_watch_\w+)\{([\w,]+)\}`", (DOCS / "watch.md").read_text("utf-8"))
    assert {name: tuple(labels.split(",")) for name, labels in shown} == {
        n: labels for n, (_, labels) in METRICS.items()
    }


def expressions() -> list[str]:
    rules = yaml.safe_load((DOCS / "watch" / "rules.yml").read_text("utf-8"))
    dashboard = json.loads((DOCS / "watch" / "dashboard.json").read_text("utf-8"))
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return asked + [one["query"] for one in dashboard["templating"]["list"]][1:]


def test_alert_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    named = {name for text in expressions() for name in _NAME.findall(text)}
    assert named == METRICS.keys()
    for text in expressions():
        labels = {label for part in re.findall(r"by \(([^)]*)\)", text) for label in part.split(", ")}
        labels |= set(re.findall(r"(\w+)=~?\"", text))
        assert all(labels <= set(METRICS[name][1]) for name in _NAME.findall(text)), text


def test_rules_have_what_prometheus_wants() -> None:
    rules = yaml.safe_load((DOCS / "watch" / "rules.yml").read_text("utf-8"))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= set(METRICS[_NAME.findall(rule["expr"])[0]][1])


def test_the_commands_in_the_files_are_commands() -> None:
    from commands.watch import command

    known = {long for parameter in command.params for long in (*parameter.opts, "-q")}
    unit = (DOCS / "watch" / "rmqctl-watch.service").read_text("utf-8")
    (line,) = re.findall(r"^ExecStart=/usr/bin/rmqctl (.*)$", unit, re.MULTILINE)
    (sidecar,) = yaml.safe_load((DOCS / "watch" / "sidecar.yml").read_text("utf-8"))["spec"]["template"]["spec"][
        "containers"
    ]
    for words in (line.split(), sidecar["args"]):
        assert words[0] == "watch"
        options: list[Any] = [word for word in words if word.startswith("-")]
        assert set(options) <= known
    (data, _) = sidecar["volumeMounts"]
    assert data["readOnly"]
