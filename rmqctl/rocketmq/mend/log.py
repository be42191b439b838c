"""Steps that mend the log: heal, restore from a replica, bridge, cut; each range by the best way that is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from formats.rocketmq.message import decode_record
from formats.rocketmq.properties import is_closed
from rmqctl.findings import Finding
from rmqctl.repair.edits import Edit, Overwrite, Step
from rmqctl.rocketmq import finding_kinds as kinds
from rmqctl.rocketmq.log_reader import LogReader
from rmqctl.rocketmq.mend.bridge import Bridge, bridge
from rmqctl.rocketmq.mend.changes import changes, zeroed
from rmqctl.rocketmq.mend.claims import LIGHT_QUEUE, Claim, Claims, claims_into
from rmqctl.rocketmq.mend.damage import Gap, LogDamage, setting_of, survey
from rmqctl.rocketmq.mend.fields import Mended, heal_property_crc, mend_properties, with_store_time
from rmqctl.rocketmq.mend.heal import SMALLEST, heal
from rmqctl.rocketmq.mend.placeholder import blank, bodiless
from rmqctl.rocketmq.mend.replica import Replica, Restored
from rmqctl.rocketmq.store import RocketMQStore, StoreFile

_MOST_MOVED = 64
_MOST_SHIFTED = 4
_MOST_STALE = 256 << 20
_PIECE = 1 << 20


class BodyDamage(StrEnum):
    """What becomes of a record whose body only is bad: a placeholder in its place, or the body as it is."""

    PLACEHOLDER = "placeholder"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a gap: a record's place, claimed or not."""

    begin: int
    end: int
    claim: Claim | None


