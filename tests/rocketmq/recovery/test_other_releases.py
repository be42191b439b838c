"""Stores that another release takes over: the replayed start, and the verdict of `preflight`, against what whole brokers
of that release had."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.conftest import Rmqctl
from tests.interop.started_helpers import broker_settings, hold

RECORDED = Path(golden.__file__).parent / "interop" / "rocketmq.matrix.json.xz"
CELLS: list[dict[str, Any]] = json.loads(lzma.decompress(RECORDED.read_bytes()))
on_each_start = pytest.mark.parametrize(
    "cell", CELLS, ids=lambda cell: f"{cell['store']}-{cell['settings']}-as-{cell['release']}"
)


@on_each_start
def test_a_broker_of_another_release_has_what_is_replayed(cell: dict[str, Any]) -> None:
    hold(cell["store"], cell["release"], cell, kind=cell["settings"])


@pytest.mark.slow
@on_each_start
def test_a_start_that_loses_nothing_serves_every_message(cell: dict[str, Any], rmqctl: Rmqctl, tmp_path: Path) -> None:
    name, settings = cell["store"], tmp_path / "broker.conf"
    known = broker_settings(name, cell["settings"], cell["release"])
    settings.write_text("".join(f"{setting}={value}\n" for setting, value in known.items()))
    conf = ("--conf", settings) if cell["settings"] == "plain" else ()
    found = json.loads(rmqctl("preflight", golden.pristine(name), "--to", cell["release"], *conf, "-o", "json").stdout)
    assert (found["verdict"] == "refuses") == (not cell["starts"])
    queues, topics = cell["queues"], set(cell["topics"])
    sent = [(m["topic"], m["queueId"], m["queueOffset"]) for m in golden.truth(name) if m["kind"] == "msg"]
    served = [
        topic in topics
        and queues.get(f"{topic}/{number}", [0, 0])[0] <= at < queues.get(f"{topic}/{number}", [0, 0])[1]
        for topic, number, at in sent
        if topic.isalnum()
    ]
    assert served
    assert all(served) or found["verdict"] == "loses"
