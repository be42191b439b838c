"""What a store answers when it is asked what is wrong with it, and where a bundle answers otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from rmqctl.answer import Row
from rmqctl.errors import RmqctlError
from rmqctl.files.tree import local_path
from rmqctl.release import Release
from rmqctl.repair.edits import Overwrite
from rmqctl.store import Store
from rmqctl.text import json_bytes


@dataclass(slots=True)
class Answers:
    """What a store answers, with its directories by number instead of by path.

    Attributes:
        said: by what was asked: lines of JSON, each once or several times.
        findings: how many there are.
        overwrites: what the plan of repair writes over bytes that are there.
    """

    said: dict[str, Counter[str]] = field(default_factory=dict)
    findings: int = 0
    overwrites: list[Overwrite] = field(default_factory=list)


def answers_of(store: Store, as_release: Release | None) -> Answers:
    """Ask a store for its findings, for what a start would do, and for the plan of a repair."""
    found = Answers()
    rename = _renaming(store)

    def ask(what: str, rows: Callable[[], Iterator[Any]]) -> None:
        lines = found.said[what] = Counter()
        try:
            for row in rows():
                lines[rename(json_bytes(row, orjson.OPT_SORT_KEYS).decode())] += 1
        except RmqctlError as error:
            lines[rename(str(error))] += 1

    ask("verify", lambda: _findings(store, as_release, found))
    ask("recover", lambda: _start(store, as_release))
    ask("repair", lambda: _plan(store, found))
    return found


def differences(before: Answers, after: Answers) -> list[str]:
    """Return what only one of two answered, a line each."""
    found = []
    for what, lines in before.said.items():
        other = after.said[what]
        found += [f"{what}, only of the store: {line}" for line in (lines - other).elements()]
        found += [f"{what}, only of the bundle: {line}" for line in (other - lines).elements()]
    return found


def _renaming(store: Store) -> Callable[[str], str]:
    """Return what takes the paths of a store out of a text, the longest first."""
    names: dict[str, str] = {}
    for number, one in enumerate(store.directories()):
        for path in {one.tree.root, local_path(one.tree, "") or one.tree.root, one.prefix.rstrip("/")} - {""}:
            names[path] = f"<{number}>"
    roots = ",".join(one.tree.root for one in store.directories() if not one.prefix)
    names |= dict.fromkeys((roots, store.root), "<store>")
    ordered = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    whole = re.compile(rf"(?<![\w./-])(?:{ordered})(?![\w-]|\.\w)")  # `.` is one, too
    return lambda text: whole.sub(lambda found: names[found[0]], text)


def _findings(store: Store, as_release: Release | None, found: Answers) -> Iterator[Row]:
    answer = store.verify(as_release=as_release)
    for row in answer:
        found.findings += 1
        yield row
    if answer.summary is not None:
        yield {"start": answer.summary().get("start")}


def _start(store: Store, as_release: Release | None) -> Iterator[Row]:
    with store.recover(as_release=as_release) as answer:
        answer.prepare()
        document = answer.document() if answer.document is not None else {}
        yield from _apart(document)


def _plan(store: Store, found: Answers) -> Iterator[Row]:
    with store.repair() as answer:
        answer.prepare()
        if answer.plan is not None:
            found.overwrites += [edit for edit in answer.plan.edits if isinstance(edit, Overwrite)]
        document = dict(answer.document()) if answer.document is not None else {}
        for name in ("steps", "left"):
            document[name] = [_step(row) for row in document.get(name, ())]
        yield from _apart(document)


def _step(row: Row) -> Row:
    """Return a step with the files that it edits, and how; which bytes of them differ depends on the content."""
    edits = dict.fromkeys((edit["edit"], edit["file"]) for edit in row["edits"])
    return {**row, "edits": [list(edit) for edit in edits]}


def _apart(document: Row) -> Iterator[Row]:
    """Yield the parts of a document one by one, so that a difference is a short line."""
    for name, value in document.items():
        if isinstance(value, list):
            yield from ({name: one} for one in value)
        elif isinstance(value, dict):
            yield from ({name: {key: one}} for key, one in value.items())
        else:
            yield {name: value}
