"""`topics`, `lag`, the lookups, `recover`, SQL and exports say the same of every log directory, whatever is damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, Partition, read_directory
from rmqctl.kafka.loading.load import LoadedPartition, LoadSettings, load
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.partition_state import PartitionLog, view_of
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.store import KafkaStore
from rmqctl.kafka.tables.records import KafkaOptions, RecordLog, RecordTable
from rmqctl.kafka.tables.stretches import KafkaFilter
from tests.kafka.recovery.test_recovery_oracle import RELEASES, VARIANTS, copies, damaged

__all__ = ["copies", "damaged"]
Ends = dict[tuple[str, int], tuple[int, int]]
FAST, ALL = 12, 300


def store_at(root: Path) -> KafkaStore:
    return KafkaStore(LogDirectories([read_directory(LocalTree(str(root)))]))


def hold(root: Path, touched: set[str] | None = None) -> None:
    """Ask all for the ends of partitions.

    Args:
        touched: directories whose records are compared, too; None: all.
    """
    answer = store_at(root).topics()
    topics = {(row["topic"], row["partition"]): row for row in answer}
    asked: Ends = {key: (row["log_start_offset"], row["log_end_offset"]) for key, row in topics.items()}
    start = recover(Replicas(LogDirectories([read_directory(LocalTree(str(root)))])))
    if not start.starts:
        assert "does not start" in answer.remarks[0]
    elif not start.offline:
        found = {one.key: one.loaded for one in start.partitions if one.loaded.partition.is_plain}
        for (topic, number), ends in asked.items():
            loaded = found[f"{topic}-{number}"]
            assert ends == (loaded.log_start_offset, loaded.log_end_offset), (topic, number)
            assert topics[topic, number]["segments"] == len(loaded.bases)
    rows = store_at(root).table("topics").read().to_pylist()
    assert {(r["topic"], r["partition"]): (r["log_start_offset"], r["log_end_offset"]) for r in rows} == asked
    for row in store_at(root).lag():
        assert row["log_end_offset"] in {None, asked.get((row["topic"], row["partition"]), (0, -1))[1]}, row
    store = store_at(root)
    for log in store.replicas.served:
        if touched is None or log.partition.directory in touched:
            _hold_records(store, log, *asked[log.partition.topic, log.partition.partition or 0])


def _hold_records(store: KafkaStore, log: PartitionLog, low: int, high: int) -> None:
    """Ask lookups for the ends, and tables and exports for every record that is served."""
    topic, number = log.partition.topic, log.partition.partition or 0
    status = next(iter(store.query_offset(topic, number, high)))
    assert (status["log_start_offset"], status["log_end_offset"]) == (low, high)
    for word, offset in (("earliest", low), ("latest", high)):
        assert next(iter(store.query_time(topic, number, word)))["offset"] == offset
    served = {offset for group in view_of(log, read_committed=False).records(low) for offset in group.offset.tolist()}
    assert all(low <= offset < high for offset in served)
    options = KafkaOptions(store.root, wanted=KafkaFilter(topics=(topic,), queue_id=number))
    exported = RecordLog(options)
    end = exported.end(growing=exported.is_running)
    for parts in ([s for part in RecordTable(options).parts() for s in part], exported.parts(exported.begin(), end)):
        groups = [group for part in parts for group in part.records(options.wanted.within(part.low, part.high))]
        assert served <= {offset for group in groups for offset in group.offset.tolist()}, (topic, number)


@pytest.mark.parametrize("name", [f"{release}-{state}" for release in RELEASES for state in ("clean", "crash")])
def test_of_golden_directories(name: str) -> None:
    hold(golden.pristine(name), {"plain-none-1", "txn-a-0", "z-lz4-0", "compacted-0"})


@pytest.mark.parametrize(("release", "variant"), VARIANTS)
def test_of_recorded_variants(release: str, variant: dict[str, Any], damaged: Path) -> None:
    hold(damaged, {edit["file"].partition("/")[0] for edit in variant["recipe"]})


# --- random damage ------------------------------------------------------------------------------------


def _flip(root: Path, file: Path, dice: random.Random) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(data)


def _cut(root: Path, file: Path, dice: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: dice.randrange(file.stat().st_size + 1)])


def _append(root: Path, file: Path, dice: random.Random) -> None:
    file.write_bytes(file.read_bytes() + dice.choice([bytes(4096), dice.randbytes(60), file.read_bytes()[-200:]]))


def _suffix(root: Path, file: Path, dice: random.Random) -> None:
    file.rename(f"{file}{dice.choice(['.swap', '.cleaned', '.deleted'])}")


def _beside(root: Path, file: Path, dice: random.Random) -> None:
    shutil.copy2(file, f"{file}{dice.choice(['.swap', '.cleaned', '.deleted'])}")


def _gone(root: Path, file: Path, dice: random.Random) -> None:
    file.unlink()


def _all_of_a_kind(root: Path, file: Path, dice: random.Random) -> None:
    for other in file.parent.glob(f"*{file.suffix}"):
        other.unlink()


def _stray(root: Path, file: Path, dice: random.Random) -> None:
    shutil.copy2(file, file.with_name(f"{dice.randrange(200):020d}{file.suffix}"))


def _marker(root: Path, file: Path, dice: random.Random) -> None:
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)


def _checkpoint(root: Path, file: Path, dice: random.Random) -> None:
    checkpoint = root / dice.choice(["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
    if checkpoint.exists():
        dice.choice([_cut, _flip, _gone])(root, checkpoint, dice)


KINDS: list[Callable[[Path, Path, random.Random], None]] = [
    _flip, _flip, _cut, _append, _suffix, _beside, _gone, _all_of_a_kind, _stray, _marker, _checkpoint,
]  # fmt: skip


@pytest.fixture
def attacked(request: pytest.FixtureRequest, copies: dict[str, Path]) -> Iterator[tuple[Path, set[str]]]:
    """A golden directory with one damage or two; afterwards it is whole again."""
    dice = random.Random(request.param)
    name = dice.choice(sorted(copies))
    root, pristine = copies[name], golden.pristine(name)
    directories = [path for path in sorted(root.iterdir()) if path.is_dir() and "." not in path.name]
    touched = set[str]()
    for _ in range(dice.choice([1, 1, 2])):
        home = dice.choice(directories)
        files = [file for file in sorted(home.iterdir()) if file.suffix != ".metadata"]
        if files:
            touched.add(home.name)
            dice.choice(KINDS)(root, dice.choice(files), dice)
    yield root, touched
    for name_of in touched:
        shutil.rmtree(root / name_of)
        shutil.copytree(pristine / name_of, root / name_of)
    for file in pristine.iterdir():
        if file.is_file():
            shutil.copy2(file, root / file.name)


@pytest.mark.parametrize(
    "attacked",
    [pytest.param(seed, marks=() if seed < FAST else pytest.mark.slow) for seed in range(ALL)],
    indirect=True,
)
def test_of_random_damage(attacked: tuple[Path, set[str]]) -> None:
    hold(*attacked)


# --- cases that were answered in two ways ---------------------------------------------------------------


def _ends(root: Path) -> dict[str, tuple[int, int]]:
    return {
        f"{row['topic']}-{row['partition']}": (row["log_start_offset"], row["log_end_offset"])
        for row in store_at(root).topics()
    }


def test_a_segment_without_its_index_is_checked_after_an_orderly_stop_too(tmp_path: Path) -> None:
    """The end is that of `recover`, which the recorded starts judge."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    log = root / "plain-none-1" / f"{89:020d}.log"
    data = bytearray(log.read_bytes())
    data[816] = 0xEE
    log.write_bytes(data)
    assert _ends(root)["plain-none-1"] == (0, 114)
    log.with_suffix(".index").unlink()
    assert _ends(root)["plain-none-1"] == (0, 100)
    hold(root, {"plain-none-1"})


