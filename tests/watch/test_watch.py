"""A watch says what is wrong when it is new, by verify's words, and nothing that a broker does all day."""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
import threading
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import WrongUsage
from rmqctl.inventory import Member, members_of
from rmqctl.kafka.verbs import checking
from rmqctl.opening import open_store
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.verify import parts
from rmqctl.watch import Memory, Settings, Watch, scrub
from tests.commands.test_beside_a_writer import writing
from tests.test_parts import kafka, rocketmq

Row = dict[str, Any]
ONCE = Settings(cycles=1, every=0, patience=0, figures=None)


class Clock:
    """A clock that goes on while somebody sleeps, and a little whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 1 << 17)
    monkeypatch.setattr(checking, "_OWN", 1 << 16)


@pytest.fixture(scope="module", params=[rocketmq, kafka])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("watch") / request.param.__name__
    request.param(root)
    return root


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def member(root: Path) -> Member:
    (found,) = members_of([str(root)])
    return found


def watched(root: Path, settings: Settings = ONCE, memory: Memory | None = None, **more: Any) -> list[Row]:
    return [event for events in Watch([member(root)], settings, memory, **more).run() for event in events]


def of(kind: str, events: list[Row]) -> list[Row]:
    return [event for event in events if event["event"] == kind]


def body_bytes(data: bytes) -> list[int]:
    """Return where the digits of bodies lie: in runs of one number, which no stamp of the moment can be."""
    runs = [run.span() for run in re.finditer(rb"(\d+ )\1+", data)]
    return [at for begin, end in runs for at in range(begin, end) if data[at] != 0x20]


def flip(root: Path, rng: random.Random) -> None:
    """Flip a bit of the body of a record of the log."""
    logs = [file for file in root.rglob("*") if file.suffix == ".log" or file.parent.name == "commitlog"]
    logs = [file for file in logs if "__cluster_metadata" not in str(file) and file.stat().st_size > 2000]
    file = rng.choice(sorted(logs))
    data = bytearray(file.read_bytes())
    at = rng.choice(body_bytes(bytes(data)))
    data[at] ^= 1
    file.write_bytes(data)


def test_of_a_sound_store_only_the_cycle_is_said(store: Path) -> None:
    (cycle,) = watched(store)
    assert (cycle["event"], cycle["cycle"], cycle["whole"]) == ("cycle", 1, True)
    assert cycle["parts"] == len(open_store(str(store)).parts())
    assert cycle["bytes"] >= open_store(str(store)).size
    assert cycle["findings"] == {"error": 0, "warning": 0}


def test_a_finding_is_that_of_verify_said_once_and_gone_when_it_is(sound: Path, store: Path) -> None:
    flip(store, random.Random(5))
    memory = Memory()
    found = of("found", watched(store, memory=memory))
    expected = list(open_store(str(store)).verify(notes=False))
    assert [{k: v for k, v in row.items() if k not in {"event", "time", "store"}} for row in found] == expected != []
    assert [event["event"] for event in watched(store, memory=memory)] == ["cycle"]
    shutil.rmtree(store)
    shutil.copytree(sound, store)
    *gone, cycle = watched(store, memory=memory)
    assert [(row["event"], row["id"], row["file"]) for row in gone] == [("gone", r["id"], r["file"]) for r in expected]
    assert cycle["cycle"] == 3 and cycle["findings"] == {"error": 0, "warning": 0}


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 25))])
def test_a_planted_flip_is_said_within_one_cycle(store: Path, seed: int) -> None:
    flip(store, random.Random(seed))
    found = of("found", watched(store))
    assert {row["id"] for row in found} & {"log.body-crc", "batch.crc", "log.property-crc", "log.bad-record"}, found


def test_warnings_of_a_store_whose_broker_has_just_ended_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the log has expired, and the broker is killed before it deletes the units, too."""
    root, clock, memory, is_on = tmp_path / "store", Clock(), Memory(), True
    config = StoreConfig.small(commit_log_file_size=8192, queue_file_size=200, clock=MadeUpClock(1_700_000_000_000, 1))
    with StoreEngine.open(root, config) as engine:
        for number in range(150):
            engine.put(Message("T", b"%d" % number * 40, 0))
    monkeypatch.setattr(StoreFiles, "is_running", property(lambda _: is_on))
    watch = Watch([member(root)], replace(ONCE, cycles=None), memory, clock=clock, sleep=clock.sleep)
    cycles = (events for events in watch.run() if of("cycle", events))
    assert not next(cycles)[:-1]
    min((root / "commitlog").iterdir()).unlink()
    is_on = False
    (warning,) = {row["id"] for row in open_store(str(root)).verify(notes=False)}
    assert warning == "log.gap"
    next(cycles)
    assert not memory.of(str(root)).found
    is_on = True
    next(cycles)
    assert not memory.of(str(root)).found, "the broker deletes them now"
    is_on = False
    next(cycles)
    clock.sleep(600)
    next(cycles)
    assert [found.row["id"] for found in memory.of(str(root)).found.values()] == ["log.gap"]


