"""Stores with parts in RocksDB, damaged and repaired: the classes of 5.5.0 answer as before the damage. Needs Maven."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from tests.interop.brokers_helpers import run
from tests.interop.conftest import Judges
from tests.interop.judge import Judge, class_path, has_java, settings_of
from tests.rocketmq.repair.databases_helpers import CFG, CQ, LITE, MESSAGES, MIX, MSG, POP, QUEUES, SEPARATE, content
from tests.rocketmq.repair.databases_helpers import DAMAGES as ROWS
from tests.rocketmq.verify.databases_helpers import edit, marks_beyond, twin_rows, without

pytest.importorskip("rocksdict")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
RELEASE = "5.5.0"
V2, V2_CRASH, INCR, CQ_CRASH, MSG_CRASH = (
    f"5.5.0-{name}" for name in ("rdbcfgv2-clean", "rdbcfgv2-crash", "rdbincr-crash", "rdbcq-crash", "rdbmsg-crash")
)
METADATA, CONFIG_V2, POPPED = "config/metadata", "config/rdb", "kvStore"
Damage = Callable[[Path], None]


def garbled(names: str) -> Damage:
    def damage(directory: Path) -> None:
        for file in directory.rglob(names):
            if file.is_file():
                file.write_bytes(b"\xa5" * file.stat().st_size)

    return damage


def gone(names: str) -> Damage:
    """The largest of the files."""
    return lambda directory: max(
        directory.rglob(names), key=lambda file: (file.is_file(), file.stat().st_size)
    ).unlink()


def cut(names: str) -> Damage:
    def damage(directory: Path) -> None:
        for file in directory.rglob(names):
            if file.is_file():
                os.truncate(file, file.stat().st_size // 2)

    return damage


def flipped(names: str) -> Damage:
    """One bit in the first block of each."""

    def damage(directory: Path) -> None:
        for file in directory.rglob(names):
            data = bytearray(file.read_bytes())
            data[min(len(data) // 2, 30)] ^= 16
            file.write_bytes(data)

    return damage


def zeros(directory: Path) -> None:
    for file in directory.rglob("*"):
        if file.is_file():
            file.write_bytes(bytes(file.stat().st_size))


def manifest_of(other: str) -> Damage:
    """The manifest of another database in place of its own."""

    def damage(directory: Path) -> None:
        root = next(parent for parent in directory.parents if (parent / "commitlog").is_dir())
        source, target = (next(place.glob("MANIFEST-*")) for place in (root / other, directory))
        target.write_bytes(source.read_bytes())

    return damage


def twice(directory: Path) -> None:
    """A database of queues in the other place as well."""
    for file in directory.iterdir():
        shutil.copyfile(file, directory.parent / QUEUES / file.name)


def rows(change: Callable[[Any], None]) -> Damage:
    def damage(directory: Path) -> None:
        edit(directory, change)
        (directory / "rocksdict-config.json").unlink(missing_ok=True)

    return damage


IN_LOG = ((CQ, SEPARATE), (MIX, QUEUES), (CFG, QUEUES), (LITE, SEPARATE), (MSG, MESSAGES))
DAMAGES: list[tuple[str, str, Damage]] = [
    *((name, path, rows(change)) for name, path, change in ROWS),
    *((name, path, garbled(files)) for name, path in IN_LOG for files in ("*.sst", "MANIFEST-*", "CURRENT")),
    *((name, path, gone("*.sst")) for name, path in IN_LOG),
    *((name, path, flipped("*.sst")) for name, path in ((CQ, SEPARATE), (CFG, QUEUES), (MSG, MESSAGES))),
    (CFG, QUEUES, manifest_of(METADATA)),
    (CQ, SEPARATE, manifest_of(MESSAGES)),
    (CQ, SEPARATE, twice),
    (CFG, METADATA, garbled("MANIFEST-*")),
    (CFG, METADATA, garbled("CURRENT")),
    (INCR, METADATA, garbled("MANIFEST-*")),
    (INCR, QUEUES, garbled("MANIFEST-*")),
    (V2, CONFIG_V2, garbled("CURRENT")),
    (V2_CRASH, CONFIG_V2, garbled("MANIFEST-*")),
    (POP, POPPED, garbled("MANIFEST-*")),
    (POP, POPPED, garbled("CURRENT")),
    (CQ_CRASH, SEPARATE, garbled("MANIFEST-*")),
    (CQ_CRASH, SEPARATE, garbled("*")),
    (MSG_CRASH, MESSAGES, garbled("MANIFEST-*")),
    (MSG_CRASH, MESSAGES, garbled("*")),
    (CQ, "consumequeue/CqOrders", zeros),
    (LITE, "consumequeue/LtOrders", zeros),
    (CQ, "consumequeue/CqLog", gone("0*")),
    (MIX, "consumequeue/MixOrders", garbled("0*")),
    (MIX, "consumequeue/MixLog", shutil.rmtree),
    (LITE, "consumequeue/LtLite", cut("0*")),
    (MSG, MESSAGES, rows(partial(without, family="timer", number=-1))),
    (MSG, MESSAGES, rows(partial(without, family="trans", number=-1))),
    (MSG, MESSAGES, rows(marks_beyond)),
    *((CQ, SEPARATE, rows(partial(twin_rows, part=part))) for part in ("front", "queue", "more")),
]
"""Store, what of it is damaged, and how: sixty in all."""
OWN = ("namesrvAddr", "listenPort", "haListenPort", "brokerIP1", "brokerName", "brokerId", "fileReservedTime")
"""Settings that the program chooses itself."""


def wrong_answers(judge: Judge, store: str, name: str) -> list[Any]:
    """Recorded answers of the broker that are given otherwise."""
    wrong = []
    for answer in golden.oracle(name)["answers"]:
        kind = answer.get("q")
        if name == POP and answer.get("topic", "").startswith("%RETRY%"):
            continue  # the broker that was asked had put popped messages back by then
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


def lost_rows(before: dict[str, dict[bytes, bytes]], after: dict[str, dict[bytes, bytes]]) -> list[tuple[str, bytes]]:
    """Rows of configuration and pop state that were there before and are not, or are others."""
    return [(family, key) for family in before for key, _ in before[family].items() - after.get(family, {}).items()]


def test_repaired_stores_answer_as_before(judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    assert len(DAMAGES) == 60
    judge, problems = judges(RELEASE), []
    for number, (name, path, damage) in enumerate(DAMAGES):
        store = f"{number} {name} {path}"
        root = golden.unpack(name, tmp_path / str(number))
        before = content(root, path) if path in (METADATA, CONFIG_V2, POPPED) else {}
        damage(root / path)
        conf = golden.write_broker_conf(name, root.with_name("broker.conf"))
        done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes", "-o", "json")
        assert done.exit_code == 0, (store, done.stdout + done.stderr)
        summary = json.loads(done.stdout)["summary"]
        problems += [(store, summary)] if summary["loses"] or summary["left"] or summary["remaining"] else []
        problems += [(store, row) for row in lost_rows(before, content(root, path) if before else {})]
        assert judge.ask(store, "open", root, *settings_of(golden.broker_conf(name))), store
        problems += [(store, *wrong) for wrong in wrong_answers(judge, store, name)]
        assert judge.ask(store, "stop", root), store
        shutil.rmtree(root.parent)
    assert problems == []


@pytest.mark.parametrize(("name", "path"), [(CFG, QUEUES), (LITE, SEPARATE), (MIX, QUEUES)])
def test_starts_without_current(
    name: str, path: str, judges: Judges, tmp_path: Path, rmqctl: Callable[..., Any]
) -> None:
    """The first fails and leaves an empty manifest, the second deletes the tables: both as `recover` foresees."""
    judge, root, settings = judges(RELEASE), golden.unpack(name, tmp_path), settings_of(golden.broker_conf(name))
    conf = golden.write_broker_conf(name, tmp_path / "broker.conf")
    tables = {file.name for file in (root / path).glob("*.sst")}
    (root / path / "CURRENT").unlink()
    assert "the next start" in json.loads(rmqctl("recover", root, "--broker-conf", conf, "-o", "json").stdout)["error"]
    assert not judge.ask("first", "open", root, *settings)
    assert (root / path / "CURRENT").read_bytes() == b"MANIFEST-000001\n"
    (root / "lock").unlink(missing_ok=True)
    foreseen = json.loads(rmqctl("recover", root, "--broker-conf", conf, "-o", "json").stdout)
    assert [row["database"] for row in foreseen["databases"] if row["emptied"]] == [path]
    assert judge.ask("second", "open", root, *settings)
    assert not tables & {file.name for file in (root / path).glob("*.sst")}
    for place, ends in foreseen["queues"].items():
        topic, _, queue_id = place.rpartition("/")
        found = judge.ask("second", "get", topic, int(queue_id), 0, 1)
        assert (found["min"], found["max"]) == (ends["min_offset"], ends["max_offset"]), place
    assert judge.ask("second", "stop", root)


@pytest.mark.parametrize("other", [INCR, ""])
def test_topics_that_a_database_lacks_are_taken_from_the_file(
    other: str, compiled: Path, tmp_path: Path, rmqctl: Callable[..., Any]
) -> None:
    """The database of another broker, which has counted on, or none."""
    root = golden.unpack(CFG, tmp_path)
    shutil.rmtree(root / METADATA)
    if other:
        golden.copy_tree(golden.pristine(other) / METADATA, root / METADATA)
    conf = golden.write_broker_conf(CFG, tmp_path / "broker.conf")
    done = rmqctl("repair", root, "--broker-conf", conf, "--apply", "--yes")
    assert done.exit_code == 0 if other else done.exit_code == 1, (
        done.output
    )  # positions are lost with the last database
    foretold = recover(open_store_at(str(root), broker_conf=str(conf)))
    (tmp_path / "keys").write_text("", "utf-8")
    with Judge(class_path(RELEASE, compiled, "ServedStore"), tmp_path / "java", program="ServedStore") as judge:
        words = root, tmp_path / "keys", *settings_of(golden.broker_conf(CFG))
        [(_, answer)] = judge.ask_all([("a store", "serve", words)])
    ends = {(t, n): end for t, n, _, end in foretold.ranges() if end}
    assert {(t, n) for t, n in ends if n >= answer["topics"].get(t, 0)} == set()
    given = {(m[0], m[1], m[2]) for m in answer["messages"]}
    assert {(t, n, end - 1) for (t, n), end in ends.items()} <= given


@pytest.mark.parametrize(
    ("name", "paths", "topics"),
    [
        (CFG, (METADATA, QUEUES), ("CfgOrders", "CfgLog")),
        (POP, (POPPED,), ("PkOrders", "PkLog")),
        (V2_CRASH, (CONFIG_V2,), ("VtwoOrders", "VtwoLog")),
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
    """With configuration and pop state that were read block by block: consumers get every message, producers go on.

    A broker that persists offsets incrementally into the one database fails when it stops (A2.5), sound or mended.
    """
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
