"""One question to many stores as one job: executors open, divide, read and judge them, and only answers come here.

A task opens each store. What is small is a task as a whole; of a large one each stretch of the log is a task, so that
nothing waits for it, and what the stretches leave meets in one task that finishes the store. All of it is repeated
where an executor is lost: a store that cannot be read is an answer, too, and no end.
"""

from __future__ import annotations

import os
import pickle
import platform
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from rmqctl.answer import Answer
from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.files.remote import is_url
from rmqctl.filters import Filters
from rmqctl.fleet import Pair, one_of_several, paired
from rmqctl.fleet_answers import Opened, reply_of
from rmqctl.fleet_tables import FleetTables, Listed, joined
from rmqctl.inventory import Member, is_several, members_of, opened_together
from rmqctl.parallel import note, taken
from rmqctl.pipeline.data_source import spark_schema
from rmqctl.pipeline.jobs import counters, sharing, tasks
from rmqctl.questions import EVERYTHING, Question, Rebuild, Recover, Verify
from rmqctl.results import Reply
from rmqctl.store import Store
from rmqctl.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES = "spark.rmqctl.taskBytes"
"""Setting: bytes of log in a task; a store with less is one task."""
_TASK_BYTES = "256m"
_ROWS = pa.schema(
    [
        ("store", pa.int32()),
        ("number", pa.int64()),
        ("kind", pa.int32()),
        ("size", pa.int64()),
        ("content", pa.binary()),
    ]
)
"""What goes from stage to stage: of a store by its number, as the kind says."""
_DONE, _WHOLE, _STRETCH, _RESULT, _ELSEWHERE = range(5)
_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_TASKS = 50_000
_HOSTS_AT_ONCE = 2_000
_PAUSES = 1, 2, 4, 8, 15, 15
"""Seconds to wait for an executor on a host before tasks are sent there again."""
LOCALITY = {"spark.locality.wait": "600s"}
"""Settings of Spark where stores lie on disks of hosts: wait until an executor there is free."""
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Errand:
    """What one store is asked, or a pair of them; travels to the executors.

    Attributes:
        question: of a comparison what makes the question of B.
        beside: B of a comparison, or why there is none.
    """

    member: Member
    question: Question[Any] | Callable[[Store], Question[Any]]
    beside: Member | RmqctlError | None = None

    def open(self) -> tuple[Store, Question[Any]]:
        """Open it where this runs.

        Raises:
            RmqctlError, OSError: it cannot be.
        """
        store = self.member.open()
        if self.beside is None or isinstance(self.question, Question):
            return store, cast(Question[Any], self.question)
        if isinstance(self.beside, RmqctlError):
            raise self.beside
        try:
            other = self.beside.open()
        except (RmqctlError, OSError) as error:
            raise RmqctlError(f"B: {error}") from None
        return store, self.question(other)


@dataclass(frozen=True, slots=True)
class View:
    """For whom answers are made: ``shown`` on a terminal, with ``every`` one of what is alike."""

    shown: bool = False
    every: bool = False


class _Row(NamedTuple):
    store: int
    number: int
    kind: int
    size: int
    content: bytes | None

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([self._asdict()], schema=_ROWS)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        columns = (batch.column(name) for name in _ROWS.names)
        yield from (_Row(*(value.as_py() for value in values)) for values in zip(*columns, strict=True))


