"""Repaired Kafka log directories under released brokers: nothing is cut, everything is served, producers go on."""

from __future__ import annotations

import hashlib
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden, kafka_damage
from formats.kafka.checkpoint import LOG_START, parse_offsets
from rmqctl.opening import open_store
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Brokers, Node, rounds
from tests.interop.kafka_produced_helpers import (
    SETTINGS,
    content,
    damage,
    damage_randomly,
    expected,
    is_lasting,
    served,
)
from tests.kafka.recovery.test_recovery_applied import LEFT
from tests.kafka.repair.judged import undamaged, variants
from tests.repair.stores import state_of
from tests.rocketmq.repair.judged import seeds

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
MACHINE_LASTS = 8
"""Starts that are broken off leave threads and open files in their virtual machine; it is changed after so many."""
ISOLATIONS = {False: "read_uncommitted", True: "read_committed"}
Key = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Rows = dict[Key, str]
_READ: dict[bytes, Rows] = {}
"""What partitions hold, by a hash of their files."""


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
        assert node.errors == []
        for path, data in logs.items():
            assert not path.exists() or path.read_bytes().startswith(data), f"{path} was cut"
        for topic in WRITTEN_ON:
            assert len(node.ask("write", topic, 20)) == 20
            assert len(node.ask("write", topic, 20, f"id-{topic}")) == 20
    errors = [row for row in open_store(str(root)).verify().rows if row and row.get("severity") == "error"]
    assert errors == []


@cache
def original(name: str, *, committed: bool) -> Rows:
    """The records of a golden directory that a consumer gets."""
    return rows_of(Path(golden.pristine(name)), committed=committed)


def rows_of(root: Path, *, committed: bool, anew: bool = False) -> Rows:
    """The records of a directory that a consumer should get; partitions of the same bytes are read once a process.

    Args:
        anew: read every partition, and hold what was read before of the same bytes against it.
    """
    store, found = open_store(str(root)), Rows()
    for row in store.topics():
        topic, number, first = row["topic"], row["partition"], row["log_start_offset"]
        if topic.startswith("__"):
            continue
        state = hashlib.blake2b(repr((topic, number, first, committed)).encode())
        for path in sorted((root / f"{topic}-{number}").iterdir()):
            state.update(path.name.encode() + path.read_bytes())
        key, mine = state.digest(), Rows()
        if anew or key not in _READ:
            records = served(store, topic, number, first, committed=committed)
            mine = {(topic, number, record[1]): repr([topic, *record]) for record in records}
            assert _READ.setdefault(key, mine) == mine
        found |= _READ[key]
    return found


def destroyed_in(root: Path, name: str) -> set[Key]:
    """Topic, partition and offset of the records whose own bytes are nowhere in a damaged directory any more.

    Of the bytes before the CRC that name place and size some bits may be wrong, not more. What a cleaner had left over
    before the damage says of nothing that it is in the log.
    """
    sound, held = golden.pristine(name), dict[str, bytes]()
    for path in root.iterdir():
        logs = (
            log for log in path.glob("*.log*") if log.suffix == ".log" or not (sound / path.name / log.name).exists()
        )
        held[path.name] = b"".join(log.read_bytes() for log in logs)
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


def deleted_in(root: Path, name: str) -> set[Key]:
    """The records that another log start checkpoint says are deleted: it is believed up to the end of a log."""
    try:
        starts = parse_offsets((root / LOG_START).read_bytes()).offsets
    except (OSError, ValueError):
        return set()
    first = original(name, committed=False)
    ends = {key[:2]: key[2] for key in sorted(first)}
    return {key for key in first if key[2] < starts.get(key[:2], 0) <= ends[key[:2]]}


def judge(
    brokers: Brokers, root: Path, name: str, rmqctl: Rmqctl, written: Iterable[str] = WRITTEN_ON, *, anew: bool = False
) -> list[str]:
    """Repair a damaged directory, take it back, start a broker on what it was: what is not as it should be.

    Args:
        written: the topics that producers write to.
        anew: read partitions that were read before, too.
    """
    gone, before = destroyed_in(root, name) | deleted_in(root, name), state_of(root)
    made = rmqctl("repair", root, "--apply", "--yes", "-o", "json")
    if made.exit_code not in {0, 1} or "would not start" in made.output or "would cut" in made.output:
        return [f"repair: {made.output[-2000:]}"]
    repaired = taken_back(root, before, rmqctl)
    try:
        return serve(brokers, repaired, name, gone, written, anew=anew)
    finally:
        shutil.rmtree(repaired)


def taken_back(root: Path, before: dict[str, object], rmqctl: Rmqctl) -> Path:
    """A copy of a directory that a command changed; ``undo`` of that gives back every byte and time of it."""
    copied = root.with_name(f"{root.name}-changed")
    golden.copy_tree(root, copied)
    if Path(f"{root}.rmqctl-journal").exists():
        taken = rmqctl("undo", root, "--yes")
        assert taken.exit_code == 0, taken.output
    after = state_of(root)
    assert not (after.items() ^ before.items()), sorted(map(str, after.items() ^ before.items()))
    return copied


