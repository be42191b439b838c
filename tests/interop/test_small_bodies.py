"""Placeholders of every small size before consumers of whole brokers: push, pull and lite pull; needs Maven."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from formats.rocketmq.message import decode_record
from rmqctl.release import Release
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from tests.interop.brokers_helpers import FAMILIES, PATIENCE
from tests.interop.compare import geometry
from tests.interop.judge import class_path, has_java, java

BODIES = (1, 2, 8, 9, 10, 20, 21, 22, 35, 60)
"""Bytes of the bodies that are destroyed; in one topic each the body alone, in another the whole record."""
COUNT, LOST = 10, 4

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


def destroyed(root: Path, release: Release) -> list[str]:
    """A store with ten messages in each topic, the fifth of them destroyed; its topics."""
    topics: list[str] = []
    places: list[tuple[int, int]] = []
    with StoreEngine.open(root, config=StoreConfig.small(release=release, default_queues=1)) as engine:
        for whole in (False, True):
            for size in BODIES:
                topics.append(f"{'Whole' if whole else 'Body'}{size}")
                for number in range(COUNT):
                    put = engine.put(Message(topics[-1], bytes([65 + number]) * size, 0))
                    if number == LOST:
                        places.append((put.physical_offset, 0 if whole else size))
    file = next((root / "commitlog").iterdir())
    content = bytearray(file.read_bytes())
    for physical, size in places:
        total = int.from_bytes(content[physical : physical + 4], "big")
        at, count = (physical + 88, size) if size else (physical, total)
        content[at : at + count] = b"\xee" * count
    file.write_bytes(content)
    return topics


@pytest.mark.parametrize("release", list(FAMILIES))
def test_no_consumer_stalls_at_a_placeholder(release: str, compiled: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    topics = destroyed(root, Release.parse(FAMILIES[release]))
    with tempfile.TemporaryDirectory() as built:
        apply(
            plan_repair(open_store_at(str(root)), RepairOptions(), Path(built)).plan, journal_dir=tmp_path / "journal"
        )
    store = open_store_at(str(root))
    with LogReader(store.log_files) as log:
        at = 0
        while (raw := log.record(at)) is not None:
            assert decode_record(raw)[0]["body"]
            at += len(raw)
    classes = class_path(release, compiled, "WholeBroker")
    command = java(classes, tmp_path / "home", "WholeBroker", root, ",".join(topics), 0, *geometry(root), others="true")
    done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    wanted = sorted((topic, number) for topic in topics for number in range(COUNT))
    for way in ("received", "pushed", "pulled"):
        assert sorted((m["topic"], m["offset"]) for m in answer[way]) == wanted, way
        marked = {m["topic"] for m in answer[way] if any("RMQCTL" in name for name in m["properties"])}
        print(release, way, "unmarked:", sorted(set(topics) - marked), flush=True)
