"""The checks of the log alone: one planted fault, one finding at the right place, whatever the splits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fixtures import bulk, golden
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Finding, Severity
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.log.commitlog import CommitLog, LogState, resume_state, walk_file
from rmqctl.rocketmq.queues.ranges import log_end
from rmqctl.rocketmq.store.files import StoreFile, sequence
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.log import LogChecker, LogJoin, LogPartial

SHAPE = bulk.Bulk(log_bytes=3 << 16, file_size=1 << 16, body=100, topics=3, queues=2, queue_file_units=100)
SIZE = bulk.record_size(SHAPE)
MIDDLE = f"{1 << 16:020d}"
LAST = f"{2 << 16:020d}"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three full files."""
    root = tmp_path_factory.mktemp("bulk") / "store"
    bulk.make(root, SHAPE)
    return root


@pytest.fixture
def log(sound: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(sound / "commitlog", tmp_path / "commitlog"))


def check(directory: Path, split: int | None = None, crashed: bool = False) -> tuple[list[Finding], list[LogPartial]]:
    """Findings of a log, checked as a whole or in splits of some bytes."""
    files: list[StoreFile] = sequence(LocalTree(directory), "", "commitlog")[0]
    log = CommitLog(files, crashed=crashed, file_size=1 << 16)
    findings: list[Finding] = []
    gaps: list[Finding] = []
    partials: list[LogPartial] = []
    for at, context in enumerate(log.contexts()):
        gaps += filter(None, [log.gap_before(at)])
        for start in range(0, context.file.size, split or context.file.size):
            checker = LogChecker()
            state = resume_state(context, start)
            for found in walk_file(context, state, start=start, stop=start + split if split else None):
                findings += checker.block(found)
            partials.append(checker.finish())
    return gaps + findings + list(joined(partials, gaps).findings()), partials


def joined(partials: list[LogPartial], gaps: Iterable[Finding] = ()) -> LogJoin:
    """What the splits left, added up."""
    join = LogJoin()
    for gap in gaps:
        join.gap(gap)
    for partial in partials:
        join.add(partial)
    return join


def brief(findings: list[Finding]) -> list[tuple[str, str, int]]:
    return [(f.kind.id, f.file.rpartition("/")[2], f.offset) for f in findings]


