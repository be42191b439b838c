"""The walk through the index that a broker makes for a key (spec 4.6).

Source of the rules: IndexService.queryOffset, IndexFile.selectPhyOffset and isTimeMatched.

Of each file the header, one slot and the entries of one chain are read, 20 bytes each. The walk keeps
to the broker's rules even where the bytes are damaged, but always ends: a circle in which a broker
would run for ever is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from formats.rocketmq.index import key_hash
from rmqctl.rocketmq.index.files import IndexEntry, IndexFile
from rmqctl.rocketmq.query.steps import Trace, instant, span

MAX_BATCH = 64
"""`maxMsgsNumBatch`: candidates that a broker collects at most, whatever it is asked for."""


class End(StrEnum):
    """Why a broker reads no further in one file."""

    TIME = "the file's times do not touch those asked for"
    EMPTY = "the slot is empty"
    NO_ENTRIES = "the header says that there are no entries"
    SLOT = "the slot points behind the last entry"
    FIRST = "the chain ends"
    LIMIT = "enough candidates"
    NEGATIVE = "its time is negative"
    RANGE = "the entry before it has a number out of range"
    SELF = "it names itself as the entry before it"
    BEFORE = "it is older than the time asked for"
    CIRCLE = "the chain comes back to an entry it has passed"
    OUTSIDE = "the file has no such entry"


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What the index is asked.

    Attributes:
        text: what was hashed: ``topic#key``, or ``topic#T#tags``.
        begin, end: store times in epoch ms, both inclusive.
        max: candidates wanted; never more than ``batch``.
        batch: the broker's `maxMsgsNumBatch`.
    """

    text: str
    begin: int
    end: int
    max: int = MAX_BATCH
    batch: int = MAX_BATCH

    @property
    def hash(self) -> int:
        return key_hash(self.text)

    @property
    def limit(self) -> int:
        return min(self.max, self.batch)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry with the wanted hash and a time asked for.

    Attributes:
        number: of the entry in its file.
        time: of the entry in epoch ms, in whole seconds from the first entry of the file.
    """

    file: str
    number: int
    physical_offset: int
    time: int


@dataclass(slots=True)
class Chain:
    """What was read of one file.

    Attributes:
        slot: number of the slot; newest: what it holds.
        last: number of the last entry read, 0 without one.
        entries: how many were read.
    """

    file: IndexFile
    end: End
    slot: int = 0
    newest: int = 0
    last: int = 0
    entries: int = 0


@dataclass(slots=True)
class Walk:
    """The answer of the index.

    Attributes:
        candidates: in the broker's order: newest file first, newest entry of a chain first.
        chains: one a file that was looked at, newest file first.
        cut_at: the file whose begin made the broker look into no older one, None when it saw all it wanted.
    """

    candidates: list[Candidate] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    cut_at: IndexFile | None = None

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of the candidates, repeats included."""
        return [c.physical_offset for c in self.candidates]

    @property
    def endless(self) -> bool:
        """Whether a broker would never come back from this walk."""
        return any(c.end is End.CIRCLE for c in self.chains)


def walk_index(files: Iterable[IndexFile], query: IndexQuery, trace: Trace) -> Walk:
    """Ask the index files, given oldest first.

    Raises:
        OSError: a file cannot be read.
    """
    walk = Walk()
    for file in reversed(list(files)):
        begin, end = file.header["begin_timestamp"], file.header["end_timestamp"]
        times = f"{instant(begin)} to {instant(end)}" if trace.on else ""
        asked = span(query.begin, query.end) if trace.on else ""
        if is_time_matched(file, query):
            trace.add(file.path, "index file", f"{times} overlaps {asked}: looked into")
            walk.chains.append(_Chase(file, query, walk.candidates, trace).run())
        else:
            trace.add(file.path, "index file", f"{times} does not overlap {asked}: passed over")
            walk.chains.append(Chain(file, End.TIME))
        if begin < query.begin:
            trace.add(file.path, "index file", "begins before the time asked for: older files are not looked at")
            walk.cut_at = file
            break
        if len(walk.candidates) >= query.limit:
            trace.add(file.path, "index file", f"{query.limit} candidates: older files are not looked at")
            break
    return walk


