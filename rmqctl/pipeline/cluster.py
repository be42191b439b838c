"""Starting Spark: quietly, with a Java that is there and the code on every executor."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import MissingExtra, RmqctlError
from rmqctl.pipeline.place import Cluster
from rmqctl.pipeline.settings import DEFAULTS, prepare_environment, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

EXECUTOR_WAIT = "spark.rmqctl.executorWaitSeconds"
"""Setting: how long to wait for a cluster's answer, and for its first executor."""
_ANSWER_SECONDS, _EXECUTOR_SECONDS = 120.0, 900.0
"""Where the setting says nothing. Executors may have to wait for a machine, or for an image that is pulled first."""
_CONNECT_SECONDS = 10.0
_STANDALONE_PORT, _REMOTE_PORT = 7077, 15002
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_TAIL_LINES = 15


class SparkFailure(RmqctlError):
    """Spark did not start, or gave up on a job."""

    meaning = "Spark did not start or gave up"

    def __init__(self, what: str, reason: str, log: Path | None = None) -> None:
        """
        Args:
            what: what was tried.
            reason: what Spark said of it.
            log: where the JVM wrote; its last lines are shown.
        """
        lines = [f"{what}: {reason}"]
        if log is not None and (tail := tail_of(log)):
            _kept.add(log)
            lines += ["the last lines of " + os.fspath(log) + ":", *(f"  {line}" for line in tail)]
        super().__init__("\n".join(lines))


Waiting = Callable[[str], object]
_logs: list[Path] = []
_kept: set[Path] = set()  # logs that a message speaks of


def start(cluster: Cluster, waiting: Waiting = bool) -> SparkSession:
    """Return a Spark session: the one that is there, or a new one.

    What the JVM prints goes to a log file (:func:`log_file`).

    Args:
        waiting: called now and then with what is waited for.

    Raises:
        MissingExtra: PySpark or Java is not installed.
        SparkFailure: Spark does not start.
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("this command", "spark", "pyspark")
    from pyspark.sql import SparkSession

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # writes each failed query with its trace
    spark = SparkSession.getActiveSession() if cluster.remote is None else None
    if spark is None:
        spark = _connect(cluster) if cluster.remote else _launch(cluster, waiting)
    return spark


def is_running() -> bool:
    """Whether this process has a session already."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark is not None and pyspark.SparkSession.getActiveSession() is not None


def cores_of(spark: SparkSession) -> int:
    """Tasks that run at once; a guess with Spark Connect, which does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - each release raises something else
        return 8


def log_file() -> Path | None:
    """Where the JVM of this process writes; None before it was started."""
    return _logs[-1] if _logs else None


def tail_of(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """Return the last lines of a log file, none when it cannot be read."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


def _connect(cluster: Cluster) -> SparkSession:
    from pyspark.sql import SparkSession

    _answers(cluster.remote or "", "sc://", _REMOTE_PORT)
    try:
        builder = SparkSession.builder.remote(cluster.remote or "")
        for key, value in cluster.conf.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    except ImportError as error:
        raise MissingExtra("Spark Connect", "connect", error.name or "") from error
    except Exception as error:
        raise SparkFailure(f"cannot use the Spark server {cluster.remote}", _first_line(error)) from error
    from rmqctl.pipeline.shipping import code_zip

    spark.addArtifacts(os.fspath(code_zip()), pyfile=True)
    return spark


