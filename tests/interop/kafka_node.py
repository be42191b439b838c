"""A released Kafka broker, KRaft and alone, on a log directory, and a Java client beside it: needs Java and Maven."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rmqctl.release import Release

PROJECT = Path(__file__).parent / "kafka"
RELEASES = ("4.4.0", "4.3.1", "3.9.2")
SHARES = Release(4, 2, 0)
"""The first release whose share groups are meant for use."""
TOOLS = Release(3, 9, 0)
"""From here on the tools are asked for, too."""
MAKES = Release(4, 3, 0)
"""The first release whose record classes ``Truth`` reads with."""
WITHOUT_TOOLS = ("4.4.0",)
"""Releases whose tools are in no Maven repository."""
MOVED = ("org.apache.kafka.common.utils.Exit", "org.apache.kafka.common.utils.internals.Exit", Release(4, 4, 0))
"""A class with another name from a release on."""
_PATIENCE = 120
_STARTED = "Kafka Server started"
_EARLY = "Unexpected error handling request RequestHeader(apiKey=CONTROLLER_REGISTRATION"
_QUICK: dict[str, object] = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 300}
"""A broker that was killed is registered still: the controller lets it in again only when that session is over."""


@cache
def jars_of(release: str, work: Path) -> str:
    """The jars of a release, fetched by Maven; its tools, too, where they have jars of their own."""
    project = work / f"kafka-{release}"
    project.mkdir(parents=True)
    shutil.copy(PROJECT / "pom.xml", project)
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"]
    alone = [] if Release.parse(release) >= TOOLS and release not in WITHOUT_TOOLS else ["-Dkafka.alone=true"]
    subprocess.run(["mvn", "-q", "-B", f"-Dkafka.version={release}", *alone, *goal], cwd=project, check=True)
    return (project / "cp.txt").read_text("utf-8").strip()


@cache
def class_path(release: str, work: Path) -> str:
    """The jars of a release, and the client compiled against them."""
    jars, classes = jars_of(release, work), work / f"kafka-{release}-classes"
    classes.mkdir()
    known = Release.parse(release)
    names = ["Client", "Brokers"] + ["Recorder"] * (known >= TOOLS) + ["ShareClient", "Fates"] * (known >= SHARES)
    names += ["MakeLogs", "Truth"] * (known >= MAKES)
    old, new, since = MOVED
    for name in names:
        text = (PROJECT / f"{name}.java").read_text("utf-8")
        text = text.replace(f"import {old};", f"import {new};") if known >= since else text
        (classes / f"{name}.java").write_text(text, "utf-8")
    sources = [str(classes / f"{name}.java") for name in names]
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, *sources], check=True)
    return f"{classes}{os.pathsep}{jars}"


def rounds(few: int, many: int) -> int:
    """How often something random is tried: few times, many with RMQCTL_INTEROP=all."""
    return many if os.environ.get("RMQCTL_INTEROP") == "all" else few


def official_dump(release: str, work: Path, *words: str) -> list[str]:
    """What the release's own dump tool prints."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path(release, work)]
    tool = f"{'org.apache.kafka' if release >= '4' else 'kafka'}.tools.DumpLogSegments"
    return subprocess.run([*command, tool, *words], check=True, capture_output=True, text=True).stdout.splitlines()


def format_directory(release: str, logs: Path, work: Path, *features: str, words: Sequence[str] = ()) -> None:
    """Make an empty log directory with these features, as an operator does; ``words``: more of the command."""
    settings = work / "format.properties"
    settings.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={logs}\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.quorum.voters=1@127.0.0.1:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n",
        "utf-8",
    )
    words = ["format", "-t", "AbCdEfGhQxSTU-V_wXyZ01", "-c", str(settings), *words]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path(release, work), "kafka.tools.StorageTool"]
    chosen = [word for feature in features for word in ("--feature", feature)]
    subprocess.run([*command, *words, *chosen], check=True, capture_output=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def write_properties(
    path: Path, logs: Path, nodes: dict[int, tuple[int, int]], node: int = 1, **settings: object
) -> Path:
    """The settings of a broker and controller.

    Args:
        nodes: the ports of all, broker and controller; ``node`` is the number of this one.
    """
    port, controller = nodes[node]
    given = {
        "process.roles": "broker,controller", "node.id": node, "log.dirs": logs,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{ports[1]}" for n, ports in nodes.items()),
        "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1, "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1, "auto.create.topics.enable": "false",
        "log.retention.ms": -1, "group.initial.rebalance.delay.ms": 0,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", **settings,
    }  # fmt: skip
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()), "utf-8")
    return path


