"""The head of a notice says what it is about in words of whoever uses the store: queues, offsets, what a file keeps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.findings import all_kinds
from rmqctl.text import typed
from tests.conftest import Rmqctl


def _write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: [file.write_bytes(data) for file in (root / name, root / f"{name}.bak") if file.exists()]


def _cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:size])


def _cut_index(root: Path) -> None:
    for file in sorted((root / "index").iterdir())[:2]:
        file.write_bytes(b"")


def _zero(name: str, low: int, high: int) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.seek(low)
            file.write(bytes(high - low))

    return change


def _ghost(root: Path) -> None:
    file = root / "recovery-point-offset-checkpoint"
    version, count, *lines = file.read_text().splitlines()
    file.write_text("\n".join([version, str(int(count) + 1), *lines, "ghost 0 7"]) + "\n")


_QUEUE = "consumequeue/LabLog/0"
HEADS: list[tuple[str, Callable[[Path], object], str]] = [
    ("5.5.0-clean", _write("config/delayOffset.json", bytes(9)),
     "error  config.unreadable  how far delayed messages are delivered"),
    ("5.5.0-clean", _write("config/subscriptionGroup.json", b""),
     "error  config.unreadable  consumer groups and their settings"),
    ("5.5.0-clean", lambda root: (root / f"{_QUEUE}/00000000000000001000").unlink(), "error  queue.file-gap  LabLog/0"),
    ("5.5.0-clean", _cut(f"{_QUEUE}/00000000000000001000", 990), "error  queue.torn-unit  LabLog/0"),
    ("5.5.0-clean", _cut_index, "error  index.file-length  2 index files"),
    ("5.5.0-clean", _zero("timerlog/00000000000000000000", 60, 80), "error  timer.log  timer messages, 8 places"),
    ("5.5.0-clean", _zero("commitlog/00000000000000262144", 40960, 45056),
     "error  log.bad-record  14 messages of LabOrders in 4 queues"),
    ("5.5.0-clean", _zero("commitlog/00000000000000262144", 40929, 40937),
     "error  log.bad-record  LabOrders/0, offset 68"),
    ("5.5.0-clean", _zero("commitlog/00000000000000393216", 69632, 73728),
     "error  log.bad-record  12 messages in 6 queues: LabLog 9, LabOrders 3"),
    ("4.3.1-clean", _ghost, "note  checkpoint.unknown-partition  ghost-0"),
]  # fmt: skip
"""A golden store, what is done to a copy of it, and a head that its `verify` must have."""


@pytest.mark.parametrize(("name", "change", "head"), HEADS, ids=lambda value: value if isinstance(value, str) else "")
def test_heads(name: str, change: Callable[[Path], object], head: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    change(root)
    lines = rmqctl("verify", root).stdout.splitlines()
    assert head in [line for line in lines if line.startswith(("error", "warning", "note"))]


def test_files_of_a_partition_and_of_none_are_not_all_of_that_partition(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    for place in (root / "A", root / "txn-a-0" / "B"):  # the first one found is of no topic
        place.write_bytes(b"")
    done = rmqctl("verify", root, "--level", "quick")
    assert "note  directory.foreign-file  2 places: txn-a 1" in done.stdout.splitlines()


def test_what_repair_has_no_step_for_is_explained(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    shutil.move(root / "__cluster_metadata-0", tmp_path / "kept")
    shown = rmqctl("verify", root).stdout.splitlines()
    assert "  rmqctl explain metadata.missing-log" in shown
    assert shown[-1] == "Next: rmqctl explain metadata.missing-log"
    _zero("plain-none-0/00000000000000000000.log", 40, 50)(root)
    assert rmqctl("verify", root).stdout.splitlines()[-1].startswith("Next: rmqctl repair ")


@pytest.mark.parametrize("name", ["4.3.1-clean", "5.5.0-clean"])
def test_repair_has_no_step_for_what_is_mended_by_hand(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """All of what one store can have of it at once."""
    root = golden.unpack(name, tmp_path)
    if name.startswith("4"):
        for file in (root / "plain-none-0").glob("*.log"):
            file.unlink()
        properties = root / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
        ids = {"directory.lost-log", "directory.node-id"}
    else:
        for file in (root / "config").glob("consumerOffset.json*"):
            file.unlink()
        ids = {"config.no-offsets"}
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert {row["id"] for row in rows if row.get("severity") in {"error", "warning"}} == ids
    assert all(kind.by_hand for kind in all_kinds() if kind.id in ids)
    assert json.loads(rmqctl("repair", root, "-o", "json").stdout)["steps"] == []


def test_steps_that_heal_and_steps_that_give_up_are_two_notices(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    for name, at, data in (("idem-0", 187, b"\x01"), ("plain-none-0", 300, b"zz")):
        with (root / name / "00000000000000000000.log").open("r+b") as file:
            file.seek(at)
            file.write(data)
    text = rmqctl("repair", root).stdout
    assert "step 1  batch.crc  idem-0, offsets 1 to 7\n" in text
    assert "step 2  batch.crc  plain-none-0, offset 4\n" in text
    lost = text[text.index("step 2") :]
    assert "candidates tried" not in lost
    assert "because its CRC does not match" in lost


def test_a_command_to_type_after_a_start_can_be_pasted(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path).rename(tmp_path / "my store")
    assert f"type: rmqctl verify '{root}'" in " ".join(rmqctl("recover", root).stdout.split())


def test_a_command_to_type_is_one_line_that_a_shell_takes_for_what_it_is() -> None:
    words = ["a b", "it's", "a\n\x1b'\\\x07\u202eb", os.fsdecode(b"odd\xff"), "*", "", "\udcff\x01a"]
    line = typed(*words)
    assert line.isprintable()
    said = f"rmqctl() {{ printf '%s\\0' \"$@\"; }}; {line}"
    shell = subprocess.run(["bash", "-c", said], capture_output=True, check=True)
    assert [os.fsdecode(word) for word in shell.stdout.split(b"\0")[:-1]] == words
    assert typed("topics", "a b") == "rmqctl topics 'a b'"


def test_what_a_refusal_says_to_type_names_the_store(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.9.8-crash", tmp_path).rename(tmp_path / "my store")
    refused = rmqctl("repair", root, "--neutralize", 17)
    assert refused.stderr.endswith(f"; what is there: rmqctl dump '{root}' --from-offset 17\n")
    _zero("commitlog/00000000000000262144", 0, 8)(root)
    assert rmqctl("repair", root, "--only", "log.*", "--apply", "--yes").exit_code == 0
    assert rmqctl("undo", root).exit_code == 0
    assert rmqctl("undo", root).stderr.count(f"; rmqctl undo --list '{root}' shows them") == 1
