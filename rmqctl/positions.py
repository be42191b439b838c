"""Positions of consumer groups that are to become others: which, where to, and what is read again or skipped by it.

A family says what it holds (:class:`Held`) and turns the changes into a plan; what is wanted is settled here, for all
families alike. A position is the offset of the next message that a group wants. None is set where nothing is: what
lies outside of a queue is brought to its nearer end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rmqctl.answer import EVERY_KIND, Proposal, Row, Section
from rmqctl.errors import Refused, WrongUsage
from rmqctl.families import FAMILIES
from rmqctl.filters import ALL, Names
from rmqctl.text import milliseconds_of, number_of

ACTIONS = ("show", "set", "copy", "clamp", "merge", "export", "import")
_DOCUMENT = "consumer-offsets"
_EDGES = ("earliest", "latest")


class Key(NamedTuple):
    """A group in a queue or partition."""

    group: str
    topic: str
    queue: int


class Position(NamedTuple):
    """The next offset that a group wants."""

    key: Key
    offset: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for; see :meth:`rmqctl.store.Store.offsets`."""

    action: str = "show"
    groups: Names = ALL
    topics: Names = ALL
    queue: int | None = None
    to: str | int | None = None
    to_group: str | None = None
    source: Sequence[Position] | None = None
    keep: str = "lowest"

    @property
    def changes(self) -> bool:
        """Whether positions are to become others."""
        return self.action not in {"show", "export"}

    def means(self, key: Key) -> bool:
        """Whether a position is asked for."""
        return self.groups.include(key.group) and self.topics.include(key.topic) and self.queue in {None, key.queue}


class Held(Protocol):
    """What a family says of the groups and queues of a store.

    Attributes:
        family: its name; queue_field: the key of rows that has the number of a queue.
    """

    family: str
    queue_field: str

    def positions(self) -> Mapping[Key, int]:
        """Every position that is stored."""
        ...

    def is_internal(self, group: str) -> bool:
        """Whether brokers themselves consume by a group: it changes only where it is named in full."""
        ...

    def name_error(self, group: str) -> str | None:
        """Say why no broker reads a position of a group of this name; None where it does."""
        ...

    def place(self, key: Key) -> str:
        """Return the file or partition in which the position of a group is, or would be, stored."""
        ...

    def queues(self, topic: str) -> Sequence[int]:
        """Numbers of the queues of a topic; none for one that is not known."""
        ...

    def limits(self, topic: str, queue: int) -> tuple[int, int] | None:
        """Smallest and next offset of a queue; None where it is on another broker."""
        ...

    def at_time(self, topic: str, queue: int, time: int) -> int:
        """Return the offset that a broker answers for a time in epoch ms; the end where every message is older."""
        ...

    def between(self, topic: str, queue: int, low: int, high: int) -> int:
        """Count the messages from one offset up to another."""
        ...

    def done(self, key: Key) -> Sequence[tuple[int, int]]:
        """Return what a group is done with after its position: the first offset of each range and the one after it."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A position that becomes another.

    Attributes:
        old: None where the group had none.
        limits: of the queue; None where it is not here.
        read_again, skipped: messages; None where nobody can say: the queue is elsewhere, or there was no position.
        left: messages from the new position to the end; None where the queue is elsewhere.
        note: what became of the offset that was asked for, where it is another.
    """

    key: Key
    old: int | None
    new: int
    limits: tuple[int, int] | None
    read_again: int | None
    skipped: int | None
    left: int | None
    note: str = ""

    def row(self, queue_field: str) -> Row:
        """Return the change as a row."""
        low, high = self.limits or (None, None)
        return {
            "kind": "offset_change", "group": self.key.group, "topic": self.key.topic, queue_field: self.key.queue,
            "from_offset": self.old, "to_offset": self.new, "min_offset": low, "max_offset": high,
            "read_again": self.read_again, "skipped": self.skipped, "lag": self.left, "note": self.note or None,
        }  # fmt: skip


@dataclass(slots=True)
class Wanted:
    """What a choice comes to.

    Attributes:
        changes: by group, topic and queue.
        unchanged: positions that are as they should be.
        unknown: queues that the store does not have.
    """

    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    unknown: list[Key] = field(default_factory=list)

    @property
    def summary(self) -> dict[str, Any]:
        """Counts for the end of the answer."""
        return {
            "changes": len(self.changes),
            "unchanged": self.unchanged,
            "unknown": len(self.unknown),
            "read_again": sum(change.read_again or 0 for change in self.changes),
            "skipped": sum(change.skipped or 0 for change in self.changes),
        }

    def sentences(self) -> Iterator[str]:
        """Say what the changes do, for people."""
        s = self.summary
        if self.changes:
            groups = number_of(len({change.key.group for change in self.changes}), "group")
            again, skipped = (number_of(s[name], "message", "are") for name in ("read_again", "skipped"))
            new = sum(change.old is None for change in self.changes)
            more = f"; {new:,} of them where there was none" if new else ""
            yield f"{number_of(s['changes'], 'position')} of {groups}: {again} read again, {skipped} skipped{more}"
        if self.unchanged:
            yield f"{number_of(self.unchanged, 'position', 'are')} there already"
        if self.unknown:
            first = self.unknown[0]
            more = f", and {len(self.unknown) - 1:,} more" if len(self.unknown) > 1 else ""
            yield f"left out, for the queue is not here: {first.group} in {first.topic}/{first.queue}{more}"


