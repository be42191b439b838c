"""Following a log: every record once, whole, in order, across files, whatever the moment of the look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.rocketmq.message import encode_record
from rmqctl.files.tree import LocalTree
from rmqctl.rocketmq.dump.dump import PATIENCE, Dump, Tail
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.locate import open_store
from tests.rocketmq.log_files import ended, record
from tests.rocketmq.rows_dledger_helpers import entries

SIZE = 2048
Step = Callable[[], None]


class Broker:
    """Appends to the files of a log as a broker does: preallocated files, blank at the end of each."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "commitlog"
        self.directory.mkdir()
        self.base = self.end = 0
        self.open_file()

    def open_file(self) -> None:
        with self.path.open("wb") as file:
            file.truncate(SIZE)

    @property
    def path(self) -> Path:
        return self.directory / f"{self.base:020d}"

    def write(self, at: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(at - self.base)
            file.write(data)

    def next_record(self, body: bytes) -> bytes:
        """The bytes of a record at the end of the log, in the next file if this one has no room."""
        data = encode_record({**record(body=body), "physical_offset": self.end})
        if self.end - self.base + len(data) + 8 <= SIZE:
            return data
        self.write(self.end, ended(b"", SIZE - (self.end - self.base))[:8])
        self.base = self.end = self.base + SIZE
        self.open_file()
        return self.next_record(body)

    def append(self, *bodies: bytes) -> None:
        for body in bodies:
            data = self.next_record(body)
            self.write(self.end, data)
            self.end += len(data)


def tail(root: Path, steps: list[Step], patience: int = PATIENCE, **wanted: Any) -> list[str]:
    """Bodies (and kinds of other rows) in the order in which they came; after each look without news a step is made."""
    store = open_store(LocalTree(root))
    dump = Dump.of_store(store, Request(Filter(**wanted)))
    assert dump.log is not None
    left = iter(steps)
    done = False

    def wait() -> None:
        nonlocal done
        step = next(left, None)
        done = step is None
        if step is not None:
            step()

    found = []
    dump.log.show = type(dump.log.show)(body=True)
    for row in Tail(dump.log, wait, patience).rows():
        if row is not None:
            found.append(str(row.get("body", row["kind"])))
        if done:
            break
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


NOTHING: list[Step] = [lambda: None] * 2


def test_what_is_there_and_what_comes_across_files(broker: Broker, tmp_path: Path) -> None:
    broker.append(b"a", b"b")
    steps = [
        *NOTHING,
        lambda: broker.append(b"c" * 700, b"d" * 700),
        *NOTHING,
        lambda: broker.append(b"e" * 700),
        *NOTHING,
    ]
    assert tail(tmp_path, steps) == ["a", "b", "c" * 700, "d" * 700, "blank", "e" * 700]


def test_many_files_between_two_looks(broker: Broker, tmp_path: Path) -> None:
    bodies = [b"%03d" % n * 200 for n in range(12)]
    found = tail(tmp_path, [lambda: broker.append(*bodies), *NOTHING])
    assert [f for f in found if f != "blank"] == [b.decode() for b in bodies]
    assert found.count("blank") == broker.base // SIZE


@pytest.mark.parametrize("piece", [1, 7, 40])
def test_a_record_that_arrives_in_pieces_is_shown_once_and_whole(broker: Broker, tmp_path: Path, piece: int) -> None:
    broker.append(b"a")
    data, at = broker.next_record(b"torn"), broker.end
    cuts = range(0, len(data), piece)
    steps: list[Step] = []
    for cut in cuts:
        steps += [lambda cut=cut: broker.write(at + cut, data[cut : cut + piece])]  # type: ignore[misc]
    assert tail(tmp_path, [*steps, *NOTHING]) == ["a", "torn"]


def test_pieces_in_any_order(broker: Broker, tmp_path: Path) -> None:
    broker.append(b"a")
    data, at = broker.next_record(b"torn" * 20), broker.end
    middle = len(data) // 2
    steps: list[Step] = [
        lambda: broker.write(at + middle, data[middle:]),
        lambda: None,
        lambda: broker.write(at, data[:middle]),
    ]
    assert tail(tmp_path, [*steps, *NOTHING]) == ["a", "torn" * 20]


def test_a_record_whose_properties_have_not_arrived_is_held_back(broker: Broker, tmp_path: Path) -> None:
    data = broker.next_record(b"late")
    steps: list[Step] = [
        lambda: broker.write(0, data[:-10] + bytes(10)),
        *NOTHING * 3,
        lambda: broker.write(0, data),
        *NOTHING,
    ]
    assert tail(tmp_path, steps) == ["late"]


def test_a_damaged_last_record_is_shown_in_the_end(broker: Broker, tmp_path: Path) -> None:
    data = bytearray(broker.next_record(b"good"))
    data[88] ^= 0xFF
    broker.write(0, bytes(data))
    found = tail(tmp_path, NOTHING * 4, patience=3)
    assert len(found) == 2 and found[1] == "finding"


def test_damage_between_records_is_shown_when_records_follow(broker: Broker, tmp_path: Path) -> None:
    broker.append(b"a", b"b")
    start = broker.end
    broker.append(b"c", b"d")
    broker.write(start + 4, b"\xff")
    assert tail(tmp_path, [lambda: broker.append(b"e"), *NOTHING]) == ["a", "b", "finding", "d", "e"]


def test_filters_and_a_start(broker: Broker, tmp_path: Path) -> None:
    broker.append(b"a", b"b")
    start = broker.end
    broker.append(b"c")
    steps: list[Step] = [lambda: broker.append(b"d"), *NOTHING]
    assert tail(tmp_path, steps, from_offset=start) == ["c", "d"]
    assert tail(tmp_path, NOTHING, topics=("Other",)) == []


def test_a_file_that_grows_instead_of_being_made_full(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(b"")
    data = encode_record(record(body=b"a"))

    def grow(part: bytes) -> Step:
        def step() -> None:
            with path.open("ab") as file:
                file.write(part)

        return step

    assert tail(tmp_path, [grow(data[:50]), grow(data[50:]), *NOTHING]) == ["a"]


def test_expired_files_are_passed_over(broker: Broker, tmp_path: Path) -> None:
    broker.append(*[b"%d" % n * 900 for n in range(3)])
    first = tmp_path / "commitlog" / f"{0:020d}"
    steps: list[Step] = [first.unlink, lambda: broker.append(b"new"), *NOTHING]
    assert tail(tmp_path, steps)[-1] == "new"


def test_a_dledger_log(tmp_path: Path) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    path = data / f"{0:020d}"
    three = entries([b"a", None, b"b"])
    path.write_bytes(entries([b"a"]).ljust(SIZE, b"\0"))
    steps: list[Step] = [*NOTHING, lambda: path.write_bytes(three.ljust(SIZE, b"\0")) and None, *NOTHING]
    assert tail(tmp_path, steps) == ["a", "b"]
