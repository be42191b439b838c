"""The index in the memory of a recovering broker: the last file goes on, new files follow (spec 4.3 to 4.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from rmqctl.repair.edits import Create, Edit, Extend
from rmqctl.repair.overwrites import changes
from rmqctl.rocketmq.dispatch.dispatched import IndexColumns
from rmqctl.rocketmq.dispatch.index_put import HEADER_SIZE, IndexHead
from rmqctl.rocketmq.dispatch.index_series import Entries, IndexSeries, Slots
from rmqctl.rocketmq.index_files import IndexFile
from rmqctl.rocketmq.index_geometry import IndexGeometry
from rmqctl.rocketmq.index_names import next_name
from rmqctl.rocketmq.store import INDEX

_PIECE = 1 << 20


@dataclass(slots=True)
class _Written:
    """What goes into one file: entries by number, and in the end its header and slots."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    head: bytes = b""
    slots: bytes = b""


class IndexImage:
    """Index files as they are after dispatch.

    Args:
        last: the newest file that loading left, None without one.
        counts_slots: `DispatchRules.counts_slots`.
    """

    def __init__(self, last: IndexFile | None, geometry: IndexGeometry, *, counts_slots: bool) -> None:
        self.last, self.geometry = last, geometry
        self._written: list[_Written] = [_Written()]
        head = IndexHead.parse(_read(last, 0, HEADER_SIZE)) if last else None
        slots = last.slots(0, geometry.slots).astype(np.int32) if last else None
        self._series = IndexSeries(geometry, counts_slots=counts_slots, sink=self, head=head, slots=slots)
        self._before = head.index_count - 1 if head else 0

    def add(self, columns: IndexColumns) -> None:
        """Put the keys of records that follow each other in the log."""
        self._series.add(columns)

    def entries(self, first: int, entries: Entries) -> None:
        """Called by the series: entries of the current file."""
        self._written[-1].entries.append((self.geometry.entry_at(first), entries.tobytes()))

    def close(self, head: IndexHead, slots: Slots) -> None:
        """Called by the series: the current file is complete."""
        self._written[-1].head, self._written[-1].slots = head.pack(), slots.astype(">i4").tobytes()
        self._written.append(_Written())

    @property
    def heads(self) -> list[IndexHead]:
        """Headers of the files from the last that was there on."""
        return self._series.heads

    def edits(self, now: datetime, behind: str = "") -> Iterator[Edit]:
        """What changes the files on disk to this.

        Args:
            now: local time for the names of new files.
            behind: the last name in use, which new names follow even if the clock was set back.
        """
        self._series.finish()
        made = self._written[:-1]
        if self.last is not None and made:
            yield from self._changed(self.last, made[0])
            made = made[1:]
        name = behind
        for written in made:
            name = next_name(name, int(now.timestamp() * 1000))
            yield Create(f"{INDEX}/{name}", _content(written), size=self.geometry.file_size)

    def _changed(self, last: IndexFile, written: _Written) -> Iterator[Edit]:
        """Overwrites of the file that was there, only where bytes differ."""
        if not written.entries:
            return
        size = last.size
        if size < self.geometry.file_size:  # a kill between making the file and giving it its length
            yield Extend(last.path, size, self.geometry.file_size)
        parts = [(0, written.head), (HEADER_SIZE, written.slots), *written.entries]
        for offset, data in parts:
            for start in range(0, len(data), _PIECE):
                after = data[start : start + _PIECE]
                before = _read(last, offset + start, len(after))
                yield from changes(last.path, offset + start, before, after)


def _read(file: IndexFile | None, offset: int, size: int) -> bytes:
    if file is None:
        return bytes(size)
    source = file.tree.open(file.path)
    try:
        return source.read_at(offset, size).ljust(size, b"\0")
    finally:
        source.close()


def _content(written: _Written) -> bytes:
    """A new file up to its last entry."""
    data = bytearray(written.head + written.slots)
    for offset, entries in written.entries:
        data.extend(bytes(max(offset - len(data), 0)))
        data[offset : offset + len(entries)] = entries
    return bytes(data)
