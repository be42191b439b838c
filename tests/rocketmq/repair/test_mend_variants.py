"""Every damaged variant of the recovery oracles, repaired: the store verifies clean, and no sound message is lost."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fixtures import damage, golden
from rmqctl.release import Release
from rmqctl.repair.execute import apply, undo
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.repair.plan import Repair, RepairOptions, complaints, overlaid, plan_repair
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.mend_variants_helpers import lost_records

DESTROYED = {
    "zero-page-mid": "eleven records, or what was in them, are zeros",
    "zero-page-last-file": "a page of records is zeros",
    "torn-tail": "the last record is half zeros",
    "abort-removed+torn-tail": "the last record is half zeros",
    "torn-tail-only-header": "the last record is zeros but for its first eight bytes",
    "delete-mid-file": "a file of the log is gone",
    "delete-first-file": "a file of the log is gone",
    "delete-last-data-file": "the last file of the log is gone",
    "delete-commitlog-dir": "the whole log is gone",
    "truncate-last-data-file-in-data": "the last records are gone",
    "truncate-last-file-to-zero": "in the clean store the last file of the log held its last records",
    "storetimestamp-zero-first-record-of-last-file": "the store time is gone, and nothing else tells it",
}
"""Variants in which bytes of records are gone that nothing brings back; every other one is healed exactly."""

EXAMPLES = (
    "5.5.0/crash/zero-page-mid", "4.5.2/clean/delete-mid-file", "4.9.8/crash/queueoffset-plus-5-last-file",
    "5.1.4/clean/cq-first-file-deleted", "5.3.3/crash/index-header-garbage", "5.5.0/clean/delete-commitlog-dir",
    "4.5.2/crash/extra-directory-in-commitlog",
)  # fmt: skip
ALL = [f"{release}/{name}" for release in golden.RELEASES for name in golden.recovery_oracle(release)["variants"]]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One working copy of each store: every variant damages it and then takes the damage back."""
    directory = tmp_path_factory.mktemp("repaired")
    return {name: golden.unpack(name, directory) for name in golden.BROKER_STORES}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[tuple[str, str, StoreFiles]]:
    """Name of the golden store, of the variant, and the store damaged."""
    release, state, name = request.param.split("/", 2)
    recipe = golden.recovery_oracle(release)["variants"][f"{state}/{name}"]["recipe"]
    base = f"{release}-{state}"
    root = copies[base]
    damage.apply(recipe, root)
    conf = golden.write_broker_conf(base, root.parent / f"{base}.conf")
    try:
        yield base, name, open_store_at(str(root), broker_conf=str(conf))
    finally:
        damage.undo(recipe, golden.pristine(base), root)


def told(repair: Repair) -> int:
    """Messages given up, and records of which a part is."""
    steps = repair.plan.steps
    return sum(s.loses for s in steps) + sum(s.what.startswith(("blank", "set the store time")) for s in steps)


def listing(root: Path) -> Mapping[str, tuple[str, int]]:
    """Content and modification time of every file, and every directory."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        found[name] = (
            ("", 0) if path.is_dir() else (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        )
    return found


def check(base: str, name: str, before: list[int], repair: Repair, after: StoreFiles) -> None:
    """The repaired store against the golden one; ``before`` are the records that were lost before."""
    assert [f"{f.kind.id} {f.file} {f.offset} {f.message}" for f in repair.after] == []
    lost = lost_records(base, after)
    if name not in DESTROYED:
        assert lost == []
    assert set(lost) <= set(before)
    if not name.startswith(("delete-", "truncate-")):  # there the records were gone before
        assert len(lost) <= told(repair)


def check_starts(store: StoreFiles) -> None:
    """Brokers of both lines start on the store and lose nothing more."""
    for release in (Release(4, 9, 8), Release(5, 5, 0)):
        replay = recover(store, release)
        assert replay.starts, replay.error
        assert replay.lost == []


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ALL, indirect=True)
def test_every_variant_is_mended(damaged: tuple[str, str, StoreFiles], tmp_path: Path) -> None:
    base, name, store = damaged
    repair = plan_repair(store, RepairOptions(), tmp_path)
    after = overlaid(store, repair.plan.edits)
    check(base, name, lost_records(base, store), repair, after)
    check_starts(after)


@pytest.mark.parametrize("damaged", EXAMPLES, indirect=True)
def test_a_repair_is_carried_out_and_taken_back(damaged: tuple[str, str, StoreFiles]) -> None:
    base, name, store = damaged
    before, lost = listing(Path(store.root)), lost_records(base, store)
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as journals:
        repair = plan_repair(store, RepairOptions(), Path(directory))
        predicted = overlaid(store, repair.plan.edits)
        expected = [hashlib.sha256(f.open().read_at(0, f.size)).hexdigest() for f in predicted.log_files]
        done = apply(repair.plan, journal_dir=Path(journals), verify=lambda: complaints(store, repair))
        assert done.complaints == ()
        after = overlaid(store, ())
        assert [hashlib.sha256(f.open().read_at(0, f.size)).hexdigest() for f in after.log_files] == expected
        check(base, name, lost, repair, after)
        check_starts(after)
        if done.journal is not None:
            undo(done.journal)
    left = listing(Path(store.root))
    assert {n: v for n, v in left.items() if n != "lock"} == {n: v for n, v in before.items() if n != "lock"}


@pytest.mark.parametrize("name", [*golden.BROKER_STORES[1::3], *golden.SPECIAL_STORES])
def test_a_sound_store_needs_nothing(name: str, tmp_path: Path) -> None:
    repair = plan_repair(open_store_at(os.fspath(golden.pristine(name))), RepairOptions(), tmp_path)
    assert repair.plan.steps == ()
    assert repair.left == ()


@pytest.mark.parametrize("name", golden.SPECIAL_STORES)
@pytest.mark.parametrize(("at", "size"), [(4, 1), (16, 1), (0, 60)])
def test_special_stores(name: str, at: int, size: int, tmp_path: Path) -> None:
    """Magic, a flag that only the record's own CRC covers, a destroyed header: in stores of other shapes."""
    root = golden.unpack(name, tmp_path)
    record = [r for r in golden.truth(name) if r["kind"] == "msg"][200]
    file = next(root.glob(f"commitlog*/{Path(record['file']).name}"))
    with open(file, "r+b") as log:
        log.seek(record["pos"] + at)
        log.write(bytes([1 if at == 16 else 0]) * size)
    store = open_store_at(str(root), broker_conf=str(golden.write_broker_conf(name, tmp_path / "broker.conf")))
    room = tmp_path / "built"
    room.mkdir()
    repair = plan_repair(store, RepairOptions(), room)
    lost = lost_records(name, overlaid(store, repair.plan.edits))
    assert repair.after == ()
    is_provable = at == 4 or (at == 16 and "propcrc" in name)
    assert lost == ([] if is_provable else [record["commitLogOffset"]])
    assert sum(step.loses for step in repair.plan.steps) == (at == 0)
