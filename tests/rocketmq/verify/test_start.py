"""What verify says of a start is what `recover` says, on whatever damage and however the log is divided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.answer import Answer
from rmqctl.files.tree import LocalTree
from rmqctl.release import Release
from rmqctl.rocketmq.recovery import outcome
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store
from rmqctl.rocketmq.verbs.checking import StartingVerification
from rmqctl.rocketmq.verify.driver import VerifyOptions
from rmqctl.verification import ForeseenStart
from tests.conftest import Rmqctl

FEW = ("flip", "none", "delete")


def _store(root: Path) -> StoreFiles:
    return open_store(LocalTree(root), settings={})


def _start(root: Path, release: str, split_size: int | None) -> ForeseenStart:
    options = VerifyOptions(as_release=Release.parse(release), split_size=split_size)
    checked = StartingVerification(_store(root), options, Answer())
    list(checked.findings())
    return checked.start()


def _variants(release: str) -> list[Any]:
    found = []
    for name in golden.recovery_oracle(release)["variants"]:
        is_fast = any(word in name for word in FEW)
        found.append(pytest.param(release, name, marks=[] if is_fast else [pytest.mark.slow]))
    return found


@pytest.mark.parametrize(("release", "variant"), [*_variants("4.9.8"), *_variants("5.5.0")])
def test_it_is_the_answer_of_recover(release: str, variant: str, tmp_path: Path) -> None:
    name = f"{release}-{'clean' if variant.startswith('clean') else 'crash'}"
    root = golden.unpack(name, tmp_path)
    damage.apply(golden.recovery_oracle(release)["variants"][variant]["recipe"], root)
    wanted = recover(_store(root), Release.parse(release), databases=True)
    document = outcome.document(wanted)
    for size in (None, 30_000):
        start = _start(root, release, size)
        assert start.row is not None
        killed = start.row.pop("after_a_kill", None)
        assert start.row == {key: document[key] for key in start.row}, size
        assert bool(start.harm) == (not wanted.is_harmless)
    if killed is not None:
        (root / "abort").write_bytes(b"")
        assert killed == {"lost": outcome.lost(recover(_store(root), Release.parse(release)))}


def test_the_log_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sound log the checks prove all, and the walk of the start reads no record."""
    counted: list[int] = []
    from rmqctl.rocketmq.recovery import replay

    walked = replay.replay_log

    def counting(*args: Any, **options: Any) -> Any:
        for found, file in walked(*args, **options):
            counted.append(len(found.block))
            yield found, file

    monkeypatch.setattr(replay, "replay_log", counting)
    for state in ("clean", "crash"):
        start = _start(golden.pristine(f"5.5.0-{state}"), "5.5.0", 50_000)
        assert start.row is not None
        assert start.row["scan"]["records"] > 0
    assert sum(counted) == 0


def test_a_store_without_findings_that_loses_is_not_all_right(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Nothing in the files is wrong, and the topic's configuration is gone: a broker serves none of its messages."""
    root = golden.unpack("5.5.0-clean", tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        path = root / "config" / name
        if not path.exists():
            continue
        topics = json.loads(path.read_text("utf-8"))
        topics["topicConfigTable"].pop("LabLog", None)
        path.write_text(json.dumps(topics), "utf-8")
    done = rmqctl("verify", root, "-o", "json", "--no-notes")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert found["start"]["unknown_topics"] == ["LabLog"]
    assert "LabLog" in rmqctl("verify", root).stdout
    last = rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()[-1]
    assert json.loads(last)["start"] == found["start"]


@pytest.mark.parametrize("line", [("--level", "quick")])
def test_where_no_start_is_tried_that_is_said(line: tuple[str, ...], rmqctl: Rmqctl) -> None:
    root = golden.pristine("5.5.0-clean")
    assert json.loads(rmqctl("verify", root, "-o", "json", *line).stdout)["start"] is None
    done = rmqctl("verify", root, *line)
    assert "a start was not replayed: level quick reads no record" in " ".join(done.stdout.split())
    assert done.exit_code == 0