class _Divided(BaseException):
    """A verification has said what it wants to have read; nothing between may take that for an error."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.work, self.items = work, items


def _divide(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    raise _Divided(work, items)


def _place(split: Any) -> tuple[str, int, int, int | None]:
    """Return what a split of a log is known by: file, its size, begin and end."""
    file = split.context.file if hasattr(split, "context") else split
    return file.name, file.size, split.start, split.stop


@dataclass(slots=True)
class _Known:
    """Gives what was read elsewhere, for the same splits in the same order."""

    path: str
    results: Iterator[tuple[Any, Any]]

    def __call__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        del work
        for item in items:
            place, result = next(self.results, (None, None))
            if place != _place(item):
                raise RmqctlError(f"{self.path} changed while it was read; ask again when nobody writes it")
            yield result


def _bunches(items: Sequence[Any], most: int) -> Iterator[tuple[list[Any], int]]:
    """Yield items that follow each other, of at most so many bytes of log together, with these bytes."""
    bunch: list[Any] = []
    size = 0
    for item in items:
        _, length, start, stop = _place(item)
        own = (length if stop is None else stop) - start
        if bunch and size + own > most:
            yield bunch, size
            bunch, size = [], 0
        bunch.append(item)
        size += own
    if bunch:
        yield bunch, size


@dataclass(frozen=True, slots=True)
class _Work:
    """What the tasks of all stages share.

    Attributes:
        size: bytes of log in a task.
    """

    errands: Sequence[Errand]
    view: View
    size: int

    def plan(self, part: int) -> Batches:
        """Open a store and say what is to be read of it."""
        try:
            found, question = self.errands[part].open()
            size = found.size
            is_divided = isinstance(question, Verify) and size > self.size and not found.is_running
            if not is_divided:  # a store that is written is looked at at one moment, by one task
                yield _Row(part, 0, _WHOLE, size, None).batch()
                return
            yield _Row(part, 0, _DONE, size, self._reply(part, found, question, _divide)).batch()
        except _Divided as divided:
            for number, (items, size) in enumerate(_bunches(divided.items, self.size)):
                yield _Row(part, number, _STRETCH, size, _packed((divided.work, items))).batch()
        except (RmqctlError, OSError) as error:
            yield _Row(part, 0, _DONE, 0, _packed(error)).batch()

    def there(self, part: int) -> _Row:
        """Finish a store that lies on a disk of one host; a task that came to another one only says so."""
        host = self.errands[part].member.facts["host"]
        if not is_here(host):
            return _Row(part, 0, _ELSEWHERE, 0, platform.node().encode())
        return self._finished(part, None, 0)

    def read(self, row: _Row) -> _Row:
        """Do the work of a task: a small store, or a stretch of a large one."""
        if row.kind == _WHOLE:
            return self._finished(row.store, None, row.size)
        if row.kind != _STRETCH or row.content is None:
            return row
        try:
            work, items = pickle.loads(row.content)  # noqa: S301 - made by our own tasks
            results: Any = [(_place(item), work(item)) for item in items]
        except (RmqctlError, OSError) as error:
            results = error
        return row._replace(kind=_RESULT, content=_packed(results))

    def finish(self, batches: Batches) -> Batches:
        """Finish stores, whose rows come together, in the order of their logs."""
        for store, own in groupby(_rows(batches), key=lambda row: row.store):
            rows = iter(own)
            first = next(rows)
            if first.kind == _RESULT:
                first = self._finished(store, _results(chain([first], rows)), 0)
            yield first.batch()

    def _finished(self, store: int, results: Iterator[tuple[Any, Any]] | None, size: int) -> _Row:
        errand = self.errands[store]
        try:
            found, question = errand.open()
            share = None if results is None else _Known(errand.member.path, results)
            content = self._reply(store, found, question, share)
        except (RmqctlError, OSError) as error:
            content = _packed(error)
        note(0, size)
        return _Row(store, 0, _DONE, size, content)

    def _reply(self, store: int, found: Store, question: Question[Any], share: Any) -> bytes:
        if isinstance(question, (Verify, Recover, Rebuild)):
            question = replace(question, processes=question.processes or 1)
        if isinstance(question, Verify):
            question = replace(question, share=share)
        member = self.errands[store].member
        return _packed(reply_of(member, found, question, shown=self.view.shown, every=self.view.every))


def _results(rows: Iterable[_Row]) -> Iterator[tuple[Any, Any]]:
    for row in rows:
        found = pickle.loads(cast(bytes, row.content))  # noqa: S301 - made by our own tasks
        if isinstance(found, Exception):
            raise found
        yield from found


def _packed(value: Any) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


class _Answers:
    """What was said, kept in a file of this machine: only one answer at a time is in memory."""

    def __init__(self) -> None:
        self.file, self.places = TemporaryFile(), dict[int, tuple[int, int]]()  # noqa: SIM115 - closed with its user
        weakref.finalize(self, self.file.close)

    def add(self, store: int, content: bytes) -> None:
        self.places[store] = self.file.tell(), len(content)
        self.file.write(content)

    def get(self, store: int) -> Reply | RmqctlError | OSError:
        begin, size = self.places[store]
        self.file.seek(begin)
        found: Reply | RmqctlError | OSError = pickle.loads(self.file.read(size))  # noqa: S301 - as above
        return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """One store's answer among those that are kept."""

    answers: _Answers
    number: int

    def answer(self, question: Question[Any] | None, /) -> Answer:
        """Return it again."""
        found = self.answers.get(self.number)
        if isinstance(found, Exception):
            raise found
        return found.answer(question)


