"""Power cuts: what was answered or reported done is there, and what was going on can be gone on with or taken back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from rmqctl.errors import RmqctlError
from rmqctl.files.new_files import MARK
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.engine.batch import BatchHead, Ending
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.engine.log import AppendResult
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.recovery.replay import recover as recover_kafka
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from rmqctl.repair import pending, resume, undo
from rmqctl.rocketmq.engine.config import FlushMode, MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, PutResult
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from tests.conftest import Rmqctl
from tests.power import Image, Recorder, recorded
from tests.repair.faults import QuickLayer
from tests.repair.stores import state_of
from tests.rocketmq.engine.engine_helpers import complaints
from tests.writers import COMMANDS, START, Writer

_LOCK = {f"{store}/.lock: is {what}" for store in ("store", "new") for what in ("there again", "not there")}
"""A lock file whose holder is gone keeps nobody off."""


@pytest.mark.parametrize("writer", COMMANDS, ids=str)
def test_all_is_on_the_disk_when_it_is_done(writer: Writer, rmqctl: Rmqctl, tmp_path: Path) -> None:
    home = tmp_path / "home"
    writer.prepared(home, rmqctl)
    recorder = Recorder(home)
    with recorder.recording():
        writer.run(home, rmqctl)
    assert recorder.count > 1
    assert set(recorder.unsafe()) - _LOCK == set()


# --- what is made new: whole, or marked as unfinished -------------------------------------------------


@pytest.mark.parametrize("writer", [w for w in COMMANDS if w.makes], ids=str)
def test_what_is_cut_off_does_not_look_whole(writer: Writer, cuts: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    def again() -> None:
        for made in (home / writer.makes).parents:
            if made.parent == home:
                shutil.rmtree(made)
        shutil.rmtree(home / writer.makes, ignore_errors=True)

    writer.prepared(home, rmqctl)
    moments = recorded(home, lambda: writer.run(home, rmqctl), cuts, again=again)
    whole = made_of(dict(moments[-1].images())["the least"], writer.makes)
    assert len(whole) > 8
    for moment in moments:
        for name, image in moment.images():
            found = made_of(image, writer.makes)
            assert not found or MARK in found or found == whole, f"{name} of {moment.number} {moment.request}"


def made_of(image: Image, place: str) -> dict[str, object]:
    """What an image has in a directory."""
    return {
        path.removeprefix(f"{place}/"): (content.size, content.pages)
        for path, _, content in image.walk()
        if path.startswith(f"{place}/")
    }


# --- what changes a store: it can be gone on with, and taken back ---------------------------------------

_CUTS = 100
_IN_PLACE = ("offsets", "rebuild", "recover", "repair")


def contents(root: Path) -> dict[str, object]:
    """Every file with hash and time, but the lock that a run takes."""
    return {path: found for path, found in state_of(root, directories=False).items() if path != "./.lock"}


@pytest.mark.slow
@pytest.mark.parametrize("writer", [w for w in COMMANDS if w.name.startswith(_IN_PLACE) and not w.makes], ids=str)
def test_what_is_cut_off_can_be_gone_on_with_and_taken_back(writer: Writer, rmqctl: Rmqctl, tmp_path: Path) -> None:
    home, saved = tmp_path / "home", tmp_path / "saved"
    root = home / writer.words.split()[1].removeprefix("@/")
    writer.prepared(home, rmqctl)
    shutil.copytree(home, saved, symlinks=True)
    before = contents(root)

    def again() -> None:
        shutil.rmtree(home)
        shutil.copytree(saved, home, symlinks=True)

    moments = recorded(home, lambda: writer.run(home, rmqctl), _CUTS, again=again)
    after = contents(root)
    assert after != before
    pendings = 0
    for moment in moments:
        for name, image in moment.images():
            where = f"{name} of {moment.number} {moment.request}"
            for way_on, wanted in ((resume, after), (undo, before)):
                image.put(home)
                if (journal := pending(root)) is None:
                    break
                pendings += 1
                assert way_on(journal, layer=QuickLayer()).complaints == (), where
                assert contents(root) == wanted, f"{way_on.__name__} after {where}"
            else:
                continue
            assert contents(root) in ((before, after) if moment is not moments[-1] else (after,)), where
    assert pendings


# --- files and directories of rows: whole, or not there -------------------------------------------------


def rows_of(export: Path) -> int | None:
    """Rows that somebody finds who lists directories; None where there are no files."""
    found = ds.dataset(export, format="parquet", partitioning="hive") if export.exists() else None
    return found.to_table().num_rows if found is not None and found.files else None


def readable(image: Image, home: Path, place: str) -> object:
    """What somebody finds who reads what was to be made: the bytes of a file, or the rows of an export."""
    if place.endswith("/"):
        image.put(home)
        return rows_of(home / place)
    return next(((content.size, content.pages) for path, _, content in image.walk() if path == place), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("bundle", "out.tar.zst"),
        ("bundle-kafka", "out.tar.zst"),
        ("export", "deep/out/"),
        ("export-kafka", "out/"),
        ("report", "report.html"),
    ],
)
def test_a_file_that_is_cut_off_is_not_there(name: str, place: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    writer = next(one for one in COMMANDS if one.name == name)
    home, saved = tmp_path / "home", tmp_path / "saved"
    writer.prepared(home, rmqctl)
    shutil.copytree(home, saved, symlinks=True)

    def again() -> None:
        shutil.rmtree(home)
        shutil.copytree(saved, home, symlinks=True)

    moments = recorded(home, lambda: writer.run(home, rmqctl), _CUTS, again=again)
    *_, last = moments
    whole = readable(dict(last.images())["the least"], home, place)
    assert whole
    for moment in moments:
        for image_name, image in moment.images():
            found = readable(image, home, place)
            assert found is None or found == whole, f"{image_name} of {moment.number} {moment.request}"
        if found is None:  # the next run makes of the last image what this one would have made
            image.put(home)
            writer.run(home, rmqctl)
            assert (home / place).exists()
            assert not place.endswith("/") or rows_of(home / place) == whole


# --- engines: what was acknowledged is there, and a broker starts -------------------------------------


def rocketmq_writes(root: Path, acknowledged: list[PutResult]) -> None:
    """An engine in sync mode that rolls all kinds of files, and is killed; another one goes on, and is stopped."""
    acknowledged.clear()
    for ends in ("abandon", "close"):
        config = StoreConfig.small(
            commit_log_file_size=8192, queue_file_size=200, index_slots=20, index_entries=30, services=False,
            flush=FlushMode.SYNC, clock=MadeUpClock(START + 1000 * len(acknowledged), 1), release=Release(5, 3, 3),
            process_id=1,
        )  # fmt: skip
        engine = StoreEngine.open(root, config)
        for n in range(24):
            message = Message(f"T{n % 5}", b"%d " % n * 70, n % 2, {"KEYS": f"k{n}", "WAIT": str(n % 8 != 7).lower()})
            result = engine.put(message)
            if n % 8 != 7:
                acknowledged.append(result)
            if n % 10 == 9:
                engine.flush()
            elif n % 7 == 6:
                engine.dispatch()
        waiting = [engine.put_async(Message("A", b"%d" % n * 99, 0)) for n in range(6)]
        acknowledged += [future.result() for future in waiting]
        getattr(engine, ends)()


def check_rocketmq(root: Path, acknowledged: list[PutResult]) -> None:
    if acknowledged or (root / "commitlog").exists():  # before that it is no store yet
        check_served(root, [(r.topic, r.queue_id, r.queue_offset, r.physical_offset) for r in acknowledged])


def check_served(root: Path, acknowledged: list[tuple[str, int, int, int]], config: StoreConfig | None = None) -> None:
    """A broker starts, and gives up none of these messages; where it gives up none at all the engine serves them."""
    found = recover(open_store_at(str(root)), Release(5, 3, 3))
    assert found.error is None and found.missing is None
    assert all(physical < (found.end or 0) for *_, physical in acknowledged)
    assert not {physical for *_, physical in acknowledged} & {lost.physical for lost in found.lost}
    assert not found.undispatched.messages
    if found.lost:
        return
    with StoreEngine.open(root, config) as engine:
        for topic, queue_id, offset, physical in acknowledged:
            messages = engine.get(topic, queue_id, offset, 1).messages
            assert [message.physical_offset for message in messages] == [physical]
    left = [found for found in complaints(root) if not found.startswith("warning index.coverage")]
    assert left == []


SMALL_KAFKA = EngineConfig(
    log=LogConfig(segment_bytes=700, flush_messages=1, index_bytes=240, index_interval=200), clock=lambda: START, seed=1
)


def kafka_writes(root: Path, acknowledged: list[AppendResult]) -> None:
    """The same with a log directory, whose topics are made on the way; compacted ones are cleaned."""
    acknowledged.clear()
    for ends in ("crash", "close"):
        engine = KafkaEngine.open(root, SMALL_KAFKA)
        for n in range(30):
            topic = f"t{n % 3}"
            if n < 3:
                engine.make_topic(topic, 2, {"cleanup.policy": "compact"} if n else None)
            record = Record(0, START + n, -1, b"key %d" % (n % 4), b"value %d " % n * 9)
            acknowledged.append(engine.append(topic, n // 3 % 2, [record]))
            if n % 11 == 10:
                engine.checkpoint()
            if n == 20:
                engine.compact(roll=True)
        getattr(engine, ends)()


def check_kafka_start(root: Path) -> None:
    found = recover_kafka(Replicas(LogDirectories([read_directory(LocalTree(str(root)))])), Release(4, 3, 1))
    assert found.starts and not found.offline and not found.lost_records, found.error


def check_kafka(root: Path, acknowledged: list[AppendResult]) -> None:
    if not acknowledged:  # a directory that is not formatted yet needs no start
        return
    check_kafka_start(root)
    engine = KafkaEngine.open(root, SMALL_KAFKA)
    try:
        for result in acknowledged:
            log = engine.logs[result.topic, result.partition]
            assert log.end > result.last_offset
    finally:
        engine.close()


def test_what_a_rolled_segment_says_of_aborted_transactions_is_on_the_disk(tmp_path: Path) -> None:
    """No start makes the transaction index of an ended segment again: readers of committed records would get others."""
    home = tmp_path / "home"
    home.mkdir()
    recorder = Recorder(home)
    with recorder.recording():
        engine = KafkaEngine.open(home / "store", SMALL_KAFKA)
        engine.make_topic("t", 1)
        head = BatchHead(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        engine.append("t", 0, [Record(0, START, -1, b"k", b"v" * 99)], head)
        engine.end_transaction(Ending(7, 0, commit=False, timestamp=START), [("t", 0)])
        for n in range(9):
            engine.append("t", 0, [Record(0, START + n, -1, b"k", b"v" * 99)])
        unsafe = recorder.unsafe()
        engine.close()
    assert (home / "store/t-0/00000000000000000000.txnindex").stat().st_size
    assert not [line for line in unsafe if "00000000000000000000.txnindex" in line]


def test_checkpoints_are_on_the_disk_once_they_are_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    recorder = Recorder(home)
    with recorder.recording():
        engine = KafkaEngine.open(home / "store", SMALL_KAFKA)
        engine.make_topic("t", 1)
        for n in range(3):
            engine.append("t", 0, [Record(0, START + n, -1, b"k", b"v" * 99)])
            engine.checkpoint()
            assert [line for line in recorder.unsafe() if "checkpoint" in line] == []
        engine.close()
    assert (home / "store/recovery-point-offset-checkpoint").stat().st_size


@pytest.mark.parametrize(
    ("writes", "check"), [(rocketmq_writes, check_rocketmq), (kafka_writes, check_kafka)], ids=["rocketmq", "kafka"]
)
def test_what_was_acknowledged_is_there(
    writes: Callable[[Path, list[Any]], None], check: Callable[[Path, list[Any]], None], cuts: int, tmp_path: Path
) -> None:
    home, acknowledged = tmp_path / "home", list[Any]()
    home.mkdir()

    def again() -> None:
        shutil.rmtree(home)
        home.mkdir()

    moments = recorded(
        home, lambda: writes(home / "store", acknowledged), cuts, lambda: list(acknowledged), again=again
    )
    for moment in moments:
        for name, image in moment.images():
            image.put(home)
            if (journal := pending(home / "store")) is not None:  # an opening that was cut off
                resume(journal, layer=QuickLayer())
            try:
                check(home / "store", moment.note)
            except (AssertionError, RmqctlError) as error:
                pytest.fail(f"{name} of {moment.number} {moment.request}, {len(moment.note)} answered: {error}")
