"""Files that do not belong, and files of a wrong length (spec 1.2, 14.28)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqctl.findings import Finding
from rmqctl.repair.edits import Cut, Edit, Extend, Quarantine, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.commitlog import CommitLog, has_data
from rmqctl.rocketmq.geometry import Geometry
from rmqctl.rocketmq.store import BATCH_QUEUES, QUEUES, QUEUES_EXT, RocketMQStore, is_offset
from rmqctl.rocketmq.verify.file_checks import FileCheck

_NAMES = (kinds.LOG_FILE_NAME, kinds.QUEUE_FILE_NAME, kinds.INDEX_FILE_NAME, kinds.FILE_STRAY)
_LENGTHS = (kinds.LOG_FILE_LENGTH, kinds.QUEUE_FILE_LENGTH)


def stray_steps(store: RocketMQStore, geometry: Geometry) -> Iterator[Step]:
    """Strays into quarantine, lengths put right, so that every release loads the files.

    Raises:
        OSError: a directory cannot be listed.
    """
    for finding in FileCheck(store, geometry).findings():
        if finding.kind in _NAMES:
            yield _name(store, finding)
        elif finding.kind is kinds.FILE_EMPTY:
            yield _empty(store, finding, geometry)
        elif finding.kind in _LENGTHS:
            yield _length(store, finding, _size(finding.file, geometry))
        elif finding.kind is kinds.TIMER_LOG:
            why = "brokers build timerlog/ and timerwheel again from their queue when both are moved away"
            yield Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _name(store: RocketMQStore, finding: Finding) -> Step:
    name = finding.file.rpartition("/")[2]
    if is_offset(name) and finding.kind is not kinds.FILE_STRAY:
        if finding.kind is kinds.LOG_FILE_NAME and not _holds_records(store, finding.file):
            why = "it lies off the grid of the other files of the log, and there is no record in it"
            return Step(finding.kind.id, finding.file, "move to quarantine", why, (Quarantine(finding.file),))
        why = "it may hold messages: give it its right name, or move it away, by hand"
        return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)
    return Step(finding.kind.id, finding.file, "move to quarantine", finding.message, (Quarantine(finding.file),))


def _holds_records(store: RocketMQStore, name: str) -> bool:
    """Whether a record lies in a file of the log, be it one of another place."""
    own = [f for f in store.log_files if f.name == name]
    return not own or any(len(found.block) for found in CommitLog(own).walk())


def _empty(store: RocketMQStore, finding: Finding, geometry: Geometry) -> Step:
    """An empty file: made whole in the middle of the log, where the bytes of a file are counted; else moved away."""
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


def _length(store: RocketMQStore, finding: Finding, size: int) -> Step:
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


def _found_size(store: RocketMQStore, finding: Finding) -> int:
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


def pointless_files(store: RocketMQStore) -> list[str]:
    """Files of the log behind a gap in its files, none of which has data: they keep a broker from finding the end."""
    files = store.log_files
    size = max((f.size for f in files), default=0)
    for at in range(1, len(files)):
        if files[at].base - files[at - 1].base > size and not any(has_data(f) for f in files[at:]):
            return [f.name for f in files[at:]]
    return []


__all__ = ["pointless_files", "stray_steps"]
