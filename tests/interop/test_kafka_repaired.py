"""Repaired Kafka log directories under released brokers: nothing is cut, everything is served, producers go on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory import read_directory
from rmqctl.kafka.repair.survey import Survey
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Brokers, Node, rounds
from tests.interop.test_kafka_produced import expected
from tests.interop.test_kafka_recovered import SETTINGS, damage_randomly
from tests.kafka.repair.judged import undamaged, variants

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
WRITTEN_ON = ("plain-none", "idem", "txn-a", "z-gzip")
STARTS = rounds(2, 30)
"""Random starts of each release; each judges a dozen damaged partitions."""
EVERY = rounds(25, 1)
"""One variant of the recovery oracles in so many."""
ISOLATIONS = {False: "read_uncommitted", True: "read_committed"}
Row = tuple[Any, ...]


def damage(root: Path, draw: random.Random) -> int:
    """Destroy three places in every partition of users: bodies of two batches, and two whole batches; how many."""
    count = 0
    for partition in read_directory(LocalTree(str(root))).partitions:
        if not partition.is_plain or partition.topic.startswith("__"):
            continue
        survey = Survey(partition)
        if len(survey) < 6:
            continue
        for row in draw.sample(range(1, len(survey) - 1), 2):
            batch = survey.batch(row)
            _overwrite(root / survey.files[batch.segment].name, batch.position + 61, bytes(batch.size - 61))
            count += 1
        first = survey.batch(row := draw.randrange(1, len(survey) - 3))
        second = survey.batch(row + 1)
        if first.segment == second.segment:
            size = second.end - first.position
            _overwrite(root / survey.files[first.segment].name, first.position, draw.randbytes(size))
            count += 1
    return count


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("state", ["crash", "clean"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_serves_what_was_repaired_and_goes_on(
    release: str, state: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    root = golden.unpack(f"{release}-{state}", tmp_path)
    assert damage(root, random.Random(release + state)) > 50
    made = rmqctl("repair", root, "--apply", "-o", "json")
    assert "would not start" not in made.stdout
    assert "would cut" not in made.stdout
    logs = {path: path.read_bytes() for path in root.rglob("*.log") if "__cluster_metadata" not in str(path)}
    rows = list(open_store(str(root)).topics())
    topics = sorted({row["topic"] for row in rows})
    stable = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in rows}
    wanted = {(t, c): sorted(expected(root, t, committed=c)) for t in topics for c in (False, True)}
    with Node(release, root, compiled) as node:
        for (topic, committed), records in wanted.items():
            isolation = "read_committed" if committed else "read_uncommitted"
            if not topic.startswith("__"):
                got = sorted(node.ask("read", isolation, topic))
                if committed:  # the coordinator aborts what hung at the crash, and readers then come further
                    got = [record for record in got if record[1] < stable[topic, record[0]]]
                assert got == records, (topic, isolation)
        assert "ERROR" not in node.log, [line for line in node.log.splitlines() if "ERROR" in line][:5]
        for path, data in logs.items():
            assert not path.exists() or path.read_bytes().startswith(data), f"{path} was cut"
        for topic in WRITTEN_ON:
            assert len(node.ask("write", topic, 20)) == 20
            assert len(node.ask("write", topic, 20, f"id-{topic}")) == 20
    errors = [row for row in open_store(str(root)).verify().rows if row and row.get("severity") == "error"]
    assert errors == []


@cache
def original(name: str, *, committed: bool) -> dict[tuple[str, int, int], str]:
    """The records of a golden directory that a consumer gets, by topic, partition and offset."""
    return rows_of(Path(golden.pristine(name)), committed=committed)


def rows_of(root: Path, *, committed: bool) -> dict[tuple[str, int, int], str]:
    topics = sorted({row["topic"] for row in open_store(str(root)).topics() if not row["topic"].startswith("__")})
    rows = ([topic, *row] for topic in topics for row in expected(root, topic, committed=committed))
    return {(row[0], row[1], row[2]): repr(row) for row in rows}


def destroyed_in(root: Path, name: str) -> set[tuple[str, int, int]]:
    """Topic, partition and offset of the records whose own bytes are nowhere in a damaged directory any more.

    Of the bytes before the CRC that name place and size some bits may be wrong, not more.
    """
    held = {
        path.name: b"".join(log.read_bytes() for log in path.glob("*.log*")) for path in root.iterdir() if path.is_dir()
    }
    found = set()
    for directory, base, data in undamaged(name):
        every = held.get(directory, b"")
        at = every.find(data)
        frame = base.to_bytes(8, "big") + (len(data) + 5).to_bytes(4, "big")
        wrong = sum((a ^ b).bit_count() for a, b in zip(frame, every[max(at - 17, 0) : at], strict=False))
        if at < 17 or wrong > 4:
            topic, _, number = directory.rpartition("-")
            delta = int.from_bytes(data[6:10], "big")  # the last offset, after CRC and attributes
            found |= {(topic, int(number), offset) for offset in range(base, base + delta + 1)}
    return found


def judge(brokers: Brokers, root: Path, name: str, rmqctl: Rmqctl) -> list[str]:
    """Repair a damaged directory, start a broker on it, read and write: what is not as it should be."""
    gone, wrong = destroyed_in(root, name), list[str]()
    made = rmqctl("repair", root, "--apply", "--yes", "-o", "json")
    if made.exit_code not in {0, 1} or "would not start" in made.output or "would cut" in made.output:
        return [f"repair: {made.output[-2000:]}"]
    logs = {path: path.read_bytes() for path in root.rglob("*.log") if "__cluster_metadata" not in str(path)}
    stable = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in open_store(str(root)).topics()}
    shown = {committed: rows_of(root, committed=committed) for committed in ISOLATIONS}
    outcome = brokers.start(root)
    if outcome != "started":
        return [f"{outcome}: {[line for line in brokers.log.splitlines() if 'ERROR' in line][:3]}"]
    try:
        for committed, isolation in ISOLATIONS.items():
            served = {(row[0], row[1], row[2]): repr(row) for row in brokers.ask("everything", isolation)}
            mine, first = shown[committed], original(name, committed=committed)
            if committed:  # the coordinator aborts what hung at the crash, and readers then come further
                served = {key: row for key, row in served.items() if key[2] < stable[key[:2]]}
                ends = {key[:2]: key[2] for key in sorted(first)}
                wrong += [
                    f"aborted, but served: {key}"
                    for key in served.keys() - first.keys()
                    if key[2] < ends.get(key[:2], 0) and key[0] != "compacted"
                ]
            lost = {key for key, row in first.items() if key not in gone and served.get(key) != row}
            lost = {key for key in lost if not committed or key[2] < stable[key[:2]]}
            wrong += [f"{isolation}: lost {sorted(lost)[:5]} of {len(lost)}"] if lost else []
            wrong += (
                [f"{isolation}: not as rmqctl shows it: {sorted(served.items() ^ mine.items())[:3]}"]
                if served != mine
                else []
            )
        wrong += [
            f"{p} was cut"
            for p, data in logs.items()
            if p.exists() and not p.read_bytes().startswith(data.rstrip(b"\0"))
        ]
        for topic in WRITTEN_ON:
            for words in ((), (f"id-{topic}",)):
                if len(brokers.ask("write", topic, 5, *words)) != 5:
                    wrong.append(f"{topic}: not written {words}")
    finally:
        brokers.stop()
    return wrong


@pytest.mark.parametrize("release", RELEASES)
def test_random_damage_repaired_is_served(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    wrong = []
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for seed in range(1000, 1000 + STARTS):
            root, name, hit = damage_randomly(release, seed, tmp_path)
            wrong += [f"seed {seed}: {text} after {hit}" for text in judge(brokers, root, name, rmqctl)]
            shutil.rmtree(root)
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_brokers_were_started_on_is_served_once_repaired(
    release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    wrong = []
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for variant, found in list(variants(release).items())[::EVERY]:
            name = f"{release}-{variant.partition('/')[0]}"
            root = golden.unpack(name, tmp_path)
            kafka_damage.apply(found["recipe"], root)
            wrong += [f"{variant}: {text}" for text in judge(brokers, root, name, rmqctl)]
            shutil.rmtree(root)
    assert wrong == []
