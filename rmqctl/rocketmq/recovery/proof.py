"""Several processes read the log ahead of the walk, and each proves its split: an unbroken chain of sound records.

The walk takes a split over when it stands exactly where the split's chain begins. From the first place that is not
proven on, the literal walk goes on alone; so the answer never depends on how the log was divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rmqctl.processes import Ordered
from rmqctl.rocketmq.block import Block
from rmqctl.rocketmq.commitlog import LogBlock
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.recovery.log_replay import LogWalk, good_records
from rmqctl.rocketmq.recovery.rules import RecoveryRules
from rmqctl.rocketmq.scan import Extent, scan
from rmqctl.rocketmq.store import StoreFile

SPLIT_SIZE = 32 << 20
LEAST = 256 << 20
"""Bytes of log below which one process is as fast."""
_AHEAD = 3


@dataclass(frozen=True, slots=True)
class Job:
    """What all processes know; can be pickled.

    Attributes:
        dispatches: whether records are dispatched at all; above: only those that say they lie behind this offset.
        body: check body CRCs.
    """

    files: list[StoreFile]
    rules: RecoveryRules
    dispatch_rules: DispatchRules
    wanted: Wanted
    dispatches: bool
    above: int | None
    body: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of one file: ``start <= position < stop``."""

    file: int
    start: int
    stop: int


@dataclass(slots=True)
class Proof:
    """What one process found in its part.

    Attributes:
        first, end: positions in the file where the chain begins and ends; -1 and 0 without a record.
        whole: the chain reaches to the end of the part, or to the blank record that ends the file.
        blank: it is followed by that blank record.
    """

    part: Part
    first: int = -1
    end: int = 0
    whole: bool = False
    blank: bool = False
    records: int = 0
    bytes: int = 0
    last: int = -1
    last_time: int = 0
    dispatched: Dispatched | None = None


def proven(job: Job, walk: LogWalk, processes: int) -> Iterator[Proof]:
    """Proofs that continue the walk, which is carried on with each; ends where one is missing.

    What a proof has dispatched is good until the next one is taken.

    Raises:
        OSError: a file cannot be read.
    """
    parts = [
        Part(n, start, min(start + SPLIT_SIZE, job.files[n].size))
        for n in range(walk.index, len(job.files))
        for start in range(0, job.files[n].size, SPLIT_SIZE)
    ]
    for proof in _proofs(job, parts, processes):
        if not proof.records or proof.first != walk.position or proof.part.file != walk.index:
            return
        walk.position, walk.last = proof.end, proof.last
        walk.records += proof.records
        if walk.files[-1:] != [job.files[walk.index].name]:
            walk.files.append(job.files[walk.index].name)
        yield proof
        if not proof.whole:
            return
        if proof.blank:
            if walk.index + 1 >= len(job.files):
                return
            walk.index, walk.position = walk.index + 1, 0


def _proofs(job: Job, parts: list[Part], processes: int) -> Iterator[Proof]:
    """Proofs in the order of the parts; the parts of a file behind its blank record are left out."""
    done = -1
    shared: Ordered[Part, Proof] = Ordered(_Prover(job), processes, _AHEAD * processes)
    for proof in shared.results(parts):
        if proof.part.file != done:
            done = proof.part.file if proof.blank else done
            yield proof


@dataclass(frozen=True, slots=True)
class _Prover:
    """Makes what works on parts in a process; can be pickled."""

    job: Job

    def __call__(self) -> Callable[[Part], Proof]:
        return lambda part: _prove(self.job, part)


def _prove(job: Job, part: Part) -> Proof:
    proof, file = Proof(part), job.files[part.file]
    dispatcher = Dispatcher(job.dispatch_rules, job.wanted)
    source = file.open()
    try:
        for block in scan(source, Extent(file.name, file.base, part.start, part.stop, size=file.size)):
            if not _chain(block, proof, job, dispatcher):
                break
        else:
            proof.whole = proof.first >= 0 and (proof.blank or proof.end >= part.stop)
    finally:
        source.close()
    proof.dispatched = dispatcher.take()
    return proof


def _chain(block: Block, proof: Proof, job: Job, dispatcher: Dispatcher) -> bool:
    """Add a block's records as far as they continue the chain; whether it may go on."""
    position = block.position
    if len(block):
        proof.first = int(position[0]) if proof.first < 0 else proof.first
        starts = np.concatenate([[proof.end or proof.first], (position + block.total_size)[:-1]])
        odd = np.flatnonzero((position != starts) | ~good_records(block, job.rules, body=job.body))
        count = int(odd[0]) if len(odd) else len(block)
        if count:
            _note(block.take(slice(0, count)) if count < len(block) else block, proof, job, dispatcher)
        if count < len(block):
            return False
    if block.gaps:
        return False
    blanks = [b for b in block.blanks if b.position == proof.end and b.size == b.end - b.position]
    proof.blank = bool(proof.records and blanks)
    return not block.blanks or proof.blank


def _note(block: Block, proof: Proof, job: Job, dispatcher: Dispatcher) -> None:
    proof.end = int(block.position[-1] + block.total_size[-1])
    proof.records += len(block)
    proof.bytes += int(block.total_size.sum())
    proof.last, proof.last_time = int(block.physical[-1]), int(block["store_timestamp"][-1])
    if job.dispatches:
        chosen = block if job.above is None else block.take(np.flatnonzero(block["physical_offset"] > job.above))
        dispatcher.add(LogBlock(chosen))
