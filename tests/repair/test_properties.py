"""Plans made at random: the store afterwards is what the edits say one by one, and everything comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.repair import (
    Create,
    Cut,
    Edit,
    Extend,
    Overwrite,
    Quarantine,
    SetTimes,
    apply,
    pending,
    resume,
    undo,
)
from tests.repair.faults import CountingLayer, Killed, KillingLayer, QuickLayer
from tests.repair.stores import OLD, plan_of, put, state_of

NAMES = ("a", "d/b", "d/c", "d/e/f", "g/h")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
Files = dict[str, bytes]
texts = st.binary(max_size=30) | st.integers(0, 9000).map(lambda n: bytes([n % 255 + 1]) * n) | st.just(bytes(5000))


def extended(draw: Callable[[Any], Any], name: str, data: bytes) -> tuple[Edit, bytes]:
    size = len(data) + draw(st.integers(0, 5000))
    return Extend(name, len(data), size), data.ljust(size, b"\0")


def cut(draw: Callable[[Any], Any], name: str, data: bytes) -> tuple[Edit, bytes]:
    size = draw(st.integers(0, len(data)))
    return Cut(name, len(data), size), data[:size]


def overwritten(draw: Callable[[Any], Any], name: str, data: bytes) -> tuple[Edit, bytes]:
    offset = draw(st.integers(0, len(data)))
    after = draw(st.binary(max_size=40))[: len(data) - offset]
    return Overwrite(name, offset, data[offset : offset + len(after)], after), data[:offset] + after + data[
        offset + len(after) :
    ]


@st.composite
def cases(draw: Callable[[Any], Any]) -> tuple[Files, list[Edit], Files]:
    """Files before, edits that fit, files after."""
    before: Files = draw(st.dictionaries(st.sampled_from(NAMES), texts))
    now, edits = dict(before), []
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(NAMES))
        if name not in now:
            now[name] = draw(texts)
            size = len(now[name]) + draw(st.sampled_from([0, 0, 7, 9000]))
            edits.append(Create(name, now[name], size=size))
            now[name] = now[name].ljust(size, b"\0")
            continue
        change = draw(st.sampled_from([extended, cut, overwritten, overwritten, None, "times"]))
        if change is None:
            edits.append(Quarantine(name))
            del now[name]
        elif change == "times":
            edits.append(SetTimes(name, draw(st.integers(0, 10**18))))
        else:
            edit, now[name] = change(draw, name, now[name])
            edits.append(edit)
    return before, edits, now


def make(home: str, files: Files) -> Path:
    root = Path(home) / "store"
    put(root, "lock", b"")
    for name, data in files.items():
        put(root, name, data)
    for directory, _, _ in os.walk(root):
        os.utime(directory, ns=(OLD, OLD))
    return root


def contents(root: Path) -> Files:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and p.name != "lock"}


@given(cases())
@settings(max_examples=150, deadline=None)
def test_the_store_is_what_the_edits_say_and_comes_back(case: tuple[Files, list[Edit], Files]) -> None:
    files, edits, expected = case
    with TemporaryDirectory(dir=MEMORY) as home:
        root = make(home, files)
        before = state_of(root)
        applied = apply(plan_of(root, *edits), layer=QuickLayer())
        assert contents(root) == expected and applied.complaints == ()
        if applied.journal is None:
            assert state_of(root) == before
            return
        after = state_of(root)
        back = undo(applied.journal, layer=QuickLayer())
        assert state_of(root) == before and back.journal is not None and back.complaints == ()
        again = undo(back.journal, layer=QuickLayer())
        assert state_of(root) == after and again.complaints == ()


@given(cases(), st.floats(0, 1), st.sampled_from(["before", "after", "within"]), st.booleans(), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_two_kills_anywhere(
    case: tuple[Files, list[Edit], Files], first: float, how: str, forwards: bool, second: float
) -> None:
    files, edits, expected = case
    with TemporaryDirectory(dir=MEMORY) as home:
        root = make(home, files)
        before = state_of(root)
        plan = plan_of(root, *edits)
        layer = CountingLayer()
        trial = apply(plan, layer=layer)
        if trial.journal is None:
            return
        undo(trial.journal, layer=QuickLayer())
        with suppress(Killed):
            apply(plan, layer=KillingLayer(int(first * len(layer.requests)), how))
        if (journal := pending(root)) is not None:
            way_on = resume if forwards else undo
            with suppress(Killed):
                way_on(journal, layer=KillingLayer(int(second * 40), "within"))
        if (journal := pending(root)) is not None:
            resume(journal, layer=QuickLayer())
            assert contents(root) == expected
            undo(journal, layer=QuickLayer())
        assert contents(root) in (files, expected)
        if contents(root) == files and files != expected:
            assert state_of(root) == before
