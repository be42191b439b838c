"""Jobs on Spark: tables as DataFrames, any work on a list of items, and a job under way.

Work is planned on the driver, one task a part; rows come as Arrow batches. A job reports how far it is, is stopped by
Ctrl-C, and its failure is a sentence without a Java trace.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pyarrow as pa

from rmqctl.errors import RmqctlError
from rmqctl.fleet_tables import FleetTable
from rmqctl.parallel import Share, Tally, note_all, noted, taken
from rmqctl.pipeline.cluster import SparkFailure, cores_of, is_running, log_file, start
from rmqctl.pipeline.data_source import arrow_schema, conform, settle, spark_schema
from rmqctl.pipeline.mounted import BadQuery
from rmqctl.pipeline.place import Cluster
from rmqctl.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Batches = Iterator[pa.RecordBatch]
AT_ONCE = 32
"""Items of shared work in one job for each core: their results are taken before the next job begins, so that the driver
never holds the results of a whole log."""
_RESULTS = pa.schema([("number", pa.int64()), ("result", pa.binary())])


def frame(spark: SparkSession, source: Table) -> DataFrame:
    """Return the rows of a table."""
    before = noted()
    parts = planned(spark, source)
    return tasks(spark, parts, source.read, source.schema(), noted().plus(before, -1))


def planned(spark: SparkSession, source: Table) -> Sequence[Any]:
    """Return the parts of a table; those of several stores are made by executors, which open a store each."""
    return source.planned(sharing(spark, Tally())) if isinstance(source, FleetTable) else source.parts()


def tasks(
    spark: SparkSession,
    parts: Sequence[Any],
    read: Callable[[Any], Batches],
    schema: pa.Schema,
    planning: Tally | None = None,
) -> DataFrame:
    """Return what ``read`` gives for each part, one task a part; part and function travel to the executors.

    Args:
        planning: of a table, whose parts are counted one by one: what was left out when they were made.
    """
    counted, frame_number = counters(spark), next(_frames) if planning is not None else None
    if counted is not None and planning is not None and frame_number is not None:
        counted.parts.add({(frame_number, -1): planning})
    if not parts:
        return spark.createDataFrame([], spark_schema(schema))

    def run(batches: Batches) -> Batches:
        settle()
        wanted = arrow_schema(given)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                taken()  # what a task left that was cancelled
                try:
                    for found in read(parts[number]):
                        yield conform(found, wanted)
                finally:  # a query may have enough rows
                    if counted is not None:
                        counted.add(taken(), None if frame_number is None else (frame_number, number))

    given = spark_schema(schema)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, given)


def sharing(spark: SparkSession, planning: Tally | None = None) -> Share:
    """Has work on a list of items done by executors, one task an item; results come in order, some at a time.

    Args:
        planning: given where it makes parts of tables, see :func:`tasks`.
    """

    def share(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        def do(part: tuple[int, Any]) -> Batches:
            result = pickle.dumps(work(part[1]), pickle.HIGHEST_PROTOCOL)
            yield pa.RecordBatch.from_pylist([{"number": part[0], "result": result}], schema=_RESULTS)

        some = cores_of(spark) * AT_ONCE
        for begin in range(0, len(items), some):
            rows = tasks(spark, list(enumerate(items[begin : begin + some])), do, _RESULTS, planning).collect()
            for row in sorted(rows, key=lambda row: int(row.number)):
                yield pickle.loads(bytes(row.result))  # noqa: S301 - made by our own tasks

    return share


def sharing_with_notes(spark: SparkSession) -> Share:
    """As :func:`sharing`; what the work notes of its reading is noted here."""

    def share(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for result, found in sharing(spark)(partial(_with_notes, work), items):
            note_all(found)
            yield result

    return share


def _with_notes(work: Callable[[Any], Any], item: Any) -> tuple[Any, Tally]:
    before = noted()
    return work(item), noted().plus(before, -1)


# --- how much of a log the tasks have gone through ------------------------------------------------------


_PartKey = tuple[int, int]
"""A DataFrame, and the number of one of its parts; -1: what none of them reads."""
_frames = count()


class _Parts:
    """What was read of each part; of several readings of one the largest (`pyspark.accumulators.AccumulatorParam`)."""

    def zero(self, value: dict[_PartKey, Tally]) -> dict[_PartKey, Tally]:
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[_PartKey, Tally], value2: dict[_PartKey, Tally]
    ) -> dict[_PartKey, Tally]:
        for part, tally in value2.items():
            known = value1.get(part)
            if known is None or tally.messages >= known.messages:
                value1[part] = tally
        return value1


def counts(spark: SparkSession) -> Tally | None:
    """Return what tasks have read since the last call, each part of a table once; None with Spark Connect."""
    counted = counters(spark)
    if counted is None:
        return None
    found = Tally()
    for part in list(counted.parts.value):
        found = found.plus(counted.parts.value.pop(part))
    return found


@dataclass(frozen=True, slots=True)
class Counters:
    """Accumulators of a session; they only grow, when a task ends."""

    messages: Any
    bytes: Any
    parts: Any

    def add(self, tally: Tally, part: _PartKey | None = None) -> None:
        """In a task: what it has read.

        Args:
            part: of a table; it counts once, however often Spark has it read.
        """
        self.messages.add(tally.messages)
        self.bytes.add(tally.bytes)
        if part is not None and tally != Tally():
            self.parts.add({part: tally})

    def since(self, before: Tally) -> Tally:
        """On the driver: what has come in since."""
        return Tally(int(self.messages.value) - before.messages, int(self.bytes.value) - before.bytes)


_counters: dict[str, Counters] = {}


def counters(spark: SparkSession) -> Counters | None:
    """Return the accumulators of a session; None with Spark Connect, which has none."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - each release raises something else
        return None
    if context.applicationId not in _counters:
        _counters[context.applicationId] = Counters(
            context.accumulator(0), context.accumulator(0), context.accumulator({}, cast(Any, _Parts()))
        )
    return _counters[context.applicationId]


