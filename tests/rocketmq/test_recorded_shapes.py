"""Stores of other releases and shapes than the golden ones, with what the released classes said of them.

``fixtures/interop/shapes/README.md`` says how they were made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from rmqctl.release import Release
from tests.interop.compare import Answers, dumped
from tests.rocketmq.recorded_shapes_helpers import DIRECTORY, said

NAMES = sorted(path.name.removesuffix(".json.xz") for path in DIRECTORY.glob("*.json.xz"))
FIELDS = ("physical", "size", "topic", "queue", "offset", "id", "born", "stored", "flag", "reconsumed", "prepared", "properties")  # fmt: skip
INNER = 0x80
NO_BROKER = ("config.no-topics", "config.no-offsets")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all of them; nobody writes to it."""
    directory = tmp_path_factory.mktemp("shapes")
    for name in NAMES:
        golden.extract(DIRECTORY / f"{name}.tar.xz", directory)
    return directory


@pytest.fixture
def conf(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The settings they were written with."""
    path = tmp_path / "broker.conf"
    settings = said(request.node.callspec.params["name"])["settings"]
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_them(name: str, stores: Path, conf: Path, rmqctl: Callable[..., Any]) -> None:
    for options in ((), ("--broker-conf", conf)):
        found = json.loads(rmqctl("verify", stores / name, "-o", "json", *options).stdout)["findings"]
        # the classes of a store wrote them, and only a whole broker writes into config/
        assert [f for f in found if f["severity"] != "note" and f["id"] not in NO_BROKER] == []


@pytest.mark.parametrize("name", NAMES)
def test_messages(name: str, stores: Path, rmqctl: Callable[..., Any]) -> None:
    rows = dumped(rmqctl, stores / name)
    truth = {m["at"]: m for m in said(name)["truth"]}
    assert {at: {f: rows[at][f] for f in FIELDS} for at in truth} == {
        at: {f: m[f] for f in FIELDS} for at, m in truth.items()
    }
    bodies = {at: m["body"] for at, m in truth.items() if not m["sysFlag"] & INNER}
    assert {at: rows[at]["body"] for at in bodies} == bodies
    assert hashlib.sha256(b"").hexdigest() not in bodies.values()


@pytest.mark.parametrize("name", NAMES)
def test_start(name: str, stores: Path, conf: Path, rmqctl: Callable[..., Any]) -> None:
    release = ("--as-release", said(name)["release"])
    result = rmqctl("recover", stores / name, *release, "--broker-conf", conf, "-o", "json")
    found, known = json.loads(result.stdout), said(name)
    queues = {queue: [ends["min_offset"], ends["max_offset"]] for queue, ends in found["queues"].items()}
    assert (found["starts"], found["log"]["end"]) == (True, known["end"])
    assert sorted({*found["deleted_files"], *found["index_deleted"]}) == known["removed"]
    assert {queue: ends for queue, ends in queues.items() if ends[1]} == known["queues"]


@pytest.mark.parametrize("name", NAMES)
def test_answers(name: str, stores: Path) -> None:
    """Random questions by key, time and offset; by key only to stores that were stopped."""
    known = said(name)
    with Answers(stores / name, known["release"], known["settings"]).opened() as answers:
        for command, words, answer in known["answers"]:
            assert getattr(answers, command)(*words) == answer, (command, words)


@pytest.mark.parametrize("name", NAMES)
def test_release_and_sizes_are_seen(name: str, stores: Path, rmqctl: Callable[..., Any]) -> None:
    shown, known = json.loads(rmqctl("info", stores / name, "-o", "json").stdout), said(name)
    low, high = map(Release.parse, shown["releases"])
    assert low <= Release.parse(known["release"]) <= high
    assert shown["state"] == {"clean": "clean", "crash": "crashed"}[known["state"]]
    assert shown["geometry"]["index_slots"] == int(known["settings"]["maxHashSlotNum"])
    assert shown["geometry"]["index_entries"] == int(known["settings"]["maxIndexNum"])


def test_there_are_some() -> None:
    assert len({name.partition("-")[0] for name in NAMES}) >= 7
