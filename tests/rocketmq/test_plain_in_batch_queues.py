"""Batch queues that hold ordinary messages, alone and between inner batches, as 5.5.0 wrote them: each has a unit.

What its start does to the store without some of its queues was recorded from the released classes.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.rare_stores_helpers import RARE

NAME = "5.5.0-batch"
CONF = (
    "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=1000\nmapperFileSizeBatchConsumeQueue=368\n"
    "maxHashSlotNum=500\nmaxIndexNum=1000\n"
)
TOPICS, QUEUES, BATCHES = "config/topics.json", "consumequeue", "batchconsumequeue"
WHOLE = {"Mixed/0": (0, 25), "Mixed/1": (0, 18), "Single/0": (0, 10), "Single/1": (0, 10)}
WHOLE |= {"Plain/0": (0, 10), "Plain/1": (0, 10)}
LATE = {"Mixed/0": (20, 25), "Mixed/1": (14, 18), "Single/0": (8, 10), "Single/1": (8, 10)}
SIMPLE = {"Mixed/0": (0, 10), "Mixed/1": (0, 10)}


def _of(*topics: str, of: dict[str, tuple[int, int]] = WHOLE) -> dict[str, tuple[int, int]]:
    return {name: ends for name, ends in of.items() if name.split("/")[0] in topics}


STARTS = [
    ((), False, WHOLE),
    ((f"{BATCHES}/Mixed",), False, _of("Plain", "Single")),
    ((f"{BATCHES}/Single",), False, _of("Plain", "Mixed")),
    ((BATCHES,), False, _of("Plain")),
    ((BATCHES, QUEUES), False, WHOLE),
    ((f"{BATCHES}/Mixed/0/{368:020d}",), False, WHOLE | {"Mixed/0": (0, 20)}),
    (("config",), False, WHOLE),
    (("config", BATCHES, QUEUES), False, WHOLE | SIMPLE),
    ((), True, WHOLE),
    ((f"{BATCHES}/Mixed",), True, WHOLE | _of("Mixed", of=LATE)),
    ((BATCHES,), True, WHOLE | LATE),
    ((BATCHES, QUEUES), True, LATE | {"Plain/0": (8, 10), "Plain/1": (8, 10)}),
    ((f"{BATCHES}/Mixed/0/{368:020d}",), True, WHOLE),
]
"""What is lost, whether the broker was killed, and the first and next offset of each queue after a start of 5.5.0."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    golden.extract(RARE / f"{NAME}.tar.xz", tmp_path)
    (tmp_path / "broker.conf").write_text(CONF)
    return tmp_path / NAME


def lose(root: Path, lost: tuple[str, ...], *, killed: bool = False) -> None:
    for name in lost:
        shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()
    if killed:
        (root / "abort").write_text("1")


def contents(root: Path, *kinds: str) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for kind in kinds for p in (root / kind).rglob("*") if p.is_file()}


