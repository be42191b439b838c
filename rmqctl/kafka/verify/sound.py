"""Partitions of which the checks have nothing to say, recognised many at a time.

A directory may hold tens of thousands of small segments, and columns of a handful of batches cost as much as those of
thousands. So the segments of many partitions are read into one window, one after the other, and scanned as if they were
one file; their indexes and producer snapshots are joined likewise. A partition passes where all that the checks ask for
holds in the strictest sense. Whatever else it may be (damage, compaction, transactions, old formats, files that are
missing), the checks look at it by themselves, and they alone say what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formats.kafka.indexes import OffsetIndexEntry, TimeIndexEntry, entry_dtype
from formats.kafka.producer_snapshot import producer_dtype
from formats.kafka.record_batch import MAGIC_AT, Attributes
from rmqctl.files.local import BytesSource, without_room
from rmqctl.files.tree import read_head
from rmqctl.kafka.directory.directory import LogFile, Partition
from rmqctl.kafka.directory.file_names import DirectoryState
from rmqctl.kafka.log.block import INT_MAX, SLACK, Block, Flags, Ints
from rmqctl.kafka.log.frames import batches_of_files
from rmqctl.kafka.log.indexes import read_producer_snapshot, used_part
from rmqctl.kafka.verify.producers import COORDINATED
from rmqctl.kafka.verify.splits import Headers, headers_of
from rmqctl.text import LATEST

LARGEST = 1 << 20
"""Bytes of log of a partition that is looked at together with others."""
_SPECIAL = int(Attributes.CONTROL | Attributes.TRANSACTIONAL | Attributes.DELETE_HORIZON)
_SMALL = 1 << 16
_STATE = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp")


@dataclass(frozen=True, slots=True)
class SoundLog:
    """What the other checks need of a partition that passed.

    Attributes:
        epochs: leader epochs of the batches: epoch and the first offset with it, ascending.
    """

    records: int
    end_offset: int
    epochs: Sequence[tuple[int, int]]
    damaged: bool = False
    legacy: bool = False


def may_be_sound(partition: Partition) -> bool:
    """Whether a partition is small, and its files are those that a partition of plain batches has, by their names."""
    size, segments = 0, partition.segments
    for segment in segments:
        log = segment.log
        if log is None or segment.offset_index is None or segment.time_index is None or segment.txn_index is not None:
            return False
        if log.size < 0 or (log.size == 0 and segment is not segments[-1]):
            return False
        size += log.size
    return (
        bool(segments)
        and size <= LARGEST
        and partition.state is DirectoryState.PLAIN
        and not partition.is_metadata_log
        and partition.topic not in COORDINATED
    )


def sound_logs(partitions: Sequence[Partition], *, is_clean: bool, records: bool, cross: bool) -> list[SoundLog | None]:
    """Return what is known of each partition in which all is as it should be; None for one that needs a closer look.

    Args:
        partitions: those that :func:`may_be_sound` lets pass, together a few MiB.
        is_clean: the broker was stopped in order.
        records: look at every record.
        cross: hold indexes against the logs.
    """
    window = _Window(partitions, is_clean=is_clean)
    headers = window.scan(records=records)
    if cross:
        window.offset_indexes(headers)
        window.time_indexes(headers)
    window.producers(headers)  # snapshots that cannot be read are said of all logs
    return window.found(headers)


@dataclass(slots=True)
class _Files:
    """The segments of a window, in order, shape (n,).

    Attributes:
        partition: number of its partition.
        start, size: where its log stands in the window, and how many bytes it has.
        is_last: it is its partition's last.
    """

    partition: Ints
    base: Ints
    start: Ints
    size: Ints
    is_last: Flags


class _Window:
    """Many partitions, and which of them are not known to be sound.

    Attributes:
        bad: by number of the partition.
        file: number of the segment of each batch, shape (n,).
        first, beyond: number of the first batch of each segment, and of the one after its last.
    """

    def __init__(self, partitions: Sequence[Partition], *, is_clean: bool) -> None:
        self.partitions, self.is_clean = partitions, is_clean
        self.bad = np.zeros(len(partitions), np.bool_)
        segments = [(n, segment, segment is p.segments[-1]) for n, p in enumerate(partitions) for segment in p.segments]
        self.segments = [segment for _, segment, _ in segments]
        self.logs = [segment.log for segment in self.segments if segment.log is not None]
        size = np.array([log.size for log in self.logs], np.int64)
        self.files = _Files(
            np.array([n for n, _, _ in segments], np.int64),
            np.array([segment.base for segment in self.segments], np.int64),
            np.cumsum(size) - size,
            size,
            np.array([is_last for _, _, is_last in segments], np.bool_),
        )
        self.file = self.first = self.beyond = np.zeros(0, np.int64)

    @property
    def growing(self) -> Flags:
        """Segments whose indexes may lack their last entries, or have room left."""
        return self.files.is_last & (not self.is_clean)

    def _reject_files(self, wrong: Flags) -> None:
        self.bad[self.files.partition[wrong]] = True

    def _reject_rows(self, wrong: Flags) -> None:
        self.bad[self.files.partition[self.file[wrong]]] = True

    # --- the batches ----------------------------------------------------------------------------------

    def scan(self, *, records: bool) -> Headers:
        """Read the logs and look at every batch; the headers of those of files that hold nothing but sound batches."""
        files, total = self.files, int(self.files.size.sum())
        buffer = bytearray(total + SLACK)
        self._read(memoryview(buffer))
        data = np.frombuffer(buffer, np.uint8, total)
        at, size, whole = batches_of_files(data, files.start, files.size)
        self._reject_files(~whole)
        file = np.searchsorted(files.start + files.size, at, "right")
        keep = whole[file]
        at, size, self.file = at[keep], size[keep], file[keep]
        self.first = np.searchsorted(self.file, np.arange(len(files.size)))
        self.beyond = np.searchsorted(self.file, np.arange(len(files.size)), "right")
        magic = data.view(np.int8)[at + MAGIC_AT].astype(np.int64)
        padded = np.frombuffer(buffer, np.uint8, total + SLACK)
        block = Block("", 0, data, at, size, magic, np.ones(len(at), np.bool_), [], padded)
        self._reject_rows(magic != 2)
        headers = headers_of(block, records=records)
        for finding in headers.findings:
            self.bad[files.partition[int(np.searchsorted(files.start + files.size, finding.offset, "right"))]] = True
        self._headers(headers)
        return headers

    def _read(self, view: memoryview) -> None:
        for number, log in enumerate(self.logs):
            start = int(self.files.start[number])
            source = log.open()
            try:
                wrong = log.size > 0 and source.read_into(0, view[start : start + log.size]) != log.size
            except OSError:
                wrong = True
            finally:
                source.close()
            if wrong:
                self.bad[self.files.partition[number]] = True

    def _headers(self, headers: Headers) -> None:
        """Ask that offsets follow each other without a hole, and leader epochs never fall."""
        base, last, epoch = headers["base_offset"], headers["last_offset"], headers["partition_leader_epoch"]
        of_file, of_partition = self.files.base[self.file], self.files.partition[self.file]
        wrong = (base < of_file) | (last - of_file > INT_MAX) | (epoch < 0)
        wrong |= (headers["attributes"] & _SPECIAL) != 0
        wrong |= headers["max_timestamp"] > LATEST
        wrong |= (headers["records_count"] != headers["last_offset_delta"] + 1) | (last < base)
        together = of_partition[1:] == of_partition[:-1]
        wrong[1:] |= together & ((base[1:] != last[:-1] + 1) | (epoch[1:] < epoch[:-1]))
        begins = together & (self.file[1:] != self.file[:-1])
        wrong[1:] |= begins & (base[1:] != of_file[1:])
        self._reject_rows(wrong)
        empty = np.flatnonzero(self.files.size == 0)
        for number in empty.tolist():  # the last of its partition, or the only one
            row = int(self.first[number]) - 1
            before = row >= 0 and self.file[row] == number - 1 and of_partition[row] == self.files.partition[number]
            if before and last[row] + 1 != self.files.base[number]:
                self.bad[self.files.partition[number]] = True

    def found(self, headers: Headers) -> list[SoundLog | None]:
        """Return what is known of each partition that was not rejected."""
        of_partition, count = self.files.partition[self.file], len(self.partitions)
        sums = np.zeros(count, np.int64)
        np.add.at(sums, of_partition, headers["records_count"])
        epoch = headers["partition_leader_epoch"]
        higher = np.ones(len(epoch), np.bool_)
        higher[1:] = (of_partition[1:] != of_partition[:-1]) | (epoch[1:] > epoch[:-1])
        rows = np.flatnonzero(higher)
        epochs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        columns = of_partition[rows].tolist(), epoch[rows].tolist(), headers["base_offset"][rows].tolist()
        for partition, number, offset in zip(*columns, strict=True):
            epochs[partition].append((number, offset))
        ends = self._ends(headers)
        return [
            None if bad else SoundLog(records, end, starts)
            for bad, records, end, starts in zip(self.bad.tolist(), sums.tolist(), ends.tolist(), epochs, strict=True)
        ]

    def _ends(self, headers: Headers) -> Ints:
        """Return the offset after the last batch of each partition; the base offset of one without any."""
        last_files = np.flatnonzero(self.files.is_last)
        ends = self.files.base[last_files]
        has = self.beyond[last_files] > self.first[last_files]
        ends[has] = headers["last_offset"][self.beyond[last_files][has] - 1] + 1
        return ends

    # --- indexes --------------------------------------------------------------------------------------

    def offset_indexes(self, headers: Headers) -> None:
        """Ask that each entry points to a batch, and that an index without entries needs none."""
        files, dtype = self.files, entry_dtype(OffsetIndexEntry)
        data, of = self._entries([segment.offset_index for segment in self.segments], dtype.itemsize)
        entries = np.frombuffer(data, dtype)
        relative, position = entries["relative_offset"].astype(np.int64), entries["position"].astype(np.int64)
        wrong = (position < 0) | (position >= files.size[of])
        together = of[1:] == of[:-1]
        wrong[1:] |= together & ((relative[1:] <= relative[:-1]) | (position[1:] <= position[:-1]))
        if len(self.file):
            row = np.minimum(np.searchsorted(headers.position, position + files.start[of]), len(self.file) - 1)
            offset, before = relative + files.base[of], np.maximum(row - 1, 0)
            wrong |= (self.file[row] != of) | (headers.position[row] != position + files.start[of])
            wrong |= offset < headers["base_offset"][row]
            wrong |= offset > headers["last_offset"][np.maximum(self.beyond[of] - 1, 0)]
            wrong |= (row > self.first[of]) & (headers["last_offset"][before] >= offset)
        self._reject_files_of(of, wrong)
        step = position.copy()
        step[1:] -= np.where(together, position[:-1], 0)
        least = np.full(len(self.partitions), 1 << 31, np.int64)
        np.minimum.at(least, files.partition[of[step > 0]], step[step > 0])
        has = np.flatnonzero(self.beyond > self.first)
        run = np.zeros(len(files.size), np.int64)
        run[has] = headers.position[self.beyond[has] - 1] - headers.position[self.first[has]]
        none = np.bincount(of, minlength=len(files.size)) == 0
        self._reject_files(none & ~self.growing & (run >= least[files.partition]))

    def time_indexes(self, headers: Headers) -> None:
        """Ask that each entry has the time of the batch at its offset, and the last one the largest of its segment."""
        files, dtype = self.files, entry_dtype(TimeIndexEntry)
        data, of = self._entries([segment.time_index for segment in self.segments], dtype.itemsize)
        entries = np.frombuffer(data, dtype)
        time, relative = entries["timestamp"].astype(np.int64), entries["relative_offset"].astype(np.int64)
        wrong, together = relative < 0, of[1:] == of[:-1]
        wrong[1:] |= together & ((time[1:] <= time[:-1]) | (relative[1:] < relative[:-1]))
        largest = np.full(len(files.size), -1, np.int64)
        if len(self.file):
            last = np.clip(headers["last_offset"] - files.base[self.file], 0, INT_MAX)
            row = np.searchsorted((self.file << 32) | last, (of << 32) | np.clip(relative, 0, INT_MAX))
            wrong |= row >= len(self.file)
            row = np.minimum(row, len(self.file) - 1)
            so_far = self._largest_so_far(headers["max_timestamp"])
            before = np.where(row > self.first[of], so_far[np.maximum(row - 1, 0)], -1)
            wrong |= (self.file[row] != of) | (headers["max_timestamp"][row] != time) | (before > time)
            has = np.flatnonzero(self.beyond > self.first)
            largest[has] = so_far[self.beyond[has] - 1]
        else:
            wrong[:] = True
        self._reject_files_of(of, wrong)
        stated = np.full(len(files.size), -1, np.int64)
        stated[of] = time  # of several the last one counts
        self._reject_files((largest >= 0) & (stated != largest) & ~self.growing)

    def _largest_so_far(self, times: Ints) -> Ints:
        """Return the largest time of the segment up to each batch."""
        order = np.argsort(times, kind="stable")
        rank = np.empty(len(times), np.int64)
        rank[order] = np.arange(len(times))
        begin = self.file * len(times)
        return np.maximum(times[order[np.maximum.accumulate(begin + rank) - begin]], -1)

    def _reject_files_of(self, of: Ints, wrong: Flags) -> None:
        self.bad[self.files.partition[of[wrong]]] = True

    def _entries(self, indexes: Sequence[LogFile | None], size: int) -> tuple[bytes, Ints]:
        """Return the entries of all indexes, and the number of the segment of each."""
        parts, counts = [], np.zeros(len(indexes), np.int64)
        growing = self.growing.tolist()
        for number, index in enumerate(indexes):
            if index is None or index.size == 0:
                continue
            data = self._bytes(index, int(self.files.partition[number]))
            used = -(-len(without_room(data)) // size)
            if index.size % size or (used * size != index.size and not growing[number]):
                self.bad[self.files.partition[number]] = True
                continue
            parts.append(data[: used * size].ljust(used * size, b"\0"))
            counts[number] = used
        return b"".join(parts), np.repeat(np.arange(len(indexes)), counts)

    def _bytes(self, file: LogFile, partition: int) -> bytes:
        """Return what a small file holds, without the room at the end of a large one."""
        try:
            if file.size <= _SMALL:
                return read_head(file.tree, file.name, file.size)
            source = file.open()
            try:
                return used_part(source, file.size)
            finally:
                source.close()
        except OSError:
            self.bad[partition] = True
            return b""

    # --- producers ------------------------------------------------------------------------------------

    def producers(self, headers: Headers) -> None:
        """Ask that sequences follow each other, and that every snapshot says what the log before it gives."""
        known, limits = self._snapshots(headers)
        rows = np.flatnonzero(headers["producer_id"] >= 0)
        of_partition, begin = self.files.partition[self.file[rows]], limits == 0
        loaded, asked = known[begin], known[~begin]
        state = [
            (headers["producer_epoch"][rows], loaded["producer_epoch"]),
            (headers["last_sequence"][rows], loaded["last_sequence"]),
            (headers["last_offset"][rows], loaded["last_offset"]),
            (headers["last_offset"][rows] - headers["base_offset"][rows], loaded["offset_delta"]),
            (headers["max_timestamp"][rows], loaded["last_timestamp"]),
        ]
        ids = [headers["producer_id"][rows], loaded["producer_id"], asked["producer_id"]]
        owners = [of_partition, loaded["partition"], asked["partition"]]
        different, number = np.unique(np.concatenate(ids), return_inverse=True)
        keys = np.concatenate(owners) * max(len(different), 1) + number.reshape(-1)
        place = np.concatenate([rows + 1, np.zeros(len(loaded), np.int64)])  # what was loaded stands before all batches
        count, span = len(place), len(self.file) + 2
        order = np.argsort(keys[:count] * span + place, kind="stable")
        by = {name: np.concatenate(pair)[order] for name, pair in zip(_STATE, state, strict=True)}
        key, ordered = keys[:count][order], (keys[:count] * span + place)[order]
        owner = np.concatenate(owners[:2])[order]
        sequence = np.concatenate([headers["base_sequence"][rows], np.full(len(loaded), -1)])[order]
        self._sequences(key, owner, by, sequence)
        at = np.searchsorted(ordered, keys[count:] * span + limits[~begin]) - 1
        wrong = at < 0
        at = np.maximum(at, 0)
        if count:
            wrong |= key[at] != keys[count:]
            for name in _STATE:
                wrong |= by[name][at] != asked[name]
        self.bad[asked["partition"][wrong]] = True

    def _sequences(self, key: Ints, owner: Ints, by: dict[str, Ints], sequence: Ints) -> None:
        before, epochs = by["last_sequence"][:-1], by["producer_epoch"]
        wanted = np.where(before == INT_MAX, 0, before + 1)
        wrong = epochs[1:] < epochs[:-1]
        wrong |= (epochs[1:] == epochs[:-1]) & (before >= 0) & (sequence[1:] != wanted)
        self.bad[owner[1:][wrong & (key[1:] == key[:-1]) & (sequence[1:] >= 0)]] = True

    def _snapshots(self, headers: Headers) -> tuple[np.ndarray, Ints]:
        """Return the entries of all snapshots, and before which batch each stands, counted from 1; 0: before all."""
        parts, owners, limits = [], [], []
        ends, first = self._ends(headers).tolist(), self.first.tolist()
        seen = np.zeros(len(self.partitions), np.bool_)
        seen[self.files.partition[self.file[headers["producer_id"] >= 0]]] = True
        produces, rejected, number = seen.tolist(), self.bad.tolist(), 0
        for owner, partition in enumerate(self.partitions):
            begin = number
            number += len(partition.segments)
            if rejected[owner]:
                continue
            places = {ends[owner]: first[number - 1] + int(self.beyond[number - 1] - self.first[number - 1])}
            places |= {segment.base: first[begin + n] for n, segment in enumerate(partition.segments)}
            due = {partition.segments[-1].base} if len(partition.segments) > 1 else set[int]()
            due |= {ends[owner]} if self.is_clean else set()
            for file in partition.snapshots:
                due.discard(file.base)
                snapshot = read_producer_snapshot(BytesSource(self._bytes(file, owner)))
                if file.base not in places or not snapshot.is_good:
                    self.bad[owner] = True
                    continue
                parts.append(snapshot.entries.tobytes())
                owners += [owner] * len(snapshot.entries)
                is_first = file.base == partition.segments[0].base
                limits += [0 if is_first else places[file.base] + 1] * len(snapshot.entries)
            if due and produces[owner]:
                self.bad[owner] = True
        entries = np.frombuffer(b"".join(parts), producer_dtype())
        found = np.zeros(len(entries), [("partition", "i8"), *((name, "i8") for name in entries.dtype.names or ())])
        for name in entries.dtype.names or ():
            found[name] = entries[name]
        found["partition"] = owners
        undecided = (found["coordinator_epoch"] != -1) | (found["current_txn_first_offset"] != -1)
        self.bad[found["partition"][undecided]] = True
        return found, np.array(limits, np.int64)
