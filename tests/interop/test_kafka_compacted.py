"""Random key histories under a released broker's cleaner and under ours: the same batches are left: needs Maven."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from formats.kafka.checkpoint import CLEANER, parse_offsets
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.release import Release
from tests.interop.judge import has_java
from tests.interop.kafka_node import RELEASES, Node
from tests.kafka.engine.cleaner_helpers import COMPACT, batches_of, content_of, logs_of, write_history

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
HISTORIES = 200
SETTINGS = {
    "log.cleaner.backoff.ms": 200, "log.cleaner.min.cleanable.ratio": 0, "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.initial.task.delay.ms": 100,
}  # fmt: skip


def settings_of(release: str) -> dict[str, str]:
    """Small segments, by the setting that the release takes."""
    size = "segment.bytes" if release < "4" else "internal.segment.bytes"
    return {
        **{name: value for name, value in COMPACT.items() if name != "segment.bytes"},
        size: COMPACT["segment.bytes"],
    }


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
