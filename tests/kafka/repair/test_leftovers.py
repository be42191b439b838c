"""What repair takes from files that a broker left over, and what it only names: it cut some off, deleted or compacted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, message, record


def one(offset: int, value: bytes = b"value", epoch: int = 0) -> bytes:
    return batch(offset, [record(0, b"%d" % offset, value)], partition_leader_epoch=epoch)


def run(first: int, beyond: int, value: bytes = b"value", epoch: int = 0) -> bytes:
    return b"".join(one(offset, value, epoch) for offset in range(first, beyond))


def named(base: int, ending: str) -> str:
    return f"{base:020d}{ending}"


def made(root: Path, files: Mapping[str, bytes], epochs: str = "0 0", **checkpoints: int) -> Path:
    """Make a log directory with one partition, with the end of its log in the checkpoints."""
    (root / "t-0").mkdir(parents=True)
    (root / "meta.properties").write_text("broker.id=0\nversion=0\ncluster.id=5L6g3nShT-eMCtK--X86sw\n")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    for name in ("replication", "recovery-point", "cleaner", "log-start"):
        offset = checkpoints.get(name.replace("-", "_"))
        entries = "0\n" if offset is None else f"1\nt 0 {offset}\n"
        (root / f"{name}-offset-checkpoint").write_text(f"0\n{entries}")
    for name, data in files.items():
        (root / "t-0" / name).write_bytes(data)
    entries = epochs.split(", ") if epochs else []
    (root / "t-0/leader-epoch-checkpoint").write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    return root


def repaired(rmqctl: Rmqctl, root: Path, *more: str | Path) -> list[dict[str, Any]]:
    outcome = rmqctl("repair", root, *more, "--apply", "-o", "json")
    assert outcome.exit_code in {0, 1}, outcome.output
    plan = json.loads(outcome.stdout)
    return [*plan["steps"], *plan["left"]]


OLD = named(0, ".log.deleted")


@pytest.mark.parametrize(
    ("log_start", "used", "end", "epochs"),
    [
        pytest.param(55, [50], 60, "0 0", id="DeleteRecords went past it"),
        pytest.param(0, [50], 60, "0 0", id="retention took it"),
        pytest.param(45, [50], 60, "0 0", id="part of it was the log once"),
        pytest.param(0, [50], 50, "0 0", id="a segment came after it"),
        pytest.param(0, [0, 50], 60, "0 0", id="the end is not in it"),
        pytest.param(0, [], 50, "0 0", id="nothing says that it was in use"),
        pytest.param(0, [0], 50, "0 0, 3 20", id="another leader wrote there"),
        pytest.param(0, [0], 50, "", id="no leader epoch is known"),
    ],
)
def test_a_log_does_not_come_back_from_a_file_that_is_not_proven_to_be_it(
    log_start: int, used: list[int], end: int, epochs: str, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    files = {OLD: run(0, 50)} | {named(base, ".index"): b"" for base in used}
    root = made(tmp_path / "d", files, epochs, replication=end, recovery_point=end, log_start=log_start)
    before = {file.name: file.read_bytes() for file in root.glob("*-checkpoint")}
    (step,) = (step for step in repaired(rmqctl, root) if step["id"] == "directory.lost-log")
    assert step["what"].startswith("left as it is")
    is_named = f"; t-0/{OLD} has offsets {log_start} to 49, which a broker may have cut off" in step["why"]
    assert is_named == (log_start < 50), "below the log start nothing is wanted back"
    assert ".deleted" not in step["why"].partition("copy it as ")[2], "the copy has the name of a segment"
    assert not list((root / "t-0").glob("*.log"))
    assert {file.name: file.read_bytes() for file in root.glob("*-checkpoint")} == before


def test_a_log_comes_back_from_files_that_prove_to_be_it(rmqctl: Rmqctl, tmp_path: Path) -> None:
    files = {OLD: run(0, 50), named(50, ".log.deleted"): run(50, 60, epoch=2)}
    files |= {named(0, ".index"): b"", named(50, ".index"): b""}
    root = made(tmp_path / "d", files, "0 0, 2 50", replication=60, recovery_point=60)
    repaired(rmqctl, root)
    assert [file.read_bytes() for file in sorted((root / "t-0").glob("*.log"))] == [run(0, 50), run(50, 60, epoch=2)]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_compacted_log_comes_back_from_one_file_that_reaches_its_end(
    is_alone: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    files = {named(0, ".log.cleaned"): run(0, 50), named(0, ".index"): b""}
    files |= {} if is_alone else {named(50, ".log.deleted"): run(50, 60), named(50, ".index"): b""}
    end = 50 if is_alone else 60
    repaired(rmqctl, root := made(tmp_path / "d", files, replication=end, recovery_point=end, cleaner=20))
    assert [file.read_bytes() for file in (root / "t-0").glob("*.log")] == ([run(0, 50)] if is_alone else [])


def test_old_messages_of_no_leader_epoch_come_back(rmqctl: Rmqctl, tmp_path: Path) -> None:
    data = b"".join(message(offset, b"k", b"value", magic=1) for offset in range(5))
    files = {named(0, ".log.cleaned"): data, named(0, ".index"): b""}
    root = made(tmp_path / "d", files, "", replication=5, recovery_point=5)
    (root / "t-0/leader-epoch-checkpoint").unlink()
    repaired(rmqctl, root)
    assert (root / "t-0" / named(0, ".log")).read_bytes() == data


def test_a_replica_goes_before_files_that_a_broker_left_over(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """It has fewer batches, and all records; of two replicas the one that reaches farther is taken."""
    files = {OLD: run(0, 60), named(0, ".index"): b""}
    root = made(tmp_path / "d", files, replication=60, recovery_point=60)
    whole = batch(0, [record(n, b"key", b"value") for n in range(50)]) + run(50, 60)
    full = made(tmp_path / "full", {named(0, ".log"): whole}, replication=60)
    short = made(tmp_path / "short", {named(0, ".log"): run(0, 55)}, replication=55)
    repaired(rmqctl, root, "--from", short, "--from", full)
    assert (root / "t-0" / named(0, ".log")).read_bytes() == whole


@pytest.mark.parametrize(
    ("before", "after", "epochs", "is_restored"),
    [
        pytest.param(0, 1, "0 40, 1 50", False, id="cut off"),
        pytest.param(0, 1, "0 40, 1 56", True, id="of the epoch there"),
        pytest.param(0, 0, "", True, id="the same epoch around"),
        pytest.param(0, 1, "", False, id="unknown epochs, another one after"),
    ],
)
@pytest.mark.parametrize("gone", ["batch", "segment"])
def test_batches_of_another_leader_epoch_stay_where_they_are(
    gone: str, before: int, after: int, epochs: str, is_restored: bool, rmqctl: Rmqctl, tmp_path: Path
) -> None:
    left = run(50, 56, b"other")
    destroyed = bytearray(left)
    destroyed[5:-3] = b"\xa5" * (len(left) - 8)
    lost = b"" if gone == "segment" else bytes(destroyed)
    files = {named(40, ".log"): run(40, 50, epoch=before), named(50, ".log"): lost}
    files |= {named(56, ".log"): run(56, 60, epoch=after), named(50, ".log.deleted"): left}
    root = made(tmp_path / "d", files, epochs, replication=60, recovery_point=60)
    steps = repaired(rmqctl, root)
    assert ((root / "t-0" / named(50, ".log")).read_bytes() == left) == is_restored
    assert sum(step["loses"] for step in steps) == (0 if is_restored else 6)
    mended = next(step for step in steps if "bridge" in step["what"] or "restore" in step["what"])
    wanted = not is_restored and not epochs  # where they are known, they say that it is another history
    assert ("copy it as" in mended["why"]) == wanted


@pytest.mark.parametrize("damage", ["zeros", "value"])
def test_a_compacted_log_gets_no_record_back_that_was_cleaned(damage: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Only the batch whose header is still there: a value of the others may have been deleted by a later tombstone."""
    kept = [one(offset) for offset in (2, 5, 9, 14, 19)]
    whole, size = b"".join(kept), len(kept[0])
    data = bytearray(whole)
    data[2 * size + (61 if damage == "value" else 0) : 3 * size] = bytes(size - (61 if damage == "value" else 0))
    files = {named(0, ".log"): bytes(data), named(20, ".log"): run(20, 22), OLD: run(0, 20)}
    if damage == "value":  # else no batch there is as the one that is destroyed
        files[OLD] = run(0, 9) + one(9) + run(10, 20)
    root = made(tmp_path / "d", files, replication=22, recovery_point=22, cleaner=20)
    steps = repaired(rmqctl, root)
    mended = next(step for step in steps if "bridge" in step["what"] or "restore" in step["what"])
    assert "bridge" in mended["what"]
    assert f"t-0/{OLD} has offsets 6 to 13, which a broker may have cut off, deleted or compacted" in mended["why"]
    log = (root / "t-0" / named(0, ".log")).read_bytes()
    assert log[: 2 * size] + log[-2 * size :] == whole[: 2 * size] + whole[-2 * size :]
    assert all(one(offset) not in log for offset in range(6, 14))


