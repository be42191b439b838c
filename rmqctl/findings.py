"""Everything that can be wrong with the data: one grammar for both kinds of store.

A :class:`FindingKind` is a row of a table: a stable id, how bad it is, what it means, and what to
do about it. A :class:`Finding` is one place where it was seen. The kinds of an area are declared
beside each other in ``findings`` of its family and registered here by :func:`register`; scripts
match on ``id``, which never changes once released.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

_KIND_MODULES = ("rmqctl.rocketmq.findings", "rmqctl.kafka.findings")
_registry: dict[str, FindingKind] = {}


class Severity(StrEnum):
    """How bad: ``error`` data lost or wrong, ``warning`` a broker copes, ``note`` normal but worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One row of the table of findings.

    Attributes:
        id: ``<area>.<kebab-name>``, stable for ever.
        severity: the usual one; a finding may carry another where the store's state explains it.
        meaning: one or two sentences for someone who never read the source.
        remedy: what to do, as a command where there is one.
        broker: what a broker does about it at start-up or when asked.
        fixed_in: release in which a known bug that causes it was fixed, or "".
        see: issue numbers and sections of ``docs/formats`` ("spec 2.5"), or "".
        page: that of the emergency guide which fits (``emergency/disk-full``), or "".
        by_hand: `repair` has no step for it, but with another copy of the store.
    """

    id: str
    severity: Severity
    meaning: str
    remedy: str
    broker: str = ""
    fixed_in: str = ""
    see: str = ""
    page: str = ""
    by_hand: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is the kind of that name there: kinds are compared by identity."""
        return _known, tuple(getattr(self, field.name) for field in fields(self))


def _known(*values: Any) -> FindingKind:
    kind = FindingKind(*values)
    return _registry.get(kind.id, kind)


_FACTS = (
    "physical_offset", "topic", "queue_id", "queue_offset", "partition", "base_offset", "last_offset", "messages",
    "about", "cause", "folded_under",
)  # fmt: skip
"""What a finding may know, in the order of its row."""
HEADER = ("kind", "id", "severity", "file", "offset", "size", *_FACTS, "message", "remedy")
"""Every key that the row of a finding may have, in order."""


def header_of(*keys: str, damage: bool = False) -> list[str]:
    """Return the header of rows of several kinds: the keys of each, separated by blanks, every key once.

    Args:
        damage: rows of findings stand among them.
    """
    return list(dict.fromkeys(" ".join(keys).split() + list(HEADER if damage else ())))


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece of damage (or something worth knowing) at one place.

    Attributes:
        kind: what it is.
        file: path relative to the store root, with ``/``.
        offset: bytes into that file.
        size: bytes affected, 0 when the finding is about the file as a whole.
        message: one sentence with what was expected and what was found.
        severity: overrides the kind's when not None.
        physical_offset: position in the commit log in bytes, where there is one.
        about: what it is about, in words of whoever uses the store, where no topic says it.
        cause: what did it, one phrase, where that is seen.
        folded_under: id of the finding of the same cause that is to be looked at first.
        base_offset, last_offset: Kafka: the offsets of the records in it.
        messages: how many messages or records it keeps from consumers or has destroyed, where that is known.
    """

    kind: FindingKind
    file: str
    offset: int
    size: int
    message: str
    severity: Severity | None = None
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    partition: int | None = None
    about: str | None = None
    cause: str | None = None
    folded_under: str | None = None
    messages: int | None = None
    base_offset: int | None = None
    last_offset: int | None = None

    @property
    def level(self) -> Severity:
        """The severity that counts for this finding."""
        return self.severity or self.kind.severity

    def row(self) -> dict[str, Any]:
        """Return the finding as the JSON object of the command-line contract; absent facts are left out."""
        row: dict[str, Any] = {
            "kind": "finding",
            "id": self.kind.id,
            "severity": str(self.level),
            "file": self.file,
            "offset": self.offset,
            "size": self.size,
        }
        for name in _FACTS:
            value = getattr(self, name)
            if value is not None:
                row[name] = value
        row["message"] = self.message
        row["remedy"] = self.kind.remedy
        return row


def declare(
    kind_id: str, severity: Severity, meaning: str, remedy: str, *, by_hand: bool = False, **more: str
) -> FindingKind:
    """Make a kind and add it to the table; ``more`` are the further attributes of :class:`FindingKind`.

    Raises:
        ValueError: the id is taken, or not of the form ``area.kebab-name``.
    """
    kind = FindingKind(kind_id, severity, meaning, remedy, by_hand=by_hand, **more)
    register(kind)
    return kind


def register(*kinds: FindingKind) -> None:
    """Add kinds to the table.

    Raises:
        ValueError: an id is taken, or not of the form ``area.kebab-name``.
    """
    for kind in kinds:
        area, dot, name = kind.id.partition(".")
        if kind.id in _registry or not (area and dot and name.replace("-", "").isalnum()):
            raise ValueError(f"finding id {kind.id!r} is taken or malformed")
        _registry[kind.id] = kind


def find_kind(kind_id: str) -> FindingKind | None:
    """Return the kind with an id, where one that has been seen has it."""
    return _registry.get(kind_id)


def all_kinds() -> list[FindingKind]:
    """Every kind of finding: those of both families, then each family's in the order of its modules."""
    modules = [sys.modules[__name__], *map(import_module, _KIND_MODULES)]
    placed = {kind.id: kind for module in modules for kind in _kinds_in(module)}
    return list({**placed, **_registry}.values())


