"""Directories of queues under a wrong name, and queue files whose messages all lie before the log (spec 3, 14.28).

Directories get the name that their units and the records give; files that a broker's expiry would take are moved away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

import numpy as np

from formats.rocketmq.consumequeue import PRE_BLANK
from rmqctl.findings import Finding
from rmqctl.repair.edits import Edit, Overwrite, Quarantine, Step, placed
from rmqctl.rocketmq.findings.derived import QUEUE_DIRECTORY
from rmqctl.rocketmq.findings.log import (
    LOG_GAP,
)  # fmt: skip
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.log.stand_ins import is_marked
from rmqctl.rocketmq.queues.files import BATCH_UNIT, UNIT, Queue, Units, is_pre_blank, queue_home, queues_of
from rmqctl.rocketmq.repair.log_files import path_of
from rmqctl.rocketmq.repair.queue_references import place_of
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    OFFSET_DIGITS,
    QUEUES,
    QueueFiles,
    StoreFile,
    StoreFiles,
    forgiving,
)
from rmqctl.text import number_of

# --- directories of queues, and queue files, under a wrong name get their right one -------------------

_MOST_ASKED = 64
"""Units of a file whose records are looked at."""


def misnamed_queue_steps(store: StoreFiles, findings: Iterable[Finding], log_files: list[StoreFile]) -> Iterator[Step]:
    """One step for all directories of queues under a wrong name; where the right one is there they go into quarantine.

    Args:
        store: as it is on the disk.
        findings: of a verification.
        log_files: of the log as earlier steps leave it.
    """
    named = [f.file for f in findings if f.kind is QUEUE_DIRECTORY]
    gone = dict[str, tuple[Queue, str]]()
    back: list[Edit] = []
    names, made = [], set()
    with LogReader(log_files) as log:
        for path in named:
            kind, topic, queue_id = path.split("/")
            dtype = BATCH_UNIT if kind == BATCH_QUEUES else UNIT
            queue = Queue.open(QueueFiles(kind, topic, int(queue_id), path, store.tree), dtype)
            home = queue_home(queue, log)
            if home is not None:
                gone[path] = queue, f"{kind}/{home[0]}/{home[1]}"
    for path, (queue, target) in gone.items():
        taken = target in made or (target not in gone and store.tree.entries(target, sizes=False))
        names.append(f"{path} to quarantine" if taken else f"{path} as {target}")
        for file in () if taken else queue.files:
            back += placed(f"{target}/{file.name.rpartition('/')[2]}", path_of(file))
        made.add(target)
    if gone:
        away = [Quarantine(path) for path in _with_topics(store, [*gone])]
        what = f"give it its right name: {', '.join(names)}"
        why = "the records that its units lead to name their topic and queue"
        yield Step(QUEUE_DIRECTORY.id, named[0], what, why, (*away, *back))


def misnamed_file_steps(store: StoreFiles, findings: Iterable[Finding], log_files: list[StoreFile]) -> Iterator[Step]:
    """One step for all queue files under the name of another place in their queue, if no file has the right one.

    Without it the units for destroyed records would say the wrong places, and the placeholders for these, too.

    Args:
        store: as it is on the disk.
        findings: of a verification.
        log_files: of the log as earlier steps leave it.
    """
    suspects = {finding.file: finding.kind.id for finding in findings if finding.kind.id.startswith("queue.")}
    if store.is_rocksdb or not suspects:
        return
    moved = list[tuple[StoreFile, str]]()
    with LogReader(log_files) as log:
        for queue in queues_of(forgiving(store).queues(QUEUES), UNIT):
            for file in (file for file in queue.files if file.name in suspects):
                base = file.base - _units_off(queue, file, log) * UNIT.itemsize
                name = f"{file.name.rpartition('/')[0]}/{base:0{OFFSET_DIGITS}d}"
                if base != file.base and base >= 0 and base % file.size == 0 and store.tree.stat(name) is None:
                    moved.append((file, name))
    if moved:
        back = [edit for file, name in moved for edit in placed(name, path_of(file))]
        names = ", ".join(f"{file.name} as {name.rpartition('/')[2]}" for file, name in moved)
        why = "the records that its units lead to say so, and no other file has that place"
        away = [Quarantine(file.name) for file, _ in moved]
        first = moved[0][0].name
        yield Step(suspects[first], first, f"give it its right name: {names}", why, (*away, *back))


def _units_off(queue: Queue, file: StoreFile, log: LogReader) -> int:
    """How many places too far on the units of a file are by its name; 0 where they are not.

    All whole records of the queue to which its first ones lead must say the same.
    """
    found = set[int]()
    for first, units in queue.chunks(file):
        for row in np.flatnonzero(queue.valid(units) & ~is_pre_blank(units))[:_MOST_ASKED].tolist():
            fields = log.fields(int(units["physical_offset"][row]))
            if fields is not None and place_of(fields)[:2] == queue.key and not is_marked(fields):
                found.add(file.base // UNIT.itemsize + first + row - fields["queue_offset"])
        break
    return found.pop() if len(found) == 1 else 0


def _with_topics(store: StoreFiles, queues: list[str]) -> list[str]:
    """Return the directories of queues, or of their topic where it holds nothing else: brokers load an empty
    one, too.
    """
    topics = dict.fromkeys(path.rpartition("/")[0] for path in queues)
    whole = [t for t in topics if {e.path for e in store.tree.entries(t, sizes=False)} <= set(queues)]
    return [*whole, *(path for path in queues if path.rpartition("/")[0] not in whole)]


# --- queue files whose messages all lie before the log ----------------------------------------------


_FIRST = 3


def expired_steps(store: StoreFiles, findings: Iterable[Finding]) -> Iterator[Step]:
    """Yield steps where the first files of the log are gone and whole queue files still point there.

    Expiry deletes queue files from the oldest while their last unit points before the log, never the last file,
    which keeps the queue's counter. Units that damage made point elsewhere do not keep a file: where a later file still
    begins before the log, all in front of it is gone.
    """
    begin = store.log_files[0].base if store.log_files else 0
    if not any(f.kind is LOG_GAP and (f.physical_offset or 0) < begin for f in findings) or store.is_rocksdb:
        return
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            old = [_begins_before(queue, file, begin) for file in queue.files]
            for number, file in enumerate(queue.files[:-1], 1):
                if not (_is_expired(queue, file, begin) or any(old[number:])):
                    break
                why = f"its messages lie before the log, which begins at {begin}: they are gone"
                what = "move to quarantine, as expiry would"
                yield Step(LOG_GAP.id, file.name, what, why, (Quarantine(file.name),))


def empty_queue_file_steps(store: StoreFiles) -> Iterator[Step]:
    """First files of queues in which no unit is left, once the log has given back all that it can.

    A broker that finds one among the last three cuts the queue there, and starts to count again.
    """
    if store.is_rocksdb:
        return
    begin = store.log_files[0].base if store.log_files else 0
    for kind, dtype in ((QUEUES, UNIT), (BATCH_QUEUES, BATCH_UNIT)):
        for queue in queues_of(store.queues(kind), dtype):
            hollow = list(takewhile(lambda file: not _has_units(queue, file), queue.files))  # noqa: B023 -- used at once
            for file in hollow if len(hollow) < len(queue.files) else ():
                why = "no unit is in it, and the log has none of its messages: a broker would cut the queue here"
                yield Step(LOG_GAP.id, file.name, "move to quarantine", why, (Quarantine(file.name),))
            if dtype is UNIT and begin:
                yield from _filled(queue, queue.files[len(hollow) :], begin)


def _filled(queue: Queue, files: list[StoreFile], begin: int) -> Iterator[Step]:
    """Units without a message in front of the first whose message the log has: fillers, as in front of a new queue."""
    for file in files:
        units = queue.read(file)
        valid = queue.valid(units)
        live = np.flatnonzero(valid & ~is_pre_blank(units) & (units["physical_offset"] >= begin))
        used = len(units) if file is not files[-1] else int(np.flatnonzero(valid).max(initial=-1)) + 1
        empty = np.flatnonzero(~valid[: int(live[0]) if len(live) else used])
        if len(empty):
            runs = np.split(empty, np.flatnonzero(np.diff(empty) > 1) + 1)
            edits = tuple(_filler(file, units, int(run[0]), len(run)) for run in runs)
            why = "their messages are gone with the first files of the log; a broker would cut the queue here"
            yield Step(LOG_GAP.id, file.name, f"make {number_of(len(empty), 'filler unit')}", why, edits)
        if len(live):
            return


def _filler(file: StoreFile, units: Units, first: int, count: int) -> Overwrite:
    before = units[first : first + count].tobytes()
    return Overwrite(file.name, first * UNIT.itemsize, before, PRE_BLANK * count)


def _has_units(queue: Queue, file: StoreFile) -> bool:
    return any(bool(queue.valid(units).any()) for _, units in queue.chunks(file))


def _is_expired(queue: Queue, file: StoreFile, begin: int) -> bool:
    ends = [int(units["physical_offset"][queue.valid(units)].max(initial=-1)) for _, units in queue.chunks(file)]
    return bool(ends) and -1 < int(np.max(ends)) < begin


def _begins_before(queue: Queue, file: StoreFile, begin: int) -> bool:
    """Whether the first units of a file point before the log: most of the first three, as one may be damaged."""
    for _, units in queue.chunks(file):
        first = units["physical_offset"][queue.valid(units)][:_FIRST]
        return int(np.count_nonzero(first < begin)) * 2 > len(first)
    return False
