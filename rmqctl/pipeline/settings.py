"""Where Spark runs, and the settings it gets for that."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqctl.pipeline.own_files import own_directory
from rmqctl.pipeline.spark_daemon import MODULE

LOCAL = "local[*]"
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
_SHORT = 256 << 20
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


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Spark runs.

    Attributes:
        master: as ``spark-submit --master`` takes it.
        conf: settings of Spark; they win over those made here.
        remote: address of a Spark Connect server; no JVM is started then.
        log_bytes: bytes of log that are to be read; None when nobody knows.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    remote: str | None = None
    log_bytes: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether everything runs in one JVM on this machine."""
        return self.remote is None and self.master.startswith("local") and not self.master.startswith("local-cluster")


def settings(cluster: Cluster) -> dict[str, str]:
    """The settings of Spark for a cluster; those the user gave win."""
    found = dict(DEFAULTS)
    partitions = max((cluster.log_bytes or 0) // _BYTES_OF_PARTITION, _SHUFFLE_PARTITIONS)
    found["spark.sql.shuffle.partitions"] = str(partitions)
    found["spark.sql.warehouse.dir"] = os.fspath(own_directory("warehouse"))
    if cluster.is_local:
        found |= _LOCAL_DEFAULTS
        if hasattr(socket, "AF_UNIX") and len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_DIRECTORY:
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
    """What the child processes of Spark read from the environment."""
    from rmqctl.pipeline.java import find_java

    os.environ["JAVA_HOME"] = os.fspath(find_java().home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _QUICK_JVM)  # of the JVM that only prints the command line
    if "spark.pyspark.python" not in cluster.conf:
        os.environ.setdefault(_PYTHON, sys.executable)
    if cluster.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
