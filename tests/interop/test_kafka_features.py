"""The table of features is what the jars of each release say: needs Java and Maven."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rmqctl.kafka.directory.releases import FEATURES
from rmqctl.release import Release
from tests.interop.judge import has_java
from tests.interop.kafka_node import PROJECT, class_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.mark.parametrize("release", FEATURES, ids=str)
def test_levels_are_those_of_the_jars(release: Release, tmp_path: Path) -> None:
    jars = class_path(str(release), tmp_path)
    source = PROJECT / "FeatureRanges.java"
    done = subprocess.run(["java", "-cp", jars, str(source)], check=True, capture_output=True, text=True)
    rows = (line.split() for line in done.stdout.splitlines())
    assert {name: (int(lowest), int(highest)) for name, lowest, highest in rows} == FEATURES[release]