def wanted(asked: Choice, held: Held) -> Wanted:
    """Return the changes that are asked for.

    Raises:
        WrongUsage: what it needs is missing, or contradicts itself.
        Refused: several groups would write one position, or a group would get its first by a name that no broker reads.
    """
    stored, found = held.positions(), Wanted()
    targets = dict(sorted(_targets(asked, held, stored).items()))
    for key, (offset, note) in targets.items():
        if held.is_internal(key.group) and key.group not in {*asked.groups.exact, asked.to_group}:
            continue
        if key.queue not in held.queues(key.topic):
            found.unknown.append(key)
            continue
        error = None if key in stored else held.name_error(key.group)
        if error is not None:
            raise Refused(f"{key.group!r} is no name of a group: {error}; nothing was written; choose another name")
        change = _change(held, key, stored.get(key), offset, note)
        if change.new == change.old:
            found.unchanged += 1
        else:
            found.changes.append(change)
    return found


def _targets(asked: Choice, held: Held, stored: Mapping[Key, int]) -> dict[Key, tuple[int, str]]:
    if asked.action == "set":
        return _set(asked, held, stored)
    if asked.action == "clamp":
        return {key: (offset, "") for key, offset in stored.items() if asked.means(key)}
    source = stored if asked.source is None else {position.key: position.offset for position in asked.source}
    if asked.source is None and (asked.to_group is None or not asked.groups):
        raise WrongUsage(
            "--to-group" if asked.groups else "--group", f"is needed: {asked.action} from which group to which?"
        )
    found = dict[Key, tuple[int, str]]()
    take = max if asked.keep == "highest" else min
    for key, offset in source.items():
        if not asked.means(key):
            continue
        target = key if asked.to_group is None else key._replace(group=asked.to_group)
        if asked.action == "merge":
            others = [found[target][0]] if target in found else [stored[target]] if target in stored else []
            offset = take([offset, *others])
        elif target in found:
            raise Refused(
                f"two groups have a position in {key.topic}/{key.queue}, and {target.group} can have one; nothing was "
                "written; name one with --group, or merge them"
            )
        found[target] = offset, ""
    return found


def _set(asked: Choice, held: Held, stored: Mapping[Key, int]) -> dict[Key, tuple[int, str]]:
    if asked.to is None:
        raise WrongUsage("--to", "is needed: an offset, +N, -N, a time, earliest or latest.")
    if not asked.groups:
        raise WrongUsage("--group", "is needed: whose position is to be set?")
    keys = {key for key in stored if asked.means(key)}
    for group in asked.groups.exact:
        for topic in asked.topics.exact:
            queues = held.queues(topic)
            keys |= {Key(group, topic, queue) for queue in queues if asked.queue in {None, queue}}
    return {key: _resolved(asked.to, held, key, stored.get(key)) for key in sorted(keys)}


def _resolved(to: str | int, held: Held, key: Key, old: int | None) -> tuple[int, str]:
    """Return the offset that a text means for one position, and a note on it.

    Raises:
        WrongUsage: it means none.
        Refused: the queue is not here, and only it can say.
    """
    text = str(to).strip()
    if text[1:].isdigit() and text[0] in "+-" and text.isascii():
        if old is None:
            raise Refused(f"{key.group} has no position in {key.topic}/{key.queue} from which {text} could be counted")
        return old + int(text), ""
    if text.isascii() and text.isdigit() and len(text) < _TIME_DIGITS:
        return int(text), ""
    limits = held.limits(key.topic, key.queue)
    if limits is None:
        raise Refused(f"{key.topic}/{key.queue} is on another broker, so {text!r} means no offset here; give an offset")
    if text in _EDGES:
        return limits[_EDGES.index(text)], ""
    try:
        time = milliseconds_of(text)
    except ValueError as error:
        raise WrongUsage("--to", f"is an offset, +N, -N, a time, earliest or latest: {error}.") from None
    return held.at_time(key.topic, key.queue, time), ""


_LARGEST = (1 << 63) - 1
_TIME_DIGITS = 12
"""Digits from which a number is a time in epoch ms, and no offset."""


