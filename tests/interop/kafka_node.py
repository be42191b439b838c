"""A released Kafka broker, KRaft and alone, on a log directory, and a Java client beside it: needs Java and Maven."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROJECT = Path(__file__).parent / "kafka"
RELEASES = ("4.3.1", "3.9.2")
_PATIENCE = 120
_STARTED = "Kafka Server started"


@cache
def class_path(release: str, work: Path) -> str:
    """The jars of a release, fetched by Maven, and the client compiled against them."""
    project, classes = work / f"kafka-{release}", work / f"kafka-{release}-classes"
    project.mkdir(parents=True)
    classes.mkdir()
    shutil.copy(PROJECT / "pom.xml", project)
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", f"-Dkafka.version={release}", *goal], cwd=project, check=True)
    jars = (project / "cp.txt").read_text("utf-8").strip()
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, str(PROJECT / "Client.java")], check=True)
    return f"{classes}{os.pathsep}{jars}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Node:
    """A broker and controller on a log directory; stopped in order at the end of the block.

    Attributes:
        log: what it said.
    """

    def __init__(
        self, release: str, logs: Path, work: Path, settings: dict[str, Any] | None = None, *, for_speed: bool = False
    ) -> None:
        self.classes, self._for_speed = class_path(release, work), for_speed
        self.home = work / f"node-{time.monotonic_ns()}"
        self.home.mkdir()
        self.port, controller = free_port(), free_port()
        given = {
            "process.roles": "broker,controller", "node.id": 1, "log.dirs": logs,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1, "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1, "auto.create.topics.enable": "false",
            "log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0, **(settings or {}),
        }  # fmt: skip
        (self.home / "server.properties").write_text("".join(f"{n}={v}\n" for n, v in given.items()), "utf-8")
        self._out = (self.home / "broker.log").open("wb")
        self._process = self._start("kafka.Kafka", str(self.home / "server.properties"), memory="512m", out=self._out)
        self._client: subprocess.Popen[str] | None = None

    def _start(self, *words: str, memory: str, **streams: Any) -> subprocess.Popen[Any]:
        compiler = [] if self._for_speed else ["-XX:TieredStopAtLevel=1"]  # compiles quickly rather than well
        options = [f"-Xmx{memory}", *compiler, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"]
        command = ["java", *options, "-cp", self.classes, *words]
        out = streams.pop("out", None)
        if out is not None:
            streams = {"stdout": out, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=self.home, **streams)

    @property
    def log(self) -> str:
        return (self.home / "broker.log").read_text("utf-8", "replace")

    def __enter__(self) -> Self:
        end = time.monotonic() + _PATIENCE
        while _STARTED not in self.log:
            assert self._process.poll() is None, self.log[-3000:]
            assert time.monotonic() < end, self.log[-3000:]
            time.sleep(0.2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            assert self._client.stdin is not None
            assert self._client.stdout is not None
            self._client.stdin.close()
            self._client.wait(30)
            self._client.stdout.close()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def ask(self, *words: object) -> list[Any]:
        """One command of the client, and its answer."""
        if self._client is None:
            quiet = (self.home / "client.log").open("wb")
            self._client = self._start(
                "Client", f"127.0.0.1:{self.port}", memory="256m", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=quiet, text=True,
            )  # fmt: skip
            quiet.close()
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(" ".join(map(str, words)) + "\n")
        self._client.stdin.flush()
        found = list[Any]()
        for line in self._client.stdout:
            if line == ".\n":
                return found
            found.append(json.loads(line))
        raise AssertionError((self.home / "client.log").read_text("utf-8", "replace")[-3000:])
