"""The log of one partition, batch after batch over all its segments: frames, offsets, leader epochs.

Base offset, length, leader epoch and magic of a batch stand before what its CRC covers, so only neighbours prove
them. Where the offsets of two neighbours disagree, the one that also disagrees with the batch on its other side is the
wrong one; leader epochs are wrong that the fewest batches have and the epoch checkpoint has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.record_batch import HEADER_SIZE, LENGTH_AT
from rmqctl.findings import Finding, FindingKind, Severity
from rmqctl.kafka.directory.directory import LogFile, Partition, Segment
from rmqctl.kafka.directory.file_names import FileKind
from rmqctl.kafka.findings.log import (
    BATCH_BASE_OFFSET,
    BATCH_FUTURE,
    BATCH_LEADER_EPOCH,
    BATCH_OFFSET_GAP,
    BATCH_OFFSET_ORDER,
    SEGMENT_EMPTIED,
    SEGMENT_MISSING,
    SEGMENT_NAME,
)
from rmqctl.kafka.log.block import INT_MAX, Flags, Gap, GapKind, Ints, are_thinned, has_bridges, stated_records
from rmqctl.kafka.log.gaps import gap_finding
from rmqctl.kafka.log.indexes import read_offset_index, read_time_index
from rmqctl.kafka.state.partition_state import PartitionLog, proof_of_end
from rmqctl.kafka.verify.splits import Headers
from rmqctl.text import LATEST, number_of

_MOST_PLACES, _VOTES, _FEW = 4096, 5, 2
"""Batches of one epoch, one after the other, that may be blamed; for how many one counts that the epoch checkpoint
bears out; how many may be wrong that stand in order."""
_OF_SEGMENTS = {FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX, FileKind.PRODUCER_SNAPSHOT}
_PERHAPS = (
    "; batches are missing between others that touch, too: it is what compaction leaves, if the topic is compacted"
)
_BARE = "; its indexes are empty, too: it is what compaction leaves, if the topic is compacted"
_LAST_HOLE = "they are lost, or its base offset is wrong, and nothing here says which"


@dataclass(slots=True)
class SegmentFacts:
    """What the batches of one segment say, for its derived files.

    Attributes:
        first_offset, last_offset: of its batches, -1 without any.
        max_timestamp: the largest of its sound batches, -1 without any.
        end: bytes from the start of the file to the end of its last batch.
        longest_run: bytes from the first to the last batch of those that one leader appended in one epoch, the most
            of all epochs. A broker counts the bytes to the next index entry from 0 again when it starts, and each start
            has an epoch of its own; batches without one show nothing.
        damaged: it holds damage, so what is derived from it may rightly differ.
        sound, outside: number of its sound batches, and of those whose offsets belong to another segment.
        future: position, size and base offset of the first batch that is stamped later than any calendar goes; None
            without one. future_records: how many records such batches have.
    """

    segment: Segment
    first_offset: int = -1
    last_offset: int = -1
    max_timestamp: int = -1
    end: int = 0
    longest_run: int = 0
    damaged: bool = False
    sound: int = 0
    outside: int = 0
    future: tuple[int, int, int] | None = None
    future_records: int = 0
    _run: tuple[int, int] = (-1, 0)

    def add_runs(self, epochs: Ints, positions: Ints) -> None:
        """Go on with the leader epochs of batches, and where they start."""
        begins = np.flatnonzero(np.diff(epochs, prepend=self._run[0]) != 0)
        starts = [self._run, *zip(epochs[begins].tolist(), positions[begins].tolist(), strict=True)]
        last = np.append(begins - 1, len(epochs) - 1)
        for (epoch, start), row in zip(starts, last.tolist(), strict=True):
            if epoch >= 0 and row >= 0:
                self.longest_run = max(self.longest_run, int(positions[row]) - start)
        self._run = starts[-1]


@dataclass
class LogCheck:
    """Judges the headers of a partition in log order. Feed :meth:`add`, then :meth:`finish` once.

    Attributes:
        is_clean: the broker was stopped in order.
        segments: what was seen of each segment, in order.
        compacted: the topic is compacted: it is known to be, or batches with fewer records than offsets were met.
        may_be_compacted: nothing says whether the topic is.
        log_start: offsets below it were deleted on purpose.
        leader_epoch: that of the last leader, by the cluster's metadata; None: nothing says it.
        legacy: messages of magic 0 or 1 were met.
        damaged: any damage was met in the log, so state replayed from it is not to be trusted.
        misses: records may be missing, in holes or under the batches with which repair bridges damage: what was derived
            from the whole log knows more than what is replayed from there on.
        batches, records, whole: counted; of the whole ones those of batches whose CRCs match.
        epochs: leader epochs of the batches: epoch and the first offset with it, ascending.
    """

    partition: Partition
    is_clean: bool
    segments: list[SegmentFacts] = field(default_factory=list)
    compacted: bool = False
    may_be_compacted: bool = False
    log_start: int = 0
    leader_epoch: int | None = None
    legacy: bool = False
    damaged: bool = False
    misses: bool = False
    batches: int = 0
    records: int = 0
    whole: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    _thinned: bool = False
    _runs: list[_Run] = field(default_factory=list)
    _edge: _Rows | None = None
    _is_broken: bool = False
    _holes: list[Finding] = field(default_factory=list)
    _indexed: set[str] = field(default_factory=set)
    _bare: set[str] = field(default_factory=set)
    _blamed: tuple[str, int] = ("", -1)

    def add(self, segment: Segment, headers: Headers) -> Iterator[Finding]:
        """Go on with the headers of a split."""
        assert segment.log is not None
        if not self.segments or self.segments[-1].segment is not segment:
            self.segments.append(SegmentFacts(segment))
        facts = self.segments[-1]
        yield from headers.findings
        if headers.wrappers:
            facts.damaged = self.damaged = True
            headers = headers.proven
        yield from self._gaps(segment.log, headers.gaps, facts)
        if not headers.crc_ok.all():
            facts.damaged = self.damaged = True
        yield from self._ranges(segment, headers)
        yield from self._order(segment.log, headers)
        self._count(headers, facts)

    @property
    def end_offset(self) -> int:
        """The offset after the last batch, or the base offset of the last segment."""
        last = max((facts.last_offset for facts in self.segments), default=-1)
        base = self.partition.logs[-1].base if self.partition.logs else 0
        return max(last + 1, base)

    def finish(self, log: PartitionLog) -> Iterator[Finding]:
        """Yield what can be said once the whole log is known: whether missing offsets are damage.

        Args:
            log: of the partition, with what lies beside it.
        """
        if self._edge is not None:
            yield from () if self.compacted else self._shifted(self._edge)
            yield from self._moved(log, self._edge)
        yield from self._future()
        yield from self._misnamed()
        yield from self._wrong_epochs(log) if len(self._runs) > 1 else ()
        yield from self._lost()
        last = self.partition.segments[-1] if self.partition.segments else None
        if last is not None and last.log is None and self.segments and last.base >= self.end_offset:
            index = last.offset_index or last.time_index or last.txn_index
            assert index is not None
            self.damaged = True
            name = index.name.rpartition(".")[0] + ".log"
            message = f"it is not there, but {index.name.rpartition('/')[2]} is; the log ends at {self.end_offset}"
            yield Finding(SEGMENT_MISSING, name, 0, 0, message)

    def _lost(self) -> Iterator[Finding]:
        """What is missing in the log; of one that is compacted, segments that had batches as their indexes show."""
        found = [(hole, self._thinned and hole.kind is SEGMENT_EMPTIED) for hole in self._holes]
        found += [(start, bool(self._holes)) for start in self._lost_start()]
        for finding, is_doubtful in found:
            is_shown = finding.file in self._indexed
            if is_shown or not self.compacted:
                self.damaged = True
                if is_doubtful and not is_shown:
                    yield self._perhaps_compacted(finding)
                elif self.may_be_compacted and finding.file in self._bare:
                    yield replace(finding, message=f"{finding.message}{_BARE}", severity=Severity.WARNING)
                else:
                    yield finding

    def _misnamed(self) -> Iterator[Finding]:
        """Segments whose names none of their batches bears out, or that lie among the offsets before them."""
        end = -1
        for number, facts in enumerate(self.segments, 1):
            file, base = facts.segment.log, facts.segment.base
            assert file is not None
            is_empty = number == len(self.segments) and file.size == 0
            message = ""
            if facts.outside == facts.sound > 1:
                message = (
                    f"all its batches have offsets of another segment, {facts.first_offset} to {facts.last_offset}"
                )
            elif base <= end and (is_empty or facts.first_offset > end):
                begin = "it is empty" if is_empty else f"its batches begin at {facts.first_offset}"
                message = f"{begin}, and the segment before it ends with {end}"
            if message:
                facts.damaged = self.damaged = True
                yield Finding(SEGMENT_NAME, file.name, 0, 0, message)
            end = max(end, facts.last_offset)

    @staticmethod
    def _perhaps_compacted(finding: Finding) -> Finding:
        """Return a finding on a segment as a warning: among other holes the log may be a compacted one."""
        message = finding.message if finding.kind is SEGMENT_MISSING else f"{finding.message}{_PERHAPS}"
        return replace(finding, message=message, severity=Severity.WARNING)

    def _shifted(self, rows: _Rows) -> Iterator[Finding]:
        """Blame the last batch of the log if bytes were put into its base offset: no later batch shows it."""
        if len(rows) < 2 or rows.files[-1] is not rows.files[-2] or not rows.broken[-1] or rows.is_outside(-1):
            return
        low, found = int(rows.last[-2]) + 1, int(rows.base[-1])
        size = int(rows.position[-1] - rows.position[-2] - rows.size[-2])
        is_spread = not (found ^ low) & 0xFF or found >> 8 * size == low  # its last byte, or all, moved
        if found > low and 0 < size < LENGTH_AT and is_spread:
            at = int(rows.position[-1]) - size
            message = f"offsets {found} to {rows.last[-1]} after damage at {at}, where offset {low} follows"
            yield self._blame(BATCH_OFFSET_ORDER, rows, len(rows) - 1, message)

    def _moved(self, log: PartitionLog, rows: _Rows) -> Iterator[Finding]:
        """Blame the last batch of the log if what lies beside the log knows the offsets before it for its own."""
        if self.compacted:
            yield from self._past_end(log, rows)
        if self.compacted or len(rows) < 2 or not self._holes:
            return
        found, last = int(rows.base[-1]), int(rows.last[-1])
        low = int(rows.last[-2]) + 1
        right = low + last - found
        hole, place = self._holes[-1], (rows.files[-1].name, int(rows.position[-1]))
        is_begin = place[1] == 0 and low == rows.files[-1].base and (found ^ low).bit_count() == 1
        is_begin &= not any(low < segment.base <= found for segment in self.partition.segments)
        if (hole.file, hole.offset) != place and not (is_begin and hole.messages == found - low):
            return
        self._holes.pop()
        touches = rows.files[-2] is rows.files[-1] and rows.position[-2] + rows.size[-2] == rows.position[-1]
        segment = next((facts.segment for facts in self.segments if facts.segment.log is rows.files[-1]), None)
        proof = f"the name of its segment, a bit from {found}" if is_begin and last >= found else ""
        if touches and segment is not None and not self._holes and last >= found and rows.epoch[-1] >= 0:
            proof = proof_of_end(log, segment, place[1], right, int(rows.epoch[-1]))
        if not proof:
            self._holes.append(replace(hole, message=f"{hole.message}, the last batch: {_LAST_HOLE}"))
            return
        message = f"the last batch has offsets {found} to {last} instead of {low} to {right}: known from {proof}"
        yield self._blame(BATCH_OFFSET_ORDER, rows, len(rows) - 1, message)

    def _past_end(self, log: PartitionLog, rows: _Rows) -> Iterator[Finding]:
        """Blame the last batch of a compacted log if a bit takes it after the end that all beside the log knows.

        Nothing is compacted in the segment that is written to, but a follower may have fetched a compacted log: a hole
        before the last batch alone says nothing.
        """
        if len(rows) < 2 or rows.epoch[-1] < 0 or rows.is_outside(-1):
            return
        file, position, found, last = rows.files[-1], int(rows.position[-1]), int(rows.base[-1]), int(rows.last[-1])
        end = int(rows.position[-2] + rows.size[-2]) if rows.files[-2] is file else 0
        low = max(int(rows.last[-2]) + 1, file.base)
        right = low + last - found
        segment = next((facts.segment for facts in self.segments if facts.segment.log is file), None)
        if position != end or not low < found <= last or (found ^ low).bit_count() != 1 or segment is None:
            return
        if proof := proof_of_end(log, segment, position, right, int(rows.epoch[-1])):
            message = f"the last batch has offsets {found} to {last} instead of {low} to {right}: known from {proof}"
            yield self._blame(BATCH_OFFSET_ORDER, rows, len(rows) - 1, message)

    def _lost_start(self) -> Iterator[Finding]:
        """Segments before the first batch of which an empty log or an index is left; compaction alone leaves such."""
        first = min((facts.first_offset for facts in self.segments if facts.first_offset >= 0), default=-1)
        for segment, following in pairwise(self.partition.segments):
            begin = max(segment.base, self.log_start)
            if segment.base >= first or (segment.log is not None and segment.log.size):
                return
            if begin >= following.base:
                continue
            lost = f"offsets {begin} to {following.base - 1} are missing"
            if segment.log is not None:
                yield self._emptied(segment, lost)
            elif segment.base not in self.partition.replaced:
                index = segment.offset_index or segment.time_index or segment.txn_index
                assert index is not None
                there = f"it is not there, but {index.name.rpartition('/')[2]} is; {lost}"
                yield Finding(SEGMENT_MISSING, index.name.rpartition(".")[0] + ".log", 0, 0, there)

    # --- one split -----------------------------------------------------------------------------------

    def _gaps(self, file: LogFile, gaps: Iterable[Gap], facts: SegmentFacts) -> Iterator[Finding]:
        for gap in gaps:
            if gap.why is not GapKind.ZERO_TAIL:
                facts.damaged = self.damaged = True
            yield gap_finding(file.name, gap, self.partition, is_clean=self.is_clean)

    def _ranges(self, segment: Segment, headers: Headers) -> Iterator[Finding]:
        """Offsets that the segment cannot hold, epochs that cannot be."""
        assert segment.log is not None
        epoch = headers["partition_leader_epoch"]
        for row in np.flatnonzero(headers.crc_ok & (headers.magic >= 2) & (epoch < -1)).tolist():
            self.damaged = self.segments[-1].damaged = True
            message = f"leader epoch {epoch[row]} is negative"
            yield _of_row(BATCH_LEADER_EPOCH, segment.log, headers, row, message)
        last = headers["last_offset"]
        base = headers["base_offset"]
        following = next((log.base for log in self.partition.logs if log.base > segment.base), np.iinfo(np.int64).max)
        outside = (base < segment.base) | (base - segment.base > INT_MAX) | (base >= following)
        self.segments[-1].sound += int(headers.crc_ok.sum())
        self.segments[-1].outside += int((outside & headers.crc_ok).sum())
        wrong = (base < segment.base) | (base - segment.base > INT_MAX) | (last - segment.base > INT_MAX)
        wrong &= headers.crc_ok
        for row in np.flatnonzero(wrong).tolist():
            self.damaged = self.segments[-1].damaged = True
            message = f"base offset {headers['base_offset'][row]} in a segment that begins at {segment.base}"
            yield _of_row(BATCH_BASE_OFFSET, segment.log, headers, row, message)

    def _order(self, file: LogFile, headers: Headers) -> Iterator[Finding]:
        """Compare neighbours; the last rows of the split before are carried along."""
        rows = _Rows.of(file, headers)
        if len(rows):
            rows.broken[0] |= self._is_broken
            self._is_broken = False
        after = int(rows.position[-1]) if len(rows) else -1
        self._is_broken |= any(gap.position > after for gap in headers.gaps if gap.why is not GapKind.ZERO_TAIL)
        self._is_broken |= bool((headers.position[~headers.crc_ok] > after).any())
        joined = rows if self._edge is None else self._edge.followed_by(rows)
        first = 0 if self._edge is None else self._edge.judged
        yield from self._offsets(joined, first)
        self._epochs(rows)
        self._edge = joined.tail()

    def _offsets(self, rows: _Rows, first: int) -> Iterator[Finding]:
        base, last = rows.base, rows.last
        after, before = base[1:], last[:-1]
        blamed: set[int] = set()
        for pair in np.flatnonzero(after <= before).tolist():
            if pair < first:
                continue
            floor = last[pair - 1] if pair > 0 else rows.files[0].base - 1  # nothing stands before the first batch
            jumped = base[pair] > floor + 1 and base[pair + 1] > floor and (pair > 0 or rows.second_is_right())
            wrong = pair if jumped else pair + 1
            if wrong in blamed or rows.is_outside(pair) or rows.is_outside(wrong):
                continue
            blamed.add(wrong)
            other = pair + 1 if jumped else pair
            message = f"offsets {base[wrong]} to {last[wrong]} beside a batch of {base[other]} to {last[other]}"
            yield self._blame(BATCH_OFFSET_ORDER, rows, wrong, message)
        for pair in np.flatnonzero(after > before + 1).tolist():
            if pair >= first and not blamed & {pair, pair + 1}:
                self._hole(rows, pair)

    def _hole(self, rows: _Rows, pair: int) -> None:
        """Note offsets that are missing after a row; whether that is normal shows at the end."""
        next_goes_back = pair + 2 < len(rows) and rows.base[pair + 2] <= rows.last[pair + 1]
        if self._blamed == (rows.files[pair].name, rows.position[pair]):
            return
        if rows.broken[pair + 1] or rows.is_outside(pair) or rows.is_outside(pair + 1) or next_goes_back:
            return
        first, last = int(rows.last[pair]) + 1, int(rows.base[pair + 1]) - 1
        if self._is_swapped(first, last):
            return
        if self._is_lowered(rows, pair):
            message = f"offset {rows.base[pair]} after damage that held batches; {first} to {last} are missing"
            self._holes.append(rows.finding(BATCH_OFFSET_ORDER, pair, message))
            return
        lost = self._lost_segment(first, last) if rows.files[pair + 1] is not rows.files[pair] else None
        self.misses = True
        ends = int(rows.position[pair] + rows.size[pair])
        self._thinned |= rows.files[pair] is rows.files[pair + 1] and int(rows.position[pair + 1]) == ends
        message = f"offsets {first} to {last} are missing before it"
        found = lost or rows.finding(BATCH_OFFSET_GAP, pair + 1, message)
        self._holes.append(replace(found, messages=last - first + 1))

    def _is_lowered(self, rows: _Rows, pair: int) -> bool:
        """Whether a batch with a hole after it has a wrong base offset: it follows damage that its offset ignores."""
        file = rows.files[pair]
        is_first = pair == 0 or rows.files[pair - 1] is not file
        begin = 0 if is_first else int(rows.position[pair - 1] + rows.size[pair - 1])
        if not rows.broken[pair] or rows.position[pair] - begin < HEADER_SIZE:
            return False
        if pair == 0 and rows.base[0] == file.base:
            return True
        floor = int(rows.last[pair - 1]) if pair else file.base - 1
        right = int(rows.base[pair + 1] - (rows.last[pair] - rows.base[pair]) - 1)
        if rows.files[pair + 1] is not file:
            return bool(rows.base[pair + 1] == rows.files[pair + 1].base and right > floor)
        later = (log.base for log in self.partition.logs if log.base > file.base)
        third = rows.base[pair + 2] if pair + 2 < len(rows) else next(later, -1)
        return bool(third == rows.last[pair + 1] + 1 and right > floor)

    def _is_swapped(self, first: int, last: int) -> bool:
        """Whether a .swap file, which a broker renames when it starts, begins among the offsets."""
        return any(
            file.kind is FileKind.LOG and file.meaning.leftover == ".swap" and first <= file.base <= last
            for file in self.partition.files
        )

    def _emptied(self, segment: Segment, lost: str) -> Finding:
        assert segment.log is not None
        shown = ""
        if _is_indexed(segment):
            self._indexed.add(segment.log.name)
            shown = ", its indexes have entries"
        elif segment.time_index is not None:  # it has one of each segment that was ever full
            self._bare.add(segment.log.name)
        return Finding(SEGMENT_EMPTIED, segment.log.name, 0, 0, f"it is empty{shown}, and {lost}")

    def _lost_segment(self, first: int, last: int) -> Finding | None:
        """Return the finding for a segment whose offsets are missing and of which something is left."""
        among = [segment for segment in self.partition.segments if first <= segment.base <= last]
        empty = [segment for segment in among if segment.log is not None and segment.log.size == 0]
        if empty:
            return self._emptied(next(filter(_is_indexed, empty), empty[0]), f"offsets {first} to {last} are missing")
        there = {segment.base for segment in self.partition.segments if segment.log is not None}
        for file in self.partition.files:
            if file.base in there:
                continue
            derived = file.kind in _OF_SEGMENTS
            if derived and first <= file.base <= last and not file.is_leftover:
                name = file.name.rpartition(".")[0] + ".log"
                message = (
                    f"it is not there, but {file.name.rpartition('/')[2]} is; offsets {first} to {last} are missing"
                )
                return Finding(SEGMENT_MISSING, name, 0, 0, message)
        return None

    def _epochs(self, rows: _Rows) -> None:
        """Note the leader epochs of a split; which of them are wrong shows at the end."""
        known = np.flatnonzero(rows.epoch >= 0)
        epoch = rows.epoch[known]
        begins = np.flatnonzero(np.diff(epoch, prepend=-1) != 0)
        for begin, end in pairwise([*begins.tolist(), len(epoch)]):
            if not self._runs or self._runs[-1].epoch != epoch[begin]:
                self._runs.append(_Run(int(epoch[begin]), int(rows.base[known[begin]])))
            run = self._runs[-1]
            run.count, run.last = run.count + end - begin, int(rows.base[known[end - 1]])
            run.places += [
                (rows.files[row], int(rows.position[row]), int(rows.size[row]))
                for row in known[begin:end][: max(_MOST_PLACES - len(run.places), 0)].tolist()
            ]

    def _wrong_epochs(self, log: PartitionLog) -> Iterator[Finding]:
        """Blame batches whose epochs do not ascend: the fewest, and rather those that the epoch checkpoint denies.

        One or two between others are wrong, too, where that bears out those around them and has no such epoch; at the
        end of the log where besides no leader can have had it: each has its epoch from the cluster's metadata, and puts
        it into the checkpoint before it writes (``UnifiedLog.assignEpochStartOffset``).
        """
        runs, stored = self._runs, log.leader_epochs
        ascends = all(a.epoch < b.epoch for a, b in pairwise(stored.entries)) and not stored.problems
        begins = stored.entries if ascends else []
        agreed = [run.is_borne_out(begins) for run in runs]
        weights = [run.count * (_VOTES if is_agreed else 1) for run, is_agreed in zip(runs, agreed, strict=True)]
        right, known = _heaviest_ascent([run.epoch for run in runs], weights), {entry.epoch for entry in begins}
        denied = {
            number
            for before, number, after in zip(right, right[1:], right[2:], strict=False)
            if agreed[before] and agreed[after] and runs[number].epoch not in known and runs[number].count <= _FEW
        }
        right = [number for number in right if number not in denied]
        count = len(right)
        while count > 1 and self._is_of_no_leader(runs[right[count - 1]], known):
            count -= 1
        right = right[:count] if count and agreed[right[count - 1]] else right
        for number in sorted({*range(len(runs))} - {*right}):
            other = runs[min(right, key=lambda one: abs(one - number))].epoch
            self.damaged = True
            for file, position, size in runs[number].places:
                message = f"leader epoch {runs[number].epoch} beside a batch of epoch {other}"
                yield Finding(BATCH_LEADER_EPOCH, file.name, position, size, message)

    def _is_of_no_leader(self, run: _Run, known: set[int]) -> bool:
        """Whether the last batches are of an epoch that is later than any leader had.

        Args:
            known: epochs of the checkpoint.
        """
        if run.count > _FEW or run.epoch <= max(known, default=run.epoch):
            return False
        return self.is_clean or (self.leader_epoch is not None and run.epoch > self.leader_epoch)

    def _blame(self, kind: FindingKind, rows: _Rows, row: int, message: str) -> Finding:
        """Return a finding at a row whose header is wrong, so that nothing derived from it is held against others."""
        self.damaged, self._blamed = True, (rows.files[row].name, int(rows.position[row]))
        for facts in self.segments:
            if facts.segment.log is rows.files[row]:
                facts.damaged = True
        return rows.finding(kind, row, message)

    def _count(self, headers: Headers, facts: SegmentFacts) -> None:
        sound = headers.crc_ok
        self.batches += len(headers)
        counts = stated_records(headers)
        self.records += int(counts.sum())
        self.whole += int(counts[sound].sum())
        modern = sound & (headers.magic >= 2)
        self.legacy |= bool((headers.magic < 2).any())
        self.compacted = self.compacted or are_thinned(headers)
        self.misses = self.misses or has_bridges(headers)
        if not sound.any():
            return
        last = headers["last_offset"][sound]
        if facts.first_offset < 0:
            facts.first_offset = int(headers["base_offset"][sound][0])
            self.misses = self.misses or facts.first_offset > facts.segment.base
        facts.last_offset = max(facts.last_offset, int(last.max()))
        facts.max_timestamp = max(facts.max_timestamp, int(headers["max_timestamp"][sound].max()))
        if facts.max_timestamp > LATEST:
            self._note_future(headers, np.flatnonzero(sound & (headers["max_timestamp"] > LATEST)), facts)
        facts.end = int(headers.position[-1] + headers.size[-1])
        facts.add_runs(np.where(modern, headers["partition_leader_epoch"], -1)[sound], headers.position[sound])
        epoch = headers["partition_leader_epoch"][sound]
        highest = self.epochs[-1][0] if self.epochs else -1
        reached = np.maximum.accumulate(np.maximum(epoch, highest))
        for row in np.flatnonzero(reached > np.concatenate([[highest], reached[:-1]])).tolist():
            self.epochs.append((int(epoch[row]), int(headers["base_offset"][sound][row])))

    @staticmethod
    def _note_future(headers: Headers, rows: npt.NDArray[np.intp], facts: SegmentFacts) -> None:
        if len(rows) and facts.future is None:
            first = rows[0]
            facts.future = int(headers.position[first]), int(headers.size[first]), int(headers["base_offset"][first])
        facts.future_records += int(stated_records(headers)[rows].sum())

    def _future(self) -> Iterator[Finding]:
        """Yield the segments with batches whose times are none, one finding each."""
        for facts in self.segments:
            if facts.future is not None and facts.segment.log is not None:
                position, size, offset = facts.future
                count = number_of(facts.future_records, "record")
                message = f"{count} from offset {offset} on stamped after the year 9999, at most {facts.max_timestamp}"
                yield Finding(
                    BATCH_FUTURE, facts.segment.log.name, position, size, message, topic=self.partition.topic,
                    partition=self.partition.partition,
                )  # fmt: skip


@dataclass(slots=True)
class _Run:
    """Batches of one leader epoch that follow each other.

    Attributes:
        first, last: base offsets.
        places: file, position and size of the first of them.
    """

    epoch: int
    first: int
    last: int = -1
    count: int = 0
    places: list[tuple[LogFile, int, int]] = field(default_factory=list)

    def is_borne_out(self, begins: Sequence[LeaderEpoch]) -> bool:
        """Whether the epochs of a checkpoint have this one for the first and the last of them."""
        epochs = (max((e.epoch for e in begins if e.start_offset <= at), default=-1) for at in (self.first, self.last))
        return all(epoch == self.epoch for epoch in epochs)


def _is_indexed(segment: Segment) -> bool:
    """Whether an index has entries: cleaning empties it together with the log."""
    for file, read in ((segment.offset_index, read_offset_index), (segment.time_index, read_time_index)):
        if file is not None:
            source = file.open()
            try:
                if len(read(source)):
                    return True
            finally:
                source.close()
    return False


def _heaviest_ascent(numbers: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Places of the numbers that never fall and together weigh most."""
    rank = {number: at + 1 for at, number in enumerate(sorted(set(numbers)))}
    best = [(0, -1)] * (len(rank) + 1)  # a Fenwick tree: most weight of a sequence up to a number, and where it ends
    before = list[int]()
    for place, number in enumerate(numbers):
        at, found = rank[number], (0, -1)
        while at:
            found, at = max(found, best[at]), at & (at - 1)
        before.append(found[1])
        at, made = rank[number], (found[0] + weights[place], place)
        while at < len(best):
            best[at], at = max(best[at], made), at + (at & -at)
    at, right = max(best)[1], list[int]()
    while at >= 0:
        right.append(at)
        at = before[at]
    return right[::-1]


