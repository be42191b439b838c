"""Checks of a part of the log, some of its files, with the units and index entries that lead there.

A store whose broker runs changes while a long log is read, so a part is judged at a moment of its own. What concerns no
part, such as names and configuration, is level quick of the whole store. The checkpoint is held to the last record, so
it is of the part that has the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.findings.state import CHECKPOINT_AHEAD
from rmqctl.rocketmq.log.commitlog import CommitLog, FileContext, has_data
from rmqctl.rocketmq.queues.files import Window
from rmqctl.rocketmq.state.config import PATH as CHECKPOINT
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles, unreadable_files
from rmqctl.rocketmq.store.geometry import geometry_of
from rmqctl.rocketmq.verify import files, index, queues, state
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import AllPartials, Level, Verification, VerifyOptions
from rmqctl.rocketmq.verify.log import LogJoin
from rmqctl.rocketmq.verify.seams import Front, PartPartials, damage_at
from rmqctl.rocketmq.verify.splits import Job
from rmqctl.verification import LogPart

PART = 256 << 20
"""Bytes of a part, at least, where files of the log are smaller."""
_BEFORE = -1
_LOOKED_AT, _PAGE = 1 << 20, 1 << 12
"""Bytes of the begin of a file that are looked at, and of a page of each later stretch as long."""


def parts_of(store: StoreFiles) -> list[LogPart]:
    """Return the parts of a store: what is in no log, then the log, ascending; a file is always of the same part."""
    size = max(geometry_of(store).commit_log_file_size, 1)
    room = -(-PART // size) * size
    found: dict[int, LogPart] = {}
    for file in store.log_files:
        begin = file.base // room * room
        name = f"{file.name.rpartition('/')[0]}/{begin:020d}"
        before = found.get(begin, LogPart(name, 0, begin, begin + room))
        found[begin] = replace(before, size=before.size + file.size)
    return [LogPart("names", 0), *(found[begin] for begin in sorted(found))]


class PartVerification(Verification):
    """Checks one part of the log of a store; iterate :meth:`findings` to the end.

    Of a running store with units in RocksDB only the log is checked: nobody can tell how the database was at a moment.
    """

    def __init__(self, store: StoreFiles, options: VerifyOptions, part: LogPart, **more: Any) -> None:
        in_database = store.has_rocksdb or store.has_light_database
        self._is_rest = part.is_rest
        self._is_whole = not part.is_rest and all(part.begin <= file.base < part.end for file in store.log_files)
        self._is_whole = self._is_whole and not (in_database and store.is_running)
        options = replace(options, level=Level.QUICK) if part.is_rest else options
        options = options if self._is_whole or not in_database else replace(options, cross=False)
        super().__init__(store, options, **more)
        self.part = self._range = part.begin, part.end

    def _all(self) -> Iterator[Finding]:
        if self._is_rest:
            has_end = bool(self.store.log_files)
            yield from (found for found in super()._all() if found.file != CHECKPOINT or not has_end)
            return
        if self._is_whole:
            yield from super()._all()
            return
        geometry = geometry_of(self.store)
        yield from self._renamed(geometry.commit_log_file_size)
        context = LogContext.of(self.store, self.options.as_release)
        newest = Release(*context.highest_release)
        checked = files.FileCheck(self.store, geometry, newest)
        for _ in checked.findings():  # it lists the queues; level quick says what is wrong with names and lengths
            pass
        partials, job = PartPartials(), self._job(geometry, context)
        yield from self._log(job, partials)
        is_last = not any(file.base >= self._range[1] and _holds_data(file) for file in context.log_files)
        join = self._front(job).joined(partials, lambda join: is_last and self._is_ahead(_ended(context, join)))
        across = list(partials.noted(join.findings(self.options.as_release, newest, goes_on=not is_last)))
        yield from across
        learned = self._learned(context, partials, across, geometry.commit_log_file_size)
        learned = _ended(learned, join)
        yield from self._derived(job, checked.queues, partials, learned, is_last=is_last)
        if is_last and any(map(self._reads, context.log_files)):
            yield from state.check_checkpoint(self.store, learned)
        yield from unreadable_files(self.store)

    def _front(self, job: Job) -> Front:
        """Return the log in front of the part."""
        contexts = [context for context in self._contexts(job) if context.file.base < self._range[0]]
        has_units = self.options.cross and not self.store.is_rocksdb
        return Front(replace(job, cross=False, witness=None), contexts, has_units=has_units)

    def _contexts(self, job: Job) -> list[FileContext]:
        size = job.geometry.commit_log_file_size
        return CommitLog(self.store.log_files, crashed=self.store.has_abort, file_size=size).contexts()

    def _is_ahead(self, context: LogContext) -> bool:
        """Whether the checkpoint seems to know records that the log does not have, or no record was seen."""
        found = (finding.kind for finding in state.check_checkpoint(self.store, context))
        return not context.last_store_timestamp or CHECKPOINT_AHEAD in found

    def _derived(
        self, job: Job, listed: Any, partials: AllPartials, context: LogContext, *, is_last: bool
    ) -> Iterator[Finding]:
        """Hold what leads into the part against it."""
        if not self.options.cross or not any(map(self._reads, context.log_files)):
            return
        geometry = job.geometry
        (begin, end), first, limit = self._range, context.min_offset, context.limit
        running = context.running and not is_last  # at a moment, all but what lies at the end was dispatched
        context = replace(
            context,
            end=(first if context.end is None else context.end) if is_last else limit,
            dispatched=limit if running else context.dispatched,
        )
        in_front = (file.base + geometry.commit_log_file_size for file in context.log_files if file.base < begin)
        low = max(in_front, default=_BEFORE)  # what leads into missing files is of the part after them
        window = Window(low, limit if is_last else end, is_last)
        yield from queues.finish(self.store, geometry, listed, partials.queues, context, window)
        places = index.places_of(self.store, geometry, partials.index, window)
        if places:
            damaged, odd = damage_at(replace(job, cross=False, witness=None), self._contexts(job), places)
            damaged.update(context.damaged)
            context = replace(context, damaged=tuple(sorted(damaged)), odd_times=context.odd_times | odd)
        yield from index.finish(self.store, geometry, partials.index, context, window=window)


def _ended(context: LogContext, join: LogJoin) -> LogContext:
    """Return the context with what the last records show, those in front of the part among them."""
    end = None if not context.log_files else context.min_offset if join.end is None else join.end
    times = join.last_time or 0, join.newest_time or 0
    return replace(context, end=end, last_store_timestamp=times[0], newest_store_timestamp=times[1])


def _holds_data(file: StoreFile) -> bool:
    """Whether a file of the log is more than made in advance: its first page may be lost, so others are asked, too."""
    if has_data(file):
        return True
    source = file.open()
    try:
        if any(source.read_at(0, _LOOKED_AT)):
            return True
        return any(any(source.read_at(at, _PAGE)) for at in range(_LOOKED_AT, file.size, _LOOKED_AT))
    except OSError:
        return True
    finally:
        source.close()
