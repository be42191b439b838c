"""What `recover` says of messages that stay in the log and get into no queue."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from fixtures.damaged import sound_store
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store, open_store_at

FILES, MESSAGES = 10, 2600
"""How many files of the log 5.4.0 and later look at when they choose where to
begin (``commitLogRecoverMaxNum``), and how many messages the store holds."""
_HALF, _ROLLBACK = 0x4, 0xC
_FILLER = 0x7FFFFFFF


@pytest.fixture(scope="module")
def long_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of more than ten files; nobody writes to it."""
    return sound_store(tmp_path_factory.mktemp("long") / "store", MESSAGES)


@pytest.fixture
def without_queues(long_store: Path, tmp_path: Path) -> Path:
    """The same without queues."""
    root = tmp_path / "store"
    shutil.copytree(long_store, root)
    shutil.rmtree(root / "consumequeue")
    return root


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("release", ["5.4.0", "5.5.0"])
def test_the_log_in_front_of_the_last_ten_files(
    release: str, crash: bool, without_queues: Path, long_store: Path
) -> None:
    if crash:
        (without_queues / "abort").touch()
        (without_queues / "checkpoint").write_bytes(bytes(4096))
    tenth = sorted(int(p.name) for p in (without_queues / "commitlog").iterdir())[-FILES]
    in_front = [(topic, size) for topic, physical, size in _units(long_store) if physical < tenth]
    assert len(in_front) > 100
    found = recover(open_store_at(str(without_queues)), Release.parse(release))
    assert [found.lost, found.is_harmless] == [[], False]
    assert found.undispatched.by_topic == Counter(topic for topic, _ in in_front)
    assert found.undispatched.bytes == sum(size for _, size in in_front)
    assert found.redispatched + found.undispatched.messages == MESSAGES


def test_earlier_releases_read_all_of_it(without_queues: Path) -> None:
    found = recover(open_store_at(str(without_queues)), Release.parse("5.3.3"))
    assert [found.redispatched, found.undispatched.messages, found.is_harmless] == [MESSAGES, 0, True]


@pytest.mark.parametrize("name", ["clean/none", "clean/cq-all-deleted", "crash/abort-removed", "crash/none"])
@pytest.mark.parametrize("release", golden.RELEASES)
def test_messages_that_the_real_broker_left_without_units(release: str, name: str, tmp_path: Path) -> None:
    """What lies behind all units and, by the ranges of the broker's own queues, in none of them."""
    variant = golden.recovery_oracle(release)["variants"][name]
    base = f"{release}-{name.partition('/')[0]}"
    root = golden.unpack(base, tmp_path)
    damage.apply(variant["recipe"], root)
    found = recover(open_store(LocalTree(root), settings=golden.broker_conf(base)), Release.parse(release))
    served = max((place for _, place, _ in _units(root)), default=-1)
    ranges = variant["result"]["afterStart"]["queues"]
    expected = Counter(
        r["topic"]
        for r in golden.truth(base)
        if r.get("sysFlag", _HALF) & _ROLLBACK not in (_HALF, _ROLLBACK)
        and r["commitLogOffset"] > served
        and not ranges.get(f"{r['topic']}/{r['queueId']}", (0, 0))[0] <= r["queueOffset"] < _end(ranges, r)
    )
    assert found.undispatched.by_topic == expected


def test_the_command_tells_it(without_queues: Path, rmqctl: Callable[..., Any]) -> None:
    text = rmqctl("recover", without_queues)
    assert text.exit_code == 1
    assert "loses no message of the log" in text.stdout
    assert "NEVER DISPATCHES" in text.stdout
    document = json.loads(rmqctl("recover", without_queues, "-o", "json").stdout)
    left = document["undispatched"]
    assert left["messages"] == sum(left["by_topic"].values()) > 0
    assert 0 < left["first_store_timestamp"] <= left["last_store_timestamp"]
    rows = json.loads(rmqctl("recover", without_queues, "--compare", "-o", "json").stdout)
    assert {row["release"]: row["undispatched"] for row in rows} == {
        "4.4.0": MESSAGES,
        "4.9.8": 0,
        "5.3.1": MESSAGES,
        "5.3.3": 0,
        "5.4.0": left["messages"],
        "5.5.0": left["messages"],
    }


def _end(ranges: dict[str, list[int]], record: dict[str, Any]) -> int:
    return ranges.get(f"{record['topic']}/{record['queueId']}", (0, 0))[1]


def _units(root: Path) -> Iterator[tuple[str, int, int]]:
    """Topic, physical offset and size of every record that a queue has."""
    for kind, unit in (("consumequeue", 20), ("batchconsumequeue", 46)):
        for path in (root / kind).rglob("0*"):
            if path.is_file():
                for physical, size in struct.iter_unpack(f">qi{unit - 12}x", path.read_bytes()):
                    if 0 < size < _FILLER:
                        yield path.parent.parent.name, physical, size


@pytest.mark.parametrize("files", [3, 4, 6])
def test_queue_files_without_units_in_front_of_the_last_three(files: int, tmp_path: Path) -> None:
    """A power cut leaves them; a start reads the last three, and takes what is in front of those for written."""
    root = tmp_path / "store"
    engine = StoreEngine.open(root, StoreConfig.small(queue_file_size=40, services=False, release=Release(5, 3, 3)))
    for n in range(2 * files):
        engine.put(Message("T", b"%d" % n, 0))
    engine.flush()
    engine.abandon()
    for file in (root / "consumequeue/T/0").iterdir():
        file.write_bytes(bytes(40))
    (root / "checkpoint").write_bytes(bytes(4096))
    found = recover(open_store_at(str(root)), Release(5, 3, 3))
    assert found.records == 2 * files and not found.lost
    # The first of a queue is appended, wherever that ends, and stands where another has its place: brokers of 4.9.7 and
    # 5.5.0 give consumers empty records for the blank units, and never that other message.
    assert found.undispatched.messages == 2 * (files - 3)
    assert found.is_harmless == (files == 3)
    assert found.waits() == {}
