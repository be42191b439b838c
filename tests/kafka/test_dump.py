"""`rmqctl dump` of log directories: rows equal the truth, damage is in its place, filters choose."""

from __future__ import annotations

import base64
import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import golden
from rmqctl import opening
from rmqctl.filters import Filters, Rendering
from rmqctl.kafka.dump.lines import SharedLines
from rmqctl.kafka.dump.segments import SegmentDump
from rmqctl.kafka.filters import Wanted
from tests.conftest import Rmqctl
from tests.kafka.batches import batch, message, record, segment
from tests.kafka.golden_records_helpers import truth_by_file

Rows = list[dict[str, Any]]


def rows(rmqctl: Rmqctl, *arguments: object, code: int = 0) -> Rows:
    result = rmqctl("dump", *arguments, "-o", "jsonl")
    assert result.exit_code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()


def from_truth(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


NAMES = {
    "position": "position",
    "size": "size",
    "magic": "magic",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "compression": "compression",
    "timestampType": "timestamp_type",
    "maxTimestamp": "max_timestamp",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "partitionLeaderEpoch": "leader_epoch",
    "isTransactional": "transactional",
    "isControl": "control",
    "deleteHorizonMs": "delete_horizon",
    "crc": "crc",
    "isvalid": "crc_ok",
}


def check_batch(row: dict[str, Any], line: dict[str, Any]) -> None:
    for theirs, ours in NAMES.items():
        wanted = line.get(theirs)
        assert row[ours] == wanted or (row["magic"] < 2 and wanted == -1 and row[ours] is None), (theirs, row, line)
    if line["count"] is not None:
        assert row["count"] == line["count"]


def check_record(row: dict[str, Any], line: dict[str, Any], batch: dict[str, Any]) -> None:
    key, value = from_truth(line["key"]), from_truth(line["value"])
    assert (row["offset"], row["timestamp"], row["sequence"]) == (
        line["offset"],
        line["timestamp"],
        line.get("sequence"),
    )
    assert (as_bytes(row["key"]), as_bytes(row["value"])) == (key, value)
    assert (row["key_size"], row["value_size"]) == tuple(-1 if b is None else len(b) for b in (key, value))
    assert [[n, as_bytes(v)] for n, v in row["headers"]] == [[n, from_truth(v)] for n, v in line["headers"]]
    assert row["control_type"] == line.get("controlType")
    assert row["batch_position"] == batch["position"]


def test_a_directory_equals_its_truth(golden_name: str, rmqctl: Rmqctl) -> None:
    root = golden.pristine(golden_name)
    truth = truth_by_file(golden_name)
    found = rows(rmqctl, root, "--records")
    files = list(dict.fromkeys(row["file"] for row in found))
    assert set(files) == {file for file in truth if file.endswith(".log")}
    places = [(f.partition("/")[0].rpartition("-"), f) for f in files if "-delete" not in f]
    assert [f for _, f in places] == [f for _, f in sorted(places, key=lambda p: (p[0][0], int(p[0][2]), p[1]))]
    wanted = [(line, inside) for file in files for line, inside in truth[file]]
    batches = iter(wanted)
    left: list[dict[str, Any]] = []
    for row in found:
        if row["kind"] == "finding":
            assert (row["id"], row["severity"]) == ("batch.zero-tail", "note")
        elif row["kind"] == "batch":
            assert not left
            line, inside = next(batches)
            check_batch(row, line)
            assert row["count"] == len(inside)
            left = list(inside)
            topic, _, number = row["file"].partition("/")[0].rpartition("-")
            if "-delete" not in row["file"]:
                assert (row["topic"], row["partition"]) == (topic, int(number))
        else:
            check_record(row, left.pop(0), line)
    assert next(batches, None) is None
    assert not left


def test_snapshots_of_the_metadata_when_named(golden_name: str, rmqctl: Rmqctl) -> None:
    for file, wanted in truth_by_file(golden_name).items():
        if file.endswith(".checkpoint"):
            found = rows(rmqctl, golden.pristine(golden_name) / file)
            for row, (line, _) in zip(found, wanted, strict=True):
                check_batch(row, line)


def test_a_partition_and_a_file(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    whole = rows(rmqctl, root)
    of_partition = rows(rmqctl, root / "idem-0")
    assert of_partition == [row for row in whole if row["file"].startswith("idem-0/")]
    file = of_partition[-1]["file"]
    assert rows(rmqctl, root / file) == [row for row in whole if row["file"] == file]
    assert rows(rmqctl, root, "--topic", "idem", "--queue", "0") == of_partition


def test_other_files(rmqctl: Rmqctl) -> None:
    root = golden.pristine("4.3.1-clean")
    kinds = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size and not path.name.endswith((".log", ".deleted")):
            for row in rows(rmqctl, path):
                kinds.setdefault(row["kind"], row)
    assert {kind: sorted(row) for kind, row in kinds.items() if kind not in {"batch", "record"}} == {
        "offset_index_entry": sorted(["kind", "file", "number", "offset", "position"]),
        "time_index_entry": sorted(["kind", "file", "number", "timestamp", "offset"]),
        "aborted_transaction": sorted(
            ["kind", "file", "number", "producer_id", "first_offset", "last_offset", "last_stable_offset"]
        ),
        "producer_state": sorted(
            [
                "kind",
                "file",
                "producer_id",
                "producer_epoch",
                "last_sequence",
                "last_offset",
                "offset_delta",
                "last_timestamp",
                "coordinator_epoch",
                "current_txn_first_offset",
            ]
        ),
        "leader_epoch": sorted(["kind", "file", "epoch", "start_offset"]),
        "checkpoint_offset": sorted(["kind", "file", "topic", "partition", "offset"]),
        "meta_properties": ["file", "kind", "properties"],
        "partition_metadata": ["file", "kind", "topic_id", "version"],
        "quorum_state": ["file", "kind", "state"],
        "clean_shutdown": ["file", "kind", "state"],
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with one partition of 30 batches of 3 records."""
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    file = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    file.write_bytes(b"".join(segment(30)))
    return file


def test_damage_is_in_its_place(log: Path, rmqctl: Rmqctl) -> None:
    parts = segment(30)
    flipped = parts[4][:70] + bytes([parts[4][70] ^ 1]) + parts[4][71:]
    log.write_bytes(b"".join(parts[:4]) + flipped + parts[5] + b"\xff" * 40 + b"".join(parts[6:]) + parts[0][:30])
    found = rows(rmqctl, log.parents[1], code=1)
    assert [row["kind"] for row in found[:8]] == ["batch"] * 5 + ["finding", "batch", "finding"]
    assert [(row["id"], row["severity"]) for row in found if row["kind"] == "finding"] == [
        ("batch.crc", "error"),
        ("batch.size", "error"),
        ("batch.torn-tail", "warning"),
    ]
    assert [row["crc_ok"] for row in found if row["kind"] == "batch"].count(False) == 1
    assert [row["kind"] for row in rows(rmqctl, log, "--damaged", code=1)] == ["batch", "finding", "finding", "finding"]
    result = rmqctl("dump", log, "--from-offset", "60")
    assert result.exit_code == 0
    assert "damage in 3 places is not shown" in result.stderr


def test_records_that_cannot_be_read(log: Path, rmqctl: Rmqctl) -> None:
    log.write_bytes(batch(0, [record(0, b"k", b"v")], records_count=2) + segment(1, 5)[0])
    found = rows(rmqctl, log, "--records", code=1)
    assert [row["kind"] for row in found] == ["batch", "finding", "record", "batch", "record", "record", "record"]
    assert found[1]["id"] == "record.unreadable"


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--from-offset", 10, "--to-offset", 13), [10, 11, 12]),
        (("--key", "k42"), [42]),
        (("--grep", "value 8[0-2]"), [80, 81, 82]),
        (("--property", "h=1"), []),
        (("-n", 4), [0, 1, 2, 3]),
        (("--after", "1700000000001"), []),
        (("--before", "1700000000001", "-n", 1), [0]),
        (("--queue", 1), []),
    ],
)
def test_filters(options: tuple[object, ...], offsets: list[int], log: Path, rmqctl: Rmqctl) -> None:
    found = rows(rmqctl, log.parents[1], "--records", *options, code=0 if offsets else 1)
    assert [row["offset"] for row in found if row["kind"] == "record"] == offsets
    batches = {row["position"] for row in found if row["kind"] == "batch"}
    assert batches == {row["batch_position"] for row in found if row["kind"] == "record"}


def test_a_file_that_lies_in_no_directory(log: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lone = tmp_path / "copy" / "anything"
    lone.parent.mkdir()
    lone.write_bytes(log.read_bytes())
    found = rows(rmqctl, lone)
    assert len(found) == 30
    assert {(row["file"], row["topic"], row["partition"]) for row in found} == {("anything", None, None)}
    old = lone.with_name("old")
    old.write_bytes(message(0, b"k", b"v", 0) + message(1, b"k", b"v", 1))
    assert [row["magic"] for row in rows(rmqctl, old)] == [0, 1]
    junk = lone.with_name("junk")
    junk.write_bytes(b"junk" * 100)
    assert rmqctl("dump", junk).exit_code == 11


def test_a_partition_directory_of_any_name(log: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    named = tmp_path / "elsewhere"
    log.parent.rename(named)
    found = rows(rmqctl, named)
    assert {(row["file"], row["topic"], row["partition"]) for row in found} == {(log.name, "elsewhere", None)}


def test_text_and_bytes(log: Path, rmqctl: Rmqctl) -> None:
    values = [b"plain", "ä\t\r\n".encode(), b"\xff", b"a\0b", b"", None]
    log.write_bytes(batch(0, [record(i, v, v, 0, [(b"h", v)]) for i, v in enumerate(values)]))
    found = [row for row in rows(rmqctl, log, "--records") if row["kind"] == "record"]
    shown = ["plain", "ä\t\r\n", {"base64": "/w=="}, {"base64": "YQBi"}, "", None]
    assert [row["value"] for row in found] == [row["key"] for row in found] == shown
    assert [row["headers"] for row in found] == [[["h", value]] for value in shown]
    assert [row["value_size"] for row in found] == [5, 5, 1, 3, 0, -1]


def test_what_is_refused(log: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("dump", log, "--tag", "x").exit_code == 2
    assert rmqctl("dump", golden.pristine("5.3.3-clean"), "--records").exit_code == 2
    assert rmqctl("dump", golden.pristine("5.3.3-clean"), "--format", "kafka").exit_code == 11


def test_lines_say_what_rows_say(golden_name: str) -> None:
    for records in (False, True):
        found = [
            opening.open_path(str(golden.pristine(golden_name))).dump(rendering=Rendering(records=records))
            for _ in "12"
        ]
        assert found[0].lines is not None
        lines = b"".join(bytes(piece) for piece in found[0].lines()).splitlines()
        assert list(map(json.loads, lines)) == [json.loads(orjson.dumps(row)) for row in found[1]]
        assert (found[0].is_no, found[0].remarks) == (found[1].is_no, found[1].remarks)


def test_committed_records_are_those_a_consumer_got(golden_name: str, rmqctl: Rmqctl) -> None:
    root = golden.pristine(golden_name)
    found: dict[str, list[int]] = {}
    for row in rows(rmqctl, root, "--records", "--read-committed"):
        if row["kind"] == "record" and "-delete/" not in row["file"]:
            assert row["control_type"] is None
            found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    for partition, answers in golden.oracle(golden_name)["partitions"].items():
        if answers.get("readCommitted") is not None:
            begin = answers["beginningOffset"]
            wanted = [offset for low, high in answers["readCommitted"] for offset in range(low, high + 1)]
            assert [offset for offset in found.get(partition, []) if offset >= begin] == wanted, partition


def test_a_partition_that_may_not_be_listed(log: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    (log.parents[1] / "u-0").mkdir()
    real = os.scandir

    def refuse(path: Any) -> Any:
        if os.fspath(path).endswith("u-0"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = rows(rmqctl, log.parents[1], code=1)
    assert (found[0]["id"], found[0]["file"]) == ("directory.unreadable-file", "u-0")
    assert len(found) == 31


def test_records_in_a_form_of_the_users_own(tmp_path: Path, rmqctl: Rmqctl) -> None:
    log = tmp_path / "t-3" / f"{0:020d}.log"
    log.parent.mkdir()
    records = [record(0, b"k", b"v%d"), record(1, None, None, headers=[(b"a", b"1"), (b"b", None)])]
    log.write_bytes(batch(0, records) + batch(2, [record(0, bytes(4), bytes(6))], attributes=0x20))
    result = rmqctl("dump", log.parent, "--format-string", r"%t/%p@%o %T %k:%K %s:%S [%h] %%\n")
    assert result.stdout.splitlines() == [
        "t/3@0 1700000000000 k:1 v%d:3 [] %",
        "t/3@1 1700000000000 :-1 :-1 [a=1,b=] %",
    ]
    assert rmqctl("dump", log.parent, "--format-string", "%i").exit_code == 2
    index = log.with_suffix(".index")
    index.write_bytes(bytes(8))
    assert rmqctl("dump", index, "--format-string", "%o").exit_code == 2


TEXTS = st.none() | st.lists(
    st.sampled_from([b"plain ", b'"', b"\\", b"\n", b"\t\r", "ü€😀".encode(), b"\xff", b"\0", b"\x7f", b"\xed\xa0\x80", b"x" * 40])
).map(b"".join)  # fmt: skip
RECORDS = st.lists(st.tuples(TEXTS, TEXTS, st.lists(st.tuples(st.just(b"h"), TEXTS), max_size=1)), max_size=6)
PLAIN, CONTROL, STAMPED, HORIZON = 0, 32, 8, 64


def dumped(path: Path, **options: Any) -> tuple[bytes, list[bytes], bool]:
    rendering = Rendering(records=True)
    by_lines, by_rows = (opening.open_path(str(path)).dump(rendering=rendering, **options) for _ in "12")
    assert by_lines.lines is not None
    made = b"".join(bytes(piece) for piece in by_lines.lines())
    wanted = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in by_rows]
    assert (by_lines.is_no, by_lines.remarks) == (by_rows.is_no, by_rows.remarks)
    return made, wanted, by_rows.is_no


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(RECORDS, st.sampled_from([PLAIN] * 5 + [CONTROL, STAMPED, HORIZON])), max_size=12))
def test_lines_are_those_of_rows_to_the_byte(tmp_path: Path, batches: list[tuple[Any, int]]) -> None:
    """Whatever the texts hold and however many records a batch has."""
    log, base, data = tmp_path / "t-0" / f"{0:020d}.log", 0, []
    log.parent.mkdir(exist_ok=True)
    for records, attributes in batches:
        made = [record(i, key, value, headers=headers) for i, (key, value, headers) in enumerate(records)]
        data.append(batch(base, made, attributes=attributes, producer_id=base % 3))
        base += max(len(made), 1)
    log.write_bytes(b"".join(data))
    made, wanted, _ = dumped(log)
    assert made == b"".join(wanted)


@pytest.mark.parametrize("slot", [32 << 20, 3000])
def test_lines_of_several_processes_are_the_same(slot: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage and all, also where the lines of a range are too many to be sent."""
    log = tmp_path / "t-0" / "00000000000000000050.log"
    log.parent.mkdir()
    data = bytearray((golden.pristine("4.3.1-crash") / "plain-none-0" / log.name).read_bytes())
    data[1600] ^= 1
    data[3000:3050] = bytes(50)
    log.write_bytes(data)
    monkeypatch.setattr("rmqctl.kafka.dump.lines.SLOT", slot)
    monkeypatch.setattr("rmqctl.kafka.dump.lines.SPLIT_SIZE", 1500)
    made, wanted, is_no = dumped(log.parent, processes=2)
    assert is_no
    assert made == b"".join(wanted)


def test_names_that_are_no_text(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A directory whose name is not UTF-8 is dumped like any other."""
    directory = tmp_path / os.fsdecode(b"t\xff-0")
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(segment(2)) + b"rest")
    found = rows(rmqctl, tmp_path, "--records", code=1)
    assert [row["kind"] for row in found] == ["batch", *["record"] * 3] * 2 + ["finding"]
    assert {row["topic"]["base64"] for row in found if row["kind"] != "finding"} == {"dP8="}


def test_room_never_written_is_one_range(tmp_path: Path) -> None:
    """Several processes do not search the hole at the end of a file bit by bit."""
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(segment(300)))
    os.truncate(log, 1 << 30)
    (store,) = [opening.open_store(str(log.parent))]
    files = list(store.logs.selected_logs())  # type: ignore[attr-defined]
    shared = SharedLines(SegmentDump(Wanted(Filters()), with_records=True), files, 2, lambda file, error: b"")
    assert len(list(shared._ranges(deque()))) == 1
    made, wanted, is_no = dumped(log.parent, processes=2)
    assert made == b"".join(wanted)
    assert not is_no
