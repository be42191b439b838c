"""`diff` of log directories, partitions, segments and controllers that differ in known ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from formats.kafka.record_batch import Codec
from rmqctl.kafka.log.codecs import deflate
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, record
from tests.kafka.salvage.salvage_helpers import one, partition


def diff(rmqctl: Rmqctl, a: object, b: object, *more: object, exit_code: int = 1) -> tuple[list[str], dict[str, Any]]:
    done = rmqctl("diff", a, b, "-o", "json", *more)
    assert done.exit_code == exit_code, done.output
    found = json.loads(done.stdout)
    assert found["summary"]["different"] is bool(exit_code)
    return [finding["id"] for finding in found["findings"]], {**found["summary"], "rows": found["findings"]}


@pytest.mark.parametrize("name", golden.KAFKA_NAMES)
def test_directory_is_equal_to_itself(rmqctl: Rmqctl, name: str) -> None:
    ids, found = diff(rmqctl, golden.pristine(name), golden.pristine(name), exit_code=0)
    assert ids == []
    assert found["first_divergence"] == {}
    assert found["partitions"]["compared"] == found["partitions"]["equal"] > 20
    assert (found["metadata"] is None) == name.startswith("2.8.2")


def test_replica_that_lags_and_controllers_of_one_history(rmqctl: Rmqctl) -> None:
    ids, found = diff(rmqctl, golden.pristine("4.3.1-clean"), golden.pristine("4.3.1-crash"))
    assert set(ids) == {"diff.only-b"}
    assert found["first_divergence"]["plain-none-0"] == 124
    assert found["records"]["only_b"]["partitions"]["plain-none-0"] == {"from": 124, "to": 138, "records": 15}
    assert found["metadata"] == {"offset": 425, "end_a": 426, "end_b": 568, "differences": 0, "problem": None}


def test_controllers_that_part(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    log = root / f"__cluster_metadata-0/{0:020d}.log"
    data = log.read_bytes()
    at = data.index(b"retention.ms") - 40
    start = max(data.rfind(b"\xff" * 14, 0, at) - 43, 0)  # the header of the batch: producer fields are -1
    size = 12 + int.from_bytes(data[start + 8 : start + 12], "big")
    changed = bytearray(data[start : start + size])
    where = changed.index(b"retention.ms")
    changed[where : where + 12] = b"retention.mz"
    from crc32c import crc32c

    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    log.write_bytes(data[:start] + bytes(changed) + data[start + size :])
    for snapshot in root.glob("__cluster_metadata-0/*.checkpoint"):
        snapshot.unlink()
    other = golden.unpack("4.3.1-clean", tmp_path / "other")
    for snapshot in other.glob("__cluster_metadata-0/*.checkpoint"):
        snapshot.unlink()
    ids, found = diff(rmqctl, root, other)
    assert ids.count("diff.metadata") == 2
    assert "diff.record" in ids
    assert any(
        "config topic" in row["message"] and "retention.mz is only in A" in row["message"] for row in found["rows"]
    )


@pytest.mark.parametrize("kind", ["a bit", "cut"])
def test_controllers_with_a_damaged_snapshot_are_not_called_equal(kind: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("3.9.2-clean", tmp_path)
    snapshot = max(root.glob("__cluster_metadata-0/*.checkpoint"))
    data = snapshot.read_bytes()
    snapshot.write_bytes(data[:3000] if kind == "cut" else data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])
    for places, letter in (
        ((golden.pristine("3.9.2-clean"), root), "B"),
        ((root, golden.pristine("3.9.2-clean")), "A"),
    ):
        done = rmqctl("diff", *places)
        assert done.exit_code == 1
        assert (
            f"the metadata of the two was not compared at offset 393: {letter}: __cluster_metadata-0/{snapshot.name}"
            in " ".join(done.stdout.split())
        )
        assert done.stdout.endswith("A and B are equal where both could be compared\n")


def test_controller_whose_history_begins_after_the_other_ends_is_not_damaged(rmqctl: Rmqctl, tmp_path: Path) -> None:
    roots = [golden.unpack("4.3.1-clean", tmp_path / name) / "__cluster_metadata-0" for name in "ab"]
    data = (roots[0] / f"{0:020d}.log").read_bytes()
    places, at = dict[int, int](), 0
    while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")):
        places[int.from_bytes(data[at : at + 8], "big")] = at
        at += 12 + size
    lags = min(base for base in places if base >= 100)
    (roots[0] / f"{0:020d}.log").write_bytes(data[: places[lags]])
    for path in [*roots[0].glob("*.checkpoint"), *roots[1].glob(f"{0:020d}*"), *roots[1].glob(f"{192:020d}*")]:
        if not path.name.startswith(f"{0:020d}-") or path.parent == roots[1]:
            path.unlink()
    (roots[1] / f"{365:020d}.log").write_bytes(data[places[365] :])
    for places_given, letters in ((roots, "BA"), (roots[::-1], "AB")):
        done = rmqctl("diff", *(path.parent for path in places_given))
        told = f"the metadata of {letters[0]} begins at 365, after {letters[1]} ends at {lags}"
        assert (done.exit_code, told in " ".join(done.output.split())) == (1, True), done.output
        assert "damaged place" not in done.output


def test_flipped_bit_is_damage_on_one_side_and_the_batch_only_on_the_other(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    edit = {"op": "xor", "file": "plain-none-0/00000000000000000050.log", "offset": 700, "hex": "01"}
    kafka_damage.apply([edit], root)
    ids, found = diff(rmqctl, root, golden.pristine("4.3.1-clean"))
    assert ids == ["diff.only-b"]
    assert (found["a"]["damaged_places"], found["b"]["damaged_places"]) == (1, 0)
    assert "A's log has no sound batch there" in found["rows"][0]["message"]
    ids, _ = diff(rmqctl, root / "plain-none-0", Path(golden.pristine("4.3.1-clean")) / "plain-none-0")
    assert ids == ["diff.only-b"]
    ids, _ = diff(rmqctl, root / "plain-none-1", Path(golden.pristine("4.3.1-clean")) / "plain-none-1", exit_code=0)
    assert ids == []


def test_other_records_other_epochs_and_other_batches(rmqctl: Rmqctl, tmp_path: Path) -> None:
    records = [record(0, b"k", b"v"), record(1, b"k", b"w")]
    packed = deflate(Codec.GZIP, b"".join(records), None)
    a = [one(0), one(2), one(4), batch(6, records), one(8)]
    b = [one(0), one(2, text=b"x"), one(4, epoch=0), batch(6, records, packed, attributes=1), one(8, epoch=2)]
    left, right = partition(tmp_path / "a", "t-0", a), partition(tmp_path / "b", "copy", b)
    ids, found = diff(rmqctl, left / "t-0", right / "copy")
    assert ids == ["diff.record", "diff.batch", "diff.epoch"]
    assert found["first_divergence"] == {"t-0": 2}
    assert found["records"] | {"only_a": 0, "only_b": 0} == {
        "equal": 4, "changed": 2, "repacked": 2, "other_epoch": 2, "only_a": 0, "only_b": 0,
    }  # fmt: skip
    assert "part at offset 8" in found["rows"][2]["message"]
    assert diff(rmqctl, left / "t-0", right / "copy", "--by", "queue")[0] == ["diff.record", "diff.epoch"]
    assert diff(rmqctl, left / "t-0", right / "copy", "-n", "1")[0] == ["diff.record"]


def test_partitions_that_only_one_has_and_ids(rmqctl: Rmqctl, tmp_path: Path) -> None:
    a = partition(tmp_path / "a", "t-0", [one(0)])
    b = partition(tmp_path / "b", "t-0", [one(0)])
    for root, name in ((a, "u-1"), (b, "v-0")):
        (root / name).mkdir()
        (root / name / f"{0:020d}.log").write_bytes(one(0))
    for root, topic_id in ((a, "P5_r7Dr8-9Wa9toeWPBNsw"), (b, "GcUx6sMjIXSKFvb9VaNxdQ")):
        (root / "t-0/partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    ids, found = diff(rmqctl, a, b)
    assert ids == ["diff.topic-id", "diff.partition", "diff.partition"]
    assert found["partitions"] == {"compared": 1, "equal": 0, "only_a": 1, "only_b": 1}


def test_single_segments(rmqctl: Rmqctl, tmp_path: Path) -> None:
    for name, data in (("x", one(0) + one(2)), ("y", one(0))):
        (tmp_path / name).write_bytes(data)
    ids, found = diff(rmqctl, tmp_path / "x", tmp_path / "y")
    assert ids == ["diff.only-a"]
    assert found["records"]["only_a"]["records"] == 2
    source = Path(golden.pristine("4.3.1-clean")) / "plain-none-0"
    segments = sorted(path.name for path in source.glob("*.log"))
    ids, found = diff(rmqctl, source / segments[0], source / segments[1])
    assert ids == ["diff.only-a", "diff.only-b"]


def test_stores_of_two_families_are_refused(rmqctl: Rmqctl) -> None:
    assert rmqctl("diff", golden.pristine("4.3.1-clean"), golden.pristine("5.1.4-clean")).exit_code == 2


def test_copies_with_damage_that_was_not_compared_are_not_called_equal(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    edit = {"op": "xor", "file": "plain-none-0/00000000000000000050.log", "offset": 13, "hex": "01"}
    kafka_damage.apply([edit], root)  # a byte of the leader epoch, which no CRC covers
    done = rmqctl("diff", golden.pristine("4.3.1-clean"), root)
    assert (done.exit_code, "B: 1 damaged place, not compared" in done.stdout) == (1, True)
    assert done.stdout.endswith("A and B are equal where both could be compared\n")