# --- a job under way -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """How far a job is.

    Attributes:
        done, tasks: tasks that have ended, of those known so far.
        messages, bytes: of the log, read by them; 0 where nobody counts, as with Spark Connect.
    """

    done: int
    tasks: int
    messages: int = 0
    bytes: int = 0


Report = Callable[[Status], None]
"""Called now and then while a job runs, and at its end."""

_POLL_SECONDS = 0.2
_PLAN = re.compile(r";?\s*(?:\n\s*'|\n\s*(?:Project|Aggregate|Sort|Filter|Join|Global|With)|\n==|\n\n== ).*", re.DOTALL)
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_OF_VALUES = re.compile(r"SQLSTATE: 22\w{3}\b")
"""A value that an expression does not take, such as a divisor that is zero (class 22 of the SQL standard)."""
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*(?:\n(?!\tat |\t\.\.\. |Caused by: ).*)*)", re.MULTILINE)
"""A cause in a trace of Java, to the first line of its own trace."""


@contextmanager
def running(cluster: Cluster, waiting: Callable[[str], object] = bool) -> Iterator[SparkSession]:
    """Yield a session for the block; one that was there before stays, one made for it is stopped.

    Args:
        waiting: called now and then with what is waited for.

    Raises:
        MissingExtra, SparkFailure: see :func:`rmqctl.pipeline.cluster.start`.
    """
    mine = not is_running()
    spark = start(cluster, waiting)
    try:
        yield spark
    finally:
        if mine:
            spark.stop()


@contextmanager
def job(spark: SparkSession, what: str, report: Report | None = None) -> Iterator[None]:
    """Run a block as one job: it is watched, Ctrl-C cancels it, and its failure becomes a sentence.

    Args:
        what: what is tried, for messages: ``exporting store``.
        report: called with how far the job is, from a thread of its own.

    Raises:
        BadQuery: Spark does not take the query, or it fails on its values.
        SparkFailure: a task failed for good, or the cluster did.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    group = f"rmqctl-{uuid4()}"
    try:
        with _watched(spark, group, what, report):
            yield
    except KeyboardInterrupt:
        _cancel(spark, group)
        raise
    except (PySparkException, Py4JError) as error:
        raise failure(what, error) from error


def failure(what: str, error: Exception) -> RmqctlError:
    """Return what became of an exception of PySpark."""
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, (AnalysisException, ParseException)) or _OF_VALUES.search(str(error)):
        return BadQuery(sentence(error))
    return SparkFailure(f"{what} failed", sentence(error), log_file())


def sentence(error: Exception) -> str:
    """Return the message of an exception of PySpark without plan and traces: of a Python task what it raised, of a
    trace of Java the last cause.
    """
    text = str(error)
    raised = [
        line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]+(?:Error|Exception|Failure)\b.*: ", line)
    ]
    if "Traceback (most recent call last)" in text and raised:
        return raised[-1]
    causes = _CAUSE.findall(text)
    text = causes[-1] if causes else text
    lines = _STATE.sub("", _PLAN.sub("", text.lstrip())).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _watched(spark: SparkSession, group: str, what: str, report: Report | None) -> Iterator[None]:
    context = _context(spark)
    if context is None:
        yield
        return
    context.setJobGroup(group, what, interruptOnCancel=True)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, group, report, ended), daemon=True)
    if report is not None:
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        if report is not None:
            watcher.join()


def _watch(spark: SparkSession, group: str, report: Report, ended: threading.Event) -> None:
    tracker, counted = _context(spark).statusTracker(), counters(spark)
    before = Tally() if counted is None else counted.since(Tally())
    is_over = False
    while not is_over:
        is_over = ended.wait(_POLL_SECONDS)
        try:
            known = list(_stages(tracker, group))
        except Exception:  # noqa: BLE001 - the gateway goes away when the session ends
            return
        done, tasks = sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
        read = Tally() if counted is None else counted.since(before)
        report(Status(done, tasks, read.messages, read.bytes))


def _stages(tracker: Any, group: str) -> Iterator[Any]:
    """Stages of a group's jobs, but those that a finished job passed over: their results were there."""
    jobs = (tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group))
    for found in (job for job in jobs if job is not None):
        stages = (tracker.getStageInfo(number) for number in found.stageIds)
        for stage in (stage for stage in stages if stage is not None):
            if stage.numCompletedTasks or found.status != "SUCCEEDED":
                yield stage


def _cancel(spark: SparkSession, group: str) -> None:
    context = _context(spark)
    if context is None:
        spark.interruptAll()
    else:
        context.cancelJobGroup(group)


def _context(spark: SparkSession) -> Any:
    """Return the SparkContext; None with Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except Exception:  # noqa: BLE001 - each release raises something else
        return None
