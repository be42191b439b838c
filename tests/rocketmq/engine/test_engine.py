"""Opening, writing, closing, opening again; what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl.errors import NotAStore, Refused, StoreInUse, TooDamaged
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message, MessageRefused, PutStatus
from rmqctl.rocketmq.query.key import KeyQuery
from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES
from tests.rocketmq.engine.engine_helpers import START, complaints, put_some, small

RELEASES = [
    Release.parse(r) for r in ("4.4.0", "4.5.2", "4.7.0", "4.9.3", "4.9.4", "4.9.8", "5.0.0", "5.1.4", "5.3.3", "5.5.0")
]


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for turn in range(4):
        with StoreEngine.open(tmp_path / "s", small() if turn == 0 else None) as engine:
            put_some(engine, 401)
            assert engine.offsets("Orders", 2) == (0, 133 * (turn + 1))
    assert complaints(tmp_path / "s") == []
    assert not (tmp_path / "s" / "abort").exists()
    assert (tmp_path / "s" / "lock").read_bytes() == b"lock"


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_every_release_is_sound(release: Release, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small(release=release)) as engine:
        put_some(engine, 700)
    assert complaints(tmp_path) == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    release=st.sampled_from(RELEASES),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    batch=st.integers(1, 5),
    crc=st.booleans(),
    pooled=st.booleans(),
    ext=st.booleans(),
    stops=st.integers(1, 3),
)
def test_any_options_make_a_sound_store(
    release: Release,
    sizes: list[int],
    batch: int,
    crc: bool,
    pooled: bool,
    ext: bool,
    stops: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("any")
    config = small(release=release, property_crc=crc and release >= (5, 2, 0), transient_pool=pooled, queue_ext=ext)
    for _ in range(stops):
        with StoreEngine.open(root, config) as engine:
            for n, size in enumerate(max(size, release < FIRST_WITH_EMPTY_BODIES) for size in sizes):
                messages = [
                    Message(f"T{n % 2}", bytes(size), n % 2, {"KEYS": f"k{n} a", "TAGS": "x"}) for _ in range(batch)
                ]
                engine.put_batch(messages) if batch > 1 else engine.put(messages[0])
    assert complaints(root) == []


def test_reads_back_what_was_put(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        put_some(engine, 300)
        found = engine.get("Orders", 1, 5, 4)
        assert [m.fields["body"] for m in found.messages] == [b"body %d" % (3 * n + 1) for n in range(5, 9)]
        assert (found.status, found.next_offset, found.max_offset) == ("FOUND", 9, 100)
        assert engine.get("Orders", 1, 100).status == "OFFSET_OVERFLOW_ONE"
        assert engine.get("Orders", 1, 101).status == "OFFSET_OVERFLOW_BADLY"
        assert engine.get("Other", 0, 0).status == "NO_MESSAGE_IN_QUEUE"
        assert [m.fields["body"] for m in engine.query(KeyQuery("Orders", "key-77"))] == [b"body 77"]
        assert engine.offset_by_time("Orders", 0, START + 3 * 30) == 10


def test_a_batch_stays_together(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        for _ in range(40):
            results = engine.put_batch([Message("T", bytes(900), 0) for _ in range(7)])
            assert len({r.physical_offset // engine.config.commit_log_file_size for r in results}) == 1
            assert len({r.store_timestamp for r in results}) == 1
            assert [r.queue_offset - results[0].queue_offset for r in results] == list(range(7))


REFUSED = {
    "body": (Message("T", bytes(40 << 10)), PutStatus.MESSAGE_ILLEGAL, "body size exceeded"),
    "topic": (Message("a b", b""), PutStatus.MESSAGE_ILLEGAL, "illegal characters"),
    "blank topic": (Message(" ", b""), PutStatus.MESSAGE_ILLEGAL, "blank"),
    "long topic": (Message("T" * 128, b""), PutStatus.MESSAGE_ILLEGAL, "too long 128"),
    "properties": (Message("T", b"", 0, {"p": "x" * 32768}), PutStatus.PROPERTIES_SIZE_EXCEEDED, "too long"),
    "separator": (Message("T", b"", 0, {"p": "a\x02b"}), PutStatus.MESSAGE_ILLEGAL, "separator"),
    "queue below 0": (Message("T", b"", -1), PutStatus.MESSAGE_ILLEGAL, "queue -1 is none"),
    "queue": (Message("T", b"", 1 << 16), PutStatus.MESSAGE_ILLEGAL, "queue 65536 is none"),
    "flag": (Message("T", b"", flag=1 << 31), PutStatus.MESSAGE_ILLEGAL, "no record has room"),
    "time": (Message("T", b"", born_timestamp=1 << 63), PutStatus.MESSAGE_ILLEGAL, "no record has room"),
    "inner": (Message("T", b"", 0, {"INNER_NUM": "2"}), PutStatus.MESSAGE_ILLEGAL, "not an inner batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_broker_refuses(case: str, tmp_path: Path) -> None:
    message, status, words = REFUSED[case]
    with StoreEngine.open(tmp_path, small()) as engine:
        with pytest.raises(MessageRefused, match=words) as caught:
            engine.put(message)
        assert caught.value.status is status
        assert engine.log.wrote == 0
        assert engine.put(Message("T", b"fine")).queue_offset == 0
    assert complaints(tmp_path) == []


@pytest.mark.parametrize("other", [Message("U", b"y"), Message("T", b"y", 1)], ids=["topic", "queue"])
def test_a_batch_is_of_one_queue(other: Message, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        with pytest.raises(MessageRefused, match="several topics or queues"):
            engine.put_batch([Message("T", b"x"), other])
        assert engine.log.wrote == 0
        assert [r.queue_offset for r in engine.put_batch([Message("T", b"x"), Message("T", b"y")])] == [0, 1]
    assert complaints(tmp_path) == []


def test_records_without_a_place_in_a_queue_in_a_batch(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        rolled_back = Message("T", b"x", sys_flag=0xC, is_stored=True)
        engine.put_batch([Message("T", b"x"), rolled_back, Message("T", b"y")])
        assert engine.offsets("T", 0) == (0, 2)
    assert complaints(tmp_path) == []


def test_long_retry_topics_are_second_version_records(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 130
    with StoreEngine.open(tmp_path, small()) as engine:
        engine.put(Message(topic, b"x"))
        assert engine.get(topic, 0, 0).messages[0].fields["magic"] & 0xFFFFFFFF == 0xDAA320AB
    assert complaints(tmp_path) == []
    with pytest.raises(MessageRefused), StoreEngine.open(tmp_path / "old", small(release=Release(5, 0, 0))) as engine:
        engine.put(Message(topic, b"x"))


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rmqctl.rocketmq.engine.config import StoreConfig\n"
        "from rmqctl.rocketmq.engine.engine import StoreEngine\n"
        f"e = StoreEngine.open({str(tmp_path)!r}, StoreConfig.small())\nprint('open', flush=True)\nsys.stdin.read()\ne.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreInUse):
            StoreEngine.open(tmp_path)
        other.communicate("")
    with StoreEngine.open(tmp_path) as engine, pytest.raises(StoreInUse):
        StoreEngine.open(engine.root)


def test_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAStore):
        StoreEngine.open(tmp_path)
    with StoreEngine.open(tmp_path / "s", small()) as engine:
        put_some(engine, 10)
    with pytest.raises(Refused, match="131072"):
        StoreEngine.open(tmp_path / "s", replace(small(), commit_log_file_size=131072))
    with pytest.raises(Refused, match="closed"):
        engine.put(Message("T", b""))
    with pytest.raises(Refused, match="RocksDB"):
        StoreEngine.open(golden.unpack("5.5.0-rocksdb-clean", tmp_path))


@pytest.mark.parametrize(
    "name", ["4.5.2-crash", "4.9.8-crash", "5.1.4-crash", "5.3.3-crash", "5.5.0-crash", "5.5.0-clean"]
)
def test_takes_over_what_a_broker_left(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    with StoreEngine.open(root) as engine:
        assert (engine.recovered is not None) == name.endswith("crash")
        end = engine.log.wrote
        put_some(engine, 300, "LabOrders", 4)
        assert engine.log.wrote > end
    assert complaints(root) == []


def test_a_store_damaged_beyond_recovery_is_refused(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, small()) as engine:
        put_some(engine, 300)
    log = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[20_000:20_100] = bytes(100)
    log.write_bytes(data)
    with pytest.raises(TooDamaged, match="give up"):
        StoreEngine.open(tmp_path)


@pytest.mark.parametrize("end", [StoreEngine.close, StoreEngine.abandon, StoreEngine.crash])
def test_nothing_is_asked_or_dispatched_behind_the_end(end: Callable[[StoreEngine], None], tmp_path: Path) -> None:
    engine = StoreEngine.open(tmp_path, StoreConfig.small(services=False))
    for n in range(50):
        engine.put(Message("T", b"x" * 500, n % 2, {"KEYS": f"k{n}"}))
    end(engine)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    asking: list[Callable[[], object]] = [
        lambda: engine.get("T", 0, 0),
        lambda: engine.offsets("T", 0),
        lambda: engine.offset_by_time("T", 0, 0),
        lambda: engine.query(KeyQuery("T", "k1")),
        engine.dispatch,
        engine.flush,
        engine.expire,
        engine.deliver_due,
        lambda: engine.put(Message("T", b"late")),
    ]
    for ask in asking:
        with pytest.raises(Refused, match="is closed"):
            ask()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
