"""The planner: from findings to steps with the least loss, in the order log, queues, index, checkpoint, config.

Each stage reads the store as the stages before leave it, with their edits laid over it; nothing is written. At the
end the whole store is verified as it would be. Each range of the log is mended by the best way that is proven:
healed, restored from a replica, bridged, or cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree, Tree
from rmqctl.findings import Finding, Severity
from rmqctl.repair.books import Books
from rmqctl.repair.edits import Overwrite, Plan, Quarantine, Step, StepName
from rmqctl.repair.preconditions import Confines
from rmqctl.rocketmq.findings.derived import (
    INDEX_COVERAGE,
    INDEX_ENTRY,
    INDEX_NEWER,
    QUEUE_ORPHAN,
    QUEUE_UNDISPATCHED,
)
from rmqctl.rocketmq.findings.state import FILE_UNREADABLE
from rmqctl.rocketmq.log.commitlog import log_file_at
from rmqctl.rocketmq.log.measure import lie_in
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.rebuild.compare import FileDifference
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.plan import overlaid
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.recovery.rules import has_dledger_log
from rmqctl.rocketmq.repair.books import books_of
from rmqctl.rocketmq.repair.config import TOPICS, checkpoint_steps, config_steps, index_time_steps, topic_steps
from rmqctl.rocketmq.repair.damage import DamageWitness, LogDamage, seen, survey
from rmqctl.rocketmq.repair.derived import (
    database_steps,
    index_steps,
    queue_steps,
    timer_check_steps,
    timer_steps,
    topic_of,
)
from rmqctl.rocketmq.repair.displaced import Whereabouts, naming_losses
from rmqctl.rocketmq.repair.files import (
    empty_queue_file_steps,
    expired_steps,
    foreign_steps,
    links_after_the_end,
    links_that_lead_nowhere,
    misnamed_queue_steps,
    misplaced_steps,
    missing_steps,
    not_made_again,
    shifted_steps,
    stray_steps,
    unreadable_steps,
)
from rmqctl.rocketmq.repair.gaps import GapMender
from rmqctl.rocketmq.repair.log_repair import BodyDamage, LogRepair, Replica, left
from rmqctl.rocketmq.repair.placeholder import blank
from rmqctl.rocketmq.repair.queue_references import references_into
from rmqctl.rocketmq.repair.records import RecordMender, neutralize_step
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import databases_of
from rmqctl.rocketmq.store.files import INDEX, RocketMQStore, StoreFile
from rmqctl.rocketmq.store.geometry import Geometry, geometry_of
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions

_MOST_STALE = 256 << 20


@dataclass(frozen=True, slots=True)
class Way:
    """How much a plan dares.

    Attributes:
        unhealed: physical offsets of records for which placeholders stand, whatever seems to heal them; None: for all.
        puts_back: whole records are put back to where they say that they belong.
    """

    unhealed: frozenset[int] | None = frozenset()
    puts_back: bool = True


def _ways(found: Callable[[], Books]) -> Iterator[Way]:
    """Yield one way after the other, each less ambitious, as long as the books of the last one do not balance.

    Args:
        found: the books of the last one.
    """
    yield Way()
    doubted = frozenset(found().unproven)
    if doubted:
        yield Way(doubted)
    yield Way(None)
    yield Way(None, puts_back=False)


class LogMender:
    """Plans the repair of one store's log.

    Args:
        store: as it is now, earlier steps of the plan included.
        damage: what a walk over its log has shown.
        replica: another store of the same broker group.
        suspects: physical offsets of records that an index entry contradicts.
        way: how much it dares.
        aside: files that earlier steps took out of the log.
        moved: physical offsets to which earlier steps have moved records.
    """

    def __init__(
        self,
        store: RocketMQStore,
        damage: LogDamage,
        *,
        replica: Replica | None = None,
        body_damage: BodyDamage = BodyDamage.PLACEHOLDER,
        accepted: frozenset[StepName] = frozenset(),
        suspects: frozenset[int] = frozenset(),
        way: Way = Way(),
        aside: Sequence[StoreFile] = (),
        moved: Collection[int] = (),
    ) -> None:
        ranges = [*damage.ranges(), *((at, at + 1) for at in suspects)]
        log = LogReader(store.log_files)
        is_misplaced = lie_in(damage.missing.physical, ((run.begin, run.end) for run in damage.misplaced))
        claims = references_into(store, ranges, damage.missing.physical)
        claims = claims.without_false(damage.missing.where(~is_misplaced), damage.doubtful)
        self.repair = LogRepair(store, damage, claims, log, replica, body_damage, accepted, unhealed=way.unhealed)
        self.whereabouts = Whereabouts(self.repair, aside)
        self.suspects, self.way, self.moved = suspects, way, moved

    def renames_to_home(self) -> Iterator[Step]:
        """Yield steps that put whole records back where they say they lie; what they leave is for the next round."""
        if not self.way.puts_back:
            return
        with self.repair.log:
            steps = self.whereabouts.steps(self.whereabouts.without_foreign().gaps)
        yield from sorted(steps, key=_place)

    def away(self) -> list[Step]:
        """Return steps that take records away that are not of here; the next round mends what they leave."""
        with self.repair.log:
            found = self.whereabouts
            return [*found.uncovering()] or [*found.strangers()] or [*found.giving_way(doubted=True)]

    def giving_way(self) -> list[Step]:
        """Return steps that make room where a gap has none for any record; the next round mends what they leave."""
        with self.repair.log:
            return list(self.whereabouts.giving_way(doubted=False))

    def steps(self) -> Iterator[Step]:
        """Yield what to do, by offset in the log."""
        with self.repair.log:
            own = self.whereabouts.own
            self.repair.damage = damage = self.whereabouts.without_foreign()
            gaps = GapMender(self.repair, own)
            steps = [s for gap in damage.gaps for s in gaps.steps(gap)]
            steps += [self._blank(f) for f in damage.blanks]
            steps += RecordMender(self.repair, own, self.suspects, self.moved).steps()
            tails = [(gap.begin, gap.limit) for gap in damage.gaps if gap.is_tail]
            stale = (f for f in damage.stale if not any(a <= (f.physical_offset or 0) < b for a, b in tails))
            steps += [self._stale(f) for f in stale]
        yield from sorted(steps, key=_place)

    def _blank(self, finding: Finding) -> Step:
        file = self.repair.log.file_of(finding.physical_offset or 0)
        assert file is not None
        assert finding.physical_offset is not None
        right = blank(file.size - finding.offset)
        raw = self.repair.log.read(finding.physical_offset, len(right))
        what = f"put the size of the blank record at {finding.physical_offset} right"
        return Step(
            finding.kind.id,
            file.name,
            what,
            "the file's length says it",
            self.repair.edits(finding.physical_offset, raw, right),
        )

    def _stale(self, finding: Finding) -> Step:
        file = next(f for f in self.repair.store.log_files if f.name == finding.file)
        source = file.open()
        size = sum(end - begin for begin, end in source.data_ranges(finding.offset, file.size))
        source.close()
        if size > _MOST_STALE:
            return left(finding, f"{size:,} bytes: brokers write over them in time")
        edits = tuple(self.repair.zeroed(file, finding.offset))
        what = f"zero what lies behind the end of the log at {file.base + finding.offset}"
        return Step(finding.kind.id, file.name, what, finding.message, edits)


def _place(step: Step) -> tuple[str, int]:
    """Where in the log a step works."""
    first = next((e for e in step.edits if isinstance(e, Overwrite)), None)
    return step.file.rpartition("/")[2], first.offset if first else -1


# --- the planner ------------------------------------------------------------------------------------


_ROUNDS = 6
_CONTRADICTING = (INDEX_ENTRY, INDEX_COVERAGE)
"""Findings of the index that may come from a damaged record."""
_NEUTRALIZE = "message.neutralize"
_RESULT = "the result"
Advance = Callable[[str], object]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What to repair and how.

    Attributes:
        only, skip: ids of findings, ``*`` matches anything; ``only`` empty means all.
        replica: another store of the same group, to take bytes from.
        body_damage: what becomes of a body that nothing heals.
        neutralize: physical offsets of messages to be replaced by placeholders.
        processes: that share the log where it is verified.
        outside: directories outside the store that may be changed, too.
        without: names of steps that are not wanted.
        accept: names of steps in whose place the damaged body is kept.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    replica: RocketMQStore | None = None
    body_damage: BodyDamage = BodyDamage.PLACEHOLDER
    neutralize: tuple[int, ...] = ()
    processes: int = 1
    outside: tuple[str, ...] = ()
    without: frozenset[StepName] = frozenset()
    accept: frozenset[StepName] = frozenset()

    def wants(self, step: Step) -> bool:
        """Whether a step is to be part of the plan."""
        if step.name in self.without:
            return False
        return step.id == _NEUTRALIZE or step.is_chosen(self.only, self.skip)


@dataclass(slots=True)
class Repair:
    """A finished plan.

    Attributes:
        plan: steps that change something, in order.
        left: what stays as it is, each with the reason.
        before, after: errors and warnings of the store as it is, and as it will be.
        geometry: sizes that the plan assumed.
        refusal: why a broker would not start on the outcome, or what it would cut; empty where it does neither.
        books: whole records before the plan and after it.
    """

    plan: Plan
    left: tuple[Step, ...]
    before: tuple[Finding, ...]
    after: tuple[Finding, ...]
    geometry: Geometry
    refusal: str = ""
    books: Books = field(default_factory=Books)


def plan_repair(
    store: RocketMQStore, options: RepairOptions, directory: Path, advance: Advance | None = None
) -> Repair:
    """Make the plan.

    Args:
        directory: files that the plan puts in place are built here; it must stay until the plan is carried out.

    Raises:
        Refused: the store is not on this machine, or ``neutralize`` names no message.
    """
    if not isinstance(store.tree, LocalTree):
        raise Refused(f"{store.root} is not on this machine; copy it here to repair it")
    away = links_that_lead_nowhere(store)
    if away and away != links_after_the_end(store):
        return _without_log(store, options, away)
    tried: list[Repair] = []
    for number, way in enumerate(_ways(lambda: tried[-1].books)):
        room = directory / f"way-{number}"
        try:
            tried.append(_Planner(store, options, room, advance or (lambda stage: None), way).run())
        except FileNotFoundError:
            if away:  # what the link led to is missed
                return _without_log(store, options, away)
            raise
        if tried[-1].books.balances:
            return tried[-1]
    return tried[0]


def _without_log(store: RocketMQStore, options: RepairOptions, names: Sequence[str]) -> Repair:
    """Return a plan that changes nothing: what lies in files of the log that links lead away to is not known."""
    checked = Verification(store, VerifyOptions(processes=options.processes))
    found = tuple(finding for finding in checked.findings() if finding.level is not Severity.NOTE)
    why = "nothing is planned without it: mount what it leads to, put the file in its place, or move the link away"
    left = (Step(FILE_UNREADABLE.id, name, "left as it is: a link that leads nowhere", why) for name in names)
    plan = Plan(Path(store.root), f"repair {store.root}", ())
    return Repair(plan, tuple(left), found, found, geometry_of(store))


@dataclass(slots=True)
class _Planner:
    below: RocketMQStore
    options: RepairOptions
    directory: Path
    advance: Advance
    way: Way
    steps: list[Step] = field(default_factory=list)
    left: dict[tuple[str, str, str], Step] = field(default_factory=dict)
    _built: int = 0
    _verified: int = -1
    _found: list[Finding] = field(default_factory=list)
    _undispatched: list[Finding] = field(default_factory=list)
    _seen: LogDamage | None = None
    _records: tuple[int, int] | None = None
    _recovery: Recovery | None = None

    def run(self) -> Repair:
        refused: OSError | None = None
        try:
            before = self._findings("verify")
        except OSError as error:
            refused = error
            if not self._take(unreadable_steps(self.below)):
                raise
            before = self._findings("verify")
        geometry = geometry_of(self.store)
        if before or self.options.neutralize:
            self._log(geometry, before)
        if self.store.log_files and (before or self.steps):
            self._derived()
        if refused is not None and not_made_again(self.below, self.store, self.steps):
            raise refused
        refusal = self._start()
        if refused is not None and refusal and links_that_lead_nowhere(self.below):
            raise refused
        after = self._findings("verify the result") if self.steps else before
        plan = Plan(Path(self.below.root), f"repair {self.below.root}", tuple(self.steps))
        books = self._books(plan, before)
        return Repair(plan, tuple(self.left.values()), tuple(before), tuple(after), geometry, refusal, books)

    def _books(self, plan: Plan, before: list[Finding]) -> Books:
        """Return whole records before and after; a plan that changes nothing keeps them all."""
        records, away = self._records or (0, 0)
        if not plan.steps:
            return Books(records)
        self.advance("books")
        replica = self.options.replica
        accepts = None if self.options.body_damage is BodyDamage.ACCEPT else len(self.options.accept)
        return books_of(
            self.below,
            plan,
            before,
            whole_before=records - away,
            replicas=[replica] if replica is not None else [],
            start=self._recovery,
            accepts=accepts,
        )

    def _start(self) -> str:
        """Return what a broker would refuse or cut that starts on the outcome; topics made from the queues are
        tried.
        """
        self.advance("a start on the result")
        if self.below.is_running or has_dledger_log(self.below):  # it has started; a group decides where its log ends
            return ""
        first = self._replayed()
        if first.index_deleted:
            first = self._with_index_kept() or first
        refusal = first.harm(_RESULT)
        if not refusal:
            return ""
        before = list(self.steps)
        self.steps = [step for step in before if step.file != TOPICS]
        if self._take(topic_steps(self.store)):
            again = self._replayed().harm(_RESULT)
            if again != refusal:
                return again
        self.steps, self._recovery = before, first
        return refusal

    def _replayed(self) -> Recovery:
        release = release_range(self.below).highest
        self._recovery = recover(self.store, release, processes=self.options.processes)
        return self._recovery

    def _with_index_kept(self) -> Recovery | None:
        """Return the start where the checkpoint promises the index that the plan makes or leaves; None where there is
        no plan.
        """
        made = next((step for step in self.steps if step.file.startswith(f"{INDEX}/")), None)
        made = made or next((step for step in self.steps if step.file == CHECKPOINT), None)
        kind_id = made.id if made is not None else INDEX_NEWER.id
        return self._replayed() if self.steps and self._take(index_time_steps(self.store, kind_id)) else None

    def _log(self, geometry: Geometry, found: list[Finding]) -> None:
        self.advance("files")
        suspects = [f.physical_offset for f in found if f.kind in _CONTRADICTING and f.physical_offset]
        replica = Replica(self.options.replica) if self.options.replica else None
        self._take(misplaced_steps(self.below, geometry))
        if self.way.puts_back:
            self._take(shifted_steps(self.store, self._room))
        self._take(foreign_steps(self.store, found))
        self._take(misnamed_queue_steps(self.below, found, self.below.log_files))
        self._take(stray_steps(self.store, geometry))
        self._take(missing_steps(self.store, self._damage, geometry, replica))
        known, moved = set(self.left), set[int]()
        for _ in range(_ROUNDS):
            self.left = {
                key: step for key, step in self.left.items() if key in known
            }  # what the last round leaves counts
            self.advance("log")
            mender = LogMender(
                self.store,
                self._damage(),
                replica=replica,
                body_damage=self.options.body_damage,
                accepted=self.options.accept,
                suspects=frozenset(suspects),
                way=self.way,
                aside=self._aside(),
                moved=moved,
            )
            if self._take(mender.renames_to_home()):
                moved |= mender.whereabouts.homes
                continue
            if self._take(mender.away()):
                continue
            if not self._take(mender.steps()) and not self._take(mender.giving_way()):
                break
            suspects = []
        self._take(neutralize_step(self.store, physical) for physical in self.options.neutralize)
        self.steps = naming_losses(self.below, self.store, self.steps)

    def _aside(self) -> list[StoreFile]:
        """Files of the log, and files beside them, that steps so far have moved away."""
        moved = (edit.file for step in self.steps for edit in step.edits if isinstance(edit, Quarantine))
        return [file for name in moved if (file := log_file_at(self.below, name)) is not None]

    def _derived(self) -> None:
        found = self._findings("queues")
        # before it was mended, the log may have hidden what they are
        if self._take(misnamed_queue_steps(self.below, found, self.store.log_files)):
            found = self._findings("queues")
        seen_now = self._seen

        def damage() -> LogDamage:  # from here on the log stays
            return seen_now or survey(self.store)

        self._take(expired_steps(self.store, found))
        cut = sum(step.loses for step in self.steps if step.what.startswith("end the log"))
        index: list[FileDifference] = []
        self._take(queue_steps(self.store, [*found, *self._undispatched], damage, self._room(), index, cut))
        if databases_of(self.store):
            self._take(database_steps(self.store, found, self._room()))
        self._take(empty_queue_file_steps(self.store))
        self._take(timer_steps(self.store, found, damage))
        self._take(index_steps(self.store, found, self._room(), index))
        before, found = found, self._findings("checkpoint and configuration")
        if found is not before:  # only whole queues show which of its holes are a tail not dispatched yet
            self._take(index_steps(self.store, found, self._room()))
        self._take(checkpoint_steps(self.store, found, self._room()))
        self._take(timer_check_steps(self.store, found))
        unsettled = {topic_of(f) for f in found if f.kind.id.startswith("queue.") and f.kind is not QUEUE_ORPHAN}
        settled = [f for f in found if f.topic not in unsettled]  # offsets of a queue that stays wrong mean nothing
        last_time = damage().last_time if any(f.kind.id.startswith("config.") for f in found) else 0
        self._take(config_steps(self.store, settled, last_time, self.options.processes))

    def _take(self, steps: Iterable[Step]) -> bool:
        """Add the steps that are wanted; whether any changes something."""
        taken, tree = False, self.below.tree
        confines = Confines(self.below.root, (*self.below.logs_outside, *self.options.outside))
        for wanted in list(steps):
            step = _within(_possible(wanted, tree), confines)
            if self.options.wants(step):
                if step.edits:
                    self.steps.append(step)
                    taken = True
                else:
                    self.left[step.id, step.file, step.what] = step
        return taken

    @property
    def store(self) -> RocketMQStore:
        """The store as the steps so far leave it."""
        return overlaid(self.below, (edit for step in self.steps for edit in step.edits))

    def _findings(self, stage: str) -> list[Finding]:
        """Errors and warnings of the store as the steps leave it; those known where nothing changed since."""
        if self._verified != len(self.steps):
            self.advance(stage)
            store = self.store
            verification = Verification(store, VerifyOptions(processes=self.options.processes), witness=DamageWitness)
            found = list(verification.findings())
            self._records = self._records or (verification.records, verification.log.away)
            self._verified, self._found = len(self.steps), [f for f in found if f.level is not Severity.NOTE]
            self._undispatched = [f for f in found if f.kind is QUEUE_UNDISPATCHED]
            self._seen = seen(store, verification)
        return self._found

    def _damage(self) -> LogDamage:
        """Return what the log shows as the steps leave it; it is walked over only where something changed since."""
        self._findings("log")
        return self._seen or survey(self.store)

    def _room(self) -> Path:
        """Return a new directory to build in."""
        self._built += 1
        room = self.directory / str(self._built)
        room.mkdir(parents=True)
        return room


def _possible(step: Step, tree: Tree) -> Step:
    """Return the step, or that it is left where a directory lies in the place of a file to be made or changed.

    Args:
        tree: the store as it is on the disk.
    """
    for name in sorted({edit.file for edit in step.edits if not isinstance(edit, Quarantine)}):
        entry = tree.stat(name)
        if entry is not None and entry.is_directory:
            why = f"{name} is a directory in the place of a file: when it is moved away, repair again"
            return Step(step.id, step.file, f"left as it is: {step.what}", why)
    return step


def _within(step: Step, confines: Confines) -> Step:
    """Return the step, or that it is left where it only moves away what a link reaches that leads out of the store."""
    if all(isinstance(edit, Quarantine) for edit in step.edits):
        for edit in step.edits:
            if problem := confines.problem(edit.file):
                return Step(step.id, step.file, f"left as it is: {step.what}", problem)
    return step


def complaints(store: RocketMQStore, repair: Repair, processes: int = 1) -> list[str]:
    """Return what the store as it is now has wrong that the plan did not foresee, a sentence each.

    Args:
        processes: that share the log.
    """
    fresh = overlaid(store, ())
    expected = {(f.kind.id, f.file, f.offset) for f in repair.after}
    found = Verification(fresh, VerifyOptions(processes=processes)).findings()
    return [
        f"{f.kind.id} in {f.file} at {f.offset}: {f.message}"
        for f in found
        if f.level is not Severity.NOTE and (f.kind.id, f.file, f.offset) not in expected
    ]
