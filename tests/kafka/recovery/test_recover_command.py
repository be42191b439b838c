"""`recover` of log directories as users and scripts see it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import LogDirectories, read_directory
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.release import Release
from tests.conftest import Rmqctl

KEYS = ["release", "starts", "error", "scan", "partitions", "lost", "offline", "hidden", "unknown"]
CHANGES = ("deleted_files", "created_files", "changed_files")
PARTITION_KEYS = [
    "log_start_offset", "log_end_offset", "segments", "recovered_segments", "stopped_by", "deleted_files",
    "created_files", "changed_files", "lost",
]  # fmt: skip


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A crashed directory with a flipped bit in the middle of the last segment of a partition."""
    root = golden.unpack("4.3.1-crash", tmp_path)
    edit = {"op": "xor", "file": "plain-none-0/00000000000000000094.log", "offset": 1295, "hex": "10"}
    kafka_damage.apply([edit], root)
    return root


def _document(rmqctl: Rmqctl, *line: object, exit_code: int) -> dict[str, Any]:
    done = rmqctl("recover", *line, "-o", "json")
    assert done.exit_code == exit_code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_document_of_a_log_that_is_cut(rmqctl: Rmqctl, cut: Path) -> None:
    found = _document(rmqctl, cut, exit_code=1)
    assert list(found) == KEYS
    assert (found["release"], found["starts"], found["error"], found["offline"]) == ("4.3.1", True, None, False)
    partition = found["partitions"]["plain-none-0"]
    assert list(partition) == PARTITION_KEYS
    assert partition["stopped_by"]["id"] == "batch.crc"
    assert partition["stopped_by"]["file"] == "plain-none-0/00000000000000000094.log"
    assert partition["recovered_segments"] == [94]
    assert partition["deleted_files"] == ["00000000000000000124.snapshot"]
    assert partition["created_files"] == ["00000000000000000118.snapshot"]
    assert partition["lost"] == {"records": 139 - 118, "bytes": 2319 - 1225}
    assert found["lost"] == {
        **partition["lost"],
        "by_topic": {"plain-none": 21},
        "by_partition": {"plain-none-0": 21},
    }


