"""What upstream's own unit tests of stores leave behind: each load that they do is foreseen, and no plan does harm.

Every store is kept before and after each load, and as each shutdown leaves it; the source release of Maven Central has
the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from rmqctl.findings import Severity
from rmqctl.release import Release
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.recovery.rules import has_dledger_log
from rmqctl.rocketmq.repair.plan import RepairOptions, plan_repair
from rmqctl.rocketmq.store.files import StoreFiles
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.interop.judge import OPENS, PROJECT, has_java

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]
RELEASE = Release(5, 3, 3)
SUITES = [
    ("DefaultMessageStoreTest", 20), ("queue.BatchConsumeMessageTest", 10), ("RocksDBMessageStoreTest", 30),
    ("ConsumeQueueTest", 4), ("queue.ConsumeQueueTest", 7), ("queue.ConsumeQueueStoreTest", 2), ("BatchPutMessageTest", 2),
    ("DefaultMessageStoreCleanFilesTest", 7), ("DefaultMessageStoreShutDownTest", 1), ("timer.TimerMessageStoreTest", 10),
    ("ReputMessageServiceTest", 4), ("HATest", 8), ("dledger.MixCommitlogTest", 8), ("dledger.DLedgerCommitlogTest", 10),
    ("ha.autoswitch.AutoSwitchHATest", 20),
]  # fmt: skip
"""Classes of tests, and how many loads each does at least."""
_CLEARS, _CUTS, _DESTROYS = (
    "it takes all dispatchers away and puts two more messages",
    "it damages the last message of the log, which index entries keep",
    "it destroys the queues before the shutdown",
)
ON_PURPOSE = {
    "DefaultMessageStoreTest.testMaxOffset": _CLEARS,
    "RocksDBMessageStoreTest.testMaxOffset": _CLEARS,
    "DefaultMessageStoreTest.testRecover": _CUTS,
    "RocksDBMessageStoreTest.testRecover": _CUTS,
    "ReputMessageServiceTest.testReputEndOffset_whenSyncFlush": "nothing flushes, and dispatch waits for that",
    "DLedgerCommitlogTest.testTruncateCQ": "it deletes the last files of the log, and all of them",
    "DLedgerCommitlogTest.testPutAndGetMessage": _DESTROYS,
    "DLedgerCommitlogTest.testAsyncPutAndGetMessage": _DESTROYS,
    "DLedgerCommitlogTest.testBatchPutAndGetMessage": _DESTROYS,
    "DLedgerCommitlogTest.testAsyncBatchPutAndGetMessage": _DESTROYS,
}
"""Tests that leave errors on purpose, and what they do: each leaves some, and no other test does."""
SOMETIMES = {
    "DefaultMessageStoreCleanFilesTest.testDeleteExpiredFilesBySpaceFull": (
        "it fills index files so fast that two may get the name of one millisecond"
    ),
}
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx900m", "-XX:+EnableDynamicAgentLoading")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the tests of the store module and of what keeps their stores."""
    return compiled(tmp_path_factory.mktemp("classes"))


def compiled(room: Path) -> str:
    project = shutil.copytree(PROJECT.parent / "unit", room / "unit")
    maven = ["mvn", "-q", "-B", f"-Drocketmq.version={RELEASE}"]
    source = f"org.apache.rocketmq:rocketmq-all:{RELEASE}:zip:source-release"
    for goal in (
        ["dependency:copy", f"-Dartifact={source}", f"-DoutputDirectory={project}"],
        ["dependency:build-classpath", f"-Dmdep.outputFile={project}/cp.txt"],
    ):
        subprocess.run([*maven, *goal], cwd=project, check=True)
    with zipfile.ZipFile(next(project.glob("*.zip"))) as packed:
        packed.extractall(project, [name for name in packed.namelist() if "/store/src/test/java/" in name])
    jars = (project / "cp.txt").read_text("utf-8").strip()
    (project / "classes").mkdir()
    sources = [str(path) for path in project.rglob("*.java")]
    words = ["javac", "-nowarn", "-proc:none", "-d", str(project / "classes"), "-cp", jars, *sources]
    subprocess.run(words, check=True, capture_output=True)
    return f"{project / 'classes'}{os.pathsep}{jars}"


