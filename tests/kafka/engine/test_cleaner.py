"""Compaction: what golden logs became under a broker's cleaner, a model of random histories, crashes half way."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from freezegun.api import FrozenDateTimeFactory

from fixtures import golden
from formats.kafka.record_batch import HEADER_SIZE, header_plan
from rmqctl.errors import IOFailure
from rmqctl.files.writing import Disk
from rmqctl.filters import Filters
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.cleaner import clean
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import LogPlace, WritableLog
from rmqctl.kafka.log.reference import Record
from rmqctl.opening import open_store
from rmqctl.release import Release
from tests.kafka.engine.cleaner_helpers import COMPACT, TIME, batches_of, content_of, logs_of, write_history

DAY = 86_400_000


@pytest.mark.parametrize("partition", ["compacted-0", "compacted-1"])
@pytest.mark.parametrize("name", ["3.9.2-clean", "4.3.1-clean"])
def test_golden_segments_become_what_the_broker_made_of_them(name: str, partition: str, tmp_path: Path) -> None:
    source, made = golden.pristine(name) / partition, tmp_path / partition
    made.mkdir()
    live = {int(path.stem): path for path in logs_of(source)}
    old = {int(p.name[:20]): p for p in source.iterdir() if p.name.endswith(".log.deleted")}
    active = max(live)
    first = min(base for base in live if base > 0)  # what was before it is clean, and was made in earlier rounds
    chosen = {base: path for base, path in live.items() if base < first or base == active}
    chosen |= {base: path for base, path in old.items() if first <= base < active}
    place = LogPlace(
        "compacted", int(partition[-1]), made, LogConfig(policies=frozenset({"compact"})), Release.parse(name[:5]),
        lambda: TIME, Disk(),
    )  # fmt: skip
    log = WritableLog(place)
    for number, base in enumerate(sorted(chosen)):
        if number:
            log.roll(base)
        for batch in batches_of([chosen[base]]):
            log.append_stored(batch)
    wanted = list(batches_of([live[base] for base in sorted(live)]))
    horizons = [
        h["base_timestamp"] for b in wanted if (h := header_plan().unpack_from(b[:HEADER_SIZE])[0])["attributes"] & 0x40
    ]
    found = clean(log, 0, max(horizons, default=DAY) - DAY)
    log.close()
    assert found is not None
    assert found.end == active
    ours = [content_of(batch) for batch in batches_of(logs_of(made))]
    theirs = [content_of(batch) for batch in wanted]
    assert [b for b in ours if b[0]["base_offset"] >= first] == [b for b in theirs if b[0]["base_offset"] >= first]
    assert len([b for b in ours if b[0]["base_offset"] >= first]) > 10


def engine_at(path: Path, **more: Any) -> KafkaEngine:
    engine = KafkaEngine.open(path, EngineConfig(log=LogConfig.small(), seed=1), **more)
    engine.make_topic("t", 1, COMPACT)
    return engine


def served(path: Path, **more: Any) -> list[tuple[str, Any, int]]:
    rows = open_store(str(path)).query_offset("t", 0, 0, Filters(limit=1 << 30), **more)
    return [(row["key"], row["value"], row["offset"]) for row in rows if row["kind"] == "record"]


def survivors(rows: list[tuple[str, Any, int]], end: int) -> list[tuple[str, Any, int]]:
    """What is left by definition: the last record of each key below an offset, and all from there on."""
    last = {key: offset for key, _, offset in rows if offset < end}
    return [row for row in rows if row[2] >= end or last[row[0]] == row[2]]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 200))])
def test_random_histories_keep_the_last_record_of_each_key(
    seed: int, clock: FrozenDateTimeFactory, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    engine = engine_at(tmp_path)
    write_history(engine, draw)
    engine.close()
    before = served(tmp_path, read_committed=True)
    stable = open_store(str(tmp_path)).topics().rows
    ends = [(row["log_end_offset"], row["last_stable_offset"]) for row in stable if row is not None]
    engine = engine_at(tmp_path)
    (cleaned,) = engine.compact(roll=True).values()
    engine.close()
    assert served(tmp_path, read_committed=True) == survivors(before, cleaned.end)
    stable = open_store(str(tmp_path)).topics().rows
    assert [(row["log_end_offset"], row["last_stable_offset"]) for row in stable if row is not None] == ends
    assert wrong(tmp_path) == []
    clock.tick(2 * DAY / 1000)
    engine = engine_at(tmp_path)
    for producer in engine.log("t", 0).states.replay.open.copy():
        engine.end_transaction(Ending(producer, 0, commit=True), [("t", 0)])
    write_history(engine, random.Random(seed + 1000), 100)
    before = served_while_open(engine, tmp_path)
    (again,) = engine.compact(roll=True).values()
    engine.close()
    left = survivors(before, again.end)
    found = served(tmp_path, read_committed=True)
    assert [row for row in left if row[1] is not None] == [row for row in found if row[1] is not None]
    assert wrong(tmp_path) == []


def served_while_open(engine: KafkaEngine, path: Path) -> list[tuple[str, Any, int]]:
    engine.log("t", 0).roll()
    engine.checkpoint()
    return served(path, read_committed=True)


def wrong(path: Path) -> list[Any]:
    rows = open_store(str(path)).verify().rows
    return [row for row in rows if row is not None and row.get("severity") in ("error", "warning")]


def test_tombstones_and_markers_go_after_their_time(clock: FrozenDateTimeFactory, tmp_path: Path) -> None:
    engine = engine_at(tmp_path)
    engine.append("t", 0, [Record(0, TIME, -1, b"a", b"1"), Record(0, TIME, -1, b"b", b"1")])
    engine.append("t", 0, [Record(0, TIME, -1, b"a", None)])
    head = BatchHead(producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    engine.append("t", 0, [Record(0, TIME, -1, b"b", b"2")], head)
    engine.end_transaction(Ending(5, 0, commit=True), [("t", 0)])
    engine.append("t", 0, [Record(0, TIME, -1, b"b", b"3"), Record(0, TIME, -1, b"c", b"3")])
    engine.compact(roll=True)
    engine.close()
    assert served(tmp_path) == [("a", None, 2), ("b", "3", 5), ("c", "3", 6)]
    heads = [header_plan().unpack_from(b[:HEADER_SIZE])[0] for b in batches_of(logs_of(tmp_path / "t-0"))]
    assert [(h["base_offset"], h["records_count"], h["attributes"]) for h in heads] == [
        (2, 1, 0x40), (3, 0, 0x10), (4, 1, 0x30), (5, 2, 0),
    ]  # fmt: skip
    for days, left in ((0.5, [2, 3, 4, 5, 7]), (2, [3, 4, 5, 7, 8]), (4, [3, 4, 5, 7, 8, 9])):
        clock.move_to(datetime.fromtimestamp(TIME / 1000 + days * 86_400, UTC))
        engine = engine_at(tmp_path)
        engine.append("t", 0, [Record(0, TIME + int(days * DAY), -1, b"z%d" % days, b"4")])
        engine.compact(roll=True)
        engine.close()
        bases = [int.from_bytes(b[:8], "big") for b in batches_of(logs_of(tmp_path / "t-0"))]
        assert bases == left, days
    assert wrong(tmp_path) == []


class FailingDisk(Disk):
    """Fails at one of its renames and deletions."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise IOFailure("cannot go on", "a test says so")

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


@pytest.mark.parametrize("stride", [12, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("clock")
def test_a_cleaning_that_is_broken_off_loses_nothing(stride: int, tmp_path: Path) -> None:
    step = 0
    while True:
        step += stride
        path = tmp_path / str(step)
        engine = engine_at(path)
        for number in range(60):
            engine.append("t", 0, [Record(0, TIME, -1, b"k%d" % (number % 5), b"v%d" % number + bytes(40))])
        log = engine.log("t", 0)
        log.roll()
        log.place = replace(log.place, disk=FailingDisk(step))
        try:
            clean(log, 0, TIME)
        except IOFailure:
            engine.crash()
        else:
            engine.close()
            break
        with engine_at(path) as engine:
            assert engine.log("t", 0).end == 60
        found = {key: value.rstrip("\0") if isinstance(value, str) else value for key, value, _ in served(path)}
        assert sorted(found) == [f"k{n}" for n in range(5)]
        assert wrong(path) == []
    assert step > 10
