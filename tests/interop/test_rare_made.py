"""Make a rare store anew with the released classes, and read it: needs Java 17 and Maven."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent / "java"
OPENS = ["--add-opens", "java.base/java.nio=ALL-UNNAMED", "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("java")), reason="mvn or java is not on the PATH"),
]


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiled project and the released jars, fetched by Maven."""
    work = tmp_path_factory.mktemp("interop")
    project = shutil.copytree(PROJECT, work / "java")
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={work}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", *goals], cwd=project, check=True)
    return f"{project}/target/classes{os.pathsep}{(work / 'cp.txt').read_text('utf-8').strip()}"


@pytest.mark.parametrize("kind", ["ipv6-v2", "ext", "dledger", "compaction"])
def test_a_new_store_is_read_whole(kind: str, classpath: str, tmp_path: Path, rmqctl: Callable[..., Any]) -> None:
    root = tmp_path / kind
    root.mkdir()
    java = [
        "java",
        "-Xmx512m",
        f"-Duser.home={tmp_path}",
        *OPENS,
        "-cp",
        classpath,
        "rmqctl.MakeStore",
        kind,
        str(root),
    ]
    made = subprocess.run(java, check=True, capture_output=True, text=True, timeout=120)
    expected = [json.loads(line) for line in made.stdout.splitlines() if line.startswith('{"status"')]
    rows = [json.loads(line) for line in rmqctl("dump", root, "-o", "jsonl", "--body").stdout.splitlines()]
    messages = [r for r in rows if r["kind"] == "message"]
    assert [(m["topic"], m["queue_id"], m["queue_offset"], m["body"]) for m in messages] == [
        (t["topic"], t["queue_id"], t["queue_offset"], t["body"]) for t in expected
    ]
    assert rmqctl("verify", root).exit_code == 0