@dataclass
class _Rows:
    """Sound batches that follow each other, some of which were judged already.

    Attributes:
        broken: damage lies between a batch and the one before it.
        judged: number of pairs at the front that were compared before.
    """

    files: list[LogFile]
    base: Ints
    last: Ints
    epoch: Ints
    position: Ints
    size: Ints
    broken: Flags
    judged: int = 0

    def __len__(self) -> int:
        return len(self.base)

    @staticmethod
    def of(file: LogFile, headers: Headers) -> _Rows:
        """Return the sound batches of a split."""
        sound = np.flatnonzero(headers.crc_ok)
        position = headers.position[sound]
        bad = np.sort(np.array([*headers.position[~headers.crc_ok], *(g.position for g in headers.gaps)], np.int64))
        before = np.searchsorted(bad, position)
        broken = np.diff(before, prepend=0) > 0
        columns = [headers[name][sound] for name in ("base_offset", "last_offset", "partition_leader_epoch")]
        epoch = np.where(headers.magic[sound] >= 2, columns[2], -1)
        return _Rows([file] * len(sound), columns[0], columns[1], epoch, position, headers.size[sound], broken)

    def followed_by(self, other: _Rows) -> _Rows:
        """Return these rows and those of the next split."""

        def join(a: Ints, b: Ints) -> Ints:
            return np.concatenate([a, b])

        return _Rows(
            self.files + other.files,
            join(self.base, other.base),
            join(self.last, other.last),
            join(self.epoch, other.epoch),
            join(self.position, other.position),
            join(self.size, other.size),
            np.concatenate([self.broken, other.broken]),
            self.judged,
        )

    def tail(self) -> _Rows:
        """Return the last rows, which the next split needs."""
        keep = max(len(self) - 2, 0)
        return _Rows(
            self.files[keep:],
            self.base[keep:].copy(),
            self.last[keep:].copy(),
            self.epoch[keep:].copy(),
            self.position[keep:].copy(),
            self.size[keep:].copy(),
            self.broken[keep:].copy(),
            max(len(self) - keep - 1, 0),
        )

    def is_outside(self, row: int) -> bool:
        """Whether its segment cannot hold the batch: that is said elsewhere."""
        begin = self.files[row].base
        base, last = int(self.base[row]) - begin, int(self.last[row]) - begin  # may be more than 64 bits
        return not 0 <= base <= INT_MAX or last > INT_MAX

    def second_is_right(self) -> bool:
        """Whether the first batch of a log is the wrong one of two, as the third says: compaction leaves holes."""
        if len(self) < 3:
            return not self.broken[0]
        is_past = bool(self.base[2] <= self.last[0])
        follows = bool(self.base[2] == self.last[1] + 1)
        return is_past and bool(self.base[2] > self.last[1]) if self.broken[0] else is_past or follows

    def finding(self, kind: FindingKind, row: int, message: str) -> Finding:
        """Return a finding at a row."""
        return Finding(kind, self.files[row].name, int(self.position[row]), int(self.size[row]), message)


def _of_row(kind: FindingKind, file: LogFile, headers: Headers, row: int, message: str) -> Finding:
    return Finding(kind, file.name, int(headers.position[row]), int(headers.size[row]), message)
