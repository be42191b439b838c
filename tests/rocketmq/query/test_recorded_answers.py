"""Random questions that classes of releases were asked once, to rmqctl on the same golden stores, without Java."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from fixtures import golden
from tests.interop.compare import Answers

DIRECTORY = Path(golden.__file__).parent / "interop"


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_every_answer_is_the_same(release: str) -> None:
    with lzma.open(DIRECTORY / f"{release}.answers.json.xz", "rt", encoding="utf-8") as file:
        recorded = json.load(file)
    assert len(recorded) > 700
    for base in (f"{release}-clean", f"{release}-crash"):
        with Answers(golden.pristine(base), release, golden.broker_conf(base)).opened() as answers:
            for case in recorded:
                if case["base"] == base:
                    assert getattr(answers, case["command"])(*case["words"]) == case["answer"], case
