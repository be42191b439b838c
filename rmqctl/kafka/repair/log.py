"""What takes the place of destroyed bytes in a log: the same bytes from a replica, a bridge, or nothing at the end.

A range is restored where a replica has the batches around it and those between; else bridged, so that nothing after it
moves; else, where its bytes hold no offset of their own, taken out. Cut is only where nothing sound follows.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np

from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.record_batch import HEADER_SIZE, LENGTH_AT
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.engine.batch import Ending
from rmqctl.kafka.findings.log import BATCH_CUT, BATCH_OFFSET_GAP, SEGMENT_EMPTIED, SEGMENT_MISSING
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.repair.bridge import bridge, empty_batch, metadata_batch
from rmqctl.kafka.repair.survey import Batch, Damage, Range, Survey, a_bit_off
from rmqctl.kafka.repair.transactions import Endings, with_markers
from rmqctl.repair.edits import Create, Cut, Edit, Extend, Overwrite, Quarantine, SetTimes, Step, changes

UNBALANCED = "repair.books"
"""The id of what is left as it is, since no way to mend it balances."""
_PIECE = 8 << 20
_MOST_OFFSETS = 1 << 20
_MOST_NO_OPS = 1 << 16
"""Records that are made for one destroyed range of the metadata log: a damaged base offset may claim any number."""


@dataclass(frozen=True, slots=True)
class Source:
    """Batches that may stand in for destroyed ones.

    Attributes:
        name: where they are, for people.
        survey: of a replica of the partition, or of a file that a broker left over.
        is_leftover: it holds one segment alone, so that the batches around a range may be missing.
    """

    name: str
    survey: Survey
    is_leftover: bool = False

    def batches(self, first: int, beyond: int) -> list[Batch]:
        """Its sound batches between two offsets, in order; ``beyond`` -1: to the end."""
        columns = self.survey.columns
        wanted = columns["base_offset"] >= first
        if beyond >= 0:
            wanted &= columns["last_offset"] < beyond
        return list(self.survey.batches(np.flatnonzero(wanted)))

    def has(self, batch: Batch, data: bytes) -> bool:
        """Whether it has a batch that begins, byte for byte, with what is known of it."""
        return self.survey.has(batch.base_offset, data)


@dataclass(frozen=True, slots=True)
class Filling:
    """What takes the place of a range, and why."""

    range: Range
    data: bytes
    what: str
    why: str
    loses: int = 0


def leftover_sources(partition: Partition) -> Iterator[Source]:
    """Segments that a broker left over: replaced by compaction, or waiting to be deleted or renamed."""
    for file in partition.files:
        if file.kind is FileKind.LOG and file.is_leftover and file.meaning.base is not None:
            alone = Partition(partition.directory, partition.name, [Segment(file.base, log=file)])
            yield Source(file.name, Survey(alone), is_leftover=True)


def carried_on(
    sources: Sequence[Source], epochs: Sequence[LeaderEpoch], before: Batch | None, first: int, beyond: int
) -> tuple[bytes, int, list[str]]:
    """Return what takes a log on from its end to an offset: batches that sources have, and empty ones.

    A batch counts where it is of the leader epoch that the log had at its offset; of several at one offset that
    of a replica, then the largest.

    Args:
        before: the last batch of the log.

    Returns:
        The bytes, the number of offsets whose batches a source has, and the names of those sources.
    """
    every = [
        (batch.base_offset, source.is_leftover, -batch.size, number, batch)
        for number, source in enumerate(sources)
        for batch in source.batches(first, beyond)
        if is_of_epoch(batch, epochs)
    ]
    data, restored, names, end = b"", 0, list[str](), first
    for base, _, _, number, batch in sorted(every, key=lambda one: one[:4]):
        if base < end:
            continue
        data += _without_records(end, base, before) if end < base else b""
        data += sources[number].survey.bytes_of(batch)
        restored += batch.last_offset - base + 1
        names.append(sources[number].name)
        end, before = batch.last_offset + 1, batch
    data += _without_records(end, beyond, before) if end < beyond else b""
    return data, restored, list(dict.fromkeys(names))


def ended_again(
    partition: Partition, doubtful: frozenset[str], before: Batch | None, first: int, beyond: int
) -> tuple[bytes | None, dict[int, Ending], str]:
    """Return what takes a log on from its end to an offset where transactions are known to have ended there.

    A producer snapshot of the new end would say so without a marker, and an aborted one would count as committed.

    Args:
        partition: as it is; of segments that are gone with what is left of them.
        doubtful: names of transaction indexes that are damaged.
        before: the last batch of the log.

    Returns:
        The bytes, None for no marker; the markers by their offsets; and what a step says of them, and of those that
        are not known.
    """
    survey = Survey(partition)
    number = len(survey.files) - 1
    size, name = survey.files[number].size, survey.files[number].name
    part = Damage(number, size, size, BATCH_CUT, f"{name} ends")
    is_gone = any(segment.base == first and segment.log is None for segment in partition.segments)
    lost = Range(number, size, size, first, beyond, before, None, () if is_gone else (part,))
    endings = Endings(survey, doubtful)
    markers = endings.of(lost)
    epoch, timestamp = (before.epoch, before.max_timestamp) if before is not None else (0, -1)
    made = with_markers(lost, markers, epoch, timestamp, fills=False) if markers else None
    text = f"; the markers there are known: {endings.named(markers)}" if made is not None else ""
    return made, markers, text + endings.unknown


def is_of_epoch(batch: Batch, epochs: Sequence[LeaderEpoch]) -> bool:
    """Whether a batch is the one that a log had at its offset: a leader gives an offset once in an epoch."""
    row = bisect_right(epochs, batch.base_offset, key=lambda entry: entry.start_offset)
    return row > 0 and epochs[row - 1].epoch == batch.epoch


def left_over(sources: Iterable[Source], epochs: Sequence[LeaderEpoch], first: int, beyond: int) -> str:
    """Name the files that a broker left over with batches of some offsets, and the way to have them; "" for none.

    Batches of another leader epoch than the log had there are not meant: they were replaced.
    """
    text = ""
    for source in sources:
        held = source.batches(first, beyond) if source.is_leftover else []
        held = [batch for batch in held if not epochs or is_of_epoch(batch, epochs)]
        if held:
            file = source.survey.files[0]
            plain = file.name.removesuffix(file.meaning.leftover)
            text += (
                f"; {source.name} has offsets {held[0].base_offset} to {held[-1].last_offset}, which a broker may have "
                f"cut off, deleted or compacted: to have them, copy it as {plain} into a directory "
                "of its own, and salvage both"
            )
    return text


def _without_records(first: int, beyond: int, before: Batch | None) -> bytes:
    epoch, timestamp = (before.epoch, before.max_timestamp) if before is not None else (0, -1)
    return empty_batch(first, beyond - 1, epoch, timestamp)


_HEADER = attrgetter("base_offset", "last_offset", "size", "records_count")
"""What two headers of one batch agree in."""


class LogMender:
    """Fills the destroyed ranges of one partition.

    Args:
        root: the log directory, for the times of its files.
        room: makes a path at which a file can be built.
        compacted: offsets may be missing between batches.
        endings: what is known of transactions that ended in what was destroyed; None: nothing.
        epochs: leader epochs that the partition had before anything was mended, where they are known.
        believed: logs in which, where offsets may be missing, a whole batch stays where it is, whatever its offsets.
        kept: bytes of whole batches that stay where they are, with the damage around each, and in its place.

    Attributes:
        metadata: for the metadata log: records that take the place of destroyed ones, as far as they fit in.
        aborted: names of the logs into which ABORT markers were written.
        too_many: why a range of the metadata log cannot be bridged whatever it held; empty where each can.
    """

    def __init__(
        self,
        survey: Survey,
        sources: Sequence[Source],
        root: Path,
        room: Callable[[], Path],
        *,
        compacted: bool,
        endings: Endings | None = None,
        epochs: Sequence[LeaderEpoch] = (),
        believed: Collection[str] = (),
        kept: Collection[bytes] = (),
    ) -> None:
        self.survey, self.sources, self.root, self.room, self.compacted = survey, sources, root, room, compacted
        self.endings, self.epochs, self.kept = endings, epochs, kept
        self.believed = believed if believed and (compacted or survey.misses_offsets) else ()
        self.metadata: Sequence[bytes] = ()
        self.too_many, self.aborted = "", set[str]()

    def steps(self, findings: Iterable[Finding], *, keeps_room: bool) -> Iterator[Step]:
        """Yield what to do about every range and every segment that is gone, by segment.

        Args:
            keeps_room: zeros at the end of the last segment were never written, and may stay.
        """
        by_segment, whole = self._skipped(findings), list[Step]()
        last = len(self.survey.files) - 1
        cut_from: int | None = None
        filled = -1
        for lost in self._in_order(findings):
            if isinstance(lost, Finding):
                is_left = lost.kind is SEGMENT_EMPTIED and lost.level is Severity.WARNING
                whole += [_left_empty(lost)] if is_left else self._segment(lost, filled)
                continue
            is_room = all(part.is_room for part in lost.parts)
            if is_room and lost.segment == last and keeps_room:
                continue
            if stays := self._staying(lost):
                whole += stays
                continue
            filling, filled = self._filling(lost), lost.beyond
            if self.endings is not None and not lost.is_tail:
                self.endings.pass_over(lost, filling.data)
            if lost.is_tail and not filling.data and cut_from is None:
                cut_from = lost.segment
            by_segment.setdefault(lost.segment, []).append(filling)
        for segment, fillings in sorted(by_segment.items()):
            if cut_from is not None and segment > cut_from:
                continue
            yield from self.placed(segment, sorted(fillings, key=lambda filling: filling.range.begin))
        if cut_from is not None:
            yield from self._dropped(cut_from)
        yield from whole

    def _staying(self, lost: Range) -> list[Step]:
        """Return what is said of a range whose whole batches stay where they are; nothing where it is to be filled."""
        file = self.survey.files[lost.segment].name
        if file in self.believed and lost.parts and all(part.frame_ok for part in lost.parts):
            return [_left_whole(part, file) for part in lost.parts]
        if lost.parts and all(self._is_emptied(part, lost) for part in lost.parts):
            return [_left_whole(part, file) for part in lost.parts]
        if not self.kept:
            return []
        raw, offsets = self.survey.raw(lost.segment, lost.begin, lost.end), range(lost.first, lost.first + lost.count)
        is_there = any(data in raw or int.from_bytes(data[:LENGTH_AT], "big") in offsets for data in self.kept)
        return [_left_around(lost, file)] if is_there else []

    def _is_emptied(self, part: Damage, lost: Range) -> bool:
        """Whether it is a batch that compaction has emptied, and left for its producer, but for a bit of its offset."""
        batch = part.stated
        if batch is None or not part.frame_ok or batch.records_count or batch.producer_id < 0 or lost.is_tail:
            return False
        high = lost.beyond - 1 - (batch.last_offset - batch.base_offset)
        return self.survey.twin_of(batch) is None and bool(a_bit_off(batch.base_offset, lost.first, high))

    def _in_order(self, findings: Iterable[Finding]) -> Iterator[Range | Finding]:
        """Destroyed ranges, and findings on segments that are gone or empty, as they follow in the log."""
        gone = [f for f in findings if f.kind in {SEGMENT_MISSING, SEGMENT_EMPTIED, BATCH_OFFSET_GAP}]
        every: list[tuple[int, int, Range | Finding]] = [(_base_of(finding), -1, finding) for finding in gone]
        every += [(self.survey.files[lost.segment].base, lost.begin, lost) for lost in self.survey.ranges()]
        yield from (found for *_, found in sorted(every, key=lambda item: item[:2]))

    def _skipped(self, findings: Iterable[Finding]) -> dict[int, list[Filling]]:
        """Return by segment what a replica has for places at which nothing is destroyed, and offsets are missing."""
        filled = dict[int, list[Filling]]()
        for finding in findings:
            number = next((n for n, file in enumerate(self.survey.files) if file.name == finding.file), None)
            if finding.kind is not BATCH_OFFSET_GAP or number is None:
                continue
            at, base = finding.offset, self.survey.files[number].base
            before, after = self.survey.around(number, at)
            if before is not None and after is not None and (at or before.last_offset + 1 >= base):
                damage = Damage(number, at, at, finding.kind, finding.message)
                first = max(before.last_offset + 1, base)
                lost = Range(number, at, at, first, after.base_offset, before, after, (damage,))
                replicas = (source for source in self.sources if not source.is_leftover)
                if (found := self._restored(lost, replicas)) is not None:
                    filled.setdefault(number, []).append(found)
        return filled

    # --- one range ------------------------------------------------------------------------------------

    def _restored(self, lost: Range, sources: Iterable[Source]) -> Filling | None:
        """Return the bytes of a range as the first source has them that proves it."""
        for source in sources:
            data = self._from(source, lost)
            if data is not None:
                what = f"restore bytes {lost.begin} to {lost.end} from {source.name}"
                proven = "their leader epoch is that of the log" if source.is_leftover else ""
                is_alone = lost.before is None and lost.after is None
                same = "the header is the same there" if is_alone else "the batches around are the same there"
                around = proven or same
                why = f"{around}, and those between are sound"
                return Filling(lost, data, what, f"{lost.parts[0].message}; {why}")
        return None

    def _filling(self, lost: Range) -> Filling:
        found = self._restored(lost, self.sources)
        if found is not None:
            return found
        if lost.is_tail:
            return self._cut(lost)
        if lost.count == 0:
            what = f"take out bytes {lost.begin} to {lost.end}"
            why = f"{lost.parts[0].message}; no offset is missing between the batches around"
            return Filling(lost, b"", what, why, self._held(part for part in lost.parts if part.frame_ok))
        return self._bridged(lost)

    def _held(self, parts: Iterable[Damage]) -> int:
        """Offsets of the batches in some damage, without sound ones that the log has once more."""
        stated = [(part.stated, part.frame_ok) for part in parts if part.stated is not None]
        alone = [batch for batch, is_sound in stated if not is_sound or self.survey.twin_of(batch) is None]
        return sum(min(max(batch.last_offset - batch.base_offset + 1, 0), _MOST_OFFSETS) for batch in alone)

    def _cut(self, lost: Range) -> Filling:
        loses = self._held(lost.parts)
        what, why = f"end the file at {lost.begin}", f"{lost.parts[0].message}; nothing sound follows in the log"
        why += left_over(self.sources, self.epochs, lost.first, -1)
        return Filling(lost, b"", what, why, loses)

    def _bridged(self, lost: Range) -> Filling:
        epoch, timestamp = self._epoch(lost), self._timestamp(lost)
        if self.survey.partition.is_metadata_log:
            return self._without_changes(lost, epoch, timestamp)
        others = left_over(self.sources, self.epochs, lost.first, lost.beyond)
        markers = {} if self.endings is None else self.endings.of(lost)
        data = with_markers(lost, markers, epoch, timestamp) if markers else None
        if markers and data is None:  # as where bytes were put into a marker or taken out: the file is written again
            data = with_markers(lost, markers, epoch, timestamp, fills=False)
        if data is not None:
            what = f"write the markers at {lost.begin} again: {self._named(markers)}"
            why = f"{lost.parts[0].message}; a producer snapshot and the transaction index say how they ended{others}"
            why += self._unknown()
            self._note(self.survey.files[lost.segment].name, markers)
            return Filling(lost, data, what, why, lost.count - len(markers))
        data = bridge(lost.first, lost.beyond, epoch, timestamp, lost.size, self._producer(lost))
        if data is None:
            data = empty_batch(lost.first, lost.beyond - 1, epoch, timestamp)
        offsets = f"offset {lost.first}" if lost.count == 1 else f"offsets {lost.first} to {lost.beyond - 1}"
        what = f"bridge {offsets} with an empty batch at {lost.begin}"
        held = self._held(part for part in lost.parts if part.frame_ok)
        loses = 0 if self._is_marker(lost) else max(lost.count, held)
        why = f"{lost.parts[0].message}; no replica has the bytes{others}"
        return Filling(lost, data, what, why + self._unknown(), loses)

    def _without_changes(self, lost: Range, epoch: int, timestamp: int) -> Filling:
        """Return records of the metadata log that change nothing, after those that take the place of destroyed ones."""
        values, self.metadata = self.metadata[: lost.count], self.metadata[lost.count :]
        if lost.count > _MOST_NO_OPS:
            self.too_many = f"offsets {lost.first} to {lost.beyond - 1} are too many to fill with records"
            data = empty_batch(lost.first, lost.beyond - 1, epoch, timestamp)
        else:
            data = metadata_batch(lost.first, epoch, timestamp, lost.size, values, lost.count)
        what = f"bridge offsets {lost.first} to {lost.beyond - 1} with records that change nothing at {lost.begin}"
        what += f", {len(values)} of them made again" if values else ""
        others = left_over(self.sources, self.epochs, lost.first, lost.beyond)
        # for a segment that is gone the range has no parts
        why = f"{lost.parts[0].message if lost.parts else 'it is gone'}; no replica has the bytes{others}"
        return Filling(lost, data, what, why, lost.count - len(values))

    def _note(self, name: str, markers: Mapping[int, Ending]) -> None:
        if any(not ending.commit for ending in markers.values()):
            self.aborted.add(name)

    def _named(self, markers: Mapping[int, Ending]) -> str:
        return "" if self.endings is None else self.endings.named(markers)

    def _unknown(self) -> str:
        return "" if self.endings is None else self.endings.unknown

    def _as_few(self, lost: Range) -> tuple[bytes, str, int]:
        """Batches for the offsets of a range in as few bytes as it takes, what is known of markers there, how many."""
        epoch, timestamp = self._epoch(lost), self._timestamp(lost)
        markers = {} if self.endings is None else self.endings.of(lost)
        made = with_markers(lost, markers, epoch, timestamp, fills=False) if markers else None
        text = f"; the markers there are known: {self._named(markers)}" if made else ""
        self._note(f"{self.survey.partition.directory}/{lost.first:020d}.log", markers)
        data = made or empty_batch(lost.first, lost.beyond - 1, epoch, timestamp)
        return data, text + self._unknown(), len(markers) if made else 0

    def _epoch(self, lost: Range) -> int:
        low = lost.before.epoch if lost.before is not None else -1
        high = lost.after.epoch if lost.after is not None else low
        stated = [part.stated.epoch for part in lost.parts if part.stated is not None]
        stated += [entry.epoch for entry in self.epochs if entry.start_offset <= lost.first][-1:]
        return next((epoch for epoch in stated if low <= epoch <= high), max(low, -1) if low >= 0 else high)

    @staticmethod
    def _timestamp(lost: Range) -> int:
        near = lost.before or lost.after
        return near.max_timestamp if near is not None else -1

    def _producer(self, lost: Range) -> Batch | None:
        """Return the header of the one batch that was there, where its offsets and its producer can be believed."""
        stated = lost.parts[0].stated
        if len(lost.parts) != 1 or stated is None or stated.is_marker:
            return None
        fits = stated.base_offset == lost.first and stated.last_offset == lost.beyond - 1
        known = bool((self.survey.columns["producer_id"] == stated.producer_id).any())
        return stated if fits and known and stated.base_sequence >= 0 else None

    @staticmethod
    def _is_marker(lost: Range) -> bool:
        return len(lost.parts) == 1 and lost.parts[0].stated is not None and lost.parts[0].stated.is_marker

    # --- from elsewhere -------------------------------------------------------------------------------

    def _from(self, source: Source, lost: Range) -> bytes | None:
        """Return the bytes of a range as a source has them; None where it does not prove to have them."""
        if not source.is_leftover and not self._is_same(source, lost):
            return None
        found = self._between(source, lost.first, lost.beyond)
        if lost.beyond < 0:
            found = self._begun(source, found, lost)
        if not found or not self._fit(found, lost) or not self._is_proven(source, found, lost):
            return None
        return b"".join(source.survey.bytes_of(batch) for batch in found)

    def _begun(self, source: Source, found: list[Batch], lost: Range) -> list[Batch]:
        """Return the batches that take up the bytes at the end of a log, or that begin with them: they were torn off.

        Zeros follow where pages were never written, or were preallocated.
        """
        ends = np.cumsum([batch.size for batch in found], dtype=np.int64)
        at = int(np.searchsorted(ends, lost.size))
        if at < len(found) and int(ends[at]) == lost.size:
            return found[: at + 1]
        begun = self.survey.raw(lost.segment, lost.begin, lost.end).rstrip(b"\0")
        found = found[: int(np.searchsorted(ends, len(begun))) + 1] if begun else []
        return found if b"".join(map(source.survey.bytes_of, found)).startswith(begun) else []

    def _is_same(self, source: Source, lost: Range) -> bool:
        """Whether a replica has the sound batches around a range, byte for byte; else the header that the range has."""
        around = [batch for batch in (lost.before, lost.after) if batch is not None]
        if not around and lost.parts and (stated := lost.parts[0].stated) is not None and lost.size >= HEADER_SIZE:
            header = self.survey.raw(lost.segment, lost.begin, lost.begin + HEADER_SIZE)
            return source.has(stated, header)
        return bool(around) and all(source.has(batch, self.survey.bytes_of(batch)) for batch in around)

    def _is_proven(self, source: Source, found: Sequence[Batch], lost: Range) -> bool:
        """Whether the log had the batches of a source: a broker also leaves over what it cut off or compacted.

        They are of the leader epoch that the log had there, or of that around the range where none is known. In a
        compacted log they are those whose headers are still in the range: others may have been cleaned out of it.
        """
        if not source.is_leftover:
            return True
        if self.compacted:
            stated = [part.stated for part in lost.parts]
            if [batch and _HEADER(batch) for batch in stated] != [_HEADER(batch) for batch in found]:
                return False
        if self.epochs:
            return all(is_of_epoch(batch, self.epochs) for batch in found)
        around = {None if batch is None else batch.epoch for batch in (lost.before, lost.after)}
        return {batch.epoch for batch in found} == around

    def _between(self, source: Source, first: int, beyond: int) -> list[Batch]:
        """Batches without damage between them."""
        found = source.batches(first, beyond)
        for damage in source.survey.damages:
            for before, after in pairwise(found):
                here = before.segment, before.position
                if here < (damage.segment, damage.begin) < (after.segment, after.position):
                    return []
        return found

    def _fit(self, found: Sequence[Batch], lost: Range) -> bool:
        """Whether batches fill a range: offsets and epochs ascend, and none is missing where none may."""
        if any(b.base_offset <= a.last_offset or b.epoch < a.epoch for a, b in pairwise(found)):
            return False
        low = lost.before.epoch if lost.before is not None else -1
        high = lost.after.epoch if lost.after is not None else found[-1].epoch
        if found[0].epoch < low or found[-1].epoch > high:
            return False
        if self.compacted:
            return True
        is_whole = found[0].base_offset == lost.first and (lost.beyond < 0 or found[-1].last_offset == lost.beyond - 1)
        return is_whole and all(b.base_offset == a.last_offset + 1 for a, b in pairwise(found))

    # --- into the file --------------------------------------------------------------------------------

    def timed(self, name: str, edits: Iterable[Edit]) -> tuple[Edit, ...]:
        """Edits of a log after which it has its time again: brokers go by it where no record has a timestamp."""
        made = tuple(edits)
        is_there = (self.root / name).exists()  # else a step before makes it
        return (*made, SetTimes(name, os.stat(self.root / name).st_mtime_ns)) if made and is_there else made

    def placed(self, segment: int, fillings: Sequence[Filling]) -> Iterator[Step]:
        """Yield the steps for the ranges of one segment; where bytes move, one that writes the file again."""
        file = self.survey.files[segment]
        moves = any(len(f.data) != f.range.size and f.range.end != file.size for f in fillings)
        if moves:
            yield self._rewritten(file, fillings)
            return
        for filling in fillings:
            lost = filling.range
            edits = self.timed(file.name, self._in_place(file, lost, filling.data))
            kind = lost.parts[0].kind
            yield Step(kind.id, file.name, filling.what, filling.why, edits, filling.loses)

    def _in_place(self, file: LogFile, lost: Range, data: bytes) -> Iterator[Edit]:
        size = len(data)
        if size < lost.size:
            yield Cut(file.name, file.size, lost.begin + size)
        elif size > lost.size:
            yield Extend(file.name, file.size, lost.begin + size)
        raw = self.survey.raw(lost.segment, lost.begin, min(lost.end, lost.begin + size))
        yield from changes(file.name, lost.begin, raw.ljust(size, b"\0"), data)

    def _rewritten(self, file: LogFile, fillings: Sequence[Filling]) -> Step:
        """Return a file in which the bytes after a range move: built beside the directory, and put in its place."""
        path, at = self.room(), 0
        source = file.open()
        try:
            with open(path, "wb") as made:
                for filling in fillings:
                    _copy(source.read_at, made.write, at, filling.range.begin)
                    made.write(filling.data)
                    at = filling.range.end
                _copy(source.read_at, made.write, at, file.size)
        finally:
            source.close()
        edits = (Quarantine(file.name), Create(file.name, source=path))
        first = fillings[0]
        what = "; ".join(filling.what for filling in fillings)
        why = "; ".join(dict.fromkeys(filling.why for filling in fillings))
        kind = first.range.parts[0].kind
        return Step(
            kind.id, file.name, what, f"{why}; the bytes after move", self.timed(file.name, edits),
            sum(filling.loses for filling in fillings),
        )  # fmt: skip

    def _dropped(self, segment: int) -> Iterator[Step]:
        """Yield the segments after one that is cut, in which nothing is sound."""
        for number in range(segment + 1, len(self.survey.files)):
            file = self.survey.files[number]
            why = "nothing in it is sound, and the log ends before it"
            yield Step(BATCH_CUT.id, file.name, "move out", why, (Quarantine(file.name),))

    # --- whole segments -------------------------------------------------------------------------------

    def _segment(self, finding: Finding, filled: int) -> Iterator[Step]:
        """Make a segment again that is gone, or empty: from a replica, else an empty batch of its offsets.

        Where offsets are missing between two files and nothing shows that a segment was there, only a replica does.

        Args:
            filled: offsets before it are filled in by what takes the place of damage before the segment.
        """
        lost, is_gap = self._without_bytes(finding, filled), finding.kind is BATCH_OFFSET_GAP
        if lost is None or lost.after is None:
            return
        name = f"{finding.file.rpartition('/')[0]}/{lost.first:020d}.log"
        data, what, loses, why = None, "", 0, f"{finding.message}; the log goes on at {lost.after.base_offset}"
        files = list[tuple[str, int]]()  # where there are several, with the bytes of each
        for source in self.sources:
            found = self._between(source, lost.first, lost.beyond)
            is_same = (source.is_leftover and not is_gap) or self._is_same(source, lost)
            if found and is_same and self._fit(found, lost) and self._is_proven(source, found, lost):
                data = b"".join(source.survey.bytes_of(batch) for batch in found)
                what = f"restore {len(found):,} batches from {source.name}"
                if finding.kind is not SEGMENT_EMPTIED:
                    files = _by_segment(name, found)
                break
        if data is None and (is_gap or finding.level is Severity.WARNING):
            yield from () if is_gap else (_left_missing(finding),)
            return
        if data is None:
            if self.survey.partition.is_metadata_log:
                filling = self._without_changes(lost, self._epoch(lost), self._timestamp(lost))
                data, known, loses = filling.data, "", filling.loses
            else:
                data, known, markers = self._as_few(lost)
                loses = lost.count - markers
            why += known
            what = f"bridge offsets {lost.first} to {lost.beyond - 1} with an empty batch"
            why += left_over(self.sources, self.epochs, lost.first, lost.beyond)
        if self.endings is not None:
            self.endings.pass_over(lost, data)
        if finding.kind is SEGMENT_EMPTIED:
            edits: tuple[Edit, ...] = (
                Extend(name, 0, len(data)),
                Overwrite(name, 0, bytes(len(data)), data),
            )
        else:
            edits = tuple(self._created(files or [(name, len(data))], data))
        yield Step(finding.kind.id, name, what, why, edits, loses)

    def _without_bytes(self, finding: Finding, filled: int) -> Range | None:
        """Return the offsets that are missing with a segment; None where none are, or the log ends before it."""
        base, is_gap = _base_of(finding), finding.kind is BATCH_OFFSET_GAP
        number = next((n for n, file in enumerate(self.survey.files) if file.base >= base), len(self.survey.files))
        before, after = self.survey.around(number, 0)
        if after is None or (is_gap and (before is None or finding.offset or before.last_offset + 1 >= base)):
            return None  # the log ends before it, or goes on in the same file
        first = before.last_offset + 1 if before is not None and finding.kind is not SEGMENT_EMPTIED else base
        later = (file.base for file in self.survey.files if file.base > first)
        beyond = min(after.base_offset, first + INT_MAX + 1, *later)  # a segment has no room for more
        return Range(number, 0, 0, max(first, filled), beyond, before, after, ()) if filled < beyond else None

    def _created(self, files: Sequence[tuple[str, int]], data: bytes) -> Iterator[Edit]:
        """Make files of so many bytes each, one after the other."""
        at = 0
        for name, size in files:
            piece, at = data[at : at + size], at + size
            if size > _PIECE:
                path = self.room()
                path.write_bytes(piece)
                yield Create(name, source=path)
            else:
                yield Create(name, piece)


def _by_segment(first: str, found: Sequence[Batch]) -> list[tuple[str, int]]:
    """Return the names of the files in which batches lie elsewhere, the first one under its own, with their bytes."""
    files = list[tuple[str, int]]()
    for before, batch in zip([None, *found[:-1]], found, strict=True):
        if before is None or batch.segment != before.segment:
            name = f"{first.rpartition('/')[0]}/{batch.base_offset:020d}.log" if files else first
            files.append((name, 0))
        files[-1] = files[-1][0], files[-1][1] + batch.size
    return files


def _left_empty(finding: Finding) -> Step:
    why = "a segment that compaction has emptied is sound; if the topic is not compacted, restore it with --from"
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _left_missing(finding: Finding) -> Step:
    why = "a broker may have deleted it; if it has not, restore it with --from"
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _left_whole(part: Damage, file: str) -> Step:
    why = "it is whole, and nothing else has its records; the log is compacted, and has room for several such offsets"
    return Step(part.kind.id, file, f"left as it is: at {part.begin}, {part.message}", why)


def _left_around(lost: Range, file: str) -> Step:
    what = f"left as it is: bytes {lost.begin} to {lost.end}, {lost.parts[0].message}"
    why = "whole batches lie there that no other place has, and nothing proves where they go; rmqctl salvage reads it"
    return Step(UNBALANCED, file, what, why)


def _base_of(finding: Finding) -> int:
    return int(finding.file.rpartition("/")[2].partition(".")[0])


def _copy(read: Callable[[int, int], bytes], write: Callable[[bytes], object], begin: int, end: int) -> None:
    for at in range(begin, end, _PIECE):
        write(read(at, min(_PIECE, end - at)))
