"""What a repair needs of the log comes from the walk of its verification, and the log is read no more often."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fixtures import damage, golden
from rmqctl.files.local import LocalFile
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.repair.damage import Break, DamageWitness, LogDamage, seen, survey
from rmqctl.rocketmq.repair.log_repair import LogRepair
from rmqctl.rocketmq.repair.placeholder import Setting, placeholder
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.repair.queue_references import QueueReference
from rmqctl.rocketmq.repair.records import RecordMender
from rmqctl.rocketmq.store.locate import open_store, open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.conftest import Rmqctl
from tests.rocketmq.damage_table import Variant, variants

EVERY = [variant for release in golden.RELEASES for variant in variants(release)]
SOME = [v for v in EVERY if v.release == "5.5.0" and v.name.endswith(("-flip-mid", "-torn", "file-missing"))]


@pytest.mark.parametrize("damaged", SOME[::6], indirect=True, ids=lambda v: v.name)
def test_a_verification_sees_what_a_walk_of_its_own_does(damaged: tuple[Variant, Path]) -> None:
    _compare(*damaged)


@pytest.mark.slow
@pytest.mark.parametrize("damaged", EVERY, indirect=True, ids=lambda v: f"{v.release}-{v.name}")
def test_a_verification_sees_it_in_every_variant(damaged: tuple[Variant, Path]) -> None:
    _compare(*damaged)


def _compare(variant: Variant, root: Path) -> None:
    store = open_store(LocalTree(root), settings=golden.broker_conf(variant.base))
    expected = _comparable(survey(store))
    for size in (None, 48 << 10):
        verification = Verification(store, VerifyOptions(split_size=size), witness=DamageWitness)
        list(verification.findings())
        found = seen(store, verification)
        assert found is not None
        assert _comparable(found) == expected


def _comparable(damage: LogDamage) -> dict[str, Any]:
    """All that a survey shows; splits may bring the queues in another order."""
    found = {field.name: getattr(damage, field.name) for field in fields(damage) if field.name != "order"}
    for name in ("gaps", "misplaced"):
        found[name] = [(g.finding, g.begin, g.end, g.ends_file, g.is_tail, g.setting) for g in found[name]]
    found["records"] = {at: sorted(map(repr, findings)) for at, findings in damage.records.items()}
    return found | {
        name: sorted(map(repr, found[name])) for name in ("missing", "holes", "unqueued", "stale", "blanks")
    }


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes read of files of a log, under the name "log"."""
    count = {"log": 0}

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(file: LocalFile, *arguments: Any) -> Any:
            found = read(file, *arguments)
            if "/commitlog/" in file.path:
                count["log"] += found if isinstance(found, int) else len(found)
            return found

        return wrapper

    monkeypatch.setattr(LocalFile, "read_into", counted(LocalFile.read_into))
    monkeypatch.setattr(LocalFile, "read_at", counted(LocalFile.read_at))
    return count


def test_a_plan_reads_the_log_before_and_after_and_where_it_builds(
    rmqctl: Rmqctl, tmp_path: Path, bytes_read: dict[str, int]
) -> None:
    root = _produced(rmqctl, tmp_path / "store", "zero-record@40%")
    bytes_read["log"] = 0
    list(Verification(open_store_at(str(root)), VerifyOptions()).findings())
    once = bytes_read["log"]
    bytes_read["log"] = 0
    plan_repair(open_store_at(str(root)), RepairOptions(), _room(tmp_path))
    assert bytes_read["log"] < 4.6 * once  # before, with the log mended, queues and index made, and as it will be


def test_a_plan_that_mends_the_log_alone_reads_it_twice(
    rmqctl: Rmqctl, tmp_path: Path, bytes_read: dict[str, int]
) -> None:
    root = _produced(rmqctl, tmp_path / "store", "body-flip@40%")
    bytes_read["log"] = 0
    list(Verification(open_store_at(str(root)), VerifyOptions()).findings())
    once = bytes_read["log"]
    bytes_read["log"] = 0
    found = plan_repair(open_store_at(str(root)), RepairOptions(), _room(tmp_path))
    assert [step.id for step in found.plan.steps] == ["log.body-crc"]
    assert not found.after
    assert bytes_read["log"] < 2.6 * once


def _room(tmp_path: Path) -> Path:
    room = tmp_path / "room"
    room.mkdir()
    return room


def _produced(rmqctl: Rmqctl, root: Path, damage: str) -> Path:
    sizes = ["--log-file-size", "4M", "--index-slots", "100", "--index-entries", "4000"]
    made = rmqctl("produce", root, "--topic", "T", "--count", "3000", "--size", "2K", "--key", "k{n}", *sizes)
    assert made.exit_code == 0
    assert rmqctl("produce", root, "--topic", "T", "--count", "0", "--damage", damage).exit_code == 0
    return root


@pytest.mark.parametrize("seed", range(6))
def test_stretches_of_the_log_that_overlap_are_read_once(seed: int, tmp_path: Path) -> None:
    """Between which records it holds nothing but messages: as one walk for each says, with zeros and placeholders in it."""
    rng, truth = random.Random(seed), [row for row in golden.truth("4.9.8-clean") if row["kind"] == "msg"]
    root = golden.unpack("4.9.8-clean", tmp_path)
    for row in rng.sample(truth, seed):
        at, size = row["commitLogOffset"], row["storeSize"]
        claim = QueueReference(row["topic"], row["queueId"], row["queueOffset"], at, size)
        record = placeholder(claim, size, Setting()) if rng.random() < 0.5 else bytes(size)
        assert record is not None
        damage.overwrite(root / "commitlog" / row["file"], row["pos"], record)
    with LogReader(open_store_at(str(root)).log_files) as log:
        whole = {row["commitLogOffset"] for row in truth if not _is_hurt(log, row["commitLogOffset"])}
        places = [row["commitLogOffset"] for row in truth]
        pairs = [sorted(rng.sample(places, 2)) for _ in range(64)]
        breaks = [Break("T", 0, 0, 1, after, before) for after, before in pairs]
        expected = [all(at in whole for at in places if one.after <= at < one.before) for one in breaks]
        counting = _Counting(log)
        mender = RecordMender(cast("LogRepair", SimpleNamespace(log=counting)), {})
        found = list(mender._in_whole_log(breaks))
    assert [one in found for one in breaks] == expected
    assert counting.count <= len(places) + len(log.files) + len(breaks)


def _is_hurt(log: LogReader, physical: int) -> bool:
    fields = log.fields(physical)
    return fields is None or is_marked(fields)


class _Counting:
    """Counts the records that are read."""

    def __init__(self, log: LogReader) -> None:
        self._log, self.count = log, 0

    def record(self, physical: int) -> bytes | None:
        self.count += 1
        return self._log.record(physical)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
