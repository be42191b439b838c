"""The fields of a schema, each with its place in the bytes: derived plans walked as far as the bytes reach."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from formats.layout import Plan, Run, plan_of


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field.

    Attributes:
        at, size: bytes from the start of the structure.
        value: an integer, or bytes; of a field that is not all there, the bytes that are.
        problem: why the structure cannot be read on from here, "" while all is well.
    """

    name: str
    at: int
    size: int
    value: Any
    problem: str = ""


class Layout:
    """The fields of a structure, from its plan.

    A length stored in front of a field is a field of its own, named as in the printed layouts
    (``body_size`` before ``body``).

    Attributes:
        size: bytes of the structure when all varying fields are empty.
        last: name of the last field.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.size = sum(run.packer.size for run in plan.runs)
        self.last = plan.runs[-1].fields[-1].name
        self._runs = [(_steps(run), run.fields[-1].name if run.tail else "") for run in plan.runs]

    def leaves(self, data: bytes, stop: int | None = None) -> Iterator[Leaf]:
        """Yield the fields of the structure at ``data[0]``, in file order, up to the first that does not fit.

        Args:
            data: the structure's bytes, or the first of them.
            stop: bytes that there are for it in the file; default: those given.
        """
        at, end = 0, len(data) if stop is None else stop
        seen = min(end, len(data))
        for steps, tail in self._runs:
            value: Any = None
            for name, packer, size in steps:
                if at + size > seen:
                    yield from _cut(name, data, at, seen, size)
                    return
                value = packer.unpack_from(data, at)[0] if packer is not None else bytes(size)
                problem = _misfit(value, end - at - size) if tail and name == f"{tail}_size" else ""
                yield Leaf(name, at, size, value, problem)
                if problem:
                    return
                at += size
            if tail:
                yield Leaf(tail, at, value, data[at : at + value])
                at += value


def _cut(name: str, data: bytes, at: int, seen: int, size: int) -> Iterator[Leaf]:
    if at < seen:
        yield Leaf(name, at, seen - at, data[at:seen], f"cut: {seen - at} of {size} bytes")


def _misfit(length: int, left: int) -> str:
    if length < 0:
        return "a length cannot be negative"
    return f"only {left:,} bytes are left" if length > left else ""


def _steps(run: Run) -> list[tuple[str, struct.Struct | None, int]]:
    """Name, packer (None for padding) and size of each field of a run."""
    found = []
    for number, field in enumerate(run.fields):
        is_length = run.tail and number == len(run.fields) - 1
        name = f"{field.name}_size" if is_length else field.name or "padding"
        packer = struct.Struct(run.order + field.code)
        found.append((name, None if field.is_padding else packer, packer.size))
    return found


def layout_of(schema: Any) -> Layout:
    """Return the layout of a schema without branches."""
    return Layout(plan_of(schema))


_OF_PLANS: dict[int, Layout] = {}


def layout_of_plan(plan: Plan) -> Layout:
    """Return the layout of a plan that lives as long as the process, made once."""
    found = _OF_PLANS.get(id(plan))
    if found is None or found.plan is not plan:
        found = _OF_PLANS[id(plan)] = Layout(plan)
    return found


__all__ = ["Layout", "Leaf", "layout_of", "layout_of_plan"]
