"""Beside somebody who writes: what is judged is the store at one moment, so nothing is found that is not wrong, and
damage is found all the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqctl.files import moment as moments
from rmqctl.files.moment import Moment
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory import moment as kafka_moments
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, read_directory
from rmqctl.kafka.directory.moment import at_one_moment as kafka_moment
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.verify.driver import Verification as KafkaVerification
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.queues.moment import at_one_moment
from rmqctl.rocketmq.state.config import consumer_offsets
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.conftest import Rmqctl

_WRITERS = {
    "rocketmq": """
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
engine = StoreEngine.open(root, StoreConfig.small(commit_log_file_size=1 << 17, queue_file_size=2000, index_slots=50, index_entries=200))
put = lambda n: engine.put(Message(f"T{n % 5}", b"%d " % n * (n % 50 + 4), n % 4, {"KEYS": f"k{n}"}))
""",
    "kafka": """
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
engine = KafkaEngine.open(root, EngineConfig(log=LogConfig(segment_bytes=1 << 16, index_interval=256)))
for n in range(3):
    engine.make_topic(f"t{n}", 2, None)
def put(n):
    engine.append(f"t{n % 3}", n % 2, [Record(0, 1700000000000 + n, -1, b"k", b"%d " % n * (n % 50 + 4))])
    n % 500 or engine.checkpoint()
""",
}
_WRITE = """
import sys, threading, time
from pathlib import Path
root = Path(sys.argv[1])
{open}
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
n = 0
while not ends.is_set():
    put(n)
    n += 1
    if n == 2000:
        print("writing", flush=True)
    if n % 20 == 0:
        time.sleep(0.005)
print(n, flush=True)
engine.close()
"""


_CLEAN = """
import os, shutil, sys, threading
from pathlib import Path
root = Path(sys.argv[1])
lock = (root / ".lock").open("wb")
import fcntl
fcntl.lockf(lock, fcntl.LOCK_EX)
ends = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
n = 0
while not ends.is_set():
    for log in sorted(root.glob("t-*/*.log"))[:-1]:
        files = [log.with_suffix(end) for end in (".log", ".index", ".timeindex")]
        for file in files:
            shutil.copy(file, f"{file}.cleaned")
        for file in files:
            os.rename(f"{file}.cleaned", f"{file}.swap")
        for file in files:
            os.rename(file, f"{file}.deleted")
        for file in files:
            os.rename(f"{file}.swap", file)
        for file in files:
            os.unlink(f"{file}.deleted")
        n += 1
        if n == 10:
            print("writing", flush=True)
print(n, flush=True)
"""
"""Takes all segments but the last away, and puts equal ones in their places, in the steps of LocalLog.replaceSegments."""


@contextmanager
def writing(family: str, root: Path) -> Iterator[None]:
    """A process that writes to a store for as long as the block runs; it is stopped in order then."""
    with running(_WRITE.format(open=_WRITERS[family]), root):
        yield


@contextmanager
def running(program: str, root: Path) -> Iterator[None]:
    """A process for as long as the block runs."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            yield
            assert process.poll() is None, "it writes still"
        finally:
            process.stdin.close()
        assert int(process.stdout.readline()) > 0
    assert process.returncode == 0


def wrong(document: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(f["id"], f["file"], f["offset"]) for f in document["findings"] if f["severity"] != "note"]


