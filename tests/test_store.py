"""The verbs of a store, as a program or a notebook asks them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rmqctl
from fixtures import golden
from rmqctl.errors import NotAStore, WrongUsage
from rmqctl.families import FAMILIES
from rmqctl.filters import Filters
from rmqctl.opening import open_store
from rmqctl.rocketmq.family import RocketMQFile, RocketMQStore
from rmqctl.store import LoneFile, Store
from tests.conftest import Rmqctl

LOOKS = {
    "topics": lambda store: store.topics(),
    "lag": lambda store: store.lag(),
    "verify": lambda store: store.verify(),
    "dump": lambda store: store.dump(Filters(limit=3)),
}
ARGUMENTS = {"dump": ["-n", "3"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack("5.3.3-clean", tmp_path_factory.mktemp("store"))


def test_open_gives_a_store_of_the_family_that_lies_there(path: Path) -> None:
    store = rmqctl.open(path)
    assert isinstance(store, RocketMQStore)
    assert (store.kind, store.root, store.state, store.lock) == ("rocketmq-store", str(path), "clean", "lock")
    assert not store.is_running
    assert store.size == sum(f.stat().st_size for f in (path / "commitlog").iterdir())


@pytest.mark.parametrize("verb", LOOKS)
def test_a_verb_gives_the_rows_of_its_command(verb: str, path: Path, rmqctl: Rmqctl) -> None:
    answer = LOOKS[verb](open_store(str(path)))
    rows = json.loads(json.dumps(list(answer)))
    done = rmqctl(verb, str(path), *ARGUMENTS.get(verb, []), "-o", "jsonl")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == [row for row in shown if row["kind" if "kind" in row else "topic"] != "summary"]
    assert answer.is_no is (done.exit_code == 1)


def test_an_answer_that_finds_nothing_is_no_and_says_so(path: Path) -> None:
    answer = open_store(str(path)).topics(topic="NoSuchTopic")
    assert list(answer) == []
    assert answer.is_no
    assert answer.remarks == ["the store knows no topic NoSuchTopic"]


def test_a_directory_inside_selects_and_a_file_outside_is_alone(path: Path, tmp_path: Path) -> None:
    inside = rmqctl.open(path / "index")
    assert isinstance(inside, RocketMQStore)
    assert inside.selection == "index"
    alone = tmp_path / "checkpoint"
    alone.write_bytes((path / "checkpoint").read_bytes())
    found = rmqctl.open(alone)
    assert isinstance(found, LoneFile)
    assert isinstance(found, RocketMQFile)
    assert [row["kind"] for row in found.dump()] == ["checkpoint"]
    with pytest.raises(NotAStore, match="a single file outside a store"):
        open_store(str(alone))


def test_what_a_family_does_not_have_is_refused_with_a_sentence(path: Path) -> None:
    store = open_store(str(path))
    with pytest.raises(WrongUsage, match=r"`producers` works on Kafka log directories; .* is a RocketMQ store"):
        store.producers()
    with pytest.raises(WrongUsage, match="--read-committed is for Kafka"):
        store.query_offset("T", 0, 0, read_committed=True)


def test_every_family_has_its_opener() -> None:
    for family in FAMILIES.values():
        assert callable(family.module.open_at)


def test_every_verb_says_what_it_does() -> None:
    verbs = [name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")]
    assert len(verbs) > 15
    assert not [name for name in verbs if not getattr(Store, name).__doc__]


def test_importing_the_library_imports_no_family() -> None:
    code = "import sys, rmqctl, rmqctl.store; sys.exit(any(m in sys.modules for m in ('numpy', 'rmqctl.rocketmq')))"
    subprocess.run([sys.executable, "-c", code], check=True)
