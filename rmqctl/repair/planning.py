"""The frame of a planner of repairs, by which both families plan; a family gives the stages.

A plan grows stage by stage. Each stage reads the store as the steps before it leave it, through an overlay; nothing is
written. At the end the store is verified as it would be, a broker's start on it is replayed, and the plan is held to
its books, so that it shows what it leaves and what it gives up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Generic, Protocol, TypeVar

from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, Tree, local_path
from rmqctl.findings import Finding, Severity
from rmqctl.repair.books import Books
from rmqctl.repair.edits import Create, Plan, Quarantine, Step, StepName
from rmqctl.repair.preconditions import Confines

RESULT = "the result"
"""What a plan leaves, in sentences about a start on it."""
Advance = Callable[[str], object]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What to repair.

    Attributes:
        only, skip: ids of findings, ``*`` matches anything; ``only`` empty means all.
        processes: that share the logs where they are verified.
        outside: directories outside the store that may be changed, too.
        without: names of steps that are not wanted.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    processes: int = 1
    outside: tuple[str, ...] = ()
    without: frozenset[StepName] = frozenset()

    def wants(self, step: Step) -> bool:
        """Whether a step is to be part of the plan."""
        return step.name not in self.without and step.is_chosen(self.only, self.skip)


@dataclass(slots=True)
class Repair:
    """A finished plan.

    Attributes:
        plan: steps that change something, in order.
        left: what stays as it is, each with the reason.
        before, after: errors and warnings of the store as it is, and as it will be.
        refusal: why a broker would not start on the outcome, or what it would cut, one phrase; empty where it does
            neither.
        unknown: what cannot be known of a start on the outcome, and could not of one on the store as it is; "" where
            all can, None where a family has no such thing.
        books: whole records before the plan and after it; None where there is nothing to judge.
    """

    plan: Plan
    left: tuple[Step, ...]
    before: tuple[Finding, ...]
    after: tuple[Finding, ...]
    refusal: str = ""
    unknown: str | None = None
    books: Books | None = None

    @property
    def loses(self) -> int:
        """Whole records that are given up."""
        return self.books.loses if self.books is not None else 0

    @property
    def balances(self) -> bool:
        """Whether the plan may be carried out by its books."""
        return self.books is None or self.books.balances

    def complaints(self, findings: Iterable[Finding]) -> list[str]:
        """Return what a store has wrong that the plan did not foresee, a sentence each.

        Args:
            findings: of the store as it is after the plan.
        """
        expected = {(f.kind.id, f.file, f.offset) for f in self.after}
        return [
            f"{f.kind.id} in {f.file} at {f.offset}: {f.message}"
            for f in findings
            if f.level is not Severity.NOTE and (f.kind.id, f.file, f.offset) not in expected
        ]


class Planned(Protocol):
    """A store for which a plan is made."""

    @property
    def root(self) -> str: ...

    @property
    def tree(self) -> Tree: ...


S = TypeVar("S", bound=Planned)


def check_is_here(store: Planned, verb: str) -> None:
    """Refuse a store that is not on this machine.

    Raises:
        Refused: it is not.
    """
    if not isinstance(store.tree, LocalTree):
        raise Refused(f"{store.root} is not on this machine; copy it here to {verb} it")


@dataclass
class Planner(ABC, Generic[S]):
    """One way to a plan.

    Attributes:
        below: the store as it is on the disk.
        directory: files that the plan puts in place are built here; it must stay until the plan is carried out.
        steps, left: those so far, in order; what is left by its id, file and ``what``.
    """

    below: S
    options: PlanOptions
    directory: Path
    advance: Advance
    steps: list[Step] = field(default_factory=list, init=False)
    left: dict[StepName, Step] = field(default_factory=dict, init=False)
    found: list[Finding] = field(default_factory=list, init=False)
    verified: int = field(default=-1, init=False)
    """The number of steps after which `found` was found."""

    @property
    def place(self) -> str:
        """Where the store lies on this machine; its root itself, but for a bundle."""
        return local_path(self.below.tree, "") or self.below.root

    @property
    @abstractmethod
    def store(self) -> S:
        """The store as the steps so far leave it."""

    @abstractmethod
    def verify(self) -> Iterable[Finding]:
        """Return what is wrong with the store as the steps leave it."""

    @abstractmethod
    def stages(self, before: list[Finding]) -> None:
        """Take all steps.

        Args:
            before: errors and warnings of the store as it is.
        """

    @abstractmethod
    def start(self) -> tuple[str, str | None]:
        """Return what a broker would refuse or cut that starts on the outcome, and what cannot be known of that."""

    @abstractmethod
    def judge(self, repair: Repair) -> tuple[Plan, Books | None]:
        """Return the plan with the names of what it gives up, and its books."""

    def run(self) -> Repair:
        """Make the plan."""
        before = self.findings("verify")
        self.stages(before)
        self.advance("a start on the result")
        refusal, unknown = self.start()
        after = self.findings("verify the result") if self.steps else before
        plan = Plan(Path(self.below.root), f"repair {self.below.root}", tuple(self.steps))
        repair = Repair(plan, tuple(self.left.values()), tuple(before), tuple(after), refusal, unknown)
        if plan.steps:
            self.advance("books")
        repair.plan, repair.books = self.judge(repair)
        return repair

    def findings(self, stage: str) -> list[Finding]:
        """Return errors and warnings of the store as the steps leave it; those known where no step was added since."""
        if self.verified != len(self.steps):
            self.advance(stage)
            self.found = [finding for finding in self.verify() if finding.level is not Severity.NOTE]
            self.verified = len(self.steps)
        return self.found

    def take(self, steps: Iterable[Step]) -> bool:
        """Add the steps that are wanted; whether any changes something."""
        taken = False
        confines = Confines(self.place, self.outside)
        for step in list(steps):
            possible = _within(self._placed(step), confines)
            if not self.wants(possible):
                continue
            if possible.edits:
                self.steps.append(possible)
                taken = True
            else:
                self.left[possible.name] = possible
        return taken

    def wants(self, step: Step) -> bool:
        """Whether a step is to be part of the plan."""
        return self.options.wants(step)

    def _placed(self, step: Step) -> Step:
        """Return the step; a directory that lies where it makes a file goes to quarantine first."""
        made = {edit.file for edit in step.edits if isinstance(edit, Create)}
        away = {name for name in made if (entry := self.below.tree.stat(name)) is not None and entry.is_directory}
        if away:
            away -= {e.file for one in (*self.steps, step) for e in one.edits if isinstance(e, Quarantine)}
        what = f"{step.what}; the directory in its place goes to quarantine"
        return replace(step, what=what, edits=(*map(Quarantine, sorted(away)), *step.edits)) if away else step

    @property
    def outside(self) -> tuple[str, ...]:
        """Directories outside the store that may be changed."""
        return self.options.outside

    def room(self) -> Path:
        """Return a new directory to build in."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(dir=self.directory))


def _within(step: Step, confines: Confines) -> Step:
    """Return the step, or that it is left where it only moves away what a link reaches that leads out of the store."""
    if all(isinstance(edit, Quarantine) for edit in step.edits):
        for edit in step.edits:
            if problem := confines.problem(edit.file):
                return Step(step.id, step.file, f"left as it is: {step.what}", problem)
    return step
