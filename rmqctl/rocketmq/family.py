"""The RocketMQ family: what of it lies at a path, and its verbs (`rmqctl.store.Store`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.answer import Intent, Proposal
from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.files.tree import Tree
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.store import LoneFile, Place, Store, StoreDirectory, hold_to_change

if TYPE_CHECKING:
    from rmqctl import questions
    from rmqctl.answer import Answer, HexAnswer, Row
    from rmqctl.arrow import ArrowTable
    from rmqctl.files.local import ByteSource
    from rmqctl.producing import Produced, ProduceRequest
    from rmqctl.redaction import Kept
    from rmqctl.release import Release
    from rmqctl.repair.books import Stretches
    from rmqctl.rocketmq.tables.tables import RocketMQTables
    from rmqctl.verification import LogPart


def open_at(place: Place) -> Store | LoneFile | None:
    """Return the store at a path, around it, or the lone file; None where nothing is of RocketMQ."""
    from rmqctl.rocketmq.store.locate import open_path

    found = open_path(place.path, commit_log=place.commit_log, broker_conf=place.broker_conf)
    return RocketMQFile(found.tree, found.name, place) if isinstance(found, LoneFile) else RocketMQStore(found, place)


def produce(path: Path, request: ProduceRequest) -> Produced:
    """Write messages into the store at a path, or make one there."""
    from rmqctl.rocketmq.verbs import producing

    return producing.produce(path, request)


def damages() -> list[Row]:
    """List the kinds of damage that :func:`produce` makes on purpose."""
    from rmqctl.rocketmq.verbs import producing

    return producing.damages()


def releases() -> Mapping[tuple[int, int], int]:
    """Return the newest patch of each series that is known."""
    from rmqctl.rocketmq.state.releases import KNOWN

    return KNOWN


def first_patches() -> Mapping[tuple[int, int], int]:
    """Return the first patch of each series of which not all up to the newest are known."""
    from rmqctl.rocketmq.state.releases import FIRST_PATCH

    return FIRST_PATCH


class _Family:
    """What all of RocketMQ is called, and which releases of it are known."""

    family = "rocketmq"

    def known(self, release: Release | None) -> Release | None:
        if release is None:
            return None
        return release.among(releases(), "RocketMQ", first_patches())


class RocketMQFile(_Family, LoneFile):
    """A file of a RocketMQ store that lies in none.

    Attributes:
        place: where it was opened.
    """

    def __init__(self, tree: Tree, name: str, place: Place) -> None:
        super().__init__(tree, name)
        self.place = place

    def answer_dump(self, asked: questions.Dump) -> Answer:
        from rmqctl.rocketmq.verbs import dumping

        return dumping.dump(self, asked)

    def answer_hex(self, asked: questions.Hex) -> HexAnswer:
        from rmqctl.rocketmq.verbs import dumping

        return dumping.hexadecimal(self, asked)

    def answer_diff(self, asked: questions.Diff) -> Answer:
        return _diff(self, asked)


class RocketMQStore(_Family, Store):
    """A broker store, opened for reading.

    Attributes:
        files: which files there are.
        place: where it was opened, None where it was not opened by path.
    """

    kind = "rocketmq-store"
    lock = "lock"
    table_format = "rocketmq"

    def __init__(self, files: StoreFiles, place: Place | None = None) -> None:
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

    def topic_names(self) -> list[str]:
        from rmqctl.rocketmq.state.config import known_topics

        return known_topics(self.files)

    def group_names(self) -> list[str]:
        from rmqctl.rocketmq.query.lag import group_names

        return group_names(self.files)

    def directories(self) -> list[StoreDirectory]:
        now = self._now()
        outside = [(name, tree) for name, tree in now.log_trees if name.startswith("/") or "://" in name]
        return [StoreDirectory(now.tree), *(StoreDirectory(tree, f"{name}/") for name, tree in outside)]

    def redacted(
        self, file: str, source: ByteSource, healed: ByteSource | None, changed: Sequence[tuple[int, int]]
    ) -> Kept | str | None:
        from rmqctl.rocketmq.dump.redaction import redacted_file

        return redacted_file(self.files, file, source, healed, changed)

    def write_redacted(self, place: Path) -> Mapping[str, str]:
        from rmqctl.rocketmq.dump.redaction import write_redacted_databases

        return write_redacted_databases(self.files, place)

    def whole_records(self, file: str, stretches: Stretches | None) -> int | None:
        from rmqctl.rocketmq.repair.books import whole_records

        return whole_records(self.files, file, stretches)

    # --- looking ------------------------------------------------------------------------------------

    def answer_info(self, asked: questions.Info) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.segments(self.files) if asked.segments else looking.info(self.files, asked)

    def answer_dump(self, asked: questions.Dump) -> Answer:
        from rmqctl.rocketmq.verbs import dumping

        if asked.pending is not None:
            return dumping.pending(self._now(), asked.filters, asked.pending, as_release=asked.as_release)
        return dumping.dump(self.files if asked.follow else self._now(), asked)

    def answer_hex(self, asked: questions.Hex) -> HexAnswer:
        from rmqctl.rocketmq.verbs import dumping

        return dumping.hexadecimal(self._now(), asked)

    def answer_verify(self, asked: questions.Verify) -> Answer:
        from rmqctl.rocketmq.verbs import checking

        return checking.verify(self._now(), asked)

    def parts(self) -> list[LogPart]:
        from rmqctl.rocketmq.verify.parts import parts_of

        return parts_of(self.files)

    def answer_topics(self, asked: questions.Topics) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.disk(self.files, asked) if asked.disk else looking.topics(self._now(), asked)

    def answer_lag(self, asked: questions.Lag) -> Answer:
        from rmqctl.rocketmq.verbs import looking

        return looking.lag(self._now(), asked)

    # --- looking up ---------------------------------------------------------------------------------

    def answer_query_key(self, asked: questions.QueryKey) -> Answer:
        from rmqctl.rocketmq.verbs import lookups

        return lookups.query_key(self.files, asked)

    def answer_query_time(self, asked: questions.QueryTime) -> Answer:
        from rmqctl.rocketmq.verbs import lookups

        return lookups.query_time(self.files, asked)

    def answer_query_offset(self, asked: questions.QueryOffset) -> Answer:
        from rmqctl.rocketmq.verbs import lookups

        return lookups.query_offset(self.files, asked)

    def answer_query_id(self, asked: questions.QueryId) -> Answer:
        from rmqctl.rocketmq.verbs import lookups

        return lookups.query_id(self.files, asked)

    def answer_trace(self, asked: questions.Trace) -> Answer:
        from rmqctl.rocketmq.verbs import tracing

        return tracing.trace(self._now(), asked)

    def answer_preflight(self, asked: questions.Preflight) -> Answer:
        from rmqctl.rocketmq.verbs.preflight import preflight

        return preflight(self._now(), asked)

    # --- changing, by plan --------------------------------------------------------------------------

    def answer_recover(self, asked: questions.Recover) -> Proposal:
        from rmqctl.rocketmq.verbs import planning

        answer = self._proposal(asked.intent)
        if asked.intent.is_real:
            hold_to_change(self, answer, asked.intent)
        return planning.recover(self._now(), asked, answer)

    def answer_repair(self, asked: questions.Repair) -> Proposal:
        from rmqctl.rocketmq.verbs import planning

        answer = self._proposal(asked.intent)
        hold_to_change(self, answer, asked.intent)
        if len(asked.replicas) > 1:
            raise WrongUsage("--from", "takes one store of RocketMQ; repair again with the next.")
        other = _of_family(asked.replicas[0], "--from").at_one_moment().files if asked.replicas else None
        return planning.repair(self._now(), asked, answer, other)

    def answer_rebuild(self, asked: questions.Rebuild) -> Proposal:
        from rmqctl.rocketmq.store.files import missing_log
        from rmqctl.rocketmq.verbs import planning

        answer = self._proposal(asked.intent)
        planning.check_topics(asked)
        if (missing := missing_log(self.files)) is not None:
            raise planning.refusal_of(missing)
        if not self.files.log_files:
            raise NotAStore(self.root, "no file of a commit log is there to rebuild from")
        hold_to_change(self, answer, asked.intent)
        return planning.rebuild(self._now(), asked, answer)

    def answer_offsets(self, asked: questions.Offsets) -> Proposal:
        from rmqctl.rocketmq.verbs import positions

        answer = self._proposal(asked.intent)
        if asked.choice.changes:
            hold_to_change(self, answer, asked.intent)
        return positions.offsets(self._now(), asked, answer)

    def answer_salvage(self, asked: questions.Salvage) -> Answer:
        from rmqctl.rocketmq.verbs import copying

        return copying.salvage([self._now(), *_files_of(asked.replicas, "--replica")], asked)

    def answer_diff(self, asked: questions.Diff) -> Answer:
        return _diff(self, asked)

    def answer_elect(self, asked: questions.Elect) -> Answer:
        from rmqctl.rocketmq.verbs import copying

        return copying.elect([self._now(), *_files_of(asked.others, "PATH")])

    def produce(self, request: ProduceRequest) -> Produced:
        return produce(Path(self.root), request)

    def at_one_moment(self, *, is_last: bool = False) -> RocketMQStore:
        return RocketMQStore(self._now(is_last=is_last), self.place) if self.is_running else self

    def _now(self, *, is_last: bool = False) -> StoreFiles:
        """Return the files as they are, or where a broker runs as they were at one moment, for all that judges them."""
        if not self.is_running:
            return self.files
        from rmqctl.rocketmq.queues.moment import at_one_moment

        return at_one_moment(self.files, is_last=is_last)

    def _proposal(self, intent: Intent) -> Proposal:
        self.files.starts.clear()  # of the store as it was before
        return Proposal(intent=intent, lock=self.lock, outside=self.files.logs_outside)

    # --- as tables ----------------------------------------------------------------------------------

    def tables(self) -> Sequence[str]:
        from rmqctl.rocketmq.tables.tables import TABLES

        return tuple(TABLES)

    def answer_tables(self, asked: questions.AsTables) -> RocketMQTables:
        from rmqctl.rocketmq.tables.tables import as_tables

        return as_tables(self.files, self.place, asked.filters, asked.split_size, asked.body)

    def answer_table(self, asked: questions.Table) -> ArrowTable:
        from rmqctl.rocketmq.log.filters import Filter
        from rmqctl.rocketmq.tables.tables import stream

        wanted = Filter(asked.topics, asked.queue, asked.key, asked.tag, after=asked.after, before=asked.before)
        return stream(self.files, self.place, asked.name, wanted, asked.columns)


def _diff(a: RocketMQStore | RocketMQFile, asked: questions.Diff) -> Answer:
    from rmqctl.rocketmq.diff.driver import Side
    from rmqctl.rocketmq.verbs import copying

    sides, remarks = [], []
    for one in (a, asked.other):
        if isinstance(one, RocketMQFile):
            sides.append(Side.of_file(one.tree, one.name, one.place.path))
            continue
        if isinstance(one, LoneFile):
            raise WrongUsage("B", f"{one.name} is no file of a RocketMQ store, as A is.")
        store = _of_family(one, "B")
        path = store.root if store.place is None else store.place.path
        if store.is_running:
            remarks.append(f"a broker holds the lock of {path}: what is read may be changing")
        sides.append(Side.of_store(store.at_one_moment().files, path))
    answer = copying.diff((sides[0], sides[1]), asked)
    answer.remarks += remarks
    return answer


def _files_of(stores: Sequence[Store], option: str) -> list[StoreFiles]:
    return [_of_family(store, option).at_one_moment().files for store in stores]


def _of_family(store: Store, option: str) -> RocketMQStore:
    """Return a store that is to be of RocketMQ, too.

    Raises:
        WrongUsage: it is not.
    """
    if isinstance(store, RocketMQStore):
        return store
    raise WrongUsage(option, f"{store.root} is a {store.kind.replace('-', ' ')}; give a RocketMQ store.")