class Spread:
    """One question to many stores, on Spark. :meth:`plan` first, then :meth:`answers`.

    Attributes:
        size: bytes of log of all stores; known after :meth:`plan`.
        count: tasks that read them; known then, too.
    """

    def __init__(self, spark: SparkSession, errands: Sequence[Errand], view: View) -> None:
        self.spark, self.errands = spark, errands
        self._work = _Work(errands, view, _bytes(spark.conf.get(TASK_BYTES, _TASK_BYTES) or _TASK_BYTES))
        self.size = 0
        self._own = [number for number, errand in enumerate(errands) if errand.member.own_disk]
        self._planned: DataFrame | None = None
        self._first: dict[tuple[int, int], int] = {}
        self.count, self._is_divided = 0, False

    def plan(self) -> None:
        """Have the stores opened and divided, a task each."""
        from pyspark import StorageLevel
        from pyspark.sql import functions

        shared = [number for number, errand in enumerate(self.errands) if not errand.member.own_disk]
        if not shared:
            return
        planned = tasks(self.spark, shared, self._work.plan, _ROWS).persist(StorageLevel.DISK_ONLY)
        counted = planned.groupBy("store", "kind").agg(functions.count("*"), functions.sum("size")).collect()
        order = {_STRETCH: 0, _WHOLE: 1, _DONE: 2}  # what has to be finished first, then the large before the small
        for store, kind, count, size in sorted(counted, key=lambda row: (order[row[1]], -row[3], row[0])):
            self._first[store, kind] = self.count
            self.count += count
            self.size += size
            self._is_divided = self._is_divided or kind == _STRETCH
        self._planned = planned

    def answers(self) -> list[tuple[Member, Opened]]:
        """Have the stores read, and return what each has to say.

        Raises:
            WrongUsage: stores lie on disks of hosts, and this cluster does not let a task choose its host.
        """
        found = _Answers()
        for row in chain(self._on_hosts(), self._anywhere()):
            found.add(row.store, cast(bytes, row.content))
        return [(errand.member, _Kept(found, number)) for number, errand in enumerate(self.errands)]

    def _anywhere(self) -> Iterator[_Row]:
        """Yield what is said of stores that every executor can read."""
        from pyspark import StorageLevel

        planned = self._planned
        if planned is None:
            return
        before = self.spark.conf.get(_AT_ONCE)
        self.spark.conf.set(_AT_ONCE, "16")  # rows hold what is known of whole stretches
        try:
            read = self._placed(planned).mapInArrow(self._read(), spark_schema(_ROWS))
            if self._is_divided:
                many = min(len(self.errands), _MOST_TASKS)
                together = _by(read, many, "store").sortWithinPartitions("store", "number")
                read = together.mapInArrow(_counted(self.spark, self._work.finish), spark_schema(_ROWS))
            read = read.persist(StorageLevel.DISK_ONLY)
            read.count()  # all at once; then one after the other
            yield from (_Row(*row) for row in read.toLocalIterator())
            read.unpersist()
        finally:
            self.spark.conf.set(_AT_ONCE, before or "10000")
            planned.unpersist()

    def _on_hosts(self) -> Iterator[_Row]:
        """Yield what is said of stores that lie on disks of hosts, by executors there.

        Only where an executor works, tasks are sent: Spark would have all wait for a host that has none. One that comes
        to another host, since the executor was lost, looks at nothing, and is sent again.
        """
        left = self._own
        for pause in (*_PAUSES, None):
            hosts = self._hosts() if left else set()
            reached = [n for n in left if hosts & set(names_of(self.errands[n].member.facts["host"]))]
            away = [number for number in left if number not in set(reached)]
            for begin in range(0, len(reached), _HOSTS_AT_ONCE):
                for content in self._there(reached[begin : begin + _HOSTS_AT_ONCE]).collect():
                    row: _Row = pickle.loads(content)  # noqa: S301 - made by our own tasks
                    if row.kind == _ELSEWHERE:
                        away.append(row.store)
                    else:
                        yield row
            left = away
            if left and pause is not None:
                time.sleep(pause)
        for store in left:
            member = self.errands[store].member
            error = RmqctlError(
                f"{member.path} lies on a disk of {member.facts['host']}, where no executor works; executors work on "
                f"{', '.join(sorted(hosts)) or 'no host'}; start a worker there, under this name or its address"
            )
            yield _Row(store, 0, _DONE, 0, _packed(error))

    def _hosts(self) -> set[str]:
        """Return the hosts of executors, as Spark calls them.

        Raises:
            WrongUsage: this is Spark Connect, which does not say.
        """
        try:
            context = self.spark.sparkContext
        except Exception:  # noqa: BLE001 - each release raises something else
            why = "cannot bring work to a host (own_disk of the inventory); use --master."
            raise WrongUsage("--remote", why) from None
        inner: Any = context._jsc.sc()  # noqa: SLF001 - the Python tracker has no such call
        found = [str(info.host()) for info in inner.statusTracker().getExecutorInfos()]
        driver = context.getConf().get("spark.driver.host")
        if not (context.master or "").startswith("local[") and driver in found:
            found.remove(driver)  # once: the driver is among them, and executors beside it stay
        return set(found)

    def _there(self, numbers: Sequence[int]) -> Any:
        """Return an RDD with a task a store, each with its host as the preferred one, which only Java can say."""
        from pyspark import RDD
        from pyspark.serializers import CPickleSerializer

        context = self.spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001 - no method of PySpark gives a task its hosts
        sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        wishes = jvm.java.util.ArrayList()
        for number in numbers:
            hosts = jvm.java.util.ArrayList()
            for host in names_of(self.errands[number].member.facts["host"]):
                hosts.add(host)
            wishes.add(jvm.scala.Tuple2(bytearray(_packed(number)), sequence(hosts)))
        tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        made = context._jsc.sc().makeRDD(sequence(wishes), tag).toJavaRDD()  # noqa: SLF001
        work = self._work
        numbered: Any = RDD(made, context, CPickleSerializer())
        return numbered.map(lambda number: _packed(work.there(number)))

    def _placed(self, planned: DataFrame) -> DataFrame:
        """Return what was planned with each stretch and each small store in a task of its own."""
        first, most = self._first, max(min(self.count, _MOST_TASKS), 1)
        schema = pa.schema([*_ROWS, ("slot", pa.int32())])

        def slots(batches: Batches) -> Batches:
            for batch in batches:
                keys = zip(*(batch.column(name).to_pylist() for name in ("store", "kind", "number")), strict=True)
                slot = pa.array([(first[store, kind] + number) % most for store, kind, number in keys], pa.int32())
                yield pa.RecordBatch.from_arrays([*batch.columns, slot], schema=schema)

        return _by(planned.mapInArrow(slots, spark_schema(schema)), most, "slot").select(*_ROWS.names)

    def _read(self) -> Callable[[Batches], Batches]:
        work = self._work

        def read(batches: Batches) -> Batches:
            for row in _rows(batches):
                yield work.read(row).batch()

        return _counted(self.spark, read)


