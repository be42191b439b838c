"""What brokers wrote comes back byte for byte after it was deleted; what the log cannot prove is kept."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures import bulk, golden
from formats.rocketmq.checkpoint import Checkpoint
from rmqctl.files.local import LocalFile
from rmqctl.release import Release
from rmqctl.repair.execute import apply, undo
from rmqctl.rocketmq.dispatch.queue_ends import queue_rows
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT
from rmqctl.rocketmq.queues.rocksdb import rocksdb_units
from rmqctl.rocketmq.rebuild.compare import Change, first_difference, written
from rmqctl.rocketmq.rebuild.rebuild import Rebuild, RebuildOptions, Rebuilt
from rmqctl.rocketmq.store.locate import open_store_at
from rmqctl.rocketmq.verify.driver import Verification, VerifyOptions
from tests.rocketmq.log_files import ended, log_of, record

RARE = Path(__file__).parents[3] / "fixtures" / "rare"
DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
FILES = [n for n in golden.NAMES if "rocksdb" not in n]
# Killed before its last record was dispatched: the log holds a message that no queue and no index knows.
UNDISPATCHED = {"4.9.8-crash": 2, "5.5.0-crash": 2}


def contents(root: Path, kinds: tuple[str, ...] = DERIVED) -> dict[str, str]:
    """SHA-256 of every file; index files by number, since a name is the time at which a broker made it."""
    found = {}
    for kind in kinds:
        for number, path in enumerate(sorted(p for p in (root / kind).rglob("*") if p.is_file())):
            name = f"index/{number}" if kind == "index" else str(path.relative_to(root))
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def everything(root: Path) -> dict[str, tuple[str, int]]:
    files = (p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in files}


def rebuild(root: Path, directory: Path, conf: Path | None = None, **options: Any) -> tuple[Rebuild, Rebuilt]:
    found = Rebuild(open_store_at(str(root), broker_conf=str(conf) if conf else None), RebuildOptions(**options))
    return found, found.run(directory)


@pytest.mark.parametrize("name", FILES)
def test_deleted_queues_and_index_come_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    conf, root = golden.write_broker_conf(name, tmp_path / "broker.conf"), golden.unpack(name, tmp_path)
    original = contents(root)
    for kind in DERIVED:
        shutil.rmtree(root / kind, ignore_errors=True)
    found, built = rebuild(root, tmp_path / "into", conf)
    found.complete(built)
    new = contents(tmp_path / "into")
    assert new.keys() == original.keys()
    assert sum(new[file] != original[file] for file in new) == UNDISPATCHED.get(name, 0)


@pytest.mark.parametrize("name", FILES)
def test_existing_files_are_compared(name: str, tmp_path: Path) -> None:
    """Without a broker.conf: sizes and delay levels show in the files that are there."""
    _, built = rebuild(golden.pristine(name), tmp_path)
    assert len(built.changes) == UNDISPATCHED.get(name, 0)
    assert all(c.change is Change.REPLACE for c in built.changes)
    assert [c.units for c in built.changes if c.units is not None] == [1] * bool(built.changes)
    assert built.counts[Change.EQUAL] == len(contents(golden.pristine(name))) - len(built.changes)


@pytest.mark.parametrize("kind", ["ext", "dledger", "ipv6-v2", "compaction"])
def test_rare_stores(kind: str, tmp_path: Path) -> None:
    """Extension units with their filters, a DLedger log, records of both versions with IPv6 hosts."""
    golden.extract(RARE / f"5.3.3-{kind}.tar.xz", tmp_path)
    root = tmp_path / f"5.3.3-{kind}"
    _, built = rebuild(root, tmp_path / "into")
    assert built.changes == []
    assert built.counts[Change.EQUAL] == len(contents(root))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large") / "store"
    bulk.make(root, bulk.Bulk(log_bytes=24 << 20, file_size=8 << 20, queue_file_units=500))
    return root


@pytest.mark.parametrize("processes", [1, 2])
def test_any_division_of_the_log_gives_the_same(
    large: Path, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.rocketmq.rebuild.build.SPLIT_SIZE", 1_234_567)
    _, built = rebuild(large, tmp_path, processes=processes, as_release=Release(4, 9, 8))
    assert built.changes == []
    assert built.counts[Change.EQUAL] == len(contents(large))


@pytest.mark.parametrize("name", ["5.5.0-rocksdb-clean", "5.5.0-rocksdb-crash"])
def test_rocksdb_queues_become_files(name: str, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    _, built = rebuild(golden.pristine(name), tmp_path / "into")
    units = {}
    for path in (tmp_path / "into" / "consumequeue").rglob("*"):
        if path.is_file():
            found = np.fromfile(path, UNIT)
            for number, unit in enumerate(found[: np.count_nonzero(found["size"])].tolist()):
                units[path.parts[-3], int(path.parts[-2]), number + int(path.name) // UNIT.itemsize] = unit
    assert len(units) == built.built.records == 600
    is_clean = name.endswith("clean")
    assert built.counts[Change.EQUAL] == (16 if is_clean else 0) + 2  # an empty database knows no queue
    assert sum(c.units or 0 for c in built.changes) == (0 if is_clean else 600)
    if name.endswith("clean"):
        expected = rocksdb_units(open_store_at(str(golden.pristine("5.5.0-rocksdb-clean"))))
        assert units == {
            (u.topic, u.queue_id, u.queue_offset): (u.physical_offset, u.size, u.tags_code) for u in expected
        }


# --- what the log cannot prove ---------------------------------------------------------------------


SIZE, FILE = 1024, 100


def expired_store(root: Path, *records: dict[str, Any]) -> Path:
    """A log whose first file is gone, with the records behind it."""
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{SIZE:020d}").write_bytes(ended(log_of(records, SIZE), SIZE))
    (root / "broker.conf").write_text(f"mappedFileSizeConsumeQueue={FILE}\nmaxHashSlotNum=5\nmaxIndexNum=9\n")
    return root


def write_units(root: Path, path: str, *units: tuple[int, int, int]) -> Path:
    file = root / "consumequeue" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(np.array(list(units), UNIT).tobytes().ljust(FILE, b"\0"))
    return file


def test_the_first_record_tells_where_a_queue_begins(tmp_path: Path) -> None:
    root = expired_store(tmp_path / "s", record(queue_offset=13), record(queue_offset=14))
    _, built = rebuild(root, tmp_path / "into", root / "broker.conf")
    file = tmp_path / "into" / "consumequeue/TopicTest/1" / f"{200:020d}"
    size = record()["total_size"]
    units = np.fromfile(file, UNIT).tolist()
    assert units[:3] == [(0, 0x7FFFFFFF, 0)] * 3
    assert [u[:2] for u in units[3:]] == [(SIZE, size), (SIZE + size, size)]
    assert built.built.queues.simple[b"TopicTest", 1].next_offset == 15


def test_units_of_expired_messages_stay(tmp_path: Path) -> None:
    root = expired_store(tmp_path / "s", record(queue_offset=3))
    _, built = rebuild(root, tmp_path / "one", root / "broker.conf", index=False)
    new = np.fromfile(tmp_path / "one" / "consumequeue/TopicTest/1" / f"{0:020d}", UNIT)
    write_units(root, f"TopicTest/1/{0:020d}", (0, 9, 1), (9, 9, 1), (18, 9, 1), new[3].tolist())
    _, built = rebuild(root, tmp_path / "two", root / "broker.conf", index=False)
    assert built.changes == []


def test_a_queue_without_a_record_keeps_its_files_and_its_counter(tmp_path: Path) -> None:
    root = expired_store(tmp_path / "s", record())
    kept = write_units(root, f"Old/0/{300:020d}", (0, 9, 1), (9, 9, 1))
    gone = write_units(root, f"Ahead/0/{0:020d}", (5 * SIZE, 9, 1))
    found, built = rebuild(root, tmp_path / "into", root / "broker.conf", index=False)
    by_file = {c.file: c.change for c in built.changes}
    assert by_file[str(kept.relative_to(root))] is Change.KEEP
    assert by_file[str(gone.relative_to(root))] is Change.REMOVE
    found.complete(built)
    assert (tmp_path / "into" / kept.relative_to(root)).read_bytes() == kept.read_bytes()


def test_without_files_committed_offsets_keep_the_counter(tmp_path: Path) -> None:
    """A broker that starts on the result gives out the offset that consumers wait for, and finds nothing to read."""
    root = expired_store(tmp_path / "s", record(queue_offset=2))
    (root / "config").mkdir()
    table = {"offsetTable": {"Old@g": {"0": 17}, "Old@h": {"0": 16}, "TopicTest@g": {"1": 99}, "New@g": {"0": 0}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    _, built = rebuild(root, root / "tmp", root / "broker.conf", index=False)
    assert built.counters == {(b"Old", 0): 17}
    shutil.move(root / "tmp" / "consumequeue", root / "consumequeue")
    rows = {(r.topic, r.queue_id): r for r in queue_rows(open_store_at(str(root)))}
    assert (rows["Old", 0].min_offset, rows["Old", 0].max_offset, rows["Old", 0].messages) == (17, 17, 0)
    assert rows["TopicTest", 1].max_offset == 3


def test_lost_records_leave_no_hole_in_their_queue(tmp_path: Path) -> None:
    root = tmp_path / "s"
    records = [record(queue_offset=i, body=b"x" * 200) for i in range(6)]
    size = records[0]["total_size"]
    (root / "commitlog").mkdir(parents=True)
    log = bytearray(log_of(records).ljust(4096, b"\0"))
    log[2 * size : 4 * size] = b"\xaa" * (2 * size)
    (root / "commitlog" / f"{0:020d}").write_bytes(log)
    _, built = rebuild(root, tmp_path / "into", index=False)
    units = np.fromfile(tmp_path / "into" / "consumequeue/TopicTest/1" / f"{0:020d}", UNIT)
    assert units["physical_offset"][:7].tolist() == [0, size, 4 * size, 4 * size, 4 * size, 5 * size, 0]
    summary = built.summary()
    assert (summary["filled_units"], summary["damaged_bytes"], summary["records"]) == (2, 2 * size, 4)


def test_a_batch_queue_keeps_its_expired_units(tmp_path: Path) -> None:
    """They stand in front of the live ones, so nothing lies where a new queue would have it."""
    batch = record(sys_flag=0xC0, topic=b"Batch", queue_offset=7, properties=b"INNER_BASE\x017\x02INNER_NUM\x013\x02")
    root = expired_store(tmp_path / "s", batch)
    unit = (SIZE, batch["total_size"], 0, batch["store_timestamp"], 7, 3, -1, 0)
    file = root / "batchconsumequeue/Batch/1" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    old = np.array([(0, 90, 0, 5, 0, 4, -1, 0), (90, 90, 0, 5, 4, 3, -1, 0), unit], BATCH_UNIT)
    file.write_bytes(old.tobytes().ljust(460, b"\0"))
    _, built = rebuild(root, tmp_path / "one", root / "broker.conf", index=False)
    new = np.fromfile(tmp_path / "one" / "batchconsumequeue/Batch/1" / f"{0:020d}", BATCH_UNIT)
    assert [u for u in new.tolist() if u[1]] == [unit]
    assert built.changes == []
    old["tags_code"][2] = 1
    file.write_bytes(old.tobytes().ljust(460, b"\0"))
    _, built = rebuild(root, tmp_path / "two", root / "broker.conf", index=False)
    assert [c.change for c in built.changes] == [Change.REPLACE]


def test_a_destroyed_end_of_a_queue_keeps_its_counter(tmp_path: Path) -> None:
    """The last message of a queue is destroyed, another queue goes on behind it."""
    root = tmp_path / "s"
    last = [record(queue_offset=2, body=b"x" * 200), record(topic=b"Other")]
    records = [record(queue_offset=i, body=b"x" * 200) for i in range(2)] + last
    size = records[0]["total_size"]
    (root / "commitlog").mkdir(parents=True)
    log = bytearray(log_of(records).ljust(4096, b"\0"))
    log[2 * size : 3 * size] = b"\xaa" * size
    (root / "commitlog" / f"{0:020d}").write_bytes(log)
    write_units(root, f"TopicTest/1/{0:020d}", *((i * size, size, 2598919) for i in range(3)))
    alone = write_units(root, f"Gone/0/{0:020d}", (2 * size, size, 5))
    _, built = rebuild(root, tmp_path / "into", index=False)
    units = np.fromfile(tmp_path / "into" / "consumequeue/TopicTest/1" / f"{0:020d}", UNIT)
    assert units["physical_offset"][:4].tolist() == [0, size, size, 0]
    assert built.built.queues.simple[b"TopicTest", 1].next_offset == 3
    assert {c.file: c.change for c in built.changes}[str(alone.relative_to(root))] is Change.KEEP


@pytest.mark.parametrize(("destroyed", "copies", "named"), [(1, 1, 0), (1, 2, 0), (1, 3, 1), (3, 6, 0), (3, 12, 5)])
def test_copies_of_a_unit_stand_for_destroyed_messages(destroyed: int, copies: int, named: int, tmp_path: Path) -> None:
    """As many units as the damage after them has room for records of 92 bytes; each of these has 212."""
    body = b"x" * 112
    records = [record(queue_offset=i, body=body) for i in range(2 + destroyed)] + [record(topic=b"Other", body=body)]
    size = records[0]["total_size"]
    (tmp_path / "commitlog").mkdir(parents=True)
    log = bytearray(log_of(records).ljust(4096, b"\0"))
    log[2 * size : (2 + destroyed) * size] = b"\xaa" * (destroyed * size)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log)
    units = [(0, size, 2598919), *[(size, size, 2598919)] * (1 + copies)]
    write_units(tmp_path, f"TopicTest/1/{0:020d}", *units)
    write_units(tmp_path, f"Other/1/{0:020d}", ((2 + destroyed) * size, size, 2598919))
    found = Verification(open_store_at(str(tmp_path)), VerifyOptions()).findings()
    stale = [f for f in found if f.kind.id == "queue.stale-tail"]
    assert sum(f.size for f in stale) == named * UNIT.itemsize


def test_missing_log_files_are_damage(tmp_path: Path) -> None:
    root = expired_store(tmp_path / "s", record())
    shutil.copy(root / "commitlog" / f"{SIZE:020d}", root / "commitlog" / f"{3 * SIZE:020d}")
    _, built = rebuild(root, tmp_path / "into", index=False)
    assert (2 * SIZE, SIZE) in built.built.damage


# --- in place --------------------------------------------------------------------------------------


def test_in_place_and_back(tmp_path: Path) -> None:
    """Deleted, changed and stray files are put right by plan; `undo` brings back every byte and time."""
    root = golden.unpack("5.3.3-clean", tmp_path)
    true = contents(root)
    victims = sorted(p for p in (root / "consumequeue").rglob("*") if p.is_file())
    victims[0].unlink()
    with victims[1].open("r+b") as file:
        file.write(b"\xff" * 30)
    index = sorted((root / "index").iterdir())
    index[0].unlink()
    shutil.copy(victims[2], victims[2].with_name(f"{90_000:020d}"))
    before = everything(root)
    found, built = rebuild(root, tmp_path / "stage")
    done = apply(found.plan(built), journal_dir=tmp_path / "journals")
    assert contents(root) == true
    _, again = rebuild(root, tmp_path / "again")
    assert again.is_equal
    assert done.journal is not None
    undo(done.journal)
    assert everything(root) == before


def test_queue_files_have_the_time_of_their_last_message(tmp_path: Path) -> None:
    """Brokers up to 5.1.0 look for the file of a time by its modification time."""
    _, built = rebuild(golden.pristine("4.9.8-clean"), tmp_path, index=False)
    last: dict[tuple[str, int, int], int] = {}
    for true in golden.truth("4.9.8-clean"):
        if true["kind"] == "msg":
            last[true["topic"], true["queueId"], true["queueOffset"] // 50] = true["storeTimestamp"]
    for name in built.built.queue_files:
        _, topic, queue, base = name.split("/")
        time = last[topic, int(queue), int(base) // 1000]
        assert (tmp_path / name).stat().st_mtime_ns == time * 1_000_000


# --- checkpoint ------------------------------------------------------------------------------------


def checkpoint_of(built: Rebuilt) -> dict[str, int]:
    assert built.checkpoint is not None
    assert len(built.checkpoint) == 4096
    parsed: dict[str, int] = Checkpoint.parse(built.checkpoint)
    return parsed


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
def test_checkpoint_of_a_complete_store(name: str, tmp_path: Path) -> None:
    last = [t for t in golden.truth(name) if t["kind"] == "msg"][-1]
    _, built = rebuild(golden.pristine(name), tmp_path, checkpoint=True, queues=False, index=False)
    fields = checkpoint_of(built)
    old = Checkpoint.parse((golden.pristine(name) / "checkpoint").read_bytes())
    assert fields["physic_msg_timestamp"] == fields["logics_msg_timestamp"] == last["storeTimestamp"]
    assert fields["index_msg_timestamp"] == old["index_msg_timestamp"]
    assert fields["master_flushed_offset"] == old["master_flushed_offset"]
    assert fields["logics_physical_offset"] == (last["commitLogOffset"] if name.startswith("5.5") else 0)


def test_checkpoint_alone_promises_no_more_than_the_queues_hold(tmp_path: Path) -> None:
    root = golden.unpack("5.5.0-clean", tmp_path)
    message = next(t for t in golden.truth("5.5.0-clean") if t["kind"] == "msg" and t["topic"] == "LabOrders")
    for path in (root / "consumequeue" / "LabOrders" / str(message["queueId"])).iterdir():
        path.unlink()
    _, built = rebuild(root, tmp_path / "into", checkpoint=True, queues=False, index=False)
    fields = checkpoint_of(built)
    assert fields["logics_physical_offset"] == message["commitLogOffset"]
    assert fields["logics_msg_timestamp"] == message["storeTimestamp"] - 1
    assert [c.file for c in built.changes] == ["checkpoint"]


def test_after_a_crash_the_rebuilt_index_is_covered(tmp_path: Path) -> None:
    """Else the broker deletes it when it starts, and makes only a part of it anew (spec 4.5, 6.8)."""
    last = [t for t in golden.truth("5.3.3-crash") if t["kind"] == "msg"][-1]
    _, built = rebuild(golden.pristine("5.3.3-crash"), tmp_path, checkpoint=True)
    assert checkpoint_of(built)["index_msg_timestamp"] == built.built.index[-1].end_timestamp
    assert checkpoint_of(built)["logics_msg_timestamp"] == last["storeTimestamp"]


def names_of(paths: Iterator[Path]) -> list[str]:
    return sorted(p.name for p in paths)


def test_index_files_keep_their_names_or_get_times(tmp_path: Path) -> None:
    root = golden.unpack("5.3.3-clean", tmp_path)
    names = names_of((root / "index").iterdir())
    (root / "index" / names[-1]).unlink()
    found, built = rebuild(root, tmp_path / "into", queues=False)
    found.complete(built)
    new = names_of((tmp_path / "into" / "index").iterdir())
    assert new[0] == names[0]
    assert len(new) == len(names)
    assert new == sorted(set(new))
    assert all(len(name) == 17 and name.isdigit() for name in new)


@pytest.mark.parametrize("unit", [1, 20])
def test_comparing_leaves_out_the_holes_of_both(tmp_path: Path, unit: int) -> None:
    size, page = 1 << 20, 4096
    for name, places in (("old", (0, 300_000)), ("new", (20_000, 300_500, 900_000))):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
            for place in places:
                file.seek(place)
                file.write(b"x" * 100)
    old, new = (LocalFile(tmp_path / name) for name in ("old", "new"))
    seen = np.zeros(size, bool)
    for first, count in written(old, new, 50, unit):
        assert not seen[first * unit : (first + count) * unit].any()
        assert count <= 50
        seen[first * unit : (first + count) * unit] = True
    data = np.zeros(size, bool)
    for path in ("old", "new"):
        data |= np.frombuffer((tmp_path / path).read_bytes(), np.uint8) != 0
    assert (seen | ~data).all()
    assert np.count_nonzero(seen) < 40 * page or np.count_nonzero(seen) == size // unit * unit  # no holes here
    assert first_difference(old, new) == 0
    assert first_difference(new, LocalFile(tmp_path / "new")) is None