def test_it_goes_on_where_another_has_ended(store: Path, tmp_path: Path) -> None:
    flip(store, random.Random(1))
    state = tmp_path / "state.json"
    whole = open_store(str(store)).parts()
    said, runs, began = list[Row](), 0, 0
    while True:
        memory = Memory(state)
        watch = Watch([member(store)], ONCE, memory)
        before = len(memory.of(str(store)).done)
        for number, events in enumerate(watch.run()):
            said += events
            if number == 1:
                watch.is_over = True
        runs += 1
        if of("cycle", said):
            break
        assert len(Memory(state).of(str(store)).done) > before, "each run gets on"
        began = began or Memory(state).of(str(store)).began
        assert Memory(state).of(str(store)).began == began
    (cycle,) = of("cycle", said)
    assert runs > 1 and cycle["began"] == began
    assert cycle["parts"] == len(whole) and cycle["whole"]
    keys = [(row["id"], row["file"], row["offset"]) for row in of("found", said)]
    assert len(keys) == len(set(keys)) >= 1
    assert [event["event"] for event in watched(store, memory=Memory(state))] == ["cycle"]


def test_subsets_make_a_whole(store: Path) -> None:
    flip(store, random.Random(2))
    every = of("found", watched(store))
    counted, found = 0, list[Row]()
    for number in range(1, 5):
        events = watched(store, Settings(cycles=1, every=0, patience=0, figures=None, subset=(number, 4)))
        found += of("found", events)
        counted += of("cycle", events)[0]["parts"]
        assert not of("cycle", events)[0]["whole"]
    assert counted == len(open_store(str(store)).parts())
    assert sorted(row["file"] for row in found) == sorted(row["file"] for row in every)


def test_time_that_is_over_begins_no_part_and_cycles_keep_their_distance(store: Path) -> None:
    clock = Clock()
    settings = Settings(cycles=3, every=1000, patience=0, figures=None)
    cycles = of("cycle", watched(store, settings, clock=clock, sleep=clock.sleep))
    assert all(later["began"] - earlier["began"] >= 1_000_000 for earlier, later in pairwise(cycles))
    assert len(cycles) == 3
    clock = Clock()
    settings = Settings(every=1000, lasting=2500, patience=0, figures=None)
    assert len(of("cycle", watched(store, settings, clock=clock, sleep=clock.sleep))) == 3
    assert watched(store, Settings(lasting=0, figures=None), clock=clock, sleep=clock.sleep) == []