def serve(brokers: Brokers, root: Path, name: str, gone: set[Key], written: Iterable[str], *, anew: bool) -> list[str]:
    """Start a broker on a repaired directory, read and write: what is not as it should be.

    Args:
        name: the golden directory that it was before the damage.
        gone: the records whose own bytes were destroyed.
    """
    wrong = list[str]()
    logs = {path: path.read_bytes() for path in root.rglob("*.log") if "__cluster_metadata" not in str(path)}
    rows = [row for row in open_store(str(root)).topics() if not row["topic"].startswith("__")]
    stable = {(row["topic"], row["partition"]): row["last_stable_offset"] for row in rows}
    shown = {committed: rows_of(root, committed=committed, anew=anew) for committed in ISOLATIONS}
    outcome = brokers.start(root)
    if outcome != "started":
        return [f"{outcome}: {[line for line in brokers.log.splitlines() if 'ERROR' in line][:3]}"]
    try:
        for committed, isolation in ISOLATIONS.items():
            got = {(row[0], row[1], row[2]): repr(row) for row in brokers.ask("everything", isolation)}
            mine, first = shown[committed], original(name, committed=committed)
            if committed:  # the coordinator aborts what hung at the crash, and readers then come further
                got = {key: row for key, row in got.items() if key[2] < stable[key[:2]]}
                begins = {key[:2]: key[2] for key in sorted(first, reverse=True)}
                ends = {key[:2]: key[2] for key in sorted(first)}
                wrong += [
                    f"aborted, but served: {key}"
                    for key in got.keys() - first.keys()
                    if key[0] != "compacted" and key[:2] in ends and begins[key[:2]] <= key[2] < ends[key[:2]]
                ]
            lost = {key for key, row in first.items() if key not in gone and got.get(key) != row}
            lost = {key for key in lost if not committed or key[2] < stable[key[:2]]}
            wrong += [f"{isolation}: lost {sorted(lost)[:5]} of {len(lost)}"] if lost else []
            if got != mine:
                wrong.append(f"{isolation}: not as rmqctl shows it: {sorted(got.items() ^ mine.items())[:3]}")
        wrong += [
            f"{p} was cut"
            for p, data in logs.items()
            if p.exists() and not p.read_bytes().startswith(data.rstrip(b"\0"))
        ]
        for topic in written:
            for words in ((), (f"id-{topic}",)):
                found = {partition for partition, _ in brokers.ask("write", topic, 6, *words)}
                if found != {number for named, number in stable if named == topic}:
                    wrong.append(f"{topic}: not written {words}, only in {found}")
    finally:
        brokers.stop()
    errors = (row for row in open_store(str(root)).verify().rows if row and row.get("severity") == "error")
    return wrong + [f"verify, once it had stopped: {row}" for row in errors]


def recover_and_start(
    brokers: Brokers, root: Path, name: str, rmqctl: Rmqctl, *, starts: bool, left: set[str]
) -> list[str]:
    """Carry out what a start does, take it back, start a broker on what it was: what is left for it to do.

    Args:
        starts: a broker of the release starts on the damaged directory.
        left: the files that a second start changes once more.
    """
    before, conf = state_of(root), brokers.home / "server.properties"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    words = ("--as-release", name.partition("-")[0], "--broker-conf", conf, "--apply", "--yes", "-o", "json")
    made = rmqctl("recover", root, *words)
    if not starts:
        return [] if made.exit_code and state_of(root) == before else [f"recover --apply: {made.output[-1000:]}"]
    applied = taken_back(root, before, rmqctl)
    applied = applied.rename(f"{applied}-{time.monotonic_ns()}")  # the broker before still closes its own logs
    loaded, was_clean = applied.with_name(f"{root.name}-loaded"), (applied / ".kafka_cleanshutdown").exists()
    wanted = contents(applied, was_clean=was_clean)
    try:
        outcome = brokers.load(applied, loaded)
        if outcome != "loaded":
            return [
                f"{outcome}: {[line for line in brokers.log.splitlines() if 'ERROR' in line][:3]}; {made.output[-500:]}"
            ]
        found = contents(loaded, was_clean=was_clean)
        strays = {directory for name in found if (directory := name.partition("/")[0]).endswith("-stray")}
        strays |= {directory.rpartition(".")[0] for directory in strays}  # the broker names them itself
        differing = sorted(
            file
            for file in {*wanted, *found}
            if wanted.get(file) != found.get(file) and file not in left and file.partition("/")[0] not in strays
        )
        return [f"{file}: rmqctl leaves {wanted.get(file)}, the broker {found.get(file)}" for file in differing]
    finally:
        shutil.rmtree(applied)
        shutil.rmtree(loaded, ignore_errors=True)


