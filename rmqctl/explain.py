"""Steps and reasons of an explained answer: the table of reasons, which families add to, and lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

CONCLUSION = "conclusion"
"""``what`` of the last step."""
_MISS_MODULES = ("rmqctl.rocketmq.query.steps", "rmqctl.kafka.query.steps")


@dataclass(frozen=True, slots=True)
class Miss:
    """One reason.

    Attributes:
        id: ``miss.<kebab-name>``, stable.
        sentence: the answer, with ``{names}`` for what differs from case to case.
        meaning: one or two sentences for someone who never read the source.
    """

    id: str
    sentence: str
    meaning: str

    def conclude(self, about: str = "", /, **values: object) -> TraceStep:
        """Return the last step of an explanation, ``about`` a file where one is to blame: that, or the value of
        ``file``.

        Raises:
            KeyError: a name of the sentence has no value.
        """
        return TraceStep(about or str(values.get("file", "")), CONCLUSION, self.sentence.format(**values), self.id)


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One thing that was looked at.

    Attributes:
        file: relative to the store, "" when no one file was looked at.
        what: what was looked at: ``slot 17``, ``entry 4``, ``record 8123``.
        result: what was there, and whether it was kept or dropped and why.
        id: of the reason, in the last step only.
    """

    file: str
    what: str
    result: str
    id: str = ""

    def row(self) -> dict[str, Any]:
        """Return the JSON object of the contract; ``id`` only where there is one."""
        row: dict[str, Any] = {"kind": "step", "file": self.file, "what": self.what, "result": self.result}
        return row | {"id": self.id} if self.id else row


_registry: dict[str, Miss] = {}


def declare_miss(name: str, sentence: str, meaning: str) -> Miss:
    """Make a reason and add it to the table.

    Raises:
        ValueError: the name is taken.
    """
    miss = Miss(f"miss.{name}", sentence, meaning)
    if miss.id in _registry:
        raise ValueError(f"{miss.id} is taken")
    _registry[miss.id] = miss
    return miss


def all_misses() -> list[Miss]:
    """Return the table, family by family, in order of declaration."""
    own = [vars(import_module(module)).values() for module in _MISS_MODULES]
    declared = [value for values in own for value in values if isinstance(value, Miss)]
    return list(dict.fromkeys([NONE, *declared]))


NONE = declare_miss("none", "found: {found}", "The query answers what is there.")


class Trace:
    """Collects steps while a query runs; a query that is not to be explained gets one that keeps nothing.

    Attributes:
        on: whether steps are kept.
        limit: steps kept; those after it are counted in :attr:`left_out` and reported in one step before the last.
    """

    __slots__ = ("_steps", "left_out", "limit", "on")

    def __init__(self, *, on: bool = True, limit: int = 10_000) -> None:
        self.on, self.limit = on, limit
        self._steps: list[TraceStep] = []
        self.left_out = 0

    def add(self, file: str, what: str, result: str) -> None:
        """Note a step: the file relative to the store, what was looked at in it, and what was there."""
        if not self.on:
            return
        if len(self._steps) < self.limit:
            self._steps.append(TraceStep(file, what, result))
        else:
            self.left_out += 1

    def conclude(self, miss: Miss, about: str = "", /, **values: object) -> None:
        """Note the last step: why nothing was found.

        Args:
            about: the file that is to blame, "" where none is.
            values: what the sentence of the reason names.
        """
        if self.on:
            self._steps.append(miss.conclude(about, **values))

    def found(self, result: str, file: str = "") -> None:
        """Note the last step of a query that misses nothing."""
        self.conclude(NONE, file, found=result)

    def before_conclusion(self, file: str, what: str, result: str) -> None:
        """Note a step that comes before the last one, though it was found out after it."""
        last = self._steps.pop() if self._steps else None
        self.add(file, what, result)
        if last is not None:
            self._steps.append(last)

    def __iter__(self) -> Iterator[TraceStep]:
        last = [step for step in self._steps[-1:] if step.id]
        yield from self._steps[: len(self._steps) - len(last)]
        if self.left_out:
            yield TraceStep("", "more steps", f"{self.left_out} further steps are left out")
        yield from last

    def rows(self) -> list[dict[str, Any]]:
        """Return the steps as JSON-ready rows."""
        return [step.row() for step in self]


def step_lines(steps: Iterable[Mapping[str, Any]], *, title: str = "", apart: bool = False) -> Iterator[str]:
    """Yield the steps with their numbers, a line each; the last one says why, with its id. Nothing without steps.

    Args:
        steps: rows of the kind ``step``.
        title: a line above them.
        apart: leave a line free before them.
    """
    for number, step in enumerate(steps, 1):
        if number == 1:
            yield from [""] * apart + [title] * bool(title)
        place = f"{step['file']}: " if step["file"] else ""
        if "id" in step:
            yield f"=> {step['result']} [{step['id']}]"
        else:
            yield f"{number:>3}. {place}{step['what']}: {step['result']}"
