"""Files that are none, or are not what their names say: commands end with findings, and take no more room than usual."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl

GIANT = 10 << 30
MOST = 500_000
"""KiB that a command may take."""
_RUN = """
import sys
from commands import cli
try:
    cli(sys.argv[1:])
finally:
    print(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1], file=sys.stderr)
"""
KAFKA, ROCKETMQ = "4.3.1-clean", "5.3.3-clean"
_METADATA, _OFFSETS = "__cluster_metadata-0/", "__consumer_offsets-2/"
GIANTS = [
    *((KAFKA, f"{_METADATA}{name}") for name in ("00000000000000000192.snapshot", "leader-epoch-checkpoint")),
    *((KAFKA, f"{_OFFSETS}{name}") for name in ("00000000000000000000.txnindex", "partition.metadata")),
    (KAFKA, "meta.properties"), (KAFKA, "replication-offset-checkpoint"), (KAFKA, f"{_METADATA}quorum-state"),
    (ROCKETMQ, "checkpoint"), (ROCKETMQ, "timerlog/00000000000000000000"), (ROCKETMQ, "timerwheel"),
    (ROCKETMQ, "config/topics.json"), (ROCKETMQ, "config/consumerOffset.json"), (ROCKETMQ, "lock"),
]  # fmt: skip
CIRCLES = [
    *((KAFKA, f"{_METADATA}{name}") for name in ("00000000000000000000.index", "00000000000000000000.log")),
    *((KAFKA, f"{_METADATA}{name}") for name in ("leader-epoch-checkpoint", "quorum-state", "partition.metadata")),
    (KAFKA, "meta.properties"), (KAFKA, _METADATA.rstrip("/")),
    (ROCKETMQ, "checkpoint"), (ROCKETMQ, "lock"), (ROCKETMQ, "config/topics.json"), (ROCKETMQ, "consumequeue"),
    (ROCKETMQ, "batchconsumequeue"), (ROCKETMQ, "config"), (ROCKETMQ, "index"), (ROCKETMQ, "timerlog"),
]  # fmt: skip


def replaced(name: str, file: str, target: Path) -> Path:
    """A copy of a golden store in which a name is free."""
    root = golden.unpack(name, target)
    if (root / file).is_dir():
        shutil.rmtree(root / file)
    else:
        (root / file).unlink(missing_ok=True)
    return root


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing says how much memory a process has used")
@pytest.mark.parametrize("command", ["info", "verify", "recover", "repair"])
@pytest.mark.parametrize(("name", "file"), GIANTS)
def test_a_hole_of_10_gib_in_the_place_of_a_small_file(name: str, file: str, command: str, tmp_path: Path) -> None:
    root = replaced(name, file, tmp_path / "store")
    with (root / file).open("wb") as giant:
        giant.truncate(GIANT)
    call = [sys.executable, "-c", _RUN, command, str(root)]
    done = subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    assert b"Traceback" not in done.stderr
    assert int(done.stderr.split()[-1]) < MOST


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing says how much memory a process has used")
@pytest.mark.parametrize("name", ["IDENTITY", "OPTIONS-000007", "CURRENT"])
def test_a_hole_in_the_place_of_a_text_of_rocksdb(name: str, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    root = golden.unpack("5.5.0-rdbcq-clean", tmp_path)
    os.truncate(root / "consumequeue_rocksdb" / name, GIANT)
    call = [sys.executable, "-c", _RUN, "topics", str(root)]
    done = subprocess.run(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert b"Traceback" not in done.stderr
    assert int(done.stderr.split()[-1]) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("command", ["info", "verify", "recover"])
@pytest.mark.parametrize(("name", "file"), CIRCLES)
def test_a_link_to_itself(name: str, file: str, command: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = replaced(name, file, tmp_path / "store")
    (root / file).symlink_to(os.path.basename(file))
    done = rmqctl(command, str(root))
    assert done.exit_code in {0, 1}, done.output
    if command == "verify":
        assert file in done.output


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for name, file in CIRCLES if name == KAFKA])
def test_repair_of_a_link_to_itself(file: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = replaced(KAFKA, file, tmp_path / "store")
    (root / file).symlink_to(os.path.basename(file))
    done = rmqctl("repair", str(root))
    assert done.exit_code in {0, 1}, done.output


@pytest.mark.slow
@pytest.mark.parametrize("file", ["consumequeue", "batchconsumequeue", "config", "index"])
def test_repair_of_a_directory_that_is_a_link_to_itself(file: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = replaced(ROCKETMQ, file, tmp_path / "store")
    (root / file).symlink_to(file)
    done = rmqctl("repair", str(root))
    assert done.exit_code == 13
    assert f"{file}: no directory, and one is to be made there; nothing was written; move it away" in done.stderr


def test_a_link_to_itself_as_the_store(rmqctl: Rmqctl, tmp_path: Path) -> None:
    (tmp_path / "store").symlink_to("store")
    done = rmqctl("info", str(tmp_path / "store"))
    assert done.exit_code == 10
    assert "leads back to itself" in done.stderr


@pytest.mark.parametrize(
    "words",
    ["verify @ -o jsonl", "report @ OUT.json", "report @ OUT.html", "bundle @ OUT.tar.zst", "sql @ select*from(findings) -o jsonl",
     "watch @ --once --state OUT.state"],
)  # fmt: skip
def test_a_file_whose_name_is_not_utf8(words: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(KAFKA, tmp_path)
    (root / "plain-none-0" / "00000000000000000050.index").rename(root / "plain-none-0" / "\udcff\x1b[2J.index")
    line = [word.replace("@", str(root)).replace("OUT", str(tmp_path / "out")) for word in words.split()]
    for _ in range(2 if "watch" in words else 1):
        done = rmqctl(*line)
        assert done.exit_code in {0, 1}, done.output
        assert "\x1b" not in done.output
