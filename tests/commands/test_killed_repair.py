"""The command `repair --apply`, killed at random moments, then gone on with or taken back as it says: nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import damage, golden
from rmqctl.repair.journal_directory import PENDING, journals_in
from rmqctl.repair.journal_directory import state_of as journal_state
from tests.repair.stores import state_of

BASE = "5.5.0-clean"
VARIANTS = (
    "clean/totalsize-flip-mid",
    "clean/cq-one-queue-deleted",
    "clean/delete-mid-file",
    "clean/index-header-garbage",
)
RUNS = int(os.environ.get("RMQCTL_KILLS", "100"))
State = dict[str, object]


def run(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rmqctl", *map(str, words), "--yes", "-q"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(*words: object) -> tuple[int, str]:
    with run(*words) as process:
        told = process.communicate(timeout=300)[1]
        return process.returncode, told


class Shop:
    """A store with all of the damage at once, and room for its journals, here or on another disk."""

    def __init__(self, home: Path, elsewhere: Path | None) -> None:
        self.home, self.journals = home / "now", elsewhere
        self.root = self.home / BASE
        self.home.mkdir()
        golden.unpack(BASE, self.home)
        for name in VARIANTS:
            damage.apply(golden.recovery_oracle("5.5.0")["variants"][name]["recipe"], self.root)
        self.apply = ["repair", self.root, "--apply", *(["--journal", elsewhere] if elsewhere else [])]
        self.before = state_of(self.root)
        self.saved = home / "saved"
        shutil.copytree(self.home, self.saved, symlinks=True)
        begin = time.monotonic()
        assert finish(*self.apply)[0] in (0, 1)
        self.seconds = time.monotonic() - begin
        self.after = contents(state_of(self.root))
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self.saved, self.home, symlinks=True)
        if self.journals is not None:
            shutil.rmtree(self.journals, ignore_errors=True)

    @property
    def place(self) -> Path:
        """Where the journals lie."""
        return self.journals or self.root.with_name(f"{self.root.name}.rmqctl-journal")

    @property
    def is_broken_off(self) -> bool:
        """Whether a journal is to be finished: its state says so a moment longer than the link in the store."""
        return any(journal_state(path) in PENDING for path in journals_in(self.place))

    def killed(self, draw: random.Random, *words: object) -> bool:
        """Whether a command was killed: at any moment, or soon after it begins to write the journal, or the store."""
        with run(*words) as process:
            how = draw.random()
            if how < 0.2 or words[0] == "undo":
                time.sleep(draw.uniform(0, self.seconds / (1 + (words[0] == "undo"))))
            else:
                begun = self.root / "rmqctl.pending" if how < 0.7 else self.place
                while process.poll() is None and not os.path.lexists(begun):
                    time.sleep(0.0005)
                time.sleep(draw.uniform(0, 0.06))
            process.kill()
            process.communicate()
            return process.returncode == -signal.SIGKILL


def contents(state: State) -> State:
    """The same without times."""
    return {name: seen[:2] if isinstance(seen, tuple) else None for name, seen in state.items()}


@pytest.fixture(params=["beside the store", "on another disk"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "beside the store":
        yield Shop(tmp_path, None)
        return
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or os.stat(memory).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=memory) as other:
        yield Shop(tmp_path, Path(other) / "journals")


def kill_once(shop: Shop, draw: random.Random) -> str:
    """Apply and be killed; go on until nothing is pending, killed on the way too; then take it back. What it was."""
    shop.restore()
    shop.killed(draw, *shop.apply)
    if contents(state_of(shop.root)) == contents(shop.before) and not (shop.root / "rmqctl.pending").is_symlink():
        return "nothing was written"
    outcome = "done before the kill"
    if (shop.root / "rmqctl.pending").is_symlink():
        code, told = finish(*shop.apply)
        assert code == 13, told
        assert "rmqctl undo" in told
        resumes = draw.random() < 0.5
        words = ["--resume"] if resumes else []
        shop.killed(draw, "undo", shop.root, *words)
        if shop.is_broken_off:
            code, told = finish("undo", shop.place, *words)
            assert code == 0, told
        outcome = "resumed" if resumes else "taken back"
    assert not (shop.root / "rmqctl.pending").is_symlink()
    found = state_of(shop.root)
    if outcome != "taken back" and contents(found) != contents(shop.before):
        assert contents(found) == shop.after
        code, told = finish("undo", shop.place)  # a finished run on another disk is known by its journal only
        assert code == 0, told
    assert state_of(shop.root) == shop.before
    return outcome


@pytest.mark.parametrize("shop", ["beside the store"], indirect=True)
def test_a_kill(shop: Shop) -> None:
    assert kill_once(shop, random.Random(3))


@pytest.mark.slow
def test_many_kills(shop: Shop) -> None:
    draw = random.Random(7)
    outcomes = [kill_once(shop, draw) for _ in range(RUNS // 2)]
    print({outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))})
    assert {"resumed", "taken back"} <= set(outcomes)
