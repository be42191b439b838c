"""Random questions to running stores of released classes and to rmqctl on the same files: needs Maven."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.producer.bulk import produce_bulk
from rmqctl.rocketmq.producer.drafts import Template
from rmqctl.rocketmq.producer.produce import ProduceOptions
from tests.interop.brokers_helpers import keys_of, known_of
from tests.interop.compare import Answers, dumped, geometry
from tests.interop.conftest import Judges
from tests.interop.judge import RELEASES, Judge, has_java, settings_of
from tests.interop.questions import Known, Question, questions

COUNT = 300
STEPS = (1_794_268_800_000, 300), (1_794_096_000_000, 2000), (1_794_268_830_000, 0)
"""First store time, ms, of each part of a store, and ms between messages: two days back, then there again."""
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.mark.parametrize("state", ["clean", "crash"])
@pytest.mark.parametrize("release", RELEASES)
def test_golden_stores(release: str, state: str, judges: Judges, tmp_path: Path) -> None:
    name = f"{release}-{state}"
    root = golden.unpack(name, tmp_path)
    known = known_of(name)
    conf = golden.broker_conf(name)
    asked = questions(random.Random(name), known, COUNT, boundaries=release >= "5")
    assert differences(judges(release), root, release, asked, settings_of(conf), conf, crashed=state == "crash") == {}


@pytest.mark.parametrize("release", RELEASES)
def test_clocks_that_step(release: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """A store whose clock went back twice and stood still once: times do not ascend, and many are equal."""
    root = tmp_path / "steps"
    template = Template(body="b {n}", keys=("k-{n}", "same", "AaBB"))
    for number, (start, step) in enumerate(STEPS):
        config = StoreConfig.small(release=Release.parse(release), clock=MadeUpClock(start, step))
        options = ProduceOptions(("Steps0", "Steps1"), seed=number)
        with StoreEngine.open(root, config) as engine:
            assert sum(run.messages for run in produce_bulk(engine, template, 350, options)) == 350
    known = [
        Known(m["topic"], m["queue"], m["offset"], m["stored"], keys_of(m["properties"]))
        for m in dumped(rmqctl, root).values()
    ]
    asked = questions(random.Random(release), known, COUNT, boundaries=release >= "5")
    assert differences(judges(release), root, release, asked, geometry(root), {}) == {}


def differences(
    judge: Judge,
    root: Path,
    release: str,
    asked: list[Question],
    settings: list[str],
    conf: dict[str, str],
    *,
    crashed: bool = False,
) -> dict[Question, Any]:
    """Questions whose answers differ, with that of rmqctl and that of the classes.

    The index of a crashed store gets its last entries when a broker starts: keys are looked up in what it leaves.
    """
    ours = answered(root, release, asked, conf)
    opened = judge.ask("s", "open", root, *settings)
    assert opened, "load failed"
    theirs = {question: judge.ask("s", question[0], *question[1]) for question in asked}
    assert judge.ask("s", "stop", root)
    assert sum(bool(theirs[q]) for q in asked if q[0] == "key") > COUNT / 8
    if crashed:
        ours |= answered(root, release, [q for q in asked if q[0] == "key"], conf)
    return {question: (ours[question], theirs[question]) for question in asked if ours[question] != theirs[question]}


def answered(root: Path, release: str, asked: list[Question], conf: dict[str, str]) -> dict[Question, Any]:
    """Every question with the answer of rmqctl."""
    with Answers(root, release, conf).opened() as answers:
        return {question: getattr(answers, question[0])(*question[1]) for question in asked}
