"""`trace` of messages that clients of released brokers gave random fates, against what the clients did and got.

Needs Java and Maven. The clients' record says what was done to each message, where a consumer of everything found it in
the end, and which offsets groups had stored last; what follows for its fate is worked out here from that alone.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from rmqctl.life import Life
from rmqctl.rocketmq.query.life import LifeReader
from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
from rmqctl.rocketmq.state.releases import release_range
from tests.interop.judge import class_path, has_java, java
from tests.interop.kafka_node import rounds

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
COUNT, DAMAGES, PATIENCE = 300, 25, 600
READ = {"passed", "waiting", "stored"}
SETTINGS = (
    "mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=500", "maxIndexNum=2000",
    "timerWheelEnable=true", "transactionCheckInterval=2000", "transactionTimeOut=1000", "transactionCheckMax=2",
    "messageDelayLevel=1s 2s 900s", "recallMessageEnable=true",
)  # fmt: skip

Place = tuple[str, int, int]


# --- RocketMQ -----------------------------------------------------------------------------------------


def made_by_rocketmq(seed: int, work: Path, compiled: Path, *settings: str) -> Any:
    """Let a broker of 5.5.0 and its clients make ``work/store``; what the clients recorded."""
    never = f"deleteWhen={(time.localtime().tm_hour + 12) % 24:02}"  # files are deleted where the driver says
    words = (work / "store", seed, COUNT, *SETTINGS, never, *settings)
    command = java(class_path("5.5.0", compiled, "FateBroker"), work / "home", "FateBroker", *words)
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=work, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


class Clients:
    """What the clients of a RocketMQ broker recorded."""

    def __init__(self, answer: Any) -> None:
        self.messages: list[dict[str, Any]] = answer["messages"]
        self.visible = defaultdict[str, list[Place]](list)
        for key, *place in answer["visible"]:
            self.visible[key].append(tuple(place))
        self.offsets = {(group, topic, queue): offset for group, topic, queue, offset in answer["groups"]}

    def fate(self, row: Mapping[str, Any]) -> str:
        """Say what must have become of a message."""
        what, copies = row["what"], self.visible[row["key"]]
        topics = [topic for topic, _, _ in copies]
        if any(topic.startswith("%DLQ%") for topic in topics):
            return "dead-lettered"
        if what == "undecided":
            return "given-up" if "TRANS_CHECK_MAX_TIME_TOPIC" in topics else "open"
        done = {
            "rollback": "rolled-back", "recalled": "recalled", "timed": "timed",
            "delayed": "delayed", "retrying": "delayed", "kept": "in-flight",
        }  # fmt: skip
        if (end := done.get(row.get("popped") or what)) is not None:
            return end
        said = {
            "passed" if committed > offset else "waiting"
            for topic, queue, offset in copies
            for (_, of, number), committed in self.offsets.items()
            if (of, number) == (topic, queue) and not topic.startswith("TRANS_")
        }
        if "passed" in said or row.get("popped") == "acknowledged":
            return "passed"
        return "waiting" if said else "stored"

    def passed(self, row: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Return the groups that passed a message, each with the topic where it did."""
        return {
            (group, topic)
            for topic, queue, offset in self.visible[row["key"]]
            for (group, of, number), committed in self.offsets.items()
            if (of, number) == (topic, queue) and committed > offset and not topic.startswith(("%DLQ%", "TRANS_"))
        }


def reader(root: Path) -> LifeReader:
    store = rmqctl.open(root).files  # type: ignore[union-attr]
    return LifeReader(RecoveredStore(store, release_range(store).highest), bool)


def close(lives: LifeReader) -> None:
    lives.close()
    lives.started.close()


def wrong_steps(life: Life, root: Path, key: str) -> Iterator[str]:
    """Yield steps that do not stand at their place."""
    for event in life.events:
        if event.file is None:
            continue
        if not (root / event.file).exists():
            yield f"{event.what}: there is no {event.file}"
        elif event.position is not None and "physical_offset" in event.more:
            data = (root / event.file).read_bytes()[event.position :]
            record = data[: int.from_bytes(data[:4], "big")]
            if record[28:36] != event.more["physical_offset"].to_bytes(8, "big") or key.encode() not in record:
                yield f"{event.what}: byte {event.position} of {event.file} is not its record"


