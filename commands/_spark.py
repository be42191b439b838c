"""Where Spark runs: the options of the commands that use it, and how far their jobs are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from commands._answer import finish, write
from commands._app import Output, message
from commands._options import StoreOptions, _packed
from commands._progress import progress
from commands._types import PropertyFilter, refuse
from rmqctl.text import number_of

if TYPE_CHECKING:
    from commands._progress import Advance
    from rmqctl.fleet_answers import Elsewhere, Opened
    from rmqctl.inventory import Member
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import SparkSession
    from rmqctl.pipeline.fleet import Errand, Sights
    from rmqctl.pipeline.jobs import Status
    from rmqctl.questions import Question
    from rmqctl.store import Store

_LONG_SECONDS = 10
_OPTIONS = (
    click.option(
        "--master", default="local[*]", show_default=True, help="Where Spark runs, as `spark-submit --master` takes it."
    ),
    click.option(
        "--spark-conf", "conf", type=PropertyFilter(), multiple=True, help="A setting of Spark, K=V; repeatable."
    ),
    click.option("--remote", metavar="URL", help="A Spark Connect server, sc://host:15002, instead of --master."),
)


engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="Who does the work: this process or Spark. auto: this process up to 1 GiB of log, unless a cluster is named.",
)


def is_local(engine: str, size: int) -> bool:
    """Whether the work over ``size`` bytes of log is for this process."""
    from rmqctl.pipeline.settings import LOCAL_ENGINE

    context = click.get_current_context()
    named = {name: context.get_parameter_source(name) for name in ("master", "conf", "remote")}
    asks = [name for name, source in named.items() if source is ParameterSource.COMMANDLINE]
    if engine == "local" and asks:
        refuse("--engine", "local has no use for --master, --remote or --spark-conf.")
    return engine == "local" or (engine == "auto" and not asks and size <= LOCAL_ENGINE)


def is_spark(engine: str) -> bool:
    """Whether the work of a command that is local by default is for Spark: asked for, or a cluster is named."""
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in ("master", "conf", "remote", "engine")}
    asks = any(sources[name] is ParameterSource.COMMANDLINE for name in ("master", "conf", "remote"))
    if asks and engine == "local" and sources["engine"] is ParameterSource.COMMANDLINE:
        refuse("--engine", "local has no use for --master, --remote or --spark-conf.")
    return asks or engine == "spark"


def engine_choice(text: str) -> Callable[..., Any]:
    """Add ``--engine`` to a command that works here by default; see :func:`is_spark`.

    Args:
        text: what is shared among processes here or given to Spark.
    """
    return click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help=f"{text} Naming a cluster means spark.",
    )


def spread(cluster: Cluster, store: StoreOptions, question: Question[Any], out: Output) -> bool:
    """Ask the stores that paths name as one job, and show the answer; False where they are one store after all.

    Raises:
        SystemExit: the answer is "no".
    """
    from rmqctl.fleet import Fleet
    from rmqctl.results import is_results, recorded

    results = [one for path in store.paths if is_results(path) for one in recorded(path)]
    paths = [path for path in store.paths if not is_results(path)]
    more = {"commit_log": store.commit_log, "broker_conf": store.broker_conf}
    with started(_near(cluster, paths)) as spark:
        from rmqctl.pipeline.fleet import Errand, listed

        with working(spark, "looking for stores", None):
            family = None if store.format == "auto" else store.format
            members, remarks = listed(spark, paths, format=family, **more)
        if len(members) == 1 and not results and not store.is_pattern:
            return False
        errands = [Errand(member, question) for member in members]
        answer = Fleet([*_answered(spark, errands, question.verb, out), *results], remarks).ask(question)
        write(out, answer)
    finish(answer)
    return True


def seen_by(spark: SparkSession, store: StoreOptions, **choices: Any) -> Sights | None:
    """Have the stores opened by executors that paths name; None where they are one store after all.

    Args:
        choices: as of :func:`rmqctl.pipeline.fleet.seen`.
    """
    from rmqctl.pipeline.fleet import listed, seen

    with working(spark, "looking for stores", None):
        family = None if store.format == "auto" else store.format
        more = {"commit_log": store.commit_log, "broker_conf": store.broker_conf}
        members, remarks = listed(spark, store.paths, format=family, **more)
        if len(members) == 1 and not store.is_pattern:
            return None
        return seen(spark, members, remarks, **choices)


def spread_pairs(
    cluster: Cluster,
    sides: Sequence[tuple[str, tuple[str, ...]]],
    question: Callable[[Store], Question[Any]],
    out: Output,
) -> None:
    """Compare the stores of two sets as one job, and show the answer.

    Args:
        sides: a pattern or an inventory each, and directories of a commit log.

    Raises:
        SystemExit: the answer is "no".
    """
    from rmqctl.fleet import Fleet

    with started(_near(cluster, [path for path, _ in sides])) as spark:
        from rmqctl.pipeline.fleet import errands_of, listed

        with working(spark, "looking for stores", None):
            (a, remarks), (b, more) = (listed(spark, [path], commit_log=logs) for path, logs in sides)
        pairs, errands = errands_of(a, b, question)
        answered = {member.name: one for member, one in _answered(spark, errands, "diff", out)}
        stores = [(pair.member, answered.get(pair.member.name, pair.error)) for pair in pairs]
        fleet = Fleet(stores, [*remarks, *more])
        answer = fleet.compared(lambda _, one: cast("Elsewhere", one).answer(None))
        write(out, answer)
    finish(answer)


def _near(cluster: Cluster, paths: Sequence[str]) -> Cluster:
    """Return a cluster that waits for executors on hosts whose disks stores lie on, where an inventory says so."""
    from rmqctl.inventory import members_of

    if not any(member.own_disk for member in members_of([path for path in paths if path.startswith("@")])):
        return cluster
    from rmqctl.pipeline.fleet import LOCALITY

    return replace(cluster, conf={**LOCALITY, **cluster.conf})


def _answered(spark: SparkSession, errands: Sequence[Errand], verb: str, out: Output) -> list[tuple[Member, Opened]]:
    from rmqctl.pipeline.fleet import Spread, View

    if not errands:
        return []
    work = Spread(spark, errands, View(shown=out.kind == "table", every=out.every))
    with working(spark, f"opening {number_of(len(errands), 'store')}", None):
        work.plan()
    with working(spark, f"{verb} of {number_of(len(errands), 'store')}", work.size):
        return work.answers()


def has_spark() -> bool:
    """Whether PySpark is installed."""
    from importlib.util import find_spec

    return find_spec("pyspark") is not None


def _cluster(master: str, conf: tuple[tuple[str, str], ...], remote: str | None) -> Cluster:
    from rmqctl.pipeline import Cluster

    return Cluster(master, dict(conf), remote)


def spark_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--master``, ``--spark-conf`` and ``--remote``; gives the command ``cluster``."""
    return _packed("cluster", _OPTIONS, ("master", "conf", "remote"), _cluster)(function)