def kept(suite: str, room: Path, classes: str) -> list[Path]:
    """Run a class of tests; the loads and shutdowns that it did, in their order."""
    given = {"java.io.tmpdir": room / "tmp", "user.home": room / "home", "keep": room / "keep"}
    for path in given.values():
        path.mkdir()
    words = ["java", *_JAVA, *OPENS, *(f"-D{name}={value}" for name, value in given.items())]
    words += ["-cp", classes, "KeepStores", f"org.apache.rocketmq.store.{suite}"]
    subprocess.run(words, cwd=room, check=False, capture_output=True)
    return sorted((room / "keep").iterdir(), key=lambda path: int(path.name))


def opened(load: Path, state: str) -> StoreFiles | None:
    """A store as it was kept, under the configuration that its test gave it; None where there was none yet."""
    root, conf = load / state, load / f"{state}.conf"
    if not any(root.glob("commitlog*")) and not any(root.glob("dledger-*/data")):
        return None
    text = (load / "broker.conf").read_text("utf-8")
    for other in ("before", "after", "stopped"):
        text = text.replace(f"{load / other}", str(root))
    conf.write_text(text, "utf-8")
    return open_store_at(str(root), broker_conf=str(conf))


def files(root: Path) -> set[str]:
    """Names of the files of log, queues and index, without those of databases."""
    parts = ("commitlog", "consumequeue", "batchconsumequeue", "index")
    found = (path for part in parts for path in (root / part).rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in found if not (path.parent / "CURRENT").exists()}


def foreseen(load: Path, said: dict[str, str], store: StoreFiles) -> list[str]:
    """What comes out otherwise than `recover` says, which is asked of no log of a DLedger group."""
    if has_dledger_log(store):
        return []
    found = recover(store, RELEASE)
    if said["loaded"] != "true" or said["thrown"] != "null":
        return [] if not found.starts else [f"it did not load: {said}"]
    if not found.starts:
        return [f"it loaded: {found.error}"]
    deleted, gone = {*found.deleted, *found.index_deleted}, files(load / "before") - files(load / "after")
    wrong = [] if found.end == int(said["end"]) else [f"the log ends at {said['end']}, and not at {found.end}"]
    return wrong if gone == deleted else [*wrong, f"deleted: {sorted(deleted)}, and it was {sorted(gone)}"]


@pytest.mark.parametrize(("suite", "least"), SUITES)
def test_each_load_of_the_tests_is_foreseen(suite: str, least: int, tmp_path: Path, classes: str) -> None:
    wrong, loads, spoilt = list[str](), 0, set[str]()
    for load in kept(suite, tmp_path, classes):
        said = dict(line.split("=", 1) for line in (load / "said").read_text("utf-8").splitlines())
        for state in ("before", "stopped"):
            if (store := opened(load, state)) is None:
                continue
            texts = foreseen(load, said, store) if state == "before" else []
            loads += state == "before"
            found = [f for f in Verification(store, VerifyOptions()).findings() if f.level is Severity.ERROR]
            if state == "stopped" and found:
                spoilt.add(said["test"])
                is_meant = said["test"] in {*ON_PURPOSE, *SOMETIMES}
                texts += [] if is_meant else [f"{f.kind.id} in {f.file} at {f.offset}" for f in found]
            (room := tmp_path / f"plan-{load.name}").mkdir()
            books = plan_repair(store, RepairOptions(), room).books
            texts += [*books.problems, *([f"given up: {books.given_up}"] if books.given_up else [])]
            wrong += [f"{load.name} {said['test']} {state}: {text}" for text in texts]
            shutil.rmtree(room)
    assert wrong == []
    assert spoilt - {*SOMETIMES} == {test for test in ON_PURPOSE if test.startswith(f"{suite.rpartition('.')[2]}.")}
    assert loads >= least
