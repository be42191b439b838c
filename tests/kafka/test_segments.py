"""The scan of a segment: splits, damage and what comes after it, nothing but bytes in."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.files.local import BytesSource, LocalFile
from rmqctl.kafka.log.block import Block, GapKind
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.scan import Extent, scan
from tests.kafka.batches import batch, message, record, segment

BATCHES = segment(40)
LOG = b"".join(BATCHES)
STARTS = np.cumsum([0] + [len(b) for b in BATCHES]).tolist()


def found(data: bytes, window: int = 1 << 20, **extent: object) -> tuple[list[tuple[int, bool]], list[tuple[int, int]]]:
    """Position and CRC of batches, begin and end of gaps."""
    batches, gaps = [], []
    for block in scan(BytesSource(data), Extent("x", **extent), window):  # type: ignore[arg-type]
        batches += list(zip(block.position.tolist(), block.crc_ok.tolist(), strict=True))
        gaps += [(gap.position, gap.end) for gap in block.gaps]
    return batches, gaps


def test_a_sound_segment() -> None:
    assert found(LOG) == ([(start, True) for start in STARTS[:-1]], [])


@pytest.mark.parametrize("window", [1, 300, 1000, 1 << 20])
@pytest.mark.parametrize("splits", [2, 3, 7])
def test_splits_give_the_same(window: int, splits: int) -> None:
    data = LOG[: STARTS[10] + 5] + bytes(300) + LOG[STARTS[11] :]
    whole, gaps = found(data)
    bounds = [len(data) * k // splits for k in range(splits + 1)]
    parts = [found(data, window, start=a, stop=b) for a, b in itertools.pairwise(bounds)]
    assert [b for part, _ in parts for b in part] == whole
    assert [g for _, part in parts for g in part] == gaps
    assert len(gaps) == 1


def test_a_local_file_in_pieces_gives_the_same(tmp_path: Path) -> None:
    path, rng = tmp_path / "x", random.Random(3)
    old = b"".join(message(n, b"k", b"v" * rng.randrange(60), n % 2) for n in range(30))
    for _ in range(60):
        data = bytearray(rng.choice([LOG, old, old + LOG]))
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        del data[len(data) - rng.choice([0, 0, 5, 200]) :]
        path.write_bytes(data)
        window = rng.choice([300, 1000, 1 << 20])
        extent = Extent("x", start=(start := rng.choice([0, 0, 777])), stop=rng.choice([None, start + 1500]))
        sources = LocalFile(path), BytesSource(bytes(data))
        pieces, whole = (
            [(b.position.tolist(), b.crc_ok.tolist(), b.gaps) for b in scan(s, extent, window, 100)] for s in sources
        )
        assert pieces == whole


def test_any_flipped_byte_costs_at_most_its_batch() -> None:
    small = segment(6)
    data, starts = b"".join(small), np.cumsum([0] + [len(b) for b in small]).tolist()
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            batches, gaps = found(bytes(damaged))
            hit = int(np.searchsorted(starts, at, side="right")) - 1
            sound = [position for position, ok in batches if ok]
            assert [s for k, s in enumerate(starts[:-1]) if k != hit] == [s for s in sound if s != starts[hit]], (
                at,
                flip,
            )
            assert all(starts[hit] <= a and b <= starts[hit + 1] for a, b in gaps), (at, flip)


@pytest.mark.parametrize(
    ("damaged", "why", "bounds"),
    [
        (LOG[: STARTS[3]] + bytes(100) + LOG[STARTS[3] :], GapKind.ZEROS, (STARTS[3], STARTS[3] + 100)),
        (LOG + bytes(500), GapKind.ZERO_TAIL, (len(LOG), len(LOG) + 500)),
        (LOG[:-1], GapKind.CUT, (STARTS[-2], len(LOG) - 1)),
        (LOG + b"\1" * 16, GapKind.CUT, (len(LOG), len(LOG) + 16)),
        (LOG[: STARTS[3]] + LOG[STARTS[3] + 7 :], GapKind.CUT, (STARTS[3], STARTS[4] - 7)),
        (LOG[: STARTS[3]] + b"\xff" * 50 + LOG[STARTS[3] :], GapKind.SIZE, (STARTS[3], STARTS[3] + 50)),
    ],
)
def test_gaps(damaged: bytes, why: GapKind, bounds: tuple[int, int]) -> None:
    gaps = [gap for block in scan(BytesSource(damaged), Extent("x")) for gap in block.gaps]
    assert [(gap.position, gap.end) for gap in gaps] == [bounds]
    if bounds[0] != STARTS[3] or why is not GapKind.CUT:
        assert gaps[0].why is why


def test_a_torn_batch_in_room_never_written() -> None:
    size = len(BATCHES[0])
    batches, gaps = found(LOG + BATCHES[0][:70] + bytes(1000))
    assert batches[-1] == (len(LOG), False)
    assert gaps == [(len(LOG) + size, len(LOG) + 1070)]
    batches, gaps = found(LOG + BATCHES[5][:10] + bytes(1000))
    assert batches[-1] == (STARTS[-2], True)
    assert gaps == [(len(LOG), len(LOG) + 8), (len(LOG) + 8, len(LOG) + 1010)]


def test_a_wrong_crc_keeps_the_batch() -> None:
    damaged = bytearray(LOG)
    damaged[STARTS[5] + 70] ^= 1
    batches, gaps = found(bytes(damaged))
    assert not gaps
    assert [p for p, ok in batches if not ok] == [STARTS[5]]
    assert len(found(bytes(damaged), check_crc=False)[0]) == 40


def test_batches_found_after_damage_fit_the_segment() -> None:
    other = b"".join(segment(2, first=1 << 40))
    data = LOG[: STARTS[3]] + b"\xff" * 20 + other + LOG[STARTS[3] :]
    assert found(data, base=0)[1] == [(STARTS[3], STARTS[3] + 20 + len(other))]
    assert found(data)[1] == [(STARTS[3], STARTS[3] + 20)]


def test_mixed_magics() -> None:
    parts = [
        message(0, None, b"a", 0),
        message(1, b"k", b"b", 1),
        batch(2, [record(0, b"k", b"c")]),
        message(3, b"", None, 0),
    ]
    (block,) = scan(BytesSource(b"".join(parts)), Extent("x"))
    assert block.magic.tolist() == [0, 1, 2, 0]
    assert block.crc_ok.all()
    assert block["last_offset"].tolist() == block["base_offset"].tolist() == [0, 1, 2, 3]
    (records,) = records_of(block)
    assert [records.value(i) for i in range(4)] == [b"a", b"b", b"c", None]
    assert [records.key(i) for i in range(4)] == [None, b"k", b"k", b""]


def test_magic_above_2_is_read_as_2() -> None:
    odd = bytearray(LOG)
    odd[STARTS[2] + 16] = 7
    batches, gaps = found(bytes(odd))
    assert not gaps
    assert all(ok for _, ok in batches)
    blocks: list[Block] = list(scan(BytesSource(bytes(odd)), Extent("x")))
    assert sorted({m for b in blocks for m in b.magic.tolist()}) == [2, 7]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.integers(0, len(LOG)), st.integers(0, len(LOG)), st.integers(1, 2000))
def test_any_bytes(junk: bytes, a: int, b: int, window: int) -> None:
    data = LOG[:a] + junk + LOG[b:]
    covered = 0
    for block in scan(BytesSource(data), Extent("x"), window):
        for group in records_of(block):
            assert len(group) >= 0
        covered += int(block.size.sum()) + sum(gap.end - gap.position for gap in block.gaps)
    assert covered == len(data)


def test_frames_that_claim_much_come_to_an_end() -> None:
    rng = random.Random(1)
    head = bytearray(batch(0, [record(0, None, b"x")], batch_length=(64 << 20) - 12)[:61])
    data = b"".join(bytes(head) + rng.randbytes(3) for _ in range(4000)) + bytes(64 << 20)
    batches, gaps = found(b"\xff" * 20 + data)
    assert not batches
    assert gaps[0][0] == 0
