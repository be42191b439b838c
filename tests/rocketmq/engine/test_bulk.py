"""The bulk path against single puts: the same bytes in every file, whatever the template."""

from __future__ import annotations

import errno
import tempfile
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor as Pool
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.errors import IOFailure
from rmqctl.files.writing import Buffer, Disk
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.flush import Pauses
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.producer import bulk as bulk_module
from rmqctl.rocketmq.producer.bulk import Encoder, can_bulk, produce_bulk
from rmqctl.rocketmq.producer.drafts import Template, counted
from rmqctl.rocketmq.producer.produce import ProduceOptions, produce
from tests.rocketmq.engine.engine_helpers import START, complaints

RELEASES = [Release(4, 5, 2), Release(4, 9, 0), Release(4, 9, 8), Release(5, 1, 4), Release(5, 5, 0)]

templates = st.builds(
    Template,
    body=st.sampled_from([None, None, "text {n}", "ä"]),
    sizes=st.sampled_from([None, (0, 0), (1, 1), (300, 300), (0, 200)]),
    keys=st.sampled_from([(), ("k",), ("order-{n}",), ("a-{n}-{n}", "b")]),
    tags=st.sampled_from([(), (("A", 1.0),), (("A", 1.0), ("Bé", 2.0))]),
    properties=st.sampled_from([(), (("u", "{n}%d%s"), ("v", "w")), (("UNIQ_KEY", "mine-{n}"),)]),
    seed=st.integers(0, 3),
)
asked = st.builds(
    ProduceOptions,
    topics=st.sampled_from([("T",), ("T0", "T1", "T2"), ("T", "Longer")]),
    queues=st.integers(1, 5),
    queue_id=st.sampled_from([None, None, 3]),
)


def config_of(release: Release, interval: int) -> StoreConfig:
    clock = MadeUpClock(START, interval)
    return StoreConfig.small(release=release, clock=clock, process_id=1, index_slots=50, index_entries=200)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@settings(max_examples=15, deadline=None)
@given(templates, asked, st.sampled_from([0, 1, 10, 11, 150, 403]), st.sampled_from(RELEASES), st.integers(0, 1))
def test_the_bytes_of_single_puts(
    template: Template, options: ProduceOptions, count: int, release: Release, interval: int
) -> None:
    options, found = replace(options, seed=template.seed), []
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_module, "CHUNK", 61)  # both buffers in turn, many times
        for name in ("bulk", "single"):
            root = Path(directory) / name
            for _ in range(2):  # the second run goes on in a store that is there
                with StoreEngine.open(root, config_of(release, interval)) as engine:
                    assert can_bulk(engine, template, options)
                    if name == "bulk":
                        assert sum(run.messages for run in produce_bulk(engine, template, count, options)) == count
                    else:
                        deque(produce(engine, counted(template, count), options), 0)
            found.append(tree(root))
    assert found[0] == found[1]


def test_beside_single_puts(tmp_path: Path) -> None:
    options, template = ProduceOptions(("T",)), Template(sizes=(100, 100), keys=("k{n}",))
    with StoreEngine.open(tmp_path, StoreConfig.small()) as engine:
        engine.put(Message("T", b"before", 0))
        for number, run in enumerate(produce_bulk(engine, template, 3000, options)):
            engine.put(Message("T", b"%d" % number, number % 4))
            assert run.messages > 0
        engine.put(Message("T", b"behind", 0))
        engine.dispatch()
        assert engine.reput.position == engine.log.wrote
    assert complaints(tmp_path) == []


def test_what_was_handed_over_is_forgotten_if_less_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "__call__", lambda _: None)
    options, template = ProduceOptions(("T",)), Template(sizes=(100, 100))
    config = StoreConfig.small(commit_log_file_size=1 << 20)
    with StoreEngine.open(tmp_path, config) as engine:
        deque(produce_bulk(engine, template, 1000, options), 0)
        end = engine.log.committed // 2
        assert engine.reput.position < end
        engine.reput.run(end)
        assert end <= engine.reput.position < engine.log.committed
        assert engine.reput.store_timestamp
    assert complaints(tmp_path) == []


def test_topics_that_are_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "__call__", lambda _: None)
    with StoreEngine.open(tmp_path, StoreConfig.small(commit_log_file_size=1 << 20)) as engine:
        for _ in produce_bulk(engine, Template(sizes=(100, 100)), 9000, ProduceOptions(("T",))):
            engine.make_topic(f"T{engine.log.wrote}", 1)
        engine.dispatch()
        assert sum(engine.offsets("T", queue)[1] for queue in range(4)) == 9000
    assert complaints(tmp_path) == []


