"""A damaged topic may hold any bytes: none of them stops a command, and none leads out of the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from fixtures import golden
from rmqctl.rocketmq.store.files import can_have_queues

NAME, LENGTH = b"LabOrders", 1
TOPICS = {
    "zero": b"Lab\0rders", "slash": b"Lab/rders", "up": b"../../../", "absolute": b"/tmp/evil",
    "not text": b"\xff\xfe\xfdOrders", "dot": b"Lab.rders", "spaces": b" " * 9,
}  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("verify",), ("topics",), ("lag",), ("dump",), ("recover",), ("recover", "--as-release", "4.9.8"), ("recover", "-o", "hex"),
    ("repair",), ("repair", "-o", "hex"), ("rebuild",), ("rebuild", "--into", "<out>/into"), ("salvage", "<out>/salvaged"),
)  # fmt: skip


QUICK = ("zero", "up")
CASES = [
    pytest.param(topic, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, topic in TOPICS.items()
]


@pytest.fixture(params=CASES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = golden.unpack("5.5.0-clean", tmp_path / "a" / "b" / "c" / "d")
    records = [t for t in golden.truth("5.5.0-clean") if t["kind"] == "msg" and t["topic"] == NAME.decode()]
    for record in records[20:22]:
        file = root / "commitlog" / record["file"]
        data = bytearray(file.read_bytes())
        at = data.index(bytes([len(NAME)]) + NAME, record["pos"]) + LENGTH
        data[at : at + len(NAME)] = request.param
        file.write_bytes(data)
    return root


def test_commands(damaged: Path, rmqctl: Callable[..., Result], tmp_path: Path) -> None:
    before, out = {path for path in tmp_path.rglob("*") if damaged not in path.parents}, tmp_path / "out"
    for words in COMMANDS:
        result = rmqctl(words[0], damaged, *(word.replace("<out>", str(out)) for word in words[1:]))
        assert result.exit_code in (0, 1), (words, result.output)
    made = {path for path in tmp_path.rglob("*") if damaged not in path.parents} - before
    assert {path for path in made if not path.is_relative_to(out)} == set()
    assert not Path("/tmp/evil").exists()


def test_all_else_is_saved(damaged: Path, rmqctl: Callable[..., Result], tmp_path: Path) -> None:
    result = rmqctl("salvage", damaged, tmp_path / "salvaged", "-o", "json")
    answer = json.loads(result.stdout)
    assert [row["id"] for row in answer["unreadable"]] == ["log.topic"] * 2
    assert answer["summary"]["messages"] == sum(t["kind"] == "msg" for t in golden.truth("5.5.0-clean")) - 2
    assert rmqctl("verify", tmp_path / "salvaged").exit_code == 0


def test_which_topics_name_a_directory() -> None:
    assert all(can_have_queues(name) for name in (b"T", b"%LMQ%x", b"a.b", b"..a", b"\xff", b"x" * 255))
    assert not any(can_have_queues(name) for name in (b"", b".", b"..", b"a/b", b"/a", b"a\0b", b"x" * 256))
