"""The books of a union: every whole record of any copy is in it, or the log of a later leader stands against it.

Clusters of three are played at random: leaders come and go, cleanly and not, some write nothing; followers lag, fetch, and
cut where they part from the leader; at the end the disks are damaged. Whole records are found by brute force.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from crc32c import crc32c

from rmqctl.kafka.replication.copies import copy_of
from rmqctl.kafka.replication.union import Union
from rmqctl.kafka.store import KafkaStore
from rmqctl.opening import open_store
from tests.kafka.batches import batch, record

_ROLL = 5
"""Batches in a segment."""
_HEADER, _CRC = 61, 17


@dataclass(frozen=True)
class Batch:
    """A batch as its leader wrote it."""

    base: int
    last: int
    epoch: int
    data: bytes

    @property
    def content(self) -> bytes:
        """What the CRC covers, and the CRC: no two are equal."""
        return self.data[_CRC:]


@dataclass
class Disk:
    """A replica: its log, the leader epochs that its checkpoint lists, how far it knows the log to be committed."""

    log: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    known: int = 0

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def begin(self, epoch: int, start: int) -> None:
        """Take an epoch as a broker does: what is not before it goes."""
        self.epochs = [entry for entry in self.epochs if entry[0] < epoch and entry[1] < start] + [(epoch, start)]

    def append(self, one: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] < one.epoch:
            self.begin(one.epoch, one.base)
        self.log.append(one)

    def fetch(self, leader: Disk, most: int) -> None:
        """Cut what the leader has not, and take on what it has more."""
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(self.log, leader.log, strict=False))))
        if same < len(self.log):
            self.log = self.log[:same]
            self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        for one in leader.log[same : same + most]:
            self.append(one)


def play(draw: random.Random) -> list[Disk]:
    """Three replicas after some time."""
    disks, leader, epoch, in_sync = [Disk() for _ in range(3)], 0, 0, {0, 1, 2}
    disks[0].begin(0, 0)
    for _ in range(draw.randrange(5, 60)):
        head, others = disks[leader], [n for n in range(3) if n != leader]
        step = draw.random()
        if step < 0.45:
            records = [record(i, None, draw.randbytes(draw.choice([4, 30]))) for i in range(draw.randrange(1, 4))]
            data = batch(head.end, records, partition_leader_epoch=epoch)
            head.append(Batch(head.end, head.end + len(records) - 1, epoch, data))
        elif step < 0.8:
            number = draw.choice(others)
            disks[number].fetch(head, draw.choice([1, 2, 99]))
            if disks[number].end == head.end:
                in_sync.add(number)
            committed = min(disks[n].end for n in in_sync)
            head.known = max(min(head.known, head.end), committed)
            disks[number].known = min(head.known, disks[number].end)
        elif step < 0.87:
            in_sync.discard(draw.choice(others))
        else:
            leader = draw.choice(sorted(in_sync) if draw.random() < 0.8 else [0, 1, 2])
            epoch += draw.choice([1, 1, 2])
            disks[leader].begin(epoch, disks[leader].end)
            in_sync = {leader} | (in_sync if draw.random() < 0.5 else set())
    return disks


def write(root: Path, disk: Disk, draw: random.Random) -> None:
    """Write a replica as its broker leaves it behind."""
    place = root / "t-0"
    place.mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=AbCdEfGhQxSTU-V_wXyZ01\n")
    (root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {disk.known}\n")
    listed = "".join(f"{epoch} {start}\n" for epoch, start in disk.epochs)
    (place / "leader-epoch-checkpoint").write_text(f"0\n{len(disk.epochs)}\n{listed}")
    for at in range(0, len(disk.log), _ROLL):
        part = disk.log[at : at + _ROLL]
        (place / f"{part[0].base:020d}.log").write_bytes(b"".join(one.data for one in part))
    if not disk.log or (len(disk.log) % _ROLL == 0 and draw.random() < 0.5):
        (place / f"{disk.end:020d}.log").touch()


def spoil(root: Path, draw: random.Random) -> None:
    """Damage contents of some files, cut and empty some, lose, rename and exchange some."""
    for _ in range(draw.choice([0, 1, 1, 2, 4])):
        paths = sorted((root / "t-0").glob("*.log"))
        path = draw.choice(paths)
        data = path.read_bytes()
        match draw.randrange(8):
            case 0 if len(paths) > 1:
                path.unlink()
            case 1:
                other = draw.choice(paths)
                path.write_bytes(other.read_bytes())
                other.write_bytes(data)
            case 2:
                path.rename(path.with_name(f"{draw.choice([0, 3, 1000, int(path.stem) + 1]):020d}.log"))
            case 3:
                (root / "t-0/leader-epoch-checkpoint").write_text(draw.choice(["", "0\n1\n0 0\n", "0\n1\n9 2\n"]))
            case _:
                path.write_bytes(spoiled(data, draw))


def spoiled(data: bytes, draw: random.Random) -> bytes:
    at, size = draw.randrange(len(data) + 1), draw.choice([1, 7, 90, 400])
    after = data[at + size :]
    a, b, c = sorted(draw.choice([0, *(at for at, _, _ in whole(data))]) for _ in range(3))
    return draw.choice(
        [
            data[:at] + draw.randbytes(size) + after,
            data[:at] + bytes(size) + after,
            data[:at],
            b"",
            data + draw.randbytes(size),
            data[:at] + after,
            data[:a] + data[b:c] + data[a:b] + data[c:],
        ]
    )


def whole(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield every whole batch, at whatever place: where it is, its content, and the header before it, which no CRC covers."""
    for at in range(len(data) - _HEADER + 1):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if data[at + 16] == 2 and _HEADER <= size <= len(data) - at:
            body = data[at + 21 : at + size]
            if crc32c(body) == int.from_bytes(data[at + 17 : at + 21], "big"):
                yield at, data[at + _CRC : at + size], data[at : at + _CRC]


