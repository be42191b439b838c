"""What verify names for each kind of damage that brokers were started on, and to messages of 2.8.2, and nothing else.

The tables hold, for every recorded variant, severity, id, file, offset and size of each finding that the
undamaged directory does not have. They were read through once against what the recipes do.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.verify.driver import Verification, VerifyOptions

HERE = Path(__file__).parent
RELEASES = ("3.9.2", "4.3.1")
FEW = ("crc-body-mid-batch", "middle-log-deleted", "txnindex-older-deleted", "log-start-beyond-leo", "torn-tail-body")

Row = tuple[str, str, str, int, int]


def found(root: Path, **options: Any) -> set[Row]:
    checked = Verification(read_directory(LocalTree(str(root))), VerifyOptions(**options))
    return {(str(f.level), f.kind.id, f.file, f.offset, f.size) for f in checked.findings()}


@cache
def undamaged(name: str) -> frozenset[Row]:
    return frozenset(found(golden.pristine(name)))


def table(release: str) -> dict[str, list[list[Any]]]:
    parsed: dict[str, list[list[Any]]] = json.loads((HERE / f"found-{release}.json").read_text("utf-8"))
    return parsed


def cases() -> list[Any]:
    made = []
    for release in RELEASES:
        for variant in table(release):
            is_slow = variant.partition("/")[2] not in FEW
            made.append(pytest.param(release, variant, marks=[pytest.mark.slow] if is_slow else []))
    return made


@pytest.mark.parametrize(("release", "variant"), cases())
def test_names_the_damage_and_nothing_else(release: str, variant: str, tmp_path: Path) -> None:
    name = f"{release}-{variant.partition('/')[0]}"
    recipe = next(v["recipe"] for v in golden.recovery_oracle(release)["variants"] if v["variant"] == variant)
    root = golden.unpack(name, tmp_path)
    kafka_damage.apply(recipe, root)
    assert sorted(found(root) - undamaged(name)) == [tuple(row) for row in table(release)[variant]]


LEGACY = json.loads((HERE / "found-2.8.2.json").read_text("utf-8"))
"""Messages of magic 0 and 1: of 2.8.2 no starts on damage were recorded, so the recipes are here, too."""


@pytest.mark.parametrize("variant", LEGACY)
def test_names_damage_to_messages_of_magic_0_and_1(variant: str, tmp_path: Path) -> None:
    case = LEGACY[variant]
    file = case["recipe"][0]["file"].split("/")[0]
    for name in ("meta.properties", "replication-offset-checkpoint"):
        shutil.copy2(golden.pristine("2.8.2-crash") / name, tmp_path)
    golden.copy_tree(golden.pristine("2.8.2-crash") / file, tmp_path / file)
    before = found(tmp_path)
    kafka_damage.apply(case["recipe"], tmp_path)
    assert sorted(found(tmp_path) - before) == [tuple(row) for row in case["found"]]
    assert before <= found(tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_every_variant_has_a_row(release: str) -> None:
    assert set(table(release)) == {v["variant"] for v in golden.recovery_oracle(release)["variants"]}


@pytest.mark.parametrize("name", [*golden.KAFKA_NAMES, *golden.KAFKA_UNPRINTED])
def test_nothing_normal_is_damage(name: str) -> None:
    assert {row for row in undamaged(name) if row[0] != "note"} == set()


@pytest.mark.parametrize("name", ["3.9.2-crash", "2.8.2-clean"])
@pytest.mark.parametrize("options", [{"split_size": 700}, {"processes": 2, "split_size": 4096}])
def test_any_division_gives_the_same(name: str, options: dict[str, int]) -> None:
    assert found(golden.pristine(name), **options) == undamaged(name)


def test_indexes_of_a_deleted_topic_never_get_their_last_entry(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    deleted = next(path for path in root.iterdir() if path.name.startswith("goner-0."))
    before = {row for row in found(root) if row[0] != "note"}
    for index in deleted.glob("*.timeindex"):
        index.write_bytes(bytes(len(index.read_bytes())))
    assert {row for row in found(root) if row[0] != "note"} == before


@pytest.mark.parametrize("restarts", [True, False])
def test_a_broker_that_starts_often_leaves_indexes_without_entries(tmp_path: Path, restarts: bool) -> None:
    """It counts the bytes to the next entry from 0 again, and each start has a leader epoch of its own."""
    config = EngineConfig(log=replace(LogConfig(), segment_bytes=20_000))
    for turn in range(14):
        with KafkaEngine.open(tmp_path, config) as engine:
            engine.make_topic("t", 1)
            log = engine.log("t", 0)
            if turn > 6:  # before, one start is enough to show the interval
                log.place = replace(log.place, leader_epoch=turn if restarts else 0)
                log.active.unindexed = 0
            for number in range(3):
                engine.append("t", 0, [Record(0, 1_700_000_000_000 + turn * 10 + number, -1, None, bytes(1000))])
    sizes = [path.stat().st_size for path in sorted((tmp_path / "t-0").glob("*.index"))]
    assert sizes[0] > 0
    assert 0 in sizes[1:-1]
    ids = {row[1] for row in found(tmp_path) if row[0] != "note"}
    assert ids == (set() if restarts else {"offset-index.coverage"})
