"""Questions: every answer of a family is one to a verb, and what only one family has is refused by the other."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest

from commands import COMMANDS, cli
from rmqctl import questions
from rmqctl.errors import WrongUsage
from rmqctl.kafka.store import KafkaFile, KafkaStore
from rmqctl.questions import KAFKA, ROCKETMQ, Question
from rmqctl.rocketmq.family import RocketMQFile, RocketMQStore
from rmqctl.store import Asked, Store

QUESTIONS = {kind.__name__: kind for kind in vars(questions).values() if inspect.isclass(kind)}
QUESTIONS = {name: kind for name, kind in QUESTIONS.items() if issubclass(kind, Question) and "verb" in vars(kind)}
OWN = [(kind, part) for kind in QUESTIONS.values() for part in fields(kind) if "family" in part.metadata]


def method_of(kind: type[Question[Any]]) -> str:
    return {"dump -o hex": "hex"}.get(kind.verb, kind.verb).replace("-", "_")


@pytest.mark.parametrize("door", [RocketMQStore, RocketMQFile, KafkaStore, KafkaFile])
def test_every_answer_is_to_a_verb(door: type[Asked]) -> None:
    known = {method_of(kind): name for name, kind in QUESTIONS.items()}
    for name in (name for name in dir(door) if name.startswith("answer_")):
        verb = name.removeprefix("answer_")
        asked = inspect.signature(getattr(door, name)).parameters["asked"].annotation
        assert asked == f"questions.{known[verb]}", name


def test_every_question_is_asked_by_a_method_and_answered_by_a_family() -> None:
    for kind in QUESTIONS.values():
        name = method_of(kind)
        assert hasattr(Store, {"tables": "as_tables"}.get(name, name))
        assert any(hasattr(door, f"answer_{name}") for door in (RocketMQStore, KafkaStore)), name


@pytest.mark.parametrize(("kind", "part"), OWN, ids=[f"{kind.verb} {part.name}" for kind, part in OWN])
def test_what_one_family_has_is_refused_by_the_other(kind: type[Question[Any]], part: Any) -> None:
    parameters = inspect.signature(kind).parameters.values()
    needed: dict[str, Any] = {p.name: "x" for p in parameters if p.default is inspect.Parameter.empty}
    asked = kind(**needed, **{part.name: "given"})
    own = part.metadata["family"]
    other = {ROCKETMQ: KAFKA, KAFKA: ROCKETMQ}[own]
    asked.checked(own, "store", lambda release: release)
    with pytest.raises(WrongUsage) as refused:
        asked.checked(other, "store of the other kind", lambda release: release)
    assert refused.value.option == (part.metadata["option"] or f"--{part.name.replace('_', '-')}")
    assert kind(**needed).checked(other, "store", lambda release: release) == kind(**needed)


@pytest.mark.parametrize(("kind", "part"), OWN, ids=[f"{kind.verb} {part.name}" for kind, part in OWN])
def test_help_says_whose_an_option_is(kind: type[Question[Any]], part: Any) -> None:
    command = cli.get_command(None, kind.verb) if kind.verb in COMMANDS else None  # type: ignore[arg-type]
    option = next((p for p in command.params if p.name == part.name), None) if command else None
    if option is None:
        pytest.skip(f"no option of `{kind.verb}` is called {part.name}")
    name = {ROCKETMQ: "RocketMQ", KAFKA: "Kafka"}[part.metadata["family"]]
    text = getattr(option, "help", "")
    assert text.startswith(f"{name}: "), text
