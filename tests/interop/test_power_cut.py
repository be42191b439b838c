"""What a power cut may leave of a store that is written to with sync flush, under released brokers: they start and serve
all that was acknowledged. The cuts are those of the model, and of real file systems. Needs Maven; the latter root and
loop devices, too."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.interop.compare import geometry
from tests.interop.conftest import Judges
from tests.interop.judge import has_java
from tests.interop.kafka_node import Brokers, rounds
from tests.power import Image, recorded
from tests.rocketmq.engine import test_kill
from tests.test_power import kafka_writes, rocketmq_writes
from tests.test_power_disks import _KAFKA, Disk, answered
from tests.test_power_disks import disk as disk

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
_IMAGES = ("the least", "names only", "torn 0")


def left(home: Path, acknowledged: list[Any], writes: Any) -> list[tuple[str, list[Any], Image]]:
    """What may be left at moments of the first of two runs of an engine, before a recovery of ours."""
    home.mkdir()
    moments = recorded(
        home,
        lambda: writes(home / "store", acknowledged),
        2 * rounds(4, 12),
        lambda: list(acknowledged),
        again=lambda: shutil.rmtree(home / "store.rmqctl-journal", ignore_errors=True) or shutil.rmtree(home / "store"),
    )
    found = []
    for moment in moments:
        images = dict(moment.images())
        has_journal = any(path.endswith("rmqctl-journal") for path, _, _ in images["everything"].walk())
        if moment.note and not has_journal:
            found += [(f"{name} of {moment.number} {moment.request}", moment.note, images[name]) for name in _IMAGES]
    return found


def test_kafka(compiled: Path, tmp_path: Path) -> None:
    acknowledged: list[Any] = []
    images = left(tmp_path / "recorded", acknowledged, kafka_writes)
    assert len(images) > 6
    with Brokers("4.3.1", compiled) as brokers:
        for number, (where, results, image) in enumerate(images):
            home = tmp_path / str(number)
            home.mkdir()
            image.put(home)
            assert brokers.start(home / "store") == "started", (where, brokers.log[-3000:])
            served = defaultdict(set)
            for row in brokers.ask("everything", "read_uncommitted"):
                served[row[0], row[1]].add(row[2])
            for result in results:  # of a compacted topic only the last of each key has to be there
                found = served[result.topic, result.partition]
                assert result.last_offset in found if result.topic == "t0" else result.last_offset <= max(found), where
            assert "stray" not in brokers.log.lower().replace("no stray", ""), where
            brokers.stop()


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_rocketmq(release: str, judges: Judges, tmp_path: Path) -> None:
    acknowledged: list[Any] = []
    images = left(tmp_path / "recorded", acknowledged, rocketmq_writes)
    assert len(images) > 6
    judge = judges(release)
    for number, (where, results, image) in enumerate(images):
        home = tmp_path / str(number)
        home.mkdir()
        image.put(home)
        opened = judge.ask(f"s{number}", "open", home / "store", *geometry(home / "store"))
        queues = opened["afterStart"]["queues"]
        assert opened["afterStart"]["maxPhy"] >= max(result.end for result in results), where
        for result in results:
            low, high = queues[f"{result.topic}/{result.queue_id}"]
            assert low <= result.queue_offset < high, where
        assert judge.ask(f"s{number}", "stop", home / "store")


def cut_stores(disk: Disk, code: str, home: Path) -> list[tuple[Path, list[list[str]]]]:
    """Copies of what power cuts of a file system left, and what had been acknowledged."""
    moments, found = random.Random(disk.kind), []
    for number in range(rounds(2, 20)):
        lines = answered(disk, code, moments.uniform(0, 0.4), f"deep/{number}")
        assert lines
        copy = home / f"{disk.kind}-{number}" / "store"
        shutil.copytree(disk.mounted / f"deep/{number}", copy)
        found.append((copy, lines))
    return found


def test_kafka_on_a_disk(disk: Disk, compiled: Path, tmp_path: Path) -> None:
    with Brokers("4.3.1", compiled) as brokers:
        for root, lines in cut_stores(disk, _KAFKA, tmp_path):
            assert brokers.start(root) == "started", (root, brokers.log[-3000:])
            served = defaultdict(set)
            for row in brokers.ask("everything", "read_uncommitted"):
                served[row[0], row[1]].add(row[2])
            for topic, partition, last, _ in lines:
                assert int(last) in served[topic, int(partition)], (root, topic, partition, last)
            assert "stray" not in brokers.log.lower().replace("no stray", ""), root
            brokers.stop()


def test_rocketmq_on_a_disk(disk: Disk, judges: Judges, tmp_path: Path) -> None:
    judge = judges("5.3.3")
    for number, (root, lines) in enumerate(cut_stores(disk, test_kill._CODE, tmp_path)):
        queues = judge.ask(f"d{number}", "open", root, *geometry(root))["afterStart"]["queues"]
        for topic, queue, offset, *_ in lines:
            low, high = queues[f"{topic}/{queue}"]
            assert low <= int(offset) < high, (root, topic, queue, offset)
        assert judge.ask(f"d{number}", "stop", root)
