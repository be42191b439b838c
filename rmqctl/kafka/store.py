"""The verbs of Kafka log directories, and of a file that lies in none (`rmqctl.store.Store`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.answer import Proposal
from rmqctl.errors import WrongUsage
from rmqctl.files.tree import LocalTree, Tree, local_path
from rmqctl.filters import Filters
from rmqctl.kafka.directory.directory import (
    LogDirectories,
    LogDirectory,
    LogFile,
    Partition,
)
from rmqctl.kafka.directory.file_names import FileKind, PartitionName, meaning_of
from rmqctl.kafka.directory.releases import known_release
from rmqctl.store import LoneFile, Store, StoreDirectory, hold_to_change

if TYPE_CHECKING:
    from rmqctl import questions
    from rmqctl.answer import Answer, HexAnswer
    from rmqctl.arrow import ArrowTable
    from rmqctl.files.local import ByteSource
    from rmqctl.kafka.state.replicas import Replicas
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.redaction import Kept
    from rmqctl.release import Release
    from rmqctl.repair.books import Stretches
    from rmqctl.tables import Tables
    from rmqctl.verification import LogPart

_LARGE, _MANY = 128 << 20, 2_000
"""Bytes of log, and partitions, from which several processes are faster than one."""


class _Family:
    """What all of Kafka is called, and which releases of it are known."""

    family = "kafka"

    def known(self, release: Release | None) -> Release | None:
        return known_release(release)


class KafkaStore(_Family, Store):
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
        """The partitions that a broker serves, each opened once; beside a running one as they were at one moment."""
        from rmqctl.kafka.state.replicas import Replicas

        return Replicas(self._now().logs, self.settings)

    @property
    def root(self) -> str:
        return self.logs.root

    def call_it(self, path: str) -> None:
        self.logs.given = path

    @property
    def _path(self) -> str:
        """The path that leads here again, also from other processes."""
        root = ",".join(local_path(one.tree, "") or one.root for one in self.logs.directories)
        return f"{root}/{self.selection}" if self.selection else root

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

    @property
    def _pointed_at(self) -> frozenset[str] | None:
        """The directory that the user pointed at, or into; None: all."""
        return frozenset({self.selection.partition("/")[0]}) if self.selection else None

    def topic_names(self) -> list[str]:
        return sorted({partition.topic for partition in self.logs.partitions})

    def group_names(self) -> list[str]:
        from rmqctl.kafka.verbs.looking import group_names

        return group_names(self.replicas)

    def joined(self, other: Store) -> Store | str:
        from rmqctl.kafka.state.replicas import are_of_one_broker, other_cluster

        if not isinstance(other, KafkaStore) or self.selection or other.selection:
            return ""
        if not are_of_one_broker(self.replicas, other.replicas):
            return other_cluster(self.replicas, other.replicas)
        return self.together([self, other])

    @property
    def membership(self) -> tuple[str, int] | None:
        known = [one for one in self.replicas.identities if one is not None]
        one = known[0] if known and not self.selection else None
        if one is None or one.cluster_id is None or one.node_id is None:
            return None
        return one.cluster_id, one.node_id

    @classmethod
    def together(cls, stores: Sequence[KafkaStore]) -> KafkaStore:
        """Return several stores as one, with the settings of the first."""
        found = cls(LogDirectories([directory for store in stores for directory in store.logs.directories]))
        found.settings = stores[0].settings
        return found

    def directories(self) -> list[StoreDirectory]:
        return [StoreDirectory(directory.tree) for directory in self._now().logs.directories]

    def redacted(
        self, file: str, source: ByteSource, healed: ByteSource | None, changed: Sequence[tuple[int, int]]
    ) -> Kept | str | None:
        from rmqctl.kafka.dump.redaction import redacted_file

        return redacted_file(file, source, healed, changed)

    def whole_records(self, file: str, stretches: Stretches | None) -> int | None:
        from rmqctl.kafka.repair.sides import whole_records

        return whole_records(LocalTree(self.root), file, stretches)

    def _processes(self, wanted: int | None) -> int:
        """Return the number of processes that share the logs."""
        from rmqctl.parallel import most_processes

        is_large = self.size >= _LARGE or len(self.logs.partitions) >= _MANY
        return wanted or (most_processes() if is_large else 1)

    def at_one_moment(self, *, is_last: bool = False) -> KafkaStore:
        return self._now(is_last=is_last)

    def _now(self, partitions: frozenset[str] | None = None, *, is_last: bool = False) -> KafkaStore:
        """Return the store, or where a broker runs as it was at one moment, for all that judges it.

        Args:
            partitions: names of the directories that are looked at; None: all.
            is_last: the broker counts as killed then.
        """
        if not self.is_running:
            return self
        from rmqctl.kafka.directory.moment import at_one_moment

        found = KafkaStore(at_one_moment(self.logs, partitions, is_last=is_last))
        found.settings = self.settings
        return found

    # --- looking ------------------------------------------------------------------------------------

    def answer_info(self, asked: questions.Info) -> Answer:
        from rmqctl.kafka.verbs import describing

        if asked.segments:
            return describing.segments(self.replicas)
        return describing.info(self.replicas, self.kind, self.state, asked)

    def answer_dump(self, asked: questions.Dump) -> Answer:
        from rmqctl.kafka.dump import dumping

        if asked.official is not None:
            from rmqctl.kafka.dump.official import Options

            return dumping.official(self._now(self._pointed_at).logs, Options(**asked.official), asked.as_release)
        return dumping.dump(
            self.logs if asked.follow else self._now(self._pointed_at).logs,
            asked.filters,
            asked.rendering,
            follow=asked.follow,
            read_committed=asked.read_committed,
            processes=self._processes(asked.processes),
        )

    def answer_hex(self, asked: questions.Hex) -> HexAnswer:
        from rmqctl.kafka.dump import dumping

        return dumping.hexadecimal(self._now(self._pointed_at).logs, asked)

    def answer_verify(self, asked: questions.Verify) -> Answer:
        from rmqctl.kafka.verbs import checking

        now = self._now(None if asked.part is None else asked.part.directories)
        return checking.verify(now.replicas, now.logs, asked, self.settings, self._processes(asked.processes))

    def parts(self) -> list[LogPart]:
        from rmqctl.kafka.verbs.checking import parts_of

        return parts_of(self.logs)

    def answer_topics(self, asked: questions.Topics) -> Answer:
        from rmqctl.kafka.verbs import looking

        if asked.disk:
            return looking.disk(self.replicas, asked, self.settings)
        return looking.topics(self.replicas, asked)

    def answer_lag(self, asked: questions.Lag) -> Answer:
        from rmqctl.kafka.verbs import looking

        if not asked.brokers:
            return looking.lag(self.replicas, asked)
        brokers = [_of_family(store, "PATH").replicas for _, store in asked.brokers]
        return looking.cluster_lag([name for name, _ in asked.brokers], brokers, asked)

    def answer_producers(self, asked: questions.Producers) -> Answer:
        from rmqctl.kafka.verbs import looking

        return looking.producers(self.replicas, asked)

    def answer_transactions(self, asked: questions.Transactions) -> Answer:
        from rmqctl.kafka.verbs import looking

        return looking.transaction_states(self.replicas, asked)

    def answer_metadata(self, asked: questions.Metadata) -> Answer:
        from rmqctl.kafka.verbs import describing

        return describing.metadata(self.replicas, asked)

    # --- looking up ---------------------------------------------------------------------------------

    def answer_query_key(self, asked: questions.QueryKey) -> Answer:
        from rmqctl.kafka.verbs import lookups

        return lookups.query_key(self.replicas, asked)

    def answer_query_time(self, asked: questions.QueryTime) -> Answer:
        from rmqctl.kafka.verbs import lookups

        return lookups.query_time(self.replicas, asked)

    def answer_query_offset(self, asked: questions.QueryOffset) -> Answer:
        from rmqctl.kafka.verbs import lookups

        return lookups.query_offset(self.replicas, asked)

    def answer_trace(self, asked: questions.Trace) -> Answer:
        from rmqctl.kafka.verbs import tracing

        return tracing.trace(self.replicas, asked, self.settings)

    def answer_preflight(self, asked: questions.Preflight) -> Answer:
        from rmqctl.kafka.verbs.preflight import preflight

        return preflight(self._now().replicas, self.settings, asked)

    # --- changing, by plan --------------------------------------------------------------------------

    def answer_recover(self, asked: questions.Recover) -> Proposal:
        from rmqctl.kafka.verbs import recovering

        answer = Proposal(intent=asked.intent, lock=self.lock)
        if asked.intent.is_real:
            hold_to_change(self, answer, asked.intent)
        of_leader = None if asked.leader is None else _of_family(asked.leader, "--leader").replicas
        if of_leader is not None and (asked.compare or asked.list_lost or asked.wants_plan):
            raise WrongUsage("--leader", "goes with neither --compare, --list-lost nor --apply.")
        return recovering.recover(self._now().replicas, asked, self.settings, of_leader, answer)

    def answer_repair(self, asked: questions.Repair) -> Proposal:
        from rmqctl.kafka.verbs import planning

        answer = Proposal(intent=asked.intent, lock=self.lock)
        hold_to_change(self, answer, asked.intent)
        others = tuple(_of_family(replica, "--from").replicas for replica in asked.replicas)
        work = planning.Work(self.settings, self._processes(asked.processes), others)
        return planning.plan_repair(self._now().replicas, asked, work, answer)

    def answer_rebuild(self, asked: questions.Rebuild) -> Proposal:
        from rmqctl.kafka.verbs import planning

        answer = Proposal(intent=asked.intent, lock=self.lock)
        work = planning.Work(self.settings, self._processes(asked.processes))
        options = planning.rebuild_options(asked, work)
        hold_to_change(self, answer, asked.intent)
        return planning.plan_rebuild(self._now().replicas, asked, options, answer)

    def answer_offsets(self, asked: questions.Offsets) -> Proposal:
        from rmqctl.kafka.verbs import positions

        answer = Proposal(intent=asked.intent, lock=self.lock)
        if asked.choice.changes:
            hold_to_change(self, answer, asked.intent)
        return positions.offsets(self.replicas, asked, self.settings, answer)

    # --- copying and comparing ----------------------------------------------------------------------

    def answer_salvage(self, asked: questions.Salvage) -> Answer:
        from rmqctl.kafka.verbs import copying

        places = [self.replicas.place, *(_of_family(replica, "PATH").replicas.place for replica in asked.replicas)]
        return copying.salvage(places, asked)

    def answer_diff(self, asked: questions.Diff) -> Answer:
        from rmqctl.kafka.verbs import copying

        second = asked.other.store if isinstance(asked.other, KafkaFile) else _of_family(asked.other, "B")
        return copying.diff((self.replicas.place, second.replicas.place), (_shown(self), _shown(second)), asked)

    def answer_elect(self, asked: questions.Elect) -> Answer:
        from rmqctl.kafka.verbs import copying

        return copying.elect(
            [self.replicas.place, *(_of_family(other, "PATH").replicas.place for other in asked.others)]
        )

    def produce(self, request: ProduceRequest) -> Produced:
        from rmqctl.files.tree import LocalTree

        directories = self.logs.directories
        if len(directories) != 1 or not isinstance(directories[0].tree, LocalTree):
            raise WrongUsage("PATH", f"{self.root} is not one local log directory, which is what produce writes.")
        from rmqctl.kafka.verbs import producing

        return producing.produce(Path(directories[0].tree.root), request)

    # --- as tables ----------------------------------------------------------------------------------

    def tables(self) -> Sequence[str]:
        from rmqctl.kafka.tables.tables import TABLES

        return tuple(TABLES)

    def answer_tables(self, asked: questions.AsTables) -> Tables:
        from rmqctl.kafka.tables import tables

        return tables.as_tables(self._path, asked.filters, asked.split_size, asked.body)

    def answer_table(self, asked: questions.Table) -> ArrowTable:
        from rmqctl.kafka.tables import tables

        wanted = Filters(queue=asked.queue, key=asked.key, tag=asked.tag, after=asked.after, before=asked.before)
        return tables.stream(self._path, asked.name, asked.topics, wanted, asked.columns)


class KafkaFile(_Family, LoneFile):
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
        self.answer_dump, self.answer_hex = self.store.answer_dump, self.store.answer_hex
        self.answer_metadata, self.answer_diff = self.store.answer_metadata, self.store.answer_diff


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