def test_a_store_that_goes_and_comes_back_is_said(store: Path) -> None:
    clock, away = Clock(), store.with_name("away")
    watch = Watch([member(store)], Settings(every=10, patience=0, figures=None), clock=clock, sleep=clock.sleep)
    said = list[str]()
    for events in watch.run():
        if not events:
            continue
        said += [event["event"] for event in events]
        if said[-1] == "cycle" and len(said) == 1:
            store.rename(away)
        elif said[-1] == "unreadable":
            away.rename(store)
        elif said[-1] == "cycle":
            break
    assert said == ["cycle", "unreadable", "readable", "cycle"]


@pytest.mark.parametrize("family", ["rocketmq", "kafka"])
def test_beside_a_writer_nothing_is_found_but_damage(family: str, tmp_path: Path) -> None:
    root, memory, ends = tmp_path / "store", Memory(), threading.Event()

    def expire() -> None:
        """Take the oldest files away, as retention does."""
        while not ends.wait(0.3):
            for directory in [root / "commitlog"] if family == "rocketmq" else sorted(root.glob("t*-*")):
                names = sorted(file.stem for file in directory.iterdir() if file.stem.isdigit())
                if len(set(names)) > 4:
                    gone = [file for file in directory.iterdir() if file.stem == names[0]]
                    for file in gone if family == "rocketmq" else [f.rename(f"{f}.deleted") for f in gone]:
                        file.unlink()

    with writing(family, root):
        settings = Settings(cycles=3, every=0, patience=1, figures=0)
        events = watched(root, settings, memory)
        assert of("found", events) == []
        assert [cycle["whole"] for cycle in of("cycle", events)] == [True] * 3
        assert of("figures", events)  # how often, depends on what they cost this machine
        if family == "kafka":  # the engine of a queue file that is expired by its log would be needed
            thread = threading.Thread(target=expire)
            thread.start()
            try:
                assert of("found", watched(root, settings, memory)) == []
            finally:
                ends.set()
                thread.join()
        logs = sorted(root.glob("commitlog/*" if family == "rocketmq" else "t0-0/*.log"))[:-1]
        log, at, byte = next(
            (log, at, data[at])
            for log in reversed(logs)  # the last may be made in advance
            for data in [log.read_bytes()]
            for at in body_bytes(data)
            if at > len(data) // 2
        )
        with log.open("r+b") as file:
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        found = of("found", watched(root, ONCE, memory))
        assert {row["file"] for row in found} == {str(log.relative_to(root))}


def test_memory_does_not_grow(store: Path) -> None:
    flip(store, random.Random(3))
    clock = Clock()
    sizes = []
    tracemalloc.start()
    try:
        watch = Watch([member(store)], Settings(cycles=4, every=0, figures=None), clock=clock, sleep=clock.sleep)
        for events in watch.run():
            if events and events[-1]["event"] == "cycle":
                gc.collect()  # Python 3.14 looks for cycles later; what waits for that is no growth
                sizes += [tracemalloc.get_traced_memory()[0]]
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[1] < 300_000, sizes


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kind":"watch-state","version":99,"stores":{}}', '{"kind":"report"}']
)
def test_a_state_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(WrongUsage):
        Memory(tmp_path / "state")


def test_a_state_that_cannot_be_written_stays_as_it_was(store: Path, tmp_path: Path, monkeypatch: Any) -> None:
    state = tmp_path / "state"
    watched(store, memory=Memory(state))
    before = state.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmqctl.watch.memory.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        watched(store, memory=Memory(state))
    assert state.read_bytes() == before
    assert json.loads(before)["kind"] == "watch-state"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_it_keeps_nothing_of_what_it_has_looked_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened stores refer to themselves, and nothing here makes so many objects that Python would collect them."""
    monkeypatch.setattr(scrub, "_UNTIDY", open_store(str(store)).size // 2)
    watch = Watch([member(store)], replace(ONCE, cycles=4))
    gc.disable()
    try:
        objects = [len(gc.get_objects()) for events in watch.run() if of("cycle", events)]
    finally:
        gc.enable()
    assert objects[-1] < objects[0] + 1000
