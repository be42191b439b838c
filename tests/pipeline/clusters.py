"""A standalone cluster of Spark on this machine: a master and workers from the PySpark package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from rmqctl.pipeline.settings import find_java

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live some seconds: they spend most of them on compiling otherwise."""
_CLASS = os.path.join(os.path.dirname(pyspark.__file__), "bin", "spark-class")


class Cluster:
    """Processes of a master and its workers."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "JAVA_HOME": os.fspath(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }
        self.master = self._start("master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._await_port()
        self.workers = [self.add_worker() for _ in range(workers)]

    def add_worker(self, host: str = "127.0.0.1", within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """One more worker with one core.

        Args:
            within: a command that starts it.
        """
        place = self.directory / f"work-{time.monotonic_ns()}"
        return self._start(
            "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir",
            str(place), self.url, within=within,
        )  # fmt: skip

    def _start(self, name: str, *arguments: str, within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        command = [*within, _CLASS, f"org.apache.spark.deploy.{name}", *arguments]
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)

    def kill_executor(self, worker: subprocess.Popen[bytes]) -> bool:
        """Kill the executor of a worker with its Python processes, if it is at work; the worker starts another one."""
        found = [process for process in descendants(worker.pid) if _is_executor(process)]
        at_work = [process for executor in found for process in descendants(executor)]
        for process in [*at_work, *found] if at_work else []:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return bool(at_work)

    def _await_port(self) -> None:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise TimeoutError("the master does not listen")

    def kill_worker(self) -> None:
        """Kill one worker with all that it started, as a power cut would."""
        worker = self.workers.pop()
        for process in [worker.pid, *descendants(worker.pid)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        worker.wait()

    def stop(self) -> None:
        """End everything that was started."""
        for process in [*self.workers, self.master]:
            process.terminate()
        for process in [*self.workers, self.master]:
            process.wait(30)


def _is_executor(process: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def descendants(parent: int) -> list[int]:
    """Processes that a process has started, directly or not."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, new = [], [parent]
    while new:
        new = [child for process in new for child in children.get(process, [])]
        found += new
    return found


@contextmanager
def cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster while the block runs."""
    made = Cluster(directory, workers)
    try:
        yield made
    finally:
        made.stop()
