"""Flipped bits and short bursts in real records: healed exactly, or told and not touched; never healed wrongly."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures import golden
from formats.rocketmq.message import decode_record
from rmqctl.repair.edits import Overwrite, Step
from rmqctl.rocketmq.log.commitlog import CommitLog
from rmqctl.rocketmq.repair.damage import survey
from rmqctl.rocketmq.repair.plan import LogMender
from rmqctl.rocketmq.store.locate import open_store_at

STORE = "5.5.0-clean"
PROTECTED = {
    "total_size", "magic", "body_crc", "queue_id", "queue_offset", "physical_offset", "body_size", "body",
    "topic_size", "topic", "properties_size",
}  # fmt: skip
"""Fields of which something else in the store says what they were."""


@dataclass(frozen=True)
class Place:
    """A record of the golden store, and its bytes."""

    file: Path
    position: int
    physical: int
    raw: bytes

    def field_at(self, at: int) -> str:
        """Name of the field that byte ``at`` belongs to; the record is V1 with IPv4 hosts."""
        fields, _ = decode_record(self.raw)
        body, topic = len(fields["body"]), len(fields["topic"])
        ends = {
            "total_size": 4, "magic": 8, "body_crc": 12, "queue_id": 16, "flag": 20, "queue_offset": 28,
            "physical_offset": 36, "sys_flag": 40, "born_timestamp": 48, "born_host": 56, "store_timestamp": 64,
            "store_host": 72, "reconsume_times": 76, "prepared_transaction_offset": 84, "body_size": 88,
            "body": 88 + body, "topic_size": 89 + body, "topic": 89 + body + topic,
            "properties_size": 91 + body + topic, "properties": len(self.raw),
        }  # fmt: skip
        return next(name for name, end in ends.items() if at < end)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(STORE, tmp_path_factory.mktemp("flips"))


def places(root: Path, count: int, chance: random.Random) -> Iterator[Place]:
    """Some short records, anywhere in the log."""
    wanted: list[dict[str, Any]] = [r for r in golden.truth(STORE) if r["kind"] == "msg" and r["storeSize"] < 500]
    for record in chance.sample(wanted, count):
        file = root / "commitlog" / Path(record["file"]).name
        with open(file, "rb") as log:
            log.seek(record["pos"])
            raw = log.read(record["storeSize"])
        yield Place(file, record["pos"], record["commitLogOffset"], raw)


def mended(root: Path, place: Place, damaged: bytes) -> tuple[bytes, list[Step]]:
    """The record as the steps leave it; no step may touch anything else."""
    _write(place, damaged)
    try:
        store = open_store_at(str(root))
        steps = list(LogMender(store, survey(store)).steps())
    finally:
        _write(place, place.raw)
    record = bytearray(damaged)
    for step in steps:
        for edit in step.edits:
            assert isinstance(edit, Overwrite)
            at = edit.offset - place.position
            assert edit.file.endswith(place.file.name)
            assert 0 <= at <= len(record) - len(edit.after)
            record[at : at + len(edit.after)] = edit.after
            if step.what.startswith("heal"):
                assert edit.after == place.raw[at : at + len(edit.after)], step.what
    return bytes(record), steps


def _write(place: Place, raw: bytes) -> None:
    with open(place.file, "r+b") as log:
        log.seek(place.position)
        log.write(raw)


def flip(raw: bytes, first: int, pattern: int) -> bytes:
    """A pattern of bits exclusive-ored, its lowest bit ``first`` bits from the end."""
    return (int.from_bytes(raw, "big") ^ (pattern << first)).to_bytes(len(raw), "big")


def check_flip(root: Path, place: Place, bit: int) -> None:
    damaged = flip(place.raw, bit, 1)
    after, steps = mended(root, place, damaged)
    name = place.field_at(len(place.raw) - 1 - bit // 8)
    if name in PROTECTED:
        assert after == place.raw, (name, bit, [s.what for s in steps])
    else:
        assert after in (place.raw, damaged), (name, bit, [s.what for s in steps])


def check_burst(root: Path, place: Place, first: int, span: int, pattern: int) -> None:
    """What is left wrong was either not touched or given up openly."""
    after, steps = mended(root, place, flip(place.raw, first, pattern))
    given_up = any(step.loses or not step.edits for step in steps)
    last = len(place.raw) - 1 - first // 8
    fields = {place.field_at(at) for at in range(last - (first % 8 + span - 1) // 8, last + 1)}
    assert after == place.raw or given_up or fields - PROTECTED, (fields, span, [s.what for s in steps])


@pytest.mark.parametrize(("seed", "bit"), [(101, 3288), (102, 2544)])
def test_a_record_that_strayed_to_the_place_of_another(root: Path, seed: int, bit: int) -> None:
    """Two records of a queue carry the same offset, and one of them has its unit in the queue that lacks it."""
    for place in places(root, 1, random.Random(seed)):
        check_flip(root, place, bit)


def test_the_first_record_of_a_queue_in_a_queue_of_its_own(root: Path) -> None:
    for place in places(root, 1, random.Random(16)):
        assert mended(root, place, flip(place.raw, 3145, 56197))[0] == place.raw


def test_a_sample_of_flipped_bits(root: Path) -> None:
    chance = random.Random(1)
    for place in places(root, 60, chance):
        check_flip(root, place, chance.randrange(8 * len(place.raw)))


def test_every_bit_of_the_fixed_header_that_something_protects(root: Path) -> None:
    place = next(places(root, 1, random.Random(2)))
    for at in (*range(16), *range(20, 36), *range(84, 88)):
        check_flip(root, place, 8 * (len(place.raw) - 1 - at) + at % 8)


def test_a_sample_of_bursts(root: Path) -> None:
    chance = random.Random(3)
    for place in places(root, 60, chance):
        span = chance.randrange(2, 17)
        pattern = 1 << (span - 1) | 1 | chance.getrandbits(span)
        check_burst(root, place, chance.randrange(8 * len(place.raw) - span), span, pattern)


def test_a_body_beyond_healing_is_not_explained_by_another_layout(root: Path) -> None:
    """A burst that is too long to be told from others, in a body whose shifted copies a short burst would mend."""
    place = next(places(root, 1, random.Random(15)))
    for first in range(8 * (len(place.raw) - 236), 8 * (len(place.raw) - 228)):
        check_burst(root, place, first, 15, 0x4F09)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_bit_of_real_records(root: Path, seed: int) -> None:
    for place in places(root, 1, random.Random(100 + seed)):
        for bit in range(8 * len(place.raw)):
            check_flip(root, place, bit)


@pytest.mark.slow
@pytest.mark.parametrize("span", range(2, 17))
def test_bursts_at_every_place_of_a_real_record(root: Path, span: int) -> None:
    chance = random.Random(span)
    for place in places(root, 1, chance):
        for first in range(0, 8 * len(place.raw) - span, 5):
            check_burst(root, place, first, span, 1 << (span - 1) | 1 | chance.getrandbits(span))


@pytest.fixture(params=["ipv6-v2", "ext", "compaction", "dledger"])
def rare(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    golden.extract(Path(golden.__file__).parent / "rare" / f"5.3.3-{request.param}.tar.xz", tmp_path)
    return tmp_path / f"5.3.3-{request.param}"


def test_records_of_every_layout_are_healed(rare: Path) -> None:
    """V2 records, IPv6 hosts, extension units and DLedger entries: magic, host bits, BODYLEN and a body bit."""
    store = open_store_at(str(rare))
    block = next(CommitLog(store.log_files).walk()).block
    file = rare / store.log_files[0].name
    chance = random.Random(5)
    for row in chance.sample(range(2, len(block) - 2), 6):
        start, body = int(block.position[row]), int(block.body_at[row] - block.at[row])
        place = Place(file, start, int(block.physical[row]), block.raw(row))
        for at, bits in ((5, 0xFF), (39, 0x10), (39, 0x20), (body - 3, 0x01), (body, 0x08), (2, 0x80)):
            damaged = bytearray(place.raw)
            damaged[at] ^= bits
            after, steps = mended(rare, place, bytes(damaged))
            assert after == place.raw, (row, at, bits, [s.what for s in steps])


@pytest.fixture(scope="module")
def unqueued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store without any queue: only the log itself tells what was where."""
    root = golden.unpack(STORE, tmp_path_factory.mktemp("unqueued"))
    for kind in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(root / kind)
    return root


def test_queue_offsets_around_a_record_tell_its_place(unqueued: Path) -> None:
    """Bursts in QUEUEID, QUEUEOFFSET and topic, where no queue unit helps: healed or told, no other record touched."""
    chance = random.Random(8)
    healed = 0
    for place in places(unqueued, 50, chance):
        topic = len(place.raw) - 2 - len(decode_record(place.raw)[0]["properties"]) - 2
        at, span = chance.choice((12, 15, 20, 24, 27, topic)), chance.randrange(1, 9)
        first = 8 * (len(place.raw) - 1 - at)
        after, steps = mended(unqueued, place, flip(place.raw, first, 1 << (span - 1) | 1))
        healed += after == place.raw
        assert after == place.raw or not any(step.edits for step in steps) or any(s.loses for s in steps), at
    assert healed > 40