def _bytes(text: str) -> int:
    """Return a size as settings of Spark have it: ``64m``, ``1g``.

    Raises:
        WrongUsage: it is none.
    """
    found = re.fullmatch(r"([1-9]\d*)([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise WrongUsage("--spark-conf", f"{TASK_BYTES} cannot be {text}; give bytes, such as 64m or 1g.")
    return int(found[1]) << 10 * " kmgt".index(found[2] or " ")


def _by(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Divide rows by a number, each number a task where this Spark can do that (4.1), else by its hash."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(count, column)
    return frame.repartition(count, column)


def _counted(spark: SparkSession, work: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """Return work that reports what it has read."""
    counted = counters(spark)

    def run(batches: Batches) -> Batches:
        taken()  # what a task left that was cancelled
        for batch in work(batches):
            yield batch
            if counted is not None:
                counted.add(taken())

    return run


def names_of(host: str) -> list[str]:
    """Return what Spark may call a host: as it is written, and its addresses."""
    return list(dict.fromkeys([host, *_addresses(host)]))


def is_here(host: str) -> bool:
    """Whether this machine is called so: by its name, or because the address is one of its own."""
    own = platform.node()
    if host in {own, own.partition(".")[0], socket.getfqdn()}:
        return True
    return any(map(_is_own, _addresses(host)))


def _addresses(host: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None)})
    except OSError:
        return []


def _is_own(address: str) -> bool:
    try:
        with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET):
            return True
    except OSError:
        return False


