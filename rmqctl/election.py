"""Which replica may lead: what each choice loses of what all replicas together still have. For both families."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from rmqctl.answer import Advance, Answer, Row, Section
from rmqctl.errors import WrongUsage
from rmqctl.text import number_of, typed

_MOST_RANGES = 100
_COLUMNS = ("log", "ends", "epochs", "first_divergence", "loses", "best", "salvage")


def refuse_twice(places: Sequence[str]) -> None:
    """Hold a comparison of replicas to different ones.

    Raises:
        WrongUsage: one is given twice, under one name or two.
    """
    seen: dict[str, str] = {}
    for place in places:
        other = seen.setdefault(os.path.realpath(place), place)
        if other is not place:
            raise WrongUsage("PATH", f"{place} is given twice; give one path for each replica.")


@dataclass(frozen=True, slots=True)
class Amount:
    """Some records: how many, their bytes, and where they lie, first and last offset of each range."""

    count: int = 0
    bytes: int = 0
    ranges: tuple[tuple[int, int], ...] = ()

    def row(self) -> dict[str, object]:
        """As JSON; the first ranges only."""
        first = [list(pair) for pair in self.ranges[:_MOST_RANGES]]
        return {"records": self.count, "bytes": self.bytes, "offsets": first}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica as a leader.

    Attributes:
        name: its path.
        start, end: what it serves once a broker has started on it; ``end`` is exclusive.
        epochs: leader epochs with their first offsets.
        lost: what other replicas have, or the broker cuts off here, and would be gone.
        committed: how many of those a replica knows to have been committed.
        superseded: what of other replicas goes because a leader of a later epoch has overwritten it.
        error: why a broker does not start on it, None where it does.
    """

    name: str
    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    lost: Amount = Amount()
    committed: int = 0
    superseded: Amount = Amount()
    error: str | None = None

    @property
    def is_safe(self) -> bool:
        """Whether nothing is lost with it."""
        return self.error is None and not self.lost.count and not self.lost.bytes


@dataclass(frozen=True, slots=True)
class Relation:
    """How two replicas relate.

    Attributes:
        common_end: up to this offset both have the same leader epochs, as far as both reach.
        first_divergence: the first offset that they do not share; None where they are equal.
        only_a, only_b: what one has and the other has not.
        different: of which both have another version at the same place.
    """

    a: str
    b: str
    common_end: int
    first_divergence: int | None
    only_a: Amount
    only_b: Amount
    different: int = 0


@dataclass
class Contest:
    """The replicas of one log.

    Attributes:
        log: ``topic-0``, or ``commitlog``.
        gone: ranges of offsets that no replica has any more: no choice is without loss.
        union: what even a salvaged union of all would lack, of what was committed or may have been.
        is_salvageable: whether ``salvage`` writes such a log; it writes no DLedger log.
        voters: how many replicas elect the leader among those that are up, a majority of them; 0: somebody chooses it.
        keepers: those given of them with which nothing is lost.
    """

    log: str
    candidates: list[Candidate]
    relations: list[Relation] = field(default_factory=list)
    gone: tuple[tuple[int, int], ...] = ()
    union: Amount = Amount()
    is_salvageable: bool = True
    voters: int = 0
    keepers: tuple[str, ...] = ()

    @property
    def best(self) -> Candidate:
        """The choice that loses least; of equal ones the latest epoch, then the longest, then the first named."""

        def order(one: Candidate) -> tuple[object, ...]:
            epoch = one.epochs[-1][0] if one.epochs else -1
            return one.error is not None, one.committed, one.lost.count, one.lost.bytes, -epoch, -one.end

        return min(self.candidates, key=order)

    @property
    def majority(self) -> int:
        """How many voters elect a leader; 0 where somebody chooses it."""
        return self.voters // 2 + 1 if self.voters else 0

    @property
    def is_at_risk(self) -> bool:
        """Whether voters may elect a leader without anybody who has all."""
        return self.voters > 1 and self.voters - len(self.keepers) >= self.majority

    @property
    def is_safe(self) -> bool:
        """Whether nothing is lost with the best choice, and no other one may come about."""
        return self.best.is_safe and not self.gone and not self.is_at_risk

    @property
    def salvages(self) -> bool:
        """Whether a salvaged union has what every choice of leader loses."""
        is_whole = not self.union.count and not self.union.bytes
        return self.is_salvageable and not self.best.is_safe and is_whole

    def rows(self) -> Iterator[Row]:
        """Relations, choices and the verdict as rows."""
        for one in self.relations:
            yield {
                "kind": "relation", "log": self.log, "a": one.a, "b": one.b, "common_end": one.common_end,
                "first_divergence": one.first_divergence, "only_a": one.only_a.row(),
                "only_b": one.only_b.row(), "different": one.different,
            }  # fmt: skip
        for choice in self.candidates:
            yield {
                "kind": "choice", "log": self.log, "leader": choice.name, "log_start_offset": choice.start,
                "log_end_offset": choice.end, "epochs": [list(pair) for pair in choice.epochs],
                "lost": choice.lost.row(), "lost_committed": choice.committed,
                "superseded": choice.superseded.row(), "no_loss": choice.is_safe and not self.gone,
                "error": choice.error,
            }  # fmt: skip
        yield {
            "kind": "verdict", "log": self.log, "best": self.best.name, "no_loss": self.is_safe,
            "salvage": self.salvages, "gone": [list(pair) for pair in self.gone[:_MOST_RANGES]],
            "start_first": list(self.keepers) if self.is_at_risk else [],
        }  # fmt: skip


