"""Damaged copies of golden files: every way to show them comes to an end without an error, and all say the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl import opening, store
from rmqctl.errors import NotAStore
from rmqctl.filters import Rendering

ODD = (b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0")
RECORDS = Rendering(records=True)


def spoil(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 80))
            case 2:
                del data[at : at + rng.randint(1, 200)]
            case 3:
                data[at : at + rng.randint(1, 64)] = bytes(rng.randint(1, 64))
            case _:
                data[at : at + 4] = rng.choice(ODD)
    return bytes(data)


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_are_shown(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = golden.pristine(rng.choice(golden.KAFKA_NAMES))
    files = sorted(p for p in root.rglob("*") if p.is_file() and 0 < p.stat().st_size < 1 << 17)
    for number in range(25):
        original = rng.choice(files)
        file = tmp_path / f"t-{number}" / original.name
        file.parent.mkdir()
        file.write_bytes(spoil(bytearray(original.read_bytes()), rng))
        try:
            check(opening.open_path(str(file), format="kafka"))
        except NotAStore:
            assert original.name.startswith(".lock")


def check(found: store.Store | store.LoneFile) -> None:
    rows = list(found.dump(rendering=RECORDS))
    lines = found.dump(rendering=RECORDS).lines
    assert lines is not None
    assert sum(bytes(piece).count(b"\n") for piece in lines()) == len(rows)
    for stretch in found.hex().stretches:
        at = 0
        for note in stretch.notes:
            assert note.offset == at
            at = note.end
    sections = found.dump(official={"print_data_log": True}).sections
    assert sections is not None
    for section in sections():
        assert all(isinstance(line, str) for line in section.lines)
