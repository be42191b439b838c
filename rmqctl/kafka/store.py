"""The Kafka family: which log directories, partition or file lie at a path, and their verbs (`rmqctl.store.Store`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.java_properties import parse_properties
from rmqctl.answer import DRY_RUN, Intent, Proposal
from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.files.filesystem import is_url
from rmqctl.files.tree import Tree
from rmqctl.filters import Filters, Rendering
from rmqctl.kafka.directories import LogDirectories
from rmqctl.kafka.directory import (
    LogDirectory,
    LogFile,
    Partition,
    looks_like_partition,
    proves_log_directory,
    read_directory,
    read_partition,
)
from rmqctl.kafka.file_names import FileKind, PartitionName, meaning_of, partition_of
from rmqctl.store import EVERYTHING, PLAIN, LoneFile, Place, Store, hold_to_change, refuse_options, tree_of

if TYPE_CHECKING:
    from datetime import datetime

    from rmqctl.answer import Answer, HexAnswer, Row
    from rmqctl.arrow import ArrowTable
    from rmqctl.kafka.state.replicas import Replicas
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.release import Release
    from rmqctl.tables import Tables

_MOST_LOOKED_INTO = 64
_LARGE = 128 << 20
"""Bytes of log from which several processes are faster than one."""
_NAMED = frozenset(kind for kind in FileKind if kind is not FileKind.OTHER)


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Write records into the log directory at a path, or make one there."""
    from rmqctl.kafka.verbs import producing

    return producing.produce(path, request)


def damages() -> list[Row]:
    """List the kinds of damage that :func:`produce` makes on purpose."""
    from rmqctl.kafka.verbs import producing

    return producing.damages()


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
        from rmqctl.kafka.verbs import checking

        shared = self._processes(processes)
        return checking.verify(
            self.replicas, self.logs, level=level, cross=cross, processes=shared, notes=notes, share=share
        )

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
        begin: int = 0,
        end: int = (1 << 63) - 1,
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
        asked = KeyQuestion(topic, key, filters, begin, end, most, latest, explain, processes)
        return query_key(self.replicas, asked)

    def query_time(
        self,
        topic: str,
        queue: int | None,
        time: int | str,
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
        return lookups.query_time(self.replicas, topic, queue, time, explain=explain, as_release=as_release)

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
        asked = recovering.StartQuestion(as_release, self.settings, plan, list_lost, compare, of_leader)
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
        from rmqctl.kafka.verbs import mending

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
        asked = mending.RepairQuestion(tuple(only), tuple(skip), tuple(others), abort, self.settings, shared)
        return mending.plan_to_mend(self.replicas, asked, answer)

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
        from rmqctl.kafka.verbs import mending

        refuse_options(self, "rebuild", more)
        if share is not None:
            raise WrongUsage("--engine", "spark is for RocketMQ: files of a log directory are made here.")
        answer = Proposal(intent=intent, lock=self.lock)
        asked = mending.RebuildQuestion(parts, topics, into, owner, self.settings, self._processes(processes))
        hold_to_change(self, answer, intent)
        return mending.plan_rebuild(self.replicas, asked, answer)

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
            as_release=as_release,
            as_topic_files=as_topic_files,
            owner=owner,
        )

    def _processes(self, wanted: int | None) -> int:
        """Processes that share the logs."""
        return wanted or (min(os.cpu_count() or 1, 8) if self.size >= _LARGE else 1)

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
        from rmqctl.arrow import epoch_ms
        from rmqctl.kafka.tables import tables

        topics = () if topic is None else (topic,) if isinstance(topic, str) else tuple(topic)
        asked = Filters(queue=queue, key=key, tag=tag, after=epoch_ms(after), before=epoch_ms(before))
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
        return produce(Path(directories[0].tree.root), request)

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
        if more:
            raise WrongUsage(f"--{next(iter(more)).replace('_', '-')}", "means nothing for a log directory.")
        if options is not None:
            from rmqctl.kafka.dump.official import Options

            return dumping.official(self.logs, Options(**options), as_release)
        return dumping.dump(self.logs, filters, rendering, follow=follow, read_committed=read_committed)

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
        return self.store.dump(filters, rendering, as_release=as_release, follow=follow, **more)

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
    """A place as the user named it: a root, and what is inside."""
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


# --- from a path to what lies there -----------------------------------------------------------------------


def _refuse_as_found(wanted: bool) -> None:
    """Refuse an option that has no meaning here.

    Raises:
        WrongUsage: it was given.
    """
    if wanted:
        raise WrongUsage("--as-found", "is for RocketMQ: the offsets of a log directory are those of its files.")


