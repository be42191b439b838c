"""Thousands of questions by key, time and offset to the store classes of two releases, and to rmqctl on the same files.

Needs Java 17 and Maven. Topics of inner batches are left out: the store classes alone do not know of their kind.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.explain import Trace
from rmqctl.release import Release
from rmqctl.rocketmq.index import index_files
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.query.key import KeyQuery, by_key_in
from rmqctl.rocketmq.query.offset import get_message
from rmqctl.rocketmq.query.queue_view import open_queue
from rmqctl.rocketmq.query.time import Boundary, offset_by_time
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.store.geometry import index_geometry
from rmqctl.rocketmq.store.locate import open_store_at
from tests.interop.judge import class_path, has_java, java

SIZES = ["131072", "1000", "500", "1000"]
"""Of log and queue files, index slots and entries, of all golden stores."""
TOPICS = ("LabOrders", "LabLog", "LabOne", "LabTx", "LabDelay", "LabRetry", "RMQ_SYS_TRANS_HALF_TOPIC")
FAR = 4_102_444_800_000
MANY = 2000

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]

Question = tuple[Any, ...]


@pytest.fixture(scope="module", params=["4.9.8", "5.5.0"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ask(release: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, list[Question]], list[Any]]:
    """Puts questions to the classes of the release, opened on a directory."""
    work = tmp_path_factory.mktemp("ask")
    classes = class_path(release, work, "AskStore")

    def run(root: Path, questions: list[Question]) -> list[Any]:
        lines = "".join("\t".join(map(str, question)) + "\n" for question in questions)
        command = java(classes, work, "AskStore", root, *SIZES, memory="512m")
        done = subprocess.run(command, input=lines.encode(), check=True, capture_output=True, timeout=300)
        answers = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
        assert len(answers) == len(questions)
        return answers

    return run


@pytest.fixture
def stores(release: str, tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a store: one for the classes, which write to it, and one to read."""
    copies = []
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
        root = golden.unpack(f"{release}-clean", tmp_path / name)
        shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
        copies.append(root)
    return copies[0], copies[1]


def records(release: str) -> list[dict[str, Any]]:
    return [t for t in golden.truth(f"{release}-clean") if t["kind"] == "msg" and t["topic"] in TOPICS]


def key_questions(release: str) -> Iterator[Question]:
    """Keys that are there, share a hash with one that is, belong to another topic, or are nowhere; any times."""
    chance, known = random.Random(1), records(release)
    times = [t["storeTimestamp"] for t in known]
    for _ in range(MANY):
        record = chance.choice(known)
        words = [*(record["keys"] or "").split(" "), record["uniqKey"] or "", f"T#{record['tags']}", "emoji😀", "多键"]
        key = chance.choice([w for w in words if w])
        key = chance.choice(
            [key, key, key, key.replace("Aa", "BB"), key.replace("BB", "Aa"), key + "x", "AaBB", "tbaekxa"]
        )
        topic = chance.choice([record["topic"]] * 30 + list(TOPICS))
        begin, end = 0, FAR
        near = chance.choice(times) if chance.random() < 0.2 else record["storeTimestamp"]
        if chance.random() < 0.4:
            begin, end = (near + chance.choice([0, 1, -1, 999, -1000, 5000, -60_000, 60_000]) for _ in "be")
        yield "key", topic, key, chance.choice([1, 2, 3, 10, 32, 64, 100]), begin, end


def queue_questions(release: str) -> Iterator[Question]:
    """Times before, at, between and behind messages; offsets inside and outside."""
    chance, known = random.Random(2), records(release)
    queues = sorted({(t["topic"], t["queueId"]) for t in known})
    times = [t["storeTimestamp"] for t in known]
    for _ in range(MANY):
        topic, queue = chance.choice(queues)
        time = chance.choice(times) + chance.choice([0, 0, 1, -1, 50, -700, 100_000, -100_000])
        yield "time", topic, queue, chance.choice([time] * 20 + [0, FAR])
        yield "get", topic, queue, chance.randint(-3, 130), chance.choice([1, 2, 16, 32, 64])


def test_by_key(release: str, ask: Any, stores: tuple[Path, Path]) -> None:
    questions = list(key_questions(release))
    store = open_store_at(str(stores[1]))
    files = index_files(store, index_geometry(store))
    found = 0
    with LogReader(store.log_files) as log:
        for question, answer in zip(questions, ask(stores[0], questions), strict=True):
            _, topic, key, most, begin, end = question
            mine = by_key_in(files, log, KeyQuery(topic, key, begin=begin, end=end, max=most), Trace(on=False))
            assert mine.walk.offsets == answer["index"], question
            assert [r.fields["physical_offset"] for r in mine.raw] == answer["store"], question
            found += bool(answer["index"])
    assert MANY // 10 < found < MANY


def test_by_time_and_offset(release: str, ask: Any, stores: tuple[Path, Path]) -> None:
    questions = list(queue_questions(release))
    answers = ask(stores[0], questions)
    with RecoveredStore(open_store_at(str(stores[1])), Release.parse(release)) as started:
        for question, answer in zip(questions, answers, strict=True):
            with open_queue(started, question[1], question[2]) as view:
                if question[0] == "time":
                    mine = {side: offset_by_time(view, question[3], Boundary(side)) for side in ("lower", "upper")}
                    assert {side: mine["lower" if side == "answer" else side] for side in answer} == answer, question
                else:
                    page = get_message(view, question[3], question[4])
                    shown = (page.status, page.next_offset, page.min_offset, page.max_offset)
                    assert shown == tuple(answer[k] for k in ("status", "next", "min", "max")), question
                    assert [unit.physical_offset for unit in page.units] == answer["offsets"], question
