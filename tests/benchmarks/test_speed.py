"""Speed of reading and checking, as ratios in one run: `make bench` prints the table.

Sizes can be set with RMQCTL_BENCH_MIB (default 1024, the log in MiB) and RMQCTL_BENCH_QUEUES (200000).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path

import orjson
import pytest

from commands import cli
from fixtures import bulk
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions
from rmqctl.rocketmq.verify.files import FileCheck
from rmqctl.rocketmq.verify.log import LogChecker
from rmqctl.rocketmq.verify.queues import QueuePartial, finish
from tests.benchmarks.ratio import Result, compare, size
from tests.benchmarks.references import body_places, open_stat_read_close, read_and_crc, read_once

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 4) << 20
QUEUES = size("QUEUES", 200_000, 200)
RESULTS: list[Result] = []


@pytest.fixture(scope="module", params=[1024, 110], ids=["1 KiB messages", "200-byte messages"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one large log file with queues and an index."""
    root = tmp_path_factory.mktemp("bench") / "store"
    bulk.make(root, bulk.Bulk(log_bytes=SIZE, file_size=SIZE, body=request.param))
    return root


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was measured at the end."""
    yield
    sys.stdout.write("\n" + "\n".join(result.line() for result in RESULTS) + "\n")


def note(*results: Result) -> None:
    RESULTS.extend(results)


def log_check(root: Path, *, bodies: bool) -> Callable[[], object]:
    """The checks of the commit log alone, on one core."""

    def run() -> None:
        checker = LogChecker(bodies=bodies)
        for found in CommitLog(open_store_at(str(root)).log_files).walk():
            assert checker.block(found) == []

    return run


def verify(root: Path, options: VerifyOptions) -> Callable[[], object]:
    """A whole verification."""

    def run() -> None:
        verification = Verification(open_store_at(str(root)), options)
        assert [f.row() for f in verification.findings() if f.level != "note"] == []

    return run


def test_verify(store: Path, request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.id
    path = next((store / "commitlog").iterdir())
    places = body_places(path)
    large = kind.startswith("1 KiB")

    def crc() -> object:
        return read_and_crc(path, places)

    full = verify(store, VerifyOptions(Level.FULL, cross=True))
    alone = verify(store, VerifyOptions(Level.FULL, cross=False))
    note(
        compare(
            f"{kind}: full, log only / read and CRC of bodies",
            log_check(store, bodies=True),
            crc,
            0.7 if large else 0.55,
        ),
        compare(
            f"{kind}: structure, log only / read and CRC of bodies",
            log_check(store, bodies=False),
            crc,
            1.3 if large else 1.0,
        ),
        compare(f"{kind}: structure, log only / reading once", log_check(store, bodies=False), lambda: read_once(path)),
        compare(f"{kind}: verify with queues and index / without", full, alone, 0.75, rounds=3),
        compare(f"{kind}: verify, two processes / one", verify(store, VerifyOptions(processes=2)), full, 1.7, rounds=2),
    )


def dump_to_nowhere(*args: str) -> Callable[[], object]:
    """`rmqctl dump ... > /dev/null` in this process: the work without the start of Python."""

    def run() -> None:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
            cli.main(["dump", *args], prog_name="rmqctl")

    return run


def test_dump(store: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kind = request.node.callspec.id
    lines, count = tmp_path / "rows.jsonl", str(size("ROWS", 200_000, 200))
    with lines.open("wb") as out:
        subprocess.run(
            [sys.executable, "-m", "rmqctl", "dump", str(store), "-o", "jsonl", "-n", count], stdout=out, check=True
        )
    rows = [orjson.loads(line) for line in lines.read_bytes().splitlines()]

    def dumps() -> None:
        sink = io.BytesIO()
        for row in rows:
            sink.write(orjson.dumps(row))

    some = dump_to_nowhere(str(store), "-o", "jsonl", "-n", count)
    wanted = ("--topic", "Topic003", "--key", "order0000000003", "--after", str(bulk.BORN + 1))
    scan = log_check(store, bodies=False)
    note(
        compare(f"{kind}: dump of {count} rows / orjson.dumps of the same rows", some, dumps, 1 / 3),
        compare(
            f"{kind}: dump of few / structure scan", dump_to_nowhere(str(store), "-o", "jsonl", *wanted), scan, 1 / 1.5
        ),
    )


def test_start(tmp_path: Path) -> None:
    def run(*args: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True)

    note(
        compare(
            "rmqctl --help / import click", run("-m", "rmqctl", "--help"), run("-c", "import click"), 1 / 3, rounds=7
        )
    )
    store = str(tmp_path / "store")
    run("-m", "rmqctl", "produce", store, "--topic", "T", "--count", "2000")()
    version = run("-m", "rmqctl", "--version")
    libraries = run("-c", "import click, construct, numpy")
    note(compare("import click, construct, numpy / --version", libraries, version, rounds=7))
    for verb in ("recover", "verify"):
        name = f"{verb} of 2,000 messages / --version"
        note(compare(name, run("-m", "rmqctl", verb, store), version, 1 / 2.5, rounds=7))


def test_many_small_queues(tmp_path: Path) -> None:
    """Queue files checked in bulk, against opening and reading each once."""
    root = tmp_path / "store"
    paths = []
    for topic in range(max(QUEUES // 1000, 1)):
        for queue in range(min(QUEUES, 1000)):
            directory = root / "consumequeue" / f"T{topic:04d}" / str(queue)
            directory.mkdir(parents=True)
            path = directory / f"{0:020d}"
            path.write_bytes(bytes(200))
            paths.append(str(path))
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(65536))

    def check() -> None:
        store = open_store_at(str(root))
        geometry, context = geometry_of(store), LogContext.of(store)
        files = FileCheck(store, geometry)
        found = list(files.findings())
        found += finish(store, geometry, files.queues, QueuePartial(), context)
        assert found == []

    note(
        compare(
            f"{len(paths):,} queue files: names, lengths, units / open, fstat, pread, close",
            check,
            lambda: open_stat_read_close(paths),
            0.25,
            rounds=2,
        )
    )
