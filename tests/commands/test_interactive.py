"""`repair --interactive`: what is answered chooses among the steps of the plan, and the plan is judged as any other."""

from __future__ import annotations

import json
import os
import pty
import random
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from commands import cli
from fixtures import damage, golden, kafka_damage
from tests.conftest import Rmqctl


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands._interactive.check_terminal", lambda out: None)
    monkeypatch.setattr("commands._apply._is_at_terminal", lambda: True)


def answered(root: Path, *answers: str, more: tuple[str, ...] = ()) -> Result:
    words = ["repair", str(root), "--interactive", *more]
    return CliRunner().invoke(cli, words, input="".join(f"{answer}\n" for answer in answers))


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def damaged(tmp_path: Path, rmqctl: Rmqctl) -> Path:
    """Two messages whose bodies nothing heals."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    rows = [json.loads(line) for line in rmqctl("dump", root, "-n", "40", "-o", "jsonl").stdout.splitlines()]
    for row in [row for row in rows if row["body_size"] > 40 and row["size"] < 4000][:2]:
        with (root / row["file"]).open("r+b") as file:
            file.seek(row["position"] + 92)
            body = file.read(20)
            file.seek(-20, os.SEEK_CUR)
            file.write(bytes(byte ^ 0x55 for byte in body))
    return root


def test_without_a_terminal_it_is_refused(rmqctl: Rmqctl, damaged: Path) -> None:
    result = rmqctl("repair", damaged, "--interactive")
    assert result.exit_code == 2
    assert "asks at a terminal, and there is none; choose with --only, --skip and --from." in result.stderr
    assert "does not go with -o json" in rmqctl("repair", damaged, "-i", "-o", "json").stderr


def test_each_step_has_its_own_answer(terminal: None, damaged: Path, rmqctl: Rmqctl) -> None:
    before = bytes_of(damaged)
    shown = answered(damaged, "?", "b", "x", "s")
    assert bytes_of(damaged) == before
    assert shown.exit_code == 1
    assert "b  keep the damaged body as it is, under a new CRC" in shown.stdout
    assert "--- before, bytes 8 to 11" in shown.stdout and "--- after, bytes 8 to 11" in shown.stdout
    assert shown.stdout.count("given up so far 0, with this step 1") == 2
    assert "Left out: log.body-crc in commitlog/00000000000000000000.\n" in shown.stdout
    done = answered(damaged, "b", "s", "y", more=("--apply",))
    assert "done, 1 file changed" in done.stderr
    assert done.exit_code == 1  # what was left out is still there
    after = bytes_of(damaged)
    (name,) = (name for name in before if before[name] != after[name])
    assert len([1 for a, b in zip(before[name], after[name], strict=True) if a != b]) <= 4  # a CRC
    errors = [
        row
        for row in json.loads(rmqctl("verify", damaged, "-o", "json").stdout)["findings"]
        if row["severity"] == "error"
    ]
    assert len(errors) == 1
    assert rmqctl("undo", damaged, "--yes").exit_code == 0
    assert bytes_of(damaged) == before


def test_only_a_letter_is_an_answer(terminal: None, damaged: Path) -> None:
    before = bytes_of(damaged)
    shown = answered(damaged, "abort", "stop", "yes", "q", more=("--apply", "--yes"))
    assert (shown.exit_code, bytes_of(damaged)) == (1, before)
    assert shown.stdout.count("y  do this step\n") == 3


def test_a_step_that_does_something_else_now_is_asked_about_again(
    terminal: None, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name does not say with which bytes; here they are others once the second step is left out."""
    from rmqctl.store import Store

    real = Store.repair

    def repair(store: Store, **asked: Any) -> Any:
        proposal = real(store, **asked)
        prepare = proposal.prepare

        def prepared() -> None:
            prepare()
            if asked["without"] and proposal.plan is not None:
                first, *rest = proposal.plan.steps
                proposal.plan = replace(proposal.plan, steps=(replace(first, loses=2), *rest))

        proposal.prepare = prepared
        return proposal

    monkeypatch.setattr(Store, "repair", repair)
    shown = answered(damaged, "y", "s", "q")
    assert shown.stderr.count("Do this, step 1 of 2?") == 1
    assert shown.stderr.count("Do this, step 1 of 1?") == 1
    assert shown.stderr.endswith("nothing was written\n")