def wrong_lives(clients: Clients, root: Path, *, rows: bool = False) -> Iterator[str]:
    """Yield what `trace` says otherwise than the clients.

    Args:
        rows: what pop consumers hold is in RocksDB: of what they acknowledged a broker deletes the row, and no file has it.
    """
    lives = reader(root)
    for row in clients.messages:
        wanted, name = clients.fate(row), f"{row['what']} {row['key']}"
        if row["what"] == "old":
            (life,) = lives.at_place(row["topic"], row["queue"], row["offset"])
            if life.fate not in ({"deleted"} if not clients.visible[row["key"]] else READ):
                yield f"{name}: {life.fate}, {life.sentence}"
            continue
        found, _ = lives.named(row["key"], None, 5)
        if len(found) != 1:
            yield f"{name}: {len(found)} lives"
            continue
        (life,) = found
        if life.fate != wanted:
            yield f"{name}: {life.fate}, the clients say {wanted}: {life.sentence}"
        passed = {(e.more["group"], e.more["topic"]) for e in life.events if e.what == "passed"}
        if passed != clients.passed(row):
            yield f"{name}: passed by {passed}, the clients say {clients.passed(row)}"
        again = sum(topic.startswith("%RETRY%") for topic, _, _ in clients.visible[row["key"]])
        if again and f"retried {again} time" not in life.sentence:
            yield f"{name}: it was retried {again} times: {life.sentence}"
        popped = {event.what for event in life.events} & {"taken", "popped", "acknowledged"}
        done = set[str]() if rows else {"popped", "acknowledged"}
        state = {"acknowledged": done, "kept": {"taken"}, "late": {"popped"}, None: set[str]()}
        if popped != state[row.get("popped")]:
            yield f"{name}: {popped}, the clients say {row.get('popped')}: {life.sentence}"
        yield from (f"{name}: {step}" for step in wrong_steps(life, root, row["key"]))
    close(lives)


def damaged_rocketmq(root: Path, chance: random.Random) -> str:
    """Damage a store in one way; what was done."""
    logs = sorted((root / "commitlog").iterdir())
    log, kind = chance.choice(logs), chance.randrange(6)
    data = bytearray(log.read_bytes())
    if kind == 0 and len(logs) > 2:
        chance.choice(logs[1:]).unlink()
    elif kind == 1:
        del data[chance.randrange(len(data)) :]
        log.write_bytes(data)
    elif kind == 2:
        shutil.rmtree(root / chance.choice(("consumequeue", "index", "config", "timerlog")))
    elif kind == 3:
        (root / "config/consumerOffset.json").write_bytes(b"{")
    else:
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(data))
            count = min(chance.choice((1, 50, 700, 6_000)), len(data) - at)
            data[at : at + count] = chance.choice((bytes(count), chance.randbytes(count)))
        log.write_bytes(data)
    return f"damage {kind} of {log.name}"


def wrong_fates(clients: Clients, root: Path, chance: random.Random) -> Iterator[str]:
    """Yield fates that are wrong on a damaged copy; that less is known is none."""
    lives = reader(root)
    for row in chance.sample(clients.messages, 60):
        if row["what"] == "old":
            continue
        wanted = clients.fate(row)
        for life in lives.named(row["key"], None, 5)[0]:
            is_less = life.fate in {"unknown", "deleted"} or "may hold more" in life.sentence
            without_offsets = wanted in READ and life.fate == "stored" and "is not known" in life.sentence
            if life.fate != wanted and not is_less and not without_offsets:
                yield f"{row['what']} {row['key']}: {life.fate}, the clients say {wanted}: {life.sentence}"
    close(lives)


@pytest.mark.parametrize("rows", ["false", "true"])
def test_messages_of_a_rocketmq_broker(rows: str, tmp_path: Path, compiled: Path) -> None:
    """``rows``: whether what pop consumers hold is in RocksDB."""
    if rows == "true":
        pytest.importorskip("rocksdict")
    for seed in range(rounds(1, 5)):
        work = tmp_path / str(seed)
        work.mkdir()
        switches = (f"{name}={rows}" for name in ("popConsumerKVServiceInit", "popConsumerKVServiceEnable"))
        clients = Clients(made_by_rocketmq(seed, work, compiled, *switches))
        assert len(clients.messages) == COUNT
        seen = Counter(clients.fate(row) for row in clients.messages)
        assert len(seen) > 8, seen
        assert list(wrong_lives(clients, work / "store", rows=rows == "true")) == []
        for number in range(DAMAGES):
            chance, copy = random.Random(number), work / "copy"
            shutil.copytree(work / "store", copy)
            done = damaged_rocketmq(copy, chance)
            assert list(wrong_fates(clients, copy, chance)) == [], (seed, number, done)
            shutil.rmtree(copy)
