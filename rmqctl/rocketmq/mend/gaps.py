"""Ranges of the log that hold no record: healed, taken from a replica, bridged, or cut where nothing sound follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from formats.rocketmq.message import Magic
from rmqctl.repair.edits import Step
from rmqctl.rocketmq.mend.bridge import Bridge, bridge
from rmqctl.rocketmq.mend.claims import LIGHT_QUEUE, Claim
from rmqctl.rocketmq.mend.damage import Gap
from rmqctl.rocketmq.mend.heal import SMALLEST, heal
from rmqctl.rocketmq.mend.mending import Mending, left
from rmqctl.rocketmq.mend.placeholder import blank
from rmqctl.text import number_of

_MAGICS = tuple(int(m).to_bytes(4, "big", signed=True) for m in (Magic.MESSAGE_V1, Magic.MESSAGE_V2))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a gap: a record's place, claimed or not."""

    begin: int
    end: int
    claim: Claim | None


class GapMender:
    """Decides for each gap, and for each record that it held, which way is taken."""

    def __init__(self, mending: Mending) -> None:
        self.mending = mending
        self._placed: set[tuple[str, int, int]] = set()

    def steps(self, gap: Gap) -> Iterator[Step]:
        """What to do about one gap.

        Raises:
            OSError: the log cannot be read.
        """
        pieces = self._entries(gap) if gap.file.lead else self._pieces(gap)
        if gap.file.lead and (gap.is_tail or not pieces):
            yield left(
                gap.finding, "DLedger itself mends its last entries, and entry headers come from another member only"
            )
            return
        healed = {piece: self._healed(gap, piece) for piece in pieces}
        yield from (step for step in healed.values() if step is not None)
        last = max((i for i, piece in enumerate(pieces) if healed[piece]), default=-1)
        lost = [piece for i, piece in enumerate(pieces) if not healed[piece] and not (gap.is_tail and i > last)]
        for run in _runs(lost):
            yield from self._lost(gap, run)
        if gap.is_tail:
            cut_at = pieces[last].end if last >= 0 else gap.begin
            yield from self._cut(gap, cut_at, [p.claim for p in pieces[last + 1 :] if p.claim])

    def _pieces(self, gap: Gap) -> list[Piece]:
        """The gap divided into the records that it held, as far as anything says it."""
        found: list[Piece] = []
        at, limit = gap.begin, gap.file.base + gap.file.size if gap.is_tail else gap.end
        for claim in self.mending.claims.inside(gap.begin, limit):
            found += self._unclaimed(at, claim.physical)
            found.append(Piece(claim.physical, claim.end, claim))
            at = claim.end
        return found + self._unclaimed(at, gap.end)

    def _entries(self, gap: Gap) -> list[Piece]:
        """The records of DLedger entries whose headers are sound; none if the headers do not lead through the gap."""
        found: list[Piece] = []
        at, lead = gap.begin, gap.file.lead
        while at < gap.end:
            header = self.mending.log.read(at, lead)
            size, place = int.from_bytes(header[4:8], "big"), int.from_bytes(header[24:32], "big")
            if place != at or not lead + SMALLEST <= size <= gap.end - at:
                return []
            own = [c for c in self.mending.claims.at(at + lead) if c.size == size - lead]
            found.append(Piece(at + lead, at + size, own[0] if own else None))
            at += size
        return found

    def _unclaimed(self, begin: int, end: int) -> list[Piece]:
        """A stretch that no unit points to: divided where a healed record ends."""
        found = []
        while begin < end:
            stated = int.from_bytes(self.mending.log.read(begin, 4), "big", signed=True)
            inner = SMALLEST <= stated < end - begin and heal(self.mending.log.read(begin, stated), begin) is not None
            stop = begin + stated if inner else end
            found.append(Piece(begin, stop, None))
            begin = stop
        return found

    def _healed(self, gap: Gap, piece: Piece) -> Step | None:
        raw = self.mending.log.read(piece.begin, piece.end - piece.begin)
        for claim in (piece.claim, *self._only_missing(gap, piece)):
            healed = heal(raw, piece.begin, claim)
            if healed is not None:
                edits = self.mending.edits(piece.begin, raw, healed.record)
                return Step(gap.finding.kind.id, gap.file.name, healed.what(piece.begin), healed.proof, edits)
        return None

    def _only_missing(self, gap: Gap, piece: Piece) -> list[Claim]:
        """The one message that the queue offsets around a gap say is missing, if the gap is one record."""
        if piece.claim is not None or (piece.begin, piece.end) != (gap.begin, gap.end) or gap.file.lead:
            return []
        found = self._missing_in(gap.begin, gap.end, ())
        return found if len(found) == 1 else []

    def _lost(self, gap: Gap, run: Sequence[Piece]) -> Iterator[Step]:
        """A run of pieces that nothing heals: from a replica, else bridged."""
        begin, end = run[0].begin, run[-1].end
        restored = self.mending.restored(begin, end)
        if restored is not None:
            edits = self.mending.edits(begin, self.mending.log.read(begin, end - begin), restored.data)
            what = f"restore {number_of(end - begin, 'byte')} at {begin} from the replica"
            yield Step(gap.finding.kind.id, gap.file.name, what, restored.proof, edits)
            return
        claims = [piece.claim for piece in run if piece.claim]
        loose = self._missing_in(begin, end, claims)
        at_end = gap.ends_file and end == gap.end
        setting = replace(gap.setting, keeps_tags_code=self.mending.store.is_rocksdb)
        known = self.mending.claims.every() if loose else ()
        made = bridge(begin, end, claims, loose, setting, at_end=at_end, light=self._light, known=known)
        if made is None:
            yield left(gap.finding, f"{end - begin} bytes at {begin} are too few for any record")
            return
        self._placed |= {(c.topic, c.queue_id, c.queue_offset) for c in made.placed}
        yield self._bridged(gap, begin, end, made)

    def _missing_in(self, begin: int, end: int, claims: Sequence[Claim]) -> list[Claim]:
        """Missing messages of holes that span the range and that no claim of it accounts for."""
        known = {(c.topic, c.queue_id, c.queue_offset) for c in claims} | self._claimed
        taken = []
        for hole in self.mending.damage.holes:
            if hole.after < begin and hole.before >= end:
                for offset in range(hole.expected, hole.expected + min(hole.missing, (end - begin) // SMALLEST)):
                    key = hole.topic, hole.queue_id, offset
                    if key not in known and key not in self._placed:
                        taken.append(Claim(*key, physical=-1, source="hole in the queue offsets of the log"))
        return taken

    @cached_property
    def _claimed(self) -> set[tuple[str, int, int]]:
        """Places in queues of all messages whose place in a gap is known."""
        damage, claims = self.mending.damage, self.mending.claims
        inside = (claim for gap in damage.gaps for claim in claims.inside(gap.begin, gap.end))
        return {(c.topic, c.queue_id, c.queue_offset) for c in inside}

    def _bridged(self, gap: Gap, begin: int, end: int, made: Bridge) -> Step:
        raw = self.mending.log.read(begin, len(made.data))
        edits = self.mending.edits(begin, raw, made.data)
        if made.ends_file and not made.placed and len(made.data) == len(blank(0)):
            why = f"a later file has data, no queue unit points into the {end - begin} bytes that are left"
            return Step(gap.finding.kind.id, gap.file.name, f"restore the blank record at {begin}", why, edits)
        count = len(made.placed)
        what = f"bridge {number_of(end - begin, 'byte')} at {begin} with {number_of(count, 'placeholder')}"
        what += "" if made.placed else " (records that brokers walk over)"
        why = "nothing proves what the bytes were; every other record stays where it is"
        if made.placed:
            why += "; topic, queue and queue offset from " + "; ".join(_sources(made.placed))
        return Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=max(count + len(made.unplaced), 1))

    def _light(self, physical: int) -> list[Claim]:
        return [c for c in self.mending.claims.at(physical) if c.topic.startswith(LIGHT_QUEUE)]

    def _cut(self, gap: Gap, at: int, claims: list[Claim]) -> Iterator[Step]:
        edits = tuple(self.mending.zeroed(gap.file, at - gap.file.base))
        if edits:
            what, why = f"end the log at {at}: zero what follows", f"nothing sound follows: {gap.finding.message}"
            is_message = self.mending.log.read(at + 4, 4) in _MAGICS  # torn, and dispatched to no queue yet
            yield Step(gap.finding.kind.id, gap.file.name, what, why, edits, loses=max(len(claims), int(is_message)))


def _runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces that follow each other without anything between."""
    run: list[Piece] = []
    for piece in pieces:
        if run and piece.begin != run[-1].end:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _sources(claims: Sequence[Claim]) -> list[str]:
    """Where placeholders have their places from, the first few."""
    named = [c.source for c in claims[:3]]
    return [*named, f"and {len(claims) - 3} more"] if len(claims) > 3 else named