def is_time_matched(file: IndexFile, query: IndexQuery) -> bool:
    """Whether a broker looks into a file (IndexFile.isTimeMatched), with its answer for a begin behind the end too."""
    first, last = file.header["begin_timestamp"], file.header["end_timestamp"]
    around = query.begin < first and query.end > last
    return around or first <= query.begin <= last or first <= query.end <= last


class _Chase:
    """One chain of one file followed."""

    def __init__(self, file: IndexFile, query: IndexQuery, found: list[Candidate], trace: Trace) -> None:
        self.file, self.query, self.found, self.trace = file, query, found, trace
        self.hash, self.limit = query.hash, query.limit
        self.count = max(file.header["index_count"], 1)  # the number of the next entry (IndexHeader.load)
        self.chain = Chain(file, End.FIRST, self.hash % max(file.geometry.slots, 1))
        self._turns: dict[int, int] = {}

    def run(self) -> Chain:
        """Follow the chain from its slot."""
        chain = self.chain
        chain.newest = self.file.slot(chain.slot)
        number, end = chain.newest, self._slot_end()
        what = "empty" if chain.newest <= 0 else f"newest entry is {chain.newest}"
        note = "" if end in {None, End.EMPTY} else f": {end}, as the header counts {self.count - 1}"
        self.trace.add(self.file.path, f"slot {chain.slot}", f"{what}{note}")
        while end is None:
            number, end = self._step(number)
        chain.end = end
        return chain

    def _slot_end(self) -> End | None:
        if self.count <= 1:
            return End.NO_ENTRIES
        if self.chain.newest <= 0:
            return End.EMPTY
        return End.SLOT if self.chain.newest > self.count else None

    def _step(self, number: int) -> tuple[int, End | None]:
        """Look at one entry; the number of the next, and why there is none."""
        if len(self.found) >= self.limit:
            self._note(number, f"not looked at: {self.limit} candidates are enough")
            return number, End.LIMIT
        entry = self.file.entry(number)
        self.chain.last, self.chain.entries = number, self.chain.entries + 1
        if entry is None:
            self._note(number, str(End.OUTSIDE))
            return number, End.OUTSIDE
        if entry.time_difference < 0:
            self._note(number, str(End.NEGATIVE))
            return number, End.NEGATIVE
        time = self.file.header["begin_timestamp"] + entry.time_difference * 1000
        kept = self._take(number, entry, time)
        end = self._chain_end(number, entry, time)
        if self.trace.on:
            why = "" if end in {None, End.FIRST} else f"; {end}: the chain is left"
            what = f"hash {entry.key_hash}, offset {entry.physical_offset}, time {instant(time)}"
            self._note(number, f"{what}: {kept}{why}")
        return entry.previous, end

    def _take(self, number: int, entry: IndexEntry, time: int) -> str:
        if entry.key_hash != self.hash:
            return "dropped, another hash"
        if not self.query.begin <= time <= self.query.end:
            return "dropped, outside the time asked for"
        self.found.append(Candidate(self.file.path, number, entry.physical_offset, time))
        return "candidate"

    def _chain_end(self, number: int, entry: IndexEntry, time: int) -> End | None:
        previous = entry.previous
        if previous <= 0:
            return End.FIRST if previous == 0 else End.RANGE
        if previous > self.count:
            return End.RANGE
        if previous == number:
            return End.SELF
        if time < self.query.begin:
            return End.BEFORE
        return self._circle(number) if previous > number else None

    def _circle(self, number: int) -> End | None:
        """A sound chain goes only to lower numbers, so a circle has an entry that goes up, and comes back to it.

        A broker runs round until it has enough candidates; where a round gives none it never ends.
        """
        before = self._turns.get(number)
        self._turns[number] = len(self.found)
        return End.CIRCLE if before == len(self.found) else None

    def _note(self, number: int, result: str) -> None:
        self.trace.add(self.file.path, f"entry {number}", result)
