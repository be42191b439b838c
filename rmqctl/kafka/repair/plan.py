"""The planner: from findings to steps with the least loss: names, logs, what is derived, who the directory is.

Each stage reads the directory as the stages before leave it, through an overlay; nothing is written. At the end the
whole is verified as it would be, and a broker's start on it is replayed, so that a plan shows what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.directory_files import ZERO_ID, parse_meta_properties
from rmqctl.errors import Refused
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory, LogFile, Partition
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, DirectoryState, FileKind, meaning_of
from rmqctl.kafka.engine.batch import Ending, end_marker
from rmqctl.kafka.engine.cluster_files import Cluster, ClusterTopic, cluster_records, features_of
from rmqctl.kafka.findings.derived import TXN_INDEX_ABSENT, TXN_INDEX_ENTRY
from rmqctl.kafka.findings.directory import (
    CHECKPOINT_BEYOND_END,
    DIRECTORY_LOST,
    DIRECTORY_LOST_LOG,
    DIRECTORY_SWAP,
    METADATA_REPLAY,
)
from rmqctl.kafka.findings.log import BATCH_ZERO_END
from rmqctl.kafka.loading.checkpoints import Checkpoints, read_text
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.indexes import read_offset_index, read_txn_index
from rmqctl.kafka.rebuild.build import INTERVAL, build
from rmqctl.kafka.rebuild.rebuild import RebuildOptions, rebuild
from rmqctl.kafka.recovery.replay import Recovery, hides_metadata, recover
from rmqctl.kafka.repair.balance import Cautions, balanced
from rmqctl.kafka.repair.files import (
    appended,
    aside_steps,
    identity_steps,
    link_steps,
    lost_steps,
    name_steps,
    swap_steps,
    topic_id_steps,
    vote_steps,
)
from rmqctl.kafka.repair.heal import Healer, stored_epochs
from rmqctl.kafka.repair.ledger import KafkaLedger
from rmqctl.kafka.repair.log import LogMender, Source, carried_on, ended_again, leftover_sources
from rmqctl.kafka.repair.names import exchange_steps, segment_name_steps
from rmqctl.kafka.repair.order import order_steps
from rmqctl.kafka.repair.overlaid import Laid, changed_by, cuts_of, edits_of, overlaid
from rmqctl.kafka.repair.stretches import stretch_steps
from rmqctl.kafka.repair.survey import LOG_KINDS, Survey
from rmqctl.kafka.repair.transactions import (
    Endings,
    aborted_in,
    coordinator_says,
    doubtful_indexes,
    hole_steps,
    transaction_name,
)
from rmqctl.kafka.state.metadata import MetadataImage
from rmqctl.kafka.state.partition_state import PartitionLog
from rmqctl.kafka.state.replicas import Replicas, is_beside, meta_properties
from rmqctl.kafka.verify.driver import PartitionChecked, Verification, VerifyOptions
from rmqctl.kafka.verify.state import is_compacted
from rmqctl.release import Release
from rmqctl.repair.books import Books
from rmqctl.repair.edits import Create, Cut, Plan, Quarantine, Step
from rmqctl.repair.planning import RESULT, Advance, Planner, PlanOptions, Repair, check_is_here
from rmqctl.text import number_of

_ROUNDS, _HEALINGS = 3, 64
"""How often a stage is planned on its own outcome; that which heals goes on from both ends of damage in a row."""
_RESTORE = "restore it with --from another controller"
_MARKED = "markers of aborted transactions were written into its segment again"
_READ_AT_START = FileKind.HIGH_WATERMARKS, FileKind.RECOVERY_POINTS
_MADE = DIRECTORY_LOST.id, DIRECTORY_LOST_LOG.id, DIRECTORY_SWAP.id
_LEAST_RECORD = 7
"""Bytes of a record without key and value."""
ABORT = "transaction.open"


@dataclass(frozen=True, slots=True)
class RepairOptions(PlanOptions):
    """What to repair and how.

    Attributes:
        release: whose start is replayed on the result.
        replicas: log directories of other nodes, to take bytes from.
        abort: transactions to be ended: partition (``topic-0``) and producer id.
        settings: of the broker.
    """

    release: Release
    replicas: tuple[Replicas, ...] = ()
    abort: tuple[tuple[str, int], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def plan_repair(
    directory: LogDirectory,
    options: RepairOptions,
    staged: Path,
    advance: Advance = str,
    image: MetadataImage | None = None,
) -> Repair:
    """Make the plan for one log directory.

    Args:
        staged: files that the plan puts in place are built here; it must stay until the plan is carried out.
        image: the cluster's metadata in the directory as it is, where it has been read.

    Raises:
        Refused: the directory is not on this machine, or a transaction that is to be ended is not open.
    """
    check_is_here(directory, "repair")
    cautions, planner = Cautions(), None
    while True:
        planner = _Planner(directory, options, staged, advance, image, cautions, planner)
        found = planner.run()
        if found.books is None or not cautions.learn(directory, found.plan, found.books):
            return found


@dataclass
class _Planner(Planner[LogDirectory]):
    options: RepairOptions
    image: MetadataImage | None
    cautions: Cautions
    before: _Planner | None
    known: list[Finding] = field(default_factory=list, init=False)
    looked: dict[str, PartitionChecked] = field(default_factory=dict, init=False)
    _image: MetadataImage | None = field(default=None, init=False)
    _mended: dict[str, int] = field(default_factory=dict, init=False)
    _aborts: set[str] = field(default_factory=set, init=False)
    _recovery: Recovery | None = field(default=None, init=False)

    def stages(self, before: list[Finding]) -> None:
        self.known = before
        for step in self.cautions.steps():
            self.left[step.name] = step
        if before or self.options.abort:
            self._names()
            self._logs(before)
            for label, producer in self.options.abort:
                self.take(self._aborted(label, producer))
            self._derived()
            self.take(self._hanging())
            self.take(hole_steps(self.store, self.found))

    def start(self) -> tuple[str, str]:
        self._recovery = recover(self.replicas, self.options.release, self.options.settings)
        if hides_metadata(Replicas(LogDirectories([self.below])), self.options.release):
            return self._recovery.known_harm(RESULT), self._recovery.doubt(RESULT)
        return self._recovery.harm(RESULT), ""

    def judge(self, repair: Repair) -> tuple[Plan, Books | None]:
        if not repair.plan.steps:
            return repair.plan, None
        ledger = KafkaLedger(
            repair.plan, self.below, self.options.release, self.options.settings, self.options.replicas, self._recovery
        )
        return balanced(repair.plan, self.below, ledger, repair.left, self.looked)

    def wants(self, step: Step) -> bool:
        return self.options.wants(step) and not self.cautions.forbids(step)

    # --- the directory as the steps so far leave it -----------------------------------------------------

    @cached_property
    def _laid(self) -> Laid:
        return Laid(self.below)

    @property
    def store(self) -> LogDirectory:
        return self._laid.lay(self.steps)

    @property
    def replicas(self) -> Replicas:
        return Replicas(LogDirectories([self.store]))

    def verify(self) -> Iterator[Finding]:
        if self.before is not None and not self.steps:
            self.looked = self.before.looked
            yield from self.before.known
            return
        image = None if self.steps else self.image
        options = VerifyOptions("full", processes=self.options.processes)
        checked = Verification(self.store, options, image=image, elsewhere=self._beside)
        checked.known = self._unchanged()
        checked.memory = None if self.steps else self.looked
        yield from checked.findings()

    def _findings_in(self, partition: Partition, stage: str) -> list[Finding]:
        """Return errors and warnings of a partition as the steps leave it, and what is said of its log at any level."""
        self.advance(stage)
        options = VerifyOptions("structure", processes=self.options.processes)
        checked = Verification(
            self.store, options, selection=partition.directory, image=self._image, elsewhere=self._beside,
            checkpoints=self._laid.checkpoints,
        )  # fmt: skip
        return [f for f in checked.findings() if f.level is not Severity.NOTE or f.kind in LOG_KINDS]

    @cached_property
    def _beside(self) -> frozenset[tuple[str, int | None]]:
        """Topic and number of what lies in the broker's other log directories, as far as they were given."""
        own = meta_properties(self.below)
        return frozenset(
            (partition.topic, partition.partition)
            for replica in self.options.replicas
            for directory in replica.directories
            if own is not None and is_beside(own, meta_properties(directory))
            for partition in directory.partitions
        )

    def _unchanged(self) -> Mapping[str, PartitionChecked]:
        """Return what was found in the partitions that no step changes; nothing where others may depend on a change."""
        changed = changed_by(edits_of(self.steps))
        if changed <= {p.directory for p in self.below.partitions if not p.is_metadata_log}:
            return {name: looked for name, looked in self.looked.items() if name not in changed}
        return {}

    def _file(self) -> Path:
        """Return a path at which a file can be built."""
        return self.room() / "built"

    # --- stages -----------------------------------------------------------------------------------------

    def _names(self) -> None:
        self.advance("files")
        for _ in range(_ROUNDS):
            if not self.take(self._without_snapshot()):
                break
        findings = self.findings("verify without the snapshot")
        if self.take(stretch_steps(self.store, findings)):
            findings = self.findings("verify with the stretches exchanged")
        if self.take(exchange_steps(self.store, findings, self._file)):
            findings = self.findings("verify with the logs exchanged")
        self.take(segment_name_steps(self.store, findings, self._file, self.replicas.image))
        self.take(name_steps(self.store, findings, self.replicas.image))
        self.take(link_steps(self.store, findings))
        self.take(lost_steps(findings, self.replicas, self.options.replicas, self._file))
        self.take(swap_steps(self.store, self._file))

    def _without_snapshot(self) -> Iterator[Step]:
        """Move out a damaged snapshot of the metadata where the log and earlier snapshots say all that it said."""
        image = self.replicas.image
        name = None if image is None else image.snapshot
        found = next((p for p in image.problems if p.file == name), None) if image is not None else None
        if name is None or found is None:
            return
        step = Step(
            METADATA_REPLAY.id, name, "move out",
            f"{found.message}; the metadata log has all that it says", (Quarantine(name),),
        )  # fmt: skip
        after = self._after([step]).image
        is_whole = after is not None and (not after.problems or after.problems[0].file == after.snapshot)
        what = f"left as it is: {found.message}"
        why = "the metadata log does not reach back far enough to do without it; take it from another controller"
        yield step if is_whole else Step(step.id, name, what, why)

    def _logs(self, findings: Sequence[Finding]) -> None:
        """Mend the logs that something is wrong with: heal first, then fill what is left."""
        wanted = {f.file.partition("/")[0] for f in findings if f.kind in LOG_KINDS}
        wanted |= {step.file.partition("/")[0] for step in self.steps if step.id in _MADE}
        for name in sorted(wanted, key=lambda name: (not name.startswith(METADATA_TOPIC), name)):
            self.advance(name)
            self._image = None if name.startswith(METADATA_TOPIC) else self._image or self.replicas.image
            for stage in (self._ordered, self._healed, self._filled):
                for _ in range(_HEALINGS if stage == self._healed else _ROUNDS):
                    if not self.take(stage(name)):
                        break

    def _partition(self, name: str) -> tuple[Partition, PartitionLog, bool] | None:
        """Return a partition whose log may be mended, and whether offsets may be missing in it."""
        directory = self.store
        partition = next((p for p in directory.partitions if p.directory == name), None)
        if partition is None or partition.state is not DirectoryState.PLAIN:
            return None
        checkpoints = self._laid.checkpoints
        compacted = is_compacted(partition, checkpoints, None if partition.is_metadata_log else self._image)
        return partition, PartitionLog(directory, partition, checkpoints), compacted

    def _ordered(self, name: str) -> Iterator[Step]:
        found = None if name in self.cautions.unmoved else self._partition(name)
        if found is not None:
            survey = Survey(found[0], anywhere=True)
            survey.set_copies_aside(found[1].directory.partitions, ())
            mender = LogMender(survey, (), Path(self.place), self._file, compacted=found[2])
            yield from order_steps(mender, compacted=found[2])

    def _healed(self, name: str) -> Iterator[Step]:
        found = self._partition(name)
        if found is None:
            return
        partition, log, compacted = found
        findings = self.cautions.doubted(self._findings_in(partition, "heal"))
        if not findings:
            return
        survey = Survey(partition, findings)
        believed = [file.name in self.cautions.believed for file in survey.files]
        survey.damages = [damage for damage in survey.damages if not (damage.frame_ok and believed[damage.segment])]
        epochs = stored_epochs(log)
        survey.set_copies_aside(log.directory.partitions, epochs)
        mender = LogMender(survey, (), Path(self.place), self._file, compacted=compacted)
        yield from Healer(survey, epochs, compacted=compacted, log=log).steps(mender)

    def _filled(self, name: str) -> Iterator[Step]:
        found = self._partition(name)
        if found is None:
            return
        partition, log, compacted = found
        findings = self.cautions.doubted(self._findings_in(partition, "fill"))
        if not findings:
            return
        survey = Survey(partition, findings)
        epochs = stored_epochs(log)
        survey.set_copies_aside(log.directory.partitions, epochs)
        beyond = max((r.beyond if r.beyond >= 0 else 1 << 63 for r in survey.ranges()), default=1 << 63)
        self._mended[name] = max(beyond, self._mended.get(name, 0))
        sources = [*self._sources(partition), *leftover_sources(partition)]
        keeps_room = not any(f.kind is BATCH_ZERO_END for f in findings)
        endings = None if compacted else Endings(survey, doubtful_indexes(partition, survey, self.known))
        mender = LogMender(
            survey, sources, Path(self.place), self._file, compacted=compacted, endings=endings, epochs=epochs,
            believed=self.cautions.believed, kept=self.cautions.kept.get(name, ()),
        )  # fmt: skip
        if partition.is_metadata_log:
            yield from self._filled_metadata(mender, findings, keeps_room=keeps_room)
        else:
            yield from mender.steps(findings, keeps_room=keeps_room)
            self._aborts |= {name.removesuffix(".log") + ".txnindex" for name in mender.aborted}

    def _filled_metadata(self, mender: LogMender, findings: Sequence[Finding], *, keeps_room: bool) -> Iterator[Step]:
        """Bridge destroyed metadata where nothing that is known depends on it, or what does is made again.

        A controller reads from its newest snapshot on, so what was destroyed before that is no loss. After it, a record
        about a topic or broker that it does not know makes it end, and a partition that it does not know goes to
        ``-stray``. Where there are other controllers, they have the records.
        """
        steps = list(mender.steps(findings, keeps_room=keeps_room))
        if any("bridge" in step.what for step in steps):
            against = f"{mender.too_many}; {_RESTORE}" if mender.too_many else self._against(steps)
            if against and not mender.too_many:
                mender.metadata = list(self._topics_again(steps))
                again = list(mender.steps(findings, keeps_room=keeps_room)) if mender.metadata else steps
                unmade, mender.metadata = len(mender.metadata), ()
                steps, against = (steps, against) if unmade or self._against(again) else (again, "")
            for number, step in enumerate(steps):
                if against and "bridge" in step.what:
                    steps[number] = Step(step.id, step.file, f"left as it is: {step.why}", against)
        yield from steps

    def _after(self, steps: Sequence[Step]) -> Replicas:
        return Replicas(LogDirectories([overlaid(self.below, [*self.steps, *steps])]))

    def _against(self, steps: Sequence[Step]) -> str:
        """Why a controller should not read a metadata log as these steps leave it; empty where it may."""
        replicas = self._after(steps)
        image = replicas.image
        assert image is not None
        snapshot = meaning_of(image.snapshot.rpartition("/")[2]).base if image.snapshot else None
        beyond = max(offset for name, offset in self._mended.items() if name.startswith(METADATA_TOPIC))
        if snapshot is not None and snapshot >= beyond:
            return ""
        if max(len(image.quorum), len(image.voters), len(image.controllers)) > 1:
            return f"no record of the metadata may be missing; {_RESTORE}"
        if image.problems:
            return f"later records need those that were destroyed ({image.problems[0].message}); {_RESTORE}"
        unknown = sorted(_unknown(replicas, image))
        if unknown:
            return f"the cluster would not know {unknown[0]} any more, which is here; {_RESTORE}"
        return ""

    def _topics_again(self, steps: Sequence[Step]) -> Iterator[bytes]:
        """Yield records that make the topics again that are here, and that a bridged metadata log would not know."""
        replicas = self._after(steps)
        image, directory = replicas.image, self.store
        file = directory.one(FileKind.META_PROPERTIES)
        identity = parse_meta_properties(b"" if file is None else read_text(file))
        if image is None or identity.node_id is None:
            return
        topics = dict[tuple[str, str], dict[int, int]]()
        for label, (topic, topic_id, number) in _unknown(replicas, image).items():
            partition = next(p for p in directory.partitions if p.directory == label)
            epochs = Survey(partition).columns["partition_leader_epoch"]
            topics.setdefault((topic, topic_id), {})[number] = int(epochs.max(initial=-1))
        made = [ClusterTopic(topic, topic_id, epochs) for (topic, topic_id), epochs in sorted(topics.items())]
        cluster = Cluster(
            identity.cluster_id or "", identity.node_id, self.options.release, made,
            identity.directory_id or ZERO_ID, image.features,
        )  # fmt: skip
        yield from cluster_records(cluster, features_of(self.options.release, image.features), known=image.topics)

    def _sources(self, partition: Partition) -> Iterator[Source]:
        """Yield the same partition in the replicas."""
        for replica in self.options.replicas:
            for directory in replica.directories:
                other = directory.partition(partition.topic, partition.partition or 0)
                if other is not None:
                    yield Source(directory.root, Survey(other))

    def _derived(self) -> None:
        """Plan what is derived from the logs, and who the directory is."""
        findings = self.findings("derived")
        for _ in range(_ROUNDS):
            if self.take(self._ends_kept(findings)):
                findings = self.findings("derived")
            if not self.take(self._rebuilt(self.store, findings)):
                break
            findings = self.findings("derived")
        replicas = self.replicas
        directory, log = self.store, replicas.metadata_log
        self.take(aside_steps(directory, findings))
        self.take(topic_id_steps(directory, replicas, self.options.replicas, findings))
        self.take(identity_steps(directory, replicas, self.options.replicas, findings))
        self.take(vote_steps(None if log is None else log.partition, replicas.image, findings))

    def _ends_kept(self, findings: Sequence[Finding]) -> Iterator[Step]:
        """Carry logs that lost their end on to the offset that they had reached, so that none is given twice.

        The other replicas of a partition have the records, so this is only for those that have none. Where a segment
        that began at the end is gone, or the last one cannot take more, they go into one that begins there.
        """
        for label in sorted({f"{f.topic}-{f.partition}" for f in findings if f.kind is CHECKPOINT_BEYOND_END}):
            replicas = self.replicas
            log = next((found for found in replicas.served if found.partition.label == label), None)
            if log is None or replicas.image is None or not log.segments:
                continue
            known = replicas.image.partitions.get((replicas.topic_id(log) or "", log.partition.partition or 0))
            survey, file = Survey(log.partition), log.segments[-1].log
            room = [one for one in survey.damages if one.is_room and one.segment == len(survey.files) - 1]
            if known is None or len(known["replicas"]) != 1 or file is None or len(room) < len(survey.damages):
                continue
            last = survey.batch(len(survey) - 1) if len(survey) else None
            end = max(file.base, last.last_offset + 1 if last is not None else 0)
            reached = self._reached(log, end)
            if end < reached <= file.base + INT_MAX:
                compacted = is_compacted(log.partition, log.checkpoints, replicas.image)
                sources = [*self._sources(log.partition), *(() if compacted else leftover_sources(log.partition))]
                epochs = self._epochs_before(log)
                made, restored, names = carried_on(sources, epochs, last, end, reached)
                what = f"end the log at offset {reached} with an empty batch for {end} to {reached - 1}"
                if restored:
                    what = f"end the log at offset {reached}: {number_of(restored, 'offset')} from {', '.join(names)}"
                    what += "" if restored == reached - end else ", empty batches for the others"
                why = "the checkpoints say that it had come so far; no offset is to be given to a second record"
                marked, name = 0, self._taking(log, file, end)
                if not (restored or compacted):
                    whole = self._with_gone(log)
                    doubtful = doubtful_indexes(whole, survey, self.known)
                    ended, markers, text = ended_again(whole, doubtful, last, end, reached)
                    why += text
                    if ended is not None:
                        made, marked = ended, len(markers)
                        self._aborts |= {f"{name[:-4]}.txnindex" for one in markers.values() if not one.commit}
                size = min((one.begin for one in room), default=file.size)  # zeros follow that were never written
                added = appended(name, size, made) if name == file.name else [Create(name, made)]
                edits = (*([Cut(file.name, file.size, size)] if room else []), *added)
                cuts = [n for n, step in enumerate(self.steps) if any(cuts_of(log, step.edits))]
                counted = sum(self.steps[n].loses for n in cuts)
                lost = max(reached - end, counted) - restored - marked
                step = Step(CHECKPOINT_BEYOND_END.id, name, what, why, edits, max(lost - counted, 0))
                if self.wants(step):  # what comes back here is not given up by the step that cut it off
                    for n in cuts:
                        self.steps[n] = replace(self.steps[n], loses=min(self.steps[n].loses, lost))
                yield step

    def _taking(self, log: PartitionLog, file: LogFile, end: int) -> str:
        """Return the name of the log that takes what comes after the end: the last one, or one that begins there."""
        is_gone = any(segment.base == end and segment.log is None for segment in self._on_disk(log).segments)
        is_full = file.name in self.cautions.believed
        return f"{log.partition.directory}/{end:020d}.log" if end > file.base and (is_gone or is_full) else file.name

    def _with_gone(self, log: PartitionLog) -> Partition:
        """Return a partition with what was left of later segments whose logs are gone."""
        gone = (replace(s, log=None) for s in self._on_disk(log).segments if s.base > log.partition.segments[-1].base)
        return replace(log.partition, segments=[*log.partition.segments, *gone])

    def _reached(self, log: PartitionLog, end: int) -> int:
        """Return the offset that a log had certainly reached before it was damaged.

        Two witnesses are enough; one is where the bytes that were cut off can have held so many records, or those of a
        segment like the others if an index is of one that is gone.
        """
        checked = (log.checkpoints.offset(kind, log.partition) for kind in _READ_AT_START)
        witnesses = [offset for offset in checked if offset is not None]
        witnesses += [file.base for file in log.partition.snapshots]
        cut = sum(edit.from_size - edit.to_size for edit in cuts_of(log, edits_of(self.steps)))
        indexed = list(self._indexed(log))
        if max(indexed, default=end) > end:
            cut += max(file.size for file in log.partition.logs)
        known = sorted([*witnesses, *indexed])
        likely = [offset for offset in witnesses if offset - end <= cut // _LEAST_RECORD]
        return max([*known[-2:-1], *likely, 0])

    def _epochs_before(self, log: PartitionLog) -> tuple[LeaderEpoch, ...]:
        """Return the leader epochs of a log, those that steps took out because they lie after its end among them."""
        before = stored_epochs(PartitionLog(self.below, self._on_disk(log), Checkpoints(self.below)))
        now = stored_epochs(log)
        return before if before[: len(now)] == now else now

    def _on_disk(self, log: PartitionLog) -> Partition:
        """Return the partition of a log as it is on the disk."""
        return next((p for p in self.below.partitions if p.directory == log.partition.directory), log.partition)

    def _indexed(self, log: PartitionLog) -> Iterator[int]:
        """Yield how far indexes of the last segments say that a log went, those whose logs are gone, too."""
        for segment in (s for s in self._on_disk(log).segments if s.base >= log.segments[-1].base):
            if segment.base > log.segments[-1].base:
                yield segment.base
            if segment.offset_index is not None:
                with closing(segment.offset_index.open()) as source:
                    yield int(read_offset_index(source).offsets(segment.base).max(initial=-1)) + 1
            if segment.txn_index is not None:
                with closing(segment.txn_index.open()) as source:
                    yield int(read_txn_index(source)["last_offset"].max(initial=-1)) + 1

    def _rebuilt(self, directory: LogDirectory, findings: Sequence[Finding]) -> Iterator[Step]:
        """Yield steps for derived files that are wrong, as the logs give them."""
        replicas = Replicas(LogDirectories([directory]))
        suspects = {finding.file.partition("/")[0] for finding in findings}
        suspects |= {f"{finding.topic}-{finding.partition}" for finding in findings if finding.topic is not None}
        suspects |= {name.partition("/")[0] for name in self._aborts}
        is_whole = directory.is_clean and str(FileKind.RECOVERY_POINTS) in suspects
        options = RebuildOptions(
            settings=self.options.settings,
            only=None if is_whole else frozenset(suspects | self._mended.keys()),
            findings=[*findings, *(Finding(TXN_INDEX_ABSENT, name, 0, 0, _MARKED) for name in self._aborts)],
        )
        made = rebuild(replicas, directory, options, self.advance)
        for name, why in made.left.items():
            self.left["rebuild", name, why] = Step("rebuild.file", name, "left as it is", why)
        yield from (step for step in made.steps(directory) if step.id != "rebuild.file")

    # --- transactions -----------------------------------------------------------------------------------

    def _aborted(self, label: str, producer: int) -> Iterator[Step]:
        """End a transaction by a control batch at the end of its partition.

        Raises:
            Refused: there is no such partition, no such transaction is open, or its coordinator may have committed it.
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
        is_committed, answer = coordinator_says(replicas, log, survey, made.replay, producer)
        if is_committed:
            raise Refused(f"the transaction of producer {producer} in {label} is not to be aborted: {answer}")
        epoch = int(survey.columns["partition_leader_epoch"].max(initial=-1))
        batch = end_marker(ending, made.end_offset, epoch)
        first = made.replay.open[producer]
        what = f"end {transaction_name(label, producer, first)} by an ABORT marker at {made.end_offset}"
        why = f"it was asked for; readers of committed records go on; {answer}"
        self._aborts.add(f"{file.name[:-4]}.txnindex")  # of a compacted partition no check misses it
        yield Step(ABORT, file.name, what, why, tuple(appended(file.name, file.size, batch)))

    def _hanging(self) -> Iterator[Step]:
        """Transactions that are open where something was destroyed: their markers were among it, or may have been."""
        replicas, indexed = self.replicas, {f.file.partition("/")[0] for f in self.known if f.kind is TXN_INDEX_ENTRY}
        for log in replicas.served:
            name = log.partition.directory
            beyond = self._mended.get(name, -1)
            if beyond < 0 and name not in indexed:
                continue
            made = build(log, INTERVAL, at_end=False)
            ended = dict[tuple[int, int], int]()
            if name in indexed:
                ended = {who: at for at, who in aborted_in(self._on_disk(log), frozenset()) if at >= made.end_offset}
            for producer, first in sorted(made.replay.open.items()):
                at = ended.get((producer, first), -1)
                if first >= beyond and at < 0:
                    continue
                where = "may be among what was destroyed" if at < 0 else f"was at {at}, after the end of the log"
                yield Step(
                    ABORT,
                    f"{name}/",
                    f"left as it is: the transaction of {transaction_name(name, producer, first)} has no end",
                    f"its marker {where}; readers of committed records wait there until the "
                    f"coordinator ends it; --abort-transaction {log.partition.label}:{producer} does so now",
                )


def _unknown(replicas: Replicas, image: MetadataImage) -> dict[str, tuple[str, str, int]]:
    """Directories of partitions that the metadata does not know: topic, its id, and number."""
    found = {}
    for log in replicas.served:
        topic, topic_id, number = log.partition.topic, log.topic_id, log.partition.partition
        if topic_id is None or number is None or (topic_id, number) in image.partitions:
            continue
        if image.topics.get(topic, topic_id) == topic_id:
            found[log.partition.directory] = topic, topic_id, number
    return found


def complaints(directory: LogDirectory, repair: Repair) -> list[str]:
    """Return what a directory as it is now has wrong that the plan did not foresee, a sentence each."""
    return repair.complaints(Verification(directory).findings())
