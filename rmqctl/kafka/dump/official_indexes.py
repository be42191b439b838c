"""Indexes and producer snapshots as the official dump tool prints and checks them (spec 16.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.kafka.directory.directory import LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.log.block import Block
from rmqctl.kafka.log.indexes import read_offset_index, read_producer_snapshot, read_time_index, read_txn_index
from rmqctl.kafka.log.records import records_of
from rmqctl.kafka.log.scan import Extent, scan
from rmqctl.release import Release

if TYPE_CHECKING:
    from rmqctl.kafka.dump.official import Options

_NAMES_EMPTY, _JAVA_STATE, _JAVA_TOOL = Release(2, 8, 0), Release(3, 5, 0), Release(4, 3, 0)
_SEQUENCES = 1 << 31


class IndexDump:
    """Prints index files, each entry compared with the batch it points at.

    Attributes:
        is_damaged: an entry points where no batch is, or a file cannot be used.
    """

    def __init__(self, options: Options, release: Release) -> None:
        self.options, self.release = options, release
        self.is_damaged = False
        self._mismatches: list[str] = []
        self._times: dict[str, list[str]] = {"wrong": [], "order": [], "missing": []}
        self._other: list[str] = []

    def reports(self) -> list[str]:
        """Return what the tool says at its end."""
        return [*self._mismatches, *self._times["wrong"], *self._times["order"], *self._times["missing"], *self._other]

    def lines(self, partition: Partition | None, file: LogFile, shown: str) -> Iterator[str]:
        """Return the lines of one file after its name."""
        segment = next((s for s in partition.segments if s.base == file.base), None) if partition else None
        match file.kind:
            case FileKind.OFFSET_INDEX:
                return self._offset_index(file, shown, segment)
            case FileKind.TIME_INDEX:
                return self._time_index(file, shown, segment)
            case FileKind.TXN_INDEX:
                return self._txn_index(file)
            case _:
                return self._snapshot(file)

    def _damage(self, sentence: str) -> None:
        self._other.append(sentence)
        self.is_damaged = True

    # --- offset index -------------------------------------------------------------------------------

    def _offset_index(self, file: LogFile, shown: str, segment: Segment | None) -> Iterator[str]:
        index = _read(file, read_offset_index)
        offsets = (index.slots["relative_offset"].astype(np.int64) + file.base).tolist()
        positions = index.slots["position"].astype(np.int64).tolist()
        if not offsets:
            if self.release >= _NAMES_EMPTY:
                yield f"{shown} is empty."
            return
        if self.options.index_sanity_check:
            yield from self._sane(shown, index.rest == 0 and offsets[-1] >= file.base)
            return
        ends = _BatchEnds(segment)
        wrong: list[tuple[int, int]] = []
        for number, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
            if offset == file.base and number:
                break
            last = ends.at(position)
            if last is None and (position or offset != file.base):
                self._damage(f"{shown}: offset {offset} is at position {position}, where no batch is")
            elif last not in {None, offset}:
                wrong.append((offset, last or 0))
            if not self.options.verify_index_only:
                yield f"offset: {offset} position: {position}"
        if wrong:
            self._mismatches.append(f"Mismatches in :{shown}")
            self._mismatches += [f"  Index offset: {offset}, log offset: {last}" for offset, last in reversed(wrong)]

    def _sane(self, shown: str, is_sane: bool) -> Iterator[str]:
        if is_sane:
            yield f"{shown} passed sanity check."
        else:
            self._damage(f"{shown} did not pass the sanity check")

    # --- time index ---------------------------------------------------------------------------------

    def _time_index(self, file: LogFile, shown: str, segment: Segment | None) -> Iterator[str]:
        index = _read(file, read_time_index)
        times = index.slots["timestamp"].astype(np.int64).tolist()
        offsets = (index.slots["relative_offset"].astype(np.int64) + file.base).tolist()
        if self.options.index_sanity_check:
            yield from self._sane(
                shown, index.rest == 0 and (not times or (times[-1] >= times[0] and offsets[-1] >= file.base))
            )
            return
        maxima = _Maxima(segment)
        before = -1
        found: dict[str, list[str]] = {"wrong": [], "order": [], "missing": []}
        for number, (time, offset) in enumerate(zip(times, offsets, strict=True)):
            if offset == file.base and number:
                break
            last, largest = maxima.of(offset)
            if last != offset:
                found["missing"].append(f"Indexed offset: {offset}, found log offset: {last}")
            else:
                if largest != time:
                    found["wrong"].append(f"  Index timestamp: {time}, log timestamp: {largest}")
                if before >= time:
                    found["order"].append(f"  Index timestamp: {time}, Previously indexed timestamp: {before}")
            if not self.options.verify_index_only:
                yield f"timestamp: {time} offset: {offset}"
            before = time
        self._note_times(shown, found)

    def _note_times(self, shown: str, found: dict[str, list[str]]) -> None:
        heads = {
            "wrong": f"Found timestamp mismatch in :{shown}",
            "order": f"Found out of order timestamp in :{shown}",
            "missing": "The following indexed offsets are not found in the log.",
        }
        for kind, lines in found.items():
            if lines:
                self._times[kind] += [heads[kind], *lines]

    # --- the rest -----------------------------------------------------------------------------------

    def _txn_index(self, file: LogFile) -> Iterator[str]:
        index = _read(file, read_txn_index)
        for version, producer, first, last, stable in index.slots.tolist():
            yield (
                f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
                f"lastStableOffset: {stable}"
            )

    def _snapshot(self, file: LogFile) -> Iterator[str]:
        found = _read(file, read_producer_snapshot)
        if found.problem:
            self._damage(f"{file.name}: {found.problem}")
            return
        for row in found.rows():
            line = (
                f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
                f"coordinatorEpoch: {row['coordinator_epoch']} "
                f"currentTxnFirstOffset: {self._open_at(row['current_txn_first_offset'])} "
                f"lastTimestamp: {row['last_timestamp']}"
            )
            if row["last_offset"] >= 0:
                first = (row["last_sequence"] - row["offset_delta"]) % _SEQUENCES if row["last_sequence"] >= 0 else -1
                line += (
                    f" firstSequence: {first} lastSequence: {row['last_sequence']} lastOffset: {row['last_offset']} "
                    f"offsetDelta: {row['offset_delta']} timestamp: {row['last_timestamp']}"
                )
            elif self.release < _JAVA_TOOL:
                line += " "
            yield line

    def _open_at(self, offset: int) -> str:
        if self.release >= _JAVA_STATE:
            return "OptionalLong.empty" if offset < 0 else f"OptionalLong[{offset}]"
        return "None" if offset < 0 else f"Some({offset})"


class _BatchEnds:
    """Last offsets of the batches that lie where index entries point."""

    def __init__(self, segment: Segment | None) -> None:
        self.found: dict[int, int] = {}
        if segment is not None and segment.log is not None:
            source = segment.log.open()
            try:
                for block in scan(source, Extent(segment.log.name, segment.base, check_crc=False)):
                    self.found.update(zip(block.position.tolist(), block["last_offset"].tolist(), strict=True))
            finally:
                source.close()

    def at(self, position: int) -> int | None:
        """Last offset of the batch at a position of the segment; None where none is."""
        return self.found.get(position)


class _Maxima:
    """Largest timestamps of batches, found by offset."""

    def __init__(self, segment: Segment | None) -> None:
        self.last, self.time = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if segment is None or segment.log is None:
            return
        source = segment.log.open()
        last, time = [], []
        try:
            for block in scan(source, Extent(segment.log.name, segment.base, check_crc=False)):
                last.append(block["last_offset"])
                time.append(_largest(block))
        finally:
            source.close()
        if last:
            self.last, self.time = np.concatenate(last), np.concatenate(time)

    def of(self, offset: int) -> tuple[int, int]:
        """Last offset and largest timestamp of the first batch that reaches an offset; -1 and -1 for none."""
        reaching = np.flatnonzero(self.last >= offset)
        if not len(reaching):
            return -1, -1
        return int(self.last[reaching[0]]), int(self.time[reaching[0]])


def _largest(block: Block) -> np.ndarray:
    """Return the largest timestamp of the records of each batch, -1 where there is none."""
    found = np.full(len(block), -1, np.int64)
    for records in records_of(block):
        np.maximum.at(found, records.batch, records.timestamp)
    return found


def _read(file: LogFile, reader):  # type: ignore[no-untyped-def]
    source = file.open()
    try:
        return reader(source)
    finally:
        source.close()