def test_a_cleaned_copy_of_a_torn_end_is_named_as_a_segment(rmqctl: Rmqctl, tmp_path: Path) -> None:
    torn = run(0, 5) + one(5)[:-7]
    files = {named(0, ".log"): torn, named(0, ".log.cleaned"): run(0, 8)}
    root = made(tmp_path / "d", files, "", replication=5, recovery_point=0)
    (root / ".kafka_cleanshutdown").unlink()
    (step,) = (step for step in repaired(rmqctl, root) if "end the file" in step["what"])
    assert f"copy it as t-0/{named(0, '.log')} into" in step["why"]


def test_a_damaged_copy_beside_the_log_that_is_moved_out_is_no_loss(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log, copy = run(0, 9), bytearray(run(0, 9))
    copy[70] ^= 1
    root = made(
        tmp_path / "logs", {named(0, ".log"): log, named(0, ".log.swap"): bytes(copy), named(9, ".log"): run(9, 12)}
    )
    planned = json.loads(rmqctl("repair", root, "-o", "json").stdout)
    assert [(step["id"], step["what"]) for step in planned["steps"]][:1] == [("directory.swap", "move out")]
    assert (planned["summary"]["loses"], planned["summary"]["books"]["balances"]) == (0, True)


def test_a_last_segment_with_a_leader_epoch_of_its_own_comes_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The entry of that epoch lies after the end of the log meanwhile, and goes before its batches are back."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    last = root / "plain-none-1" / named(89, ".log")
    whole = last.read_bytes()
    last.rename(last.with_name(named(89, ".log.deleted")))
    assert sum(step.get("loses", 0) for step in repaired(rmqctl, root)) == 0
    assert whole in b"".join(path.read_bytes() for path in sorted(last.parent.glob("*.log")))
    assert (last.parent / "leader-epoch-checkpoint").read_text().split("\n")[-2] == "4 114"
