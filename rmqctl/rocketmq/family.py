"""The RocketMQ family: what of it lies at a path, and its verbs (`rmqctl.store.Store`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.answer import DRY_RUN, Intent, Proposal
from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.files.tree import Tree
from rmqctl.filters import TIME_WORDS, Filters, Rendering, asked_time, bound
from rmqctl.rocketmq.store.files import RocketMQStore, bytes_held
from rmqctl.store import EVERYTHING, PLAIN, LoneFile, Place, Store, hold_to_change, refuse_options

if TYPE_CHECKING:
    from rmqctl.answer import Answer, HexAnswer, Row
    from rmqctl.arrow import ArrowTable
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.release import Release
    from rmqctl.rocketmq.tables.tables import RocketMQTables


def open_at(place: Place) -> Store | LoneFile | None:
    """Return the store at a path, around it, or the lone file; None where nothing is of RocketMQ."""
    from rmqctl.rocketmq.store.locate import open_path

    found = open_path(place.path, commit_log=place.commit_log, broker_conf=place.broker_conf)
    return RocketMQFile(found.tree, found.name, place) if isinstance(found, LoneFile) else RocketMQ(found, place)


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Write messages into the store at a path, or make one there."""
    from rmqctl.rocketmq.verbs import producing

    return producing.produce(path, request)


def damages() -> list[Row]:
    """List the kinds of damage that :func:`produce` makes on purpose."""
    from rmqctl.rocketmq.verbs import producing

    return producing.damages()


class RocketMQFile(LoneFile):
    """A file of a RocketMQ store that lies in none.

    Attributes:
        place: where it was opened.
    """

    def __init__(self, tree: Tree, name: str, place: Place) -> None:
        super().__init__(tree, name)
        self.place = place

    def dump(
        self,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        as_release: Release | None = None,
        follow: bool = False,
        **more: Any,
    ) -> Answer:
        from rmqctl.rocketmq.verbs import dumping

        _refuse_more(more)
        return dumping.dump(self, filters, rendering, as_release=_known(as_release), follow=follow)

    def hex(self, filters: Filters = EVERYTHING) -> HexAnswer:
        from rmqctl.rocketmq.verbs import dumping

        return dumping.hexadecimal(self, filters)

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
        return _diff(self, other, by, queues, limit, share, more)


