"""The life of one message: what happened to it in order, each step with its evidence, and one sentence at the end.

A family collects the steps and judges; here is what both share: the steps as rows, and which place a text names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqctl.answer import Answer, Row, Section
from rmqctl.findings import header_of
from rmqctl.text import instant, number_of

_PLACE = re.compile(r"(.+)[/-](\d{1,9})@(\d{1,18})")
_COLUMNS = ("time", "what", "file", "position", "text")


def place_in(text: str) -> tuple[str, int, int] | None:
    """Return topic, queue and offset that ``TOPIC/QUEUE@OFFSET`` or ``TOPIC-PARTITION@OFFSET`` names; None for another
    text.
    """
    found = _PLACE.fullmatch(text) if text.isascii() or "@" in text else None
    return (found[1], int(found[2]), int(found[3])) if found else None


@dataclass(frozen=True, slots=True)
class Event:
    """One step in the life of a message.

    Attributes:
        what: the kind of step, one word or two.
        text: what happened, one sentence.
        time: epoch ms; None where no file has it.
        file, position: the evidence: a file relative to the store, and a byte in it; None where it has no byte of its
            own.
        more: what else is known, by name.
    """

    what: str
    text: str
    time: int | None = None
    file: str | None = None
    position: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Return the JSON object of the contract."""
        own = {"what": self.what, "time": self.time, "file": self.file, "position": self.position, "text": self.text}
        return own | {name: value for name, value in self.more.items() if name not in own}


@dataclass(frozen=True, slots=True)
class Life:
    """What became of one message.

    Attributes:
        name: what it is called, for people.
        identity: its place and its keys, by name.
        events: in order.
        fate: one word for the end: ``passed``, ``rolled-back``, ``unknown``.
        sentence: the end in words.
    """

    name: str
    identity: Mapping[str, Any]
    events: Sequence[Event]
    fate: str
    sentence: str

    def document(self) -> dict[str, Any]:
        """Return all of it as one object."""
        events = [event.row() for event in self.events]
        return {"name": self.name, **self.identity, "events": events, "fate": self.fate, "sentence": self.sentence}

    def rows(self, number: int) -> Iterator[Row]:
        """Yield a row for each step, then the end; ``life`` counts from 1."""
        for event in self.events:
            yield {"kind": "event", "life": number, **event.row()}
        end = {"name": self.name, **self.identity, "fate": self.fate, "sentence": self.sentence}
        yield {"kind": "fate", "life": number, **end}


_KEYS = """
    kind life name what time file position text group consumer_offset topic unique_key keys queue_id queue_offset
    physical_offset partition offset key producer_id producer_epoch transactional leader_epoch sequence fate sentence
"""


def show_lives(answer: Answer, asked: str, lives: Sequence[Life], *, more: int = 0) -> None:
    """Fill an answer with lives, the newest first.

    Args:
        asked: what was asked for, as typed.
        more: lives that were found besides.
    """
    answer.rows = [row for number, life in enumerate(lives, 1) for row in life.rows(number)]
    answer.header = header_of(_KEYS)
    answer.document = lambda: {"asked": asked, "lives": [life.document() for life in lives], "more": more}
    answer.sections = lambda: _sections(lives)
    answer.is_no = all(life.fate == "unwritten" for life in lives)
    if more:
        answer.remark(f"{number_of(more, 'more message', 'have')} this key: -n shows more of them")


def _sections(lives: Iterable[Life]) -> Iterator[Section]:
    for number, life in enumerate(lives):
        yield Section(lines=[""] if number else [])
        if life.events:
            yield Section(rows=[event.row() for event in life.events], columns=_COLUMNS, title=life.name, is_fixed=True)
        else:
            yield Section(lines=[life.name])
        yield Section(lines=["", f"=> {life.sentence} [{life.fate}]"], folds=True)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return steps by time; one without a time stays after all those that came before it."""
    latest, keyed = -1, list[tuple[int, Event]]()
    for event in events:
        latest = max(latest, event.time or -1)
        keyed.append((latest if event.time is None else event.time, event))
    return [event for _, event in sorted(keyed, key=lambda pair: pair[0])]


def at_time(milliseconds: int | None) -> str:
    """Return `` at TIME`` for a sentence; "" where it is not known."""
    return "" if milliseconds is None or milliseconds < 0 else f" at {instant(milliseconds)}"


def named(names: Iterable[str]) -> str:
    """Return names as words: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