def edit(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def record(number: int) -> int:
    """Position of a record in its file."""
    return number * SIZE


def test_a_sound_log_gives_nothing(log: Path) -> None:
    findings, partials = check(log)
    assert findings == []
    assert sum(p.messages for p in partials) == 3 * (((1 << 16) - 8) // SIZE)


BODY_AT, STORE_TIME_AT, QUEUE_OFFSET_AT, PHYSICAL_AT = 88, 56, 20, 28
CASES: dict[str, tuple[Callable[[Path], None], list[tuple[str, str, int]]]] = {
    "body": (
        lambda p: edit(p / MIDDLE, record(5) + BODY_AT + 7, b"\xff\x00"),
        [("log.body-crc", MIDDLE, record(5) + BODY_AT)],
    ),
    "magic": (lambda p: edit(p / MIDDLE, record(5) + 4, b"\0"), [("log.bad-record", MIDDLE, record(5))]),
    "size": (lambda p: edit(p / MIDDLE, record(5), b"\x7f"), [("log.bad-record", MIDDLE, record(5))]),
    "first record": (lambda p: edit(p / MIDDLE, 4, b"\0"), [("log.bad-record", MIDDLE, 0)]),
    "store time zero": (
        lambda p: edit(p / MIDDLE, record(5) + STORE_TIME_AT, bytes(8)),
        [("log.store-time", MIDDLE, record(5) + STORE_TIME_AT)],
    ),
    "store time far ahead": (
        lambda p: edit(p / MIDDLE, record(5) + STORE_TIME_AT, b"\x7f"),
        [("log.store-time", MIDDLE, record(5) + STORE_TIME_AT)],
    ),
    "queue offset": (
        lambda p: edit(p / MIDDLE, record(5) + QUEUE_OFFSET_AT, b"\0\0\0\1"),
        [("log.queue-offset", MIDDLE, record(5) + QUEUE_OFFSET_AT)],
    ),
    "physical offset": (
        lambda p: edit(p / MIDDLE, record(5) + PHYSICAL_AT, b"\0\0\0\1"),
        [("log.physical-offset", MIDDLE, record(5) + PHYSICAL_AT)],
    ),
    "properties": (
        lambda p: edit(p / MIDDLE, record(6) - 30, bytes(30)),
        [("log.properties-damaged", MIDDLE, record(6) - 30)],
    ),
    "compressed flag": (
        lambda p: edit(p / MIDDLE, record(5) + 36, b"\0\0\1\1"),
        [("log.compression", MIDDLE, record(5) + BODY_AT)],
    ),
    "missing file": (lambda p: (p / MIDDLE).unlink(), [("log.gap", MIDDLE, 0)]),
    "topic": (
        lambda p: edit(p / MIDDLE, record(5) + BODY_AT + 100 + 1, b"To\xffic"),
        [("log.topic", MIDDLE, record(5) + BODY_AT + 101)],
    ),
}


@pytest.mark.parametrize("split", [None, 1 << 14, 5000])
@pytest.mark.parametrize("name", CASES)
def test_one_fault_one_finding(name: str, split: int | None, log: Path) -> None:
    plant, expected = CASES[name]
    plant(log)
    assert brief(check(log, split)[0]) == expected


def blank_at(path: Path) -> int:
    return ((1 << 16) - 8) // SIZE * SIZE


def test_blank_with_a_wrong_size_and_a_destroyed_one(log: Path) -> None:
    edit(log / MIDDLE, blank_at(log), (12345).to_bytes(4, "big"))
    edit(log / f"{0:020d}", blank_at(log), bytes(8))
    found = check(log)[0]
    assert brief(found) == [("log.blank", f"{0:020d}", blank_at(log)), ("log.blank", MIDDLE, blank_at(log))]
    assert [f.level for f in found] == [Severity.ERROR, Severity.WARNING]


def test_torn_tail_and_unwritten_room(log: Path) -> None:
    data = (log / LAST).read_bytes()
    (log / LAST).write_bytes(data[: record(3) + 50].ljust(1 << 16, b"\0"))
    assert brief(check(log)[0]) == [("log.torn-tail", LAST, record(3))]
    assert check(log, crashed=True)[0][0].level is Severity.WARNING
    (log / LAST).write_bytes(data[: record(3)].ljust(1 << 16, b"\0"))
    assert check(log)[0] == []


@pytest.mark.parametrize("first", [7, 0], ids=["in a file", "at the start of one"])
def test_a_clock_that_was_set_back_is_normal(first: int, log: Path) -> None:
    """All records from one on are an hour early. One early record alone is a damaged field (the cases above)."""
    data = bytearray((log / LAST).read_bytes())
    for n in range(first, ((1 << 16) - 8) // SIZE):
        place = record(n) + STORE_TIME_AT
        data[place : place + 8] = (int.from_bytes(data[place : place + 8], "big") - 3_600_000).to_bytes(8, "big")
    (log / LAST).write_bytes(data)
    for split in (None, 1 << 14):
        found, partials = check(log, split)
        assert brief(found) == [("log.store-time", LAST, record(first) + STORE_TIME_AT)]
        assert found[0].level is Severity.NOTE
        join = joined(partials)
        assert join.last_time is not None
        assert join.newest_time is not None
        assert 3_500_000 < join.newest_time - join.last_time < 3_600_000
    edit(log / LAST, record(first) + STORE_TIME_AT, bytes(8))
    assert Severity.WARNING in {f.level for f in check(log)[0]}


@pytest.mark.parametrize(("late", "level"), [(14, Severity.NOTE), (5000, Severity.WARNING)])
def test_a_client_batch_that_waited_for_the_lock(late: int, level: Severity, log: Path) -> None:
    """It has the time at which it came; the message in front, which came later, was stored first (seen in 4.7.1)."""
    data = (log / LAST).read_bytes()
    place = record(9) + STORE_TIME_AT
    before = int.from_bytes(data[record(8) + STORE_TIME_AT :][:8], "big")
    edit(log / LAST, record(8) + STORE_TIME_AT, (before + late).to_bytes(8, "big"))
    found = check(log)[0]
    assert brief(found) == [("log.store-time", LAST, place - SIZE)]
    assert found[0].level is level


def test_old_records_behind_the_end_are_not_part_of_the_log(log: Path) -> None:
    """The file is cut and written on with a record of another size: what lay behind shows up again, but older, and the
    queue offset of the new record was given before.
    """
    data = bytearray((log / LAST).read_bytes())
    place = data[record(3) + PHYSICAL_AT : record(3) + PHYSICAL_AT + 8]
    data[record(3) : record(4)] = data[record(5) : record(6)]
    data[record(3) + PHYSICAL_AT : record(3) + PHYSICAL_AT + 8] = place
    late = (bulk.BORN + 10**9).to_bytes(8, "big")
    data[record(3) + STORE_TIME_AT : record(3) + STORE_TIME_AT + 8] = late
    data[record(4) : record(4) + 20] = b"remains of an old one"[:20]
    (log / LAST).write_bytes(data)
    found, partials = check(log)
    assert ("log.stale-tail", LAST, record(4)) in brief(found)
    assert {kind for kind, *_ in brief(found)} <= {"log.stale-tail", "log.queue-offset"}
    assert partials[-1].messages == 4


def test_records_behind_a_wrong_store_time_and_a_destroyed_record_are_part_of_the_log(log: Path) -> None:
    """All are older than the record in front, and go on in their queues where it ends."""
    edit(log / LAST, record(3) + STORE_TIME_AT, (bulk.BORN + 10**9).to_bytes(8, "big"))
    edit(log / LAST, record(4), b"remains of an old one"[:20])
    found = check(log)[0]
    assert ("log.bad-record", LAST, record(4)) in brief(found)
    assert {kind for kind, *_ in brief(found)} == {"log.bad-record", "log.store-time"}


@pytest.mark.parametrize("value", [(1 << 63) - 1, (1 << 63) - 2, -(1 << 63)])
def test_a_queue_offset_at_the_end_of_all_numbers(value: int, log: Path) -> None:
    """Overwritten in the last record of a queue in a block, and in the one before it."""
    for number in (5, 5 - SHAPE.topics * SHAPE.queues, ((1 << 16) - 8) // SIZE - 1):
        if number >= 0:
            edit(log / LAST, record(number) + QUEUE_OFFSET_AT, value.to_bytes(8, "big", signed=True))
    for split in (None, 5000):
        assert {f.kind.id for f in check(log, split)[0]} == {"log.queue-offset"}


def test_a_queue_that_starts_again_is_a_warning(log: Path) -> None:
    """After lost units a broker gives offsets again; every record from there on continues the new count."""
    path = log / LAST
    data = bytearray(path.read_bytes())
    at = int.from_bytes(data[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big")
    for n in range(((1 << 16) - 8) // SIZE):
        place = record(n) + QUEUE_OFFSET_AT
        data[place : place + 8] = (int.from_bytes(data[place : place + 8], "big") - at).to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    found = check(log)[0]
    assert {f.kind.id for f in found} == {"log.queue-offset"}
    assert len(found) <= SHAPE.topics * SHAPE.queues


@pytest.mark.parametrize("is_copy", [True, False])
@pytest.mark.parametrize("split", [None, 1 << 14, 5000])
def test_a_last_file_of_older_records_is_no_part_of_the_log(split: int | None, is_copy: bool, log: Path) -> None:
    """Only the file in front tells it, whichever part of the last file is looked at by itself."""
    first, _, last = sorted(log.iterdir())
    if is_copy:
        last.write_bytes(first.read_bytes())
    else:
        old = first.read_bytes()[STORE_TIME_AT : STORE_TIME_AT + 8]
        for number in range(((1 << 16) - 8) // SIZE):
            edit(last, record(number) + STORE_TIME_AT, old)
        edit(last, 4, bytes(4))
    files = sequence(LocalTree(log), "", "commitlog")[0]
    walked = [f for found in CommitLog(files, file_size=1 << 16).walk() for f in found.findings]
    assert brief(walked) == [("log.stale-tail", last.name, 0)]
    assert brief(check(log, split)[0])[:1] == brief(walked)
    assert log_end(open_store_at(str(log.parent))).offset == files[-1].base


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("split", [None, 1 << 14, 5000])
def test_older_records_after_damage_that_crosses_splits_are_no_part_of_the_log(
    split: int | None, is_first: bool, log: Path
) -> None:
    """They are known by the record that the damage ends at, and by the last one in front, in whatever file it lies."""
    first, second, last = sorted(log.iterdir())
    begin, end, records = (0 if is_first else record(3)), record(40), ((1 << 16) - 8) // SIZE
    edit(last, begin, b"\xaa" * (end - begin))
    for number in range(40, records):
        edit(last, record(number) + STORE_TIME_AT, first.read_bytes()[STORE_TIME_AT : STORE_TIME_AT + 8])
    if is_first:
        edit(second, 0, b"\xaa" * (1 << 16))
    found = [f for f in check(log, split)[0] if f.file.endswith(last.name)]
    assert brief(found)[:1] == [("log.stale-tail", last.name, begin)]


@pytest.mark.parametrize("split", [None, 5000])
def test_one_older_record_among_newer_ones_does_not_end_the_log(split: int | None, log: Path) -> None:
    """It strayed there, or its time is damaged; what follows is sound and stays."""
    first, _, last = sorted(log.iterdir())
    edit(last, record(20), first.read_bytes()[record(20) : record(21)])
    found, partials = check(log, split)
    assert ("log.physical-offset", last.name, record(20) + PHYSICAL_AT) in brief(found)
    assert "log.stale-tail" not in {f.kind.id for f in found}
    assert sum(p.records for p in partials) == 3 * (((1 << 16) - 8) // SIZE)
    edit(last, record(30), b"\xaa" * SIZE)
    edit(last, record(31) + STORE_TIME_AT, first.read_bytes()[STORE_TIME_AT : STORE_TIME_AT + 8])
    found, _ = check(log, split)
    assert ("log.bad-record", last.name, record(30)) in brief(found)
    assert "log.stale-tail" not in {f.kind.id for f in found}


@pytest.mark.parametrize("offset", [0, 1 << 20])
@pytest.mark.parametrize("split", [None, SIZE, 5 * SIZE])
def test_a_wrong_queue_offset_is_one_finding_where_each_split_holds_one_record_of_the_queue(
    split: int | None, offset: int, log: Path
) -> None:
    edit(log / MIDDLE, record(50) + QUEUE_OFFSET_AT, offset.to_bytes(8, "big"))
    assert brief(check(log, split)[0]) == [("log.queue-offset", MIDDLE, record(50) + QUEUE_OFFSET_AT)]


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("split", [None, 7000])
def test_real_logs_give_nothing(name: str, split: int | None, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    for directory in root.glob("commitlog*"):
        if directory.name == "commitlog":
            files = sequence(LocalTree(directory), "", "commitlog")[0]
            size = max(f.size for f in files)
            contexts = CommitLog(files, crashed=True, file_size=size).contexts()
            partials = []
            for context in contexts:
                for start in range(0, context.file.size, split or context.file.size):
                    checker = LogChecker()
                    for found in walk_file(context, LogState(), start=start, stop=start + split if split else None):
                        assert checker.block(found) == []
                    partials.append(checker.finish())
            assert list(joined(partials).findings()) == []


@pytest.mark.parametrize(("release", "level"), [("4.9.8", Severity.WARNING), ("5.5.0", Severity.NOTE)])
def test_messages_without_a_body(release: str, level: Severity, tmp_path: Path) -> None:
    """Push consumers before 5.3.2 fail on them; one finding, however many there are."""
    config = StoreConfig.small(release=Release.parse(release))
    with StoreEngine.open(tmp_path / "store", config=config) as engine:
        places = [engine.put(Message("T", body, 0)).physical_offset for body in (b"one", b"", b"two", b"")]
    store = open_store_at(str(tmp_path / "store"))
    for options in (VerifyOptions(), VerifyOptions(as_release=Release.parse(release))):
        found = [f for f in Verification(store, options).findings() if f.kind.id == "log.empty-body"]
        assert [(f.level, f.physical_offset, f.message) for f in found] == [
            (level, places[1], "2 messages without a body, the first one here")
        ]


@pytest.mark.parametrize(
    ("topic", "said"),
    [(b"To\xffic002", "b'To\\xffic002'"), ("é€é1".encode(), "'é€é1'"), (b"a\x1b[2Jbcd", "'a\\x1b[2Jbcd'")],
)
def test_a_topic_that_no_broker_accepts_can_be_read(topic: bytes, said: str, log: Path) -> None:
    edit(log / MIDDLE, record(5) + BODY_AT + 100 + 1, topic)
    (found,) = (finding for finding in check(log)[0] if finding.kind.id == "log.topic")
    assert found.message == f"the topic is {said}"
