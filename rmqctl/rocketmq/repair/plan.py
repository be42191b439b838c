"""The planner: from findings to steps with the least loss, in the order log, queues, index, checkpoint, config.

Each stage reads the store as the stages before leave it, with their edits laid over it; nothing is written. At the
end the whole store is verified as it would be. Each range of the log is mended by the best way that is proven:
healed, restored from a replica, bridged, or cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from rmqctl.findings import Finding, Severity
from rmqctl.repair.books import Books
from rmqctl.repair.edits import Overwrite, Plan, Quarantine, Step, StepName
from rmqctl.repair.planning import RESULT, Advance, Planner, PlanOptions, Repair, check_is_here
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
    links_after_the_end,
    links_that_lead_nowhere,
    not_made_again,
    stray_steps,
    unreadable_steps,
)
from rmqctl.rocketmq.repair.gaps import GapMender
from rmqctl.rocketmq.repair.log_files import (
    foreign_steps,
    has_foreign_queues,
    misplaced_steps,
    missing_steps,
    shifted_steps,
)
from rmqctl.rocketmq.repair.log_repair import BodyDamage, LogRepair, Replica, left
from rmqctl.rocketmq.repair.placeholder import blank
from rmqctl.rocketmq.repair.queue_files import (
    empty_queue_file_steps,
    expired_steps,
    misnamed_file_steps,
    misnamed_queue_steps,
)
from rmqctl.rocketmq.repair.queue_references import references_into
from rmqctl.rocketmq.repair.records import RecordMender, neutralize_step
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT
from rmqctl.rocketmq.state.config import configured_topics
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import databases_of
from rmqctl.rocketmq.store.files import BATCH_QUEUES, INDEX, QUEUES, SEPARATE_QUEUES, StoreFile, StoreFiles
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


def _ways(tried: Sequence[Repair]) -> Iterator[Way]:
    """Yield one way after the other, each less ambitious, as long as the books of the last one do not balance.

    Args:
        tried: what came of them so far.
    """
    yield Way()
    if (books := tried[-1].books) is not None and books.unproven:
        yield Way(frozenset(books.unproven))
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
        store: StoreFiles,
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
        log = LogReader(store.log_files)
        ranges = [*damage.ranges(), *((at, at + 1) for at in suspects), (damage.end, log.max_offset)]
        is_misplaced = lie_in(damage.missing.physical, ((run.begin, run.end) for run in damage.misplaced))
        claims = references_into(store, ranges, damage.missing.physical)
        claims = claims.without_false(damage.missing.where(~is_misplaced), damage.doubtful)
        self.repair = LogRepair(store, damage, claims, log, replica, body_damage, accepted, unhealed=way.unhealed)
        self.whereabouts = Whereabouts(self.repair, aside, moved)
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
            steps += RecordMender(self.repair, own, self.suspects, self.moved, gaps.taken).steps()
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


@dataclass(frozen=True, slots=True)
class RepairOptions(PlanOptions):
    """What to repair and how.

    Attributes:
        replica: another store of the same group, to take bytes from.
        body_damage: what becomes of a body that nothing heals.
        neutralize: physical offsets of messages to be replaced by placeholders.
        accept: names of steps in whose place the damaged body is kept.
    """

    replica: StoreFiles | None = None
    body_damage: BodyDamage = BodyDamage.PLACEHOLDER
    neutralize: tuple[int, ...] = ()
    accept: frozenset[StepName] = frozenset()

    def wants(self, step: Step) -> bool:
        if step.id == _NEUTRALIZE:
            return step.name not in self.without
        return PlanOptions.wants(self, step)


def plan_repair(store: StoreFiles, options: RepairOptions, directory: Path, advance: Advance = str) -> Repair:
    """Make the plan.

    Args:
        directory: files that the plan puts in place are built here; it must stay until the plan is carried out.

    Raises:
        Refused: the store is not on this machine, or ``neutralize`` names no message.
    """
    check_is_here(store, "repair")
    away = links_that_lead_nowhere(store)
    if away and away != links_after_the_end(store):
        return _without_log(store, options, away)
    tried: list[Repair] = []
    for way in _ways(tried):
        try:
            tried.append(_Planner(store, options, directory, advance, way).run())
        except FileNotFoundError:
            if away:  # what the link led to is missed
                return _without_log(store, options, away)
            raise
        if tried[-1].balances:
            return tried[-1]
    return tried[0]


def _without_log(store: StoreFiles, options: RepairOptions, names: Sequence[str]) -> Repair:
    """Return a plan that changes nothing: what lies in files of the log that links lead away to is not known."""
    checked = Verification(store, VerifyOptions(processes=options.processes))
    found = tuple(finding for finding in checked.findings() if finding.level is not Severity.NOTE)
    why = "nothing is planned without it: mount what it leads to, put the file in its place, or move the link away"
    left = (Step(FILE_UNREADABLE.id, name, "left as it is: a link that leads nowhere", why) for name in names)
    plan = Plan(Path(store.root), f"repair {store.root}", ())
    return Repair(plan, tuple(left), found, found, books=Books())


@dataclass
class _Planner(Planner[StoreFiles]):
    options: RepairOptions
    way: Way
    _laid_over: tuple[list[Step], StoreFiles] | None = field(default=None, init=False)
    _undispatched: list[Finding] = field(default_factory=list, init=False)
    _seen: LogDamage | None = field(default=None, init=False)
    _whole: tuple[int, int] | None = field(default=None, init=False)
    _recovery: Recovery | None = field(default=None, init=False)
    _unreadable: OSError | None = field(default=None, init=False)
    _is_believed: bool = field(default=True, init=False)

    @property
    def store(self) -> StoreFiles:
        if self._laid_over is None or self._laid_over[0] != self.steps:  # many edits take long to lay over it
            edits = (edit for step in self.steps for edit in step.edits)
            self._laid_over = list(self.steps), overlaid(self.below, edits)
        return self._laid_over[1]

    @property
    def outside(self) -> tuple[str, ...]:
        return (*self.below.logs_outside, *self.options.outside)

    def verify(self) -> list[Finding]:
        try:
            return self._checked()
        except OSError as error:
            self._unreadable = error
            if self.steps or not self.take(unreadable_steps(self.below)):
                raise
            return self._checked()

    def _checked(self) -> list[Finding]:
        store = self.store
        verification = Verification(store, VerifyOptions(processes=self.options.processes), witness=DamageWitness)
        found = list(verification.findings())
        self._whole = self._whole or (verification.log.whole, verification.log.at_home)
        self._undispatched = [f for f in found if f.kind is QUEUE_UNDISPATCHED]
        self._seen = seen(store, verification)
        return found

    def stages(self, before: list[Finding]) -> None:
        if before or self.options.neutralize:
            self._log(geometry_of(self.store), before)
        if self.store.log_files and (before or self.steps):
            self._derived()
        if self._unreadable is not None and not_made_again(self.below, self.store, self.steps):
            raise self._unreadable

    def start(self) -> tuple[str, None]:
        refusal = self._harm()
        if refusal and self._unreadable is not None and links_that_lead_nowhere(self.below):
            raise self._unreadable
        return refusal, None

    def judge(self, repair: Repair) -> tuple[Plan, Books]:
        whole, at_home = self._whole or (0, 0)
        if not repair.plan.steps:
            return repair.plan, Books(whole)
        replica = self.options.replica
        books = books_of(
            self.below,
            repair.plan,
            repair.before,
            whole_before=at_home,
            replicas=[replica] if replica is not None else [],
            start=self._recovery,
            accepts=None if self.options.body_damage is BodyDamage.ACCEPT else len(self.options.accept),
        )
        return repair.plan, books

    # --- a start on the result --------------------------------------------------------------------------

    def _harm(self) -> str:
        """Return what a broker would refuse or cut that starts on the outcome; topics made from the queues are
        tried.
        """
        if self.below.is_running or has_dledger_log(self.below):  # it has started; a group decides where its log ends
            return ""
        first = self._replayed()
        if first.index_deleted:
            first = self._with_index_kept() or first
        refusal = first.harm(RESULT)
        if not refusal:
            return ""
        before, known = list(self.steps), configured_topics(self.store) or {}
        self.steps = [step for step in before if step.file != TOPICS]  # one step writes the file
        made = [(topic, queue_id) for topic, queue_id, _, _ in first.ranges() if topic in first.unknown_topics]
        if self.take(topic_steps(self.store, {*first.unknown_topics, *known}, made)):
            again = self._replayed().harm(RESULT)
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
        return self._replayed() if self.steps and self.take(index_time_steps(self.store, kind_id)) else None

    # --- stages -----------------------------------------------------------------------------------------

    def _log(self, geometry: Geometry, found: list[Finding]) -> None:
        self.advance("files")
        suspects = [f.physical_offset for f in found if f.kind in _CONTRADICTING and f.physical_offset]
        replica = Replica(self.options.replica) if self.options.replica else None
        self._is_believed = not self._has_foreign_queues(found)
        self.take(misplaced_steps(self.below, geometry, self._with_units(self.below)))
        if self.way.puts_back:
            self.take(shifted_steps(self.store, self.room))
        self.take(foreign_steps(self._with_units(self.store), found, cache(lambda: survey(self.store).order)))
        self.take(misnamed_queue_steps(self.below, found, self.below.log_files))
        self.take(misnamed_file_steps(self.below, found, self.store.log_files))
        self.take(stray_steps(self.store, geometry))
        self.take(missing_steps(self.store, geometry, replica))
        known, moved = set(self.left), set[int]()
        for _ in range(_ROUNDS):
            self.left = {
                key: step for key, step in self.left.items() if key in known
            }  # what the last round leaves counts
            self.advance("log")
            mender = LogMender(
                self._with_units(self.store),
                self._damage(),
                replica=replica,
                body_damage=self.options.body_damage,
                accepted=self.options.accept,
                suspects=frozenset(suspects),
                way=self.way,
                aside=self._aside(),
                moved=moved,
            )
            if self.take(mender.renames_to_home()):
                moved |= mender.whereabouts.homes
                continue
            if self.take(mender.away()):
                continue
            if not self.take(mender.steps()) and not self.take(mender.giving_way()):
                break
            suspects = []
        self.take(neutralize_step(self.store, physical) for physical in self.options.neutralize)
        self.steps = naming_losses(self.below, self.store, self.steps)

    def _has_foreign_queues(self, found: Iterable[Finding]) -> bool:
        """Whether no unit of the queues is believed; asked only where half of all records or more lack theirs."""
        at_home = self._whole[1] if self._whole is not None else 0
        if self._seen is not None and 2 * len(self._seen.missing) < at_home:
            return False
        return any(f.kind.id.startswith("queue.") for f in found) and has_foreign_queues(self.below)

    def _with_units(self, store: StoreFiles) -> StoreFiles:
        """Return a store for all that asks queues of the log: without those of another broker."""
        kinds = [name for name in (QUEUES, BATCH_QUEUES, SEPARATE_QUEUES) if store.tree.stat(name) is not None]
        return store if self._is_believed else overlaid(store, map(Quarantine, kinds))

    def _aside(self) -> list[StoreFile]:
        """Files of the log, and files beside them, that steps so far have moved away."""
        moved = (edit.file for step in self.steps for edit in step.edits if isinstance(edit, Quarantine))
        return [file for name in moved if (file := log_file_at(self.below, name)) is not None]

    def _derived(self) -> None:
        found = self.findings("queues")
        # before it was mended, the log may have hidden what they are
        if self.take(misnamed_queue_steps(self.below, found, self.store.log_files)):
            found = self.findings("queues")
        seen_now = self._seen

        def damage() -> LogDamage:  # from here on the log stays
            return seen_now or survey(self.store)

        self.take(expired_steps(self.store, found))
        cut = sum(step.loses for step in self.steps if step.what.startswith("end the log"))
        index: list[FileDifference] = []
        self.take(queue_steps(self.store, [*found, *self._undispatched], damage, self.room(), index, cut))
        if databases_of(self.store):
            self.take(database_steps(self.store, found, self.room()))
        self.take(empty_queue_file_steps(self.store))
        self.take(timer_steps(self.store, found, damage))
        self.take(index_steps(self.store, found, self.room(), index))
        before, found = found, self.findings("checkpoint and configuration")
        if found is not before:  # only whole queues show which of its holes are a tail not dispatched yet
            self.take(index_steps(self.store, found, self.room()))
        self.take(checkpoint_steps(self.store, found, self.room()))
        self.take(timer_check_steps(self.store, found))
        unsettled = {topic_of(f) for f in found if f.kind.id.startswith("queue.") and f.kind is not QUEUE_ORPHAN}
        settled = [f for f in found if f.topic not in unsettled]  # offsets of a queue that stays wrong mean nothing
        last_time = damage().last_time if any(f.kind.id.startswith("config.") for f in found) else 0
        self.take(config_steps(self.store, settled, last_time, self.options.processes))

    def _damage(self) -> LogDamage:
        """Return what the log shows as the steps leave it; it is walked over only where something changed since."""
        self.findings("log")
        return self._seen or survey(self.store)


def complaints(store: StoreFiles, repair: Repair, processes: int = 1) -> list[str]:
    """Return what the store as it is now has wrong that the plan did not foresee, a sentence each.

    Args:
        processes: that share the log.
    """
    return repair.complaints(Verification(overlaid(store, ()), VerifyOptions(processes=processes)).findings())
