"""Random key histories under a released broker's cleaner and under ours: the same batches are left: needs Maven."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from formats.kafka.checkpoint import CLEANER, parse_offsets
from formats.kafka.record_batch import Attributes
from rmqctl.files.local import LocalFile
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.indexes import read_producer_snapshot
from rmqctl.opening import open_store
from rmqctl.release import Release
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Brokers, Node
from tests.interop.kafka_produced_helpers import SETTINGS as QUIET
from tests.interop.test_kafka_recovered import differences, move_checkpoints, replay
from tests.kafka.engine.cleaner_helpers import COMPACT, batches_of, cleaned_often, content_of, logs_of, write_history

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
HISTORIES, PARTITIONS = 200, 40
SETTINGS = {
    "log.cleaner.backoff.ms": 200, "log.cleaner.min.cleanable.ratio": 0, "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.initial.task.delay.ms": 100,
}  # fmt: skip


def settings_of(release: str) -> dict[str, str]:
    """Small segments, by the setting that the release takes."""
    internal = "internal.segment.bytes"
    return {("segment.bytes" if name == internal and release < "4" else name): value for name, value in COMPACT.items()}


def wait_until_clean(logs: Path, ends: dict[int, int]) -> None:
    until = time.monotonic() + 240
    while True:
        path = logs / CLEANER
        found = parse_offsets(path.read_bytes()).offsets if path.exists() else {}
        if all(found.get(("t", number)) == end for number, end in ends.items()):
            return
        assert time.monotonic() < until, (len(found), found, ends)
        time.sleep(0.5)


@pytest.mark.parametrize("release", RELEASES)
def test_survivors_equal_those_of_a_broker(release: str, tmp_path: Path, compiled: Path) -> None:
    now, theirs, ours = int(time.time() * 1000) - 60_000, tmp_path / "theirs", tmp_path / "ours"
    config = EngineConfig(Release.parse(release))
    with KafkaEngine.open(theirs, config) as engine:
        engine.make_topic("t", HISTORIES, settings_of(release))
        for number in range(HISTORIES):
            write_history(engine, random.Random(number), 100 * number, number, now)
    shutil.copytree(theirs, ours)
    with KafkaEngine.open(ours, config) as engine:
        cleaned = {number: found.end for (_, number), found in engine.compact().items()}
    with Node(release, theirs, compiled, SETTINGS):
        wait_until_clean(theirs, cleaned)
    assert len(cleaned) > HISTORIES // 2
    for number in range(HISTORIES):
        left = [content_of(batch) for batch in batches_of(logs_of(ours / f"t-{number}"))]
        wanted = [content_of(batch) for batch in batches_of(logs_of(theirs / f"t-{number}"))]
        for head, _ in (*left, *wanted):
            if head["attributes"] & 0x40:  # the moment of the cleaning
                head["base_timestamp"] = head["crc"] = head["batch_length"] = 0
        assert left == wanted, number
        assert [p.name for p in logs_of(ours / f"t-{number}")] == [p.name for p in logs_of(theirs / f"t-{number}")]


@pytest.mark.parametrize("release", RELEASES)
def test_producers_of_cleaned_logs_are_those_a_broker_knows(release: str, tmp_path: Path, compiled: Path) -> None:
    """After an orderly stop, after a crash, and from the logs alone: every file, and the producers at the end."""
    root, draw = tmp_path / "store", random.Random(7)
    recent = int(time.time() * 1000) - 600_000  # a broker forgets producers that are idle for long
    cleaned_often(root, PARTITIONS, EngineConfig(Release.parse(release)), settings_of(release), recent)
    wrong, logs = list[str](), [path for number in range(PARTITIONS) for path in logs_of(root / f"t-{number}")]
    heads = [head for head, records in map(content_of, batches_of(logs)) if not records]
    assert any(head["attributes"] & Attributes.CONTROL for head in heads)
    with Brokers(release, compiled, **QUIET) as brokers:
        for case in ("clean", "crash", "alone"):
            there, loaded, copy = (tmp_path / f"{case}{of}" for of in ("", "-loaded", "-copy"))
            shutil.copytree(root, there)
            if case != "clean":
                (there / ".kafka_cleanshutdown").unlink()
                move_checkpoints(there, draw)
            for snapshot in there.rglob("*.snapshot") if case == "alone" else ():
                snapshot.unlink()
            shutil.copytree(there, copy)
            assert brokers.load(copy, loaded) == "loaded"
            wrong += [f"{case}: {text}" for text in differences(replay(there, release), loaded)]
            for number in range(PARTITIONS):
                taken = [rows_of(path) for path in sorted((loaded / f"t-{number}").glob("*.snapshot"))]
                rows = list(open_store(str(there)).producers("t", number).rows)
                known = [{name: row[name] for name in row if name not in {"topic", "partition"}} for row in rows]
                taken[-1] = [row for row in taken[-1] if row["producer_epoch"] >= 0]  # what it loads again has a time
                wrong += [] if known == taken[-1] else [f"{case}: t-{number}: {known}, the broker's {taken[-1]}"]
    assert wrong == []


def rows_of(path: Path) -> list[dict[str, int]]:
    """The entries of a producer snapshot by their ids."""
    return sorted(read_producer_snapshot(LocalFile(path, path.name)).rows(), key=lambda row: row["producer_id"])