def test_several_runs_and_single_puts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_module, "CHUNK", 300)
    with StoreEngine.open(tmp_path, StoreConfig.small(commit_log_file_size=1 << 18)) as engine, Pool(6) as pool:

        def bulk(number: int) -> int:
            options = ProduceOptions((f"T{number}", "shared"))
            return sum(run.messages for run in produce_bulk(engine, Template(sizes=(0, 300)), 4000, options))

        def single(number: int) -> int:
            return len([engine.put(Message("shared", b"%d" % n, number)) for n in range(500)])

        def look(_: int) -> int:
            for n in range(20):
                engine.make_topic(f"M{n}", 1)
                engine.flush()
            return 0

        work = [pool.submit(f, n) for n in range(2) for f in (bulk, single, look)]
        total = sum(job.result(120) for job in work)
        engine.dispatch()
        topics = [(topic, queue) for topic in ("T0", "T1", "shared") for queue in range(4)]
        assert sum(engine.offsets(*key)[1] for key in topics) == total == 9000
    assert complaints(tmp_path) == []


def test_a_run_that_is_given_up(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, StoreConfig.small()) as engine:
        runs = produce_bulk(engine, Template(sizes=(100, 100)), 100_000, ProduceOptions(("T",)))
        assert isinstance(runs, Generator)
        next(runs)
        runs.close()
        assert not engine.reput.is_fed
    assert complaints(tmp_path) == []


@pytest.mark.parametrize(("body", "most"), [(1, 4096), (1 << 10, 4096), (1 << 20, 8), (64 << 20, 1)])
def test_large_bodies_are_encoded_few_at_a_time(body: int, most: int) -> None:
    template = Template(sizes=(body, body))
    encoder = Encoder(template, ProduceOptions(("T",)), StoreConfig(max_message_size=1 << 30))
    assert encoder.step(100_000, 1 << 30) == most
    assert encoder.step(98, 1 << 30) == min(2, most)
    if body == 1 << 20:
        assert encoder.chunk(10, np.full(8, START)).joined(slice(None)).nbytes < 9 << 20


def test_only_what_is_on_the_disk_is_dropped_from_memory(tmp_path: Path) -> None:
    dropped: list[tuple[int, int]] = []

    class Noting(Disk):
        def forget(self, fd: int, begin: int, end: int) -> None:
            base = int(Path(f"/proc/self/fd/{fd}").readlink().name)
            assert base + end <= engine.log.flushed
            dropped.append((base + begin, base + end))
            super().forget(fd, begin, end)

    config = StoreConfig.small(commit_log_file_size=3 << 20, flush_interval_ms=1)
    with pytest.MonkeyPatch.context() as patch, StoreEngine.open(tmp_path, config, disk=Noting()) as engine:
        patch.setattr(bulk_module, "_FORGOTTEN_AT_ONCE", 1 << 16)
        for _ in produce_bulk(engine, Template(sizes=(1000, 1000)), 30_000, ProduceOptions(("T",))):
            engine.log.flush()
    assert min(dropped)[0] == 0
    assert sum(end - begin for begin, end in dropped) > 20 << 20
    assert all(a[1] == b[0] for a, b in pairwise(sorted(dropped)))
    assert complaints(tmp_path) == []


def test_much_is_flushed_before_its_time(tmp_path: Path) -> None:
    config = StoreConfig.small(commit_log_file_size=3 << 20, flush_interval_ms=600_000)
    with pytest.MonkeyPatch.context() as patch, StoreEngine.open(tmp_path, config) as engine:
        patch.setattr(bulk_module, "_UNFLUSHED", 1 << 20)
        for _ in produce_bulk(engine, Template(sizes=(1000, 1000)), 5000, ProduceOptions(("T",))):
            pass
        for _ in range(400):
            if engine.log.flushed:
                break
            sleep(0.01)
        assert engine.log.flushed > 0
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "sync", "open"])
def test_a_disk_that_fails_midway(call: str, tmp_path: Path) -> None:
    class Failing(Disk):
        is_bad = False

        def _tell(self, name: str) -> None:
            if self.is_bad and name == call:
                raise IOFailure("cannot go on", OSError(errno.EIO, "Input/output error"))

        def write(self, fd: int, data: Buffer, position: int) -> None:
            self._tell("write")
            super().write(fd, data, position)

        def sync(self, fd: int) -> None:
            self._tell("sync")
            super().sync(fd)

        def open(self, path: Path, size: int | None = None) -> int:
            self._tell("open")
            return super().open(path, size)

    def run(engine: StoreEngine) -> None:
        for run in produce_bulk(engine, Template(sizes=(500, 500)), 1_000_000, ProduceOptions(("T",))):
            written.append(run.messages)
            disk.is_bad = sum(written) > 2000

    disk, written = Failing(), list[int]()
    with StoreEngine.open(tmp_path, StoreConfig.small(flush_interval_ms=1), disk=disk) as engine:
        with pytest.raises(IOFailure):
            run(engine)
        disk.is_bad = False
        engine.abandon()
    assert 2000 < sum(written) < 1_000_000
    with StoreEngine.open(tmp_path, StoreConfig.small()) as engine:
        assert sum(engine.offsets("T", queue)[1] for queue in range(4)) >= sum(written)
    # as a broker's, an index that was never flushed is made again from the last files of the log only
    assert [c for c in complaints(tmp_path) if "index.coverage" not in c] == []