@contextmanager
def started(cluster: Cluster, size: int | None = None) -> Iterator[SparkSession]:
    """Give a session while the block runs, made for ``size`` bytes of log."""
    from rmqctl.pipeline.jobs import running

    with progress("starting Spark", None, unit="seconds") as advance:
        session = running(replace(cluster, log_bytes=size), _Patience(advance))
        spark = session.__enter__()
    try:
        yield spark
    finally:
        session.__exit__(None, None, None)


@contextmanager
def working(spark: SparkSession, what: str, size: int | None) -> Iterator[None]:
    """One job: how far it is, Ctrl-C that cancels it, errors without a Java trace.

    Args:
        size: bytes of log that it reads in all its passes: messages, bytes, rate and time left are shown; None: tasks.
    """
    from rmqctl.pipeline.jobs import job

    with (
        progress(what, size, unit="tasks" if size is None else "bytes") as advance,
        job(spark, what, _Bar(advance, size)),
    ):
        yield


@dataclass
class _Patience:
    """Says what is waited for: beside the bar, and in a line once where there is no bar and it takes long."""

    advance: Advance
    begin: float = field(default_factory=monotonic)
    is_said: bool = False

    def __call__(self, what: str) -> None:
        self.advance(0, what)
        if not self.is_said and not sys.stderr.isatty() and monotonic() - self.begin > _LONG_SECONDS:
            self.is_said = True
            message(what)


@dataclass
class _Bar:
    """Moves a bar by what is reported of a job."""

    advance: Advance
    size: int | None
    shown: int = 0

    def __call__(self, status: Status) -> None:
        if self.size is None:
            now = status.done
        else:
            now = min(status.bytes, self.size) or self.size * status.done // max(status.tasks, 1)
        tasks = f"{status.done:,} of {status.tasks:,} tasks"
        self.advance(max(now - self.shown, 0), f"{status.messages:,} messages, {tasks}" if status.messages else tasks)
        self.shown = max(now, self.shown)
