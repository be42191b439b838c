"""The annotated hex dump: every byte of every file in exactly one annotation, with the value the schema gives it."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import damage, golden
from formats.rocketmq.batch_consumequeue import COMPACTION_END
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueUnit
from formats.rocketmq.consumequeue_ext import ConsumeQueueExtUnit
from formats.rocketmq.dledger import DLedgerBlank, DLedgerEntry
from formats.rocketmq.epoch import EpochEntry, format_epochs
from formats.rocketmq.message import BlankRecord, MessageRecord, decode_record, encode_record
from formats.rocketmq.timer import TimerLogBlank, TimerLogUnit, TimerWheelSlot
from rmqctl.files.local import BytesSource, LocalFile
from rmqctl.hexview.annotation import Annotation, rows
from rmqctl.hexview.rendering import columns, fold, render
from rmqctl.rocketmq.hexview.annotate import annotate
from rmqctl.rocketmq.store.file_kinds import KINDS, FileKind, KindRow, kind_at, reader
from rmqctl.rocketmq.store.geometry import IndexGeometry
from tests.strategies import records

V2, BLANK_MAGIC = -626843477, -875286124
EXAMPLE = bytes.fromhex(
    "0000007edaa320a73610a68600000001000000000000000000000000000000000000000000000000"
    "0000018bcfe56800c0a8010a0000d4310000018bcfe5687b0a00000100002a9f"
    "0000000000000000000000000000000568656c6c6f09546f7069635465737400154b455953016f72"
    "6465723102544147530154616741"
)
"""The record worked out in section 13 of the format reference."""
LONG_ZEROS = 64


def notes_of(data: bytes, kind: FileKind, **options: Any) -> list[Annotation]:
    options.setdefault("name", "file")
    return list(annotate(BytesSource(data), kind, **options))


def rebuilt(notes: list[Annotation]) -> bytes:
    """The bytes that annotations with everything in them stand for."""
    return b"".join(bytes(n.size) if n.path[-1] in {"zeros", "zero_tail"} else n.raw for n in notes)


def assert_tiles(notes: list[Annotation], size: int, start: int = 0) -> None:
    at = start
    for note in notes:
        assert note.offset == at, note
        assert len(note.raw) <= note.size
        at = note.end
    assert at == size


def by_path(notes: list[Annotation]) -> dict[str, Annotation]:
    return {".".join(n.path): n for n in notes}


def text_of(data: bytes, kind: FileKind, width: int = 100, **options: Any) -> str:
    return "\n".join(render(notes_of(data, kind, **options), width=width))


@cache
def log() -> bytes:
    """Some records of a real log, a blank behind them, then an old tail."""
    data = (golden.pristine("5.5.0-propcrc-clean") / "commitlog" / f"{0:020d}").read_bytes()
    at = 0
    while at < 3000:
        at = decode_record(data, at)[1]
    return data[:at] + BlankRecord.build({"size": 300, "magic": BLANK_MAGIC}) + data[:100] + bytes(192)


@cache
def dledger() -> bytes:
    """Three entries, the second without a record, then a blank."""
    made, at, position = b"", 0, 0
    while at < 2:
        fields = MessageRecord.parse(EXAMPLE)
        fields.physical_offset = position + 48
        body = encode_record(fields)
        for content in (body, b""):
            made += DLedgerEntry.build(
                {
                    "magic": 1 if content else 2, "size": 48 + len(content), "index": len(made), "term": 1,
                    "position": len(made), "channel": 0, "chain_crc": 0, "body_crc": 0, "body_size": len(content),
                }
            ) + content  # fmt: skip
        at, position = at + 1, len(made)
    return made + DLedgerBlank.build({"magic": -1, "size": 60}) + bytes(52)


@cache
def ext() -> bytes:
    """Two units, the end mark, stale bytes."""
    unit = {"tags_code": 5, "store_timestamp": 1700000000000, "bitmap": b"\x01\x02"}
    return b"".join(ConsumeQueueExtUnit.build({"size": 22, **unit}) for _ in range(2)) + b"\xff\xff" + b"old" * 5


@cache
def timer_log() -> bytes:
    """Two units and the blank of a full file."""
    unit = {
        "size": 52, "previous": -1, "magic": 3, "write_time": 1700000000000, "delay": 5000, "physical_offset": 7,
        "message_size": 100, "real_topic_hash": -5, "reserved": 0,
    }  # fmt: skip
    blank = TimerLogBlank.build({"size": 40, "zero": 0, "magic": BLANK_MAGIC})
    return TimerLogUnit.build(unit) * 2 + blank + bytes(24)


def samples() -> dict[FileKind, bytes]:
    """A file of every kind."""
    store = golden.pristine("5.5.0-clean")
    index = next((store / "index").iterdir()).read_bytes()
    unit = ConsumeQueueUnit.build({"physical_offset": 100, "size": 126, "tags_code": 2598919})
    slot = TimerWheelSlot.build({"time": 1700000000, "first": 0, "last": 52, "count": 2, "magic": 0})
    batch = (store / "batchconsumequeue/LabBatchCq/0" / f"{0:020d}").read_bytes()
    return {
        FileKind.COMMIT_LOG: log(),
        FileKind.COMPACTION_LOG: log(),
        FileKind.DLEDGER_DATA: dledger(),
        FileKind.QUEUE: PRE_BLANK * 3 + unit * 3 + bytes(200) + unit[:11],
        FileKind.QUEUE_EXT: ext(),
        FileKind.BATCH_QUEUE: batch,
        FileKind.COMPACTION_QUEUE: batch[:92] + COMPACTION_END + bytes(46),
        FileKind.INDEX: index,
        FileKind.CHECKPOINT: (store / "checkpoint").read_bytes(),
        FileKind.TIMER_WHEEL: bytes(3200) + slot + bytes(640),
        FileKind.TIMER_LOG: timer_log(),
        FileKind.TIMER_CHECK: (store / "config/timercheck").read_bytes(),
        FileKind.DLEDGER_INDEX: bytes(range(1, 33)) * 3,
        FileKind.CONFIG: (store / "config/topics.json").read_bytes(),
        FileKind.EPOCH: format_epochs([EpochEntry(1, 0), EpochEntry(2, 4096)]),
        FileKind.ABORT: b"4711",
        FileKind.LOCK: b"lock",
        FileKind.DLEDGER_CHECKPOINT: b"endIndex=5\ncommittedIndex=5\n",
        FileKind.DLEDGER_TERM: b"currTerm=1\nvoteLeader=n0\n",
        FileKind.IDENTITY: b"DefaultCluster#broker-a#1",
        FileKind.OTHER: b"abc" + bytes(100) + b"x",
    }


SAMPLES = samples()
ANY_KIND = st.sampled_from(list(FileKind))
TEXTS = {FileKind.CONFIG, FileKind.DLEDGER_CHECKPOINT, FileKind.DLEDGER_TERM, FileKind.IDENTITY}


def files_of(name: str) -> Iterator[tuple[str, Path]]:
    root = golden.pristine(name)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path.relative_to(root).as_posix(), path


# --- every byte, once ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.NAMES)
def test_annotations_tile_every_file_of_every_golden_store(name: str) -> None:
    seen = set()
    for relative, path in files_of(name):
        source = LocalFile(path)
        base = int(path.name) if path.name.isdigit() else 0
        notes = list(annotate(source, kind_at(relative), base=base, name=relative))
        source.close()
        assert_tiles(notes, path.stat().st_size)
        wrong = [n for n in notes if n.wrong or (n.group is not None and n.group.wrong)]
        assert not wrong, (relative, wrong[:2])
        seen.add(kind_at(relative))
    assert FileKind.COMMIT_LOG in seen
    assert len(seen) > 3


@pytest.mark.parametrize("kind", list(FileKind))
def test_everything_asked_for_gives_back_the_file(kind: FileKind) -> None:
    data = SAMPLES[kind]
    notes = notes_of(data, kind, limit=None)
    assert_tiles(notes, len(data))
    assert rebuilt(notes) == data
    assert len({n.path for n in notes}) > 1 or kind in {FileKind.ABORT, FileKind.LOCK, FileKind.IDENTITY}


@given(ANY_KIND, st.data())
def test_damaged_files_are_tiled_and_rendered(kind: FileKind, data: st.DataObject) -> None:
    raw = bytearray(SAMPLES[kind][: data.draw(st.integers(0, len(SAMPLES[kind])))])
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    notes = notes_of(bytes(raw), kind, limit=None)
    assert_tiles(notes, len(raw))
    assert rebuilt(notes) == raw
    for line in render(notes):
        assert line.isprintable()
    for row in rows(notes):
        json.dumps(row)


@given(ANY_KIND, st.binary(max_size=600), st.integers(0, 600), st.sampled_from([0, 131072, 1 << 62]))
def test_any_bytes_are_tiled(kind: FileKind, data: bytes, zeros: int, base: int) -> None:
    for content in (data, data + bytes(zeros), bytes(zeros) + data):
        notes = notes_of(content, kind, base=base, limit=None)
        assert_tiles(notes, len(content))
        assert rebuilt(notes) == content
        assert all(line.isprintable() for line in render(notes, width=140, lines=None))


@given(st.lists(records(), min_size=1, max_size=4), st.binary(max_size=30))
def test_records_of_all_layouts_are_tiled(found: list[bytes], between: bytes) -> None:
    data = b""
    for raw in found:
        fields, _ = decode_record(raw)
        data += encode_record({**fields, "physical_offset": len(data)}) + between
    notes = notes_of(data, FileKind.COMMIT_LOG, limit=None)
    assert_tiles(notes, len(data))
    assert rebuilt(notes) == data


@given(ANY_KIND, st.data())
def test_a_range_shows_what_overlaps_it(kind: FileKind, data: st.DataObject) -> None:
    raw = SAMPLES[kind]
    start = data.draw(st.integers(0, len(raw) - 1))
    stop = data.draw(st.integers(start + 1, len(raw)))
    whole = [n for n in notes_of(raw, kind) if n.size and n.offset < stop and n.end > start]
    part = [n for n in notes_of(raw, kind, start=start, stop=stop) if n.size]
    assert part[0].offset <= start
    assert part[-1].end >= stop
    assert_tiles(part, part[-1].end, part[0].offset)
    fields = [n for n in whole if n.value is not None and kind not in TEXTS]
    assert {(n.offset, n.path) for n in fields} <= {(n.offset, n.path) for n in part}


def test_empty_files_and_ranges_have_no_annotations() -> None:
    for kind in FileKind:
        assert notes_of(b"", kind) == []
        assert notes_of(b"abc", kind, start=3) == []
        assert notes_of(b"abc", kind, start=2, stop=2) == []


# --- what is said of fields ---------------------------------------------------------------------


def test_the_worked_example() -> None:
    notes = by_path(notes_of(EXAMPLE, FileKind.COMMIT_LOG))
    expected = {
        "message.total_size": (0, 4, 126, "next at 0x7e"),
        "message.magic": (4, 4, -626843481, "MESSAGE_V1 0xdaa320a7"),
        "message.body_crc": (8, 4, 907060870, "ok"),
        "message.queue_id": (12, 4, 1, ""),
        "message.physical_offset": (0x1C, 8, 0, "ok"),
        "message.sys_flag": (0x24, 4, 0, ""),
        "message.born_timestamp": (0x28, 8, 1700000000000, "2023-11-14T22:13:20.000Z"),
        "message.born_ip": (0x30, 4, "192.168.1.10", ""),
        "message.store_timestamp": (0x38, 8, 1700000000123, "2023-11-14T22:13:20.123Z"),
        "message.body_size": (0x54, 4, 5, ""),
        "message.body": (0x58, 5, "hello", ""),
        "message.topic_size": (0x5D, 1, 9, ""),
        "message.topic": (0x5E, 9, "TopicTest", ""),
        "message.properties_size": (0x67, 2, 21, ""),
        "message.properties.KEYS": (0x69, 12, "order1", ""),
        "message.properties.TAGS": (0x75, 9, "TagA", "tag hash 2598919"),
    }
    assert {p: (n.offset, n.size, n.value, n.meaning) for p, n in notes.items() if p in expected} == expected
    assert len(notes) == 23
    assert notes["message.topic"].depth == 1
    assert notes["message.properties.TAGS"].depth == 2


def test_fields_equal_what_construct_parses() -> None:
    parsed = MessageRecord.parse(EXAMPLE)
    notes = by_path(notes_of(EXAMPLE, FileKind.COMMIT_LOG))
    for name in ("total_size", "queue_id", "flag", "queue_offset", "reconsume_times", "prepared_transaction_offset"):
        assert notes[f"message.{name}"].value == parsed[name]


def test_ipv6_hosts_and_long_topics() -> None:
    fields = {**MessageRecord.parse(EXAMPLE), "magic": V2, "sys_flag": 0x30, "topic": b"t" * 200}
    address = bytes.fromhex("20010db8" + "00" * 11 + "01")
    fields |= {"born_ip": address, "store_ip": address}
    fields["total_size"] = len(encode_record(fields))
    raw = encode_record(fields)
    notes = by_path(notes_of(raw, FileKind.COMMIT_LOG))
    assert notes["message.born_ip"].value == "2001:db8::1"
    assert notes["message.topic_size"].size == 2
    assert notes["message.sys_flag"].meaning == "BORN_HOST_V6, STORE_HOST_V6 0x00000030"
    assert notes["message.magic"].meaning == "MESSAGE_V2 0xdaa320ab"


@pytest.mark.parametrize(
    ("flags", "meaning"),
    [
        (0x1, "COMPRESSED zlib 0x00000001"),
        (0x201 | 0x8, "COMPRESSED zstd, TRANSACTION commit 0x00000209"),
        (0x2, "MULTI_TAGS 0x00000002"),
        (0xC0, "NEED_UNWRAP, INNER_BATCH 0x000000c0"),
    ],
)
def test_flags_are_named(flags: int, meaning: str) -> None:
    raw = encode_record({**MessageRecord.parse(EXAMPLE), "sys_flag": flags})
    assert by_path(notes_of(raw, FileKind.COMMIT_LOG))["message.sys_flag"].meaning == meaning


def test_check_sums_that_do_not_fit_are_said() -> None:
    raw = bytearray(EXAMPLE)
    raw[0x58] ^= 1
    note = by_path(notes_of(bytes(raw), FileKind.COMMIT_LOG))["message.body_crc"]
    assert note.wrong
    assert re.fullmatch(r"bad: the body's is \d+", note.meaning)
    whole = bytearray(log())
    whole[0x20 - 1] ^= 0  # the record is whole here
    crc = by_path(notes_of(bytes(whole), FileKind.COMMIT_LOG, stop=1 << 8))["message.properties.__CRC32#"]
    assert re.fullmatch(r"\d+, ok", crc.meaning)
    whole[0x13] ^= 1  # flag field: only the record's own CRC covers it
    crc = by_path(notes_of(bytes(whole), FileKind.COMMIT_LOG, stop=0xC6))["message.properties.__CRC32#"]
    assert crc.wrong
    assert "bad: the record's is" in crc.meaning


def test_a_record_that_says_it_lies_elsewhere() -> None:
    note = by_path(notes_of(EXAMPLE, FileKind.COMMIT_LOG, base=131072))["message.physical_offset"]
    assert note.wrong
    assert note.meaning == "lies at 131072"


def test_damage_shows_the_header_as_far_as_it_reaches() -> None:
    raw = bytearray(log())
    struct.pack_into(">i", raw, 84, 5000)  # the body's length
    notes = notes_of(bytes(raw), FileKind.COMMIT_LOG, limit=None)
    assert_tiles(notes, len(raw))
    last = [n for n in notes if n.path[0] == "damaged_message"][-1]
    assert (last.path[-1], last.offset, last.value, last.wrong) == ("body_size", 84, 5000, True)
    gap = next(n for n in notes if n.path == ("gap",))
    assert gap.offset == 88
    assert gap.wrong
    assert gap.group is not None
    assert "BODYLEN is 5000" in gap.group.title
    assert gap.group.title.endswith("then a sound record")
    assert next(n for n in notes if n.path == ("message", "total_size")).offset == gap.end


def test_blanks_and_what_is_stale_behind_them() -> None:
    notes = by_path(notes_of(log(), FileKind.COMMIT_LOG))
    assert notes["blank.size"].meaning == "to the end of the file"
    assert notes["blank.magic"].meaning == "BLANK 0xcbd43194"
    assert notes["blank.stale"].size >= 99
    assert notes["blank.zeros"].size >= 192


def test_inner_batches_open_up() -> None:
    path = golden.pristine("5.5.0-clean") / "commitlog" / f"{262144:020d}"
    source = LocalFile(path)
    notes = list(annotate(source, FileKind.COMMIT_LOG, base=262144, name="commitlog", limit=None))
    source.close()
    items = [n for n in notes if n.path[:2] == ("message", "body") and n.path[-1] == "body" and n.depth > 1]
    assert len(items) > 10
    assert all(n.path[2].startswith("item[") and isinstance(n.value, (str, bytes)) for n in items)
    assert_tiles(notes, path.stat().st_size)


def test_dledger_entries_carry_records_and_blanks() -> None:
    notes = notes_of(dledger(), FileKind.DLEDGER_DATA)
    assert_tiles(notes, len(dledger()))
    assert [n.offset for n in notes if n.path == ("entry", "magic")] == [0, 174, 222, 396]
    assert [n.value for n in notes if n.path == ("entry", "message", "topic")] == ["TopicTest", "TopicTest"]
    assert not [n for n in notes if n.wrong]
    assert by_path(notes)["blank.magic"].meaning == "blank"


def test_queue_units() -> None:
    data = PRE_BLANK + b"".join(
        ConsumeQueueUnit.build({"physical_offset": 5, "size": 126, "tags_code": code})
        for code in (0, -5, -(1 << 63) + 22, 1700000000000)
    )
    name = "consumequeue/SCHEDULE_TOPIC_XXXX/3/00000000000000001000"
    notes = notes_of(data, FileKind.QUEUE, base=1000, name=name)
    codes = [n.meaning for n in notes if n.path[-1] == "tags_code"]
    assert codes == ["", "no tag", "tag hash 0xfffffffb", "extension unit at 22", "due 2023-11-14T22:13:20.000Z"]
    assert notes[0].path == ("pre_blank", "physical_offset")
    assert [n.group.title for n in notes if n.group][::3] == [f"queue offset {o}" for o in range(50, 55)]


def test_a_unit_cut_by_the_end_of_the_file() -> None:
    notes = notes_of(SAMPLES[FileKind.QUEUE], FileKind.QUEUE)
    assert notes[-1].path == ("unit", "size")
    assert (notes[-1].size, notes[-1].wrong, notes[-1].meaning) == (3, True, "cut: 3 of 4 bytes")
    notes = notes_of(SAMPLES[FileKind.QUEUE][:68], FileKind.QUEUE)
    assert (notes[-1].wrong, notes[-1].meaning) == (True, "the file ends after 8 bytes of the unit")


def test_extension_units_end_mark_and_nonsense() -> None:
    notes = by_path(notes_of(ext(), FileKind.QUEUE_EXT))
    assert notes["unit.bitmap"].value == "\x01\x02"
    assert notes["end.size"].meaning == "ends the file"
    assert notes["end.stale"].size == 15
    bad = notes_of(b"\x00\x05" + b"x" * 50, FileKind.QUEUE_EXT)
    assert bad[0].group is not None
    assert bad[0].group.title.startswith("a size of 5 is no unit's")


def test_timer_units_and_blank() -> None:
    notes = by_path(notes_of(timer_log(), FileKind.TIMER_LOG))
    assert notes["unit.magic"].meaning == "DEFAULT, ROLL"
    assert notes["unit.delay"].meaning == "due 2023-11-14T22:13:25.000Z"
    assert notes["blank.size"].meaning == "to the end of the file"
    slot = by_path(notes_of(SAMPLES[FileKind.TIMER_WHEEL], FileKind.TIMER_WHEEL))["slot.time"]
    assert slot.meaning == "2023-11-14T22:13:20.000Z at a precision of 1 s"


def test_index_slots_lead_to_entries() -> None:
    path = min((golden.pristine("5.5.0-clean") / "index").iterdir())
    data = path.read_bytes()
    notes = notes_of(data, FileKind.INDEX, limit=None)
    assert rebuilt(notes) == data
    header = by_path(notes)["header.index_count"]
    entries = [n for n in notes if n.path == ("entry", "key_hash")]
    assert len(entries) == header.value - 1  # type: ignore[operator]
    slots = [n for n in notes if n.path == ("slot", "newest")]
    assert slots
    places = {n.offset for n in entries}
    assert all(int(n.meaning.removeprefix("entry at "), 16) in places for n in slots)


def test_an_index_of_unknown_geometry_says_so() -> None:
    data = bytes(36) + struct.pack(">i", 5) + b"x" * 1000
    notes = notes_of(data, FileKind.INDEX)
    assert_tiles(notes, len(data))
    assert notes[-1].group is not None
    assert "numbers of slots and entries are not known" in notes[-1].group.title
    known = notes_of(data, FileKind.INDEX, index=IndexGeometry(50, 40))
    assert [n.path for n in known if n.path[0] == "slot"]


def test_checkpoint_times() -> None:
    notes = by_path(
        notes_of(Checkpoint.build(dict.fromkeys((s.name for s in Checkpoint.subcons), 0)), FileKind.CHECKPOINT)
    )
    assert notes["checkpoint.index_msg_timestamp"].meaning == "not set"
    assert len(notes) == 6


@pytest.mark.parametrize(
    ("kind", "data", "title", "wrong"),
    [
        (FileKind.CONFIG, b'{"a":{0:1,}}', "JSON", False),
        (FileKind.CONFIG, b'{"a":', "no JSON: Expecting value at line 1", True),
        (FileKind.EPOCH, format_epochs([EpochEntry(1, 0)]), "1 epochs, count and CRC ok", False),
        (FileKind.EPOCH, b"1\n5\n1-0\n", "CRC 5 does not match the entries", True),
        (FileKind.ABORT, b"4711", "process 4711 runs or was not stopped cleanly", False),
        (FileKind.LOCK, b"lock", "as a broker writes it", False),
        (FileKind.CONFIG, bytes(4096), "no JSON: is empty", True),
        (FileKind.LOCK, b"\0\0", "not what a broker writes", True),
    ],
)
def test_text_files_are_judged(kind: FileKind, data: bytes, title: str, wrong: bool) -> None:
    group = notes_of(data, kind)[0].group
    assert group is not None
    assert (group.title, group.wrong) == (title, wrong)
    assert [n.wrong for n in notes_of(data, kind)][:2] == [wrong, False][: len(notes_of(data, kind))]


def test_lines_are_numbered_over_windows() -> None:
    data = b"".join(b"line %d\r\n" % i for i in range(20000)) + b"last"
    notes = notes_of(data, FileKind.DLEDGER_TERM)
    assert_tiles(notes, len(data))
    assert [n.path[-1] for n in notes] == [f"line[{i}]" for i in range(1, 20002)]
    assert notes[12345].value == "line 12345"


def test_a_file_cut_while_it_is_read() -> None:
    class Shrinking(BytesSource):
        def size(self) -> int:
            return 5000

    for kind in FileKind:
        notes = list(annotate(Shrinking(SAMPLES[kind][:1000]), kind, name="f"))
        assert_tiles(notes, 5000)


# --- kinds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("commitlog/00000000000000000000", FileKind.COMMIT_LOG),
        ("commitlog-2/00000000000000131072", FileKind.COMMIT_LOG),
        ("consumequeue/%RETRY%g/0/00000000000000000000", FileKind.QUEUE),
        ("consumequeue_ext/T/0/00000000000000000000", FileKind.QUEUE_EXT),
        ("batchconsumequeue/T/0/00000000000000000000", FileKind.BATCH_QUEUE),
        ("compaction/compactionLog/T/0/00000000000000000000", FileKind.COMPACTION_LOG),
        ("compaction/compactionCq/T/0/00000000000000000000", FileKind.COMPACTION_QUEUE),
        ("compaction/position-checkpoint", FileKind.CONFIG),
        ("index/20261121014405104", FileKind.INDEX),
        ("checkpoint", FileKind.CHECKPOINT),
        ("timerwheel", FileKind.TIMER_WHEEL),
        ("timerlog/00000000000000000000", FileKind.TIMER_LOG),
        ("config/timercheck", FileKind.TIMER_CHECK),
        ("config/topics.json.bak", FileKind.CONFIG),
        ("config/rdb/CURRENT", FileKind.OTHER),
        ("consumequeue/000010.sst", FileKind.OTHER),
        ("dledger-n0/data/00000000000000000000", FileKind.DLEDGER_DATA),
        ("dledger-n0/index/00000000000000000000", FileKind.DLEDGER_INDEX),
        ("dledger-n0/currterm", FileKind.DLEDGER_TERM),
        ("epochFileCheckpoint.bak", FileKind.EPOCH),
        ("abort", FileKind.ABORT),
        ("lock", FileKind.LOCK),
    ],
)
def test_kinds_by_path(path: str, kind: FileKind) -> None:
    assert kind_at(path) == kind


# --- as text and as rows ------------------------------------------------------------------------


def test_lines_put_bytes_in_their_place() -> None:
    lines = text_of(EXAMPLE, FileKind.COMMIT_LOG).splitlines()
    assert lines[0] == "00000000                        |        |message TopicTest/1 queue offset 0 0x0-0x7d.126"
    assert lines[1] == "00000000 00 00 00 7e            |...~    |  total_size: 126 (next at 0x7e) 0x0-0x3.4"
    assert lines[2] == "00000000             da a3 20 a7|    .. .|  magic: -626843481 (MESSAGE_V1 0xdaa320a7) 0x4-0x7.4"
    wide = text_of(EXAMPLE, FileKind.COMMIT_LOG, width=140).splitlines()
    assert wide[2].startswith(
        "00000000             da a3 20 a7                        |    .. .        |  magic: -6268"
    )


@pytest.mark.parametrize("width", [60, 100, 131, 132, 200])
def test_lines_fit_the_width(width: int) -> None:
    for kind, data in SAMPLES.items():
        for line in text_of(data, kind, width).splitlines():
            assert len(line) <= max(width, 68)


def test_text_shows_every_byte_of_short_fields_once() -> None:
    shown = b"".join(
        bytes.fromhex(line[9:32].replace(" ", "")) for line in text_of(EXAMPLE, FileKind.COMMIT_LOG).splitlines()
    )
    assert shown == EXAMPLE


def test_long_fields_and_zeros_fold() -> None:
    fields = {**MessageRecord.parse(EXAMPLE), "body": b"z" * 5000}
    fields["total_size"] = 126 + 4995
    raw = encode_record(fields)
    lines = text_of(raw + bytes(57600), FileKind.COMMIT_LOG).splitlines()
    assert any(line.endswith("|  * 4,968 bytes more, up to 0x13df") for line in lines)
    assert lines[-2] == "00001401 *                      |        |zero_tail (57,600 bytes, never written)"
    assert lines[-1] == "                                |        |    0x1401-0xf500.57600"
    assert len(lines) < 60
    unfolded = list(render(notes_of(raw, FileKind.COMMIT_LOG, limit=None), lines=None))
    assert len(unfolded) > 5000 / 8


@given(st.text(alphabet="ab 库存é", max_size=80), st.integers(12, 40))
def test_folding_keeps_the_text_and_the_width(text: str, width: int) -> None:
    lines = fold(text, width, " ", "   ")
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_colour_adds_only_escapes() -> None:
    plain = list(render(notes_of(log(), FileKind.COMMIT_LOG)))
    coloured = list(render(notes_of(log(), FileKind.COMMIT_LOG), colour=True))
    assert any("\x1b[" in line for line in coloured)
    assert [re.sub(r"\x1b\[\d*m", "", line).rstrip() for line in coloured] == plain


def test_control_characters_do_not_reach_the_terminal() -> None:
    raw = encode_record({**MessageRecord.parse(EXAMPLE), "body": b"\x1b[2J\x07"})
    assert "\x1b" not in text_of(raw, FileKind.COMMIT_LOG)
    assert '"\\x1b[2J\\x07"' in text_of(raw, FileKind.COMMIT_LOG)


def test_rows_are_json() -> None:
    found = list(rows(notes_of(EXAMPLE, FileKind.COMMIT_LOG, name="commitlog/0")))
    assert found[0] == {
        "kind": "field",
        "file": "commitlog/0",
        "position": 0,
        "size": 4,
        "name": "total_size",
        "path": ["message", "total_size"],
        "value": 126,
        "meaning": "next at 0x7e",
        "wrong": False,
        "raw": "0000007e",
        "record": {"name": "message", "position": 0, "size": 126, "title": "TopicTest/1 queue offset 0"},
    }
    long = next(iter(rows(notes_of(b"\xff" * 1000, FileKind.OTHER))))
    assert long["raw_truncated"] is True
    assert len(long["raw"]) == 512
    bad = {**MessageRecord.parse(EXAMPLE), "body": b"\xff" * 5}
    body = next(r for r in rows(notes_of(encode_record(bad), FileKind.COMMIT_LOG)) if r["name"] == "body")
    assert body["value"] == {"base64": "//////8="}


def test_memory_stays_bounded_on_a_large_sparse_file(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / f"{0:020d}"
    with path.open("wb") as file:
        file.write(EXAMPLE)
        file.truncate(4 << 30)
    source = LocalFile(path)
    tracemalloc.start()
    try:
        notes = list(annotate(source, FileKind.COMMIT_LOG, name="commitlog"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        source.close()
    assert_tiles(notes, 4 << 30)
    assert notes[-1].path == ("zero_tail",)
    assert peak < 64 << 20


def test_every_kind_of_file_has_a_walker() -> None:
    assert set(KINDS) == set(FileKind) == set(SAMPLES)


@pytest.mark.parametrize("row", KINDS.values(), ids=lambda row: row.kind)
def test_what_the_table_of_kinds_names_is_there(row: KindRow) -> None:
    assert callable(reader(row.walk))
    assert all(callable(reader(name)) for name in (row.rows, row.looks) if name)


def test_the_examples_of_the_manual_are_what_is_printed() -> None:
    manual = (Path(__file__).parent.parent / "docs" / "hex.md").read_text("utf-8")
    message, damage = re.findall(r"```text\n(.*?)\n```", manual, re.DOTALL)
    assert message == text_of(EXAMPLE + bytes(3970), FileKind.COMMIT_LOG)
    raw = bytearray(log())
    struct.pack_into(">i", raw, 84, 5000)
    assert damage == text_of(bytes(raw), FileKind.COMMIT_LOG, stop=100)


@pytest.mark.parametrize(
    "release", ["4.9.8", *(pytest.param(r, marks=pytest.mark.slow) for r in golden.RELEASES if r != "4.9.8")]
)
def test_every_file_that_a_damage_recipe_touches_is_tiled(release: str, tmp_path: Path) -> None:
    roots = {f"{release}-{state}": golden.unpack(f"{release}-{state}", tmp_path) for state in ("clean", "crash")}
    count = 0
    for variant in golden.recovery_oracle(release)["variants"].values():
        root, recipe = roots[variant["base"]], variant["recipe"]
        damage.apply(recipe, root)
        for name in {edit["file"] for edit in recipe if "file" in edit}:
            path = root / name
            if path.is_file():
                base = int(path.name) if path.name.isdigit() else 0
                data = path.read_bytes()
                notes = notes_of(data, kind_at(name), base=base, name=name, limit=None)
                assert_tiles(notes, len(data))
                assert rebuilt(notes) == data
                count += 1
        damage.undo(recipe, golden.pristine(variant["base"]), root)
    assert count > 50