def open_at(place: Place) -> Store | LoneFile | None:
    """The log directory at a path or around it, or the lone file; None where nothing is of Kafka.

    Raises:
        NotAStore: the user says it is of Kafka, and it is not.
    """
    if place.commit_log:
        return None
    found = _directory_at(place) if place.is_directory else _file_at(place)
    if found is None and place.is_forced:
        raise NotAStore(
            place.path,
            "no Kafka partition, checkpoint or meta.properties in it"
            if place.is_directory
            else "it is no file of Kafka's",
            "give a directory of log.dirs, a partition's directory, or one of its files",
        )
    if isinstance(found, KafkaStore):
        found.settings = _settings(place)
    return found


def open_together(places: Sequence[Place]) -> Store | None:
    """The log directories of one broker; None where one of the places is none."""
    found = [_directory_at(place) if place.is_directory else None for place in places]
    stores = [store for store in found if store is not None and not store.selection]
    if not stores or len(stores) < len(places):
        return None
    together = KafkaStore(LogDirectories([directory for store in stores for directory in store.logs.directories]))
    together.settings = _settings(places[0])
    return together


def _settings(place: Place) -> dict[str, str]:
    """Settings of a server.properties by name; empty where none was given.

    Raises:
        OSError: the file cannot be read.
    """
    if place.broker_conf is None:
        return {}
    return parse_properties(Path(place.broker_conf).read_text("utf-8", errors="replace"))


def _directory_at(place: Place) -> KafkaStore | None:
    entries = place.tree.entries("", sizes=False)
    names = [entry.name for entry in entries]
    directories = [entry.name for entry in entries if entry.is_directory]
    if looks_like_partition(name for name in names if name not in directories):
        return _around(place.path, "")
    if proves_log_directory(names) or any(_is_partition(place.tree, name) for name in directories[:_MOST_LOOKED_INTO]):
        return KafkaStore(LogDirectories([read_directory(place.tree)]))
    return None


def _file_at(place: Place) -> KafkaStore | KafkaFile | None:
    parent, name = _split(place.path)
    tree = tree_of(parent)
    meaning = meaning_of(name)
    siblings = [entry.name for entry in tree.entries("", sizes=False) if not entry.is_directory]
    if meaning.kind in _NAMED and proves_log_directory(siblings):
        return KafkaStore(LogDirectories([read_directory(tree)], name))
    if looks_like_partition(siblings) and (meaning.kind in _NAMED or place.is_forced):
        return _around(parent, name)
    if meaning.base is not None and meaning.kind in _NAMED:
        return KafkaFile(tree, name, meaning.kind)
    if place.is_forced or meaning.kind in _NAMED or _starts_with_batch(tree, name):
        return KafkaFile(tree, name, FileKind.LOG if meaning.kind is FileKind.OTHER else meaning.kind)
    return None


def _around(path: str, inside: str) -> KafkaStore:
    """The log directory around a partition's directory, or just that directory where it is none's."""
    parent, name = _split(path)
    parsed = partition_of(name)
    if parsed is None:
        tree = tree_of(path)
        return KafkaStore(LogDirectories([LogDirectory(tree, [read_partition(tree, "")])], inside))
    tree = tree_of(parent)
    selection = f"{name}/{inside}" if inside else name
    if proves_log_directory(entry.name for entry in tree.entries("", sizes=False)):
        return KafkaStore(LogDirectories([read_directory(tree)], selection))
    return KafkaStore(LogDirectories([LogDirectory(tree, [read_partition(tree, name, parsed)])], selection))


def _split(path: str) -> tuple[str, str]:
    """A path's directory and its last name; in the user's own words where they say both."""
    typed = path.rstrip("/")
    parent, slash, name = typed.rpartition("/")
    if is_url(path) or (slash and name not in {"", ".", ".."}):
        return parent or "/", name
    if name not in {"", ".", ".."}:
        return ".", name
    parent, _, name = os.path.abspath(path).rpartition("/")
    return parent or "/", name


def _is_partition(tree: Tree, name: str) -> bool:
    if partition_of(name) is None:
        return False
    try:
        return looks_like_partition(entry.name for entry in tree.entries(name, sizes=False))
    except OSError:
        return False


def _starts_with_batch(tree: Tree, name: str) -> bool:
    """Whether a file of any name begins with a batch that proves itself by its CRC."""
    from rmqctl.kafka.loose import starts_with_batch

    source = tree.open(name)
    try:
        return starts_with_batch(source)
    finally:
        source.close()
