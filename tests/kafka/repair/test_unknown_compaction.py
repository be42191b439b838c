"""Compacted logs of which nothing says so: the first cleaning was broken off before its checkpoint, no metadata is here."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.findings import Severity
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.findings.directory import METADATA_LOG
from rmqctl.kafka.findings.log import SEGMENT_EMPTIED
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.verify.driver import Verification
from rmqctl.release import Release
from tests.kafka.engine.cleaner_helpers import COMPACT, TIME
from tests.kafka.repair.judged import opened

PARTITIONS = 16


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches of one record each, so that cleaning takes them out as a whole and leaves holes alone."""
    root = tmp_path_factory.mktemp("cleaned") / "store"
    with KafkaEngine.open(root, EngineConfig(clock=lambda: TIME)) as engine:
        engine.make_topic("t", PARTITIONS, {**COMPACT, "internal.segment.bytes": "700", "delete.retention.ms": "0"})
        for number in range(PARTITIONS):
            write(engine, random.Random(number), number)
        engine.compact(roll=True)
    (root / "cleaner-offset-checkpoint").unlink()
    shutil.rmtree(root / "__cluster_metadata-0")
    return root


def write(engine: KafkaEngine, draw: random.Random, number: int) -> None:
    sequence, keys = 0, draw.choice([2, 5, 12])
    for at in range(draw.randrange(30, 110)):
        head, transactional = BatchHead(), draw.random() < 0.5
        if transactional:
            head = replace(head, producer_id=number, producer_epoch=0, base_sequence=sequence, transactional=True)
            sequence += 1
        record = Record(0, TIME + at, -1, b"k%d" % draw.randrange(keys), b"v" * draw.randrange(60))
        engine.append("t", number, [record], head)
        if transactional and draw.random() < 0.7:
            engine.end_transaction(Ending(number, 0, commit=draw.random() < 0.4), [("t", number)])


def test_sound_files_have_no_error(cleaned: Path) -> None:
    found = list(Verification(opened(cleaned)).findings())
    errors = [f for f in found if f.level is Severity.ERROR and f.kind is not METADATA_LOG]  # it is made up
    assert [f"{f.kind.id} {f.file} {f.message}" for f in errors] == []
    emptied = [f for f in found if f.kind is SEGMENT_EMPTIED]
    assert emptied
    assert all("compaction" in f.message for f in emptied)


def test_repair_leaves_them_as_they_are(cleaned: Path, tmp_path: Path) -> None:
    repair = plan_repair(opened(cleaned), RepairOptions(Release(4, 3, 1)), tmp_path)
    touched = {edit.file for step in repair.plan.steps for edit in step.edits}
    assert touched == set()
    assert any(step.id == SEGMENT_EMPTIED.id and "compaction" in step.what for step in repair.left)


def test_segments_that_were_emptied_from_the_first_on_are_no_error(tmp_path: Path) -> None:
    """Two keys, written over and over: cleaning leaves nothing but the last segment, and no hole beside a batch."""
    root = tmp_path / "store"
    with KafkaEngine.open(root, EngineConfig(clock=lambda: TIME)) as engine:
        engine.make_topic("t", 1, {**COMPACT, "internal.segment.bytes": "500", "delete.retention.ms": "0"})
        for at in range(60):
            engine.append("t", 0, [Record(0, TIME + at, -1, b"k%d" % (at % 2), b"v")], BatchHead())
        engine.compact(roll=True)
    (root / "cleaner-offset-checkpoint").unlink()
    shutil.rmtree(root / "__cluster_metadata-0")
    test_sound_files_have_no_error(root)
    (tmp_path / "staged").mkdir()
    repair = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged")
    assert repair.plan.steps == ()
    (root / f"t-0/{0:020d}.timeindex").unlink()  # each segment that was ever full has one
    assert any(f.kind is SEGMENT_EMPTIED and f.level is Severity.ERROR for f in Verification(opened(root)).findings())
