"""Healing of batches: wrong bits read off the CRC, and the fields before the CRC from their neighbours.

Base offset, length, leader epoch and magic stand outside the CRC-32C. A length or magic is right if the CRC then
matches; an offset or epoch if it is the only one that fits between the batches around it. Nothing else is accepted.
Batches are also looked for whose bytes before the CRC are gone or are others: the CRC proves the rest of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from zlib import crc32

import numpy as np
from crc32c import crc32c

from formats.errors import DecodeError
from formats.kafka import message_set
from formats.kafka.checkpoint import LeaderEpoch
from formats.kafka.record_batch import (
    CRC_AT,
    CRC_FROM,
    FRAME_HEAD,
    HEADER_SIZE,
    LENGTH_AT,
    MAGIC_AT,
    Attributes,
    header_plan,
)
from rmqctl.kafka.directory.directory import Partition, Segment
from rmqctl.kafka.findings.log import BATCH_BASE_OFFSET, BATCH_LEADER_EPOCH, BATCH_OFFSET_ORDER
from rmqctl.kafka.log.block import INT_MAX
from rmqctl.kafka.log.indexes import read_offset_index
from rmqctl.kafka.log.legacy import offsets_inside
from rmqctl.kafka.log.records import records_in
from rmqctl.kafka.log.reference import records_of_batch
from rmqctl.kafka.log.scan import Extent, whole_in
from rmqctl.kafka.repair.log import Filling, LogMender
from rmqctl.kafka.repair.survey import (
    Batch,
    Damage,
    Range,
    Survey,
    a_bit_off,
    has_epoch,
    header_of,
    is_in_sequence,
    may_go_on,
    segment_of,
)
from rmqctl.kafka.state.partition_state import PartitionLog, proof_of_end
from rmqctl.kafka.verify.splits import headers_of
from rmqctl.repair.crc_correction import CRC32, CRC32C, Crc, diagnose
from rmqctl.repair.edits import Step, changes

MAGIC = 2
_BATCH_CRC = Crc(CRC32C, crc32c)
_MESSAGE_CRC = Crc(CRC32, crc32)
_HEADER = header_plan().runs[0]
_FRAME = _HEADER.only("base_offset", "batch_length", "partition_leader_epoch", "magic")
_AFTER_CRC = {f.name: f.offset - CRC_AT for f in _HEADER.fields if f.offset > CRC_AT}
"""Where the fields after the CRC stand, from its first byte on."""
_TELLING = "max_timestamp", "producer_id", "base_sequence", "records_count"
"""Fields under the CRC in which batches of one size are hardly alike."""
_MOST = 128 << 20
"""Bytes of a batch that is looked at whole."""
_MOST_SEARCHED, _MOST_ENDS, _MOST_CHECKED = 32 << 20, 8, 64
"""Of a range in which bodies are looked for: its bytes; the ends that are tried for each; how often a byte is read."""
INT64_MAX = (1 << 63) - 1
_WRONG_BITS = 4
"""Bits of length and magic that may be wrong where base offset and epoch are still believed."""


@dataclass(frozen=True, slots=True)
class Healed:
    """Bytes that prove themselves, and what was done to the damaged ones."""

    data: bytes
    what: str
    why: str


class Healer:
    """Heals the batches of one partition.

    Args:
        epochs: of the leader-epoch-checkpoint, empty where it cannot be trusted.
        compacted: offsets may be missing between batches, whatever the log looks like.
        log: with what lies beside it, which may know the offsets of its last batch; None: nothing does.
    """

    def __init__(
        self, survey: Survey, epochs: tuple[LeaderEpoch, ...], *, compacted: bool, log: PartitionLog | None = None
    ) -> None:
        self.survey, self.epochs, self.compacted = survey, epochs, compacted or survey.misses_offsets
        self.log = log
        self._has_old = bool((survey.columns["magic"] == 0).any())

    def steps(self, mender: LogMender) -> Iterator[Step]:
        """One step for each batch that can be healed.

        Batches without their first bytes wait until nothing else in their file is healed: what makes room for those
        bytes writes the file again.

        Args:
            mender: of the same survey, which puts bytes in place.
        """
        busy = set[int]()
        for damage in self.survey.damages:
            if damage.is_room or damage.is_copy or damage.end - damage.begin > _MOST:
                continue
            raw = self.survey.raw(damage.segment, damage.begin, damage.end)
            healed = self.heal(damage, raw)
            if healed is not None and healed.data != raw:
                busy.add(damage.segment)
                name = self.survey.files[damage.segment].name
                made = mender.timed(name, changes(name, damage.begin, raw, healed.data))
                yield Step(damage.kind.id, name, f"heal the batch at {damage.begin}: {healed.what}", healed.why, made)
        fillings = defaultdict[int, list[Filling]](list)
        for lost in self.survey.ranges():
            if lost.segment in busy or lost.size > _MOST_SEARCHED:
                continue
            if steps := list(self._messages(lost, mender)):
                yield from steps
                busy.add(lost.segment)
            elif not any(part.frame_ok for part in lost.parts):
                fillings[lost.segment] += self._heads(lost)
        for segment, found in fillings.items():
            if segment not in busy:
                yield from mender.placed(segment, found)

    def _messages(self, lost: Range, mender: LogMender) -> Iterator[Step]:
        """Heal messages of magic 0 that lie whole in what cannot be followed, and have no offset of the log.

        Their CRC does not cover the offset, but those inside, which state it, too.
        """
        file, end = self.survey.files[lost.segment], lost.begin
        if not self._has_old:
            return
        for part in lost.parts:
            if part.frame_ok or part.is_room or part.is_copy:
                continue
            with closing(file.open()) as source:
                found = whole_in(source, Extent(file.name, start=max(part.begin, end), stop=part.end))
            fits = (found.magic == 0) & (found.position + found.size <= lost.end)
            headers = headers_of(found.take(fits), records=False)
            for row in range(len(headers)):
                stated = header_of(lost.segment, headers, row)
                raw = self.survey.raw(lost.segment, stated.position, stated.end)
                inside = offsets_inside(raw)
                if stated.position < end or inside is None or inside[1] == stated.last_offset:
                    continue
                damage = replace(part, begin=stated.position, end=stated.end, stated=stated, frame_ok=True)
                healed = None if self.survey.twin_of(stated) is not None else self._offset_of_message(raw, damage)
                if healed is not None:
                    end = stated.end
                    made = mender.timed(file.name, changes(file.name, stated.position, raw, healed.data))
                    what = f"heal the batch at {stated.position}: {healed.what}"
                    yield Step(part.kind.id, file.name, what, healed.why, made)

    def heal(self, damage: Damage, raw: bytes) -> Healed | None:
        """Return the batch that stood in the place of some damage, where that can be proven."""
        if damage.frame_ok and raw[MAGIC_AT] < MAGIC:
            return None if self._is_double(damage) else self._offset_of_message(raw, damage)
        if damage.frame_ok:
            healed = None if self._is_double(damage) else self._frame(raw, damage)
            return healed if healed is None or self._is_own(raw, healed.data, damage) else None
        return self._framed(raw, damage) or self._bits(raw, damage)

    def _is_double(self, damage: Damage) -> bool:
        """Whether the log has the same batch once more, in its place: then this one is too many."""
        is_out_of_order = damage.kind in {BATCH_OFFSET_ORDER, BATCH_BASE_OFFSET}
        return is_out_of_order and damage.stated is not None and self.survey.twin_of(damage.stated) is not None

    def _is_own(self, raw: bytes, healed: bytes, damage: Damage) -> bool:
        """Whether a whole batch is one of this log whose frame was damaged, and not one that belongs elsewhere.

        One bit is damage, unless another partition has the very batch, or misses its offsets while destroyed bytes part
        it from those around it. With more, the length between base offset and
        epoch speaks against damage to both, so do batches beside it that go on with its offsets, and a partition that
        has it, or misses just its offsets.
        """
        (was, _, epoch, _), (right, _, fixed, _) = _FRAME.unpack_from(raw), _FRAME.unpack_from(healed)
        stated = damage.stated
        if was == right or was < 0 or stated is None:
            return True
        others = self._partitions()
        if (was ^ right).bit_count() == 1:
            return not self._is_anothers(stated, raw, damage)
        if epoch != fixed:
            return False
        for other in self.survey.damages:
            if other.frame_ok and other.stated is not None and other.segment == damage.segment:
                follows = other.begin == damage.end and other.stated.base_offset == stated.last_offset + 1
                precedes = other.end == damage.begin and other.stated.last_offset + 1 == stated.base_offset
                if follows or precedes:
                    return False
        return not any(self._is_of(other, stated, raw) for other in others)

    def _partitions(self) -> Sequence[Partition]:
        """Return all partitions beside the log, and its own."""
        return [] if self.log is None else self.log.directory.partitions

    def _is_anothers(self, stated: Batch, raw: bytes, damage: Damage) -> bool:
        """Whether another partition has a batch, or misses its offsets where it lies alone among destroyed bytes."""
        is_alone = self._is_alone(damage)
        return any(self._is_of(other, stated, raw, misses=is_alone) for other in self._partitions())

    def _is_alone(self, damage: Damage) -> bool:
        """Whether bytes that are no sound batch lie on both sides of a whole one."""
        before, after = self.survey.around(damage.segment, damage.begin)
        is_first = before is None or before.segment != damage.segment
        is_last = after is None or after.segment != damage.segment
        if is_first or is_last or before is None or after is None:
            return False
        return before.end < damage.begin and damage.end < after.position

    def _is_of(self, other: Partition, stated: Batch, raw: bytes, *, misses: bool = True) -> bool:
        """Whether another partition has a batch, or misses its offsets between others."""
        is_own = other.directory == self.survey.partition.directory
        found = None if is_own else segment_of(other, stated.base_offset)
        if found is None:
            return False
        at = int(np.searchsorted(np.maximum.accumulate(found.columns["last_offset"]), stated.base_offset))
        if at == len(found):  # or it went on with just this one, if all that came there is gone
            is_next = at > 0 and found.batch(at - 1).last_offset + 1 == stated.base_offset
            return misses and is_next and may_go_on(found, raw)
        beside = found.batch(at)
        if beside.base_offset == stated.base_offset and beside.size == stated.size:
            return found.bytes_of(beside) == raw
        return misses and beside.base_offset == stated.last_offset + 1 and found.files[0].base <= stated.base_offset

    # --- outside the CRC ------------------------------------------------------------------------------

    def _framed(self, raw: bytes, damage: Damage) -> Healed | None:
        """Return the batch if its CRC matches with these bytes as all of it: then only its frame was damaged."""
        if len(raw) < HEADER_SIZE:
            return None
        stored = int.from_bytes(raw[CRC_AT:CRC_FROM], "big")
        if crc32c(memoryview(raw)[CRC_FROM:]) != stored:
            return None
        return self._frame(raw, damage)

    def _frame(self, raw: bytes, damage: Damage, lacks: int = 0) -> Healed | None:
        """Return a batch whose CRC matches, with a frame that fits between its neighbours.

        Args:
            lacks: bytes that are gone before it, and other batches perhaps with them.
        """
        offset, length, epoch, magic = _FRAME.unpack_from(raw)
        delta = int(header_plan().unpack_from(raw)[0]["last_offset_delta"])
        size = len(raw) - FRAME_HEAD
        wrong = ((length ^ size) & 0xFFFFFFFF).bit_count() + ((magic ^ MAGIC) & 0xFF).bit_count()
        is_believed = wrong <= _WRONG_BITS and any(raw[:FRAME_HEAD])
        right, because = self._offset(offset if is_believed else None, delta, damage, lacks)
        if right is None or delta < 0:
            return None
        has_epoch = is_believed or 0 < lacks <= FRAME_HEAD
        fields = (right, size, self._epoch(epoch if has_epoch else None, right, damage), MAGIC)
        healed = _FRAME.pack(*fields) + raw[CRC_AT:]
        if not _is_readable(healed) or (offset != right and not self._goes_on(healed, damage)):
            return None
        names = ("base offset", "length", "leader epoch", "magic")
        found = [
            f"{name} {wrong} -> {fixed}"
            for name, wrong, fixed in zip(names, (offset, length, epoch, magic), fields, strict=True)
            if wrong != fixed
        ]
        return Healed(healed, ", ".join(found), f"the CRC matches, its records can be read, and {because}")

    def _offset_of_message(self, raw: bytes, damage: Damage) -> Healed | None:
        """Return a message of magic 0 or 1, whose CRC matches, with the only offset between its neighbours' a bit off.

        The offset is that of the last message inside; of those inside magic 0 states each, which are to agree with it.
        The last message of a log goes on with the offset after the one before it, if none may be missing there.
        """
        before, after = self.survey.around(damage.segment, damage.begin)
        stated, base = damage.stated, self.survey.files[damage.segment].base
        if stated is None or self._is_anothers(stated, raw, damage):
            return None
        low = max(base, before.last_offset + 1) if before is not None else base
        was = int.from_bytes(raw[:LENGTH_AT], "big", signed=True)
        inside = offsets_inside(raw)
        if inside is not None and inside[1] != was:
            if inside[0] < low or (after is not None and inside[1] >= after.base_offset):
                return None
            why = "the CRC matches, and covers the offset of the last message inside"
            return Healed(_at_offset(raw, inside[1]), f"offset {was} -> {inside[1]}", why)
        if after is None and self.compacted:
            return None
        fits = messages_near(raw, low, None if after is None else after.base_offset - 1)
        if len(fits) != 1:
            return None
        room = (
            f"of the offsets {low} to {after.base_offset - 1}" if after is not None else f"of those that begin at {low}"
        )
        why = f"the CRC matches; {room} only this is one bit from {was}"
        return Healed(_at_offset(raw, fits[0]), f"offset {was} -> {fits[0]}", why)

    def _goes_on(self, healed: bytes, damage: Damage) -> bool:
        """Whether the sequence numbers of a batch are those that its producer had reached there."""
        row = self.survey.row_from(damage.segment, damage.begin)
        return is_in_sequence(healed, self.survey.columns, row, row)

    def _offset(self, stated: int | None, delta: int, damage: Damage, lacks: int) -> tuple[int | None, str]:
        """Return the base offset: as stated where that fits and nothing is against it, else the only one that does.

        With it comes what proves it.

        Args:
            stated: None where what stands there is not believed.
        """
        base = self.survey.files[damage.segment].base
        before, after = self.survey.around(damage.segment, damage.begin)
        low = max(base, before.last_offset + 1) if before is not None else base
        high = after.base_offset - 1 - delta if after is not None else None
        is_first = before is None or before.segment != damage.segment
        skipped = damage.begin - (0 if is_first or before is None else before.end)
        follows = not lacks and 0 <= skipped < LENGTH_AT  # bytes put into its base offset leave so many before it
        precedes = after is not None and self._touch(damage, after)
        is_next = not self.compacted and follows != precedes and (follows or high is not None)
        is_blamed = damage.kind in {BATCH_OFFSET_ORDER, BATCH_BASE_OFFSET}
        if stated == 0 and not follows:
            stated = None  # as zeros leave it, and bytes that are gone
        fits = stated is not None and stated >= low and (high is None or stated <= high)
        because = "the batches around it leave room for nothing else"
        if fits and not is_blamed and (damage.stated is not None or not is_next):
            return stated, because
        if high is not None and high <= low:
            return low if low == high else None, because
        if is_next:
            return low if follows else high, because
        if high is None:
            breaks = stated is None or not low <= stated <= base + INT_MAX - delta or (stated ^ low).bit_count() == 1
            proof = self._proof_of_end(low + delta, damage) if follows and is_blamed and breaks else ""
            return low if proof else None, f"the batch before it and {proof} leave room for nothing else"
        indexed = self._indexed(damage, delta) if precedes and not lacks else None
        if indexed is not None and low <= indexed <= high:
            return indexed, f"the offset index leads to it with {indexed + delta}, and the next batch begins after that"
        goes_on = damage.stated is None or _is_in_time(before, damage.stated, after)
        near = a_bit_off(stated, low, high) if stated is not None and not lacks and goes_on else []
        if len(near) > 1 and damage.stated is not None:
            near = [one for one in near if has_epoch(replace(damage.stated, base_offset=one), self.epochs)]
        found = near[0] if len(near) == 1 else None
        return found, f"of the offsets {low} to {high}, for which there is room, only this is one bit from {stated}"

    def _proof_of_end(self, last: int, damage: Damage) -> str:
        """Return what beside the log proves that the last batch, if damaged, ends with an offset; empty for nothing."""
        if self.log is None:
            return ""
        epoch = INT_MAX if damage.stated is None else damage.stated.epoch
        return proof_of_end(self.log, self._segment(damage), damage.begin, last, epoch)

    def _segment(self, damage: Damage) -> Segment:
        file = self.survey.files[damage.segment]
        return next(segment for segment in self.survey.partition.segments if segment.log is file)

    def _indexed(self, damage: Damage, delta: int) -> int | None:
        """Return the base offset of a batch that ends as the entry of the offset index that leads to it says.

        It is the last offset of all batches that were appended with it: where the next one begins later, of it alone.
        """
        segment = self._segment(damage)
        if segment.offset_index is None:
            return None
        with closing(segment.offset_index.open()) as source:
            index = read_offset_index(source)
        found = index.offsets(segment.base)[index.positions == damage.begin].tolist()
        return found[0] - delta if len(found) == 1 else None

    def _touch(self, damage: Damage, after: Batch) -> bool:
        """Whether some damage ends where the next batch begins, if only in the next segment."""
        if after.segment == damage.segment:
            return after.position == damage.end
        ends = after.segment == damage.segment + 1 and damage.end == self.survey.files[damage.segment].size
        return ends and after.position == 0 and after.base_offset == self.survey.files[after.segment].base

    def _epoch(self, stated: int | None, offset: int, damage: Damage) -> int:
        """Return the leader epoch: as stated where that fits, else that of the checkpoint, of the neighbours."""
        before, after = self.survey.around(damage.segment, damage.begin)
        low = before.epoch if before is not None and before.magic >= MAGIC else -1
        high = after.epoch if after is not None and after.magic >= MAGIC else None
        is_blamed = stated is None or damage.kind is BATCH_LEADER_EPOCH
        if stated is not None and not is_blamed and low <= stated and (high is None or stated <= high):
            return stated
        known = max((entry.epoch for entry in self.epochs if entry.start_offset <= offset), default=-1)
        fitting = [c for c in (known, low, high) if c is not None and c >= max(low, 0) and (high is None or c <= high)]
        return fitting[0] if fitting else max(low, -1)

    def _heads(self, lost: Range) -> Iterator[Filling]:
        """Yield first bytes for the batches of a range that have all others, in order."""
        raw = self.survey.raw(lost.segment, lost.begin, lost.end)
        done, copies = 0, [range(part.begin, part.end) for part in lost.parts if part.is_copy]
        found = list(bodies(raw, lost.count or INT_MAX))
        whole = {at: one for at, end in found if (one := _whole(raw, at, end, lost.segment)) is not None}
        for at, end in found:
            if at < done or any(lost.begin + at in copy for copy in copies):
                continue
            begin = max(at - CRC_AT, done)
            part = replace(lost.parts[0], begin=lost.begin + begin, end=lost.begin + end, stated=None)
            head, body = raw[begin:at].rjust(CRC_AT, b"\0"), raw[at:end]
            healed = self._frame(head + body, part, lacks=CRC_AT - (at - begin))
            if healed is None or self._has(body):
                continue
            head = healed.data[:CRC_AT]
            offset = _FRAME.unpack_from(head)[0]
            if at in whole and offset != whole[at].base_offset and self._is_run(whole[at], raw, [*whole.values()]):
                continue
            done = end
            what = f"write the first {CRC_AT} bytes of the batch at {part.begin} again, offset {offset}"
            if head != raw[begin:at]:
                place = replace(lost, begin=part.begin, end=lost.begin + at, parts=(part,))
                yield Filling(place, head, what, healed.why)

    def _is_run(self, batch: Batch, raw: bytes, others: Sequence[Batch]) -> bool:
        """Whether a whole batch, by its frame too, is of another log: one beside it goes on, or a partition has it."""
        for one in others:
            if one.end == batch.position and one.last_offset + 1 == batch.base_offset:
                return True
            if batch.end == one.position and batch.last_offset + 1 == one.base_offset:
                return True
        data = raw[batch.position : batch.end]
        partitions = self._partitions()
        return any(self._is_of(other, batch, data, misses=False) for other in partitions)

    def _has(self, body: bytes) -> bool:
        """Whether a sound batch has these bytes from its CRC on: then they stand in the log twice."""
        head, columns = header_plan().unpack_from(bytes(CRC_AT) + body)[0], self.survey.columns
        same = columns["size"] == CRC_AT + len(body)
        for name in _TELLING:
            if same.any():
                same &= columns[name] == head[name]
        batches = self.survey.batches(np.flatnonzero(same))
        return any(self.survey.bytes_of(batch)[CRC_AT:] == body for batch in batches)

    # --- under the CRC --------------------------------------------------------------------------------

    def _bits(self, raw: bytes, damage: Damage) -> Healed | None:
        """Return the batch with the bits put right that its CRC names."""
        if damage.stated is None or len(raw) < message_set.OVERHEAD[0]:
            return None
        is_old = raw[MAGIC_AT] in (0, 1)
        crc_at, begin = (message_set.CRC_AT, message_set.CRC_FROM) if is_old else (CRC_AT, CRC_FROM)
        crc = _MESSAGE_CRC if is_old else _BATCH_CRC
        if not is_old and len(raw) < HEADER_SIZE:
            return None
        stored = int.from_bytes(raw[crc_at:begin], "big")
        found = diagnose(raw[begin:], stored, crc)
        if found.correction is None:
            return None
        healed, at = bytearray(raw), begin + found.correction.at if found.correction.at >= 0 else crc_at
        for number, bits in enumerate(found.correction.pattern):
            healed[at + number] ^= bits
        data = bytes(healed)
        if is_old:
            return Healed(data, _spans(found.correction.span, at), found.odds) if _is_readable(data) else None
        framed = self._frame(data, damage)
        if framed is None or framed.data != data:
            return None
        return Healed(data, _spans(found.correction.span, at), found.odds)


def messages_near(raw: bytes, low: int, high: int | None) -> list[int]:
    """Return the offsets, one bit from its own, at which a message of magic 0 or 1 and those inside have room.

    Args:
        low: the least offset of the first message inside.
        high: the largest of the last; None: there is no bound, and the first has to have the least.
    """
    was, found = int.from_bytes(raw[:LENGTH_AT], "big", signed=True), list[int]()
    for offset in a_bit_off(was, low, INT64_MAX if high is None else high):
        try:
            inside = [one.offset for one in records_of_batch(_at_offset(raw, offset))]
        except DecodeError:
            continue
        if inside and inside[-1] == offset and (inside[0] >= low if high is not None else inside[0] == low):
            found.append(offset)
    return found


def _whole(raw: bytes, at: int, end: int, segment: int) -> Batch | None:
    """Return the batch whose CRC is at a place, and which ends at another, if its length and magic are right, too."""
    begin = at - CRC_AT
    if begin < 0:
        return None
    head = header_plan().unpack_from(raw[begin : begin + HEADER_SIZE])[0]
    if head["batch_length"] != end - begin - FRAME_HEAD or head["magic"] != MAGIC or head["base_offset"] < 0:
        return None
    names = (
        "partition_leader_epoch", "attributes", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
        "records_count",
    )  # fmt: skip
    base, last = head["base_offset"], head["base_offset"] + head["last_offset_delta"]
    return Batch(segment, begin, end - begin, MAGIC, base, last, *(head[name] for name in names))


def _at_offset(raw: bytes, offset: int) -> bytes:
    return offset.to_bytes(LENGTH_AT, "big") + raw[LENGTH_AT:]


def bodies(raw: bytes, most: int) -> Iterator[tuple[int, int]]:
    """Yield what proves to be a batch from its CRC on, whatever stands before: the place of the CRC, and the end.

    Args:
        most: offsets that one may have.
    """
    size, under = HEADER_SIZE - CRC_AT, CRC_FROM - CRC_AT
    data = np.frombuffer(raw, np.uint8)
    count = len(data) - size + 1
    if count <= 0:
        return
    bytes_ = [data[n : n + count] for n in range(_AFTER_CRC["last_offset_delta"] + 1)]
    may = (bytes_[4] == 0) & (bytes_[5] < 0x80) & (bytes_[6] < 0x80)
    may &= (bytes_[0] | bytes_[1] | bytes_[2] | bytes_[3]) != 0
    places = np.flatnonzero(may)
    delta, records = (_ints(data, places + at) for at in (_AFTER_CRC["last_offset_delta"], _AFTER_CRC["records_count"]))
    fits = (delta < most) & (records >= 0) & (records <= delta + 1)
    for name in ("base_timestamp", "max_timestamp", "producer_id"):  # none is near 2**63
        at = _AFTER_CRC[name]
        fits &= (data[places + at] == 0) | (data[places + at] == 0xFF)
    places, records = places[fits], records[fits]
    view, left = memoryview(raw), _MOST_CHECKED * len(raw)
    for number, (at, held) in enumerate(zip(places.tolist(), records.tolist(), strict=True)):
        near = (places[number + 1 : number + 1 + 4 * _MOST_ENDS] - CRC_AT).tolist()
        ends = [end for end in near if end > at + size][:_MOST_ENDS] if held else [at + size]
        stored = int.from_bytes(raw[at : at + under], "big")
        computed, done = 0, at + under
        for end in sorted({*ends, len(raw)}) if held else ends:
            computed = crc32c(view[done:end], computed)
            left -= end - done
            done = end
            if computed == stored:
                yield at, end
                break
        if left < 0:
            return


def _ints(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Big-endian int32 at some places."""
    found = np.zeros(len(at), np.int64)
    for number in range(4):
        found = found << 8 | data[at + number]
    return found - (found >> 31 << 32)


