"""State that 5.x keeps, and what only some releases cannot load: checkpoint offsets, timer files, copies, V2 records."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.local import BytesSource
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.log.scan import Extent, scan
from rmqctl.rocketmq.state.releases import FIRST_WITH_EMPTY_BODIES
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.log import LogChecker, LogJoin, LogPartial
from tests.rocketmq.verify.compression_helpers import record

FLUSHED, CONFIRM, LOGICS = 24, 32, 40


def found_in(root: Path) -> list[Finding]:
    return list(Verification(open_store_at(str(root)), VerifyOptions()).findings())  # type: ignore[arg-type]


def loud(root: Path) -> list[tuple[str, str, int]]:
    return [(f.kind.id, f.file, f.offset) for f in found_in(root) if f.level != "note"]


def put(path: Path, offset: int, value: int) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(">q", value))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return golden.unpack("5.5.0-clean", tmp_path)


def log_end(root: Path) -> int:
    return int(golden.truth(root.name)[-1]["phy"])


@pytest.mark.parametrize("offset", [CONFIRM, LOGICS])
def test_offsets_of_the_checkpoint(offset: int, root: Path) -> None:
    end = log_end(root)
    for value, expected in ((end, []), (end + 1, [offset]), (-1, [offset]), (0, [])):
        put(root / "checkpoint", offset, value)
        assert loud(root) == [("checkpoint.offset", "checkpoint", at) for at in expected]


@pytest.mark.parametrize("offset", [0, 8, 16], ids=["physic", "logics", "index"])
def test_a_time_before_1970_in_the_checkpoint(offset: int, root: Path) -> None:
    put(root / "checkpoint", offset, -5)
    assert loud(root) == [("checkpoint.zero", "checkpoint", 0)]


def test_a_slave_knows_more_of_its_master(root: Path) -> None:
    put(root / "checkpoint", FLUSHED, 1 << 40)
    assert loud(root) == []
    assert [f.offset for f in found_in(root) if f.kind.id == "checkpoint.offset"] == [FLUSHED]
    put(root / "checkpoint", FLUSHED, -3)
    assert loud(root) == [("checkpoint.offset", "checkpoint", FLUSHED)]


# --- timer ------------------------------------------------------------------------------------------

CHECK = "config/timercheck"


@pytest.mark.parametrize(("offset", "value"), [(0, 1 << 60), (0, -1), (8, 1 << 40), (8, -52), (16, 99_999), (16, -1)])
def test_progress_of_the_timer(offset: int, value: int, root: Path) -> None:
    put(root / CHECK, offset, value)
    assert loud(root) == [("timer.check", CHECK, offset)]


def timer_log(root: Path) -> Path:
    return min((root / "timerlog").iterdir())


@pytest.mark.parametrize("value", [1 << 40, 17])
def test_a_reference_that_leads_nowhere(value: int, root: Path) -> None:
    """Behind the end of the log, or where the message does not lie: a cut of the log leaves such (#10668)."""
    put(timer_log(root), 52 + 28, value)
    (found,) = [f for f in found_in(root) if f.level != "note"]
    assert (found.kind.id, found.offset, found.physical_offset) == ("timer.log", 52, value)
    assert "1 unit of the timer log" in found.message


@pytest.mark.parametrize(("time", "behind", "count", "wrong"), [
    (1, 0, 1, True), (1, 52, 1, True), (1, -52, 1, False), (0, 0, 1, False), (1, 0, 0, False),
])  # fmt: skip
def test_a_slot_of_the_wheel(time: int, behind: int, count: int, wrong: bool, root: Path) -> None:
    """The end of the timer log is no place of a unit; a slot without a time or without messages is empty."""
    data = timer_log(root).read_bytes()
    end = next(at for at in range(0, len(data), 52) if not any(data[at : at + 52]))
    slot = struct.pack(">qqqii", time, 0, end + behind, count, 0)
    with (root / "timerwheel").open("r+b") as file:
        file.seek(5 * 32)
        file.write(slot)
    assert loud(root) == ([("timer.log", "timerwheel", 5 * 32)] if wrong else [])


def test_progress_after_a_kill(tmp_path: Path) -> None:
    """The file may be ahead of what reached the disk; a negative number is damage all the same."""
    root = golden.unpack("5.5.0-crash", tmp_path)
    put(root / CHECK, 8, 1 << 40)
    assert loud(root) == []
    put(root / CHECK, 8, -1)
    assert loud(root) == [("timer.check", CHECK, 8)]


def test_references_to_expired_messages_are_normal(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").unlink()
    assert [f for f in found_in(root) if f.kind.id == "timer.log"] == []


# --- configuration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7"])
@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_a_copy_that_no_broker_can_load(name: str, content: bytes, tmp_path: Path) -> None:
    """From 5.1.0 on the file is written in place, and the copy counts."""
    root = golden.unpack(name, tmp_path)
    (root / "config" / "topics.json.bak").write_bytes(content)
    found = [f for f in found_in(root) if f.kind.id == "config.backup"]
    assert [(f.file, f.level) for f in found] == [
        ("config/topics.json.bak", "note" if name.startswith("4") else "warning")
    ]
    (root / "config" / "topics.json.bak").write_bytes(b"null")
    assert [f for f in found_in(root) if f.kind.id == "config.backup"] == []


@pytest.mark.parametrize(("offset", "wrong"), [(-1, True), (0, False), (1, False)])
def test_a_negative_consumer_offset(offset: int, wrong: bool, root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(f'{{"offsetTable":{{"LabLog@g":{{0:{offset}}}}}}}')
    expected = [("config.consumer-offset", "config/consumerOffset.json", 0)] if wrong else []
    assert loud(root) == expected


# --- records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("as_release", "written_by", "level"),
    [
        (None, Release(4, 9, 8), "warning"),
        (None, Release(5, 1, 0), "note"),
        (Release(5, 0, 0), Release(5, 5, 0), "warning"),
        (Release(5, 1, 0), Release(4, 9, 8), "note"),
        (None, None, "note"),
    ],
)
def test_v2_records(as_release: Release | None, written_by: Release | None, level: str) -> None:
    join = LogJoin()
    join.add(LogPartial(v2=("log", 7, 9), v2_count=3))
    (found,) = join.findings(as_release, written_by)
    assert (found.kind.id, found.level, found.offset, found.physical_offset) == ("log.v2-record", level, 7, 9)


@pytest.mark.parametrize(
    ("release", "level"), [(Release(5, 3, 1), "warning"), (FIRST_WITH_EMPTY_BODIES, "note"), (None, "note")]
)
def test_messages_without_a_body(release: Release | None, level: str) -> None:
    join = LogJoin()
    join.add(LogPartial(empty=("log", 7, 9), empty_count=2))
    (found,) = join.findings(release)
    assert (found.kind.id, found.level, found.offset, found.physical_offset) == ("log.empty-body", level, 7, 9)


LIGHT = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"


@pytest.mark.parametrize("odd", [bytes(20), b"\x05" + b"k" * 19, b"remains of a body ..", b"ab\x01\x00" + b"x" * 16])
def test_bytes_reserved_for_a_crc(odd: bytes) -> None:
    """Brokers from 5.2.0 to 5.3.0 leave them in records of light queues: no damage, and one sentence (#8350)."""
    (found,) = properties_findings(LIGHT + odd)
    assert (found.kind.id, found.level, found.size) == ("log.property-crc", "warning", 20)
    assert found.offset == len(record(b"b", 0)) + len(LIGHT)
    assert (found.physical_offset, found.topic) == (0, "T")
    assert "#8350" in found.message


@pytest.mark.parametrize("pair", [b"", b"0123456789\x01012345678", b"KEYS\x01" + b"k" * 14 + b"\x02", b"A\x01b\x02"])
def test_pairs_are_no_reserved_bytes(pair: bytes) -> None:
    assert properties_findings(LIGHT + pair) == []
    assert [f.kind.id for f in properties_findings(b"A\x01b\x02" + bytes(20))] == ["log.properties-damaged"]


def properties_findings(properties: bytes) -> list[Finding]:
    raw = record(b"b", 0)
    size = len(raw) + len(properties)
    data = size.to_bytes(4, "big") + raw[4:-2] + len(properties).to_bytes(2, "big") + properties
    (block,) = scan(BytesSource(data), Extent("log", 0))
    return LogChecker().block(LogBlock(block))