def _change(held: Held, key: Key, old: int | None, offset: int, note: str) -> Change:
    limits = held.limits(key.topic, key.queue)
    if limits is None:
        return Change(key, old, min(max(offset, 0), _LARGEST), None, None, None, None, note)
    low, high = limits
    new = min(max(offset, low), high)
    if new != offset:
        note = f"{offset} is {'before the first offset' if offset < low else 'after the end'}"
    again = skipped = None
    if old is not None:
        was = min(max(old, low), high)
        done = [(max(first, new), after) for first, after in held.done(key)]
        again = held.between(key.topic, key.queue, new, was) if new < was else 0
        again += sum(held.between(key.topic, key.queue, *one) for one in done if one[0] < one[1])
        passed = [(first, min(after, new)) for first, after in held.done(key)]
        skipped = held.between(key.topic, key.queue, was, new) if was < new else 0
        skipped -= sum(held.between(key.topic, key.queue, *one) for one in passed if one[0] < one[1])
    return Change(key, old, new, limits, again, skipped, held.between(key.topic, key.queue, new, high), note)


# --- answers ----------------------------------------------------------------------------------------------


def shown(asked: Choice, held: Held, answer: Proposal) -> None:
    """Fill an answer with the positions that are stored, as rows or as the document that `import` takes."""
    stored = {key: offset for key, offset in sorted(held.positions().items()) if asked.means(key)}
    answer.is_no = not stored
    if not stored:
        answer.remark("no position of a group is stored that is asked for; rmqctl lag lists all groups")
    if asked.action == "export":
        answer.document = lambda: {
            "kind": _DOCUMENT, "family": held.family, "positions": [_row(held, key, at) for key, at in stored.items()]
        }  # fmt: skip
        answer.document_kinds = EVERY_KIND
        return

    def rows() -> Iterator[Row]:
        for key, offset in stored.items():
            is_known = key.queue in held.queues(key.topic)
            low, high = (held.limits(key.topic, key.queue) if is_known else None) or (None, None)
            done = sum(after - first for first, after in held.done(key))
            yield _row(held, key, offset) | {
                "min_offset": low, "max_offset": high, "lag": None if high is None else high - offset - done,
                "file": held.place(key),
            }  # fmt: skip

    answer.rows = rows()


def _row(held: Held, key: Key, offset: int) -> dict[str, Any]:
    return {"group": key.group, "topic": key.topic, held.queue_field: key.queue, "consumer_offset": offset}


def elsewhere(now: Mapping[Key, int], expected: Mapping[Key, int], between: str) -> list[str]:
    """Return the positions that a store has otherwise than expected, a sentence each.

    Args:
        between: what stands between a topic and the number of a queue.
    """
    return [
        f"{key.group} in {key.topic}{between}{key.queue} is at {now.get(key)}, and not at {offset}"
        for key, offset in expected.items()
        if now.get(key) != offset
    ]


def show_changes(found: Wanted, held: Held, answer: Proposal) -> None:
    """Fill an answer with the changes that a plan makes."""
    rows = [change.row(held.queue_field) for change in found.changes]
    books = {} if answer.books is None else {"books": answer.books.document()}
    answer.rows = rows
    answer.document = lambda: {"summary": {**found.summary, **books}, "changes": rows}
    answer.summary = lambda: {"kind": "summary", **found.summary, **books}
    columns = [name for name in (rows[0] if rows else ()) if name not in {"kind", "min_offset", "max_offset"}]
    if not any(change.note for change in found.changes):
        columns = [name for name in columns if name != "note"]
    answer.sections = lambda: [
        Section(rows=rows, columns=columns, is_optional=True),
        Section(lines=[*([""] if rows else []), *found.sentences()], folds=True),
    ]
    if not (found.changes or found.unchanged):
        answer.is_no = True
        answer.remark("no position matches what is asked for; rmqctl lag lists all groups")


# --- the document -----------------------------------------------------------------------------------------


def positions_of(text: str | bytes) -> tuple[str, list[Position]]:
    """Return the family and the positions of a document that `export` printed.

    Raises:
        ValueError: it is none; the text says why.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(document, dict) or document.get("kind") != _DOCUMENT:
        raise ValueError(f'it is no object with "kind": "{_DOCUMENT}" and "family"')
    if document.get("family") not in FAMILIES:
        raise ValueError(f'"family" is one of {", ".join(FAMILIES)}')
    if not isinstance(document.get("positions"), list):
        raise ValueError('"positions" is no list')
    found = []
    for row in document["positions"]:
        values = row if isinstance(row, dict) else {}
        queue, offset = values.get("queue_id", values.get("partition")), values.get("consumer_offset")
        group, topic = values.get("group"), values.get("topic")
        if not (type(queue) is type(offset) is int and isinstance(group, str) and isinstance(topic, str)):
            raise ValueError(f"{json.dumps(row)} has not group, topic, queue_id or partition, and consumer_offset")
        f"{group}{topic}".encode("utf-8", "surrogateescape")  # whose error is a ValueError
        found.append(Position(Key(group, topic, queue), offset))
    return document["family"], found


def positions_in(rows: Iterable[Row]) -> list[Position]:
    """Return positions from the rows that `show` gives."""
    return [
        Position(
            Key(r["group"], r["topic"], r["queue_id"] if "queue_id" in r else r["partition"]), r["consumer_offset"]
        )
        for r in rows
    ]
