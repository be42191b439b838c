"""Small partitions that are passed together: the answer is that of the checks that look at each by itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import read_directory
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.repair import plan
from rmqctl.kafka.verify import driver
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.kafka.verify.sound import may_be_sound, sound_logs
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from tests.benchmarks.kafka_logs import make_partitions

ROOM = 1 << 20
"""Bytes of the indexes of an active segment."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Log directories in which all is well: some stopped in order, some not, with segments large and small."""
    place = tmp_path_factory.mktemp("sound")
    small, indexed, crashed = place / "small", place / "indexed", place / "crashed"
    make_partitions(small, 4)
    first, second, third = (small / f"topic0-{number}" for number in range(3))
    for path in first.glob(f"{0:020d}.*"):  # retention
        path.unlink()
    for ending in (".log", ".index", ".timeindex"):  # rolled, and nothing came since
        (second / f"{45:020d}{ending}").touch()
    for path in third.iterdir():  # nothing was ever written
        if path.name != "partition.metadata":
            path.unlink()
    for ending in (".log", ".index", ".timeindex"):
        (third / f"{0:020d}{ending}").touch()
    (third / "leader-epoch-checkpoint").write_text("0\n0\n")
    for path in small.glob("*-offset-checkpoint"):
        path.write_text(path.read_text().replace("topic0 2 45", "topic0 2 0"))
    make_partitions(indexed, 3, batches=60)
    make_partitions(crashed, 3, batches=60)
    for path in (*crashed.glob(".kafka_cleanshutdown"), *crashed.glob(f"topic*/{540:020d}.snapshot")):
        path.unlink()
    for path in crashed.glob(f"topic*/{360:020d}.*index"):
        with path.open("r+b") as file:
            file.truncate(ROOM // (8 if path.suffix == ".index" else 12) * (8 if path.suffix == ".index" else 12))
    return {"small": small, "indexed": indexed, "crashed": crashed}


def found(root: Path, options: VerifyOptions) -> tuple[list[object], dict[str, object]]:
    done = Verification(read_directory(LocalTree(root)), options)
    findings = list(done.findings())
    return findings, {**done.summary(), "seconds": 0}


@pytest.mark.parametrize("name", ["small", "indexed", "crashed"])
def test_what_is_well_is_passed_together(name: str, stores: dict[str, Path]) -> None:
    directory = read_directory(LocalTree(stores[name]))
    partitions = [p for p in directory.partitions if may_be_sound(p)]
    assert len(partitions) == len(directory.partitions) - 1  # all but the metadata log
    passed = sound_logs(partitions, is_clean=directory.is_clean, records=True, cross=True)
    assert all(passed), [p.label for p, log in zip(partitions, passed, strict=True) if log is None]


@pytest.mark.parametrize("options", [VerifyOptions(), VerifyOptions("structure"), VerifyOptions(cross=False)], ids=str)
@pytest.mark.parametrize("name", ["small", "indexed", "crashed"])
def test_the_answer_is_the_same(
    name: str, options: VerifyOptions, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = found(stores[name], options)
    assert together == found(stores[name], VerifyOptions(options.level, options.cross, processes=2))
    monkeypatch.setattr(driver, "may_be_sound", lambda _: False)
    assert together == found(stores[name], options)


def same_after_damage(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage a file or two of the partitions, ask both ways, and put them back."""
    rng = random.Random(seed)
    options = VerifyOptions(rng.choice(["full", "structure"]), rng.random() < 0.9)
    with damaged(root, rng):
        together = found(root, options)
        with monkeypatch.context() as patch:
            patch.setattr(driver, "may_be_sound", lambda _: False)
            assert together == found(root, options), f"seed {seed}"


class damaged:  # noqa: N801 -- used as a block
    """A block in which files of a directory are damaged."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        files = sorted(path for path in root.glob("topic*/*") if path.stat().st_size or rng.random() < 0.2)
        self.before = {path: path.read_bytes() for path in rng.sample(files, rng.choice([1, 1, 2]))}
        self.rng = rng

    def __enter__(self) -> None:
        for path, data in self.before.items():
            path.write_bytes(self._wrong(data))
            if self.rng.random() < 0.1:
                path.unlink()

    def __exit__(self, *_: object) -> None:
        for path, data in self.before.items():
            path.write_bytes(data)

    def _wrong(self, data: bytes) -> bytes:
        rng, at = self.rng, self.rng.randrange(len(data)) if data else 0
        match rng.randrange(6):
            case 0:
                return data[:at]
            case 1:
                return data + bytes(rng.choice([1, 8, 12, 46, 100]))
            case 2:
                return data + data[-rng.choice([8, 12, 46, 388]) :]
            case 3 if len(data) > 8:
                at = rng.randrange(len(data) - 7)
                return data[:at] + rng.choice([0, 1, 5, 40, 1 << 31]).to_bytes(8, "big") + data[at + 8 :]
            case 4:
                at = rng.randrange(min(len(data), 61)) if data else 0
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if data else b"\x01"


@pytest.mark.parametrize("name", ["small", "indexed", "crashed"])
def test_damage_is_found_alike(name: str, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        same_after_damage(stores[name], seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "indexed", "crashed"])
def test_much_damage_is_found_alike(name: str, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100, 700):
        same_after_damage(stores[name], seed, monkeypatch)


@pytest.mark.parametrize("name", ["small", "crashed"])
def test_a_plan_takes_what_did_not_change_as_it_was_found(
    name: str, stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair lists and verifies again only what its steps change, and plans the same."""

    def planned(place: Path) -> list[object]:
        place.mkdir()
        found = plan.plan_repair(read_directory(LocalTree(root)), plan.RepairOptions(Release(4, 1, 0)), place)
        steps = [(step.id, step.file, step.what, step.why, step.loses) for step in (*found.plan.steps, *found.left)]
        return [steps, found.before, found.after, found.refusal]

    root = stores[name]
    for seed in range(4):
        with damaged(root, random.Random(seed)):
            once = planned(tmp_path / f"{seed}")
            with monkeypatch.context() as patch:
                patch.setattr(plan._Planner, "_unchanged", lambda _: {})
                patch.setattr(plan, "overlaid", lambda d, s: read_directory(Overlay(d.tree, list(plan.edits_of(s)))))
                assert planned(tmp_path / f"{seed}-again") == once


@pytest.mark.parametrize("split_size", [1 << 26, 700])
def test_microseconds_for_milliseconds_are_one_warning_a_segment(split_size: int, tmp_path: Path) -> None:
    """250 of 400 records are stamped in the year 55841 (KAFKA-6482); all else is well, and nothing is damaged."""
    time = 1_700_000_000_000
    config = EngineConfig(log=LogConfig.small(), clock=lambda: time, seed=1)
    with KafkaEngine.open(tmp_path / "d", config) as engine:
        engine.make_topic("clicks", 1)
        for number in range(80):
            stamp = time + number if number < 30 else (time + number) * 1000
            engine.append("clicks", 0, [Record(0, stamp, -1, None, bytes(600)) for _ in range(5)])
    findings, _ = found(tmp_path / "d", VerifyOptions(split_size=split_size))
    loud = [one for one in findings if isinstance(one, Finding) and one.level is not Severity.NOTE]
    assert {one.kind.id for one in loud} == {"batch.future-time"}
    assert len({one.file for one in loud}) == len(loud) > 1
    assert "from offset 150 on stamped after the year 9999" in loud[0].message
    assert sum(int(one.message.partition(" ")[0]) for one in loud) == 250
