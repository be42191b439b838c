"""The released store classes as a partner: a Java process that opens stores and answers questions about them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

PROJECT = Path(__file__).parent / "java"
SOURCES = ("Json", "LiveStore", "Judge")
RELEASES = ("4.9.8", "5.5.0")
OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
)


def has_java() -> bool:
    """Whether Maven and a Java compiler are on the PATH."""
    return all(shutil.which(program) for program in ("mvn", "java", "javac"))


@cache
def class_path(release: str, work: Path) -> str:
    """The released jars, fetched by Maven, and the judge compiled against them."""
    project, classes = work / release, work / f"{release}-classes"
    project.mkdir(parents=True)
    classes.mkdir()
    shutil.copy(PROJECT / "pom.xml", project)
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", f"-Drocketmq.version={release}", *goal], cwd=project, check=True)
    jars = (project / "cp.txt").read_text("utf-8").strip()
    sources = [str(PROJECT / f"src/main/java/rmqctl/{name}.java") for name in SOURCES]
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, *sources], check=True)
    return f"{classes}{os.pathsep}{jars}"


class Judge:
    """One Java process. ``workers``: how many stores it works on side by side.

    Lines go to :meth:`ask` one by one, or many at a time to :meth:`ask_all`.
    """

    def __init__(self, classes: str, home: Path, *, workers: int = 1, patience: int = 20_000) -> None:
        home.mkdir(parents=True, exist_ok=True)
        java = ["java", "-Xmx768m", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}", f"-Drmqctl.patience={patience}"]
        command = [*java, *OPENS, "-cp", classes, "rmqctl.Judge", str(workers)]
        self._log = open(home / "judge.log", "wb")  # noqa: SIM115 -- open as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=home, encoding="utf-8"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def ask(self, store: str, command: str, *words: object) -> Any:
        """One question, and its answer.

        Raises:
            AssertionError: the classes threw an exception.
        """
        self._send(store, command, words)
        answer = self._receive()["answer"]
        assert not (isinstance(answer, dict) and "exception" in answer), (store, command, words, answer)
        return answer

    def ask_all(self, questions: Sequence[tuple[str, str, Sequence[object]]]) -> Iterator[tuple[str, Any]]:
        """Many questions at once; store and answer of each, in the order in which they come."""
        for store, command, words in questions:
            self._send(store, command, words)
        for _ in questions:
            line = self._receive()
            yield line["store"], line["answer"]

    def _send(self, store: str, command: str, words: Iterable[object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(
            "\t".join(quote(str(word), safe="/=<>,.") for word in (store, command, *words)) + "\n"
        )
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the Java process ended; its last words are in judge.log"
        document: dict[str, Any] = json.loads(line)
        return document


def settings_of(conf: Mapping[str, str]) -> list[str]:
    """Settings of a broker's configuration as words; those that the classes do not know they ignore."""
    return [f"{key}={value}" for key, value in conf.items()]
