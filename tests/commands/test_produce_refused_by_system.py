"""`rmqctl produce` where the system says no: full or limited files, folders of others, a store in use."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine

Rmqctl = Callable[..., Result]
NOBODY = 65534


def limited(size: int, *args: object) -> subprocess.CompletedProcess[str]:
    """Run with a limit on the length of files."""
    command = [sys.executable, "-c", "from commands import main; main()", *map(str, args)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)


@pytest.mark.parametrize("size", [100, 3000, 20_000], ids=["checkpoint", "index", "log"])
def test_files_may_not_grow(size: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = tmp_path / "s"
    args = ("produce", store, "--topic", "T", "--count", "300", "--key", "k{n}", "--small")
    failed = limited(size, *args)
    assert failed.returncode == 10, failed.stderr
    assert "File too large" in failed.stderr
    made = rmqctl(*args)
    assert made.exit_code == 0, made.output
    assert rmqctl("verify", store).exit_code == 0
    assert rmqctl("dump", store, "-o", "jsonl").stdout.count('"kind":"message"') == 300


@pytest.mark.parametrize(("release", "left"), [("5.4.0", []), ("5.5.0", ["index.coverage"])])
def test_a_store_that_is_there_keeps_what_it_has(release: str, left: list[str], rmqctl: Rmqctl, tmp_path: Path) -> None:
    """All messages. Of the index the recovery of 5.5.0, which deletes it after a kill, makes only the end again."""
    store = tmp_path / "s"
    args = ("produce", store, "--topic", "T", "--count", "300", "--key", "k{n}", "--small", "--as-release", release)
    assert rmqctl(*args).exit_code == 0
    failed = limited(5000, *args)
    assert failed.returncode == 10, failed.stderr
    assert rmqctl(*args).exit_code == 0
    found = json.loads(rmqctl("verify", store, "--no-notes", "-o", "json").stdout)["findings"]
    assert [finding["id"] for finding in found] == left
    queues = json.loads(rmqctl("topics", store, "-o", "json").stdout)
    assert sum(queue["messages"] for queue in queues) >= 600


def test_a_store_in_use(rmqctl: Rmqctl, tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path / "s", StoreConfig.small()):
        for more in (("--topic", "T"), ("--deliver-due",), ("--damage", "body-flip")):
            made = rmqctl("produce", tmp_path / "s", *more)
            assert made.exit_code == 12, made.output
    assert rmqctl("verify", tmp_path / "s").exit_code == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_of_somebody_else(rmqctl: Rmqctl, open_folder: Path) -> None:
    store = open_folder / "s"
    assert rmqctl("produce", store, "--topic", "T", "--small", "--damage", "checkpoint-lost").exit_code == 0
    assert rmqctl("produce", store, "--topic", "T", "--small").exit_code == 0
    os.seteuid(NOBODY)
    try:
        for path, *more in ((store, "--topic", "T"), (store, "--deliver-due"), (open_folder / "new", "--topic", "T")):
            made = rmqctl("produce", path, *more)
            assert made.exit_code == 10, made.output
            assert "Permission denied" in made.stderr
    finally:
        os.seteuid(0)
    assert rmqctl("verify", store).exit_code == 0
    assert not (open_folder / "new").exists() or not any((open_folder / "new").iterdir())
