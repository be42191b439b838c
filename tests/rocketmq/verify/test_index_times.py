"""Times of index files against the log, and a count that the entries contradict: one sentence where one field is wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.findings import Finding
from rmqctl.rocketmq.index import IndexFile, index_files
from rmqctl.rocketmq.store.geometry import IndexGeometry, index_geometry
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify import index
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from rmqctl.rocketmq.verify.index_file import FileTimes, WrongRun, compare_times
from tests.rocketmq.log_files import log_of, record

BEGIN, END, COUNT = 0, 8, 36
STORES = ["4.5.2-clean", "4.9.8-crash", "5.5.0-clean"]


def loud(root: Path, **options: int) -> list[Finding]:
    """Errors and warnings."""
    found = Verification(open_store_at(str(root)), VerifyOptions(**options)).findings()  # type: ignore[arg-type]
    return [f for f in found if f.level != "note"]


@pytest.fixture(params=STORES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden.unpack(request.param, tmp_path)


@pytest.fixture
def geometry(root: Path) -> IndexGeometry:
    return index_geometry(open_store_at(str(root)))  # type: ignore[arg-type]


def index_of(root: Path) -> Path:
    return min((root / "index").iterdir())


def put(path: Path, offset: int, layout: str, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(layout, value))


def get(path: Path, offset: int, layout: str) -> int:
    return int(struct.unpack_from(layout, path.read_bytes(), offset)[0])


@pytest.mark.parametrize(("offset", "value"), [(BEGIN, 5), (END, 1 << 62), (BEGIN, 0), (END, 7)])
def test_a_time_of_the_header(offset: int, value: int, root: Path) -> None:
    put(index_of(root), offset, ">q", value)
    found = loud(root)
    assert [f.kind.id for f in found] == ["index.header"]
    assert str(value) in found[0].message.replace(",", "")
    assert "was stored at" in found[0].message


def test_a_begin_that_is_ms_off(root: Path) -> None:
    """All entries round to the same second, and only the log knows."""
    put(index_of(root), BEGIN, ">q", get(index_of(root), BEGIN, ">q") - 1)
    assert [f.kind.id for f in loud(root)] == ["index.header"]


@pytest.mark.parametrize("number", [1, 2, 17])
def test_a_negative_difference(number: int, root: Path, geometry: IndexGeometry) -> None:
    at = geometry.entry_at(number)
    put(index_of(root), at + 12, ">i", -1)
    assert [(f.kind.id, f.offset, f.size) for f in loud(root)] == [("index.entry-time", at, 20)]


def test_all_differences_are_zero(root: Path, geometry: IndexGeometry) -> None:
    """One sentence a run, and not one an entry."""
    path = index_of(root)
    data = bytearray(path.read_bytes())
    count = get(path, COUNT, ">i") - 1
    changed = 0
    for number in range(1, count + 1):
        at = geometry.entry_at(number) + 12
        changed += data[at : at + 4] != bytes(4)
        data[at : at + 4] = bytes(4)
    path.write_bytes(data)
    found = loud(root)
    assert {f.kind.id for f in found} == ({"index.entry-time"} if changed else set())
    assert sum(f.size for f in found) == 20 * changed
    assert len(found) <= 1
    assert loud(root, split_size=1 << 15) == found


@pytest.mark.parametrize("value", [0, 1, 9])
def test_a_count_that_the_entries_contradict(value: int, root: Path) -> None:
    put(index_of(root), COUNT, ">i", value)
    assert [f.kind.id for f in loud(root)] == ["index.header"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_header_one_entry_behind(is_killed: bool, rmqctl: Callable[..., Result], tmp_path: Path) -> None:
    """Only a kill leaves the newest file so. The entry is of the record before it: no other field of the header tells."""
    root = tmp_path / "s"
    keys = ("--key", "a{n}", "--key", "b{n}")
    made = rmqctl("produce", root, "--small", "--as-release", "4.9.8", "--topic", "T", "--count", 30, *keys)
    assert made.exit_code == 0
    if is_killed:
        (root / "abort").touch()
    put(index_of(root), COUNT, ">i", get(index_of(root), COUNT, ">i") - 1)
    assert [f.kind.id for f in loud(root, processes=1)] == ([] if is_killed else ["index.header"])


def test_a_damaged_record_is_not_the_index_s_fault(root: Path) -> None:
    """Its store time is damaged; the header and the entries still have the one it had."""
    store = open_store_at(str(root))
    files = index_files(store, index_geometry(store))  # type: ignore[arg-type]
    first = files[0].header["begin_phy_offset"]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(first + 56)
        log.write(bytes(8))
    assert {f.kind.id for f in loud(root)} == {"log.store-time"}


# --- the comparison alone -------------------------------------------------------------------------


def made(begin: int) -> IndexFile:
    header = {"begin_timestamp": begin}
    return IndexFile(None, "index/1", 0, IndexGeometry(4, 100), header)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begin", "differences", "stored", "wrong"),
    [
        (1000, [0, 0, 1], [1000, 1999, 2000], []),
        (1000, [0, 1, 1], [1000, 1999, 2000], [1]),
        (1000, [7, 0, 1], [1000, 1999, 2000], []),
        (1000, [-7, 0, 1], [1000, 1999, 2000], [0]),
        (5000, [0, 0, 0], [5000, 1999, 2000], []),
        (0, [0, 0, 0], [1000, 1999, 9000], []),
        (0, [0, 0, 9], [1000, 1999, 9000], [2]),
        (1000, [0, (1 << 31) - 1, 0], [1000, 1 << 60, 1000], []),
    ],
)
def test_seconds_as_a_broker_counts_them(
    begin: int, differences: list[int], stored: list[int], wrong: list[int]
) -> None:
    """Whole seconds after the begin, none before it; the first entry of a file may count from the file in front."""
    file = made(begin)
    offsets = np.array([file.geometry.entry_at(n) for n in (1, 2, 3)])
    columns: Callable[[list[int]], np.ndarray] = lambda values: np.array(values, np.int64)  # type: ignore[type-arg]  # noqa: E731
    times = compare_times(file, offsets, columns(differences), columns([10, 20, 30]), columns(stored))
    assert (times.compared, times.wrong) == (3, len(wrong))
    assert [run.offset for run in times.runs] == offsets[wrong].tolist()


def test_runs_of_two_splits_that_meet() -> None:
    times = FileTimes(5, 2, [WrongRun(100, 2, 7, 8, 0, 1)])
    times.add(FileTimes(5, 3, [WrongRun(140, 1, 9, 9, 0, 2), WrongRun(180, 2, 11, 12, 0, 2)], {4}))
    assert times == FileTimes(10, 5, [WrongRun(100, 3, 7, 9, 0, 1), WrongRun(180, 2, 11, 12, 0, 2)], {4})


@pytest.mark.parametrize(("physical", "named"), [(99, True), (100, False), (199, False), (200, True)])
def test_entries_into_a_damaged_range_are_its_own(physical: int, named: bool, root: Path) -> None:
    context = replace(LogContext.of(open_store_at(str(root))), damaged=((100, 200),))  # type: ignore[arg-type]
    found = list(index._strangers([index.Stranger("index/1", 60, physical)], context))
    assert [(f.kind.id, f.offset, f.size, f.physical_offset) for f in found] == (
        [("index.entry-mismatch", 60, 20, physical)] if named else []
    )


def test_a_file_made_for_messages_without_a_key_is_sound(tmp_path: Path) -> None:
    """Brokers make it at the first message, and write into it at the first key."""
    messages = [record(queue_offset=number, properties=b"") for number in range(3)]
    log = log_of(messages)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log.ljust(4096, b"\0"))
    units = b"".join(struct.pack(">qiq", at * len(log) // 3, len(log) // 3, 0) for at in range(3))
    queue = tmp_path / "consumequeue" / "TopicTest" / "1"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(units.ljust(400, b"\0"))
    (tmp_path / "index").mkdir()
    file = tmp_path / "index" / "20231114221320124"
    file.write_bytes(struct.pack(">4q2i", 0, 0, 0, 0, 0, 1).ljust(40 + 4 * 100 + 20 * 100, b"\0"))
    assert {finding.kind.id for finding in loud(tmp_path)} == {"checkpoint.missing"}
    put(file, COUNT, ">i", 2)
    assert "index.chain" in {finding.kind.id for finding in loud(tmp_path)}
