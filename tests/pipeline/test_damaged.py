"""Damaged stores: whatever the splits, messages are those of ``dump`` and findings on Spark are the local ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.tables.columns import table_options
from rmqctl.rocketmq.tables.message_table import MessageTable
from tests.rocketmq.damage_table import Variant, variants

ALL = [variant for release in golden.RELEASES for variant in variants(release)]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("damaged")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[Path]:
    variant: Variant = request.param
    recipe = golden.recovery_oracle(variant.release)["variants"][variant.name]["recipe"]
    root = copies[variant.base]
    damage.apply(recipe, root)
    try:
        yield root
    finally:
        damage.undo(recipe, golden.pristine(variant.base), root)


def name_of(variant: Variant) -> str:
    return f"{variant.release}-{variant.name}"


@pytest.mark.parametrize("damaged", ALL[::9], indirect=True, ids=name_of)
def test_messages_are_those_of_the_walk(damaged: Path) -> None:
    store = open_store_at(str(damaged))
    walked = [
        int(offset)
        for found in CommitLog(store.log_files, crashed=store.has_abort).walk()
        for offset in found.block.physical
    ]
    for size in ("3000", "64K"):
        table = MessageTable(table_options({"path": str(damaged), "columns": "file,position", "splitSize": size}))
        rows = [row for part in table.parts() for batch in table.read(part) for row in batch.to_pylist()]
        assert [int(Path(row["file"]).name) + row["position"] for row in rows] == walked, size


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("damaged", ALL[3::97], indirect=True, ids=name_of)
def test_findings_on_spark_are_the_local_ones(damaged: Path, rmqctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.rocketmq.tables.splits.SPLIT_SIZE", 20_000)
    monkeypatch.setattr("rmqctl.pipeline.jobs.AT_ONCE", 2)
    local, spread = (
        json.loads(rmqctl("verify", damaged, "-o", "json", *more).stdout) for more in ((), ("--engine", "spark"))
    )
    key = json.dumps
    assert sorted(map(key, spread["findings"])) == sorted(map(key, local["findings"]))
    assert {k: v for k, v in spread["summary"].items() if k != "seconds"} == {
        k: v for k, v in local["summary"].items() if k != "seconds"
    }
