"""Parts of a store, checked one after the other, give what all of it gives."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.verbs import checking
from rmqctl.opening import open_store
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.verify import parts, seams

Found = Counter[tuple[str, str, int, str]]


def rocketmq(root: Path) -> None:
    config = StoreConfig.small(commit_log_file_size=1 << 15, queue_file_size=2000, index_slots=50, index_entries=200)
    engine = StoreEngine.open(root, config)
    for n in range(3000):
        engine.put(Message(f"T{n % 5}", b"%d " % n * (n % 50 + 4), n % 4, {"KEYS": f"k{n}"}))
    engine.close()


def kafka(root: Path) -> None:
    engine = KafkaEngine.open(root, EngineConfig(log=LogConfig(segment_bytes=1 << 14, index_interval=256)))
    for n in range(3):
        engine.make_topic(f"t{n}", 2, None)
    for n in range(3000):
        engine.append(f"t{n % 3}", n % 2, [Record(0, 1700000000000 + n, -1, b"k", b"%d " % n * (n % 50 + 4))])
        if n % 500 == 0:
            engine.checkpoint()
    engine.close()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 1)
    monkeypatch.setattr(seams, "FIRST", 1 << 11)  # so that some queues have no record there
    monkeypatch.setattr(seams, "STEP", 1 << 13)
    monkeypatch.setattr(checking, "_OWN", 1 << 16)


@pytest.fixture(scope="module", params=[rocketmq, kafka])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parts") / request.param.__name__
    request.param(root)
    return root


def wrong(rows: Iterable[dict[str, Any]]) -> Found:
    """What is wrong, without words where they count what lies side by side: a run ends where a part does."""
    found: Found = Counter()
    for row in rows:
        name, file, at, size = str(row["id"]), str(row["file"]), int(row["offset"]), int(row["size"])
        if row["severity"] == "note":
            continue
        if name == "queue.missing":
            found[name, file, 0, ""] += row["messages"]
        elif name == "index.coverage":
            found[name, file, 0, ""] += int(str(row["message"]).split()[0].replace(",", ""))
        elif name.startswith("queue.") and size and size % 20 == 0:
            found |= Counter((name, file, unit, "") for unit in range(at, at + size, 20))
        else:
            found[name, file, at, str(row["message"])] = 1
    return found


def by_parts(root: Path) -> Found:
    every = [row for part in open_store(str(root)).parts() for row in open_store(str(root)).verify(part=part)]
    return wrong(every)


def test_parts_hold_everything_once(sound: Path) -> None:
    store = open_store(str(sound))
    found = store.parts()
    assert len({part.name for part in found}) == len(found) > 3
    assert [part.is_rest for part in found] == [True] + [False] * (len(found) - 1)
    assert sum(part.size for part in found) == store.size
    assert by_parts(sound) == wrong(store.verify()) == Counter()


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_a_flip_is_what_verify_says_it_is(sound: Path, tmp_path: Path, seed: int) -> None:
    rng, root = random.Random(seed), tmp_path / "store"
    shutil.copytree(sound, root)
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size > 100)
    if seed % 2:
        files = [file for file in files if file.suffix == ".log" or "commitlog" in file.parts]
    file = rng.choice(files)
    data = bytearray(file.read_bytes())
    at = rng.choice([at for at, byte in enumerate(data) if byte] or [0])
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    assert by_parts(root) == wrong(open_store(str(root)).verify()), (file, at)


def small(root: Path) -> None:
    config = StoreConfig.small(commit_log_file_size=1 << 14, queue_file_size=800, index_slots=50, index_entries=80)
    engine = StoreEngine.open(root, config)
    for n in range(700):
        engine.put(Message(f"T{n % 5}", b"%d " % n * (n % 25 + 4), n % 4, {"KEYS": f"k{n}"}))
    engine.close()


def zeroed(file: Path, rng: random.Random, _: list[Path]) -> None:
    data, page = bytearray(file.read_bytes()), rng.choice([512, 4096])
    at = rng.randrange(-(-len(data) // page)) * page
    data[at : at + page] = bytes(len(data[at : at + page]))
    file.write_bytes(data)


def cut(file: Path, rng: random.Random, _: list[Path]) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])


def exchanged(file: Path, rng: random.Random, _: list[Path]) -> None:
    data, page = bytearray(file.read_bytes()), 512
    if len(data) >= 2 * page:
        a, b = (at * page for at in rng.sample(range(len(data) // page), 2))
        data[a : a + page], data[b : b + page] = data[b : b + page], data[a : a + page]
        file.write_bytes(data)


def removed(file: Path, _: random.Random, __: list[Path]) -> None:
    file.unlink()


def written_over(file: Path, rng: random.Random, others: list[Path]) -> None:
    """By a file beside it; never a queue by another: a part does not see which records of other parts are without units."""
    file.write_bytes(rng.choice([one for one in others if one.parent == file.parent and one.exists()]).read_bytes())


def flipped(file: Path, rng: random.Random, _: list[Path]) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(5):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


DAMAGE = (zeroed, cut, exchanged, removed, written_over, flipped)


@pytest.fixture(scope="module", params=[small, kafka])
def little(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("little") / request.param.__name__
    request.param(root)
    return root


@pytest.mark.parametrize(
    "seed", [*range(6), 70, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 120) if seed != 70)]
)
def test_damage_of_files_is_what_verify_says_it_is(little: Path, tmp_path: Path, seed: int) -> None:
    rng, root = random.Random(seed), tmp_path / "store"
    shutil.copytree(little, root)
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size > 100)
    logs = [file for file in files if file.suffix == ".log" or "commitlog" in file.parts]
    done = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        file, damage = rng.choice(logs if seed % 2 else files), rng.choice(DAMAGE)
        if file.exists() and file.stat().st_size:
            damage(file, rng, files)
            done.append((damage.__name__, file))
    assert by_parts(root) == wrong(open_store(str(root)).verify()), done


def test_a_file_that_is_gone_is_no_part(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rocketmq(root)
    store = open_store(str(root))
    _, first, *_ = store.parts()
    (root / "commitlog" / f"{0:020d}").unlink()
    assert first.name not in {part.name for part in open_store(str(root)).parts()}
    expected = wrong(open_store(str(root)).verify())
    assert by_parts(root) == expected == Counter()
    assert wrong(open_store(str(root)).verify(part=first)) == Counter()
    for number in range(1, 17):  # so many that whole queue files lead to what is gone
        (root / "commitlog" / f"{number << 15:020d}").unlink()
    expected = wrong(open_store(str(root)).verify())
    assert {one[0] for one in expected} == {"log.gap"}
    assert by_parts(root) == expected
