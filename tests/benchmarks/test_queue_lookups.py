"""Start to end of `query-time` and `query-offset` on a queue of 100 files, against the start of `rmqctl --version`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import bulk
from tests.benchmarks.ratio import compare, judge, size

pytestmark = pytest.mark.slow

FILES, UNITS = 100, size("UNITS", 2000, 20)
WANTED = 1 / 3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one queue of about 100 files."""
    root = tmp_path_factory.mktemp("lookups") / "store"
    length = bulk.record_size(bulk.Bulk(body=200)) * FILES * UNITS
    bulk.make(root, bulk.Bulk(log_bytes=length, file_size=length, body=200, topics=1, queues=1, queue_file_units=UNITS))
    assert len(list((root / "consumequeue" / "Topic000" / "0").iterdir())) >= FILES - 1
    return root


def run(*args: object) -> Callable[[], object]:
    """One run of the command line, with compiled modules as they are after an installation."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "rmqctl", *map(str, args)]
    return lambda: subprocess.run(command, check=True, capture_output=True, env=environment)


@pytest.mark.parametrize("output", ["jsonl", "table"])
@pytest.mark.parametrize(
    "question",
    [
        ("query-time", bulk.BORN + FILES * UNITS // 2),
        ("query-time", bulk.BORN + FILES * UNITS // 2, "--as-release", "5.5.0"),
        ("query-offset", FILES * UNITS // 2),
        ("query-offset", FILES * UNITS // 2, "-n", 32, "--as-release", "4.9.8"),
    ],
    ids=lambda question: " ".join(map(str, question)),
)
def test_in_three_times_the_start(question: tuple[object, ...], output: str, store: Path) -> None:
    command, value, *options = question
    lookup = run(command, store, "Topic000/0", value, *options, "-o", output)
    result = compare(f"{command} -o {output} / --version", lookup, run("--version"), WANTED, rounds=5)
    sys.stdout.write(result.line() + "\n")
    judge(result)
