"""The verbs of Kafka log directories, and of a file that lies in none (`rmqctl.store.Store`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.answer import DRY_RUN, Intent, Proposal
from rmqctl.errors import WrongUsage
from rmqctl.files.tree import Tree
from rmqctl.filters import TIME_WORDS, Filters, Rendering, asked_time, bound
from rmqctl.kafka.directory.directory import (
    LogDirectories,
    LogDirectory,
    LogFile,
    Partition,
)
from rmqctl.kafka.directory.file_names import FileKind, PartitionName, meaning_of
from rmqctl.kafka.directory.releases import known_release
from rmqctl.store import EVERYTHING, PLAIN, LoneFile, Store, hold_to_change, refuse_options

if TYPE_CHECKING:
    from datetime import datetime

    from rmqctl.answer import Answer, HexAnswer
    from rmqctl.arrow import ArrowTable
    from rmqctl.kafka.state.replicas import Replicas
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.release import Release
    from rmqctl.tables import Tables

_LARGE, _MANY = 128 << 20, 2_000
"""Bytes of log, and partitions, from which several processes are faster than one."""


class KafkaStore(Store):
    """One or several log directories, opened for reading.

    Attributes:
        logs: which partitions and files there are, and which the user pointed at.
        settings: of the broker, for what files do not store; empty where none were given.
    """

    kind = "kafka-log-directory"
    lock = ".lock"
    keep_to_selection = frozenset({"verify", "topics", "producers", "stats", "export", "sql"})
    table_format = "kafkalog"

    def __init__(self, logs: LogDirectories) -> None:
        self.logs = logs
        self.settings: dict[str, str] = {}
        self.selection = logs.selection

    @cached_property
    def replicas(self) -> Replicas:
        """The partitions that a broker serves, each opened once."""
        from rmqctl.kafka.state.replicas import Replicas

        return Replicas(self.logs)

    @property
    def root(self) -> str:
        return self.logs.root

    @property
    def _path(self) -> str:
        """The path that leads here again."""
        return f"{self.root}/{self.selection}" if self.selection else self.root

    @property
    def state(self) -> str:
        if self.is_running:
            return "running"
        return "clean" if self.logs.is_clean else "crashed"

    @property
    def is_running(self) -> bool:
        return self.logs.is_running

    @property
    def size(self) -> int:
        return self.logs.size

    # --- looking ------------------------------------------------------------------------------------

    def info(self, *, explain: bool = False) -> Answer:
        from rmqctl.kafka.verbs import describing

        return describing.info(self.replicas, self.kind, self.state, explain=explain)

    def verify(
        self,
        *,
        level: str = "full",
        cross: bool = True,
        processes: int | None = None,
        as_release: Release | None = None,
        notes: bool = True,
        share: Callable[..., Any] | None = None,
    ) -> Answer:
        from rmqctl.kafka.verbs import checking, recovering

        asked = recovering.StartQuestion(known_release(as_release), self.settings)
        return checking.verify(
            self.replicas, self.logs, level=level, cross=cross, processes=self._processes(processes), notes=notes,
            asked=asked, share=share,
        )  # fmt: skip

    def topics(self, *, topic: str | None = None, by_topic: bool = False, as_found: bool = False) -> Answer:
        _refuse_as_found(as_found)
        from rmqctl.kafka.verbs import looking

        return looking.topics(self.replicas, topic=topic, by_topic=by_topic)

    def lag(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        as_release: Release | None = None,
        as_found: bool = False,
    ) -> Answer:
        _refuse_as_found(as_found)
        from rmqctl.kafka.verbs import looking

        return looking.lag(self.replicas, group=group, topic=topic)

    def producers(self, topic: str | None = None, queue: int | None = None) -> Answer:
        from rmqctl.kafka.verbs import looking

        return looking.producers(self.replicas, topic, queue)

    def transactions(self) -> Answer:
        from rmqctl.kafka.verbs import looking

        return looking.transaction_states(self.replicas)

    def metadata(self, *, at: int | None = None) -> Answer:
        from rmqctl.kafka.verbs import describing

        return describing.metadata(self.replicas, at=at)

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
        from rmqctl.kafka.verbs.lookups import KeyQuestion, query_key

        for option, given in (("--unique", unique), ("--raw", raw)):
            if given:
                raise WrongUsage(option, "is for RocketMQ: a record of Kafka has one key and no index of keys.")
        if topic is None or key is None:
            raise WrongUsage("TOPIC", "and KEY are both needed for a Kafka log directory.")
        most = min((n for n in (most, filters.limit) if n is not None), default=None)
        times = asked_time("--begin", begin), asked_time("--end", end)
        asked = KeyQuestion(topic, key, filters, *times, most, latest, explain, processes)
        return query_key(self.replicas, asked)

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
        _refuse_as_found(as_found)
        from rmqctl.kafka.verbs import lookups

        if boundary != "lower":
            raise WrongUsage("--boundary", "is for RocketMQ: a Kafka broker gives the first record of a time or later.")
        asked = time if isinstance(time, str) and time in TIME_WORDS else asked_time("TIME", time)
        return lookups.query_time(
            self.replicas, topic, queue, asked, explain=explain, as_release=known_release(as_release)
        )

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
        _refuse_as_found(as_found)
        from rmqctl.kafka.verbs import lookups

        return lookups.query_offset(
            self.replicas, topic, queue, offset, filters, read_committed=read_committed, explain=explain
        )

    # --- changing, by plan --------------------------------------------------------------------------

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
        from rmqctl.kafka.verbs import recovering

        answer = Proposal(intent=intent, lock=self.lock)
        if intent.is_real:
            hold_to_change(self, answer, intent)
        plan = plan or intent.is_real
        of_leader = None if leader is None else _of_family(leader, "--leader").replicas
        if of_leader is not None and (compare or list_lost or plan):
            raise WrongUsage("--leader", "goes with neither --compare, --list-lost nor --apply.")
        asked = recovering.StartQuestion(known_release(as_release), self.settings, plan, list_lost, compare, of_leader)
        return recovering.recover(self.replicas, asked, answer)

    def repair(
        self,
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        replicas: Sequence[Store] = (),
        body_damage: str = "placeholder",
        neutralize: Sequence[int] = (),
        processes: int | None = None,
        intent: Intent = DRY_RUN,
        **more: Any,
    ) -> Proposal:
        from rmqctl.kafka.verbs import planning

        abort = tuple(more.pop("abort_transaction", ()))
        accept = body_damage == "accept"
        refuse_options(self, "repair", {**more, "neutralize": tuple(neutralize), "body-damage accept": accept})
        answer = Proposal(intent=intent, lock=self.lock)
        hold_to_change(self, answer, intent)
        others = []
        for replica in replicas:
            if not isinstance(replica, KafkaStore):
                raise WrongUsage("--from", f"{replica.root} is no Kafka log directory.")
            others.append(replica.replicas)
        shared = self._processes(processes)
        asked = planning.RepairQuestion(tuple(only), tuple(skip), tuple(others), abort, self.settings, shared)
        return planning.plan_repair(self.replicas, asked, answer)

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
        **more: Any,
    ) -> Proposal:
        from rmqctl.kafka.verbs import planning

        refuse_options(self, "rebuild", more)
        if share is not None:
            raise WrongUsage("--engine", "spark is for RocketMQ: files of a log directory are made here.")
        answer = Proposal(intent=intent, lock=self.lock)
        asked = planning.RebuildQuestion(parts, topics, into, owner, self.settings, self._processes(processes))
        hold_to_change(self, answer, intent)
        return planning.plan_rebuild(self.replicas, asked, answer)

    # --- copying and comparing ----------------------------------------------------------------------

    def salvage(
        self,
        into: Path,
        *,
        replicas: Sequence[Store] = (),
        stale: bool = False,
        renumber: bool = False,
        owner: str | None = None,
        deleted: bool = False,
        stray: bool = False,
        partition: tuple[str, int | None] | None = None,
        as_topic_files: bool = False,
        as_release: Release | None = None,
        **more: Any,
    ) -> Answer:
        from rmqctl.kafka.salvage.gather import Wanted
        from rmqctl.kafka.verbs import copying

        refuse_options(self, "salvage", {"stale": stale, "renumber": renumber, **more})
        if partition is not None and partition[1] is None:
            raise WrongUsage("--partition", "needs a number: TOPIC/NUMBER.")
        of = None if partition is None else (partition[0], int(partition[1] or 0))
        places = [self.logs, *(_of_family(replica, "PATH").logs for replica in replicas)]
        return copying.salvage(
            places,
            into,
            Wanted(deleted, stray, of),
            as_release=known_release(as_release),
            as_topic_files=as_topic_files,
            owner=owner,
        )

    def _processes(self, wanted: int | None) -> int:
        """Return the number of processes that share the logs."""
        from rmqctl.parallel import most_processes

        is_large = self.size >= _LARGE or len(self.logs.partitions) >= _MANY
        return wanted or (most_processes() if is_large else 1)

    # --- as tables ----------------------------------------------------------------------------------

    def tables(self) -> Sequence[str]:
        from rmqctl.kafka.tables.tables import TABLES

        return tuple(TABLES)

    def as_tables(
        self, filters: Filters = EVERYTHING, *, split_size: int | None = None, body: str = "decompressed"
    ) -> Tables:
        from rmqctl.kafka.tables import tables

        return tables.as_tables(self._path, filters, split_size, body)

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
    ) -> ArrowTable:
        from rmqctl.kafka.tables import tables

        topics = () if topic is None else (topic,) if isinstance(topic, str) else tuple(topic)
        asked = Filters(queue=queue, key=key, tag=tag, after=bound("after", after), before=bound("before", before))
        return tables.stream(self._path, name, topics, asked, columns)

    def diff(
        self,
        other: Store | LoneFile,
        *,
        by: str = "physical",
        queues: bool = True,
        limit: int | None = None,
        share: Any = None,
        **more: Any,
    ) -> Answer:
        from rmqctl.kafka.verbs import copying

        refuse_options(self, "diff", more)
        second = other.store if isinstance(other, KafkaFile) else _of_family(other, "B")
        return copying.diff((self.logs, second.logs), (_shown(self), _shown(second)), by=by, limit=limit, share=share)

    def elect(self, others: Sequence[Store]) -> Answer:
        from rmqctl.kafka.verbs import copying

        return copying.elect([self.logs, *(_of_family(other, "PATH").logs for other in others)])

    # --- showing ------------------------------------------------------------------------------------

    def produce(self, request: ProduceRequest) -> Produced:
        from rmqctl.files.tree import LocalTree

        directories = self.logs.directories
        if len(directories) != 1 or not isinstance(directories[0].tree, LocalTree):
            raise WrongUsage("PATH", f"{self.root} is not one local log directory, which is what produce writes.")
        from rmqctl.kafka.verbs import producing

        return producing.produce(Path(directories[0].tree.root), request)

    def dump(
        self,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        as_release: Release | None = None,
        follow: bool = False,
        **more: Any,
    ) -> Answer:
        from rmqctl.kafka.dump import dumping

        options, read_committed = more.pop("official", None), more.pop("read_committed", False)
        processes = self._processes(more.pop("processes", None))
        if more:
            raise WrongUsage(f"--{next(iter(more)).replace('_', '-')}", "means nothing for a log directory.")
        if options is not None:
            from rmqctl.kafka.dump.official import Options

            return dumping.official(self.logs, Options(**options), known_release(as_release))
        return dumping.dump(
            self.logs, filters, rendering, follow=follow, read_committed=read_committed, processes=processes
        )

    def hex(self, filters: Filters = EVERYTHING) -> HexAnswer:
        from rmqctl.kafka.dump import dumping

        return dumping.hexadecimal(self.logs, filters)


class KafkaFile(LoneFile):
    """A file of a log directory that lies in none.

    Attributes:
        store: a store of this file alone.
    """

    def __init__(self, tree: Tree, name: str, kind: FileKind) -> None:
        super().__init__(tree, name)
        entry = tree.stat(name)
        meaning = replace(meaning_of(name), kind=kind)
        file = LogFile(tree, name, meaning, entry.size if entry else -1, entry.mtime_ms if entry else 0)
        partition = Partition("", PartitionName("", None), files=[file])
        self.store = KafkaStore(LogDirectories([LogDirectory(tree, [partition])], name))

    def dump(
        self,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        as_release: Release | None = None,
        follow: bool = False,
        **more: Any,
    ) -> Answer:
        return self.store.dump(filters, rendering, as_release=known_release(as_release), follow=follow, **more)

    def metadata(self, *, at: int | None = None) -> Answer:
        return self.store.metadata(at=at)

    def diff(
        self,
        other: Store | LoneFile,
        *,
        by: str = "physical",
        queues: bool = True,
        limit: int | None = None,
        share: Any = None,
        **more: Any,
    ) -> Answer:
        return self.store.diff(other, by=by, queues=queues, limit=limit, share=share, **more)

    def hex(self, filters: Filters = EVERYTHING) -> HexAnswer:
        return self.store.hex(filters)


def _shown(store: KafkaStore) -> str:
    """Return a place as the user named it: a root, and what is inside."""
    return f"{store.root}/{store.selection}" if store.selection else store.root


def _of_family(store: Store | LoneFile, argument: str) -> KafkaStore:
    """Another store that a verb works on together with a log directory.

    Raises:
        WrongUsage: it is of another kind.
    """
    if isinstance(store, KafkaStore):
        return store
    root = getattr(store, "root", None) or getattr(store, "name", "it")
    raise WrongUsage(argument, f"{root} is no log directory of Kafka's, as the first one is.")


def _refuse_as_found(wanted: bool) -> None:
    """Refuse an option that has no meaning here.

    Raises:
        WrongUsage: it was given.
    """
    if wanted:
        raise WrongUsage("--as-found", "is for RocketMQ: the offsets of a log directory are those of its files.")