# --- which stores ---------------------------------------------------------------------------------------


def listed(spark: SparkSession, paths: Sequence[str], **more: Any) -> tuple[list[Member], list[str]]:
    """Return the stores that paths name, as :func:`rmqctl.fleet.open_all` has them, looked at by executors.

    Args:
        more: as of :func:`rmqctl.inventory.members_of`.

    Returns:
        The stores, by paths that mean the same on every machine, and what is to be said of them.

    Raises:
        NotAStore, WrongUsage: as of :func:`rmqctl.inventory.members_of`.
    """
    members = [replace(one, path=",".join(map(_absolute, one.path.split(",")))) for one in members_of(paths, **more)]
    members = [replace(one, commit_log=tuple(map(_absolute, one.commit_log))) for one in members]
    free = [number for number, one in enumerate(members) if not one.facts and one.family in {None, "auto", "kafka"}]
    brokers: dict[tuple[Any, ...], list[int]] = {}
    if len(free) > 1:
        known = sharing(spark)(_broker, [members[number] for number in free])
        for number, broker in zip(free, known, strict=True):
            if broker is not None:
                brokers.setdefault(broker, []).append(number)
    is_plain = not any(map(is_several, paths))
    any_broker = is_plain or () in brokers  # a directory that names none may belong to each
    alike = sorted(number for own in brokers.values() if any_broker or len(own) > 1 for number in own)
    if len(alike) < 2:
        return members, []
    ((found, remarks),) = sharing(spark)(_Together(is_plain), [[members[number] for number in alike]])
    places = dict(enumerate(members))
    joined = iter(found)
    one = next(joined)
    for number in alike:
        path = members[number].path
        if one is not None and (one.path == path or one.path.startswith(f"{path},")):
            places[number], one = one, next(joined, None)
        else:
            del places[number]
    return list(places.values()), remarks


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)


def _broker(member: Member) -> tuple[Any, ...] | None:
    """Return the ids of cluster and node of log directories of Kafka, () where they name none; None of other stores."""
    try:
        store = member.open()
        if store.family != "kafka" or store.selection:
            return None
        ids = {(one.cluster_id, one.node_id) for one in cast(Any, store).replicas.identities if one is not None}
    except (RmqctlError, OSError):
        return None
    return tuple(sorted(ids, key=repr))


