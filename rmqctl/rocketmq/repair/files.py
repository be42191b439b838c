"""Files that are empty, of a wrong length or name, unreadable, or do not belong (spec 1.2, 14.28).

Queue and index files that cannot be read make way for new ones: the log has all that they hold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import takewhile

from rmqctl.files.tree import Entry
from rmqctl.findings import Finding
from rmqctl.repair.edits import Cut, Edit, Extend, Quarantine, Step
from rmqctl.rocketmq.findings.derived import INDEX_FILE_NAME, QUEUE_FILE_LENGTH, QUEUE_FILE_NAME
from rmqctl.rocketmq.findings.log import (
    LOG_FILE_LENGTH,
    LOG_FILE_NAME,
)  # fmt: skip
from rmqctl.rocketmq.findings.state import FILE_EMPTY, FILE_STRAY, FILE_UNREADABLE, TIMER_LOG
from rmqctl.rocketmq.index import index_entries
from rmqctl.rocketmq.queues.files import UNIT
from rmqctl.rocketmq.repair.log_files import holds_records
from rmqctl.rocketmq.state.config import consumer_offsets
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    QUEUES,
    QUEUES_EXT,
    StoreFiles,
    is_offset,
)
from rmqctl.rocketmq.store.geometry import Geometry
from rmqctl.rocketmq.verify.files import FileCheck

_NAMES = (LOG_FILE_NAME, QUEUE_FILE_NAME, INDEX_FILE_NAME, FILE_STRAY)
_LENGTHS = (LOG_FILE_LENGTH, QUEUE_FILE_LENGTH)


def stray_steps(store: StoreFiles, geometry: Geometry) -> Iterator[Step]:
    """Strays into quarantine, lengths put right, so that every release loads the files."""
    for finding in FileCheck(store, geometry).findings():
        if finding.kind in _NAMES:
            yield _name(store, finding)
        elif finding.kind is FILE_EMPTY:
            yield _empty(store, finding, geometry)
        elif finding.kind in _LENGTHS:
            yield _length(store, finding, _size(finding.file, geometry))
        elif finding.kind is TIMER_LOG:
            why = (
                "brokers build them again from their queue where timerlog/, timerwheel and config/timercheck are moved "
                "away together, and deliver again what was due; where timercheck stays, pending messages never come"
            )
            yield Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _name(store: StoreFiles, finding: Finding) -> Step:
    name = finding.file.rpartition("/")[2]
    if is_offset(name) and finding.kind is not FILE_STRAY:
        if finding.kind is LOG_FILE_NAME and not holds_records(store, finding.file):
            why = "it lies off the grid of the other files of the log, and holds no record that they do not have"
            return Step(finding.kind.id, finding.file, "move to quarantine", why, (Quarantine(finding.file),))
        why = "it may hold messages: give it its right name, or move it away, by hand"
        return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)
    return Step(finding.kind.id, finding.file, "move to quarantine", finding.message, (Quarantine(finding.file),))


def _empty(store: StoreFiles, finding: Finding, geometry: Geometry) -> Step:
    """Plan what becomes of an empty file: made whole in the middle of the log, where the bytes of a file are counted;
    else moved away.
    """
    last = store.log_files[-1].name if store.log_files else ""
    if any(f.name == finding.file for f in store.log_files) and finding.file != last:
        size = geometry.commit_log_file_size
        return Step(
            finding.kind.id,
            finding.file,
            f"extend to {size} bytes",
            "later files have data",
            (Extend(finding.file, 0, size),),
        )
    return Step(finding.kind.id, finding.file, "move to quarantine", finding.message, (Quarantine(finding.file),))


def _length(store: StoreFiles, finding: Finding, size: int) -> Step:
    found = _found_size(store, finding)
    if found == size:
        return Step(
            finding.kind.id, finding.file, f"left as it is: {finding.message}", "another step changes its length"
        )
    edit: Edit = Extend(finding.file, found, size) if found < size else Cut(finding.file, found, size)
    what = f"{'extend' if found < size else 'cut'} to {size} bytes"
    return Step(
        finding.kind.id, finding.file, what, f"files of one sequence have one length: {finding.message}", (edit,)
    )


def _found_size(store: StoreFiles, finding: Finding) -> int:
    for file in store.log_files:
        if file.name == finding.file:
            return file.size
    entry = store.tree.stat(finding.file)
    return entry.size if entry is not None else 0


def _size(name: str, geometry: Geometry) -> int:
    return {
        QUEUES: geometry.queue_file_size,
        BATCH_QUEUES: geometry.batch_queue_file_size,
        QUEUES_EXT: geometry.queue_ext_file_size,
    }.get(name.partition("/")[0], geometry.commit_log_file_size)


# --- queue and index files that cannot be read ------------------------------------------------------


_LINK = "move out the link"


def unreadable_steps(store: StoreFiles) -> Iterator[Step]:
    """One step a file that cannot be opened or read, and a link for a file of the log that is after its end."""
    why = "it is a link that leads nowhere, after the end of the log"
    for name in links_after_the_end(store):
        yield Step(FILE_UNREADABLE.id, name, _LINK, why, (Quarantine(name),))
    for entry in _derived_files(store):
        problem = _problem(store, entry)
        if problem is not None:
            why = f"it cannot be read ({problem.strerror or problem}), and the log has what it holds"
            what = _LINK if entry.is_dangling else "move to quarantine"
            yield Step(FILE_UNREADABLE.id, entry.path, what, why, (Quarantine(entry.path),))


def links_that_lead_nowhere(store: StoreFiles) -> list[str]:
    """Names of files of the log in whose place there are such links, in the order of the log."""
    places = {(id(file.tree), os.path.dirname(file.path)): file.tree for file in store.log_files}
    found = {
        (number, entry.path)
        for (number, directory), tree in places.items()
        for entry in tree.entries(directory)
        if entry.is_dangling
    }
    return [file.name for file in store.log_files if (id(file.tree), file.path) in found]


def links_after_the_end(store: StoreFiles) -> list[str]:
    """Those of :func:`links_that_lead_nowhere` that come after all files of the log."""
    away = set(links_that_lead_nowhere(store))
    return [file.name for file in takewhile(lambda file: file.name in away, reversed(store.log_files))][::-1]


def not_made_again(before: StoreFiles, after: StoreFiles, steps: list[Step]) -> list[str]:
    """Queue files moved away by these steps that the rest of a plan does not bring back.

    Their queues would go back to offsets that they have given out already. A link that leads nowhere is no file of a
    queue that has not come so far.

    Args:
        before, after: the store on both sides of the whole plan.
    """
    moved = (step for step in steps if step.id == FILE_UNREADABLE.id and step.edits)
    queues = [step for step in moved if step.file.split("/")[0] in (QUEUES, BATCH_QUEUES)]
    gone = [step for step in queues if after.tree.stat(step.file) is None]
    return [step.file for step in gone if step.what != _LINK or _is_reached(before, after, step.file)]


def _is_reached(before: StoreFiles, after: StoreFiles, name: str) -> bool:
    """Whether a queue may have come to a file: the one in front of it is not there or full, or consumers are there."""
    kind, topic, queue_id, base = name.split("/")
    files = [e for e in after.tree.entries(os.path.dirname(name)) if is_offset(e.name) and int(e.name) < int(base)]
    if kind != QUEUES or not files:
        return True
    with closing(after.tree.open(files[-1].path)) as source:
        if any(source.read_at(source.size() - UNIT.itemsize, UNIT.itemsize)):
            return True
    known = (o.offset for o in consumer_offsets(before) if (o.topic, o.queue_id) == (topic, int(queue_id)))
    return any(offset * UNIT.itemsize > int(base) for offset in known)


def _derived_files(store: StoreFiles) -> Iterator[Entry]:
    for kind in (QUEUES, BATCH_QUEUES):
        for queue in store.queues(kind):
            yield from (e for e in store.tree.entries(queue.path) if not e.is_directory)
    yield from index_entries(store)


def _problem(store: StoreFiles, entry: Entry) -> OSError | None:
    try:
        source = store.tree.open(entry.path)
    except OSError as error:
        return error
    try:
        source.read_at(0, 1)
    except OSError as error:
        return error
    finally:
        source.close()
    return None
