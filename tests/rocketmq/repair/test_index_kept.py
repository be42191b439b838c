"""After a repair of a killed store a start deletes no index file that the plan made or left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, plan_repair
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at

STORES = ["4.9.8-crash", "5.5.0-crash"]
PAGE = 8192


def opened(name: str, directory: Path) -> tuple[Path, StoreFiles]:
    root = golden.unpack(name, directory)
    conf = golden.write_broker_conf(name, directory / "broker.conf")
    return root, open_store_at(str(root), broker_conf=str(conf))


def started_after(store: StoreFiles, directory: Path) -> tuple[Repair, list[str]]:
    """The plan, and the index files that a start on its outcome deletes."""
    directory.mkdir()
    repair = plan_repair(store, RepairOptions(), directory)
    start = recover(overlaid(store, repair.plan.edits))
    assert start.error is None
    return repair, start.index_deleted


@pytest.mark.parametrize("page", [1, 9, 17, 40])
@pytest.mark.parametrize("name", STORES)
def test_zeros_in_the_log(name: str, page: int, tmp_path: Path) -> None:
    root, store = opened(name, tmp_path)
    file = store.log_files[page * PAGE // store.log_files[0].size]
    with (root / file.name).open("r+b") as out:
        out.seek(page * PAGE % file.size)
        out.write(bytes(PAGE))
    repair, deleted = started_after(store, tmp_path / "room")
    assert repair.plan.steps
    assert deleted == []
    assert [f for f in repair.after if f.kind.id.startswith(("index.", "checkpoint."))] == []


@pytest.mark.parametrize("name", STORES)
def test_a_lost_index(name: str, tmp_path: Path) -> None:
    root, store = opened(name, tmp_path)
    shutil.rmtree(root / "index")
    repair, deleted = started_after(store, tmp_path / "room")
    assert any(step.file.startswith("index/") for step in repair.plan.steps)
    assert (deleted, repair.after) == ([], ())


@pytest.mark.parametrize("name", STORES)
def test_a_lost_index_and_checkpoint(name: str, tmp_path: Path) -> None:
    root, store = opened(name, tmp_path)
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    assert started_after(store, tmp_path / "room")[1] == []


def test_sizes_that_nothing_shows_are_said(rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "batchconsumequeue")
    said = rmqctl("repair", root).stderr
    assert "so the broker's defaults are taken: 5,000,000 slots and 20,000,000 entries; give --broker-conf FILE" in said
    assert "no batch queue file shows how long batch queue files are" in said
    conf = golden.write_broker_conf("5.5.0-clean", tmp_path / "broker.conf")
    assert "default" not in rmqctl("repair", root, "--broker-conf", conf).stderr


@pytest.mark.parametrize("verb", ["repair", "recover", "rebuild"])
def test_queue_files_of_a_size_that_nothing_shows_are_not_written(
    verb: str, rmqctl: Callable[..., Any], tmp_path: Path
) -> None:
    """A 5.5.0 broker that is set to another length refuses them."""
    root = golden.unpack("5.5.0-crash", tmp_path)
    shutil.rmtree(root / "consumequeue")
    told = json.loads(rmqctl("info", root, "-o", "json").stdout)["geometry"]
    assert (told["queue_file_size"], told["source"]) == (6_000_000, "default")
    assert "no queue file shows how long queue files are" in rmqctl("info", root).stderr
    refused = rmqctl(verb, root, "--apply", "--yes")
    assert refused.exit_code == 13
    assert "give --broker-conf FILE (with mappedFileSizeConsumeQueue)" in " ".join(refused.stderr.split())
    assert not (root / "consumequeue").exists()
    conf = golden.write_broker_conf("5.5.0-crash", tmp_path / "broker.conf")
    rmqctl(verb, root, "--broker-conf", conf, "--apply", "--yes")
    sizes = {path.stat().st_size for path in (root / "consumequeue").glob("*/*/0*")}
    assert sizes == {path.stat().st_size for path in (golden.pristine("5.5.0-crash") / "consumequeue").glob("*/*/0*")}


@pytest.mark.parametrize("name", STORES)
def test_an_index_that_is_rebuilt_in_place(name: str, rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    root, _ = opened(name, tmp_path)
    shutil.rmtree(root / "index")
    conf = tmp_path / "broker.conf"
    assert rmqctl("rebuild", root, "--index", "--broker-conf", conf, "--apply", "--yes").exit_code == 0
    assert recover(open_store_at(str(root), broker_conf=str(conf))).index_deleted == []
    assert len(list((root / "index").iterdir())) >= 3
