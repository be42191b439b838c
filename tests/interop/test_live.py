"""Beside a released broker under load, whose segments go: no command finds what is not there, and a flipped byte is found.

Needs Java and Maven.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import Result

from rmqctl.opening import open_store
from tests.interop.judge import class_path, has_java, java
from tests.interop.kafka_node import Node, format_directory, rounds

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
_TOPICS = ("LiveA", "LiveB", "LiveC")
_SMALL_FILES = (
    "mappedFileSizeCommitLog=4194304",
    "mappedFileSizeConsumeQueue=40000",
    "maxHashSlotNum=2000",
    "maxIndexNum=8000",
    "autoCreateTopicEnable=true",
    "flushConsumerOffsetInterval=300",
)
_EXPIRING = (
    "fileReservedTime=0", "cleanResourceInterval=2000", f"deleteWhen={';'.join(f'{hour:02d}' for hour in range(24))}",
)  # fmt: skip
"""Every file of the log but the last expires at once, at any hour; up to ten go every two seconds."""
_ASKED = tuple(
    tuple(line.split())
    for line in (
        "doctor @", "info @", "topics @", "topics @ --as-found", "lag @", "verify @", "verify @ --level structure", "recover @",
        "recover @ --compare", "repair @", "rebuild @", "dump @ -o jsonl", "dump @ --damaged", "dump @ --pending timer",
        "dump @ --topic LiveA -n 50", "offsets @", "preflight @ --to 5.5.0", "stats @ --engine local", "sql @ select*from(findings)",
        "sql @ select*from(topics)", "report @ OUT.json", "salvage @ OUT", "convert @ OUT", "bundle @ OUT", "rebuild @ --into OUT",
        "export @ OUT --engine local",
    )
)  # fmt: skip
"""Commands with the store (@), and a name for what is made (OUT)."""
_OTHERWISE = {("rebuild", "@"), ("export", "@"), ("bundle", "@")}
"""An index made of what is left of the log is divided among files otherwise; an export reads the files as they lie, and says
that some have gone; a plan of repair for queue files that are about to expire does not fit the store a moment later, so a
bundle may say that its plan is another one."""
_BODY = 88  # where the body begins in a record with IPv4 addresses


@contextmanager
def _under_load(release: str, root: Path, compiled: Path, settings: tuple[str, ...] = ()) -> Iterator[None]:
    """A broker on a new store, with producers and a consumer at work."""
    command = java(
        class_path(release, compiled, "WholeBroker"), root.parent / "home", "WholeBroker",
        root, ",".join(_TOPICS), 0, *_SMALL_FILES, *settings, storm="true",
    )  # fmt: skip
    with (
        (root.parent / "errors").open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=root.parent
        ) as broker,
    ):
        assert broker.stdin is not None
        assert broker.stdout is not None
        try:
            assert broker.stdout.readline() == "storming\n"
            _wait_for(root / "config/consumerOffset.json", _TOPICS[0])
            yield
            broker.stdin.close()
            assert int(broker.stdout.readline()) > 0
        finally:
            broker.kill()


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_a_rocketmq_broker(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    root = tmp_path / "store"
    with _under_load(release, root, compiled):
        for _ in range(rounds(2, 100)):
            _all_well(_ASKED, root, rmqctl)
        first = next(row for row in open_store(str(root)).dump() if row["topic"] in _TOPICS)
        log, body = root / first["file"], first["position"] + _BODY
        _flip(log, body)
        found = [(row["id"], row["file"], row["offset"]) for row in open_store(str(root)).verify(notes=False)]
        assert found == [("log.body-crc", first["file"], body)]
        _flip(log, body)
    assert rmqctl("verify", root).exit_code == 0


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_a_rocketmq_broker_whose_files_expire(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    root = tmp_path / "store"
    with _under_load(release, root, compiled, _EXPIRING):
        for _ in range(rounds(1, 10)):
            _all_well([words for words in _ASKED if words[:2] not in _OTHERWISE], root, rmqctl)
    assert rmqctl("verify", root).exit_code == 0


_SHORT = "segment.ms=400"
_DIRTY = ("min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1000", "delete.retention.ms=500")
_TOPICS_OF_KAFKA = {
    "kept": ("segment.ms=1500",),
    "short": (_SHORT, "retention.bytes=60000"),
    "compact": (_SHORT, "cleanup.policy=compact", *_DIRTY),
    "both": (_SHORT, "cleanup.policy=compact,delete", "retention.bytes=60000", *_DIRTY),
    "txn": (_SHORT, "retention.bytes=60000"),
    "txncompact": (_SHORT, "cleanup.policy=compact", *_DIRTY),
}
"""Segments that live for less than a second, and go by retention or compaction; those of ``txn...`` hold transactions."""
_BROKER = {
    "log.retention.check.interval.ms": 500, "log.cleaner.backoff.ms": 500, "log.initial.task.delay.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.01,
}  # fmt: skip
_ASKED_OF_KAFKA = tuple(
    tuple(line.split())
    for line in (
        "verify @", "verify @ --level structure", "repair @", "topics @", "rebuild @", "recover @", "doctor @", "lag @", "dump @",
        "transactions @", "producers @", "info @", "stats @ --engine local", "sql @ select*from(findings)",
        "sql @ select*from(topics)", "salvage @ OUT", "bundle @ OUT",
    )
)  # fmt: skip


@pytest.mark.parametrize("release", ["4.4.0", "4.3.1", "3.9.2"])
def test_a_kafka_broker(release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path) -> None:
    root = tmp_path / "logs"
    format_directory(release, root, compiled)
    with Node(release, root, compiled, _BROKER) as node:
        for name, settings in _TOPICS_OF_KAFKA.items():
            node.ask("create", name, 2, 1, *settings)
            node.ask("storm", name, tmp_path / name, *([f"id-{name}"] if name.startswith("txn") else []))
        node.ask("commit", "group", "kept", 0)
        for _ in range(rounds(3, 30)):
            _all_well(_ASKED_OF_KAFKA, root, rmqctl)
        closed = min((root / "kept-0").glob("*.log"))
        _flip(closed, 80)
        found = {(row["id"], row["file"]) for row in open_store(str(root)).verify(notes=False)}
        _flip(closed, 80)
        assert ("batch.crc", str(closed.relative_to(root))) in found
        node.ask("calm")
    assert rmqctl("verify", root).exit_code == 0


def _wait_for(file: Path, word: str) -> None:
    """Until a word is in a file: a broker on a busy machine writes its first offsets seconds later."""
    until = time.monotonic() + 60
    while not (file.exists() and word in file.read_text()):
        assert time.monotonic() < until, f"{file} never had {word}"
        time.sleep(0.1)


def _all_well(asked: Iterable[tuple[str, ...]], root: Path, rmqctl: Rmqctl) -> None:
    """Give each command; none finds anything, or damages what it makes."""
    for words in asked:
        with TemporaryDirectory(dir=root.parent) as out:
            done = rmqctl(*(word.replace("@", str(root)).replace("OUT", f"{out}/made") for word in words))
            assert done.exit_code == 0, (words, done.stdout[-3000:], done.stderr[-3000:])


def _flip(file: Path, at: int) -> None:
    with file.open("r+b") as log:
        log.seek(at)
        byte = log.read(1)[0]
        log.seek(at)
        log.write(bytes([byte ^ 1]))