@dataclass(frozen=True, slots=True)
class _Together:
    is_plain: bool

    def __call__(self, members: list[Member]) -> tuple[list[Member], list[str]]:
        opened, remarks = opened_together(members, is_plain=self.is_plain)
        return [member for member, _ in opened], remarks


def errands_of(
    a: Sequence[Member], b: Sequence[Member], question: Callable[[Store], Question[Any]]
) -> tuple[list[Pair], list[Errand]]:
    """Return two sets of stores in pairs, and the errands of those that A has, in the same order."""
    pairs = paired(a, b)
    return pairs, [Errand(pair.member, question, pair.b or pair.error) for pair in pairs if pair.a is not None]


# --- their tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sight:
    """What an executor saw of a store.

    Attributes:
        tables: with the filters of the rows; None where it cannot be read, and ``error`` says why.
        format: what Spark calls them; "" where it cannot be read.
        size: bytes of its log.
        said: what is to be said of it; ``missing`` where its log is not there.
    """

    member: Member
    tables: Tables | None = None
    format: str = ""
    family: str = ""
    size: int = 0
    is_running: bool = False
    said: tuple[str, ...] = ()
    missing: str = ""
    error: str = ""


class Sights:
    """Several stores that executors have opened, for their tables.

    Attributes:
        remarks: what is to be said of all.
    """

    def __init__(self, stores: Sequence[Sight], remarks: Sequence[str]) -> None:
        self.stores, self.remarks = stores, remarks

    @property
    def size(self) -> int:
        """Bytes of log of all stores."""
        return sum(one.size for one in self.stores)

    @property
    def is_running(self) -> bool:
        """Whether a broker holds one of the stores."""
        return any(one.is_running for one in self.stores)

    def tables(self) -> FleetTables:
        """Return their tables as one.

        Raises:
            WrongUsage: the stores are of more than one family; NotAStore: none can be read.
        """
        found = [Listed(one.member, one.tables, one.error) for one in self.stores]
        return joined(found, {one.family for one in self.stores if one.family})


def seen(
    spark: SparkSession,
    members: Sequence[Member],
    remarks: Sequence[str] = (),
    *,
    filters: Filters = EVERYTHING,
    split_size: int | None = None,
    body: str = "decompressed",
) -> Sights:
    """Have stores opened by executors, a task each.

    Args:
        filters, split_size, body: as of :meth:`rmqctl.fleet.Fleet.as_tables`.

    Raises:
        WrongUsage: a filter means nothing for one, or a store lies on a disk of a host, where only a task that looks at
            the whole store is brought.
    """
    bound = next((member for member in members if member.own_disk), None)
    if bound is not None:
        raise WrongUsage(
            "PATH",
            f"{bound.path} lies on a disk of {bound.facts['host']} (own_disk), and rows are read wherever an executor "
            "is free; ask on that host, or where all see the files.",
        )
    found: list[Sight] = []
    for sight in sharing(spark)(_See(filters, split_size, body), members):
        if isinstance(sight, WrongUsage):
            raise sight
        found.append(sight)
    return Sights(found, remarks)


@dataclass(frozen=True, slots=True)
class _See:
    filters: Filters
    split_size: int | None
    body: str

    def __call__(self, member: Member) -> Sight | WrongUsage:
        try:
            store = member.open()
            tables = one_of_several(store, self.filters, self.split_size, self.body)
        except WrongUsage as refusal:
            return refusal
        except (RmqctlError, OSError) as error:
            return Sight(member, error=str(error))
        said = [f"a broker holds the lock of {member.path}: what is read may be changing"] if store.is_running else []
        return Sight(
            member, tables, store.table_format, store.family, store.size, store.is_running, tuple(said), store.missing
        )
