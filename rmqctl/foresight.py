"""What a start of another release, or with other settings, does to a store: the verdict, its reasons, the way back and
how long it takes. For both families.

The verdict is that of the replayed start and of nothing else: what a release does not read, a family's table says, and
the replay takes it from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from rmqctl.answer import Answer, Row, Section
from rmqctl.notices import Notice
from rmqctl.text import listed, number_of

if TYPE_CHECKING:
    from rmqctl.files.local import ByteSource
    from rmqctl.release import Release

_NAMED = 3
"""Places that dominate a start which are named."""
_SAMPLE, _PIECE, _LOOK_SECONDS = 64 << 20, 1 << 20, 0.5
"""Bytes that are read at most to measure the disk, in pieces, and for how long."""


class Effect(StrEnum):
    """What a start does to a part of a store, or what becomes of a setting."""

    REFUSES = "refuses"
    LOSES = "loses"
    HIDES = "hides"
    DELETES = "deletes"
    MIGRATES = "migrates"
    CHANGES = "changes"
    IGNORES = "ignores"


_HARM = (Effect.REFUSES, Effect.LOSES, Effect.HIDES)
_ORDER = [*Effect]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a start does otherwise than the one before it.

    Attributes:
        id: of the part or setting, ``<area>.<name>``.
        about: files of the store, or a setting.
        message: what happens to it, one phrase.
        source: class and release, or KIP, from which it is known.
        before: what to do first, one sentence; "" for nothing.
        back: what the release that was here does with it when it comes back; "" where it finds it as it left it.
    """

    id: str
    effect: Effect
    about: str
    message: str
    source: str
    before: str = ""
    back: str = ""

    @property
    def harms(self) -> bool:
        """Whether consumers or operators miss something for it."""
        return self.effect in _HARM

    def row(self) -> Row:
        """As a JSON object."""
        shown = {name: getattr(self, name) for name in ("id", "effect", "about", "message", "source")}
        return {"kind": "statement", **shown, "before": self.before or None}


