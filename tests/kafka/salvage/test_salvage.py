"""Salvaged log directories: every sound batch under its own offset, and nothing for a broker to mend."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden, kafka_damage
from rmqctl.errors import Refused, TooDamaged, WrongUsage
from rmqctl.kafka.store import KafkaStore
from rmqctl.opening import open_store
from rmqctl.release import Release
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, record
from tests.kafka.salvage.salvage_helpers import one, partition

SEGMENT = "plain-none-0/00000000000000000050.log"


def kafka(path: Path) -> KafkaStore:
    store = open_store(str(path))
    assert isinstance(store, KafkaStore)
    return store


def salvage(into: Path, *sources: Path, **options: Any) -> dict[str, Any]:
    answer = kafka(sources[0]).salvage(into, replicas=[kafka(path) for path in sources[1:]], **options)
    answer.prepare()
    assert answer.summary is not None
    return dict(answer.summary()) | {"is_no": answer.is_no}


def logs(root: Path) -> dict[str, bytes]:
    """The segments of partitions that have bytes, but not those of the metadata log."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.glob("*/*.log"))
        if path.stat().st_size and not path.parent.name.startswith("__cluster")
    }


def ends(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """First and end offset of each partition, as brokers answer."""
    return {(r["topic"], r["partition"]): (r["log_start_offset"], r["log_end_offset"]) for r in kafka(root).topics()}


def findings(root: Path) -> list[Any]:
    return [row for row in kafka(root).verify() if row["severity"] != "note"]


def starts_with_nothing_to_do(root: Path, release: Release) -> bool:
    found = kafka(root).recover(as_release=release, plan=True)
    assert found.plan is not None
    files = {edit.file for edit in found.plan.edits if not edit.file.startswith("__cluster_metadata")}
    return not found.is_no and files == set()


@pytest.mark.parametrize("name", ["4.3.1-clean", "3.9.2-clean", "4.3.1-crash"])
def test_sound_directory_comes_out_as_it_was(name: str, tmp_path: Path) -> None:
    source, into = Path(golden.pristine(name)), tmp_path / "into"
    release = Release.parse(name.partition("-")[0])
    summary = salvage(into, source)
    assert (summary["is_no"], summary["unreadable"], summary["holes"]) == (False, 0, [])
    wanted = {file: data for file, data in logs(source).items() if not file.split("/")[0].endswith("-delete")}
    assert logs(into) == wanted
    assert ends(into) == ends(source)
    assert findings(into) == []
    assert starts_with_nothing_to_do(into, release)
    before, after = kafka(source).replicas.image, kafka(into).replicas.image
    assert before is not None
    assert after is not None
    assert {n: i for n, i in before.topics.items() if n != "goner"} == after.topics
    assert {k: v for k, v in before.configs.items() if k[0] == "topic" and v} == {
        k: v for k, v in after.configs.items() if v
    }
    assert after.next_producer_id is not None
    assert after.next_producer_id >= (before.next_producer_id or 0)


def test_directory_of_the_time_of_zookeeper_is_served_with_kraft(tmp_path: Path) -> None:
    source, into = Path(golden.pristine("2.8.2-clean")), tmp_path / "into"
    summary = salvage(into, source)
    assert (summary["release"], summary["is_no"]) == ("3.9.2", False)
    assert ends(into) == ends(source)
    assert findings(into) == []
    assert starts_with_nothing_to_do(into, Release(3, 9, 2))


def test_deleted_topic_comes_back_on_request(tmp_path: Path) -> None:
    source, into = Path(golden.pristine("4.3.1-clean")), tmp_path / "into"
    salvage(into, source, deleted=True)
    found = {key: value for key, value in ends(into).items() if key[0] == "goner"}
    assert found == {("goner", 0): (0, 14), ("goner", 1): (0, 9)}
    gone = next(source.glob("goner-0.*-delete/*.log"))
    assert (into / "goner-0" / gone.name).read_bytes() == gone.read_bytes()


def test_records_after_damage_are_saved(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, into = golden.unpack("4.3.1-clean", tmp_path), tmp_path / "into"
    kafka_damage.apply([{"op": "xor", "file": SEGMENT, "offset": 700, "hex": "ff"}], root)
    done = rmqctl("salvage", root, into, "-o", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert [(row["id"], row["file"], row["source"]) for row in found["unreadable"]] == [
        ("batch.crc", SEGMENT, str(root))
    ]
    (hole,) = found["summary"]["holes"]
    assert (hole["topic"], hole["partition"]) == ("plain-none", 0)
    sound = (Path(golden.pristine("4.3.1-clean")) / SEGMENT).read_bytes()
    row = found["unreadable"][0]
    assert (into / SEGMENT).read_bytes() == sound[: row["offset"]] + sound[row["offset"] + row["size"] :]
    assert ends(into) == ends(Path(golden.pristine("4.3.1-clean")))
    assert starts_with_nothing_to_do(into, Release(4, 3, 1))
    assert "are missing" in rmqctl("salvage", root, tmp_path / "other").stdout


def test_replicas_fill_each_others_holes(tmp_path: Path) -> None:
    one_root, two = golden.unpack("4.3.1-clean", tmp_path / "1"), golden.unpack("4.3.1-clean", tmp_path / "2")
    kafka_damage.apply([{"op": "set", "file": SEGMENT, "offset": 300, "hex": "00" * 900}], one_root)
    kafka_damage.apply([{"op": "truncate", "file": SEGMENT, "size": 200}], two)
    (two / "txn-a-0/00000000000000000034.log").unlink()
    summary = salvage(tmp_path / "into", one_root, two)
    source = Path(golden.pristine("4.3.1-clean"))
    mine, others = logs(tmp_path / "into"), logs(source)
    assert summary["unreadable"] > 0
    assert mine["txn-a-0/00000000000000000034.log"] == others["txn-a-0/00000000000000000034.log"]
    assert ends(tmp_path / "into") == ends(source)
    assert summary["duplicates"] > 3000


def test_what_a_later_leader_has_overwritten_stays_out(tmp_path: Path) -> None:
    old = partition(tmp_path / "old", "t-0", [one(0), one(2), one(4, text=b"old"), one(6, text=b"old")], "0\n1\n0 0\n")
    new = partition(tmp_path / "new", "t-0", [one(0), one(2), one(4, epoch=1, text=b"new")], "0\n2\n0 0\n1 4\n")
    for name, sources in (("a", (old, new)), ("b", (new, old))):
        summary = salvage(tmp_path / name, *sources, as_release=Release(4, 3, 1))
        assert (tmp_path / name / f"t-0/{0:020d}.log").read_bytes() == one(0) + one(2) + one(4, epoch=1, text=b"new")
        assert (summary["superseded"], summary["records"]) == (4, 6)
        assert (tmp_path / name / "t-0/leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 4\n"


def test_leader_that_wrote_nothing_supersedes_nothing(tmp_path: Path) -> None:
    full = partition(tmp_path / "full", "t-0", [one(0), one(2)])
    empty = partition(tmp_path / "empty", "t-0", [], "0\n1\n7 0\n")
    summary = salvage(tmp_path / "into", empty, full, as_release=Release(4, 3, 1))
    assert (summary["superseded"], summary["records"]) == (0, 4)
    image = kafka(tmp_path / "into").replicas.image
    assert image is not None
    assert image.partitions_of("t")[0]["leaderEpoch"] == 7


def test_fields_that_no_crc_covers_are_set_right_by_their_neighbours(tmp_path: Path) -> None:
    sound = [one(0), one(2), one(4), one(6)]
    offset, epoch = bytearray(sound[1]), bytearray(sound[2])
    offset[2] ^= 0x10
    epoch[12] ^= 0x20
    root = partition(tmp_path / "from", "t-0", [sound[0], bytes(offset), bytes(epoch), sound[3]])
    summary = salvage(tmp_path / "into", root, as_release=Release(4, 3, 1))
    assert (tmp_path / "into" / f"t-0/{0:020d}.log").read_bytes() == b"".join(sound)
    assert (summary["unreadable"], summary["holes"], summary["left_out"]) == (2, [], 0)


def test_damaged_end_keeps_the_offsets_that_were_given(tmp_path: Path) -> None:
    torn = bytearray(one(4))
    torn[70] ^= 1
    root = partition(tmp_path / "from", "t-0", [one(0), one(2), bytes(torn)])
    (root / "replication-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    salvage(tmp_path / "into", root, as_release=Release(4, 3, 1))
    assert sorted(path.name for path in (tmp_path / "into/t-0").glob("*.log")) == [f"{0:020d}.log", f"{6:020d}.log"]
    assert ends(tmp_path / "into") == {("t", 0): (0, 6)}
    assert starts_with_nothing_to_do(tmp_path / "into", Release(4, 3, 1))


def test_end_that_is_missing_at_a_batch_keeps_the_offsets_that_were_given(tmp_path: Path) -> None:
    """Nothing shows that the last segment is damaged: its file was cut to nothing, or is lost."""
    roots = [partition(tmp_path / name, "t-0", [one(0), one(2)]) for name in "ab"]
    (roots[0] / f"t-0/{4:020d}.log").touch()
    (roots[0] / "replication-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    for number, sources in enumerate([roots, roots[::-1], roots[:1]]):
        into = tmp_path / str(number)
        summary = salvage(into, *sources, as_release=Release(4, 3, 1))
        assert ends(into) == {("t", 0): (0, 10)}
        assert (summary["is_no"], [(hole["from"], hole["to"]) for hole in summary["holes"]]) == (True, [(4, 9)])
        assert starts_with_nothing_to_do(into, Release(4, 3, 1))


@pytest.mark.parametrize("name", ["exchanged", "renamed"])
def test_segments_under_other_names_are_saved_whole(name: str, tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    paths = sorted((root / "plain-none-0").glob("*.log"))
    sound = [path.read_bytes() for path in paths]
    if name == "exchanged":
        paths[0].write_bytes(sound[1])
        paths[1].write_bytes(sound[0])
    else:
        paths[1].rename(paths[1].with_name(f"{1050:020d}.log"))
    summary = salvage(tmp_path / "into", root)
    into = sorted((tmp_path / "into/plain-none-0").glob("*.log"))
    assert b"".join(path.read_bytes() for path in into) == b"".join(sound)
    assert (summary["left_out"], summary["holes"]) == (0, [])


def test_a_log_whose_first_records_were_compacted_away_begins_where_it_did(tmp_path: Path) -> None:
    root = golden.unpack("4.3.1-clean", tmp_path)
    first = min((root / "compacted-0").glob("*.log"))
    for path in (root / "compacted-0").glob(f"{first.stem}.*"):
        path.write_bytes(b"")
    salvage(tmp_path / "into", root)
    assert ends(tmp_path / "into")["compacted", 0] == ends(root)["compacted", 0]
    assert ends(root)["compacted", 0][0] == int(first.stem)
    assert [row for row in findings(tmp_path / "into") if row["severity"] == "error"] == []


def test_loose_segments_need_the_name_of_their_partition(tmp_path: Path) -> None:
    loose = tmp_path / "volume"
    loose.mkdir()
    (loose / f"{0:020d}.log").write_bytes(one(0) + one(2))
    with pytest.raises(WrongUsage, match="--partition"):
        salvage(tmp_path / "into", loose, as_release=Release(4, 3, 1))
    assert not (tmp_path / "into").exists()
    salvage(tmp_path / "into", loose, as_release=Release(4, 3, 1), partition=("t", 3))
    assert ends(tmp_path / "into") == {("t", 0): (0, 0), ("t", 1): (0, 0), ("t", 2): (0, 0), ("t", 3): (0, 4)}


def test_topic_files_for_a_cluster_that_is_there(tmp_path: Path) -> None:
    source = Path(golden.pristine("4.3.1-clean"))
    salvage(tmp_path / "into", source / "idem-0", as_topic_files=True)
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["idem-0"]
    assert (tmp_path / "into/idem-0/partition.metadata").read_bytes() == (
        source / "idem-0/partition.metadata"
    ).read_bytes()


def test_targets_that_are_refused(tmp_path: Path, rmqctl: Rmqctl) -> None:
    source = partition(tmp_path / "from", "t-0", [one(0)])
    with pytest.raises(Refused, match="only read"):
        salvage(source / "inside", source)
    with pytest.raises(Refused, match="ZooKeeper"):
        salvage(tmp_path / "into", source, as_release=Release(2, 8, 2))
    assert not (tmp_path / "into").exists()
    assert rmqctl("salvage", source, tmp_path / "into", "--renumber").exit_code == 2
    (source / f"t-0/{0:020d}.log").write_bytes(b"\1" * 100)
    with pytest.raises(TooDamaged):
        salvage(tmp_path / "into", source, as_release=Release(4, 3, 1))


def test_selection_of_a_partition_takes_no_other(tmp_path: Path) -> None:
    source = Path(golden.pristine("4.3.1-clean"))
    salvage(tmp_path / "into", source / "idem-0")
    assert set(ends(tmp_path / "into")) == {("idem", 0), ("idem", 1)}


KEPT = ("plain-none-0", "txn-a-0", "compacted-0", "idem-1", "z-gzip-0", "deleted-rec-1", "__cluster_metadata-0")


def spoil(root: Path, draw: random.Random) -> None:
    """Random damage to random files of a directory."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and "__cluster" not in str(path))
    for path in draw.sample(files, draw.randrange(1, 12)):
        data = bytearray(path.read_bytes())
        at, size = draw.randrange(len(data) + 1), draw.choice([1, 4, 60, 700])
        match draw.randrange(7):
            case 0:
                data[at : at + size] = draw.randbytes(len(data[at : at + size]))
            case 1:
                data[at : at + size] = bytes(len(data[at : at + size]))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + size]
            case 4:
                data += draw.choice([bytes(size), draw.randbytes(size), bytes(data[at : at + size])])
            case 5:
                other = draw.choice(files)
                data = bytearray(other.read_bytes() if other.exists() else b"")
            case 6:
                path.unlink()
                continue
        path.write_bytes(data)


def damaged_copy(into: Path, draw: random.Random, base: str) -> Path:
    root = golden.unpack(base, into)
    for place in root.iterdir():
        if place.is_dir() and place.name not in KEPT:
            shutil.rmtree(place)
    spoil(root, draw)
    return root


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n > 3 else []) for n in range(24)])
def test_whatever_was_damaged_a_broker_has_nothing_to_do_with_the_result(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    base = draw.choice(["4.3.1-crash", "3.9.2-clean"])
    roots = [damaged_copy(tmp_path / str(n), draw, base) for n in range(draw.randrange(1, 3))]
    release = Release.parse(base.partition("-")[0])
    salvage(tmp_path / "into", *roots, as_release=release)
    assert [row for row in findings(tmp_path / "into") if row["severity"] == "error"] == []
    assert starts_with_nothing_to_do(tmp_path / "into", release)


@pytest.mark.parametrize("place", [1, 2])
def test_fields_at_the_end_of_their_range(place: int, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """A base offset of 2^63-1, in the middle and at the end, and a producer id of so much beside it."""
    root = tmp_path / "k"
    log = root / "t-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    of_producer = {0: {}, 3: {}, 6: {"producer_id": (1 << 63) - 1, "producer_epoch": 0, "base_sequence": 0}}
    batches = [batch(at, [record(n, None, b"v%d" % at) for n in range(3)], **more) for at, more in of_producer.items()]
    sound = b"".join(batches)
    batches[place] = ((1 << 63) - 1).to_bytes(8, "big") + batches[place][8:]
    log.write_bytes(b"".join(batches))
    assert "batch.base-offset" in rmqctl("verify", root, "-o", "jsonl").stdout
    found = salvage(tmp_path / "into", root)
    assert found["records"] == (9 if place == 1 else 6), "what lies between two others has one place only"
    rmqctl("repair", root, "--apply")
    assert log.read_bytes() == sound
