"""Stores with parts in RocksDB, damaged and repaired: the classes of 5.5.0 answer as before the damage. Needs Maven."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.interop.conftest import Judges
from tests.interop.judge import Judge, has_java, settings_of
from tests.interop.test_brokers import run
from tests.rocketmq.repair.test_databases import CFG, CQ, LITE, MESSAGES, MIX, MSG, POP, QUEUES, SEPARATE
from tests.rocketmq.repair.test_databases import DAMAGES as ROWS
from tests.rocketmq.verify.test_databases import edit

pytest.importorskip("rocksdict")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
RELEASE = "5.5.0"
FILES = [
    (name, path, gone)
    for name, path in ((CQ, SEPARATE), (MIX, QUEUES), (CFG, QUEUES), (LITE, SEPARATE), (MSG, MESSAGES))
    for gone in ("*.sst", "MANIFEST-*")
]
TWINS = ((CQ, "consumequeue/CqOrders"), (LITE, "consumequeue/LtOrders"))
OWN = ("namesrvAddr", "listenPort", "haListenPort", "brokerIP1", "brokerName", "brokerId", "fileReservedTime")
"""Settings that the program chooses itself."""


def damaged(directory: Path) -> Iterator[tuple[str, str, Path]]:
    """A name for it, the golden store, and the damaged copy."""
    for number, (name, path, damage) in enumerate(ROWS):
        root = golden.unpack(name, directory / f"rows-{number}")
        edit(root / path, damage)
        yield f"rows-{number}-{damage.__name__}", name, root
    for number, (name, path, gone) in enumerate(FILES):
        root = golden.unpack(name, directory / f"files-{number}")
        for file in (root / path).glob(gone):
            file.write_bytes(b"\xa5" * file.stat().st_size)
        yield f"files-{number}", name, root
    for number, (name, path) in enumerate(TWINS):
        root = golden.unpack(name, directory / f"twin-{number}")
        for file in (root / path).rglob("*"):
            if file.is_file():
                file.write_bytes(bytes(file.stat().st_size))
        yield f"twin-{number}", name, root


def wrong_answers(judge: Judge, store: str, name: str) -> list[Any]:
    """Recorded answers of the broker that are given otherwise."""
    wrong = []
    for answer in golden.oracle(name)["answers"]:
        kind = answer.get("q")
        if kind == "range":
            found = judge.ask(store, "get", answer["topic"], answer["queueId"], 0, 1)
            if (found["min"], found["max"]) != (answer["min"], answer["max"]):
                wrong.append((answer, found))
        elif kind == "getMessage" and answer["phy"]:
            found = judge.ask(store, "get", answer["topic"], answer["queueId"], answer["offset"], len(answer["phy"]))
            if found["found"] != answer["phy"]:
                wrong.append((answer, found))
        elif kind == "byKey" and answer.get("type") is None and answer["begin"] > 0 and answer["end"] < 1 << 60:
            words = answer["topic"], answer["key"], answer["max"], answer["begin"], answer["end"]
            found = judge.ask(store, "key", *words)
            if sorted(found) != sorted(answer["storeQueryMessage"]):
                wrong.append((answer, found))
    return wrong


def test_repaired_stores_answer_as_before(judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    judge, problems = judges(RELEASE), []
    for store, name, root in damaged(tmp_path):
        conf = golden.write_broker_conf(name, root.with_name("broker.conf"))
        done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
        assert done.exit_code == 0, (store, done.stdout + done.stderr)
        assert judge.ask(store, "open", root, *settings_of(golden.broker_conf(name))), store
        problems += [(store, *wrong) for wrong in wrong_answers(judge, store, name)]
        assert judge.ask(store, "stop", root), store
    assert problems == []


@pytest.mark.parametrize(
    ("name", "paths", "topics"),
    [
        (CFG, ("config/metadata", QUEUES), ("CfgOrders", "CfgLog")),
        (POP, ("kvStore",), ("PkOrders", "PkLog")),
    ],
)
def test_whole_brokers_start(
    name: str,
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    compiled: Path,
    tmp_path: Path,
    rmqctl: Callable[..., Any],
) -> None:
    """With configuration and pop state that were read block by block: consumers get every message, producers go on."""
    root = golden.unpack(name, tmp_path)
    for file in (file for path in paths for file in (root / path).glob("MANIFEST-*")):
        file.write_bytes(b"\xa5" * file.stat().st_size)
    conf = golden.write_broker_conf(name, tmp_path / "broker.conf")
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert done.exit_code == 0, done.stdout + done.stderr
    given = {key: value for key, value in golden.broker_conf(name).items() if key not in OWN}
    answer = run(compiled, RELEASE, root, topics, 5, settings_of(given))
    ranges = [a for a in golden.oracle(name)["answers"] if a.get("q") == "range" and a["topic"] in topics]
    assert len(answer["received"]) == sum(a["max"] - a["min"] for a in ranges) > 0
    assert len(answer["sent"]) == 5