def pages_of(kind: FindingKind) -> list[str]:
    """Return the pages of the documentation on a kind, relative to its root and without a suffix: its own, that of
    the emergency guide, then those of the formats whose sections it names.
    """
    shared = kind in _kinds_in(sys.modules[__name__])
    families = [name for name in _KIND_MODULES if shared or kind in _kinds_in(import_module(name))]
    pages = [page for name in families for page in format_pages(kind.see, name.split(".")[1])]
    emergency = [kind.page] if kind.page and kind.severity is not Severity.NOTE else []
    return [f"reference/findings/{kind.id}", *emergency, *dict.fromkeys(pages)]


def format_pages(text: str, family: str) -> list[str]:
    """Return the pages under ``docs/formats`` that sections that a text names ("spec 10, A5") are on."""
    named = re.findall(r"\bspec ((?:A?\d[\w.]*|,| |to|\(\w\))+)", text)
    databases = any("A" in sections for sections in named)
    files = any(re.search(r"(?<!A)\b\d", sections) for sections in named)
    return [f"formats/{family}"] * files + ["formats/rocketmq-rocksdb"] * databases


def _kinds_in(module: ModuleType) -> Iterator[FindingKind]:
    """The kinds that a module declares, or names of others, and those of the modules in it."""
    for value in list(vars(module).values()):
        if isinstance(value, FindingKind):
            yield value
        elif isinstance(value, ModuleType) and value.__name__.startswith(f"{module.__name__}."):
            yield from _kinds_in(value)


# --- how two stores of any family can differ: A is the one named first, B the other ------------------

declare_difference = partial(declare, page="emergency/replica-differs")

DIFF_RECORD = declare_difference(
    "diff.record",
    Severity.ERROR,
    "The two logs hold different records at the same offset (of RocketMQ the physical one).",
    "Replicas must be equal byte for byte: run verify on both; repair --from takes the range from the sound one.",
    see="spec 2",
)
DIFF_ONLY_A = declare_difference(
    "diff.only-a",
    Severity.WARNING,
    "Messages that only A has: B's log begins later, ends earlier, or is damaged there.",
    "Nothing where B is an older copy or a slave that lags; else run verify on B.",
)
DIFF_ONLY_B = declare_difference(
    "diff.only-b",
    Severity.WARNING,
    "Messages that only B has: A's log begins later, ends earlier, or is damaged there.",
    "Nothing where A is an older copy or a slave that lags; else run verify on A.",
)