@pytest.mark.parametrize("family", _WRITERS)
def test_nothing_is_found_but_damage(family: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writing(family, root):
        for words in (("verify",), ("verify", "--level", "structure"), ("repair",), ("verify",)):
            done = rmqctl(*words, str(root), "-o", "json")
            found = json.loads(done.stdout)
            assert (done.exit_code, wrong(found) if words[0] == "verify" else found["steps"]) == (0, []), words
        log = min(root.glob("commitlog/*" if family == "rocketmq" else "t0-0/*.log"))
        with log.open("r+b") as file:
            at = file.read().index(b"30 30 30 ")
            file.seek(at)
            file.write(b"2")
        done = rmqctl("verify", str(root), "-o", "json")
        assert done.exit_code == 1
        (found,) = wrong(json.loads(done.stdout))
        assert found[0] in {"log.body-crc", "batch.crc"} and found[1] == str(log.relative_to(root))
        assert found[2] <= at
        done = rmqctl("repair", str(root), "-o", "json")
        assert [step["file"] for step in json.loads(done.stdout)["steps"]] == [str(log.relative_to(root))]


def test_what_comes_after_the_moment_is_not_seen(tmp_path: Path) -> None:
    config = StoreConfig.small(commit_log_file_size=1 << 14, queue_file_size=400, index_slots=50, index_entries=90)
    engine = StoreEngine.open(tmp_path / "store", config)

    def put(count: int) -> None:
        for n in range(count):
            engine.put(Message(f"T{n % 5}", b"body", n % 2, {"KEYS": f"k{n}"}))
        engine.dispatch()
        engine.flush()

    put(170)
    store = open_store_at(str(tmp_path / "store"))
    store.is_running = True
    moment = at_one_moment(store)
    for _ in range(3):
        checked = Verification(moment, VerifyOptions())
        assert [f.message for f in checked.findings() if f.level != "note"] == []
        assert checked.messages == 170
        assert moment.tree.stat("consumequeue/New/0") is None
        put(70)  # also new queues, files of all kinds, and entries in slots that are in use
        engine.put(Message("New", b"body", 0))
    engine.abandon()


def test_a_file_of_config_that_is_just_being_replaced_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes it, and renames the new one: who looks between the two would read a later one afterwards."""
    with StoreEngine.open(tmp_path / "store", StoreConfig.small()) as engine:
        engine.put(Message("T", b"body", 0))
    path = tmp_path / "store/config/consumerOffset.json"
    path.write_text('{"offsetTable":{"T@g":{"0":1}}}')
    real, gone = LocalTree.read_head, [path.name]

    def read_head(tree: LocalTree, name: str, size: int) -> bytes:
        if name.endswith(path.name) and gone:
            raise FileNotFoundError(gone.pop())
        return real(tree, name, size)

    monkeypatch.setattr(LocalTree, "read_head", read_head)
    store = open_store_at(str(tmp_path / "store"))
    store.is_running = True
    moment = at_one_moment(store)
    assert not gone
    path.write_text('{"offsetTable":{"T@g":{"0":5}}}')
    assert [found.offset for found in consumer_offsets(moment)] == [1]


@pytest.mark.parametrize("left", [None, b""])
def test_a_file_of_config_that_a_broker_has_moved_to_its_bak_is_waited_for(
    left: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreEngine.open(tmp_path / "store", StoreConfig.small()) as engine:
        engine.put(Message("T", b"body", 0))
    path, text = tmp_path / "store/config/consumerOffset.json", b'{"offsetTable":{"T@g":{"0":1}}}'
    path.with_name(f"{path.name}.bak").write_bytes(text)
    path.unlink(missing_ok=True)
    if left is not None:
        path.write_bytes(left)
    monkeypatch.setattr("rmqctl.rocketmq.queues.moment.time.sleep", lambda _: path.write_bytes(text))
    store = open_store_at(str(tmp_path / "store"))
    store.is_running = True
    assert [
        f.kind.id for f in Verification(at_one_moment(store), VerifyOptions()).findings() if f.level != "note"
    ] == []


def test_what_comes_after_the_moment_is_not_seen_in_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "logs"
    engine = KafkaEngine.open(root, EngineConfig(log=LogConfig(segment_bytes=4000, index_interval=200)))
    engine.make_topic("t", 2, None)

    def put(count: int) -> None:
        for n in range(count):
            engine.append("t", n % 2, [Record(0, 1_700_000_000_000 + n, -1, b"k", b"value %d" % n)])
        engine.checkpoint()

    put(160)
    monkeypatch.setattr(LogDirectory, "is_running", lambda self: True)
    moment = kafka_moment(LogDirectories([read_directory(LocalTree(str(root)))]))
    for _ in range(3):
        checked = KafkaVerification(moment.directories[0])
        assert [f.message for f in checked.findings() if f.level != "note"] == []
        ends = [sum(log.size for log in p.logs) for p in moment.partitions]
        put(70)
        engine.make_topic(f"t{len(engine.logs)}", 1, None)
        assert ends == [sum(log.open().size() for log in p.logs) for p in moment.partitions]
    engine.crash()


def _running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory with many segments that counts as in use."""
    root = tmp_path / "logs"
    with KafkaEngine.open(root, EngineConfig(log=LogConfig(segment_bytes=4000, index_interval=200))) as engine:
        engine.make_topic("t", 1, None)
        for n in range(300):
            engine.append("t", 0, [Record(0, 1_700_000_000_000 + n, -1, b"k", b"value %d" % n)])
    monkeypatch.setattr(LogDirectory, "is_running", lambda self: True)
    return root


def test_segments_that_go_are_read_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that retention takes away have another name for a minute, those that were compacted another file in their place."""
    root = _running(tmp_path, monkeypatch)
    directory = root / "t-0"
    first, second, *_ = sorted(path.stem for path in directory.glob("*.log"))

    def taken() -> list[str]:
        gone = [path for path in directory.iterdir() if path.stem in {first, second} or path.suffix == ".snapshot"]
        for path in gone:
            path.rename(f"{path}.deleted")
        for path in gone:
            if path.stem == first:
                path.write_bytes(bytes(100))
        return [path.name for path in gone]

    moment = kafka_moment(LogDirectories([read_directory(LocalTree(str(root)))]))
    assert len(taken()) >= 7
    checked = KafkaVerification(moment.directories[0])
    assert [f.message for f in checked.findings() if f.level != "note"] == []


def test_a_left_over_name_that_is_free_again_has_no_other_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner takes its file away before it is read, and makes another of that name; one too large to be kept stays."""
    directory = _running(tmp_path, monkeypatch) / "t-0"
    gone, large = directory / f"{0:020d}.log.cleaned", directory / f"{100:020d}.log.cleaned"
    gone.write_bytes(b"before")
    large.write_bytes(bytes(moments.SMALL + 1))
    keep = moments.keep_small

    def later(tree: LocalTree, paths: Iterable[str]) -> dict[str, bytes]:
        gone.unlink(missing_ok=True)
        return keep(tree, paths)

    monkeypatch.setattr(kafka_moments, "keep_small", later)
    moment = kafka_moment(LogDirectories([read_directory(LocalTree(str(directory.parent)))]))
    for file in (gone, large):
        file.unlink(missing_ok=True)
        file.write_bytes(b"after")
    tree = moment.directories[0].tree
    assert tree.stat(f"t-0/{gone.name}") is None
    with closing(tree.open(f"t-0/{large.name}")) as source:
        assert (source.size(), source.read_at(0, 5)) == (moments.SMALL + 1, bytes(5))


def test_a_segment_may_be_made_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name was seen, its indexes were not there yet; its first batches come before the ends of logs are looked for."""
    root = _running(tmp_path, monkeypatch)
    log = max((root / "t-0").glob("*.log"))
    whole = {path: path.read_bytes() for path in log.parent.glob(f"{log.stem}.*") if path.suffix != ".snapshot"}
    for path in whole:
        path.unlink()
    log.touch()
    hold = Moment.hold

    def later(*given: Any, **named: Any) -> None:
        for path, data in whole.items():
            path.write_bytes(data)
        hold(*given, **named)

    monkeypatch.setattr(Moment, "hold", later)
    moment = kafka_moment(LogDirectories([read_directory(LocalTree(str(root)))]))
    checked = KafkaVerification(moment.directories[0])
    assert [f.message for f in checked.findings() if f.level != "note"] == []


@pytest.mark.parametrize("words", [("verify",), ("repair",), ("topics",), ("doctor",)], ids=" ".join)
def test_segments_may_be_exchanged_while_they_are_read(words: tuple[str, ...], rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    with KafkaEngine.open(root, EngineConfig(log=LogConfig(segment_bytes=4000, index_interval=200))) as engine:
        engine.make_topic("t", 3, None)
        for n in range(900):
            engine.append("t", n % 3, [Record(0, 1_700_000_000_000 + n, -1, b"k", b"value %d" % n)])
    expected = rmqctl(*words, str(root), "-o", "jsonl")
    assert expected.exit_code == 0
    with running(_CLEAN, root):
        for _ in range(6):
            done = rmqctl(*words, str(root), "-o", "jsonl")
            assert done.exit_code == 0, done.stdout + done.stderr
            assert words[0] != "topics" or done.stdout == expected.stdout


@pytest.mark.parametrize("family", _WRITERS)
def test_copies_are_of_one_moment(family: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """The books balance, and a bundle answers as its store did at the moment."""
    root = tmp_path / "store"
    with writing(family, root):
        for words in ("salvage @ OUT", "convert @ OUT", "bundle @ OUT", "rebuild @ --into OUT", "dump @ -o jsonl"):
            out = tmp_path / words.split()[0]
            done = rmqctl(*words.replace("@", str(root)).replace("OUT", str(out)).split())
            assert done.exit_code == 0, (words, done.output[-3000:])
    assert rmqctl("verify", tmp_path / "salvage").exit_code == 0


def _expiring(tmp_path: Path) -> tuple[Path, StoreFiles]:
    """A store with many small files that counts as in use."""
    config = StoreConfig.small(commit_log_file_size=1 << 13, queue_file_size=400, index_slots=50, index_entries=90)
    with StoreEngine.open(tmp_path / "store", config) as engine:
        for n in range(400):
            engine.put(Message(f"T{n % 5}", b"body", n % 2, {"KEYS": f"k{n}"}))
        engine.dispatch()
    store = open_store_at(str(tmp_path / "store"))
    store.is_running = True
    return tmp_path / "store", store


def test_files_that_expire_are_read_as_they_were(tmp_path: Path) -> None:
    root, store = _expiring(tmp_path)
    moment = at_one_moment(store)
    for kind in ("commitlog", "index", "consumequeue/T0/0"):
        first, second, *_ = sorted((root / kind).iterdir())
        first.unlink()
        second.unlink()
    checked = Verification(moment, VerifyOptions())
    assert [f.message for f in checked.findings()] == []
    assert checked.messages == 400


def test_files_that_expire_before_they_are_opened_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, store = _expiring(tmp_path)
    listed = Moment.list

    def then_gone(moment: Moment, tree: LocalTree, path: str = "", **more: Any) -> None:
        listed(moment, tree, path, **more)
        if not path:
            min((root / "commitlog").iterdir()).unlink()

    monkeypatch.setattr(Moment, "list", then_gone)
    checked = Verification(at_one_moment(store), VerifyOptions())
    assert {f.kind.id for f in checked.findings()} <= {"queue.min-offset", "index.before-log"}
    assert checked.messages < 400


def test_queue_files_that_are_about_to_expire_are_no_damage(
    rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes files of the log first, and only then those of queues that lead there."""
    root, _ = _expiring(tmp_path)
    for log in sorted((root / "commitlog").iterdir())[:-2]:
        log.unlink()
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)
    assert [finding[:2] for finding in wrong(found)] == [("log.gap", "commitlog/00000000000000000000")]
    monkeypatch.setattr("rmqctl.files.moment.is_locked", lambda path: True)
    for words in ("verify @", "verify @ --level structure", "doctor @"):
        done = rmqctl(*words.replace("@", str(root)).split())
        assert done.exit_code == 0, done.stdout


def test_a_bundle_has_files_that_expire_while_it_is_made(
    rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = _expiring(tmp_path)
    monkeypatch.setattr("rmqctl.files.moment.is_locked", lambda path: path == str(root / "lock"))

    def then_gone(store: StoreFiles, **more: Any) -> StoreFiles:
        found = at_one_moment(store, **more)
        if more.get("is_last"):
            for kind in ("commitlog", "index", "consumequeue/T0/0"):
                min((root / kind).iterdir()).unlink()
        return found

    monkeypatch.setattr("rmqctl.rocketmq.queues.moment.at_one_moment", then_gone)
    done = rmqctl("bundle", root, tmp_path / "bundle.tar.zst", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["check"]["first"]) == (0, [])


def test_a_store_is_taken_as_killed_at_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = _expiring(tmp_path)
    monkeypatch.setattr("rmqctl.files.moment.is_locked", lambda path: True)
    assert (at_one_moment(store).state, at_one_moment(store, is_last=True).state) == ("running", "clean")
