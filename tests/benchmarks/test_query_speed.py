"""Looking a message up, against the start of the program and against the scan of the log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import rmqctl
from fixtures import bulk
from rmqctl.filters import Filters
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.query.log_search import Search, search_log
from rmqctl.rocketmq.query.records import KEYS
from rmqctl.rocketmq.store.geometry import ENTRY, HEADER, IndexGeometry
from rmqctl.rocketmq.store.locate import open_store_at
from tests.benchmarks.ratio import compare, paired, size, timed

LOG = size("MIB", 1024, 4) << 20
ENTRIES = size("KEYS", 20_000_000, 20_000)
MESSAGE = LOG // bulk.record_size(bulk.Bulk()) // 40 * 20 + 3
"""One in the middle of the log, of the topic ``Topic003``."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 1 GiB, and an index file with 20,000,000 entries: all that fit."""
    root = tmp_path_factory.mktemp("bulk") / "store"
    bulk.make(root, bulk.Bulk(log_bytes=LOG, file_size=LOG))
    _fill(next((root / "index").iterdir()))
    return root


def _fill(path: Path) -> None:
    """Entries of other keys behind those that are there, each in front of its chain."""
    shape, chance = IndexGeometry.default(), np.random.default_rng(3)
    data = np.memmap(path, np.uint8, "r+")
    slots = np.ndarray(shape.slots, ">i4", data, HEADER.packer.size)
    entries = np.ndarray(shape.entries, ENTRY.dtype, data, shape.entries_at)
    with open(path, "rb") as file:
        fields = dict(zip(HEADER.names, HEADER.packer.unpack(file.read(HEADER.packer.size)), strict=True))
    first = fields["index_count"]
    hashes = chance.integers(0, 1 << 31, ENTRIES - first)
    order = np.argsort(hashes % shape.slots, kind="stable")
    number, slot = first + order, (hashes % shape.slots)[order]
    starts = np.r_[True, slot[1:] != slot[:-1]]
    previous = np.where(starts, slots[slot], np.r_[0, number[:-1]])
    entries["key_hash"][first:ENTRIES], entries["physical_offset"][first:ENTRIES] = hashes, fields["end_phy_offset"]
    entries["previous"][number] = previous
    ends = np.r_[starts[1:], True]
    slots[slot[ends]] = number[ends]
    fields["index_count"] = ENTRIES
    data[: HEADER.packer.size] = np.frombuffer(HEADER.packer.pack(*fields.values()), np.uint8)
    data.flush()


def run(*args: str) -> Callable[[], object]:
    """The program in a process of its own."""
    return lambda: subprocess.run([sys.executable, "-m", "rmqctl", *args], stdout=subprocess.DEVNULL, check=True)


def test_lookups(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("query-key", str(store), "Topic003", f"order{MESSAGE:010d}")
    version = run("--version")
    results = [
        compare(f"query-key of {ENTRIES:,} entries / --version", run(*words, "-o", "jsonl"), version, 1 / 3, rounds=9),
        compare("the same as a table / --version", run(*words), version, 1 / 3, rounds=9),
    ]
    with capsys.disabled():
        print("\n" + "\n".join(result.line() for result in results))


def test_scan(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = open_store_at(str(store))
    search = Search(Filter(("Topic003",), key=f"order{MESSAGE:010d}"), (KEYS,))

    def structure() -> int:
        return sum(len(part.block) for part in CommitLog(opened.log_files).walk())

    def scan() -> int:
        return sum(len(part.records) for part in search_log(opened, search))

    assert scan() == 1
    result = compare(f"query-key --scan of {LOG >> 20} MiB / structure scan", scan, structure, 0.8, rounds=5)
    with capsys.disabled():
        print("\n" + result.line())


def test_reads_queue_after_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages of 4 KiB in a log that lies in memory and is larger than a window: each read lies far from the one before."""
    root, queues = tmp_path / "store", list(product(range(4), range(4)))
    bulk.make(root, bulk.Bulk(log_bytes=LOG // 4, file_size=LOG // 4, body=4096, topics=4, queues=4))

    def read() -> int:
        opened = rmqctl.open(str(root))
        answers = (opened.query_offset(f"Topic{topic:03}", queue, 0, Filters(limit=LOG)) for topic, queue in queues)
        return sum(row["kind"] == "message" for answer in answers for row in answer)

    count = read()
    assert count > LOG // 4 // 4400
    name = f"query-offset of all {count:,} messages of 4 KiB / 50,000 a second"
    result = paired(name, lambda: timed(read), lambda: count / 50e3, 1)
    with capsys.disabled():
        print("\n" + result.line())
