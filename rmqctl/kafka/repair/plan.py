"""The planner: from findings to steps with the least loss: names, logs, what is derived, who the directory is.

Each stage reads the directory as the stages before leave it, through an overlay; nothing is written. At the end the
whole is verified as it would be, and a broker's start on it is replayed, so that a plan shows what it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from rmqctl.errors import Refused
from rmqctl.files.tree import LocalTree
from rmqctl.findings import Finding, Severity
from rmqctl.kafka import finding_kinds as kinds
from rmqctl.kafka.directories import LogDirectories
from rmqctl.kafka.directory import LogDirectory, Partition, read_directory
from rmqctl.kafka.engine.batch import Ending, end_marker
from rmqctl.kafka.file_names import METADATA_TOPIC, DirectoryState, FileKind
from rmqctl.kafka.rebuild.build import INTERVAL, build
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, rebuild
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.files import appended, identity_steps, name_steps, swap_steps, vote_steps
from rmqctl.kafka.repair.heal import Healer, stored_epochs
from rmqctl.kafka.repair.log import LogMender, Source, leftover_sources
from rmqctl.kafka.repair.survey import LOG_KINDS, Survey
from rmqctl.kafka.repair.transactions import Endings
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import Checkpoints, PartitionLog
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.kafka.verify.state import is_compacted
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Edit, Plan, Step
from rmqctl.text import number_of

_ROUNDS = 3
ABORT = "transaction.open"
Advance = Callable[[str], object]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What to repair and how.

    Attributes:
        only, skip: ids of findings, ``*`` matches anything; ``only`` empty means all.
        replicas: log directories of other nodes, to take bytes from.
        abort: transactions to be ended: partition (``topic-0``) and producer id.
        settings: of the broker.
        release: whose start is replayed on the result.
        processes: that share the logs where they are verified.
    """

    release: Release
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    abort: tuple[tuple[str, int], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1

    def wants(self, step: Step) -> bool:
        """Whether a step is to be part of the plan."""
        named = not self.only or any(fnmatchcase(step.id, p) for p in self.only)
        return named and not any(fnmatchcase(step.id, p) for p in self.skip)


@dataclass(slots=True)
class Repair:
    """A finished plan.

    Attributes:
        plan: steps that change something, in order.
        left: what stays as it is, each with the reason.
        before, after: errors and warnings of the directory as it is, and as it will be.
        refusal: why a broker would not start on the outcome, or what it would cut; empty where it does neither.
    """

    plan: Plan
    left: tuple[Step, ...]
    before: tuple[Finding, ...]
    after: tuple[Finding, ...]
    refusal: str = ""


def plan_repair(directory: LogDirectory, options: RepairOptions, staged: Path, advance: Advance = str) -> Repair:
    """Make the plan for one log directory.

    Args:
        staged: files that the plan puts in place are built here; it must stay until the plan is carried out.

    Raises:
        Refused: the directory is not on this machine, or a transaction that is to be ended is not open.
        OSError: a file cannot be read or built.
    """
    if not isinstance(directory.tree, LocalTree):
        raise Refused(f"{directory.root} is not on this machine; copy it here to repair it")
    return _Planner(directory, options, staged, advance).run()


@dataclass(slots=True)
class _Planner:
    below: LogDirectory
    options: RepairOptions
    staged: Path
    advance: Advance
    steps: list[Step] = field(default_factory=list)
    left: dict[tuple[str, str, str], Step] = field(default_factory=dict)
    _built: int = 0
    _image: MetadataImage | None = None
    _known: list[Finding] = field(default_factory=list)
    _mended: dict[str, int] = field(default_factory=dict)

    def run(self) -> Repair:
        before = self._known = self._findings("verify")
        if before or self.options.abort:
            self._names(before)
            self._logs(before)
            for label, producer in self.options.abort:
                self._take(self._aborted(label, producer))
            self._derived()
            self._take(self._hanging())
        refusal = self._start() if before or self.steps else ""
        after = self._findings("verify the result") if self.steps else before
        plan = Plan(Path(self.below.root), f"repair {self.below.root}", tuple(self.steps))
        return Repair(plan, tuple(self.left.values()), tuple(before), tuple(after), refusal)

    # --- the directory as the steps so far leave it -----------------------------------------------------

    @property
    def directory(self) -> LogDirectory:
        return overlaid(self.below, self.steps)

    @property
    def replicas(self) -> Replicas:
        return Replicas(LogDirectories([self.directory]))

    def _findings(self, stage: str, *, partition: Partition | None = None) -> list[Finding]:
        """Errors and warnings; of one partition those at any level in its log."""
        self.advance(stage)
        selection = "" if partition is None else partition.directory
        options = VerifyOptions("full" if partition is None else "structure", processes=self.options.processes)
        image = None if partition is None else self._image
        found = Verification(self.directory, options, selection=selection, image=image).findings()
        return [f for f in found if f.level is not Severity.NOTE or (partition is not None and f.kind in LOG_KINDS)]

    def _take(self, steps: Iterable[Step]) -> bool:
        """Add the steps that are wanted; whether any changes something."""
        taken = False
        for step in list(steps):
            if not self.options.wants(step):
                continue
            if step.edits:
                self.steps.append(step)
                taken = True
            else:
                self.left[step.id, step.file, step.what] = step
        return taken

    def _room(self) -> Path:
        """A path at which a file can be built."""
        self._built += 1
        return self.staged / str(self._built)

    # --- stages -----------------------------------------------------------------------------------------

    def _names(self, findings: Sequence[Finding]) -> None:
        self.advance("files")
        self._take(name_steps(findings, self.replicas.image))
        for partition in self.directory.partitions:
            lost = [file for file in partition.leftovers if file.meaning.leftover == ".swap"]
            if lost and partition.is_plain:
                self._take(swap_steps(partition, self._room))

    def _logs(self, findings: Sequence[Finding]) -> None:
        """Mend the logs that something is wrong with: heal first, then fill what is left."""
        wanted = {f.file.partition("/")[0] for f in findings if f.kind in LOG_KINDS}
        for name in sorted(wanted, key=lambda name: (not name.startswith(METADATA_TOPIC), name)):
            self.advance(name)
            self._image = None if name.startswith(METADATA_TOPIC) else self._image or self.replicas.image
            for _ in range(_ROUNDS):
                if not self._take(self._healed(name)):
                    break
            for _ in range(_ROUNDS):
                if not self._take(self._filled(name)):
                    break

    def _partition(self, name: str) -> tuple[Partition, PartitionLog, bool] | None:
        """A partition whose log may be mended, and whether offsets may be missing in it."""
        directory = self.directory
        partition = next((p for p in directory.partitions if p.directory == name), None)
        if partition is None or partition.state is not DirectoryState.PLAIN:
            return None
        checkpoints = Checkpoints(directory)
        compacted = is_compacted(partition, checkpoints, None if partition.is_metadata_log else self._image)
        return partition, PartitionLog(directory, partition, checkpoints), compacted

    def _healed(self, name: str) -> Iterator[Step]:
        found = self._partition(name)
        if found is None:
            return
        partition, log, compacted = found
        findings = [f for f in self._findings("heal", partition=partition) if f.kind in LOG_KINDS]
        if not findings:
            return
        survey = Survey(partition, findings)
        epochs = stored_epochs(partition, log.leader_epochs.entries if not log.leader_epochs.problems else ())
        mender = LogMender(survey, (), Path(self.below.root), self._room, compacted=compacted)
        yield from Healer(survey, epochs, compacted=compacted).steps(mender.timed)

    def _filled(self, name: str) -> Iterator[Step]:
        found = self._partition(name)
        if found is None:
            return
        partition, _, compacted = found
        findings = [f for f in self._findings("fill", partition=partition) if f.kind in LOG_KINDS]
        if not findings:
            return
        survey = Survey(partition, findings)
        beyond = max((r.beyond if r.beyond >= 0 else 1 << 63 for r in survey.ranges()), default=1 << 63)
        self._mended[name] = max(beyond, self._mended.get(name, 0))
        sources = [*self._sources(partition), *leftover_sources(partition)]
        keeps_room = not any(f.kind is kinds.BATCH_ZERO_END for f in findings)
        doubtful = {f.file for f in self._known if f.kind.id.startswith("txn-index.")}
        endings = None if compacted else Endings(survey, frozenset(doubtful))
        mender = LogMender(
            survey, sources, Path(self.below.root), self._room, compacted=compacted, endings=endings
        )  # fmt: skip
        for step in mender.steps(findings, keeps_room=keeps_room):
            if partition.is_metadata_log and "bridge" in step.what:
                why = "no record of the metadata may be missing; restore it with --from another controller"
                yield Step(step.id, step.file, f"left as it is: {step.why}", why)
            else:
                yield step

    def _sources(self, partition: Partition) -> Iterator[Source]:
        """The same partition in the replicas."""
        for replica in self.options.replicas:
            for directory in replica.directories:
                other = directory.partition(partition.topic, partition.partition or 0)
                if other is not None:
                    yield Source(directory.root, Survey(other))

    def _derived(self) -> None:
        """What is derived from the logs, and who the directory is."""
        findings = self._findings("derived")
        for _ in range(_ROUNDS):
            directory = self.directory
            if not self._take(self._rebuilt(directory, findings)):
                break
            findings = self._findings("derived")
        replicas = self.replicas
        directory, log = self.directory, replicas.metadata_log
        self._take(identity_steps(directory, replicas, self.options.replicas, findings))
        self._take(vote_steps(None if log is None else log.partition, replicas.image, findings))

    def _rebuilt(self, directory: LogDirectory, findings: Sequence[Finding]) -> Iterator[Step]:
        """Derived files that are wrong, as the logs give them."""
        replicas = Replicas(LogDirectories([directory]))
        suspects = {finding.file.partition("/")[0] for finding in findings}
        suspects |= {f"{finding.topic}-{finding.partition}" for finding in findings if finding.topic is not None}
        is_whole = directory.is_clean and str(FileKind.RECOVERY_POINTS) in suspects
        options = RebuildOptions(
            settings=self.options.settings,
            only=None if is_whole else frozenset(suspects | self._mended.keys()),
            findings=findings,
        )
        made = rebuild(replicas, directory, options, self.advance)
        for name, why in made.left.items():
            self.left["rebuild", name, why] = Step("rebuild.file", name, "left as it is", why)
        yield from (step for step in made.steps(directory) if step.id != "rebuild.file")

    # --- transactions -----------------------------------------------------------------------------------

    def _aborted(self, label: str, producer: int) -> Iterator[Step]:
        """End a transaction by a control batch at the end of its partition.

        Raises:
            Refused: there is no such partition, or no such transaction is open.
        """
        replicas = self.replicas
        log = next((found for found in replicas.served if found.partition.label == label), None)
        if log is None:
            raise Refused(f"{label} is no partition here; rmqctl topics lists those that are")
        made = build(log, INTERVAL, at_end=False)
        state = made.replay.producers.get(producer)
        if state is None or producer not in made.replay.open or not log.segments:
            known = ", ".join(map(str, sorted(made.replay.open))) or "none is"
            raise Refused(f"no transaction of producer {producer} is open in {label}; open there: {known}")
        file = log.segments[-1].log
        assert file is not None
        ending = Ending(
            producer, state.producer_epoch, commit=False, coordinator_epoch=max(state.coordinator_epoch, 0),
            timestamp=state.last_timestamp,
        )  # fmt: skip
        survey = Survey(log.partition)
        epoch = int(survey.columns["partition_leader_epoch"].max(initial=-1))
        batch = end_marker(ending, made.end_offset, epoch)
        first = made.replay.open[producer]
        what = f"end the transaction of producer {producer} from offset {first} by an ABORT marker at {made.end_offset}"
        why = "it was asked for; readers of committed records go on"
        yield Step(ABORT, file.name, what, why, tuple(appended(file.name, file.size, batch)))

    def _hanging(self) -> Iterator[Step]:
        """Transactions that are open where something was destroyed: their markers may be among it."""
        replicas = self.replicas
        for log in replicas.served:
            beyond = self._mended.get(log.partition.directory, -1)
            if beyond < 0:
                continue
            made = build(log, INTERVAL, at_end=False)
            for producer, first in sorted(item for item in made.replay.open.items() if item[1] < beyond):
                label = log.partition.label
                yield Step(
                    ABORT,
                    f"{log.partition.directory}/",
                    f"left as it is: the transaction of producer {producer} from offset {first} has no end",
                    "its marker may be among what was destroyed; readers of committed records wait there until the "
                    f"coordinator ends it; --abort-transaction {label}:{producer} does so now",
                )

    # --- the outcome ------------------------------------------------------------------------------------

    def _start(self) -> str:
        """What a broker would refuse or cut that starts on the outcome."""
        self.advance("a start on the result")
        start = recover(self.replicas, self.options.release, self.options.settings)
        if not start.starts or start.offline:
            return f"a broker of {start.release} would not start on the result: {start.error}"
        if start.lost_records:
            lost = number_of(start.lost_records, "record")
            return f"a broker of {start.release} would cut {lost} off the result"
        return ""


def overlaid(directory: LogDirectory, steps: Iterable[Step]) -> LogDirectory:
    """The directory with steps carried out in memory."""
    return read_directory(Overlay(directory.tree, _edits(steps)))


def _edits(steps: Iterable[Step]) -> Iterator[Edit]:
    return (edit for step in steps for edit in step.edits)


def complaints(directory: LogDirectory, repair: Repair) -> list[str]:
    """What a directory as it is now has wrong that the plan did not foresee, a sentence each.

    Raises:
        OSError: a directory cannot be listed.
    """
    expected = {(f.kind.id, f.file, f.offset) for f in repair.after}
    return [
        f"{f.kind.id} in {f.file} at {f.offset}: {f.message}"
        for f in Verification(directory).findings()
        if f.level is not Severity.NOTE and (f.kind.id, f.file, f.offset) not in expected
    ]
