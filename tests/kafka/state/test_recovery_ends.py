"""Where partitions begin and end in damaged directories, against what real brokers did when they started on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.state.replicas import Replicas

RELEASES = ("3.9.2", "4.3.1")
TELLING = (
    "base-offset-plus-1000",
    "index-active-garbage",
    "last-batch-base-offset-2pow40",
)


def _variants(release: str) -> list[dict[str, Any]]:
    return [variant for variant in golden.recovery_oracle(release)["variants"] if variant.get("loaded")]


def _check(release: str, variant: dict[str, Any], tmp_path: Path) -> None:
    root = golden.unpack(f"{release}-{variant['variant'].split('/')[0]}", tmp_path)
    kafka_damage.apply(variant["recipe"], root)
    replicas = Replicas(LogDirectories([read_directory(LocalTree(root))]))
    for label, told in variant["loaded"].items():
        topic, _, number = label.rpartition("-")
        log = replicas.find(topic, int(number))
        assert log is not None
        found = log.replayed
        assert (label, found.log_start_offset, found.log_end_offset) == (
            label,
            told["logStartOffset"],
            told["logEndOffset"],
        )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", TELLING)
def test_telling_variants(release: str, name: str, tmp_path: Path) -> None:
    for variant in _variants(release):
        base, found = variant["variant"].split("/")
        if found == name:
            (tmp_path / base).mkdir()
            _check(release, variant, tmp_path / base)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "variant"),
    [
        pytest.param(release, variant, id=f"{release}-{variant['variant']}")
        for release in RELEASES
        for variant in _variants(release)
    ],
)
def test_every_variant(release: str, variant: dict[str, Any], tmp_path: Path) -> None:
    _check(release, variant, tmp_path)
