"""What upstream's own unit tests of logs leave behind: each load that they do is foreseen, and no plan does harm.

Every directory is kept before and after each load of a log, with what the loader was told and what it made of it.
``RMQCTL_INTEROP=all`` runs all classes, 494 loads in five minutes; else one does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.repair.plan import RepairOptions, plan_repair
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.kafka.verify.driver import Verification
from rmqctl.release import Release
from tests.interop.judge import has_java
from tests.interop.kafka_node import PROJECT

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
RELEASE = Release(4, 3, 1)
SUITES = [
    ("kafka.log.LogCleanerTest", 50),
    ("kafka.log.LogLoaderTest", 75),
    ("kafka.log.LogManagerTest", 60),
    ("kafka.log.UnifiedLogTest", 75),
    ("org.apache.kafka.storage.internals.log.UnifiedLogTest", 200),
]
"""Classes of tests, and how many loads each does at least."""
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx700m", "-XX:+EnableDynamicAgentLoading")


def loads(suite: str, room: Path) -> list[Path]:
    """Run a class of tests; the loads that it did, in their order."""
    project = shutil.copytree(PROJECT / "unit", room / "unit")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"]
    subprocess.run(["mvn", "-q", "-B", f"-Dkafka.version={RELEASE}", *goal], cwd=project, check=True)
    jars = (project / "cp.txt").read_text("utf-8").strip()
    subprocess.run(
        ["javac", "-nowarn", "-d", str(project), "-cp", jars, "Keep.java"], cwd=project, check=True, capture_output=True
    )
    service = project / "META-INF/services/org.junit.jupiter.api.extension.Extension"
    service.parent.mkdir(parents=True)
    service.write_text("Keep\n", "utf-8")
    (room / "tmp").mkdir()
    given = {
        "java.io.tmpdir": room / "tmp",
        "keep": room / "keep",
        "junit.jupiter.extensions.autodetection.enabled": "true",
    }
    words = ["java", *_JAVA, *(f"-D{name}={value}" for name, value in given.items())]
    words += ["-cp", f"{project}{os.pathsep}{jars}", "org.junit.platform.console.ConsoleLauncher", "execute"]
    subprocess.run([*words, "--select-class", suite], cwd=room, check=False, capture_output=True)
    return sorted((room / "keep").iterdir(), key=lambda path: int(path.name))


def as_found(load: Path, said: dict[str, str], room: Path) -> Path:
    """A log directory with the partition as the loader met it, and what it was told in the checkpoints."""
    root, name = room / "logs", said["directory"]
    shutil.copytree(load / "before", root / name)
    topic, _, number = name.partition(".")[0].rpartition("-")
    (root / "meta.properties").write_text("version=0\nbroker.id=0\n", "utf-8")
    if said["clean"] == "true":
        (root / ".kafka_cleanshutdown").touch()
    for file, key in (("recovery-point-offset-checkpoint", "point"), ("log-start-offset-checkpoint", "start")):
        (root / file).write_text(f"0\n1\n{topic} {number} {said[key]}\n", "utf-8")
    return root


def content(path: Path) -> dict[str, bytes]:
    """Names and, of logs, bytes of the files of a partition; what waits to be deleted has gone for a reader."""
    files = (file for file in path.iterdir() if file.suffix != ".deleted")
    return {file.name: file.read_bytes() if file.suffix == ".log" else b"" for file in files}


def foreseen(root: Path, load: Path, said: dict[str, str]) -> list[str]:
    """What comes out otherwise than `recover` says."""
    found = recover(Replicas(LogDirectories([read_directory(LocalTree(str(root)))])), RELEASE)
    if said["thrown"] != "null":
        return [] if not found.starts or found.offline else [f"it ended with {said['thrown']}"]
    if not found.partitions:
        return [] if said["directory"].endswith("-delete") else [f"it started: {found.error}"]
    one, before, after = found.partitions[0], content(load / "before"), content(load / "after")
    made = re.search(r"logStartOffset=(\d+).*\(offset=(\d+)", said["made"])
    assert made is not None
    wanted = {
        "offsets": [int(made[1]), int(made[2])],
        "deleted": sorted(before.keys() - after.keys()),
        "created": sorted(after.keys() - before.keys()),
        "logs": sorted(name for name in before.keys() & after.keys() if before[name] != after[name]),
    }
    changes = one.changes
    got = {
        "offsets": [one.loaded.log_start_offset, one.loaded.log_end_offset],
        "deleted": sorted(name for name in changes.deleted if not name.endswith(".deleted")),
        "created": sorted(name for name in changes.created if not name.endswith(".deleted")),
        "logs": sorted(name for name in changes.changed if name.endswith(".log")),
    }
    return [f"{key}: {got[key]}, and it was {wanted[key]}" for key in wanted if got[key] != wanted[key]]


@pytest.mark.parametrize(("suite", "least"), SUITES if os.environ.get("RMQCTL_INTEROP") == "all" else SUITES[:1])
def test_each_load_of_the_tests_is_foreseen(suite: str, least: int, tmp_path: Path) -> None:
    wrong, kept = list[str](), loads(suite, tmp_path)
    for load in kept:
        said = dict(line.split("=", 1) for line in (load / "said").read_text("utf-8").splitlines() if "=" in line)
        room = tmp_path / f"load-{load.name}"
        root = as_found(load, said, room)
        texts = [] if "true" in (said["mocked"], said["remote"]) else foreseen(root, load, said)
        list(Verification(read_directory(LocalTree(str(root)))).findings())
        (room / "staged").mkdir()
        plan = plan_repair(read_directory(LocalTree(str(root))), RepairOptions(RELEASE), room / "staged")
        if plan.books is not None:
            texts += [*plan.books.problems, *([f"given up: {plan.books.given_up}"] if plan.books.given_up else [])]
        wrong += [f"{load.name} {said['test']}: {text}" for text in texts]
        shutil.rmtree(room)
    assert wrong == []
    assert len(kept) >= least
