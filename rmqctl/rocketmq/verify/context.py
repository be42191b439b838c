"""What the checks of a store know of each other's ground: its state, its ends, its damaged ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqctl.release import Release
from rmqctl.rocketmq.block import Ints
from rmqctl.rocketmq.releases import ReleaseRange, release_range
from rmqctl.rocketmq.store import RocketMQStore, StoreFile


@dataclass(frozen=True, slots=True)
class LogContext:
    """Facts about the log.

    Attributes:
        min_offset: physical offset of the first byte of the log.
        end: physical offset behind the last record; None while that is not known.
        limit: physical offset behind the last file.
        crashed, running: state of the store.
        is_5: rules of 5.x apply.
        last_store_timestamp: of the last record, ms; 0 without one.
        newest_store_timestamp: the latest of all records, ms; later than that of the last where the clock was set back.
        log_files: files of the log, ascending.
        dispatched: physical offset behind the last record that has a queue unit; -1 without queues.
        misplaced: physical offsets of records whose queue or queue offset is wrong.
        odd_times: physical offsets of records whose store time looks damaged.
        damaged: physical ranges ``(begin, end)`` that findings of the log cover, ascending.
    """

    min_offset: int
    limit: int
    crashed: bool
    running: bool
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

    @classmethod
    def of(cls, store: RocketMQStore, as_release: Release | None = None) -> LogContext:
        """What is known before the log is scanned.

        Args:
            as_release: judge by the rules of this release; default: those the store shows.

        Raises:
            OSError: a file cannot be read.
        """
        files, shown = store.log_files, release_range(store)
        releases = ReleaseRange(as_release, as_release, ()) if as_release else shown
        return cls(
            min_offset=files[0].base if files else 0,
            limit=files[-1].base + files[-1].size if files else 0,
            crashed=store.has_abort,
            running=store.is_running,
            is_5=releases.is_5,
            highest_release=releases.highest,
            lowest_release=releases.lowest,
            log_files=files,
            settings=store.settings,
        )

    def is_damaged(self, begin: int, end: int) -> bool:
        """Whether a damaged range overlaps ``[begin, end)``."""
        at = bisect_left(self.damaged, (begin, 0))
        return (at > 0 and self.damaged[at - 1][1] > begin) or (at < len(self.damaged) and self.damaged[at][0] < end)

    def are_damaged(self, begin: Ints, end: Ints) -> npt.NDArray[np.bool_]:
        """The same of many stretches at once, shape (n,)."""
        ranges = np.array(self.damaged, np.int64).reshape(-1, 2)
        at = np.searchsorted(ranges[:, 0], begin)
        before = (at > 0) & (np.append(ranges[:, 1], 0)[at - 1] > begin)
        behind = (at < len(ranges)) & (np.append(ranges[:, 0], 0)[at] < end)
        found: npt.NDArray[np.bool_] = before | behind
        return found