def test_a_name_above_the_largest_offset_keeps_a_broker_from_starting(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-crash", tmp_path)
    name = "plain-none-0/18446744073709551615.log"
    (root / name).write_bytes(b"")
    found = _document(rmqctl, root, exit_code=1)
    assert (found["starts"], found["offline"]) == (False, False)
    assert 'NumberFormatException: For input string: "18446744073709551615"' in found["error"]
    lines = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    assert [row["file"] for row in lines if row.get("id") == "directory.file-name"] == [name]
    assert rmqctl("rebuild", root).exit_code == 0
    assert name in rmqctl("repair", root, "-o", "json").stdout


def test_nothing_on_disk_changes(rmqctl: Rmqctl, cut: Path) -> None:
    before = _files(cut)
    rmqctl("recover", cut)
    assert _files(cut) == before


def test_lost_batches_are_listed_as_dump_does(rmqctl: Rmqctl, cut: Path) -> None:
    done = rmqctl("recover", cut, "--list-lost", "-o", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == ["batch"] * len(rows)
    assert (rows[0]["base_offset"], rows[-1]["last_offset"]) == (118, 138)
    assert not rows[0]["crc_ok"]
    assert sum(row["count"] for row in rows) == 21


def test_a_start_that_fails_has_no_partitions(rmqctl: Rmqctl, cut: Path) -> None:
    (cut / "recovery-point-offset-checkpoint").write_text("garbage\n")
    found = _document(rmqctl, cut, exit_code=1)
    assert (found["starts"], found["offline"], found["partitions"]) == (False, True, {})
    assert "recovery-point-offset-checkpoint" in found["error"]


def test_stray_directories_are_marked(rmqctl: Rmqctl, cut: Path) -> None:
    (cut / "unknown-topic-0").mkdir()
    found = _document(rmqctl, cut, exit_code=1)
    assert [key for key, partition in found["partitions"].items() if partition.get("stray")] == ["unknown-topic-0"]


def test_a_sound_directory_loses_nothing(rmqctl: Rmqctl) -> None:
    for name in golden.KAFKA_NAMES:
        found = _document(rmqctl, golden.pristine(name), exit_code=0)
        assert found["release"] == name.partition("-")[0]
        assert found["lost"] == {"records": 0, "bytes": 0, "by_topic": {}, "by_partition": {}}


def test_comparison_has_a_row_for_each_family(rmqctl: Rmqctl, cut: Path) -> None:
    done = rmqctl("recover", cut, "--compare", "-o", "json")
    assert done.exit_code == 1
    rows = json.loads(done.stdout)
    found = [(row["release"], row["starts"], row["lost_records"]) for row in rows]
    assert found == [("2.8.2", True, 21), ("3.9.2", False, 0), ("4.3.1", True, 21), ("4.4.0", True, 21)]
    assert [row["error"] for row in rows] == [
        "__cluster_metadata",  # a broker of the preview begins a metadata log of its own, and does without this one
        "feature metadata.version has level 30, and 3.9.2 supports 1 to 21",
        None,
        None,
    ]


def test_apply_leaves_nothing_to_do_and_undo_takes_all_back(rmqctl: Rmqctl, cut: Path) -> None:
    (cut / "plain-none-0" / "00000000000000000050.log.deleted").write_bytes(b"left over")
    before = _files(cut)
    applied = rmqctl("recover", cut, "--apply", "--yes")
    assert applied.exit_code == 1  # it loses records
    assert "would still" not in applied.stderr and "does not start" not in applied.stderr
    again = _document(rmqctl, cut, exit_code=0)
    assert [key for key, partition in again["partitions"].items() if any(partition[k] for k in CHANGES)] == []
    assert "plain-none-0/00000000000000000050.log.deleted" not in _files(cut)
    assert rmqctl("undo", cut, "--yes").exit_code == 0
    assert _files(cut) == before


def _files(root: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_settings_of_the_broker_decide_the_room_of_active_indexes(rmqctl: Rmqctl, tmp_path: Path) -> None:
    conf = tmp_path / "server.properties"
    conf.write_text("log.index.size.max.bytes=65536\n")
    clean = golden.pristine("4.3.1-clean")
    (start,) = [v for v in golden.recovery_oracle("4.3.1")["variants"] if v["variant"] == "clean/none"]
    told = start["changes"]["plain-none-0"]["changed"]
    replicas = Replicas(LogDirectories([read_directory(LocalTree(str(clean)))]))
    found = recover(replicas, Release(4, 3, 1), {"log.index.size.max.bytes": "65536"})
    (partition,) = [p for p in found.partitions if p.key == "plain-none-0"]
    for name in ("00000000000000000094.index", "00000000000000000094.timeindex"):
        assert partition.loaded.files.size(name) == told[name]["after"]["size"]
    assert _document(rmqctl, clean, "--broker-conf", conf, exit_code=0)["starts"]


def test_apply_after_an_orderly_stop_leaves_marker_and_trimmed_indexes(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "plain-none-0" / "00000000000000000050.index").unlink()
    assert rmqctl("recover", root, "--apply", "--yes").exit_code == 0
    assert (root / ".kafka_cleanshutdown").exists()
    assert (root / "plain-none-0" / "00000000000000000050.index").stat().st_size % 8 == 0
    pristine = golden.pristine("4.3.1-clean") / "plain-none-0" / "00000000000000000094.index"
    assert (root / "plain-none-0" / pristine.name).read_bytes() == pristine.read_bytes()
    done = rmqctl("recover", root, "--apply", "--yes")
    assert "nothing to do" in done.stderr


def test_partitions_that_go_out_of_service_are_said_first(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "plain-none-1" / "partition.metadata").unlink()
    done = rmqctl("recover", root)
    assert done.exit_code == 1
    assert done.stdout.startswith("A 4.3.1 broker starts, loses nothing and takes 1 partition out of service\n")
    assert "renamed to -stray: it has no partition.metadata that names its topic id" in " ".join(done.stdout.split())
    *_, last = map(json.loads, rmqctl("recover", root, "-o", "jsonl").stdout.splitlines())
    assert (last["kind"], last["starts"], last["lost"]["records"]) == ("summary", True, 0)
    batches = [row for row in golden.truth("4.3.1-clean") if row["t"] == "batch"]
    held = sum(
        row["count"] for row in batches if row["file"].startswith("plain-none-1/") and row["file"].endswith(".log")
    )
    assert last["hidden"]["records"] == held > 0


def test_json_lines_say_why_a_broker_does_not_start(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    (root / "meta.properties").unlink()
    done = rmqctl("recover", root, "-o", "jsonl")
    assert done.exit_code == 1
    (summary,) = map(json.loads, done.stdout.splitlines())
    assert (summary["kind"], summary["starts"], summary["offline"]) == ("summary", False, False)
    assert "meta.properties" in summary["error"]


def test_a_metadata_snapshot_without_bytes_ends_the_start(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A 3.9.2 broker exits; the log is whole from offset 0, so that it starts again without the file."""
    root = golden.unpack("3.9.2-clean", tmp_path)
    snapshot = max((root / "__cluster_metadata-0").glob("*.checkpoint"))
    snapshot.write_bytes(b"")
    found = _document(rmqctl, root, "--as-release", "3.9.2", exit_code=1)
    assert found["starts"] is False
    assert snapshot.name in found["error"] and "no batch (0 bytes)" in found["error"]
    rows = [json.loads(line) for line in rmqctl("verify", root, "-o", "jsonl").stdout.splitlines()]
    named = [row["file"] for row in rows if row.get("id") == "metadata.replay"]
    assert f"__cluster_metadata-0/{snapshot.name}" in named
    assert rows[-1]["start"]["starts"] is False
    only = ("--only", "metadata.replay", "--apply", "--yes")
    rmqctl("repair", root, *only)
    assert not snapshot.exists()
    assert _document(rmqctl, root, exit_code=0)["starts"] is True


def test_without_the_metadata_log_nobody_knows_what_a_node_serves(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A 4.3.1 node that was its own controller renamed all 38 partitions to -stray."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    shutil.move(root / "__cluster_metadata-0", tmp_path / "kept")
    found = _document(rmqctl, root, exit_code=1)
    assert found["starts"] is True and "renames 38 partitions to -stray" in found["unknown"]
    assert rmqctl("recover", root).stdout.startswith("What a 4.3.1 broker serves here cannot be known: ")
    checked = json.loads(rmqctl("verify", root, "-o", "json").stdout)
    assert [row["file"] for row in checked["findings"] if row["severity"] == "error"] == ["__cluster_metadata-0/"]
    assert checked["start"]["unknown"] == found["unknown"]
    repair = rmqctl("repair", root)
    assert repair.exit_code == 1 and "nothing is wrong" not in repair.stdout
    doctor = rmqctl("doctor", root)
    assert doctor.exit_code == 1 and "loses nothing" not in doctor.stdout
    assert "cannot be known" in " ".join(doctor.stdout.split())


def test_the_metadata_log_may_lie_in_another_directory_of_the_node(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, other = golden.unpack("4.3.1-clean", tmp_path), tmp_path / "other"
    other.mkdir()
    shutil.move(root / "__cluster_metadata-0", other / "__cluster_metadata-0")
    for name in (".kafka_cleanshutdown", "meta.properties"):
        shutil.copy(root / name, other / name)
    properties = other / "meta.properties"
    properties.write_text(properties.read_text().replace("B6NTxvZuSvW2fteR-oxp4Q", "C6NTxvZuSvW2fteR-oxp4Q"))
    found = _document(rmqctl, f"{root},{other}", exit_code=0)
    assert (found["unknown"], found["hidden"]["records"]) == (None, 0)
    assert rmqctl("verify", f"{root},{other}").exit_code == 0
    missing = "metadata.missing-log"
    assert missing in rmqctl("repair", root, "-o", "json").stdout
    assert missing not in rmqctl("repair", root, "--from", other, "-o", "json").stdout


def test_a_directory_that_was_only_formatted_lacks_nothing(rmqctl: Rmqctl, tmp_path: Path) -> None:
    shutil.copy(golden.pristine("4.3.1-clean") / "meta.properties", tmp_path)
    assert _document(rmqctl, tmp_path, exit_code=0)["unknown"] is None
    assert rmqctl("verify", tmp_path).exit_code == 0


def test_a_node_that_the_metadata_does_not_know_does_not_start(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Nodes of 3.9.2 and 4.3.1, as controller and as broker alone, wait for node 1 and rename nothing."""
    for name in ("3.9.2-clean", "4.3.1-clean"):
        root = golden.unpack(name, tmp_path)
        properties = root / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
        found = _document(rmqctl, root, exit_code=1)
        assert found["starts"] is False and "knows only node 1: such a node waits for controller 1" in found["error"]
        rows = json.loads(rmqctl("verify", root, "-o", "json").stdout)["findings"]
        assert [row["id"] for row in rows if row["severity"] == "error"] == ["directory.node-id"]


def test_another_cluster_id_in_one_directory_does_no_harm(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """No other file has it: a 3.9.2 node starts and serves all its partitions."""
    root = golden.unpack("3.9.2-clean", tmp_path)
    properties = root / "meta.properties"
    properties.write_text(properties.read_text().replace("AbCdEfGhQxSTU", "ZZZZEfGhQxSTU"))
    assert _document(rmqctl, root, exit_code=0)["hidden"]["records"] == 0
