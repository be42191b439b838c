"""Stores repaired by plan, loaded, started and read through by the released classes of 4.9.8 and 5.5.0: needs Maven."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fixtures import damage, golden
from rmqctl.open import open_store_at
from rmqctl.repair.run import apply
from rmqctl.rocketmq.geometry import geometry_of
from rmqctl.rocketmq.mend.plan import RepairOptions, plan_repair

PROJECT = Path(__file__).parent / "java"
OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref")
OPENS = [word for package in OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
EXPIRED = ("delete-first-file", "delete-commitlog-dir", "delete-last-data-file", "truncate-last")
"""Variants in which messages at an end of the log are gone: queues are shorter afterwards."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("java")), reason="mvn or java is not on the PATH"),
]


def classpath(work: Path, release: str) -> str:
    """The compiled project and the released jars, fetched by Maven."""
    project = shutil.copytree(PROJECT, work / "java")
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={work}/cp.txt"]
    exclude = "-Dmaven.compiler.includes=rmqctl/ServeStore.java"
    subprocess.run(["mvn", "-q", "-B", f"-Drocketmq.version={release}", exclude, *goals], cwd=project, check=True)
    return f"{project}/target/classes{os.pathsep}{(work / 'cp.txt').read_text('utf-8').strip()}"


def repaired(release: str, names: Sequence[str], directory: Path) -> dict[str, Path]:
    """Each damaged variant, repaired; by name."""
    found = {}
    for name in names:
        state, _, variant = name.partition("/")
        root = golden.unpack(f"{release}-{state}", directory / f"{state}-{variant}")
        damage.apply(golden.recovery_oracle(release)["variants"][name]["recipe"], root)
        conf = golden.write_broker_conf(f"{release}-{state}", directory / "broker.conf")
        store = open_store_at(str(root), broker_conf=str(conf))
        with tempfile.TemporaryDirectory() as built:
            apply(
                plan_repair(store, RepairOptions(), Path(built)).plan,
                journal_dir=directory / f"{state}-{variant}-journal",
            )
        found[name] = root
    return found


def served(java: Sequence[str], stores: dict[str, Path]) -> dict[str, Any]:
    """What the released classes say of each store; one process for all."""
    lines = []
    for root in stores.values():
        sizes = geometry_of(open_store_at(str(root)))
        geometry = (sizes.commit_log_file_size, sizes.queue_file_size, sizes.index_slots, sizes.index_entries)
        geometry += (sizes.batch_queue_file_size,)
        lines.append("\t".join(map(str, (root, *geometry))))
    run = subprocess.run(java, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=1800)
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"load"')]
    return dict(zip(stores, answers, strict=True))


def check_served(release: str, name: str, answer: dict[str, Any]) -> None:
    """Every queue is read from its smallest to its largest offset, and nothing sound is missing."""
    assert answer["load"], name
    if not any(part in name for part in EXPIRED):
        assert answer["odd"] == {}, name
        wanted: dict[str, list[int]] = {}
        for record in golden.truth(f"{release}-{name.partition('/')[0]}"):
            if record["kind"] == "msg" and record["topic"].startswith("Lab") and record["topic"] != "LabBatchCq":
                wanted.setdefault(f"{record['topic']}/{record['queueId']}", []).append(record["commitLogOffset"])
        for queue, offsets in wanted.items():
            assert set(offsets) - set(answer["queues"][queue]) == set() or "torn-tail" in name, (name, queue)


@pytest.mark.parametrize("release", ["4.9.8", "5.5.0"])
def test_repaired_stores_are_served(release: str, tmp_path: Path) -> None:
    stores = repaired(release, list(golden.recovery_oracle(release)["variants"]), tmp_path)
    java = [
        "java",
        "-Xmx1g",
        f"-Duser.home={tmp_path}",
        *OPENS,
        "-cp",
        classpath(tmp_path, release),
        "rmqctl.ServeStore",
    ]
    for name, answer in served(java, stores).items():
        check_served(release, name, answer)
