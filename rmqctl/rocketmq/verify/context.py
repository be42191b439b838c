"""What the checks of a store know of each other's ground: its state, its ends, its damaged ranges.

Of a DLedger log the entry headers are held against the records after them (spec 2.14).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from formats.layout import plan_of
from formats.rocketmq.dledger import ENTRY_SIZE, DLedgerEntry
from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.rules import batch_topics
from rmqctl.rocketmq.findings.log import LOG_DLEDGER_ENTRY
from rmqctl.rocketmq.log.block import Block, Ints, gather
from rmqctl.rocketmq.log.chain import DLEDGER_MAGICS
from rmqctl.rocketmq.log.record import SMALLEST
from rmqctl.rocketmq.state.releases import ReleaseRange, release_range
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles
from rmqctl.rocketmq.store.geometry import flag

Destroyed = dict[int, dict[tuple[str, int], tuple[int, int, int]]]
"""By where damage begins in the log, by topic and queue id: how many messages lay there, first and last offset."""


@dataclass(frozen=True, slots=True)
class LogContext:
    """Facts about the log.

    Attributes:
        min_offset: physical offset of the first byte of the log.
        end: physical offset after the last record; None while that is not known, and where there is no log.
        limit: physical offset after the last file.
        crashed, running: state of the store.
        confirmed: replicas have to confirm a message before it is dispatched.
        is_5: rules of 5.x apply.
        last_store_timestamp: of the last record, ms; 0 without one.
        newest_store_timestamp: the latest of all records, ms; later than that of the last where the clock was set back.
        log_files: files of the log, ascending.
        dispatched: physical offset after the last record that has a queue unit, of either kind; -1 without queues.
        misplaced: physical offsets of records whose queue or queue offset is wrong.
        odd_times: physical offsets of records whose store time looks damaged.
        batch_topics: topics whose queues are batch queues.
        damaged: physical ranges ``(begin, end)`` that findings of the log cover, ascending.
        destroyed: units of each queue that lead into a damaged range; filled while queues are compared.
    """

    min_offset: int
    limit: int
    crashed: bool
    running: bool
    confirmed: bool
    is_5: bool
    highest_release: tuple[int, int, int]
    lowest_release: tuple[int, int, int]
    log_files: list[StoreFile] = field(default_factory=list)
    settings: Mapping[str, str] = field(default_factory=dict)
    end: int | None = None
    last_store_timestamp: int = 0
    newest_store_timestamp: int = 0
    damaged: tuple[tuple[int, int], ...] = ()
    dispatched: int = -1
    misplaced: frozenset[int] = frozenset()
    odd_times: frozenset[int] = frozenset()
    batch_topics: frozenset[bytes] = frozenset()
    destroyed: Destroyed = field(default_factory=dict)

    @classmethod
    def of(cls, store: StoreFiles, as_release: Release | None = None) -> LogContext:
        """Return what is known before the log is scanned.

        Args:
            as_release: judge by the rules of this release; default: those the store shows.
        """
        files, shown = store.log_files, release_range(store)
        releases = ReleaseRange(as_release, as_release, ()) if as_release else shown
        return cls(
            min_offset=files[0].base if files else 0,
            limit=files[-1].base + files[-1].size if files else 0,
            crashed=store.has_abort,
            running=store.is_running,
            confirmed=waits_for_replicas(store),
            is_5=releases.is_5,
            highest_release=releases.highest,
            lowest_release=releases.lowest,
            log_files=files,
            settings=store.settings,
            batch_topics=batch_topics(store, reads_log=False) if releases.is_5 else frozenset(),
        )

    def is_undispatched(self, physical: int) -> bool:
        """Whether a record has no unit yet because its broker runs, or was killed before dispatch came to it, or
        stopped before the replicas had confirmed it.

        Dispatch goes through the log in order, so all records in front of the last one with a unit had theirs. Where
        no record at all has one, the queues are gone.
        """
        return self._may_lag and 0 <= self.dispatched <= physical

    @property
    def _may_lag(self) -> bool:
        return self.crashed or self.running or self.confirmed

    def are_undispatched(self, physical: Ints) -> npt.NDArray[np.bool_]:
        """As :meth:`is_undispatched`, for many records, shape (n,)."""
        is_late = self._may_lag and self.dispatched >= 0
        found: npt.NDArray[np.bool_] = physical >= self.dispatched if is_late else np.zeros(len(physical), bool)
        return found

    def for_queues(self, reached: int, lacking: Ints) -> LogContext:
        """Return the context for the queues of one kind: where they have no unit at all of what was dispatched, they
        are gone.

        Args:
            reached: physical offset after the last record that has a unit in one of them; -1 without one.
            lacking: physical offsets of records without a unit, shape (n,).
        """
        gone = reached < 0 and bool((lacking < self.dispatched).any())
        return replace(self, dispatched=-1) if gone else self

    def most_destroyed(self, physical: int) -> int:
        """How many messages the damage after a physical offset can have destroyed, at most."""
        left = (end - max(begin, physical) for begin, end in self.damaged if end > physical)
        return sum(max(size // SMALLEST, 1) for size in left)

    def is_damaged(self, begin: int, end: int) -> bool:
        """Whether a damaged range overlaps ``[begin, end)``."""
        at = bisect_left(self.damaged, (begin, 0))
        return (at > 0 and self.damaged[at - 1][1] > begin) or (at < len(self.damaged) and self.damaged[at][0] < end)

    def note_destroyed(self, queue: tuple[str, int], offset: Ints, begin: Ints) -> None:
        """Note units of a queue that lead into damage: their queue offsets, ascending, and where their records began,
        shape (n,).
        """
        if not len(begin):
            return
        ranges = np.array(self.damaged, np.int64).reshape(-1, 2)
        at = np.searchsorted(ranges[:, 0], begin, side="right") - 1
        at += (at < 0) | (ranges[at, 1] <= begin)  # a record that only ends in damage
        for number in np.unique(at).tolist():
            inside, queues = offset[at == number], self.destroyed.setdefault(int(ranges[number, 0]), {})
            count, first, _ = queues.get(queue, (0, int(inside[0]), 0))
            queues[queue] = count + len(inside), first, int(inside[-1])

    def are_damaged(self, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """Whether a damaged range overlaps each of many stretches, shape (n,)."""
        ranges = np.array(self.damaged, np.int64).reshape(-1, 2)
        at = np.searchsorted(ranges[:, 0], begin)
        before = (at > 0) & (np.append(ranges[:, 1], 0)[at - 1] > begin)
        after = (at < len(ranges)) & (np.append(ranges[:, 0], 0)[at] < end)
        found: npt.NDArray[np.bool_] = before | after
        return found


_CONFIRMING = ("enableDLegerCommitLog", "enableControllerMode", "allAckInSyncStateSet", "duplicationEnable")


def waits_for_replicas(store: StoreFiles) -> bool:
    """Whether a broker dispatches only what replicas have confirmed (``DefaultMessageStore.getConfirmOffset``): in a
    DLedger group, under a controller, or with ``duplicationEnable``.
    """
    is_asked = any(flag(store.settings, name, default=False) for name in _CONFIRMING)
    return is_asked or store.tree.stat("epochFileCheckpoint") is not None or any(file.lead for file in store.log_files)


# --- entry headers of a dledger log against the records after them ---------------------------------


_RUN = plan_of(DLedgerEntry).runs[0]
_OFFSETS = {field.name: field.offset for field in _RUN.fields}


def entry_findings(block: Block) -> list[Finding]:
    """Entries whose magic is none, or whose size or position does not fit the record they hold."""
    start = block.at - ENTRY_SIZE
    magic, size, position = (
        gather(block.data, start + _OFFSETS[name], _RUN.dtype[name]) for name in ("magic", "size", "position")
    )
    held = block.total_size + ENTRY_SIZE
    real = block.physical - ENTRY_SIZE
    wrong = (size != held) | (position != real) | ~np.isin(magic, DLEDGER_MAGICS)
    return [_finding(block, int(i), int(magic[i]), int(size[i]), int(position[i])) for i in np.flatnonzero(wrong)]


def _finding(block: Block, row: int, magic: int, size: int, position: int) -> Finding:
    at, real = int(block.position[row]) - ENTRY_SIZE, int(block.physical[row])
    message = (
        f"the entry says magic {magic}, size {size} and position {position}, but it lies at {real - ENTRY_SIZE} "
        f"and its record needs {int(block.total_size[row]) + ENTRY_SIZE} bytes"
    )
    return Finding(LOG_DLEDGER_ENTRY, block.file, at, ENTRY_SIZE, message, physical_offset=real)