def answer(
    names: Sequence[str],
    contests: Callable[[Advance], Iterable[Contest]],
    *,
    total: int | None = None,
) -> Answer:
    """Return the answer of ``elect``: "no" where every choice of leader for some log loses something.

    Args:
        names: paths of the replicas, in the order given.
        contests: compares the replicas, one log after the other.
        total: bytes of log that are read.
    """
    found = Answer(work="elect", total=total)
    seen = list[Contest]()

    def compared() -> Iterator[Contest]:
        for contest in contests(found.advance):
            seen.append(contest)
            found.is_no = found.is_no or not contest.is_safe
            yield contest

    def document() -> Row:
        logs = []
        for contest in compared():
            rows: dict[str, list[Row]] = {"relation": [], "choice": [], "verdict": []}
            for row in contest.rows():
                rows[row["kind"]].append({k: v for k, v in row.items() if k not in ("kind", "log")})
            logs.append(
                {"log": contest.log, "relations": rows["relation"], "choices": rows["choice"], **rows["verdict"][0]}
            )
        return {"replicas": list(names), "logs": logs, "summary": _summary(seen)}

    def sections() -> Iterator[Section]:
        yield Section(lines=[f"{letter} is {name}" for letter, name in zip(_letters(names), names, strict=True)])
        yield Section(rows=(_table_row(contest, names) for contest in compared()), columns=_COLUMNS)
        yield Section(lines=_sentences(seen, names), folds=True)

    found.rows = (row for contest in compared() for row in contest.rows())
    found.document, found.sections = document, sections
    found.summary = lambda: {"kind": "summary", **_summary(seen)}
    return found


def _summary(seen: Sequence[Contest]) -> dict[str, object]:
    return {
        "logs": len(seen),
        "no_loss": sum(contest.is_safe for contest in seen),
        "salvage": sum(contest.salvages for contest in seen),
        "every_choice_loses": sum(not contest.best.is_safe or bool(contest.gone) for contest in seen),
    }


def _letters(names: Sequence[str]) -> list[str]:
    return [ascii_uppercase[n] if n < len(ascii_uppercase) else f"#{n + 1}" for n in range(len(names))]


def _table_row(contest: Contest, names: Sequence[str]) -> Row:
    letters = dict(zip(names, _letters(names), strict=True))

    def each(values: Iterable[tuple[str, object]]) -> str:
        return ", ".join(f"{letters[name]} {value}" for name, value in values)

    first = [r.first_divergence for r in contest.relations if r.first_divergence is not None]
    return {
        "log": contest.log,
        "ends": each((one.name, one.end) for one in contest.candidates),
        "epochs": each((one.name, one.epochs[-1][0]) for one in contest.candidates if one.epochs),
        "first_divergence": min(first, default=None),
        "loses": each((one.name, one.lost.count if one.error is None else "all") for one in contest.candidates),
        "best": letters[contest.best.name] if contest.is_safe else f"({letters[contest.best.name]})",
        "salvage": "yes" if contest.salvages else "",
    }


def _sentences(seen: Sequence[Contest], names: Sequence[str]) -> Iterator[str]:
    """Yield what it comes to, for people."""
    if not seen:
        yield "these paths have no log in common, nor one alone"
        return
    losing = [contest for contest in seen if not contest.best.is_safe]
    unsafe = [contest for contest in seen if not contest.is_safe]
    for contest in losing[:_MOST_RANGES]:
        yield from _least(contest)
    for contest in unsafe:
        yield from _gone(contest)
        yield from _voted(contest)
    if any(contest.salvages for contest in losing):
        yield f"all replicas together have what is lost; type: {typed('salvage', *names, 'INTO')}"
    for contest in losing:
        if not contest.is_salvageable:
            leader = contest.best.name
            others = [word for name in names if name != leader for word in ("--from", name)]
            yield (
                f"members take destroyed entries from each other; type: {typed('repair', leader, *others)}, "
                "then ask again"
            )
    if not unsafe:
        choice = {contest.best.name for contest in seen}
        one = f"{next(iter(choice))} may lead everywhere" if len(choice) == 1 else "the column best says who may lead"
        yield f"nothing is lost in {number_of(len(seen), 'log')}: {one}"


def _least(contest: Contest) -> Iterator[str]:
    """Yield what is lost at least."""
    best = contest.best
    known = f", {best.committed:,} of them known to be committed" if best.committed else ""
    lost = number_of(best.lost.count, "record")
    yield f"{contest.log}: every choice loses; least with {best.name}: {lost}{known}"
    if best.error is not None:
        yield f"{contest.log}: {best.error}"


def _gone(contest: Contest) -> Iterator[str]:
    """Yield which offsets no replica has any more."""
    for first, last in contest.gone[:1]:
        more = "" if len(contest.gone) == 1 else f" and {len(contest.gone) - 1} more ranges"
        is_one = first == last and not more
        lost = f"offset {first:,} is" if is_one else f"offsets {first:,} to {last:,}{more} are"
        yield f"{contest.log}: {lost} in no replica any more, with every choice"


def _voted(contest: Contest) -> Iterator[str]:
    """Yield what to do about a log whose leader nobody chooses, where the voters may elect one that lacks something."""
    if not contest.is_at_risk:
        return
    yield (
        f"{contest.log}: the first {contest.majority} of {contest.voters} voters that are up elect its leader, and "
        "what they have not is cut from the others"
    )
    if contest.keepers:
        others = next((one.name for one in contest.candidates if one.name not in contest.keepers), "PATH")
        yield (
            f"{contest.log}: start {contest.keepers[0]} first, and the others when it is up; what is damaged in them "
            f"comes back with: {typed('repair', others, '--from', contest.keepers[0])}"
        )