class RocketMQ(Store):
    """A broker store, opened for reading.

    Attributes:
        files: which files there are.
        place: where it was opened, None where it was not opened by path.
    """

    kind = "rocketmq-store"
    lock = "lock"
    table_format = "rocketmq"

    def __init__(self, files: RocketMQStore, place: Place | None = None) -> None:
        self.files, self.place = files, place
        self.selection = files.selection

    @property
    def root(self) -> str:
        return self.files.root

    @property
    def state(self) -> str:
        return self.files.state

    @property
    def is_running(self) -> bool:
        return self.files.is_running

    @property
    def missing(self) -> str:
        from rmqctl.rocketmq.store.files import missing_log

        found = missing_log(self.files)
        return "" if found is None else found.message

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files.log_files)

    # --- looking ------------------------------------------------------------------------------------

    def info(self, *, explain: bool = False) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.info(self.files, explain=explain)

    def dump(
        self,
        filters: Filters = EVERYTHING,
        rendering: Rendering = PLAIN,
        *,
        as_release: Release | None = None,
        follow: bool = False,
        **more: Any,
    ) -> Answer:
        from rmqctl.rocketmq.verbs import dumping

        pending = more.pop("pending", None)
        _refuse_more(more)
        if pending is not None:
            return dumping.pending(self.files, filters, pending, as_release=_known(as_release))
        return dumping.dump(self.files, filters, rendering, as_release=_known(as_release), follow=follow)

    def hex(self, filters: Filters = EVERYTHING) -> HexAnswer:
        from rmqctl.rocketmq.verbs import dumping

        return dumping.hexadecimal(self.files, filters)

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
        from rmqctl.parallel import processes_for
        from rmqctl.rocketmq.verbs import checking

        shared = processes or processes_for(bytes_held(self.files.log_files))
        return checking.verify(
            self.files,
            level=level,
            cross=cross,
            processes=shared,
            as_release=_known(as_release),
            notes=notes,
            share=share,
        )

    def topics(self, *, topic: str | None = None, by_topic: bool = False, as_found: bool = False) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.topics(self.files, topic=topic, by_topic=by_topic, as_found=as_found)

    def lag(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        as_release: Release | None = None,
        as_found: bool = False,
    ) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.lag(self.files, group=group, topic=topic, as_release=_known(as_release), as_found=as_found)

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
        from rmqctl.rocketmq.verbs.lookups import KeyQuestion, query_key

        if latest:
            raise WrongUsage("--latest", "is for Kafka: the messages of a RocketMQ key do not replace each other.")
        most = 64 if most is None else most
        times = asked_time("--begin", begin), asked_time("--end", end)
        asked = KeyQuestion(topic, key, filters, unique, *times, most, raw, scan, processes, explain)
        return query_key(self.files, asked, rendering, _known(as_release))

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
        from rmqctl.rocketmq.verbs import lookups as queues

        if time in TIME_WORDS:
            raise WrongUsage("TIME", f"{time!r} is for Kafka; give a time.")
        return queues.query_time(
            self.files,
            topic,
            queue,
            asked_time("TIME", time),
            rendering,
            boundary=boundary,
            explain=explain,
            as_release=_known(as_release),
            as_found=as_found,
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
        from rmqctl.rocketmq.verbs import lookups as queues

        if read_committed:
            raise WrongUsage("--read-committed", "is for Kafka: RocketMQ keeps uncommitted messages out of queues.")
        return queues.query_offset(
            self.files,
            topic,
            queue,
            offset,
            filters,
            rendering,
            explain=explain,
            as_release=_known(as_release),
            as_found=as_found,
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
        from rmqctl.rocketmq.verbs import lookups

        return lookups.query_id(
            self.files, message_id, rendering, _known(as_release), topic=topic, every=every, scan=scan, explain=explain
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
        from rmqctl.rocketmq.verbs import planning

        refuse_options(self, "recover", {"leader": leader})
        answer = self._proposal(intent)
        if intent.is_real:
            hold_to_change(self, answer, intent)
        asked = planning.StartQuestion(_known(as_release), plan or intent.is_real, list_lost, compare, processes)
        return planning.recover(self.files, asked, answer)

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
        from rmqctl.rocketmq.verbs import planning

        refuse_options(self, "repair", more)
        answer = self._proposal(intent)
        hold_to_change(self, answer, intent)
        if len(replicas) > 1:
            raise WrongUsage("--from", "takes one store of RocketMQ; repair again with the next.")
        other = _of_family(replicas[0], "--from").files if replicas else None
        asked = planning.RepairQuestion(tuple(only), tuple(skip), other, body_damage, tuple(neutralize), processes)
        return planning.repair(self.files, asked, answer)

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
        from rmqctl.rocketmq.store.files import missing_log
        from rmqctl.rocketmq.verbs import planning

        refuse_options(self, "rebuild", more)
        answer = self._proposal(intent)
        asked = planning.RebuildQuestion(
            frozenset(parts), tuple(topics), into, owner, processes, _known(as_release), share
        )
        if (missing := missing_log(self.files)) is not None:
            raise planning.refusal_of(missing)
        if not self.files.log_files:
            raise NotAStore(self.root, "no file of a commit log is there to rebuild from")
        hold_to_change(self, answer, intent)
        return planning.rebuild(self.files, asked, answer)

    def salvage(
        self,
        into: Path,
        *,
        replicas: Sequence[Store] = (),
        stale: bool = False,
        renumber: bool = False,
        owner: str | None = None,
        **more: Any,
    ) -> Answer:
        from rmqctl.rocketmq.verbs import copying

        refuse_options(self, "salvage", more)
        stores = [self.files, *(_of_family(replica, "--replica").files for replica in replicas)]
        return copying.salvage(stores, into, stale=stale, renumber=renumber, owner=owner)

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
        return _diff(self, other, by, queues, limit, share, more)

    def produce(self, request: ProduceRequest) -> Produced:
        return produce(Path(self.root), request)

    def elect(self, others: Sequence[Store]) -> Answer:
        from rmqctl.rocketmq.verbs import copying

        return copying.elect([self.files, *(_of_family(other, "PATH").files for other in others)])

    def _proposal(self, intent: Intent) -> Proposal:
        return Proposal(intent=intent, lock=self.lock, outside=self.files.logs_outside)

    # --- as tables ----------------------------------------------------------------------------------

    def tables(self) -> Sequence[str]:
        from rmqctl.rocketmq.tables.tables import TABLES

        return tuple(TABLES)

    def as_tables(
        self, filters: Filters = EVERYTHING, *, split_size: int | None = None, body: str = "decompressed"
    ) -> RocketMQTables:
        from rmqctl.rocketmq.tables.tables import as_tables

        return as_tables(self.files, self.place, filters, split_size, body)

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
        from rmqctl.rocketmq.log.filters import Filter
        from rmqctl.rocketmq.tables.tables import stream

        topics = () if topic is None else (topic,) if isinstance(topic, str) else tuple(topic)
        wanted = Filter(topics, queue, key, tag, after=bound("after", after), before=bound("before", before))
        return stream(self.files, self.place, name, wanted, columns)


def _diff(
    a: RocketMQ | RocketMQFile,
    b: Store | LoneFile,
    by: str,
    queues: bool,
    limit: int | None,
    share: Any,
    more: dict[str, Any],
) -> Answer:
    from rmqctl.rocketmq.diff.driver import Side
    from rmqctl.rocketmq.verbs import copying

    _refuse_more(more)
    sides, remarks = [], []
    for one in (a, b):
        if isinstance(one, RocketMQFile):
            sides.append(Side.of_file(one.tree, one.name, one.place.path))
            continue
        if isinstance(one, LoneFile):
            raise WrongUsage("B", f"{one.name} is no file of a RocketMQ store, as A is.")
        store = _of_family(one, "B")
        path = store.root if store.place is None else store.place.path
        if store.is_running:
            remarks.append(f"a broker holds the lock of {path}: what is read may be changing")
        sides.append(Side.of_store(store.files, path))
    answer = copying.diff((sides[0], sides[1]), by=by, queues=queues, limit=limit, share=share)
    answer.remarks += remarks
    return answer


def _of_family(store: Store, option: str) -> RocketMQ:
    """Return a store that is to be of RocketMQ, too.

    Raises:
        WrongUsage: it is not.
    """
    if isinstance(store, RocketMQ):
        return store
    raise WrongUsage(option, f"{store.root} is a {store.kind.replace('-', ' ')}; give a RocketMQ store.")


def _refuse_more(more: dict[str, Any]) -> None:
    """Refuse options of other families.

    Raises:
        WrongUsage: there are some.
    """
    if "official" in more:
        raise WrongUsage("-o kafka-dump-log", "is for Kafka: the official tools print no files of a RocketMQ store.")
    if "read_committed" in more:
        raise WrongUsage("--read-committed", "is for Kafka: a commit log shows every message.")
    for name in more:
        raise WrongUsage(f"--{name.replace('_', '-')}", "means nothing for a RocketMQ store.")


def _known(release: Release | None) -> Release | None:
    """Return a release that was asked for as one whose rules are known.

    Raises:
        WrongUsage: it is none.
    """
    if release is None:
        return None
    from rmqctl.rocketmq.state.releases import KNOWN

    return release.among(KNOWN, "RocketMQ")
