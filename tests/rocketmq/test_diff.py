"""`rmqctl diff`: stores that differ in known ways, held to the truth of the golden stores."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from commands import cli
from fixtures import golden
from tests.rocketmq.diff_helpers import messages, offset_of, read, write


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    return golden.unpack("5.1.4-crash", tmp_path / "a"), golden.unpack("5.1.4-crash", tmp_path / "b")


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(cli, ["diff", *map(str, arguments), "-o", "json"], standalone_mode=False)
    code = result.exception.code if isinstance(result.exception, SystemExit) else 0
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return int(code or 0), json.loads(result.stdout)


def ids(found: dict[str, Any]) -> list[str]:
    return [f["id"] for f in found["findings"]]


@pytest.mark.parametrize("name", golden.NAMES)
def test_a_store_is_equal_to_itself(name: str) -> None:
    code, found = run(golden.pristine(name), golden.pristine(name))
    summary = found["summary"]
    assert code == 0 and found["findings"] == [] and summary["different"] is False
    assert summary["records"]["equal"] == len(messages(name)) == summary["a"]["records"]
    assert summary["first_divergence"] is None
    if not name.startswith("5.5.0-rocksdb-crash"):
        assert summary["queues"]["equal_units"] > 0


def test_a_changed_body_byte(both: tuple[Path, Path]) -> None:
    a, b = both
    row = messages("5.1.4-crash")[100]
    place = offset_of(row)
    write(b, place + 90, bytes([read(b, place + 90, 1)[0] ^ 1]))
    code, found = run(a, b)
    assert code == 1 and ids(found) == ["diff.record"]
    (finding,) = found["findings"]
    assert finding["physical_offset"] == place == found["summary"]["first_divergence"]
    assert "bodies differ" in finding["message"] and "the body fails its CRC in B" in finding["message"]
    assert found["summary"]["records"]["changed"] == 1 and found["summary"]["records"]["changed_equal_bodies"] == 0


def test_a_changed_header_byte_has_equal_bodies(both: tuple[Path, Path]) -> None:
    a, b = both
    place = offset_of(messages("5.1.4-crash")[7])
    write(b, place + 16, b"\0\0\0\7")  # FLAG
    code, found = run(b, a)
    (finding,) = found["findings"]
    assert code == 1 and "equal bodies; flag 7 / -1214694411" in finding["message"]
    assert found["summary"]["records"]["changed_equal_bodies"] == 1


@pytest.mark.parametrize("turned", [False, True])
def test_destroyed_records_are_only_in_the_other(both: tuple[Path, Path], turned: bool) -> None:
    a, b = both
    rows = messages("5.1.4-crash")
    for row in rows[50:53]:
        write(b, offset_of(row), b"\xff" * 8)
    code, found = run(b, a) if turned else run(a, b)
    letter, other = ("B", "A") if turned else ("A", "B")
    assert code == 1 and ids(found) == [f"diff.only-{letter.lower()}"]
    (finding,) = found["findings"]
    assert finding["physical_offset"] == offset_of(rows[50]) and "3 records" in finding["message"]
    assert f"{other}'s log has no sound record there" in finding["message"]
    only = found["summary"]["records"][f"only_{letter.lower()}"]
    assert only["records"] == 3 and sum(q["records"] for q in only["queues"].values()) == 3
    assert found["summary"]["records"]["equal"] == len(rows) - 3


def test_logs_that_begin_at_different_offsets(both: tuple[Path, Path]) -> None:
    a, b = both
    first, second, *_ = sorted((b / "commitlog").iterdir())
    begin = int(second.name)
    first.unlink()
    code, found = run(a, b)
    rows = messages("5.1.4-crash")
    expired = [row for row in rows if offset_of(row) < begin]
    assert code == 1 and ids(found) == ["diff.only-a"]
    assert f"B's log begins at {begin}" in found["findings"][0]["message"]
    only = found["summary"]["records"]["only_a"]
    assert only["records"] == len(expired)
    assert found["summary"]["records"]["equal"] == len(rows) - len(expired)
    assert found["summary"]["queues"]["units_only_a"] == 0  # their messages are not in both logs


def test_a_replica_that_lags() -> None:
    code, found = run(golden.pristine("5.1.4-clean"), golden.pristine("5.1.4-crash"))
    late = len(messages("5.1.4-crash")) - len(messages("5.1.4-clean"))
    assert code == 1 and ids(found) == ["diff.only-b"]
    assert found["summary"]["records"]["only_b"]["records"] == late > 0
    assert "A's log ends at" in found["findings"][0]["message"]


def test_unrelated_logs_are_matched_by_queue(tmp_path: Path) -> None:
    """A log whose first message is gone: everything lies elsewhere, and is the same by queue offset."""
    code, found = run(golden.pristine("4.9.8-clean"), golden.pristine("5.5.0-clean"), "--by", "queue", "--no-queues")
    records = found["summary"]["records"]
    assert code == 1 and records["moved"] == records["changed"] == 0
    keys = [
        {(r["topic"], r["queueId"], r["queueOffset"]) for r in messages(name)}
        for name in ("4.9.8-clean", "5.5.0-clean")
    ]
    both = records["equal"] + records["other_body"] + records["other_properties"]
    assert both >= len(keys[0] & keys[1]) > 0
    assert both + records["only_a"]["records"] == len(messages("4.9.8-clean"))
    assert both + records["only_b"]["records"] == len(messages("5.5.0-clean"))


def shifted(root: Path, by: int) -> None:
    """Move a one-file log: each record says its new place, the file begins with a blank of records cut away."""
    files = sorted((root / "commitlog").iterdir())
    for file in files[1:]:
        file.unlink()
    data, at, out = files[0].read_bytes(), 0, bytearray()
    while int.from_bytes(data[at : at + 4], "big") and data[at + 4 : at + 8] == bytes.fromhex("daa320a7"):
        size = int.from_bytes(data[at : at + 4], "big")
        record = bytearray(data[at : at + size])
        record[28:36] = (at + by).to_bytes(8, "big")
        out += record
        at += size
    files[0].unlink()
    (root / "commitlog" / f"{by:020d}").write_bytes(bytes(out).ljust(len(data), b"\0"))
    shutil.rmtree(root / "consumequeue")


def test_moved_messages_are_one_range(both: tuple[Path, Path]) -> None:
    a, b = both
    for file in sorted((a / "commitlog").iterdir())[1:]:
        file.unlink()
    shutil.rmtree(a / "consumequeue")
    shifted(b, 524288)
    code, found = run(a, b)
    assert code == 1 and ids(found) == ["diff.moved"]
    assert found["summary"]["records"]["moved"] == found["summary"]["a"]["records"] > 10
    assert "from 524288 on in B" in found["findings"][0]["message"]
    assert run(a, b, "--by", "queue")[0] == 0


def a_queue(root: Path) -> Path:
    return max((root / "consumequeue").glob("*/*/0*"), key=lambda p: (len(p.read_bytes().rstrip(b"\0")), p))


def test_queue_units(both: tuple[Path, Path]) -> None:
    a, b = both
    file = a_queue(b)
    topic, queue_id = file.parts[-3], int(file.parts[-2])
    with file.open("r+b") as opened:
        opened.seek(3 * 20 + 12)
        opened.write(b"\0\0\0\0\0\0\1\1")  # tag code
    code, found = run(a, b)
    assert code == 1 and ids(found) == ["diff.queue-unit"]
    (finding,) = found["findings"]
    assert (finding["topic"], finding["queue_id"], finding["queue_offset"]) == (topic, queue_id, 3)
    assert finding["offset"] == 60 and "tag code 257 (A / B)" in finding["message"]
    assert run(a, b, "--no-queues")[0] == 0


def test_a_queue_that_is_gone(both: tuple[Path, Path]) -> None:
    a, b = both
    file = a_queue(b)
    topic, queue_id = file.parts[-3], int(file.parts[-2])
    shutil.rmtree(file.parent)
    _, found = run(a, b)
    assert set(ids(found)) == {"diff.queue-only-a"}
    assert {(f["topic"], f["queue_id"]) for f in found["findings"]} == {(topic, queue_id)}
    assert set(ids(run(b, a)[1])) == {"diff.queue-only-b"}


def test_rocksdb_queues_against_rebuilt_files(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    a, b = golden.unpack("5.5.0-rocksdb-clean", tmp_path / "a"), golden.unpack("5.5.0-rocksdb-clean", tmp_path / "b")
    shutil.rmtree(b / "consumequeue")
    result = CliRunner().invoke(
        cli, ["rebuild", str(a), "--queues", "--into", str(tmp_path / "new")], standalone_mode=False
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    shutil.copytree(tmp_path / "new" / "consumequeue", b / "consumequeue")
    code, found = run(a, b)
    assert (code, found["findings"]) == (0, [])
    assert found["summary"]["queues"]["equal_units"] == 600
    file = a_queue(b)
    os.truncate(file, 40)
    assert set(ids(run(a, b)[1])) == {"diff.queue-only-a"}


def test_parts_of_stores_and_lone_files(both: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = both
    assert run(a / "commitlog", b / "commitlog")[1]["summary"]["queues"] is None
    code, found = run(a / "consumequeue", b / "consumequeue")
    assert code == 0 and found["summary"]["a"]["files"] == 0 and found["summary"]["queues"]["equal_units"] > 0
    name = min((a / "commitlog").iterdir()).name
    lone = tmp_path / name
    shutil.copy(a / "commitlog" / name, lone)
    code, found = run(lone, b / "commitlog" / name)
    assert code == 0 and found["summary"]["records"]["equal"] > 10


@pytest.mark.parametrize("seed", range(6))
def test_random_damage_against_brute_force(both: tuple[Path, Path], seed: int) -> None:
    """Every record is counted once, and is equal exactly when its bytes are."""
    a, b = both
    draw, rows = random.Random(seed), messages("5.1.4-crash")
    for _ in range(12):
        row = draw.choice(rows)
        write(draw.choice(both), offset_of(row) + draw.randrange(120), bytes([draw.randrange(256)]))
    code, found = run(a, b)
    records = found["summary"]["records"]
    sizes = [int(row["storeSize"]) for row in rows]
    same = sum(read(a, offset_of(r), n) == read(b, offset_of(r), n) for r, n in zip(rows, sizes, strict=True))
    both_bad = records["equal"] <= same
    assert code == 1 and both_bad
    lost = len(rows) - records["equal"] - records["changed"]
    assert records["only_a"]["records"] + records["only_b"]["records"] <= lost
    assert records["equal"] + records["changed"] + records["only_a"]["records"] == found["summary"]["a"]["records"]
    assert records["equal"] + records["changed"] + records["only_b"]["records"] == found["summary"]["b"]["records"]
    places = [f["physical_offset"] for f in found["findings"] if not f["id"].startswith("diff.queue")]
    assert places == sorted(places) and found["summary"]["first_divergence"] == places[0]


def test_other_outputs(both: tuple[Path, Path]) -> None:
    a, b = both
    write(b, 20, b"\1")
    result = CliRunner().invoke(cli, ["diff", str(a), str(b)], standalone_mode=False)
    assert "first difference at physical offset 0" in result.stdout and "A and B differ" in result.stdout
    lines = CliRunner().invoke(cli, ["diff", str(a), str(b), "-o", "jsonl"], standalone_mode=False).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["finding", "summary"]


@pytest.mark.parametrize("kind", ["dledger", "ext", "ipv6-v2"])
def test_rare_stores(kind: str, tmp_path: Path) -> None:
    """A log in DLedger entries, queues with extension, long topics and IPv6 hosts: equal, then a body byte changed."""
    sides = []
    for name in ("a", "b"):
        golden.extract(Path(golden.DIRECTORY).parent / "rare" / f"5.3.3-{kind}.tar.xz", tmp_path / name)
        sides.append(tmp_path / name / f"5.3.3-{kind}")
    a, b = sides
    code, found = run(a, b)
    assert (code, found["summary"]["records"]["equal"]) == (0, 60)
    dump = CliRunner().invoke(cli, ["dump", str(b), "-o", "jsonl", "-n", "9", "--body"], standalone_mode=False)
    row = [json.loads(line) for line in dump.stdout.splitlines() if '"kind":"message"' in line.replace(" ", "")][-1]
    path = b / row["file"]
    data = bytearray(path.read_bytes())
    at = data.index(row["body"].encode(), row["position"])
    data[at] ^= 1
    path.write_bytes(data)
    code, found = run(a, b)
    assert code == 1 and ids(found) == ["diff.record"]
    (finding,) = found["findings"]
    assert finding["physical_offset"] == row["physical_offset"] and finding["offset"] == row["position"]
    assert "body from byte 0 on" in finding["message"] and "fails its CRC in B" in finding["message"]


def test_batch_queues(tmp_path: Path) -> None:
    a, b = golden.unpack("5.5.0-clean", tmp_path / "a"), golden.unpack("5.5.0-clean", tmp_path / "b")
    (file,) = (b / "batchconsumequeue" / "LabBatchCq" / "0").iterdir()
    with file.open("r+b") as opened:
        opened.seek(46 + 36)
        opened.write(b"\0\x09")  # batch size of the second unit
    code, found = run(a, b)
    (finding,) = found["findings"]
    assert (
        code == 1
        and finding["id"] == "diff.queue-unit"
        and finding["file"].startswith("batchconsumequeue/LabBatchCq/0")
    )
    assert (
        finding["offset"] == 46
        and "unit 1: " in finding["message"]
        and "9 messages from queue offset 5" in finding["message"]
    )
    assert run(a / "batchconsumequeue", b / "batchconsumequeue")[1]["findings"] == found["findings"]
