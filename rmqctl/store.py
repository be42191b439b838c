"""A store and what can be asked of it: one method a verb, the same for every family.

A method makes the question of its verb (:mod:`rmqctl.questions`); the family answers it by the method of the same name
with ``answer_`` before it. What a family does not have is refused here, with one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rmqctl import questions
from rmqctl.answer import DRY_RUN, Answer, HexAnswer, Intent, Proposal
from rmqctl.errors import Refused, StoreInUse, WrongUsage
from rmqctl.files.tree import Tree
from rmqctl.filters import Filters, Named, Names, Rendering, bound, did_you_mean
from rmqctl.questions import EVERYTHING, PLAIN, SHOWN, Question

if TYPE_CHECKING:
    from datetime import datetime

    from rmqctl.arrow import ArrowTable
    from rmqctl.files.archives import Manifest
    from rmqctl.files.local import ByteSource
    from rmqctl.positions import Position
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.redaction import Kept
    from rmqctl.release import Release
    from rmqctl.repair import Applied
    from rmqctl.repair.books import Stretches
    from rmqctl.repair.edits import StepName
    from rmqctl.tables import Tables
    from rmqctl.verification import LogPart

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Place:
    """A path as a user gave it.

    Attributes:
        path: a local path or a URL.
        tree: what lies there.
        is_directory: and not one file.
        commit_log: directories of a commit log outside the root, in order; empty: look in the root.
        broker_conf: the broker's settings file, for what files do not store; None: detect.
        is_forced: the user named the family; it is to say what is wrong instead of answering None.
    """

    path: str
    tree: Tree
    is_directory: bool
    commit_log: tuple[str, ...] = ()
    broker_conf: str | None = None
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A directory that a store consists of.

    Attributes:
        prefix: what stands before the names of its files where findings and plans name them; "" for a root.
    """

    tree: Tree
    prefix: str = ""


