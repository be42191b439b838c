"""The data classes of this project against those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import pytest

from formats.dataclass import dataclass

STANDARD: Any = dataclasses.dataclass
OURS: Any = dataclass


class Written:
    """As its author wrote them."""

    first: int
    second: str = "b"
    third: list[int] = field(default_factory=list)
    known: ClassVar[int] = 3
    hidden: int = field(default=4, repr=False, compare=False)
    named: int = field(default=5, kw_only=True)
    made: int = field(init=False)
    given: int = field(init=False, default=6)
    grown: list[int] = field(init=False, default_factory=lambda: [7])

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.first + 1)


ARGUMENTS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
]


def declared(decorator: Any, arguments: dict[str, bool]) -> Any:
    """A class of its own with the decorator on it."""
    namespace = {name: value for name, value in vars(Written).items() if name not in ("__dict__", "__weakref__")}
    namespace = {
        name: copy.copy(value) if isinstance(value, dataclasses.Field) else value for name, value in namespace.items()
    }
    return decorator(**arguments)(type("Written", (), namespace))


@dataclass(frozen=True, slots=True)
class Kept:
    """At a place where a pickle finds it."""

    first: int
    second: tuple[int, ...] = ()


@dataclass
class Open:
    """With room for more than its fields."""

    first: int = 1

    @cached_property
    def twice(self) -> int:
        return self.first * 2


@dataclass(frozen=True)
class Above:
    first: int

    def __repr__(self) -> str:
        return "mine"

    def __hash__(self) -> int:
        return 12


@dataclass(frozen=True)
class Below(Above):
    second: int = 2


class Plain(Above):
    """No data class of its own."""

    def __init__(self) -> None:
        super().__init__(5)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: "-".join(arguments) or "plain")
def test_behaves_as_a_data_class_of_the_standard_library(arguments: dict[str, bool]) -> None:
    answers = [_answers(declared(decorator, arguments)) for decorator in (STANDARD, OURS)]
    assert answers[0] == answers[1]


def _answers(cls: Any) -> list[object]:
    one, same, other = cls(1, "x", named=8), cls(1, third=[], second="x", hidden=9, named=8), cls(2)
    listed = [(f.name, f.type, f.init, f.kw_only) for f in fields(cls)]
    compared = [one == same, one == other, one != same, one == 3, one.__eq__(3)]
    refused = [_outcome(work) for work in _attempts(cls, one, same)]
    kinds = [
        hasattr(one, "__dict__"),
        cls.__match_args__,
        dataclasses.is_dataclass(cls),
        cls.__doc__,
        cls.__hash__ is None,
    ]
    return [
        repr(one), listed, compared, refused, kinds, dataclasses.asdict(one), repr(replace(one, first=4)), cls.known,
        repr(copy.deepcopy(one)), [(p.name, p.kind, p.default is p.empty) for p in inspect.signature(cls).parameters.values()], repr(one), _hash(one) == _hash(same),
    ]  # fmt: skip


def _attempts(cls: Any, one: Any, same: Any) -> list[Any]:
    return [
        cls,
        lambda: cls(1, 2, 3, 4, 5),
        lambda: cls(1, made=3),
        lambda: cls(1, other=3),
        lambda: setattr(same, "first", 5),
        lambda: delattr(same, "second"),
        lambda: hash((one.first, hash(cls(1)) == 0)),
    ]


def _outcome(work: Any) -> object:
    try:
        work()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)
    return None


def _hash(one: Any) -> object:
    try:
        return hash(one)
    except TypeError:
        return None


def test_pickles_replaces_and_matches() -> None:
    kept = Kept(1, (2,))
    assert pickle.loads(pickle.dumps(kept)) == kept == replace(Kept(5, (2,)), first=1)
    assert {kept: 1}[Kept(1, (2,))] == 1
    match kept:
        case Kept(first, (second,)):
            assert (first, second) == (1, 2)


def test_a_changed_field_and_a_kept_property_live_in_one_instance() -> None:
    one = Open(4)
    assert one.twice == 8
    one.first = 5
    assert (one.twice, one) == (8, Open(5))
    with pytest.raises(TypeError):
        hash(one)


def test_methods_of_a_class_and_of_those_below_it() -> None:
    assert (repr(Above(1)), hash(Above(1)), repr(Plain()), Plain().first) == ("mine", 12, "mine", 5)
    assert repr(Below(1)) == "Below(first=1, second=2)"
    assert hash(Below(1)) == hash((1, 2))
    with pytest.raises(FrozenInstanceError):
        Below(1).first = 2  # type: ignore[misc]
    assert not inspect.signature(Plain).parameters


def test_a_ring_of_instances_has_a_repr() -> None:
    @dataclass
    class Ring:
        next: Any = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")
