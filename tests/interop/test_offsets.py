"""Positions written while no broker ran, by every action: a released broker serves its groups from exactly there, and
``undo`` gives the store back byte for byte. Needs Java and Maven; RMQCTL_INTEROP=all takes more stores."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.kafka.verbs.positions import HeldOffsets
from rmqctl.opening import open_store
from rmqctl.rocketmq.verbs.positions import HeldPositions
from tests.interop.brokers_helpers import run
from tests.interop.compare import dumped
from tests.interop.judge import has_java, settings_of
from tests.interop.kafka_node import Node
from tests.interop.test_converted import records
from tests.repair.stores import state_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
Rmqctl = Callable[..., Result]
Queue = dict[int, list[tuple[int, int]]]
"""By queue the offset and the time of each message."""
_IS_WHOLE = os.environ.get("RMQCTL_INTEROP") == "all"
_ROCKETMQ = [
    ("4.9.8-clean", "4.9.7", "LabLog", "Lab_grpLag"),
    ("5.5.0-clean", "5.5.0", "LabLog", "Lab_grpLag"),
    ("5.5.0-rdbcfg-clean", "5.5.0", "CfgLog", "Cfg_grpLag"),
    ("5.5.0-rdbcfgv2-clean", "5.5.0", "VtwoLog", "Vtwo_grpLag"),
    ("5.5.0-rdbcfgv2-crash", "5.5.0", "VtwoLog", "Vtwo_grpLag"),
]
_KAFKA = [("3.9.2-crash", "3.9.2"), ("4.3.1-crash", "4.3.1"), ("4.4.0-clean", "4.4.0")]
if _IS_WHOLE:
    _ROCKETMQ += [(f"{name}-crash", name.replace("9.8", "9.7"), "LabLog", "Lab_grpLag") for name in ("4.9.8", "5.5.0")]
    _ROCKETMQ += [(f"{name}-clean", name, "LabLog", "Lab_grpLag") for name in ("5.1.4", "5.3.3")]
    _ROCKETMQ += [(f"{name}-crash", name, "LabLog", "Lab_grpLag") for name in ("5.1.4", "5.3.3")]
    _KAFKA += [("3.9.2-clean", "3.9.2"), ("4.3.1-clean", "4.3.1"), ("4.4.0-crash", "4.4.0")]
_FAR = 4_000_000


class Moved:
    """A store whose groups get positions by every action, a group each.

    Args:
        is_by_files: the broker looks for a time in the file whose own time it is, and may answer with another message.

    Attributes:
        wanted: by group where each queue is served from.
    """

    def __init__(
        self, rmqctl: Rmqctl, root: Path, group: str, topic: str, queue: Queue, *, is_by_files: bool = False
    ) -> None:
        self._rmqctl, self._root, self._group, self._topic, self._queue = rmqctl, root, group, topic, queue
        self._is_by_files = is_by_files
        self.wanted: dict[str, dict[int, int]] = {}
        self._states = [state_of(root)]

    def _within(self, number: int, offset: int) -> int:
        offsets = [at for at, _ in self._queue[number]]
        return min(max(offset, min(offsets)), max(offsets) + 1)

    def _do(self, *words: object) -> None:
        done = self._rmqctl("offsets", self._root, *words, "--apply", "--yes")
        assert done.exit_code == 0, (words, done.stderr)
        self._states.append(state_of(self._root))

    def _set(self, group: str, to: object, *words: object) -> None:
        self._do("set", "--group", group, "--topic", self._topic, "--to", to, *words)

    def _answered(self, number: int, time: int) -> int:
        rows = open_store(str(self._root)).query_time(self._topic, number, time)
        return next(int(row["queue_offset"]) for row in rows if row["kind"] == "time_answer")

    def _expect(self, group: str, offset: Callable[[int], int]) -> None:
        self.wanted[group] = {number: self._within(number, offset(number)) for number in self._queue}

    def by_every_action(self, other: Path, beside: Path, unlimited: Callable[[], ExitStack]) -> None:
        """Give positions.

        Args:
            other: a place for another store; beside: for a document.
            unlimited: within what it returns, queues have no ends, so that a position may lie outside.
        """
        mine = ("--group", self._group, "--topic", self._topic)
        half = {number: at[len(at) // 2][0] for number, at in self._queue.items()}
        for number, at in half.items():  # positions that differ in each queue, wherever the group was
            self._set(self._group, at + number, "--queue", number)
        here = {number: at + number for number, at in half.items()}
        self._expect(self._group, here.__getitem__)
        self._do("copy", *mine, "--to-group", "copied")
        self._expect("copied", here.__getitem__)
        for group, to, offset in (
            ("ahead", "+3", lambda n: here[n] + 3), ("back", "-4", lambda n: here[n] - 4),
            ("number", "9", lambda _: 9), ("earliest", "earliest", lambda _: 0), ("latest", "latest", lambda _: _FAR),
        ):  # fmt: skip
            self._do("copy", *mine, "--to-group", group)
            self._set(group, to)
            self._expect(group, offset)
        times = dict[int, int]()
        for number, messages in self._queue.items():
            stamps = [time for _, time in messages]
            at, time = next((at, time) for at, time in messages[len(messages) // 3 :] if stamps.count(time) == 1)
            self._set("time", time, "--queue", number)
            times[number] = self._answered(number, time) if self._is_by_files else at
        self._expect("time", times.__getitem__)
        for group, outside in (("too-far", _FAR), ("too-early", 0)):
            with unlimited():
                self._set(group, outside)
            if outside or any(self._within(number, 0) for number in self._queue):
                self._do("clamp", "--group", group)
            self._expect(group, lambda _, at=outside: at)  # type: ignore[misc]
        for group, keep, take in (("lowest", (), min), ("highest", ("--keep", "highest"), max)):
            for number, at in here.items():
                self._set(group, at + (3 if number % 2 else -3), "--queue", number)
            self._do("merge", *mine, "--to-group", group, *keep)
            self._expect(group, lambda n, of=take: of(here[n], here[n] + (3 if n % 2 else -3)))  # type: ignore[misc]
        document = json.loads(self._rmqctl("offsets", self._root, "export", *mine).stdout)
        for row in document["positions"]:
            row["group"] = "imported"
            row["consumer_offset"] += 2
        (beside / "positions.json").write_text(json.dumps(document), "utf-8")
        self._do("import", beside / "positions.json")
        self._expect("imported", lambda n: here[n] + 2)
        shutil.copytree(self._root, other, symlinks=True)
        assert self._rmqctl("offsets", other, "set", *mine, "--to", "-1", "--apply", "--yes").exit_code == 0
        self._do("copy", "--from", other, *mine, "--to-group", "fetched")
        self._expect("fetched", lambda n: here[n] - 1)

    def take_back(self) -> None:
        """Take run by run back."""
        while self._states[1:]:
            self._states.pop()
            done = self._rmqctl("undo", self._root, "--yes")
            assert done.exit_code == 0, done.stderr
            assert state_of(self._root) == self._states[-1]
        assert self._rmqctl("undo", self._root, "--yes").exit_code != 0, "a run was not looked at"


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ExitStack]:
    def make() -> ExitStack:
        stack = ExitStack()
        patched = stack.enter_context(monkeypatch.context())
        for held in (HeldPositions, HeldOffsets):
            patched.setattr(held, "limits", lambda *_: None)
        return stack

    return make


@pytest.mark.parametrize(("name", "release"), _KAFKA)
def test_a_kafka_broker(
    name: str, release: str, rmqctl: Rmqctl, tmp_path: Path, compiled: Path, unlimited: Callable[[], ExitStack]
) -> None:
    logs, topic = golden.unpack(name, tmp_path), "plain-none"
    for partition in logs.glob(f"{topic}-*"):  # the first segment has expired
        base = sorted(partition.glob("*.log"))[1].stem
        for file in partition.iterdir():
            if file.stem.isdigit() and file.stem < base:
                file.unlink()
    queue: Queue = {}
    for number, offset, time, *_ in records(logs, topic):
        queue.setdefault(number, []).append((offset, time))
    assert all(messages[0][0] > 0 for messages in queue.values())
    moved = Moved(rmqctl, logs, "g-classic", topic, queue)
    moved.by_every_action(tmp_path / "other", tmp_path, unlimited)
    served, count = tmp_path / "served", len(list(logs.glob("__consumer_offsets-*")))
    shutil.copytree(logs, served, symlinks=True)
    sent = records(logs, topic)
    with Node(release, served, compiled, {"offsets.topic.num.partitions": count}) as node:
        for n, (group, at) in enumerate(moved.wanted.items()):
            left = [one for one in sent if one[1] >= at[one[0]]]
            protocol = "consumer" if n % 2 and release >= "4" else "classic"
            assert sorted(node.ask("resume", group, topic, protocol)) == sorted(left), (group, protocol)
        assert node.errors == []
    damaged = [row["file"] for row in open_store(str(served)).verify(notes=False)]
    assert not [file for file in damaged if file.startswith("__consumer_offsets")]
    moved.take_back()


@pytest.mark.parametrize(("name", "release", "topic", "group"), _ROCKETMQ)
def test_a_rocketmq_broker(
    name: str,
    release: str,
    topic: str,
    group: str,
    rmqctl: Rmqctl,
    tmp_path: Path,
    compiled: Path,
    unlimited: Callable[[], ExitStack],
) -> None:
    if "rdb" in name:
        pytest.importorskip("rocksdict")
    root = golden.unpack(name, tmp_path)
    min((root / "commitlog").iterdir()).unlink()  # the first file has expired
    sent = {p: m for p, m in dumped(rmqctl, root).items() if m["topic"] == topic}
    queue: Queue = {}
    for message in sent.values():
        queue.setdefault(message["queue"], []).append((message["offset"], message["stored"]))
    assert any(messages[0][0] > 0 for messages in queue.values())
    moved = Moved(rmqctl, root, group, topic, queue, is_by_files=release < "5.1.1")
    moved.by_every_action(tmp_path / "other", tmp_path, unlimited)
    served = tmp_path / "served"
    shutil.copytree(root, served, symlinks=True)
    settings, groups = settings_of(golden.broker_conf(name)), ",".join(f"{who}@{topic}" for who in moved.wanted)
    answer: dict[str, Any] = run(compiled, release, served, [topic], 0, settings, groups=groups, silence=12_000)
    resumed = {who: {m["physical"] for m in messages} for who, messages in answer["resumed"]}
    assert resumed == {
        who: {p for p, m in sent.items() if m["offset"] >= at[m["queue"]]} for who, at in moved.wanted.items()
    }
    moved.take_back()