class Asked:
    """What can be asked of anything that lies at a path, a store or one file of it.

    Attributes:
        family: the family's name (:data:`rmqctl.families.FAMILIES`).
        bundle: what the manifest says of the bundle that it is; None for a store.
    """

    family: str
    bundle: Manifest | None = None

    @property
    def what(self) -> str:
        """What it is, in refusals."""
        raise NotImplementedError

    def call_it(self, path: str) -> None:
        """Name it by the path of the bundle that it is, where that is not its root's."""

    def known(self, release: Release | None) -> Release | None:
        """Return a release that was asked for as one whose rules the family knows.

        Raises:
            WrongUsage: it is none.
        """
        raise NotImplementedError

    def ask(self, question: Question[A]) -> A:
        """Return the family's answer.

        Raises:
            WrongUsage: the family does not have the verb, or what is asked for with it.
        """
        name = {"dump -o hex": "hex"}.get(question.verb, question.verb).replace("-", "_")
        answer: Callable[[Question[A]], A] | None = getattr(self, f"answer_{name}", None)
        if answer is None:
            self._refuse(question.verb)
        if self.bundle is not None:
            question.hold_to_bundle(redacted=bool(self.bundle["redacted"]))
        return answer(question.checked(self.family, self.what, self.known))

    def _refuse(self, verb: str) -> NoReturn:
        raise NotImplementedError

    def dump(
        self,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        as_release: Release | None = None,
        follow: bool = False,
        pending: str | None = None,
        read_committed: bool = False,
        processes: int | None = None,
        official: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Show the log, or the part of the store that was pointed at, record by record, damage in its place.

        Args:
            as_release: read records as a broker of this release does.
            follow: go on with what a broker appends, without end.
            pending: RocketMQ: what is still to be delivered instead: ``timer``, ``transaction``, ``pop``, ``delay``.
            read_committed: Kafka: leave out control batches, aborted transactions, and what is not decided yet.
            processes: Kafka: that share large logs; None: by their size.
            official: Kafka: print what Kafka's own dump tool prints, with these options of it.
        """
        return self.ask(
            questions.Dump(filters, rendering, as_release, follow, pending, read_committed, processes, official)
        )

    def hex(self, filters: Filters = EVERYTHING, *, within: tuple[int, int] | None = None) -> HexAnswer:
        """Show the bytes of what :meth:`dump` shows, field by field with their meaning.

        Args:
            within: only the records, units and fields of the file that was pointed at which have one of these bytes:
                the first one and the one after the last.
        """
        return self.ask(questions.Hex(filters, within))

    def metadata(self, *, at: datetime | str | int | None = None) -> Answer:
        """Show the metadata of the cluster, as its log gives it: brokers, topics, partitions, settings.

        Args:
            at: a time, as in :meth:`topics`, or the offset of the last record to apply: a number below 1,000,000,000,
                or ``offset:N``; None: to the end.
        """
        return self.ask(questions.Metadata(at=at))

    def diff(
        self,
        other: Store | LoneFile,
        *,
        by: str = "physical",
        queues: bool = True,
        limit: int | None = None,
        share: Any = None,
    ) -> Answer:
        """List where two stores, or files, of one family differ; a difference makes the answer a "no".

        Args:
            by: what belongs together: ``physical`` offset, or ``queue`` offset.
            queues: compare derived files too.
            limit: give at most this many differences; all are counted.
            share: does the work elsewhere, see `rmqctl.pipeline`.
        """
        return self.ask(questions.Diff(other, by, queues, limit, share))


class LoneFile(Asked):
    """A file that lies in no store.

    Attributes:
        tree, name: the directory it lies in, and its name there.
    """

    def __init__(self, tree: Tree, name: str) -> None:
        self.tree, self.name = tree, name

    @property
    def size(self) -> int:
        """Its bytes."""
        entry = self.tree.stat(self.name)
        return 0 if entry is None else entry.size

    @property
    def what(self) -> str:
        return "single file"

    def _refuse(self, verb: str) -> NoReturn:
        raise WrongUsage("PATH", f"`{verb}` does not work on the single file {self.name}.")


class Store(Asked):
    """A store of one family, opened for reading. Only verbs that say so write.

    Attributes:
        kind: what it is, as `info` calls it: ``rocketmq-store``, ``kafka-log-directory``.
        selection: the path inside that the user pointed at, "" for all of it. Reading verbs keep to it.
        lock: the lock file of a broker, relative to the root.
        keep_to_selection: commands that look only at the selection; others look at the whole store and say so.
        table_format: how the data source of Spark calls it, see :data:`rmqctl.families.FORMATS`.
    """

    kind: str
    selection: str
    lock: str
    keep_to_selection: frozenset[str] = frozenset()
    table_format: str

    @property
    def what(self) -> str:
        return self.kind.replace("-", " ")

    def joined(self, other: Store) -> Store | str:
        """Return both as one store, where the other is a further directory of the same broker; else what keeps them
        from it though they look as if they were, a phrase, "" for two that do not.
        """
        del other
        return ""

    @property
    def membership(self) -> tuple[str, int] | None:
        """The cluster whose brokers share what groups have committed, and which of them this is; None: no such one."""
        return None

    def _refuse(self, verb: str) -> NoReturn:
        refuse_verb(self, verb)

    @property
    def root(self) -> str:
        """Its path or URL."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """``running``, ``crashed`` or ``clean``."""
        raise NotImplementedError

    @property
    def is_running(self) -> bool:
        """Whether a broker holds the lock; False for a remote store, where nobody can tell."""
        raise NotImplementedError

    def at_one_moment(self, *, is_last: bool = False) -> Store:
        """Return the store as it was at one moment where a broker runs on it, so that several answers fit each other;
        any other as it is.

        Args:
            is_last: the broker counts as killed then.
        """
        del is_last
        return self

    @property
    def missing(self) -> str:
        """What of it is not there though the rest shows that it was, as a sentence; "" where nothing is known to be."""
        return ""

    @property
    def size(self) -> int:
        """Bytes of all its logs."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.root}: {self.state}, {self.size:,} bytes of log>"

    def topic_names(self) -> list[str]:
        """Return the names of topics that it knows, sorted, without reading a log."""
        return []

    def group_names(self) -> list[str]:
        """Return the names of consumer groups that have stored an offset or settings, sorted; none where finding them
        would take long.
        """
        return []

    # --- looking ------------------------------------------------------------------------------------

    def info(self, *, explain: bool = False, segments: bool = False, at: datetime | str | int | None = None) -> Answer:
        """Say what is here: a document in every kind of output.

        Args:
            explain: rows instead: what each fact says about the release.
            segments: rows instead: the files of the log, with the offsets and the time at which they begin.
            at: what was here at a time, as in :meth:`topics`.
        """
        return self.ask(questions.Info(explain, segments, at=at))

    def verify(
        self,
        *,
        level: str = "full",
        cross: bool = True,
        processes: int | None = None,
        as_release: Release | None = None,
        notes: bool = True,
        share: Callable[..., Any] | None = None,
        part: LogPart | None = None,
    ) -> Answer:
        """Check every file alone, then the files against each other; a row a finding.

        Args:
            level: ``quick``, ``structure`` or ``full``.
            cross: compare derived files with the log.
            processes: to share the log among; None: by its size.
            as_release: judge by this release; None: the one the store shows.
            notes: also what is normal but worth knowing.
            share: checks splits elsewhere, see `rmqctl.pipeline`.
            part: only this one of :meth:`parts`, and what leads into it; None: all.
        """
        return self.ask(questions.Verify(level, cross, processes, as_release, notes, share, part))

    def parts(self) -> Sequence[LogPart]:
        """Return the parts that can be checked one after the other, each at a moment of its own, in order."""
        raise NotImplementedError

    def topics(
        self,
        *,
        topic: Named = None,
        by_topic: bool = False,
        as_found: bool = False,
        disk: bool = False,
        at: datetime | str | int | None = None,
    ) -> Answer:
        """List queues or partitions with offsets, messages, bytes and times.

        Args:
            by_topic: one row a topic, its queues added up.
            as_found: the files as they lie; default: what a broker answers once it has started on the store.
            disk: instead the room that files take, what retention frees of it and when, and what may be deleted.
            at: the state at a time, a ``datetime``, text or epoch ms as in :meth:`table`, as far as the log shows; what
                it does not show is None, with the reason under ``unknown`` (:data:`rmqctl.past.REASONS`).
        """
        return self.ask(questions.Topics(topic, by_topic, as_found, disk, at=at))

    def lag(
        self,
        *,
        group: Named = None,
        topic: Named = None,
        as_release: Release | None = None,
        as_found: bool = False,
        at: datetime | str | int | None = None,
    ) -> Answer:
        """List consumer groups with what they have not consumed; an anomaly makes the answer a "no".

        Args:
            at: the state at a time, as in :meth:`topics`.
        """
        return self.ask(questions.Lag(group, topic, as_release, as_found, at=at))

    def producers(
        self, topic: str | None = None, queue: int | None = None, *, at: datetime | str | int | None = None
    ) -> Answer:
        """List the state of producers, replayed from the log.

        Args:
            at: the state at a time, as in :meth:`topics`.
        """
        return self.ask(questions.Producers(topic, queue, at=at))

    def transactions(self, *, at: datetime | str | int | None = None) -> Answer:
        """List transactions by their latest state, those that hang marked.

        Args:
            at: the state at a time, as in :meth:`topics`.
        """
        return self.ask(questions.Transactions(at=at))

    # --- looking up ---------------------------------------------------------------------------------

    def query_key(
        self,
        topic: str | None,
        key: str | None,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        unique: bool = False,
        begin: datetime | str | int = 0,
        end: datetime | str | int = (1 << 63) - 1,
        most: int | None = None,
        raw: bool = False,
        scan: bool = False,
        latest: bool = False,
        processes: int | None = None,
        explain: bool = False,
        as_release: Release | None = None,
    ) -> Answer:
        """Find messages by key.

        Args:
            topic: None only with ``scan``.
            key: None for messages of ``filters.tag``.
            unique: the key is a unique key.
            begin, end: bounds of the time, inclusive: a ``datetime``, text or epoch ms, as in :meth:`table`.
            most: candidates at most; None: 64, as brokers do, and all of Kafka.
            raw: all candidates that can be read.
            scan: read the log instead of an index.
            latest: only the last record of the key.
            explain: add the steps and one sentence why something is not found.
        """
        return self.ask(
            questions.QueryKey(
                topic,
                key,
                filters,
                rendering,
                unique,
                begin,
                end,
                most,
                raw,
                scan,
                latest,
                processes,
                explain,
                as_release,
            )
        )

    def query_time(
        self,
        topic: str,
        queue: int | None,
        time: datetime | str | int,
        rendering: Rendering = PLAIN,
        *,
        boundary: str = "lower",
        explain: bool = False,
        as_release: Release | None = None,
        as_found: bool = False,
    ) -> Answer:
        """Give the queue offset that a broker answers for a time, and the message there.

        Args:
            queue: None for all queues of the topic.
            time: a ``datetime``, text or epoch ms, as in :meth:`table`; Kafka also ``earliest``, ``latest``,
                ``max-timestamp``.
            boundary: ``lower`` or ``upper``.
        """
        return self.ask(questions.QueryTime(topic, queue, time, rendering, boundary, explain, as_release, as_found))

    def query_offset(
        self,
        topic: str,
        queue: int,
        offset: int,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        read_committed: bool = False,
        explain: bool = False,
        as_release: Release | None = None,
        as_found: bool = False,
    ) -> Answer:
        """Give messages of a queue or partition from an offset on; the first row is the status.

        Args:
            filters: ``limit`` is the number wanted.
            read_committed: leave out what was not committed.
            as_release: answer as one call to such a broker does.
        """
        return self.ask(
            questions.QueryOffset(
                topic, queue, offset, filters, rendering, read_committed, explain, as_release, as_found
            )
        )

    def query_id(
        self,
        message_id: str,
        rendering: Rendering = PLAIN,
        *,
        topic: str | None = None,
        every: bool = False,
        scan: bool = False,
        explain: bool = False,
        as_release: Release | None = None,
    ) -> Answer:
        """Find the message with an id.

        Args:
            every: also copies and repeats.
            scan: look in the log instead of an index.
        """
        return self.ask(questions.QueryId(message_id, rendering, topic, every, scan, explain, as_release))

    def trace(
        self, message: str, *, topic: str | None = None, most: int = SHOWN, as_release: Release | None = None
    ) -> Answer:
        """Show what became of a message, step by step with its evidence, and in one sentence at the end.

        Args:
            message: a key, an id (RocketMQ), or a place: ``TOPIC/QUEUE@OFFSET``. Of a key that several messages have
                the newest come first.
            topic: only messages of this topic.
            most: lives at most.
        """
        return self.ask(questions.Trace(message, topic, most, as_release))

    # --- changing, by plan --------------------------------------------------------------------------
    #
    # A verb that plans gives a Proposal: it shows what would be done, and carries it out where the intent is real.

    def recover(
        self,
        *,
        as_release: Release | None = None,
        plan: bool = False,
        list_lost: bool = False,
        compare: bool = False,
        processes: int | None = None,
        leader: Store | None = None,
        intent: Intent = DRY_RUN,
    ) -> Proposal:
        """Say what a broker's start would do to the store. A start that loses something is a "no".

        Args:
            plan: also make the plan that carries it out; the rows are then its steps.
            list_lost: rows are the messages that would be lost.
            compare: a row for each family of releases.
            leader: a replica that is to lead: also say what is cut when this one follows it.
        """
        return self.ask(questions.Recover(as_release, plan, list_lost, compare, processes, leader, intent))

    def preflight(self, to: Release, *, conf: Path | None = None) -> Answer:
        """Say what a start of another release does to the store: its verdict, what it does not read, what to do first,
        whether the release shown can come back, and how long the start takes. "No" where it loses something.

        Args:
            conf: the settings that the broker is to have; None: those that files show.
        """
        return self.ask(questions.Preflight(to, conf))

    def repair(
        self,
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        replicas: Sequence[Store] = (),
        body_damage: str = "placeholder",
        neutralize: Sequence[int] = (),
        abort_transaction: Sequence[str] = (),
        processes: int | None = None,
        intent: Intent = DRY_RUN,
        without: Collection[StepName] = (),
        accept: Collection[StepName] = (),
    ) -> Proposal:
        """Plan how to mend what verify finds with the least loss.

        Args:
            only, skip: patterns of finding ids.
            replicas: stores of the same family to take destroyed bytes from.
            body_damage: RocketMQ: ``placeholder`` or ``accept``.
            neutralize: RocketMQ: physical offsets of messages to replace.
            abort_transaction: Kafka: transactions to be ended, as ``orders-0:4000``: a partition and a producer id.
            without: names of steps, as an earlier plan has them, that are not wanted.
            accept: names of steps in whose place the damaged body is kept as it is, under a new CRC.
        """
        return self.ask(
            questions.Repair(
                tuple(only),
                tuple(skip),
                replicas,
                body_damage,
                tuple(neutralize),
                tuple(abort_transaction),
                processes,
                intent,
                frozenset(without),
                frozenset(accept),
            )
        )

    def rebuild(
        self,
        *,
        parts: Sequence[str] = (),
        topics: Sequence[str] = (),
        into: Path | None = None,
        owner: str | None = None,
        processes: int | None = None,
        as_release: Release | None = None,
        share: Callable[..., Any] | None = None,
        intent: Intent = DRY_RUN,
    ) -> Proposal:
        """Make derived files from the log, in place by plan, or write them to a directory.

        Args:
            parts: ``queues``, ``index``, ``checkpoint``, or what else a family derives; none: those that are usual.
            topics: only what belongs to these topics; a pattern stands for those of :meth:`topic_names`.
            into: write there and leave the store alone.
            owner: ``USER[:GROUP]`` whom the files in ``into`` belong to; None: the owner of the store.
            share: RocketMQ: does the work elsewhere, see `rmqctl.pipeline`.
        """
        return self.ask(
            questions.Rebuild(
                frozenset(parts), self._known_topics(topics), into, owner, processes, as_release, share, intent
            )
        )

    def offsets(
        self,
        action: str = "show",
        *,
        groups: Named = None,
        topics: Named = None,
        queue: int | None = None,
        to: str | int | None = None,
        to_group: str | None = None,
        source: Sequence[Position] | None = None,
        keep: str = "lowest",
        only_replica: bool = False,
        intent: Intent = DRY_RUN,
    ) -> Proposal:
        """Show the positions of consumer groups, or plan others.

        Args:
            action: ``show``, ``export``, ``set``, ``clamp`` (to what queues hold), ``copy``, ``merge`` or ``import``.
            groups, topics: names, and patterns as :class:`~rmqctl.filters.Glob`; None: all. ``set`` gives a group that
                is named in full a position in every queue of a topic that is.
            queue: only this queue or partition.
            to: with ``set``: an offset, ``+N``, ``-N``, a time, ``earliest`` or ``latest``.
            to_group: with ``copy`` and ``merge``: the group that gets the positions; None: each its own.
            source: positions to take instead of those of this store.
            keep: with ``merge``: of several positions in a queue the ``lowest`` or the ``highest``.
            only_replica: Kafka: what is written to has no other replica that could come back.
        """
        from rmqctl.positions import Choice

        choice = Choice(action, Names.of(groups), Names.of(topics), queue, to, to_group, source, keep)
        return self.ask(questions.Offsets(choice, only_replica, intent))

    def _known_topics(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Return topics with those that patterns stand for.

        Raises:
            WrongUsage: a pattern stands for none.
        """
        wanted = Names.of(topics)
        if not wanted.like:
            return wanted.exact
        names = self.topic_names()
        for pattern in Names((), wanted.like).unmet(names):
            raise WrongUsage("--topic", f"{pattern!s} matches no topic of {self.root}.")
        return wanted.among(names)

    def salvage(
        self,
        into: Path,
        *,
        replicas: Sequence[Store] = (),
        stale: bool = False,
        renumber: bool = False,
        deleted: bool = False,
        stray: bool = False,
        partition: tuple[str, int | None] | None = None,
        as_topic_files: bool = False,
        as_release: Release | None = None,
        owner: str | None = None,
    ) -> Answer:
        """Write every readable message into a new store; a row for each place that could not be read.

        Args:
            replicas: further sources, stores of the same family.
            stale: RocketMQ: also old records after the end of the log, which a cut left there.
            renumber: RocketMQ: count every queue from 0; else offsets are kept.
            deleted, stray: Kafka: also directories that wait to be deleted, or that the cluster had no use for.
            partition: Kafka: topic and number of files that lie in no partition's directory.
            as_topic_files: Kafka: only the partitions, for a cluster that is there.
            as_release: Kafka: for a broker of this release; None: of that which the source shows.
            owner: ``USER[:GROUP]`` whom the new store belongs to; None: the owner of this one.
        """
        return self.ask(
            questions.Salvage(
                into, replicas, stale, renumber, deleted, stray, partition, as_topic_files, as_release, owner
            )
        )

    def history(self) -> Answer:
        """List the journals of what was carried out on the store, the oldest first, and which comes next."""
        from rmqctl.repair import History

        return Answer(History.at(Path(self.root)).rows())

    def undo(self, *, redo: bool = False, resume: bool = False, intent: Intent = DRY_RUN) -> Applied:
        """Take back what was carried out last, of any family: the run that was broken off, else the last in force.

        Args:
            redo: bring again what was taken back last.
            resume: finish what was broken off instead.
            intent: ``force`` and ``outside`` count; it is carried out in any case.

        Raises:
            Refused: there is no such run, or files changed since.
            IOFailure: the system refuses; the message says how to go on.
        """
        from rmqctl import repair

        journal = repair.choose_journal(Path(self.root), redo=redo)
        if resume:
            return repair.resume(journal, outside=intent.outside)
        return repair.undo(journal, force=intent.force, outside=intent.outside, count=self.whole_records)

    # --- copying without content --------------------------------------------------------------------

    def directories(self) -> Sequence[StoreDirectory]:
        """Return the directories that it consists of, that of the root first."""
        raise NotImplementedError

    def path_of(self, file: str) -> str:
        """Return the path of a file that a finding, a record or a plan names, as a command takes it."""
        directories = self.directories()
        own = [one for one in directories if not one.prefix]
        for one in directories:
            root = one.tree.root.rstrip("/")
            if one.prefix and file.startswith(one.prefix):
                return f"{root}/{file[len(one.prefix) :]}"
            if len(own) > 1 and file.startswith(f"{root}/"):
                return file
        found = own[0] if len(own) == 1 else next((one for one in own if one.tree.stat(file) is not None), own[0])
        return f"{found.tree.root.rstrip('/')}/{file}"

    def redacted(
        self, file: str, source: ByteSource, healed: ByteSource | None, changed: Sequence[tuple[int, int]]
    ) -> Kept | str | None:
        """Return what of a file may be shown to others: no body, no key and no value of a property or header.

        Args:
            file: its name in :meth:`directories`, with the prefix.
            healed: the file as a plan of repair would leave it; None where it changes no byte of it.
            changed: where the plan writes, ascending.

        None for all of it; a phrase that says why nothing of it.
        """
        raise NotImplementedError

    def write_redacted(self, place: Path) -> Mapping[str, str]:
        """Write what cannot be copied file by file without its content into a copy of the store.

        Args:
            place: the copy of the root, in which nothing of it lies yet.

        Returns each directory that was dealt with, and why nothing of it was written; "" where it was.
        """
        return {}

    def whole_records(self, file: str, stretches: Stretches | None) -> int | None:
        """Count the whole records of a file that have a byte in some parts of it; None for a file that is unknown.

        Args:
            file: its name, relative to the root.
            stretches: begin and end of the parts in bytes, ascending; None: all of it.
        """
        raise NotImplementedError

    def produce(self, request: ProduceRequest) -> Produced:
        """Write messages into the store by the engine of its family; see `rmqctl.opening.produce` for new stores."""
        refuse_verb(self, "produce")

    def elect(self, others: Sequence[Store]) -> Answer:
        """Say which of some replicas may lead, and what each choice loses. "No" where every choice loses something.

        Args:
            others: the other replicas, stores of the same family.
        """
        return self.ask(questions.Elect(others))

    # --- as tables ----------------------------------------------------------------------------------

    def tables(self) -> Sequence[str]:
        """Names that :meth:`table` takes."""
        return ()

    def as_tables(
        self, filters: Filters = EVERYTHING, *, split_size: int | None = None, body: str = "decompressed"
    ) -> Tables:
        """Give its tables to be read part by part, here or on other machines.

        Args:
            filters: of the rows of the main table.
            split_size: bytes of log in one part; None: by the size of the log.
            body: ``decompressed``, ``stored`` or ``none``: what of bodies or values is there.
        """
        return self.ask(questions.AsTables(filters, split_size, body))

    def table(
        self,
        name: str,
        *,
        topic: str | Sequence[str] | None = None,
        queue: int | None = None,
        key: str | None = None,
        tag: str | None = None,
        after: datetime | str | int | None = None,
        before: datetime | str | int | None = None,
        columns: Sequence[str] | None = None,
        where: Any = None,
        limit: int | None = None,
    ) -> ArrowTable:
        """Give one of its tables as a stream of Arrow batches: it has ``__arrow_c_stream__``.

        Args:
            after, before: a ``datetime``, text or epoch ms; ``after`` is inclusive, ``before`` exclusive. Text is
                what commands take, UTC where it names no zone (:func:`rmqctl.text.milliseconds_of`).
            columns: only these.
            where: an expression of `pyarrow.compute` on columns of the table, also on those that are not wanted, such
                as ``pc.field("size") > 1000``.
            limit: rows at most, the first ones.

        Raises:
            WrongUsage: the store has no such topic or table, or a filter means nothing for it.
        """
        topics = () if topic is None else (topic,) if isinstance(topic, str) else tuple(topic)
        known = set(self.topic_names()) if topics else set[str]()
        for unknown in (one for one in topics if one not in known):  # the log may have one that nothing else knows
            there = self.ask(questions.Table(name, (unknown,), columns=["topic"]))
            if not any(len(batch) for batch in there.batches()):
                raise WrongUsage("topic", f"{unknown} is no topic of {self.root}{did_you_mean(unknown, known)}.")
        times = bound("after", after), bound("before", before)
        read = columns if where is None else None
        table: ArrowTable = self.ask(questions.Table(name, topics, queue, key, tag, *times, read))
        if where is None and limit is None:
            return table
        return table.narrowed(columns if where is not None else None, where, limit)


def hold_to_change(store: Store, answer: Answer, intent: Intent) -> None:
    """Hold a store to what a plan may be made for: all of it, whole, and free where the plan is to be carried out.

    Raises:
        Refused: the path is a part of a store, or a command that was broken off has left the store unfinished.
        StoreInUse: a broker runs on it, and it is to be changed; else that is a remark.
    """
    from rmqctl.files.new_files import refuse_unfinished
    from rmqctl.repair import refuse_pending

    if store.selection:
        raise Refused(
            f"{store.root.rstrip('/')}/{store.selection} lies in the store {store.root}, and what is written concerns "
            f"a store as a whole; nothing was written; give its root: {store.root}"
        )
    refuse_unfinished(Path(store.root))
    if store.is_running and intent.is_real:
        raise StoreInUse(store.root)
    if store.is_running:
        answer.remark("a broker holds the lock of this store: what is read may be changing")
    refuse_pending(Path(store.root))


def refuse_verb(store: Store, verb: str) -> NoReturn:
    """Refuse a verb that a family does not have.

    Raises:
        WrongUsage: always.
    """
    own, other = ("Kafka log directory", "RocketMQ stores"), ("RocketMQ store", "Kafka log directories")
    kind, works_on = own if store.kind.startswith("kafka") else other
    raise WrongUsage("PATH", f"`{verb}` works on {works_on}; {store.root} is a {kind}.")
