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
from rmqctl.parallel import most_processes
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import Level, Verification, VerifyOptions
from rmqctl.rocketmq.verify.files import FileCheck
from rmqctl.rocketmq.verify.log import LogChecker
from rmqctl.rocketmq.verify.queues import QueuePartial, finish
from tests.benchmarks.ratio import ONCE, Result, Runs, compare, size
from tests.benchmarks.references import (
    body_places,
    open_stat_read_close,
    read_and_crc,
    read_and_crc_shared,
    read_once,
)

pytestmark = pytest.mark.slow

SIZE = size("MIB", 1024, 4) << 20
QUEUES = size("QUEUES", 200_000, 200)
LIBRARIES = """
import gc, os
gc.set_threshold(100_000, 50, 100)
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import click, construct, numpy
os._exit(0)
"""
"""What every command on a log imports, as `rmqctl` starts and ends."""
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
    head = f"{'ours / the other':72} {'ours':>8}    {'other':>8}    other/ours"
    sys.stdout.write("\n" + "\n".join([head, *(result.line() for result in RESULTS)]) + "\n")


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
    """One process and all cores against the limit, and the limit of one process against that of all cores."""
    kind, large = request.node.callspec.id, "1 KiB" in request.node.callspec.id
    path, cores = next((store / "commitlog").iterdir()), max(most_processes(), 2)
    places = body_places(path)
    all_cores = {"processes": cores, "split_size": SIZE // 4 if ONCE else None}
    runs = Runs.of(
        {
            "limit": lambda: read_and_crc(path, places),
            "limit, all": lambda: read_and_crc_shared(path, places, cores),
            "reading": lambda: read_once(path),
            "log": log_check(store, bodies=True),
            "structure": log_check(store, bodies=False),
            "log, all": verify(store, VerifyOptions(cross=False, **all_cores)),
            "structure, all": verify(store, VerifyOptions(Level.STRUCTURE, cross=False, **all_cores)),
            "alone": verify(store, VerifyOptions(cross=False)),
            "verify": verify(store, VerifyOptions()),
            "verify, all": verify(store, VerifyOptions(**all_cores)),
        },
        rounds=5,
    )
    for name, work, reference, wanted in (
        ("full, log only / read and CRC of bodies (the limit)", "log", "limit", 0.7 if large else 0.55),
        ("structure, log only / the limit", "structure", "limit", 1.3 if large else 1.0),
        ("structure, log only / reading once", "structure", "reading", None),
        ("verify with queues and index / without", "verify", "alone", 0.75),
        (f"the limit in {cores} processes / in one", "limit, all", "limit", None),
        (f"full, log only, {cores} processes / the limit", "log, all", "limit", 1.3 if large else 1.0),
        (f"full, log only, {cores} processes / the limit in {cores}", "log, all", "limit, all", None),
        (f"structure, log only, {cores} processes / the limit", "structure, all", "limit", 2.2),
        (f"verify, {cores} processes / one", "verify, all", "verify", 1.7),
    ):
        note(runs.result(f"{kind}: {name}", work, reference, wanted))


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
    """Commands on a small store, with compiled modules, as users have them: the first run of each writes them."""
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(*args: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, env=compiled, check=True)

    note(
        compare(
            "rmqctl --help / import click", run("-m", "rmqctl", "--help"), run("-c", "import click"), 1 / 3, rounds=7
        )
    )
    store = str(tmp_path / "store")
    run("-m", "rmqctl", "produce", store, "--topic", "T", "--count", "2000")()
    version = run("-m", "rmqctl", "--version")
    note(compare("import click, construct, numpy / --version", run("-c", LIBRARIES), version, rounds=7))
    for verb, *others in (["recover"], ["verify"], ["topics"], ["dump", "-n", "1"], ["repair"]):
        wanted = 1 / 2.5 if verb in ("recover", "verify") else None
        name = f"{verb} of 2,000 messages / --version"
        note(compare(name, run("-m", "rmqctl", verb, *others, store), version, wanted, rounds=7))


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