class Partner:
    """A Java process that answers commands with JSON lines up to one with a dot."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process, self._errors = process, errors

    def ask(self, *words: object) -> list[Any]:
        """One command, and its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        found = list[Any]()
        for line in self._process.stdout:
            if line == ".\n":
                return found
            found.append(json.loads(line))
        raise AssertionError(self._errors.read_text("utf-8", "replace")[-3000:])

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def partner(classes: str, home: Path, *words: str, memory: str = "256m", for_speed: bool = False) -> Partner:
    """Start a program that answers commands."""
    with (home / "client.log").open("wb") as errors:
        command = java(classes, *words, memory=memory, for_speed=for_speed)
        process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    return Partner(process, home / "client.log")


def java(classes: str, *words: str, memory: str, for_speed: bool = False) -> list[str]:
    """A command that runs a program; it compiles quickly rather than well where it does not run long."""
    compiler = [] if for_speed else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    options = [f"-Xmx{memory}", *compiler, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"]
    return ["java", *options, "-cp", classes, *words]


class Brokers:
    """One virtual machine in which brokers are started and stopped one after the other, with a client beside them."""

    def __init__(self, release: str, work: Path, *, for_speed: bool = False, **settings: object) -> None:
        self.home = work / f"brokers-{time.monotonic_ns()}"
        self.home.mkdir()
        self._settings, self._number = {**_QUICK, **settings}, 0
        self.classes = class_path(release, work)
        self._partner = partner(self.classes, self.home, "Brokers", memory="768m", for_speed=for_speed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._partner.close()

    @property
    def log(self) -> str:
        """What the last broker said."""
        return (self.home / f"{self._number}.properties.log").read_text("utf-8", "replace")

    def load(self, logs: Path, into: Path) -> str:
        """Start a broker until it has loaded all logs, and copy them at that moment; the outcome.

        Returns:
            ``loaded``, or ``exit 1``.
        """
        return str(self._partner.ask("open", self._properties(logs), into)[0])

    def start(self, logs: Path) -> str:
        """Start a broker; ``started``, or ``exit 1``."""
        return str(self._partner.ask("start", self._properties(logs))[0])

    def stop(self) -> None:
        """Stop it in order."""
        self._partner.ask("stop")

    def ask(self, *words: object) -> list[Any]:
        """One command of the client, and its answer."""
        return self._partner.ask(*words)

    def _properties(self, logs: Path) -> Path:
        self._number += 1
        ports = free_port(), free_port()  # of its own: a start that was ended may hold those that it had
        text = (logs / "meta.properties").read_text("utf-8") if (logs / "meta.properties").exists() else ""
        lines = (line.partition("=") for line in text.splitlines())
        node = next((int(value) for name, _, value in lines if name in {"node.id", "broker.id"}), 1)
        return write_properties(self.home / f"{self._number}.properties", logs, {node: ports}, node, **self._settings)


class Node:
    """A broker and controller on a log directory; stopped in order at the end of the block.

    Attributes:
        log: what it said.
    """

    def __init__(
        self, release: str, logs: Path, work: Path, settings: dict[str, Any] | None = None, *, for_speed: bool = False
    ) -> None:
        self.classes = class_path(release, work)
        self.home = work / f"node-{time.monotonic_ns()}"
        self.home.mkdir()
        self.port, controller = free_port(), free_port()
        write_properties(self.home / "server.properties", logs, {1: (self.port, controller)}, **(settings or {}))
        self._out = (self.home / "broker.log").open("wb")
        words = java(
            self.classes, "kafka.Kafka", str(self.home / "server.properties"), memory="512m", for_speed=for_speed
        )
        self._process = subprocess.Popen(words, cwd=self.home, stdout=self._out, stderr=subprocess.STDOUT)
        self._client: Partner | None = None

    @property
    def log(self) -> str:
        return (self.home / "broker.log").read_text("utf-8", "replace")

    @property
    def errors(self) -> list[str]:
        """Errors that it logged, but for one: 4.4.0 says so of the registration that it tries again a moment later."""
        lines = (line for line in self.log.splitlines() if "ERROR" in line)
        return [line for line in lines if _EARLY not in line]

    def __enter__(self) -> Self:
        end = time.monotonic() + _PATIENCE
        while _STARTED not in self.log:
            assert self._process.poll() is None, self.log[-3000:]
            assert time.monotonic() < end, self.log[-3000:]
            time.sleep(0.2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._client.close()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def kill(self) -> None:
        """End it as the kernel does."""
        self._process.kill()
        self._process.wait()

    def ask(self, *words: object) -> list[Any]:
        """One command of the client, and its answer."""
        if self._client is None:
            self._client = partner(self.classes, self.home, "Client", f"127.0.0.1:{self.port}")
        return self._client.ask(*words)