def contents(root: Path, *, was_clean: bool) -> dict[str, object]:
    """Size and hash of the files.

    Left out are directories that wait to be deleted, what the controller writes meanwhile, the marker of an orderly
    stop, after which a start only gives the active indexes their room, and checkpoints without a byte, as a start makes
    them where none are, to be filled when they are first due.
    """
    found = dict[str, object]()
    for path in root.rglob("*"):
        place, name = str(path.relative_to(root)), path.name
        passing = place.startswith("__cluster_metadata-0/") or path.parent.name.endswith("-delete")
        if path.is_file() and is_lasting(name) and not passing and name not in {".lock", ".kafka_cleanshutdown"}:
            data = path.read_bytes()
            if was_clean and path.suffix in {".index", ".timeindex"}:
                data = data.rstrip(b"\0")
            if path.parent == root and name.endswith("-checkpoint"):  # written again from time to time, in any order
                data = b"".join(sorted(data.splitlines(keepends=True)))
                if not data:
                    continue
            found[place] = content(data)
    return found


def groups(release: str) -> list[tuple[str, ...]]:
    """The variants of the recovery oracles; those together that hurt different partitions of one directory."""
    alone, shared = list[tuple[str, ...]](), defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for variant, found in variants(release).items():
        files = [edit[key] for edit in found["recipe"] for key in ("file", "to") if key in edit]
        places = {file.partition("/")[0] for file in files}
        if len(places) == 1 and all("/" in file for file in files) and "__cluster_metadata-0" not in places:
            shared[variant.partition("/")[0]][places.pop()].append(variant)
        else:
            alone.append((variant,))
    together = (zip_longest(*places.values()) for places in shared.values())
    return [*(tuple(filter(None, group)) for groups in together for group in groups), *alone]


def judge_together(
    release: str, group: tuple[str, ...], room: Path, judge_one: Callable[[Path, str], list[str]]
) -> list[str]:
    """Damage a directory by several variants, and judge it; where something is wrong, once more by each alone."""
    name = f"{release}-{group[0].partition('/')[0]}"
    root = golden.unpack(name, room)
    for variant in group:
        kafka_damage.apply(variants(release)[variant]["recipe"], root)
    try:
        wrong = judge_one(root, name)
    finally:
        shutil.rmtree(root)
        shutil.rmtree(f"{root}.rmqctl-journal", ignore_errors=True)
    if wrong and len(group) > 1:
        alone = [text for variant in group for text in judge_together(release, (variant,), room, judge_one)]
        return alone or [f"only together, {' and '.join(group)}: {text}" for text in wrong]
    return [f"{' and '.join(group)}: {text}" for text in wrong]


def judge_seed(brokers: Brokers, release: str, seed: int, room: Path, rmqctl: Rmqctl) -> tuple[int, list[str]]:
    """Damage a directory at random, and judge it; how many partitions were damaged, and what is wrong."""
    root, name, hit = damage_randomly(release, seed, room)
    damaged = (directory.rpartition("-")[0] for directory in hit)
    topics = sorted({*WRITTEN_ON, *(topic for topic in damaged if not topic.startswith("__"))})
    try:
        wrong = judge(brokers, root, name, rmqctl, topics)
    finally:
        shutil.rmtree(root)
        shutil.rmtree(f"{root}.rmqctl-journal", ignore_errors=True)
    return len(hit), [f"seed {seed}: {text} after {hit}" for text in wrong]


@pytest.mark.parametrize("release", RELEASES)
def test_random_damage_repaired_is_served(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    wrong = []
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for seed in seeds(f"1000-{1000 + STARTS}"):
            wrong += judge_seed(brokers, release, seed, tmp_path, rmqctl)[1]
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_brokers_were_started_on_is_served_once_repaired(
    release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    wrong = []
    with Brokers(release, compiled, **SETTINGS) as brokers:
        for number, group in enumerate(groups(release)[::EVERY]):
            judge_one = partial(judge, brokers, rmqctl=rmqctl, anew=number % 20 == 0)
            wrong += judge_together(release, group, tmp_path, judge_one)
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_recover_carried_out_leaves_a_broker_nothing_to_do(
    release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path
) -> None:
    wrong, found, parts = [], variants(release), list[tuple[str, ...]]()
    for group in groups(release)[::EVERY]:
        together = all(found[variant]["started"] for variant in group)
        parts += [group] if together else [(variant,) for variant in group]
    for first in range(0, len(parts), MACHINE_LASTS):
        with Brokers(release, compiled, **SETTINGS) as brokers:
            for part in parts[first : first + MACHINE_LASTS]:
                started = all(found[variant]["started"] for variant in part)
                left = {file for variant in part for file in LEFT.get(variant, ())}
                judge_one = partial(recover_and_start, brokers, rmqctl=rmqctl, starts=started, left=left)
                wrong += judge_together(release, part, tmp_path, judge_one)
    assert wrong == []
