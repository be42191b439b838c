"""The judge of every plan that writes: whole records before it and after it, by what they are, not by where they lie.

A record that is whole by its own proof is a fact wherever it lies; names of files, units, indexes and neighbours are
claims about it. So the books are made from the bytes alone, on both sides of a plan: each record of before is kept, put
back to the place that it names, given up by name, or garbage with a proof, and each record of after was there before,
says that it is a placeholder, or is healed with a proof. Nothing is shared with those who make plans but the scan, by
which a family finds its records.

Read are the stretches that a plan changes, once on each side. What stays where it is needs no memory, nor what moves by
a few records; of one that goes far 28 bytes are kept on each side, of one that has to be named all of it.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmqctl.errors import Refused
from rmqctl.files.tree import Tree
from rmqctl.repair.changes import PlannedFile, named, planned_files
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import STORE, Plan, Step
from rmqctl.text import number_of

_NUMBER = re.compile(r"[/-]\d+$")
"""What follows the topic in the name of a queue or a partition."""

Stretches = Sequence[tuple[int, int]]
"""Begin and end of parts of a file in bytes, ascending."""
_WINDOW = 1 << 20
_MOST_WAITING = 1 << 12
"""Records that are held against the next ones of the other side."""


@dataclass(frozen=True, slots=True)
class WholeRecord:
    """A record or batch that is whole by its own proof, on one side of a plan.

    Attributes:
        identity: 16 bytes that tell it from every other: a digest of its bytes, and of what it belongs to.
        name: for people, and for `Step.gives_up`: what it says of itself, and its CRC.
        file, position, size: where it lies, bytes.
        home: the place that it names, in the family's own count.
        records: messages in it, or for which it stands.
        is_at_home: it lies at the place that it names.
        is_placeholder: it says of itself that it stands where others were destroyed.
        queue: the queue or partition that it says it belongs to.
        offset, span: the offsets in it that it takes, the first and how many.
        open: bytes at its end that its proof does not cover; a record in them is none of what it says.
    """

    identity: bytes
    name: str
    file: str
    position: int
    size: int
    home: int = -1
    records: int = 1
    is_at_home: bool = True
    is_placeholder: bool = False
    queue: str = ""
    offset: int = -1
    span: int = 0
    open: int = 0

    @property
    def end(self) -> int:
        return self.position + self.size


class Ledger(Protocol):
    """What a family says of its records. Nothing raises on what the bytes are."""

    def files(self, tree: Tree) -> Iterable[str]:
        """Every file that may hold records, left-overs and files under wrong names too."""
        ...

    def whole(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[WholeRecord]:
        """Every whole record that overlaps the stretches (None: of the whole file), ascending by place.

        Those that lie elsewhere than they say too; those inside of others may be left out. Nothing for a file that
        never holds records.
        """
        ...

    def at_home(self, tree: Tree, record: WholeRecord) -> bool:
        """Whether these very bytes stand at the place that the record names."""
        ...

    def garbage(self, before: Tree, after: Tree, record: WholeRecord) -> str:
        """Why nothing is lost with a record that is gone and has no copy at home afterwards; "" for no reason."""
        ...

    def made(self, before: Tree, after: Tree, record: WholeRecord, origin: str) -> str:
        """What proves a record that was not there: the damaged one in its place, a replica; "" where nothing does.

        Args:
            origin: name that its file had before; "" for a new file.
        """
        ...

    def torn(self, tree: Tree, file: str, stretches: Stretches | None) -> Iterator[tuple[int, int]]:
        """Where records begin that are not whole, and how many messages each had."""
        ...

    def outcomes(self, tree: Tree, files: Sequence[str]) -> Mapping[str, str]:
        """What became of each transaction in these files, by its name for people."""
        ...

    def start(self, before: Tree, after: Tree) -> Sequence[str]:
        """What a start on the result cuts, deletes or hides, and on the store as it is would not; a sentence each."""
        ...


Count = tuple[str, Stretches | None, int]
"""A file, parts of it (None: all), and how many whole records have a byte in them."""


@dataclass(slots=True)
class Books:
    """Records before and after a plan, counted in messages.

    Attributes:
        whole_before: whole ones in all of the store, or in what the plan touches where nobody counted them all; each
            place counts.
        moved: put back to the place that they name.
        garbage: gone, with a proof that nothing is lost.
        given_up: gone, and named by a step.
        placeholders: messages for which new placeholders stand.
        healed: that were not whole and are now.
        destroyed: that were not whole and have neither record nor placeholder now.
        doubled: given up and replaced by a placeholder, which is one loss.
        transactions_changed: names of those with another outcome.
        problems: what does not balance, a sentence each.
        lost: records that are gone and that no step names, as they were.
        unproven: places that records name which were not there before and which nothing proves.
        gives_up: names of the records that a copy has not.
        by_queue: of the messages that are given up or replaced by placeholders, how many each queue or partition loses.
        before, after: what was read on each side and has whole records.
    """

    whole_before: int = 0
    moved: int = 0
    garbage: int = 0
    given_up: int = 0
    placeholders: int = 0
    healed: int = 0
    destroyed: int = 0
    doubled: int = 0
    transactions_changed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: list[WholeRecord] = field(default_factory=list)
    unproven: set[int] = field(default_factory=set)
    gives_up: list[str] = field(default_factory=list)
    by_queue: Counter[str] = field(default_factory=Counter)
    before: list[Count] = field(default_factory=list)
    after: list[Count] = field(default_factory=list)

    @property
    def by_topic(self) -> dict[str, int]:
        """Messages that are lost and are known to be of a topic, by topic, the most first."""
        topics = Counter[str]()
        for queue, count in self.by_queue.items():
            topics[_NUMBER.sub("", queue)] += count
        return {topic: count for topic, count in topics.most_common() if topic and count > 0}

    @property
    def balances(self) -> bool:
        return not self.problems

    @property
    def kept(self) -> int:
        """Whole records that stay where they are, byte for byte."""
        return self.whole_before - self.moved - self.garbage - self.given_up

    @property
    def loses(self) -> int:
        """Messages that the store had, whole or in pieces, and has no more."""
        return self.given_up + self.placeholders + self.destroyed - self.doubled

    def document(self) -> dict[str, Any]:
        """Return the object ``books`` of JSON."""
        return {
            "whole_before": self.whole_before,
            "kept": self.kept,
            "moved": self.moved,
            "garbage": self.garbage,
            "given_up": self.given_up,
            "placeholders": self.placeholders,
            "healed": self.healed,
            "transactions_changed": len(self.transactions_changed),
            "balances": self.balances,
        }

    def for_journal(self) -> dict[str, Any]:
        """Return what a journal keeps of them, so that whoever takes the plan back can count again."""
        return {"plan": self.document(), "turns": 0, "before": self.before, "after": self.after}

    def sentence(self) -> str:
        """Return the one line of a table."""
        parts = [f"{self.whole_before:,} whole before", f"{self.kept:,} kept"]
        named_counts = {"moved": self.moved, "garbage": self.garbage, "given up": self.given_up}
        parts += [f"{count:,} {name}" for name, count in named_counts.items() if count]
        parts += [number_of(self.placeholders, "placeholder")] if self.placeholders else []
        parts += [f"{self.healed:,} healed"] if self.healed else []
        changed = len(self.transactions_changed)
        parts += [f"{number_of(changed, 'transaction')} changed"] if changed else []
        if not self.whole_before:
            parts[:2] = ["none lies in what changes"]
        end = "the books balance" if self.balances else f"the books do not balance: {named(self.problems)}"
        return f"records: {', '.join(parts)}; {end}"

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table for a copy: what it has not, and the sentence."""
        if self.gives_up:
            yield f"  given up, for another has the place: {named(self.gives_up)}"
        yield self.sentence()

    def refusal(self) -> Refused | None:
        """Return why the plan may not be carried out; None where it balances."""
        if self.balances:
            return None
        return Refused(f"the books of this plan do not balance: {named(self.problems)}; nothing was changed")


