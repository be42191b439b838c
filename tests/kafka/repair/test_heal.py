"""Flipped bits and bursts in real batches: each comes back as it was, or is not touched; never as something else."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from crc32c import crc32c

from fixtures import golden
from formats.kafka.record_batch import Attributes
from rmqctl.files.tree import LocalTree
from rmqctl.kafka.directory.directory import Partition, read_directory
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.repair.bridge import bridge, empty_batch
from rmqctl.kafka.repair.heal import Healer
from rmqctl.kafka.repair.log import LogMender
from rmqctl.kafka.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.kafka.repair.sides import batches_in
from rmqctl.kafka.repair.survey import LOG_KINDS, Batch, Survey
from rmqctl.kafka.verify.driver import Verification, VerifyOptions
from rmqctl.release import Release
from rmqctl.repair.edited_file import Overlay
from rmqctl.repair.edits import Overwrite, SetTimes
from tests.kafka.batches import TIME, batch, record
from tests.kafka.repair.attacked import Verdict, judge_root, outermost
from tests.kafka.repair.judged import opened
from tests.kafka.repair.test_bridge import PRODUCER
from tests.kafka.repair.test_markers import alone

NOTHING: Mapping[str, bytes] = MappingProxyType({})
SEGMENT = "00000000000000000091.log"
PLACES = {"plain-none-0": SEGMENT, "z-gzip-0": "00000000000000000060.log", "txn-a-0": "00000000000000000103.log"}


class Bench:
    """One segment of a golden directory, alone in its partition."""

    def __init__(self, topic: str, room: Path) -> None:
        self.name = PLACES[topic]
        self.data = (golden.pristine("3.9.2-crash") / topic / self.name).read_bytes()
        self.root = room
        self.path = room / topic / self.name
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(self.data)
        (room / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
        survey = Survey(self._partition())
        self.batches = [(survey.batch(row).position, survey.batch(row).end) for row in range(len(survey))]

    def _partition(self) -> Partition:
        return read_directory(LocalTree(str(self.root))).partitions[0]

    def healed(self, damaged: bytes) -> bytes:
        """What healing makes of the segment."""
        self.path.write_bytes(damaged)
        directory = read_directory(LocalTree(str(self.root)))
        found = Verification(directory, VerifyOptions("structure", cross=False)).findings()
        survey = Survey(directory.partitions[0], [f for f in found if f.kind in LOG_KINDS])
        out = bytearray(damaged)
        mender = LogMender(survey, (), self.root, self.root.joinpath, compacted=False)
        for step in Healer(survey, (), compacted=False).steps(mender):
            for edit in step.edits:
                assert isinstance(edit, Overwrite | SetTimes)
                if isinstance(edit, Overwrite):
                    out[edit.offset : edit.offset + len(edit.after)] = edit.after
        return bytes(out)

    def flipped(self, bit: int, pattern: int = 1) -> bytes:
        """The segment with bits exclusive-ored, ``bit`` bits from its end."""
        return (int.from_bytes(self.data, "big") ^ pattern << bit).to_bytes(len(self.data), "big")


def _bits(bench: Bench, step: int) -> range:
    """Bits of a batch in the middle, as distances from the end of the segment."""
    begin, end = bench.batches[len(bench.batches) // 2]
    return range(8 * (len(bench.data) - end), 8 * (len(bench.data) - begin), step)


@pytest.mark.parametrize(
    ("topic", "step"),
    [("plain-none-0", 13), *(pytest.param(topic, 1, marks=pytest.mark.slow) for topic in PLACES)],
)
def test_single_bits(topic: str, step: int, tmp_path: Path) -> None:
    bench = Bench(topic, tmp_path)
    exact = untouched = 0
    for bit in _bits(bench, step):
        damaged = bench.flipped(bit)
        healed = bench.healed(damaged)
        assert healed in (bench.data, damaged), f"bit {bit} became something else"
        exact += healed == bench.data
        untouched += healed == damaged
    assert untouched <= 0.05 * exact, "few flips leave no trace: an epoch that fits between its neighbours"


@pytest.mark.parametrize("topic", ["plain-none-0", pytest.param("z-gzip-0", marks=pytest.mark.slow)])
def test_bursts(topic: str, tmp_path: Path) -> None:
    bench, draw = Bench(topic, tmp_path), random.Random(topic)
    exact, bits = 0, _bits(bench, 1)
    for number in range(40):
        length = 2 + number % 15
        pattern = 1 | 1 << length - 1 | draw.getrandbits(length)
        damaged = bench.flipped(draw.choice(bits), pattern)
        healed = bench.healed(damaged)
        assert healed in (bench.data, damaged) or _differs_in_one_batch(bench, healed)
        exact += healed == bench.data
    assert exact >= 20


def _differs_in_one_batch(bench: Bench, healed: bytes) -> bool:
    """A burst over the edge of two batches may leave one of them damaged; the other is as it was."""
    return sum(healed[a:b] != bench.data[a:b] for a, b in bench.batches) == 1


def _headless(data: bytes, batch: Batch, how: str) -> bytes:
    """A segment in which bytes around the beginning of a batch are gone or are others, but none from its CRC on."""
    at = batch.position
    if how == "moved":
        return data[: at - 9] + data[at + 8 :]
    if how == "cut":
        return data[:at] + data[at + 5 :]
    if how == "zeros":
        return data[: at - 13] + bytes(30) + data[at + 17 :]
    return data[: at - 40] + b"\xa5" * 50 + data[at + 9 :]


@pytest.mark.parametrize("how", ["moved", "cut", "zeros", "grown"])
@pytest.mark.parametrize("topic", ["plain-none-0", "z-gzip-0"])
def test_a_batch_without_its_first_bytes_keeps_its_records(topic: str, how: str, tmp_path: Path) -> None:
    root = alone("3.9.2-crash", topic, tmp_path)
    survey = Survey(opened(root).partitions[0])
    batch = survey.batch(len(survey) // 2)
    path = root / survey.files[batch.segment].name
    wanted = survey.bytes_of(batch)
    path.write_bytes(_headless(path.read_bytes(), batch, how))
    (tmp_path / "staged").mkdir()
    plan = plan_repair(opened(root), RepairOptions(Release(3, 9, 2)), tmp_path / "staged")
    after = Survey(overlaid(opened(root), plan.plan.steps).partitions[0])
    assert wanted in [after.bytes_of(after.batch(row)) for row in range(len(after))]
    assert not any(step.loses > 12 for step in plan.plan.steps), "at most the batch before it is given up"
    assert not plan.refusal


def test_no_offset_is_guessed_for_a_batch_without_its_first_bytes(tmp_path: Path) -> None:
    """At the end of a log nobody knows how much is gone before it; a piece that stands in the log twice is too many."""
    root = alone("3.9.2-crash", "plain-none-0", tmp_path)
    survey = Survey(opened(root).partitions[0])
    last, other = survey.batch(len(survey) - 1), survey.batch(len(survey) - 4)
    path = root / survey.files[last.segment].name
    data = path.read_bytes()
    (tmp_path / "staged").mkdir()
    for damaged in (
        data[: other.position] + data[last.position + 6 : last.end],
        data[: last.end] + bytes(17) + data[other.position + 17 : other.end],
    ):
        path.write_bytes(damaged)
        plan = plan_repair(opened(root), RepairOptions(Release(3, 9, 2)), tmp_path / "staged")
        after = Survey(overlaid(opened(root), plan.plan.steps).partitions[0])
        ends = after.columns["last_offset"].tolist()
        assert max(ends) <= last.last_offset
        assert not [step.what for step in plan.plan.steps if "again, offset" in step.what]


def _repaired(root: Path, data: bytes, beside: Mapping[str, bytes] = NOTHING) -> tuple[dict[int, bytes], int]:
    """Repair a log of one segment: the bytes from the CRC on by base offset, and the records that it says it loses.

    Args:
        beside: other files.
    """
    path = root / "t-0" / f"{0:020d}.log"
    staged = root.parent / "staged"
    for made in (path.parent, staged):
        made.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
    for name, content in beside.items():
        (root / name).write_bytes(content)
    repair = plan_repair(opened(root), RepairOptions(Release(4, 1, 0)), staged)
    assert not repair.refusal
    after = Survey(overlaid(opened(root), repair.plan.steps).partitions[0])
    batches = [after.batch(row) for row, count in enumerate(after.columns["records_count"].tolist()) if count]
    held = {b.base_offset: after.bytes_of(b)[17:] for b in batches if not b.attributes & Attributes.CONTROL}
    return held, sum(s.loses for s in repair.plan.steps)


LOG = [batch(n, [record(0, b"k%03d" % n, b"v%04d" % n * 8)]) for n in range(14)]
WHOLE = b"".join(LOG)
SIZE = len(LOG[0])


def _zeroed(begin: int, end: int, of: bytes = WHOLE) -> bytes:
    return of[:begin] + bytes(end - begin) + of[end:]


def _put(at: int, data: bytes, over: int = 0, of: bytes = WHOLE) -> bytes:
    return of[:at] + data + of[at + over :]


BRIDGES = {
    "without a producer": empty_batch(4, 6, 0, TIME),
    "of its bytes": bridge(4, 7, 0, TIME, 3 * SIZE, None),
    "that a producer goes on with": bridge(4, 7, 0, TIME, 3 * SIZE, replace(PRODUCER, epoch=0)),
}


@pytest.mark.parametrize("how", BRIDGES)
def test_a_log_with_a_bridge_is_not_taken_for_a_compacted_one(how: str, tmp_path: Path) -> None:
    """No offset is missing in it: the one before a batch, or none after it, says which offset was overwritten."""
    log = [*LOG[:4], BRIDGES[how] or b"", *LOG[7:]]
    log[6], log[7] = b"\0\0\0\0\0\0\x5a\xa5" + LOG[8][8:], LOG[9][:70] + bytes(9) + LOG[9][79:]
    log[-1] = b"\0\0\0\0\0\0\0\3" + LOG[13][8:]
    held, lost = _repaired(tmp_path, b"".join(log))
    assert held == {n: LOG[n][17:] for n in (*range(4), 7, 8, *range(10, 14))}
    assert lost == 1


@pytest.mark.parametrize("producer", [True, False])
def test_a_batch_that_the_cleaner_emptied_shows_compaction(producer: bool, tmp_path: Path) -> None:
    """It keeps one for its producer, and nothing of nobody goes on there."""
    emptied = empty_batch(4, 6, 0, TIME, PRODUCER if producer else None)
    _repaired(tmp_path, b"".join([*LOG[:4], emptied, *LOG[7:]]))
    assert Survey(opened(tmp_path).partitions[0]).misses_offsets is producer


@pytest.mark.parametrize(
    ("data", "gone"),
    [
        pytest.param(_zeroed(2 * SIZE + 55, 4 * SIZE + 16), {2, 3}, id="zeros over a head"),
        pytest.param(_zeroed(SIZE - 8, SIZE + 12), {0}, id="zeros over the second head"),
        pytest.param(_zeroed(SIZE - 10, SIZE + 10), {0}, id="zeros over the second base offset"),
        pytest.param(WHOLE[: 8 * SIZE + 55] + WHOLE[10 * SIZE + 16 :], {8, 9}, id="a head cut"),
        pytest.param(_put(6, b"\7", 1), set(), id="a byte of the first base offset"),
        pytest.param(_put(5, b"\xe8", 1), set(), id="a high byte of the first base offset"),
        pytest.param(_put(6, b"\7", 1, WHOLE[: 3 * SIZE]), set(), id="one of three"),
        pytest.param(_put(6, b"\7", 1, WHOLE[: 2 * SIZE]), set(), id="one of two"),
        pytest.param(_put(7, b"\1", 1), set(), id="the first is as the second"),
        pytest.param(_put(30, bytes(range(60, 149)), 89), {0}, id="the second is far outside"),
        pytest.param(_put(13 * SIZE + 8, b"\x1d"), set(), id="a byte after the last base offset"),
        pytest.param(_put(13 * SIZE + 4, b"\x1d"), set(), id="a byte in the last base offset"),
        pytest.param(_put(13 * SIZE + 6, b"\0\1\2"), set(), id="bytes in the last base offset"),
        pytest.param(_put(13 * SIZE + 11, b"\0\0\1"), set(), id="bytes in the last length"),
        pytest.param(WHOLE[: 12 * SIZE + 30] + LOG[13], {12}, id="a batch cut in two before the last"),
    ],
)
def test_a_damaged_base_offset_is_never_another(data: bytes, gone: set[int], tmp_path: Path) -> None:
    """What is kept has the offset that it had, nothing sound is given up, and what is lost is said."""
    after, loses = _repaired(tmp_path / "d", data)
    count = 14 if len(data) > 4 * SIZE else len(data) // SIZE
    assert after == {n: LOG[n][17:] for n in range(count) if n not in gone}
    assert loses == len(gone)


def test_a_sound_batch_that_is_given_up_is_counted(tmp_path: Path) -> None:
    other = batch(3, [record(0, b"other", b"one"), record(1, b"other", b"two")])
    _, loses = _repaired(tmp_path / "a", WHOLE[: 5 * SIZE] + other + WHOLE[5 * SIZE :])
    assert loses == 2, "it is nowhere else"
    _, loses = _repaired(tmp_path / "b", WHOLE[: 5 * SIZE] + LOG[3] + WHOLE[5 * SIZE :])
    assert loses == 0, "it stands in the log twice"


@pytest.mark.filterwarnings("error")
def test_offsets_beyond_64_bits(tmp_path: Path) -> None:
    wrapped = batch(2**63 - 1, [record(0, b"a", b"b"), record(1, b"a", b"b")])
    _repaired(tmp_path / "d", WHOLE[: 3 * SIZE] + wrapped + WHOLE[4 * SIZE :])
    path = tmp_path / "d" / "t-0" / f"{0:020d}.log"
    path.rename(path.with_name(f"{2**63 - 1:020d}.log"))
    assert list(Verification(opened(tmp_path / "d"), VerifyOptions("structure", cross=False)).findings())


ENTRY = (13).to_bytes(4, "big") + (13 * SIZE).to_bytes(4, "big")
"""Of the offset index, for the last batch."""


@pytest.mark.parametrize(
    ("offset", "beside", "right"),
    [
        pytest.param(15, {"t-0/00000000000000000000.index": ENTRY}, 13, id="its index entry"),
        pytest.param(
            15,
            {FileKind.CLEAN_SHUTDOWN: b"", FileKind.RECOVERY_POINTS: b"0\n1\nt 0 14\n"},
            13,
            id="the end at an orderly stop",
        ),
        pytest.param(45, {FileKind.HIGH_WATERMARKS: b"0\n1\nt 0 14\n"}, 45, id="a bit, and an old watermark"),
        pytest.param(13 + (1 << 20), {}, 13 + (1 << 20), id="a bit that skips a million offsets"),
        pytest.param(
            45,
            {FileKind.HIGH_WATERMARKS: b"0\n1\nt 0 46\n", "t-0/00000000000000000000.index": ENTRY},
            45,
            id="the watermark is against the index entry",
        ),
        pytest.param(
            15, {FileKind.HIGH_WATERMARKS: b"0\n1\nt 0 14\n"}, 15, id="the watermark may be of a batch that is gone"
        ),
        pytest.param(
            45, {FileKind.HIGH_WATERMARKS: b"0\n1\nt 0 46\n"}, 45, id="the high watermark says that it is right"
        ),
        pytest.param(45, {}, 45, id="nothing says which"),
    ],
)
def test_the_base_offset_of_the_last_batch(offset: int, beside: dict[str, bytes], right: int, tmp_path: Path) -> None:
    data = _put(13 * SIZE, offset.to_bytes(8, "big"), 8)
    after, loses = _repaired(tmp_path / "d", data, beside)
    assert after == {**{n: LOG[n][17:] for n in range(13)}, right: LOG[13][17:]}
    assert loses == 0
    if right == offset:
        staged = tmp_path / "staged"
        left = plan_repair(opened(tmp_path / "d"), RepairOptions(Release(4, 3, 1)), staged).left
        assert [step.id for step in left] == ["batch.offset-gap"]
        assert "the last batch: they are lost, or its base offset is wrong, and nothing here says which" in left[0].what


def _ends_at(offset: int) -> dict[str, bytes]:
    """What lies beside a log that ended at an offset when its broker was stopped in order."""
    stored = f"0\n1\nt 0 {offset}\n".encode()
    return {FileKind.CLEAN_SHUTDOWN: b"", FileKind.RECOVERY_POINTS: stored, FileKind.HIGH_WATERMARKS: stored}


CLEANED: dict[str, bytes] = {FileKind.CLEANER_OFFSETS: b"0\n1\nt 0 9\n"}


@pytest.mark.parametrize(
    ("wrong", "right", "end"),
    [
        pytest.param(9 | 1 << 35, 9, 10, id="the log end leaves only one"),
        pytest.param(3, 9, 10, id="lower than the one before, and the log end leaves only one"),
        pytest.param(9 | 1 << 5, 9, 10, id="after the log end, which leaves only one"),
        pytest.param(9 | 1 << 5, 9 | 1 << 5, None, id="nothing says where the log ended"),
        pytest.param(9 | 1 << 5, 9 | 1 << 5, 11, id="a log end that another batch had"),
        pytest.param(9 | 3 << 5, 9 | 3 << 5, 10, id="two bits after the log end"),
        pytest.param(11 | 1 << 35, None, 12, id="compaction may have left any of three"),
        pytest.param(13 | 1 << 35, None, None, id="nothing says which"),
        pytest.param(11 ^ (1 << 35 | 1 << 2), None, None, id="two bits"),
    ],
)
def test_a_last_batch_of_a_compacted_log_out_of_its_place(
    wrong: int, right: int | None, end: int | None, tmp_path: Path
) -> None:
    """Any offset after the batch before it may be right there: without proof no bit is guessed, and it is cut off."""
    data = WHOLE[: 9 * SIZE] + wrong.to_bytes(8, "big") + LOG[11][8:]
    after, loses = _repaired(tmp_path / "d", data, CLEANED if end is None else CLEANED | _ends_at(end))
    kept = {n: LOG[n][17:] for n in range(9)}
    assert (after, loses) == ((kept, 1) if right is None else ({**kept, right: LOG[11][17:]}, 0))


COMPACTED = LOG[1] + LOG[3] + LOG[7] + LOG[9]
LATER = {f"t-0/{12:020d}.log": b""}


@pytest.mark.parametrize(
    ("data", "beside"),
    [
        pytest.param(COMPACTED, CLEANED | LATER | _ends_at(12), id="the next segment begins at the end of the log"),
        pytest.param(COMPACTED, LATER | _ends_at(12), id="nothing says that it is compacted"),
        pytest.param(COMPACTED, CLEANED | _ends_at(12), id="the end is gone, up to a batch"),
        pytest.param(WHOLE[: 10 * SIZE], _ends_at(12), id="the end is gone, nothing compacted"),
        pytest.param(
            COMPACTED,
            {**CLEANED, "t-0/00000000000000000000.index": (11).to_bytes(4, "big") + (3 * SIZE).to_bytes(4, "big")},
            id="the index entry is of an append of several batches",
        ),
        pytest.param(
            WHOLE[: 10 * SIZE],
            {"t-0/00000000000000000000.index": (11).to_bytes(4, "big") + (9 * SIZE).to_bytes(4, "big")},
            id="likewise, nothing compacted",
        ),
        pytest.param(COMPACTED, {f"t-0/{12:020d}.snapshot": b""}, id="a snapshot after it"),
    ],
)
def test_a_sound_last_batch_keeps_its_offset(data: bytes, beside: dict[str, bytes], tmp_path: Path) -> None:
    after, loses = _repaired(tmp_path / "d", data, beside)
    offsets = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), SIZE)]
    assert (after, loses) == ({n: LOG[n][17:] for n in offsets}, 0)
    found = Verification(opened(tmp_path / "d"), VerifyOptions("structure", cross=False)).findings()
    assert "batch.offset-order" not in {finding.kind.id for finding in found}


def test_an_entry_of_an_append_does_not_move_the_last_batch_after_destroyed_ones(tmp_path: Path) -> None:
    data = _zeroed(2 * SIZE, 4 * SIZE)[: 5 * SIZE]
    entry = (9).to_bytes(4, "big") + (4 * SIZE).to_bytes(4, "big")
    after, loses = _repaired(tmp_path / "d", data, {"t-0/00000000000000000000.index": entry})
    assert (after, loses) == ({n: LOG[n][17:] for n in (0, 1, 4)}, 2)


def test_a_sequence_of_another_epoch_of_the_producer_moves_nothing(tmp_path: Path) -> None:
    """Each transaction has an epoch of its own, and its first record sequence 0."""
    log = [
        batch(n, [record(0, b"k", b"v" * 20)], producer_id=5, producer_epoch=n, base_sequence=0, attributes=0x10)
        if n % 2 == 0
        else batch(n, [record(0, b"\0\0\0\1", b"\0" * 6)], producer_id=5, producer_epoch=n - 1, attributes=0x30)
        for n in range(11)
    ]
    data = b"".join(log[:4]) + bytes(sum(map(len, log[4:10]))) + log[10]
    content = struct.pack(">iqhiqiqiq", 1, 5, 6, 0, 6, 0, TIME, 0, -1)
    snapshot = struct.pack(">hI", 1, crc32c(content)) + content
    after, loses = _repaired(tmp_path / "d", data, {f"t-0/{7:020d}.snapshot": snapshot})
    assert (set(after), loses) == ({0, 2, 10}, 6)


@pytest.mark.parametrize("mark", ["delete", "future", "stray"])
def test_the_checkpoints_say_nothing_of_a_marked_directory(mark: str, tmp_path: Path) -> None:
    root, name = tmp_path / "d", f"t-0.{'0123456789abcdef' * 2}-{mark}"
    (root / name).mkdir(parents=True)
    (root / name / f"{0:020d}.log").write_bytes(_put(13 * SIZE, (45).to_bytes(8, "big"), 8))
    _repaired(root, WHOLE, _ends_at(14))
    found = Verification(opened(root), VerifyOptions("structure", cross=False)).findings()
    assert "batch.offset-order" not in {finding.kind.id for finding in found}


@pytest.mark.parametrize("offset", [3, 4, 2, 5, 1])
def test_the_base_offset_of_the_batch_after_damage(offset: int, tmp_path: Path) -> None:
    """Batches 4 and 5 are destroyed; what follows them says which offset the next one has."""
    data = _put(6 * SIZE, offset.to_bytes(8, "big"), 8, _zeroed(4 * SIZE, 6 * SIZE))
    assert _repaired(tmp_path / "d", data) == ({n: LOG[n][17:] for n in range(14) if n not in {4, 5}}, 2)


@pytest.mark.parametrize("offset", [4, 5, 2])
def test_the_base_offset_of_the_last_batch_of_a_segment_after_damage(offset: int, tmp_path: Path) -> None:
    data = _put(6 * SIZE, offset.to_bytes(8, "big"), 8, _zeroed(4 * SIZE, 6 * SIZE))[: 7 * SIZE]
    after, loses = _repaired(tmp_path / "d", data, {f"t-0/{7:020d}.log": WHOLE[7 * SIZE :]})
    assert (after, loses) == ({n: LOG[n][17:] for n in range(14) if n not in {4, 5}}, 2)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 62))])
def test_two_wrong_epochs_near_each_other_cost_no_other_batch(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    name = draw.choice(["4.3.1-clean", "3.9.2-clean", "4.3.1-crash", "3.9.2-crash"])
    root = alone(name, draw.choice(["plain-none-0", "txn-a-0", "z-gzip-0", "idem-0", "z-lz4-0", "ooo-ts-0"]), tmp_path)
    survey = Survey(opened(root).partitions[0])
    sound = {b.base_offset: survey.bytes_of(b) for b in map(survey.batch, range(len(survey)))}
    row = draw.randrange(len(survey) - 4)
    for hit in map(survey.batch, {row, row + draw.choice([1, 1, 2, 3])}):
        wrong = draw.choice(
            [hit.epoch + draw.randrange(1, 6), draw.randrange(1 << 31), hit.epoch ^ 1 << draw.randrange(31)]
        )
        with (root / survey.files[hit.segment].name).open("r+b") as log:
            log.seek(hit.position + 12)
            log.write(struct.pack(">i", wrong))
    (tmp_path / "staged").mkdir()
    directory = opened(root)
    plan = plan_repair(directory, RepairOptions(Release.parse(name[:5])), tmp_path / "staged").plan
    mended = Survey(overlaid(directory, plan.steps).partitions[0])
    assert {b.base_offset: mended.bytes_of(b) for b in map(mended.batch, range(len(mended)))} == sound
    assert sum(step.loses for step in plan.steps) == 0


@pytest.mark.parametrize("topic", ["plain-none-0", "txn-a-0", "compacted-0"])
@pytest.mark.parametrize("number", [1, 3])
def test_a_batch_with_a_negative_base_offset_after_damage_is_counted(topic: str, number: int, tmp_path: Path) -> None:
    """It is healed, or a step names it; where nothing is done, it stays."""
    root = golden.unpack("4.3.1-clean", tmp_path)
    path = max((root / topic).glob("*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(path.read_bytes())
    (at, _), (following, sound) = list(outermost(bytes(data)))[number : number + 2]
    data[at : at + 40] = bytes(40)
    data[following] |= 0x80
    path.write_bytes(data)
    name = f"{topic}/{path.name}"
    assert following in batches_in(LocalTree(str(root)), name)["position"].tolist()
    (tmp_path / "staged").mkdir()
    found = plan_repair(opened(root), RepairOptions(Release(4, 3, 1)), tmp_path / "staged")
    assert found.books is None or found.books.balances
    with closing(overlaid(opened(root), found.plan.steps).tree.open(name)) as made:
        after = made.read_at(0, made.size())
    named = [one for step in found.plan.steps for one in step.gives_up]
    assert sound in after or sound[8:] in after or any(sound[17:21].hex() in one for one in named)


@pytest.mark.parametrize("name", ["4.3.1-crash", pytest.param("3.9.2-crash", marks=pytest.mark.slow)])
@pytest.mark.parametrize("bit", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 2, 4, 5, 6, 7, 8, 40))])
def test_a_bit_in_a_base_offset_of_a_compacted_log_costs_no_batch(name: str, bit: int, tmp_path: Path) -> None:
    """Each is healed, or stays where it is: nothing has to take its place."""
    root = alone(name, "compacted-1", tmp_path)
    healed = left = 0
    for path in sorted((root / "compacted-1").glob("*.log")):
        data = path.read_bytes()
        for at, sound in outermost(data):
            place = at + 7 - bit // 8
            path.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit % 8]) + data[place + 1 :])
            damaged = path.read_bytes()[at : at + len(sound)]
            (staged := tmp_path / f"{path.stem}-{at}").mkdir()
            directory = opened(root)
            found = plan_repair(directory, RepairOptions(Release.parse(name[:5])), staged)
            assert [one for step in found.plan.steps for one in step.gives_up] == []
            mended = overlaid(directory, found.plan.steps)
            with closing(mended.tree.open(str(path.relative_to(root)))) as made:
                after = made.read_at(at, len(sound))
            assert after in {sound, damaged}
            healed += after == sound
            left += after == damaged and bool(found.left)
            path.write_bytes(data)
    assert healed > left


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.3.1-crash"])
@pytest.mark.parametrize(
    ("topic", "bit"),
    [("compacted-0", 8), ("compacted-0", 30), ("compacted-0", 0), ("compacted-1", 5), ("__share_group_state-1", 2)],
)
def test_a_bit_that_takes_the_last_batch_after_the_end_of_a_compacted_log_goes_back(
    name: str, topic: str, bit: int, tmp_path: Path
) -> None:
    """A recovery point, or where the next leader epoch began, knows the end; bit 0 takes it before its segment."""
    root = golden.unpack(name, tmp_path)
    path = max(file for file in (root / topic).glob("*.log") if file.stat().st_size)
    right = path.read_bytes()
    at = list(outermost(right))[-1][0]
    data = bytearray(right)
    data[at + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    wrong = [f.file for f in Verification(opened(root)).findings() if f.kind.id.startswith("batch.")]
    assert wrong == [f"{topic}/{path.name}"]
    verdict = judge_root(Verdict(0, [str(bit)]), root, name, tmp_path)
    assert (verdict.lost, verdict.invented, verdict.outcomes, verdict.errors) == ([], [], [], [])
    assert verdict.repair is not None
    with closing(Overlay(LocalTree(str(root)), verdict.repair.plan.edits).open(f"{topic}/{path.name}")) as made:
        assert made.read_at(0, made.size()) == right


@pytest.mark.parametrize("end", [1015 + 9, 1015 + 17, 1015 + 8])
def test_an_index_entry_says_which_offset_a_batch_of_a_compacted_log_had(end: int, tmp_path: Path) -> None:
    """Its base offset went with the batches in front of it, of which compaction may have left any."""
    root = alone("3.9.2-crash", "compacted-0", tmp_path)
    path = root / "compacted-0/00000000000000000264.log"
    data = path.read_bytes()
    (at, size), (following, _) = [(at, len(one)) for at, one in outermost(data)][3:]
    assert (at, following) == (1015, 1015 + size)
    path.write_bytes(_zeroed(0, end, data))
    (tmp_path / "staged").mkdir()
    directory = opened(root)
    found = plan_repair(directory, RepairOptions(Release(3, 9, 2)), tmp_path / "staged")
    assert [one for step in found.plan.steps for one in step.gives_up] == []
    with closing(overlaid(directory, found.plan.steps).tree.open(str(path.relative_to(root)))) as made:
        assert made.read_at(at, made.size()) == data[at:]
