"""What each byte of a file means: the fields of a schema in their places, and what is said about each stretch.

Derived plans are walked as far as the bytes reach. Bytes that belong to no field come by runs of data, zeros and holes.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats.layout import Run, StructPlan, plan_of
from rmqctl.files.local import ByteSource
from rmqctl.text import number_of, text_or_base64


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


class FieldLayout:
    """The fields of a structure, from its plan.

    A length stored in front of a field is a field of its own, named as in the printed layouts
    (``body_size`` before ``body``).

    Attributes:
        size: bytes of the structure when all varying fields are empty.
        last: name of the last field.
    """

    def __init__(self, plan: StructPlan) -> None:
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
    return f"only {number_of(left, 'byte', 'are')} left" if length > left else ""


def _steps(run: Run) -> list[tuple[str, struct.Struct | None, int]]:
    """Name, packer (None for padding) and size of each field of a run."""
    found = []
    for number, field in enumerate(run.fields):
        is_length = run.tail and number == len(run.fields) - 1
        name = f"{field.name}_size" if is_length else field.name or "padding"
        packer = struct.Struct(run.order + field.code)
        found.append((name, None if field.is_padding else packer, packer.size))
    return found


def layout_of(schema: Any) -> FieldLayout:
    """Return the layout of a schema without branches."""
    return FieldLayout(plan_of(schema))


_OF_PLANS: dict[int, FieldLayout] = {}


def layout_of_plan(plan: StructPlan) -> FieldLayout:
    """Return the layout of a plan that lives as long as the process, made once."""
    found = _OF_PLANS.get(id(plan))
    if found is None or found.plan is not plan:
        found = _OF_PLANS[id(plan)] = FieldLayout(plan)
    return found


# --- what is said about a stretch of bytes ----------------------------------------------------------


Value = int | str | bytes | None
RAW_LIMIT = 256
"""Bytes of a field that an annotation carries unless more are asked for."""


@dataclass(frozen=True, slots=True)
class Group:
    """A record, unit, entry or gap: what neighboring fields belong to.

    Attributes:
        offset, size: bytes in the file.
        title: what sets it apart from others of its name.
        wrong: something about it is not as it should be.
    """

    name: str
    offset: int
    size: int
    title: str = ""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """One field of a file, or bytes that belong to none.

    Attributes:
        file: as the caller named it.
        offset, size: bytes in the file; a field may be empty.
        path: names from the outside in, ``("message", "store_timestamp")``. Bytes of no field are
            ``gap``, ``zeros``, ``zero_tail`` (never written) or ``gone`` (the file was cut while it was read).
        raw: the first bytes, all of them unless the field is longer than the limit.
        value: integers and text as stored; bytes that are no text, as many as ``raw`` has; None for gaps.
        meaning: what the value stands for, in words; "" where it speaks for itself.
        wrong: the meaning says what is not as it should be.
        group: what it belongs to, None at the top level.
    """

    file: str
    offset: int
    size: int
    path: tuple[str, ...]
    raw: bytes
    value: Value = None
    meaning: str = ""
    wrong: bool = False
    group: Group | None = None

    @property
    def depth(self) -> int:
        """How many names stand before its own."""
        return len(self.path) - 1

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.size

    @property
    def is_elided(self) -> bool:
        """Whether bytes were left out of ``raw``."""
        return len(self.raw) < self.size


@dataclass(frozen=True, slots=True)
class View:
    """A file as all walkers see it.

    Attributes:
        size: bytes in the file when the walk began.
        base: offset of its first byte in the sequence of files.
        limit: bytes of a field to carry, None for all.
        index: geometry of an index file where it is known.
    """

    source: ByteSource
    file: str
    size: int
    base: int = 0
    limit: int | None = RAW_LIMIT
    index: Any = None

    @property
    def topic(self) -> str:
        """The topic whose queue this is a file of, by its path; "" where the path is too short."""
        parts = self.file.split("/")
        return parts[-3] if len(parts) >= 3 else ""

    def head(self, data: bytes) -> bytes:
        """Return the part of a field's bytes to carry."""
        return data if self.limit is None else data[: self.limit]

    def note(
        self,
        path: tuple[str, ...],
        offset: int,
        data: bytes,
        value: Value = None,
        meaning: str = "",
        *,
        size: int | None = None,
        wrong: bool = False,
        group: Group | None = None,
    ) -> Annotation:
        """Return an annotation of this file; ``size`` where ``data`` is only the beginning."""
        length = len(data) if size is None else size
        raw = self.head(data)
        shown = value[: len(raw)] if isinstance(value, (str, bytes)) and len(raw) < length else value
        return Annotation(self.file, offset, length, path, raw, shown, meaning, wrong, group)


# --- annotations as json-ready objects --------------------------------------------------------------


