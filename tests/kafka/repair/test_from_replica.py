"""Repairs that take bytes from replicas: whole segments, and ends of logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import golden
from tests.conftest import Rmqctl
from tests.kafka.salvage.salvage_helpers import one, partition

NAME = "txn-a-0"


def disks(room: Path, base: str) -> tuple[Path, list[Path]]:
    """A log directory, and two replicas of all that is in it."""
    first, *others = [golden.unpack(base, room / name) for name in "abc"]
    return first, others


def logs(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / NAME).glob("*.log"))}


@pytest.mark.parametrize("base", ["4.3.1-clean", "4.3.1-crash"])
@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 2), (1, 1), (1, 2)])
def test_segments_of_which_no_file_is_left_come_back(
    base: str, first: int, count: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root, others = disks(tmp_path, base)
    sound = logs(root)
    for name in list(sound)[first : first + count]:
        for path in (root / NAME).glob(f"{name.removesuffix('.log')}.*"):
            path.unlink()
    assert rmqctl("repair", root, "--from", others[0], "--from", others[1], "--apply").exit_code == 0
    assert logs(root) == sound
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert [row for row in rows if row.get("severity") in {"error", "warning"} and NAME in row["file"]] == []


def frames(data: bytes) -> list[int]:
    """Where batches begin."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    return found


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("base", ["4.3.1-clean", "4.3.1-crash"])
def test_batches_that_were_taken_out_of_a_file_come_back(
    base: str, number: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root, others = disks(tmp_path, base)
    sound = logs(root)
    path = root / NAME / list(sound)[1]
    data = path.read_bytes()
    at = frames(data)
    path.write_bytes(data[: at[number]] + data[at[number + 3] :])
    rmqctl("repair", root, "--from", others[0], "--apply")
    assert logs(root) == sound


@pytest.mark.parametrize("base", ["4.3.1-clean", "4.3.1-crash"])
@pytest.mark.parametrize(
    ("ahead", "count", "kept", "zeros"),
    [(0, 1, 61, 0), (0, 2, 61, 4000), (2, 1, 61, 0), (2, 1, 100, 0), (0, 1, 61, -9)],
)
def test_last_batch_of_which_the_header_is_left_comes_back(
    base: str, ahead: int, count: int, kept: int, zeros: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """Zeros follow where a crash came before the file system had written the pages, or in room that was preallocated.

    Args:
        ahead: batches that the replicas have after the last one.
        count: batches of which the first one has its header.
        zeros: more, or fewer, than those had.
    """
    root, others = disks(tmp_path, base)
    path = root / NAME / list(logs(root))[-1]
    at = [*frames(path.read_bytes()), path.stat().st_size]
    path.write_bytes(path.read_bytes()[: at[-1 - ahead]])
    sound = logs(root)
    data = path.read_bytes()
    path.write_bytes(data[: at[-1 - ahead - count] + kept].ljust(len(data) + zeros, b"\0"))
    rmqctl("repair", root, "--from", others[0], "--from", others[1], "--apply")
    assert logs(root)[path.name][: len(data)] == sound[path.name]


@pytest.mark.parametrize("base", ["4.3.1-clean", "4.3.1-crash"])
@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("kept", [1, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 40, 70))])
def test_batch_that_is_torn_off_is_finished_from_a_replica(
    base: str, ahead: int, kept: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    """Of what is torn so short that it looks like zeros, too, none is given up."""
    root, others = disks(tmp_path, base)
    path = root / NAME / list(logs(root))[-1]
    sound = path.read_bytes()
    path.write_bytes(sound[: frames(sound)[-ahead] + kept])
    done = json.loads(rmqctl("repair", root, "--from", others[0], "--apply", "-o", "json").stdout)
    assert path.read_bytes() == sound
    assert (done["summary"]["loses"], [s for s in done["steps"] if s["what"].startswith("end the file")]) == (0, [])


@pytest.mark.parametrize("zeros", [1, 12, 4096])
def test_end_of_which_zeros_are_left_is_kept_by_a_placeholder(zeros: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    path = root / NAME / list(logs(root))[-1]
    data = path.read_bytes()
    path.write_bytes(data[: frames(data)[-2]] + bytes(zeros))
    rmqctl("repair", root, "--apply")
    made = path.read_bytes()
    assert made[: frames(data)[-2]] == data[: frames(data)[-2]]
    last = frames(made)[-1]
    end = int.from_bytes(made[last : last + 8], "big") + int.from_bytes(made[last + 23 : last + 27], "big")
    at = frames(data)[-1]
    assert end == int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : at + 27], "big")


@pytest.mark.parametrize("is_clean", [False, True])
def test_only_batch_of_which_the_header_is_left_comes_back(is_clean: bool, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, *others = [partition(tmp_path / name, "t-0", [one(0, text=b"v" * 90)]) for name in "abc"]
    path = root / f"t-0/{0:020d}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:61].ljust(len(sound), b"\0"))
    if is_clean:
        (root / ".kafka_cleanshutdown").touch()
    rmqctl("repair", root, "--from", others[0], "--from", others[1], "--apply")
    assert path.read_bytes() == sound


@pytest.mark.parametrize("base", ["4.3.1-crash", "3.9.2-crash"])
@pytest.mark.parametrize("count", [1, 2])
def test_emptied_segments_of_a_compacted_log_are_found_and_come_back(
    base: str, count: int, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    root, others = disks(tmp_path, base)
    files = sorted((root / "compacted-0").glob("*.log"))[:-1]
    sound = {path: path.read_bytes() for path in files}
    emptied = [path for path in files if sound[path]][1 : 1 + count]
    for path in emptied:
        path.write_bytes(b"")
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    wrong = [row for row in rows if row.get("severity") == "error" and row["file"].startswith("compacted-0/")]
    assert [(row["id"], "its indexes have entries" in row["message"]) for row in wrong] == [("segment.emptied", True)]
    assert rmqctl("repair", root, "--from", others[0], "--apply").exit_code == 0
    assert {path: path.read_bytes() for path in files} == sound