@dataclass(frozen=True, slots=True)
class Load:
    """What a start reads in one place.

    Attributes:
        path: relative to the store.
        size: bytes; files: how many are opened; records: how many are checked one by one.
    """

    path: str
    size: int
    files: int = 1
    records: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a broker of a family starts.

    Attributes:
        base_seconds: from the start of its virtual machine to the end of its start where the store is empty.
        bytes_per_second: that it checks where the disk is faster.
        seconds_per_file: to open and map one; seconds_per_record: to check one, apart from its bytes;
            seconds_per_entry: to make one of an index or a queue.
    """

    base_seconds: float
    bytes_per_second: float
    seconds_per_file: float
    seconds_per_record: float
    seconds_per_entry: float


@dataclass(slots=True)
class Estimate:
    """How long a start takes on a disk.

    Attributes:
        loads: what it reads, in any order.
        rebuilt: index entries and queue units that it makes.
        bytes_per_second: as measured, at most that of the broker.
    """

    loads: Sequence[Load]
    rebuilt: int
    pace: Pace
    bytes_per_second: float

    def seconds(self, load: Load) -> float:
        """For one place."""
        pace = self.pace
        single = load.files * pace.seconds_per_file + load.records * pace.seconds_per_record
        return load.size / self.bytes_per_second + single

    @property
    def held_seconds(self) -> float:
        """For what the store holds."""
        return sum(map(self.seconds, self.loads)) + self.rebuilt * self.pace.seconds_per_entry

    def document(self) -> Row:
        """As a JSON object."""
        longest = sorted(self.loads, key=self.seconds, reverse=True)[:_NAMED]
        return {
            "seconds": round(self.pace.base_seconds + self.held_seconds, 3),
            "base_seconds": self.pace.base_seconds,
            "bytes": sum(load.size for load in self.loads),
            "files": sum(load.files for load in self.loads),
            "rebuilt": self.rebuilt,
            "bytes_per_second": round(self.bytes_per_second),
            "longest": [
                {"path": one.path, "bytes": one.size, "seconds": round(self.seconds(one), 3)} for one in longest
            ],
        }


def measured_rate(sources: Iterable[ByteSource], most: float) -> float:
    """Return bytes a second at which files can be read, at most that many: a little of them is read.

    Where the system holds the files in memory it is fast; a start soon afterwards finds them there, too.
    """
    done, begin = 0, time.perf_counter()
    for source in sources:
        try:
            for at in range(0, source.size(), _PIECE):
                done += len(source.read_at(at, _PIECE))
                if done >= _SAMPLE or time.perf_counter() - begin > _LOOK_SECONDS:
                    return min(most, done / max(time.perf_counter() - begin, 1e-6))
        finally:
            source.close()
    return min(most, done / max(time.perf_counter() - begin, 1e-6)) if done else most


@dataclass(slots=True)
class ForeseenStart:
    """A replayed start, in the words of both families.

    Attributes:
        lost, hidden: messages or records that are gone, and that no consumer gets, as `recover` has them.
        unit: what is counted.
        harm: what it changes for the worse, one phrase; "" where it is harmless.
        unknown: why it cannot be known what it serves; "" where it can.
        statements: what of the store it does not read, or reads otherwise.
        unserved: of which topics it serves nothing that are there whole, one phrase; "" for none.
    """

    release: Release
    starts: bool
    error: str | None
    lost: Row
    hidden: Row
    unit: str
    harm: str
    unknown: str = ""
    statements: Sequence[Statement] = ()
    unserved: str = ""

    @property
    def verdict(self) -> str:
        """``starts``, ``loses`` or ``refuses``; ``unknown`` where that is all that can be said."""
        if not self.starts:
            return "refuses"
        if self.harm:
            return "loses"
        return "unknown" if self.unknown else "starts"

    def document(self) -> Row:
        """As a JSON object."""
        return {
            "release": str(self.release), "verdict": self.verdict, "starts": self.starts, "error": self.error,
            "lost": self.lost, "hidden": self.hidden, "harm": self.harm or None, "unknown": self.unknown or None,
        }  # fmt: skip


@dataclass(slots=True)
class Foresight:
    """A start to come.

    Attributes:
        kind, root: of the store.
        shown: lowest and highest release that the store shows.
        start: of the release asked for.
        back: the start of the release shown, after it; None where that is the same release.
        settings: what becomes of the settings that were given.
        written: what the release writes that the one shown does not read, once it is used.
        estimate: how long it takes; None where it does not start.
    """

    kind: str
    root: str
    shown: Sequence[str]
    start: ForeseenStart
    back: ForeseenStart | None
    settings: Sequence[Statement] = ()
    written: Sequence[Statement] = ()
    estimate: Estimate | None = None

    @property
    def statements(self) -> list[Statement]:
        """All of the start, those that harm first."""
        return sorted([*self.start.statements, *self.settings], key=lambda one: _ORDER.index(one.effect))

    def document(self) -> Row:
        """Return the object of ``preflight -o json``."""
        before = list(dict.fromkeys(one.before for one in self.statements if one.before))
        start = self.start.document()
        back = self.back
        return {
            "kind": "preflight",
            "store": self.kind,
            "path": self.root,
            "from": list(self.shown),
            "to": start["release"],
            **{name: start[name] for name in ("verdict", "starts", "error", "lost", "hidden", "harm", "unknown")},
            "statements": [one.row() for one in self.statements],
            "before": before,
            "back": None if back is None else {**back.document(), "statements": [one.row() for one in self._back()]},
            "estimate": None if self.estimate is None else self.estimate.document(),
        }

    def _back(self) -> list[Statement]:
        return [*self.written, *(one for one in self.statements if one.back)]


def answer_of(look: Callable[[], Foresight], answer: Answer) -> Answer:
    """Fill an answer with a start to come, which is looked at when the answer is made."""
    found: list[Foresight] = []

    def make() -> None:
        seen = look()
        found.append(seen)
        answer.rows = [one.row() for one in seen.statements]
        answer.is_no = seen.start.verdict != "starts"

    answer.make = make
    answer.document = lambda: found[0].document()  # noqa: PLW0108 -- it is found when it is made
    answer.summary = lambda: {**found[0].document(), "kind": "summary"}
    answer.sections = lambda: _sections(found[0], every=answer.every)
    return answer


# --- on a terminal --------------------------------------------------------------------------------------


def _sections(found: Foresight, *, every: bool) -> Iterator[Section]:
    yield Section(lines=[_headline(found), *(f"  {line}" for line in _costs(found.start))], folds=True)
    before = dict.fromkeys(one.before for one in found.statements if one.before)
    yield Section(lines=[f"Before: {sentence}" for sentence in before], folds=True)
    yield Section(lines=[*_way_back(found, every=every), *_how_long(found), ""], folds=True)
    ignored = [one.about for one in found.statements if one.effect is Effect.IGNORES and not every]
    shown = [one for one in found.statements if every or one.effect is not Effect.IGNORES]
    yield Section(notices=[_notice(one) for one in shown])
    if ignored:
        yield Section(lines=[f"It ignores, and nothing depends on it: {', '.join(ignored)} (--all)"], folds=True)


def _headline(found: Foresight) -> str:
    start, broker = found.start, f"A {found.start.release} broker"
    if start.verdict == "refuses":
        return f"{broker} does not start here: {start.error}"
    if start.verdict == "unknown":
        return f"{broker} starts, and what it serves cannot be known: {start.unknown}"
    if start.verdict == "starts":
        return f"{broker} starts and loses nothing."
    costs = [
        f"{word} {number_of(amount[f'{start.unit}s'], start.unit)}"
        for word, amount in (("loses", start.lost), ("keeps from consumers", start.hidden))
        if amount.get(f"{start.unit}s")
    ]
    if without := [one.about for one in start.statements if one.harms]:
        costs.append(f"does without {_some(without, every=False)}")
    if start.unserved:
        costs.append(f"serves {start.unserved}")
    return f"{broker} starts and {', '.join(costs)}." if costs else f"{start.harm[0].upper()}{start.harm[1:]}"


def _costs(start: ForeseenStart) -> Iterator[str]:
    for word, amount in (("Lost", start.lost), ("Not given to consumers", start.hidden)):
        if amount.get("by_topic"):
            yield f"{word}: {listed(amount['by_topic'])}"


def _way_back(found: Foresight, *, every: bool) -> Iterator[str]:
    back = found.back
    if back is None or not found.start.starts:
        return
    release = back.release
    if back.verdict == "refuses":
        yield f"No way back: a {release} broker does not start here: {back.error}"
    elif back.verdict == "loses":
        yield f"The way back to {release} costs: {back.harm}"
    elif found.written:
        names = _some([one.about for one in found.written], every=every)
        yield f"Back to {release}: yes, as long as nobody uses what it does not read: {names}"
    else:
        yield f"Back to {release}: yes"
    sentences: dict[str, list[str]] = {}
    for one in found.statements:
        if one.back:
            sentences.setdefault(one.back, []).append(one.about)
    for sentence, parts in sentences.items():
        yield f"  {', '.join(parts)}: {sentence}"


def _some(names: Sequence[str], *, every: bool) -> str:
    more = 0 if every else len(names) - _NAMED
    return ", ".join(names[:_NAMED] if more > 0 else names) + (f" and {more:,} more" if more > 0 else "")


def _how_long(found: Foresight) -> Iterator[str]:
    if found.estimate is None:
        return
    said = found.estimate.document()
    made = f", {said['rebuilt']:,} entries of indexes and queues are made" if said["rebuilt"] else ""
    read = f"The start: {said['bytes']:,} bytes in {number_of(said['files'], 'file')} are read{made}"
    held = said["seconds"] - said["base_seconds"]
    if held < 1:
        yield f"{read}: about {said['base_seconds']:.0f} s, as with an empty store"
        return
    rate = f"{said['bytes_per_second'] / 1e6:,.0f} MB/s"
    yield f"{read}: about {_seconds(said['seconds'])}, {_seconds(held)} of them for what it holds, at {rate}"
    longest = [f"{one['path']} {_seconds(one['seconds'])}" for one in said["longest"]]
    yield f"  Longest: {', '.join(longest)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _notice(one: Statement) -> Notice:
    lines = [one.message, f"Source: {one.source}"]
    return Notice(str(one.effect), one.id, one.about, lines)
