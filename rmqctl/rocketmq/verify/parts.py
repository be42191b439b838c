"""Checks of a part of the log, some of its files, with the units and index entries that lead there.

A store whose broker runs changes while a long log is read, so a part is judged at a moment of its own. What concerns no
part, such as names and configuration, is level quick of the whole store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rmqctl.findings import Finding
from rmqctl.release import Release
from rmqctl.rocketmq.log.commitlog import has_data
from rmqctl.rocketmq.queues.files import Window
from rmqctl.rocketmq.store.files import RocketMQStore, unreadable_files
from rmqctl.rocketmq.store.geometry import Geometry, geometry_of
from rmqctl.rocketmq.verify import files, index, queues
from rmqctl.rocketmq.verify.context import LogContext
from rmqctl.rocketmq.verify.driver import AllPartials, Verification, VerifyOptions
from rmqctl.verification import LogPart

PART = 256 << 20
"""Bytes of a part, at least, where files of the log are smaller."""
_BEFORE = -1


def parts_of(store: RocketMQStore) -> list[LogPart]:
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

    def __init__(self, store: RocketMQStore, options: VerifyOptions, part: LogPart, **more: Any) -> None:
        in_database = store.has_rocksdb or store.has_light_database
        self._is_whole = all(part.begin <= file.base < part.end for file in store.log_files)
        self._is_whole = self._is_whole and not (in_database and store.is_running)
        options = options if self._is_whole or not in_database else replace(options, cross=False)
        super().__init__(store, options, **more)
        self.part = self._range = part.begin, part.end

    def _all(self) -> Iterator[Finding]:
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
        partials = AllPartials()
        yield from self._log(self._job(geometry, context), partials)
        across = list(partials.noted(partials.log.findings(self.options.as_release, newest)))
        yield from across
        learned = self._learned(context, partials, across, geometry.commit_log_file_size)
        yield from self._derived(geometry, checked.queues, partials, learned)
        yield from unreadable_files(self.store)

    def _derived(
        self, geometry: Geometry, listed: Any, partials: AllPartials, context: LogContext
    ) -> Iterator[Finding]:
        """Hold what leads into the part against it; the rest of the log counts as if it could not be trusted."""
        if not self.options.cross or not any(map(self._reads, context.log_files)):
            return
        (begin, end), first, limit = self._range, context.min_offset, context.limit
        is_last = not any(file.base >= end and has_data(file) for file in context.log_files)
        others = [(low, high) for low, high in ((first, begin), (end, limit)) if low < high]
        reached = max(begin, first) if partials.log.end is None else partials.log.end
        running = context.running and not is_last  # at a moment, all but what lies at the end was dispatched
        context = replace(
            context,
            end=reached if is_last else limit,
            dispatched=limit if running else context.dispatched,
            damaged=tuple(sorted({*context.damaged, *others})),
        )
        window = Window(_BEFORE if begin <= first else begin, limit if is_last else end, is_last)
        yield from queues.finish(self.store, geometry, listed, partials.queues, context, window)
        yield from index.finish(self.store, geometry, partials.index, context, window=window)
