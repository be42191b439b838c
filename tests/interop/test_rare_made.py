"""Make a rare store anew with the released classes, and read it: needs Java 17 and Maven."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.judge import class_path, has_java, java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.fixture(scope="module", params=["5.3.3", "5.5.0"])
def classes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return class_path(request.param, tmp_path_factory.mktemp("java"), "MakeStore")


@pytest.mark.parametrize("kind", ["ipv6-v2", "ext", "dledger", "compaction", "batch"])
def test_a_new_store_is_read_whole(kind: str, classes: str, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    root = tmp_path / kind
    root.mkdir()
    command = java(classes, tmp_path / "home", "MakeStore", kind, root, memory="512m")
    made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    expected = [json.loads(line) for line in made.stdout.splitlines() if line.startswith('{"status"')]
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl", "--body").stdout.splitlines()]
    messages = [r for r in rows if r["kind"] == "message"]
    assert [(m["topic"], m["queue_id"], m["queue_offset"], m["size"]) for m in messages] == [
        (t["topic"], t["queue_id"], t["queue_offset"], t["size"]) for t in expected
    ]
    said = [t["body"] for t in expected if t["body"]]
    assert [m["body"] for m, t in zip(messages, expected, strict=True) if t["body"]] == said
    assert rmqctl("verify", root).exit_code == 0
