"""Rebuilding from every damaged variant of the recovery oracle: what comes out fits the log that is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.rocketmq.damage_table import Variant, variants

DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
ALL = [variant for release in golden.RELEASES for variant in variants(release)]
QUICK = [*ALL[::40], *(v for v in ALL if (v.release, v.name) == ("5.1.4", "crash/delete-last-data-file"))]


def name_of(variant: Variant) -> str:
    return f"{variant.release} {variant.name}"


def check(variant: Variant, root: Path, directory: Path) -> None:
    """`verify` finds nothing about queues and index in a store of the damaged log and what was rebuilt from it."""
    conf = golden.write_broker_conf(variant.base, directory / "broker.conf")
    store = open_store_at(str(root), broker_conf=str(conf))
    if not store.log_files:
        return
    rebuild = Rebuild(store, RebuildOptions(checkpoint=True))
    rebuild.complete(rebuild.run(directory / "new"))
    for entry in root.iterdir():
        if entry.name not in (*DERIVED, "checkpoint"):
            copy = shutil.copytree if entry.is_dir() else shutil.copy2
            copy(entry, directory / "new" / entry.name)
    verification = Verification(open_store_at(str(directory / "new"), broker_conf=str(conf)), VerifyOptions())
    wrong = [f"{f.kind.id} {f.file} {f.message}" for f in verification.findings() if f.level != "note"]
    assert [line for line in wrong if line.startswith(("queue", "index", "batch", "ext", "checkpoint"))] == []


@pytest.mark.parametrize("damaged", QUICK, indirect=True, ids=name_of)
def test_some_variants(damaged: tuple[Variant, Path], tmp_path: Path) -> None:
    check(*damaged, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ALL, indirect=True, ids=name_of)
def test_every_variant(damaged: tuple[Variant, Path], tmp_path: Path) -> None:
    check(*damaged, tmp_path)