class LogMender:
    """Plans the mending of one store's log.

    Args:
        store: as it is now, earlier steps of the plan included.
        replica: another store of the same broker group.
    """

    def __init__(
        self, store: RocketMQStore, *, replica: Replica | None = None, body_damage: BodyDamage = BodyDamage.PLACEHOLDER
    ) -> None:
        self.store, self.replica, self.body_damage = store, replica, body_damage
        self.damage: LogDamage = survey(store)
        self.claims: Claims = claims_into(store, self.damage.ranges())
        self.log = LogReader(store.log_files)
        self._placed: set[tuple[str, int, int]] = set()
        self._shifted = Counter(
            f.file for found in self.damage.records.values() for f in found if f.kind is kinds.LOG_PHYSICAL_OFFSET
        )

    def steps(self) -> Iterator[Step]:
        """What to do, by offset in the log.

        Raises:
            OSError: a file cannot be read.
        """
        steps = [s for gap in self.damage.gaps for s in self._gap(gap)]
        steps += [self._blank(f) for f in self.damage.blanks]
        steps += self._records()
        steps += [self._stale(f) for f in self.damage.stale]
        yield from sorted(steps, key=_place)

    # --- gaps -----------------------------------------------------------------------------------

    def _gap(self, gap: Gap) -> Iterator[Step]:
        if gap.file.lead:
            yield _left(gap.finding, "the entries of a DLedger log are chained: restore the range from another member")
            return
        pieces = self._pieces(gap)
        healed = {piece: self._healed(gap, piece) for piece in pieces}
        yield from (step for step in healed.values() if step is not None)
        last = max((i for i, piece in enumerate(pieces) if healed[piece]), default=-1)
        for run in _runs([piece for i, piece in enumerate(pieces) if not (gap.is_tail and i > last)], healed):
            yield from self._lost(gap, run)
        if gap.is_tail:
            cut_at = pieces[last].end if last >= 0 else gap.begin
            yield from self._cut(gap, cut_at, [p.claim for p in pieces[last + 1 :] if p.claim])

    def _pieces(self, gap: Gap) -> list[Piece]:
        """The gap divided into the records that it held, as far as anything says it."""
        found: list[Piece] = []
        at, limit = gap.begin, gap.file.base + gap.file.size if gap.is_tail else gap.end
        for claim in self.claims.inside(gap.begin, limit):
            found += self._unclaimed(at, claim.physical)
            found.append(Piece(claim.physical, claim.end, claim))
            at = claim.end
        return found + self._unclaimed(at, gap.end)

    def _unclaimed(self, begin: int, end: int) -> list[Piece]:
        """A stretch that no unit points to: divided where a healed record ends."""
        found = []
        while begin < end:
            stated = int.from_bytes(self.log.read(begin, 4), "big", signed=True)
            inner = SMALLEST <= stated < end - begin and heal(self.log.read(begin, stated), begin) is not None
            stop = begin + stated if inner else end
            found.append(Piece(begin, stop, None))
            begin = stop
        return found

    def _healed(self, gap: Gap, piece: Piece) -> Step | None:
        raw = self.log.read(piece.begin, piece.end - piece.begin)
        healed = heal(raw, piece.begin, piece.claim)
        if healed is None:
            return None
        edits = self._edits(piece.begin, raw, healed.record)
        what = f"heal the record at {piece.begin}: {', '.join(healed.fields) or 'nothing to change'}"
        return Step(gap.finding.kind.id, gap.file.name, what, healed.proof, edits)

    def _lost(self, gap: Gap, run: Sequence[Piece]) -> Iterator[Step]:
        """A run of pieces that nothing heals: from a replica, else bridged."""
        begin, end = run[0].begin, run[-1].end
        restored = self.replica.restore(self.log, begin, end) if self.replica else None
        if restored is not None:
            edits = self._edits(begin, self.log.read(begin, end - begin), restored.data)
            what = f"restore {end - begin} bytes at {begin} from the replica"
            yield Step(gap.finding.kind.id, gap.file.name, what, restored.proof, edits)
            return
        claims = [piece.claim for piece in run if piece.claim]
        loose = self._take_loose(begin, end, claims)
        at_end = gap.ends_file and end == gap.end
        made = bridge(begin, end, claims, loose, gap.setting, at_end=at_end, light=self._light)
        if made is None:
            yield _left(gap.finding, f"{end - begin} bytes at {begin} are too few for any record")
            return
        self._placed |= {(c.topic, c.queue_id, c.queue_offset) for c in made.placed}
        yield self._bridged(gap, begin, end, made)

    def _take_loose(self, begin: int, end: int, claims: Sequence[Claim]) -> list[Claim]:
        """Missing messages of holes that span the range and that no claim of it accounts for."""
        known = {(c.topic, c.queue_id, c.queue_offset) for c in claims}
        taken = []
        for hole in self.damage.holes:
            if hole.after < begin and hole.before >= end:
                for offset in range(hole.first, hole.first + min(hole.count, (end - begin) // SMALLEST)):
                    key = hole.topic, hole.queue_id, offset
                    if key not in known and key not in self._placed:
                        self._placed.add(key)
                        taken.append(Claim(*key, physical=-1, source="hole in the queue offsets of the log"))
        return taken

    def _bridged(self, gap: Gap, begin: int, end: int, made: Bridge) -> Step:
        raw = self.log.read(begin, len(made.data))
        edits = self._edits(begin, raw, made.data)
        if made.ends_file and not made.placed and len(made.data) == len(blank(0)):
            why = f"a later file has data, no queue unit points into the {end - begin} bytes that are left"
            return Step(gap.finding.kind.id, gap.file.name, f"restore the blank record at {begin}", why, edits)
        count = len(made.placed)
        what = f"bridge {end - begin} bytes at {begin} with {count} placeholder{'' if count == 1 else 's'}"
        what += "" if made.placed else " (records that brokers walk over)"
        why = "nothing proves what the bytes were; every other record stays where it is"
        if made.placed:
            why += "; topic, queue and queue offset from " + "; ".join(_sources(made.placed))
        return Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=max(count + len(made.unplaced), 1))

    def _light(self, physical: int) -> list[Claim]:
        return [c for c in self.claims.at(physical) if c.topic.startswith(LIGHT_QUEUE)]

    def _cut(self, gap: Gap, at: int, claims: list[Claim]) -> Iterator[Step]:
        edits = tuple(self._zeroed(gap.file, at - gap.file.base))
        if edits:
            what, why = f"end the log at {at}: zero what follows", f"nothing sound follows: {gap.finding.message}"
            yield Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=len(claims))

    def _zeroed(self, file: StoreFile, start: int) -> Iterator[Overwrite]:
        """Zeros over what is left of a file; its holes are not read."""
        source = file.open()
        try:
            for begin, end in source.data_ranges(start, file.size):
                for at in range(begin, end, _PIECE):
                    yield from zeroed(file.name, at, source.read_at(at, min(_PIECE, end - at)))
        finally:
            source.close()

    # --- records that are whole -------------------------------------------------------------------

    def _records(self) -> Iterator[Step]:
        moved = self._moved()
        for physical in sorted({*self.damage.records, *moved}):
            findings = self.damage.records.get(physical, [])
            yield from self._record(physical, findings, moved.get(physical))

    def _moved(self) -> dict[int, Claim]:
        """Records that say another queue or offset than the one unit that points to them."""
        found = {}
        for missing in self.damage.missing:
            raw_size = missing.end - missing.physical
            own = [
                c
                for c in self.claims.at(missing.physical)
                if c.size == raw_size and not c.topic.startswith(LIGHT_QUEUE)
            ]
            if len(own) == 1 and (own[0].topic, own[0].queue_id, own[0].queue_offset) != (*missing.key, missing.offset):
                found[missing.physical] = own[0]
        return found if len(found) <= _MOST_MOVED else {}

    def _record(self, physical: int, findings: list[Finding], moved: Claim | None) -> Iterator[Step]:
        raw = self.log.record(physical)
        file = self.log.file_of(physical)
        if raw is None or file is None:
            return
        claim = moved or self._own_claim(physical, raw)
        first = findings[0] if findings else None
        shifted = claim is None and self._shifted[file.name] > _MOST_SHIFTED
        if shifted and first and first.kind is kinds.LOG_PHYSICAL_OFFSET:
            yield _left(first, "many records of the file say so: the file may belong elsewhere")
            return
        kind = first.kind.id if first else kinds.LOG_QUEUE_OFFSET.id
        if claim is None and self._is_copy(physical, raw):
            why = "it is a copy of the record at the offset that it states, left behind the end by a cut"
            edits = tuple(zeroed(file.name, physical - file.base, raw))
            yield Step(kind, file.name, f"end the log at {physical}: zero what follows", why, edits)
            return
        healed = heal(raw, physical, claim)
        if healed is None:
            yield from self._bad_body(physical, raw, findings)
        elif healed.record != raw:
            what = f"heal the record at {physical}: {', '.join(healed.fields)}"
            yield Step(kind, file.name, what, healed.proof, self._edits(physical, raw, healed.record))
        else:
            yield from self._unprotected(physical, raw, findings, claim)

    def _unprotected(self, physical: int, raw: bytes, findings: list[Finding], claim: Claim | None) -> Iterator[Step]:
        """What is wrong with a record whose structure and body are sound."""
        for finding in findings:
            mended: Mended | None = None
            if finding.kind is kinds.LOG_PROPERTY_CRC:
                mended = heal_property_crc(raw)
            elif finding.kind is kinds.LOG_PROPERTIES_LOST:
                mended = mend_properties(raw, closed=self._closes_properties(physical))
            elif finding.kind is kinds.LOG_STORE_TIME:
                mended = self._store_time(physical, raw, claim)
            elif finding.kind is kinds.LOG_PHYSICAL_OFFSET:
                continue
            restored = self._restored(physical, raw) if mended is None or not mended.is_exact else None
            if restored is not None:
                what = f"restore the record at {physical} from the replica"
                yield Step(
                    finding.kind.id, finding.file, what, restored.proof, self._edits(physical, raw, restored.data)
                )
            elif mended is not None:
                what = f"{mended.what} (record at {physical})"
                yield Step(finding.kind.id, finding.file, what, mended.why, self._edits(physical, raw, mended.record))
            else:
                yield _left(finding, "nothing else in the store says what the bytes were")
            return

    def _restored(self, physical: int, raw: bytes) -> Restored | None:
        return self.replica.restore(self.log, physical, physical + len(raw)) if self.replica else None

    def _closes_properties(self, physical: int) -> bool:
        """Whether the record behind, or else the first of the log, ends its properties with 0x02."""
        raw = self.log.record(physical)
        beside = self.log.record(physical + len(raw)) if raw else None
        beside = beside or self.log.record(self.log.min_offset)
        return beside is not None and is_closed(beside)

    def _store_time(self, physical: int, raw: bytes, claim: Claim | None) -> Mended | None:
        """The true store time where a unit tells it; for a time of zero, which harms recovery, that of a neighbour."""
        fields: dict[str, Any] = decode_record(raw)[0]
        if claim is not None and claim.store_timestamp is not None:
            if claim.store_timestamp == fields["store_timestamp"]:
                return None
            record = with_store_time(raw, claim.store_timestamp)
            return Mended(record, "put the store time right", f"{claim.source} has it", is_exact=True)
        if fields["store_timestamp"]:
            return None
        time = self.log.store_timestamp(physical + len(raw)) or self.damage.last_time or fields["born_timestamp"]
        why = "zero makes recovery pass over the file; the true time lies between those of the records beside it"
        return Mended(with_store_time(raw, time), f"set the store time to {time}", why, is_exact=False)

    def _is_copy(self, physical: int, raw: bytes) -> bool:
        """Whether the last record of the log is an old one whose original lies where it says."""
        stated = int.from_bytes(raw[28:36], "big", signed=True)
        return physical + len(raw) == self.damage.end and stated != physical and self.log.record(stated) == raw

    def _own_claim(self, physical: int, raw: bytes) -> Claim | None:
        """The one unit that points to a record and has its size."""
        own = [c for c in self.claims.at(physical) if c.size == len(raw) and not c.topic.startswith(LIGHT_QUEUE)]
        return own[0] if len(own) == 1 else None

    def _bad_body(self, physical: int, raw: bytes, findings: list[Finding]) -> Iterator[Step]:
        bad = next((f for f in findings if f.kind is kinds.LOG_BODY_CRC), None)
        if bad is None:
            return
        restored = self._restored(physical, raw)
        if restored is not None:
            edits = self._edits(physical, raw, restored.data)
            yield Step(
                bad.kind.id, bad.file, f"restore the record at {physical} from the replica", restored.proof, edits
            )
            return
        yield self._body_policy(bad, physical, raw)

    def _body_policy(self, bad: Finding, physical: int, raw: bytes) -> Step:
        why = f"{bad.message}: no single correction explains it"
        if self.body_damage is BodyDamage.ACCEPT:
            from rmqctl.rocketmq.crc import MASK, crc32

            fields, _ = decode_record(raw)
            right = (crc32(fields["body"]) & MASK).to_bytes(4, "big")
            edits = self._edits(physical + 8, raw[8:12], right)
            return Step(bad.kind.id, bad.file, f"accept the body at {physical} as it is: new CRC", why, edits, loses=1)
        record = self._bodiless(physical, raw)
        if record is None:
            return _left(bad, why)
        what = f"replace the body of the record at {physical} by a placeholder"
        return Step(bad.kind.id, bad.file, what, why, self._edits(physical, raw, record), loses=1)

    def _bodiless(self, physical: int, raw: bytes) -> bytes | None:
        fields: dict[str, Any] = decode_record(raw)[0]
        setting = setting_of(raw)
        properties = fields["properties"][:-20] if setting.property_crc else fields["properties"]
        return bodiless(fields, len(raw), properties, setting)

    # --- small things -----------------------------------------------------------------------------

    def _blank(self, finding: Finding) -> Step:
        file = self.log.file_of(finding.physical_offset or 0)
        assert file is not None
        assert finding.physical_offset is not None
        right = blank(file.size - finding.offset)
        raw = self.log.read(finding.physical_offset, len(right))
        what = f"put the size of the blank record at {finding.physical_offset} right"
        return Step(
            finding.kind.id,
            file.name,
            what,
            "the file's length says it",
            self._edits(finding.physical_offset, raw, right),
        )

    def _stale(self, finding: Finding) -> Step:
        file = next(f for f in self.store.log_files if f.name == finding.file)
        source = file.open()
        size = sum(end - begin for begin, end in source.data_ranges(finding.offset, file.size))
        source.close()
        if size > _MOST_STALE:
            return _left(finding, f"{size:,} bytes: brokers write over them in time")
        edits = tuple(self._zeroed(file, finding.offset))
        what = f"zero what lies behind the end of the log at {file.base + finding.offset}"
        return Step(finding.kind.id, file.name, what, finding.message, edits)

    def _edits(self, physical: int, before: bytes, after: bytes) -> tuple[Edit, ...]:
        file = self.log.file_of(physical)
        assert file is not None
        assert len(before) >= len(after)
        return tuple(changes(file.name, physical - file.base, before[: len(after)], after))


def _runs(pieces: Sequence[Piece], healed: dict[Piece, Step | None]) -> Iterator[list[Piece]]:
    """Neighbouring pieces that were not healed."""
    run: list[Piece] = []
    for piece in pieces:
        if healed[piece] is None:
            run.append(piece)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _left(finding: Finding, why: str) -> Step:
    """A step that changes nothing: what is wrong and why it stays."""
    return Step(finding.kind.id, finding.file, f"left as it is: {finding.message}", why)


def _sources(claims: Sequence[Claim]) -> list[str]:
    """Where placeholders have their places from, the first few."""
    named = [c.source for c in claims[:3]]
    return [*named, f"and {len(claims) - 3} more"] if len(claims) > 3 else named


def _place(step: Step) -> tuple[str, int]:
    """Where in the log a step works."""
    first = next((e for e in step.edits if isinstance(e, Overwrite)), None)
    return step.file.rpartition("/")[2], first.offset if first else -1