def is_against(one: Batch, other: Batch, latest: int) -> bool:
    """Whether a log that has ``other``, and the epoch ``latest``, cannot have ``one``."""
    if other.epoch == one.epoch:
        return other.base <= one.last and other.last >= one.base
    if other.epoch > one.epoch:
        return other.base <= one.last
    return latest > one.epoch and other.last >= one.base


def balance(roots: list[Path], disks: list[Disk]) -> Union:
    """Hold the union of some disks to its books."""
    copies = []
    for root in roots:
        store = open_store(str(root))
        assert isinstance(store, KafkaStore)
        copies += [copy_of(log, str(root)) for log in store.replicas.served]
    union = Union(copies)
    written = {one.content: one for disk in disks for one in disk.log}
    files = [path.read_bytes() for root in roots for path in (root / "t-0").glob("*.log")]
    every = {(written[content], head) for data in files for _, content, head in whole(data)}
    found = {one for one, head in every if one.data.startswith(head)}
    taken = list(batches_of(union, written, found))
    assert all(a.last < b.base and a.epoch <= b.epoch for a, b in pairwise(taken))
    latest = max((one.epoch for one in taken), default=-1)
    assert [one for one in found if one not in taken and not any(is_against(one, o, latest) for o in taken)] == []
    known = max(disk.known for disk in disks)
    held = {offset for one, _ in every for offset in range(one.base, one.last + 1)}
    gone = {offset for first, last in union.holes for offset in range(first, last + 1)}
    assert not gone & {offset for one in taken for offset in range(one.base, one.last + 1)}
    first = min((copy.start for copy in copies if len(copy.batches)), default=0)
    assert set(range(first, known)) - held <= gone
    return union


def batches_of(union: Union, written: dict[bytes, Batch], found: set[Batch]) -> Iterator[Batch]:
    """Yield what is in a union as it was written; its offsets and epochs are those, where a copy has them."""
    for row, number in enumerate(union.copy.tolist()):
        b = union.batches
        file, at, size = union.copies[number].files[int(b.file[row])], int(b.position[row]), int(b.size[row])
        one = written[(Path(union.copies[number].name) / file.name).read_bytes()[at + _CRC : at + size]]
        if one in found:
            assert (int(b.base[row]), int(b.last[row]), int(b.epoch[row])) == (one.base, one.last, one.epoch)
            yield one


@pytest.mark.parametrize(
    "seeds", [*(range(start, start + 50) for start in range(0, 300, 50)), [2462, 910_403, 910_564, 910_935]]
)
def test_every_whole_record_is_in_the_union_or_a_later_leader_stands_against_it(
    seeds: Iterable[int], tmp_path: Path
) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        disks = play(draw)
        roots = [tmp_path / f"{seed}-{number}" for number in range(3)]
        for root, disk in zip(roots, disks, strict=True):
            write(root, disk, draw)
            if draw.random() < 0.6:
                spoil(root, draw)
        balance(roots, disks)