def test_a_replica_is_an_alternative(terminal: None, damaged: Path, tmp_path: Path) -> None:
    replica = golden.unpack("5.5.0-clean", tmp_path / "other")
    wrong = answered(damaged, "f", str(tmp_path / "nothing"), "q")
    assert "nothing is there" in wrong.stderr or "no such" in wrong.stderr.lower()
    assert wrong.stderr.endswith("nothing was written\n")
    done = answered(damaged, "f", str(replica), "a", "y", more=("--apply",))
    assert done.exit_code == 0, done.stderr
    assert "restore the record at" in done.stdout
    sound = bytes_of(replica)
    assert all(data == sound[name] for name, data in bytes_of(damaged).items() if name.startswith("commitlog/"))


CASES = [
    ("rocketmq", "5.5.0", "clean/totalsize-flip-mid"),
    ("kafka", "4.3.1", "crash/crc-body-mid-batch"),
]


def _variant(family: str, release: str, variant: str, place: Path) -> Path:
    root = golden.unpack(f"{release}-{variant.partition('/')[0]}", place)
    found = golden.recovery_oracle(release)["variants"]
    if family == "rocketmq":
        damage.apply(found[variant]["recipe"], root)
    else:
        kafka_damage.apply(next(each["recipe"] for each in found if each["variant"] == variant), root)
    return root


@pytest.mark.parametrize(("family", "release", "variant"), CASES)
def test_all_or_none_of_the_steps(
    family: str, release: str, variant: str, terminal: None, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root = _variant(family, release, variant, tmp_path)
    plan = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    before = bytes_of(root)
    none = answered(root, "d", more=("--apply",))
    assert none.exit_code == 1
    assert bytes_of(root) == before
    done = answered(root, *("y" for _ in plan["steps"]), "y", more=("--apply",))
    assert done.stderr.count("Do this, step ") == len(plan["steps"])
    assert f"{plan['summary']['steps']} step" in done.stdout
    again = _variant(family, release, variant, tmp_path / "again")
    assert rmqctl("repair", again, "--apply", "--yes").exit_code == done.exit_code
    assert bytes_of(again) == bytes_of(root)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("family", "release"), [("rocketmq", "5.5.0"), ("rocketmq", "4.9.8"), ("kafka", "4.3.1")])
def test_any_choice_is_judged(
    seed: int, family: str, release: str, terminal: None, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """What is left of a plan balances its books, or is refused; what was left out is not done."""
    found = golden.recovery_oracle(release)["variants"]
    names = list(found) if family == "rocketmq" else [each["variant"] for each in found]
    chance = random.Random(seed)
    root = _variant(family, release, chance.choice(names), tmp_path)
    before = bytes_of(root)
    done = answered(root, *(chance.choice("ys") for _ in range(60)), more=("--apply", "--yes"))
    assert done.exit_code in (0, 1, 13), done.output
    assert "the books balance" in done.stdout or bytes_of(root) == before
    if bytes_of(root) != before:
        assert rmqctl("undo", root, "--yes").exit_code == 0
        assert bytes_of(root) == before


def test_at_a_real_terminal(damaged: Path) -> None:
    controller, side = pty.openpty()
    words = [sys.executable, "-m", "rmqctl", "repair", str(damaged), "-i"]
    process = subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=os.environ | {"COLUMNS": "80"})
    os.close(side)
    text = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and b"step 1 of 2?" not in text:
        if select.select([controller], [], [], 1)[0]:
            text += os.read(controller, 4096)
    os.write(controller, b"q\n")
    assert process.wait(30) == 1
    os.close(controller)
    assert b"Do this, step 1 of 2? [y,s,b,f,x,a,d,q,?]" in text
