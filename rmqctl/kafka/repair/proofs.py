"""What proves a batch that a plan makes, and that nothing is lost with one that it takes away.

A batch that was not there is right where a replica has it, where a step names it as a marker that it writes again, or
where it was there in pieces: its own bytes under the CRC, all but a bit or a short burst, and a frame for which the
batches around it leave nothing else. Fewest changes are believed: a frame that the others bear out is never another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from formats.errors import DecodeError
from formats.kafka import message_set
from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.internal_records import CONSUMER_OFFSETS, SHARE_GROUP_STATE, decode_record
from formats.kafka.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    MAGIC_AT,
    Attributes,
    BatchFrame,
    ControlType,
    header_plan,
)
from formats.layout import plan_of
from rmqctl.kafka.directory.directory import Segment
from rmqctl.kafka.directory.file_names import METADATA_TOPIC, FileKind, meaning_of
from rmqctl.kafka.findings.log import SEGMENT_NAME
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.loading.producers import marker_of
from rmqctl.kafka.log.block import Ints
from rmqctl.kafka.log.legacy import offsets_inside
from rmqctl.kafka.log.reference import records_of_batch
from rmqctl.kafka.repair.columns import Columns
from rmqctl.kafka.repair.heal import messages_near, stored_epochs
from rmqctl.kafka.repair.names import are_exchanged, batches_of, is_held, is_told
from rmqctl.kafka.repair.sides import Home, Side, identity_of, is_log
from rmqctl.kafka.repair.stretches import EXCHANGED
from rmqctl.kafka.repair.survey import (
    LEAST_BESIDE,
    a_bit_off,
    is_borne_out,
    is_in_sequence,
    longest_ascent,
    may_go_on,
    segment_of,
)
from rmqctl.kafka.state.partition_state import PartitionLog, proof_of_end
from rmqctl.kafka.state.replicas import Replicas
from rmqctl.repair.books import WholeRecord
from rmqctl.repair.edits import Step

_FRAME = plan_of(BatchFrame).runs[0].packer
_BURST = 3
"""Bytes under a CRC that may be put right: a burst of 16 bits lies in three."""
_WINDOW = 8 << 20
_STRETCH = 1 << 16
"""Bytes before and after a batch that are compared with those in another file."""
_ANCHOR, _MOST_BESIDE = 32, 256
_MOST_COMPARED = 1 << 18
"""Records of a batch up to which it is looked for in other batches, record by record."""
_POSITION_TYPES = {CONSUMER_OFFSETS: (0, 1), SHARE_GROUP_STATE: (0,)}
"""Types of the records that say where a group is, by the internal topic; of share groups snapshots alone."""
_KINDS = {ControlType.COMMIT: "COMMIT", ControlType.ABORT: "ABORT"}


class Proofs:
    """Proofs for one plan."""

    def __init__(self, before: Side, after: Side, steps: Sequence[Step], replicas: Sequence[Replicas] = ()) -> None:
        self.before, self.after, self.steps = before, after, steps
        self._copies = [Side(directory.tree) for replica in replicas for directory in replica.directories]
        self._epochs: dict[str, frozenset[tuple[str, int]]] = {}
        self._exchanges: dict[tuple[str, str], bool] = {}
        self._bases: dict[str, tuple[list[str], Ints, Ints, Ints]] = {}

    @cached_property
    def _texts(self) -> str:
        return "\n".join(f"{step.what}; {step.why}" for step in self.steps)

    # --- what is there and was not ----------------------------------------------------------------------

    def made(self, record: WholeRecord, origin: str) -> str:
        """What proves a batch that was not there before; "" where nothing does.

        Args:
            origin: name that its file had before; "" where it may have been another file of that name.
        """
        data = self.after.bytes_at(record.file, record.position, record.size)
        place = origin or record.file
        if self._is_returned(origin, record.file) and self.before.bytes_at(origin, record.position, len(data)) == data:
            return f"the offset index beside {record.file} leads to it"
        found = self._of_replica(record, data) or self._written_again(record, data) or self._healed(record, data, place)
        return found or self._joined(record, data)

    def is_fact(self, record: WholeRecord, origin: str) -> bool:
        """Whether a batch of after was in the partition before, anywhere, or is healed."""
        data = self.after.bytes_at(record.file, record.position, record.size)
        if self.was_there(record) or self._came_back(record, data):
            return True
        healed = self._of_replica(record, data) or self._healed(record, data, origin or record.file)
        return bool(healed or self._joined(record, data))

    def _came_back(self, record: WholeRecord, data: bytes) -> bool:
        """Whether a batch of after came with its log from the partition that had it instead of its own."""
        files = dict.fromkeys(edit.file for step in self.steps if step.id == SEGMENT_NAME.id for edit in step.edits)
        origins = (file for file in files if self._is_returned(file, record.file))
        return any(self.before.bytes_at(file, record.position, len(data)) == data for file in origins)

    def was_there(self, record: WholeRecord) -> bool:
        """Whether the partition had a batch of after, in any of its logs."""
        return any(self._is_at(record, file, row) for file, row in self._beginning(record.queue, record.offset))

    def _beginning(self, directory: str, offset: int) -> Iterator[tuple[str, int]]:
        """Yield the batches that begin with an offset, in any log of a partition: file, and row of its batches."""
        found = self._bases.get(directory)
        if found is None:
            files = list(self._logs_of(directory))
            bases = [self.before.batches(file)["base_offset"] for file in files]
            starts, every = np.cumsum([0, *map(len, bases)]), np.concatenate([np.zeros(0, np.int64), *bases])
            rows = np.argsort(every, kind="stable")
            found = self._bases[directory] = files, starts, every[rows], rows
        files, starts, every, rows = found
        low, high = (int(np.searchsorted(every, offset, side)) for side in ("left", "right"))
        for row in rows[low:high].tolist():
            number = int(np.searchsorted(starts, row, "right")) - 1
            yield files[number], row - int(starts[number])

    def _is_at(self, record: WholeRecord, file: str, row: int) -> bool:
        """Whether a batch is the one in a row of a file."""
        columns = self.before.batches(file).columns
        position, size = (columns.value(name, row) for name in ("position", "size"))
        if size != record.size:
            return False
        return identity_of(record.queue, self.before.bytes_at(file, position, size)) == record.identity

    def _of_replica(self, record: WholeRecord, data: bytes) -> str:
        for copy in self._copies:
            home = copy.home(record.queue)
            row = home.row(record.offset)
            if row is not None and copy.bytes_at(*home.place(row)) == data:
                return f"{copy.tree.root} has it"
        return ""

    def _written_again(self, record: WholeRecord, data: bytes) -> str:
        """Whether it is a marker, or records of the metadata, of which a step says that it writes them."""
        if record.queue.startswith(METADATA_TOPIC):
            return "a step makes it again" if "made again" in self._texts else ""
        has_positions = record.queue.rpartition("-")[0] in _POSITION_TYPES and data[MAGIC_AT] >= 2
        if has_positions and (committed := self._committed(record, data)):
            return committed
        marker = marker_of(data) if data[MAGIC_AT] >= 2 else None
        if marker is None:
            return ""
        producer = header_plan().unpack_from(data)[0]["producer_id"]
        said = rf"{_KINDS[ControlType(marker.type)]}\b.* at {record.offset}\b"
        named = [text for text in self._texts.split("\n") if re.search(rf"\bproducer {producer}\b", text)]
        return "a step writes the marker" if any(re.search(said, text) for text in named) else ""

    def _committed(self, record: WholeRecord, data: bytes) -> str:
        """Whether they are offsets that a step commits, after the end that the log had."""
        said = [
            re.match(r"commit from offset (\d+) on: ", step.what)
            for step in self.steps
            if step.file.startswith(f"{record.queue}/")
        ]
        home = self.before.home(record.queue)
        end = int(home.columns["last_offset"].max(initial=-1)) + 1
        is_said = any(match is not None and end <= int(match[1]) <= record.offset for match in said)
        is_meant = is_said and _are_positions(record.queue.rpartition("-")[0], data)
        return "a step commits these offsets" if is_meant else ""

    def _healed(self, record: WholeRecord, data: bytes, place: str) -> str:
        """What proves a batch by its own bytes as they were before, or as a replica has them."""
        for file in dict.fromkeys([place, *self._logs_of(record.queue)]):
            found = self._remains(record, data, file, self.before)
            if found is not None:
                return self._right(record, data, (file, found[0]), found[1])
        copies = (self._remains(record, data, record.file, copy) for copy in self._copies)
        frame = message_set.CRC_FROM if data[MAGIC_AT] < 2 else CRC_AT
        is_there = any(copy is not None and copy[1][:frame] == data[:frame] for copy in copies)
        return "a replica has it, but for a burst" if is_there else ""

    def _joined(self, record: WholeRecord, data: bytes) -> str:
        """Whether a batch has the bytes of its place, but for some that lay in a log with which they were exchanged."""
        own = self.before.bytes_at(record.file, record.position, len(data))
        begin, end = _alike(own, data), len(data) - _alike(own[::-1], data[::-1])
        for other in self._exchanged_with(record.file):
            if begin < end and any(True for _ in _found(self.before, other, data[begin:end])):
                return f"its CRC matches with the bytes that {other} had"
        return ""

    def _exchanged_with(self, file: str) -> Iterator[str]:
        """Yield the logs that have bytes of a file afterwards, as it has theirs; it may be the file itself."""
        for step in self.steps:
            files = dict.fromkeys(edit.file for edit in step.edits)
            if step.what.startswith(EXCHANGED) and file in files:
                yield from [other for other in files if other != file] or [file]

    def _sent_back(self, record: WholeRecord) -> str:
        """Whether a batch lies in the log with which its bytes were exchanged."""
        for other in self._exchanged_with(record.file):
            data = self.before.bytes_at(record.file, record.position, record.size)
            if any(True for _ in _found(self.after, other, data)):
                return f"{other} has it"
        return ""

    def _logs_of(self, directory: str) -> Iterator[str]:
        """Yield the files of a partition that held batches, left over ones too."""
        partition = self.before.partition(directory)
        return (f.name for f in (partition.files if partition is not None else ()) if f.kind is FileKind.LOG)

    def _right(self, record: WholeRecord, data: bytes, place: tuple[str, int], old: bytes) -> str:
        """Return what proves a batch whose bytes under the CRC were there, if its frame is right, too."""
        frame = message_set.CRC_AT if data[MAGIC_AT] < 2 else CRC_AT
        if data[MAGIC_AT] >= 2 and old[:frame] != data[:frame] and not self._frame_fits(record, old, data, place):
            return ""
        if data[MAGIC_AT] < 2 and old[:frame] != data[:frame] and not self._offset_fits(record, old, data, place):
            return ""
        return "its own bytes prove it"

    def _offset_fits(self, record: WholeRecord, old: bytes, new: bytes, place: tuple[str, int]) -> bool:
        """Whether the offset of a message of magic 0 or 1 had to become another, and only this one is a bit off.

        It is that of the last message inside; of those inside magic 0 states each under the CRC.
        """
        was, size, *_ = _FRAME.unpack_from(old)
        offset, now_size, *_ = _FRAME.unpack_from(new)
        home, (before, after) = self.after.home(record.queue), self._around(record)
        if was == offset:
            return True  # the length or the CRC
        inside = offsets_inside(old)
        if inside is not None and inside[1] != was:
            return size == now_size and inside[1] == offset
        if size != now_size or (after is None and home.is_thinned):
            return False
        low = home.columns.value("last_offset", before) + 1 if before is not None else 0
        low = max(low, int(record.file.rpartition("/")[2][:20]))
        high = None if after is None else home.columns.value("base_offset", after) - 1
        if messages_near(old, low, high) != [offset]:
            return False
        base = was - (offset - record.offset)
        is_whole = bool((self.before.batches(place[0])["position"] == place[1]).any())
        return not is_whole or not (self._is_believed(record, base, old) or self._goes_on(record, base, place))

    def _remains(self, record: WholeRecord, data: bytes, file: str, side: Side) -> tuple[int, bytes] | None:
        """Return where in a file bytes were that are equal to it from the CRC on but for a burst, and all of them."""
        at = message_set.CRC_AT if data[MAGIC_AT] < 2 else CRC_AT
        for position in self._places(record, data, at, file, side):
            skipped = max(-position, 0)
            old = side.bytes_at(file, position + skipped, len(data) - skipped).rjust(len(data), b"\0")
            if _burst(old[at:], data[at:]) <= _BURST:
                return position, old
        return None

    def _places(self, record: WholeRecord, data: bytes, at: int, file: str, side: Side) -> Iterator[int]:
        """Where it may have begun before: its place now, and where a piece of it lies in the same file."""
        yield record.position
        middle = (at + len(data)) // 2
        for low, high in ((at, at + _ANCHOR), (len(data) - _ANCHOR, len(data)), (middle, middle + _ANCHOR)):
            anchor = data[max(low, at) : high]
            for position in _found(side, file, anchor) if len(anchor) >= _ANCHOR // 2 else ():
                yield position - max(low, at)

    def _frame_fits(self, record: WholeRecord, old: bytes, new: bytes, place: tuple[str, int]) -> bool:
        """Whether a frame had to become another, and could become nothing else.

        A batch that lies where it does not belong, or once more, is not damaged: its frame says where it does.
        """
        offset, _, epoch, _ = _FRAME.unpack_from(new)
        was_offset, _, was_epoch, _ = _FRAME.unpack_from(old)
        is_whole = was_offset >= 0 and bool((self.before.batches(place[0])["position"] == place[1]).any())
        if offset == was_offset:
            return epoch == was_epoch or self._epoch_fits(record, epoch, place if is_whole else None)
        is_bit, home = (offset ^ was_offset).bit_count() == 1, self.after.home(record.queue)
        row = home.row(offset)
        if row is None or not is_in_sequence(new, home.columns, row, row + 1):
            return False
        if is_whole and (self._is_believed(record, was_offset, old) or self._goes_on(record, was_offset, place)):
            return False
        is_denied = is_whole and (self._is_denied(*place) or self._is_told(record, was_offset, place))
        if is_denied or (is_whole and self._is_missed(record, was_offset, is_bit=is_bit)):
            return False
        if not is_bit and (
            not self._fits_in(record, place, is_whole=is_whole) or (is_whole and self._is_copied(old, place))
        ):
            return False
        return epoch == was_epoch or self._epoch_fits(record, epoch, None)

    def _goes_on(self, record: WholeRecord, offset: int, place: tuple[str, int]) -> bool:
        """Whether a whole batch beside one in its file, wherever that belongs, goes on with its old offset."""
        found, begin = self.before.batches(place[0]), place[1]
        position, base, last = found["position"], found["base_offset"], found["last_offset"]
        before = (position + found["size"] == begin) & (last + 1 == offset)
        after = (position == begin + record.size) & (base == offset + record.span)
        return bool((before | after).any())

    def _is_believed(self, record: WholeRecord, offset: int, old: bytes) -> bool:
        """Whether a batch was in order with the others under its old offset, and next to one of them in both ways.

        In a compacted log those around say nothing of an offset between them.
        """
        home = self.before.home(record.queue)
        row = home.row(offset)
        if row is None or self.before.bytes_at(*home.place(row)) != old or _overlaps(home, row):
            return False
        follows = home.follows
        if not row and home.columns.value("position", 0) == 0:
            return offset == int(home.place(0)[0].rpartition("/")[2][:20])
        near = [number for number in (row, row + 1) if 0 < number < len(home)]
        if any(follows[number - 1] for number in near):
            return True
        return home.is_thinned and not (row == len(home) - 1 and self._is_past_end(record, old, home.place(row)))

    def _is_past_end(self, record: WholeRecord, old: bytes, place: tuple[str, int, int]) -> bool:
        """Whether a last batch lay after the end that all beside its log knows, and lies just before it afterwards."""
        segment, partition = self._segment(place[0]), self.before.partition(record.queue)
        if segment is None or partition is None or old[MAGIC_AT] < 2:
            return False
        log = PartitionLog(self.before.directory, partition, Checkpoints(self.before.directory))
        epoch = _FRAME.unpack_from(old)[2]
        return bool(proof_of_end(log, segment, place[1], record.offset + record.span - 1, epoch))

    def _is_told(self, record: WholeRecord, offset: int, place: tuple[str, int]) -> bool:
        """Whether a batch was alone in its segment, which cannot hold its offsets, and is believed over the name."""
        segment, partition = self._segment(place[0]), self.before.partition(record.queue)
        if (
            segment is None
            or partition is None
            or is_held(segment.base, offset)
            or len(self.before.batches(place[0])) > 1
        ):
            return False
        log = PartitionLog(self.before.directory, partition, Checkpoints(self.before.directory))
        home, (before, _) = self.after.home(record.queue), self._around(record)
        following = home.columns.value("last_offset", before) + 1 if before is not None else 0
        epoch = self.before.batches(place[0]).columns.value("partition_leader_epoch", 0)
        return is_told(log, segment, following, (offset, offset + record.span - 1), epoch)

    def _is_denied(self, file: str, position: int) -> bool:
        """Whether the offset index of a segment is of other batches than it has beside one."""
        segment, columns = self._segment(file), self.before.batches(file).columns
        return segment is not None and is_borne_out(segment.offset_index, segment.base, columns, position) is False

    def _returned(self, record: WholeRecord) -> str:
        """Whether its log went as a whole to the partition whose offset index leads to its batches."""
        for file in dict.fromkeys(edit.file for step in self.steps for edit in step.edits):
            if self._is_returned(record.file, file):
                data = self.before.bytes_at(record.file, record.position, record.size)
                if self.after.bytes_at(file, record.position, record.size) == data:
                    return f"{file} has it"
        return ""

    def _is_returned(self, old: str, new: str) -> bool:
        """Whether two segments of different partitions have each other's batches."""
        if not is_log(old) or not is_log(new) or old.rpartition("/")[0] == new.rpartition("/")[0]:
            return False
        key = old, new
        if key not in self._exchanges:
            there, here = self._segment(old), self._segment(new)
            named = [{edit.file for edit in step.edits} for step in self.steps if step.id == SEGMENT_NAME.id]
            self._exchanges[key] = (
                any({old, new} <= files for files in named)
                and there is not None
                and here is not None
                and are_exchanged(there, batches_of(there), here, batches_of(here))
            )
        return self._exchanges[key]

    def _segment(self, file: str) -> Segment | None:
        partition = self.before.partition(file.rpartition("/")[0])
        segments = () if partition is None else partition.segments
        return next((one for one in segments if one.log is not None and one.log.name == file), None)

    def _is_copied(self, old: bytes, place: tuple[str, int]) -> bool:
        """Whether a batch stands in the directory once more, under whatever frame."""
        crc = int.from_bytes(old[CRC_AT : CRC_AT + 4], "big")
        for file in self.before.names():
            found = self.before.batches(file)
            same = (found["size"] == len(old)) & (found["crc"] & 0xFFFFFFFF == crc)
            for position in found["position"][same].tolist():
                if (file, position) != place and self.before.bytes_at(file, position, len(old))[CRC_AT:] == old[
                    CRC_AT:
                ]:
                    return True
        return False

    def _is_missed(self, record: WholeRecord, offset: int, *, is_bit: bool) -> bool:
        """Whether a log misses what a batch says that it is: another one; its own, but for where it would go.

        For a bit in its own log, only all that it says; for one between batches that leave just its room, in any log:
        a cleaner leaves larger holes than that. Its own log does not where another batch with records is afterwards.
        """
        last, is_framed = offset + record.span - 1, is_bit and self._fills(record)
        for partition in self.before.directory.partitions:
            home, is_own = self.before.home(partition.directory), partition.directory == record.queue
            if is_own and is_bit and self._is_taken(record.queue, offset):
                continue
            columns, row = home.columns, home.columns.search("base_offset", last, "right")
            if row == len(home):
                is_next = row > 0 and columns.value("last_offset", row - 1) + 1 == offset
                log = segment_of(partition, offset) if is_next and not (is_own or is_framed) else None
                if log is not None and may_go_on(log, self.after.bytes_at(record.file, record.position, record.size)):
                    return True  # it went on with just this one
                continue
            low = columns.value("last_offset", row - 1) + 1 if row else partition.logs[0].base
            high, file = columns.value("base_offset", row) - 1, columns.value("file", row)
            begins = not row or columns.value("file", row - 1) < file
            room = (row > 0 and not home.touches[row - 1]) or (begins and partition.logs[file].base == offset)
            is_away = not is_framed if not is_own else not (is_bit or low <= record.offset <= high)
            if low <= offset and ((room and is_away) or (low == offset and high == last)):
                return True
        return False

    def _is_taken(self, directory: str, offset: int) -> bool:
        """Whether a batch with records has an offset afterwards, and not in the place of destroyed ones."""
        home = self.after.home(directory)
        row = home.row(offset)
        return row is not None and _has_records(home, row)

    def _fills(self, record: WholeRecord) -> bool:
        """Whether the offsets of a batch go on from, or lead to, those of one that was there and touches it.

        Or it is one of several, and all of them together have just the offsets between two that were there.
        """
        home, (before, after) = self.after.home(record.queue), self._around(record)
        row = home.row(record.offset)
        if row is None:
            return False
        if before is None and record.position == 0:
            return record.offset == int(record.file.rpartition("/")[2][:20])
        near = [(number, other) for number, other in ((row, before), (row + 1, after)) if other is not None]
        touching = [(number, other) for number, other in near if home.touches[number - 1]]
        there = [n for n, other in touching if self._was_at_home(home, range(other, other + 1), record.queue)]
        if there:
            return all(home.follows[number - 1] for number in there)
        return all(self._leads_back(home, row, step, record.queue) for step in (-1, 1))

    def _fits_in(self, record: WholeRecord, place: tuple[str, int], *, is_whole: bool) -> bool:
        """Whether a batch fills what is missing, or has lost its first bytes and leads to one that was there.

        Those were taken out with others in front of them: where it would have begun another batch ends.
        """
        if self._fills(record):
            return True
        home, (_, after), (file, begin) = self.after.home(record.queue), self._around(record), place
        if is_whole or after is None or not home.follows[after - 1]:
            return False
        found = self.before.batches(file)
        ends = found["position"] + found["size"]
        is_cut = begin < 0 or bool(((ends > begin) & (ends <= begin + CRC_AT)).any())
        return is_cut and self._was_at_home(home, range(after, after + 1), record.queue)

    def _leads_back(self, home: Home, row: int, step: int, directory: str) -> bool:
        """Whether batches with records go on from a row, without a byte between them, to one that was there.

        Args:
            step: 1: to the end of the log; -1: to its start.
        """
        for other in range(row + step, row + step * _MOST_BESIDE, step):
            if not 0 <= other < len(home) or not home.follows[min(other, other - step)]:
                return False
            if self._was_at_home(home, range(other, other + 1), directory):
                return True
            if not _has_records(home, other):
                return False  # what stands for destroyed ones fills what is left
        return False

    def _around(self, record: WholeRecord) -> tuple[int | None, int | None]:
        home = self.after.home(record.queue)
        row = home.row(record.offset)
        if row is None:
            return None, None
        return row - 1 if row else None, row + 1 if row + 1 < len(home) else None

    def _epoch_fits(self, record: WholeRecord, epoch: int, place: tuple[str, int] | None) -> bool:
        """Whether an epoch lies between those around it, and the others are against what was there.

        Args:
            place: where the batch was, if it was whole but for its epoch.
        """
        columns, name = self.after.home(record.queue).columns, "partition_leader_epoch"
        before, after = (None if row is None else columns.value(name, row) for row in self._around(record))
        stored, later = self.stored_epoch(record), self._stored_epochs(record.queue)
        if epoch not in {before, after, stored} or (stored is not None and epoch < stored):
            return False
        if any(entry.start_offset > record.offset and entry.epoch < epoch for entry in later):
            return False
        if (before is not None and epoch < before) or (after is not None and epoch > after):
            return False
        return place is None or (self._is_within(record) and (stored == epoch or place in self._outliers(record.queue)))

    def _is_within(self, record: WholeRecord) -> bool:
        """Whether nothing is missing beside a batch, so that it is none that came from elsewhere with its epoch."""
        home = self.before.home(record.queue)
        row, known = home.row(record.offset), home.touches if home.is_thinned else home.follows
        return row is not None and bool(known[max(row - 1, 0) : row + 1].all())

    def stored_epoch(self, record: WholeRecord) -> int | None:
        """Return the epoch that the leader-epoch-checkpoint has at the place of a batch."""
        entries = self._stored_epochs(record.queue)
        return max((entry.epoch for entry in entries if entry.start_offset <= record.offset), default=None)

    def _stored_epochs(self, directory: str) -> Sequence[LeaderEpoch]:
        """Return what the leader-epoch-checkpoint of a partition has; nothing where it cannot be believed."""
        partition = self.before.partition(directory)
        if partition is None:
            return ()
        return stored_epochs(PartitionLog(self.before.directory, partition, Checkpoints(self.before.directory)))

    def _outliers(self, directory: str) -> frozenset[tuple[str, int]]:
        """Places of the batches of before whose epochs are against those of the most others."""
        if directory not in self._epochs:
            home = self.before.home(directory)
            epochs = home.columns["partition_leader_epoch"]
            ordered = longest_ascent(epochs * (len(home) + 1) + np.arange(len(home)))
            rows = np.setdiff1d(np.arange(len(home)), ordered)
            self._epochs[directory] = frozenset(home.place(row)[:2] for row in rows.tolist())
        return self._epochs[directory]

    # --- what was there and is gone ---------------------------------------------------------------------

    def garbage(self, record: WholeRecord) -> str:
        """Why nothing is lost with a batch that is gone; "" where something may be."""
        if record.is_placeholder:
            return "it stands for nothing"
        reason = self._gone_already(record) or self._returned(record) or self._sent_back(record)
        reason = reason or self._mended(record)
        return reason or self._replaced(record) or self._kept_elsewhere(record)

    def may_be_its_own(self, record: WholeRecord) -> bool:
        """Whether a batch that no reader meets may be one of its log: one bit from offsets that are free around it.

        Only in a compacted log, where several such offsets may fit, and where nothing has to take its place.
        """
        home = self.before.home(record.queue)
        if not home.is_thinned or record.file not in home.files:
            return False
        file = home.columns.search("file", number := home.files.index(record.file))
        position = home.columns["position"][file : home.columns.search("file", number, "right")]
        row = file + int(np.searchsorted(position, record.position))
        low = home.columns.value("last_offset", row - 1) + 1 if row else 0
        low = max(low, int(record.file.rpartition("/")[2][:20]))
        return row < len(home) and bool(
            a_bit_off(record.offset, low, home.columns.value("base_offset", row) - record.span)
        )

    def swapped(self, record: WholeRecord) -> str:
        """Whether a clean-up had made a segment that stands for its own, and only had to be finished."""
        partition = self.before.partition(record.queue)
        for file in partition.leftovers if partition is not None else ():
            if file.kind is FileKind.LOG and file.meaning.leftover == ".swap":
                found = self.before.batches(file.name)
                if len(found) and file.base <= record.offset <= int(found["last_offset"].max()):
                    return f"{file.name} stands for it"
        return ""

    def _mended(self, record: WholeRecord) -> str:
        """Whether what a CRC covers of it is in a batch whose frame, which none covers, was put right."""
        home, body = self.after.home(record.queue), message_set.CRC_AT
        data = self.before.bytes_at(record.file, record.position, record.size)
        body = CRC_AT if data[MAGIC_AT] >= 2 else body
        for row in home.of_crc(int.from_bytes(data[body : body + CRC_FROM - CRC_AT], "big")):
            file, position, size = home.place(row)
            if size != record.size:
                continue
            other = self.after.bytes_at(file, position, record.size)
            if other[body:] != data[body:]:
                continue
            first, last = (home.columns.value(name, row) for name in ("base_offset", "last_offset"))
            identity = identity_of(record.queue, other)
            made = replace(record, identity=identity, file=file, position=position, offset=first, span=last - first + 1)
            if self._healed(made, other, record.file):
                return "only its frame was wrong, which is put right"
        return ""

    def _gone_already(self, record: WholeRecord) -> str:
        if record.file.endswith(".deleted"):
            return "the log itself had deleted it"
        return ""

    def _replaced(self, record: WholeRecord) -> str:
        """Whether the log has all its records in other batches.

        A later leader epoch at its offsets proves nothing: a broker cuts what it replaces, or leaves it as
        ``.deleted``, so bytes of an earlier epoch are of another log, or were in place.
        """
        home = self.after.home(record.queue)
        first, last = home.holder(record.offset), home.holder(record.offset + record.span - 1)
        if first is None or last is None or record.span > _MOST_COMPARED:
            return ""
        data = self.before.bytes_at(record.file, record.position, record.size)
        return "all its records are in batches that are kept" if self._holds(home, data, first, last) else ""

    def _was_at_home(self, home: Home, rows: range, directory: str) -> bool:
        """Whether batches of after were those of the log before: what a plan makes replaces nothing."""
        was = self.before.home(directory)
        for row in rows:
            other = was.row(home.columns.value("base_offset", row))
            if other is None or self.before.bytes_at(*was.place(other)) != self.after.bytes_at(*home.place(row)):
                return False
        return True

    def _holds(self, home: Home, data: bytes, first: int, last: int) -> bool:
        try:
            wanted = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records_of_batch(data)]
            there = {
                (r.offset, r.timestamp, r.key, r.value, r.headers)
                for row in range(first, last + 1)
                for r in records_of_batch(self.after.bytes_at(*home.place(row)))
            }
        except DecodeError:
            return False
        return bool(wanted) and there.issuperset(wanted)

    def _kept_elsewhere(self, record: WholeRecord) -> str:
        """Whether a batch that was no part of its log is kept in another: bytes of that were written here."""
        was_read = self.before.home(record.queue).has(record.file, record.position)
        needs_more = was_read and not self._is_strange(record)
        data = self.before.bytes_at(record.file, record.position, record.size)
        for partition in self.after.directory.partitions:
            home = self.after.home(partition.directory)
            row = home.row(record.offset)
            if row is None or (needs_more and partition.directory == record.queue):
                continue
            file, position, size = home.place(row)
            is_there = self.after.bytes_at(file, position, size) == data
            if is_there and (not needs_more or self._is_brought(record, file, position)):
                return f"{partition.directory} has it"
        return ""

    def _is_brought(self, record: WholeRecord, file: str, position: int) -> bool:
        """Whether a batch came with a stretch of another file that begins or ends in what is no batch here.

        Or follows, or leads to, batches in it of whose offsets the log has others: all are of another log. Or it is
        the begin of another segment, whose name is not the one that its file has.

        Args:
            file, position: where the other has it.
        """
        at, end = record.position, record.position + record.size
        reach = min(at, position, _STRETCH)
        here, there = (
            self.before.bytes_at(record.file, at - reach, reach),
            self.after.bytes_at(file, position - reach, reach),
        )
        begin = at - _alike(here[::-1], there[::-1])
        here = self.before.bytes_at(record.file, end, min(_STRETCH, self.before.size(record.file) - end))
        there = self.after.bytes_at(file, position + record.size, min(_STRETCH, self.after.size(file) - position))
        beyond = end + _alike(here, there)
        found = self.before.batches(record.file)
        begins, ends = found["position"], found["position"] + found["size"]
        inside = (begins >= begin) & (ends <= beyond)
        first, last = int(begins[inside].min()), int(ends[inside].max())
        goes_on = (ends == first) & (found["last_offset"] + 1 == found["base_offset"][inside].min())
        goes_on |= (begins == last) & (found["base_offset"] == found["last_offset"][inside].max() + 1)
        if goes_on.any():
            return False
        if self._follows_strange(record, found.columns.take(np.flatnonzero(inside))):
            return True
        if not begin and position == at and not first and not self.before.home(record.queue).is_thinned:
            base = int(found["base_offset"][inside][0])
            if _base_in(record.file) != base == _base_in(file):
                return True
        for low, high in ((begin, first), (last, beyond)):
            is_batch = ((begins < high) & (ends > low)).any()
            if high - low >= LEAST_BESIDE and not is_batch and any(self.before.bytes_at(record.file, low, high - low)):
                return True
        return False

    def _follows_strange(self, record: WholeRecord, beside: Columns) -> bool:
        """Whether a batch is of one run with such as lie before their segment, where the log has others."""
        base, last, position = (beside[name] for name in ("base_offset", "last_offset", "position"))
        run = np.append(0, np.cumsum((base[1:] != last[:-1] + 1) | (position[1:] != (position + beside["size"])[:-1])))
        mine = run == run[int(np.searchsorted(position, record.position))]
        home = self.before.home(record.queue)
        for row in np.flatnonzero(mine & (base < _base_in(record.file))).tolist():
            held = home.holder(int(base[row]))
            place = record.file, int(position[row]), beside.value("size", row)
            if held is None:
                if len(home) and base[row] < home.columns.value("base_offset", 0):
                    return True
            elif self.before.bytes_at(*home.place(held)) != self.before.bytes_at(*place):
                return True
        return False

    def _is_strange(self, record: WholeRecord) -> bool:
        """Whether no batch beside one goes on with its offsets, and the epoch checkpoint denies its leader epoch."""
        home = self.before.home(record.queue)
        row, stored = home.row(record.offset), self.stored_epoch(record)
        if row is None or stored is None or home.columns.value("partition_leader_epoch", row) == stored:
            return False
        return not home.follows[max(row - 1, 0) : row + 1].any()


