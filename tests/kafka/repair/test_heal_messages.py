"""Messages of magic 0 and 1 state their offset outside their CRC: a bit of it heals where only one value has room."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fixtures import golden
from tests.kafka.repair.attacked import Verdict, judge, judge_root, outermost

PARTS = ("v0-none-0", "v1-none-1", "v1-snappy-1", "v1-compacted-0")


def flipped(root: Path, draw: random.Random, part: str) -> str:
    """Flip a bit of the offset of one message; where."""
    path = draw.choice([path for path in sorted((root / part).glob("*.log")) if path.stat().st_size])
    found = list(outermost(path.read_bytes()))
    (at, message), bit = draw.choice(found), 1 << draw.randrange(40)
    with path.open("r+b") as file:
        file.seek(at)
        file.write((int.from_bytes(message[:8], "big") ^ bit).to_bytes(8, "big"))
    return f"bit {bit} at {at} of {path.name}"


@pytest.mark.parametrize(
    ("part", "seed"),
    [
        ("v1-snappy-1", 0),
        *(pytest.param(part, seed, marks=pytest.mark.slow) for part in PARTS for seed in range(1, 6)),
    ],
)
def test_a_bit_of_an_offset_goes_back_or_the_message_has_a_name(part: str, seed: int, tmp_path: Path) -> None:
    name = ("2.8.2-clean", "2.8.2-crash")[seed % 2]
    root = golden.unpack(name, tmp_path)
    done = flipped(root, random.Random(seed), part)
    verdict = judge_root(Verdict(seed, [done]), root, name, tmp_path, applies=True)
    assert (verdict.lost, verdict.invented) == ([], []), done
    assert verdict.repair is not None
    if part == "v1-compacted-0":
        return  # of two in the wrong order either may be the one
    assert verdict.errors == [], done
    steps = [step for step in verdict.repair.plan.steps if step.file.endswith(".log")]
    assert [step.loses for step in steps] == [0], done
    assert "heal" in steps[0].what, done


def test_a_whole_message_shorter_than_the_header_of_a_batch_gets_a_plan(tmp_path: Path) -> None:
    """One of another partition after the end of a log; it ended in a traceback."""
    verdict = judge(700_002, tmp_path)
    assert verdict.is_good
    assert verdict.errors == []


def test_a_message_of_another_partition_between_destroyed_bytes_gets_no_offset_of_this_one(tmp_path: Path) -> None:
    """It is a bit from an offset that is free, but its own log misses just the one that it has."""
    root = golden.unpack("2.8.2-clean", tmp_path)
    own, over = (root / topic / f"{0:020d}.log" for topic in ("v1-none-1", "v0-none-1"))
    data, other = own.read_bytes(), over.read_bytes()
    own.write_bytes(data[:71] + bytes(128) + data[199:])
    over.write_bytes(other[:316] + data[71:199] + other[444:])
    verdict = judge_root(Verdict(0, ["misdirected"]), root, "2.8.2-clean", tmp_path)
    assert (verdict.lost, verdict.invented, verdict.errors) == ([], [], [])