def test_a_clean_up_that_a_start_finishes_counts_as_finished(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    log = root / "plain-none-1" / f"{0:020d}.log"
    log.rename(f"{log}.swap")
    assert _ends(root)["plain-none-1"] == (0, 114)
    assert next(iter(store_at(root).query_offset("plain-none", 1, 10)))["status"] == "FOUND"
    assert len(store_at(root).table("records", topic="plain-none", queue=1).read()) == 114
    hold(root, {"plain-none-1"})


def test_topics_says_first_that_no_broker_starts(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "meta.properties").unlink()
    for answer in (store_at(root).topics(), store_at(root).lag(), store_at(root).query_offset("idem", 0, 0)):
        assert answer.remarks[0].startswith(f"a broker of 4.3.1 does not start on {root}: ")


def test_lookups_load_only_the_partitions_that_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "plain-none-1" / "leader-epoch-checkpoint").write_text("no checkpoint\n")
    loaded = list[str]()

    def noted(partition: Partition, settings: LoadSettings) -> LoadedPartition:
        loaded.append(partition.directory)
        return load(partition, settings)

    monkeypatch.setattr("rmqctl.kafka.loading.loads.load", noted)
    assert "does not start" in store_at(root).topics().remarks[0]
    assert len(set(loaded)) > 10
    loaded.clear()
    store = store_at(root)
    for answer in (store.query_offset("idem", 0, 0), store.query_time("idem", 0, 0), store.query_key("idem", "k")):
        list(answer)
        assert not any("does not start" in remark for remark in answer.remarks)
    assert {name.rpartition("-")[0] for name in loaded} == {"idem", "__cluster_metadata"}
    assert "does not start" in store_at(root).query_offset("plain-none", 1, 0).remarks[0]


def test_a_header_states_no_more_records_than_it_has_offsets(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    before = [row["records"] for row in store_at(root).topics()]
    messages = _messages(root)
    with open(root / "plain-none-1" / f"{0:020d}.log", "r+b") as log:
        log.seek(57)  # the records of the first batch
        log.write((65_000).to_bytes(4, "big"))
    assert [row["records"] for row in store_at(root).topics()] == before
    assert _messages(root) == messages


def _messages(root: Path) -> int:
    answer = store_at(root).verify()
    list(answer)
    assert answer.summary is not None
    return int(answer.summary()["messages"])