def truth() -> Iterator[dict[str, Any]]:
    with lzma.open(RARE / f"{NAME}.truth.jsonl.xz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def test_the_store_is_sound(root: Path, rmqctl: Callable[..., Any]) -> None:
    found = json.loads(rmqctl("verify", root, "-o", "json").stdout)
    assert [f for f in found["findings"] if f["severity"] != "note"] == []
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl").stdout.splitlines()]
    messages = [r for r in rows if r["kind"] == "message"]
    said = [(t["topic"], t["queue_id"], t["queue_offset"], t["physical_offset"], t["size"]) for t in truth()]
    assert [
        tuple(m[n] for n in ("topic", "queue_id", "queue_offset", "physical_offset", "size")) for m in messages
    ] == said
    ends = {f"{r['topic']}/{r['queue_id']}": (r["min_offset"], r["max_offset"]) for r in _topics(root, rmqctl)}
    assert ends == WHOLE
    counts: dict[str, int] = {}
    for t in truth():
        name = f"{t['topic']}/{t['queue_id']}"
        counts[name] = counts.get(name, 0) + t["messages"]
    assert counts == {name: end for name, (_, end) in WHOLE.items()}


def _topics(root: Path, rmqctl: Callable[..., Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rmqctl("topics", root, "-o", "jsonl").stdout.splitlines()]


@pytest.mark.parametrize(
    ("lost", "killed", "ends"), STARTS, ids=lambda v: "+".join(v) if isinstance(v, tuple) else None
)
def test_a_start_is_foretold(lost: tuple[str, ...], killed: bool, ends: dict[str, Any], root: Path) -> None:
    lose(root, lost, killed=killed)
    store = open_store_at(str(root))
    store.settings = dict(line.split("=") for line in CONF.split())
    found = recover(store, Release(5, 5, 0))
    assert found.error is None
    assert found.end == 20072
    assert {f"{topic}/{queue}": (low, high) for topic, queue, low, high in found.ranges()} == ends


LOST = [
    (BATCHES,),
    (f"{BATCHES}/Mixed",),
    (f"{BATCHES}/Single",),
    (BATCHES, QUEUES),
    (f"{BATCHES}/Mixed/0/{368:020d}",),
]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("lost", LOST, ids="+".join)
def test_lost_queues_are_made_again(
    lost: tuple[str, ...], killed: bool, root: Path, rmqctl: Callable[..., Any]
) -> None:
    whole = contents(root, BATCHES, QUEUES)
    lose(root, lost, killed=killed)
    assert rmqctl("verify", root).exit_code == 1
    done = rmqctl("repair", root, "--broker-conf", root.parent / "broker.conf", "--apply", "--yes", "-o", "json")
    assert done.exit_code == 0, done.output
    assert contents(root, BATCHES, QUEUES) == whole


def test_rebuild_makes_the_same_queues(root: Path, rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    whole = contents(root, BATCHES, QUEUES)
    assert rmqctl("rebuild", root, "--queues").exit_code == 0
    lose(root, (BATCHES, QUEUES))
    conf = root.parent / "broker.conf"
    assert rmqctl("rebuild", root, "--queues", "--broker-conf", conf, "--into", tmp_path / "new").exit_code == 0
    assert contents(tmp_path / "new", BATCHES, QUEUES) == whole


def test_without_configuration_inner_batches_say_it(root: Path, rmqctl: Callable[..., Any]) -> None:
    whole = contents(root, f"{BATCHES}/Mixed")
    lose(root, ("config", f"{BATCHES}/Mixed"))
    assert rmqctl("repair", root, "--apply", "--yes").exit_code == 0
    assert contents(root, f"{BATCHES}/Mixed") == whole


def test_salvage_has_every_message(root: Path, rmqctl: Callable[..., Any], tmp_path: Path) -> None:
    lose(root, (BATCHES,))
    assert rmqctl("salvage", root, tmp_path / "new").exit_code == 0
    assert rmqctl("verify", tmp_path / "new").exit_code == 0
    made = {
        f"{r['topic']}/{r['queue_id']}": (r["min_offset"], r["max_offset"]) for r in _topics(tmp_path / "new", rmqctl)
    }
    assert made == WHOLE


def test_the_engine_goes_on(root: Path, rmqctl: Callable[..., Any]) -> None:
    with StoreEngine.open(root) as engine:
        engine.put(Message("Mixed", b"plain", 0))
        engine.put(Message("Mixed", b"inner", 0, {"INNER_NUM": "3"}, sys_flag=0x80))
        engine.put(Message("Single", b"plain", 0))
        assert engine.offsets("Mixed", 0) == (0, 29)
        assert [m.fields["body"] for m in engine.get("Mixed", 0, 25).messages] == [b"plain", b"inner"]
        assert engine.offsets("Single", 0) == (0, 11)
    assert rmqctl("verify", root).exit_code == 0