def turned(kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what the journal of a run keeps that takes back the run of a journal; None where that keeps nothing."""
    if kept is None:
        return None
    return {"plan": kept["plan"], "turns": kept["turns"] + 1, "before": kept["after"], "after": kept["before"]}


def recounted(
    kept: Mapping[str, Any], count: Callable[[str, Stretches | None], int | None]
) -> tuple[dict[str, Any] | None, list[str]]:
    """Hold a store after a run to the books that its journal keeps.

    Args:
        count: counts the whole records of a file of the store that have a byte in some parts of it; None where it does
            not know the file, as one of a log elsewhere that only a configuration names.

    Returns:
        The object ``books`` of JSON, for the run that was carried out, None where not all could be counted; and what
        does not balance, a sentence each.
    """
    problems = list[str]()
    for file, stretches, number in kept["after"]:
        now = count(file, None if stretches is None else [(begin, end) for begin, end in stretches])
        if now is None:
            return None, []
        if now != number:
            problems.append(f"{file} has {now:,} whole records where it was changed, and had {number:,}")
    plan = dict(kept["plan"])
    if kept["turns"] % 2:
        plan |= {
            "whole_before": sum(plan[name] for name in ("kept", "moved", "placeholders", "healed")),
            "garbage": plan["placeholders"],
            "given_up": plan["healed"],
            "placeholders": 0,
            "healed": plan["given_up"] + plan["garbage"],
        }
    return plan | {"balances": not problems}, problems


def outermost(records: Iterable[WholeRecord]) -> Iterator[WholeRecord]:
    """Yield records, ascending; what lies inside a whole one, where its proof covers it, is what its message says, and
    no record.
    """
    end = -1
    for record in records:
        if record.end > end:
            end = record.end - record.open
            yield record


def balance(
    plan: Plan,
    below: Tree,
    ledger: Ledger,
    *,
    whole_before: int | None = None,
    after: Tree | None = None,
    left: Sequence[Step] = (),
) -> Books:
    """Hold a plan to what it does to the records of a store.

    Args:
        below: the store as it is.
        whole_before: whole records that lie where they say, in all of it, where they have been counted.
        after: the store with the plan carried out; default: seen through an overlay.
        left: what is shown with the plan as left as it is: it may name transactions.

    Raises:
        Refused, OSError: the plan does not fit the store, or that cannot be read.
    """
    if after is None:
        after = Overlay(below, plan.edits)
    return _Judge(plan.steps, below, after, ledger, left).judge(list(_pairs(planned_files(plan))), whole_before)


# --- which parts of which files are compared ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pair:
    """A file on both sides, or on one: its name there ("" for none) and what of it is read."""

    before: str
    after: str
    stretches: Stretches | None


def _pairs(files: Iterable[PlannedFile]) -> Iterator[_Pair]:
    """Yield what is compared; a file that gets another name and keeps its bytes is one file, not two."""
    away: dict[str, PlannedFile] = {}
    made: list[PlannedFile] = []
    for file in files:
        was_in, is_in = file.was_at == STORE, file.is_at == STORE
        if was_in and is_in:
            if touched := file.touched():
                yield _Pair(file.name, file.name, touched)
        elif was_in:
            away[os.path.realpath(str(file.base))] = file
        elif is_in:
            made.append(file)
    renamed = [away.pop(file.base, None) if isinstance(file.base, str) else None for file in made]
    for file, old in zip(made, renamed, strict=True):
        again = next((key for key, other in away.items() if other.name == file.name), "") if old is None else ""
        if again:
            yield from _replaced(away.pop(again), file)
            continue
        if old is None:  # side by side, records that moved by a few bytes take no memory
            alike = next((key for key, other in away.items() if other.base_size == file.size), "")
            old = away.pop(alike, None)
        yield _Pair(old.name if old is not None else "", file.name, None)
    for file in away.values():
        yield _Pair(file.name, "", None)


def _replaced(old: PlannedFile, new: PlannedFile) -> Iterator[_Pair]:
    """Yield a file that is made again, from the first byte on that is another."""
    if old.is_link:
        yield _Pair(old.name, new.name, None)
        return
    end, at = min(old.base_size, new.size), 0
    while at < end:
        size = min(_WINDOW, end - at)
        was, now = old.base_bytes(at, size), new.now(at, size)
        if was != now:
            at += next(place for place, (one, other) in enumerate(zip(was, now, strict=True)) if one != other)
            break
        at += size
    if at < max(old.base_size, new.size):
        yield _Pair(old.name, new.name, [(at, max(old.base_size, new.size))])


class _Digests:
    """Identities in eight bytes each: so few that not even those of a large store are taken for each other.

    The last ones wait for those of the other side: where bytes move, most meet soon.
    """

    def __init__(self) -> None:
        self.numbers, self.positions, self.records, self.pairs = array("Q"), array("Q"), array("Q"), array("I")
        self._waiting: dict[int, tuple[int, int, int]] = {}

    def add(self, number: int, record: WholeRecord, pair: int) -> None:
        """Take the next record, of the file pair of a number."""
        entry = record.records, pair, record.position
        if number in self._waiting:
            self._keep(number, *entry)
            return
        self._waiting[number] = entry
        if len(self._waiting) > _MOST_WAITING:
            first = next(iter(self._waiting))
            self._keep(first, *self._waiting.pop(first))

    def meets(self, number: int) -> bool:
        """Whether one of these records waits; it waits no more then."""
        return self._waiting.pop(number, None) is not None

    def settle(self) -> None:
        """Keep what waits."""
        for number, entry in self._waiting.items():
            self._keep(number, *entry)
        self._waiting = {}

    def _keep(self, number: int, records: int, pair: int, position: int) -> None:
        self.numbers.append(number)
        self.records.append(records)
        self.pairs.append(pair)
        self.positions.append(position)


def _number(record: WholeRecord) -> int:
    return int.from_bytes(record.identity[:8], "little")


class _Judge:
    """Compares file by file and holds what is left over to the law.

    Attributes:
        names: what steps give up, and whether it is gone.
        lost: records that are gone without a copy.
    """

    def __init__(
        self, steps: Sequence[Step], before: Tree, after: Tree, ledger: Ledger, left: Sequence[Step] = ()
    ) -> None:
        self.steps, self.before, self.after, self.ledger, self.left = steps, before, after, ledger, left
        self.books = Books()
        self.names = {name: False for step in steps for name in step.gives_up}
        self.lost: list[WholeRecord] = []
        self._here = self._strays = 0
        self._gone: dict[bytes, WholeRecord] = {}
        self._mended: set[tuple[str, int]] = set()
        self._carried: set[tuple[str, int]] = set()
        self._left, self._new = _Digests(), _Digests()
        self._pairs: list[_Pair] = []
        self._stand_ins: list[WholeRecord] = []
        self._replaced: list[WholeRecord] = []

    def judge(self, pairs: Sequence[_Pair], whole_before: int | None) -> Books:
        for pair in pairs:
            self._compare(pair)
        self._explain_new()
        for record in self._gone.values():
            self._explain_gone(record)
        books = self.books
        books.whole_before = (self._here if whole_before is None else whole_before) + self._strays
        books.by_queue = Counter[str]()
        for record in (*self.lost, *self._stand_ins):
            books.by_queue[record.queue] += record.records
        books.by_queue.subtract(doubled := self._doubled())
        books.doubled = doubled.total()
        books.destroyed = sum(self._destroyed(pair) for pair in pairs if pair.before)
        self._transactions(pairs)
        books.problems += [
            f"{name} is given up by a step, and not gone" for name, used in self.names.items() if not used
        ]
        books.problems += self.ledger.start(self.before, self.after)
        return books

    # --- file by file -------------------------------------------------------------------------------------

    def _compare(self, pair: _Pair) -> None:
        """Walk both sides of a file together; what is the same at the same place needs no memory."""
        old, new = self._side(self.before, pair.before, pair), self._side(self.after, pair.after, pair)
        self._pairs.append(pair)
        was, now, homes, same, olds, news = next(old, None), next(new, None), 0, 0, 0, 0
        while was is not None or now is not None:
            first = min(record.position for record in (was, now) if record is not None)
            one = was if was is not None and was.position == first else None
            other = now if now is not None and now.position == first else None
            if one is not None:
                self._count(one)
                was, olds = next(old, None), olds + 1
            if other is not None:
                now, homes, news = next(new, None), homes + other.is_at_home, news + 1
            if one is not None and other is not None and _is_same(one, other):
                same += 1
                if other.is_at_home and not one.is_at_home:  # its file has got the name that it says
                    self.books.moved += one.records
                continue
            self._note(one, other)
        if olds or news:
            self.books.before += [(pair.before, pair.stretches, olds)] if pair.before else []
            self.books.after += [(pair.after, pair.stretches, news)] if pair.after else []
        if same and not homes and pair.before != pair.after:
            self.books.problems.append(
                f"{pair.before} gets the name {pair.after}, and none of its {same:,} records so says"
            )

    def _side(self, tree: Tree, file: str, pair: _Pair) -> Iterator[WholeRecord]:
        """Yield the records of one side."""
        return outermost(self.ledger.whole(tree, file, pair.stretches) if file else ())

    def _count(self, record: WholeRecord) -> None:
        if record.is_at_home:
            self._here += record.records
        else:
            self._strays += record.records

    def _note(self, one: WholeRecord | None, other: WholeRecord | None) -> None:
        """Take what differs at a place of both sides."""
        if one is not None and other is not None and one.file != other.file and one.size == other.size:
            self._carried |= {(one.file, one.position), (other.file, other.position)}
            stand_in = one.is_placeholder and other.is_placeholder
            if stand_in and self.ledger.made(self.before, self.after, other, one.file):
                self.books.moved += other.records
                return
        if one is not None:
            self._note_gone(one)
        if other is not None:
            self._note_new(other)

    def _note_gone(self, record: WholeRecord) -> None:
        if record.is_placeholder:
            self._replaced.append(record)
        elif self.ledger.at_home(self.after, record):
            if self._new.meets(number := _number(record)):
                self.books.moved += record.records
            else:
                self._left.add(number, record, len(self._pairs) - 1)
            return
        known = self._gone.setdefault(record.identity, record)
        if known is not record:
            self.books.garbage += record.records  # a copy of one that is looked at in any case
            if record.is_at_home:
                self._gone[record.identity] = record

    def _note_new(self, record: WholeRecord) -> None:
        if record.is_at_home and not record.is_placeholder:
            if self._left.meets(number := _number(record)):
                self.books.moved += record.records
            else:
                self._new.add(number, record, len(self._pairs) - 1)
        elif record.is_at_home:
            self.books.placeholders += record.records
            self._stand_ins.append(record)
        else:
            self.books.problems.append(f"{_where(record)} is laid where it does not belong")

    # --- what is left over --------------------------------------------------------------------------------

    def _explain_gone(self, record: WholeRecord) -> None:
        books = self.books
        if (record.file, record.position) in self._mended:
            return  # bytes that no CRC covers were put right in it
        if record.name in self.names:
            self.names[record.name] = True
            books.given_up += record.records
            self.lost.append(record)
        elif self.ledger.garbage(self.before, self.after, record):
            if (record.file, record.position) not in self._carried:
                books.garbage += record.records
        else:
            self.lost.append(record)
            books.lost.append(record)
            books.problems.append(f"{_where(record)} is lost, and no step names it")

    def _explain_new(self) -> None:
        """Hold new records to those that went from elsewhere; what is left is healed, or put back, or invented."""
        import numpy as np  # not where plans are only carried out

        self._left.settle()
        self._new.settle()
        left, counts = np.array(self._left.numbers, np.uint64), np.array(self._left.records, np.int64)
        new = np.array(self._new.numbers, np.uint64)
        sources, first = np.unique(left, return_index=True)
        moved = int(counts[first][np.isin(sources, new)].sum())
        self.books.moved += moved
        self.books.garbage += int(counts.sum()) - moved
        rows = np.flatnonzero(~np.isin(new, sources)).tolist()
        unknown = [record for record, row in self._again(rows) if not self._is_made(record, row)]
        elsewhere = self._elsewhere({record.identity for record in unknown})
        for record in unknown:
            if record.identity in elsewhere:
                self._strays += record.records
                self.books.moved += record.records
            else:
                self.books.unproven.add(record.home)
                self.books.problems.append(f"{_where(record)} was not there before, and nothing proves it")

    def _again(self, rows: Iterable[int]) -> Iterator[tuple[WholeRecord, int]]:
        """Read new records once more, file by file, each with its row."""
        found: dict[int, dict[int, int]] = {}
        for row in rows:
            found.setdefault(self._new.pairs[row], {})[self._new.positions[row]] = row
        for pair, places in found.items():
            stretches = [(at, at + 1) for at in sorted(places)]
            for record in self.ledger.whole(self.after, self._pairs[pair].after, stretches):
                if record.position in places:
                    yield record, places[record.position]

    def _is_made(self, record: WholeRecord, row: int) -> bool:
        origin = self._pairs[self._new.pairs[row]].before
        if not self.ledger.made(self.before, self.after, record, origin):
            return False
        if (record.file, record.position) in self._carried:  # with its file, to where that belongs
            self.books.moved += record.records
            return True
        self.books.healed += record.records
        self._mended.add((origin, record.position))
        return True

    def _elsewhere(self, missing: set[bytes]) -> set[bytes]:
        """Return which records lie where the plan touches nothing: what was left over there is put back."""
        found: set[bytes] = set()
        for file in self.ledger.files(self.before) if missing else ():
            found |= missing & {record.identity for record in self.ledger.whole(self.before, file, None)}
            if found == missing:
                break
        return found

    def _doubled(self) -> Counter[str]:
        """Messages by queue that new placeholders count once more: at offsets of records given up and of placeholders
        before, and in the bytes of records given up, for these are all that was there.
        """
        others, count, met = [*self.lost, *self._replaced], Counter[str](), set[bytes]()
        for record, other in _overlapping(self._stand_ins, others, lambda one: (one.queue, one.offset, one.span)):
            count[record.queue] += min(_common(record, other), other.records)
            met.add(other.identity)
        room = Counter({record.identity: record.records for record in self._stand_ins})
        for record, other in _overlapping(
            self._stand_ins, others, lambda one: (one.queue + one.file, one.position, one.size)
        ):
            if other.identity not in met:
                met.add(other.identity)
                count[record.queue] += (taken := min(other.records, room[record.identity]))
                room[record.identity] -= taken
        return count

    def _destroyed(self, pair: _Pair) -> int:
        """Messages that lay there in pieces, and of which the result says nothing."""
        torn = dict(self.ledger.torn(self.before, pair.before, pair.stretches))
        if torn and pair.after:
            for at, _ in self.ledger.torn(self.after, pair.after, pair.stretches):
                torn.pop(at, None)
            places = sorted(torn)
            for record in self.ledger.whole(self.after, pair.after, [(at, at + 1) for at in places]):
                inside = places[bisect_left(places, record.position) : bisect_left(places, record.end)]
                for at in inside if record.records else ():
                    torn.pop(at, None)
        return sum(torn.values())

    def _transactions(self, pairs: Sequence[_Pair]) -> None:
        before = self.ledger.outcomes(self.before, [pair.before for pair in pairs if pair.before])
        after = self.ledger.outcomes(self.after, [pair.after for pair in pairs if pair.after])
        for name, outcome in before.items():
            now = after.get(name, "gone")
            if now != outcome:
                self.books.transactions_changed.append(name)
                self.names.update({name: True} if name in self.names else {})
                if not any(
                    name in step.gives_up or name in f"{step.what} {step.why}" for step in (*self.steps, *self.left)
                ):
                    self.books.problems.append(f"{name} was {outcome} and is {now}, and no step names it")


def _is_same(was: WholeRecord, now: WholeRecord) -> bool:
    return was.identity == now.identity and (now.is_at_home or not was.is_at_home)


def _common(one: WholeRecord, other: WholeRecord) -> int:
    """Offsets that both take."""
    return max(min(one.offset + one.span, other.offset + other.span) - max(one.offset, other.offset), 0)


def _overlapping(
    records: Iterable[WholeRecord], others: Iterable[WholeRecord], extent: Callable[[WholeRecord], tuple[str, int, int]]
) -> Iterator[tuple[WholeRecord, WholeRecord]]:
    """Yield each record with each of others that overlaps it.

    Args:
        extent: what a record lies in, where it begins there, and how much it takes; others overlap none of each other.
    """
    known: dict[str, list[WholeRecord]] = {}
    for other in sorted(others, key=extent):
        known.setdefault(extent(other)[0], []).append(other)
    for record in records:
        where, begin, size = extent(record)
        among = known.get(where, [])
        for other in among[max(bisect_right(among, begin, key=lambda one: extent(one)[1]) - 1, 0) :]:
            _, first, length = extent(other)
            if first >= begin + size:
                break
            if first + length > begin:
                yield record, other


def _where(record: WholeRecord) -> str:
    return f"{record.name} in {record.file} at {record.position:,}"
