"""One cause, one notice: findings that come of the same thing say so, and which of them to look at first.

Causes are seen from findings and the bytes at their places: a hole of zeros inside of a file of the log, as a power
failure leaves one where pages never reached the disk; a log that ends before what queues, index, checkpoint and timers
all know of; queues that are gone together; and index files that a full disk has cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from rmqctl.findings import Finding
from rmqctl.rocketmq.findings.derived import INDEX_BEYOND, INDEX_COVERAGE, INDEX_FILE_LENGTH, QUEUE_AHEAD, QUEUE_MISSING
from rmqctl.rocketmq.findings.log import LOG_BAD_RECORD, LOG_BLANK, LOG_BODY_CRC, LOG_GAP, LOG_PROPERTIES_LOST
from rmqctl.rocketmq.findings.state import CHECKPOINT_AHEAD, CHECKPOINT_OFFSET, TIMER_LOG
from rmqctl.rocketmq.store.files import QUEUES, StoreFiles
from rmqctl.text import number_of

_SECTOR = 512
"""Bytes; a page that was not written begins and ends at a multiple of it."""
_SLACK = 16
"""Zeros that may have been there before at each end of a hole."""
_LONGEST = 4 << 20
"""Bytes of a finding that are searched."""
_WINDOW = 64 << 10
"""Bytes that are looked at before a finding and after it."""
_MOST = 1000
"""Findings in the log at which is looked: a hole leaves a few, and a flood of them is none."""
_OF_A_HOLE = frozenset({LOG_BAD_RECORD, LOG_BLANK, LOG_BODY_CRC, LOG_PROPERTIES_LOST})
_OF_AN_END = frozenset({LOG_GAP, INDEX_BEYOND, CHECKPOINT_AHEAD, CHECKPOINT_OFFSET, TIMER_LOG})
_ALL_GONE = "all queues are gone: consumequeue/ was emptied, or its volume is not mounted"
_CUT = "the log ends before what queues point to, too: it was cut there, or its last files are gone"


def with_causes(findings: Iterable[Finding], store: StoreFiles) -> Iterator[Finding]:
    """Yield findings as they come, with their causes, and those that follow from an earlier one folded under it."""
    files = {file.name: file for file in store.log_files}
    holes = dict[tuple[str, int], Finding]()
    looked, cuts, is_ahead, are_gone = 0, 0, False, None
    for finding in findings:
        is_ahead |= finding.kind is QUEUE_AHEAD
        if finding.kind in _OF_A_HOLE and finding.file in files and looked < _MOST:
            looked += 1
            with closing(files[finding.file].open()) as source:
                begin, size = max(finding.offset - _WINDOW, 0), min(finding.size, _LONGEST)
                hole = _hole(source.read_at(begin, finding.offset + size + _WINDOW - begin), begin, finding)
            if hole is not None:
                first = holes.setdefault((finding.file, hole[0]), finding)
                cause = f"{hole[1] - hole[0]:,} bytes at {hole[0]:,} are zeros, as where a page never reached the disk"
                under = first.kind.id if first.kind is not finding.kind else None
                finding = replace(finding, cause=cause, folded_under=under)
        elif is_ahead and finding.kind in _OF_AN_END and _is_of_an_end(finding, store):
            finding = replace(finding, cause=_CUT, folded_under=QUEUE_AHEAD.id)
        elif finding.kind is INDEX_FILE_LENGTH:
            cuts += 1
        elif cuts and finding.kind is INDEX_COVERAGE:
            finding = replace(finding, cause=_cut_index(store, cuts), folded_under=INDEX_FILE_LENGTH.id)
        elif finding.kind is QUEUE_MISSING and finding.file.startswith(f"{QUEUES}/"):
            are_gone = next(store.queues(), None) is None if are_gone is None else are_gone
            finding = replace(finding, cause=_ALL_GONE) if are_gone else finding
        yield finding


def _cut_index(store: StoreFiles, cuts: int) -> str:
    """Say how many index files are cut, and that a full disk leaves files without bytes."""
    files = store.index_files
    empty = sum(file.size == 0 for file in files)
    said = f"; {empty} of them without bytes, as where the disk was full" if empty else ""
    return f"{cuts} of {number_of(len(files), 'index file', 'have')} a wrong length{said}"


def _is_of_an_end(finding: Finding, store: StoreFiles) -> bool:
    """Whether a finding says that something is known of what lies after the end of the log."""
    if finding.kind in {TIMER_LOG, LOG_GAP}:
        last = max(store.log_files, key=lambda file: file.base, default=None)
        return last is not None and finding.physical_offset is not None and finding.physical_offset > last.base
    return True


def _hole(data: bytes, begin: int, finding: Finding) -> tuple[int, int] | None:
    """Return the first and last byte of the zeros that destroyed what a finding names, as offsets into its file.

    They fill a sector at least, begin or end with one, and other bytes stand in front and follow: what was never
    written to, after the end of the log, is no hole.
    """
    low, high = finding.offset - begin, finding.offset + max(finding.size, 1) - begin
    at = data.find(bytes(_SECTOR), max(low - _SECTOR + 1, 0))
    if not 0 <= at < high:
        return None
    first = at + begin - (at - len(data[:at].rstrip(b"\0")))
    end = begin + len(data) - len(data[at:].lstrip(b"\0"))
    if end == begin + len(data) or (first == begin and begin > 0):
        return None
    return (first, end) if -first % _SECTOR <= _SLACK or end % _SECTOR <= _SLACK else None
