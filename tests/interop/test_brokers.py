"""Whole brokers on produced and on repaired stores: a consumer receives every message: needs Maven."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.repair.execute import apply
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.log.stand_ins import MARK
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from tests.interop.brokers_helpers import FAMILIES, run, side_by_side
from tests.interop.compare import dumped, geometry
from tests.interop.judge import class_path, has_java, settings_of
from tests.rocketmq.repair.judged import seeds
from tests.rocketmq.repair.misdirected_helpers import Misdirector, census

PRODUCED: tuple[tuple[str, ...], ...] = (
    ("--topic", "Orders", "--count", "600", "--size", "10-1500", "--key", "order-{n}", "--key", "ключ", "--tag", "TagA=3,TagB=1", "--property", "ünï=✓"),
    ("--topic", "Batch", "--count", "320", "--size", "10-200", "--batch", "16", "--key", "b-{n}"),
    ("--topic", "Zip", "--count", "30", "--body", "abc " * 700, "--compress", "zlib", "--compress-over", "100"),
    ("--topic", "Tx", "--count", "50", "--body", "tx {n}", "--transaction", "commit", "--key", "t-{n}"),
    ("--topic", "Void", "--count", "10", "--body", "never {n}", "--transaction", "rollback"),
    ("--topic", "Late", "--count", "20", "--body", "late {n}", "--delay-level", "1", "--key", "late-{n}"),
)  # fmt: skip
TOPICS = ("Orders", "Batch", "Zip", "Tx", "Void", "Late")
LAB = ("LabOrders", "LabLog", "LabOne")
REPAIRED = (
    "clean/body-flip-mid", "crash/zero-page-mid", "clean/totalsize-huge-mid", "crash/magic-flip-mid", "clean/delete-mid-file", "crash/cq-all-deleted",
    "clean/checkpoint-zero", "crash/totalsize-zero-mid", "clean/magic-flip-first-record-of-last-file", "crash/physicaloffset-wrong-mid",
    "clean/blank-magic-destroyed-mid", "crash/blank-size-wrong-mid", "clean/zero-page-last-file", "crash/body-flip-last-file", "clean/cq-ahead-of-log",
    "crash/cq-mid-file-deleted", "clean/index-slot-loop", "crash/index-header-garbage", "clean/extra-file-nonnumeric-in-commitlog", "crash/cq-file-wrong-length",
    "clean/cq-garbage-unit-in-last-file-mid", "crash/checkpoint-future", "clean/topiclen-negative-last-file", "crash/bodylen-negative-last-file",
    "clean/storetimestamp-zero-first-record-of-last-file", "crash/garbage-behind-end", "clean/abort-added+body-flip-mid", "crash/cq-zero-unit-in-last-file-mid",
    "clean/cq-one-queue-deleted", "crash/body-flip-first-file",
)  # fmt: skip
BEYOND_HEALING = ("zero-page", "delete-mid-file")
"""Variants that leave nothing of some records. Of all others a consumer gets every message."""
ALL = os.environ.get("RMQCTL_INTEROP") == "all"
"""Every combination, which takes half an hour; else a few, so that the run stays short."""
CHOSEN = REPAIRED if ALL else REPAIRED[:1]
ENDINGS = (
    [(release, ending) for release in FAMILIES for ending in ("clean", "crash")]
    if ALL
    else [("4.9.7", "crash"), ("5.5.0", "clean")]
)
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.mark.parametrize(("release", "ending"), ENDINGS)
def test_produced(release: str, ending: str, compiled: Path, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """After a crash ``IndexService.load`` deletes the index file that is younger than the checkpoint, and recovery dispatches
    again from the log file that the checkpoint names: keys between the two are in no index any more.
    """
    root = tmp_path / "store"
    for number, words in enumerate(PRODUCED):
        last = ["--crash"] if ending == "crash" and number == len(PRODUCED) - 1 else []
        result = rmqctl("produce", root, "--small", "--as-release", FAMILIES[release], "--seed", number, *words, *last)
        assert result.exit_code == 0, result.output
    stored = dumped(rmqctl, root)
    answer = run(compiled, release, root, TOPICS, 20, geometry(root))
    expected = {p: m for p, m in stored.items() if m["topic"] in TOPICS}
    received = {m["physical"]: m for m in answer["received"]}
    assert len(received) == len(answer["received"])
    assert {p: m for p, m in received.items() if m["topic"] != "Late"} == expected
    late = sorted(m["properties"]["KEYS"] for m in received.values() if m["topic"] == "Late")
    assert late == sorted(f"late-{n}" for n in range(20))
    assert len(answer["sent"]) == 20
    with StoreEngine.open(root) as engine:
        assert engine.recovered is None
        engine.put(Message("Orders", b"after the broker", 1))
    after = dumped(rmqctl, root)
    assert {p: m for p, m in after.items() if p in stored} == stored
    assert sum(m["properties"].get("KEYS", "").startswith("sent-") for m in after.values()) == 20
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    findings = {row["id"] for row in rows if row.get("severity") in ("warning", "error")}
    assert findings <= ({"index.coverage"} if ending == "crash" else set())


@pytest.mark.parametrize("release", list(FAMILIES) if ALL else ["5.5.0"])
def test_repaired(release: str, compiled: Path, tmp_path: Path) -> None:
    class_path(release, compiled, "WholeBroker")
    checks = [(name, partial(check_repaired, compiled, release, name, tmp_path)) for name in CHOSEN]
    assert side_by_side(checks, workers=2) == []


def check_repaired(compiled: Path, release: str, name: str, tmp_path: Path) -> None:
    """A consumer gets every message from a repaired copy, except those whose own bytes are gone."""
    state, family = name.partition("/")[0], FAMILIES[release]
    base, directory = f"{family}-{state}", tmp_path / name.replace("/", "-")
    root = golden.unpack(base, directory)
    damage.apply(golden.recovery_oracle(family)["variants"][name]["recipe"], root)
    gone = touched(base, root) if any(part in name for part in BEYOND_HEALING) else set()
    conf = golden.write_broker_conf(base, directory / "broker.conf")
    with tempfile.TemporaryDirectory() as built:
        plan = plan_repair(open_store_at(str(root), broker_conf=str(conf)), RepairOptions(), Path(built)).plan
        apply(plan, journal_dir=directory / "journal")
    answer = run(compiled, release, root, LAB, 0, settings_of(golden.broker_conf(base)))
    received = {
        (m["topic"], m["queue"], m["offset"], m["body"])
        for m in answer["received"]
        if MARK.decode() not in m["properties"]
    }
    known = {place(t) for t in golden.truth(base) if t["kind"] == "msg" and t["topic"] in LAB}
    assert received - known == set()
    assert known - received <= gone
    print(f"{release} {name}: {len(known & received)} of {len(known)} messages received", flush=True)
    shutil.rmtree(directory)


@pytest.mark.parametrize("release", list(FAMILIES) if ALL else ["5.5.0"])
def test_misdirected(release: str, compiled: Path, tmp_path: Path) -> None:
    """Records, pages and files in the places of others, repaired: what the plan does not name reaches a consumer."""
    class_path(release, compiled, "WholeBroker")
    other = golden.pristine("5.1.4-crash")
    damagers = [Misdirector(f"{FAMILIES[release]}-{state}", other) for state in ("clean", "crash")]
    checks = [
        (str(seed), partial(check_misdirected, compiled, release, damagers[seed % 2], seed, tmp_path))
        for seed in seeds("40" if ALL else "2")
    ]
    assert side_by_side(checks, workers=2) == []


def check_misdirected(compiled: Path, release: str, damager: Misdirector, seed: int, tmp_path: Path) -> None:
    """Every message of which a whole record lay anywhere in the damaged store is received, or named by the plan."""
    directory = tmp_path / f"misdirected-{seed}"
    root = directory / damager.name
    golden.copy_tree(damager.root, root)
    damage.apply(damager.recipe(seed), root)
    conf = golden.write_broker_conf(damager.name, directory / "broker.conf")
    store = open_store_at(str(root), broker_conf=str(conf))
    beside = tuple(f"commitlog/{file.name}" for file in sorted((root / "commitlog").iterdir()))
    whole = [found for found, _ in census(store, beside).values()]
    with tempfile.TemporaryDirectory() as built:
        repair = plan_repair(store, RepairOptions(), Path(built))
        assert repair.books.problems == []
        apply(repair.plan, journal_dir=directory / "journal")
    answer = run(compiled, release, root, LAB, 0, settings_of(golden.broker_conf(damager.name)))
    received = {(m["topic"], m["queue"], m["offset"], m["body"]) for m in answer["received"]}
    names = [name for step in repair.plan.steps for name in step.gives_up]
    kept = {sha256(found.raw).hexdigest() for found in whole if not found.is_named(names)}
    known = [t for t in damager.records if t["topic"] in LAB]
    assert [place(t) for t in known if t["recordSha256"] in kept and place(t) not in received] == []
    gone = {place(t)[:3] for t in known if t["recordSha256"] not in kept}
    strangers = {(f.topic.decode(), f.queue_id, f.queue_offset, sha256(f.body).hexdigest()) for f in whole}
    others = received - {place(t) for t in known} - strangers
    assert {found for found in others if found[:3] not in gone} == set()
    print(f"{release} {seed}: {len(received)} received, {len(names)} named, {len(gone)} gone", flush=True)
    shutil.rmtree(directory)


def place(message: Mapping[str, Any]) -> tuple[str, int, int, str]:
    """Where a message of the golden truth is found, and what it says."""
    return message["topic"], message["queueId"], message["queueOffset"], message["bodySha256"]


def touched(base: str, root: Path) -> set[tuple[str, int, int, str]]:
    """Messages whose own bytes the damage has changed or taken away."""
    found = set()
    for message in golden.truth(base):
        if message["kind"] == "msg":
            name, span = message["file"], slice(message["pos"], message["pos"] + message["storeSize"])
            before, after = (_content(top / "commitlog" / name)[span] for top in (golden.pristine(base), root))
            if before != after:
                found.add(place(message))
    return found


@lru_cache(16)
def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("is_repaired", [True, False] if ALL else [True])
def test_timers_of_lost_messages(is_repaired: bool, compiled: Path, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    """New messages take the places of lost ones that timers still lead to: without a repair 5.5.0 delivers no timer message any
    more (apache/rocketmq#10668), with it all that are left.
    """
    root, due = tmp_path / "store", int(time.time() * 1000) + 90_000
    words = ("--small", "--as-release", "5.5.0")
    assert rmqctl("produce", root, "--topic", "Plain", "--count", 50, *words).exit_code == 0
    timed = ("--topic", "Timed", "--queues", 1, "--count", 10)
    assert rmqctl("produce", root, *timed, "--key", "kept-{n}", "--deliver-at", due).exit_code == 0
    ends = max(m["physical_offset"] + m["size"] for m in every_record(rmqctl, root))
    assert rmqctl("produce", root, *timed, "--key", "lost-{n}", "--deliver-at", due - 5000).exit_code == 0
    for file in sorted((root / "commitlog").iterdir()):
        data, begin = file.read_bytes(), int(file.name)
        file.write_bytes(data[: max(ends - begin, 0)].ljust(len(data), b"\0"))
    if is_repaired:
        assert (
            "put 10 timers of lost messages out of reach"
            in rmqctl("repair", root, "--apply", "--yes", "-o", "jsonl").stdout
        )
    settings = [*geometry(root), "timerWheelEnable=true"]
    run(compiled, "5.5.0", root, ["Plain"], 60, settings)
    time.sleep(max(due / 1000 + 2 - time.time(), 0))
    answer = run(compiled, "5.5.0", root, ["Timed"], 0, settings)
    keys = sorted(m["properties"]["KEYS"] for m in answer["received"])
    assert keys == (sorted(f"kept-{n}" for n in range(10)) if is_repaired else [])


def every_record(rmqctl: Callable[..., Any], root: Path) -> list[dict[str, Any]]:
    """The records of a log, those of the broker's own topics included."""
    rows = (json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines())
    return [row for row in rows if row["kind"] == "message"]