def _launch(cluster: Cluster, waiting: Waiting) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if _SUBMITTED in os.environ:
        return _submitted(cluster)
    _answers(cluster.master, "spark://", _STANDALONE_PORT)
    prepare_environment(cluster)
    log, late, patience = log_file() or _new_log(), threading.Event(), _patience(cluster, _ANSWER_SECONDS)
    conf = SparkConf().setMaster(cluster.master).setAll(list(settings(cluster).items()))
    try:
        gateway: Any = SparkContext._gateway  # noqa: SLF001 - the JVM of an earlier session, which PySpark uses again
        if gateway is None:
            threading.Thread(target=_load, daemon=True).start()
            with log.open("ab") as out:
                gateway = launch_gateway(conf, {"stdout": out, "stderr": out})  # type: ignore[no-untyped-call]
        with nullcontext() if cluster.is_local else _at_most(patience, gateway.proc, late):
            context = SparkContext(gateway=gateway, conf=conf)
    except Exception as error:
        if late.is_set():
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - that JVM is gone
            reason = f"it accepts connections, but no application within {patience:g} s"
            raise SparkFailure(f"no answer from {cluster.master}", reason, log) from error
        raise SparkFailure(f"Spark does not start on {cluster.master}", _first_line(error), log) from error
    if not cluster.is_local:
        _await_executor(context, cluster, log, waiting)
    return SparkSession(context)


def _load() -> None:
    """Import what a session needs; done while the JVM starts, which takes longer."""
    for name in ("pandas", "rmqctl.pipeline.data_source"):
        with suppress(Exception):  # reported by whoever needs it
            import_module(name)


def _patience(cluster: Cluster, usual: float) -> float:
    """Seconds to wait for a cluster, first for its answer, then for an executor.

    Raises:
        SparkFailure: the setting is no number.
    """
    given = cluster.conf.get(EXECUTOR_WAIT, str(usual))
    try:
        return float(given)
    except ValueError:
        raise SparkFailure(f"the setting {EXECUTOR_WAIT} is wrong", f"give seconds, not {given!r}") from None


@contextmanager
def _at_most(seconds: float, process: Any, late: threading.Event) -> Iterator[None]:
    """End the JVM if the block takes longer: Spark waits for minutes for a master that only accepts connections."""

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _submitted(cluster: Cluster) -> SparkSession:
    """Return the session of a program that `spark-submit` has started: master, code and log are what was given
    there.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setAll(list((DEFAULTS | dict(cluster.conf)).items()))
    return SparkSession(SparkContext.getOrCreate(conf))


def _answers(address: str, scheme: str, port: int) -> None:
    """Make sure that somebody listens at an address of a scheme; Spark itself would try for minutes.

    Raises:
        SparkFailure: nobody answers.
    """
    if not address.startswith(scheme):
        return
    reasons = []
    for one in address.removeprefix(scheme).partition(";")[0].rstrip("/").split(","):
        host, colon, number = one.rpartition(":")
        try:
            place = (host, int(number)) if colon else (one, port)
            with socket.create_connection(place, timeout=_CONNECT_SECONDS):
                return
        except (OSError, ValueError) as error:
            reasons.append(f"{one}: {error}")
    raise SparkFailure(f"no answer from {address}", f"{'; '.join(reasons)}; check the address, and that it runs")


def _await_executor(context: Any, cluster: Cluster, log: Path, waiting: Waiting) -> None:
    """Wait until there is one executor beside the driver.

    Raises:
        SparkFailure: none came in time.
    """
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return  # executors come with the first job
    limit = _patience(cluster, _EXECUTOR_SECONDS)
    begin = time.monotonic()
    infos = context._jsc.sc().statusTracker().getExecutorInfos  # noqa: SLF001 - the Python tracker has no such call
    while len(infos()) <= 1:
        waited = time.monotonic() - begin
        waiting(f"no executor of {cluster.master} yet; waiting {waited:.0f} of {limit:g} s ({EXECUTOR_WAIT})")
        if waited > limit:
            context.stop()
            reason = (
                f"no executor came within {limit:g} s; is there a worker with free cores and memory? "
                f"To wait longer, add --spark-conf {EXECUTOR_WAIT}=SECONDS"
            )
            raise SparkFailure(f"Spark has nobody to work on {cluster.master}", reason, log)
        time.sleep(0.2)


def _new_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="rmqctl-spark-", suffix=".log")
    os.close(descriptor)
    _logs.append(Path(name))
    return _logs[-1]


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@atexit.register
def _remove_logs() -> None:
    for log in _logs:
        if log not in _kept:
            log.unlink(missing_ok=True)
