"""The released store classes as a partner: a Java process that opens stores and answers questions about them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any, Self
from urllib.parse import quote

PROJECT = Path(__file__).parent / "java"
RELEASES = ("4.9.8", "5.5.0")
BROKERS = ("WholeBroker", "LoadSpeed", "StartedBroker", "ServedStore", "RecordBroker", "FateBroker", "BrokerCluster")
"""Programs that need the jars of a whole broker."""
ADMINS = ("BrokerCluster",)
"""Those that need the administrator's, too."""
OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
)


def has_java() -> bool:
    """Whether Maven and a Java compiler are on the PATH."""
    return all(shutil.which(program) for program in ("mvn", "java", "javac"))


@cache
def class_path(release: str, work: Path, program: str = "Judge") -> str:
    """The released jars, fetched by Maven, and a program of `PROJECT` compiled against them."""
    project, classes = work / f"{program}-{release}", work / f"{program}-{release}-classes"
    project.mkdir(parents=True)
    classes.mkdir()
    shutil.copy(PROJECT / "pom.xml", project)
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"]
    profile = ["-Pbroker,admin" if program in ADMINS else "-Pbroker"] if program in BROKERS else []
    is_old = release.startswith("3.")
    if is_old:
        profile = ["-Pbroker", "-Drocketmq.group=com.alibaba.rocketmq"]
    subprocess.run(["mvn", "-q", "-B", f"-Drocketmq.version={release}", *profile, *goal], cwd=project, check=True)
    jars = (project / "cp.txt").read_text("utf-8").strip()
    names = ("Json", program) if program in ("OldBroker", "StartedBroker") else ("Json", "LiveStore", program)
    sources = [PROJECT / f"src/main/java/rmqctl/{name}.java" for name in names]
    beside = ["-sourcepath", str(PROJECT / "src/main/java")]  # a program may use another
    if is_old:
        sources, beside = [_of_old_package(source, project) for source in sources], []
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, *beside, *map(str, sources)], check=True)
    return f"{classes}{os.pathsep}{jars}"


def _of_old_package(source: Path, into: Path) -> Path:
    """A copy of a program for the releases whose classes were com.alibaba's."""
    copy = into / source.name
    copy.write_text(source.read_text("utf-8").replace("org.apache.rocketmq", "com.alibaba.rocketmq"), "utf-8")
    return copy


def java(
    classes: str,
    home: Path,
    program: str,
    *words: object,
    memory: str = "768m",
    options: Sequence[str] = ("-XX:TieredStopAtLevel=1",),
    **properties: object,
) -> list[str]:
    """The command that runs a program; what it writes outside its store goes to ``home``.

    Args:
        options: of the virtual machine; by default it compiles quickly rather than well, as it does not run long.
        properties: system properties ``rmqctl.NAME``.
    """
    home.mkdir(parents=True, exist_ok=True)
    given = [f"-Drmqctl.{name}={value}" for name, value in properties.items()]
    start = ["java", f"-Xmx{memory}", *options, f"-Duser.home={home}", *given, *OPENS]
    return [*start, "-cp", classes, f"rmqctl.{program}", *map(str, words)]


class Judge:
    """One Java process. ``workers``: how many stores it works on side by side.

    Any number of threads may ask, each about stores of its own.

    Args:
        program: the one of `PROJECT` that answers; ``ServedStore`` takes one store after the other.
    """

    def __init__(
        self, classes: str, home: Path, *, workers: int = 1, patience: int = 20_000, program: str = "Judge"
    ) -> None:
        command = java(classes, home, program, workers, patience=patience)
        self._log = open(home / "judge.log", "wb")  # noqa: SIM115 -- open as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=home, encoding="utf-8"
        )
        self._lock = threading.Lock()
        self._answers: dict[str, Queue[Any]] = defaultdict(Queue)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()
        self._process.stdout.close()
        self._log.close()

    def ask(self, store: str, command: str, *words: object) -> Any:
        """One question, and its answer.

        Raises:
            AssertionError: the classes threw an exception, or the process ended.
        """
        self._send(store, command, words)
        answer = self._answers[store].get(timeout=120)
        assert not (isinstance(answer, dict) and "exception" in answer), (store, command, words, answer)
        return answer

    def ask_all(self, questions: Sequence[tuple[str, str, Sequence[object]]]) -> Iterator[tuple[str, Any]]:
        """One question about each of many stores, worked on side by side; the store and the answer of each."""
        for store, command, words in questions:
            self._send(store, command, words)
        for store, _, _ in questions:
            yield store, self._answers[store].get(timeout=600)

    def _send(self, store: str, command: str, words: Iterable[object]) -> None:
        assert self._process.stdin is not None
        line = "\t".join(quote(str(word), safe="/=<>,.") for word in (store, command, *words))
        with self._lock:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):  # old releases log to the console
                continue
            document = json.loads(line)
            self._answers[document["store"]].put(document["answer"])
        for waiting in list(self._answers.values()):
            waiting.put({"exception": "the Java process ended; its last words are in judge.log"})


def settings_of(conf: Mapping[str, str]) -> list[str]:
    """Settings of a broker's configuration as words; those that the classes do not know they ignore."""
    return [f"{key}={value}" for key, value in conf.items()]
