"""Whole brokers take over stores of other releases: what they have is what the replay says; and settings are the jars'."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.kafka.state.parts import SETTINGS as KAFKA
from rmqctl.known_settings import KnownSettings
from rmqctl.rocketmq.state.settings import SETTINGS as ROCKETMQ
from tests.interop.judge import class_path, has_java, java, settings_of
from tests.interop.settings_table import RELEASES, jars_of, lines, settings
from tests.interop.started_helpers import hold

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
FEW = ("4.9.8-clean", "5.3.3-clean", "5.5.0-clean", "5.5.0-rdbcfgv2-clean", "5.5.0-rocksdb-clean")
STORES = FEW if os.environ.get("RMQCTL_INTEROP") != "all" else (*golden.BROKER_STORES, *golden.DATABASE_STORES, *FEW)
PATIENCE = 120


@pytest.mark.parametrize("release", RELEASES["rocketmq"])
def test_a_store_is_taken_over_as_is_replayed(release: str, tmp_path: Path, compiled: Path) -> None:
    classes = class_path(release, compiled, "StartedBroker")
    for name in dict.fromkeys(STORES):
        root = golden.unpack(name, tmp_path)
        command = java(classes, tmp_path / "home", "StartedBroker", root, *settings_of(golden.broker_conf(name)))
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE, cwd=tmp_path)
        hold(name, release, json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("family", "known"), [("rocketmq", ROCKETMQ), ("kafka", KAFKA)], ids=["rocketmq", "kafka"])
def test_settings_are_those_of_the_jars(family: str, known: KnownSettings, tmp_path: Path) -> None:
    found = {release: settings(jars_of(family, release, tmp_path)) for release in RELEASES[family]}
    assert known.text().splitlines() == lines(found)
