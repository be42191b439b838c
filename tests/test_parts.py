"""Parts of a store, checked one after the other, give what all of it gives."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.verbs import checking
from rmqctl.opening import open_store
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.verify import parts

Found = set[tuple[str, str, int, str]]


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
    monkeypatch.setattr(checking, "_OWN", 1 << 16)


@pytest.fixture(scope="module", params=[rocketmq, kafka])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parts") / request.param.__name__
    request.param(root)
    return root


def wrong(rows: Iterator[dict[str, object]]) -> Found:
    found = set()
    for row in rows:
        if row["severity"] != "note":
            words = "" if row["id"] == "index.coverage" else str(row["message"])  # which has counts of each part
            found.add((str(row["id"]), str(row["file"]), int(str(row["offset"])), words))
    return found


def by_parts(root: Path) -> Found:
    return {
        one for part in open_store(str(root)).parts() for one in wrong(iter(open_store(str(root)).verify(part=part)))
    }


def test_parts_hold_everything_once(sound: Path) -> None:
    store = open_store(str(sound))
    found = store.parts()
    assert len({part.name for part in found}) == len(found) > 3
    assert [part.is_rest for part in found] == [True] + [False] * (len(found) - 1)
    assert sum(part.size for part in found) == store.size
    assert by_parts(sound) == wrong(iter(store.verify())) == set()


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
    assert by_parts(root) == wrong(iter(open_store(str(root)).verify())), (file, at)


def test_a_file_that_is_gone_is_no_part(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rocketmq(root)
    store = open_store(str(root))
    _, first, *_ = store.parts()
    (root / "commitlog" / f"{0:020d}").unlink()
    assert first.name not in {part.name for part in open_store(str(root)).parts()}
    expected = wrong(iter(open_store(str(root)).verify()))
    assert by_parts(root) == expected == set()
    assert wrong(iter(open_store(str(root)).verify(part=first))) == set()
    for number in range(1, 17):  # so many that whole queue files lead to what is gone
        (root / "commitlog" / f"{number << 15:020d}").unlink()
    expected = wrong(iter(open_store(str(root)).verify()))
    assert {one[0] for one in expected} == {"log.gap"}
    assert by_parts(root) == expected
