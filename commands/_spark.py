"""Where Spark runs: the options of the commands that use it, and how far their jobs are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from commands._app import message
from commands._options import _packed
from commands._progress import progress
from commands._types import PropertyFilter, refuse

if TYPE_CHECKING:
    from commands._progress import Advance
    from rmqctl.pipeline import Cluster
    from rmqctl.pipeline.cluster import SparkSession
    from rmqctl.pipeline.jobs import Status

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