def _base_in(file: str) -> int:
    """Return the offset in the name of a file; -1 where there is none."""
    base = meaning_of(file.rpartition("/")[2]).base
    return -1 if base is None else base


def _alike(one: bytes, other: bytes) -> int:
    """Return how many bytes are equal from the first on."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size))
    return int(differ[0]) if len(differ) else size


def _overlaps(home: Home, row: int) -> bool:
    """Whether a batch has an offset of the one before it, or of the one after."""
    base, last = (home.columns.value(name, row) for name in ("base_offset", "last_offset"))
    if row and home.columns.value("last_offset", row - 1) >= base:
        return True
    return row + 1 < len(home) and home.columns.value("base_offset", row + 1) <= last


def _found(side: Side, file: str, wanted: bytes) -> Iterator[int]:
    """Yield where some bytes lie in a file."""
    size, at = side.size(file), 0
    while at < size:
        data = side.bytes_at(file, at, _WINDOW + len(wanted) - 1)
        found = data.find(wanted)
        while found >= 0:
            yield at + found
            found = data.find(wanted, found + 1)
        at += _WINDOW


def _burst(one: bytes, other: bytes) -> int:
    """Bytes from the first to the last that differ; very many where the lengths do."""
    if len(one) != len(other):
        return HEADER_SIZE
    rows = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
    return int(rows[-1] - rows[0]) + 1 if len(rows) else 0


def _are_positions(topic: str, data: bytes) -> bool:
    """Whether a batch of an internal topic holds nothing but committed offsets, or whole states of share groups."""
    try:
        taken = [decode_record(topic, record.key, record.value) for record in records_of_batch(data)]
    except DecodeError:
        return False
    meant = _POSITION_TYPES[topic]
    return bool(taken) and all(one and not one.error and one.type in meant and one.value is not None for one in taken)


def _has_records(home: Home, row: int) -> bool:
    is_control = home.columns.value("attributes", row) & Attributes.CONTROL
    return not is_control and home.columns.value("records_count", row) > 0
