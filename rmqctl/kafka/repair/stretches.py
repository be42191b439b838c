"""Bytes of two logs that were exchanged in the middle of batches go back.

A stretch that is exchanged cuts the batches at its ends in two, and those between lie whole in the other log. Where
batches of one log lie in another is known from their offsets, which go on from those of their own; where the stretch
begins and ends, from the CRCs: only so are the batches whole that it cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from zlib import crc32

from crc32c import crc32c

from formats.kafka import message_set
from formats.kafka.record_batch import CRC_AT, CRC_FROM, FRAME_HEAD, HEADER_SIZE, LENGTH_AT, MAGIC_AT, header_plan
from rmqctl.files.tree import local_path
from rmqctl.findings import Finding
from rmqctl.kafka.directory.directory import LogDirectory, LogFile
from rmqctl.kafka.log.scan import Extent, whole_in
from rmqctl.kafka.repair.survey import LOG_KINDS
from rmqctl.repair.edits import Edit, SetTimes, Step, changes

EXCHANGED = "exchange the bytes "
"""How a step begins that puts a stretch of each of two logs into the other."""
_MOST, _MOST_FILES, _MOST_SHIFTS = 32 << 20, 16, 64
"""Bytes of a log, logs with damage, and distances that are tried for two of them."""
_MOST_RUNS = 2
"""Runs after one that may be of the other log, too: where that is compacted, its offsets do not follow each other."""
_SECTOR, _NEAR = 512, 4096
"""What disks write at once; bytes in which a stretch that no sector bounds is looked for."""
_MODERN = 2
_TO = LENGTH_AT + 4


@dataclass(frozen=True, slots=True)
class _Run:
    """Whole batches that touch and whose offsets follow each other: bytes into the file, and offsets."""

    begin: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Log:
    """One log with damage, and its whole batches, those inside of damaged ones too."""

    file: LogFile
    kind: str
    data: bytes
    runs: Sequence[_Run]

    def ended(self, at: int) -> int:
        """Return where the last run ends that does so up to a byte."""
        return max((run.end for run in self.runs if run.end <= at), default=0)

    def following(self, at: int, skipped: int = 0) -> int:
        """Return where the first run begins from a byte on, or one after it, else the end of the file."""
        begins = [run.begin for run in self.runs if run.begin >= at][skipped : skipped + 1]
        return begins[0] if begins else len(self.data)

    def ends(self) -> Iterator[tuple[int, int]]:
        """Yield where a run, or the damaged batch after it, says that it ends, and the offset that follows."""
        yield 0, self.file.base
        for run in self.runs:
            yield run.end, run.last + 1
        for at in {0, *(run.end for run in self.runs)}:
            found = _header(self.data[at : at + HEADER_SIZE])
            if found is not None:
                yield at + found[0], found[2] + 1


def stretch_steps(directory: LogDirectory, findings: Sequence[Finding]) -> Iterator[Step]:
    """Yield a step for each two logs, or two places of one, that have a stretch of each other."""
    kinds = {finding.file: finding.kind.id for finding in findings if finding.kind in LOG_KINDS}
    files = [log for partition in directory.partitions for log in partition.logs if log.name in kinds]
    if len(files) > _MOST_FILES:
        return
    held = [_held(file, kinds[file.name]) for file in files if 0 < file.size <= _MOST]
    done = set[str]()
    for one, other in product(held, repeat=2):
        if done.isdisjoint({one.file.name, other.file.name}) and (found := _exchanged(one, other)) is not None:
            done |= {one.file.name, other.file.name}
            yield _step(one, other, *found)


def _held(file: LogFile, kind: str) -> _Log:
    with closing(file.open()) as source:
        data = source.read_at(0, file.size)
        block = whole_in(source, Extent(file.name, size=len(data)))
    runs, columns = list[_Run](), (block.position, block.size, block["base_offset"], block["last_offset"])
    for at, size, base, last in zip(*(column.tolist() for column in columns), strict=True):
        before = runs[-1] if runs else None
        if before is not None and at < before.end:
            continue
        if before is not None and (before.end, before.last + 1) == (at, base):
            runs[-1] = _Run(before.begin, at + size, before.first, last)
        else:
            runs.append(_Run(at, at + size, base, last))
    return _Log(file, kind, data, runs)


def _step(one: _Log, other: _Log, begin: int, end: int, shift: int) -> Step:
    here, there = one.data[begin:end], other.data[begin - shift : end - shift]
    edits = list[Edit]()
    for log, at, old, new in ((one, begin, here, there), (other, begin - shift, there, here)):
        edits += changes(log.file.name, at, old, new)
        path = local_path(log.file.tree, log.file.name)
        edits += [SetTimes(log.file.name, os.stat(path).st_mtime_ns)] if path is not None else []
    what = f"{EXCHANGED}{begin} to {end} with those from {begin - shift} on of {other.file.name}"
    why = "the batches that they cut in two are whole by their CRCs only so, in both logs"
    return Step(one.kind, one.file.name, what, why, tuple(edits))


def _exchanged(one: _Log, other: _Log) -> tuple[int, int, int] | None:
    """Return which stretch of a log is of another one that has its bytes: begin, end, how much later it lies here."""
    for run, shift in _shifts(one, other):
        for begin in _begins(one, other, run, shift):
            high = min(one.following(run.end, _MOST_RUNS), len(other.data) + shift)
            for end in _near(run.end, high, shift, other):
                if one is other and abs(shift) < end - begin:
                    continue
                here = _joined(one, other, begin, end, shift)
                there = None if here is None else _joined(other, one, begin - shift, end - shift, -shift)
                if there is not None and (here or there):
                    return begin, end, shift
    return None


def _shifts(one: _Log, other: _Log) -> list[tuple[_Run, int]]:
    """Return runs of a log that may be of another, each with how much later it lies than it would there."""
    found, begins = list[tuple[_Run, int]](), {(run.begin, run.first) for run in other.runs}
    for run in one.runs:
        places = [at for at, offset in other.ends() if offset == run.first and (at, offset) not in begins]
        shifts = [run.begin - at for at in places]
        shifts += [run.end - o.begin for o in other.runs if o.first == run.last + 1]
        found += [(run, shift) for shift in dict.fromkeys(shifts) if run.end - shift <= len(other.data)]
    return found[:_MOST_SHIFTS]


def _begins(one: _Log, other: _Log, run: _Run, shift: int) -> Iterator[int]:
    """Yield where a stretch may begin that has a run in it: with that the other log goes on up to the run."""
    before = other.ended(run.begin - shift)
    low = max(one.ended(run.begin), before + shift, 0)
    for begin in _near(run.begin, low, shift, other):
        if _ends_at(other.data[before : begin - shift] + one.data[begin : run.begin]):
            yield begin


def _near(at: int, bound: int, shift: int, other: _Log) -> Iterator[int]:
    """Yield places from a byte up, or down, to a bound: itself, the bound, sectors, batches, then all that are near."""
    low, high = sorted((at, bound))
    likely = {low, high}
    likely |= {place for run in other.runs for place in (run.begin + shift, run.end + shift) if low <= place <= high}
    for base in (0, shift):
        likely |= set(range(low + (base - low) % _SECTOR, high + 1, _SECTOR))
    likely = set(sorted(likely, key=lambda place: abs(place - at))[:_NEAR])
    yield from sorted(likely, key=lambda place: abs(place - at))
    step = 1 if bound > at else -1
    yield from (place for place in range(at, at + step * min(_NEAR, abs(bound - at)), step) if place not in likely)


def _joined(one: _Log, other: _Log, begin: int, end: int, shift: int) -> int | None:
    """Return how many batches come of the pieces of two if a log has a stretch of another; None: it is not whole."""
    start = one.ended(begin)
    data = one.data[start:begin] + other.data[begin - shift : end - shift]
    limit, at, joined = end - start, 0, 0
    last = max((run.last for run in one.runs if run.end == start), default=-1)
    beyond = one.following(end)
    data += one.data[end:beyond]
    while at < limit or start + at < beyond:
        found = _header(data[at : at + HEADER_SIZE])
        batch = b"" if found is None else data[at : at + found[0]]
        if found is None or len(batch) < found[0] or found[1] <= last or not _is_whole(batch):
            return None
        frame = at + (CRC_AT if batch[MAGIC_AT] == _MODERN else message_set.CRC_AT)
        if found[1] > last + 1 and any(at < place < frame for place in (begin - start, limit)):
            return None  # no CRC covers where in it the stretch begins or ends
        places = (one.data, start + frame), (other.data, start + frame - shift)
        joined += all(
            there[max(place, 0) : place + len(batch) + at - frame] != batch[frame - at :] for there, place in places
        )
        at, last = at + found[0], found[2]
    first = min((run.first for run in one.runs if run.begin == beyond), default=last + 1)
    return joined if first > last else None


def _ends_at(data: bytes) -> bool:
    """Whether some bytes are nothing but whole batches."""
    at = 0
    while at < len(data):
        found = _header(data[at : at + HEADER_SIZE])
        if found is None or not _is_whole(data[at : at + found[0]]):
            return False
        at += found[0]
    return at == len(data)


def _header(head: bytes) -> tuple[int, int, int] | None:
    """Return the size of a batch by its header, and its first and last offset; None where it is none."""
    if len(head) <= MAGIC_AT or head[MAGIC_AT] > _MODERN:
        return None
    base, size = (int.from_bytes(head[at:to], "big", signed=True) for at, to in ((0, LENGTH_AT), (LENGTH_AT, _TO)))
    size, delta, least = size + FRAME_HEAD, 0, message_set.OVERHEAD.get(head[MAGIC_AT], HEADER_SIZE)
    if head[MAGIC_AT] == _MODERN and len(head) >= HEADER_SIZE:
        delta = header_plan().unpack_from(head)[0]["last_offset_delta"]
    is_right = len(head) >= least <= size and base >= 0 and delta >= 0
    return (size, base, base + delta) if is_right else None


def _is_whole(batch: bytes) -> bool:
    """Whether the CRC of a batch matches."""
    if len(batch) > MAGIC_AT and batch[MAGIC_AT] < _MODERN:
        body, stored = batch[message_set.CRC_FROM :], batch[message_set.CRC_AT : message_set.CRC_FROM]
        return crc32(body) == int.from_bytes(stored, "big")
    return len(batch) >= HEADER_SIZE and crc32c(batch[CRC_FROM:]) == int.from_bytes(batch[CRC_AT:CRC_FROM], "big")
