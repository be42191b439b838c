"""What no replica has any more, in clusters whose disks were all damaged: brute force knows what was acknowledged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kafka.replication.test_elect import Replica, elect, history, watermarked
from tests.kafka.salvage.salvage_helpers import one

_UNCOVERED = 17
"""Bytes of a batch that its CRC does not cover, and that others may prove."""


def damaged(draw: random.Random, replica: Replica, where: int) -> bytes:
    """The log of a replica that is cut or destroyed at an offset."""
    log = replica.log
    starts = [0]
    for _, _, batch in log:
        starts.append(starts[-1] + len(batch))
    data = bytearray(b"".join(batch for _, _, batch in log))
    hit = min(range(len(log)), key=lambda n: abs(log[n][0] - where))
    how = draw.choice(["cut", "noise", "zeros", "bit"])
    if how == "cut":
        del data[starts[hit] + draw.choice([0, 0, draw.randrange(40)]) :]
    elif how == "noise":
        for _ in range(draw.randrange(1, 4)):
            at, size = draw.randrange(len(data)), draw.randrange(1, 60)
            data[at : at + size] = draw.randbytes(len(data[at : at + size]))
    elif how == "zeros":
        data[starts[hit] : starts[hit + 1]] = bytes(starts[hit + 1] - starts[hit])
    else:
        data[draw.randrange(starts[hit] + 61, starts[hit + 1])] ^= 1 << draw.randrange(8)
    return bytes(data)


@pytest.mark.parametrize(
    "seed", [*range(12), 910578, *(pytest.param(n, marks=pytest.mark.slow) for n in range(5000, 5100))]
)
def test_committed_records_that_no_copy_has_are_gone_and_no_others(seed: int, tmp_path: Path) -> None:
    replicas, acknowledged = history(seed)
    draw = random.Random(seed)
    most, where = draw.choice([0.4, 0.8, 1]), draw.randrange(max(replica.end for replica in replicas) + 1)
    roots, logs = [], []
    for number, replica in enumerate(replicas):
        is_hit = replica.log and draw.random() < most
        logs.append(damaged(draw, replica, where) if is_hit else b"".join(data for _, _, data in replica.log))
        roots.append(watermarked(tmp_path / str(number), [logs[-1]], replica.known))
    left = {b for replica in replicas for b, _, data in replica.log if any(data[_UNCOVERED:] in log for log in logs)}
    committed = max(replica.known for replica in replicas)
    gone = elect(*roots)["gone"]
    assert all(first <= last < max(replica.end for replica in replicas) for first, last in gone)
    named = {offset for first, last in gone for offset in range(first, last + 1)}
    assert {base for base in acknowledged if base < committed and base not in left} <= named
    assert not named & {base for base in acknowledged if any(acknowledged[base] in log for log in logs)}


def test_batch_that_is_missing_in_one_log_and_destroyed_in_the_other_was_there(tmp_path: Path) -> None:
    whole = [one(at) for at in range(0, 12, 2)]
    torn = bytearray(whole[2])
    torn[65] ^= 1
    lacks = watermarked(tmp_path / "a", [*whole[:2], *whole[3:]], 12)
    broken = watermarked(tmp_path / "b", [*whole[:2], bytes(torn), *whole[3:]], 12)
    assert elect(lacks, broken)["gone"] == [[4, 5]]
    for root in (lacks, broken):
        (root / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    assert elect(lacks, broken)["gone"] == [], "compaction took it out"


def test_batch_alone_among_destroyed_bytes_says_nothing_of_offsets_far_away(tmp_path: Path) -> None:
    first, far = one(0), (1 << 58).to_bytes(8, "big") + one(2)[8:]
    whole = watermarked(tmp_path / "a", [first], 2)
    broken = watermarked(tmp_path / "b", [bytes(len(first)), far], 2)
    found = elect(whole, broken)
    assert (found["gone"], found["best"], found["choices"][0]["lost"]["records"]) == ([], str(whole), 0)
