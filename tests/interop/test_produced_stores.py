"""Stores from `rmqctl produce` under the released store classes: loaded whole, served, queried, continued by both sides.

Needs Java 17 and Maven, which fetches the jars.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.judge import class_path, has_java, java

RELEASES = ("4.9.8", "5.3.3", "5.5.0")
GEOMETRY = ("65536", "2000", "500", "1000")
KEYS, PUTS = 50, 100

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


@pytest.fixture(scope="module", params=RELEASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A release, and the classpath of the program compiled against it."""
    release = str(request.param)
    return release, class_path(release, tmp_path_factory.mktemp("java"), "ServeProduced")


def serve(root: Path, classes: str) -> list[dict[str, Any]]:
    command = java(classes, root.parent / "home", "ServeProduced", root, *GEOMETRY, KEYS, PUTS, memory="256m")
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kind"')]


@pytest.mark.parametrize(
    "options",
    [
        ("--size", "1-700"),
        ("--crash", "--size", "1-700"),
        ("--batch", "7"),
        ("--size", "300", "--flush", "sync", "--writers", "4"),
    ],
    ids=" ".join,
)
def test_the_released_store_serves_everything(
    options: tuple[str, ...], served: tuple[str, str], rmqctl: Callable[..., Any], tmp_path: Path
) -> None:
    release, classpath = served
    root = tmp_path / "s"
    args = ("--topic", "T{0..1}", "--count", "1500", "--key", "key-{n}", "--tag", "A=2,B=1", "--small")
    assert rmqctl("produce", root, *args, "--as-release", release, *options).exit_code == 0
    dumped = [json.loads(line) for line in rmqctl("dump", root, "--body", "-o", "jsonl").stdout.splitlines()]
    wanted = {m["physical_offset"]: m for m in dumped if m["kind"] == "message"}
    rows = serve(root, classpath)
    assert rows[0]["ok"]
    found = [r for r in rows if r["kind"] == "message"]
    assert sorted(r["physical_offset"] for r in found) == sorted(wanted)
    for row in found:
        message = wanted[row["physical_offset"]]
        assert [row[n] for n in ("topic", "queue_id", "queue_offset", "store_timestamp")] == [
            message[n] for n in ("topic", "queue_id", "queue_offset", "store_timestamp")
        ]
        assert base64.b64decode(row["body"]) == _bytes(message["body"])
        assert _pairs(base64.b64decode(row["properties"]).decode()) == message["properties"]
    if "--batch" not in options:
        assert [r["found"] for r in rows if r["kind"] == "key"] == [1] * KEYS
    assert [r["status"] for r in rows if r["kind"] == "put"] == ["PUT_OK"] * PUTS
    assert rmqctl("verify", root).exit_code == 0
    assert rmqctl("produce", root, "--topic", "T0", "--count", "20").exit_code == 0
    assert rmqctl("verify", root).exit_code == 0
    again = serve(root, classpath)
    assert sum(r["kind"] == "message" for r in again) == 1500 + PUTS + 20


def _bytes(body: Any) -> bytes:
    return base64.b64decode(body["base64"]) if isinstance(body, dict) else body.encode()


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