def rows(annotations: Iterable[Annotation]) -> Iterator[dict[str, Any]]:
    """One object per field: where it is, what it is called, its bytes in hex, its value and meaning.

    ``record`` is the record, unit or entry around it, null at the top level; ``raw`` holds the first
    bytes, all of them when ``raw_truncated`` is not there.
    """
    for note in annotations:
        row: dict[str, Any] = {
            "kind": "field",
            "file": note.file,
            "position": note.offset,
            "size": note.size,
            "name": note.path[-1],
            "path": list(note.path),
            "value": _json(note.value),
            "meaning": note.meaning,
            "wrong": note.wrong,
            "raw": note.raw.hex(),
            "record": None,
        }
        if note.group is not None:
            group = note.group
            row["record"] = {"name": group.name, "position": group.offset, "size": group.size, "title": group.title}
        if note.is_elided:
            row["raw_truncated"] = True
        yield row


def _json(value: Value) -> Any:
    return text_or_base64(value) if isinstance(value, bytes) else value


# --- bytes of no field ---------------------------------------------------------------------------------


ZERO_RUN = 64
"""Zeros in a row that are shown as zeros; fewer stay part of the bytes around them."""
WINDOW = 1 << 20
PIECE = 1 << 16
"""Bytes in one annotation where everything is wanted."""
_ZEROS_CARRIED = 16


def gap(
    view: View, begin: int, end: int, *, outer: tuple[str, ...] = (), name: str = "gap", group: Group | None = None
) -> Iterator[Annotation]:
    """Annotations that cover ``[begin, end)`` exactly: ``name`` for data, zeros apart.

    Args:
        outer: path of what the bytes stand in.
    """
    cursor = begin
    runs = _data_runs(view, begin, end)
    readable = end
    while True:
        try:
            start, stop = next(runs)
        except StopIteration as over:
            readable = over.value
            break
        yield from _zeros(view, cursor, start, outer, group)
        yield from _data(view, start, stop, (*outer, name), group)
        cursor = stop
    yield from _zeros(view, cursor, max(readable, cursor), outer, group)
    cursor = max(readable, cursor)
    if cursor < end:
        meaning = "the file was cut while it was read"
        yield view.note((*outer, "gone"), cursor, b"", None, meaning, size=end - cursor, wrong=True, group=group)


def _zeros(view: View, start: int, end: int, outer: tuple[str, ...], group: Group | None) -> Iterator[Annotation]:
    if start < end:
        tail = end == view.size and not outer
        raw = bytes(min(end - start, _ZEROS_CARRIED))
        meaning = f"{end - start:,} bytes" + (", never written" if tail else "")
        path = (*outer, "zero_tail" if tail else "zeros")
        yield view.note(path, start, raw, None, meaning, size=end - start, wrong=_is_wrong(group), group=group)


def _data(view: View, start: int, end: int, path: tuple[str, ...], group: Group | None) -> Iterator[Annotation]:
    """One annotation with the first bytes; many with all bytes where there is no limit."""
    step = PIECE if view.limit is None else end - start
    for at in range(start, end, step):
        size = min(step, end - at)
        raw = view.source.read_at(at, size if view.limit is None else min(size, view.limit))
        meaning = f"{size:,} bytes"
        yield view.note(path, at, raw, None, meaning, size=size, wrong=_is_wrong(group), group=group)


def _is_wrong(group: Group | None) -> bool:
    return group is not None and group.wrong


def _data_runs(view: View, begin: int, end: int) -> Generator[tuple[int, int], None, int]:
    """Stretches of data with fewer than :data:`ZERO_RUN` zeros in a row; returns how far the file could be read.

    Fewer zeros at either end belong to the data too, except at the end of the file.
    """
    first = last = -1
    for start, stop in view.source.data_ranges(begin, end):
        position = max(start, begin)
        while position < stop:
            chunk = np.frombuffer(view.source.read_at(position, min(WINDOW, stop - position)), np.uint8)
            if not len(chunk):
                if first >= 0:
                    yield first, last
                return position
            for a, b in _stretches(np.flatnonzero(chunk) + position):
                if first >= 0 and a - last >= ZERO_RUN:
                    yield first, last
                    first = -1
                first, last = (_widened(begin, a) if first < 0 else first), b
            position += len(chunk)
    if first >= 0:
        yield first, last if end == view.size or end - last >= ZERO_RUN else end
    return end


def _widened(begin: int, start: int) -> int:
    return begin if start - begin < ZERO_RUN else start


def _stretches(places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """First byte, and the byte after the last, of places that lie close together."""
    if len(places):
        breaks = np.flatnonzero(np.diff(places) > ZERO_RUN)
        starts = places[np.concatenate([[0], breaks + 1])]
        ends = places[np.concatenate([breaks, [len(places) - 1]])] + 1
        yield from zip(starts.tolist(), ends.tolist(), strict=True)
