"""Repairs of damaged stores, killed at random moments while they are carried out, gone on with or taken back."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.repair import Plan, apply, default_directory, pending, resume, undo
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from tests.repair.stores import state_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]

KILLS = int(os.environ.get("RMQCTL_KILLS", "60"))
"""How many children of each test die."""
State = dict[str, object]


@pytest.mark.parametrize("base", ["4.9.8-clean", "4.9.8-crash", "5.5.0-clean", "5.5.0-crash"])
def test_killed_repairs(base: str, tmp_path: Path) -> None:
    release, _, state = base.partition("-")
    variants = golden.recovery_oracle(release)["variants"]
    names = [name for name in variants if name.startswith(f"{state}/") and "none" not in name]
    root, draw, kills, seen = golden.unpack(base, tmp_path), random.Random(base), 0, set()
    for name in draw.sample(names, len(names)):
        damage.apply(variants[name]["recipe"], root)
        with tempfile.TemporaryDirectory(dir=tmp_path) as built:
            conf = golden.write_broker_conf(base, tmp_path / "broker.conf")
            plan = plan_repair(open_store_at(str(root), broker_conf=str(conf)), RepairOptions(), Path(built)).plan
            if plan.edits:
                bench = Bench(root, plan, draw)
                for _ in range(6):
                    seen.add(bench.run())
                kills += bench.kills
        shutil.rmtree(root)
        golden.unpack(base, tmp_path)
        if kills >= KILLS:
            break
    print(f"{base}: {kills} kills")
    assert kills >= KILLS
    assert seen == {"as planned", "as before"}


class Bench:
    """One damaged store and its plan.

    Attributes:
        kills: children that died.
    """

    def __init__(self, root: Path, plan: Plan, draw: random.Random) -> None:
        self.root, self.plan, self.draw, self.kills = root, plan, draw, 0
        self.journals = default_directory(root)
        self.before: State = state_of(root)
        begin = time.monotonic()
        done = apply(plan)
        self.seconds = time.monotonic() - begin
        self.after: State = state_of(root)
        assert done.journal is not None
        undo(done.journal)
        assert state_of(root) == self.before
        shutil.rmtree(self.journals)

    def run(self) -> str:
        """Apply, and resume or undo what is broken off, each under fire; then take it back. What came of it."""
        self._kill(partial(apply, self.plan))
        first = next(iter(sorted(self.journals.glob("[0-9]*"))), None)
        self._go_on()
        found = state_of(self.root)
        if found == self.before:
            return self._clear("as before")
        assert contents(found) == contents(self.after)
        assert first is not None
        self._kill(partial(undo, first))
        self._go_on()
        if state_of(self.root) != self.before:
            assert contents(state_of(self.root)) == contents(self.after)
            undo(first)
        assert state_of(self.root) == self.before
        return self._clear("as planned")

    def _clear(self, outcome: str) -> str:
        shutil.rmtree(self.journals, ignore_errors=True)
        return outcome

    def _go_on(self) -> None:
        while (journal := pending(self.root)) is not None:
            self._kill(partial(self.draw.choice((resume, undo)), journal))

    def _kill(self, work: Callable[[], Any]) -> None:
        """Work in a child that is killed at some moment."""
        ready, go = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.write(go, b"!")
                work()
                code = 0
            finally:
                os._exit(code)
        os.read(ready, 1)
        time.sleep(self.draw.uniform(0, 1.1 * self.seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(ready)
        os.close(go)
        assert status in (0, signal.SIGKILL)
        self.kills += status == signal.SIGKILL


def contents(state: State) -> State:
    """The same without times."""
    return {name: seen[:2] if isinstance(seen, tuple) else None for name, seen in state.items()}