def _spans(span: int, at: int) -> str:
    what = "a bit" if span == 1 else f"a burst of {span} bits"
    return f"{what} at its byte {at}"


def _is_in_time(before: Batch | None, batch: Batch, after: Batch | None) -> bool:
    """Whether the times of a batch and its neighbours ascend; markers have that of a broker, which says nothing."""
    beside = [one for one in (before, batch, after) if one is not None and not one.attributes & Attributes.CONTROL]
    times = [one.max_timestamp for one in beside if one.max_timestamp >= 0]
    return times == sorted(times)


def _is_readable(batch: bytes) -> bool:
    """Whether the records of a batch are those that its header announces."""
    is_old, number, last = batch[MAGIC_AT] < MAGIC, 0, -1
    for records in records_in(batch):
        if records.failures:
            return False
        number += len(records)
        if is_old or not len(records):
            continue
        offsets, (high,) = np.concatenate([[last], records.offset]), records.block["last_offset"]
        if number == len(records):
            offsets = offsets[1:]
        if offsets[0] < records.block["base_offset"][0] or offsets[-1] > high or (np.diff(offsets) <= 0).any():
            return False
        last = int(offsets[-1])
    return bool(number) if is_old else True


def stored_epochs(log: PartitionLog) -> tuple[LeaderEpoch, ...]:
    """Return the entries of the leader-epoch-checkpoint of a log if it can be read and they ascend; none else."""
    found = () if log.leader_epochs.problems else tuple(log.leader_epochs.entries)
    ascend = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(found))
    return found if ascend and not log.partition.is_metadata_log else ()
