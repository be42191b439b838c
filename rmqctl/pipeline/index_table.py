"""The table ``index_entries``: the entries of the index files by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rmqctl.files.source import ByteSource
from rmqctl.files.tree import Entry, Tree
from rmqctl.pipeline.log_parts import SPLIT_SIZE
from rmqctl.pipeline.options import TableOptions
from rmqctl.pipeline.texts import TIME, times
from rmqctl.rocketmq.dispatch.index_series import Entries
from rmqctl.rocketmq.geometry import index_geometry
from rmqctl.rocketmq.index_files import IndexFile
from rmqctl.rocketmq.index_geometry import ENTRY, IndexGeometry
from rmqctl.rocketmq.rows.units import chunks, used

INDEX_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("number", pa.int32()),
        ("slot", pa.int32()),
        ("key_hash", pa.int32()),
        ("physical_offset", pa.int64()),
        ("time_difference", pa.int32()),
        ("store_timestamp", TIME),
        ("previous", pa.int32()),
    ]
)
"""Columns of entries, as ``dump`` has them; ``time_difference`` in seconds."""

_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries ``[first, end)`` of one index file."""

    tree: Tree
    entry: Entry
    geometry: IndexGeometry
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class IndexTable:
    """Index entries of a store."""

    options: TableOptions

    def schema(self) -> pa.Schema:
        """The columns, see :data:`INDEX_SCHEMA`."""
        return INDEX_SCHEMA

    def parts(self) -> list[EntryRange]:
        """Ranges of entries; of a file that the broker left ahead of its header all that were written.

        Raises:
            OSError: a file cannot be read.
        """
        store = self.options.store()
        geometry, step = index_geometry(store), max((self.options.split_size or SPLIT_SIZE) // ENTRY.packer.size, 1)
        found = []
        for entry in store.index_files:
            if not entry.is_directory:
                end = _end(store.tree, entry, geometry)
                found += [
                    EntryRange(store.tree, entry, geometry, first, min(first + step, end))
                    for first in range(1, end, step)
                ]
        return found

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        """The entries of a range.

        Raises:
            OSError: the file cannot be read.
        """
        file = IndexFile.open(part.tree, part.entry, part.geometry)
        try:
            for first in range(part.first, part.end, _ROWS):
                entries = file.entries(first, min(_ROWS, part.end - first))
                if not len(entries):
                    return
                yield _batch(part, file.header["begin_timestamp"], first, entries)
        finally:
            file.close()


def _batch(part: EntryRange, begin: int, first: int, entries: Entries) -> pa.RecordBatch:
    number = first + np.arange(len(entries))
    hashes, difference = entries["key_hash"].astype(np.int64), entries["time_difference"].astype(np.int64)
    # the first entry's difference is measured from another time (spec 4.4), its own time is the begin
    time = np.where(number == 1, begin, begin + difference * 1000)
    columns = [
        pa.repeat(pa.scalar(part.entry.path), len(entries)),
        pa.array(number.astype(np.int32)),
        pa.array((hashes % part.geometry.slots).astype(np.int32)),
        pa.array(hashes.astype(np.int32)),
        pa.array(entries["physical_offset"].astype(np.int64)),
        pa.array(difference.astype(np.int32)),
        times(time),
        pa.array(entries["previous"].astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INDEX_SCHEMA)


def _end(tree: Tree, entry: Entry, geometry: IndexGeometry) -> int:
    """Behind the last entry: what the header says, or the last one that is not zero."""
    file = IndexFile.open(tree, entry, geometry)
    announced = min(max(file.header["index_count"], 1), geometry.entries)
    file.close()
    source = tree.open(entry.path)
    try:
        return max(announced, _last_used(source, geometry, announced) + 1)
    finally:
        source.close()


def _last_used(source: ByteSource, geometry: IndexGeometry, announced: int) -> int:
    begin, last = geometry.entry_at(0), 0
    end = min(source.size(), geometry.file_size)
    for position, units in chunks(source, ENTRY.dtype, geometry.entry_at(announced), end):
        rows = np.flatnonzero(used(units))
        if len(rows):
            last = (position - begin) // ENTRY.packer.size + int(rows[-1])
    return last
